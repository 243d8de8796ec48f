// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/cqp"
)

// cqpRules are about the control QP, its commands and the tables behind them.
var cqpRules = []Rule{
	{ID: "cqp-unbuilt", Grade: Note, Gap: true, Meaning: "a CQP command that the model does not have",
		Device: "completed it with error 0xFFFF/0x8001", Hardware: "executes it",
		Driver: "-",
		match:  on(func(e cqp.NotBuilt) string { return e.Name })},
	{ID: "cqp-unknown", Grade: Error, Meaning: "a CQP opcode that no driver knows",
		Device: "completed it with error 0xFFFF/0x8001", Hardware: "completes it with an error; the codes are inferred",
		Driver: "defs.h:IRDMA_CQP_OP_*",
		match:  on(func(e cqp.UnknownOpcode) string { return fmt.Sprintf("opcode %#02x", e.Opcode) })},
	{ID: "cqp-refused", Grade: Warning, Meaning: "a CQP command failed",
		Device: "completed it with the error shown", Hardware: "fails as well; the codes are inferred unless irdma's tables name them",
		Driver: "ctrl.c",
		match:  on(func(e cqp.OpFailed) string { return e.Op.Name })},
	{ID: "cqp-context", Grade: Error, Meaning: "no control QP can be made from its context",
		Device: "set PFPE_CCQPSTATUS.ERR", Hardware: "sets PFPE_CCQPSTATUS.CCQP_ERR with a code in PFPE_CQPERRCODES; which is inferred",
		Driver: "ctrl.c:irdma_sc_cqp_create",
		match:  on(func(cqp.CreateFailed) string { return "CQP" })},
	{ID: "cqp-twice", Grade: Error, Meaning: "a control QP was created while one is live",
		Device: "replaced it", Hardware: "unknown; inferred: loses the commands under way",
		Driver: "ctrl.c:irdma_sc_cqp_destroy",
		match:  on(func(cqp.CreatedTwice) string { return "CQP" })},
	{ID: "cqp-dead", Grade: Error, Meaning: "PFPE_CQPDB was rung without a control QP",
		Device: "ignored it", Hardware: "inferred: drops the doorbell, or raises PE_CRITERR",
		Driver: "ctrl.c:irdma_sc_cqp_post_sq",
		match:  on(func(cqp.NotLive) string { return "CQP" })},
	{ID: "cqp-doorbell", Grade: Error, Meaning: "PFPE_CQPDB lies outside the ring",
		Device: "ignored it", Hardware: "inferred: reads beyond the ring or raises PE_CRITERR",
		Driver: "ctrl.c:irdma_sc_cqp_post_sq",
		match:  on(func(cqp.BadDoorbell) string { return "CQP" })},
	{ID: "cqp-polarity", Grade: Error, Meaning: "a WQE covered by PFPE_CQPDB has the wrong valid bit",
		Device: "stopped in front of it until the next doorbell", Hardware: "waits for the valid bit: the command never completes and the driver's timeout asks for a reset",
		Driver: "ctrl.c:irdma_sc_cqp_get_next_send_wqe_idx",
		match:  on(func(cqp.BadPolarity) string { return "CQP" })},
	{ID: "cqp-memory", Grade: Error, Meaning: "the control QP's ring lies outside guest memory",
		Device: "stopped until the next doorbell", Hardware: "DMA fails: PE_CRITERR (inferred)",
		Driver: "ctrl.c:irdma_sc_cqp_init",
		match:  on(func(cqp.RingUnreadable) string { return "CQP" })},
	{ID: "cqp-completion", Grade: Error, Meaning: "the completion of a CQP command could not be written",
		Device: "advanced PFPE_CQPTAIL", Hardware: "DMA fails: PE_CRITERR (inferred)",
		Driver: "ctrl.c:irdma_sc_ccq_init",
		match:  on(func(cqp.CompletionLost) string { return "CQ 0" })},
	{ID: "cqp-leak", Grade: Warning, Meaning: "objects were left when the control QP ended",
		Device: "dropped them", Hardware: "nothing: the next PFR clears all of it",
		Driver: "verbs.c:irdma_ib_dealloc_device",
		match:  on(func(cqp.Leaked) string { return "CQP" })},
	{ID: "sd-in-use", Grade: Error, Meaning: "a segment descriptor was cleared under live objects",
		Device: "cleared it", Hardware: "fails the next access of the object: HMC_ERR",
		Driver: "hmc.c:irdma_sc_del_hmc_obj",
		match:  on(func(e cqp.SDInUse) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "cq-in-use", Grade: Error, Meaning: "a CQ was destroyed that a QP still uses",
		Device: "destroyed it", Hardware: "refuses it, or completes into memory that is freed (inferred)",
		Driver: "verbs.c:irdma_destroy_cq",
		match:  on(func(e cqp.CQInUse) string { return fmt.Sprintf("CQ %d", e.CQ) })},
	{ID: "arp-replaced", Grade: Warning, Meaning: "an ARP entry was overwritten with another address",
		Device: "took the new one", Hardware: "takes the new address",
		Driver: "utils.c:irdma_manage_arp_cache",
		match:  on(func(e cqp.ARPReplaced) string { return fmt.Sprintf("ARP %d", e.Index) })},
}
