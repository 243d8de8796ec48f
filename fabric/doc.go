// SPDX-License-Identifier: Apache-2.0

// Package fabric is the Ethernet segment: a learning switch between the cards
// of a process, uplinks that join it to the world (sockets as QEMU's -netdev
// dgram and stream use them, TAP interfaces), impairment of the cables and a
// pcapng capture of every port.
//
// A frame is a byte slice without preamble and FCS. It belongs to the sender
// and is valid during the call only: whoever wants it later copies it. The
// switch pads frames to 60 bytes, so receivers never see shorter ones, and
// refuses those without a whole Ethernet header and those above [MaxFrame].
//
// Work runs to completion: [Port.Send] calls the receivers of the frame on the
// sender's goroutine, without locks and, in steady state, without allocation.
//
// Contract and traps:
//   - Send and Receive run on any goroutine, several at once.
//   - A receiver must not block: it takes the frame or drops and counts it, as
//     a NIC does. It may call Send, but a station that answers at once from
//     within Receive nests calls; queue instead.
//   - After Close or SetLink(false) a frame under way may still arrive.
//   - Directions are the station's: tx is what the station of a port sends
//     into the switch, rx what it gets. That holds for counters, impairment
//     and capture (outbound and inbound) alike; the station of an uplink is
//     the world behind it.
//   - Stations of one process may do without frames where nobody would see them
//     (Port.Near); they tell the switch, which counts as if it had carried them.
//     With a capture nobody is near, so it has every frame.
//   - The switch knows no spanning tree: two uplinks to the same segment are a
//     loop, as two cables are.
//   - A capture never loses a frame: when its reader is slow, senders wait. A
//     reader that takes nothing for 3 s while it is waited for ends it, as a
//     sender that waits may hold up a card's reset.
//   - What a station says of its RoCE frames ([Port.Notes]) is a comment in the
//     capture. What becomes of a frame that came is known later: the capture
//     keeps it so long, at most 100 ms, and whatever came after it.
package fabric
