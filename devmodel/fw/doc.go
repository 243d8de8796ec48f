// SPDX-License-Identifier: Apache-2.0

// Package fw is what the management firmware of an E810 does for one physical
// function: it serves the control queues and keeps the objects that admin
// commands act on: flash, DDP package, Tx scheduler, switch, link.
//
// Contract and traps:
//   - The device's control lock is held around every method and register
//     handler. Nothing here locks, blocks or waits; a command is complete
//     when the write of the queue's tail register returns.
//   - A command is table data (command). One that has no row, or a row
//     without a function, fails with ESRCH and is reported; it never succeeds.
//   - A descriptor and its buffer are read once, into a request, and handlers
//     see only that copy. The descriptor goes back in two parts, the quadword
//     with DD and the return code last, and HEAD moves after it: the driver
//     takes HEAD, not DD, for completion.
//   - LEN (with its enable bit) is written before the base address, so nothing
//     is fetched before a write of TAIL.
//   - Of the receive queue only the slots before TAIL are free: TAIL equal to
//     HEAD means none. Events that find none wait, up to a bound.
//   - The driver copies datalen bytes of a response, and fails if that is more
//     than it sent: datalen never grows.
//   - What decides where frames go is made of VSIs, rules, lists, RSS tables
//     and the port into one immutable lan.Steering, once per command that
//     changes any of them, before it is answered. A rule that a Steering has no
//     word for is refused.
//   - What a reset ends is listed in Reset. The package and the VLAN mode
//     outlive a function reset, and so does the port's configuration.
package fw
