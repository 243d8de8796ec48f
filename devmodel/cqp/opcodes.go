// SPDX-License-Identifier: Apache-2.0

package cqp

import "fmt"

// wqe is one control work request: a copy of its eight words.
type wqe struct {
	index uint32
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
	source string
	marks  mark
}

// mark is a property of a command.
type mark uint8

const (
	// inferred: what the command does goes beyond what drivers state.
	inferred mark = 1 << iota
	// holdsQP: the command needs the QP that it names (QPID) at rest.
	holdsQP
)

// opcodes has every opcode the drivers name. Rows without run are answered
// with an error.
var opcodes = [...]opcode{
	{0x00, "IRDMA_CQP_OP_CREATE_QP", (*CQP).createQP, "ctrl.c:irdma_sc_qp_create", 0},
	{0x01, "IRDMA_CQP_OP_MODIFY_QP", (*CQP).modifyQP, "ctrl.c:irdma_sc_qp_modify", inferred | holdsQP},
	{0x02, "IRDMA_CQP_OP_DESTROY_QP", (*CQP).destroyQP, "ctrl.c:irdma_sc_qp_destroy", holdsQP},
	{0x03, "IRDMA_CQP_OP_CREATE_CQ", (*CQP).createCQ, "ctrl.c:irdma_sc_cq_create", 0},
	{0x04, "IRDMA_CQP_OP_MODIFY_CQ", (*CQP).modifyCQ, "ctrl.c:irdma_sc_cq_modify", inferred},
	{0x05, "IRDMA_CQP_OP_DESTROY_CQ", (*CQP).destroyCQ, "ctrl.c:irdma_sc_cq_destroy, irdma_sc_ccq_destroy", 0},
	{0x06, "IRDMA_CQP_OP_CREATE_SRQ", nil, "defs.h", 0},
	{0x07, "IRDMA_CQP_OP_MODIFY_SRQ", nil, "defs.h", 0},
	{0x08, "IRDMA_CQP_OP_DESTROY_SRQ", nil, "defs.h", 0},
	{0x09, "IRDMA_CQP_OP_ALLOC_STAG", (*CQP).allocSTag, "ctrl.c:irdma_sc_alloc_stag", 0},
	{0x0A, "IRDMA_CQP_OP_REG_MR", (*CQP).registerMR, "ctrl.c:irdma_sc_mr_reg_non_shared", 0},
	{0x0B, "IRDMA_CQP_OP_QUERY_STAG", nil, "defs.h", 0},
	{0x0C, "IRDMA_CQP_OP_REG_SMR", nil, "defs.h", 0},
	{0x0D, "IRDMA_CQP_OP_DEALLOC_STAG", (*CQP).deallocSTag, "ctrl.c:irdma_sc_dealloc_stag", 0},
	{0x0E, "IRDMA_CQP_OP_MANAGE_LOC_MAC_TABLE", (*CQP).manageMAC, "ctrl.c:irdma_sc_add_local_mac_entry, irdma_sc_del_local_mac_entry", 0},
	{0x0F, "IRDMA_CQP_OP_MANAGE_ARP", (*CQP).manageARP, "ctrl.c:irdma_sc_add_arp_cache_entry, irdma_sc_del_arp_cache_entry", 0},
	{0x10, "IRDMA_CQP_OP_MANAGE_VF_PBLE_BP", nil, "defs.h", 0},
	{0x11, "IRDMA_CQP_OP_MANAGE_PUSH_PAGES", nil, "ctrl.c:irdma_sc_manage_push_page", 0},
	{0x12, "IRDMA_CQP_OP_QUERY_RDMA_FEATURES", (*CQP).queryFeatures, "ctrl.c:irdma_sc_query_rdma_features", 0},
	{0x13, "IRDMA_CQP_OP_UPLOAD_CONTEXT", nil, "ctrl.c:irdma_sc_qp_upload_context", 0},
	{0x14, "IRDMA_CQP_OP_ALLOCATE_LOC_MAC_TABLE_ENTRY", (*CQP).allocMAC, "ctrl.c:irdma_sc_alloc_local_mac_entry", 0},
	{0x15, "IRDMA_CQP_OP_MANAGE_HMC_PM_FUNC_TABLE", nil, "defs.h", 0},
	{0x16, "IRDMA_CQP_OP_CREATE_CEQ", (*CQP).createCEQ, "ctrl.c:irdma_sc_ceq_create", 0},
	{0x18, "IRDMA_CQP_OP_DESTROY_CEQ", (*CQP).destroyCEQ, "ctrl.c:irdma_sc_ceq_destroy", 0},
	{0x19, "IRDMA_CQP_OP_CREATE_AEQ", (*CQP).createAEQ, "ctrl.c:irdma_sc_aeq_create", 0},
	{0x1B, "IRDMA_CQP_OP_DESTROY_AEQ", (*CQP).destroyAEQ, "ctrl.c:irdma_sc_aeq_destroy", 0},
	{0x1C, "IRDMA_CQP_OP_CREATE_ADDR_HANDLE", (*CQP).createAH, "uda.c:irdma_sc_access_ah", 0},
	{0x1D, "IRDMA_CQP_OP_MODIFY_ADDR_HANDLE", (*CQP).modifyAH, "uda.c:irdma_sc_access_ah", 0},
	{0x1E, "IRDMA_CQP_OP_DESTROY_ADDR_HANDLE", (*CQP).destroyAH, "uda.c:irdma_sc_access_ah", 0},
	{0x1F, "IRDMA_CQP_OP_UPDATE_PE_SDS", (*CQP).updateSDs, "ctrl.c:cqp_sds_wqe_fill", 0},
	{0x20, "IRDMA_CQP_OP_QUERY_FPM_VAL", (*CQP).queryFPM, "ctrl.c:irdma_sc_query_fpm_val", 0},
	{0x21, "IRDMA_CQP_OP_COMMIT_FPM_VAL", (*CQP).commitFPM, "ctrl.c:irdma_sc_commit_fpm_val", 0},
	{0x22, "IRDMA_CQP_OP_FLUSH_WQES", (*CQP).flushWQEs, "ctrl.c:irdma_sc_qp_flush_wqes, irdma_sc_gen_ae", inferred | holdsQP},
	{0x23, "IRDMA_CQP_OP_MANAGE_APBVT", nil, "ctrl.c:irdma_sc_manage_apbvt_entry", 0},
	{0x24, "IRDMA_CQP_OP_NOP", (*CQP).nop, "defs.h", inferred},
	{0x25, "IRDMA_CQP_OP_MANAGE_QUAD_HASH_TABLE_ENTRY", nil, "ctrl.c:irdma_sc_manage_qhash_table_entry", 0},
	{0x26, "IRDMA_CQP_OP_CREATE_MCAST_GRP", (*CQP).createMulticast, "uda.c:irdma_access_mcast_grp", 0},
	{0x27, "IRDMA_CQP_OP_MODIFY_MCAST_GRP", (*CQP).modifyMulticast, "uda.c:irdma_access_mcast_grp", inferred},
	{0x28, "IRDMA_CQP_OP_DESTROY_MCAST_GRP", (*CQP).destroyMulticast, "uda.c:irdma_access_mcast_grp", 0},
	{0x29, "IRDMA_CQP_OP_SUSPEND_QP", (*CQP).suspendQP, "ctrl.c:irdma_sc_suspend_qp", inferred | holdsQP},
	{0x2A, "IRDMA_CQP_OP_RESUME_QP", (*CQP).resumeQP, "ctrl.c:irdma_sc_resume_qp", inferred | holdsQP},
	{0x2B, "IRDMA_CQP_OP_SHMC_PAGES_ALLOCATED", (*CQP).pagesAllocated, "ctrl.c:irdma_sc_static_hmc_pages_allocated", 0},
	{0x2C, "IRDMA_CQP_OP_WORK_SCHED_NODE", (*CQP).workNode, "ctrl.c:irdma_sc_manage_ws_node", 0},
	{0x2D, "IRDMA_CQP_OP_MANAGE_STATS", (*CQP).manageStats, "ctrl.c:irdma_sc_manage_stats_inst", 0},
	{0x2E, "IRDMA_CQP_OP_GATHER_STATS", (*CQP).gatherStats, "ctrl.c:irdma_sc_gather_stats", 0},
	{0x2F, "IRDMA_CQP_OP_UP_MAP", nil, "ctrl.c:irdma_sc_set_up_map", 0},
}

func lookup(op uint8) *opcode {
	for i := range opcodes {
		if opcodes[i].op == op {
			return &opcodes[i]
		}
	}
	return nil
}

func opcodeName(op uint8) string {
	if row := lookup(op); row != nil {
		return row.name
	}
	return fmt.Sprintf("CQP opcode %#02x", op)
}

// Opcode is a row of the command table for documents and decoders.
type Opcode struct {
	Op       uint8
	Name     string
	Built    bool
	Source   string
	Inferred bool
}

// Opcodes lists the command table in order of opcode.
func Opcodes() []Opcode {
	out := make([]Opcode, len(opcodes))
	for i, r := range opcodes {
		out[i] = Opcode{r.op, r.name, r.run != nil, r.source, r.marks&inferred != 0}
	}
	return out
}

func (c *CQP) nop(*wqe) (result, error) { return result{}, nil }
