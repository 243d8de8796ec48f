// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// answers are the acknowledgements that go to a node, as text.
func answers(n *node) *[]string {
	var out []string
	n.net.wire.rewire = func(to *node, p *Run) {
		if to == n && p.Op == Acknowledge {
			out = append(out, fmt.Sprintf("%#02x %d", p.Syndrome, p.PSN))
		}
	}
	return &out
}

// times counts how often a packet was sent.
type times map[string]int

func (t times) of(p *Run) int {
	k := fmt.Sprintf("%v%d", p.Op, p.PSN)
	t[k]++
	return t[k]
}

func wired(t *testing.T, s settings) *pair {
	p := newPair(t, s)
	p.net.wire = newWire(1, fate{delay: 10 * time.Microsecond})
	return p
}

// Each gap in the requests is told of once, and each gap is told of, without the
// timer.
func TestTwoGaps(t *testing.T) {
	p := wired(t, settings{mtu: 256, retries: 1})
	got, n := answers(p.a), times{}
	p.net.wire.drop = func(to *node, r *Run) bool {
		k := 0
		if r.Op == Write {
			k = n.of(r)
		}
		return r.Op == Write && (r.PSN == 5 && k == 1 || r.PSN == 30 && k == 2)
	}
	p.a.post(writeOf(p.a, 0, 0, 0, 40*256))
	p.drive(time.Minute)
	p.want(p.a, "sq 0 op 0")
	if d := cmp.Diff([]string{"0x60 5", "0x60 30", "0x1f 39"}, *got); d != "" {
		t.Error(d)
	}
	if p.net.now >= timeout {
		t.Errorf("took %v", p.net.now)
	}
	if s := p.a.ep.Stats; s.Retransmitted != 35+10 {
		t.Errorf("%d packets sent again", s.Retransmitted)
	}
}

// The same of responses; after the timer a gap counts anew.
func TestGapsInResponses(t *testing.T) {
	p := wired(t, settings{mtu: 256, retries: 3})
	n, requests := times{}, 0
	p.net.wire.drop = func(to *node, r *Run) bool {
		switch r.Op {
		case ReadRequest:
			requests++
		case ReadResponse:
			k := n.of(r)
			return r.PSN == 5 && (k == 1 || k == 3) || r.PSN >= 5 && k == 2
		}
		return false
	}
	p.a.post(readOf(p.a, 0, 0, 0, 40*256))
	p.drive(time.Minute)
	p.want(p.a, "sq 0 op 1")
	if requests != 4 {
		t.Errorf("%d requests, want the first, two for gaps and one for the timer", requests)
	}
	if p.net.now < timeout || p.net.now > timeout+5*time.Millisecond {
		t.Errorf("took %v", p.net.now)
	}
}

// The end of a message is lost. The first time that takes the timer; then packets
// are known to be lost here, and it takes a moment, once, beside what retries allow.
func TestProbe(t *testing.T) {
	const retries = 2
	p := wired(t, settings{retries: retries})
	n, silent := times{}, false
	p.net.wire.drop = func(_ *node, r *Run) bool { return silent || r.Op == Write && r.Last && n.of(r) == 1 }
	took := func() time.Duration {
		begin := p.net.now
		p.a.post(writeOf(p.a, 0, 0, 0, 5000))
		p.drive(time.Minute)
		return p.net.now - begin
	}
	for i, most := range []time.Duration{timeout, leastPatience, 2 * leastPatience} {
		if d := took(); d < leastPatience || d > most+time.Millisecond || i == 0 && d < timeout {
			t.Errorf("took %v, want %v at most", d, most)
		}
	}
	p.want(p.a, "sq 0 op 0", "sq 0 op 0", "sq 0 op 0")
	silent = true
	if d, want := took(), (retries+1)*timeout; d < want || d > want+timeout {
		t.Errorf("given up after %v, want %v and one probe", d, want)
	}
	if len(p.a.fails) != 1 {
		t.Errorf("%q", p.a.fails)
	}
}

