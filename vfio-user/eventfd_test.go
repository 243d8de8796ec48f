// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// blockingEventFD is one that a write waits for when it is full.
func blockingEventFD(tb testing.TB) int {
	tb.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Close(fd) })
	return fd
}

func fill(t *testing.T, fd int) {
	t.Helper()
	var most [8]byte
	binary.NativeEndian.PutUint64(most[:], math.MaxUint64-1)
	if _, err := unix.Write(fd, most[:]); err != nil {
		t.Fatal(err)
	}
}

// count reads an eventfd, which becomes 0.
func count(t *testing.T, fd int) uint64 {
	t.Helper()
	var n [8]byte
	if _, err := unix.Read(fd, n[:]); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(n[:])
}

// testEventFDs are those of a server, with asynchronous reads.
func testEventFDs(tb testing.TB) *eventfds {
	tb.Helper()
	e, err := newEventFDs()
	if err != nil {
		tb.Skip("this kernel has no asynchronous reads for us: ", err)
	}
	tb.Cleanup(e.close)
	return e
}

// TestSignalNeverWaits: the counter above what a write can reach is the mark of
// the signal that needs no room. It is looked for after more signals than the ring
// has entries.
func TestSignalNeverWaits(t *testing.T) {
	e := testEventFDs(t)
	fd := blockingEventFD(t)
	for range 10 * aioReads {
		if err := e.signal(fd); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(t, fd); got != 10*aioReads {
		t.Errorf("%d signals, want %d", got, 10*aioReads)
	}
	fill(t, fd)
	for range 2 {
		if err := e.signal(fd); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(t, fd); got != math.MaxUint64 {
		t.Errorf("counter %#x, want %#x", got, uint64(math.MaxUint64))
	}
}

// TestSignalsAtOnce: no signal is lost when many goroutines fill the ring.
func TestSignalsAtOnce(t *testing.T) {
	e := testEventFDs(t)
	fd := blockingEventFD(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 4 * aioReads {
				if err := e.signal(fd); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := count(t, fd); got != 32*aioReads {
		t.Errorf("%d signals, want %d", got, 32*aioReads)
	}
}

// TestRescue: without asynchronous reads, a write that a client makes wait comes
// back and says so.
func TestRescue(t *testing.T) {
	fd := blockingEventFD(t)
	fill(t, fd)
	if err := pollAndWrite(fd); err != nil {
		t.Errorf("full before: %v", err)
	}
	if err := writeOne(fd); !errors.Is(err, errStuck) {
		t.Errorf("full in between: %v, want %v", err, errStuck)
	}
	if got := count(t, fd); got != 1 {
		t.Errorf("counter %d, want 1", got)
	}
	if err := new(eventfds).signal(fd); err != nil || count(t, fd) != 1 {
		t.Errorf("empty: %v", err)
	}
}

func BenchmarkSignal(b *testing.B) {
	run := func(e *eventfds) func(*testing.B) {
		return func(b *testing.B) {
			v := &vector{fd: blockingEventFD(b), events: e}
			b.ReportAllocs()
			for b.Loop() {
				v.raise()
			}
		}
	}
	b.Run("aio", run(testEventFDs(b)))
	b.Run("write", run(new(eventfds)))
}
