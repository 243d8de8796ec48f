// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"encoding/binary"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
)

// Multicast is a multicast group with its members.
type Multicast struct {
	Index   uint16
	MAC     [6]byte
	IP      [16]byte // IPv4 in the last four bytes
	IPv4    bool
	VLAN    int // -1: none
	Members []Member
}

// Member is a QP in a multicast group.
type Member struct {
	QP       uint32
	DestPort uint16
}

// Words of a group's context (uda_d.h:IRDMA_UDA_MGCTX_*). The driver keeps the
// valid ones in front.
const (
	groupMembers = 8
	memberValid  = 1 << 31
	memberQPs    = 1<<18 - 1
)

func (g *Multicast) has(qp uint32) bool {
	return slices.ContainsFunc(g.Members, func(m Member) bool { return m.QP == qp })
}

func (c *CQP) createMulticast(w *wqe) (result, error) { return c.setMulticast(w, false) }
func (c *CQP) modifyMulticast(w *wqe) (result, error) { return c.setMulticast(w, true) }

func (w *wqe) group() uint16 { return uint16(w.bits(3, 12, 0)) }

func (c *CQP) checkGroup(w *wqe, exists bool) error {
	i := uint32(w.group())
	if i == 0 {
		return c.reserved(w, "multicast group", 0)
	}
	if err := c.object(hmc.FSIMC, i); err != nil {
		return err
	}
	if err := c.checkFunction(w.bits(1, 5, 0)); err != nil {
		return err
	}
	switch _, ok := c.tables.mcast[w.group()]; {
	case ok && !exists:
		return c.exists(w, "multicast group", i)
	case !ok && exists:
		return c.absent(w, "multicast group", i)
	}
	return nil
}

// setMulticast takes the full member list, at every change. What is odd about
// it is reported; a datagram to the group finds out.
func (c *CQP) setMulticast(w *wqe, exists bool) (result, error) {
	if err := c.checkGroup(w, exists); err != nil {
		return result{}, err
	}
	g := Multicast{Index: w.group(), MAC: macAddr(w.bits(0, 47, 0)), IP: address(w.q[6], w.q[7]), IPv4: w.flag(3, 60), VLAN: -1}
	if w.flag(3, 59) {
		g.VLAN = int(w.bits(2, 43, 32))
	}
	var b [8 * groupMembers]byte
	if err := c.read(w, "multicast group context", w.q[4], b[:]); err != nil {
		return result{}, err
	}
	last := -1
	for i := range groupMembers {
		if m := binary.LittleEndian.Uint64(b[8*i:]); m&memberValid != 0 {
			g.Members = append(g.Members, Member{QP: uint32(m & memberQPs), DestPort: uint16(m >> 32)})
			last = i
		}
	}
	c.checkMembers(w, &g, last)
	c.tables.mcast[g.Index] = g
	c.qps.SetGroup(g.Index, g.group())
	return result{}, nil
}

// group is the multicast group as the data path has it.
func (g *Multicast) group() qp.Group {
	out := qp.Group{MAC: g.MAC, IP: g.IP, IPv4: g.IPv4, VLAN: g.VLAN}
	for _, m := range g.Members {
		out.QPs = append(out.QPs, m.QP)
	}
	return out
}

// checkMembers reports what datagrams to a group would find wrong with it;
// last is the place of its last member.
func (c *CQP) checkMembers(w *wqe, g *Multicast, last int) {
	odd := func(qp uint32, why string) {
		c.emit(OddGroup{Group: g.Index, QP: qp, Why: why, Index: w.index})
	}
	if len(g.Members) == 0 {
		odd(0, "has no member")
		return
	}
	if last >= len(g.Members) {
		odd(g.Members[len(g.Members)-1].QP, "has a gap in front of its last member")
	}
	for _, m := range g.Members {
		switch typ, ok := c.qps.TypeOf(m.QP); {
		case !ok:
			odd(m.QP, "has a member that does not exist")
		case typ != qp.RoCEUD:
			odd(m.QP, "has a member that is no UD QP")
		}
	}
	c.checkHandle(w, "multicast group", uint32(g.Index), uint16(w.bits(2, 9, 0)))
}

func (c *CQP) destroyMulticast(w *wqe) (result, error) {
	if err := c.checkGroup(w, true); err != nil {
		return result{}, err
	}
	delete(c.tables.mcast, w.group())
	c.qps.DropGroup(w.group())
	return result{}, nil
}
