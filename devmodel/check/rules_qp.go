// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// qpRules are about queue pairs and what is posted to them.
var qpRules = []Rule{
	{ID: "qp-doorbell", Grade: Error, Meaning: "PFPE_WQEALLOC names a QP that does not exist",
		Device: "ignored it", Hardware: "inferred: drops the doorbell, or reports an asynchronous event",
		Driver: "uk.c:irdma_uk_qp_post_wr",
		match:  when(func(e qp.UnknownQP) bool { return !e.User }, func(e qp.UnknownQP) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-doorbell-app", Grade: Note, Meaning: "a program's doorbell names a QP that does not exist, as one that is being torn down may",
		Device: "ignored it", Hardware: "drops the doorbell (inferred)",
		Driver: "-",
		match:  on(func(e qp.UnknownQP) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-send-unbuilt", Grade: Note, Gap: true, Meaning: "send work was posted, which the model does not execute",
		Device: "left it in the queue until it is flushed", Hardware: "executes it",
		Driver: "-",
		match:  when(func(e qp.SendNotExecuted) bool { return e.Name != "" }, func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-invalidate-unbuilt", Grade: Note, Gap: true, Meaning: "a peer asked to invalidate an STag, which the model does not do",
		Device: "refused it and stopped the QP", Hardware: "invalidates the STag before the receive completes",
		Driver: "-",
		match:  on(func(e qp.InvalidateNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "wqe-opcode-app", Grade: Note, Meaning: "a program posted a send WQE with an opcode that nobody knows",
		Device: "stopped the QP with WQE_UNEXPECTED_OPCODE", Hardware: "stops the QP with AE 0x020A WQE_UNEXPECTED_OPCODE",
		Driver: "-",
		match:  when(func(e qp.SendNotExecuted) bool { return e.Name == "" && e.Program }, func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "wqe-opcode", Grade: Error, Meaning: "a send WQE of a kernel QP has an opcode that no driver knows",
		Device: "stopped the QP with WQE_UNEXPECTED_OPCODE", Hardware: "stops the QP with AE 0x020A WQE_UNEXPECTED_OPCODE",
		Driver: "user.h:IRDMA_OP_TYPE_*",
		match:  when(func(e qp.SendNotExecuted) bool { return e.Name == "" }, func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "wqe-shape-app", Grade: Note, Meaning: "a program posted a WQE with more fragments or bytes than its kind can have",
		Device: "stopped the QP", Hardware: "stops the QP with an asynchronous event (which is inferred)",
		Driver: "-",
		match:  when(func(e qp.BadWQE) bool { return e.Program }, func(e qp.BadWQE) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "wqe-shape", Grade: Error, Meaning: "a WQE of a kernel QP has more fragments or bytes than its kind can have, or does not lie where one can",
		Device: "stopped the QP", Hardware: "stops the QP with an asynchronous event (which is inferred)",
		Driver: "uk.c:irdma_uk_send, irdma_uk_post_receive",
		match:  on(func(e qp.BadWQE) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-memory", Grade: Error, Meaning: "a QP's ring or shadow area lies outside guest memory",
		Device: "stopped the QP with LCE_QP_CATASTROPHIC", Hardware: "stops the QP with AE 0x0700 LCE_QP_CATASTROPHIC (inferred)",
		Driver: "verbs.c:irdma_setup_virt_qp",
		match:  on(func(e qp.QueueUnreadable) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-cq", Grade: Error, Meaning: "the context of a QP names a CQ that does not exist",
		Device: "see the command's completion", Hardware: "fails the command (inferred)",
		Driver: "ctrl.c:irdma_sc_qp_setctx_roce",
		match:  on(func(e qp.UnknownCQ) string { return fmt.Sprintf("QP %d CQ %d", e.QP, e.CQ) })},
	{ID: "qp-transition", Grade: Error, Meaning: "MODIFY_QP asks for a state that cannot follow",
		Device: "failed the command", Hardware: "fails the command; the codes are inferred",
		Driver: "verbs.c:irdma_modify_qp_roce",
		match:  on(func(e qp.IllegalTransition) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-geometry", Grade: Warning, Meaning: "MODIFY_QP brought other rings than CREATE_QP",
		Device: "kept those of CREATE_QP", Hardware: "ignores the words about rings outside CREATE_QP (inferred)",
		Driver: "ctrl.c:irdma_sc_qp_setctx_roce",
		match:  on(func(e qp.GeometryChanged) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "qp-flush-state", Grade: Warning, Meaning: "FLUSH_WQES for a QP that is not in ERROR",
		Device: "flushed it", Hardware: "flushes, or fails the command (inferred)",
		Driver: "hw.c:irdma_flush_wqes",
		match:  on(func(e qp.FlushOutsideError) string { return fmt.Sprintf("QP %d", e.QP) })},
}
