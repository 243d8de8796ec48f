// SPDX-License-Identifier: Apache-2.0

package cqp

import "fmt"

// wqe is one control work request: a copy of its eight words.
type wqe struct {
	index uint32
	row   *opcode // nil: unknown
	name  string  // of its opcode
	q     [8]uint64
}

func (w *wqe) opcode() uint8 { return uint8(w.bits(3, 37, 32)) }

// bits are bits hi..lo of word i.
func (w *wqe) bits(i, hi, lo int) uint64 {
	return w.q[i] >> lo & (1<<(hi-lo+1) - 1)
}

func (w *wqe) flag(i, bit int) bool { return w.q[i]>>bit&1 != 0 }

// result is what a successful command reports.
type result struct {
	value uint32 // op_ret_val
	minor uint16 // of FLUSH_WQES

	// grace: the command took something away that the data path may still be
	// using, and completes when it is not.
	grace bool
	// then, if not nil, does the rest of the command at that time.
	then func() (result, error)
}

// opcode is one row of the command table.
type opcode struct {
	op     uint8
	name   string // kernel name
	run    func(*CQP, *wqe) (result, error)
	known  words // the bits that have a meaning, beside opcode and valid bit
	source string
	marks  mark
	// absent, of a row without run, is why a function of this generation fails
	// the command. Empty: it is the model that lacks it.
	absent string
}

// mark is a property of a command.
type mark uint8

const (
	// inferred: what the command does goes beyond what drivers state.
	inferred mark = 1 << iota
	// holdsQP: the command needs the QP that it names (QPID) at rest.
	holdsQP
	// answers: the command's failure is an answer, not the driver's fault.
	answers
	// needsLayout: COMMIT_FPM_VAL has to come before.
	needsLayout
	// needsMemory: SHMC_PAGES_ALLOCATED has to come before.
	needsMemory
	// settlesCQ: QPs that complete to the CQ named (CQID) look first at what was
	// posted to them before.
	settlesCQ
)

// words are masks of the eight words of a WQE.
type words [8]uint64

// field is bits hi..lo of a word.
type field struct{ word, hi, lo int }

// whole is a word all of whose bits have a meaning.
func whole(word int) field { return field{word, 63, 0} }

// bits unites fields.
func bits(fields ...field) (w words) {
	for _, f := range fields {
		w[f.word] |= ^uint64(0) >> (63 - f.hi + f.lo) << f.lo
	}
	return w
}

// header are the fields of every command (defs.h:IRDMA_CQPSQ_OPCODE,
// IRDMA_CQPSQ_WQEVALID).
var header = bits(field{3, 37, 32}, field{3, 63, 63})

// reserved are the bits of a WQE that have no meaning but are set.
func (o *opcode) reserved(q *[8]uint64) (w words, any bool) {
	for i := range w {
		w[i] = q[i] &^ (o.known[i] | header[i])
		any = any || w[i] != 0
	}
	return w, any
}

