// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// address is how a connected QP is known to others.
type address struct {
	local, dest [16]byte
	ipv4        bool
	pkey        uint16
	peer        uint32
	loopback    bool // the destination's MAC is the port's own
	reachable   bool // the ARP entry existed when it was named
}

// route latches where the QP's packets go. The MAC is copied: an ARP entry
// may be deleted or reused under a live connection. The caller holds mu.
func (q *QP) route(a ModifyArgs) {
	c := &q.ctx
	n := &address{local: c.LocalIP(), dest: c.DestIP(), ipv4: c.IPv4(), pkey: c.PKey(), peer: c.DestQP()}
	if old := q.address.Load(); old != nil {
		n.loopback, n.reachable = old.loopback, old.reachable
	}
	if a.ARP != nil {
		var mac [6]byte
		mac, n.reachable = a.ARP(c.ARPIndex())
		n.loopback = n.reachable && mac == q.table.cfg.MAC()
	}
	q.address.Store(n)
}

// accepts tells whether packets of a sender at s are for the QP at a.
func (a *address) accepts(s *address) bool {
	const full = 1 << 15
	return a.ipv4 == s.ipv4 && a.local == s.dest && a.dest == s.local &&
		(a.pkey^s.pkey)&(full-1) == 0 && (a.pkey|s.pkey)&full != 0
}

// Transmit gives a run to the network. What goes nowhere is lost, as on a
// wire: the requester's retries end it.
func (q *QP) Transmit(r *roce.Run) bool {
	a := q.address.Load()
	if !a.loopback {
		if !a.reachable {
			q.table.counters.noRoute(a.ipv4)
		}
		return true
	}
	p := q.table.lookup(a.peer)
	if p == nil || p.typ != RoCERC {
		return true
	}
	if b := p.address.Load(); b == nil || !b.accepts(a) {
		return true
	}
	return p.inbox.put(r, q, p, q.shard)
}

// inboxRuns bounds the runs that wait for a QP. A sender who finds it full
// waits until half of them are taken.
const inboxRuns = 64

// inbox is the runs that have come for a QP. Its lock is a leaf.
type inbox struct {
	waiting atomic.Bool // the QP itself waits for room in its peer's inbox
	count   atomic.Int32

	mu      sync.Mutex
	closed  bool
	buf     []roce.Run // a power of two long
	head    int
	waiters []*QP
	waking  []*QP // the other of two buffers
}

// put appends a run of q's for p. False: there is no room, and q will run
// when there is.
func (b *inbox) put(r *roce.Run, q, p *QP, s *engine.Shard) bool {
	b.mu.Lock()
	n := int(b.count.Load())
	switch {
	case b.closed:
		b.mu.Unlock()
		return true
	case n >= inboxRuns:
		if q.inbox.waiting.CompareAndSwap(false, true) {
			b.waiters = append(b.waiters, q)
		}
		b.mu.Unlock()
		return false
	case n == len(b.buf):
		b.grow(n)
	}
	b.buf[(b.head+n)&(len(b.buf)-1)] = *r
	b.count.Store(int32(n + 1))
	b.mu.Unlock()
	p.task.ScheduleOn(s)
	return true
}

func (b *inbox) grow(n int) {
	bigger := make([]roce.Run, max(4, 2*n))
	for i := range n {
		bigger[i] = b.buf[(b.head+i)&(len(b.buf)-1)]
	}
	b.buf, b.head = bigger, 0
}

// take moves the oldest run to r unless it has more than limit bytes.
func (b *inbox) take(r *roce.Run, limit uint32, s *engine.Shard) bool {
	if b.empty() {
		return false
	}
	b.mu.Lock()
	n := int(b.count.Load())
	if n == 0 || b.buf[b.head].Bytes > limit {
		b.mu.Unlock()
		return false
	}
	*r = b.buf[b.head]
	b.head = (b.head + 1) & (len(b.buf) - 1)
	n--
	b.count.Store(int32(n))
	var wake []*QP
	if n <= inboxRuns/2 && len(b.waiters) > 0 {
		wake = b.waiters
		b.waiters, b.waking = b.waking[:0], wake
	}
	b.mu.Unlock()
	b.wake(wake, s)
	return true
}

// wake schedules waiters. Only the inbox's own QP's step and close call it,
// never at once.
func (b *inbox) wake(waiters []*QP, s *engine.Shard) {
	for i, w := range waiters {
		waiters[i] = nil
		w.inbox.waiting.Store(false)
		w.task.ScheduleOn(s)
	}
}

func (b *inbox) empty() bool { return b.count.Load() == 0 }

// close drops what is there and what still comes.
func (b *inbox) close(s *engine.Shard) {
	b.mu.Lock()
	waiters := b.waiters
	b.closed, b.buf, b.head, b.waiters, b.waking = true, nil, 0, nil, nil
	b.count.Store(0)
	b.mu.Unlock()
	b.wake(waiters, s)
}
