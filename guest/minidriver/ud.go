// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"slices"
)

// Datagrams: address handles (irdma/uda.c, verbs.c:irdma_setup_ah), QPs that
// send by them, and multicast groups (verbs.c:irdma_attach_mcast).

const (
	gsiQKey = 0x8001_0000 // IB_QP1_QKEY
	// OwnQKey in a request has the device send the QP's own key.
	OwnQKey = 1 << 31
	// MulticastQP is the destination of a group's datagrams.
	MulticastQP = 0xff_ffff
	// GRHSize is the room for headers before the payload of a datagram.
	GRHSize = 40

	ahIndexMask  = 0x1ffff
	ahInsertVLAN = 1 << 60
	ahLoopback   = 1 << 62
	ahTClassBit  = 32
	ahPDBit      = 48
	ahPDHighBit  = 20
	ahARPBit     = 48
	groupMembers = 8 // IRDMA_MAX_MGS_PER_CTX
	udDestQPBit  = 32

	extMACBit    = 40 // first byte, downwards
	extVLANBit   = 48
	extVLANValid = 1 << 60
	extMACValid  = 1 << 61
)

// AHAttr is where datagrams by an address handle go.
type AHAttr struct {
	PD           uint32
	IPv6         bool
	Source, Dest [4]uint32 // most significant word first; IPv4 in the last
	MAC          [6]byte   // of the destination, or the group
	Tagged       bool
	VLANTag      uint16
	TrafficClass uint8
	FlowLabel    uint32
	HopLimit     uint8
	Loopback     bool // to the port itself, or to a group
}

// AH is an address handle.
type AH struct {
	Index uint32
	Attr  AHAttr

	r *IRDMA
}

// freeIndex takes the lowest number from 1 on that is not in use.
func freeIndex(used map[uint32]bool, o HMCObject) (uint32, error) {
	for i := uint32(1); uint64(i) < o.Count; i++ {
		if !used[i] {
			used[i] = true
			return i, nil
		}
	}
	return 0, fmt.Errorf("all %d of %+v in use", o.Count, o)
}

// NewAH makes an address handle (verbs.c:irdma_create_ah).
func (r *IRDMA) NewAH(a AHAttr) (*AH, error) {
	i, err := freeIndex(r.handles, r.hmc.objects[IRDMA_HMC_IW_FSIAV])
	if err != nil {
		return nil, err
	}
	h := &AH{Index: i, Attr: a, r: r}
	if err := h.access(IRDMA_CQP_OP_CREATE_ADDR_HANDLE); err != nil {
		delete(r.handles, i)
		return nil, err
	}
	return h, nil
}

// Modify gives the handle other attributes.
func (h *AH) Modify(a AHAttr) error {
	h.Attr = a
	return h.access(IRDMA_CQP_OP_MODIFY_ADDR_HANDLE)
}

// Destroy removes the handle.
func (h *AH) Destroy() error {
	delete(h.r.handles, h.Index)
	return h.access(IRDMA_CQP_OP_DESTROY_ADDR_HANDLE)
}

// access is uda.c:irdma_sc_access_ah.
func (h *AH) access(op uint8) error {
	a := &h.Attr
	arp, err := h.r.Neighbour(a.MAC)
	if err != nil {
		return err
	}
	pair := func(hi, lo uint32) uint64 { return uint64(hi)<<32 | uint64(lo) }
	w := WQE{
		0: macWord(h.r.ICE.MAC) << 16,
		1: uint64(a.VLANTag) | uint64(a.TrafficClass)<<ahTClassBit | uint64(a.PD&0xffff)<<ahPDBit,
		2: uint64(a.FlowLabel) | uint64(a.PD>>16)<<ahPDHighBit | uint64(a.HopLimit)<<addressHopsBit | uint64(arp)<<ahARPBit,
		3: uint64(h.Index),
		4: pair(a.Dest[2], a.Dest[3]), 5: pair(a.Dest[0], a.Dest[1]),
		6: pair(a.Source[2], a.Source[3]), 7: pair(a.Source[0], a.Source[1]),
	}
	if !a.IPv6 {
		w[3] |= ahIPv4
	}
	if a.Tagged {
		w[3] |= ahInsertVLAN
	}
	if a.Loopback {
		w[3] |= ahLoopback
	}
	_, err = h.r.Exec(op, w)
	return err
}

// Attr to another port, or the port itself.
func (r *IRDMA) AddressOf(p *IRDMA, pd uint32, ipv6 bool) AHAttr {
	const hops = 64
	return AHAttr{PD: pd, IPv6: ipv6, Source: r.Address(ipv6), Dest: p.Address(ipv6), MAC: p.ICE.MAC, HopLimit: hops, Loopback: r == p}
}

