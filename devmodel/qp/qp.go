// SPDX-License-Identifier: Apache-2.0

// Package qp holds the queue pairs: what the driver said of them, their state,
// their rings, and the step in which an engine shard moves their data.
//
// Contract and traps:
//   - A QP acts on the copy of its context latched at the last state change:
//     the driver rewrites the one in memory at every verb, also at those it
//     issues no command for, and always with the initial PSNs.
//   - Nothing tells the device what is posted but the valid bits of the WQEs,
//     whose sense flips with every pass of the ring. The doorbell carries no
//     index, and older drivers leave it out while the shadow tail lags: see
//     send.go. The receive queue has no doorbell at all.
//   - An error stops the QP and raises an asynchronous event; no completion
//     tells of it. A flush then writes one CQE per queue, for the oldest WQE
//     not completed, and none for a queue without; software makes up the
//     others.
//   - Methods of Table are called with the device's control lock held. Steps
//     run without it, on any shard. Each QP has a lock: control operations
//     and its own steps take it, nobody ever takes two, and CQ and event
//     queue locks come after it. Hold keeps a QP at rest, so that operations
//     on it need not wait for a step; Reset waits for none.
//   - Other QPs' steps may be copying from or to memory on a QP's behalf when
//     its end returns. Destroy, a change to ERROR and Halt therefore ask for
//     grace (package grace) before the driver is told.
//   - A connection's runs go one of three ways, chosen anew for each: into the
//     inbox of a QP of the same card if the destination's MAC is the port's own;
//     into that of a QP of another card of the process if that is Near; else as
//     frames through the Wire. A QP of another card is another guest's: its
//     memory, regions and maps may go at any time, and only owner.generation and
//     the shared grace domain stand between. Table.Receive runs in other cards'
//     steps: it takes no lock but that of an inbox.
//   - Frames that wait for QPs are bounded by number and by memory (buffer.go);
//     beyond, they are dropped. Nobody waits for a receiver, but a QP that sends
//     payload where the Wire says that there is a crowd.
//   - Datagrams are frames always, also from the card to itself, and have one way
//     in: Receive. It queues them; the QP's step looks for a receive WQE, and
//     drops what finds none or does not fit: who sends datagrams cannot stop a
//     QP. Address handles and multicast groups are copies that steps read
//     without the control lock (handles.go, groups.go).
//   - A work request, or a peer's, that ends an STag may find it in use by
//     other QPs' steps. A step cannot wait: the QP goes on, and the request
//     completes, when those steps are over (settle.go).
package qp

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/reg"
	"github.com/vrnic/vrnic/devmodel/ring"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// Memory is what QPs need of guest memory for their queues.
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

// CQ takes completions; *event.CQ does.
type CQ interface {
	Post(event.Entry) bool
}

// Queues has the CQs and takes asynchronous events.
type Queues interface {
	CQ(id uint32) CQ // nil: there is none
	AE(event.AE)
}

