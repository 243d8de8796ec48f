// SPDX-License-Identifier: Apache-2.0

package minidriver

// Control operations that no life of a driver needs.

const (
	cqResize       = 1 << 43
	cqSelectMask   = 1<<14 - 1
	macTableFree   = 1 << 62
	statsAlloc     = 1 << 62
	statsUseFn     = 1 << 60
	ahIPv4         = 1 << 59
	groupIPv4      = 1 << 60
	groupValid     = 1 << 31
	groupCtxSize   = 64 // IRDMA_MAX_MGS_PER_CTX words
	aeGenerate     = 1 << 59
	aeSourceBit    = 16
	wsHandleMask   = 0x3ff
	groupPortBit   = 32
	addressHopsBit = 32
)

// Resize gives the queue, which must be in one run, room for another number of
// entries. What is in the old one is handed to each first; then its memory is
// the driver's again (verbs.c:irdma_resize_cq, irdma_process_resize_list).
func (q *CQ) Resize(size int, each func(WC) error) error {
	r := q.r
	mem := r.mem.own(r.F.alloc(size * cqeSize))
	w := WQE{0: uint64(size), 1: uint64(q.ID), 2: q.createWQE()[2], 3: uint64(q.ID) | cqResize | cqCheckOver | cqEnMask,
		4: mem.IOVA, 5: q.shadow.IOVA, 7: uint64(r.ICE.VSI()) << 8}
	if _, err := r.Exec(IRDMA_CQP_OP_MODIFY_CQ, w); err != nil {
		r.mem.free(mem)
		return err
	}
	for {
		wc, ok, err := q.Poll()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := each(wc); err != nil {
			return err
		}
	}
	r.mem.free(q.mem...)
	q.mem, q.Size, q.head, q.polarity = []*Buf{mem}, size, 0, eqeValid
	// The head of now on is one of the new memory (uk.c:irdma_uk_cq_set_resized_cnt).
	v := q.shadow.Load64(32)
	q.shadow.Store64(32, v&^uint64(cqSelectMask)|(v+1)&cqSelectMask)
	return nil
}

// AllocSTag makes an STag for a fast registration, which makes it valid
// (ctrl.c:irdma_sc_alloc_stag).
func (r *IRDMA) AllocSTag(pd uint32, pages int) (*MR, error) {
	m := &MR{r: r, PD: pd, Len: uint64(pages) * pageSize}
	var err error
	if m.list, err = r.newPageList(make([]uint64, pages)); err != nil {
		return nil, err
	}
	m.STag = r.createSTag(nil)
	_, err = r.Exec(IRDMA_CQP_OP_ALLOC_STAG, WQE{1: uint64(pd)<<stagPDBit | m.Len, 2: uint64(m.STag) &^ 0xff,
		3: stagMR | stagRemoteAccess | 1<<stagLPBLSizeBit, 6: m.list.index})
	return m, err
}

// Suspend stops a QP; an event tells when (ctrl.c:irdma_sc_suspend_qp).
func (q *QP) Suspend() error {
	_, err := q.r.Exec(IRDMA_CQP_OP_SUSPEND_QP, WQE{3: uint64(q.ID)})
	return err
}

// Resume lets it go on (ctrl.c:irdma_sc_resume_qp).
func (q *QP) Resume() error {
	_, err := q.r.Exec(IRDMA_CQP_OP_RESUME_QP, WQE{2: uint64(q.qsHandle), 3: uint64(q.ID)})
	return err
}

// GenerateAE has the device make an event of the QP (ctrl.c:irdma_sc_gen_ae).
func (q *QP) GenerateAE(code uint16, source uint8) error {
	_, err := q.r.Exec(IRDMA_CQP_OP_FLUSH_WQES, WQE{1: uint64(code) | uint64(source)<<aeSourceBit, 3: uint64(q.ID) | aeGenerate})
	return err
}

// AllocMAC takes an entry of the table of local addresses, and fills it
// (ctrl.c:irdma_sc_alloc_local_mac_entry, irdma_sc_add_local_mac_entry).
func (r *IRDMA) AllocMAC(mac [6]byte) (index uint32, err error) {
	c, err := r.Exec(IRDMA_CQP_OP_ALLOCATE_LOC_MAC_TABLE_ENTRY, WQE{})
	if err != nil {
		return 0, err
	}
	_, err = r.Exec(IRDMA_CQP_OP_MANAGE_LOC_MAC_TABLE, WQE{3: uint64(c.RetVal), 4: macWord(mac)})
	return c.RetVal, err
}

// FreeMAC gives an entry back (ctrl.c:irdma_sc_del_local_mac_entry).
func (r *IRDMA) FreeMAC(index uint32) error {
	_, err := r.Exec(IRDMA_CQP_OP_MANAGE_LOC_MAC_TABLE, WQE{3: uint64(index) | macTableFree})
	return err
}

// AllocStats takes an instance of the statistics (ctrl.c:irdma_sc_manage_stats_inst).
func (r *IRDMA) AllocStats() (index uint32, err error) {
	c, err := r.Exec(IRDMA_CQP_OP_MANAGE_STATS, WQE{3: statsAlloc | statsUseFn, 5: r.fn()})
	return c.RetVal, err
}

// FreeStats gives it back.
func (r *IRDMA) FreeStats(index uint32) error {
	_, err := r.Exec(IRDMA_CQP_OP_MANAGE_STATS, WQE{3: uint64(index) | statsUseFn, 5: r.fn()})
	return err
}

// addressHandle is what the operations on one have in common
// (uda.c:irdma_sc_access_ah).
func (r *IRDMA) addressHandle(op uint8, index uint32, pd uint32, arp uint16, dest uint32) error {
	const hops = 64
	_, err := r.Exec(op, WQE{0: macWord(r.ICE.MAC) << 16, 1: uint64(pd&0xffff) << 48, 2: hops<<addressHopsBit | uint64(arp)<<48,
		3: uint64(index) | ahIPv4, 4: uint64(dest), 6: uint64(dest)})
	return err
}

// multicast is an operation on a group with its members, which are QPs
// (uda.c:irdma_access_mcast_grp).
func (r *IRDMA) multicast(op uint8, index uint32, group uint32, members ...*QP) error {
	ctx := r.F.alloc(groupCtxSize)
	defer ctx.Free()
	var handle uint64
	for n, q := range members {
		ctx.Store64(8*n, uint64(q.ID)|groupValid|uint64(roceUDPPort)<<groupPortBit)
		handle = uint64(q.qsHandle & wsHandleMask)
	}
	mac := [6]byte{0x01, 0x00, 0x5e, byte(group >> 16 & 0x7f), byte(group >> 8), byte(group)}
	_, err := r.Exec(op, WQE{0: macWord(mac), 1: r.fn(), 2: handle, 3: uint64(index) | groupIPv4, 4: ctx.IOVA, 6: uint64(group)})
	return err
}