// AddressOfGroup is the way to a group of IPv4, 239.1.0.0 and n, or of IPv6,
// ff0e::1:n.
func (r *IRDMA) AddressOfGroup(n uint8, pd uint32, ipv6 bool) AHAttr {
	a := r.AddressOf(r, pd, ipv6)
	if ipv6 {
		a.Dest = [4]uint32{0xff0e_0000, 0, 0, 0x1_0000 | uint32(n)}
		a.MAC = [6]byte{0x33, 0x33, 0, 1, 0, n}
	} else {
		a.Dest = [4]uint32{3: 0xef01_0000 | uint32(n)}
		a.MAC = [6]byte{0x01, 0x00, 0x5e, 1, 0, n}
	}
	return a
}

// Request makes w a datagram to a QP at the handle's address.
func (h *AH) Request(w SendWR, qp, qkey uint32) SendWR {
	w.RKey = h.Index & ahIndexMask
	w.RemoteAddr = uint64(qp)<<udDestQPBit | uint64(qkey)
	return w
}

// NewDatagramQP makes a QP for datagrams, IDLE.
func (r *IRDMA) NewDatagramQP(c QPConfig) (*QP, error) { return r.newQP(qpTypeUD, c) }

// GSI is the QP of the services that all ports have.
func (r *IRDMA) GSI() *QP { return r.gsi }

// Sender is what a completion tells of who sent a datagram. The QPs of programs
// do not learn MAC and VLAN.
type Sender struct {
	QP      uint32
	IPv4    bool
	MAC     [6]byte
	HasMAC  bool
	VLAN    uint16
	HasVLAN bool
}

// datagram reads what the entry at the head, and its extension, say of a sender.
func (q *CQ) datagram(wc *WC, qp uint32, w3 uint64) {
	wc.STag, wc.HasSTag = 0, false
	wc.From = Sender{QP: qp, IPv4: w3&cqeSTag != 0}
	if w3&cqeExtended == 0 {
		return
	}
	next := (q.head + 1) % q.Size
	flags, v := q.load(next, 24), q.load(next, 16)
	if wc.From.HasMAC = flags&extMACValid != 0; wc.From.HasMAC {
		for i := range wc.From.MAC {
			wc.From.MAC[i] = byte(v >> (extMACBit - 8*i))
		}
	}
	if wc.From.HasVLAN = flags&extVLANValid != 0; wc.From.HasVLAN {
		wc.From.VLAN = uint16(v >> extVLANBit)
	}
}

// Group is a multicast group with QPs of a port.
type Group struct {
	Index uint32
	Attr  AHAttr // Dest, MAC and IPv6 of it

	r       *IRDMA
	members []*QP
}

// NewGroup is a group that nobody is in yet.
func (r *IRDMA) NewGroup(a AHAttr) *Group { return &Group{Attr: a, r: r} }

// Attach puts a QP into the group (verbs.c:irdma_attach_mcast).
func (g *Group) Attach(q *QP) (err error) {
	if len(g.members) == groupMembers {
		return fmt.Errorf("group with %d members", groupMembers)
	}
	op := uint8(IRDMA_CQP_OP_MODIFY_MCAST_GRP)
	if len(g.members) == 0 {
		op = IRDMA_CQP_OP_CREATE_MCAST_GRP
		if g.Index, err = freeIndex(g.r.groups, g.r.hmc.objects[IRDMA_HMC_IW_FSIMC]); err != nil {
			return err
		}
	}
	g.members = append(g.members, q)
	return g.access(op)
}

// Detach takes a QP out of the group (verbs.c:irdma_detach_mcast).
func (g *Group) Detach(q *QP) error {
	g.members = slices.DeleteFunc(g.members, func(m *QP) bool { return m == q })
	if len(g.members) > 0 {
		return g.access(IRDMA_CQP_OP_MODIFY_MCAST_GRP)
	}
	delete(g.r.groups, g.Index)
	return g.access(IRDMA_CQP_OP_DESTROY_MCAST_GRP)
}

// access is uda.c:irdma_access_mcast_grp.
func (g *Group) access(op uint8) error {
	ctx := g.r.F.alloc(groupCtxSize)
	defer ctx.Free()
	w := WQE{0: macWord(g.Attr.MAC), 1: g.r.fn(), 3: uint64(g.Index), 4: ctx.IOVA,
		6: uint64(g.Attr.Dest[2])<<32 | uint64(g.Attr.Dest[3]), 7: uint64(g.Attr.Dest[0])<<32 | uint64(g.Attr.Dest[1])}
	if !g.Attr.IPv6 {
		w[3] |= groupIPv4
	}
	for n, q := range g.members {
		ctx.Store64(8*n, uint64(q.ID)|groupValid|uint64(roceUDPPort)<<groupPortBit)
		w[2] = uint64(q.qsHandle & wsHandleMask)
	}
	_, err := g.r.Exec(op, w)
	return err
}
