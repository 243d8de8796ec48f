// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"slices"
	"testing"
)

// locally is work that the host does by itself.
func locally(index uint32) WQE { return WQE{Kind: KindLocal, Op: 0x0A, Index: index, Signaled: true} }

// What local work has ended may be in use for a moment: neither it nor what
// comes later completes, or begins, before the host is done.
func TestLocalWorkWaitsForTheHost(t *testing.T) {
	p := newPair(t, settings{})
	p.a.busy = true
	p.a.post(writeOf(p.a, 1, 0, 0, 3000))
	p.a.post(locally(2))
	p.a.post(writeOf(p.a, 3, 0, 0, 3000))
	p.run()
	p.want(p.a, "sq 1 op 0")
	if !slices.Equal(p.a.local, []uint32{2}) || p.a.ep.Idle() {
		t.Errorf("local work %v", p.a.local)
	}
	p.a.busy = false
	p.run()
	p.want(p.a, "sq 1 op 0", "sq 2 op 10", "sq 3 op 0")
	if !slices.Equal(p.a.local, []uint32{2}) || !p.a.ep.Idle() {
		t.Errorf("local work %v", p.a.local)
	}
}

// Local work that is refused ends the connection behind what was posted before.
func TestLocalWorkRefused(t *testing.T) {
	p := newPair(t, settings{})
	p.a.refuseLocal = 0x0103
	p.a.post(readOf(p.a, 1, 0, 0, 3000))
	p.a.post(locally(2))
	p.a.post(writeOf(p.a, 3, 0, 0, 3000))
	p.run()
	p.want(p.a, "sq 1 op 1")
	if !slices.Equal(p.a.fails, []string{"AE 0x0103 source 5 WQE 2"}) {
		t.Errorf("%v", p.a.fails)
	}
}

// A read that ends its sink's STags does that when all data is there, and
// completes when the host is done. Until then a read fence holds back.
func TestReadThatEndsItsSink(t *testing.T) {
	p := newPair(t, settings{})
	p.a.busy = true
	r := readOf(p.a, 1, 0, 5000, 3000)
	r.Op, r.HasInv = 0x0B, true
	p.b.fill(5000, 3000, 9)
	p.a.post(r)
	w := writeOf(p.a, 2, 0, 0, 10)
	w.ReadFence = true
	p.a.post(w)
	p.net.rec = true
	p.run()
	p.want(p.a)
	if !slices.Equal(p.a.local, []uint32{1}) || slices.ContainsFunc(p.net.sent, func(r Run) bool { return r.Op == Write }) {
		t.Errorf("local work %v, sent %v", p.a.local, p.net.sent)
	}
	if !slices.Equal(p.a.mem[:3000], p.b.mem[5000:8000]) {
		t.Error("data not there")
	}
	p.a.busy = false
	p.run()
	p.want(p.a, "sq 1 op 11", "sq 2 op 0")
	if !slices.Equal(p.a.local, []uint32{1}) {
		t.Errorf("local work %v", p.a.local)
	}

	p.a.refuseLocal = 0x0106
	r.Index = 3
	p.a.post(r)
	p.run()
	p.want(p.a, "sq 1 op 11", "sq 2 op 0")
	if !slices.Equal(p.a.fails, []string{"AE 0x0106 source 5 WQE 3"}) {
		t.Errorf("%v", p.a.fails)
	}
}

