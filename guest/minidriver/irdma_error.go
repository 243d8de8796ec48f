// SPDX-License-Identifier: Apache-2.0

package minidriver

// Asynchronous events by their kernel names (irdma/user.h).
const (
	IRDMA_AE_AMP_UNALLOCATED_STAG        = 0x0102
	IRDMA_AE_AMP_INVALID_STAG            = 0x0103
	IRDMA_AE_AMP_BAD_QP                  = 0x0104
	IRDMA_AE_AMP_BAD_PD                  = 0x0105
	IRDMA_AE_AMP_BAD_STAG_KEY            = 0x0106
	IRDMA_AE_AMP_BAD_STAG_INDEX          = 0x0107
	IRDMA_AE_AMP_BOUNDS_VIOLATION        = 0x0108
	IRDMA_AE_AMP_RIGHTS_VIOLATION        = 0x0109
	IRDMA_AE_AMP_TO_WRAP                 = 0x010a
	IRDMA_AE_AMP_FASTREG_VALID_STAG      = 0x010c
	IRDMA_AE_AMP_FASTREG_MW_STAG         = 0x010d
	IRDMA_AE_AMP_FASTREG_INVALID_RIGHTS  = 0x010e
	IRDMA_AE_AMP_FASTREG_INVALID_LENGTH  = 0x0110
	IRDMA_AE_AMP_INVALIDATE_NO_RIGHTS    = 0x0112 // ..._NO_REMOTE_ACCESS_RIGHTS
	IRDMA_AE_AMP_INVALIDATE_BOUND        = 0x0113 // ..._MR_WITH_BOUND_WINDOWS
	IRDMA_AE_AMP_MWBIND_VALID_STAG       = 0x0114
	IRDMA_AE_AMP_MWBIND_OF_MR_STAG       = 0x0115
	IRDMA_AE_AMP_MWBIND_ZERO_BASED       = 0x0116 // ..._TO_ZERO_BASED_STAG
	IRDMA_AE_AMP_MWBIND_TO_MW_STAG       = 0x0117
	IRDMA_AE_AMP_MWBIND_INVALID_RIGHTS   = 0x0118
	IRDMA_AE_AMP_MWBIND_INVALID_BOUNDS   = 0x0119
	IRDMA_AE_AMP_MWBIND_TO_INVALID       = 0x011a // ..._TO_INVALID_PARENT
	IRDMA_AE_AMP_MWBIND_BIND_DISABLED    = 0x011b
	IRDMA_AE_PRIV_OPERATION_DENIED       = 0x011c
	IRDMA_AE_AMP_INVALIDATE_TYPE1_MW     = 0x011d
	IRDMA_AE_AMP_MWBIND_WRONG_TYPE       = 0x0120
	IRDMA_AE_UDA_XMIT_DGRAM_TOO_LONG     = 0x0132
	IRDMA_AE_UDA_XMIT_BAD_PD             = 0x0133
	IRDMA_AE_CQ_OPERATION_ERROR          = 0x0203
	IRDMA_AE_STAG_ZERO_INVALID           = 0x0206
	IRDMA_AE_IB_INVALID_REQUEST          = 0x0208
	IRDMA_AE_WQE_UNEXPECTED_OPCODE       = 0x020a
	IRDMA_AE_IB_REMOTE_ACCESS_ERROR      = 0x020d
	IRDMA_AE_IB_REMOTE_OP_ERROR          = 0x020e
	IRDMA_AE_DDP_UBE_MESSAGE_TOO_LONG    = 0x0303 // ..._DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER
	IRDMA_AE_DDP_UBE_INVALID_MO          = 0x0305
	IRDMA_AE_ROCE_RSP_LENGTH_ERROR       = 0x0316
	IRDMA_AE_INVALID_AH_ENTRY            = 0x0406
	IRDMA_AE_LLP_TOO_MANY_RETRIES        = 0x050a
	IRDMA_AE_LLP_DOUBT_REACHABILITY      = 0x050c
	IRDMA_AE_LLP_TOO_MANY_RNRS           = 0x050f
	IRDMA_AE_RESOURCE_EXHAUSTION         = 0x0520
	IRDMA_AE_RESET_NOT_SENT              = 0x0603
	IRDMA_AE_LCE_QP_CATASTROPHIC         = 0x0700
	IRDMA_AE_REMOTE_QP_CATASTROPHIC      = 0x0703
	IRDMA_AE_RCE_QP_CATASTROPHIC         = 0x0705
	IRDMA_AE_QP_SUSPEND_COMPLETE         = 0x0900
	aeSourceRQ, aeSourceRQ3              = 1, 3
	aeSourceSQ, aeSourceSQ7              = 5, 7
	aeSourceCQ                           = 2 // and 6, 10, 14
	aeSourceCQMask                       = 3
	aeSourceInbound, aeSourceInbound11   = 9, 11
	aeSourceOutbound, aeSourceOutbound15 = 13, 15
)

