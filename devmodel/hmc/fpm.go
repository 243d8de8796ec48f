// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"errors"
	"fmt"
)

// Object is an HMC object type, numbered as the driver does
// (hmc.h:enum irdma_hmc_rsrc_type).
type Object uint8

// Object types.
const (
	QP Object = iota
	CQ
	SRQ
	HTE
	ARP
	APBVT
	MR
	XF
	XFFL
	Q1
	Q1FL
	TIMER
	FSIMC
	FSIAV
	PBLE
	RRF
	RRFFL
	HDR
	MD
	OOISC
	OOISCFFL
	NumObjects
)

// none marks a word an object does not have.
const none = -1

// objects tells, per type, the size where the driver fixes it, the offset of
// its word in the query buffer (ctrl.c:irdma_sc_parse_fpm_query_buf) and in
// the commit buffer (ctrl.c:irdma_sc_cfg_iw_fpm). Words of the free lists
// carry the block size of their list instead of an object size.
var objects = [NumObjects]struct {
	name          string
	fixed         uint8 // log2 of the size; 0: the profile's
	query, commit int
	list          bool // upper half of the query word is a block size
	limited       bool // the driver never commits more than the queried maximum
}{
	QP:       {"QP", 0, 8, 0, false, true},
	CQ:       {"CQ", 0, 16, 8, false, true},
	SRQ:      {"SRQ", 0, 24, 16, false, true},
	HTE:      {"HTE", 0, 32, 24, false, false},
	ARP:      {"ARP", 0, 40, 32, false, true},
	APBVT:    {"APBVT", 13, none, 40, false, false},
	MR:       {"MR", 0, 48, 48, false, true},
	XF:       {"XF", 0, 56, 56, false, false},
	XFFL:     {"XFFL", 2, 64, 64, true, false},
	Q1:       {"Q1", 0, 72, 72, false, false},
	Q1FL:     {"Q1FL", 2, 80, 80, true, false},
	TIMER:    {"TIMER", 0, 88, 88, false, false},
	FSIMC:    {"FSIMC", 0, 96, 96, false, true},
	FSIAV:    {"FSIAV", 0, 104, 104, false, true},
	PBLE:     {"PBLE", 3, 112, 112, false, false},
	RRF:      {"RRF", 0, 128, 128, false, false},
	RRFFL:    {"RRFFL", 2, 136, 136, true, false},
	HDR:      {"HDR", 0, 144, 144, false, false},
	MD:       {"MD", 0, 152, 152, false, false},
	OOISC:    {"OOISC", 0, 160, 160, false, false},
	OOISCFFL: {"OOISCFFL", 2, 168, 168, true, false},
}

func (o Object) String() string {
	if o < NumObjects {
		return objects[o].name
	}
	return fmt.Sprintf("object type %d", uint8(o))
}

// layoutOrder is the order of the objects in FPM space. PBLE is last: the
// driver takes the object with the highest base for the end of its SD table.
var layoutOrder = [...]Object{QP, CQ, SRQ, HTE, ARP, APBVT, MR, XF, XFFL, Q1, Q1FL, TIMER,
	FSIMC, FSIAV, RRF, RRFFL, HDR, MD, OOISC, OOISCFFL, PBLE}

// Limit is what a profile offers of one object type.
type Limit struct {
	Max   uint32
	Log2  uint8  // of the object's size in bytes, where the driver does not fix it
	Block uint32 // free lists: objects per list element
}

// Profile is the answer to QUERY_FPM_VAL: how many objects of which size the
// device offers. It decides how much memory the driver gives away at probe.
type Profile struct {
	FirstSD      uint32
	MaxSDs       uint32
	MaxCEQs      uint32
	HTMultiplier uint32
	TimerBucket  uint32
	Limits       [NumObjects]Limit
	// PBLESD and PBLEPage, unless both are 0, make a gap before the PBLEs: they
	// begin at page PBLEPage of a segment that is PBLESD or a later one and has
	// no other objects. Where they do not fill a segment the driver backs it
	// page by page.
	PBLESD, PBLEPage uint32
}

// SmallGuest suits a guest with 512 MiB: three static segments (6 MiB), 1024
// QPs, PBLEs for 8 GiB of 4 KiB pages. The sizes are invented; all kernels
// compute their counts from it in one round, without shrinking.
func SmallGuest() Profile {
	p := Profile{FirstSD: 0, MaxSDs: 64, MaxCEQs: 64, HTMultiplier: 2, TimerBucket: 512}
	p.Limits = [NumObjects]Limit{
		QP:       {Max: 1024, Log2: 9},
		CQ:       {Max: 2048, Log2: 6},
		HTE:      {Max: 4096, Log2: 6},
		ARP:      {Max: 512, Log2: 6},
		MR:       {Max: 16384, Log2: 6},
		XF:       {Max: 16384, Log2: 4},
		XFFL:     {Max: 4096, Block: 4},
		Q1:       {Max: 262144, Log2: 2},
		Q1FL:     {Max: 65536, Block: 4},
		TIMER:    {Max: 1536, Log2: 6},
		FSIMC:    {Max: 512, Log2: 6},
		FSIAV:    {Max: 4096, Log2: 6},
		PBLE:     {Max: 2097152},
		RRF:      {Max: 32768, Log2: 4},
		RRFFL:    {Max: 8192, Block: 4},
		HDR:      {Max: 1024, Log2: 6},
		OOISCFFL: {Block: 4},
	}
	return p
}

// Log2Size is the log2 of the size of one o in bytes.
func (p *Profile) Log2Size(o Object) uint8 {
	if f := objects[o].fixed; f != 0 {
		return f
	}
	return p.Limits[o].Log2
}

