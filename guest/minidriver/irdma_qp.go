// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/bits"
)

// QP types and states of the control WQEs (irdma/type.h, defs.h).
const (
	qpTypeRC = 3
	qpTypeUD = 4

	IRDMA_QP_STATE_IDLE  = 1
	IRDMA_QP_STATE_RTS   = 2
	IRDMA_QP_STATE_RTR   = 4
	IRDMA_QP_STATE_ERROR = 6

	qpOrdValid      = 1 << 42
	qpVQ            = 1 << 45
	qpCQNumValid    = 1 << 47
	qpTypeBit       = 48
	qpMACValid      = 1 << 51
	qpRemoveHash    = 1 << 55
	qpARPIndexValid = 1 << 59
	qpStateBit      = 60

	qpCtxSize   = 256
	qpQuantum   = 32
	sqReserved  = 258 // quanta that are never in use (IRDMA_SQ_RSVD)
	maxSGEs     = 13
	maxInline   = 101
	minWQSize   = 8     // quanta, times the quanta of a WQE
	maxWQSize   = 32768 // quanta
	roceUDPPort = 4791
)

// QPConfig is what a QP is created with.
type QPConfig struct {
	Send, Recv         *CQ
	PD                 uint32
	SendWRs, RecvWRs   int
	SendSGEs, RecvSGEs int
	Inline             int
	// User: rings in scattered pages and the doorbell page of programs, and
	// no privileges. Otherwise all is in one run, and STag 0 is all memory.
	User bool
}

// QPAttr are the attributes of a connection, as the QP context has them.
type QPAttr struct {
	DestQP            uint32
	ARP               uint16
	IPv6              bool
	LocalIP, DestIP   [4]uint32 // most significant word first; IPv4 in the last
	TrafficClass      uint8
	Tagged            bool // with VLANTag
	VLANTag           uint16
	MTU               int
	SendPSN, RecvPSN  uint32
	Retries, RNRTries uint8 // of 6 and 3 bits; 7 RNR tries never end
	ORD, IRD          uint8
	QKey              uint32 // of datagrams
}

// QP is a queue pair.
type QP struct {
	ID    uint32
	State uint8
	Attr  QPAttr
	Cfg   QPConfig

	r         *IRDMA
	kind      uint64
	ctx       *Buf
	mem       extent // send queue, receive queue, shadow area
	pbl       uint64 // of the queues, if they are by PBLEs
	pblPages  int
	rqOff     int
	shadowOff int
	qsHandle  uint16
	compCtx   uint64
	sq        sendQueue
	rq        recvQueue
	fault     flushCodes
	hwState   uint8 // of the last asynchronous event
	flushed   bool
	gone      bool
}

// roundDepth is a number of quanta as a ring has them
// (uk.c:irdma_get_sqdepth, irdma_get_rqdepth).
func roundDepth(quanta, shift int) int {
	return max(int(powerOfTwo(uint64(quanta))), minWQSize<<shift)
}

// wqeShift is uk.c:irdma_get_wqe_shift.
func wqeShift(sges, inline int) int {
	switch {
	case sges <= 1 && inline <= 8:
		return 0
	case sges < 4 && inline <= 39:
		return 1
	case sges < 8 && inline <= 101:
		return 2
	}
	return 3
}

// CreateQP makes a small reliable connected QP on its completion queues, IDLE.
func (r *IRDMA) CreateQP(send, recv *CQ) (*QP, error) {
	const pd = 4
	return r.NewQP(QPConfig{Send: send, Recv: recv, PD: pd, SendWRs: 16, RecvWRs: 16, SendSGEs: 1, RecvSGEs: 1})
}

// NewQP makes a reliable connected QP, IDLE.
func (r *IRDMA) NewQP(c QPConfig) (*QP, error) { return r.newQP(qpTypeRC, c) }

func (r *IRDMA) newQP(kind uint64, c QPConfig) (*QP, error) {
	limit := uint32(r.hmc.objects[IRDMA_HMC_IW_QP].Count)
	for n := uint32(0); ; n++ {
		if n == limit {
			return nil, fmt.Errorf("all %d QPs in use", limit)
		}
		id := r.nextQP
		if r.nextQP++; r.nextQP >= limit {
			r.nextQP = firstQP
		}
		if r.qps[id] == nil {
			return r.createQP(id, kind, c)
		}
	}
}

