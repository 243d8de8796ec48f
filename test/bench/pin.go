// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin binds the process to one of its CPUs, the last, and returns its number.
// Threads and processes that come later inherit that.
func pin() (int, error) {
	var have, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return 0, fmt.Errorf("affinity: %w", err)
	}
	cpu := -1
	for i := range 8 * len(have) * 8 {
		if have.IsSet(i) {
			cpu = i
		}
	}
	one.Set(cpu)
	// A thread that is not bound yet may have started another in the
	// meantime: go over them until none is new.
	bound := map[int]bool{}
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return 0, err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil || bound[id] {
				continue
			}
			if err := unix.SchedSetaffinity(id, &one); err != nil && !errors.Is(err, unix.ESRCH) {
				return 0, fmt.Errorf("bind thread %d to CPU %d: %w", id, cpu, err)
			}
			bound[id], again = true, true
		}
	}
	return cpu, nil
}
