// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// portBitmap is the accepted port bitmap: the ports of which connection
// requests go to the protocol engine. It is the one APBVT object.
type portBitmap [1 << 16 / 64]uint64

func (b *portBitmap) has(port uint16) bool { return b[port/64]>>(port%64)&1 != 0 }

// manageAPBVT sets or clears a port's bit. The driver counts listeners and
// sends one command for the first and one for the last; setting a bit that is
// set does nothing.
func (c *CQP) manageAPBVT(w *wqe) (result, error) {
	const add = 62
	port := uint16(w.bits(2, 15, 0))
	if err := c.object(hmc.APBVT, 0); err != nil {
		return result{}, err
	}
	bit := uint64(1) << (port % 64)
	if w.flag(3, add) {
		c.tables.ports[port/64] |= bit
		return result{}, nil
	}
	if !c.tables.ports.has(port) {
		return result{}, c.absent(w, "APBVT port", uint32(port))
	}
	c.tables.ports[port/64] &^= bit
	return result{}, nil
}

// QuadHash is an entry of the quad hash table: packets of which connection, or
// to which address, go to which QP. IPv4 addresses lie in the last four bytes.
type QuadHash struct {
	Quad
	MAC      [6]byte
	QP       uint32
	QSHandle uint16
}

// Quad is what an entry is found by. Only established connections have a
// source.
type Quad struct {
	Type         uint8 // type.h:enum irdma_quad_entry_type
	IPv4         bool
	VLAN         int // -1: none
	Dest, Source [16]byte
	DestPort     uint16
	SourcePort   uint16
}

// Entry types and operations (type.h:enum irdma_quad_entry_type,
// enum irdma_quad_hash_manage_type).
const (
	quadEstablished = 1
	quadLast        = 6

	quadDelete = 0
	quadAdd    = 1
	quadModify = 2
)

func (w *wqe) quadHash() QuadHash {
	q := QuadHash{
		Quad: Quad{Type: uint8(w.bits(3, 44, 42)), IPv4: w.flag(3, 60), VLAN: -1,
			Dest: address(w.q[6], w.q[7]), DestPort: uint16(w.bits(1, 15, 0))},
		MAC: macAddr(w.bits(0, 47, 0)), QP: uint32(w.bits(1, 49, 32)), QSHandle: uint16(w.bits(2, 9, 0)),
	}
	if w.flag(3, 59) {
		q.VLAN = int(w.bits(2, 43, 32))
	}
	if q.Type == quadEstablished {
		q.Source, q.SourcePort = address(w.q[4], w.q[5]), uint16(w.bits(1, 31, 16))
	}
	return q
}

// manageQuadHash adds, changes or removes an entry. How many there may be the
// committed HTE objects say.
func (c *CQP) manageQuadHash(w *wqe) (result, error) {
	q := w.quadHash()
	if q.Type < quadEstablished || q.Type > quadLast {
		return result{}, fmt.Errorf("quad hash entry of type %d: %w", q.Type, errParameter)
	}
	if err := c.object(hmc.HTE, 0); err != nil {
		return result{}, err
	}
	_, exists := c.tables.quads[q.Quad]
	op := w.bits(3, 62, 61)
	switch {
	case op == quadAdd && exists:
		return result{}, c.exists(w, "quad hash entry of port", uint32(q.DestPort))
	case (op == quadDelete || op == quadModify) && !exists:
		return result{}, c.absent(w, "quad hash entry of port", uint32(q.DestPort))
	case op == quadDelete:
		delete(c.tables.quads, q.Quad)
		return result{}, nil
	case op > quadModify:
		return result{}, fmt.Errorf("quad hash operation %d: %w", op, errParameter)
	case !c.qps.Has(q.QP):
		return result{}, c.absent(w, "QP", q.QP)
	case uint32(len(c.tables.quads)) >= c.hmc.Count(hmc.HTE) && !exists:
		return result{}, fmt.Errorf("all %d hash table entries are taken: %w", c.hmc.Count(hmc.HTE), errState)
	}
	c.checkHandle(w, "quad hash entry of port", uint32(q.DestPort), q.QSHandle)
	c.tables.quads[q.Quad] = q
	return result{}, nil
}

// removeHashes drops the entries that lead to a QP (REMOVEHASHENTRY).
func (c *CQP) removeHashes(qp uint32) {
	for k, q := range c.tables.quads {
		if q.QP == qp {
			delete(c.tables.quads, k)
		}
	}
}
