// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/ring"
	"github.com/vrnic/vrnic/devmodel/roce"
)

const (
	// inboxRuns bounds the runs that wait for a QP. A sender who finds it full
	// waits until half of them are taken.
	inboxRuns = 64
	// inboxFrames bounds the frames. Nobody waits to send one: it is dropped.
	inboxFrames = 2048
)

// inbox is what has come for a QP and it has not looked at: runs of QPs in this
// process and frames from the wire, in the order in which they came. Its lock
// is a leaf.
type inbox struct {
	waiting atomic.Bool // the QP itself waits for room in its peer's inbox
	count   atomic.Int32

	mu      sync.Mutex
	closed  bool
	order   uint32
	runs    ring.Ring[parcel]
	first   *buffer // frames, oldest first
	last    *buffer
	frames  int
	waiters []*QP
	waking  []*QP // the other of two buffers
}

// parcel is a run in an inbox.
type parcel struct {
	run   roce.Run
	order uint32 // when it came
}

// put appends a run of q's for p. False: there is no room, and q will run
// when there is.
func (b *inbox) put(r *roce.Run, q, p *QP, s *engine.Shard) bool {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return true
	case b.runs.Len() >= inboxRuns:
		if q.inbox.waiting.CompareAndSwap(false, true) {
			b.waiters = append(b.waiters, q)
		}
		b.mu.Unlock()
		return false
	}
	b.push(r, &p.table.parcels)
	b.mu.Unlock()
	p.task.ScheduleOn(s)
	return true
}

// note appends a run of p's own, whose inbox and step it is. Where many wait already
// it is lost.
func (b *inbox) note(r *roce.Run, p *QP) {
	b.mu.Lock()
	if !b.closed && b.runs.Len() < 2*inboxRuns {
		b.push(r, &p.table.parcels)
	}
	b.mu.Unlock()
}

// push appends a run. The caller holds mu.
func (b *inbox) push(r *roce.Run, pool *ring.Pool[parcel]) {
	at := b.runs.Push(pool)
	at.run, at.order = *r, b.order
	b.order++
	b.count.Add(1)
}

// putFrame appends a frame for p; it is the inbox's then. False: there is no
// room.
func (b *inbox) putFrame(f *buffer, p *QP) bool {
	b.mu.Lock()
	if b.closed || b.frames >= inboxFrames {
		b.mu.Unlock()
		return false
	}
	f.next, f.order = nil, b.order
	b.order++
	if b.last == nil {
		b.first = f
	} else {
		b.last.next = f
	}
	b.last = f
	b.frames++
	b.count.Add(1)
	b.mu.Unlock()
	p.task.Schedule()
	return true
}

// take removes the oldest run or frame for p, whose step it is, unless it has more than limit bytes of
// payload: a run goes to r, a frame is returned.
func (b *inbox) take(r *roce.Run, limit uint32, p *QP) (f *buffer, ok bool) {
	if b.empty() {
		return nil, false
	}
	b.mu.Lock()
	f = b.first
	if b.runs.Len() > 0 && (f == nil || int32(b.runs.At(0).order-f.order) < 0) {
		return nil, b.takeRun(r, limit, p)
	}
	if f == nil || uint32(len(f.packet.Payload)) > limit {
		b.mu.Unlock()
		return nil, false
	}
	if b.first = f.next; b.first == nil {
		b.last = nil
	}
	b.frames--
	b.count.Add(-1)
	b.mu.Unlock()
	return f, true
}

// takeRun is take for the oldest run. It gives up mu, which the caller holds.
func (b *inbox) takeRun(r *roce.Run, limit uint32, p *QP) bool {
	at := b.runs.At(0)
	if at.run.Bytes > limit {
		b.mu.Unlock()
		return false
	}
	*r = at.run
	b.runs.Pop()
	b.runs.Rest(&p.table.parcels)
	b.count.Add(-1)
	var wake []*QP
	if b.runs.Len() <= inboxRuns/2 && len(b.waiters) > 0 {
		wake = b.waiters
		b.waiters, b.waking = b.waking[:0], wake
	}
	b.mu.Unlock()
	b.wake(wake, p.shard)
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
	waiters, frames := b.waiters, b.first
	b.closed, b.runs, b.waiters, b.waking = true, ring.Ring[parcel]{}, nil, nil
	b.first, b.last, b.frames = nil, nil, 0
	b.count.Store(0)
	b.mu.Unlock()
	b.wake(waiters, s)
	for f := frames; f != nil; {
		next := f.next
		f.release()
		f = next
	}
}