// Regions checks and translates STags; *mr.Table does.
type Regions interface {
	Resolve(segs []mr.Segment, s mr.Subject, stag uint32, to uint64, n uint32, need mr.Access, remote bool) ([]mr.Segment, *mr.Fault)
	Check(s mr.Subject, stag uint32, to, n uint64, need mr.Access, remote bool) *mr.Fault
	STags
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

// receives tells whether requests are taken in this state.
func (s State) receives() bool { return s == RTR || s == RTS || s == SQD }

// sends tells whether responses are taken in this state.
func (s State) sends() bool { return s == RTS || s == SQD }

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

// maxQPs bounds QP numbers: those an AEQE can carry.
const maxQPs = 1 << 18

// QP is one queue pair.
type QP struct {
	table *Table
	id    uint32
	typ   Type
	task  engine.Task
	inbox inbox

	// Read by other QPs' steps, without mu.
	address atomic.Pointer[address] // of RC
	keys    atomic.Pointer[keys]    // of UD
	owner   owner
	dead    atomic.Bool // destroyed, or its function reset
	held    atomic.Bool // takes no steps, see Hold

	asked State // by the driver; guarded by the control lock

	mu     sync.Mutex
	state  State
	ctx    Context // changed under the control lock, too
	shadow uint64  // guest address of the doorbell shadow area
	paused bool    // SUSPEND_QP
	frozen bool    // UPLOAD_CONTEXT with FREEZEQP
	drain  bool    // AE 0x0900 is due when nothing is in work

	sq, rq         queue
	tail           uint32 // HW_SQ_TAIL as last stored
	receiving      bool   // a receive WQE is taken and not completed
	receive        uint32 // its index in quanta
	flushed        struct{ sq, rq bool }
	sendCQ, recvCQ CQ

	// The data path's; nil before RTR.
	ep     *roce.Endpoint // of RC
	ud     *datagrams     // of UD
	counts roce.Stats     // as far as they are in the table's counters
	// What the Endpoint counts as sent but did not leave.
	uncounted traffic
	shard     *engine.Shard // in a step
	work      *scratch      // in a step: the shard's
	toSend    uint32        // bytes that the step may still put on the wire
	unsent    bool          // it had more
	unread    unread        // of a response that it sent
	crowded   bool          // it had more, but it is for later

	notified time.Duration // when a notification of congestion was sent; 0: never

	// Waits for others' use of STags that the QP has ended: the last one
	// begun, those of the send queue and of the peer, and the last one over.
	waits, bySelf, byPeer uint64
	waited                atomic.Uint64
}

// Config of a Table.
type Config struct {
	Mem     Memory
	Payload *guestmem.Memory // where registered memory lies
	MayDMA  func() bool      // whether the function may touch memory; nil: always
	Buffers Buffers
	Regions Regions
	Queues  Queues
	Engine  *engine.Engine
	MAC     func() [6]byte // the port's own address
	Wire    Wire           // nil: a segment without other stations
	Notes   Notes          // nil: nobody captures
	Near    Near           // nil: every way to another card is by frames
	Timing  Timing         // zero value: DefaultTiming
	Emit    func(any)      // may be nil
}

// Table is all QPs of one function.
type Table struct {
	cfg  Config
	emit func(any)
	// watched: somebody gets the events. Those of packets are made for nobody
	// else.
	watched bool
	qps     map[uint32]*QP // guarded by the control lock
	// The same for steps, in pages.
	pages [maxQPs / pageQPs]atomic.Pointer[page]

	pacer   Pacer  // nil: the wire takes all
	waiter  waiter // for the end of others' steps
	buffers buffers
	scratch []*scratch // by shard
	store   roce.Store
	parcels ring.Pool[parcel]

	handles handles
	groups  groups

	counters  counters
	instances [StatsInstances]atomic.Pointer[counters]
}

const pageQPs = 512

type page [pageQPs]atomic.Pointer[QP]

// New makes a Table without a QP.
func New(c Config) *Table {
	watched := c.Emit != nil
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	if c.MayDMA == nil {
		c.MayDMA = func() bool { return true }
	}
	if c.MAC == nil {
		c.MAC = func() [6]byte { return [6]byte{} }
	}
	if c.Timing == (Timing{}) {
		c.Timing = DefaultTiming()
	}
	t := &Table{cfg: c, emit: c.Emit, watched: watched, qps: map[uint32]*QP{}}
	t.pacer, _ = c.Wire.(Pacer)
	if c.Engine != nil {
		t.waiter.grace = c.Engine.Grace()
		for range c.Engine.Shards() {
			t.scratch = append(t.scratch, new(scratch))
		}
	}
	return t
}

// Reset ends every QP and waits for none: what their steps have begun is over
// after grace.
func (t *Table) Reset(reg.Domain) {
	for id := range t.qps {
		q := t.unlink(id)
		if q.mu.TryLock() {
			q.stop()
			q.mu.Unlock()
		} else {
			q.task.Schedule() // the step that runs may set a deadline yet
		}
		q.inbox.close(nil)
	}
	t.counters.reset()
	for i := range t.instances {
		t.instances[i].Store(nil)
	}
}

// unlink makes a QP unreachable: no step of it that begins from then on does
// anything.
func (t *Table) unlink(id uint32) *QP {
	q := t.qps[id]
	delete(t.qps, id)
	t.pages[id/pageQPs].Load()[id%pageQPs].Store(nil)
	q.dead.Store(true)
	q.disown()
	return q
}

// lookup finds a QP from any goroutine.
func (t *Table) lookup(id uint32) *QP {
	if id >= maxQPs {
		return nil
	}
	p := t.pages[id/pageQPs].Load()
	if p == nil {
		return nil
	}
	return p[id%pageQPs].Load()
}

func (t *Table) link(q *QP) {
	t.qps[q.id] = q
	p := t.pages[q.id/pageQPs].Load()
	if p == nil {
		p = new(page)
		t.pages[q.id/pageQPs].Store(p)
	}
	p[q.id%pageQPs].Store(q)
}

// Registers are the doorbells of QPs.
func (t *Table) Registers() []reg.Row {
	fields := []reg.Field{{Name: "PEQPID", Hi: 19, Lo: 0}, {Name: "WQE_DESC_INDEX", Hi: 31, Lo: 20}}
	write := func(user bool) func(int, uint32) {
		return func(_ int, v uint32) { t.doorbell(v&(1<<20-1), user) }
	}
	return []reg.Row{
		{Name: "PFPE_WQEALLOC", Offset: 0x504400, Source: "icrdma_hw.h:PFPE_WQEALLOC; uk.c:irdma_uk_qp_post_wr", Fields: fields, Write: write(false)},
		// User programs' way to it, on a page that all of them share.
		{Name: "ICRDMA_DB_ADDR_OFFSET", Offset: 0x7F0000, Source: "icrdma_hw.h:ICRDMA_DB_ADDR_OFFSET", Fields: fields, Write: write(true)},
	}
}

// doorbell says that QP id has new send WQEs: its step looks. In states
// without a requester that changes nothing.
func (t *Table) doorbell(id uint32, user bool) {
	q := t.qps[id]
	if q == nil {
		t.emit(UnknownQP{QP: id, User: user})
		return
	}
	q.task.Ring()
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
	if a.ID == 0 || a.ID >= maxQPs || a.ID == GSI && a.Type != RoCEUD {
		return fmt.Errorf("QP %d of type %v: %w", a.ID, a.Type, ErrParameter)
	}
	if a.State != Idle {
		return fmt.Errorf("QP %d created in state %v: %w", a.ID, a.State, ErrParameter)
	}
	if a.Shadow%8 != 0 {
		return fmt.Errorf("shadow area of QP %d at %#x is not aligned: %w", a.ID, a.Shadow, ErrParameter)
	}
	q := &QP{table: t, id: a.ID, typ: a.Type, asked: Idle, state: Idle, ctx: ctx, shadow: a.Shadow}
	if err := q.latchCQs(&ctx); err != nil {
		return err
	}
	var err error
	if q.sq, err = t.newQueue(ctx.SQAddr(), uint32(ctx.SQBytes()), quantum, a.Virtual); err != nil {
		return fmt.Errorf("send queue of QP %d: %w", a.ID, err)
	}
	if q.rq, err = t.newQueue(ctx.RQAddr(), uint32(ctx.RQBytes()), ctx.RQWQESize(), a.Virtual); err != nil {
		return fmt.Errorf("receive queue of QP %d: %w", a.ID, err)
	}
	q.owner.table = t
	q.task.Init(t.cfg.Engine, q, q.id)
	t.link(q)
	return nil
}

// latchCQs takes the CQs that a context names.
func (q *QP) latchCQs(ctx *Context) error {
	var cqs [2]CQ
	for i, id := range []uint32{ctx.SendCQ(), ctx.RecvCQ()} {
		if cqs[i] = q.table.cfg.Queues.CQ(id); cqs[i] == nil || id == event.CCQ {
			q.table.emit(UnknownCQ{QP: q.id, CQ: id})
			return fmt.Errorf("QP %d names CQ %d, which is none of its kind: %w", q.id, id, ErrState)
		}
	}
	q.sendCQ, q.recvCQ = cqs[0], cqs[1]
	return nil
}

func (t *Table) find(id uint32) (*QP, error) {
	q := t.qps[id]
	if q == nil {
		return nil, fmt.Errorf("QP %d does not exist: %w", id, ErrState)
	}
	return q, nil
}

// Destroy removes a QP. Nothing is written for it any more, but others may
// still read its memory until grace.
func (t *Table) Destroy(id uint32) error {
	if _, err := t.find(id); err != nil {
		return err
	}
	q := t.unlink(id)
	q.mu.Lock()
	t.unfinished(q)
	q.stop()
	q.count()
	q.mu.Unlock()
	q.inbox.close(nil)
	return nil
}

// unfinished reports a QP that ends while it works, or with work that nobody
// flushed. The caller holds mu.
func (t *Table) unfinished(q *QP) {
	if q.asked == RTS && q.state == RTS {
		t.emit(DestroyedWorking{QP: q.id})
		return
	}
	if q.state != Error || q.flushed.sq && q.flushed.rq {
		return
	}
	q.sq.forget()
	q.rq.forget()
	_, _, sq, err := t.header(&q.sq)
	if err != nil {
		return
	}
	if _, _, rq, err := t.header(&q.rq); err == nil && (sq || rq) {
		t.emit(DestroyedUnflushed{QP: q.id, SQ: sq, RQ: rq})
	}
}

// disown makes payload that the QP has sent, and nobody has copied yet, as
// good as lost.
func (q *QP) disown() { q.owner.generation.Add(1) }

// stop ends the data path of a QP. The caller holds mu.
func (q *QP) stop() {
	if q.ep != nil {
		q.ep.Stop()
		q.task.SetDeadline(0)
	}
}

// Raise queues an asynchronous event about a QP on the driver's request.
func (t *Table) Raise(id uint32, code uint16, source uint8) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.raise(code, source, 0)
	return nil
}

