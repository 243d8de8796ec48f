// SPDX-License-Identifier: Apache-2.0

package minidriver

import "math/bits"

// HMC object types (hmc.h:enum irdma_hmc_rsrc_type).
const (
	IRDMA_HMC_IW_QP = iota
	IRDMA_HMC_IW_CQ
	IRDMA_HMC_IW_SRQ
	IRDMA_HMC_IW_HTE
	IRDMA_HMC_IW_ARP
	IRDMA_HMC_IW_APBVT_ENTRY
	IRDMA_HMC_IW_MR
	IRDMA_HMC_IW_XF
	IRDMA_HMC_IW_XFFL
	IRDMA_HMC_IW_Q1
	IRDMA_HMC_IW_Q1FL
	IRDMA_HMC_IW_TIMER
	IRDMA_HMC_IW_FSIMC
	IRDMA_HMC_IW_FSIAV
	IRDMA_HMC_IW_PBLE
	IRDMA_HMC_IW_RRF
	IRDMA_HMC_IW_RRFFL
	IRDMA_HMC_IW_HDR
	IRDMA_HMC_IW_MD
	IRDMA_HMC_IW_OOISC
	IRDMA_HMC_IW_OOISCFFL
	hmcTypes
)

// hmcLayout says where the buffers of 0x20 and 0x21 hold an object type, and its
// size if that is fixed.
type hmcLayout struct {
	query, commit int // byte offsets; -1: not there
	fixed         uint64
}

// hmcLayouts is irdma_sc_parse_fpm_query_buf and irdma_sc_cfg_iw_fpm as a table.
func hmcLayouts() [hmcTypes]hmcLayout {
	return [hmcTypes]hmcLayout{
		IRDMA_HMC_IW_QP:          {8, 0, 0},
		IRDMA_HMC_IW_CQ:          {16, 8, 0},
		IRDMA_HMC_IW_SRQ:         {24, 16, 0},
		IRDMA_HMC_IW_HTE:         {32, 24, 0},
		IRDMA_HMC_IW_ARP:         {40, 32, 0},
		IRDMA_HMC_IW_APBVT_ENTRY: {-1, 40, 8192},
		IRDMA_HMC_IW_MR:          {48, 48, 0},
		IRDMA_HMC_IW_XF:          {56, 56, 0},
		IRDMA_HMC_IW_XFFL:        {64, 64, 4},
		IRDMA_HMC_IW_Q1:          {72, 72, 0},
		IRDMA_HMC_IW_Q1FL:        {80, 80, 4},
		IRDMA_HMC_IW_TIMER:       {88, 88, 0},
		IRDMA_HMC_IW_FSIMC:       {96, 96, 0},
		IRDMA_HMC_IW_FSIAV:       {104, 104, 0},
		IRDMA_HMC_IW_PBLE:        {112, 112, 8},
		IRDMA_HMC_IW_RRF:         {128, 128, 0},
		IRDMA_HMC_IW_RRFFL:       {136, 136, 4},
		IRDMA_HMC_IW_HDR:         {144, 144, 0},
		IRDMA_HMC_IW_MD:          {152, 152, 0},
		IRDMA_HMC_IW_OOISC:       {160, 160, 0},
		IRDMA_HMC_IW_OOISCFFL:    {168, 168, 4},
	}
}

// hmcOrder is the order in which the driver creates and deletes the types
// (hw.c:iw_hmc_obj_types).
func hmcOrder() []int {
	return []int{IRDMA_HMC_IW_QP, IRDMA_HMC_IW_CQ, IRDMA_HMC_IW_SRQ, IRDMA_HMC_IW_HTE, IRDMA_HMC_IW_ARP,
		IRDMA_HMC_IW_APBVT_ENTRY, IRDMA_HMC_IW_MR, IRDMA_HMC_IW_XF, IRDMA_HMC_IW_XFFL, IRDMA_HMC_IW_Q1,
		IRDMA_HMC_IW_Q1FL, IRDMA_HMC_IW_PBLE, IRDMA_HMC_IW_TIMER, IRDMA_HMC_IW_FSIMC, IRDMA_HMC_IW_FSIAV,
		IRDMA_HMC_IW_RRF, IRDMA_HMC_IW_RRFFL, IRDMA_HMC_IW_HDR, IRDMA_HMC_IW_MD, IRDMA_HMC_IW_OOISC,
		IRDMA_HMC_IW_OOISCFFL}
}

