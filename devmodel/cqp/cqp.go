// SPDX-License-Identifier: Apache-2.0

// Package cqp is the control queue pair: the ring on which the driver tells
// the protocol engine to make, change and end objects.
//
// Contract and traps:
//   - A write of PFPE_CCQPLOW makes the control QP from a context in guest
//     memory, or ends it together with every object.
//   - WQEs are executed in ring order up to PFPE_CQPDB, each copied once, its
//     valid bit first. A valid bit of the wrong sense stops the ring until
//     the next doorbell.
//   - Every WQE moves PFPE_CQPTAIL; from CREATE_CQ of CQ 0 to its DESTROY_CQ
//     every one also gets a CQE there, before the tail moves.
//   - PFPE_CQPTAIL.CQP_OP_ERR must be gone once a new WQE is posted: drivers
//     take a stale one for the failure of the new operation.
//   - Effects in guest memory come before the completion that tells of them,
//     and none follows a completion that ends an object.
//   - A command that ends or stops an object the data path may be using first
//     unlinks it. If the data path is quiet the command completes at once;
//     otherwise execution stops, a goroutine waits for the data path, and the
//     command completes under the control lock and execution goes on. A reset
//     in between drops it. The same goes for a command about a QP that takes a
//     step just then. The writer of a doorbell never waits.
//   - Each opcode is a row of one table: what it does, which bits mean
//     something, what has to come before. What a command says that hardware
//     would not look at, and a correct driver would not say, becomes an event and
//     changes nothing: reserved bits, addresses that are no memory yet, an object
//     put where another one lies.
//   - Work is bounded: a doorbell executes at most runLimit WQEs before the
//     control lock is free for others in between, fewer of those that look at
//     much, and a flush looks at qp.FlushLimit slots at a time.
//   - While the data path is not done with what a reset ended, no new control
//     QP begins, so that nothing made after the reset meets work of before.
//   - The caller holds the device's control lock around everything but Close;
//     nothing else here locks.
package cqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is what the control QP needs of guest memory.
type Memory interface {
	Read(iova uint64, p []byte) error
	Write(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
}

// Config of a CQP: the units whose objects it commands.
type Config struct {
	Mem    Memory
	Emit   func(any)      // may be nil
	PF     int            // HMC function number the driver must name
	MAC    func() [6]byte // the port's own address; may be nil
	HMC    *hmc.Cache
	Queues *event.Queues
	QPs    *qp.Table
	MRs    *mr.Table

	Grace grace.Source // nil: no data path runs beside the control lock
	Lock  sync.Locker  // the control lock; needed with Grace

	// PushPages is how many push pages the function has. Their place is behind
	// the doorbell page.
	PushPages uint32

	// Overtake calls end, which ends what was still there at the control QP's
	// own end. nil: it just calls.
	Overtake func(end func())
}

// CQP is the control QP of one function and the tables only it touches.
type CQP struct {
	mem    Memory
	emit   func(any)
	pf     int
	mac    func() [6]byte
	hmc    *hmc.Cache
	queues *event.Queues
	qps    *qp.Table
	mrs    *mr.Table

	live     bool
	ctx      hostContext
	head     uint32 // of the last doorbell
	next     uint32 // index of the next WQE to execute
	polarity uint64 // its valid bit

	tables    tables
	pushPages uint32
	told      bool // an event explained the command under way; see tell

	ending    bool   // destroyed, but the data path may not be done with it
	successor uint64 // while ending: the last value for PFPE_CCQPLOW

	overtake func(end func())

	after *grace.After // what goes on when the data path is done

	high, status, tail, errCodes reg.Cells
}

// New makes the unit with no control QP yet.
func New(c Config) *CQP {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	if c.Overtake == nil {
		c.Overtake = func(end func()) { end() }
	}
	q := &CQP{overtake: c.Overtake, after: grace.NewAfter(c.Grace, c.Lock), mem: c.Mem, emit: c.Emit, pf: c.PF, mac: c.MAC, hmc: c.HMC, queues: c.Queues, qps: c.QPs, mrs: c.MRs, pushPages: c.PushPages}
	q.drop()
	return q
}

// Reset drops the control QP, its tables, and a command that waits. The caller
// resets the other units, too, and the registers.
func (c *CQP) Reset(reg.Domain) {
	c.drop()
	if !c.after.Quiet() {
		c.endThen(0)
	}
}

// Close resets the unit for good and returns when nothing of it runs any
// more. The caller does not hold the control lock.
func (c *CQP) Close() { c.after.Close() }

func (c *CQP) drop() {
	c.live, c.ctx, c.head, c.next, c.polarity = false, hostContext{}, 0, 0, 1
	c.ending, c.successor, c.told = false, 0, false
	c.after.Drop()
	c.tables = newTables()
	c.qps.DropHandles()
	c.qps.DropGroups()
}

// endThen makes a control QP from what was last written, at first addr, when
// the data path is done with the one that ended.
func (c *CQP) endThen(addr uint64) {
	c.ending, c.successor = true, addr
	c.after.Park(func() {
		c.ending = false
		c.begin(c.successor)
	})
}

// Register bits (irdma.h, icrdma_hw.h).
const (
	statusDone = 1 << 0
	statusErr  = 1 << 31
	tailMask   = 1<<11 - 1
	tailOpErr  = 1 << 31

	cpuReady = 0x80 // ctrl.c:irdma_wait_pe_ready
)

// Registers are the rows of the control QP and the engine's own state.
func (c *CQP) Registers() []reg.Row {
	wq := []reg.Field{{Name: "WQTAIL", Hi: 10, Lo: 0}, {Name: "CQP_OP_ERR", Hi: 31, Lo: 31}}
	return []reg.Row{
		{Name: "PFPE_CCQPHIGH", Offset: 0x50A100, Cells: &c.high, Source: "icrdma_hw.h:PFPE_CCQPHIGH"},
		{Name: "PFPE_CCQPLOW", Offset: 0x50A080, Source: "icrdma_hw.h:PFPE_CCQPLOW; ctrl.c:irdma_sc_cqp_create",
			Write: func(_ int, v uint32) { c.setContext(uint64(c.high.Get(0))<<32 | uint64(v)) }},
		{Name: "PFPE_CCQPSTATUS", Offset: 0x50A000, Cells: &c.status, Source: "icrdma_hw.h:PFPE_CCQPSTATUS",
			Fields: []reg.Field{{Name: "CCQP_DONE", Hi: 0, Lo: 0}, {Name: "CCQP_ERR", Hi: 31, Lo: 31}}},
		{Name: "PFPE_CQPTAIL", Offset: 0x500880, Cells: &c.tail, Fields: wq,
			Source: "icrdma_hw.h:PFPE_CQPTAIL; ctrl.c:irdma_cqp_poll_registers", Inferred: true},
		{Name: "PFPE_CQPDB", Offset: 0x500800, Source: "icrdma_hw.h:PFPE_CQPDB; ctrl.c:irdma_sc_cqp_post_sq", Inferred: true,
			Fields: []reg.Field{{Name: "WQHEAD", Hi: 10, Lo: 0}}, Write: func(_ int, v uint32) { c.doorbell(v) }},
		{Name: "PFPE_CQPERRCODES", Offset: 0x50A200, Cells: &c.errCodes, Source: "icrdma_hw.h:PFPE_CQPERRCODES",
			Fields: []reg.Field{{Name: "CQP_MINOR_CODE", Hi: 15, Lo: 0}, {Name: "CQP_MAJOR_CODE", Hi: 31, Lo: 16}}},
		{Name: "GLPE_CPUSTATUS0", Offset: 0x50BA5C, Reset: cpuReady, Access: reg.RO, Domain: reg.CORER, Source: "icrdma_hw.h:GLPE_CPUSTATUS0; ctrl.c:irdma_wait_pe_ready"},
		{Name: "GLPE_CPUSTATUS1", Offset: 0x50BA60, Reset: cpuReady, Access: reg.RO, Domain: reg.CORER, Source: "icrdma_hw.h:GLPE_CPUSTATUS1; ctrl.c:irdma_wait_pe_ready"},
		{Name: "GLPE_CPUSTATUS2", Offset: 0x50BA64, Reset: cpuReady, Access: reg.RO, Domain: reg.CORER, Source: "icrdma_hw.h:GLPE_CPUSTATUS2; ctrl.c:irdma_wait_pe_ready"},
		{Name: "GLPE_CRITERR", Offset: 0x534000, Access: reg.RO, Source: "icrdma_hw.h:GLPE_CRITERR"},
	}
}

// hostContext is what the control QP was made from
// (ctrl.c:irdma_sc_cqp_create).
type hostContext struct {
	addr     uint64 // of the context itself
	ring     uint64 // SQBASE
	size     uint32 // WQEs
	profile  uint8  // HMC_PROFILE
	protocol uint8  // PROTOCOL_USED
	qpctx    uint64 // echoed in every CQE
	majver   uint16
}

const (
	contextSize = 64
	wqeSize     = 64
	generation2 = 1 // HW_MAJVER of this family
)

func parseContext(addr uint64, b *[contextSize]byte) (hostContext, error) {
	w := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	h := hostContext{
		addr:     addr,
		ring:     w(1),
		profile:  uint8(w(2) & 7),
		protocol: uint8(w(0) >> 3 & 3),
		qpctx:    w(3),
		majver:   uint16(w(4) >> 16),
	}
	enc := w(0) >> 8 & 0xF
	if enc < 1 || enc > 10 {
		return h, fmt.Errorf("SQSIZE %d: %w", enc, errParameter)
	}
	h.size = 2 << enc
	if h.ring%512 != 0 {
		return h, fmt.Errorf("SQBASE %#x is not 512-byte aligned: %w", h.ring, errParameter)
	}
	if h.majver != generation2 {
		return h, fmt.Errorf("HW_MAJVER %d: %w", h.majver, errParameter)
	}
	return h, nil
}

// setContext is a write of PFPE_CCQPLOW. While a control QP is ending, the
// value written last counts once it has ended; PFPE_CCQPSTATUS tells when.
func (c *CQP) setContext(addr uint64) {
	if c.ending {
		c.successor = addr
		return
	}
	if !c.live {
		c.begin(addr)
		return
	}
	if addr != 0 {
		c.emit(CreatedTwice{Old: c.ctx.addr, New: addr})
	}
	c.destroy()
	if c.after.Quiet() {
		c.begin(addr)
		return
	}
	c.endThen(addr)
}

// begin makes a control QP from the context at addr; 0 means none.
func (c *CQP) begin(addr uint64) {
	if addr == 0 {
		c.status.Set(0, 0)
		return
	}
	if err := c.create(addr); err != nil {
		c.errCodes.Set(0, uint32(majError)<<16|minParameter)
		c.status.Set(0, statusErr)
		c.emit(CreateFailed{Context: addr, Err: err})
		return
	}
	c.status.Set(0, statusDone)
	c.emit(Created{Context: addr, Ring: c.ctx.ring, Size: c.ctx.size})
}

func (c *CQP) create(addr uint64) error {
	if addr%4 != 0 {
		return fmt.Errorf("context at %#x is not 4-byte aligned: %w", addr, errParameter)
	}
	var b [contextSize]byte
	if err := c.mem.Read(addr, b[:]); err != nil {
		return fmt.Errorf("context: %w", err)
	}
	ctx, err := parseContext(addr, &b)
	if err != nil {
		return fmt.Errorf("context: %w", err)
	}
	c.drop()
	c.live, c.ctx = true, ctx
	c.occupy(owner{"CQP", 0, "ring"}, ctx.ring, wqeSize*uint64(ctx.size))
	c.tail.Set(0, 0)
	c.errCodes.Set(0, 0)
	return nil
}

// destroy ends the control QP with everything it made.
func (c *CQP) destroy() {
	if l := c.leaks(); l.any() {
		c.emit(l)
		c.overtake(c.dropAll)
	} else {
		c.dropAll()
	}
	c.emit(Destroyed{})
}

func (c *CQP) dropAll() {
	c.drop()
	c.qps.Reset(reg.PFR)
	c.mrs.Reset(reg.PFR)
	c.queues.Reset(reg.PFR)
	c.hmc.Reset(reg.PFR)
}

// doorbell is a write of PFPE_CQPDB.
func (c *CQP) doorbell(v uint32) {
	c.tail.Set(0, c.tail.Get(0)&^tailOpErr)
	if !c.live {
		if v != 0 {
			c.emit(NotLive{Doorbell: v})
		}
		return
	}
	head := v & tailMask
	if head >= c.ctx.size {
		c.emit(BadDoorbell{Head: head, Size: c.ctx.size})
		return
	}
	c.head = head
	c.run()
}

// Before the control lock is free for others, so many WQEs are executed at
// most, and so many pages of regions looked at before the last one.
const (
	runLimit  = 64
	lookLimit = 1 << 18
)

// run executes WQEs up to the doorbell, or up to one that has to wait.
func (c *CQP) run() {
	looked := c.mrs.Looked()
	for n := 0; !c.after.Parked() && c.next != c.head; n++ {
		if n == runLimit || c.mrs.Looked()-looked >= lookLimit {
			c.after.Park(c.run)
			return
		}
		if !c.step() {
			return
		}
	}
}

// step executes the WQE at the ring's tail. It returns false where the ring
// has to wait for another doorbell.
func (c *CQP) step() bool {
	at := c.ctx.ring + wqeSize*uint64(c.next)
	header, err := c.mem.Load64(at + 24)
	if err != nil {
		c.emit(RingUnreadable{Index: c.next, Err: err})
		return false
	}
	if header>>63 != c.polarity {
		c.emit(BadPolarity{Index: c.next, Header: header})
		return false
	}
	var b [wqeSize]byte
	if err := c.mem.Read(at, b[:]); err != nil {
		c.emit(RingUnreadable{Index: c.next, Err: err})
		return false
	}
	w := wqe{index: c.next}
	for i := range w.q {
		w.q[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	w.q[3] = header
	w.find()
	if c.next++; c.next == c.ctx.size {
		c.next, c.polarity = 0, c.polarity^1
	}
	if w.marked(holdsQP) && !c.qps.Hold(w.qpID()) {
		c.after.Park(func() {
			c.start(&w)
			c.run()
		})
		return true
	}
	if w.marked(settlesCQ) {
		if wait := c.qps.Rung(w.cqID()); wait != nil {
			c.after.ParkBehind(wait, func() {
				c.start(&w)
				c.run()
			})
			return true
		}
	}
	c.start(&w)
	return true
}

// start executes a command, up to where it has to wait.
func (c *CQP) start(w *wqe) {
	res, err := c.execute(w)
	if err == nil && res.grace && !c.after.Quiet() {
		c.later(w, res)
		return
	}
	c.finish(w, res, err)
}

// later puts off the rest of a command and of the ring.
func (c *CQP) later(w *wqe, res result) {
	c.after.Park(func() {
		c.finish(w, res, nil)
		c.run()
	})
}

// finish is the rest of a command once the data path is done with what it
// unlinked. A rest that leaves another one goes on later.
func (c *CQP) finish(w *wqe, res result, err error) {
	if err == nil && res.then != nil {
		if res, err = res.then(); err == nil && res.then != nil {
			c.later(w, res)
			return
		}
	}
	c.complete(w, res, err)
}

func (c *CQP) execute(w *wqe) (result, error) {
	row := w.row
	if row == nil {
		c.emit(UnknownOpcode{Opcode: w.opcode(), Index: w.index})
		return result{}, fmt.Errorf("%s: %w", w.name, errParameter)
	}
	if set, any := row.reserved(&w.q); any {
		c.emit(ReservedBits{Name: row.name, Index: w.index, Bits: set})
	}
	switch {
	case row.absent != "":
		return result{}, fmt.Errorf("%s: %w", row.absent, errParameter)
	case row.run == nil:
		c.emit(NotBuilt{Opcode: row.op, Name: row.name, Index: w.index})
		return result{}, fmt.Errorf("%s is not built: %w", row.name, errParameter)
	}
	if before := c.missing(row.marks); before != "" {
		c.tell(OutOfOrder{Op: row.name, Before: before, Index: w.index})
		return result{}, fmt.Errorf("%s before %s: %w", short(row.name), before, errState)
	}
	return row.run(c, w)
}

// missing names the command that has to come before one of such marks and did
// not.
func (c *CQP) missing(m mark) string {
	switch {
	case m&needsLayout != 0 && !c.hmc.Committed():
		return "COMMIT_FPM_VAL"
	case m&needsMemory != 0 && !c.hmc.Backed():
		return "SHMC_PAGES_ALLOCATED"
	}
	return ""
}

// complete reports one WQE: the codes, the CQE, and last the tail.
func (c *CQP) complete(w *wqe, res result, err error) {
	if w.marked(holdsQP) {
		c.qps.Release(w.qpID())
	}
	op := Op{Index: w.index, Opcode: w.opcode(), Name: w.name, WQE: w.q, Minor: res.minor, Value: res.value}
	tail := c.next & tailMask
	if err != nil {
		op.Major, op.Minor, op.Value = majError, minorOf(err), 0
		c.errCodes.Set(0, uint32(op.Major)<<16|uint32(op.Minor))
		tail |= tailOpErr
		c.emit(OpFailed{Op: op, Err: err, Told: c.told || w.marked(answers)})
	}
	c.told = false
	if ccq := c.queues.CQ(event.CCQ); ccq != nil {
		e := event.Entry{Context: c.ctx.qpctx, Value: op.Value, Minor: op.Minor, Major: op.Major, WQE: uint16(w.index), Error: err != nil}
		if !ccq.Post(e) {
			c.emit(CompletionLost{Index: w.index})
		}
	}
	c.tail.Set(0, tail)
	c.emit(op)
}

// Completion codes (utils.c:irdma_noncrit_err_list, defs.h:IRDMA_CQPSQ_MAJ_*).
const (
	majError     = 0xFFFF
	minParameter = 0x8001
	minState     = 0x8002
)

var (
	errParameter = errors.New("parameter out of range")
	errState     = errors.New("object in wrong state")
)

// minorOf turns an operation's error into its minor code. Which codes
// hardware has beyond those the driver treats specially is not known.
func minorOf(err error) uint16 {
	for _, state := range []error{errState, hmc.ErrState, event.ErrState, qp.ErrState, mr.ErrState} {
		if errors.Is(err, state) {
			return minState
		}
	}
	return minParameter
}
