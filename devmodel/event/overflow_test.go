// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// A driver that takes no events for long: what the queue has no room for waits,
// in order; what there is no room for to wait is lost, and the next entry says
// so, once.
func TestAEQOverflow(t *testing.T) {
	const size, backlog, lost = 4, 1024, 3
	const overflow = 1 << 33
	b := newBench(t)
	b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, size))
	for i := range uint32(size + backlog + lost) {
		b.q.AE(event.AE{Code: 0x203, Source: event.AESrcCQ, ID: i})
	}
	if b.aeqs != size {
		t.Errorf("%d causes for a queue of %d", b.aeqs, size)
	}
	want := uint32(0)
	bits := 0
	for at := uint64(0); want < size+backlog; at++ {
		w := b.load(aeqRing + 16*(at%size) + 8)
		if w>>63 != 1-at/size&1 {
			t.Fatalf("entry %d is not there: %#x", at, w)
		}
		if id := uint32(w & 0x3FFFF); id != want {
			t.Fatalf("entry %d is of CQ %d, want %d", at, id, want)
		}
		if w&overflow != 0 {
			if bits++; want != size {
				t.Errorf("entry %d has OVERFLOW, want the first written afterwards, %d", want, size)
			}
		}
		want++
		b.space.Write32(aeqAllocRegister, 1)
	}
	if bits != 1 {
		t.Errorf("OVERFLOW in %d entries, want 1", bits)
	}
	n := 0
	for _, e := range b.events {
		if _, ok := e.(event.AELost); ok {
			n++
		}
	}
	if n != lost || len(b.events) != lost {
		t.Errorf("%d events of %d losses", len(b.events), n)
	}
}

// An overflowing CQ tells once, with its own number and context, and keeps what
// it holds.
func TestCQOverflowIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.withCQ(2)
	b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 4))
	b.complete(5, false)
	b.complete(5, false)
	first := b.load(cqRing + 24)
	for range 3 {
		if b.q.CQ(5).Post(event.Entry{Length: 9}) {
			t.Error("a full CQ takes an entry")
		}
	}
	if b.load(cqRing+24) != first {
		t.Error("an entry that was not read is overwritten")
	}
	const want = 1<<63 | event.AESrcCQ<<50 | event.AECQOperationError<<34 | 5
	if q0, q1 := b.load(aeqRing), b.load(aeqRing+8); q0 != context || q1 != want {
		t.Errorf("AEQE %#x %#x, want %#x %#x", q0, q1, uint64(context), uint64(want))
	}
	if b.aeqs != 1 || b.load(aeqRing+24) != 0 {
		t.Errorf("%d causes for one overflow", b.aeqs)
	}
}
