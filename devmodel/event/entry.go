// SPDX-License-Identifier: Apache-2.0

package event

// CQESize is the length in bytes of a completion queue slot. An extended
// entry takes two.
const CQESize = 32

// Entry is one completion (uk.c:irdma_uk_cq_poll_cmpl; for the control QP's
// ctrl.c:irdma_sc_ccq_get_cqe_info). Fields are as software reads them, in
// host order.
type Entry struct {
	Context uint64 // completion context of the QP, echoed
	QP      uint32 // QPID, 24 bits
	Length  uint32 // PAYLDLEN: bytes received, 40 more for UD
	PSN     uint32 // TCPSEQNUM/RTT
	Value   uint32 // INVSTAG, UDSRCQPN, or op_ret_val of the control QP
	WQE     uint16 // WQEIDX: index of the WQE in quanta, 15 bits
	Op      uint8  // OP, 6 bits
	Minor   uint16 // MINERR
	Major   uint16 // MAJERR

	SQ        bool // of the send queue
	Error     bool
	Solicited bool // SOEVENT
	STag      bool // Value is an invalidated STag; for UD: the packet was IPv4

	// Ext, unless zero, goes to the slot behind.
	Ext Extension
}

// Extension is the second slot of an extended entry (uk.c and defs.h:
// IRDMA_CQ_IMMDATALOW32, IRDMA_CQ_UDSMAC, IRDMA_CQ_UDVLAN).
type Extension struct {
	HasImmediate bool
	HasSourceMAC bool
	HasVLAN      bool
	Immediate    uint32 // numeric value of the big-endian word on the wire
	SourceMAC    [6]byte
	VLAN         uint16 // tag control information
}

func bit(b bool, n int) uint64 {
	if b {
		return 1 << n
	}
	return 0
}

func (e *Entry) extended() bool { return e.Ext.HasImmediate || e.Ext.HasSourceMAC || e.Ext.HasVLAN }

// words are the entry's own slot without the valid bit.
func (e *Entry) words() cqe {
	return cqe{
		uint64(e.Length) | uint64(e.PSN)<<32,
		e.Context,
		uint64(e.Value) | uint64(e.QP&0xFFFFFF)<<32,
		uint64(e.Minor) | uint64(e.Major)<<16 | uint64(e.WQE&0x7FFF)<<32 | uint64(e.Op&0x3F)<<56 |
			bit(e.extended(), 50) | bit(e.STag, 53) | bit(e.Solicited, 54) | bit(e.Error, 55) | bit(e.SQ, 62),
	}
}

func (x *Extension) words() cqe {
	mac := uint64(0)
	for _, b := range x.SourceMAC {
		mac = mac<<8 | uint64(b)
	}
	return cqe{uint64(x.Immediate), 0, mac | uint64(x.VLAN)<<48,
		bit(x.HasVLAN, 60) | bit(x.HasSourceMAC, 61) | bit(x.HasImmediate, 62)}
}

// cqe is the four words of a slot without its valid bit.
type cqe [4]uint64
