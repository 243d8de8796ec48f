// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// udRules are about datagrams and the address handles that they go by. ARP
// entries under handles and QPs in multicast groups are the control QP's.
var udRules = []Rule{
	{ID: "ud-opcode-app", Grade: Note, Meaning: "a program posted to a datagram QP what only connected QPs do",
		Device: "stopped the QP with WQE_UNEXPECTED_OPCODE", Hardware: "stops the QP with an asynchronous event (which is inferred)",
		Driver: "-",
		match:  when(func(e qp.SendNotExecuted) bool { return e.Name != "" && e.Program }, func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "ud-opcode", Grade: Warning, Meaning: "a datagram QP of the kernel was posted what only connected QPs do",
		Device: "stopped the QP with WQE_UNEXPECTED_OPCODE", Hardware: "stops the QP with an asynchronous event (which is inferred)",
		Driver: "verbs.c:irdma_post_send",
		match:  when(func(e qp.SendNotExecuted) bool { return e.Name != "" }, func(e qp.SendNotExecuted) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "ah-absent-app", Grade: Note, Meaning: "a program sent by an address handle that does not exist",
		Device: "stopped the QP with INVALID_AH_ENTRY", Hardware: "stops the QP with AE 0x0406 INVALID_AH_ENTRY",
		Driver: "-",
		match:  when(func(e qp.HandleAbsent) bool { return e.Program }, func(e qp.HandleAbsent) string { return fmt.Sprintf("QP %d AH %d", e.QP, e.AH) })},
	{ID: "ah-absent", Grade: Error, Meaning: "the kernel sent by an address handle that does not exist, or was destroyed before the datagram was sent",
		Device: "stopped the QP with INVALID_AH_ENTRY", Hardware: "stops the QP with AE 0x0406 INVALID_AH_ENTRY",
		Driver: "verbs.c:irdma_destroy_ah",
		match:  on(func(e qp.HandleAbsent) string { return fmt.Sprintf("QP %d AH %d", e.QP, e.AH) })},
	{ID: "ah-pd-app", Grade: Note, Meaning: "a program sent by an address handle of another protection domain",
		Device: "stopped the QP with UDA_XMIT_BAD_PD", Hardware: "stops the QP with AE 0x0133 UDA_XMIT_BAD_PD",
		Driver: "-",
		match:  when(func(e qp.HandleForeign) bool { return e.Program }, func(e qp.HandleForeign) string { return fmt.Sprintf("QP %d AH %d", e.QP, e.AH) })},
	{ID: "ah-pd", Grade: Error, Meaning: "the kernel sent by an address handle of another protection domain",
		Device: "stopped the QP with UDA_XMIT_BAD_PD", Hardware: "stops the QP with AE 0x0133 UDA_XMIT_BAD_PD",
		Driver: "verbs.c:irdma_setup_ah",
		match:  on(func(e qp.HandleForeign) string { return fmt.Sprintf("QP %d AH %d", e.QP, e.AH) })},
	{ID: "ud-length-app", Grade: Note, Meaning: "a program posted a datagram longer than the MTU",
		Device: "stopped the QP with UDA_XMIT_DGRAM_TOO_LONG", Hardware: "stops the QP with AE 0x0132 UDA_XMIT_DGRAM_TOO_LONG",
		Driver: "-",
		match:  when(func(e qp.DatagramTooLong) bool { return e.Program }, func(e qp.DatagramTooLong) string { return fmt.Sprintf("QP %d", e.QP) })},
	{ID: "ud-length", Grade: Warning, Meaning: "the kernel posted a datagram longer than the MTU of its QP's context",
		Device: "stopped the QP with UDA_XMIT_DGRAM_TOO_LONG", Hardware: "stops the QP with AE 0x0132 UDA_XMIT_DGRAM_TOO_LONG",
		Driver: "verbs.c:irdma_roce_fill_and_set_qpctx_info",
		match:  on(func(e qp.DatagramTooLong) string { return fmt.Sprintf("QP %d", e.QP) })},
}
