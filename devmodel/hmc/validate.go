// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"errors"
	"fmt"
	"math/bits"
)

// Bounds of a profile. Most are widths of fields.
const (
	maxSegments = 1 << 12 // PFHMC_PDINV.PMSDIDX names no others
	maxLog2     = 12      // an object does not cross a page
)

// Validate tells all that keeps a driver from using the profile.
func (p *Profile) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(what string, v, low, high uint32) {
		if v < low || v > high {
			fail("%s is %d: want %d to %d", what, v, low, high)
		}
	}
	within("max_sds", p.MaxSDs, 1, maxSegments)
	if uint64(p.FirstSD)+uint64(p.MaxSDs) > maxSegments {
		fail("segments %d and %d more: PFHMC_PDINV can name those below %d only", p.FirstSD, p.MaxSDs, maxSegments)
	}
	within("pble_page", p.PBLEPage, 0, pdsPerSegment-1)
	within("max_ceqs", p.MaxCEQs, 1, 1<<10-1)
	within("ht_multiplier", p.HTMultiplier, 1, 1<<4-1)
	within("timer_bucket", p.TimerBucket, 1, 1<<16-1)
	for _, b := range []struct {
		o         Object
		low, high uint32
		why       string
	}{
		{QP, 4, 1 << 18, "numbers 0 to 2 are reserved"},
		{CQ, 4, 1 << 19, "numbers 0 to 2 are reserved"},
		{SRQ, 0, 0, "there are none"},
		{HTE, 1, 1 << 24, ""},
		{ARP, 2, 1 << 12, "number 0 is reserved, a WQE's field has 12 bits"},
		{MR, 2, 1 << 22, "number 0 is reserved"},
		{XF, 1, 1 << 28, ""},
		{Q1, 2048, 1 << 28, "with less a driver looks for a count of QPs for ever, or finds too few"},
		{FSIMC, 2, 1 << 12, "number 0 is reserved, a WQE's field has 12 bits"},
		{FSIAV, 2, 1 << 17, "number 0 is reserved"},
		{PBLE, 512, 1 << 28, "a driver takes them by pages, a WQE's field has 28 bits"},
	} {
		if n := p.Limits[b.o].Max; n < b.low || n > b.high {
			why := ""
			if b.why != "" {
				why = ": " + b.why
			}
			fail("objects: %v: max is %d: want %d to %d%s", b.o, n, b.low, b.high, why)
		}
	}
	for o, row := range objects {
		if row.fixed == 0 && p.Limits[o].Log2 > maxLog2 {
			fail("objects: %v: size is %d: want at most %d", Object(o), uint64(1)<<p.Limits[o].Log2, 1<<maxLog2)
		}
		// A driver divides by the block size even where it has no such list.
		if row.list && p.Limits[o].Block == 0 {
			fail("objects: %v: block is 0: want at least 1", Object(o))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return p.fits()
}

// fits checks that what a driver takes has room. If it has not, a driver asks
// for less until it has; but it cannot know of a gap before the PBLEs.
func (p *Profile) fits() error {
	if p.PBLESD == 0 && p.PBLEPage == 0 {
		return nil
	}
	counts := p.wanted()
	_, end := p.place(&counts)
	if limit := p.limit(); end > limit {
		return fmt.Errorf("the layout ends in SD %d, max_sds allows those below %d: a driver does not know of the gap before the PBLEs, and cannot ask for less",
			(end-1)>>segmentShift, limit>>segmentShift)
	}
	return nil
}

// wanted is what a driver commits if all of it fits: its own arithmetic, in
// RoCE mode (ctrl.c:irdma_cfg_fpm_val, cfg_fpm_value_gen_2, irdma_q1_cnt).
func (p *Profile) wanted() (counts [NumObjects]uint32) {
	const (
		qpLimit   = 256 << 10 // main.h:rsrc_limits_table
		maxHWIRD  = 127       // icrdma_hw.h:ICRDMA_MAX_IRD_SIZE
		perQP     = 32        // RRF and OOISC
		xfBlocks  = 4         // per QP
		roundedTo = 512
	)
	l := &p.Limits
	for o := range counts {
		counts[o] = l[o].Max
	}
	qp := min(l[QP].Max, qpLimit)
	qp = 1 << (bits.Len32(qp) - 1)
	q1 := func() uint32 { return powerOfTwo(2*maxHWIRD*qp + 512) }
	for q1() > l[Q1].Max && qp > 1 {
		qp /= 2
	}
	counts[QP], counts[CQ], counts[HDR], counts[APBVT] = qp, min(2*qp, l[CQ].Max), qp, 1
	counts[HTE] = powerOfTwo(uint32(roundUp(uint64(qp+l[FSIMC].Max), roundedTo))) * p.HTMultiplier
	counts[XF] = xfBlocks * l[XFFL].Block * qp
	counts[XFFL] = counts[XF] / l[XFFL].Block
	counts[Q1] = q1()
	counts[Q1FL] = counts[Q1] / l[Q1FL].Block
	counts[TIMER] = uint32(roundUp(uint64(qp), roundedTo)/roundedTo+1) * p.TimerBucket
	for _, f := range [...]struct{ o, list Object }{{RRF, RRFFL}, {OOISC, OOISCFFL}} {
		if l[f.o].Max != 0 {
			counts[f.o] = perQP * qp
		}
		if l[f.list].Max != 0 {
			counts[f.list] = counts[f.o] / l[f.list].Block
		}
	}
	return counts
}

// powerOfTwo rounds up.
func powerOfTwo(n uint32) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len32(n-1)
}
