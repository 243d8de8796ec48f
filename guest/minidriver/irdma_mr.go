// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
)

// Access are the rights of a registration (irdma/user.h:IRDMA_ACCESS_FLAGS_*).
type Access uint8

const (
	LocalRead   Access = 1 << 0
	LocalWrite  Access = 1 << 1
	RemoteRead  Access = 1 << 2
	RemoteWrite Access = 1 << 3

	Everything = LocalRead | LocalWrite | RemoteRead | RemoteWrite
)

// Fields of the STag WQEs (irdma/defs.h:IRDMA_CQPSQ_STAG_*).
const (
	stagMR            = 1 << 43
	stagLPBLSizeBit   = 44
	stagHPageSizeBit  = 46
	stagRightsBit     = 48
	stagRemoteAccess  = 1 << 53
	stagVABased       = 1 << 59
	stagPDBit         = 46
	stagIndexBit      = 8
	stagSmallestTable = 14 // bits of an index that is never narrower
)

// MR is registered memory.
type MR struct {
	STag  uint32 // lkey and rkey
	PD    uint32
	Level int // of the page buffer list; 0: one run
	Len   uint64

	r    *IRDMA
	base uint64 // address of the first byte for WQEs
	list *pageList
}

// Addr is what WQEs call the byte at an offset.
func (m *MR) Addr(off int) uint64 { return m.base + uint64(off) }

// MROptions are what a registration may ask for.
type MROptions struct {
	ZeroBased bool // addresses of WQEs start at 0, not at the region's
	Rand      *rand.Rand
}

// RegMR registers a region (verbs.c:irdma_reg_user_mr_type_mem). Like the
// driver it forgets the page buffer list again if the pages are one run.
func (r *IRDMA) RegMR(pd uint32, region *Region, access Access, o MROptions) (*MR, error) {
	m := &MR{r: r, PD: pd, Len: uint64(region.Size), base: region.VA}
	if o.ZeroBased {
		m.base = 0
	}
	pages := region.addresses()
	w := WQE{0: region.VA, 1: m.Len}
	if o.ZeroBased {
		w[0] = region.VA % uint64(region.PageSize)
	}
	if len(pages) > 1 {
		var err error
		if m.list, err = r.newPageList(pages); err != nil {
			return nil, err
		}
		if contiguous(pages, uint64(region.PageSize)) {
			r.freePageList(m.list)
			m.list = nil
		}
	}
	switch {
	case m.list == nil:
		w[4] = pages[0]
	case m.list.level == 1:
		m.Level = 1
		w[3] |= 1 << stagLPBLSizeBit
		w[6] = m.list.index
	default:
		m.Level = 2
		w[3] |= 3 << stagLPBLSizeBit
		w[6] = m.list.index
	}
	switch region.PageSize {
	case Page2M:
		w[3] |= 1 << stagHPageSizeBit
	case Page4K:
	default:
		return nil, fmt.Errorf("pages of %d bytes", region.PageSize)
	}
	if !o.ZeroBased {
		w[3] |= stagVABased
	}
	return m, m.register(w, access, o.Rand)
}

// RegAll registers all memory, by addresses of the device
// (verbs.c:irdma_get_dma_mr).
func (r *IRDMA) RegAll(pd uint32, access Access) (*MR, error) {
	m := &MR{r: r, PD: pd}
	return m, m.register(WQE{3: stagVABased}, access, nil)
}

func (m *MR) register(w WQE, access Access, rnd *rand.Rand) error {
	r := m.r
	m.STag = r.createSTag(rnd)
	if access&(RemoteRead|RemoteWrite) != 0 {
		w[3] |= stagRemoteAccess
	}
	w[1] |= uint64(m.PD) << stagPDBit
	w[2] = uint64(m.STag)
	w[3] |= stagMR | uint64(access)<<stagRightsBit
	if _, err := r.Exec(IRDMA_CQP_OP_REG_MR, w); err != nil {
		r.freeSTag(m.STag)
		if m.list != nil {
			r.freePageList(m.list)
		}
		return err
	}
	return nil
}

// Dereg ends the registration (verbs.c:irdma_dereg_mr). The device must not
// touch the memory through it when this returns.
func (m *MR) Dereg() error {
	r := m.r
	_, err := r.Exec(IRDMA_CQP_OP_DEALLOC_STAG, m.deallocWQE())
	if err != nil {
		return err
	}
	r.freeSTag(m.STag)
	if m.list != nil {
		r.freePageList(m.list)
	}
	return nil
}

func (m *MR) deallocWQE() WQE {
	return WQE{1: uint64(m.PD) << stagPDBit, 2: uint64(m.STag) &^ 0xff, 3: stagMR}
}

func contiguous(pages []uint64, size uint64) bool {
	for k := range pages[1:] {
		if pages[k+1] != pages[k]+size {
			return false
		}
	}
	return true
}

// stagIndexMask covers the index in an STag; the driver puts random bits above
// it (hw.c:irdma_initialize_hw_rsrc, mr_stagmask).
func (r *IRDMA) stagIndexMask() uint32 {
	order := bits.Len64(r.hmc.objects[IRDMA_HMC_IW_MR].Count - 1)
	return 1<<max(order, stagSmallestTable) - 1
}

// createSTag is verbs.c:irdma_create_stag.
func (r *IRDMA) createSTag(rnd *rand.Rand) uint32 {
	random := rand.Uint32()
	if rnd != nil {
		random = rnd.Uint32()
	}
	mask, limit := r.stagIndexMask(), uint32(r.hmc.objects[IRDMA_HMC_IW_MR].Count)
	for index := (random >> stagIndexBit & mask) % limit; ; index = (index + 1) % limit {
		if index != 0 && !r.stags[index] {
			r.stags[index] = true
			return random&^(mask<<stagIndexBit) | index<<stagIndexBit
		}
	}
}

func (r *IRDMA) freeSTag(stag uint32) { delete(r.stags, stag>>stagIndexBit&r.stagIndexMask()) }
