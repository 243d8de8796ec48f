// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// step is a data path that is inside one step until it is told to end it.
type step struct {
	busy  atomic.Bool
	waits atomic.Int32
	over  chan struct{}
}

func newStep() *step {
	s := &step{over: make(chan struct{})}
	s.busy.Store(true)
	return s
}

func (s *step) Quiet() bool { return !s.busy.Load() }

func (s *step) Wait() {
	s.waits.Add(1)
	<-s.over
}

func (s *step) end() {
	s.busy.Store(false)
	close(s.over)
}

// waiting returns when Wait has been called n times.
func (s *step) waiting(n int32) {
	for s.waits.Load() < n {
		runtime.Gosched()
	}
}

// inStep boots a driver and then puts the data path into a step.
func inStep(t *testing.T) (*Device, *step) {
	s := newStep()
	s.busy.Store(false)
	d := New(t, hmc.Profile{}, func(c *rdma.Config) { c.Grace = s }).Boot(Kernel73, 2)
	d.G.CCQ.Arm(0, false)
	s.busy.Store(true)
	return d, s
}

const (
	errorState = uint64(0xE004000100000000 + GSIQP)
	sdClear    = uint64(0x802)
)

// ends are commands that take something away from the data path, and whether
// it is out of its reach while they wait.
func ends(d *Device) map[string]struct {
	wqe  WQE
	gone func(rdma.Snapshot) bool
} {
	const unwritten = 5
	d.G.Store(d.SQ+16, unwritten)
	return map[string]struct {
		wqe  WQE
		gone func(rdma.Snapshot) bool
	}{
		"MODIFY_QP to ERROR": {WQE{2: d.QPC, 3: errorState, 5: d.QPShadow}, func(s rdma.Snapshot) bool { return s.QPs[0].State == "ERROR" }},
		"DESTROY_QP":         {WQE{2: d.QPC, 3: 0x8084000200000000 + GSIQP}, func(s rdma.Snapshot) bool { return len(s.QPs) == 0 }},
		"DESTROY_CQ":         {WQE{3: 0x8003000500000000 + GSICQ}, func(s rdma.Snapshot) bool { return len(s.CQs) == 1 }},
		"UPDATE_PE_SDS":      {WQE{0: 0x80008002, 1: sdClear, 3: 0x8000001F00000000}, func(s rdma.Snapshot) bool { return len(s.SDs) == 2 }},
		"GATHER_STATS":       {WQE{3: 0x8000002E00000000, 4: d.SQ}, func(rdma.Snapshot) bool { return d.G.Load(d.SQ+16) == unwritten }},
		"SUSPEND_QP":         {WQE{3: 0x8000002900000000 + GSIQP}, func(s rdma.Snapshot) bool { return s.QPs[0].Suspended }},
	}
}

func TestCommandsWaitForTheDataPath(t *testing.T) {
	d, s := inStep(t)
	s.end()
	for name := range ends(d) {
		t.Run(name, func(t *testing.T) {
			d, s := inStep(t)
			g := d.G
			tt := ends(d)[name]
			first := g.Put(tt.wqe)
			g.Put(WQE{3: nop})
			g.Ring()
			g.Put(WQE{3: 0x06 << 32}) // which the function has not
			g.Ring()
			if tail := g.Read("PFPE_CQPTAIL"); tail != first {
				t.Errorf("PFPE_CQPTAIL %d during the step, want %d", tail, first)
			}
			if _, ok := g.CCQ.Poll(); ok {
				t.Error("completion during the step")
			}
			snap := g.Snapshot()
			if !tt.gone(snap) || !snap.CQP.Waiting {
				t.Errorf("during the step: waiting %t, gone %t", snap.CQP.Waiting, tt.gone(snap))
			}
			s.waiting(1)
			s.end()
			g.Await()
			for i := range uint32(3) {
				e, ok := g.CCQ.Poll()
				if !ok || uint32(e[3]>>32&0x7FFF) != first+i || (e[3]>>55&1 != 0) != (i == 2) {
					t.Fatalf("completion %d: %#x", i, e)
				}
			}
			if g.Snapshot().CQP.Waiting {
				t.Error("still waiting")
			}
		})
	}
}

// A flush looks at the rings when the step is over, not before.
func TestFlushComesAfterTheStep(t *testing.T) {
	d, s := inStep(t)
	g := d.G
	g.Put(WQE{2: d.QPC, 3: errorState, 5: d.QPShadow})
	g.Put(WQE{3: 0xF000002200000000 + GSIQP})
	g.Ring()
	if _, ok := d.GSI.Poll(); ok {
		t.Error("flush CQE during the step")
	}
	d.PostReceives(5)
	s.end()
	g.Await()
	if e, ok := d.GSI.Poll(); !ok || e[3]>>55&1 != 1 || e[3]>>32&0x7FFF != 0 {
		t.Errorf("flush CQE %#x", e)
	}
	g.CCQ.Poll()
	if e, ok := g.CCQ.Poll(); !ok || e[3]&0xFFFFFFFF != 2 { // receive WQEs flushed
		t.Errorf("completion of the flush %#x", e)
	}
}