// On a long way, what has been lost before does not have everything sent twice.
func TestProbeOnLongWay(t *testing.T) {
	p := wired(t, settings{retries: 7})
	p.net.wire.delay = 30 * time.Millisecond // more than the least patience, there and back
	lost := false
	p.net.wire.drop = func(_ *node, r *Run) bool {
		drop := !lost && r.Op == Write
		lost = lost || drop
		return drop
	}
	for i := range uint32(20) {
		p.a.post(writeOf(p.a, i, 0, 0, 10))
		p.drive(time.Minute)
	}
	if s := p.a.ep.Stats; s.OutWrites != 20 || s.Retransmitted > 2 {
		t.Errorf("%d writes, %d packets sent again, want the one that was lost and one that seemed so", s.OutWrites, s.Retransmitted)
	}
}

// Progress keeps the timer away, however long a message takes.
func TestSlowNetwork(t *testing.T) {
	p := wired(t, settings{mtu: 256})
	p.net.wire.delay = timeout / 3
	p.a.ep.UpdateRequester(RequesterConfig{Window: 1, ORD: 1, Timeout: timeout})
	p.b.receive(0, 0, 300000)
	p.a.post(sendOf(p.a, 0, 0, 300000))
	p.a.post(readOf(p.a, 1, 300000, 300000, 300000))
	p.drive(time.Minute)
	p.want(p.a, "sq 0 op 3", "sq 1 op 1")
	if s := p.a.ep.Stats.Retransmitted; s != 0 || p.net.now < 3*timeout {
		t.Errorf("%d packets sent again in %v", s, p.net.now)
	}
	if p.a.ep.Deadline() != 0 {
		t.Error("the timer runs with nothing outstanding")
	}
}

// What follows a packet that found no receive buffer is dropped in silence, and
// the requester begins again with that packet, not before.
func TestSilenceAfterRNR(t *testing.T) {
	p := wired(t, settings{rnr: 7, memory: 1 << 16})
	got, n := answers(p.a), times{}
	p.net.wire.drop = func(to *node, r *Run) bool {
		if !r.IsResponse() {
			n.of(r)
		}
		return false
	}
	p.a.post(writeOf(p.a, 0, 0, 0, 2000))
	p.a.post(sendOf(p.a, 1, 0, 5000))
	p.a.post(writeOf(p.a, 2, 0, 0, 2000))
	p.b.coming = []coming{{time.Millisecond, Recv{Index: 9, Len: 5000, SGL: p.b.list([2]uint32{0, 5000})}}}
	p.drive(time.Minute)
	p.want(p.a, "sq 0 op 0", "sq 1 op 3", "sq 2 op 0")
	if d := cmp.Diff([]string{"0x1f 1", "0x2c 2", "0x2c 2", "0x1f 6", "0x1f 8"}, *got); d != "" {
		t.Error(d)
	}
	for k, want := range map[string]int{"WRITE0": 1, "WRITE1": 1, "SEND2": 3, "SEND6": 3, "WRITE8": 3} {
		if n[k] != want {
			t.Errorf("%s sent %d times, want %d", k, n[k], want)
		}
	}
}

// An RNR NAK that comes while everything is sent again, and a sequence NAK for
// the same packet while the requester rests: one rest, then it goes on.
func TestRNRWhileGoingBack(t *testing.T) {
	p := newPair(t, settings{rnr: 1, retries: 1})
	p.net.rec = true
	p.net.drop = func(*node, *Run) bool { return true }
	for i := range uint32(4) {
		p.a.post(sendOf(p.a, i, 0, 10))
	}
	p.a.progress()
	handle := func(syndrome uint8, psn uint32) {
		p.a.ep.Handle(&Run{Op: Acknowledge, First: true, Last: true, N: 1, Syndrome: syndrome, PSN: psn})
		p.a.progress()
	}
	sent := func() (psns []uint32) {
		for _, r := range p.net.sent {
			psns = append(psns, r.PSN)
		}
		p.net.sent = nil
		return psns
	}
	sent()
	handle(synSequence, 1)
	if got := sent(); !slices.Equal(got, []uint32{1, 2, 3}) {
		t.Errorf("after the NAK %v were sent", got)
	}
	handle(synRNR|12, 2)
	handle(synSequence, 2)
	handle(synRNR|12, 2)
	handle(synSequence, 1) // of a packet acknowledged since
	if got := sent(); got != nil || p.a.ep.Deadline() != 640*time.Microsecond {
		t.Errorf("while resting %v were sent; deadline %v", got, p.a.ep.Deadline())
	}
	p.net.now = p.a.ep.Deadline()
	p.a.progress()
	if got := sent(); !slices.Equal(got, []uint32{2, 3}) {
		t.Errorf("after the rest %v were sent", got)
	}
	handle(synACK, 3)
	p.want(p.a, "sq 0 op 3", "sq 1 op 3", "sq 2 op 3", "sq 3 op 3")
	p.wantFails(p.a)
	if p.a.ep.Deadline() != 0 {
		t.Error("the timer runs")
	}
}