// HMCObject is one type of object in the function's private memory.
type HMCObject struct {
	Max, Count uint64
	Size, Base uint64 // bytes
}

const (
	sdSize      = 2 << 20
	sdPages     = sdSize / pageSize
	maxSDsInWQE = 11 // 3 in the WQE and 8 in memory
	maxHWIRD    = 127
	qpLimit     = 256 << 10 // rsrc_limits_table[7]

	sdValid      = 1 << 0
	sdDirect     = 1 << 1
	sdPageCount  = sdPages << 2
	sdCmdWrite   = 1 << 31
	sdCmdPE      = 1 << 15
	sdEntryValid = 1 << 63
)

// hmc is the host memory cache as the driver manages it.
type hmc struct {
	objects       [hmcTypes]HMCObject
	firstSD       uint64
	maxSDs        uint64
	maxCEQs       int
	htMultiplier  uint64
	timerBucket   uint64
	xfBlock       uint64
	q1Block       uint64
	rrfBlock      uint64
	ooiscBlock    uint64
	sdCount       uint64 // entries of the driver's table
	sds           map[uint64]*segment
	query, commit *Buf
}

// segment is a segment descriptor: 2 MiB of the function's private memory.
type segment struct {
	paged bool
	buf   *Buf   // the 2 MiB, or the page of PD entries
	pages []*Buf // by PD index, for a paged one
	use   int
	valid bool
}

// setupHMC is hw.c:irdma_hmc_setup up to the commit.
func (r *IRDMA) configureHMC() error {
	h := &r.hmc
	h.sds = make(map[uint64]*segment)
	both := r.mem.own(r.F.alloc(r.Kernel.QueryFPM + r.Kernel.CommitFPM))
	h.query, h.commit = both.part(0, r.Kernel.QueryFPM), both.part(r.Kernel.QueryFPM, r.Kernel.CommitFPM)
	if err := r.cqp.registers(IRDMA_CQP_OP_QUERY_FPM_VAL, WQE{2: r.fn(), 4: h.query.IOVA}); err != nil {
		return err
	}
	for _, b := range h.commit.Bytes() {
		if b != 0 {
			return broken("QUERY_FPM wrote past the %d bytes of its buffer", r.Kernel.QueryFPM)
		}
	}
	if err := h.parseQuery(r.Kernel); err != nil {
		return err
	}
	if err := h.choose(); err != nil {
		return err
	}
	layouts := hmcLayouts()
	for t, o := range h.objects {
		count := o.Count
		if t == IRDMA_HMC_IW_APBVT_ENTRY {
			count = 0
		}
		h.commit.Store64(layouts[t].commit, count)
	}
	if err := r.cqp.registers(IRDMA_CQP_OP_COMMIT_FPM_VAL,
		WQE{2: r.fn(), 3: uint64(r.Kernel.CommitFPM), 4: h.commit.IOVA}); err != nil {
		return err
	}
	return h.parseCommit(r.Kernel)
}

