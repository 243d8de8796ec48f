// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"cmp"
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

func (c *CQP) leaks() Leaked {
	l := Leaked{
		QPs: c.qps.Len(), CQs: len(c.queues.CQs()), CEQs: len(c.queues.CEQs()), MRs: c.mrs.Len(), AHs: len(c.tables.ahs),
		MulticastGroups: len(c.tables.mcast), WorkNodes: len(c.tables.nodes), SDs: c.hmc.ValidSDs(),
	}
	if c.queues.HasAEQ() {
		l.AEQs = 1
	}
	return l
}
