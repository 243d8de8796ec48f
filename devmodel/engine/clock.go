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
	// NewTimer makes a stopped timer that calls f, on any goroutine.
	NewTimer(f func()) Timer
}

// Timer calls its function once after every Reset.
type Timer interface {
	Reset(d time.Duration)
	Stop()
}

// RealClock is the machine's monotonic clock.
func RealClock() Clock { return realClock{time.Now()} }

type realClock struct{ start time.Time }

func (c realClock) Now() time.Duration { return time.Since(c.start) }

func (c realClock) NewTimer(f func()) Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return &realTimer{t: t, f: f}
}

// short is what a timer of the runtime is not good for: in a process that
// sleeps it is late by up to a millisecond. Shorter times are the kernel's.
const short = 2 * time.Millisecond

// realTimer is a timer of the runtime, and one of the kernel while short times
// are asked for.
type realTimer struct {
	f func()

	mu sync.Mutex
	t  *time.Timer
	fd int
	// file is fd; nil: none is open. A goroutine reads it.
	file *os.File
}

func (t *realTimer) Reset(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d < short && t.open() {
		t.t.Stop()
		t.set(max(d, 1)) // 0 would disarm it
		return
	}
	if t.file != nil {
		t.set(0)
	}
	t.t.Reset(d)
}

// Stop gives the kernel's timer back, too.
func (t *realTimer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Stop()
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}

// open makes sure that there is a timer of the kernel; false: there is none to
// be had.
func (t *realTimer) open() bool {
	if t.file != nil {
		return true
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return false
	}
	t.fd, t.file = fd, os.NewFile(uintptr(fd), "timerfd")
	go expirations(t.file, t.f)
	return true
}

// set arms the kernel's timer; 0 disarms it.
func (t *realTimer) set(d time.Duration) {
	_ = unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

// expirations calls f whenever the timer expires, until it is closed.
func expirations(timer *os.File, f func()) {
	var count [8]byte
	for {
		if _, err := timer.Read(count[:]); err != nil {
			return
		}
		f()
	}
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
