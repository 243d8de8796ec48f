// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shortest is the shortest slice that the kernel gives (kernel/sched/syscalls.c:
// __setparam_fair).
const shortest = 100 * time.Microsecond

// shortSlices asks the kernel to give this process's threads the CPU often and
// briefly. Guests that poll, as RDMA programs do, leave no CPU free, and a thread
// that wakes up to take a doorbell would wait until one of them has had its slice:
// with a shorter one of its own it goes first, as long as it takes less than its
// share. Threads and processes started later inherit that. Kernels before 6.12
// take the request and do nothing.
func shortSlices() error {
	seen := map[int]bool{}
	// One that has not asked yet may have started another meanwhile: go over
	// them until none is new.
	for again := true; again; {
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("short time slices: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil || seen[id] {
				continue
			}
			if err := shortSlice(id); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("short time slices: thread %d: %w", id, err)
			}
			seen[id], again = true, true
		}
	}
	return nil
}

func shortSlice(thread int) error {
	a, err := unix.SchedGetAttr(thread, 0)
	if err != nil || a.Policy != unix.SCHED_NORMAL && a.Policy != unix.SCHED_BATCH {
		return err // those of other policies preempt anyway
	}
	a.Runtime = uint64(shortest)
	return unix.SchedSetAttr(thread, a, 0)
}
