// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"encoding/binary"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// tables are the objects that only commands touch so far.
type tables struct {
	arp   map[uint16][6]byte
	macs  map[uint8][6]byte // local MAC table
	ahs   map[uint32]AH
	mcast map[uint16]Multicast
	nodes map[uint16]*workNode
	stats map[uint8]bool // allocated statistics instances
}

func newTables() tables {
	return tables{
		arp:   map[uint16][6]byte{},
		macs:  map[uint8][6]byte{},
		ahs:   map[uint32]AH{},
		mcast: map[uint16]Multicast{},
		nodes: map[uint16]*workNode{},
		stats: map[uint8]bool{},
	}
}

// macAddr unpacks an address as drivers pack it: first byte in bits 47:40.
func macAddr(v uint64) (m [6]byte) {
	for i := range m {
		m[i] = byte(v >> (40 - 8*i))
	}
	return m
}

// manageARP: the entry maps an index to a destination MAC and has no IP
// address. Index 0 is reserved.
func (c *CQP) manageARP(w *wqe) (result, error) {
	const valid, query = 42, 44
	i := uint16(w.bits(3, 11, 0))
	if i == 0 {
		return result{}, fmt.Errorf("ARP entry 0: %w", errParameter)
	}
	if err := c.object(hmc.ARP, uint32(i)); err != nil {
		return result{}, err
	}
	if w.flag(3, query) {
		return result{}, fmt.Errorf("query of ARP entry %d: %w", i, errParameter)
	}
	old, ok := c.tables.arp[i]
	if !w.flag(3, valid) {
		if !ok {
			return result{}, fmt.Errorf("ARP entry %d does not exist: %w", i, errState)
		}
		delete(c.tables.arp, i)
		return result{}, nil
	}
	mac := macAddr(w.bits(2, 47, 0))
	if ok && old != mac {
		c.emit(ARPReplaced{Index: i, Old: old, New: mac})
	}
	c.tables.arp[i] = mac
	return result{}, nil
}

// lookupARP finds the address of an ARP entry.
func (t *tables) lookupARP(index uint16) (mac [6]byte, ok bool) {
	mac, ok = t.arp[index]
	return mac, ok
}

// localMACs is how many entries the index field of MANAGE_LOC_MAC_TABLE has.
const localMACs = 64

func (c *CQP) allocMAC(*wqe) (result, error) {
	for i := range uint8(localMACs) {
		if _, ok := c.tables.macs[i]; !ok {
			c.tables.macs[i] = [6]byte{}
			return result{value: uint32(i)}, nil
		}
	}
	return result{}, fmt.Errorf("all %d local MAC entries are taken: %w", localMACs, errState)
}

func (c *CQP) manageMAC(w *wqe) (result, error) {
	const free = 62
	i := uint8(w.bits(3, 5, 0))
	if _, ok := c.tables.macs[i]; !ok {
		return result{}, fmt.Errorf("local MAC entry %d is not allocated: %w", i, errState)
	}
	if w.flag(3, free) {
		delete(c.tables.macs, i)
	} else {
		c.tables.macs[i] = macAddr(w.bits(4, 47, 0))
	}
	return result{}, nil
}

// AH is an address handle. IPv4 addresses lie in the last four bytes.
type AH struct {
	Index        uint32
	PD           uint32
	SourceMAC    [6]byte
	Source, Dest [16]byte
	IPv4         bool
	InsertVLAN   bool
	Loopback     bool
	VLANTag      uint16
	TrafficClass uint8
	HopLimit     uint8
	FlowLabel    uint32
	ARPIndex     uint16
}

// address puts two words of two host-order 32-bit parts each into network
// order; lo holds the parts 2 and 3.
func address(lo, hi uint64) (a [16]byte) {
	binary.BigEndian.PutUint64(a[:], hi)
	binary.BigEndian.PutUint64(a[8:], lo)
	return a
}

func (w *wqe) ah() AH {
	return AH{
		Index:        uint32(w.bits(3, 23, 0)),
		PD:           uint32(w.bits(2, 27, 20)<<16 | w.bits(1, 63, 48)),
		SourceMAC:    macAddr(w.bits(0, 63, 16)),
		Dest:         address(w.q[4], w.q[5]),
		Source:       address(w.q[6], w.q[7]),
		IPv4:         w.flag(3, 59),
		InsertVLAN:   w.flag(3, 60),
		Loopback:     w.flag(3, 62),
		VLANTag:      uint16(w.bits(1, 15, 0)),
		TrafficClass: uint8(w.bits(1, 39, 32)),
		HopLimit:     uint8(w.bits(2, 39, 32)),
		FlowLabel:    uint32(w.bits(2, 19, 0)),
		ARPIndex:     uint16(w.bits(2, 63, 48)),
	}
}