// A message that ends an STag is neither completed nor acknowledged before the
// host is done, and nothing that follows is handled.
func TestMessageThatEndsAnSTag(t *testing.T) {
	for _, single := range []bool{false, true} {
		p := newPair(t, settings{})
		p.net.single = single
		p.b.busy = true
		p.b.receive(7, 0, 4000)
		p.b.receive(8, 10000, 4000)
		w := sendOf(p.a, 1, 0, 3000)
		w.HasInv, w.Inv = true, 5
		p.a.post(w)
		w = sendOf(p.a, 2, 0, 3000)
		p.a.post(w)
		for range 50 {
			p.a.progress()
			p.b.progress()
			p.net.deliver()
		}
		p.want(p.a)
		p.want(p.b, "invalidate 5")
		if !p.b.ep.Holding() || p.b.ep.Stats.Invalidations != 0 {
			t.Errorf("holding %t, %d invalidations", p.b.ep.Holding(), p.b.ep.Stats.Invalidations)
		}
		p.b.busy = false
		p.run()
		p.want(p.a, "sq 1 op 3", "sq 2 op 3")
		p.want(p.b, "invalidate 5", "rq 7 {Len:3000 Write:false Only:false Solicited:false HasImm:false HasInv:true Imm:0 Inv:5}",
			"rq 8 {Len:3000 Write:false Only:false Solicited:false HasImm:false HasInv:false Imm:0 Inv:0}")
		if p.b.ep.Holding() || p.b.ep.Stats.Invalidations != 1 {
			t.Errorf("holding %t, %d invalidations", p.b.ep.Holding(), p.b.ep.Stats.Invalidations)
		}
	}
}

// A message that ends an STag comes after the reads before it, also without a
// fence: what they want may be that STag's.
func TestMessageThatEndsAnSTagAfterReads(t *testing.T) {
	p := newPair(t, settings{})
	p.b.receive(7, 0, 4000)
	p.b.fill(200000, 200000, 4)
	p.a.post(readOf(p.a, 1, 0, 200000, 200000))
	w := sendOf(p.a, 2, 0, 10)
	w.HasInv, w.Inv = true, 1 // after which nothing of b's can be read
	p.a.post(w)
	p.net.rec = true
	p.run()
	p.want(p.a, "sq 1 op 1", "sq 2 op 3")
	if !slices.Equal(p.a.mem[:200000], p.b.mem[200000:400000]) {
		t.Error("data not there")
	}
	order := ""
	for _, r := range p.net.sent {
		switch {
		case r.Op == ReadResponse && r.Last:
			order += "read "
		case r.HasInv:
			order += "invalidate "
		}
	}
	if order != "read invalidate " {
		t.Errorf("sent %q", order)
	}
	// A peer that does not wait: its message is held until the responses are
	// sent.
	p.net.sent = nil
	p.net.bound = 1
	p.b.receive(8, 0, 4000)
	p.b.got = nil
	send, _ := p.a.ep.PSNs()
	read := Run{Op: ReadRequest, First: true, Last: true, AckReq: true, PSN: send, N: 1, Size: 1024, VA: 200000, Key: 7, DMALen: 200000}
	inv := Run{Op: Send, First: true, Last: true, AckReq: true, HasInv: true, Inv: 1, PSN: psn(send + 196), N: 1, Size: 1024, Bytes: 4, SGL: p.a.list([2]uint32{0, 4})}
	p.b.ep.Handle(&read)
	p.b.ep.Handle(&inv)
	p.b.progress()
	p.want(p.b)
	for p.net.deliver() || p.b.ep.Holding() {
		p.b.progress()
	}
	p.want(p.b, "invalidate 1", "rq 8 {Len:4 Write:false Only:true Solicited:false HasImm:false HasInv:true Imm:0 Inv:1}")
}

// A connection that ends while it waits for the host does nothing any more.
func TestEndWhileHolding(t *testing.T) {
	p := newPair(t, settings{})
	p.b.busy = true
	p.b.receive(7, 0, 4000)
	w := sendOf(p.a, 1, 0, 10)
	w.HasInv, w.Inv = true, 5
	p.a.post(w)
	for range 5 {
		p.a.progress()
		p.b.progress()
		p.net.deliver()
	}
	p.want(p.b, "invalidate 5")
	p.b.ep.Stop()
	p.b.busy = false
	p.b.progress()
	if p.b.ep.Holding() {
		t.Error("still holding")
	}
	p.want(p.b, "invalidate 5")
}
