// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// rules is the catalogue, by the unit that sees the violation.
var rules = []Rule{
	// Registers.
	{ID: "reg-unknown", Grade: Note, Meaning: "a register that the model does not know was accessed",
		Device: "stored it like memory", Driver: "-",
		match: on(func(e reg.Unknown) string { return fmt.Sprintf("offset %#07x", e.Offset) })},
	{ID: "reg-width", Grade: Warning, Meaning: "a register access was not a whole, aligned dword",
		Device: "dropped the write, or answered from the dword", Driver: "ice_osdep.h:wr32",
		match: on(func(e reg.BadAccess) string { return fmt.Sprintf("offset %#07x", e.Offset) })},

	// Admin queues.
	{ID: "aq-unsupported", Grade: Note, Meaning: "an admin command that this firmware does not have",
		Device: "answered ESRCH", Driver: "-",
		match: when(func(e fw.UnknownCommand) bool { return e.Name != "" }, func(e fw.UnknownCommand) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-unknown", Grade: Warning, Meaning: "an admin command that no driver knows",
		Device: "answered ESRCH", Driver: "ice_common.c:ice_aq_send_cmd",
		match: on(func(e fw.UnknownCommand) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-descriptor", Grade: Error, Meaning: "an admin queue descriptor breaks the rules of the queue",
		Device: "failed the command", Driver: "ice_controlq.c:ice_sq_send_cmd",
		match: on(func(e fw.BadDescriptor) string { return fmt.Sprintf("%s opcode %#04x", e.Queue, e.Opcode) })},
	{ID: "aq-index", Grade: Error, Meaning: "a control queue's head or tail lies outside its ring",
		Device: "ignored it", Driver: "ice_controlq.c:ice_cfg_cq_regs",
		match: on(func(e fw.BadIndex) string { return e.Register })},
	{ID: "aq-memory", Grade: Error, Meaning: "a control queue or command buffer lies outside guest memory",
		Device: "failed the command", Driver: "ice_controlq.c:ice_alloc_ctrlq_sq_ring",
		match: on(func(e fw.QueueFault) string { return e.Queue + " " + e.Object })},
	{ID: "aq-lock", Grade: Warning, Meaning: "a command that needs a resource lock was sent without it",
		Device: "executed it", Driver: "ice_common.c:ice_acquire_res",
		match: on(func(e fw.LockMissing) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-unlock", Grade: Note, Meaning: "a resource lock was released that is not held",
		Device: "answered with success", Driver: "ice_common.c:ice_release_res",
		match: on(func(e fw.LockNotHeld) string { return fmt.Sprintf("resource %d", e.Resource) })},
	{ID: "ddp-buffer", Grade: Error, Meaning: "a DDP buffer cannot be parsed",
		Device: "refused it", Driver: "ice_ddp.c:ice_dwnld_cfg_bufs_no_lock",
		match: on(func(e fw.BadPackage) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},

	// LAN queues.
	{ID: "lan-queue", Grade: Error, Meaning: "a LAN queue was used that does not exist or is not enabled",
		Device: "ignored it", Driver: "ice_base.c:ice_vsi_cfg_txqs",
		match: on(func(e lan.BadQueue) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-tail", Grade: Error, Meaning: "a transmit tail lies outside the ring",
		Device: "ignored it", Driver: "ice_txrx.c:ice_tx_map",
		match: on(func(e lan.BadTail) string { return fmt.Sprintf("queue %d", e.Queue) })},
	{ID: "lan-descriptor", Grade: Error, Meaning: "a transmit descriptor cannot be executed",
		Device: "dropped the frame, or stopped the queue", Driver: "ice_txrx.c:ice_tx_map",
		match: on(func(e lan.BadTxDescriptor) string { return fmt.Sprintf("queue %d", e.Queue) })},

	// Host memory cache.
	{ID: "hmc-access", Grade: Error, Meaning: "an HMC object in use has no valid backing memory",
		Device: "raised HMC_ERR", Driver: "hmc.c:irdma_sc_create_hmc_obj",
		match: on(func(e hmc.AccessFailed) string { return fmt.Sprintf("%v SD %d", e.Walk.Object, e.Walk.SD) })},
	{ID: "pd-stale", Grade: Error, Meaning: "a page descriptor was changed without PFHMC_PDINV and then used",
		Device: "went on using its own copy", Driver: "hmc.c:irdma_invalidate_pf_hmc_pd",
		match: on(func(e hmc.StalePD) string { return fmt.Sprintf("SD %d PD %d", e.SD, e.PD) })},
	{ID: "sd-double-clear", Grade: Warning, Meaning: "a segment descriptor was cleared that is not valid",
		Device: "nothing", Driver: "hmc.c:irdma_finish_del_sd_reg",
		match: on(func(e hmc.SDNotValid) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-overwrite", Grade: Error, Meaning: "a valid segment descriptor was programmed again",
		Device: "took the new one", Driver: "hmc.c:irdma_hmc_sd_grp",
		match: on(func(e hmc.SDReprogrammed) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-range", Grade: Error, Meaning: "a segment descriptor beyond the committed layout was programmed",
		Device: "see the command's completion", Driver: "hmc.c:irdma_hmc_sd_grp",
		match: on(func(e hmc.SDBeyondLayout) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "hmc-static", Grade: Error, Meaning: "SHMC_PAGES_ALLOCATED came before all static objects had memory",
		Device: "completed the command", Driver: "hw.c:irdma_create_hmc_objs",
		match: on(func(e hmc.StaticUnbacked) string { return fmt.Sprintf("%v", e.Object) })},

	// Completion and event queues.
	{ID: "cq-doorbell", Grade: Warning, Meaning: "a doorbell names a CQ that does not exist",
		Device: "ignored it", Driver: "ctrl.c:irdma_sc_ccq_arm",
		match: on(func(e event.UnknownCQ) string { return fmt.Sprintf("%s CQ %d", e.Register, e.CQ) })},
	{ID: "cq-ack", Grade: Note, Meaning: "PFPE_CQACK without a CEQE to acknowledge",
		Device: "ignored it", Driver: "ctrl.c:irdma_sc_cq_ack",
		match: on(func(e event.SpuriousAck) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-overflow", Grade: Warning, Meaning: "a completion found its CQ full",
		Device: "reported the overflow", Driver: "uk.c:irdma_uk_cq_poll_cmpl",
		match: on(func(e event.CQOverflow) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-shadow", Grade: Error, Meaning: "the shadow head of a CQ names an entry that was never written",
		Device: "ignored it", Driver: "uk.c:irdma_uk_cq_poll_cmpl",
		match: on(func(e event.BadShadowHead) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-shadow-memory", Grade: Error, Meaning: "the shadow area of a CQ lies outside guest memory",
		Device: "left the CQ as it was", Driver: "verbs.c:irdma_create_cq",
		match: on(func(e event.ShadowUnreadable) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "queue-memory", Grade: Error, Meaning: "an entry was lost: the queue's memory cannot be written",
		Device: "dropped the entry", Driver: "-",
		match: on(func(e event.QueueUnwritable) string { return fmt.Sprintf("%s %d", e.Queue, e.ID) })},
	{ID: "ceq-in-use", Grade: Error, Meaning: "a CEQ was destroyed that a CQ still uses",
		Device: "destroyed it", Driver: "hw.c:irdma_del_ceqs",
		match: on(func(e event.CEQInUse) string { return fmt.Sprintf("CEQ %d", e.CEQ) })},
	{ID: "aeq-credit", Grade: Error, Meaning: "more asynchronous events were acknowledged than delivered",
		Device: "took what was outstanding", Driver: "ctrl.c:irdma_sc_repost_aeq_entries",
		match: on(func(event.AEQCredit) string { return "AEQ" })},
	{ID: "ae-lost", Grade: Warning, Meaning: "an asynchronous event found no room",
		Device: "dropped it", Driver: "hw.c:irdma_process_aeq",
		match: on(func(e event.AELost) string { return fmt.Sprintf("AE %#04x", e.AE.Code) })},

	// Queue pairs.
	{ID: "qp-doorbell", Grade: Warning, Meaning: "PFPE_WQEALLOC names a QP that does not exist",
		Device: "ignored it", Driver: "uk.c:irdma_uk_qp_post_wr",
		match: on(func(e qp.UnknownQP) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-send-unbuilt", Grade: Note, Meaning: "send work was posted, which the model does not execute",
		Device: "left it in the queue until it is flushed", Driver: "-",
		match: on(func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-cq", Grade: Error, Meaning: "the context of a QP names a CQ that does not exist",
		Device: "see the command's completion", Driver: "ctrl.c:irdma_sc_qp_setctx_roce",
		match: on(func(e qp.UnknownCQ) string { return fmt.Sprintf("QP %d CQ %d", e.QP, e.CQ) })},
	{ID: "qp-transition", Grade: Error, Meaning: "MODIFY_QP asks for a state that cannot follow",
		Device: "failed the command", Driver: "verbs.c:irdma_modify_qp_roce",
		match: on(func(e qp.IllegalTransition) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-geometry", Grade: Warning, Meaning: "MODIFY_QP brought other rings than CREATE_QP",
		Device: "kept those of CREATE_QP", Driver: "ctrl.c:irdma_sc_qp_setctx_roce",
		match: on(func(e qp.GeometryChanged) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-flush-state", Grade: Warning, Meaning: "FLUSH_WQES for a QP that is not in ERROR",
		Device: "flushed it", Driver: "hw.c:irdma_flush_wqes",
		match: on(func(e qp.FlushOutsideError) string { return fmt.Sprintf("QP %d", e.QP) })},
}
