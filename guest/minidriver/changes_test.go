// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"
)

// Queues get other sizes, queue pairs are suspended, resumed and given another
// traffic class, all while messages are under way and packets are lost: each
// message completes once, in its order, with its data.
func TestChangesUnderTraffic(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.String(), func(t *testing.T) {
			o := duoOptions{way: w}
			if w != loopback {
				o.impair = []string{"loss=1%,seed=6"}
			}
			d := startDuo(t, o)
			a, b := newPair(t, d.a.r, rand.New(rand.NewPCG(9, 4)), pairOptions{peer: d.b.r, attr: func(q *QPAttr) { q.RNRTries = 7 }})
			both := [2]*side{a, b}
			var posted, done [2][2]uint64 // by side; received and sent
			take := [2]func(WC) error{}
			for i := range both {
				take[i] = func(wc WC) error {
					queue := 0
					if wc.Send {
						queue = 1
					}
					if done[i][queue]++; wc.Status != Success || wc.ID != done[i][queue] {
						t.Errorf("side %d: completion %+v, want %d", i, wc, done[i][queue])
					}
					return nil
				}
			}
			const size = 9000
			post := func(i int) {
				from, to := both[i], both[1-i]
				posted[1-i][0]++
				must(t, to.qp.PostRecv(RecvWR{ID: posted[1-i][0], SGEs: []SGE{to.sge(56_000, size)}}))
				id := posted[i][1]
				posted[i][1] += 3
				must(t, from.qp.PostSend(from.write(id+1, to, 20_000*i, size), from.read(id+2, to, 20_000*i+size, size),
					from.send(id+3, 40_000, size)))
			}
			for round, size := range []int{100, 64, 300, 81} {
				for range 5 {
					post(0)
					post(1)
				}
				for i, s := range both {
					must(t, s.cq.Resize(size, take[i]))
				}
				post(round % 2)
				must(t, a.qp.Suspend())
				post(0)
				must(t, d.a.r.F.poll("the end of what was begun", func() bool {
					must(t, d.a.r.Work())
					return len(d.a.r.eventsOf(a.qp)) > round
				}))
				must(t, a.qp.Resume())
				b.qp.Attr.TrafficClass = uint8(4 * round)
				_, err := b.qp.Modify(IRDMA_QP_STATE_RTS)
				must(t, err)
				for i, s := range both {
					left := posted[i][0] + posted[i][1] - done[i][0] - done[i][1]
					must(t, s.cq.PollFor(int(left), take[i]))
				}
			}
			if done != posted {
				t.Errorf("completions %v, want %v", done, posted)
			}
			for i, s := range both {
				from := both[1-i]
				copy(s.mem.want[20_000*(1-i):][:size], from.mem.want[20_000*(1-i):][:size])
				copy(s.mem.want[20_000*i+size:][:size], from.mem.want[20_000*i+size:][:size])
			}
			for i, s := range both {
				copy(s.mem.want[56_000:][:size], both[1-i].mem.want[40_000:][:size])
				must(t, s.mem.check("a side", 0, s.mem.Size))
			}
			for _, e := range d.a.r.eventsOf(a.qp) {
				if e.Code != IRDMA_AE_QP_SUSPEND_COMPLETE {
					t.Errorf("event %+v", e)
				}
			}
			endSides(t, a, b)
			d.end(t)
		})
	}
}
