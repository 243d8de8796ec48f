// SPDX-License-Identifier: Apache-2.0

// Package rdmatest is a guest for tests of the protocol engine: memory, and
// a driver's side of the control QP and its completion queue, played through
// register writes as irdma does.
package rdmatest

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Base is the first guest address of the memory; addresses below it fault.
const Base = 0x10_0000

// Memory maps size bytes of fresh guest memory at Base.
func Memory(t testing.TB, size uint64) *guestmem.Memory {
	t.Helper()
	m := &guestmem.Memory{}
	addMemory(t, m, Base, size)
	t.Cleanup(m.UnmapAll)
	return m
}

func addMemory(t testing.TB, m *guestmem.Memory, at, size uint64) {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "guest")
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(at, size, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
}

// MapAt adds size bytes of guest memory at a place of the test's choice.
func (g *Guest) MapAt(at, size uint64) {
	g.T.Helper()
	addMemory(g.T, g.Mem, at, size)
}

// WQE are the eight words of a control WQE; Post sets the valid bit.
type WQE = [8]uint64

// Completion is what the driver learns of one command.
type Completion struct {
	Error        bool
	Major, Minor uint16
	Value        uint32
}

// Guest is a driver with its memory and the device it drives.
type Guest struct {
	T      testing.TB
	Mem    *guestmem.Memory
	Engine *rdma.Engine
	Space  *reg.Space

	// Lock is the device's control lock. Write and Read take it. Who looks at
	// what follows, or at the engine, while other goroutines run holds it.
	Lock sync.Mutex

	Events []any  // as emitted
	CEQs   []int  // CEQ causes raised
	AEQs   int    // AEQ causes raised
	OICR   uint32 // other causes raised

	free    uint64
	offsets map[string]uint32 // of registers by name

	ring     uint64
	size     uint32
	head     uint32
	polarity uint64

	// CCQ is the completion queue of the control QP once the driver has it.
	CCQ *Consumer
}

// CQPContext is the completion context the driver gives its control QP.
const CQPContext = 0xFFFF_8881_2345_6780

const memorySize = 48 << 20

// New makes a guest whose engine has the given profile and whatever else
// options set.
func New(t testing.TB, profile hmc.Profile, options ...func(*rdma.Config)) *Guest {
	g := &Guest{T: t, Mem: Memory(t, memorySize), free: Base}
	c := rdma.Config{
		Mem:     g.Mem,
		Payload: g.Mem,
		Emit:    func(e any) { g.Events = append(g.Events, e) },
		CEQ:     func(n int) { g.CEQs = append(g.CEQs, n) },
		AEQ:     func() { g.AEQs++ },
		OICR:    func(b uint32) { g.OICR |= b },
		Lock:    &g.Lock,
		Profile: profile,
	}
	for _, o := range options {
		o(&c)
	}
	g.Engine = rdma.New(c)
	t.Cleanup(g.Engine.Close)
	g.offsets = map[string]uint32{}
	for _, r := range g.Engine.Registers() {
		g.offsets[r.Name] = r.Offset
	}
	g.Space = reg.NewSpace(8<<20, func(e any) { t.Errorf("register space: %v", e) }, g.Engine.Registers())
	return g
}

// Alloc hands out zeroed guest memory on a page boundary.
func (g *Guest) Alloc(size uint64) uint64 {
	at := g.free
	g.free += (size + 4095) &^ 4095
	if g.free > Base+memorySize {
		g.T.Fatalf("test guest out of memory for %#x bytes", size)
	}
	return at
}

// Write writes a register by its kernel name.
func (g *Guest) Write(name string, v uint32) {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	g.Space.Write32(g.offset(name), v)
}

// Read reads a register by its kernel name.
func (g *Guest) Read(name string) uint32 {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	return g.Space.Read32(g.offset(name))
}

// Snapshot copies the engine's objects.
func (g *Guest) Snapshot() rdma.Snapshot {
	g.Lock.Lock()
	defer g.Lock.Unlock()
	return g.Engine.Snapshot()
}

// Await returns when all commands rung for have completed.
func (g *Guest) Await() {
	for g.Read("PFPE_CQPTAIL")&0x7FF != g.head {
		runtime.Gosched()
	}
}

func (g *Guest) offset(name string) uint32 {
	off, ok := g.offsets[name]
	if !ok {
		g.T.Fatalf("no register %s", name)
	}
	return off
}

