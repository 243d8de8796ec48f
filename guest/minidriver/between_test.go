// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"
)

// forWays runs a test for every way between two machines.
func forWays(t *testing.T, o duoOptions, test func(t *testing.T, d *duo)) {
	for _, w := range ways() {
		t.Run(w.String(), func(t *testing.T) {
			o.way = w
			test(t, startDuo(t, o))
		})
	}
}

// Random work between two machines, with every byte and every completion looked
// at: what a program sees does not depend on what is between them, nor on what
// that does to frames.
func TestTrafficBetween(t *testing.T) {
	for _, c := range []struct {
		name   string
		ways   []way
		impair []string
		loses  bool
	}{
		{"clean", ways(), nil, false},
		{"loss", []way{wired2, uplink}, []string{"loss=2%,seed=1"}, true},
		{"reorder", []way{wired2}, []string{"reorder=3%,delay=200us,jitter=100us,seed=2"}, true},
		{"duplicate", []way{wired2}, []string{"duplicate=5%,seed=3"}, false},
		{"corrupt", []way{wired2}, []string{"corrupt=2%,seed=4"}, true},
		{"all", []way{near, uplink}, []string{"loss=1%,reorder=1%,duplicate=2%,corrupt=1%,delay=50us,seed=5"}, true},
	} {
		for _, w := range c.ways {
			t.Run(c.name+" by "+w.String(), func(t *testing.T) {
				d := startDuo(t, duoOptions{way: w, impair: c.impair, guest: 256})
				rnd := rand.New(rand.NewPCG(uint64(w), 4))
				ops := 400
				if c.impair != nil || raced {
					ops = 80
				}
				if *full {
					ops *= 50
				}
				d.random(t, rnd, 4, ops)
				d.balanced(t, c.impair == nil)
				// A machine that stands still for long makes some be sent again, too.
				if a, b := d.counters(t); c.loses && a[RetransSegs]+b[RetransSegs] == 0 {
					t.Error("nothing was sent again")
				}
				d.end(t)
			})
		}
	}
}

// random does random work.
func (d *duo) random(t *testing.T, rnd *rand.Rand, pairs, ops int) {
	t.Helper()
	tr, err := newTrafficBetween(d.a.r, d.b.r, rnd, pairs)
	must(t, err)
	before := len(tr.events())
	for round := 0; tr.ops < ops; round++ {
		if err := tr.round(round%4 == 0); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	for _, e := range tr.ends {
		must(t, e.src.check(e.name+": source", 0, e.src.Size))
		must(t, e.dst.check(e.name+": destination", 0, e.dst.Size))
	}
	if list := tr.events(); len(list) > before {
		t.Errorf("events %+v", list)
	}
	must(t, tr.close())
}

// balanced compares what the cards counted with each other. On a way without
// losses each packet that was sent has been received.
func (d *duo) balanced(t *testing.T, clean bool) {
	t.Helper()
	a, b := d.counters(t)
	if d.a == d.b {
		b = nil // each side is both
	}
	sum := func(names ...Counter) (n uint64) {
		for _, c := range names {
			n += a[c] + b[c]
		}
		return n
	}
	// A message is executed once, however often it was sent.
	for _, pair := range [][2]Counter{{OutRdmaWrites, InRdmaWrites}, {OutRdmaReads, InRdmaReads}, {OutRdmaSends, InRdmaSends}} {
		if out, in := sum(pair[0]), sum(pair[1]); out != in || out == 0 {
			t.Errorf("%s %d, %s %d", pair[0], out, pair[1], in)
		}
	}
	if d.a != d.b {
		for _, pair := range [][2]Counter{{OutRdmaWrites, InRdmaWrites}, {OutRdmaReads, InRdmaReads}, {OutRdmaSends, InRdmaSends}} {
			if a[pair[0]] != b[pair[1]] || b[pair[0]] != a[pair[1]] {
				t.Errorf("%s %d and %d, %s %d and %d", pair[0], a[pair[0]], b[pair[0]], pair[1], a[pair[1]], b[pair[1]])
			}
		}
	}
	for _, pair := range [][2]Counter{{IP4OutPkts, IP4InPkts}, {IP6OutPkts, IP6InPkts}, {IP4OutOctets, IP4InOctets}, {IP6OutOctets, IP6InOctets}, {TxUDP, RxUDP}} {
		out, in := sum(pair[0]), sum(pair[1])
		if out == 0 || in == 0 || clean && out != in {
			t.Errorf("%s %d, %s %d", pair[0], out, pair[1], in)
		}
	}
	if udp, ip := sum(TxUDP), sum(IP4OutPkts, IP6OutPkts); udp != ip {
		t.Errorf("TxUDP %d, packets by IP %d", udp, ip)
	}
	if n := sum(IP4OutNoRoutes, IP6OutNoRoutes); n != 0 {
		t.Errorf("%d packets went nowhere", n)
	}
	if n := sum(RxVlanErrors, IP4InDiscards, IP6InDiscards, IP4InTruncated, IP6InTruncated, IP4InReasmRqd, IP6InReasmRqd); clean && n != 0 {
		t.Errorf("errors were counted: %v, %v", a, b)
	}
}

// What fails between two machines fails as on one.
func TestVerbsErrorsBetween(t *testing.T) {
	for _, w := range ways()[1:] {
		t.Run(w.String(), func(t *testing.T) {
			d := startDuo(t, duoOptions{way: w})
			rnd := rand.New(rand.NewPCG(1, 9))
			for _, c := range verbsErrors() {
				t.Run(c.name, func(t *testing.T) { c.run(t, d.a.r, d.b.r, rnd) })
			}
			must(t, d.a.takeDown())
			must(t, d.b.takeDown())
		})
	}
}

// A receiver that is late gets the message when it has a buffer, here in a VLAN and
// with a priority.
func TestReceiverNotReadyBetween(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		for _, m := range d.machines() {
			must(t, m.i.AddVLAN(77))
		}
		a, b := newPair(t, d.a.r, rand.New(rand.NewPCG(1, 10)), pairOptions{peer: d.b.r, attr: func(q *QPAttr) {
			q.RNRTries, q.Tagged, q.VLANTag = 7, true, 0xa000|77
		}})
		for n := range uint64(10) {
			must(t, a.qp.PostSend(a.send(n, 0, 6000), a.write(100+n, b, 20_000, 50)))
			must(t, a.qp.fetched())
			a.nothing(t)
			b.nothing(t)
			must(t, b.qp.PostRecv(RecvWR{ID: n, SGEs: []SGE{b.sge(100, 3000), b.sge(10_000, 3000)}}))
			b.waitFor(t, received(n, Success))
			a.waitFor(t, sent(n, Success), sent(100+n, Success))
		}
		copy(b.mem.want[100:], a.mem.want[:3000])
		copy(b.mem.want[10_000:], a.mem.want[3000:6000])
		copy(b.mem.want[20_000:], a.mem.want[20_000:20_050])
		must(t, b.mem.check("receiver", 0, b.mem.Size))
		endSides(t, a, b)
		d.end(t)
	})
}