// parseQuery is irdma_sc_parse_fpm_query_buf.
func (h *hmc) parseQuery(k Kernel) error {
	q := h.query
	h.firstSD = q.Load64(0) & 0x3fff
	h.maxSDs = q.Load64(0) >> 32 & 0x1fff
	for t, l := range hmcLayouts() {
		o := &h.objects[t]
		ooisc := t == IRDMA_HMC_IW_OOISC || t == IRDMA_HMC_IW_OOISCFFL
		if ooisc && !k.CountsOOISC {
			continue
		}
		if t == IRDMA_HMC_IW_APBVT_ENTRY {
			o.Max, o.Size = 1, l.fixed
			continue
		}
		word := q.Load64(l.query)
		o.Max, o.Size = word&0xffffffff, l.fixed
		if l.fixed == 0 {
			if word>>32 > 20 {
				return broken("QUERY_FPM: object type %d of 2^%d bytes", t, word>>32)
			}
			o.Size = 1 << (word >> 32)
		}
	}
	h.xfBlock = q.Load64(64) >> 32
	h.q1Block = q.Load64(80) >> 32
	h.rrfBlock = q.Load64(136) >> 32
	h.ooiscBlock = q.Load64(168) >> 32
	misc := q.Load64(120)
	h.maxCEQs = int(misc & 0x3ff)
	h.htMultiplier = misc >> 16 & 0xf
	h.timerBucket = misc >> 32 & 0xffff
	switch o := &h.objects; {
	case h.xfBlock == 0, h.q1Block == 0,
		o[IRDMA_HMC_IW_RRFFL].Max != 0 && h.rrfBlock == 0,
		o[IRDMA_HMC_IW_OOISCFFL].Max != 0 && h.ooiscBlock == 0:
		return broken("QUERY_FPM: block sizes %d %d %d %d", h.xfBlock, h.q1Block, h.rrfBlock, h.ooiscBlock)
	case o[IRDMA_HMC_IW_Q1].Max < 1024:
		return broken("QUERY_FPM: %d Q1 entries, the driver would look for a QP count for ever", o[IRDMA_HMC_IW_Q1].Max)
	case h.maxCEQs == 0:
		return broken("QUERY_FPM: no CEQ")
	}
	return nil
}

func powerOfTwo(n uint64) uint64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len64(n-1)
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

func q1Count(qp uint64) uint64 { return powerOfTwo(maxHWIRD*2*qp + 512) }

// sdsNeeded is irdma_est_sd.
func (h *hmc) sdsNeeded() uint64 {
	var size uint64
	for _, o := range h.objects {
		size += roundUp(o.Count*o.Size, 512)
	}
	return roundUp(size, sdSize) / sdSize
}

// choose is irdma_cfg_fpm_val: it cuts the wishes until they fit.
func (h *hmc) choose() error {
	o := &h.objects
	for t := range o {
		o[t].Count = o[t].Max
	}
	qp := powerOfTwo(min(qpLimit, o[IRDMA_HMC_IW_QP].Max)+1) / 2
	mr, pble := o[IRDMA_HMC_IW_MR].Max, o[IRDMA_HMC_IW_PBLE].Max
	for q1Count(qp) > o[IRDMA_HMC_IW_Q1].Max {
		qp /= 2
	}
	const thousand = 1024
	for loop := 1; ; loop++ {
		h.fill(qp, mr, pble)
		need := h.sdsNeeded()
		if need <= h.maxSDs {
			if loop > 1 {
				o[IRDMA_HMC_IW_PBLE].Count += (h.maxSDs - need) * 256 * thousand
			}
			return nil
		}
		if loop == 2000 {
			return broken("QUERY_FPM: needs %d segments of %d at least", need, h.maxSDs)
		}
		excess := need - h.maxSDs
		halve := func(t int) {
			if o[t].Count > 256 {
				o[t].Count /= 2
			}
		}
		switch {
		case excess > 128:
			if loop%2 == 0 && qp > 128 {
				qp /= 2
			} else {
				pble, mr = pble/2, mr/2
			}
			continue
		case pble > 512*thousand*excess:
			pble -= 256 * thousand * excess
			continue
		case pble > 100*thousand:
			pble -= 10 * thousand
		case pble > thousand:
			pble -= thousand
		case qp <= 128:
			halve(IRDMA_HMC_IW_FSIMC)
			halve(IRDMA_HMC_IW_FSIAV)
		}
		if mr > thousand {
			mr -= thousand
		}
		if loop%10 == 0 && qp > 128 {
			qp /= 2
			halve(IRDMA_HMC_IW_FSIAV)
		}
	}
}

