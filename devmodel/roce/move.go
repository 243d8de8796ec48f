// SPDX-License-Identifier: Apache-2.0

package roce

// move copies the payload of a run to dst at off. It returns how many packets
// it placed and, if not all of them, the fault of the next one.
func move(h Host, dst *SGL, off uint32, run *Run) (placed uint32, f Fault) {
	if run.Bytes == 0 {
		return run.N, Fault{}
	}
	f = h.Copy(dst, off, &run.SGL, run.Off, run.Bytes)
	if !f.failed() {
		return run.N, f
	}
	if run.N == 1 {
		return 0, f
	}
	for k := range run.N {
		at := k * run.Size
		if f = h.Copy(dst, off+at, &run.SGL, run.Off+at, min(run.Size, run.Bytes-at)); f.failed() {
			return k, f
		}
	}
	return run.N, Fault{}
}