// What the data path cannot be using does not wait for it.
func TestOtherCommandsDoNotWait(t *testing.T) {
	d, s := inStep(t)
	g := d.G
	cq := g.NewConsumer(16)
	g.Must(WQE{3: nop})
	g.Must(WQE{0: 16, 3: 0x8003400300000000 + 9, 4: cq.Ring, 5: cq.Shadow})
	g.Must(WQE{2: 1, 3: 0x80000C0F00000005})
	g.Must(WQE{1: 5<<16 | 0x050A, 3: 0x8000002200000000 | 1<<59 | GSIQP}) // GEN_AE
	g.Fails(WQE{3: 0x8084000200000000 + 77}, 0x8002)                      // DESTROY_QP of none
	if n := s.waits.Load(); n != 0 {
		t.Errorf("%d waits", n)
	}
	s.end()
}

func TestRingFullOfWaitingCommands(t *testing.T) {
	s := newStep()
	g := New(t, hmc.Profile{}, func(c *rdma.Config) { c.Grace = s })
	s.busy.Store(false)
	g.CreateCQP(4) // 32
	g.HMC(208)
	g.CreateCCQ()
	rings := make([]*Consumer, 15)
	for i := range rings {
		rings[i] = g.NewConsumer(16)
		g.Must(WQE{0: 16, 3: 0x8000400300000000 + uint64(i+1), 4: rings[i].Ring, 5: rings[i].Shadow})
	}
	s.busy.Store(true)
	for i := range rings {
		g.Put(WQE{3: 0x8003000500000000 + uint64(i+1)})
		g.Put(WQE{3: nop})
		g.Ring()
	}
	if n := len(g.Snapshot().CQs); n != 15 {
		t.Errorf("%d CQs during the step, want all but the first", n)
	}
	s.end()
	g.Await()
	for range 30 {
		if e, ok := g.CCQ.Poll(); !ok || e[3]>>55&1 != 0 {
			t.Fatalf("completion %#x", e)
		}
	}
	if n := len(g.Snapshot().CQs); n != 1 {
		t.Errorf("%d CQs", n)
	}
}

// A reset waits for nobody. The command in waiting never completes, and no
// control QP begins while the step of before runs.
func TestResetDropsTheWaitingCommand(t *testing.T) {
	for _, again := range []bool{false, true} {
		d, s := inStep(t)
		g := d.G
		g.Put(WQE{3: 0x8003000500000000 + GSICQ})
		g.Put(WQE{3: nop})
		g.Ring()
		s.waiting(1)
		g.Lock.Lock()
		g.Engine.Reset(reg.PFR)
		g.Space.Reset(reg.PFR)
		g.Lock.Unlock()
		g.Fill(g.CCQ.Ring, uint64(32*g.CCQ.Size), 0xA5)
		ctx := g.Alloc(64)
		g.Store(ctx, 4<<8|2<<3, g.Alloc(2048), 1, CQPContext, 1<<16)
		if again {
			g.Write("PFPE_CCQPHIGH", uint32(ctx>>32))
			g.Write("PFPE_CCQPLOW", uint32(ctx))
		}
		if v := g.Read("PFPE_CCQPSTATUS"); v != 0 || g.Snapshot().CQP.Live {
			t.Errorf("PFPE_CCQPSTATUS %#x during the step", v)
		}
		s.end()
		for g.Snapshot().CQP.Waiting {
			runtime.Gosched()
		}
		if v := g.Read("PFPE_CCQPSTATUS"); v != 0 != again {
			t.Errorf("PFPE_CCQPSTATUS %#x, written again %t", v, again)
		}
		g.Engine.Close() // nothing waits any more
		if v := g.Read("PFPE_CQPTAIL"); v != 0 {
			t.Errorf("PFPE_CQPTAIL %#x", v)
		}
		if !g.Poisoned(g.CCQ.Ring, uint64(32*g.CCQ.Size)) {
			t.Error("completion after the reset")
		}
		if again {
			continue
		}
		if diff := cmp.Diff(rdma.New(rdma.Config{}).Snapshot(), g.Snapshot()); diff != "" {
			t.Error(diff)
		}
	}
}