// Bits that groups of commands share (defs.h). Where kernels differ in the
// width of a field the widest counts.
var (
	qpWQE     = bits(whole(2), whole(5), field{3, 23, 0}, field{3, 50, 48})
	bufferWQE = []field{whole(4), {6, 27, 0}, {3, 45, 44}, {3, 47, 47}, {7, 51, 32}, {3, 60, 60}, {3, 62, 62}}
	cqWQE     = bits(append(bufferWQE[:4:4], field{0, 20, 0}, field{1, 62, 0}, field{2, 17, 0}, whole(5), field{7, 23, 0},
		field{3, 18, 0}, field{3, 31, 22}, field{3, 43, 43}, field{3, 52, 46}, field{3, 61, 54})...)
	ceqWQE  = bits(append(bufferWQE[:len(bufferWQE):len(bufferWQE)], field{2, 21, 0}, field{7, 23, 0}, field{3, 15, 0}, field{3, 46, 46})...)
	aeqWQE  = bits(append(bufferWQE[:len(bufferWQE):len(bufferWQE)], field{2, 18, 0})...)
	stagWQE = bits(field{1, 63, 46}, field{2, 31, 8}, field{2, 59, 54}, field{3, 43, 43})
	areaWQE = stagWQE.and(field{1, 45, 0}, field{5, 15, 0}, field{6, 27, 0}, field{3, 53, 44}, field{3, 61, 60})
	ahWQE   = bits(field{0, 63, 16}, field{1, 15, 0}, field{1, 39, 32}, field{1, 63, 48}, field{2, 19, 0}, field{2, 27, 20},
		field{2, 39, 32}, field{2, 63, 48}, whole(4), whole(5), whole(6), whole(7), field{3, 23, 0}, field{3, 60, 59}, field{3, 62, 62})
	groupWQE = bits(field{0, 47, 0}, field{1, 5, 0}, field{2, 9, 0}, field{2, 43, 32}, whole(4), whole(6), whole(7),
		field{3, 12, 0}, field{3, 60, 59})
	statsWQE = bits(whole(4), field{5, 15, 0}, field{3, 6, 0}, field{3, 62, 60})
	srqWQE   = bits(field{0, 5, 0}, field{0, 43, 32}, whole(1), field{2, 39, 16}, field{4, 63, 8}, field{5, 63, 6}, field{6, 27, 0},
		field{7, 7, 0}, field{3, 15, 0}, field{3, 45, 44}, field{3, 47, 47}, field{3, 61, 60})
)

func (w words) and(fields ...field) words {
	for i, b := range bits(fields...) {
		w[i] |= b
	}
	return w
}

// Why this generation's function fails a command.
const (
	noSRQs = "this generation has no shared receive queues"
	noVFs  = "the function has no virtual functions"
)

