// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (p *pair) want(n *node, got ...string) {
	p.Helper()
	if diff := cmp.Diff(got, n.got); diff != "" {
		p.Errorf("%s reports:\n%s", n.name, diff)
	}
}

func (p *pair) wantFails(n *node, fails ...string) {
	p.Helper()
	if !slices.Equal(n.fails, fails) {
		p.Errorf("%s fails with %q, want %q", n.name, n.fails, fails)
	}
}

func TestSendWriteRead(t *testing.T) {
	for _, size := range []uint32{0, 1, 1023, 1024, 1025, 5000, 200000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			p := newPair(t, settings{psnA: 0xFFFFF0, psnB: 5})
			p.a.fill(0, size, 1)
			p.b.fill(500000, size, 9)
			p.b.receive(40, 0, size+10)
			p.a.post(sendOf(p.a, 0, 0, size))
			p.a.post(writeOf(p.a, 1, 0, 250000, size))
			p.a.post(readOf(p.a, 2, 500000, 500000, size))
			p.run()
			p.want(p.a, "sq 0 op 3", "sq 1 op 0", "sq 2 op 1")
			p.want(p.b, fmt.Sprintf("rq 40 %+v", Received{Len: size, Only: size <= 1024}))
			if !bytes.Equal(p.a.mem[:size], p.b.mem[:size]) || !bytes.Equal(p.a.mem[:size], p.b.mem[250000:250000+size]) ||
				!bytes.Equal(p.a.mem[500000:500000+size], p.b.mem[500000:500000+size]) {
				t.Error("memory differs")
			}
			send, _ := p.a.ep.PSNs()
			_, expected := p.b.ep.PSNs()
			if want := psn(0xFFFFF0 + 3*packets(size, 1024)); send != want || expected != want {
				t.Errorf("PSNs %#x and %#x, want %#x", send, expected, want)
			}
			s := p.a.ep.Stats
			if s.OutSends != 1 || s.OutWrites != 1 || s.OutReads != 1 || s.Retransmitted != 0 {
				t.Errorf("counters %+v", s)
			}
			if s := p.b.ep.Stats; s.InSends != 1 || s.InWrites != 1 || s.InReads != 1 {
				t.Errorf("counters %+v", s)
			}
		})
	}
}

func TestImmediateInvalidateInline(t *testing.T) {
	p := newPair(t, settings{})
	for i := range uint32(3) {
		p.b.receive(10+i, 1000*i, 100)
	}
	w := sendOf(p.a, 0, 0, 4)
	w.HasImm, w.Imm, w.Solicited = true, 0x12345678, true
	p.a.post(w)
	w = writeOf(p.a, 1, 0, 8000, 3000)
	w.HasImm, w.Imm, w.Signaled = true, 77, false
	p.a.post(w)
	w = sendOf(p.a, 2, 0, 0)
	w.HasInv, w.Inv = true, 5
	w.SGL.Reset()
	w.SGL.SetInline([]byte("inline payload of more than one word"))
	w.Len = 36
	p.a.post(w)
	p.run()
	p.want(p.a, "sq 0 op 3", "sq 2 op 3")
	p.want(p.b, "rq 10 "+fmt.Sprintf("%+v", Received{Len: 4, Only: true, Solicited: true, HasImm: true, Imm: 0x12345678}),
		"rq 11 "+fmt.Sprintf("%+v", Received{Len: 3000, Write: true, HasImm: true, Imm: 77}),
		"invalidate 5",
		"rq 12 "+fmt.Sprintf("%+v", Received{Len: 36, Only: true, HasInv: true, Inv: 5}))
	if got := string(p.b.mem[2000:2036]); got != "inline payload of more than one word" {
		t.Errorf("inline data %q", got)
	}
}