// A requester rests as long as the peer asks for, be that a hundredth of a
// millisecond or more than half a second (rxe_comp.c:rnrnak_usec).
func TestRestOfEveryCode(t *testing.T) {
	for code, rest := range []time.Duration{655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
		2560, 3840, 5120, 7680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520} {
		p := newPair(t, settings{rnr: 7, retries: 1})
		p.net.rec = true
		p.net.drop = func(*node, *Run) bool { return true }
		p.a.post(sendOf(p.a, 0, 0, 10))
		p.a.progress()
		p.a.ep.Handle(&Run{Op: Acknowledge, First: true, Last: true, N: 1, Syndrome: synRNR | uint8(code)})
		p.a.progress()
		if at := p.a.ep.Deadline(); at != rest*time.Microsecond {
			t.Errorf("code %d: %v, want %v", code, at, rest*time.Microsecond)
		}
		p.net.now = rest*time.Microsecond - 1
		p.a.progress()
		sent := len(p.net.sent)
		p.net.now++
		p.a.progress()
		if len(p.net.sent) != 2 || sent != 1 {
			t.Errorf("code %d: sent %d times, then %d times", code, sent, len(p.net.sent))
		}
	}
}

// A late response to a read, while the requester rests for what comes behind
// the read, does not stop the clock of the rest.
func TestGapWhileResting(t *testing.T) {
	p := newPair(t, settings{rnr: 1, retries: 7})
	p.net.drop = func(*node, *Run) bool { return true }
	p.a.post(readOf(p.a, 0, 0, 0, 4096))
	p.a.post(sendOf(p.a, 1, 0, 10))
	p.a.progress()
	p.a.ep.Handle(&Run{Op: Acknowledge, First: true, Last: true, N: 1, Syndrome: synRNR | 12, PSN: 4})
	p.a.progress()
	for _, psn := range []uint32{0, 2} {
		p.a.ep.Handle(&Run{Op: ReadResponse, First: psn == 0, N: 1, Size: 1024, Bytes: 1024, PSN: psn, SGL: p.b.list([2]uint32{0, 1024})})
		p.a.progress()
	}
	if d := p.a.ep.Deadline(); d != 640*time.Microsecond {
		t.Fatalf("deadline %v", d)
	}
	p.net.drop, p.net.now = nil, p.a.ep.Deadline()
	p.b.ep.rsp.epsn = 4
	p.b.ep.rsp.records = []readRecord{{0, 4, 7}}
	p.b.receive(3, 0, 10)
	p.run()
	p.want(p.a, "sq 0 op 1", "sq 1 op 3")
}

// A peer that asks for no acknowledgements gets one for every 64 packets, and
// one that asks gets no more than it asks for.
func TestAcknowledgementsUnasked(t *testing.T) {
	for _, asks := range []bool{false, true} {
		p := wired(t, settings{mtu: 256})
		got := answers(p.a)
		for i := range uint32(200) {
			r := Run{Op: Write, First: i == 0, Last: i == 199, PSN: i, N: 1, Size: 256, Bytes: 256, DMALen: 200 * 256, Key: 7,
				AckReq: asks && (i%32 == 31 || i == 199)}
			r.SGL.Owner = &payload{make([]byte, 256)}
			r.SGL.Add(0, 0, 256)
			p.b.ep.Handle(&r)
			p.b.progress()
		}
		want := []string{"0x1f 63", "0x1f 127", "0x1f 191"}
		if asks {
			want = []string{"0x1f 31", "0x1f 63", "0x1f 95", "0x1f 127", "0x1f 159", "0x1f 191", "0x1f 199"}
		}
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("asks %t: %s", asks, d)
		}
	}
}

