// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Guest addresses of the bench's queues.
const (
	cqRing  = rdmatest.Base
	shadow  = rdmatest.Base + 0x10000
	ceqRing = rdmatest.Base + 0x11000
	aeqRing = rdmatest.Base + 0x12000
	newRing = rdmatest.Base + 0x13000
)

type bench struct {
	testing.TB
	mem    *guestmem.Memory
	q      *event.Queues
	space  *reg.Space
	events []any
	ceqs   []int
	aeqs   int
}

func newBench(t testing.TB) *bench {
	b := &bench{TB: t, mem: rdmatest.Memory(t, 1<<20)}
	emit := func(e any) { b.events = append(b.events, e) }
	bufs := hmc.New(hmc.Config{Mem: b.mem, Emit: emit})
	b.q = event.New(event.Config{Mem: b.mem, Buffers: bufs, Emit: emit,
		CEQ: func(n int) { b.ceqs = append(b.ceqs, n) }, AEQ: func() { b.aeqs++ }})
	b.space = reg.NewSpace(8<<20, nil, b.q.Registers())
	return b
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) load(at uint64) uint64 {
	b.Helper()
	v, err := b.mem.Load64(at)
	b.ok(err)
	return v
}

func (b *bench) store(at, v uint64) {
	b.Helper()
	b.ok(b.mem.Store64(at, v))
}

const (
	armRegister      = 0x502C00
	ackRegister      = 0x502C80
	aeqAllocRegister = 0x502D00
)

func (b *bench) arm(id uint32, any bool) {
	w := uint64(1 << 15)
	if any {
		w |= 1 << 14
	}
	b.store(shadow+32, w)
	b.space.Write32(armRegister, id)
}

func (b *bench) ack(id uint32) { b.space.Write32(ackRegister, id) }

func (b *bench) complete(id uint32, wanted bool) {
	b.Helper()
	if !b.q.CQ(id).Post(event.Entry{Length: 1, Context: 2, Value: 3, Minor: 4, Solicited: wanted}) {
		b.Fatal("not posted")
	}
}

const context = 0x7FFF_C440_8888_1238

// withCQ makes CEQ 2 with CQ 5 attached.
func (b *bench) withCQ(size uint32) {
	b.Helper()
	b.ok(b.q.CreateCEQ(2, hmc.Buffer{Base: ceqRing}, 4))
	b.ok(b.q.CreateCQ(event.CQConfig{ID: 5, Size: size, Buf: hmc.Buffer{Base: cqRing}, Shadow: shadow,
		Context: context, CEQ: 2, CEQValid: true, CEQMask: true, CheckOverflow: true}))
}

func TestCQEsAndPolarity(t *testing.T) {
	const size = 5 // not a power of two
	b := newBench(t)
	b.withCQ(size)
	for i := range uint64(3 * size) {
		if !b.q.CQ(5).Post(event.Entry{Length: uint32(i), Context: i + 1, Value: uint32(i + 2), Minor: uint16(i + 3)}) {
			t.Fatal("not posted")
		}
		at := cqRing + 32*(i%size)
		valid := 1 - i/size&1
		want := []uint64{i, i + 1, i + 2, i + 3 | valid<<63}
		got := []uint64{b.load(at), b.load(at + 8), b.load(at + 16), b.load(at + 24)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("CQE %d:\n%s", i, diff)
		}
		b.store(shadow, (i+1)%size)
	}
}

func TestArming(t *testing.T) {
	tests := []struct {
		name string
		run  func(b *bench)
		want int // CEQEs
	}{
		{"not armed", func(b *bench) { b.complete(5, true) }, 0},
		{"any, then a completion", func(b *bench) { b.arm(5, true); b.complete(5, false) }, 1},
		{"one event per arm", func(b *bench) { b.arm(5, true); b.complete(5, false); b.ack(5); b.complete(5, false) }, 1},
		{"solicited waits for one", func(b *bench) { b.arm(5, false); b.complete(5, false) }, 0},
		{"solicited gets one", func(b *bench) { b.arm(5, false); b.complete(5, false); b.complete(5, true) }, 1},
		{"arm is a state", func(b *bench) { b.arm(5, true); b.arm(5, true); b.complete(5, false); b.ack(5); b.complete(5, false) }, 1},
		{"solicited does not weaken any", func(b *bench) { b.arm(5, true); b.arm(5, false); b.complete(5, false) }, 1},
		{"unread completion fires at once", func(b *bench) { b.complete(5, false); b.arm(5, true) }, 1},
		{"read completion does not", func(b *bench) { b.complete(5, false); b.store(shadow, 1); b.arm(5, true) }, 0},
		{"unread but not solicited", func(b *bench) { b.complete(5, false); b.arm(5, false) }, 0},
		{"unread and solicited", func(b *bench) { b.complete(5, true); b.complete(5, false); b.arm(5, false) }, 1},
		{"solicited one already read", func(b *bench) {
			b.complete(5, true)
			b.complete(5, false)
			b.store(shadow, 1)
			b.arm(5, false)
		}, 0},
		{"masked until acknowledged", func(b *bench) {
			b.arm(5, true)
			b.complete(5, false)
			b.arm(5, true) // fires for the unread one, but is held back
			b.arm(5, true)
		}, 1},
		{"owed after the acknowledgement", func(b *bench) {
			b.arm(5, true)
			b.complete(5, false)
			b.arm(5, true)
			b.ack(5)
		}, 2},
		{"no arm bits", func(b *bench) {
			b.store(shadow+32, 3<<16)
			b.space.Write32(armRegister, 5)
			b.complete(5, true)
		}, 0},
		{"CEQ gone", func(b *bench) { b.arm(5, true); b.ok(b.q.DestroyCEQ(2)); b.complete(5, true) }, 0},
		{"CQ gone", func(b *bench) { b.arm(5, true); b.ok(b.q.DestroyCQ(5)); b.ack(5) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.withCQ(8)
			tt.run(b)
			n := 0
			for b.load(ceqRing+8*uint64(n)) == context|1<<63 {
				n++
			}
			if n != tt.want || len(b.ceqs) != tt.want {
				t.Errorf("%d CEQEs and causes %v, want %d", n, b.ceqs, tt.want)
			}
			for _, c := range b.ceqs {
				if c != 2 {
					t.Errorf("cause of CEQ %d", c)
				}
			}
		})
	}
}

