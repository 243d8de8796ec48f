// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// QP types and states of the control WQEs (irdma/type.h, defs.h).
const (
	qpTypeRC = 3
	qpTypeUD = 4

	IRDMA_QP_STATE_IDLE  = 1
	IRDMA_QP_STATE_RTS   = 2
	IRDMA_QP_STATE_RTR   = 4
	IRDMA_QP_STATE_ERROR = 6

	qpOrdValid      = 1 << 42
	qpCQNumValid    = 1 << 47
	qpTypeBit       = 48
	qpMACValid      = 1 << 51
	qpRemoveHash    = 1 << 55
	qpARPIndexValid = 1 << 59
	qpStateBit      = 60

	qpCtxSize   = 256
	qpQuantum   = 32
	qpQuanta    = 64 // of either queue
	qpSizeEnc   = 4  // 4 << 4 quanta
	roceUDPPort = 4791
)

// QP is a queue pair with contiguous rings.
type QP struct {
	ID    uint32
	State uint8

	r              *IRDMA
	kind           uint64
	sendCQ, recvCQ *CQ
	ctx, shadow    *Buf
	sq, rq         *Buf
	qsHandle       uint16
	arp            uint16
	dest           uint32
	compCtx        uint64
	sqNext, rqNext int
}

// CreateQP makes a reliable connected QP on its completion queues, IDLE.
func (r *IRDMA) CreateQP(send, recv *CQ) (*QP, error) {
	q, err := r.createQP(r.nextQP, qpTypeRC, send, recv)
	if err == nil {
		r.nextQP++
	}
	return q, err
}

func (r *IRDMA) createQP(id uint32, kind uint64, send, recv *CQ) (*QP, error) {
	q := &QP{r: r, ID: id, kind: kind, sendCQ: send, recvCQ: recv}
	r.pointers += 0x800
	q.compCtx = 0xffff_8882_0000_0000 + r.pointers
	q.ctx = r.mem.own(r.F.alloc(qpCtxSize))
	q.shadow = r.mem.own(r.F.alloc(shadowSize))
	q.sq = r.mem.own(r.F.alloc(qpQuanta * qpQuantum))
	q.rq = r.mem.own(r.F.alloc(qpQuanta * qpQuantum))
	fail := func(err error) (*QP, error) {
		q.free()
		return nil, err
	}
	if r.Kernel.NodesBeforeQP {
		if err := r.useNodes(q); err != nil {
			return fail(err)
		}
	}
	q.fillContext()
	w := q.wqe(qpMACValid | qpCQNumValid | IRDMA_QP_STATE_IDLE<<qpStateBit)
	if _, err := r.Exec(IRDMA_CQP_OP_CREATE_QP, w); err != nil {
		return fail(err)
	}
	q.State = IRDMA_QP_STATE_IDLE
	if !r.Kernel.NodesBeforeQP {
		if err := r.useNodes(q); err != nil {
			return fail(err)
		}
	}
	return q, nil
}

func (q *QP) free() { q.r.mem.free(q.ctx, q.shadow, q.sq, q.rq) }

func (q *QP) wqe(header uint64) WQE {
	return WQE{2: q.ctx.IOVA, 3: uint64(q.ID) | q.kind<<qpTypeBit | header, 5: q.shadow.IOVA}
}

// fillContext is ctrl.c:irdma_sc_qp_setctx_roce_gen_2 with the values that
// verbs.c gives it.
func (q *QP) fillContext() {
	const (
		insertIPv4   = 1 << 3
		isQP1        = 1 << 6
		pd           = 4
		mtu          = 1024
		psn          = 0x123456
		lsn          = 0xffff
		window       = 0x400
		qkey         = 0x80010000
		localIP      = 0xc0000201
		destIP       = 0xc0000202
		udPrivCQ     = 1 << 19
		writeReadRsp = 1 << 20
		readOK       = 1 << 21
		bind         = 1 << 23
		fastReg      = 1 << 24
		privileged   = 1 << 25
	)
	var c [qpCtxSize / 8]uint64
	c[0] = insertIPv4
	if q.ID == 1 {
		c[0] |= isQP1
	}
	c[1], c[2] = q.sq.IOVA, q.rq.IOVA
	c[3] = 0x40 | qpSizeEnc<<8 | qpSizeEnc<<12 | 0xc000<<32 | roceUDPPort<<48
	c[4] = destIP
	c[6] = mtu<<16 | uint64(q.arp)<<48
	c[7] = 0xffff<<32 | pd<<48
	c[8] = uint64(q.dest) | qkey<<32
	c[10] = psn | lsn<<32
	c[11] = psn
	c[12] = psn | psn<<32
	c[14] = window << 32
	c[16] = 7<<48 | 7<<54 | 5<<57
	c[17] = uint64(q.sendCQ.ID) | uint64(q.recvCQ.ID)<<32
	c[19] = macWord(q.r.ICE.MAC) << 16
	c[20] = 16 | 1<<16 | udPrivCQ | writeReadRsp | readOK | fastReg | privileged
	if q.r.Kernel.Binds {
		c[20] |= bind
	}
	c[21] = q.compCtx
	c[22] = uint64(q.qsHandle) << 16
	c[23] = localIP
	for n, w := range c {
		q.ctx.Store64(8*n, w)
	}
}

