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
	BindWindow  Access = 1 << 4

	Everything = LocalRead | LocalWrite | RemoteRead | RemoteWrite
)

// Fields of the STag WQEs (irdma/defs.h:IRDMA_CQPSQ_STAG_*).
const (
	stagWindowType1   = 1 << 42 // MWTYPE
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
	op   *request // under way
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
	m, err := r.StartRegMR(pd, region, access, o)
	if err != nil {
		return nil, err
	}
	return m, m.Wait()
}

// StartRegMR is RegMR by one of several threads of a program: the others go on
// before Wait says that it is done.
func (r *IRDMA) StartRegMR(pd uint32, region *Region, access Access, o MROptions) (*MR, error) {
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
	code, err := hPageSize(region.PageSize)
	if err != nil {
		return nil, err
	}
	w[3] |= code << stagHPageSizeBit
	if !o.ZeroBased {
		w[3] |= stagVABased
	}
	return m, m.start(w, access, o.Rand)
}

// hPageSize is the code of a page size (type.h:enum irdma_page_size).
func hPageSize(size int) (code uint64, err error) {
	switch size {
	case Page4K:
		return 0, nil
	case Page2M:
		return 1, nil
	case Page1G:
		return 2, nil
	}
	return 0, fmt.Errorf("pages of %d bytes", size)
}

// RegAll registers all memory, by addresses of the device
// (verbs.c:irdma_get_dma_mr).
func (r *IRDMA) RegAll(pd uint32, access Access) (*MR, error) {
	m := &MR{r: r, PD: pd}
	if err := m.start(WQE{3: stagVABased}, access, nil); err != nil {
		return nil, err
	}
	return m, m.Wait()
}

// start posts REG_MR.
func (m *MR) start(w WQE, access Access, rnd *rand.Rand) error {
	r := m.r
	m.STag = r.createSTag(rnd)
	if access&(RemoteRead|RemoteWrite) != 0 {
		w[3] |= stagRemoteAccess
	}
	w[1] |= uint64(m.PD) << stagPDBit
	w[2] = uint64(m.STag)
	w[3] |= stagMR | uint64(access)<<stagRightsBit
	return m.begin(IRDMA_CQP_OP_REG_MR, w)
}

func (m *MR) begin(op uint8, w WQE) error {
	var err error
	if m.op, err = m.r.post(op, w); err != nil {
		return err
	}
	m.r.cqp.doorbell()
	return nil
}

// Wait waits until the device is done with what StartRegMR or StartDereg asked
// for.
func (m *MR) Wait() error {
	op := m.op
	m.op = nil
	_, err := m.r.wait(op)
	if (op.op == IRDMA_CQP_OP_DEALLOC_STAG) == (err == nil) { // ended, or never begun
		m.forget()
	}
	return err
}

// forget gives back what the driver keeps for the registration.
func (m *MR) forget() {
	m.r.freeSTag(m.STag)
	if m.list != nil {
		m.r.freePageList(m.list)
	}
}

// Dereg ends the registration (verbs.c:irdma_dereg_mr). The device must not
// touch the memory through it when this returns.
func (m *MR) Dereg() error {
	if err := m.StartDereg(); err != nil {
		return err
	}
	return m.Wait()
}

// StartDereg is Dereg by one of several threads.
func (m *MR) StartDereg() error { return m.begin(IRDMA_CQP_OP_DEALLOC_STAG, m.deallocWQE()) }

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
