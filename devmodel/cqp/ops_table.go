// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// tables are the objects that commands make. Of some the data path has a copy
// (qp.Handle, qp.Group).
type tables struct {
	arp   map[uint16][6]byte
	macs  map[uint8][6]byte // local MAC table
	ahs   map[uint32]AH
	mcast map[uint16]Multicast
	nodes map[uint16]*workNode

	ports portBitmap
	quads map[Quad]QuadHash
	push  map[uint32]uint16 // push page -> QS handle

	priorities Priorities

	spans   spans                       // where live objects lie
	queried bool                        // QUERY_FPM_VAL was seen
	had     struct{ ceq, aeq, sd bool } // at some time
}

func newTables() tables {
	return tables{
		arp:   map[uint16][6]byte{},
		macs:  map[uint8][6]byte{},
		ahs:   map[uint32]AH{},
		mcast: map[uint16]Multicast{},
		nodes: map[uint16]*workNode{},
		quads: map[Quad]QuadHash{},
		push:  map[uint32]uint16{},
		spans: newSpans(),
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
		return result{}, c.reserved(w, "ARP entry", 0)
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
			return result{}, c.absent(w, "ARP entry", uint32(i))
		}
		if user, ok := c.userOfARP(i); ok {
			c.emit(ARPInUse{Index: i, User: user})
		}
		delete(c.tables.arp, i)
		return result{}, nil
	}
	mac := macAddr(w.bits(2, 47, 0))
	if ok && old != mac {
		user, _ := c.userOfARP(i)
		c.emit(ARPReplaced{Index: i, Old: old, New: mac, User: user})
	}
	c.tables.arp[i] = mac
	return result{}, nil
}

// lookupARP finds the address of an ARP entry.
func (t *tables) lookupARP(index uint16) (mac [6]byte, ok bool) {
	mac, ok = t.arp[index]
	return mac, ok
}

// userOfARP names a QP or an address handle that sends by an ARP entry.
func (c *CQP) userOfARP(index uint16) (user string, ok bool) {
	if id, ok := c.qps.UserOfARP(index); ok {
		return fmt.Sprintf("QP %d", id), true
	}
	for i, a := range c.tables.ahs {
		if a.ARPIndex == index {
			return fmt.Sprintf("AH %d", i), true
		}
	}
	return "", false
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
		return result{}, c.absent(w, "local MAC entry", uint32(i))
	}
	if w.flag(3, free) {
		delete(c.tables.macs, i)
	} else {
		c.tables.macs[i] = macAddr(w.bits(4, 47, 0))
	}
	return result{}, nil
}
