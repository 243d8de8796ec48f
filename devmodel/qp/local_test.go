// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// Opcodes of what a QP does by itself, and sends that end an STag.
const (
	opBind, opFastReg, opInvalidate, opReadInv = 0x08, 0x09, 0x0A, 0x0B
	opSendInv, opSendSolInv                    = 0x04, 0x06
)

// stags is a table of STags with page lists in guest memory: PBLE i at
// pbleAt+8*i, of which there are 4096, and 64 STags.
func (b *bench) stags(emit func(any)) (t *mr.Table, pbleAt uint64) {
	b.Helper()
	const segment = rdmatest.Base + 0x380000
	h := hmc.New(hmc.Config{Mem: b.mem})
	var buf [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(buf[48:], 64)
	binary.LittleEndian.PutUint64(buf[112:], 4096)
	b.ok(h.Commit(&buf))
	b.ok(h.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: segment | 0x803}}))
	b.ok(h.PagesAllocated())
	return mr.New(mr.Config{HMC: h, Emit: emit}), segment + binary.LittleEndian.Uint64(buf[112:])>>32*512
}

// local posts work that the QP does by itself.
func (s *side) local(op, flags, w0, w1, w2, header uint64) uint32 {
	s.b.Helper()
	index, pass := s.sqNext, s.sqPass
	s.take(1)
	s.store(index, [][4]uint64{{w0, w1, w2, op<<32 | flags | header}}, pass)
	return index
}

// fastReg registers n pages listed from a PBLE on.
func (s *side) fastReg(flags uint64, stag uint32, va, n, first, rights uint64) uint32 {
	return s.local(opFastReg, flags, va, first>>16, n<<12|first&0xFFFF<<48, uint64(stag)|1<<44|rights<<48|1<<53)
}

func (s *side) bindMW(flags uint64, window, parent uint32, va, n, rights uint64) uint32 {
	return s.local(opBind, flags, va, uint64(parent)<<32|uint64(window), n, rights<<48|1<<53|1<<54)
}

func (s *side) invalidate(flags uint64, stag uint32) uint32 {
	return s.local(opInvalidate, flags, 0, uint64(stag), 0, 0)
}

// real is a pair of kernel QPs on a real table: STag 0x101 is all data, to
// bind to, 0x5xx an STag for fast registrations of 4 pages, 0x6xx a type 1 and
// 0x7xx a type 2 window.
func real(t testing.TB, change ...func(a, b *side)) (b *bench, x, y *side, table *mr.Table, list func(first int, pages ...uint64)) {
	var at uint64
	b, x, y = connected(t, append([]func(a, b *side){func(x, y *side) {
		table, at = x.b.stags(func(e any) { x.b.events = append(x.b.events, e) })
		x.b.table = qp.New(qp.Config{Mem: memory{x.b.mem, x.b}, Payload: x.b.mem, Buffers: hmc.New(hmc.Config{Mem: x.b.mem}), Regions: table, Queues: x.b,
			Engine: x.b.engine, MAC: func() [6]byte { return ownMAC }, Emit: func(e any) { x.b.events = append(x.b.events, e) }})
		for _, s := range []*side{x, y} {
			put(&s.ctx, 160, 3<<16|4|1<<23|1<<24|1<<25)
		}
	}}, change...)...)
	by := mr.Origin{Op: "IRDMA_CQP_OP_REG_MR"}
	b.ok(table.Register(mr.Region{Index: 1, Key: 1, PD: pd, Length: dataSize, VABased: true, Start: data, Base: data, PageShift: 12, Remote: true,
		Rights: all | mr.BindWindow}, by))
	b.ok(table.Allocate(mr.Region{Index: 5, PD: pd, Length: 4 << 12, PageShift: 12, Remote: true}, mr.Memory, by))
	b.ok(table.Allocate(mr.Region{Index: 6, PD: pd, PageShift: 12}, mr.Window1, by))
	b.ok(table.Allocate(mr.Region{Index: 7, PD: pd, PageShift: 12}, mr.Window2, by))
	b.space = nil
	return b, x, y, table, func(first int, pages ...uint64) {
		for i, p := range pages {
			b.ok(b.mem.Store64(at+8*uint64(first+i), p))
		}
	}
}

// go2 rings both doorbells and lets the engine run.
func (b *bench) go2(sides ...*side) {
	b.Helper()
	for _, s := range sides {
		b.table.Registers()[0].Write(0, s.id)
	}
	b.drain()
}

