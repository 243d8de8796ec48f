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
	// Passed counts a burst that went a way that Find has found.
	Passed(way any, path *wire.Path, b *Burst)
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
	var p wire.Packet
	length := func(k uint32) int {
		p.FromRun(r, k)
		return wire.L3(path) + wire.Octets(path, p.Opcode, int(r.PacketBytes(k)))
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

// passes gives a run to the peer on another card of this process, if that is
// near. ok: the peer has no room, or the run is there, or lost.
func (q *QP) passes(a *address, r *roce.Run) (sent, ok bool) {
	near := q.table.cfg.Near
	if near == nil {
		return false, false
	}
	b := &q.work.burst
	*b = Burst{}
	if r.Op != roce.SourceFault { // no packet
		*b = burst(r, &a.path)
	}
	t, way := near.Find(&a.path, b)
	if t == nil || t.cfg.Engine != q.table.cfg.Engine {
		return false, false
	}
	// A function that may not touch memory takes nothing, as in Receive.
	if t.cfg.MayDMA() && !q.deliver(t, a, r) {
		return false, true
	}
	if b.Frames > 0 {
		near.Passed(way, &a.path, b)
	}
	return true, true
}
