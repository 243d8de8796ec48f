// SPDX-License-Identifier: Apache-2.0

// Package hmc is the host memory cache of the protocol engine: the private
// address space (FPM) that the driver backs with its own pages, and the walk
// from an object's number to the guest memory behind it.
//
// Contract and traps:
//   - An FPM address is never a DMA address: it goes through the segment
//     descriptors (2 MiB each) and, where a segment is paged, through one of
//     its 512 page descriptors.
//   - A direct segment's address is 4 KiB aligned only: add, do not mask.
//   - A page descriptor once used is kept until PFHMC_PDINV, an update of its
//     segment, or a reset. If the guest changes one without PFHMC_PDINV the
//     kept copy stays in use and a StalePD event tells so.
//   - Contents of the objects other than PBLEs are the device's own business
//     and live elsewhere; what is checked here is that they have backing.
//   - All methods may be called from any goroutine. Walks run beside each
//     other; a change of segments or PFHMC_PDINV waits for those under way,
//     reads of PBLEs included, so none uses the old memory afterwards. Events
//     and HMC_ERR are sent with the cache's lock held or not: their receivers
//     must not call back.
package hmc

import (
	"encoding/binary"
	"sync"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is what the cache needs of guest memory.
type Memory interface {
	Read(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
}

// OICRHMCErr is PFINT_OICR.HMC_ERR, the cause raised on a failed access.
const OICRHMCErr = 1 << 26

// Config of a Cache.
type Config struct {
	Mem  Memory
	Emit func(any)         // may be nil
	OICR func(bits uint32) // may be nil
	PF   int               // the HMC function number
	// Overtaken tells that walks may be those of steps of the data path that a
	// reset has overtaken: their failures raise and record nothing. It is true
	// from before the reset until no such step is left. May be nil.
	Overtaken func() bool
	// Profile is what QUERY_FPM_VAL offers; the zero value means SmallGuest.
	Profile Profile
}

// Cache is the host memory cache of one function.
type Cache struct {
	mem     Memory
	emit    func(any)
	oicr    func(uint32)
	late    func() bool
	pf      int
	profile Profile

	mu sync.RWMutex // guards the rest; shared by walks

	committed bool
	backed    bool // SHMC_PAGES_ALLOCATED seen
	layout    [NumObjects]extent
	end       uint64 // first FPM address behind the layout

	sds     map[uint32]*segment     // valid segments only
	pds     map[uint32]*descriptors // of paged segments, also of those to come
	backing backing

	errInfo, errData reg.Cells

	buffers buffers
}

// New makes an empty cache.
func New(c Config) *Cache {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	if c.OICR == nil {
		c.OICR = func(uint32) {}
	}
	if c.Overtaken == nil {
		c.Overtaken = func() bool { return false }
	}
	if c.Profile.MaxSDs == 0 {
		c.Profile = SmallGuest()
	}
	h := &Cache{mem: c.Mem, emit: c.Emit, oicr: c.OICR, late: c.Overtaken, pf: c.PF, profile: c.Profile}
	h.clear()
	return h
}

func (h *Cache) clear() {
	h.committed, h.backed, h.end = false, false, 0
	h.layout = [NumObjects]extent{}
	h.sds = map[uint32]*segment{}
	h.pds = map[uint32]*descriptors{}
	h.backing.clear()
}

// Reset forgets layout, segments and kept page descriptors. Every reset,
// also the destruction of the control QP, ends all of it.
func (h *Cache) Reset(reg.Domain) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clear()
}

// Registers are the rows of the cache.
func (h *Cache) Registers() []reg.Row {
	const src = "icrdma_hw.h:PFHMC_PDINV; hmc.c:irdma_invalidate_pf_hmc_pd"
	return []reg.Row{
		{
			Name: "PFHMC_PDINV", Offset: 0x520300, Domain: reg.PFR, Source: src,
			Fields: []reg.Field{{Name: "PMSDIDX", Hi: 11, Lo: 0}, {Name: "PMSDPARTSEL", Hi: 15, Lo: 15}, {Name: "PMPDIDX", Hi: 24, Lo: 16}},
			Write:  func(_ int, v uint32) { h.invalidate(v) },
		},
		{
			// The layout of these two is that of the XL710 family.
			Name: "PFHMC_ERRORINFO", Offset: 0x520400, Domain: reg.PFR, Cells: &h.errInfo, Inferred: true,
			Source: "icrdma_hw.h:PFHMC_ERRORINFO",
			Fields: []reg.Field{{Name: "PMF_INDEX", Hi: 4, Lo: 0}, {Name: "PMF_ISVF", Hi: 7, Lo: 7},
				{Name: "HMC_ERROR_TYPE", Hi: 11, Lo: 8}, {Name: "HMC_OBJECT_TYPE", Hi: 20, Lo: 16}, {Name: "ERROR_DETECTED", Hi: 31, Lo: 31}},
			Write: func(int, uint32) { h.errInfo.Set(0, 0) },
		},
		{
			Name: "PFHMC_ERRORDATA", Offset: 0x520500, Domain: reg.PFR, Cells: &h.errData, Inferred: true,
			Source: "icrdma_hw.h:PFHMC_ERRORDATA",
			Fields: []reg.Field{{Name: "HMC_ERROR_DATA", Hi: 29, Lo: 0}},
		},
		{
			Name: "GLHMC_VFPDINV", Offset: 0x528300, N: 32, Stride: 4, Domain: reg.CORER,
			Source: "icrdma_hw.h:GLHMC_VFPDINV",
		},
	}
}

func word(b []byte, off int) uint64       { return binary.LittleEndian.Uint64(b[off:]) }
func setWord(b []byte, off int, v uint64) { binary.LittleEndian.PutUint64(b[off:], v) }
