// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
)

// eventRules are about completion and event queues.
var eventRules = []Rule{
	{ID: "cq-doorbell", Grade: Error, Meaning: "PFPE_CQARM names a CQ that does not exist",
		Device: "ignored it", Hardware: "inferred: drops the doorbell, or reports an asynchronous event",
		Driver: "ctrl.c:irdma_sc_ccq_arm",
		match:  when(func(e event.UnknownCQ) bool { return e.Register == "PFPE_CQARM" }, func(e event.UnknownCQ) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-doorbell-app", Grade: Note, Meaning: "a program's doorbell names a CQ that does not exist, as one that is being torn down may",
		Device: "ignored it", Hardware: "drops the doorbell (inferred)",
		Driver: "-",
		match:  when(func(e event.UnknownCQ) bool { return e.Register == event.UserArm }, func(e event.UnknownCQ) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-ack-unknown", Grade: Note, Meaning: "PFPE_CQACK names a CQ that does not exist; drivers acknowledge events of CQs just destroyed",
		Device: "ignored it", Hardware: "drops it (inferred)",
		Driver: "ctrl.c:irdma_sc_cq_ack",
		match:  on(func(e event.UnknownCQ) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-ack", Grade: Note, Meaning: "PFPE_CQACK without a CEQE to acknowledge",
		Device: "ignored it", Hardware: "drops it (inferred)",
		Driver: "ctrl.c:irdma_sc_cq_ack",
		match:  on(func(e event.SpuriousAck) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-overflow", Grade: Note, Meaning: "a completion found its CQ full, as when a program does not poll",
		Device: "reported the overflow", Hardware: "sets the overflow state and reports AE 0x0203 CQ_OPERATION_ERROR; the completion is lost",
		Driver: "uk.c:irdma_uk_cq_poll_cmpl",
		match:  on(func(e event.CQOverflow) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-shadow", Grade: Error, Meaning: "the shadow head of the control QP's CQ names an entry that was never written",
		Device: "ignored it", Hardware: "inferred: trusts it and overwrites entries that were not read",
		Driver: "ctrl.c:irdma_sc_ccq_get_cqe_info",
		match:  when(func(e event.BadShadowHead) bool { return e.CQ == event.CCQ }, func(e event.BadShadowHead) string { return "CQ 0" })},
	{ID: "cq-shadow-app", Grade: Warning, Meaning: "the shadow head of a CQ names an entry that was never written; a program writes its own CQs'",
		Device: "ignored it", Hardware: "inferred: trusts it and overwrites entries that were not read",
		Driver: "uk.c:irdma_uk_cq_poll_cmpl",
		match:  on(func(e event.BadShadowHead) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "cq-shadow-memory", Grade: Error, Meaning: "the shadow area of a CQ lies outside guest memory",
		Device: "left the CQ as it was", Hardware: "DMA fails: the CQ stops with AE 0x0203 (inferred)",
		Driver: "verbs.c:irdma_create_cq",
		match:  on(func(e event.ShadowUnreadable) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "queue-memory", Grade: Error, Meaning: "an entry was lost: the queue's memory cannot be written",
		Device: "dropped the entry", Hardware: "DMA fails: the entry is lost, with an asynchronous event if there is an AEQ (inferred)",
		Driver: "-",
		match:  on(func(e event.QueueUnwritable) string { return fmt.Sprintf("%s %d", e.Queue, e.ID) })},
	{ID: "ceq-in-use", Grade: Error, Meaning: "a CEQ was destroyed that a CQ still uses",
		Device: "destroyed it", Hardware: "loses the events of that CQ, or writes into freed memory (inferred)",
		Driver: "hw.c:irdma_del_ceqs",
		match:  on(func(e event.CEQInUse) string { return fmt.Sprintf("CEQ %d", e.CEQ) })},
	{ID: "aeq-credit", Grade: Error, Meaning: "more asynchronous events were acknowledged than delivered",
		Device: "took what was outstanding", Hardware: "inferred: counts beyond the ring and overwrites entries that were not read",
		Driver: "ctrl.c:irdma_sc_repost_aeq_entries",
		match:  on(func(event.AEQCredit) string { return "AEQ" })},
	{ID: "ae-lost", Grade: Warning, Meaning: "an asynchronous event found no room",
		Device: "dropped it", Hardware: "inferred: drops it and sets the overflow bit of the last entry",
		Driver: "hw.c:irdma_process_aeq",
		match:  on(func(e event.AELost) string { return fmt.Sprintf("AE %#04x", e.AE.Code) })},
}
