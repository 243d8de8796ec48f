// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

// class says of which sources the driver takes an event at all
// (ctrl.c:irdma_sc_get_next_aeqe).
type class uint8

const (
	classQP     class = iota // of any source
	classSource              // only if AESRC is a QP's
	classCQ                  // only if AESRC is a CQ's
	classOther               // of other generations
)

// event is what the driver raises to the owner of the QP
// (user.h:irdma_ae_to_qp_err_code, hw.c:irdma_process_aeq).
type event uint8

const (
	eventNone event = iota
	eventFatal
	eventAccess
	eventRequest
)

func (e event) String() string {
	return [...]string{"", "IB_EVENT_QP_FATAL", "IB_EVENT_QP_ACCESS_ERR", "IB_EVENT_QP_REQ_ERR"}[e]
}

// Flush codes (user.h:enum irdma_flush_opcode).
const (
	flushGeneral     = 1
	flushProt        = 2
	flushRemAccess   = 3
	flushLocQPOp     = 4
	flushRemOp       = 5
	flushLocLen      = 6
	flushFatal       = 7
	flushRetryExc    = 8
	flushMWBind      = 9
	flushRemInvReq   = 10
	flushRNRRetryExc = 11
)

// AE is an asynchronous event code.
type AE struct {
	Code   uint16
	Name   string // kernel name
	class  class
	flush  uint8 // code with which the QP is flushed; 0: it is not
	event  event
	does   string // what the driver does instead of ending the QP
	Reason string // when the device raises it; inferred, may be empty
}

