// SPDX-License-Identifier: Apache-2.0

// Package grace tells when work that may still use an object is over.
//
// The data path runs in steps, on several shards at once, and takes no lock
// that would keep an object alive. Who ends an object first unlinks it, so
// that no step that begins from then on finds it, and then waits until every
// step that had begun before is over.
//
// Contract and traps:
//   - A slot belongs to one goroutine at a time; steps do not nest.
//   - What a step uses it looks up after Enter. The unlinking must be visible
//     before Quiet or Wait is called: an atomic store, or a change under a
//     lock that the step's look-up takes too.
//   - Never Wait inside a step, nor while holding a lock that a step takes.
//   - Enter, Leave, Quiet and QuietBut never block; nothing here allocates.
package grace

import (
	"sync"
	"sync/atomic"
)

// cacheLine is twice the line of current processors: they fetch pairs.
const cacheLine = 128

// slot is one shard's place: odd while a step runs.
type slot struct {
	epoch atomic.Uint64
	_     [cacheLine - 8]byte
}

// Domain is a set of shards. The zero value has none and is always quiet.
type Domain struct {
	slots []slot

	waiters atomic.Int32 // in Wait
	mu      sync.Mutex
	left    sync.Cond // a step ended while somebody waits
}

// New makes a domain of n slots, 0 to n-1.
func New(n int) *Domain {
	d := &Domain{slots: make([]slot, n)}
	d.left.L = &d.mu
	return d
}

// Enter begins a step on slot i.
func (d *Domain) Enter(i int) {
	if d.slots[i].epoch.Add(1)&1 == 0 {
		panic("grace: steps nest")
	}
}

// Leave ends it.
func (d *Domain) Leave(i int) {
	if d.slots[i].epoch.Add(1)&1 != 0 {
		panic("grace: Leave without Enter")
	}
	if d.waiters.Load() != 0 {
		// Under the lock, so that a waiter is either before its look at the
		// epoch or asleep.
		d.mu.Lock()
		d.left.Broadcast()
		d.mu.Unlock()
	}
}

// Quiet tells whether no step runs: what was unlinked before is not in use.
func (d *Domain) Quiet() bool {
	for i := range d.slots {
		if d.slots[i].epoch.Load()&1 != 0 {
			return false
		}
	}
	return true
}

// QuietBut is Quiet for a step on slot i: whether no other one runs.
func (d *Domain) QuietBut(i int) bool {
	for k := range d.slots {
		if k != i && d.slots[k].epoch.Load()&1 != 0 {
			return false
		}
	}
	return true
}

// Wait returns when every step that ran when it was called is over. Steps that
// begin later do not delay it.
func (d *Domain) Wait() {
	for i := range d.slots {
		if e := d.slots[i].epoch.Load(); e&1 != 0 {
			d.waitFor(&d.slots[i], e)
		}
	}
}

// waitFor sleeps while the step that began with epoch e runs. Looking at one
// slot after the other is enough: what begins on a later slot meanwhile began
// after the call and is at most waited for in vain.
func (d *Domain) waitFor(s *slot, e uint64) {
	d.waiters.Add(1)
	d.mu.Lock()
	for s.epoch.Load() == e {
		d.left.Wait()
	}
	d.mu.Unlock()
	d.waiters.Add(-1)
}
