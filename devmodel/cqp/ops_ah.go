// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"encoding/binary"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

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

// checkAH tells whether an AH may be made (or, with exists, changed).
func (c *CQP) checkAH(w *wqe, i uint32, exists bool) error {
	if i == 0 {
		return c.reserved(w, "AH", 0)
	}
	if err := c.object(hmc.FSIAV, i); err != nil {
		return err
	}
	switch _, ok := c.tables.ahs[i]; {
	case ok && !exists:
		return c.exists(w, "AH", i)
	case !ok && exists:
		return c.absent(w, "AH", i)
	}
	return nil
}

func (c *CQP) createAH(w *wqe) (result, error) { return c.setAH(w, false) }
func (c *CQP) modifyAH(w *wqe) (result, error) { return c.setAH(w, true) }

// maxPD bounds the numbers of protection domains (user.h:IRDMA_MAX_PDS).
const maxPD = 1 << 18

func (c *CQP) setAH(w *wqe, exists bool) (result, error) {
	ah := w.ah()
	if err := c.checkAH(w, ah.Index, exists); err != nil {
		return result{}, err
	}
	if ah.PD >= maxPD {
		return result{}, fmt.Errorf("AH %d of PD %#x, there are %#x: %w", ah.Index, ah.PD, maxPD, errParameter)
	}
	// The neighbour may have gone since the driver looked it up; what is sent
	// there fails.
	mac, reachable := c.tables.arp[ah.ARPIndex]
	if !reachable {
		c.emit(NoARP{Object: "AH", ID: ah.Index, ARP: ah.ARPIndex})
	}
	c.tables.ahs[ah.Index] = ah
	c.qps.SetHandle(ah.Index, ah.handle(mac, reachable))
	return result{}, nil
}

// handle is the AH as the data path has it: with the destination's address as
// it is now, whatever becomes of the ARP entry.
func (a *AH) handle(mac [6]byte, reachable bool) qp.Handle {
	return qp.Handle{PD: a.PD, Loopback: a.Loopback, Reachable: reachable, Path: wire.Path{
		DestMAC: mac, SourceMAC: a.SourceMAC, Tagged: a.InsertVLAN, TCI: a.VLANTag, IPv4: a.IPv4,
		Source: a.Source, Dest: a.Dest, TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel}}
}

func (c *CQP) destroyAH(w *wqe) (result, error) {
	i := w.ah().Index
	if err := c.checkAH(w, i, true); err != nil {
		return result{}, err
	}
	delete(c.tables.ahs, i)
	c.qps.DropHandle(i)
	return result{}, nil
}
