// SPDX-License-Identifier: Apache-2.0

// # Bounds
//
// Whatever a guest does, it can neither make the card hold more than a fixed
// amount of memory nor keep the control lock, and with it the client's whole
// machine, for longer than a turn of fixed length. Where the bounds are:
//
//	admin queue            fw: 16 commands a turn, buffers of 4 KiB, 16 waiting events
//	scheduler, VSIs, rules fw: tables of fixed size (layerNodes, maxVSIs, maxVSILists, maxRules, pools)
//	control QP             cqp: 64 WQEs a turn, 8 SD entries of memory a WQE, objects by what was offered (hmc.SmallGuest)
//	flush                  qp: 4096 slots a turn (FlushLimit)
//	regions, page lists    mr: 64 KiB a translation, 17 PBLEs; explained 1 MiB
//	PBLE reads             hmc: 64 a batch, of one page
//	segments               hmc: 64, with 512 kept page descriptors each
//	asynchronous events    event: 1024 wait for PFPE_AEQALLOC, the rest are lost and said to be
//	a step of a QP         qp, roce: 64 runs, 64 KiB copied, 256 turns of the requester
//	runs that wait         qp: 64 a QP; who sends more waits
//	transmit queue         lan: 64 descriptors or 64 KiB a step, frames of 9728 bytes
//	registers              reg: storage for those of the BAR, 32 MiB at most
//	maps                   guestmem: 65535, unmapped ones in use included; 256 files, 16 TiB
//	findings               check: 4096
//	events for a file      trace: 16384 wait, for all cards; the rest are lost and said to be
//	waiting goroutines     grace.After: one each for the control QP, the admin queues and resets; one probe of shared memory
//
// An unmap, a reset, a doorbell and a command about a QP wait for no step of
// the data path. What they end is over after grace; the card then says so in
// PFSWR, DEVSTATE, a completion, or the reply to the client's message (Settle).
package devmodel