// A flush forgets what the requester was about: what it sends later has the
// retries it should have, and the PSNs that the peer expects.
func TestDropForgets(t *testing.T) {
	p := newPair(t, settings{retries: 1, rnr: 1})
	p.net.drop = func(*node, *Run) bool { return true }
	p.a.post(writeOf(p.a, 0, 0, 0, 10))
	p.a.post(readOf(p.a, 1, 0, 0, 10))
	w := writeOf(p.a, 2, 0, 0, 10)
	w.ReadFence = true
	p.a.post(w) // in work, but not sent
	p.a.progress()
	p.net.now = p.a.ep.Deadline()
	p.a.progress() // one retry
	p.a.ep.Drop()
	if !p.a.ep.Idle() || p.a.ep.Deadline() != 0 {
		t.Error("work is left")
	}
	if send, _ := p.a.ep.PSNs(); send != 2 {
		t.Errorf("next PSN %d, want 2: two were sent", send)
	}
	p.net.drop = nil
	p.b.ep.rsp.epsn = 2 // both had come
	lost := 0
	p.net.drop = func(*node, *Run) bool { lost++; return lost == 1 }
	p.a.post(writeOf(p.a, 3, 0, 0, 10))
	p.run()
	p.want(p.a, "sq 3 op 0")
	p.wantFails(p.a)
}

// A failed connection answers nothing, whatever comes.
func TestSilenceAfterTheEnd(t *testing.T) {
	p := newPair(t, settings{})
	p.b.refuse[7] = true
	p.a.post(writeOf(p.a, 0, 0, 0, 10))
	p.run()
	p.wantFails(p.b, "AE 0x0109 source 9 WQE 0")
	p.net.rec = true
	for _, op := range []Op{Send, Write, ReadRequest, Acknowledge, ReadResponse, Unsupported} {
		for _, psn := range []uint32{0, 1, 5} {
			p.b.ep.Handle(&Run{Op: op, First: true, Last: true, AckReq: true, PSN: psn, N: 1, Size: 1024})
			p.b.progress()
		}
	}
	if len(p.net.sent) > 0 || p.b.ep.Deadline() != 0 {
		t.Errorf("sent %v", p.net.sent)
	}
	p.wantFails(p.b, "AE 0x0109 source 9 WQE 0")
}

// Answers that cannot leave are no place to store things: what comes on top of
// very many is lost.
func TestAnswersAreBounded(t *testing.T) {
	p := newPair(t, settings{})
	p.net.bound = 1
	p.net.put(p.b, Run{Op: Acknowledge, PSN: 99})
	for i := range uint32(5000) {
		p.b.ep.Handle(&Run{Op: Write, First: true, Last: true, AckReq: true, PSN: i, N: 1, Size: 1024})
		p.b.ep.Handle(&Run{Op: Write, First: true, Last: true, PSN: i + 5, N: 1, Size: 1024})
	}
	if n := p.b.ep.rsp.answers.Len(); n > maxAnswers {
		t.Errorf("%d answers wait", n)
	}
}

// Of a run that has come in part before, only the rest counts.
func TestRunsThatOverlap(t *testing.T) {
	p := newPair(t, settings{mtu: 256})
	p.a.fill(0, 6*256, 1)
	p.b.fill(100000, 6*256, 7)
	p.b.receive(1, 0, 6*256)
	part := func(op Op, from, n uint32, src *node, at uint32) Run {
		return Run{Op: op, First: from == 0, Last: from+n == 6, AckReq: true, PSN: from, N: n, Size: 256, Bytes: n * 256,
			SGL: src.list([2]uint32{at + from*256, n * 256})}
	}
	for _, r := range [][2]uint32{{0, 3}, {1, 4}, {0, 2}, {4, 2}} {
		run := part(Send, r[0], r[1], p.a, 0)
		p.b.ep.Handle(&run)
	}
	p.want(p.b, fmt.Sprintf("rq 1 %+v", Received{Len: 6 * 256}))
	if !slices.Equal(p.a.mem[:6*256], p.b.mem[:6*256]) {
		t.Error("memory of the send differs")
	}
	p.net.drop = func(*node, *Run) bool { return true }
	p.a.post(readOf(p.a, 2, 200000, 100000, 6*256))
	p.a.progress()
	for _, r := range [][2]uint32{{0, 3}, {1, 4}, {0, 2}, {4, 2}} {
		run := part(ReadResponse, r[0], r[1], p.b, 100000)
		p.a.ep.Handle(&run)
	}
	p.want(p.a, "sq 2 op 1")
	if !slices.Equal(p.b.mem[100000:100000+6*256], p.a.mem[200000:200000+6*256]) {
		t.Error("memory of the read differs")
	}
}