func (r *IRDMA) createQP(id uint32, kind uint64, c QPConfig) (*QP, error) {
	const (
		psn = 0x123456
		mtu = 1024
	)
	local := r.Address(false)
	q := &QP{r: r, ID: id, kind: kind, Cfg: c, Attr: QPAttr{MTU: mtu, SendPSN: psn, RecvPSN: psn,
		LocalIP: local, DestIP: local, Retries: 2, RNRTries: 2, ORD: 255, IRD: maxHWIRD, QKey: gsiQKey}}
	r.pointers += 0x800
	q.compCtx = 0xffff_8882_0000_0000 + r.pointers
	if err := q.allocate(); err != nil {
		q.free()
		return nil, err
	}
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
	if _, err := r.Exec(IRDMA_CQP_OP_CREATE_QP, q.wqe(qpMACValid|qpCQNumValid|IRDMA_QP_STATE_IDLE<<qpStateBit|q.vq())); err != nil {
		return fail(err)
	}
	q.State = IRDMA_QP_STATE_IDLE
	r.qps[id] = q
	if !r.Kernel.NodesBeforeQP {
		if err := r.useNodes(q); err != nil {
			return fail(err)
		}
	}
	return q, nil
}

// allocate lays the rings out: one run for a kernel QP
// (verbs.c:irdma_setup_kmode_qp), pages for a program's
// (verbs.c:irdma_setup_umode_qp, irdma_handle_q_mem).
func (q *QP) allocate() error {
	r, c := q.r, q.Cfg
	q.ctx = r.mem.own(r.F.alloc(qpCtxSize))
	q.sq.init(roundDepth(c.SendWRs<<wqeShift(c.SendSGEs+1, c.Inline)+sqReserved, 0))
	shift := wqeShift(c.RecvSGEs, 0)
	q.rq.init(roundDepth(c.RecvWRs<<shift+1, shift), shift)
	if q.sq.size > maxWQSize || q.rq.quanta() > maxWQSize {
		return fmt.Errorf("QP with %d and %d quanta", q.sq.size, q.rq.quanta())
	}
	q.rqOff = q.sq.size * qpQuantum
	if c.User {
		q.rqOff = int(roundUp(uint64(q.rqOff), pageSize))
		q.shadowOff = q.rqOff + int(roundUp(uint64(q.rq.quanta()*qpQuantum), pageSize))
	} else {
		q.shadowOff = q.rqOff + q.rq.quanta()*qpQuantum
		q.mem.bufs = []*Buf{r.mem.own(r.F.alloc(q.shadowOff + shadowSize))}
		return nil
	}
	q.mem.paged = true
	for range q.shadowOff/pageSize + 1 {
		q.mem.bufs = append(q.mem.bufs, r.mem.own(r.F.alloc(pageSize)))
	}
	if len(q.mem.bufs) == 3 { // one page each needs no list
		return nil
	}
	var err error
	if q.pbl, err = r.AllocPBLEs(len(q.mem.bufs)); err != nil {
		return err
	}
	q.pblPages = len(q.mem.bufs)
	for k, b := range q.mem.bufs {
		r.SetPBLE(q.pbl+uint64(k), b.IOVA)
	}
	return nil
}

func (q *QP) free() {
	q.gone = true
	delete(q.r.qps, q.ID)
	q.r.mem.free(q.ctx)
	q.r.mem.free(q.mem.bufs...)
	if q.pblPages > 0 {
		q.r.FreePBLEs(q.pbl, q.pblPages)
		q.pblPages = 0
	}
}

func (q *QP) vq() uint64 {
	if q.pblPages > 0 {
		return qpVQ
	}
	return 0
}

func (q *QP) wqe(header uint64) WQE {
	return WQE{2: q.ctx.IOVA, 3: uint64(q.ID) | q.kind<<qpTypeBit | header, 5: q.mem.iova(q.shadowOff)}
}

// ringWords are where the context says the queues are.
func (q *QP) ringWords() (sq, rq uint64) {
	if q.pblPages > 0 {
		return q.pbl, q.pbl + uint64(q.rqOff/pageSize)
	}
	return q.mem.iova(0), q.mem.iova(q.rqOff)
}

// wqSize is ctrl.c:irdma_get_encoded_wqe_size.
func wqSize(quanta int) uint64 { return uint64(bits.Len(uint(quanta)) - 3) }

// irdSize is ctrl.c:irdma_sc_get_encoded_ird_size.
func irdSize(ird uint8) uint64 {
	if ird == 0 {
		return 0
	}
	switch n := powerOfTwo(2 * uint64(ird)); {
	case n >= 256:
		return 4
	case n == 128:
		return 3
	case n >= 32:
		return 2
	case n >= 8:
		return 1
	}
	return 0
}

