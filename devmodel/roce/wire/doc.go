// SPDX-License-Identifier: Apache-2.0

// Package wire is RoCEv2 as it stands in Ethernet frames: it reads and writes
// packets, and turns runs of package roce into packets and back.
//
// Contract and traps:
//   - Frames are hostile. Parse checks every length; what it refuses it names by
//     a Verdict. It does not look at the ICRC: that costs a pass over the packet,
//     and comes after everything that is cheaper (CheckICRC).
//   - Nothing allocates and nothing keeps a frame, but Packet.Payload, which lies
//     in it.
//   - Multi-byte fields are big-endian in the frame and numbers here. The ICRC is
//     the exception: it stands in the frame in little-endian order.
//   - The ICRC covers the length and the ID of the IP header; class, hop limit
//     and the flow label may change on the way, and so may the checksums. It
//     covers neither the VLAN tag nor the Ethernet header.
//   - The padding of a short Ethernet frame lies behind the ICRC: the IP header
//     tells where the packet ends.
package wire
