// SPDX-License-Identifier: Apache-2.0

package grace

import "sync"

// Source tells when work that goes on beside a lock is over; *Domain does.
type Source interface {
	// Quiet tells whether nothing is under way.
	Quiet() bool
	// Wait returns when everything that was under way at the call is over.
	Wait()
}

// alwaysQuiet is the Source where nothing runs beside the lock.
type alwaysQuiet struct{}

func (alwaysQuiet) Quiet() bool { return true }
func (alwaysQuiet) Wait()       {}

// After puts off one thing at a time, until what is under way is over or just
// until the holder of a lock has let others have it. At most one goroutine
// waits, whatever is parked.
//
// All methods but Close are called with the lock held.
type After struct {
	source Source
	lock   sync.Locker

	parked   func()
	first    func() // waits for more than what is under way; nil: nothing
	parkings uint64
	waiting  bool // there is a goroutine in wait
	closed   bool
	waiters  sync.WaitGroup
}

// NewAfter makes an After. Without a source nothing is ever under way; without
// a lock it has one of its own.
func NewAfter(s Source, lock sync.Locker) *After {
	if s == nil {
		s = alwaysQuiet{}
	}
	if lock == nil {
		lock = &sync.Mutex{}
	}
	return &After{source: s, lock: lock}
}

// Quiet tells whether nothing is under way.
func (a *After) Quiet() bool { return a.source.Quiet() }

// Parked tells whether something is put off.
func (a *After) Parked() bool { return a.parked != nil }

// Park puts off f until what is under way is over; f then runs with the lock
// held. What was parked before is dropped.
func (a *After) Park(f func()) { a.ParkBehind(nil, f) }

// ParkBehind is Park until wait has returned, too, which is called without the
// lock.
func (a *After) ParkBehind(wait, f func()) {
	if a.closed {
		return
	}
	a.parked, a.first = f, wait
	a.parkings++
	if !a.waiting {
		a.waiting = true
		a.waiters.Go(a.wait)
	}
}

// Drop forgets what is parked.
func (a *After) Drop() { a.parked, a.first = nil, nil }

func (a *After) wait() {
	a.lock.Lock()
	defer a.lock.Unlock()
	for a.parked != nil {
		parking, first := a.parkings, a.first
		a.lock.Unlock()
		if first != nil {
			first()
		}
		a.source.Wait()
		a.lock.Lock()
		// What was parked since may need a longer wait than this one.
		if f := a.parked; f != nil && a.parkings == parking {
			a.parked, a.first = nil, nil
			f()
		}
	}
	a.waiting = false
}

// Close drops what is parked, now and from now on, and returns when no
// goroutine waits any more. The caller does not hold the lock.
func (a *After) Close() {
	a.lock.Lock()
	a.closed, a.parked, a.first = true, nil, nil
	a.lock.Unlock()
	a.waiters.Wait()
}
