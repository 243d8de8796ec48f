// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// FuzzContexts makes objects from contexts of the fuzzer's choice and uses
// them: a control QP's host context, CQs, event queues, and QPs that go through
// their states.
//
// The input is a byte that chooses what is made, then eight words of a CQP
// command's parameters, then the context's bytes. Bits 2:0 of the byte: 0 QP,
// 1 CQ, 2 CEQ, 3 AEQ, 4 control QP. Bit 3: a good context of its kind is xored
// with the bytes, instead of the bytes alone; bit 4: UD.
//
// Every command completes, the engine comes to rest, and afterwards a reset
// leaves nothing and a driver can boot again.
func FuzzContexts(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		kind := in[0]
		in = in[1:]
		clock := &engine.ManualClock{}
		e := engine.New(engine.Config{Manual: true, Clock: clock})
		defer e.Close()
		g := New(t, hmc.Profile{}, func(c *rdma.Config) { c.Engine = e })
		d := g.Boot(Kernel73, 2)
		var q WQE
		for i := range q {
			var b [8]byte
			in = in[copy(b[:], in):]
			q[i] = Word(b[:], 0)
		}
		var ctx [32]uint64
		for i := range ctx {
			var b [8]byte
			in = in[copy(b[:], in):]
			ctx[i] = Word(b[:], 0)
		}
		if kind&8 != 0 {
			for i := range ctx {
				ctx[i] ^= g.Load(d.QPC + 8*uint64(i))
			}
		}
		at, rings := g.Alloc(256), g.Alloc(1<<20)
		g.Store(at, ctx[:]...)
		run := func(w WQE) {
			want := (g.Put(w) + 1) % 2048
			g.Ring()
			if tail := g.Read("PFPE_CQPTAIL"); tail&0x7FF != want {
				t.Fatalf("PFPE_CQPTAIL %#x after %#x, want tail %d", tail, w, want)
			}
			for range 6 {
				if e.Drain(20000) == 20000 {
					t.Fatal("the engine does not come to rest")
				}
				clock.Advance(time.Second)
			}
		}
		switch kind & 7 {
		case 0:
			id := 2 + q[0]%3
			typ := uint64(3)
			if kind&16 != 0 {
				typ = 4
			}
			if kind&8 != 0 { // rings of its own
				g.Store(at+8, rings+ctx[1]%(1<<18)&^31, rings+1<<19+ctx[2]%(1<<18)&^31)
			}
			run(WQE{2: at, 3: 1<<60 | typ<<48 | q[1]&(1<<45) | id, 5: d.QPShadow})
			for _, state := range []uint64{1, 4, 2, 3, 2, 6} {
				run(WQE{2: at, 3: 0x01<<32 | typ<<48 | state<<60 | q[2]&(1<<59|1<<47) | id, 5: d.QPShadow})
				g.Write("PFPE_WQEALLOC", uint32(id))
			}
			run(WQE{3: 0x22<<32 | 3<<61 | id})
		case 1:
			q[3] = q[3]&^(0x3F<<32) | 0x03<<32
			if kind&8 != 0 {
				q[4], q[5] = rings+q[4]%(1<<18)&^255, rings+1<<19+q[5]%4096&^63
			}
			run(q)
			for _, id := range []uint32{uint32(q[3]) & 0x7FFFF, 5} {
				g.Write("PFPE_CQARM", id)
				g.Write("PFPE_CQACK", id)
			}
		case 2, 3:
			op := uint64(0x16)
			if kind&7 == 3 {
				op = 0x19
				run(WQE{2: AEQEntries, 3: 0x1B << 32})
			}
			q[3] = q[3]&^(0x3F<<32) | op<<32
			run(q)
			run(WQE{1: 0x050A, 3: 0x22<<32 | 1<<59 | GSIQP}) // an event for the AEQ
			g.Write("PFPE_AEQALLOC", uint32(q[6]))
		case 4:
			g.DestroyCQP()
			g.Write("PFPE_CCQPHIGH", uint32(at>>32))
			g.Write("PFPE_CCQPLOW", uint32(at))
			if s := g.Read("PFPE_CCQPSTATUS"); s != 1 && s>>31 == 0 {
				t.Errorf("PFPE_CCQPSTATUS %#x", s)
			}
			for range 40 {
				g.Write("PFPE_CQPDB", uint32(q[0]))
				q[0] += q[1]
			}
			e.Drain(1000)
		}
		g.Lock.Lock()
		g.Engine.Reset(reg.PFR)
		g.Space.Reset(reg.PFR)
		g.Lock.Unlock()
		e.Drain(1000)
		if s := g.Snapshot(); len(s.QPs)+len(s.CQs)+len(s.CEQs)+len(s.SDs) != 0 || s.CQP.Live {
			t.Errorf("left after a reset: %+v", s)
		}
		g.Boot(Kernel73, 1)
	})
}
