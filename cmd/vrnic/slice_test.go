// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestShortSlices: every thread has what was asked for, and all else as it was.
func TestShortSlices(t *testing.T) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if before.Runtime == 0 {
		t.Skip("kernels before 6.12 know no slices of a thread")
	}
	if err := shortSlices(); err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		a, err := unix.SchedGetAttr(id, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := time.Duration(a.Runtime); got != shortest || a.Nice != before.Nice || a.Policy != before.Policy {
			t.Errorf("thread %d: a slice of %v, nice %d, policy %d; want %v, nice %d, policy %d", id, got, a.Nice, a.Policy, shortest, before.Nice, before.Policy)
		}
	}
}
