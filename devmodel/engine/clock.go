// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is where time comes from.
type Clock interface {
	// Now is the time since some fixed moment.
	Now() time.Duration
	// NewTimer makes a stopped timer that calls f, on any goroutine. In a
	// process that sleeps it is late by up to a millisecond.
	NewTimer(f func()) Timer
	// NewFineTimer makes one that is good for microseconds. From its first
	// Reset to Stop it holds a descriptor and a goroutine.
	NewFineTimer(f func()) Timer
}

// Timer calls its function once after every Reset, unless there is another one
// or Stop before its time. A call that has begun, or is about to, is not held
// back by either.
type Timer interface {
	Reset(d time.Duration)
	Stop()
}

// RealClock is the machine's monotonic clock.
func RealClock() Clock { return realClock{time.Now()} }

type realClock struct{ start time.Time }

func (c realClock) Now() time.Duration { return time.Since(c.start) }

func (c realClock) NewTimer(f func()) Timer { return newRealTimer(f) }

func (c realClock) NewFineTimer(f func()) Timer {
	return &fineTimer{f: f, coarse: newRealTimer(f), open: openTimer}
}

func openTimer() (fd int, err error) {
	return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
}

type realTimer struct{ t *time.Timer }

func newRealTimer(f func()) realTimer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return realTimer{t}
}

func (t realTimer) Reset(d time.Duration) { t.t.Reset(d) }
func (t realTimer) Stop()                 { t.t.Stop() }

// fineTimer is a timer of the kernel, or while there is none to be had one of
// the runtime.
type fineTimer struct {
	f      func()
	coarse realTimer
	open   func() (fd int, err error) // openTimer, but for tests

	mu   sync.Mutex
	file *os.File // nil: none is open; else a goroutine reads it
	fd   int      // of file
}

func (t *fineTimer) Reset(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ready() {
		t.coarse.Reset(d)
		return
	}
	after := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm it
	_ = unix.TimerfdSettime(t.fd, 0, &after, nil)                          // cannot fail
	t.coarse.Stop()
}

func (t *fineTimer) Stop() {
	t.mu.Lock()
	t.coarse.Stop()
	file := t.file
	t.file = nil
	t.mu.Unlock()
	if file != nil {
		_ = file.Close() // waits until the goroutine is not in Read
	}
}

// ready makes sure that there is a timer of the kernel; false: there is none to
// be had.
func (t *fineTimer) ready() bool {
	if t.file != nil {
		return true
	}
	fd, err := t.open()
	if err != nil {
		return false
	}
	t.fd, t.file = fd, os.NewFile(uintptr(fd), "timerfd")
	go t.expirations(t.file)
	return true
}

// expirations calls f whenever the kernel's timer expires, until it is closed.
func (t *fineTimer) expirations(file *os.File) {
	var count [8]byte
	for {
		if _, err := file.Read(count[:]); err != nil {
			t.without(file)
			return
		}
		t.f()
	}
}

// without goes on with the runtime's timer if file, which cannot be waited for,
// is not just closed.
func (t *fineTimer) without(file *os.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != file {
		return
	}
	_ = file.Close()
	t.file = nil
	t.open = func() (int, error) { return -1, os.ErrInvalid }
	t.coarse.Reset(0)
}

// ManualClock stands still until Advance. For tests and replay.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []*manualTimer
}

// Now is the sum of all Advance.
func (c *ManualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer makes a timer that Advance runs.
func (c *ManualClock) NewTimer(f func()) Timer {
	t := &manualTimer{clock: c, f: f}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, t)
	return t
}

// NewFineTimer is NewTimer.
func (c *ManualClock) NewFineTimer(f func()) Timer { return c.NewTimer(f) }

// Advance moves time on by d and runs, before it returns and on the caller's
// goroutine, the timers that are due then.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	c.now += d
	var due []func()
	for _, t := range c.timers {
		if t.running && t.at <= c.now {
			t.running = false
			due = append(due, t.f)
		}
	}
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

type manualTimer struct {
	clock   *ManualClock
	f       func()
	at      time.Duration
	running bool
}

func (t *manualTimer) Reset(d time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.at, t.running = t.clock.now+d, true
}

func (t *manualTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.running = false
}