// The life of a fast registration as a storage driver has it: register, tell
// the peer, be read by it, and be invalidated with its answer.
func TestFastRegistrationAndRemoteInvalidation(t *testing.T) {
	b, x, y, _, list := real(t)
	const stag, va = 0x5A7, 0x7F00_0000_0800
	list(8, data+0x7000, data+0x3000, data+0x9000)
	p := b.fill(data+0x7800, 0x800, 3)
	q := b.fill(data+0x3000, 0x1000, 5)
	y.receive(sge{data + 0x100000, 64})
	x.receive(sge{data + 0x101000, 64})
	reg := x.fastReg(localFence, stag, va, 2, 8, 0xF)
	send := x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 10}}})
	b.go2(x)
	b.wantCQ(2, x.sent(send, opSend)) // nothing of the registration, which is not signalled
	if reg != 0 || len(b.events) != 0 {
		t.Errorf("events %v", b.events)
	}
	read := y.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x102000, 0x1800}}, raddr: va, key: stag})
	inv := y.post(wr{op: opSendSolInv, flags: signalled, sges: []sge{{data, 20}}, key: stag})
	b.cqes = map[uint32][]event.Entry{}
	b.go2(y)
	b.wantCQ(5, y.sent(read, opRead), y.sent(inv, opSendSolInv))
	b.same(append(slices.Clone(p), q...), data+0x102000)
	if c := b.cqes[3]; len(c) != 1 || !c[0].STag || c[0].Value != stag || !c[0].Solicited || c[0].Length != 20 {
		t.Errorf("receive completion %+v", c)
	}

	// The next round needs a new registration; the old key is dead.
	x.fastReg(localFence|signalled, stag+1, va, 1, 10, 0xF)
	b.go2(x)
	write := y.post(wr{op: opWrite, flags: signalled, sges: []sge{{data + 0x7800, 0x800}}, raddr: va, key: stag + 1})
	b.cqes = map[uint32][]event.Entry{}
	b.go2(y)
	b.wantCQ(5, y.sent(write, opWrite))
	b.same(p, data+0x9800)
	y.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 16}}, raddr: va, key: stag})
	b.go2(y)
	if len(b.aes) != 2 || b.aes[0].Code != 0x0106 || b.aes[0].Source != 9 || b.aes[1].Code != 0x020D {
		t.Errorf("events %+v", b.aes)
	}
}

func TestLocalInvalidation(t *testing.T) {
	b, x, y, _, list := real(t)
	list(8, data+0x7000)
	x.fastReg(localFence|signalled, 0x501, 0x8000, 1, 8, 0xF)
	w := y.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 16}}, raddr: 0x8000, key: 0x501})
	b.go2(x, y)
	b.wantCQ(5, y.sent(w, opWrite))
	delete(b.cqes, 2)
	// A large write from the region, then its end, with no fence: what was
	// posted before still gets its memory.
	big := x.post(wr{op: opWrite, flags: signalled, stag: 0x501, sges: []sge{{0x8000, 0x1000}}, raddr: data + 0x10000, key: 0x101})
	end := x.invalidate(signalled, 0x501)
	again := x.fastReg(localFence|signalled, 0x502, 0x8000, 1, 8, 0xF)
	b.go2(x)
	b.wantCQ(2, x.sent(big, opWrite), x.sent(end, opInvalidate), x.sent(again, opFastReg))
	if len(b.aes)+len(b.events) != 0 {
		t.Errorf("%v, %v", b.aes, b.events)
	}
	y.post(wr{op: opRead, sges: []sge{{data, 16}}, raddr: 0x8000, key: 0x501})
	b.go2(y)
	if len(b.aes) != 2 || b.aes[0].Code != 0x0106 {
		t.Errorf("%+v", b.aes)
	}
}

func TestReadThatEndsItsSink(t *testing.T) {
	b, x, y, table, list := real(t)
	list(8, data+0x7000)
	x.fastReg(localFence, 0x501, 0x8000, 1, 8, 0x3) // local rights only
	p := b.fill(data+0x40000, 0x1000, 8)
	r := x.post(wr{op: opReadInv, flags: signalled, stag: 0x501, sges: []sge{{0x8000, 0x800}, {0x8800, 0x800}}, raddr: data + 0x40000, key: 0x101})
	b.go2(x, y)
	b.wantCQ(2, x.sent(r, opReadInv))
	b.same(p, data+0x7000)
	if _, f := table.Resolve(nil, mr.Subject{PD: pd}, 0x501, 0x8000, 1, mr.LocalRead, false); f == nil || f.Code != mr.InvalidSTag {
		t.Errorf("the sink after the read: %v", f)
	}
}

