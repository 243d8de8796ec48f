// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/fw"
)

// fwRules are about control queues and firmware commands.
var fwRules = []Rule{
	{ID: "aq-unsupported", Grade: Note, Meaning: "an admin command that this firmware does not have",
		Device: "answered ESRCH", Hardware: "later firmware has the command; which depends on its version",
		Driver: "-",
		match:  when(func(e fw.UnknownCommand) bool { return e.Name != "" }, func(e fw.UnknownCommand) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-unknown", Grade: Warning, Meaning: "an admin command that no driver knows",
		Device: "answered ESRCH", Hardware: "answers ESRCH or EINVAL (inferred)",
		Driver: "ice_common.c:ice_aq_send_cmd",
		match:  on(func(e fw.UnknownCommand) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-descriptor", Grade: Warning, Meaning: "an admin queue descriptor breaks the rules of the queue",
		Device: "failed the command if it cannot be executed", Hardware: "fails the command with an ICE_AQ_RC_* code (which is inferred)",
		Driver: "ice_controlq.c:ice_sq_send_cmd",
		match:  on(func(e fw.BadDescriptor) string { return fmt.Sprintf("%s opcode %#04x", e.Queue, e.Opcode) })},
	{ID: "aq-off", Grade: Note, Meaning: "a control queue was rung while it is off, as a reset in between can make a driver do",
		Device: "ignored it", Hardware: "ignores the tail of a queue that is not enabled (inferred)",
		Driver: "ice_controlq.c:ice_cfg_cq_regs",
		match:  when(func(e fw.BadIndex) bool { return e.Entries == 0 }, func(e fw.BadIndex) string { return e.Register })},
	{ID: "aq-index", Grade: Error, Meaning: "a control queue's head or tail lies outside its ring",
		Device: "ignored it", Hardware: "sets PF_*_ATQLEN.ATQCRIT or ARQCRIT and stops the queue (inferred; the bits are in ice_hw_autogen.h)",
		Driver: "ice_controlq.c:ice_cfg_cq_regs",
		match:  on(func(e fw.BadIndex) string { return e.Register })},
	{ID: "aq-memory", Grade: Error, Meaning: "a control queue or command buffer lies outside guest memory",
		Device: "failed the command", Hardware: "DMA fails: ATQVFE/ATQCRIT or an error code (inferred)",
		Driver: "ice_controlq.c:ice_alloc_ctrlq_sq_ring",
		match:  on(func(e fw.QueueFault) string { return e.Queue + " " + e.Object })},
	{ID: "aq-lock", Grade: Warning, Meaning: "a command that needs a resource lock was sent without it",
		Device: "executed it", Hardware: "executes it or answers EPERM (inferred)",
		Driver: "ice_common.c:ice_acquire_res",
		match:  on(func(e fw.LockMissing) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
	{ID: "aq-unlock", Grade: Note, Meaning: "a resource lock was released that is not held",
		Device: "answered EINVAL", Hardware: "answers an error code (inferred)",
		Driver: "ice_common.c:ice_release_res",
		match:  on(func(e fw.LockNotHeld) string { return fmt.Sprintf("resource %d", e.Resource) })},
	{ID: "ddp-buffer", Grade: Error, Meaning: "a DDP buffer cannot be parsed",
		Device: "refused it", Hardware: "refuses the buffer with an error code in the response",
		Driver: "ice_ddp.c:ice_dwnld_cfg_bufs_no_lock",
		match:  on(func(e fw.BadPackage) string { return fmt.Sprintf("opcode %#04x", e.Opcode) })},
}