// script is random traffic in both directions over areas of their own.
func script(r *rand.Rand, p *pair, ops int) {
	free := map[*node]uint32{p.a: 0, p.b: 0}
	alloc := func(n *node, size uint32) uint32 {
		at := free[n]
		free[n] += size
		if int(free[n]) > len(n.mem) {
			p.Fatal("test memory too small")
		}
		return at
	}
	for i := range uint32(ops) {
		n, m := p.a, p.b
		if r.IntN(2) == 0 {
			n, m = m, n
		}
		size := uint32(r.IntN(12000))
		switch r.IntN(4) {
		case 0:
			size = uint32(r.IntN(3))
		case 1:
			size = uint32(r.IntN(600))
		}
		here, there := alloc(n, size), alloc(m, size)
		var w WQE
		switch r.IntN(3) {
		case 0:
			n.fill(here, size, byte(i))
			w = sendOf(n, i, here, size)
			cut := min(size, 100)
			m.rq = append(m.rq, Recv{Index: i, Len: size, SGL: m.list([2]uint32{there, cut}, [2]uint32{there + cut, size - cut})})
		case 1:
			n.fill(here, size, byte(i))
			w = writeOf(n, i, here, there, size)
			if w.HasImm = r.IntN(3) == 0; w.HasImm {
				m.receive(i, 0, 0)
			}
		case 2:
			m.fill(there, size, byte(i))
			w = readOf(n, i, here, there, size)
		}
		w.Signaled = r.IntN(4) > 0
		w.ReadFence, w.LocalFence = r.IntN(8) == 0, r.IntN(8) == 0
		n.post(w)
	}
}

// outcome is everything that must not depend on how packets travelled. How
// the completions of the two queues of a node mix may.
type outcome struct {
	SendA, RecvA, SendB, RecvB []string
	MemA, MemB                 [32]byte
}

func (p *pair) outcome() outcome {
	p.wantFails(p.a)
	p.wantFails(p.b)
	of := func(n *node, queue string) (out []string) {
		for _, s := range n.got {
			if strings.HasPrefix(s, queue) {
				out = append(out, s)
			}
		}
		return out
	}
	return outcome{of(p.a, "sq"), of(p.a, "rq"), of(p.b, "sq"), of(p.b, "rq"), sha256.Sum256(p.a.mem), sha256.Sum256(p.b.mem)}
}

func traffic(t *testing.T, seed uint64, change func(*pair)) *pair {
	p := newPair(t, settings{mtu: 256 << (seed % 5), psnA: 0xFFFF00, psnB: 0xFFFFFE, retries: 250, rnr: 7, ord: 1 + uint32(seed%4), memory: 2 << 20})
	script(rand.New(rand.NewPCG(seed, 0)), p, 120)
	change(p)
	p.run()
	if !p.a.ep.Idle() || !p.b.ep.Idle() {
		t.Fatalf("work is left")
	}
	return p
}

// A run of n packets is n runs of one packet.
func TestRunsAreTheirPackets(t *testing.T) {
	for seed := range uint64(20) {
		whole := traffic(t, seed, func(p *pair) { p.net.eager = true })
		single := traffic(t, seed, func(p *pair) { p.net.eager, p.net.single = true, true })
		if diff := cmp.Diff(whole.outcome(), single.outcome()); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
		if whole.a.ep.Stats != single.a.ep.Stats || whole.b.ep.Stats != single.b.ep.Stats {
			t.Fatalf("seed %d: counters\n%+v\n%+v", seed, whole.a.ep.Stats, single.a.ep.Stats)
		}
	}
}

// Loss, duplicates and reordering change nothing that anybody sees.
func TestLossyLink(t *testing.T) {
	for seed := range uint64(30) {
		clean := traffic(t, seed, func(*pair) {}).outcome()
		for variant := range uint64(2) {
			p := traffic(t, seed, func(p *pair) {
				p.net.lossy = rand.New(rand.NewPCG(seed, variant))
				p.net.single = variant == 1
			})
			if diff := cmp.Diff(clean, p.outcome()); diff != "" {
				t.Fatalf("seed %d.%d:\n%s", seed, variant, diff)
			}
			if s := p.a.ep.Stats.Retransmitted + p.b.ep.Stats.Retransmitted; s == 0 {
				t.Errorf("seed %d.%d: nothing was retransmitted", seed, variant)
			}
		}
	}
}