func TestCEQWraps(t *testing.T) {
	b := newBench(t)
	b.withCQ(64)
	for i := range uint64(9) { // CEQ of 4
		b.arm(5, true)
		b.complete(5, false)
		b.store(shadow, i+1)
		b.ack(5)
		if v, want := b.load(ceqRing+8*(i%4)), context|(1-i/4&1)<<63; v != want {
			t.Fatalf("CEQE %d = %#x, want %#x", i, v, want)
		}
	}
}

// The CCQ exists before its CEQ, has no mask, and outlives the CEQ.
func TestCCQ(t *testing.T) {
	b := newBench(t)
	ccq := event.CQConfig{ID: 0, Size: 16, Buf: hmc.Buffer{Base: cqRing}, Shadow: shadow, CEQValid: true}
	b.ok(b.q.CreateCQ(ccq))
	b.arm(0, true)
	b.complete(0, true) // no CEQ: the event is lost
	b.ok(b.q.CreateCEQ(0, hmc.Buffer{Base: ceqRing}, 4))
	b.store(shadow, 1)
	b.arm(0, true)
	b.complete(0, true)
	b.store(shadow, 2)
	b.arm(0, true)
	b.complete(0, true) // without PFPE_CQACK between
	if len(b.ceqs) != 2 {
		t.Errorf("%d events, want 2", len(b.ceqs))
	}
	b.ok(b.q.DestroyCEQ(0))
	if len(b.events) != 0 {
		t.Errorf("events: %v", b.events)
	}
	ccq.ID, ccq.CEQ = 1, 0
	if err := b.q.CreateCQ(ccq); err == nil {
		t.Error("CQ 1 created on a CEQ that does not exist")
	}
}

func TestCQOverflow(t *testing.T) {
	b := newBench(t)
	b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 8))
	b.withCQ(4)
	for range 4 {
		b.complete(5, false)
	}
	if b.q.CQ(5).Post(event.Entry{Length: 9}) {
		t.Fatal("a fifth entry in a CQ of four")
	}
	if v := b.load(cqRing); v != 1 {
		t.Errorf("unread entry overwritten with %d", v)
	}
	// q1: code 0x0203, source 2, id 5, valid.
	if q0, q1 := b.load(aeqRing), b.load(aeqRing+8); q0 != context || q1 != 1<<63|2<<50|0x0203<<34|5 {
		t.Errorf("AEQE %#x %#x", q0, q1)
	}
	if b.q.CQ(5).Post(event.Entry{}) {
		t.Error("an overflowed CQ went on")
	}
	if b.aeqs != 1 {
		t.Errorf("%d AEQ causes", b.aeqs)
	}
}

// The head is read once half of the queue may be taken.
func TestShadowHead(t *testing.T) {
	for _, head := range []uint32{3, 77} { // beyond what was written; no index at all
		b := newBench(t)
		b.withCQ(4)
		b.complete(5, false)
		b.complete(5, false)
		b.store(shadow, uint64(head))
		b.complete(5, false)
		want := []any{event.BadShadowHead{CQ: 5, Head: head, Last: 0, Unread: 2}}
		if diff := cmp.Diff(want, b.events); diff != "" {
			t.Error(diff)
		}
	}
}