func TestWindows(t *testing.T) {
	b, x, y, _, _ := real(t)
	p := b.fill(data+0x7000, 0x100, 8)
	first := x.bindMW(signalled, 0x601, 0x101, data+0x20000, 0x1000, 0xC)
	w := y.post(wr{op: opWrite, flags: signalled, sges: []sge{{data + 0x7000, 0x100}}, raddr: data + 0x20F00, key: 0x601})
	b.go2(x, y)
	b.wantCQ(5, y.sent(w, opWrite))
	b.same(p, data+0x20F00)
	// Bound again elsewhere, then to nothing.
	second := x.bindMW(signalled, 0x602, 0x101, data+0x30000, 0x1000, 0x4)
	r := y.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x8000, 0x100}}, raddr: data + 0x30000, key: 0x602})
	b.go2(x)
	b.go2(y)
	b.wantCQ(5, y.sent(r, opRead))
	unbind := x.bindMW(signalled, 0x603, 0x101, 0, 0, 0)
	b.go2(x)
	b.wantCQ(2, x.sent(first, opBind), x.sent(second, opBind), x.sent(unbind, opBind))
	y.post(wr{op: opRead, sges: []sge{{data, 16}}, raddr: data + 0x30000, key: 0x602})
	b.go2(y)
	if len(b.aes) != 2 || b.aes[0].Code != 0x0103 || b.aes[0].Source != 9 {
		t.Errorf("%+v", b.aes)
	}
	if s := b.table.Stats(); binary.LittleEndian.Uint64(s[288:]) != 3 {
		t.Errorf("%d binds counted", binary.LittleEndian.Uint64(s[288:]))
	}
}

// What a QP may not do stops it, behind what was posted before.
func TestLocalWorkRefused(t *testing.T) {
	plain := func(x, _ *side) { put(&x.ctx, 160, 3<<16|4) }
	for name, c := range map[string]struct {
		change func(x, y *side)
		do     func(x *side)
		code   uint16
	}{
		"fast registration by a program": {plain, func(x *side) { x.fastReg(0, 0x501, 0, 1, 8, 1) }, 0x011C},
		"bind where binds are off":       {plain, func(x *side) { x.bindMW(0, 0x601, 0x101, data, 16, 4) }, 0x011B},
		"page size 3":                    {nil, func(x *side) { x.local(opFastReg, 0, 0, 0, 4096, 0x501|1<<48|3<<46) }, 0x011F},
		"of a region":                    {nil, func(x *side) { x.fastReg(0, 0x102, 0, 1, 8, 1) }, 0x010C},
		"invalidation of nothing":        {nil, func(x *side) { x.invalidate(0, 0x901) }, 0x0102},
		"invalidation of STag 0":         {nil, func(x *side) { x.invalidate(0, 0) }, 0x0206},
		"a sink that cannot end": {nil, func(x *side) {
			x.post(wr{op: opReadInv, stag: 0, sges: []sge{{data, 16}}, raddr: data, key: 0x101})
			x.invalidate(0, 0x101)
		}, 0x0103},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(x, y *side)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			b, x, _, _, _ := real(t, changes...)
			before := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 10000}}, raddr: data + 0x10000, key: 0x101})
			c.do(x)
			last := x.sqNext - 1
			b.go2(x)
			b.wantCQ(2, x.sent(before, opWrite))
			want := event.AE{Code: c.code, Source: 5, Context: compCtx + 2, ID: 2, WQE: uint16(last), State: 6}
			if len(b.aes) != 1 || b.aes[0] != want {
				t.Errorf("%+v, want %+v", b.aes, want)
			}
			if !slices.ContainsFunc(b.events, func(e any) bool { r, ok := e.(mr.Refused); return ok && uint16(r.Code) == c.code }) {
				t.Errorf("events %v", b.events)
			}
		})
	}
}