// checkAH tells whether AH i may be made (or, with exists, changed).
func (c *CQP) checkAH(i uint32, exists bool) error {
	if i == 0 {
		return fmt.Errorf("AH 0: %w", errParameter)
	}
	if err := c.object(hmc.FSIAV, i); err != nil {
		return err
	}
	if _, ok := c.tables.ahs[i]; ok != exists {
		return fmt.Errorf("AH %d exists: %t: %w", i, ok, errState)
	}
	return nil
}

func (c *CQP) createAH(w *wqe) (result, error) { return c.setAH(w, false) }
func (c *CQP) modifyAH(w *wqe) (result, error) { return c.setAH(w, true) }

func (c *CQP) setAH(w *wqe, exists bool) (result, error) {
	ah := w.ah()
	if err := c.checkAH(ah.Index, exists); err != nil {
		return result{}, err
	}
	c.tables.ahs[ah.Index] = ah
	return result{}, nil
}

func (c *CQP) destroyAH(w *wqe) (result, error) {
	i := w.ah().Index
	if err := c.checkAH(i, true); err != nil {
		return result{}, err
	}
	delete(c.tables.ahs, i)
	return result{}, nil
}

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

const (
	groupMembers = 8
	memberValid  = 1 << 31
)

func (c *CQP) createMulticast(w *wqe) (result, error) { return c.setMulticast(w, false) }
func (c *CQP) modifyMulticast(w *wqe) (result, error) { return c.setMulticast(w, true) }

func (w *wqe) group() uint16 { return uint16(w.bits(3, 12, 0)) }

func (c *CQP) checkGroup(i uint16, exists bool) error {
	if err := c.object(hmc.FSIMC, uint32(i)); err != nil {
		return err
	}
	if _, ok := c.tables.mcast[i]; ok != exists {
		return fmt.Errorf("multicast group %d exists: %t: %w", i, ok, errState)
	}
	return nil
}

// setMulticast takes the full member list, at every change.
func (c *CQP) setMulticast(w *wqe, exists bool) (result, error) {
	if err := c.checkGroup(w.group(), exists); err != nil {
		return result{}, err
	}
	g := Multicast{Index: w.group(), MAC: macAddr(w.bits(0, 47, 0)), IP: address(w.q[6], w.q[7]), IPv4: w.flag(3, 60), VLAN: -1}
	if w.flag(3, 59) {
		g.VLAN = int(w.bits(2, 43, 32))
	}
	var b [8 * groupMembers]byte
	if err := c.mem.Read(w.q[4], b[:]); err != nil {
		return result{}, fmt.Errorf("members of multicast group %d: %w", g.Index, err)
	}
	for i := range groupMembers {
		if m := binary.LittleEndian.Uint64(b[8*i:]); m&memberValid != 0 {
			g.Members = append(g.Members, Member{QP: uint32(m & 0x3FFFF), DestPort: uint16(m >> 32)})
		}
	}
	c.tables.mcast[g.Index] = g
	return result{}, nil
}

func (c *CQP) destroyMulticast(w *wqe) (result, error) {
	if err := c.checkGroup(w.group(), true); err != nil {
		return result{}, err
	}
	delete(c.tables.mcast, w.group())
	return result{}, nil
}

const statsInstances = 128

func (c *CQP) manageStats(w *wqe) (result, error) {
	if w.flag(3, 60) {
		if err := c.checkFunction(w.bits(5, 15, 0)); err != nil {
			return result{}, err
		}
	}
	i := uint8(w.bits(3, 6, 0))
	if !w.flag(3, 62) {
		if !c.tables.stats[i] {
			return result{}, fmt.Errorf("statistics instance %d is not allocated: %w", i, errState)
		}
		delete(c.tables.stats, i)
		return result{}, nil
	}
	for i := range uint8(statsInstances) {
		if !c.tables.stats[i] {
			c.tables.stats[i] = true
			return result{value: uint32(i)}, nil
		}
	}
	return result{}, fmt.Errorf("all %d statistics instances are taken: %w", statsInstances, errState)
}

// gatherStats writes the function's counters.
func (c *CQP) gatherStats(w *wqe) (result, error) {
	if w.flag(3, 60) {
		if err := c.checkFunction(w.bits(5, 15, 0)); err != nil {
			return result{}, err
		}
	}
	if i := uint8(w.bits(3, 6, 0)); w.flag(3, 61) && !c.tables.stats[i] {
		return result{}, fmt.Errorf("statistics instance %d is not allocated: %w", i, errState)
	}
	counters := c.qps.Stats()
	return result{}, c.mem.Write(w.q[4], counters[:])
}