// opcodes has every opcode the drivers name. Rows without run are answered
// with an error.
var opcodes = [...]opcode{
	{op: 0x00, name: "IRDMA_CQP_OP_CREATE_QP", run: (*CQP).createQP, source: "ctrl.c:irdma_sc_qp_create", marks: needsMemory,
		known: qpWQE.and(field{3, 43, 42}, field{3, 47, 45}, field{3, 51, 51}, field{3, 62, 59})},
	{op: 0x01, name: "IRDMA_CQP_OP_MODIFY_QP", run: (*CQP).modifyQP, source: "ctrl.c:irdma_sc_qp_modify", marks: inferred | holdsQP,
		known: qpWQE.and(field{1, 45, 32}, field{1, 51, 48}, field{3, 52, 42}, field{3, 62, 55})},
	{op: 0x02, name: "IRDMA_CQP_OP_DESTROY_QP", run: (*CQP).destroyQP, source: "ctrl.c:irdma_sc_qp_destroy", marks: holdsQP,
		known: qpWQE.and(field{3, 55, 54})},
	{op: 0x03, name: "IRDMA_CQP_OP_CREATE_CQ", run: (*CQP).createCQ, source: "ctrl.c:irdma_sc_cq_create", marks: needsMemory, known: cqWQE},
	{op: 0x04, name: "IRDMA_CQP_OP_MODIFY_CQ", run: (*CQP).modifyCQ, source: "ctrl.c:irdma_sc_cq_modify", marks: inferred | settlesCQ, known: cqWQE},
	{op: 0x05, name: "IRDMA_CQP_OP_DESTROY_CQ", run: (*CQP).destroyCQ, source: "ctrl.c:irdma_sc_cq_destroy, irdma_sc_ccq_destroy", known: cqWQE},
	{op: 0x06, name: "IRDMA_CQP_OP_CREATE_SRQ", absent: noSRQs, source: "ctrl.c:irdma_sc_srq_create", known: srqWQE},
	{op: 0x07, name: "IRDMA_CQP_OP_MODIFY_SRQ", absent: noSRQs, source: "ctrl.c:irdma_sc_srq_modify", known: srqWQE},
	{op: 0x08, name: "IRDMA_CQP_OP_DESTROY_SRQ", absent: noSRQs, source: "ctrl.c:irdma_sc_srq_destroy", known: srqWQE},
	{op: 0x09, name: "IRDMA_CQP_OP_ALLOC_STAG", run: (*CQP).allocSTag, source: "ctrl.c:irdma_sc_alloc_stag, irdma_sc_mw_alloc", marks: needsMemory, known: areaWQE.and(field{3, 42, 42}, field{3, 58, 58})},
	{op: 0x0A, name: "IRDMA_CQP_OP_REG_MR", run: (*CQP).registerMR, source: "ctrl.c:irdma_sc_mr_reg_non_shared", marks: needsMemory, known: areaWQE.and(whole(0), field{2, 7, 0}, whole(4), field{3, 59, 59})},
	{op: 0x0B, name: "IRDMA_CQP_OP_QUERY_STAG", run: (*CQP).querySTag, source: "defs.h:IRDMA_CQPSQ_QUERYSTAG_IDX; ctrl.c:irdma_sc_poll_for_cqp_op_done", marks: answers, known: stagWQE},
	{op: 0x0C, name: "IRDMA_CQP_OP_REG_SMR", run: (*CQP).registerShared, source: "defs.h:IRDMA_CQPSQ_STAG_PARENTSTAGIDX", marks: needsMemory,
		known: areaWQE.and(whole(0), field{2, 7, 0}, field{2, 55, 32}, field{3, 59, 59})},
	{op: 0x0D, name: "IRDMA_CQP_OP_DEALLOC_STAG", run: (*CQP).deallocSTag, source: "ctrl.c:irdma_sc_dealloc_stag", known: stagWQE},
	{op: 0x0E, name: "IRDMA_CQP_OP_MANAGE_LOC_MAC_TABLE", run: (*CQP).manageMAC, source: "ctrl.c:irdma_sc_add_local_mac_entry, irdma_sc_del_local_mac_entry",
		known: bits(field{4, 47, 0}, field{3, 5, 0}, field{3, 62, 61})},
	{op: 0x0F, name: "IRDMA_CQP_OP_MANAGE_ARP", run: (*CQP).manageARP, source: "ctrl.c:irdma_sc_add_arp_cache_entry, irdma_sc_del_arp_cache_entry", marks: needsMemory,
		known: bits(field{1, 31, 0}, field{2, 47, 0}, field{3, 11, 0}, field{3, 44, 42})},
	{op: 0x10, name: "IRDMA_CQP_OP_MANAGE_VF_PBLE_BP", absent: noVFs, source: "defs.h:IRDMA_CQPSQ_MVPBP_*",
		known: bits(field{2, 9, 0}, field{2, 24, 16}, field{2, 43, 32}, field{4, 63, 3}, field{3, 62, 62})},
	{op: 0x11, name: "IRDMA_CQP_OP_MANAGE_PUSH_PAGES", run: (*CQP).managePushPages, source: "ctrl.c:irdma_sc_manage_push_page", marks: inferred,
		known: bits(field{2, 31, 0}, field{3, 31, 0}, field{3, 62, 60})},
	{op: 0x12, name: "IRDMA_CQP_OP_QUERY_RDMA_FEATURES", run: (*CQP).queryFeatures, source: "ctrl.c:irdma_sc_query_rdma_features",
		known: bits(whole(4), field{3, 31, 0})},
	{op: 0x13, name: "IRDMA_CQP_OP_UPLOAD_CONTEXT", run: (*CQP).uploadContext, source: "ctrl.c:irdma_sc_qp_upload_context", marks: inferred | holdsQP,
		known: bits(whole(2), field{3, 23, 0}, field{3, 51, 48}, field{3, 62, 61})},
	{op: 0x14, name: "IRDMA_CQP_OP_ALLOCATE_LOC_MAC_TABLE_ENTRY", run: (*CQP).allocMAC, source: "ctrl.c:irdma_sc_alloc_local_mac_entry"},
	{op: 0x15, name: "IRDMA_CQP_OP_MANAGE_HMC_PM_FUNC_TABLE", absent: noVFs, source: "ctrl.c:irdma_sc_manage_hmc_pm_func_table",
		known: bits(field{3, 15, 0}, field{3, 62, 62})},
	{op: 0x16, name: "IRDMA_CQP_OP_CREATE_CEQ", run: (*CQP).createCEQ, source: "ctrl.c:irdma_sc_ceq_create", known: ceqWQE},
	{op: 0x18, name: "IRDMA_CQP_OP_DESTROY_CEQ", run: (*CQP).destroyCEQ, source: "ctrl.c:irdma_sc_ceq_destroy", known: ceqWQE},
	{op: 0x19, name: "IRDMA_CQP_OP_CREATE_AEQ", run: (*CQP).createAEQ, source: "ctrl.c:irdma_sc_aeq_create", known: aeqWQE},
	{op: 0x1B, name: "IRDMA_CQP_OP_DESTROY_AEQ", run: (*CQP).destroyAEQ, source: "ctrl.c:irdma_sc_aeq_destroy", known: aeqWQE},
	{op: 0x1C, name: "IRDMA_CQP_OP_CREATE_ADDR_HANDLE", run: (*CQP).createAH, source: "uda.c:irdma_sc_access_ah", marks: needsMemory, known: ahWQE},
	{op: 0x1D, name: "IRDMA_CQP_OP_MODIFY_ADDR_HANDLE", run: (*CQP).modifyAH, source: "uda.c:irdma_sc_access_ah", marks: needsMemory, known: ahWQE},
	{op: 0x1E, name: "IRDMA_CQP_OP_DESTROY_ADDR_HANDLE", run: (*CQP).destroyAH, source: "uda.c:irdma_sc_access_ah", known: ahWQE},
	{op: 0x1F, name: "IRDMA_CQP_OP_UPDATE_PE_SDS", run: (*CQP).updateSDs, source: "ctrl.c:cqp_sds_wqe_fill", marks: needsLayout,
		known: bits(field{0, 31, 0}, whole(1), field{2, 63, 7}, field{2, 5, 0}, field{4, 31, 0}, field{4, 63, 63}, whole(5),
			field{6, 31, 0}, field{6, 63, 63}, whole(7), field{3, 3, 0}, field{3, 7, 7})},
	{op: 0x20, name: "IRDMA_CQP_OP_QUERY_FPM_VAL", run: (*CQP).queryFPM, source: "ctrl.c:irdma_sc_query_fpm_val",
		known: bits(field{2, 15, 0}, whole(4))},
	{op: 0x21, name: "IRDMA_CQP_OP_COMMIT_FPM_VAL", run: (*CQP).commitFPM, source: "ctrl.c:irdma_sc_commit_fpm_val",
		known: bits(field{2, 15, 0}, whole(4), field{3, 31, 0})},
	{op: 0x22, name: "IRDMA_CQP_OP_FLUSH_WQES", run: (*CQP).flushWQEs, source: "ctrl.c:irdma_sc_qp_flush_wqes, irdma_sc_gen_ae", marks: inferred | holdsQP,
		known: bits(field{1, 19, 0}, whole(2), field{3, 23, 0}, field{3, 62, 59})},
	{op: 0x23, name: "IRDMA_CQP_OP_MANAGE_APBVT", run: (*CQP).manageAPBVT, source: "ctrl.c:irdma_sc_manage_apbvt_entry", marks: inferred | needsMemory,
		known: bits(field{2, 15, 0}, field{3, 62, 62})},
	{op: 0x24, name: "IRDMA_CQP_OP_NOP", run: (*CQP).nop, source: "defs.h:IRDMA_CQP_OP_NOP", marks: inferred},
	{op: 0x25, name: "IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY", run: (*CQP).manageQuadHash, source: "ctrl.c:irdma_sc_manage_qhash_table_entry", marks: inferred | needsMemory,
		known: bits(field{0, 47, 0}, field{1, 49, 0}, field{2, 9, 0}, field{2, 43, 32}, whole(4), whole(5), whole(6), whole(7),
			field{3, 44, 42}, field{3, 62, 59})},
	{op: 0x26, name: "IRDMA_CQP_OP_CREATE_MCAST_GRP", run: (*CQP).createMulticast, source: "uda.c:irdma_access_mcast_grp", marks: needsMemory, known: groupWQE},
	{op: 0x27, name: "IRDMA_CQP_OP_MODIFY_MCAST_GRP", run: (*CQP).modifyMulticast, source: "uda.c:irdma_access_mcast_grp", marks: inferred | needsMemory, known: groupWQE},
	{op: 0x28, name: "IRDMA_CQP_OP_DESTROY_MCAST_GRP", run: (*CQP).destroyMulticast, source: "uda.c:irdma_access_mcast_grp", known: groupWQE},
	{op: 0x29, name: "IRDMA_CQP_OP_SUSPEND_QP", run: (*CQP).suspendQP, source: "ctrl.c:irdma_sc_suspend_qp", marks: inferred | holdsQP,
		known: bits(field{3, 23, 0})},
	{op: 0x2A, name: "IRDMA_CQP_OP_RESUME_QP", run: (*CQP).resumeQP, source: "ctrl.c:irdma_sc_resume_qp", marks: inferred | holdsQP,
		known: bits(field{2, 31, 0}, field{3, 23, 0})},
	{op: 0x2B, name: "IRDMA_CQP_OP_SHMC_PAGES_ALLOCATED", run: (*CQP).pagesAllocated, source: "ctrl.c:irdma_sc_static_hmc_pages_allocated", marks: needsLayout,
		known: bits(field{2, 5, 0})},
	{op: 0x2C, name: "IRDMA_CQP_OP_WORK_SCHED_NODE", run: (*CQP).workNode, source: "ctrl.c:irdma_sc_manage_ws_node",
		known: bits(field{4, 38, 32}, field{4, 63, 48}, field{3, 13, 0}, field{3, 29, 16}, field{3, 51, 42}, field{3, 62, 52})},
	{op: 0x2D, name: "IRDMA_CQP_OP_MANAGE_STATS", run: (*CQP).manageStats, source: "ctrl.c:irdma_sc_manage_stats_inst", known: statsWQE},
	{op: 0x2E, name: "IRDMA_CQP_OP_GATHER_STATS", run: (*CQP).gatherStats, source: "ctrl.c:irdma_sc_gather_stats", known: statsWQE},
	{op: 0x2F, name: "IRDMA_CQP_OP_UP_MAP", run: (*CQP).mapPriorities, source: "ctrl.c:irdma_sc_set_up_map", marks: inferred,
		known: bits(whole(0), field{5, 15, 0}, field{5, 37, 32}, field{3, 62, 61})},
}

