// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// told is what a node must have reported, and its memory, when all is done.
type told struct {
	sq, rq []string
	mem    []byte
	// Messages sent, and STags ended by the peer or by itself.
	sends, writes, reads, ended uint64
}

// everything posts random work of all kinds in both directions, over areas of
// its own each, and returns what must come of it.
func everything(r *rand.Rand, p *pair, ops int) map[*node]*told {
	want := map[*node]*told{}
	free := map[*node]uint32{}
	when := map[*node]time.Duration{}
	for _, n := range []*node{p.a, p.b} {
		for i := 0; i < len(n.mem); i += 8 {
			binary.LittleEndian.PutUint64(n.mem[i:], r.Uint64())
		}
		want[n] = &told{mem: bytes.Clone(n.mem)}
	}
	alloc := func(n *node, size uint32) uint32 {
		at := free[n]
		free[n] += size
		if int(free[n]) > len(n.mem) {
			p.Fatal("test memory too small")
		}
		return at
	}
	mtu := p.a.ep.req.cfg.MTU
	sizes := []func() uint32{
		func() uint32 { return 0 },
		func() uint32 { return uint32(r.IntN(100)) },
		func() uint32 { return mtu * uint32(1+r.IntN(3)) },
		func() uint32 { return uint32(r.IntN(12000)) },
		func() uint32 { return uint32(r.IntN(int(min(70*mtu, 40000)))) },
	}
	for i := range uint32(ops) {
		n, m := p.a, p.b
		if r.IntN(2) == 0 {
			n, m = m, n
		}
		size := sizes[r.IntN(len(sizes))]()
		here, there := alloc(n, size), alloc(m, size)
		w := WQE{Index: i, Len: size, Signaled: r.IntN(4) > 0, ReadFence: r.IntN(8) == 0, LocalFence: r.IntN(12) == 0}
		cut := min(size, uint32(r.IntN(200)))
		w.SGL = n.list([2]uint32{here, cut}, [2]uint32{here + cut, size - cut})
		kind := r.IntN(8)
		if kind < 5 && size < MaxInline && r.IntN(2) == 0 {
			w.SGL.Reset()
			w.SGL.SetInline(n.mem[here : here+size])
		}
		got := Received{Len: size, Only: packets(size, mtu) == 1}
		receives := false
		switch {
		case kind < 3:
			w.Kind, w.Op, receives = KindSend, 3, true
			switch r.IntN(4) {
			case 0:
				w.HasImm, w.Imm = true, i|1<<31
			case 1:
				w.HasInv, w.Inv = true, i
			}
			want[n].sends++
		case kind < 5:
			w.Kind, w.Op, w.Addr, w.Key = KindWrite, 0, uint64(there), 7
			w.HasImm = r.IntN(2) == 0
			receives, got.Write = w.HasImm, true
			w.Imm = i + 5
			want[n].writes++
		case kind < 7:
			w.Kind, w.Op, w.Addr, w.Key = KindRead, 1, uint64(there), 7
			if w.HasInv = r.IntN(3) == 0; w.HasInv {
				w.Op = 11
			}
			want[n].reads++
		default:
			w.Kind, w.Op, w.LocalFence = KindLocal, 0x0A, r.IntN(2) == 0
		}
		if receives {
			w.Solicited = r.IntN(2) == 0
			got.Solicited = w.Solicited
			if got.HasImm = w.HasImm; got.HasImm {
				got.Imm = w.Imm
			}
			if got.HasInv = w.HasInv; got.HasInv {
				got.Inv = w.Inv
				want[m].rq = append(want[m].rq, fmt.Sprintf("invalidate %d", w.Inv))
				want[m].ended++
			}
			want[m].rq = append(want[m].rq, fmt.Sprintf("rq %d %+v", i, got))
			half := size / 2
			recv := Recv{Index: i, Len: size, SGL: m.list([2]uint32{there, half}, [2]uint32{there + half, size - half})}
			if r.IntN(6) == 0 {
				when[m] += time.Duration(r.IntN(4000)) * time.Microsecond
			}
			m.coming = append(m.coming, coming{when[m], recv})
		}
		switch w.Kind {
		case KindSend, KindWrite:
			copy(want[m].mem[there:there+size], n.mem[here:])
		case KindRead:
			copy(want[n].mem[here:here+size], m.mem[there:])
		}
		if w.Signaled {
			want[n].sq = append(want[n].sq, fmt.Sprintf("sq %d op %d", i, w.Op))
		}
		n.post(w)
	}
	return want
}