// Load reads a word of guest memory.
func (g *Guest) Load(at uint64) uint64 {
	g.T.Helper()
	v, err := g.Mem.Load64(at)
	if err != nil {
		g.T.Fatal(err)
	}
	return v
}

// Store writes words to consecutive guest addresses.
func (g *Guest) Store(at uint64, words ...uint64) {
	g.T.Helper()
	for i, w := range words {
		if err := g.Mem.Store64(at+8*uint64(i), w); err != nil {
			g.T.Fatal(err)
		}
	}
}

// Fill writes the same byte everywhere in a piece of memory.
func (g *Guest) Fill(at, size uint64, b byte) {
	g.T.Helper()
	const piece = 64 << 10
	p := bytes.Repeat([]byte{b}, int(min(size, piece)))
	for ; size > 0; at, size = at+uint64(len(p)), size-uint64(len(p)) {
		p = p[:min(size, piece)]
		if err := g.Mem.Write(at, p); err != nil {
			g.T.Fatal(err)
		}
	}
}

// CreateCQP makes the control QP with a ring of 2<<enc WQEs
// (ctrl.c:irdma_sc_cqp_init, irdma_sc_cqp_create).
func (g *Guest) CreateCQP(enc uint32) {
	g.T.Helper()
	g.size, g.head, g.polarity, g.CCQ = 2<<enc, 0, 0, nil
	g.ring = g.Alloc(uint64(g.size) * 64)
	ctx := g.Alloc(64)
	g.Write("PFPE_CQPTAIL", 0)
	g.Write("PFPE_CQPDB", 0)
	g.Write("PFPE_CCQPSTATUS", 0)
	g.Store(ctx, uint64(enc)<<8|2<<3, g.ring, 1, CQPContext, 1<<16, 0, 0, 0)
	g.Write("PFPE_CCQPHIGH", uint32(ctx>>32))
	g.Write("PFPE_CCQPLOW", uint32(ctx))
	if s := g.Read("PFPE_CCQPSTATUS"); s != 1 {
		g.T.Fatalf("PFPE_CCQPSTATUS = %#x after create", s)
	}
}

// DestroyCQP ends the control QP.
func (g *Guest) DestroyCQP() {
	g.T.Helper()
	g.Write("PFPE_CCQPHIGH", 0)
	g.Write("PFPE_CCQPLOW", 0)
	if s := g.Read("PFPE_CCQPSTATUS"); s&1 != 0 {
		g.T.Fatalf("PFPE_CCQPSTATUS = %#x after destroy", s)
	}
}

// Put builds the next WQE in the ring without ringing the doorbell and
// returns its index.
func (g *Guest) Put(q WQE) uint32 {
	g.T.Helper()
	index := g.head
	if index == 0 {
		g.polarity ^= 1
	}
	at := g.ring + 64*uint64(index)
	g.Store(at, q[0], q[1], q[2])
	g.Store(at+32, q[4], q[5], q[6], q[7])
	g.Store(at+24, q[3]&^(1<<63)|g.polarity<<63)
	g.head = (g.head + 1) % g.size
	return index
}

// Ring rings the control QP's doorbell.
func (g *Guest) Ring() { g.Write("PFPE_CQPDB", g.head) }

// Run posts one command and waits for it, through the CCQ where there is
// one, else through PFPE_CQPTAIL.
func (g *Guest) Run(q WQE) Completion {
	g.T.Helper()
	before := g.Read("PFPE_CQPTAIL")
	index := g.Put(q)
	g.Ring()
	after := g.Read("PFPE_CQPTAIL")
	if want := g.head; after&0x7FF != want {
		g.T.Fatalf("PFPE_CQPTAIL %#x -> %#x, want tail %d", before, after, want)
	}
	if g.CCQ == nil {
		c := Completion{Error: after>>31 != 0}
		if c.Error {
			e := g.Read("PFPE_CQPERRCODES")
			c.Major, c.Minor = uint16(e>>16), uint16(e)
		}
		return c
	}
	return g.reap(index, after)
}

// RunAll posts commands with one doorbell, fewer than the ring has room for,
// and waits for them. There must be a CCQ.
func (g *Guest) RunAll(qs []WQE) []Completion {
	g.T.Helper()
	if len(qs) == 0 {
		return nil
	}
	indexes := make([]uint32, len(qs))
	for i, q := range qs {
		indexes[i] = g.Put(q)
	}
	g.Ring()
	g.Await()
	out := make([]Completion, len(qs))
	for i, index := range indexes {
		out[i] = g.completion(index)
	}
	if failed := g.Read("PFPE_CQPTAIL")>>31 != 0; failed != out[len(out)-1].Error {
		g.T.Fatalf("PFPE_CQPTAIL.CQP_OP_ERR %t after %+v", failed, out[len(out)-1])
	}
	return out
}