// fillContext is ctrl.c:irdma_sc_qp_setctx_roce_gen_2 with the values that
// verbs.c gives it.
func (q *QP) fillContext() {
	const (
		ipv4         = 1 << 3
		insertVLAN   = 1 << 5
		isQP1        = 1 << 6
		lsn          = 0xffff
		window       = 0x400
		udPrivCQ     = 1 << 19
		writeReadRsp = 1 << 20
		readOK       = 1 << 21
		bind         = 1 << 23
		fastReg      = 1 << 24
		privileged   = 1 << 25
		ackCredits   = 0x1e
		hopLimit     = 0x40
		rtoMin       = 5
		pkey         = 0xffff
	)
	a := &q.Attr
	var c [qpCtxSize / 8]uint64
	c[0] = uint64(q.rq.shift)<<8 | uint64(q.Cfg.PD>>16)<<20
	if !a.IPv6 {
		c[0] |= ipv4
	}
	if q.ID == 1 {
		c[0] |= isQP1
	}
	if a.Tagged {
		c[0] |= insertVLAN
		c[6] |= uint64(a.VLANTag) << 32
	}
	c[1], c[2] = q.ringWords()
	c[3] = hopLimit | wqSize(q.rq.quanta())<<8 | wqSize(q.sq.size)<<12 | uint64(a.TrafficClass)<<24 | uint64(q.sourcePort())<<32 | roceUDPPort<<48
	c[4] = uint64(a.DestIP[2])<<32 | uint64(a.DestIP[3])
	c[5] = uint64(a.DestIP[0])<<32 | uint64(a.DestIP[1])
	c[6] |= uint64(a.MTU)<<16 | uint64(a.ARP)<<48
	c[7] = ackCredits<<20 | pkey<<32 | uint64(q.Cfg.PD&0xffff)<<48
	c[8] = uint64(a.DestQP)
	if q.kind == qpTypeUD {
		c[8] |= uint64(a.QKey) << 32
	}
	psn := uint64(a.SendPSN)
	c[10] = psn | lsn<<32
	c[11] = uint64(a.RecvPSN)
	c[12] = psn | psn<<32
	c[14] = window << 32
	c[16] = uint64(a.Retries)<<48 | uint64(a.RNRTries)<<54 | rtoMin<<57
	c[17] = uint64(q.Cfg.Send.ID) | uint64(q.Cfg.Recv.ID)<<32
	c[19] = macWord(q.r.ICE.MAC) << 16
	c[20] = uint64(a.ORD) | irdSize(a.IRD)<<16 | writeReadRsp | readOK
	if !q.Cfg.User {
		c[20] |= udPrivCQ | fastReg | privileged
	}
	if q.r.Kernel.Binds {
		c[20] |= bind
	}
	c[21] = q.compCtx
	c[22] = uint64(q.qsHandle) << 16
	c[23] = uint64(a.LocalIP[2])<<32 | uint64(a.LocalIP[3])
	c[24] = uint64(a.LocalIP[0])<<32 | uint64(a.LocalIP[1])
	c[26] = uint64(a.ARP)
	for n, w := range c {
		q.ctx.Store64(8*n, w)
	}
}

// Modify takes the QP to a state (verbs.c:irdma_modify_qp_roce). To ERROR it
// also flushes both queues; the completion is that of the flush.
func (q *QP) Modify(state uint8) (Completion, error) {
	header := uint64(state)<<qpStateBit | q.vq()
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

// ToRTS takes a new QP through INIT and RTR to RTS.
func (q *QP) ToRTS() error {
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
	q.Cfg.Send.clean(q)
	if q.Cfg.Recv != q.Cfg.Send {
		q.Cfg.Recv.clean(q)
	}
	q.free()
	return q.r.leaveNodes()
}

// createGSI is what ib_mad does when the device is registered: QP 1 and its CQ.
func (r *IRDMA) createGSI() error {
	const entries = 1024
	var err error
	if r.gsiCQ, err = r.CreateCQ(entries, 0, false); err != nil {
		return err
	}
	c := QPConfig{Send: r.gsiCQ, Recv: r.gsiCQ, PD: 1, SendWRs: 128, RecvWRs: 512, SendSGEs: 2, RecvSGEs: 1}
	if r.gsi, err = r.createQP(1, qpTypeUD, c); err != nil {
		return err
	}
	if err := r.gsi.ToRTS(); err != nil {
		return err
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