// PFPE_CCQPSTATUS tells when the control QP has ended; what is written
// meanwhile counts then.
func TestEndOfTheControlQPWaits(t *testing.T) {
	for _, again := range []bool{false, true} {
		d, s := inStep(t)
		g := d.G
		g.Put(WQE{3: 0x8003000500000000 + GSICQ}) // waits, and is dropped
		g.Ring()
		ctx := g.Alloc(64)
		g.Store(ctx, 4<<8|2<<3, g.Alloc(2048), 1, CQPContext, 1<<16)
		g.Write("PFPE_CCQPHIGH", 0)
		g.Write("PFPE_CCQPLOW", 0)
		if again {
			g.Write("PFPE_CCQPLOW", uint32(ctx))
		}
		if v := g.Read("PFPE_CCQPSTATUS"); v != 1 {
			t.Errorf("PFPE_CCQPSTATUS %#x during the step", v)
		}
		tail := g.Read("PFPE_CQPTAIL")
		if snap := g.Snapshot(); snap.CQP.Live || len(snap.QPs)+len(snap.CQs) != 0 {
			t.Error("objects outlive the control QP")
		}
		s.end()
		for g.Snapshot().CQP.Waiting {
			runtime.Gosched()
		}
		if again {
			want := rdma.New(rdma.Config{}).Snapshot().CQP
			want.Live, want.Context, want.Size, want.Protocol = true, ctx, 32, 2
			got := g.Snapshot().CQP
			got.Ring = 0
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			continue
		}
		if v := g.Read("PFPE_CCQPSTATUS"); v != 0 {
			t.Errorf("PFPE_CCQPSTATUS %#x", v)
		}
		if v := g.Read("PFPE_CQPTAIL"); v != tail {
			t.Errorf("PFPE_CQPTAIL %#x -> %#x: the dropped command completed", tail, v)
		}
	}
}

func TestCloseDuringAWait(t *testing.T) {
	d, s := inStep(t)
	g := d.G
	tail := g.Read("PFPE_CQPTAIL")
	g.Put(WQE{3: 0x8003000500000000 + GSICQ})
	g.Ring()
	s.waiting(1)
	done := make(chan struct{})
	go func() { g.Engine.Close(); close(done) }()
	for g.Snapshot().CQP.Waiting {
		runtime.Gosched()
	}
	s.end()
	<-done
	if v := g.Read("PFPE_CQPTAIL"); v != tail {
		t.Error("the command completed after Close")
	}
}

// Shards that step all the time delay commands but never stop them.
func TestBusyShards(t *testing.T) {
	domain := grace.New(2)
	g := New(t, hmc.Profile{}, func(c *rdma.Config) { c.Grace = domain })
	var stop atomic.Bool
	var shards sync.WaitGroup
	for i := range 2 {
		shards.Go(func() {
			for n := 0; !stop.Load(); n++ {
				domain.Enter(i)
				if n%32 == 0 {
					runtime.Gosched()
				}
				domain.Leave(i)
			}
		})
	}
	g.CreateCQP(4)
	g.CommitFPM(208)
	for i := range uint64(3) {
		g.Put(WQE{0: 0x80008000 + i, 1: g.Alloc(2<<20) + 0x803, 3: 0x8000001F00000000})
		g.Ring()
	}
	g.Put(WQE{3: 0x8000002B00000000})
	c := g.NewConsumer(16)
	for range 200 {
		g.Put(WQE{0: 16, 3: 0x8000400300000000 + 9, 4: c.Ring, 5: c.Shadow})
		g.Put(WQE{3: nop})
		g.Put(WQE{3: 0x8003000500000000 + 9})
		g.Ring()
		g.Await()
		if v := g.Read("PFPE_CQPTAIL"); v>>31 != 0 {
			t.Fatalf("PFPE_CQPTAIL %#x", v)
		}
	}
	stop.Store(true)
	shards.Wait()
}

// A command about a QP that takes a step does not wait for it under the control
// lock.
func TestCommandsDoNotWaitForAStep(t *testing.T) {
	e := engine.New(engine.Config{Manual: true})
	defer e.Close()
	inside, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d := New(t, hmc.Profile{}, func(c *rdma.Config) {
		c.Engine = e
		c.Emit = func(event any) {
			if _, ok := event.(qp.HandleAbsent); ok { // in a step of the QP
				once.Do(func() { close(inside); <-leave })
			}
		}
	}).Boot(Kernel73, 2)
	g := d.G
	g.Store(d.SQ+24, 1<<63|3<<32)
	g.Write("PFPE_WQEALLOC", GSIQP)
	drained := make(chan struct{})
	go func() { defer close(drained); e.Drain(100) }()
	<-inside
	index := g.Put(WQE{2: d.QPC, 3: errorState, 5: d.QPShadow})
	g.Put(WQE{3: nop})
	g.Ring()
	if tail := g.Read("PFPE_CQPTAIL"); tail != index {
		t.Errorf("PFPE_CQPTAIL %d during the step, want %d", tail, index)
	}
	close(leave)
	<-drained
	g.Await()
	if s := g.Snapshot().QPs[0].State; s != "ERROR" {
		t.Errorf("QP in state %s", s)
	}
	if tail := g.Read("PFPE_CQPTAIL"); tail>>31 != 0 {
		t.Errorf("PFPE_CQPTAIL %#x", tail)
	}
}