// raise tells the driver of an event. The caller holds mu.
func (q *QP) raise(code uint16, source uint8, index uint32) {
	if q.dead.Load() {
		return
	}
	q.table.cfg.Queues.AE(event.AE{Code: code, Source: source, Context: q.ctx.CompletionContext(), ID: q.id,
		WQE: uint16(index), State: uint8(q.state)})
}

// UsersOfCQ lists the QPs that complete to CQ id.
func (t *Table) UsersOfCQ(id uint32) (users []uint32) {
	for _, q := range t.qps {
		if q.ctx.SendCQ() == id || q.ctx.RecvCQ() == id {
			users = append(users, q.id)
		}
	}
	return users
}

// rungPasses bounds the steps that Rung waits for.
const rungPasses = 64

// Rung lists who completes to CQ id and has steps before it, as QPs have whose
// doorbell was rung. The returned function, which is called without the control
// lock, waits until they have come to what was posted then, or have taken many
// steps towards it; nil: there is nothing to wait for.
//
// Hardware is done with a doorbell sooner than with a command that comes behind
// it: what a program posts before it has a CQ made smaller completes to the old
// buffer, and does not overflow the new one.
func (t *Table) Rung(id uint32) (wait func()) {
	if t.cfg.Engine == nil || t.cfg.Engine.Manual() {
		return nil
	}
	var tasks []*engine.Task
	for _, user := range t.UsersOfCQ(id) {
		if task := &t.qps[user].task; !task.Idle() {
			tasks = append(tasks, task)
		}
	}
	if tasks == nil {
		return nil
	}
	return func() {
		for range rungPasses {
			if tasks = slices.DeleteFunc(tasks, (*engine.Task).Idle); len(tasks) == 0 {
				return
			}
			t.cfg.Engine.Pass()
		}
	}
}

