// SPDX-License-Identifier: Apache-2.0

// Package roce is the reliable connected transport of RoCEv2: the requester
// and responder state machines of a queue pair.
//
// They work on runs: consecutive packets of one message, described together.
// A run of n packets does exactly what n runs of one packet do, in PSNs,
// completions, counters and memory; what cannot be told for all of them at
// once (a fault in the middle) is done again packet by packet. So a megabyte
// inside one process is a handful of steps, and a frame from a wire is a run
// of one packet in the same machine.
//
// Payload travels as a reference (SGL), not as bytes: the side that receives
// it copies, and translates addresses at the moment of the copy. A fault on
// the sender's side of such a copy goes back to the sender, as its own local
// error.
//
// Other stacks are at the other end of a wire. To Linux's software RoCE
// (rxe_comp.c, rxe_resp.c) it matters that no acknowledgement comes before or
// among the responses to a read, and that a read asked for again is answered
// with FIRST or ONLY; itself it answers with MIDDLE and LAST, acknowledges only
// what asks for it, and sends a sequence NAK behind an RNR NAK.
//
// Contract and traps:
//   - An Endpoint is used by one goroutine at a time: its queue pair's step.
//   - Handle only notes what is to be answered; Progress sends. The link may
//     refuse a run; the Endpoint then goes on at the next Progress.
//   - Completions are reported in send queue order, whatever the order in
//     which the responses came.
//   - An STag that ends may be in use by others for a moment. What ended it
//     completes, and at the responder everything that follows is handled,
//     only when the host is done with it.
//   - Payload that cannot be read fails its own WQE, when all before it are
//     complete: whoever finds that, the host that cuts packets or the peer that
//     copies, says so by a SourceFault.
//   - A loss is known from what comes behind it, and then costs one retry
//     whatever the peer says of it; only the last packets need the timer. Where
//     packets have been lost before, they are asked for once soon.
//   - PSNs are 24 bits and wrap. A read may take 2^23 of them: distances from
//     the oldest unacknowledged PSN are unsigned.
//   - Nothing here is retried for ever but RNR with count 7.
package roce
