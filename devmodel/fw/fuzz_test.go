// SPDX-License-Identifier: Apache-2.0

package fw

import "testing"

// FuzzPackage downloads package buffers of the fuzzer's choice. Sections lie
// inside their buffer; a download ends with a package in effect or with an
// error that names a place in the buffer, and the next good one works.
func FuzzPackage(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte, last bool) {
		for _, p := range [][]byte{a, b} {
			if len(p) < pkgHeader {
				return
			}
			sections, at, err := parseBuffer(p)
			if err != nil && at > len(p) {
				t.Fatalf("error at %#x of %d bytes: %v", at, len(p), err)
			}
			n := 0
			for _, s := range sections {
				n += len(s.data)
			}
			if err == nil && (len(sections) != int(le.Uint16(p)) || n > len(sections)*len(p)) {
				t.Fatalf("%d sections with %d bytes of a buffer of %d", len(sections), n, len(p))
			}
		}
		d := booted(t)
		d.send(0x0008, 0, params(resGlobal, accessWrite), nil)
		for i, p := range [][]byte{a, b} {
			p = p[:min(len(p), maxAdminBuf)]
			end := byte(0)
			if last || i == 1 {
				end = 1
			}
			got := d.send(0x0c40, flagRD, []byte{end, 0, 0, 0, 0, 0, 0, 0}, p)
			if got.rc == rcEINVAL && int(le.Uint32(got.p)) > len(p) {
				t.Fatalf("error offset %#x in a buffer of %d", le.Uint32(got.p), len(p))
			}
			if name, _, ok := d.f.Package(); ok && len(name) > 28 {
				t.Fatalf("name %q", name)
			}
			d.send(0x0c42, flagRD, params(1), p)
			d.send(0x0c41, flagRD, nil, p)
		}
		d.send(0x0009, 0, params(resGlobal), nil)
		d.f.ddp = ddpState{}
		d.download(pkgBuffer(metadata("good", 1, 2, 3, 4)))
		if name, _, ok := d.f.Package(); !ok || name != "good" {
			t.Errorf("package %q %t after a good download", name, ok)
		}
	})
}
