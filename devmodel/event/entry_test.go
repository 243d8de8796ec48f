// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// slot is what lies in a slot of the bench's CQ.
func (b *bench) slot(i uint64) [4]uint64 {
	b.Helper()
	at := cqRing + 32*i
	return [4]uint64{b.load(at), b.load(at + 8), b.load(at + 16), b.load(at + 24)}
}

func TestEntryLayout(t *testing.T) {
	mac := [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	tests := map[string]struct {
		e    event.Entry
		want [2][4]uint64
	}{
		"zero": {event.Entry{}, [2][4]uint64{{3: 1 << 63}}},
		"numbers": {event.Entry{Context: 0xFFFF888100001000, QP: 0xABCDEF, Length: 0x11223344, PSN: 0x55667788, Value: 0x99AABBCC,
			WQE: 0x7FFF, Op: 0x3E, Minor: 0x1234, Major: 0x5678},
			[2][4]uint64{{0x5566778811223344, 0xFFFF888100001000, 0x00ABCDEF99AABBCC, 1<<63 | 0x3E<<56 | 0x7FFF<<32 | 0x56781234}}},
		"fields do not spill": {event.Entry{QP: 1<<32 - 1, WQE: 1<<16 - 1, Op: 0xFF},
			[2][4]uint64{{2: 0xFFFFFF << 32, 3: 1<<63 | 0x3F<<56 | 0x7FFF<<32}}},
		"flags":     {event.Entry{SQ: true, Error: true, Solicited: true, STag: true}, [2][4]uint64{{3: 1<<63 | 1<<62 | 1<<55 | 1<<54 | 1<<53}}},
		"immediate": {event.Entry{Ext: event.Extension{HasImmediate: true, Immediate: 0xDEADBEEF}}, [2][4]uint64{{3: 1<<63 | 1<<50}, {0: 0xDEADBEEF, 3: 1<<63 | 1<<62}}},
		"source MAC": {event.Entry{Ext: event.Extension{HasSourceMAC: true, SourceMAC: mac}},
			[2][4]uint64{{3: 1<<63 | 1<<50}, {2: 0x525400123456, 3: 1<<63 | 1<<61}}},
		"VLAN": {event.Entry{Ext: event.Extension{HasVLAN: true, VLAN: 0xE064}}, [2][4]uint64{{3: 1<<63 | 1<<50}, {2: 0xE064 << 48, 3: 1<<63 | 1<<60}}},
	}
	for name, tt := range tests {
		b := newBench(t)
		b.withCQ(8)
		if !b.q.CQ(5).Post(tt.e) {
			t.Fatalf("%s: not posted", name)
		}
		if diff := cmp.Diff(tt.want, [2][4]uint64{b.slot(0), b.slot(1)}); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

var extended = event.Entry{Ext: event.Extension{HasImmediate: true, Immediate: 7}}

// A pair may lie around the ring's end: each half has the valid bit of its
// own pass.
func TestPairAroundTheEnd(t *testing.T) {
	b := newBench(t)
	b.withCQ(3)
	cq := b.q.CQ(5)
	cq.Post(extended) // 0, 1
	b.store(shadow, 2)
	cq.Post(extended) // 2, 0
	if base, ext := b.slot(2)[3], b.slot(0)[3]; base != 1<<63|1<<50 || ext != 1<<62 {
		t.Errorf("base %#x, extension %#x", base, ext)
	}
	b.store(shadow, 1)
	cq.Post(event.Entry{}) // 1, second pass
	if w := b.slot(1)[3]; w != 0 {
		t.Errorf("entry behind the pair: %#x", w)
	}
}

func TestPairOverflows(t *testing.T) {
	for size, singles := range map[uint32]int{4: 3, 1: 0} {
		b := newBench(t)
		b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 8))
		b.withCQ(size)
		cq := b.q.CQ(5)
		for range singles {
			cq.Post(event.Entry{})
		}
		if cq.Post(extended) {
			t.Errorf("a pair in the last slot of %d", size)
		}
		if cq.Post(event.Entry{}) {
			t.Errorf("an overflowed CQ of %d goes on", size)
		}
		if w := b.load(aeqRing + 8); w != 1<<63|2<<50|0x0203<<34|5 || b.aeqs != 1 {
			t.Errorf("AEQE %#x, %d causes", w, b.aeqs)
		}
		if !b.q.CQs()[0].Stopped {
			t.Error("not shown as stopped")
		}
	}
}

func TestUnwritableCQStops(t *testing.T) {
	b := newBench(t)
	b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 8))
	b.ok(b.q.CreateCQ(event.CQConfig{ID: 5, Size: 4, Buf: hmc.Buffer{Base: 0x1000}, Shadow: shadow}))
	cq := b.q.CQ(5)
	for range 2 {
		if cq.Post(event.Entry{}) {
			t.Error("posted outside memory")
		}
	}
	if w := b.load(aeqRing + 8); w != 1<<63|2<<50|0x0203<<34|5 || b.aeqs != 1 {
		t.Errorf("AEQE %#x, %d causes", w, b.aeqs)
	}
	if len(b.events) != 1 {
		t.Errorf("events %v", b.events)
	}
}

