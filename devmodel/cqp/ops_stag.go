// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/mr"
)

// stagIndex and stagPD are at the same place in every command about an STag.
func (w *wqe) stagIndex() uint32 { return uint32(w.bits(2, 31, 8)) }
func (w *wqe) stagPD() uint32    { return uint32(w.bits(1, 63, 46) | w.bits(2, 59, 54)<<18) }

// regionOnly refuses memory windows, which the model does not have.
func (c *CQP) regionOnly(w *wqe, name string) error {
	const isMR = 43
	if w.flag(3, isMR) {
		return nil
	}
	name += " of a memory window"
	c.emit(NotBuilt{Opcode: w.opcode(), Name: name, Index: w.index})
	return fmt.Errorf("%s is not built: %w", name, errParameter)
}

// region reads the fields ALLOC_STAG and REG_MR share.
func (c *CQP) region(w *wqe, name string) (mr.Region, error) {
	const remote, useFunction = 53, 60
	if err := c.regionOnly(w, name); err != nil {
		return mr.Region{}, err
	}
	if w.flag(3, useFunction) {
		if err := c.checkFunction(w.bits(5, 15, 0)); err != nil {
			return mr.Region{}, err
		}
	}
	shift, ok := mr.PageShift(uint8(w.bits(3, 47, 46)))
	if !ok {
		return mr.Region{}, fmt.Errorf("HPAGESIZE %d: %w", w.bits(3, 47, 46), errParameter)
	}
	return mr.Region{
		Index:     w.stagIndex(),
		PD:        w.stagPD(),
		Length:    w.bits(1, 45, 0),
		Level:     mr.Level(w.bits(3, 45, 44)),
		PageShift: shift,
		Rights:    mr.Access(w.bits(3, 52, 48)),
		Remote:    w.flag(3, remote),
		First:     uint32(w.bits(6, 27, 0)),
	}, nil
}

// allocSTag reserves an STag for later fast registrations. What the region's
// memory is they say.
func (c *CQP) allocSTag(w *wqe) (result, error) {
	r, err := c.region(w, "IRDMA_CQP_OP_ALLOC_STAG")
	if err != nil {
		return result{}, err
	}
	return result{}, c.mrs.Allocate(r)
}

// registerMR makes an STag valid.
func (c *CQP) registerMR(w *wqe) (result, error) {
	const vaBased = 59
	r, err := c.region(w, "IRDMA_CQP_OP_REG_MR")
	if err != nil {
		return result{}, err
	}
	r.Key = uint8(w.bits(2, 7, 0))
	r.Start = w.q[0]
	r.VABased = w.flag(3, vaBased)
	r.Base = w.q[4]
	return result{}, c.mrs.Register(r)
}

// deallocSTag frees an STag. The driver gives the memory away as soon as it
// sees the completion.
func (c *CQP) deallocSTag(w *wqe) (result, error) {
	if err := c.regionOnly(w, "IRDMA_CQP_OP_DEALLOC_STAG"); err != nil {
		return result{}, err
	}
	return result{grace: true}, c.mrs.Deallocate(w.stagIndex(), w.stagPD())
}
