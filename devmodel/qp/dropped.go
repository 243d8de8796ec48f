// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"
	"net/netip"

	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// PacketDropped is the event of RoCE packets that came for the card and went no
// further. Peers, the network and what crosses on it cause them, too.
type PacketDropped struct {
	QP      uint32 // as the packet names it
	From    string // IP address
	Opcode  uint8  // of the first one
	PSN     uint32
	Packets uint32
	Verdict wire.Verdict
}

func (e PacketDropped) String() string {
	s := fmt.Sprintf("%s for QP %d, PSN %d, from %s", wire.Name(e.Opcode), e.QP, e.PSN, e.From)
	if e.Packets > 1 {
		s += fmt.Sprintf(", and %d more", e.Packets-1)
	}
	return s + ", dropped: " + e.Verdict.String()
}

// BadSource is the event of a QP that is to send from a MAC address that cannot be
// one's own.
type BadSource struct {
	QP  uint32
	MAC [6]byte
}

func (e BadSource) String() string {
	return fmt.Sprintf("context of QP %d has the source address %x", e.QP, e.MAC)
}

// ipText is an IP address of a path.
func ipText(a [16]byte, ipv4 bool) string {
	if ipv4 {
		return netip.AddrFrom4([4]byte(a[12:])).String()
	}
	return netip.AddrFrom16(a).String()
}

// arrived counts a packet from the port whose way ends with v, or which its QP
// has then.
func (t *Table) arrived(p *wire.Packet, v wire.Verdict) {
	if p.CE {
		t.counters.add(rxECNMarked, 1)
	}
	switch {
	case v != wire.OK:
		t.counters.received(p)
		t.counters.drop(v, p.IPv4, 1)
		t.packetDropped(p, v)
	case wire.ServiceOf(p.Opcode) != wire.RC:
		t.counters.received(p)
	}
}

func (t *Table) packetDropped(p *wire.Packet, v wire.Verdict) {
	if t.watched {
		t.emit(PacketDropped{QP: p.DestQP, From: ipText(p.Source, p.IPv4), Opcode: p.Opcode, PSN: p.PSN, Packets: 1, Verdict: v})
	}
}

// refused counts a run of a QP at s, which table t has no connection for.
func (t *Table) refused(s *address, r *roce.Run, v wire.Verdict) {
	if r.Op == roce.SourceFault {
		return
	}
	n := lost(s, r, 0)
	t.counters.in(s.path.IPv4, n.packets, n.octets)
	t.counters.drop(v, s.path.IPv4, r.N)
	t.runDropped(s.peer, s.path.Source, s.path.IPv4, r, v)
}

func (t *Table) runDropped(id uint32, from [16]byte, ipv4 bool, r *roce.Run, v wire.Verdict) {
	if t.watched {
		var p wire.Packet
		p.FromRun(r, 0)
		t.emit(PacketDropped{QP: id, From: ipText(from, ipv4), Opcode: p.Opcode, PSN: p.PSN, Packets: r.N, Verdict: v})
	}
}

// ignored counts what came for a connected QP in a state that does not take it:
// a run, or the frame it was made from. The caller holds mu.
func (q *QP) ignored(r *roce.Run, b *buffer) {
	a := q.address.Load()
	if r.Op == roce.SourceFault || a == nil {
		return
	}
	const v = wire.WrongState
	n := traffic{1, 0}
	if b != nil {
		n.octets = uint64(b.packet.Octets())
	} else {
		n = lost(a, r, 0)
	}
	if b != nil && b.note != nil {
		b.note.Say(verdictText(q.id, v))
	}
	for c := range q.each {
		c.in(a.path.IPv4, n.packets, n.octets)
		c.drop(v, a.path.IPv4, r.N)
	}
	if b != nil {
		q.table.packetDropped(&b.packet, v)
	} else {
		q.table.runDropped(q.id, a.path.Dest, a.path.IPv4, r, v)
	}
}

// received counts a datagram's packet, which the function's counters have
// already, for the QP: placed, or dropped. The caller holds mu.
func (q *QP) received(b *buffer, v wire.Verdict) {
	p := &b.packet
	if b.note != nil {
		text := verdictText(q.id, v)
		if v == wire.OK {
			text = fmt.Sprintf("QP %d: placed, receive WQE %d", q.id, q.ud.recv.Index)
		}
		b.note.Say(text)
	}
	for c := range q.each {
		if c != &q.table.counters {
			c.received(p)
		}
		if v == wire.OK {
			c.add(inSends, 1)
		} else {
			c.drop(v, p.IPv4, 1)
		}
	}
	if v != wire.OK {
		q.table.packetDropped(p, v)
	}
}