func TestResize(t *testing.T) {
	b := newBench(t)
	b.withCQ(4)
	for range 3 {
		b.complete(5, false)
	}
	b.ok(b.q.ResizeCQ(5, hmc.Buffer{Base: newRing}, 3))
	b.complete(5, false)
	if v := b.load(newRing + 24); v != 1<<63|4 {
		t.Errorf("first entry of the new buffer: %#x", v)
	}
	if v := b.load(cqRing + 3*32 + 24); v != 0 {
		t.Errorf("entry in the old buffer: %#x", v)
	}
	// Software drains the old buffer: its heads say nothing of the new one.
	for _, head := range []uint64{1, 2, 3} {
		b.store(shadow, head)
		b.arm(5, false)
	}
	b.complete(5, false)
	b.store(shadow+32, 1) // SW_CQ_SELECT: old buffer retired
	b.space.Write32(armRegister, 5)
	b.store(shadow, 2)
	b.complete(5, false)
	b.complete(5, false)
	b.complete(5, false)
	if b.q.CQ(5).Post(event.Entry{}) {
		t.Error("new buffer of 3 took a fourth unread entry")
	}
	for _, e := range b.events {
		if _, ok := e.(event.BadShadowHead); ok {
			t.Errorf("%v", e)
		}
	}
}

func TestAEQCredit(t *testing.T) {
	b := newBench(t)
	b.q.AE(event.AE{Code: 1})
	b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 2))
	for i := range uint32(4) {
		b.q.AE(event.AE{Code: 0x900, ID: 0x40001 + i, Context: uint64(100 + i), State: 2, WQE: 3})
	}
	const base = 1<<63 | 2<<54 | 0x900<<34 | 3<<18 | 1<<46
	if v := b.load(aeqRing + 8); v != base|1 {
		t.Errorf("first AEQE %#x", v)
	}
	if v := b.load(aeqRing); v != 100 {
		t.Errorf("first AEQE is overwritten: context %d", v)
	}
	b.space.Write32(aeqAllocRegister, 1)
	if q0, q1 := b.load(aeqRing), b.load(aeqRing+8); q0 != 102 || q1 != base&^(1<<63)|3 {
		t.Errorf("third AEQE %d %#x", q0, q1)
	}
	b.space.Write32(aeqAllocRegister, 2)
	if q0, q1 := b.load(aeqRing+16), b.load(aeqRing+24); q0 != 103 || q1 != base&^(1<<63)|4 {
		t.Errorf("fourth AEQE %d %#x", q0, q1)
	}
	b.space.Write32(aeqAllocRegister, 5)
	want := []any{
		event.AELost{AE: event.AE{Code: 1}},
		event.AEQCredit{Count: 5, Outstanding: 1},
	}
	if diff := cmp.Diff(want, b.events); diff != "" {
		t.Error(diff)
	}
	if b.aeqs != 4 {
		t.Errorf("%d causes, want 4", b.aeqs)
	}
}

func TestRefused(t *testing.T) {
	b := newBench(t)
	b.withCQ(4)
	good := event.CQConfig{ID: 6, Size: 4, Buf: hmc.Buffer{Base: newRing}, Shadow: shadow, CEQ: 2, CEQValid: true}
	tests := map[string]func(c *event.CQConfig){
		"exists":          func(c *event.CQConfig) { c.ID = 5 },
		"empty":           func(c *event.CQConfig) { c.Size = 0 },
		"misaligned":      func(c *event.CQConfig) { c.Buf.Base += 32 },
		"shadow":          func(c *event.CQConfig) { c.Shadow++ },
		"CCQ's shadow":    func(c *event.CQConfig) { c.ID = 0; c.Shadow += 64 },
		"wraps":           func(c *event.CQConfig) { c.Buf.Base = 1<<64 - 256; c.Size = 100 },
		"no such PBLE":    func(c *event.CQConfig) { c.Buf = hmc.Buffer{Virtual: true, First: 1} },
		"CEQ nonexistent": func(c *event.CQConfig) { c.CEQ = 3 },
	}
	for name, change := range tests {
		c := good
		change(&c)
		if err := b.q.CreateCQ(c); err == nil {
			t.Errorf("%s: created", name)
		}
	}
	b.ok(b.q.CreateCQ(good))
	for name, err := range map[string]error{
		"DESTROY_CQ":  b.q.DestroyCQ(9),
		"MODIFY_CQ":   b.q.ResizeCQ(9, good.Buf, 4),
		"DESTROY_CEQ": b.q.DestroyCEQ(9),
		"DESTROY_AEQ": b.q.DestroyAEQ(),
		"CREATE_CEQ":  b.q.CreateCEQ(2, good.Buf, 4),
	} {
		if err == nil {
			t.Errorf("%s of what is not there (or is): success", name)
		}
	}
	b.events = nil
	b.ack(9)
	b.ack(6)
	b.space.Write32(armRegister, 9)
	b.space.Write32(0x7F0040, 8) // the user programs' alias
	want := []any{event.UnknownCQ{Register: "PFPE_CQACK", CQ: 9}, event.SpuriousAck{CQ: 6}, event.UnknownCQ{Register: "PFPE_CQARM", CQ: 9},
		event.UnknownCQ{Register: event.UserArm, CQ: 8}}
	if diff := cmp.Diff(want, b.events); diff != "" {
		t.Error(diff)
	}
}
