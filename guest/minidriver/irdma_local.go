// SPDX-License-Identifier: Apache-2.0

package minidriver

import "math/rand/v2"

// Work requests that the device does by itself: they make STags valid, bind
// windows to regions and end both.

// Fields of the WQEs (irdma/defs.h:IRDMAQPSQ_*).
const (
	sqSTagIndexBit = 8
	sqLPBLSizeBit  = 44
	sqRightsBit    = 48
	sqVABased      = 1 << 53
	sqWindowType1  = 1 << 54 // MEMWINDOWTYPE
	sqParentBit    = 32
	sqPBLHiMask    = 0xfff
	sqPBLLoBit     = 48
)

// FastReg is the region that a work request makes of an STag of AllocSTag.
type FastReg struct {
	MR     *MR // whose STag it is; its key becomes Key
	Key    uint8
	Region *Region
	Access Access
}

// Bind is the window that a work request makes of one of AllocMW.
type Bind struct {
	MW     *MW
	STag   uint32 // the window's from now on: of a type 1 window with a new key
	Parent *MR
	Addr   uint64 // of the parent; nothing is bound if Len is 0
	Len    uint64
	Access Access // remote rights
}

// MW is a memory window.
type MW struct {
	STag  uint32
	PD    uint32
	Type1 bool

	r *IRDMA
}

// AllocMW makes a window (verbs.c:irdma_alloc_mw, ctrl.c:irdma_sc_mw_alloc).
func (r *IRDMA) AllocMW(pd uint32, type1 bool, rnd *rand.Rand) (*MW, error) {
	m := &MW{r: r, PD: pd, Type1: type1, STag: r.createSTag(rnd)}
	w := m.wqe()
	if type1 {
		w[3] |= stagWindowType1
	}
	if _, err := r.Exec(IRDMA_CQP_OP_ALLOC_STAG, w); err != nil {
		r.freeSTag(m.STag)
		return nil, err
	}
	return m, nil
}

// Dealloc ends the window (verbs.c:irdma_dealloc_mw).
func (m *MW) Dealloc() error {
	if _, err := m.r.Exec(IRDMA_CQP_OP_DEALLOC_STAG, m.wqe()); err != nil {
		return err
	}
	m.r.freeSTag(m.STag)
	return nil
}

func (m *MW) wqe() WQE {
	return WQE{1: uint64(m.PD) << stagPDBit, 2: uint64(m.STag) &^ 0xff}
}

// NextKey is the STag with another key (ib_verbs.h:ib_inc_rkey).
func NextKey(stag uint32) uint32 { return stag&^0xff | (stag+1)&0xff }

// map writes the pages into the list that came with the STag
// (verbs.c:irdma_map_mr_sg, irdma_set_page).
func (f *FastReg) mapPages() {
	at := 0
	pages := f.Region.addresses()
	for _, run := range f.MR.list.runs {
		for k := 0; k < run.n && at < len(pages); k++ {
			f.MR.r.SetPBLE(run.index+uint64(k), pages[at])
			at++
		}
	}
	f.MR.STag = f.MR.STag&^0xff | uint32(f.Key) // ib_verbs.h:ib_update_fast_reg_key
	f.MR.base, f.MR.Len = f.Region.VA, uint64(f.Region.Size)
}

// words is ctrl.c:irdma_sc_mr_fast_register with what verbs.c:irdma_post_send
// gives it. Like the driver it knows one page, or a list of one level, even if
// it got one of two.
func (f *FastReg) words() (w [3]uint64, header uint64) {
	pages, index := f.Region.addresses(), f.MR.list.index
	w[0] = f.Region.VA
	w[1] = pages[0]&^uint64(sqPBLHiMask) | index>>16&sqPBLHiMask
	w[2] = f.MR.Len | index&0xffff<<sqPBLLoBit
	header = uint64(f.MR.STag) | uint64(f.Access)<<sqRightsBit | sqVABased
	if len(pages) > 1 { // of 4 KiB: the driver offers nothing else
		header |= 1 << sqLPBLSizeBit
	}
	return w, header
}

// words is uk.c:irdma_uk_mw_bind, which rdma-core has.
func (b *Bind) words() (w [3]uint64, header uint64) {
	b.MW.STag = b.STag
	w[0] = b.Addr
	w[1] = uint64(b.STag)
	if b.Parent != nil {
		w[1] |= uint64(b.Parent.STag) << sqParentBit
	}
	w[2] = b.Len
	header = uint64(b.Access&(RemoteRead|RemoteWrite))<<sqRightsBit | sqVABased
	if b.MW.Type1 {
		header |= sqWindowType1
	}
	return w, header
}

// local are the words of a request that moves no data; ok is false for others.
func (w *SendWR) local() (words [3]uint64, header uint64, ok bool) {
	switch w.Op {
	case IRDMA_OP_TYPE_BIND_MW:
		words, header = w.Bind.words()
	case IRDMA_OP_TYPE_FAST_REG_NSMR:
		w.FastReg.mapPages()
		words, header = w.FastReg.words()
	case IRDMA_OP_TYPE_INV_STAG:
		words[1] = uint64(w.RKey) // uk.c:irdma_uk_stag_local_invalidate
	default:
		return words, header, false
	}
	return words, header, true
}

// putLocal writes the WQE of such a request.
func (q *QP) putLocal(w *SendWR, words [3]uint64, header uint64) error {
	at, slot, err := q.place(1, sendTrack{id: w.ID, op: w.Op, signalled: w.Signalled})
	if err != nil {
		return err
	}
	for k, v := range words {
		le.PutUint64(slot[8*k:], v)
	}
	q.mem.store(at*qpQuantum+24, header|w.flags()|uint64(w.Op)<<sqOpcodeBit|valid(q.sq.polarity))
	return nil
}

// FastRegWR, BindWR and LocalInvWR are signalled requests; the kernel's own
// wait for all before them (verbs.c:irdma_post_send), programs' do not.
func (q *QP) FastRegWR(id uint64, f FastReg) SendWR {
	return SendWR{ID: id, Op: IRDMA_OP_TYPE_FAST_REG_NSMR, Signalled: true, LocalFence: !q.Cfg.User, FastReg: &f}
}

// BindWR is of a program: no kernel binds windows.
func (q *QP) BindWR(id uint64, b Bind) SendWR {
	return SendWR{ID: id, Op: IRDMA_OP_TYPE_BIND_MW, Signalled: true, Bind: &b}
}

// LocalInvWR ends an STag.
func (q *QP) LocalInvWR(id uint64, stag uint32) SendWR {
	return SendWR{ID: id, Op: IRDMA_OP_TYPE_INV_STAG, Signalled: true, LocalFence: !q.Cfg.User, RKey: stag}
}
