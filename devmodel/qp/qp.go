// SPDX-License-Identifier: Apache-2.0

// Package qp holds the queue pairs as objects: what the driver said of them,
// their state, and the flush of what is posted on them.
//
// Contract and traps:
//   - A QP acts on the copy of its context latched at the last state change:
//     the driver rewrites the one in memory at every verb, also at those it
//     issues no command for, and always with the initial PSNs.
//   - Nothing tells the device what is posted but the valid bits of the WQEs,
//     whose sense flips with every pass of the ring.
//   - A flush writes one CQE per queue, for the oldest posted WQE, and none
//     for a queue with nothing posted; software makes up the others.
//   - QPs destroyed are never written for again.
//   - The caller holds the device's control lock; nothing here locks.
package qp

import (
	"errors"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is what QPs need of guest memory.
type Memory interface {
	Read(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
	Store64(iova uint64, v uint64) error
}

// Buffers addresses queue memory; *hmc.Cache does.
type Buffers interface {
	Check(b hmc.Buffer, size uint64) error
	At(b hmc.Buffer, off uint64) (uint64, error)
}

// Completer takes completions and events; *event.Queues does.
type Completer interface {
	HasCQ(id uint32) bool
	Complete(cq uint32, e event.CQE, wanted bool) error
	Raise(e event.AE)
}

// Errors of the operations on QPs.
var (
	// ErrParameter: a field that cannot be.
	ErrParameter = errors.New("parameter out of range")
	// ErrState: the QP exists already, does not exist, or cannot go there.
	ErrState = errors.New("object in wrong state")
)

// State is a QP state as NEXTIWSTATE and IWSTATE encode it
// (type.h:IRDMA_QP_STATE_*).
type State uint8

// QP states.
const (
	Invalid   State = 0
	Idle      State = 1
	RTS       State = 2
	SQD       State = 3 // CLOSING in iWARP
	RTR       State = 4
	Terminate State = 5
	Error     State = 6
)

func (s State) String() string {
	if int(s) < 7 {
		return [...]string{"INVALID", "IDLE", "RTS", "SQD", "RTR", "TERMINATE", "ERROR"}[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Type is the QPTYPE of a QP (user.h:enum irdma_qp_type order in the WQE).
type Type uint8

// QP types.
const (
	IWARP  Type = 1
	UDA    Type = 2
	RoCERC Type = 3
	RoCEUD Type = 4
)

func (t Type) String() string {
	if t >= 1 && t <= 4 {
		return [...]string{"IWARP", "UDA", "RC", "UD"}[t-1]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// GSI is the number of the QP for general services.
const GSI = 1

// legal lists the state changes a MODIFY_QP may ask for; to ERROR it may
// always (verbs.c:irdma_modify_qp_roce).
var legal = map[State][]State{
	Idle: {Idle, RTR},
	RTR:  {RTS},
	RTS:  {RTS, SQD},
	SQD:  {RTS},
}

// queue is the device's place in a QP's ring.
type queue struct {
	buf      hmc.Buffer
	stride   uint32 // bytes from one possible WQE to the next
	slots    uint32
	next     uint32 // slot of the next WQE
	polarity uint64 // valid bit of this pass
}

// QP is one queue pair.
type QP struct {
	ID     uint32
	Type   Type
	State  State
	Ctx    Context // latched copy
	Shadow uint64  // guest address of the doorbell shadow area
	Paused bool    // SUSPEND_QP

	sq, rq queue
}

// Config of a Table.
type Config struct {
	Mem     Memory
	Buffers Buffers
	Queues  Completer
	Emit    func(any) // may be nil
}

// Table is all QPs of one function.
type Table struct {
	mem  Memory
	bufs Buffers
	cqs  Completer
	emit func(any)
	qps  map[uint32]*QP
}

// New makes a Table without a QP.
func New(c Config) *Table {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	return &Table{mem: c.Mem, bufs: c.Buffers, cqs: c.Queues, emit: c.Emit, qps: map[uint32]*QP{}}
}

// Reset drops every QP.
func (t *Table) Reset(reg.Domain) { t.qps = map[uint32]*QP{} }

// Registers are the doorbells of QPs.
func (t *Table) Registers() []reg.Row {
	fields := []reg.Field{{Name: "PEQPID", Hi: 19, Lo: 0}, {Name: "WQE_DESC_INDEX", Hi: 31, Lo: 20}}
	write := func(_ int, v uint32) { t.doorbell(v & (1<<20 - 1)) }
	return []reg.Row{
		{Name: "PFPE_WQEALLOC", Offset: 0x504400, Source: "icrdma_hw.h:PFPE_WQEALLOC; uk.c:irdma_uk_qp_post_wr", Fields: fields, Write: write},
		// User programs' way to it, on a page that all of them share.
		{Name: "ICRDMA_DB_ADDR_OFFSET", Offset: 0x7F0000, Source: "icrdma_hw.h:ICRDMA_DB_ADDR_OFFSET", Fields: fields, Write: write},
	}
}

// doorbell says that QP id has new send WQEs. In states without a requester
// it changes nothing. Nothing executes WQEs yet, and that is said.
func (t *Table) doorbell(id uint32) {
	q := t.qps[id]
	switch {
	case q == nil:
		t.emit(UnknownQP{QP: id})
	case q.State == RTS:
		t.emit(SendNotExecuted{QP: id})
	}
}

// CreateArgs are the words of CREATE_QP beside the context.
type CreateArgs struct {
	ID      uint32
	Type    Type
	State   State
	Shadow  uint64
	Virtual bool // VQ: ring addresses in the context are PBLE indices
}

// Create adds a QP.
func (t *Table) Create(a CreateArgs, ctx Context) error {
	if t.qps[a.ID] != nil {
		return fmt.Errorf("QP %d exists: %w", a.ID, ErrState)
	}
	if a.Type != RoCERC && a.Type != RoCEUD {
		return fmt.Errorf("QP %d of type %v in RoCE mode: %w", a.ID, a.Type, ErrParameter)
	}
	if a.ID == 0 || a.ID == GSI && a.Type != RoCEUD {
		return fmt.Errorf("QP %d of type %v: %w", a.ID, a.Type, ErrParameter)
	}
	if a.State != Idle {
		return fmt.Errorf("QP %d created in state %v: %w", a.ID, a.State, ErrParameter)
	}
	if a.Shadow%8 != 0 {
		return fmt.Errorf("shadow area of QP %d at %#x is not aligned: %w", a.ID, a.Shadow, ErrParameter)
	}
	q := &QP{ID: a.ID, Type: a.Type, State: Idle, Ctx: ctx, Shadow: a.Shadow}
	if err := t.checkCQs(q.ID, &ctx); err != nil {
		return err
	}
	var err error
	if q.sq, err = t.newQueue(ctx.SQAddr(), ctx.SQQuanta()*quantum, quantum, a.Virtual); err != nil {
		return fmt.Errorf("send queue of QP %d: %w", a.ID, err)
	}
	if q.rq, err = t.newQueue(ctx.RQAddr(), ctx.RQQuanta()*quantum, ctx.RQWQESize(), a.Virtual); err != nil {
		return fmt.Errorf("receive queue of QP %d: %w", a.ID, err)
	}
	t.qps[a.ID] = q
	return nil
}

func (t *Table) newQueue(addr uint64, size, stride uint32, virtual bool) (queue, error) {
	q := queue{buf: hmc.Buffer{Base: addr}, stride: stride, slots: size / stride, polarity: 1}
	if virtual {
		if addr >= 1<<28 {
			return q, fmt.Errorf("PBLE index %#x: %w", addr, ErrParameter)
		}
		q.buf = hmc.Buffer{Virtual: true, First: uint32(addr)}
	} else if addr%quantum != 0 {
		return q, fmt.Errorf("base %#x is not aligned to a quantum: %w", addr, ErrParameter)
	}
	if q.slots == 0 {
		return q, fmt.Errorf("%d bytes hold no WQE of %d: %w", size, stride, ErrParameter)
	}
	if err := t.bufs.Check(q.buf, uint64(size)); err != nil {
		return q, fmt.Errorf("%w: %w", ErrParameter, err)
	}
	return q, nil
}

func (t *Table) checkCQs(id uint32, ctx *Context) error {
	for _, cq := range []uint32{ctx.SendCQ(), ctx.RecvCQ()} {
		if !t.cqs.HasCQ(cq) || cq == event.CCQ {
			t.emit(UnknownCQ{QP: id, CQ: cq})
			return fmt.Errorf("QP %d names CQ %d, which is none of its kind: %w", id, cq, ErrState)
		}
	}
	return nil
}

func (t *Table) find(id uint32) (*QP, error) {
	q := t.qps[id]
	if q == nil {
		return nil, fmt.Errorf("QP %d does not exist: %w", id, ErrState)
	}
	return q, nil
}

// ModifyArgs are the words of MODIFY_QP beside the context.
type ModifyArgs struct {
	ID        uint32
	State     State
	CQNumbers bool // CQNUMVALID
}

// Modify changes a QP's state and takes over from the context what that
// change allows. What hardware reloads is not known; this is what works with
// contexts that always carry the initial PSNs.
func (t *Table) Modify(a ModifyArgs, read func() (Context, error)) error {
	q, err := t.find(a.ID)
	if err != nil {
		return err
	}
	if a.State == Error {
		q.State = Error
		return nil
	}
	if !allowed(q.State, a.State) {
		t.emit(IllegalTransition{QP: q.ID, From: q.State, To: a.State})
		return fmt.Errorf("QP %d cannot go from %v to %v: %w", q.ID, q.State, a.State, ErrState)
	}
	if a.State == SQD {
		// Nothing is ever in flight here: it is drained.
		q.State = SQD
		t.raiseSuspended(q)
		return nil
	}
	ctx, err := read()
	if err != nil {
		return err
	}
	if ctx.geometryDiffers(&q.Ctx) {
		t.emit(GeometryChanged{QP: q.ID})
	}
	if !a.CQNumbers {
		ctx.keepWords(&q.Ctx, 136)
	} else if err := t.checkCQs(q.ID, &ctx); err != nil {
		return err
	}
	switch {
	case a.State == RTS && q.State == RTR:
		ctx.keepWords(&q.Ctx, 88) // packets may have come since RTR
	case a.State == RTS:
		ctx.keepWords(&q.Ctx, 80, 88, 96)
	}
	q.Ctx, q.State = ctx, a.State
	return nil
}

func allowed(from, to State) bool {
	for _, s := range legal[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Destroy removes a QP.
func (t *Table) Destroy(id uint32) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	delete(t.qps, q.ID)
	return nil
}

// Suspend stops a QP's requester and tells when it is drained, which is at
// once.
func (t *Table) Suspend(id uint32) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	q.Paused = true
	t.raiseSuspended(q)
	return nil
}

// Resume lets a suspended QP go on, under another scheduler leaf.
func (t *Table) Resume(id uint32, qsHandle uint16) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	if !q.Paused {
		return fmt.Errorf("QP %d is not suspended: %w", id, ErrState)
	}
	q.Paused = false
	q.Ctx.setQSHandle(qsHandle)
	return nil
}

// raiseSuspended reports state RTS: any other than IDLE or RTS would stop
// the driver's kernel users from posting (verbs.c:irdma_post_send).
func (t *Table) raiseSuspended(q *QP) {
	t.cqs.Raise(event.AE{Code: event.AEQPSuspendComplete, Source: event.AESrcNone,
		Context: q.Ctx.CompletionContext(), ID: q.ID, State: uint8(RTS)})
}

// Raise queues an asynchronous event about a QP on the driver's request.
func (t *Table) Raise(id uint32, code uint16, source uint8) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	t.cqs.Raise(event.AE{Code: code, Source: source, Context: q.Ctx.CompletionContext(), ID: q.ID, State: uint8(q.State)})
	return nil
}

// UsersOfCQ lists the QPs that complete to CQ id.
func (t *Table) UsersOfCQ(id uint32) (users []uint32) {
	for _, q := range t.qps {
		if q.Ctx.SendCQ() == id || q.Ctx.RecvCQ() == id {
			users = append(users, q.ID)
		}
	}
	return users
}

// Len is the number of QPs.
func (t *Table) Len() int { return len(t.qps) }