func lookup(op uint8) *opcode {
	for i := range opcodes {
		if opcodes[i].op == op {
			return &opcodes[i]
		}
	}
	return nil
}

// find looks the command up.
func (w *wqe) find() {
	op := w.opcode()
	if w.row = lookup(op); w.row != nil {
		w.name = w.row.name
	} else {
		w.name = fmt.Sprintf("CQP opcode %#02x", op)
	}
}

// marked tells a property of the command.
func (w *wqe) marked(m mark) bool { return w.row != nil && w.row.marks&m != 0 }

// Opcode is a row of the command table for documents and decoders.
type Opcode struct {
	Op       uint8
	Name     string
	Built    bool   // the model has it, or a function of this generation has not
	Absent   string // why the function fails it
	Source   string
	Inferred bool
	// Known are the bits of the eight words that have a meaning, opcode and
	// valid bit among them. Others are reserved.
	Known [8]uint64
}

// Opcodes lists the command table in order of opcode.
func Opcodes() []Opcode {
	out := make([]Opcode, len(opcodes))
	for i, r := range opcodes {
		out[i] = Opcode{r.op, r.name, r.run != nil || r.absent != "", r.absent, r.source, r.marks&inferred != 0, r.known}
		for w := range out[i].Known {
			out[i].Known[w] |= header[w]
		}
	}
	return out
}

func (c *CQP) nop(*wqe) (result, error) { return result{}, nil }
