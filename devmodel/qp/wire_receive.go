// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// multicastQP is the destination of packets to a multicast group.
const multicastQP = 1<<24 - 1

// Receive takes a RoCE frame, of which i is the Info, from the port. It may be
// called from any goroutine, does not block, and the frame is valid during the
// call. What is not for a QP is dropped in silence: the order of the checks is
// that of rxe_recv.c:rxe_rcv.
func (t *Table) Receive(f []byte, i *frame.Info) {
	if !t.cfg.MayDMA() {
		return // the driver that could help packets that come now is gone
	}
	var p wire.Packet
	v := p.Parse(f, i)
	if v == wire.OK {
		v = t.admit(f, &p)
	}
	t.arrived(&p, v)
	t.note(f, &p, v)
}

// admit finds the QP that a packet is for and gives it the frame.
func (t *Table) admit(f []byte, p *wire.Packet) wire.Verdict {
	if p.DestQP == multicastQP {
		return t.multicast(f, p)
	}
	q := t.lookup(p.DestQP)
	if q == nil {
		return wire.NoQP
	}
	service := wire.ServiceOf(p.Opcode)
	if service == wire.Congestion {
		return t.congestion(f, q, p)
	}
	if (service == wire.UD) != (q.typ == RoCEUD) {
		return wire.WrongService
	}
	if q.typ == RoCEUD {
		if v := q.admitDatagram(p); v != wire.OK {
			return v
		}
		return t.queue(f, p, q)
	}
	a := q.address.Load()
	switch {
	case a == nil:
		return wire.WrongState
	case !a.connected(&p.Path):
		return wire.WrongAddress
	case !inVLAN(p, a.vid()):
		return wire.BadVLAN
	case !samePartition(a.pkey, p.PKey):
		return wire.BadPKey
	}
	return t.queue(f, p, q)
}

// inVLAN tells whether a packet came in that VLAN; 0 is that of frames without
// a tag or with one of priority only.
func inVLAN(p *wire.Packet, vid uint16) bool { return p.TCI&vidMask == vid }

// queue checks the packet's ICRC and gives a copy of the frame to the QP.
func (t *Table) queue(f []byte, p *wire.Packet, q *QP) wire.Verdict {
	if !p.CheckICRC(f) {
		return wire.BadICRC
	}
	return t.enqueue(f, p, q)
}

// enqueue gives a copy of a frame to the QP.
func (t *Table) enqueue(f []byte, p *wire.Packet, q *QP) wire.Verdict {
	b := t.buffers.take(len(f))
	if b == nil {
		return wire.NoBuffer
	}
	copy(b.bytes, f)
	b.packet = *p
	b.hold(t, f)
	at := cap(f) - cap(p.Payload) // the payload lies in f
	b.packet.Payload = b.bytes[at : at+len(p.Payload)]
	if !q.inbox.putFrame(b, q) {
		b.release()
		return wire.NoBuffer
	}
	return wire.OK
}

// run makes in the run of a frame's packet. False: it is none of a connection.
func (b *buffer) run(in *roce.Run, mtu uint32) bool {
	if !b.packet.Run(in, mtu) {
		return false
	}
	in.SGL.Reset()
	in.SGL.Owner = b
	in.SGL.Add(0, 0, uint32(len(b.packet.Payload)))
	return true
}

// copyFrame moves payload of a frame into the QP's memory, which is resolved.
func (q *QP) copyFrame(dst *roce.SGL, dstOff uint32, from *buffer, src *roce.SGL, off, n uint32) roce.Fault {
	_, at, have, ok := src.Piece(off)
	if !ok || have < n {
		return roce.Fault{Gone: true}
	}
	return q.scatter(dst, dstOff, from.packet.Payload[at:at+uint64(n)])
}

// scatter writes payload to the QP's memory, which is resolved.
func (q *QP) scatter(dst *roce.SGL, dstOff uint32, p []byte) roce.Fault {
	if err := q.table.cfg.Payload.Scatter(q.work.dst, p); err != nil {
		q.owner.noMemory(dst, dstOff, q.work.dst, true, err)
		return memoryFault(err)
	}
	return roce.Fault{}
}

// congestion takes a notification of congestion: its rate is not controlled
// (DCQCNENABLE is 0), so nothing follows from it.
func (t *Table) congestion(f []byte, q *QP, p *wire.Packet) wire.Verdict {
	if !p.CheckICRC(f) {
		return wire.BadICRC
	}
	t.counters.add(cnpIgnored, 1)
	return wire.OK
}
