// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPace(t *testing.T) {
	const window, most = time.Second, 100
	p := pace{window: window, most: most}
	start := time.Unix(1000, 0)
	for i, step := range []struct {
		at    time.Duration
		n     int
		pause time.Duration
	}{
		{0, most - 1, 0},
		{window / 4, 1, 3 * window / 4},
		{window, most - 1, 0}, // a new window
		{window, 1, window},
		{3*window - 1, 1, 0},
		{5 * window, most, window},
	} {
		if got := p.pause(start.Add(step.at), step.n); got != step.pause {
			t.Errorf("step %d: pause of %v, want %v", i, got, step.pause)
		}
	}
}

// TestWatchIsPaced: a client that masks in a loop is not heard more often than
// agreed, however long the test takes.
func TestWatchIsPaced(t *testing.T) {
	const window, most = 50 * time.Millisecond, 2
	acts := make(chan struct{})
	w := irqWatch{act: func(int, int, bool) { acts <- struct{}{} }, pace: pace{window: window, most: most}}
	fd := blockingEventFD(t)
	theirs, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := w.set(watchKey{mask: true}, theirs); err != nil {
		t.Fatal(err)
	}
	one := [8]byte{1}
	const n = 10
	for range n {
		if _, err := unix.Write(fd, one[:]); err != nil {
			t.Fatal(err)
		}
		<-acts
	}
	if windows := int(time.Since(start)/window) + 1; n > windows*most {
		t.Errorf("%d events in %d windows, want no more than %d", n, windows, windows*most)
	}
	w.close()
}
