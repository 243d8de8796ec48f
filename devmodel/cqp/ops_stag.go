// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/mr"
)

// stagIndex and stagPD are at the same place in every command about an STag.
func (w *wqe) stagIndex() uint32 { return uint32(w.bits(2, 31, 8)) }
func (w *wqe) stagPD() uint32    { return uint32(w.bits(1, 63, 46) | w.bits(2, 59, 54)<<18) }

// origin is a command as the maker of an STag.
func (w *wqe) origin(op string) mr.Origin { return mr.Origin{Op: op, WQE: w.index} }

// isRegion tells an STag of a region from one of a window.
func (w *wqe) isRegion() bool { return w.flag(3, 43) }

// region reads the fields ALLOC_STAG and REG_MR share.
func (c *CQP) region(w *wqe, op string) (mr.Region, error) {
	const remote, useFunction = 53, 60
	if w.flag(3, useFunction) {
		if err := c.checkFunction(w.bits(5, 15, 0)); err != nil {
			return mr.Region{}, err
		}
	}
	shift, ok := mr.PageShift(uint8(w.bits(3, 47, 46)))
	if !ok {
		c.emit(mr.RegionFields{STag: w.stagIndex() << 8, Why: "HPAGESIZE 3", By: w.origin(op)})
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

// allocSTag reserves an STag: of a region, for later fast registrations, which
// say what its memory is; or of a window, for later binds.
func (c *CQP) allocSTag(w *wqe) (result, error) {
	const op = "IRDMA_CQP_OP_ALLOC_STAG"
	const wide = 42 // MWTYPE
	if !w.isRegion() {
		kind := mr.Window2
		if w.flag(3, wide) {
			kind = mr.Window1
		}
		return result{}, c.mrs.Allocate(mr.Region{Index: w.stagIndex(), PD: w.stagPD(), PageShift: 12}, kind, w.origin(op))
	}
	r, err := c.region(w, op)
	if err != nil {
		return result{}, err
	}
	return result{}, c.mrs.Allocate(r, mr.Memory, w.origin(op))
}

// virtualAddress adds what registrations have beside the other fields.
func (w *wqe) virtualAddress(r *mr.Region) {
	const vaBased = 59
	r.Key = uint8(w.bits(2, 7, 0))
	r.Start = w.q[0]
	r.VABased = w.flag(3, vaBased)
}

// registerMR makes an STag valid.
func (c *CQP) registerMR(w *wqe) (result, error) {
	const op = "IRDMA_CQP_OP_REG_MR"
	if !w.isRegion() {
		return result{}, fmt.Errorf("REG_MR of a memory window: %w", errParameter)
	}
	r, err := c.region(w, op)
	if err != nil {
		return result{}, err
	}
	w.virtualAddress(&r)
	r.Base = w.q[4]
	return result{}, c.mrs.Register(r, w.origin(op))
}

// registerShared makes an STag valid on the pages of another one. No driver
// does; the place of the parent's index is in its header (defs.h:
// IRDMA_CQPSQ_STAG_PARENTSTAGIDX).
func (c *CQP) registerShared(w *wqe) (result, error) {
	const op = "IRDMA_CQP_OP_REG_SMR"
	r, err := c.region(w, op)
	if err != nil {
		return result{}, err
	}
	w.virtualAddress(&r)
	return result{}, c.mrs.Share(r, uint32(w.bits(2, 55, 32)), w.origin(op))
}

// querySTag succeeds if the STag is valid; the driver takes an error of this
// command for the answer no (ctrl.c:irdma_sc_poll_for_cqp_op_done).
func (c *CQP) querySTag(w *wqe) (result, error) {
	return result{}, c.mrs.Query(w.stagIndex())
}

// deallocSTag frees an STag. The driver gives the memory away as soon as it
// sees the completion.
func (c *CQP) deallocSTag(w *wqe) (result, error) {
	const op = "IRDMA_CQP_OP_DEALLOC_STAG"
	return result{grace: true}, c.mrs.Deallocate(w.stagIndex(), w.stagPD(), w.isRegion(), w.origin(op))
}
