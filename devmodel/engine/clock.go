// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
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
	return realTimer{t}
}

type realTimer struct{ t *time.Timer }

func (t realTimer) Reset(d time.Duration) { t.t.Reset(d) }
func (t realTimer) Stop()                 { t.t.Stop() }

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
