// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"cmp"
	"maps"
	mathbits "math/bits"
	"slices"
)

// Status is the control QP as a person reads it.
type Status struct {
	Live     bool
	Context  uint64
	Ring     uint64
	Size     uint32
	Next     uint32 // index of the next WQE to execute
	Polarity uint64 // its valid bit
	Protocol uint8  // PROTOCOL_USED: 1 iWARP only, 2 RoCE only
	Waiting  bool   // the command before Next waits for the data path
}

// Status tells about the control QP.
func (c *CQP) Status() Status {
	return Status{c.live, c.ctx.addr, c.ctx.ring, c.ctx.size, c.next, c.polarity, c.ctx.protocol, c.after.Parked()}
}

// ARP is an ARP table entry as a person reads it.
type ARP struct {
	Index uint16
	MAC   [6]byte
	Local bool // the port's own address: what goes there is looped back
}

// ARPs lists the ARP table in order of index.
func (c *CQP) ARPs() []ARP {
	out := []ARP{}
	for i, m := range c.tables.arp {
		out = append(out, ARP{i, m, c.mac != nil && c.mac() == m})
	}
	slices.SortFunc(out, func(a, b ARP) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// AHs lists the address handles in order of index.
func (c *CQP) AHs() []AH {
	out := []AH{}
	for _, a := range c.tables.ahs {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b AH) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// Multicasts lists the multicast groups in order of index.
func (c *CQP) Multicasts() []Multicast {
	out := []Multicast{}
	for _, g := range c.tables.mcast {
		g.Members = slices.Clone(g.Members)
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Multicast) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// WorkNode is a work scheduler node as a person reads it.
type WorkNode struct {
	ID, Parent uint16
	VSI        uint16
	TC         uint8
	Weight     uint8
	Leaf       bool
	Enabled    bool
	QSHandle   uint16 // leaves only
}

// WorkNodes lists the work scheduler's nodes in order of number.
func (c *CQP) WorkNodes() []WorkNode {
	out := []WorkNode{}
	for _, n := range c.tables.nodes {
		out = append(out, WorkNode{n.id, n.parent, n.vsi, n.tc, n.weight, n.leaf, n.enabled, n.handle})
	}
	slices.SortFunc(out, func(a, b WorkNode) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// maxNamed bounds the lists of what is left.
const maxNamed = 8

// leaks tells what a driver that goes leaves behind.
func (c *CQP) leaks() Leaked {
	l := Leaked{
		QPs: c.qps.Len(), CEQs: len(c.queues.CEQs()), MRs: c.mrs.Len(), AHs: len(c.tables.ahs),
		MulticastGroups: len(c.tables.mcast), WorkNodes: len(c.tables.nodes), SDs: c.hmc.ValidSDs(),
	}
	if c.queues.HasAEQ() {
		l.AEQs = 1
	}
	cqs := c.queues.CQs()
	l.CQs = len(cqs)
	for _, q := range cqs[:min(len(cqs), maxNamed)] {
		l.FirstCQs = append(l.FirstCQs, q.ID)
	}
	qps := slices.Sorted(c.qps.IDs())
	l.FirstQPs = append(l.FirstQPs, qps[:min(len(qps), maxNamed)]...)
	l.FirstSTags = c.mrs.First(maxNamed)
	had := c.tables.had
	l.Orderly = had.ceq && had.aeq && had.sd && l.CEQs == 0 && l.AEQs == 0 && l.SDs == 0
	return l
}

// any tells whether something is left.
func (l *Leaked) any() bool {
	return l.QPs+l.CQs+l.CEQs+l.AEQs+l.MRs+l.AHs+l.MulticastGroups+l.WorkNodes+l.SDs > 0
}

// Ports lists the accepted ports, in order.
func (c *CQP) Ports() []uint16 {
	out := []uint16{}
	for i, word := range c.tables.ports {
		for ; word != 0; word &= word - 1 {
			out = append(out, uint16(64*i+mathbits.TrailingZeros64(word)))
		}
	}
	return out
}

// QuadHashes lists the quad hash table, in no order.
func (c *CQP) QuadHashes() []QuadHash {
	return slices.AppendSeq([]QuadHash{}, maps.Values(c.tables.quads))
}

// PushPages lists the push pages given out, in order.
func (c *CQP) PushPages() []uint32 {
	return slices.AppendSeq([]uint32{}, slices.Values(slices.Sorted(maps.Keys(c.tables.push))))
}

// Priorities is the map of user priorities.
func (c *CQP) Priorities() Priorities { return c.tables.priorities }