func (g *Guest) reap(index, tail uint32) Completion {
	g.T.Helper()
	c := g.completion(index)
	if c.Error != (tail>>31 != 0) {
		g.T.Fatalf("CQE error %t, PFPE_CQPTAIL %#x", c.Error, tail)
	}
	return c
}

// completion takes the next CQE, which must be that of a WQE.
func (g *Guest) completion(index uint32) Completion {
	g.T.Helper()
	e, ok := g.CCQ.Poll()
	if !ok {
		g.T.Fatalf("no CQE for CQP WQE %d", index)
	}
	if e[1] != CQPContext {
		g.T.Fatalf("CCQ context %#x", e[1])
	}
	if i := uint32(e[3] >> 32 & 0x7FFF); i != index {
		g.T.Fatalf("CQE is for WQE %d, want %d", i, index)
	}
	return Completion{Error: e[3]>>55&1 != 0, Major: uint16(e[3] >> 16), Minor: uint16(e[3]), Value: uint32(e[2])}
}

// Must is Run for commands that have to succeed; it returns op_ret_val.
func (g *Guest) Must(q WQE) Completion {
	g.T.Helper()
	c := g.Run(q)
	if c.Error {
		g.T.Fatalf("%s: %#04x/%#04x: %v", name(q), c.Major, c.Minor, g.Events[len(g.Events)-1])
	}
	return c
}

// Fails is Run for commands that have to fail with the given minor code.
func (g *Guest) Fails(q WQE, minor uint16) {
	g.T.Helper()
	if c := g.Run(q); c != (Completion{Error: true, Major: 0xFFFF, Minor: minor}) {
		g.T.Fatalf("%s: %+v, want minor %#04x", name(q), c, minor)
	}
}

func name(q WQE) string {
	for _, o := range cqp.Opcodes() {
		if uint64(o.Op) == q[3]>>32&0x3F {
			return o.Name
		}
	}
	return "unknown opcode"
}

// Consumer is software's side of a CQ.
type Consumer struct {
	g        *Guest
	Ring     uint64
	Shadow   uint64
	Size     uint32
	head     uint32
	polarity uint64
	armSeq   uint64
}

// NewConsumer allocates a CQ's memory.
func (g *Guest) NewConsumer(size uint32) *Consumer {
	return &Consumer{g: g, Ring: g.Alloc(32 * uint64(size)), Shadow: g.Alloc(64), Size: size, polarity: 1}
}

// Poll takes the next CQE, if there is one, and moves the shadow head.
func (c *Consumer) Poll() (e [4]uint64, ok bool) {
	at := c.Ring + 32*uint64(c.head)
	e[3] = c.g.Load(at + 24)
	if e[3]>>63 != c.polarity {
		return e, false
	}
	for i := range 3 {
		e[i] = c.g.Load(at + 8*uint64(i))
	}
	if c.head++; c.head == c.Size {
		c.head, c.polarity = 0, c.polarity^1
	}
	c.g.Store(c.Shadow, uint64(c.head))
	return e, true
}

// Arm asks for an event on the next completion of CQ id.
func (c *Consumer) Arm(id uint32, solicitedOnly bool) {
	c.armSeq = (c.armSeq + 1) & 3
	w := c.armSeq<<16 | 1<<15
	if !solicitedOnly {
		w |= 1 << 14
	}
	c.g.Store(c.Shadow+32, w)
	c.g.Write("PFPE_CQARM", id)
}

// Findings are the events that are not part of a well-behaved driver's trace.
func (g *Guest) Findings() (out []any) {
	for _, e := range g.Events {
		switch e.(type) {
		case cqp.Op, cqp.Created, cqp.Destroyed:
		default:
			out = append(out, e)
		}
	}
	return out
}

// Word reads a little-endian word of a byte slice.
func Word(b []byte, off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// Rewind frees all memory of a driver that is gone and forgets what was
// seen, so that another may boot on the same device.
func (g *Guest) Rewind() {
	g.Fill(Base, g.free-Base, 0)
	g.free = Base
	g.Events, g.CEQs, g.AEQs, g.OICR = nil, nil, 0, 0
}
