// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

const slotWords = 4 // of a CQ

// cqeLength tells an extended entry, which takes two slots.
func cqeLength(w []uint64) int {
	if len(w) > 3 && w[3]>>50&1 != 0 {
		return 2 * slotWords
	}
	return slotWords
}

var (
	cqeCommon = []Field{
		{"IRDMACQ_TCPSEQNUMRTT", 0, 63, 32, hexa},
		{"IRDMACQ_PAYLDLEN", 0, 31, 0, decimal},
		{"IRDMA_CQ_QPCTX", 1, 63, 0, hexa},
		{"IRDMACQ_QPID", 2, 55, 32, decimal},
		{"IRDMA_CQ_VALID", 3, 63, 63, flag},
		{"IRDMA_CQ_SQ", 3, 62, 62, enum("receive queue", "send queue")},
		{"IRDMA_CQ_ERROR", 3, 55, 55, flag},
		{"IRDMACQ_SOEVENT", 3, 54, 54, flag},
		{"IRDMA_CQ_SRQ", 3, 52, 52, unused},
		{"IRDMACQ_PSHDROP", 3, 51, 51, flag},
		{"IRDMA_CQ_EXTCQE", 3, 50, 50, flag},
		{"IRDMA_CQ_WQEIDX", 3, 46, 32, decimal},
		{"IRDMA_CQ_MAJERR", 3, 31, 16, hexa},
		{"IRDMA_CQ_MINERR", 3, 15, 0, hexa},
	}
	// The same bits mean one thing for RC and another for UD: which it is the
	// entry does not say.
	cqeReceive = []Field{
		{"IRDMACQ_INVSTAG (RC)", 2, 31, 0, hexa},
		{"IRDMACQ_UDSRCQPN (UD)", 2, 31, 0, decimal},
		{"IRDMACQ_OP", 3, 61, 56, Kind{"opcode of a packet", receiveOp}},
		{"IRDMACQ_STAG (RC), IRDMACQ_IPV4 (UD)", 3, 53, 53, flag},
	}
	cqeSend = []Field{
		{"IRDMACQ_INVSTAG", 2, 31, 0, hexa},
		{"IRDMACQ_OP", 3, 61, 56, sendOps},
		{"IRDMACQ_STAG", 3, 53, 53, flag},
	}
	cqeExtension = []Field{
		{"IRDMA_CQ_IMMDATAUP32", 4, 63, 32, hexa},
		{"IRDMA_CQ_IMMDATALOW32", 4, 31, 0, hexa},
		{"IRDMA_CQ_UDVLAN", 6, 63, 48, hexa},
		{"IRDMA_CQ_UDSMAC", 6, 47, 0, mac},
		{"IRDMA_CQ_VALID", 7, 63, 63, flag},
		{"IRDMA_CQ_IMMVALID", 7, 62, 62, flag},
		{"IRDMA_CQ_UDSMACVALID", 7, 61, 61, flag},
		{"IRDMA_CQ_UDVLANVALID", 7, 60, 60, flag},
	}
)

// receiveOp is the opcode of a receive: that of the last packet, in 6 bits
// (verbs.h:set_ib_wc_op_rq, user.h:IRDMA_OP_TYPE_REC).
func receiveOp(v uint64) string {
	switch v {
	case 0x09, 0x0B:
		return fmt.Sprintf("0x%02x receive of RDMA_WRITE with immediate", v)
	case 0x3E:
		return fmt.Sprintf("0x%02x IRDMA_OP_TYPE_REC: receive", v)
	case 0x3F:
		return fmt.Sprintf("0x%02x IRDMA_OP_TYPE_REC_IMM: receive", v)
	}
	return fmt.Sprintf("0x%02x receive", v)
}

func chooseCQE(w *Words) (*Layout, error) {
	l := &Layout{Name: "CQE", Source: "uk.c:irdma_uk_cq_poll_cmpl", Notes: cqeNotes}
	l.Fields = join(cqeCommon, cqeReceive)
	if w.Flag(3, 62) {
		l.Fields = join(cqeCommon, cqeSend)
	}
	if len(w.V) > slotWords {
		l.Fields = join(l.Fields, cqeExtension)
	}
	return l, nil
}

func cqeNotes(w *Words) (out []string) {
	if !w.Has(3) {
		return nil
	}
	major, minor := uint16(w.Bits(3, 31, 16)), uint16(w.Bits(3, 15, 0))
	queue := "receive"
	if w.Flag(3, 62) {
		queue = "send"
	}
	s := fmt.Sprintf("%s WQE at quantum %d", queue, w.Bits(3, 46, 32))
	if w.Has(2) {
		s = fmt.Sprintf("QP %d, %s", w.Bits(2, 55, 32), s)
	}
	if w.Flag(3, 55) {
		out = append(out, s+": "+cqeCode(major, minor))
		if major == majFlush {
			out = append(out, "stands for all the WQEs that the queue had; only the oldest gets this status, the others IB_WC_WR_FLUSH_ERR")
		}
	} else {
		out = append(out, s+": IB_WC_SUCCESS")
	}
	if w.Flag(3, 50) && !w.Has(7) {
		out = append(out, "EXTCQE: the slot behind belongs to it")
	}
	return out
}
