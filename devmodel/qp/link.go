// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// address is how a connected QP is known to others, and how it reaches its
// peer.
type address struct {
	path      wire.Path // of frames sent: Source is the QP's own address
	pkey      uint16
	peer      uint32
	loopback  bool // the destination's MAC is the port's own
	reachable bool // the ARP entry existed when it was named
}

// vidMask is the VLAN id of a TCI.
const vidMask = 1<<12 - 1

// vid is the VLAN of frames from and to the QP; 0: none.
func (a *address) vid() uint16 {
	if !a.path.Tagged {
		return 0
	}
	return a.path.TCI & vidMask
}

// route latches where the QP's packets go. The MAC is copied: an ARP entry
// may be deleted or reused under a live connection. The caller holds mu.
func (q *QP) route(a ModifyArgs) {
	c := &q.ctx
	n := &address{pkey: c.PKey(), peer: c.DestQP(), path: wire.Path{
		SourceMAC: c.MAC(), Tagged: c.InsertVLAN(), TCI: c.VLANTag(), IPv4: c.IPv4(), Source: c.LocalIP(), Dest: c.DestIP(),
		TrafficClass: c.TOS(), HopLimit: c.TTL(), FlowLabel: c.FlowLabel(), SourcePort: c.SourcePort(),
	}}
	if old := q.address.Load(); old != nil {
		n.loopback, n.reachable, n.path.DestMAC = old.loopback, old.reachable, old.path.DestMAC
	}
	if a.ARP != nil {
		n.path.DestMAC, n.reachable = a.ARP(c.ARPIndex())
		n.loopback = n.reachable && (n.path.DestMAC == q.table.cfg.MAC() || n.path.DestMAC == n.path.SourceMAC)
	}
	q.address.Store(n)
}

// accepts tells whether packets of a sender at s are for the QP at a; nil: one
// that is not connected.
func (a *address) accepts(s *address) wire.Verdict {
	switch {
	case a == nil:
		return wire.WrongState
	case !a.connected(&s.path):
		return wire.WrongAddress
	case a.vid() != s.vid():
		return wire.BadVLAN
	case !samePartition(a.pkey, s.pkey):
		return wire.BadPKey
	}
	return wire.OK
}

// connected tells whether packets on that path are of the QP's connection.
func (a *address) connected(p *wire.Path) bool {
	return a.path.IPv4 == p.IPv4 && a.path.Source == p.Dest && a.path.Dest == p.Source
}

// samePartition tells whether keys are of one partition, and not both of
// limited members.
func samePartition(a, b uint16) bool {
	const full = 1 << 15
	return (a^b)&(full-1) == 0 && (a|b)&full != 0
}

// Transmit gives a run to the network. What goes nowhere is lost, as on a
// wire: the requester's retries end it.
func (q *QP) Transmit(r *roce.Run) bool {
	a := q.address.Load()
	switch {
	case a.loopback:
		return q.deliver(q.table, a, r)
	case !a.reachable:
		q.noRoute(a, r)
		return true
	}
	if sent, ok := q.passes(a, r); ok {
		return sent
	}
	return q.sendFrames(a, r)
}

// deliver puts a run into the inbox of the peer, a QP of table t.
func (q *QP) deliver(t *Table, a *address, r *roce.Run) bool {
	p := t.lookup(a.peer)
	v := wire.NoQP
	switch {
	case p == nil:
	case p.typ != RoCERC:
		v = wire.WrongService
	default:
		if v = p.address.Load().accepts(a); v == wire.OK {
			return p.inbox.put(r, q, p, q.shard)
		}
	}
	t.refused(a, r, v)
	return true
}
