// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// consumer is software's side of CQ 5 and CEQ 2: it sleeps until the
// interrupt, acknowledges, drains and arms, as drivers do.
type consumer struct {
	b         *bench
	size      uint64
	head      uint64 // slots consumed, over all passes
	ceqe      uint64 // entries of the CEQ consumed
	interrupt chan struct{}
}

// poll takes the next entry; its slots are given back to the producers.
func (c *consumer) poll() (words [4]uint64, ext uint64, ok bool) {
	slot := func(n uint64) (at, valid uint64) {
		at = cqRing + 32*(n%c.size)
		return at, c.b.load(at+24) ^ (n/c.size&1)<<63
	}
	at, w3 := slot(c.head)
	if w3>>63 == 0 {
		return words, 0, false
	}
	words = [4]uint64{c.b.load(at), c.b.load(at + 8), c.b.load(at + 16), w3}
	c.head++
	if w3>>50&1 != 0 {
		at, w3 := slot(c.head)
		if w3>>63 == 0 || w3>>62&1 == 0 {
			c.b.Errorf("extension in slot %d is not valid: %#x", c.head%c.size, w3)
		}
		ext = c.b.load(at)
		c.head++
	}
	c.b.store(shadow, c.head%c.size)
	return words, ext, true
}

// Several producers, credit for what the CQ holds, every third entry an
// extended one, and a consumer that only looks after an interrupt. A lost
// event, entry or slot ends in a deadlock.
func TestNoEventIsLost(t *testing.T) {
	const producers, each, size, ceqSize = 3, 3000, 37, 4
	b := newBench(t)
	c := &consumer{b: b, size: size, interrupt: make(chan struct{}, 1)}
	q := event.New(event.Config{Mem: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}),
		Emit: func(e any) { t.Errorf("event: %v", e) },
		CEQ: func(int) {
			select {
			case c.interrupt <- struct{}{}:
			default:
			}
		}})
	b.q, b.space = q, reg.NewSpace(8<<20, nil, q.Registers())
	b.withCQ(size)

	credit := make(chan struct{}, (size-1)/2)
	for range cap(credit) {
		credit <- struct{}{}
	}
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			cq := q.CQ(5)
			for i := range each {
				<-credit
				e := event.Entry{Context: uint64(p), Length: uint32(i), Solicited: i%2 == 0}
				if i%3 == 0 {
					e.Ext = event.Extension{HasImmediate: true, Immediate: uint32(p<<24 | i)}
				}
				if !cq.Post(e) {
					t.Error("CQ has stopped")
					return
				}
			}
		})
	}

	var next [producers]uint64
	b.arm(5, true)
	for got := 0; got < producers*each; {
		<-c.interrupt
		for b.load(ceqRing+8*(c.ceqe%ceqSize)) == context|(1-c.ceqe/ceqSize&1)<<63 {
			c.ceqe++
		}
		b.ack(5)
		for {
			w, ext, ok := c.poll()
			if !ok {
				break
			}
			p, i := w[1], w[0]
			if p >= producers || i != next[p] {
				t.Fatalf("producer %d: entry %d, want %v", p, i, next)
			}
			if i%3 == 0 && ext != p<<24|i {
				t.Fatalf("producer %d: entry %d has immediate %#x", p, i, ext)
			}
			next[p]++
			got++
			credit <- struct{}{}
		}
		b.arm(5, true)
	}
	all.Wait()
}

// While producers post, doorbells ring and the shadow moves, queues end, one
// by one or by a reset. From then on their memory is not touched.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	mem := rdmatest.Memory(t, 1<<20)
	q := event.New(event.Config{Mem: mem, Buffers: hmc.New(hmc.Config{Mem: mem})})
	space := reg.NewSpace(8<<20, nil, q.Registers())
	var control sync.Mutex
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			var cq *event.CQ
			for n := 0; !stop.Load(); n++ {
				if n%16 == 0 {
					cq = q.CQ(5) // and then kept beyond its end
				}
				cq.Post(event.Entry{Error: true, Ext: event.Extension{HasVLAN: n%2 == 0}})
				q.AE(event.AE{Code: 1})
			}
		})
	}
	all.Go(func() {
		for !stop.Load() {
			control.Lock()
			space.Write32(armRegister, 5)
			space.Write32(ackRegister, 5)
			space.Write32(aeqAllocRegister, 1)
			control.Unlock()
			runtime.Gosched()
		}
	})
	check := func(what string, rings ...uint64) {
		t.Helper()
		for _, at := range rings {
			if !poisoned(t, mem, at) {
				t.Errorf("%s: memory at %#x was written after the end", what, at)
			}
		}
	}
	const size = 64
	for round := range 300 {
		control.Lock()
		for _, err := range []error{
			q.CreateCEQ(2, hmc.Buffer{Base: ceqRing}, size),
			q.CreateAEQ(hmc.Buffer{Base: aeqRing}, size),
			q.CreateCQ(event.CQConfig{ID: 5, Size: size, Buf: hmc.Buffer{Base: cqRing}, Shadow: shadow, CEQ: 2, CEQValid: true}),
			mem.Store64(shadow+32, 3<<14),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		handle := q.CQ(5)
		control.Unlock()
		for range round % 16 {
			handle.Post(event.Entry{})
			runtime.Gosched()
		}
		control.Lock()
		if round%2 == 0 {
			q.Reset(reg.PFR)
			poison(t, mem, cqRing, ceqRing, aeqRing)
		} else {
			if err := q.ResizeCQ(5, hmc.Buffer{Base: newRing}, size/2); err != nil {
				t.Fatal(err)
			}
			poison(t, mem, cqRing)
			runtime.Gosched()
			check("MODIFY_CQ", cqRing)
			if err := q.DestroyCEQ(2); err != nil { // before its CQ
				t.Fatal(err)
			}
			poison(t, mem, ceqRing)
			if err := q.DestroyCQ(5); err != nil {
				t.Fatal(err)
			}
			poison(t, mem, newRing)
			if err := q.DestroyAEQ(); err != nil {
				t.Fatal(err)
			}
			poison(t, mem, aeqRing)
		}
		control.Unlock()
		if handle.Post(event.Entry{}) {
			t.Error("posted to a dead CQ")
		}
		for range 4 {
			runtime.Gosched()
		}
		check("end", cqRing, ceqRing, aeqRing)
	}
	stop.Store(true)
	all.Wait()
	check("last", cqRing, ceqRing, aeqRing, newRing)
}

const ringBytes = 4096 // the bench's rings lie apart by at least this

func poison(t *testing.T, mem *guestmem.Memory, rings ...uint64) {
	t.Helper()
	p := make([]byte, ringBytes)
	for i := range p {
		p[i] = 0xA5
	}
	for _, at := range rings {
		if err := mem.Write(at, p); err != nil {
			t.Fatal(err)
		}
	}
}

func poisoned(t *testing.T, mem *guestmem.Memory, at uint64) bool {
	t.Helper()
	p := make([]byte, ringBytes)
	if err := mem.Read(at, p); err != nil {
		t.Fatal(err)
	}
	for _, b := range p {
		if b != 0xA5 {
			return false
		}
	}
	return true
}
