// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"runtime"
	"sync"
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
	for p := range producers {
		all.Go(func() {
			for i := range each {
				<-credit
				if !q.CQ(5).Post(event.Entry{Context: uint64(p), Length: uint32(i)}) {
					t.Error("CQ has stopped")
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