// Queues of a flush.
const (
	flushSQ = 1 << 61
	flushRQ = 1 << 62
)

// flushCodes are the minor codes that the flush entries get; 0: general.
type flushCodes struct{ sq, rq Status }

// impliesQP says that an event is of a QP whatever its source
// (ctrl.c:irdma_sc_get_next_aeqe).
func impliesQP(code uint16) bool {
	switch code {
	case IRDMA_AE_PRIV_OPERATION_DENIED, IRDMA_AE_STAG_ZERO_INVALID, IRDMA_AE_IB_INVALID_REQUEST,
		IRDMA_AE_WQE_UNEXPECTED_OPCODE, IRDMA_AE_IB_REMOTE_ACCESS_ERROR, IRDMA_AE_IB_REMOTE_OP_ERROR,
		IRDMA_AE_DDP_UBE_INVALID_MO, IRDMA_AE_ROCE_RSP_LENGTH_ERROR, IRDMA_AE_LLP_TOO_MANY_RETRIES,
		IRDMA_AE_LLP_TOO_MANY_RNRS, IRDMA_AE_LLP_DOUBT_REACHABILITY, IRDMA_AE_RESET_NOT_SENT,
		IRDMA_AE_LCE_QP_CATASTROPHIC, IRDMA_AE_QP_SUSPEND_COMPLETE,
		IRDMA_AE_UDA_XMIT_DGRAM_TOO_LONG, IRDMA_AE_UDA_XMIT_BAD_PD, IRDMA_AE_INVALID_AH_ENTRY:
		return true
	}
	return code >= IRDMA_AE_REMOTE_QP_CATASTROPHIC && code <= IRDMA_AE_RCE_QP_CATASTROPHIC
}

// flushCode is user.h:irdma_ae_to_qp_err_code, for older kernels
// hw.c:irdma_set_flush_fields.
func (k Kernel) flushCode(ae uint16) Status {
	switch ae {
	case IRDMA_AE_AMP_UNALLOCATED_STAG, IRDMA_AE_AMP_INVALID_STAG, IRDMA_AE_AMP_BAD_QP, IRDMA_AE_AMP_BAD_PD,
		IRDMA_AE_AMP_BAD_STAG_KEY, IRDMA_AE_AMP_BAD_STAG_INDEX, IRDMA_AE_AMP_BOUNDS_VIOLATION,
		IRDMA_AE_AMP_RIGHTS_VIOLATION, IRDMA_AE_AMP_TO_WRAP, IRDMA_AE_PRIV_OPERATION_DENIED:
		return LocProtErr
	case IRDMA_AE_WQE_UNEXPECTED_OPCODE, IRDMA_AE_UDA_XMIT_BAD_PD:
		return LocQPOpErr
	case IRDMA_AE_UDA_XMIT_DGRAM_TOO_LONG, IRDMA_AE_DDP_UBE_INVALID_MO, IRDMA_AE_DDP_UBE_MESSAGE_TOO_LONG:
		return LocLenErr
	case IRDMA_AE_AMP_INVALIDATE_NO_RIGHTS, IRDMA_AE_IB_REMOTE_ACCESS_ERROR:
		return RemAccessErr
	case IRDMA_AE_AMP_MWBIND_INVALID_RIGHTS, IRDMA_AE_AMP_MWBIND_BIND_DISABLED, IRDMA_AE_AMP_MWBIND_INVALID_BOUNDS,
		IRDMA_AE_AMP_MWBIND_VALID_STAG:
		return MWBindErr
	case IRDMA_AE_LLP_TOO_MANY_RETRIES:
		return RetryExcErr
	case IRDMA_AE_IB_INVALID_REQUEST:
		return RemInvReqErr
	case IRDMA_AE_ROCE_RSP_LENGTH_ERROR, IRDMA_AE_IB_REMOTE_OP_ERROR:
		return RemOpErr
	case IRDMA_AE_LCE_QP_CATASTROPHIC:
		return FatalErr
	case IRDMA_AE_LLP_TOO_MANY_RNRS:
		if k.KnowsRNRs {
			return RNRRetryExc
		}
	}
	if k.KnowsRNRs && ae >= IRDMA_AE_REMOTE_QP_CATASTROPHIC && ae <= IRDMA_AE_RCE_QP_CATASTROPHIC {
		return FatalErr
	}
	return WRFlushErr
}