// fill derives all counts from those of QPs, MRs and PBLEs.
func (h *hmc) fill(qp, mr, pble uint64) {
	o := &h.objects
	o[IRDMA_HMC_IW_QP].Count = qp
	o[IRDMA_HMC_IW_CQ].Count = min(2*qp, o[IRDMA_HMC_IW_CQ].Count)
	o[IRDMA_HMC_IW_SRQ].Count = 0
	o[IRDMA_HMC_IW_MR].Count = mr
	o[IRDMA_HMC_IW_HTE].Count = powerOfTwo(roundUp(qp+o[IRDMA_HMC_IW_FSIMC].Count, 512)) * h.htMultiplier
	o[IRDMA_HMC_IW_XF].Count = 4 * h.xfBlock * qp
	o[IRDMA_HMC_IW_HDR].Count = qp
	if o[IRDMA_HMC_IW_RRF].Max != 0 {
		o[IRDMA_HMC_IW_RRF].Count = 32 * qp
	}
	if o[IRDMA_HMC_IW_RRFFL].Max != 0 {
		o[IRDMA_HMC_IW_RRFFL].Count = o[IRDMA_HMC_IW_RRF].Count / h.rrfBlock
	}
	if o[IRDMA_HMC_IW_OOISC].Max != 0 {
		o[IRDMA_HMC_IW_OOISC].Count = 32 * qp
	}
	if o[IRDMA_HMC_IW_OOISCFFL].Max != 0 {
		o[IRDMA_HMC_IW_OOISCFFL].Count = o[IRDMA_HMC_IW_OOISC].Count / h.ooiscBlock
	}
	o[IRDMA_HMC_IW_Q1].Count = q1Count(qp)
	o[IRDMA_HMC_IW_XFFL].Count = o[IRDMA_HMC_IW_XF].Count / h.xfBlock
	o[IRDMA_HMC_IW_Q1FL].Count = o[IRDMA_HMC_IW_Q1].Count / h.q1Block
	o[IRDMA_HMC_IW_TIMER].Count = (roundUp(qp, 512)/512 + 1) * h.timerBucket
	o[IRDMA_HMC_IW_PBLE].Count = pble
}

// parseCommit is irdma_sc_parse_fpm_commit_buf. On top it wants objects that do
// not overlap.
func (h *hmc) parseCommit(k Kernel) error {
	last, highest := 0, uint64(0)
	for t, l := range hmcLayouts() {
		o := &h.objects[t]
		ooisc := t == IRDMA_HMC_IW_OOISC || t == IRDMA_HMC_IW_OOISCFFL
		if ooisc && !k.CountsOOISC {
			o.Count = 0
			continue
		}
		word := h.commit.Load64(l.commit)
		count := word & 0xffffffff
		if t == IRDMA_HMC_IW_APBVT_ENTRY {
			count = 1
		}
		if count != o.Count {
			return broken("COMMIT_FPM gives %d of object type %d, asked for %d", count, t, o.Count)
		}
		o.Base = word >> 32 * 512
		if o.Base > highest && (o.Count != 0 || k.EmptyObjectIsLast) {
			last, highest = t, o.Base
		}
	}
	end := h.objects[last].Base + h.objects[last].Count*h.objects[last].Size
	h.sdCount = roundUp(end, sdSize) / sdSize
	for t, a := range h.objects {
		if a.Count == 0 {
			continue
		}
		if a.Base+a.Count*a.Size > end {
			return broken("COMMIT_FPM: object type %d ends at %#x, after the last one's %#x", t, a.Base+a.Count*a.Size, end)
		}
		for u, b := range h.objects[:t] {
			if b.Count != 0 && a.Base < b.Base+b.Count*b.Size && b.Base < a.Base+a.Count*a.Size {
				return broken("COMMIT_FPM: object types %d and %d overlap", u, t)
			}
		}
	}
	return nil
}

// span gives the segments that an object type touches: [first, limit).
func (h *hmc) span(t int) (first, limit uint64) {
	o := h.objects[t]
	return o.Base / sdSize, (o.Base+o.Count*o.Size-1)/sdSize + 1
}