// A flush in SQD, as drivers have it, tells of the receive that a message is
// coming to. The message's own end does not tell once more, and what still comes
// of it is not written.
func TestFlushInSQDOfMessageInProgress(t *testing.T) {
	b, x, y := connected(t)
	y.receive(sge{data + 0x20000, 0x50000})
	x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 0x40000}}})
	x.ring()
	b.engine.Drain(3)
	if len(b.cqes[6]) != 0 {
		t.Fatal("the message is not in progress")
	}
	y.modify(qp.SQD)
	if _, rq, err := flush(b.table, qp.FlushArgs{ID: 5, RQ: true}); !rq || err != nil {
		t.Fatalf("flush: %t, %v", rq, err)
	}
	mine := b.fill(data+0x5F000, 0x1000, 9)
	b.drain()
	if c := b.cqes[6]; len(c) != 1 || !c[0].Error {
		t.Errorf("completions %+v", c)
	}
	b.same(mine, data+0x5F000)
	delete(b.cqes, 2)

	y.receive(sge{data + 0x60000, 100})
	w := x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 100}}})
	x.ring()
	b.drain()
	b.wantCQ(2, x.sent(w, opSend))
	b.same(b.read(data, 100), data+0x60000)
}

// A QP invalidates what others of its protection domain are busy with, on
// several shards. From the completion on that memory is not written.
func TestInvalidationUnderTraffic(t *testing.T) {
	const rounds = 500
	b := newBench(t)
	e := engine.New(engine.Config{Shards: 3})
	table, _ := b.stags(nil)
	const area, last = data + 0x100000, data + 0x10F000
	poison := bytes.Repeat([]byte{0xEE}, 0x1000)
	done := make(chan event.Entry, 1)
	const writer = 4 // its peer is QP 5; the owner is QP 9, on another shard than either
	b.table = qp.New(qp.Config{Mem: b.mem, Payload: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}), Regions: table, Engine: e,
		MAC: func() [6]byte { return ownMAC }, Queues: callQueues(func(x event.Entry) {
			if x.QP != 9 {
				return
			}
			if x.Op == opInvalidate { // where a copy comes last
				b.ok(b.mem.Write(last, poison))
			}
			done <- x
		})})
	defer b.table.Close()
	defer e.Close()
	var control sync.Mutex
	lock := func(f func()) {
		control.Lock()
		defer control.Unlock()
		f()
	}
	up := func(sides ...*side) {
		for _, s := range sides {
			put(&s.ctx, 160, 3<<16|4|1<<24|1<<25)
			s.create()
		}
		for _, state := range []qp.State{qp.RTR, qp.RTS} {
			for _, s := range sides {
				s.modify(state)
			}
		}
	}
	by := mr.Origin{Op: "IRDMA_CQP_OP_REG_MR"}
	b.ok(table.Register(mr.Region{Index: 1, Key: 1, PD: pd, Length: dataSize, VABased: true, Start: data, Base: data, PageShift: 12, Rights: all, Remote: true}, by))
	b.ok(table.Allocate(mr.Region{Index: 5, PD: pd, Length: 16 << 12, PageShift: 12, Remote: true}, mr.Memory, by))
	owner := b.newSide(9, 12)
	lock(func() { up(owner, b.newSide(12, 9)) })
	waits := 0
	for round := range uint32(rounds) {
		x, y := b.newSide(writer, writer+1), b.newSide(writer+1, writer)
		stag := 0x500 | round%250 + 1
		// FAST_REG of one run of pages.
		owner.local(opFastReg, localFence|signalled, area, area, 0x10000, uint64(stag)|0xF<<48|1<<53)
		lock(func() { b.table.Registers()[0].Write(0, 9) })
		go e.Serve()
		if c := <-done; c.Op != opFastReg {
			t.Fatalf("%+v", c)
		}
		lock(func() {
			up(x, y)
			for range 60 {
				x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 0x10000}}, raddr: area, key: stag})
			}
			b.table.Registers()[0].Write(0, writer)
			go e.Serve()
		})
		for range 20 * (round % 40) {
			lock(func() { waits++ })
		}
		owner.invalidate(signalled|localFence, stag)
		lock(func() { b.table.Registers()[0].Write(0, 9) })
		go e.Serve()
		if c := <-done; c.Op != opInvalidate || c.Error {
			t.Fatalf("%+v", c)
		}
		e.Grace().Wait()
		lock(func() {
			for _, s := range []*side{x, y} {
				b.ok(b.table.Destroy(s.id))
			}
		})
		e.Grace().Wait()
		if !bytes.Equal(b.read(last, len(poison)), poison) {
			t.Fatalf("round %d: memory is written after the invalidation", round)
		}
		b.ok(b.mem.Write(x.base, make([]byte, ringSpace)))
		b.ok(b.mem.Write(y.base, make([]byte, ringSpace)))
	}
	lock(func() { b.table.Reset(0) })
}