// Which entries an arm for solicited ones takes.
func TestWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		cq   uint32
		e    event.Entry
		want int
	}{
		"plain":     {5, event.Entry{}, 0},
		"solicited": {5, event.Entry{Solicited: true}, 1},
		"error":     {5, event.Entry{Error: true}, 1},
		"CCQ":       {0, event.Entry{}, 1},
	} {
		b := newBench(t)
		b.ok(b.q.CreateCEQ(2, hmc.Buffer{Base: ceqRing}, 4))
		b.ok(b.q.CreateCQ(event.CQConfig{ID: tt.cq, Size: 4, Buf: hmc.Buffer{Base: cqRing}, Shadow: shadow, CEQ: 2, CEQValid: true}))
		b.arm(tt.cq, false)
		b.q.CQ(tt.cq).Post(tt.e)
		if len(b.ceqs) != tt.want {
			t.Errorf("%s: %d events, want %d", name, len(b.ceqs), tt.want)
		}
	}
}

func TestNoCQ(t *testing.T) {
	b := newBench(t)
	cq := b.q.CQ(5)
	if cq != nil {
		t.Error("a CQ out of nothing")
	}
	if cq.Post(event.Entry{}) {
		t.Error("posted to no CQ")
	}
}

// Heads of the old buffer that the device never looked at while software
// drained it are not taken for heads of the new one.
func TestResizeUnseen(t *testing.T) {
	b := newBench(t)
	b.withCQ(16)
	cq := b.q.CQ(5)
	for range 6 {
		cq.Post(event.Entry{})
	}
	b.ok(b.q.ResizeCQ(5, hmc.Buffer{Base: newRing}, 8))
	b.store(shadow, 6)    // drained
	b.store(shadow+32, 1) // and retired
	for i := range 8 {
		if !cq.Post(event.Entry{}) {
			t.Fatalf("entry %d of the new buffer is lost", i)
		}
	}
	b.store(shadow, 5)
	for i := range 5 {
		if !cq.Post(event.Entry{}) {
			t.Fatalf("entry %d after the first head", i)
		}
	}
	if len(b.events) != 0 {
		t.Errorf("events %v", b.events)
	}
	if cq.Post(event.Entry{}) {
		t.Error("overwrote an unread entry")
	}
}

func TestPostDoesNotAllocate(t *testing.T) {
	b := newBench(t)
	b.withCQ(64)
	cq := b.q.CQ(5)
	b.ceqs = make([]int, 0, 4096)
	head := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		b.arm(5, true)
		cq.Post(extended)
		cq.Post(event.Entry{Error: true})
		head += 3
		b.store(shadow, head%64)
		b.ack(5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPost(b *testing.B) {
	for name, e := range map[string]event.Entry{"single": {}, "extended": extended} {
		b.Run(name, func(b *testing.B) {
			bench := newBench(b)
			bench.withCQ(1 << 10)
			cq := bench.q.CQ(5)
			n := uint64(1)
			if name == "extended" {
				n = 2
			}
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if !cq.Post(e) {
					b.Fatal("overflow")
				}
				if i%128 == 127 {
					bench.store(shadow, (i+1)*n%(1<<10))
				}
			}
		})
	}
}
