// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
)

// posts records completions from any goroutine.
type posts struct {
	mu  sync.Mutex
	qps map[uint32]int
}

func (p *posts) Post(e event.Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.qps[e.QP]++
	return true
}

func (p *posts) of(id uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.qps[id]
}

type manyQueues struct{ *posts }

func (q manyQueues) CQ(uint32) qp.CQ { return q.posts }
func (manyQueues) AE(event.AE)       {}

// Pairs of QPs move data on several shards at once, and in the middle of it
// one of each is ended in one of the driver's ways. From the moment the driver
// would be told, its memory is neither written nor read and no completion of
// it comes.
func TestEndUnderTraffic(t *testing.T) {
	const pairs, rounds = 4, 40
	b := newBench(t)
	e := engine.New(engine.Config{Shards: 3})
	defer e.Close()
	p := &posts{qps: map[uint32]int{}}
	var control sync.Mutex // the device's control lock
	b.table = qp.New(qp.Config{Mem: b.mem, Payload: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}), Regions: b, Queues: manyQueues{p},
		Engine: e, MAC: func() [6]byte { return ownMAC }})
	b.regions[lkey] = region{data, dataSize, pd, all}
	b.regions[rkey] = region{data, dataSize, pd, all}

	lock := func(f func()) {
		control.Lock()
		defer control.Unlock()
		f()
	}
	one := func(n int, r *rand.Rand) {
		id := uint32(4 * (n + 1))
		mine := uint64(data + n*0x80000) // of x: source, and target of reads
		theirs := mine + 0x40000         // of y
		x, y := b.newSide(id, id+2), b.newSide(id+2, id)
		lock(func() {
			x.create()
			y.create()
			for _, s := range []qp.State{qp.RTR, qp.RTS} {
				x.modify(s)
				y.modify(s)
			}
		})
		for range 30 {
			w := wr{op: opWrite, flags: signalled, sges: []sge{{mine, 0x10000}}, raddr: theirs, key: rkey}
			switch r.IntN(3) {
			case 0:
				w.op, w.sges, w.raddr = opRead, []sge{{mine + 0x20000, 0x8000}}, theirs+0x10000
			case 1:
				w.op, w.raddr, w.key = opSend, 0, 0
				y.receive(sge{theirs + 0x20000, 0x10000})
			}
			x.post(w)
		}
		lock(func() { b.table.Registers()[0].Write(0, id) })
		go e.Serve()
		for range r.IntN(200) {
			_ = p.of(id) // some time
		}

		ended, from, size := x, mine, 0x40000
		if r.IntN(2) == 0 {
			ended, from = y, theirs
		}
		kind := r.IntN(3)
		lock(func() {
			if kind == 0 {
				b.ok(b.table.Destroy(ended.id))
			} else {
				ended.modify(qp.Error)
			}
		})
		e.Grace().Wait()
		if kind == 2 {
			var flush *qp.Flush
			lock(func() {
				var err error
				flush, err = b.table.Halt(qp.FlushArgs{ID: ended.id, SQ: true, RQ: true})
				b.ok(err)
			})
			e.Grace().Wait()
			lock(func() {
				done, err := flush.Run()
				if b.ok(err); !done {
					t.Error("the flush of a small ring took more than one turn")
				}
			})
		}
		// The driver reuses the memory. What the other side still writes is its
		// own.
		poison := bytes.Repeat([]byte{byte(0x80 + n)}, size)
		b.ok(b.mem.Write(from, poison))
		count := p.of(ended.id)
		other := x
		if ended == x {
			other = y
		}
		for range 200 {
			lock(func() { b.table.Registers()[0].Write(0, other.id) })
			go e.Serve()
			_ = p.of(id)
		}
		if !bytes.Equal(b.read(from, size), poison) {
			t.Errorf("memory of QP %d is written after its end (%d)", ended.id, kind)
		}
		theirData := mine
		if ended == x {
			theirData = theirs
		}
		if bytes.Contains(b.read(theirData, size), poison[:64]) {
			t.Errorf("memory of QP %d is read after its end (%d)", ended.id, kind)
		}
		if c := p.of(ended.id); c != count {
			t.Errorf("%d completions of QP %d after its end (%d)", c-count, ended.id, kind)
		}
		lock(func() {
			for _, s := range []*side{x, y} {
				if kind != 0 || s != ended {
					b.ok(b.table.Destroy(s.id))
				}
			}
		})
		e.Grace().Wait()
		b.ok(b.mem.Write(x.base, make([]byte, ringSpace)))
		b.ok(b.mem.Write(y.base, make([]byte, ringSpace)))
		b.ok(b.mem.Write(mine, make([]byte, 0x80000)))
	}
	var workers sync.WaitGroup
	for n := range pairs {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			for range rounds {
				one(n, r)
			}
		})
	}
	workers.Wait()
	if b.table.Len() != 0 {
		t.Errorf("%d QPs left", b.table.Len())
	}
}

