// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// Notes takes comments on frames: somebody captures what passes the port. A
// frame is known by where its bytes are. Any goroutine may call its methods.
type Notes interface {
	// Outgoing says what the frame is that is sent next from that memory. An
	// empty text takes it back.
	Outgoing(f []byte, text string)
	// Incoming is the note on a frame that is being received; nil: nobody wants
	// to know.
	Incoming(f []byte) Note
}

// Note takes comments on one frame during its Receive, and from Hold to Done.
type Note interface {
	Say(text string)
	Hold()
	Done()
}

// note says of a frame that is being received what became of it, unless the QP
// will.
func (t *Table) note(f []byte, p *wire.Packet, v wire.Verdict) {
	if t.cfg.Notes == nil || v == wire.OK && wire.ServiceOf(p.Opcode) != wire.Congestion {
		return
	}
	if n := t.cfg.Notes.Incoming(f); n != nil {
		n.Say(verdictText(p.DestQP, v))
	}
}

func verdictText(id uint32, v wire.Verdict) string {
	if v == wire.OK {
		return fmt.Sprintf("QP %d: taken", id)
	}
	return fmt.Sprintf("QP %d: dropped: %v", id, v)
}

// hold has the buffer keep the note on the frame that is copied into it.
func (b *buffer) hold(t *Table, f []byte) {
	if t.cfg.Notes == nil {
		return
	}
	if n := t.cfg.Notes.Incoming(f); n != nil {
		n.Hold()
		b.note = n
	}
}

// handle gives a run to the Endpoint; b is the frame it was made from, or nil.
// The caller holds mu.
func (q *QP) handle(in *roce.Run, b *buffer) {
	if b == nil || b.note == nil {
		q.ep.Handle(in)
		return
	}
	before := q.ep.Before(in)
	q.ep.Handle(in)
	b.note.Say(fmt.Sprintf("QP %d: %s", q.id, q.ep.Outcome(&before)))
}

// announce sends a frame and says what it is, if somebody wants to know.
func (q *QP) announce(f []byte, text func() string) {
	n := q.table.cfg.Notes
	if n == nil {
		q.table.transmitFrame(f)
		return
	}
	n.Outgoing(f, text())
	q.table.transmitFrame(f)
	n.Outgoing(f, "")
}

// transmitPacket sends the frame of packet k of a run that Transmit has.
func (q *QP) transmitPacket(f []byte, p *wire.Packet, r *roce.Run, k uint32) {
	q.announce(f, func() string {
		return fmt.Sprintf("QP %d -> %d: %s, %s", q.id, p.DestQP, wire.Name(p.Opcode), q.ep.Sending(r, k))
	})
}

// transmitDatagram sends the frame of a send WQE.
func (q *QP) transmitDatagram(f []byte, p *wire.Packet, w *roce.WQE) {
	q.announce(f, func() string {
		return fmt.Sprintf("QP %d -> %d: %s, packet 1/1, WQE %d", q.id, p.DestQP, wire.Name(p.Opcode), w.Index)
	})
}
