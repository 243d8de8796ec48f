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
				ops := 1000
				if c.impair != nil {
					ops = 120
				}
				if *full {
					ops *= 20
				}
				d.random(t, rnd, 4, ops)
				d.balanced(t, c.impair == nil)
				if a, b := d.counters(t); (a[RetransSegs]+b[RetransSegs] > 0) != c.loses {
					t.Errorf("%d and %d packets were sent again", a[RetransSegs], b[RetransSegs])
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
	if n := sum(IP4OutNoRoutes, IP6OutNoRoutes, RxVlanErrors, IP4InTruncated, IP6InTruncated, IP4InReasmRqd, IP6InReasmRqd); n != 0 {
		t.Errorf("errors were counted: %v, %v", a, b)
	}
}