// A link that takes few runs at a time stops nobody for good.
func TestBoundedLink(t *testing.T) {
	for seed := range uint64(5) {
		clean := traffic(t, seed, func(*pair) {}).outcome()
		p := traffic(t, seed, func(p *pair) { p.net.bound = 2 })
		if diff := cmp.Diff(clean, p.outcome()); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}

func TestReceiverNotReady(t *testing.T) {
	p := newPair(t, settings{rnr: 7})
	p.net.drop = func(to *node, r *Run) bool {
		// Buffers come when the third RNR NAK has gone out.
		if r.Op == Acknowledge && r.Syndrome>>5 == 1 {
			if p.b.rnrs++; p.b.rnrs == 3 {
				p.b.receive(9, 0, 4000)
			}
		}
		return false
	}
	p.a.fill(0, 3000, 3)
	p.a.post(writeOf(p.a, 0, 0, 8000, 100))
	p.a.post(sendOf(p.a, 1, 0, 3000))
	p.run()
	p.want(p.a, "sq 0 op 0", "sq 1 op 3")
	p.want(p.b, "rq 9 "+fmt.Sprintf("%+v", Received{Len: 3000}))
	if p.net.now != 3*640*time.Microsecond {
		t.Errorf("took %v, want three rests of 640 µs", p.net.now)
	}
}

// An RDMA write with immediate wants a buffer only for its last packet.
func TestWriteImmediateNotReady(t *testing.T) {
	for _, single := range []bool{false, true} {
		p := newPair(t, settings{rnr: 7})
		p.net.single, p.net.rec = single, true
		p.net.drop = func(to *node, r *Run) bool {
			if r.Op == Acknowledge && r.Syndrome>>5 == 1 {
				if r.PSN != 2 {
					t.Errorf("RNR NAK for PSN %d, want the last packet's", r.PSN)
				}
				p.b.receive(9, 0, 0)
			}
			return false
		}
		p.a.fill(0, 3000, 3)
		w := writeOf(p.a, 0, 0, 8000, 3000)
		w.HasImm, w.Imm = true, 4
		p.a.post(w)
		p.run()
		p.want(p.a, "sq 0 op 0")
		p.want(p.b, "rq 9 "+fmt.Sprintf("%+v", Received{Len: 3000, Write: true, HasImm: true, Imm: 4}))
		if !bytes.Equal(p.a.mem[:3000], p.b.mem[8000:11000]) {
			t.Error("memory differs")
		}
	}
}

// What fits of a send that is too long is placed, nothing behind the buffer.
func TestSendTooLongWritesNoFurther(t *testing.T) {
	p := newPair(t, settings{})
	p.b.receive(8, 100, 2000)
	p.a.fill(0, 5000, 1)
	p.a.post(sendOf(p.a, 2, 0, 5000))
	p.run()
	if !bytes.Equal(p.b.mem[100:1124], p.a.mem[:1024]) || !bytes.Equal(p.b.mem[1124:10000], make([]byte, 10000-1124)) {
		t.Error("memory differs")
	}
}

func TestORDZero(t *testing.T) {
	p := newPair(t, settings{})
	p.a.ep.UpdateRequester(RequesterConfig{Timeout: timeout})
	p.a.post(readOf(p.a, 3, 0, 0, 1))
	p.run()
	p.wantFails(p.a, "AE 0x0205 source 5 WQE 3")
}

// At most ORD reads are outstanding; the queue waits, it does not fail.
func TestORD(t *testing.T) {
	p := newPair(t, settings{ord: 3})
	for i := range uint32(10) {
		p.a.post(readOf(p.a, i, 0, 0, 2000))
	}
	p.net.rec = true
	p.a.progress()
	if n := len(p.net.sent); n != 3 {
		t.Errorf("%d reads outstanding, want 3", n)
	}
	p.run()
	if len(p.a.got) != 10 {
		t.Errorf("completions %q", p.a.got)
	}
}

func TestFences(t *testing.T) {
	ops := func(p *pair) (sent []Op) {
		for _, r := range p.net.sent {
			sent = append(sent, r.Op)
		}
		p.net.sent = nil
		return sent
	}
	p := newPair(t, settings{})
	p.net.rec = true
	p.a.post(readOf(p.a, 0, 0, 0, 10))
	p.a.post(writeOf(p.a, 1, 0, 0, 10))
	w := writeOf(p.a, 2, 0, 0, 10)
	w.ReadFence = true
	p.a.post(w)
	p.a.progress()
	if got := ops(p); !slices.Equal(got, []Op{ReadRequest, Write}) {
		t.Errorf("before the read's response: %v", got)
	}
	p.run()
	if len(p.a.got) != 3 {
		t.Errorf("completions %q", p.a.got)
	}

	// A local fence waits for everything; a read fence only for reads.
	p = newPair(t, settings{})
	p.net.rec = true
	p.a.post(writeOf(p.a, 0, 0, 0, 10))
	w = writeOf(p.a, 1, 0, 0, 10)
	w.ReadFence = true
	p.a.post(w)
	p.a.post(WQE{Kind: KindLocal, Op: 0x0C, Index: 2, LocalFence: true, Signaled: true})
	p.a.post(writeOf(p.a, 3, 0, 0, 10))
	p.a.progress()
	if got := ops(p); !slices.Equal(got, []Op{Write, Write}) || len(p.a.local) != 0 {
		t.Errorf("before the acknowledgements: %v, local work %v", got, p.a.local)
	}
	p.run()
	p.want(p.a, "sq 0 op 0", "sq 1 op 0", "sq 2 op 12", "sq 3 op 0")
}

// A write behind a read completes behind it, though its acknowledgement
// cannot come before.
func TestOrderOfCompletions(t *testing.T) {
	p := newPair(t, settings{})
	p.a.post(readOf(p.a, 0, 0, 0, 100000))
	p.a.post(writeOf(p.a, 1, 0, 0, 1))
	p.a.post(WQE{Kind: KindLocal, Op: 0x0C, Index: 2, Signaled: true})
	p.run()
	p.want(p.a, "sq 0 op 1", "sq 1 op 0", "sq 2 op 12")
}

// The window bounds packets outstanding, and there is no lack of
// acknowledgements in it.
func TestWindow(t *testing.T) {
	p := newPair(t, settings{mtu: 256})
	p.a.ep.UpdateRequester(RequesterConfig{Window: 1, Timeout: timeout})
	p.net.rec = true
	p.a.post(writeOf(p.a, 0, 0, 0, 100000))
	p.a.progress()
	n := uint32(0)
	for _, r := range p.net.sent {
		n += r.N
	}
	if n != minWindow {
		t.Errorf("%d packets outstanding, want %d", n, minWindow)
	}
	p.run()
	p.want(p.a, "sq 0 op 0")
	if p.net.now != 0 {
		t.Errorf("took %v", p.net.now)
	}
}

// Progress makes the count of RNR NAKs begin anew.
func TestRNRCountStartsAgain(t *testing.T) {
	p := newPair(t, settings{rnr: 1})
	p.net.drop = func(to *node, r *Run) bool {
		if r.Op == Acknowledge && r.Syndrome>>5 == 1 {
			p.b.receive(9, 0, 10)
		}
		return false
	}
	for i := range uint32(3) {
		p.a.post(sendOf(p.a, i, 0, 10))
	}
	p.run()
	p.want(p.a, "sq 0 op 3", "sq 1 op 3", "sq 2 op 3")
}

// Answers to a write and the read behind it are lost: one retry brings both,
// because the second acknowledgement of the write does not cover the read.
func TestDuplicateBeforeRead(t *testing.T) {
	p := newPair(t, settings{retries: 1})
	reads := 0
	p.net.drop = func(to *node, r *Run) bool {
		if r.Op == ReadRequest {
			reads++
		}
		return to == p.a && p.net.now == 0
	}
	p.a.post(writeOf(p.a, 0, 0, 0, 10))
	p.a.post(readOf(p.a, 1, 0, 0, 5000))
	p.a.post(writeOf(p.a, 2, 0, 0, 10))
	p.run()
	p.want(p.a, "sq 0 op 0", "sq 1 op 1", "sq 2 op 0")
	p.wantFails(p.a)
	if reads != 2 {
		t.Errorf("%d read requests, want 2", reads)
	}
}

// Reads asked for again, however often, do not count as too many, nor are more
// answers kept than reads.
func TestReplaysAreBounded(t *testing.T) {
	p := newPair(t, settings{reads: 2})
	p.net.rec = true
	ask := func(psn, size uint32) {
		p.b.ep.Handle(&Run{Op: ReadRequest, First: true, Last: true, PSN: psn, N: 1, DMALen: size, Key: 7})
	}
	sent := func(what string, want ...uint32) {
		t.Helper()
		p.b.progress()
		var got []uint32
		for _, r := range p.net.sent {
			got = append(got, r.PSN)
		}
		if p.net.sent = nil; !slices.Equal(got, want) {
			t.Errorf("%s: responses at %d, want %d", what, got, want)
		}
	}
	ask(0, 10)
	sent("a read", 0)
	for range 100 {
		ask(0, 10)
	}
	ask(1, 3*1024)
	sent("it again, and another", 0, 1)
	for range 100 { // parts of it, as nobody should
		ask(1, 1024)
		ask(1, 2048)
		ask(2, 1024)
	}
	sent("parts", 1, 2)
	p.wantFails(p.b)
}

// A read asked for again while it is answered, or waits for that, is answered from
// there on, before what comes behind it, and not to its end first.
func TestReadAgainInItsPlace(t *testing.T) {
	p := newPair(t, settings{})
	p.net.rec, p.net.bound = true, 1
	ask := func(psn, packets uint32) {
		p.b.ep.Handle(&Run{Op: ReadRequest, First: true, Last: true, PSN: psn, N: 1, VA: uint64(psn) * 1024, DMALen: packets * 1024, Key: 7})
	}
	type response struct {
		psn, n      uint32
		off         uint32 // of its payload
		first, last bool
	}
	next := func(what string, want response) {
		t.Helper()
		p.net.flights, p.net.sent = nil, nil
		p.b.progress()
		if len(p.net.sent) != 1 {
			t.Fatalf("%s: %d responses", what, len(p.net.sent))
		}
		r := p.net.sent[0]
		_, va, _ := r.SGL.Fragment(0)
		if got := (response{r.PSN, r.N, uint32(va), r.First, r.Last}); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	ask(0, 200)
	ask(200, 100)
	next("the first", response{0, 64, 0, true, false})
	ask(10, 190)
	ask(200, 100) // a whole one again that has only waited
	next("from where it was asked for again", response{10, 64, 10 << 10, true, false})
	next("going on there", response{74, 64, 74 << 10, false, false})
	ask(180, 20)
	next("from behind what was sent", response{180, 20, 180 << 10, true, true})
	next("the second", response{200, 64, 200 << 10, true, false})
	ask(190, 10) // the first again: it is through, and comes last
	next("the second's end", response{264, 36, 264 << 10, false, true})
	next("the first's end", response{190, 10, 190 << 10, true, true})
	if p.net.flights = nil; p.b.ep.rsp.replays != 0 || p.b.ep.rsp.waiting != 0 {
		t.Errorf("%d and %d reads wait, want none", p.b.ep.rsp.replays, p.b.ep.rsp.waiting)
	}
}

// One NAK for a gap, however many packets follow it.
func TestOneNAKPerGap(t *testing.T) {
	p := newPair(t, settings{retries: 1})
	dropped := false
	naks := 0
	p.net.drop = func(to *node, r *Run) bool {
		if r.Op == Acknowledge && r.Syndrome == synSequence {
			naks++
		}
		if to == p.b && r.PSN == 2 && !dropped {
			dropped = true
			return true
		}
		return false
	}
	p.net.single = true
	p.a.fill(0, 20000, 2)
	p.a.post(writeOf(p.a, 0, 0, 30000, 20000))
	p.run()
	p.want(p.a, "sq 0 op 0")
	if naks != 1 || p.net.now != 0 {
		t.Errorf("%d NAKs, took %v", naks, p.net.now)
	}
	if !bytes.Equal(p.a.mem[:20000], p.b.mem[30000:50000]) {
		t.Error("memory differs")
	}
	if s := p.a.ep.Stats.Retransmitted; s != 18 {
		t.Errorf("%d packets retransmitted, want 18", s)
	}
}

// A lost response is asked for again from there, not from the beginning, and
// a peer that answers such a request with other opcodes is understood.
func TestLostResponse(t *testing.T) {
	p := newPair(t, settings{retries: 1})
	dropped := false
	var requests []Run
	p.net.drop = func(to *node, r *Run) bool {
		if r.Op == ReadRequest {
			requests = append(requests, *r)
		}
		if to == p.a && r.Op == ReadResponse {
			r.First = false // MIDDLE and LAST only
			if r.PSN == 3 && !dropped {
				dropped = true
				return true
			}
		}
		return false
	}
	p.net.single = true
	p.b.fill(1000, 8000, 2)
	p.a.post(readOf(p.a, 0, 0, 1000, 8000))
	p.run()
	p.want(p.a, "sq 0 op 1")
	if !bytes.Equal(p.a.mem[:8000], p.b.mem[1000:9000]) {
		t.Error("memory differs")
	}
	if len(requests) != 2 || requests[1].PSN != 3 || requests[1].VA != 1000+3*1024 || requests[1].DMALen != 8000-3*1024 {
		t.Errorf("requests %+v", requests)
	}
}

// The longest read takes half of all PSNs.
func TestLongestRead(t *testing.T) {
	const size = MaxMessage - 1
	p := newPair(t, settings{mtu: 256, psnA: 0xFFFFFF})
	p.a.mem = nil
	n := 0
	w := readOf(p.a, 0, 0, 0, size)
	w.Signaled = true
	p.a.post(w)
	w.Index = 1
	p.a.post(w)
	p.b.mem = make([]byte, 0)
	big := func(x *node) { x.ep.req.host, x.ep.rsp.host = bigHost{x}, bigHost{x} }
	big(p.a)
	big(p.b)
	for len(p.a.got) < 2 && n < 1<<22 {
		p.a.progress()
		p.b.progress()
		for p.net.deliver() {
			n++
		}
		if len(p.a.fails)+len(p.b.fails) > 0 {
			t.Fatal(p.a.fails, p.b.fails)
		}
	}
	p.want(p.a, "sq 0 op 1", "sq 1 op 1")
	if send, _ := p.a.ep.PSNs(); send != psn(0xFFFFFF+2<<23) {
		t.Errorf("PSN %#x", send)
	}
	if s := p.a.ep.Stats; s.Retransmitted != 0 {
		t.Errorf("counters %+v", s)
	}
}

// bigHost has memory without end or content.
type bigHost struct{ *node }

func (bigHost) Copy(*SGL, uint32, *SGL, uint32, uint32) Fault { return Fault{} }
func (bigHost) Remote(uint32, uint64, uint32, bool) Fault     { return Fault{} }
func (h bigHost) Transmit(r *Run) bool {
	return len(h.net.flights) < 64 && h.net.send(h.peer, r)
}

// Packets of nobody's sequence do no harm.
func TestGhosts(t *testing.T) {
	p := newPair(t, settings{})
	ghosts := []Run{
		{Op: Acknowledge, PSN: 77, Syndrome: synACK},
		{Op: Acknowledge, PSN: 0xFFFFFF, Syndrome: synACK},
		{Op: Acknowledge, PSN: 50, Syndrome: synAccess},
		{Op: Acknowledge, PSN: 50, Syndrome: synRNR},
		{Op: Acknowledge, PSN: 50, Syndrome: 0x40},
		{Op: ReadResponse, PSN: 9, N: 1, Size: 1024, Bytes: 10, Last: true},
		{Op: ReadResponse, PSN: 0, N: 1, Size: 1024, Bytes: 10, Last: true},
		{Op: SourceFault, PSN: 9, Code: 1},
		{Op: SourceFault, Response: true, PSN: 9, Code: 1},
	}
	for _, g := range ghosts[:8] {
		g.SGL = p.b.list([2]uint32{0, 100})
		p.a.ep.Handle(&g)
	}
	p.a.post(writeOf(p.a, 0, 0, 0, 10))
	p.run()
	p.want(p.a, "sq 0 op 0")
	p.wantFails(p.a)
}

// Requests that break the rules of a message.
func TestSequenceOfOpcodes(t *testing.T) {
	first := Run{Op: Send, First: true, N: 1, Size: 1024, Bytes: 1024}
	tests := map[string][]Run{
		"middle without first":   {{Op: Send, N: 1, Size: 1024, Bytes: 1024}},
		"write inside a send":    {first, {Op: Write, PSN: 1, N: 1, Size: 1024, Bytes: 1024}},
		"first inside a send":    {first, {Op: Send, First: true, PSN: 1, N: 1, Size: 1024, Bytes: 1024}},
		"read inside a send":     {first, {Op: ReadRequest, First: true, Last: true, PSN: 1, N: 1}},
		"short middle":           {first, {Op: Send, PSN: 1, N: 1, Size: 1024, Bytes: 1000}},
		"empty last":             {first, {Op: Send, Last: true, PSN: 1, N: 1, Size: 1024, Bytes: 0}},
		"write too long":         {{Op: Write, First: true, N: 1, Size: 1024, Bytes: 1024, DMALen: 1000}},
		"write too short":        {{Op: Write, First: true, Last: true, N: 1, Size: 1024, Bytes: 500, DMALen: 1000}},
		"write longer than 2^31": {{Op: Write, First: true, N: 1, Size: 1024, Bytes: 1024, DMALen: 1<<31 + 1}},
		"read longer than 2^31":  {{Op: ReadRequest, First: true, Last: true, N: 1, DMALen: 1<<31 + 1}},
	}
	for name, runs := range tests {
		p := newPair(t, settings{})
		p.b.receive(3, 0, 10000)
		p.net.rec = true
		for _, r := range runs {
			r.SGL = p.a.list([2]uint32{0, 4096})
			p.b.ep.Handle(&r)
		}
		p.b.progress()
		if !slices.Equal(p.b.fails, []string{"AE 0x0208 source 9 WQE 0"}) {
			t.Errorf("%s: %q", name, p.b.fails)
		}
		if n := len(p.net.sent); n != 1 || p.net.sent[0].Syndrome != synInvalid || p.net.sent[0].PSN != uint32(len(runs)-1) {
			t.Errorf("%s: answers %+v", name, p.net.sent)
		}
	}
}

func TestOctets(t *testing.T) {
	tests := []struct {
		run  Run
		want uint64
	}{
		{Run{Op: Send, First: true, Last: true, N: 1, Bytes: 1}, 20 + 8 + 12 + 4 + 4},
		{Run{Op: Send, First: true, Last: true, N: 1, HasImm: true}, 20 + 8 + 12 + 4 + 4},
		{Run{Op: Write, First: true, Last: true, N: 3, Bytes: 2049, HasImm: true}, 3*44 + 2052 + 16 + 4},
		{Run{Op: ReadRequest, First: true, Last: true, N: 1}, 44 + 16},
		{Run{Op: ReadResponse, First: true, Last: true, N: 1, Bytes: 8}, 44 + 4 + 8},
		{Run{Op: ReadResponse, First: true, Last: true, N: 2, Bytes: 1028}, 2*44 + 8 + 1028},
		{Run{Op: ReadResponse, N: 2, Bytes: 2048}, 2*44 + 2048},
		{Run{Op: Acknowledge, N: 1}, 44 + 4},
	}
	for _, tt := range tests {
		if got := tt.run.octets(false); got != tt.want {
			t.Errorf("%+v: %d octets, want %d", tt.run.Op, got, tt.want)
		}
		if got := tt.run.octets(true); got != tt.want+20*uint64(tt.run.N) {
			t.Errorf("%v over IPv6: %d octets", tt.run.Op, got)
		}
	}
}

// A WQE costs no allocation once the buffers have grown.
func TestAllocations(t *testing.T) {
	p := newPair(t, settings{})
	p.a.ep.req.host, p.b.ep.rsp.host = bigHost{p.a}, bigHost{p.b}
	q := &quick{n: p.a}
	p.a.ep.req.host = q
	r := &quick{n: p.b}
	p.b.ep.rsp.host = r
	q.to, r.to = p.b, p.a
	round := func() {
		q.left = 32
		for q.left > 0 || !p.a.ep.Idle() {
			p.a.progress()
			p.b.progress()
		}
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations per 32 WQEs", n)
	}
}

// quick is a host without memory whose link delivers at once.
type quick struct {
	n    *node
	to   *node
	left int
	run  Run
}

func (q *quick) Now() time.Duration                            { return 0 }
func (q *quick) Local(*WQE, bool) (bool, Code)                 { return true, 0 }
func (q *quick) Completed(*WQE) bool                           { return true }
func (q *quick) Receive(*Recv) (Got, Code)                     { return Taken, 0 }
func (q *quick) Received(*Recv, *Received) bool                { return true }
func (q *quick) Remote(uint32, uint64, uint32, bool) Fault     { return Fault{} }
func (q *quick) Invalidate(uint32, bool) (bool, Code)          { return true, 0 }
func (q *quick) Copy(*SGL, uint32, *SGL, uint32, uint32) Fault { return Fault{} }
func (q *quick) List(l *SGL)                                   { l.Reset() }
func (q *quick) Fail(c Code, _ Source, _ uint32)               { panic(c) }
func (q *quick) Transmit(r *Run) bool {
	q.run = *r
	q.to.ep.Handle(&q.run)
	return true
}

func (q *quick) Fetch(w *WQE) bool {
	if q.left == 0 {
		return false
	}
	q.left--
	w.Kind, w.Len, w.Signaled, w.Fault = KindWrite, 64, true, 0
	if q.left%4 == 0 {
		w.Kind = KindRead
	}
	return true
}
