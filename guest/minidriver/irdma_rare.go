// SPDX-License-Identifier: Apache-2.0

package minidriver

import "math/rand/v2"

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
	portAdd        = 1 << 62
	pushFree       = 1 << 62
	quadIPv4       = 1 << 60
	quadTypeBit    = 42
	quadOpBit      = 61
	quadQPBit      = 32
	uploadFreeze   = 1 << 62
	uploadRaw      = 1 << 61
	shareParentBit = 32
	noPushPage     = 256 // IRDMA_INVALID_PUSH_PAGE_INDEX and above: there is none
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
		3: stagMR | stagRemoteAccess})
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

// SharedMR makes another STag for a region's pages, with an address and rights of
// its own. No driver does (defs.h:IRDMA_CQPSQ_STAG_PARENTSTAGIDX).
func (r *IRDMA) SharedMR(pd uint32, parent *MR, va uint64, access Access, rnd *rand.Rand) (*MR, error) {
	m := &MR{r: r, PD: pd, Len: parent.Len, base: va, STag: r.createSTag(rnd)}
	w := WQE{0: va, 1: m.Len | uint64(pd)<<stagPDBit, 2: uint64(m.STag) | uint64(parent.STag>>stagIndexBit)<<shareParentBit,
		3: stagMR | stagVABased | uint64(access)<<stagRightsBit}
	if access&(RemoteRead|RemoteWrite) != 0 {
		w[3] |= stagRemoteAccess
	}
	if _, err := r.Exec(IRDMA_CQP_OP_REG_SMR, w); err != nil {
		r.freeSTag(m.STag)
		return nil, err
	}
	return m, nil
}

// Query asks whether an STag is valid: an error says no. No driver does
// (defs.h:IRDMA_CQPSQ_QUERYSTAG_IDX).
func (r *IRDMA) Query(stag uint32) error {
	_, err := r.Exec(IRDMA_CQP_OP_QUERY_STAG, WQE{2: uint64(stag) &^ 0xff})
	return err
}

// Upload has the device write the context of a QP as it is now
// (ctrl.c:irdma_sc_qp_upload_context).
func (q *QP) Upload() (words [qpCtxSize / 8]uint64, err error) {
	b := q.r.F.alloc(qpCtxSize)
	defer b.Free()
	if _, err = q.r.Exec(IRDMA_CQP_OP_UPLOAD_CONTEXT, WQE{2: b.IOVA, 3: uint64(q.ID) | q.kind<<qpTypeBit}); err != nil {
		return words, err
	}
	for n := range words {
		words[n] = b.Load64(8 * n)
	}
	return words, nil
}

// acceptPort adds or removes a TCP port that iWARP listens on
// (ctrl.c:irdma_sc_manage_apbvt_entry).
func (r *IRDMA) acceptPort(port uint16, add bool) error {
	w := WQE{2: uint64(port)}
	if add {
		w[3] = portAdd
	}
	_, err := r.Exec(IRDMA_CQP_OP_MANAGE_APBVT, w)
	return err
}

// quad is an entry of the hash table that finds the QP of a packet.
type quad struct {
	kind             uint8 // type.h:enum irdma_quad_entry_type
	qp               *QP
	source, dest     uint32
	srcPort, dstPort uint16
}

// Operations on one (type.h:enum irdma_quad_hash_manage_type).
const (
	quadDelete = iota
	quadAdd
	quadModify

	quadTCPEstablished = 1
	quadTCPSyn         = 2
)

// quadHash is ctrl.c:irdma_sc_manage_qhash_table_entry with IPv4.
func (r *IRDMA) quadHash(op uint64, q quad) error {
	w := WQE{0: macWord(r.ICE.MAC), 1: uint64(q.dstPort) | uint64(q.qp.ID)<<quadQPBit, 2: uint64(q.qp.qsHandle & wsHandleMask),
		3: op<<quadOpBit | quadIPv4 | uint64(q.kind)<<quadTypeBit, 6: uint64(q.dest)}
	if q.kind == quadTCPEstablished {
		w[1] |= uint64(q.srcPort) << 16
		w[4] = uint64(q.source)
	}
	_, err := r.Exec(IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY, w)
	return err
}

// allocPushPage takes a page for pushing WQEs; ok is false if there is none
// (ctrl.c:irdma_sc_manage_push_page, utils.c:irdma_cqp_manage_push_page_cmd).
func (r *IRDMA) allocPushPage(handle uint16) (page uint32, ok bool, err error) {
	c, err := r.Exec(IRDMA_CQP_OP_MANAGE_PUSH_PAGES, WQE{2: uint64(handle), 3: noPushPage})
	return c.RetVal, err == nil && c.RetVal < noPushPage, err
}

func (r *IRDMA) freePushPage(page uint32, handle uint16) error {
	_, err := r.Exec(IRDMA_CQP_OP_MANAGE_PUSH_PAGES, WQE{2: uint64(handle), 3: uint64(page) | pushFree})
	return err
}

// mapPriorities is ctrl.c:irdma_sc_set_up_map.
func (r *IRDMA) mapPriorities(priorities [8]uint8) error {
	var m uint64
	for n, p := range priorities {
		m |= uint64(p) << (8 * n)
	}
	_, err := r.Exec(IRDMA_CQP_OP_UP_MAP, WQE{0: m, 5: r.fn()})
	return err
}