// react is hw.c:irdma_process_aeq for one event of a QP: it notes what the
// driver does later.
func (r *IRDMA) react(ae AE) {
	sq := ae.Source == aeSourceSQ || ae.Source == aeSourceSQ7
	rq := ae.Source == aeSourceRQ || ae.Source == aeSourceRQ3
	remote := ae.Source >= aeSourceInbound && ae.Source&1 != 0
	if !sq && !rq && !remote && (!impliesQP(ae.Code) || ae.Source&aeSourceCQMask == aeSourceCQ) {
		return
	}
	q := r.qps[ae.ID]
	if q == nil {
		return
	}
	q.hwState = ae.State
	switch ae.Code {
	case IRDMA_AE_QP_SUSPEND_COMPLETE, IRDMA_AE_RESET_NOT_SENT, IRDMA_AE_LLP_DOUBT_REACHABILITY, IRDMA_AE_RESOURCE_EXHAUSTION:
		return
	}
	code := r.Kernel.flushCode(ae.Code)
	q.fault = flushCodes{}
	if sq {
		q.fault.sq = code
	}
	if rq {
		q.fault.rq = code
	}
	r.failed = append(r.failed, q)
}

// Work takes all interrupts there are and then does what the driver's workers
// do: QPs that an event told of go to ERROR and are flushed
// (cm.c:irdma_cm_disconn_true).
func (r *IRDMA) Work() error {
	for _, v := range r.vectors {
		if v.Take() == 0 {
			continue
		}
		if err := r.Service(v); err != nil {
			return err
		}
	}
	for len(r.failed) > 0 {
		q := r.failed[0]
		r.failed = r.failed[1:]
		if q.gone || q.State == IRDMA_QP_STATE_ERROR {
			continue
		}
		if _, err := q.Modify(IRDMA_QP_STATE_ERROR); err != nil {
			return err
		}
	}
	return r.F.Err()
}

// Flush completes what is posted with one entry per queue
// (hw.c:irdma_flush_wqes).
func (q *QP) Flush() (Completion, error) {
	c, err := q.flush(flushSQ|flushRQ, q.fault)
	q.flushed = true
	return c, err
}

// flush is ctrl.c:irdma_sc_qp_flush_wqes.
func (q *QP) flush(queues uint64, codes flushCodes) (Completion, error) {
	const userCodes = 1 << 60
	sq, rq := max(codes.sq, WRFlushErr), max(codes.rq, WRFlushErr)
	return q.r.Exec(IRDMA_CQP_OP_FLUSH_WQES, WQE{
		2: uint64(rq) | flushMajor<<16 | uint64(sq)<<32 | flushMajor<<48,
		3: uint64(q.ID) | userCodes | queues})
}

// PollFor polls the queue until n completions came, and does the driver's work
// while there is none. It stops at the first error of each.
func (q *CQ) PollFor(n int, each func(WC) error) error {
	var failure error
	err := q.r.F.poll("work completions", func() bool {
		for {
			wc, ok, err := q.Poll()
			if failure = err; err != nil {
				return true
			}
			if !ok {
				failure = q.r.Work()
				return failure != nil
			}
			n--
			if failure = each(wc); failure != nil || n == 0 {
				return true
			}
		}
	})
	if failure != nil {
		return failure
	}
	return err
}