// FPMSize is the length in bytes of the query buffer of every kernel, and
// the least length of the commit buffer. Later words of newer kernels belong
// to other device generations.
const FPMSize = 176

// Query is the answer to QUERY_FPM_VAL.
func (h *Cache) Query() (buf [FPMSize]byte) {
	p := &h.profile
	setWord(buf[:], 0, uint64(p.FirstSD)|uint64(p.MaxSDs)<<32)
	for o, row := range objects {
		if row.query == none {
			continue
		}
		l := p.Limits[o]
		upper := uint64(l.Log2)
		if row.list {
			upper = uint64(l.Block)
		}
		setWord(buf[:], row.query, uint64(l.Max)|upper<<32)
	}
	setWord(buf[:], 120, uint64(p.MaxCEQs)|uint64(p.HTMultiplier)<<16|uint64(p.TimerBucket)<<32)
	return buf
}

// extent is where the objects of one type lie.
type extent struct {
	count uint32
	base  uint64 // FPM address
	log2  uint8
}

func (e extent) end() uint64 { return e.base + uint64(e.count)<<e.log2 }

// Errors of Commit and of segment updates.
var (
	// ErrParameter: a number the function was never offered.
	ErrParameter = errors.New("parameter out of range")
	// ErrState: the operation does not fit what was done before.
	ErrState = errors.New("wrong order")
)

// segmentShift: a segment descriptor covers 2 MiB (hmc.h:IRDMA_HMC_DIRECT_BP_SIZE).
const segmentShift = 21

func roundUp(v, to uint64) uint64 { return (v + to - 1) &^ (to - 1) }

// Commit takes the counts of a COMMIT_FPM_VAL buffer, lays out FPM space and
// puts bases (in units of 512 bytes, upper half) and counts into buf. It
// refuses a layout while segments are still programmed for an earlier one.
func (h *Cache) Commit(buf *[FPMSize]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sds) > 0 {
		return fmt.Errorf("commit with %d segments still valid: %w", len(h.sds), ErrState)
	}
	var counts [NumObjects]uint32
	for o := range counts {
		n := uint32(word(buf[:], objects[o].commit))
		if objects[o].limited && n > h.profile.Limits[o].Max {
			h.emit(CommitRefused{Object: Object(o), Count: uint64(n), Max: uint64(h.profile.Limits[o].Max)})
			return fmt.Errorf("%d objects of type %v, at most %d were offered: %w", n, Object(o), h.profile.Limits[o].Max, ErrParameter)
		}
		counts[o] = n
	}
	counts[APBVT] = 1 // the driver sends 0 and assumes 1
	layout, end := h.profile.place(&counts)
	if limit := h.profile.limit(); end > limit {
		h.emit(CommitRefused{Object: NumObjects, Count: end, Max: limit})
		return fmt.Errorf("layout ends at %#x, the function has %#x: %w", end, limit, ErrParameter)
	}
	for o, e := range layout {
		setWord(buf[:], objects[o].commit, e.base/512<<32|uint64(e.count))
	}
	h.layout, h.end, h.committed, h.backed = layout, end, true, false
	return nil
}

// limit is the first FPM address that the function does not have.
func (p *Profile) limit() uint64 { return uint64(p.FirstSD+p.MaxSDs) << segmentShift }

// place lays counts of objects out in FPM space.
func (p *Profile) place(counts *[NumObjects]uint32) (layout [NumObjects]extent, end uint64) {
	addr := uint64(p.FirstSD) << segmentShift
	for _, o := range layoutOrder {
		if counts[o] == 0 {
			continue
		}
		log2 := p.Log2Size(o)
		align := uint64(512) // the unit of a base
		switch {
		case o == PBLE: // the driver uses whole pages of PBLEs only
			align = pageMask + 1
			if p.PBLESD != 0 || p.PBLEPage != 0 {
				addr = max(roundUp(addr, 1<<segmentShift), uint64(p.PBLESD)<<segmentShift) + uint64(p.PBLEPage)<<12
			}
		case objects[o].fixed == 0: // no object crosses a page
			align = max(align, 1<<log2)
		}
		addr = roundUp(addr, align)
		layout[o] = extent{counts[o], addr, log2}
		addr = layout[o].end()
	}
	return layout, addr
}

// PagesAllocated is SHMC_PAGES_ALLOCATED: every segment under a static
// object (all but PBLEs) must be valid by now.
func (h *Cache) PagesAllocated() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.committed {
		return fmt.Errorf("static pages announced before a layout was committed: %w", ErrState)
	}
	for _, o := range layoutOrder {
		e := h.layout[o]
		if e.count == 0 || o == PBLE {
			continue
		}
		for sd := e.base >> segmentShift; sd <= (e.end()-1)>>segmentShift; sd++ {
			if h.sds[uint32(sd)] == nil {
				h.emit(StaticUnbacked{Object: o, SD: uint32(sd)})
				return fmt.Errorf("segment %d under %v is not valid: %w", sd, o, ErrState)
			}
		}
	}
	h.backed = true
	return nil
}

// Committed tells whether COMMIT_FPM_VAL was given: segments may be programmed.
func (h *Cache) Committed() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.committed
}

// Backed tells whether SHMC_PAGES_ALLOCATED was given: objects may be made.
func (h *Cache) Backed() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.backed
}

// Count is the committed number of objects of type o.
func (h *Cache) Count(o Object) uint32 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.layout[o].count
}

// MaxCEQs is the number of completion event queues of the function.
func (h *Cache) MaxCEQs() uint32 { return h.profile.MaxCEQs }

// Max is the number of objects of type o that the function offers.
func (h *Cache) Max(o Object) uint32 { return h.profile.Limits[o].Max }
