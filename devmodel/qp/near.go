// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// Near is the way to cards of this process, on the same engine, that frames
// would reach without anybody seeing them: runs go there as they are, with one
// copy from guest to guest.
type Near interface {
	// Find returns the queue pairs of the card at the end of the path, and the
	// way there, if a burst from here would get to them unseen; nil if not:
	// then frames are to be sent.
	Find(path *wire.Path, b *Burst) (t *Table, way any)
	// Passed counts bursts that went a way that Find has found: so many, all like
	// b.
	Passed(way any, path *wire.Path, b *Burst, times uint64)
}

// Burst is the frames of a run: their number, and their lengths in bytes without
// FCS and what Ethernet pads short ones with. One alone has the length Last.
type Burst struct {
	Frames              uint64
	First, Middle, Last int
}

// burst is the frames that a run would be on a path. Those of a message are at
// most of three lengths.
func burst(r *roce.Run, path *wire.Path) Burst {
	length := func(k uint32) int {
		return wire.L3(path) + wire.Octets(path, wire.OpcodeOf(r, k), int(r.PacketBytes(k)))
	}
	b := Burst{Frames: uint64(r.N), Last: length(r.N - 1)}
	if r.N > 1 {
		b.First = length(0)
	}
	if r.N > 2 {
		b.Middle = length(1)
	}
	return b
}

// Bytes is the length of all frames together.
func (b *Burst) Bytes() uint64 {
	n := uint64(b.First) + uint64(b.Last)
	if b.Frames > 2 {
		n += (b.Frames - 2) * uint64(b.Middle)
	}
	return n
}

func (b *Burst) longest() int { return max(b.First, b.Middle, b.Last) }

// passage is the near way of a QP's bursts in the step that it takes: found once,
// and told once of all that passed. What changes on the way meanwhile changes it
// from the next step on.
type passage struct {
	from    *address // nil: there is none yet
	longest int      // of the frames that it is known to take
	to      *Table
	way     any
	burst   Burst // how the last ones were
	times   uint64
}

// passed tells of what has passed and is not told yet: before anybody hears of
// its completion, and when the step ends.
func (q *QP) passed() {
	if p := &q.work.passage; p.times > 0 {
		q.table.cfg.Near.Passed(p.way, &p.from.path, &p.burst, p.times)
		p.times = 0
	}
}

// passage is the way of a burst, or nil.
func (q *QP) passage(a *address, b *Burst) *passage {
	p := &q.work.passage
	if p.from == a && b.longest() <= p.longest {
		return p
	}
	q.passed()
	p.from = nil
	t, way := q.table.cfg.Near.Find(&a.path, b)
	if t == nil || t.cfg.Engine != q.table.cfg.Engine {
		return nil
	}
	*p = passage{from: a, longest: b.longest(), to: t, way: way}
	return p
}

// passes gives a run to the peer on another card of this process, if that is
// near. ok: the peer has no room, or the run is there, or lost.
func (q *QP) passes(a *address, r *roce.Run) (sent, ok bool) {
	if q.table.cfg.Near == nil {
		return false, false
	}
	b := &q.work.burst
	*b = Burst{}
	if r.Op != roce.SourceFault { // no packet
		*b = burst(r, &a.path)
	}
	p := q.passage(a, b)
	if p == nil {
		return false, false
	}
	// A function that may not touch memory takes nothing, as in Receive.
	if p.to.cfg.MayDMA() && !q.deliver(p.to, a, r) {
		return false, true
	}
	if b.Frames > 0 {
		if p.burst != *b {
			q.passed()
			p.burst = *b
		}
		p.times++
	}
	return true, true
}