// Modify takes the QP to a state (verbs.c:irdma_modify_qp_roce). To ERROR it
// also flushes both queues; the completion is that of the flush.
func (q *QP) Modify(state uint8) (Completion, error) {
	header := uint64(state) << qpStateBit
	switch state {
	case IRDMA_QP_STATE_RTR:
		header |= qpARPIndexValid | qpCQNumValid
	case IRDMA_QP_STATE_RTS:
		header |= qpARPIndexValid | qpCQNumValid | qpOrdValid
	}
	q.fillContext()
	c, err := q.r.Exec(IRDMA_CQP_OP_MODIFY_QP, q.wqe(header))
	if err != nil {
		return c, err
	}
	q.State = state
	if state == IRDMA_QP_STATE_ERROR {
		return q.Flush()
	}
	return c, nil
}

// Flush completes what is posted with one entry per queue
// (ctrl.c:irdma_sc_qp_flush_wqes).
func (q *QP) Flush() (Completion, error) {
	const userCodes, sq, rq, flushGeneral = 1 << 60, 1 << 61, 1 << 62, 0x0001_0001
	return q.r.Exec(IRDMA_CQP_OP_FLUSH_WQES, WQE{2: flushGeneral<<32 | flushGeneral,
		3: uint64(q.ID) | userCodes | sq | rq})
}

// Connect takes a new QP to RTS with the port itself as its peer.
func (q *QP) Connect(dest uint32) error {
	q.dest, q.arp = dest, LocalARP
	for _, state := range []uint8{IRDMA_QP_STATE_IDLE, IRDMA_QP_STATE_RTR, IRDMA_QP_STATE_RTS} {
		if _, err := q.Modify(state); err != nil {
			return fmt.Errorf("QP %d to state %d: %w", q.ID, state, err)
		}
	}
	return nil
}

// Destroy removes the QP as verbs.c:irdma_destroy_qp does.
func (q *QP) Destroy() error {
	toError := q.State == IRDMA_QP_STATE_RTS
	if q.r.Kernel.ErrorBeforeDestroy {
		toError = q.State >= IRDMA_QP_STATE_IDLE && q.State != IRDMA_QP_STATE_ERROR
	}
	if toError {
		if _, err := q.Modify(IRDMA_QP_STATE_ERROR); err != nil {
			return err
		}
	}
	if _, err := q.r.Exec(IRDMA_CQP_OP_DESTROY_QP, q.wqe(qpRemoveHash)); err != nil {
		return err
	}
	q.free()
	return q.r.leaveNodes()
}

// PostWrite puts an empty, signalled RDMA write into the send queue, on its
// first pass, and does not ring.
func (q *QP) PostWrite() {
	const opWrite, signalled = 0x00, 1 << 62
	q.sq.Store64(q.sqNext*qpQuantum+24, opWrite<<wqeOpcodeBit|signalled|wqeValid)
	q.sqNext++
}

// PostReceive puts an empty buffer into the receive queue, on its first pass.
func (q *QP) PostReceive() {
	q.rq.Store64(q.rqNext*qpQuantum+8, wqeValid)
	q.rq.Store64(q.rqNext*qpQuantum+24, wqeValid)
	q.rqNext++
}

// createGSI is what ib_mad does when the device is registered: QP 1 and its CQ.
func (r *IRDMA) createGSI() error {
	const entries = 1024
	var err error
	if r.gsiCQ, err = r.CreateCQ(entries, 0, false); err != nil {
		return err
	}
	if r.gsi, err = r.createQP(1, qpTypeUD, r.gsiCQ, r.gsiCQ); err != nil {
		return err
	}
	for _, state := range []uint8{IRDMA_QP_STATE_IDLE, IRDMA_QP_STATE_RTR, IRDMA_QP_STATE_RTS} {
		if _, err := r.gsi.Modify(state); err != nil {
			return err
		}
	}
	r.gsiCQ.Arm(false)
	return r.F.Err()
}

func (r *IRDMA) destroyGSI() error {
	if r.gsi != nil {
		if err := r.gsi.Destroy(); err != nil {
			return err
		}
		r.gsi = nil
	}
	if r.gsiCQ != nil {
		if err := r.gsiCQ.Destroy(); err != nil {
			return err
		}
		r.gsiCQ = nil
	}
	return nil
}
