// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Queue pairs, regions and address handles come and go, also with work under way,
// while other queue pairs work: every byte of those is right, nothing is written to
// memory that was given back, and nothing is left.
func TestChurn(t *testing.T) {
	forWays(t, duoOptions{guest: 256}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(18, uint64(d.way)))
		tr, err := newTrafficBetween(d.a.r, d.b.r, rnd, 3)
		must(t, err)
		c := churn{t: t, d: d, rnd: rnd}
		// An uplink may lose datagrams where many are sent.
		if d.way != uplink {
			c.from, c.to = newDatagramSide(t, d.a.r, rnd, true), newDatagramSide(t, d.b.r, rnd, false)
		}
		rounds := 8
		switch {
		case *full:
			rounds = 400
		case raced:
			rounds = 3
		}
		for n := range rounds {
			tr.prepare()
			must(t, tr.post())
			for range 1 + rnd.IntN(4) {
				c.step()
			}
			if err := tr.finish(false); err != nil {
				t.Fatalf("round %d: %v", n, err)
			}
		}
		for _, e := range tr.ends {
			must(t, e.src.check(e.name+": source", 0, e.src.Size))
			must(t, e.dst.check(e.name+": destination", 0, e.dst.Size))
		}
		must(t, tr.close())
		if c.from != nil {
			endSides(t, c.from, c.to)
		}
		d.end(t)
	})
}

// churn makes objects, uses and ends them.
type churn struct {
	t        *testing.T
	d        *duo
	rnd      *rand.Rand
	from, to *side // of datagrams; nil: none
	steps    int
}

func (c *churn) step() {
	c.t.Helper()
	c.steps++
	switch c.rnd.IntN(3) {
	case 0:
		c.pair()
	case 1:
		c.region()
	default:
		if c.from != nil {
			c.handle()
		}
	}
}

// pair connects two QPs, whose one writes to the other's memory; half of them end
// before it is done.
func (c *churn) pair() {
	t := c.t
	t.Helper()
	a, b, err := tryPair(c.d.a.r, c.rnd, pairOptions{user: c.rnd.IntN(2) == 0, peer: c.d.b.r})
	must(t, err)
	done := c.rnd.IntN(2) == 0
	const each = 6_000
	for n := range 8 {
		must(t, a.qp.PostSend(a.write(uint64(n), b, n*each, each)))
		if done {
			a.waitFor(t, sent(uint64(n), Success))
			copy(b.mem.want[n*each:][:each], a.mem.want[n*each:])
		}
	}
	if done {
		must(t, b.mem.check(fmt.Sprintf("step %d", c.steps), 0, b.mem.Size))
	}
	must(t, a.mem.check(fmt.Sprintf("step %d: source", c.steps), 0, a.mem.Size))
	endSides(t, a, b)
}

// region registers memory of some kind.
func (c *churn) region() {
	t := c.t
	t.Helper()
	kinds := regionKinds()
	k := kinds[c.rnd.IntN(len(kinds)-1)] // the last breaks the pool for good
	r := []*IRDMA{c.d.a.r, c.d.b.r}[c.rnd.IntN(2)]
	f, err := newFlat(r, c.rnd, k, pairPD, Everything)
	must(t, err)
	must(t, f.mr.Dereg())
	f.Free()
}

// handle sends datagrams by a handle of its own.
func (c *churn) handle() {
	t := c.t
	t.Helper()
	h := newHandle(t, c.d.a.r, c.d.a.r.AddressOf(c.d.b.r, pairPD, c.rnd.IntN(2) == 0))
	exchange(t, c.from, c.to, h, c.rnd)
	must(t, h.Destroy())
}