func (p *pair) wantTold(want map[*node]*told) {
	p.Helper()
	for n, w := range want {
		p.wantFails(n)
		var sq, rq []string
		for _, s := range n.got {
			if strings.HasPrefix(s, "sq") {
				sq = append(sq, s)
			} else {
				rq = append(rq, s)
			}
		}
		if d := cmp.Diff(w.sq, sq); d != "" {
			p.Errorf("send completions of %s:\n%s", n.name, d)
		}
		if d := cmp.Diff(w.rq, rq); d != "" {
			p.Errorf("receive completions of %s:\n%s", n.name, d)
		}
		if !bytes.Equal(w.mem, n.mem) {
			p.Errorf("memory of %s differs", n.name)
		}
		if !n.ep.Idle() || len(n.sq) > 0 {
			p.Errorf("%s has work left", n.name)
		}
		s, o := &n.ep.Stats, want[n.peer]
		for name, c := range map[string][2]uint64{
			"OutSends": {s.OutSends, w.sends}, "OutWrites": {s.OutWrites, w.writes}, "OutReads": {s.OutReads, w.reads},
			"InSends": {s.InSends, o.sends}, "InWrites": {s.InWrites, o.writes}, "InReads": {s.InReads, o.reads},
			"Invalidations": {s.Invalidations, w.ended},
		} {
			if c[0] != c[1] {
				p.Errorf("%s of %s is %d, want %d", name, n.name, c[0], c[1])
			}
		}
		send, _ := n.ep.PSNs()
		if _, expected := n.peer.ep.PSNs(); send != expected {
			p.Errorf("%s sends PSN %#x next, its peer expects %#x", n.name, send, expected)
		}
	}
}

// fates are networks, with the retries that they may need. Those of a queue
// pair are at most 7; where more than every tenth packet is lost that is not
// enough for every message.
var fates = map[string]struct {
	fate
	retries uint8
}{
	"clean":      {fate{}, 0},
	"loss":       {fate{loss: 20}, 7},
	"heavy loss": {fate{loss: 150}, 60},
	"duplicates": {fate{dup: 200}, 7},
	"reordering": {fate{late: 200}, 7},
	"tail loss":  {fate{tail: 300}, 7},
	"outages":    {fate{loss: 5, down: 2 * time.Millisecond, up: 502 * time.Millisecond}, 7},
	"all":        {fate{loss: 40, dup: 40, late: 40, tail: 100}, 60},
}

// Whatever a network does to packets, or to runs of them, nobody sees it.
func TestAnyNetwork(t *testing.T) {
	for name, f := range fates {
		for seed := range uint64(5) {
			for _, peer := range []string{"packets", "runs", "rxe"} {
				t.Run(fmt.Sprintf("%s/%d/%s", name, seed, peer), func(t *testing.T) {
					p := newPair(t, settings{mtu: 256 << (seed % 5), psnA: 0xFFFF80, psnB: 0xFFFFFE - uint32(seed), retries: f.retries, rnr: 7,
						ord: 1 + uint32(seed*5%16), reads: 16, memory: 1 << 20})
					f.delay = 20 * time.Microsecond
					p.net.wire = newWire(seed, f.fate)
					p.net.wire.whole = peer == "runs"
					switch {
					case peer == "rxe":
						l := &likeRxe{p.a.ep.req.cfg.MTU, map[*node][][2]uint32{}}
						p.net.wire.rewire, p.net.wire.noisy = l.rewire, true
					case peer == "packets" && f.late == 0 && f.loss < 100:
						// It takes reordered responses badly, whoever sends them, and itself
						// does not ask again before what it asked for last has come or is late:
						// where much is lost ours does.
						for _, n := range []*node{p.a, p.b} {
							p.net.wire.strict[n] = newCompleter(n)
						}
					}
					want := everything(rand.New(rand.NewPCG(seed, 3)), p, 40)
					p.drive(2 * time.Minute)
					p.wantTold(want)
					if len(p.net.wire.wrong) > 0 {
						t.Errorf("rxe would fail: %q", p.net.wire.wrong[0])
					}
					again := p.a.ep.Stats.Retransmitted + p.b.ep.Stats.Retransmitted
					if name == "loss" && seed == 0 && again == 0 {
						t.Error("nothing was lost")
					}
				})
			}
		}
	}
}