// working tells whether the driver has a QP send or receive.
func (q *QP) working() bool { return q.asked == RTR || q.asked == RTS }

// user finds a QP for which is true. The caller holds the control lock.
func (t *Table) user(is func(*QP) bool) (id uint32, ok bool) {
	for _, q := range t.qps {
		if is(q) {
			return q.id, true
		}
	}
	return 0, false
}

// UserOfHandle finds a QP that sends by a work scheduler leaf.
func (t *Table) UserOfHandle(handle uint16) (id uint32, ok bool) {
	return t.user(func(q *QP) bool { return q.working() && !q.paused && q.ctx.QSHandle() == handle })
}

// UserOfARP finds a QP that sends by an entry of the ARP table.
func (t *Table) UserOfARP(index uint16) (id uint32, ok bool) {
	return t.user(func(q *QP) bool { return q.working() && q.typ == RoCERC && q.ctx.ARPIndex() == index })
}

// UserOfPushPage finds a QP whose program may write to a push page.
func (t *Table) UserOfPushPage(page uint32) (id uint32, ok bool) {
	return t.user(func(q *QP) bool { p, ok := q.ctx.PushPage(); return ok && p == page && q.asked != Error })
}

// IDs lists the numbers of the QPs, in no order.
func (t *Table) IDs() iter.Seq[uint32] { return maps.Keys(t.qps) }

// TypeOf is the type of QP id, if there is one.
func (t *Table) TypeOf(id uint32) (Type, bool) {
	q := t.qps[id]
	if q == nil {
		return 0, false
	}
	return q.typ, true
}

// Hold keeps QP id from taking steps until Release, so that what follows does
// not wait for one. It returns false if a step is under way still: then it is
// over after grace. A QP that does not exist is at rest.
func (t *Table) Hold(id uint32) bool {
	q := t.qps[id]
	if q == nil {
		return true
	}
	q.held.Store(true)
	if !q.mu.TryLock() {
		return false
	}
	q.mu.Unlock()
	return true
}

// Release lets QP id go on, if it still exists.
func (t *Table) Release(id uint32) {
	if q := t.qps[id]; q != nil && q.held.Swap(false) {
		q.task.Schedule()
	}
}

// Has tells whether there is a QP of this number.
func (t *Table) Has(id uint32) bool { return t.qps[id] != nil }

// Len is the number of QPs.
func (t *Table) Len() int { return len(t.qps) }
