// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

const (
	// grhSize is the length of what stands in front of a datagram's payload in
	// the receive buffer: the IPv6 header, or zeros and the one of IPv4 in the
	// last 20 bytes (libibverbs verbs.c:get_grh_header_version).
	grhSize = 40
	ipv4At  = 20
	// groupsPerAddress bounds how many groups of one address, of which drivers
	// make one, a datagram is copied to.
	groupsPerAddress = 8
)

// admitDatagram tells whether a UD QP takes a packet. Any goroutine may call
// it.
func (q *QP) admitDatagram(p *wire.Packet) wire.Verdict {
	k := q.keys.Load()
	switch {
	case k == nil:
		return wire.WrongState
	case !samePartition(k.pkey, p.PKey):
		return wire.BadPKey
	case k.qkey != p.QKey:
		return wire.BadQKey
	}
	return wire.OK
}

// multicast gives a packet to the members of its group, the sender's own QP
// among them if it is one (as rxe_recv.c:rxe_rcv_mcast_pkt).
func (t *Table) multicast(f []byte, p *wire.Packet) wire.Verdict {
	if wire.ServiceOf(p.Opcode) != wire.UD {
		return wire.WrongService
	}
	verdict, whole, groups := wire.NoGroup, false, t.groups.of(p.Dest, p.IPv4)
	for _, g := range groups[:min(len(groups), groupsPerAddress)] {
		if !g.takes(p.DestMAC, p.Tagged, p.TCI) {
			continue
		}
		for _, id := range g.QPs {
			m := t.lookup(id)
			if m == nil || m.typ != RoCEUD {
				continue
			}
			v := m.admitDatagram(p)
			if v == wire.OK {
				if whole = whole || p.CheckICRC(f); !whole {
					return wire.BadICRC
				}
				v = t.enqueue(f, p, m)
			}
			if verdict != wire.OK {
				verdict = v
			}
		}
	}
	return verdict
}

// place puts a datagram into the next receive buffer and completes that. One
// that does not fit is dropped like one without a buffer, and the buffer stays
// for the next: who sends datagrams cannot stop the QP (as
// rxe_resp.c:rxe_resp_check_length).
func (q *QP) place(b *buffer) wire.Verdict {
	if !q.state.receives() {
		return wire.WrongState
	}
	p, r, before := &b.packet, &q.ud.recv, q.rq
	switch got, code := q.Receive(r); got {
	case roce.Empty:
		return wire.NoReceive
	case roce.Bad:
		q.Fail(code, roce.SourceRQ, r.Index)
		return wire.NoReceive
	}
	n := grhSize + uint32(len(p.Payload))
	if n > r.Len {
		q.rq, q.receiving = before, false
		return wire.NoReceive
	}
	if code := q.placeAt(r, b); code != 0 {
		q.Fail(code, roce.SourceRQ, r.Index)
		return wire.NoReceive
	}
	q.receiving = false
	e := event.Entry{Context: q.ctx.CompletionContext(), QP: q.id, WQE: uint16(r.Index), Op: opReceive,
		Length: n, Value: p.SourceQP, STag: p.IPv4, Solicited: p.Solicited}
	if p.Opcode == wire.UDSendOnlyImm {
		e.Ext.HasImmediate, e.Ext.Immediate = true, p.Imm
	}
	if q.ctx.DatagramExtension() {
		e.Ext.HasSourceMAC, e.Ext.SourceMAC = true, p.SourceMAC
		e.Ext.HasVLAN, e.Ext.VLAN = p.Tagged, p.TCI
	}
	if !q.recvCQ.Post(e) {
		q.Fail(roce.Catastrophic, roce.SourceRQ, r.Index)
	}
	return wire.OK
}

// placeAt writes headers and payload of a datagram into a receive buffer that
// is long enough.
func (q *QP) placeAt(r *roce.Recv, b *buffer) roce.Code {
	if !q.table.cfg.MayDMA() {
		return roce.Catastrophic
	}
	p, grh := &b.packet, q.ud.grh[:]
	if p.IPv4 {
		clear(grh[:ipv4At])
		copy(grh[ipv4At:], b.bytes[p.L3:])
	} else {
		copy(grh, b.bytes[p.L3:])
	}
	segs, f := q.owner.resolve(q.work.dst[:0], &r.SGL, 0, grhSize+uint32(len(p.Payload)), mr.LocalWrite)
	if q.work.dst = segs; f != nil {
		return roce.Code(f.Code)
	}
	part, next := grh, p.Payload
	for _, s := range segs {
		for at, left := s.IOVA, s.Len; left > 0; {
			if len(part) == 0 {
				part, next = next, nil
			}
			n := min(left, uint32(len(part)))
			if err := q.table.cfg.Payload.Write(at, part[:n]); err != nil {
				q.owner.noMemory(&r.SGL, 0, segs, true, err)
				return roce.Catastrophic
			}
			part, at, left = part[n:], at+uint64(n), left-n
		}
	}
	return 0
}