// scene is a little of everything, in one direction.
func scene(p *pair) map[*node]*told {
	a, b := p.a, p.b
	a.fill(0, 9000, 3)
	b.fill(100000, 9000, 5)
	b.receive(0, 0, 5000)
	b.receive(2, 10000, 100)
	b.receive(5, 20000, 3000)
	w := writeOf(a, 2, 0, 40000, 2500)
	w.HasImm, w.Imm = true, 9
	inv := sendOf(a, 5, 5000, 3000)
	inv.HasInv, inv.Inv = true, 4
	for _, w := range []WQE{sendOf(a, 0, 0, 5000), readOf(a, 1, 200000, 100000, 5000), w, readOf(a, 3, 210000, 105000, 10),
		writeOf(a, 4, 10, 50000, 0), inv} {
		a.post(w)
	}
	ma, mb := bytes.Clone(a.mem), bytes.Clone(b.mem)
	copy(mb[:5000], ma)
	copy(ma[200000:205000], mb[100000:])
	copy(mb[40000:42500], ma)
	copy(ma[210000:210010], mb[105000:])
	copy(mb[20000:23000], ma[5000:])
	return map[*node]*told{
		a: {sq: []string{"sq 0 op 3", "sq 1 op 1", "sq 2 op 0", "sq 3 op 1", "sq 4 op 0", "sq 5 op 3"}, mem: ma, sends: 2, writes: 2, reads: 2},
		b: {rq: []string{fmt.Sprintf("rq 0 %+v", Received{Len: 5000}),
			fmt.Sprintf("rq 2 %+v", Received{Len: 2500, Write: true, HasImm: true, Imm: 9}),
			"invalidate 4", fmt.Sprintf("rq 5 %+v", Received{Len: 3000, HasInv: true, Inv: 4})}, mem: mb, ended: 1},
	}
}

// Every packet of the scene is lost, comes twice, or late, and every two of them
// are lost. What is behind a lost packet tells of it: only at the end of all does
// that take the timer, once.
func TestEachPacket(t *testing.T) {
	fates := map[string]func(w *wire, k int) bool{
		"lost":  func(*wire, int) bool { return true },
		"twice": func(w *wire, _ int) bool { w.dup = 1000; return false },
		"late":  func(w *wire, _ int) bool { w.late = 1000; return false },
	}
	run := func(name string, one, two int) (packets int) {
		t.Helper()
		p := newPair(t, settings{psnA: 0xFFFFFA, psnB: 3, retries: 3, memory: 250000})
		w := newWire(uint64(one), fate{delay: 10 * time.Microsecond})
		p.net.wire, w.busy = w, true
		k := -1
		w.drop = func(_ *node, r *Run) bool {
			w.dup, w.late = 0, 0
			if k++; k == one || k == two {
				return fates[name](w, k)
			}
			return false
		}
		want := scene(p)
		p.drive(time.Minute)
		p.wantTold(want)
		timers := map[bool]time.Duration{false: 1, true: 2}[two >= 0 && name == "lost"]
		if limit := timers*timeout + 5*time.Millisecond; p.net.now > limit {
			t.Errorf("%s %d and %d: took %v, want at most %v", name, one, two, p.net.now, limit)
		}
		if last := k; name == "lost" && two < 0 && one < last-12 && p.net.now >= timeout {
			t.Errorf("packet %d of %d lost: took %v", one, last, p.net.now)
		}
		if t.Failed() {
			t.Fatalf("%s: %d and %d", name, one, two)
		}
		return k + 1
	}
	n := run("lost", -1, -1)
	if n < 20 {
		t.Fatalf("only %d packets", n)
	}
	for name := range fates {
		for i := range n {
			run(name, i, -1)
			if name != "lost" {
				continue // by two the random networks do that
			}
			for j := i + 1; j < n; j++ {
				run(name, i, j)
			}
		}
	}
}