// createHMC backs all static objects with direct segments
// (hw.c:irdma_create_hmc_objs).
func (r *IRDMA) createHMC() error {
	h := &r.hmc
	for _, t := range hmcOrder() {
		if t == IRDMA_HMC_IW_PBLE || h.objects[t].Count == 0 {
			continue
		}
		first, limit := h.span(t)
		if limit > h.sdCount+h.firstSD {
			return broken("object type %d reaches segment %d of %d", t, limit-1, h.sdCount)
		}
		var add []uint64
		for n := first; n < limit; n++ {
			if h.sds[n] == nil {
				h.sds[n] = &segment{buf: r.mem.own(r.F.alloc(sdSize)), valid: true}
				add = append(add, n)
			}
			h.sds[n].use++
		}
		if err := r.updateSDs(add, true); err != nil {
			return err
		}
	}
	return r.cqp.registers(IRDMA_CQP_OP_SHMC_PAGES_ALLOCATED, WQE{2: r.fn()})
}

// deleteHMC is hw.c:irdma_del_hmc_objects with the use counts of the driver,
// which give a segment up when the last counted type goes.
func (r *IRDMA) deleteHMC() error {
	h := &r.hmc
	for _, t := range hmcOrder() {
		if h.objects[t].Count == 0 {
			continue
		}
		first, limit := h.span(t)
		limit = min(limit, h.sdCount+h.firstSD)
		var gone []uint64
		for n := first; n < limit; n++ {
			s := h.sds[n]
			if s == nil || !s.valid {
				continue
			}
			if s.paged {
				r.dropPages(n, s)
				s.use = 1
			}
			if s.use--; s.use == 0 {
				s.valid = false
				gone = append(gone, n)
			}
		}
		if err := r.updateSDs(gone, false); err != nil {
			return err
		}
		for _, n := range gone {
			r.mem.free(h.sds[n].buf)
			delete(h.sds, n)
		}
	}
	return nil
}

// dropPages zeroes the PD entries of a segment and tells the device each
// (hmc.c:irdma_remove_pd_bp). The pages behind them are gone already.
func (r *IRDMA) dropPages(n uint64, s *segment) {
	for pd, page := range s.pages {
		if page != nil {
			s.buf.Store64(8*pd, 0)
			r.invalidatePD(n, pd)
			s.pages[pd] = nil
		}
	}
}

// invalidatePD is hmc.c:irdma_invalidate_pf_hmc_pd.
func (r *IRDMA) invalidatePD(sd uint64, pd int) {
	const partition = 1 << 15
	if r.opts.NoPDINV {
		return
	}
	r.F.Write32(PFHMC_PDINV, uint32(sd)|partition|uint32(pd&0x1ff)<<16)
}

// updateSDs programs or clears segments, in groups as the driver does.
func (r *IRDMA) updateSDs(list []uint64, set bool) error {
	for len(list) > 0 {
		n := min(len(list), maxSDsInWQE)
		if err := r.hmcOp(IRDMA_CQP_OP_UPDATE_PE_SDS, r.sdWQE(list[:n], set)); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// hmcOp does an operation on segments: by the CCQ while there is one.
func (r *IRDMA) hmcOp(op uint8, w WQE) error {
	if r.ccq == nil {
		return r.cqp.registers(op, w)
	}
	_, err := r.Exec(op, w)
	return err
}

// sdWQE is ctrl.c:cqp_sds_wqe_fill.
func (r *IRDMA) sdWQE(list []uint64, set bool) WQE {
	w := WQE{2: r.fn()}
	slot := int(r.cqp.nextSlot()) * cqpSDSlice
	for n, index := range list {
		s := r.hmc.sds[index]
		cmd := sdCmdWrite | sdCmdPE | index
		data := uint64(sdPageCount)
		if !s.paged {
			data |= sdDirect
		}
		if set {
			data |= s.buf.IOVA | sdValid
		}
		switch n {
		case 0:
			w[0], w[1] = cmd, data
		case 1, 2:
			w[2+2*n], w[3+2*n] = cmd|sdEntryValid, data
		default:
			at := slot + 16*(n-3)
			r.cqp.sdBuf.Store64(at, cmd)
			r.cqp.sdBuf.Store64(at+8, data)
			w[3]++
			w[2] = r.fn() | (r.cqp.sdBuf.IOVA + uint64(slot))
		}
	}
	return w
}