// aes are the codes (user.h:IRDMA_AE_*) in ascending order.
var aes = [...]AE{
	{0x0102, "IRDMA_AE_AMP_UNALLOCATED_STAG", classSource, flushProt, eventAccess, "", "the STag is free"},
	{0x0103, "IRDMA_AE_AMP_INVALID_STAG", classSource, flushProt, eventAccess, "", "the STag has no memory, or was invalidated"},
	{0x0104, "IRDMA_AE_AMP_BAD_QP", classSource, flushProt, eventAccess, "", "the window is another QP's"},
	{0x0105, "IRDMA_AE_AMP_BAD_PD", classSource, flushProt, eventAccess, "", "the STag is another protection domain's"},
	{0x0106, "IRDMA_AE_AMP_BAD_STAG_KEY", classSource, flushProt, eventAccess, "", "the STag's key differs"},
	{0x0107, "IRDMA_AE_AMP_BAD_STAG_INDEX", classSource, flushProt, eventAccess, "", "no such STag index, or the driver's own bits of it differ"},
	{0x0108, "IRDMA_AE_AMP_BOUNDS_VIOLATION", classSource, flushProt, eventAccess, "", "outside the region"},
	{0x0109, "IRDMA_AE_AMP_RIGHTS_VIOLATION", classSource, flushProt, eventAccess, "", "a right is missing"},
	{0x010A, "IRDMA_AE_AMP_TO_WRAP", classSource, flushProt, eventAccess, "", "the range wraps"},
	{0x010C, "IRDMA_AE_AMP_FASTREG_VALID_STAG", classSource, flushGeneral, eventFatal, "", "fast registration of a valid STag"},
	{0x010D, "IRDMA_AE_AMP_FASTREG_MW_STAG", classSource, flushGeneral, eventFatal, "", "fast registration of a window"},
	{0x010E, "IRDMA_AE_AMP_FASTREG_INVALID_RIGHTS", classSource, flushGeneral, eventFatal, "", "fast registration with rights it cannot have"},
	{0x0110, "IRDMA_AE_AMP_FASTREG_INVALID_LENGTH", classSource, flushGeneral, eventFatal, "", "fast registration of more than was allocated"},
	{0x0111, "IRDMA_AE_AMP_INVALIDATE_SHARED", classSource, flushGeneral, eventFatal, "", "invalidation of a shared region"},
	{0x0112, "IRDMA_AE_AMP_INVALIDATE_NO_REMOTE_ACCESS_RIGHTS", classSource, flushRemAccess, eventAccess, "", "invalidation from remote without the right"},
	{0x0113, "IRDMA_AE_AMP_INVALIDATE_MR_WITH_BOUND_WINDOWS", classSource, flushGeneral, eventFatal, "", "invalidation of a region with bound windows"},
	{0x0114, "IRDMA_AE_AMP_MWBIND_VALID_STAG", classSource, flushMWBind, eventAccess, "", "bind of a window that is bound"},
	{0x0115, "IRDMA_AE_AMP_MWBIND_OF_MR_STAG", classSource, flushGeneral, eventFatal, "", "bind of a region's STag"},
	{0x0116, "IRDMA_AE_AMP_MWBIND_TO_ZERO_BASED_STAG", classSource, flushGeneral, eventFatal, "", "bind to a zero-based region"},
	{0x0117, "IRDMA_AE_AMP_MWBIND_TO_MW_STAG", classSource, flushGeneral, eventFatal, "", "bind to a window"},
	{0x0118, "IRDMA_AE_AMP_MWBIND_INVALID_RIGHTS", classSource, flushMWBind, eventAccess, "", "bind with rights that the region lacks"},
	{0x0119, "IRDMA_AE_AMP_MWBIND_INVALID_BOUNDS", classSource, flushMWBind, eventAccess, "", "bind outside the region"},
	{0x011A, "IRDMA_AE_AMP_MWBIND_TO_INVALID_PARENT", classSource, flushGeneral, eventFatal, "", "bind to a region that is not valid"},
	{0x011B, "IRDMA_AE_AMP_MWBIND_BIND_DISABLED", classSource, flushMWBind, eventAccess, "", "bind on a QP without BINDEN"},
	{0x011C, "IRDMA_AE_PRIV_OPERATION_DENIED", classQP, flushProt, eventAccess, "", "privileged work on a QP that is not"},
	{0x011D, "IRDMA_AE_AMP_INVALIDATE_TYPE1_MW", classQP, flushGeneral, eventFatal, "", "invalidation of a type 1 window"},
	{0x011E, "IRDMA_AE_AMP_MWBIND_ZERO_BASED_TYPE1_MW", classQP, flushGeneral, eventFatal, "", "zero-based bind of a type 1 window"},
	{0x011F, "IRDMA_AE_AMP_FASTREG_INVALID_PBL_HPS_CFG", classQP, flushGeneral, eventFatal, "", "fast registration with that LPBLSIZE and HPAGESIZE"},
	{0x0120, "IRDMA_AE_AMP_MWBIND_WRONG_TYPE", classSource, flushGeneral, eventFatal, "", "bind of a window of another type"},
	{0x0121, "IRDMA_AE_AMP_FASTREG_PBLE_MISMATCH", classQP, flushGeneral, eventFatal, "", "fast registration with another number of PBLEs"},
	{0x0132, "IRDMA_AE_UDA_XMIT_DGRAM_TOO_LONG", classQP, flushLocLen, eventFatal, "", "the datagram does not fit the MTU"},
	{0x0133, "IRDMA_AE_UDA_XMIT_BAD_PD", classQP, flushLocQPOp, eventFatal, "", "the address handle is another protection domain's"},
	{0x0134, "IRDMA_AE_UDA_XMIT_DGRAM_TOO_SHORT", classQP, flushLocLen, eventFatal, "", "the datagram is too short"},
	{0x0135, "IRDMA_AE_UDA_L4LEN_INVALID", classQP, flushLocLen, eventFatal, "", "L4LEN cannot be"},
	{0x0201, "IRDMA_AE_BAD_CLOSE", classQP, 0, 0, "iWARP only", ""},
	{0x0202, "IRDMA_AE_RDMAP_ROE_BAD_LLP_CLOSE", classQP, 0, 0, "iWARP only", ""},
	{0x0203, "IRDMA_AE_CQ_OPERATION_ERROR", classCQ, 0, 0, "tells the owner of the CQ: IB_EVENT_CQ_ERR", "the CQ is full, or its memory is gone"},
	{0x0205, "IRDMA_AE_RDMA_READ_WHILE_ORD_ZERO", classQP, flushGeneral, eventFatal, "", "a read where ORDSIZE is 0"},
	{0x0206, "IRDMA_AE_STAG_ZERO_INVALID", classQP, flushGeneral, eventFatal, "", "STag 0 on a QP without PRIVEN"},
	{0x0207, "IRDMA_AE_IB_RREQ_AND_Q1_FULL", classQP, flushGeneral, eventFatal, "", "more reads from the peer than IRDSIZE"},
	{0x0208, "IRDMA_AE_IB_INVALID_REQUEST", classQP, flushRemInvReq, eventRequest, "", "the request was refused as invalid"},
	{0x0209, "IRDMA_AE_SRQ_LIMIT", classOther, 0, 0, "not of this generation", ""},
	{0x020A, "IRDMA_AE_WQE_UNEXPECTED_OPCODE", classQP, flushLocQPOp, eventFatal, "", "the send WQE's opcode cannot be executed"},
	{0x020B, "IRDMA_AE_WQE_INVALID_PARAMETER", classSource, flushGeneral, eventFatal, "", "a field of the WQE cannot be"},
	{0x020C, "IRDMA_AE_WQE_INVALID_FRAG_DATA", classSource, flushGeneral, eventFatal, "", "a fragment of the WQE cannot be"},
	{0x020D, "IRDMA_AE_IB_REMOTE_ACCESS_ERROR", classQP, flushRemAccess, eventAccess, "", "remote access was refused"},
	{0x020E, "IRDMA_AE_IB_REMOTE_OP_ERROR", classQP, flushRemOp, eventFatal, "", "the peer could not carry it out"},
	{0x020F, "IRDMA_AE_SRQ_CATASTROPHIC_ERROR", classSource, 0, 0, "takes note", ""},
	{0x0220, "IRDMA_AE_WQE_LSMM_TOO_LONG", classSource, flushGeneral, eventFatal, "", ""},
	{0x0221, "IRDMA_AE_ATOMIC_ALIGNMENT", classSource, flushGeneral, eventFatal, "", ""},
	{0x0222, "IRDMA_AE_ATOMIC_MASK", classSource, flushGeneral, eventFatal, "", ""},
	{0x0223, "IRDMA_AE_INVALID_REQUEST", classSource, flushGeneral, eventFatal, "", ""},
	{0x0224, "IRDMA_AE_PCIE_ATOMIC_DISABLE", classSource, flushGeneral, eventFatal, "", ""},
	{0x0301, "IRDMA_AE_DDP_INVALID_MSN_GAP_IN_MSN", classSource, flushGeneral, eventFatal, "", ""},
	{0x0303, "IRDMA_AE_DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER", classSource, flushLocLen, eventFatal, "", "the message does not fit the receive buffer"},
	{0x0304, "IRDMA_AE_DDP_UBE_INVALID_DDP_VERSION", classQP, flushGeneral, eventFatal, "", ""},
	{0x0305, "IRDMA_AE_DDP_UBE_INVALID_MO", classQP, flushLocLen, eventFatal, "", "the message is too long"},
	{0x0306, "IRDMA_AE_DDP_UBE_INVALID_MSN_NO_BUFFER_AVAILABLE", classSource, flushGeneral, eventFatal, "", "no receive WQE (iWARP)"},
	{0x0307, "IRDMA_AE_DDP_UBE_INVALID_QN", classQP, flushGeneral, eventFatal, "", ""},
	{0x0308, "IRDMA_AE_DDP_NO_L_BIT", classQP, flushGeneral, eventFatal, "", ""},
	{0x0311, "IRDMA_AE_RDMAP_ROE_INVALID_RDMAP_VERSION", classQP, flushGeneral, eventFatal, "", ""},
	{0x0312, "IRDMA_AE_RDMAP_ROE_UNEXPECTED_OPCODE", classQP, flushGeneral, eventFatal, "", "a packet's opcode does not fit"},
	{0x0313, "IRDMA_AE_ROE_INVALID_RDMA_READ_REQUEST", classQP, flushGeneral, eventFatal, "", ""},
	{0x0314, "IRDMA_AE_ROE_INVALID_RDMA_WRITE_OR_READ_RESP", classQP, flushGeneral, eventFatal, "", ""},
	{0x0316, "IRDMA_AE_ROCE_RSP_LENGTH_ERROR", classQP, flushRemOp, eventFatal, "", "the read's answer has another length"},
	{0x0380, "IRDMA_AE_ROCE_EMPTY_MCG", classQP, flushGeneral, eventFatal, "", "the multicast group has no member"},
	{0x0381, "IRDMA_AE_ROCE_BAD_MC_IP_ADDR", classQP, flushGeneral, eventFatal, "", "no multicast address"},
	{0x0382, "IRDMA_AE_ROCE_BAD_MC_QPID", classQP, flushGeneral, eventFatal, "", "a member of the group does not exist"},
	{0x0383, "IRDMA_AE_MCG_QP_PROTOCOL_MISMATCH", classQP, flushGeneral, eventFatal, "", "a member of the group is no datagram QP"},
	{0x0401, "IRDMA_AE_INVALID_ARP_ENTRY", classQP, flushGeneral, eventFatal, "", "the ARP index has no entry"},
	{0x0402, "IRDMA_AE_INVALID_TCP_OPTION_RCVD", classQP, flushGeneral, eventFatal, "", ""},
	{0x0403, "IRDMA_AE_STALE_ARP_ENTRY", classQP, flushGeneral, eventFatal, "", "the ARP entry is stale"},
	{0x0406, "IRDMA_AE_INVALID_AH_ENTRY", classQP, flushGeneral, eventFatal, "", "no such address handle"},
	{0x0501, "IRDMA_AE_LLP_CLOSE_COMPLETE", classQP, 0, 0, "iWARP only", ""},
	{0x0502, "IRDMA_AE_LLP_CONNECTION_RESET", classQP, 0, 0, "iWARP only", ""},
	{0x0503, "IRDMA_AE_LLP_FIN_RECEIVED", classQP, 0, 0, "iWARP only", ""},
	{0x0504, "IRDMA_AE_LLP_RECEIVED_MARKER_AND_LENGTH_FIELDS_DONT_MATCH", classSource, flushGeneral, eventFatal, "", ""},
	{0x0505, "IRDMA_AE_LLP_RECEIVED_MPA_CRC_ERROR", classQP, flushRemOp, eventFatal, "", ""},
	{0x0507, "IRDMA_AE_LLP_SEGMENT_TOO_SMALL", classQP, flushRemOp, eventFatal, "", ""},
	{0x0508, "IRDMA_AE_LLP_SYN_RECEIVED", classQP, flushGeneral, eventFatal, "", ""},
	{0x0509, "IRDMA_AE_LLP_TERMINATE_RECEIVED", classQP, 0, 0, "iWARP only", ""},
	{0x050A, "IRDMA_AE_LLP_TOO_MANY_RETRIES", classQP, flushRetryExc, eventFatal, "", "nobody answers"},
	{0x050B, "IRDMA_AE_LLP_TOO_MANY_KEEPALIVE_RETRIES", classSource, flushGeneral, eventFatal, "", ""},
	{0x050C, "IRDMA_AE_LLP_DOUBT_REACHABILITY", classQP, 0, 0, "takes note", ""},
	{0x050E, "IRDMA_AE_LLP_CONNECTION_ESTABLISHED", classQP, 0, 0, "iWARP only; in RoCE mode it oopses", ""},
	{0x050F, "IRDMA_AE_LLP_TOO_MANY_RNRS", classQP, flushRNRRetryExc, eventFatal, "", "the peer has no receive WQE"},
	{0x0520, "IRDMA_AE_RESOURCE_EXHAUSTION", classSource, 0, 0, "takes note", "the engine is out of something"},
	{0x0601, "IRDMA_AE_RESET_SENT", classQP, 0, 0, "iWARP only", ""},
	{0x0602, "IRDMA_AE_TERMINATE_SENT", classQP, 0, 0, "iWARP only", ""},
	{0x0603, "IRDMA_AE_RESET_NOT_SENT", classQP, 0, 0, "takes note", ""},
	{0x0700, "IRDMA_AE_LCE_QP_CATASTROPHIC", classQP, flushFatal, eventFatal, "", "the engine cannot go on with the QP"},
	{0x0701, "IRDMA_AE_LCE_FUNCTION_CATASTROPHIC", classSource, flushGeneral, eventFatal, "", "the engine cannot go on"},
	{0x0702, "IRDMA_AE_LCE_CQ_CATASTROPHIC", classCQ, 0, 0, "drops it", "the engine cannot go on with the CQ"},
	{0x0703, "IRDMA_AE_REMOTE_QP_CATASTROPHIC", classQP, flushFatal, eventFatal, "", "the peer's engine cannot go on"},
	{0x0704, "IRDMA_AE_LOCAL_QP_CATASTROPHIC", classQP, flushFatal, eventFatal, "", "the engine cannot go on with the QP"},
	{0x0705, "IRDMA_AE_RCE_QP_CATASTROPHIC", classQP, flushFatal, eventFatal, "", "the engine cannot go on with the QP"},
	{0x0900, "IRDMA_AE_QP_SUSPEND_COMPLETE", classQP, 0, 0, "wakes whoever waits for the QP to come to rest", "the QP is at rest after SUSPEND_QP or a change to SQD"},
	{0x0901, "IRDMA_AE_CQP_DEFERRED_COMPLETE", classOther, 0, 0, "not of this generation", ""},
	{0x0B0B, "IRDMA_AE_ADAPTER_CATASTROPHIC", classSource, flushGeneral, eventFatal, "", "the adapter cannot go on"},
}

// AEs lists the asynchronous event codes.
func AEs() []AE { return append([]AE(nil), aes[:]...) }

func lookupAE(code uint16) *AE {
	for i := range aes {
		if aes[i].Code == code {
			return &aes[i]
		}
	}
	return nil
}

func aeName(code uint16) string {
	if a := lookupAE(code); a != nil {
		return fmt.Sprintf("0x%04x %s", code, a.Name)
	}
	return fmt.Sprintf("0x%04x (no driver knows it)", code)
}

// reaction is what the driver does about an event.
func (a *AE) reaction() string {
	switch {
	case a.flush != 0:
		return fmt.Sprintf("changes the QP to ERROR, flushes it with %s and raises %v", flushName(uint16(a.flush)), a.event)
	case a.does != "":
		return a.does
	}
	return "does nothing"
}
