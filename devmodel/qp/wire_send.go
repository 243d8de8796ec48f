// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"time"

	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// Wire is the card's port.
type Wire interface {
	// Send gives a frame without FCS to the port; it is valid during the call,
	// and may be padded in the capacity of its slice. False: it did not leave,
	// there is no link.
	Send(frame []byte) (sent bool)
}

// Pacer is a Wire that can say when to wait.
type Pacer interface {
	// Crowded tells that frames to dst would wait behind many others, and be lost
	// if more came. It is not for ever: nobody waits for who takes nothing.
	Crowded(dst [6]byte) bool
}

// crowdRest is how long a QP waits before it looks again whether there is still a
// crowd.
const crowdRest = time.Millisecond

// mustWait tells whether frames to dst are for later, as there is a crowd. The
// caller holds mu.
func (q *QP) mustWait(dst [6]byte) bool {
	if q.table.pacer == nil || !q.table.pacer.Crowded(dst) {
		return false // what had to wait before in this step waits still
	}
	q.crowded = true
	return true
}

// wireWindow is how many packets a requester leaves unacknowledged on the way:
// peers in software drop longer bursts (rxe_param.h:RXE_MAX_UNACKED_PSNS).
const wireWindow = 128

// transmitFrame sends a frame through the port. False: it did not leave.
func (t *Table) transmitFrame(f []byte) bool {
	return t.cfg.Wire != nil && t.cfg.Wire.Send(f)
}

// sendFrames cuts a run into packets and sends them. A step sends so much and
// no more: false, and the next one goes on.
func (q *QP) sendFrames(a *address, r *roce.Run) bool {
	if r.Op == roce.SourceFault {
		return true // no packet of a wire; the sender finds out by itself
	}
	if q.unread.due && r.IsResponse() {
		return false // no answer overtakes that
	}
	if q.toSend < r.Bytes || q.toSend == 0 {
		q.unsent = true
		return false
	}
	if r.Bytes > 0 && q.mustWait(a.path.DestMAC) {
		return false
	}
	q.toSend -= max(r.Bytes, min(q.toSend, frameCost))
	p := wire.Packet{PKey: a.pkey, DestQP: a.peer}
	p.FromRun(r, 0)
	b := q.table.buffers.scratch(wire.MaxHeader + int(min(r.Size, r.Bytes)) + wire.Trailer)
	if b == nil {
		q.notSent(a, r, 0)
		return true
	}
	defer b.release()
	for k := range r.N {
		if k > 0 {
			p.FromRun(r, k)
		}
		n := r.PacketBytes(k)
		at := wire.HeaderLen(&a.path, p.Opcode)
		if f := q.read(b.bytes[at:at+int(n)], &r.SGL, r.Off+k*r.Size); f.failed {
			q.notSent(a, r, k)
			q.sourceFault(r.Op == roce.ReadResponse, p.PSN, f.code)
			return true
		}
		q.transmitPacket(p.Encode(b.bytes, &a.path, int(n)), &p, r, k)
	}
	return true
}

// unread is the news for the QP's own responder that a response could not be
// read. It does not wait in the inbox: what waits there may be kept from being
// handled until the responses are sent.
type unread struct {
	due  bool
	psn  uint32
	code roce.Code
}

// sourceFault has the Endpoint hear in the next step of payload that could not be
// read; its host may not call it in this one.
func (q *QP) sourceFault(response bool, psn uint32, code roce.Code) {
	if response {
		q.unread = unread{true, psn, code}
		return
	}
	q.inbox.note(&roce.Run{Op: roce.SourceFault, PSN: psn, N: 1, Code: code}, q)
}

// tell gives the Endpoint the news of a response.
func (q *QP) tell() {
	u := q.unread
	if q.unread.due = false; u.due && q.state.receives() {
		q.ep.Handle(&roce.Run{Op: roce.SourceFault, Response: true, PSN: u.psn, N: 1, Code: u.code})
	}
}

// frameCost is what a packet without payload counts of the bytes that a step
// sends.
const frameCost = 512

// readFault is payload that cannot be read.
type readFault struct {
	failed bool
	code   roce.Code
}

// read copies len(p) bytes from off on of a list of the QP's own.
func (q *QP) read(p []byte, l *roce.SGL, off uint32) readFault {
	if len(p) == 0 {
		return readFault{}
	}
	if l.Inline {
		l.InlineBytes(p, off)
		return readFault{}
	}
	if !q.table.cfg.MayDMA() {
		return readFault{true, roce.Catastrophic}
	}
	need := mr.LocalRead
	if l.Remote {
		need = mr.RemoteRead
	}
	segs, f := q.owner.resolve(q.work.src[:0], l, off, uint32(len(p)), need)
	q.work.src = segs
	if f != nil {
		return readFault{true, roce.Code(f.Code)}
	}
	if err := q.table.cfg.Payload.Gather(p, segs); err != nil {
		q.owner.noMemory(l, off, segs, false, err)
		return readFault{true, roce.Catastrophic}
	}
	return readFault{}
}