// Pairs on several shards, all of it arriving, completions in order.
func TestManyShards(t *testing.T) {
	const pairs, wqes = 6, 200
	b := newBench(t)
	e := engine.New(engine.Config{Shards: 3})
	defer e.Close()
	var mu sync.Mutex
	got := map[uint32][]uint16{}
	done := make(chan uint32, pairs)
	b.table = qp.New(qp.Config{Mem: b.mem, Payload: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}), Regions: b, Engine: e,
		MAC: func() [6]byte { return ownMAC }, Queues: callQueues(func(x event.Entry) {
			mu.Lock()
			defer mu.Unlock()
			if !x.SQ {
				return
			}
			if got[x.QP] = append(got[x.QP], x.WQE); len(got[x.QP]) == wqes {
				done <- x.QP
			}
		})})
	b.regions[lkey] = region{data, dataSize, pd, all}
	b.regions[rkey] = region{data, dataSize, pd, all}
	want := map[uint32][]uint16{}
	for n := range uint32(pairs) {
		id := 4 * (n + 1)
		x, y := b.newSide(id, id+2), b.newSide(id+2, id)
		x.create()
		y.create()
		for _, s := range []qp.State{qp.RTR, qp.RTS} {
			x.modify(s)
			y.modify(s)
		}
		for i := range uint64(wqes) {
			w := wr{op: opWrite, flags: signalled, sges: []sge{{data + i*64, 5000}}, raddr: data + 0x100000 + uint64(n)*0x10000, key: rkey}
			if i%3 == 1 {
				w.op, w.sges, w.raddr = opRead, []sge{{data + 0x180000 + uint64(n)*0x10000, 5000}}, data
			}
			want[id] = append(want[id], uint16(x.post(w)))
		}
		b.table.Registers()[0].Write(0, id)
		go e.Serve()
	}
	for range pairs {
		<-done
	}
	mu.Lock()
	defer mu.Unlock()
	for id, w := range want {
		if !slices.Equal(got[id], w) {
			t.Errorf("completions of QP %d out of order", id)
		}
	}
	b.table.Reset(0)
}

// callQueues gives every completion to a function.
type callQueues func(event.Entry)

func (f callQueues) CQ(uint32) qp.CQ         { return f }
func (callQueues) AE(event.AE)               {}
func (f callQueues) Post(e event.Entry) bool { f(e); return true }

// A QP that is held takes no steps; who holds it learns whether one is under
// way.
func TestHold(t *testing.T) {
	b, x, _ := connected(t)
	if !b.table.Hold(77) || !b.table.Hold(2) {
		t.Error("a QP at rest, or none, cannot be held")
	}
	write := wr{op: opWrite, flags: signalled, sges: []sge{{data, 10}}, raddr: data + 0x1000, key: rkey}
	x.post(write)
	x.ring()
	b.drain()
	b.wantCQ(2)
	inside, leave, drained := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.hook = func() {
		b.hook = nil
		close(inside)
		<-leave
	}
	b.table.Release(2)
	go func() {
		defer close(drained)
		b.engine.Drain(1000)
	}()
	<-inside
	if b.table.Hold(2) {
		t.Error("held during its step")
	}
	close(leave)
	<-drained
	if !b.table.Hold(2) {
		t.Error("not at rest after its step")
	}
	if n := len(b.cqes[2]); n != 1 {
		t.Errorf("%d completions", n)
	}
	x.post(write)
	x.ring()
	b.drain()
	if n := len(b.cqes[2]); n != 1 {
		t.Errorf("%d completions of a QP that is held", n)
	}
	b.table.Release(2)
	b.drain()
	if n := len(b.cqes[2]); n != 2 {
		t.Errorf("%d completions after release", n)
	}
}
