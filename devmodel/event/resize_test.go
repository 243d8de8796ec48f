// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Producers post all the time while software moves the CQ to ever new buffers:
// it drains the old one to its end, counts it in SW_CQ_SELECT, and goes on at
// slot 0 of the new one (verbs.c:__irdma_poll_cq, irdma_resize_cq). Every entry
// comes once, in its producer's order, and as many as the smallest buffer holds
// may be on their way.
func TestResizeUnderLoad(t *testing.T) {
	const producers, each, resizes = 3, 4000, 200
	sizes := []uint32{7, 64, 5, 33}
	b := newBench(t)
	var control sync.Mutex
	q := event.New(event.Config{Mem: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}), Emit: func(e any) { t.Errorf("event: %v", e) }})
	b.q, b.space = q, reg.NewSpace(8<<20, nil, q.Registers())
	b.withCQ(sizes[0])

	credit := make(chan struct{}, 4) // fewer than the smallest buffer has slots
	for range cap(credit) {
		credit <- struct{}{}
	}
	var all sync.WaitGroup
	var stopped atomic.Bool
	for p := range producers {
		all.Go(func() {
			for i := range each {
				<-credit
				if !q.CQ(5).Post(event.Entry{Context: uint64(p), Length: uint32(i)}) {
					stopped.Store(true)
					return
				}
			}
		})
	}

	// Buffers take turns at two places. Each is cleared before it is used.
	type buffer struct{ at, size, head uint64 }
	place := func(n int) buffer { return buffer{at: cqRing + uint64(n%2)*0x4000, size: uint64(sizes[n%len(sizes)])} }
	clean := func(buf buffer) {
		for off := uint64(0); off < buf.size*32; off += 8 {
			b.store(buf.at+off, 0)
		}
	}
	cur := place(0)
	var next [producers]uint64
	got, done := 0, 0
	poll := func() bool {
		at := cur.at + 32*(cur.head%cur.size)
		w3 := b.load(at + 24)
		if w3>>63 != 1-cur.head/cur.size&1 {
			return false
		}
		p, i := b.load(at+8), b.load(at)
		if p >= producers || i != next[p] {
			t.Fatalf("resize %d: producer %d: entry %d, want %v", done, p, i, next)
		}
		next[p]++
		got++
		cur.head++
		b.store(shadow, cur.head%cur.size)
		credit <- struct{}{}
		return true
	}
	for got < producers*each {
		if stopped.Load() {
			t.Fatalf("the CQ has stopped after %d entries and %d resizes", got, done)
		}
		for range 3 {
			poll()
		}
		if done < resizes && got > done*(producers*each)/resizes {
			fresh := place(done + 1)
			clean(fresh)
			control.Lock()
			b.ok(q.ResizeCQ(5, hmc.Buffer{Base: fresh.at}, uint32(fresh.size)))
			control.Unlock()
			for poll() { // nothing more comes there
			}
			done++
			cur = fresh
			b.store(shadow+32, uint64(done)) // SW_CQ_SELECT
		}
		runtime.Gosched()
	}
	all.Wait()
	if done != resizes {
		t.Errorf("%d resizes, want %d", done, resizes)
	}
}

// An arm outlives the resize, an event that waits for its acknowledgement too,
// and an entry left in the old buffer is no reason to fire twice.
func TestResizeKeepsArmAndMask(t *testing.T) {
	b := newBench(t)
	b.withCQ(4)
	b.arm(5, true)
	b.ok(b.q.ResizeCQ(5, hmc.Buffer{Base: newRing}, 8))
	if len(b.ceqs) != 0 {
		t.Errorf("a resize fires %v", b.ceqs)
	}
	b.complete(5, false)
	if len(b.ceqs) != 1 {
		t.Errorf("armed before the resize: %v", b.ceqs)
	}
	b.arm(5, true) // while the first event is not acknowledged
	b.ok(b.q.ResizeCQ(5, hmc.Buffer{Base: cqRing}, 4))
	b.complete(5, false)
	if len(b.ceqs) != 1 {
		t.Errorf("fires before PFPE_CQACK: %v", b.ceqs)
	}
	b.ack(5)
	if len(b.ceqs) != 2 {
		t.Errorf("an event that was owed is lost: %v", b.ceqs)
	}
	b.ack(5)
	if len(b.ceqs) != 2 {
		t.Errorf("one event too many: %v", b.ceqs)
	}
}

// Software may come, in the new buffer, to the very index at which it left the
// old one, without the device having looked in between. That is no overflow,
// and no reason to fire over and over.
func TestHeadComesBackAfterAResize(t *testing.T) {
	for _, c := range []struct {
		name         string
		before       int    // entries in the old buffer, of 8
		size         uint32 // of the new one
		after        int    // entries posted there and consumed before the device looks
		more         int    // that then fit
		fires        int    // of an arm with nothing unread
		head, unread int    // a head that shows how far software really is, and what is unread then
	}{
		{"a little way", 3, 5, 3, 5, 0, 0, 3},
		{"once around", 0, 4, 4, 4, 0, 2, 2},
		{"once around an old one that was full", 8, 4, 4, 4, 0, 2, 2},
		{"beyond the new one", 7, 4, 0, 4, 0, 2, 2},
	} {
		b := newBench(t)
		b.withCQ(8)
		b.ok(b.q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 4))
		for range c.before {
			b.complete(5, false)
		}
		b.ok(b.q.ResizeCQ(5, hmc.Buffer{Base: newRing}, c.size))
		for range c.after {
			b.complete(5, false)
		}
		b.store(shadow, uint64(c.before%8)) // drained, and retired
		b.store(shadow+32, 1)
		if c.after > 0 && c.after%int(c.size) != c.before%8 {
			t.Fatalf("%s: not the same index", c.name)
		}
		word := uint64(1<<15 | 1<<14 | 1)
		b.store(shadow+32, word)
		for range 3 {
			b.space.Write32(armRegister, 5)
		}
		if len(b.ceqs) != c.fires {
			t.Errorf("%s: %d events with nothing unread", c.name, len(b.ceqs))
		}
		for i := range c.more {
			if !b.q.CQ(5).Post(event.Entry{}) {
				t.Fatalf("%s: entry %d more is lost", c.name, i)
			}
		}
		if b.q.CQ(5).Post(event.Entry{}) {
			t.Errorf("%s: an entry over unread ones", c.name)
		}
		if n := len(b.events); n != 1 { // the overflow
			t.Errorf("%s: %v", c.name, b.events)
		}
		b.store(shadow, uint64(c.head))
		b.space.Write32(armRegister, 5)
		if u := b.q.CQs()[0].Unread; u != uint64(c.unread) {
			t.Errorf("%s: %d unread at head %d, want %d", c.name, u, c.head, c.unread)
		}
	}
}
