// SPDX-License-Identifier: Apache-2.0

// Package rdma puts the protocol engine together: host memory cache, event
// queues, memory regions, queue pairs and the control queue pair that commands
// them.
//
// Contract: one control lock per device is held by the caller around every
// method but Close, ExplainMR, Receive and Group, and every register handler. Data moves on the shards of an
// engine, outside that lock. No method waits for it: what a reset ended is out
// of use after grace. Interrupt causes are fired and forgotten, from any
// goroutine, after the entries they announce are in guest memory.
package rdma

import (
	"sync"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is what the engine needs of guest memory. Load64 and Store64 are
// atomic, ordered and 8-byte aligned.
type Memory interface {
	Read(iova uint64, p []byte) error
	Write(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
	Store64(iova uint64, v uint64) error
}

// Config of an Engine. Callbacks may be nil.
type Config struct {
	Mem  Memory
	Emit func(any)
	CEQ  func(n int)       // raise the cause of completion event queue n
	AEQ  func()            // raise the cause of the asynchronous event queue
	OICR func(bits uint32) // raise other causes, as bits of PFINT_OICR
	PF   int               // the function's number; its HMC function too
	MAC  func() [6]byte    // the port's address
	Wire qp.Wire           // the port; nil: a segment without other stations
	// Notes takes comments on frames; nil: nobody captures.
	Notes qp.Notes
	Near  qp.Near // the way around it; nil: none

	// Payload is the memory behind Mem, for copies from guest to guest.
	Payload *guestmem.Memory
	MayDMA  func() bool    // whether the function may touch memory; nil: always
	Engine  *engine.Engine // runs the QPs; nil: a manual one, for tests of the control plane
	Timing  qp.Timing      // zero value: qp.DefaultTiming

	Grace grace.Source // tells when the data path is done; nil: that of Engine
	Lock  sync.Locker  // the control lock

	// Overtake calls end, which ends objects that the driver has not: steps of
	// the data path may still be using them. nil: it just calls.
	Overtake func(end func())
	// Overtaken tells that something was ended that steps of the data path may
	// still be using; see hmc.Config. nil: never.
	Overtaken func() bool

	Profile hmc.Profile // zero value: hmc.SmallGuest

	PushPages uint32 // see cqp.Config
}

// Engine is the protocol engine of one function.
type Engine struct {
	hmc    *hmc.Cache
	queues *event.Queues
	qps    *qp.Table
	mrs    *mr.Table
	cqp    *cqp.CQP
}

// New makes an engine as it is after a reset.
func New(c Config) *Engine {
	if c.Engine == nil {
		c.Engine = engine.New(engine.Config{Manual: true})
	}
	if c.Grace == nil {
		c.Grace = c.Engine.Grace()
	}
	e := &Engine{}
	e.hmc = hmc.New(hmc.Config{Mem: c.Mem, Emit: c.Emit, OICR: c.OICR, Overtaken: c.Overtaken, PF: c.PF, Profile: c.Profile})
	e.queues = event.New(event.Config{Mem: c.Mem, Buffers: e.hmc, Emit: c.Emit, CEQ: c.CEQ, AEQ: c.AEQ})
	e.mrs = mr.New(mr.Config{HMC: e.hmc, Emit: c.Emit})
	e.qps = qp.New(qp.Config{Mem: c.Mem, Payload: c.Payload, MayDMA: c.MayDMA, Buffers: e.hmc, Regions: e.mrs,
		Queues: queues{e.queues}, Engine: c.Engine, MAC: c.MAC, Wire: c.Wire, Notes: c.Notes, Near: c.Near, Timing: c.Timing, Emit: c.Emit})
	e.cqp = cqp.New(cqp.Config{Mem: c.Mem, Emit: c.Emit, PF: c.PF, MAC: c.MAC, HMC: e.hmc, Queues: e.queues, QPs: e.qps, MRs: e.mrs,
		Grace: c.Grace, Lock: c.Lock, Overtake: c.Overtake, PushPages: c.PushPages})
	return e
}

// queues gives QPs their CQs.
type queues struct{ *event.Queues }

func (q queues) CQ(id uint32) qp.CQ {
	if c := q.Queues.CQ(id); c != nil {
		return c
	}
	return nil
}

// Registers are the rows of all parts.
func (e *Engine) Registers() []reg.Row {
	var rows []reg.Row
	for _, part := range [][]reg.Row{e.hmc.Registers(), e.queues.Registers(), e.qps.Registers(), e.cqp.Registers()} {
		rows = append(rows, part...)
	}
	return rows
}

// Receive takes a RoCE frame from the port, i being what it is; see
// qp.Table.Receive. It needs no control lock.
func (e *Engine) Receive(f []byte, i frame.Info) { e.qps.Receive(f, &i) }

// Group tells whether frames to a group address are for a multicast group. It
// needs no control lock.
func (e *Engine) Group(address [6]byte) bool { return e.qps.JoinedMAC(address) }

// QPs are the queue pairs, for engines that are near; see qp.Near.
func (e *Engine) QPs() *qp.Table { return e.qps }

// Reset ends every object: all of the engine's state is the function's and
// does not survive even the weakest reset. No DMA follows after grace, and
// nothing made later meets what has begun before.
func (e *Engine) Reset(d reg.Domain) {
	e.cqp.Reset(d)
	e.qps.Reset(d)
	e.mrs.Reset(d)
	e.queues.Reset(d)
	e.hmc.Reset(d)
}

// Close ends the engine's goroutines. The caller does not hold the control
// lock, and uses the engine no more.
func (e *Engine) Close() {
	e.cqp.Close()
	e.qps.Close()
}

// Unmapped tells of regions that are registered on memory the driver has
// unmapped just now: [iova, iova+size).
func (e *Engine) Unmapped(iova, size uint64) {
	e.mrs.WatchUnmaps()
	e.mrs.Unmapping(iova, size)
}

// Snapshot is the engine as `vrnic explain` shows it.
type Snapshot struct {
	CQP       cqp.Status
	SDs       []hmc.SD
	Extents   []hmc.Extent
	QPs       []qp.Info
	MRs       []mr.Entry
	CQs       []event.CQInfo
	CEQs      []event.EQ
	AEQ       *event.EQ // nil: none
	ARPs      []cqp.ARP
	AHs       []cqp.AH
	Handles   []qp.Handle // of the AHs, as datagrams use them
	Multicast []cqp.Multicast
	WorkNodes []cqp.WorkNode
	Ports     []uint16
	QuadHash  []cqp.QuadHash
	PushPages []uint32
	Instances []uint8 // of statistics
	Counters  []qp.Counter
	UPMap     cqp.Priorities
}

// Snapshot copies everything. It changes nothing in the device. It waits for
// the steps that queue pairs take just then; see Capture.
func (e *Engine) Snapshot() Snapshot { return e.Capture()() }

// Capture is Snapshot in two parts, for who has the control lock: the function
// it returns waits, for at most one step of each queue pair, and is called
// without the lock. QPs may have changed meanwhile; ended ones are shown, too.
func (e *Engine) Capture() (rest func() Snapshot) {
	s := Snapshot{
		CQP: e.cqp.Status(), SDs: e.hmc.SDs(), Extents: e.hmc.Extents(), MRs: e.mrs.Entries(),
		CQs: e.queues.CQs(), CEQs: e.queues.CEQs(),
		ARPs: e.cqp.ARPs(), AHs: e.cqp.AHs(), Multicast: e.cqp.Multicasts(), WorkNodes: e.cqp.WorkNodes(),
		Ports: e.cqp.Ports(), QuadHash: e.cqp.QuadHashes(), PushPages: e.cqp.PushPages(), Instances: e.qps.Instances(), UPMap: e.cqp.Priorities(),
	}
	for _, a := range s.AHs {
		h, _ := e.qps.Handle(a.Index)
		s.Handles = append(s.Handles, h)
	}
	if q, ok := e.queues.AEQ(); ok {
		s.AEQ = &q
	}
	qps := e.qps.List()
	return func() Snapshot {
		s.QPs, s.Counters = qps(), e.qps.Counters()
		return s
	}
}

// Explain walks from object index of type o to guest memory, naming each
// word read. It changes nothing in the device.
func (e *Engine) Explain(o hmc.Object, index uint32) (hmc.Walk, error) {
	return e.hmc.Explain(o, index)
}

// ExplainMR walks from [to, to+n) of an STag to guest memory; see mr.Explain.
// Like the data path it needs no control lock.
func (e *Engine) ExplainMR(stag uint32, to uint64, n uint32) (mr.Walk, error) {
	return e.mrs.Explain(stag, to, n)
}