// Where nothing arrives requests end by themselves: another VLAN, an address or a
// QP that is not there, another partition of the numbers' space. The peer notices
// nothing, and counters tell why.
func TestNowhere(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.String(), func(t *testing.T) {
			d := startDuo(t, duoOptions{way: w})
			rnd := rand.New(rand.NewPCG(1, 11))
			for _, m := range d.machines() {
				must(t, m.i.AddVLAN(5))
			}
			type pair struct{ a, b *side }
			var pairs []pair
			for _, change := range []func(a, b *side){
				func(a, b *side) { a.qp.Attr.Tagged, a.qp.Attr.VLANTag = true, 5 },
				func(a, b *side) { b.qp.Attr.Tagged, b.qp.Attr.VLANTag = true, 5 },
				func(a, b *side) { a.qp.Attr.DestQP = 0x1234 },
				func(a, b *side) { a.qp.Attr.DestIP[3]++ },
				func(a, b *side) { b.qp.Attr.LocalIP[3]++ },
				func(a, b *side) { b.qp.Attr.IPv6, b.qp.Attr.LocalIP = true, b.qp.r.Address(true) },
				func(a, b *side) { a.qp.Attr.ARP = 77 },
			} {
				a, b := newPair(t, d.a.r, rnd, pairOptions{peer: d.b.r, lone: true, attr: func(q *QPAttr) { q.Retries = 1 }})
				must(t, a.qp.reach(b.qp))
				must(t, b.qp.reach(a.qp))
				change(a, b)
				must(t, a.qp.ToRTS())
				must(t, b.qp.ToRTS())
				must(t, b.qp.PostRecv(RecvWR{ID: 9}))
				must(t, a.qp.PostSend(a.send(1, 0, 0), a.write(2, b, 0, 100)))
				pairs = append(pairs, pair{a, b})
			}
			for n, p := range pairs {
				if ae := p.a.awaitEvent(t); len(ae) != 1 || ae[0].Code != IRDMA_AE_LLP_TOO_MANY_RETRIES {
					t.Errorf("case %d: events %+v", n, ae)
				}
				p.a.waitFor(t, sent(1, RetryExcErr), sent(2, WRFlushErr))
				p.b.nothing(t)
				if ae := d.b.r.eventsOf(p.b.qp); len(ae) > 0 {
					t.Errorf("case %d: events of the peer %+v", n, ae)
				}
				endSides(t, p.a, p.b)
			}
			a, b := d.counters(t)
			if a[IP4OutNoRoutes] == 0 || b[RxVlanErrors] == 0 || b[IP4InDiscards] == 0 {
				t.Errorf("%s %d, %s %d, %s %d", IP4OutNoRoutes, a[IP4OutNoRoutes], RxVlanErrors, b[RxVlanErrors], IP4InDiscards, b[IP4InDiscards])
			}
			d.end(t)
		})
	}
}
