// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
)

// ending is how a machine's part in the traffic ends.
type ending struct {
	name string
	// do ends it. What the guest then has is the guest's: its poison tells.
	do func(t *testing.T, d *duo, m *machine, s *side)
	// resumes: it is for a time only, and so the QP and its memory stay.
	resumes bool
	// after makes the machine whole again when the peer's requests have ended;
	// nil: it is. Unless it resumes, all that the drivers had is gone.
	after func(t *testing.T, d *duo, m *machine) *machine
	// Of the first request that fails: of the peer's if the machine is their
	// target, of its own if it is the one that asks; nil: nobody can look.
	peer, own []Status
}

func endings() []ending {
	retries, anything := []Status{RetryExcErr, Success}, []Status(nil)
	rebuilt := func(t *testing.T, d *duo, m *machine) *machine {
		t.Helper()
		n, err := bringUp(m.f, d.kernel, Options{})
		must(t, err)
		return n
	}
	dropped := func(t *testing.T, m *machine, s *side) {
		t.Helper()
		s.mem.Free()
		m.abandon()
		must(t, m.f.Guest.Check())
	}
	return []ending{
		{name: "DEALLOC_STAG", peer: []Status{RemAccessErr, Success}, own: []Status{LocProtErr, Success},
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				must(t, s.mem.mr.Dereg())
				s.mem.mr = nil
			}},
		{name: "MODIFY_QP to ERROR", peer: retries, own: []Status{WRFlushErr, Success},
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				_, err := s.qp.Modify(IRDMA_QP_STATE_ERROR)
				must(t, err)
			}},
		{name: "DESTROY_QP", peer: retries, own: anything,
			do: func(t *testing.T, d *duo, m *machine, s *side) { must(t, s.qp.Destroy()) }},
		{name: "link down", peer: retries, own: retries, resumes: true,
			do: func(t *testing.T, d *duo, m *machine, s *side) { d.ctl(m, "link", "down") },
			after: func(t *testing.T, d *duo, m *machine) *machine {
				d.ctl(m, "link", "up")
				return m
			}},
		{name: "DMA unmap", peer: []Status{RetryExcErr, RemOpErr, RemAccessErr, Success}, own: anything,
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				must(t, m.f.Guest.Unmap(m.f.Client))
				dropped(t, m, s)
			},
			after: func(t *testing.T, d *duo, m *machine) *machine {
				must(t, m.f.Guest.Check())
				must(t, m.f.Guest.Map(m.f.Client))
				must(t, m.i.Reset())
				must(t, m.f.Guest.wipe())
				return rebuilt(t, d, m)
			}},
		{name: "PFR", peer: retries, own: anything,
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				must(t, m.i.Reset())
				dropped(t, m, s)
			},
			after: rebuilt},
		{name: "GLOBR", peer: retries, own: anything,
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				d.ctl(m, "reset", "globr")
				_, err := m.i.WaitReset()
				must(t, err)
				must(t, m.r.RemoveInReset())
				must(t, m.i.PrepareForReset(true))
				must(t, m.i.CheckReset())
				dropped(t, m, s)
			},
			after: rebuilt},
		{name: "client gone", peer: retries, own: anything,
			do: func(t *testing.T, d *duo, m *machine, s *side) {
				m.f.Detach()
				// The next client is served when the old one's work is over.
				next, err := Attach(d.ctx, d.sockets[d.card(m)], m.f.Guest)
				must(t, err)
				t.Cleanup(next.Detach)
				dropped(t, m, s)
				m.f = next
			},
			after: rebuilt},
	}
}

// card is which of the two a machine has.
func (d *duo) card(m *machine) int {
	if m == d.a {
		return 0
	}
	return 1
}

// ctl does to a machine's card what a person can.
func (d *duo) ctl(m *machine, what, arg string) { d.control[d.card(m)](what, arg) }

// One of two machines ends its part under load, as target of the requests or as
// the one who asks. From then on nobody writes to its memory, its peer's requests
// end as they must, and both can go on: with the next connection.
func TestPeerEndsUnderLoad(t *testing.T) {
	for _, w := range []way{near, wired2, uplink} {
		if w == wired2 && !*full {
			continue
		}
		t.Run(w.String(), func(t *testing.T) {
			d := startDuo(t, duoOptions{way: w, guest: 96})
			rnd := rand.New(rand.NewPCG(18, uint64(w)))
			var before size
			rounds := 2
			if *full {
				rounds = 10
			}
			for round := range rounds {
				for n, e := range endings() {
					for _, asks := range []bool{false, true} {
						if !*full && (asks != ((n/2+int(w))%2 == 0) || n%2 != round%2) {
							continue
						}
						e.run(t, d, rnd, asks)
						if t.Failed() {
							t.Fatalf("round %d: %s, asks: %v\n%s", round, e.name, asks, strings.Join(d.findings.take(), "\n"))
						}
					}
				}
				if round == 0 {
					before = processSize()
				}
			}
			if err := before.grown(); err != nil {
				var stacks strings.Builder
				_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
				t.Errorf("%v\n%s", err, &stacks)
			}
			d.random(t, rnd, 2, 50)
			must(t, d.a.takeDown())
			must(t, d.b.takeDown())
		})
	}
}

func (e ending) run(t *testing.T, d *duo, rnd *rand.Rand, asks bool) {
	t.Helper()
	a, b := newPair(t, d.a.r, rnd, pairOptions{size: bulkSize, peer: d.b.r, attr: func(a *QPAttr) { a.Retries = 1 }})
	bulk(t, a, b)
	a.begun(t)
	m, s := d.b, b
	if asks {
		m, s = d.a, a
	}
	gone := e.after != nil && !e.resumes
	e.do(t, d, m, s)
	if !gone && !e.resumes {
		s.mem.Poison(0, s.mem.Size)
	}
	wants := e.peer
	if asks {
		wants = e.own
	}
	if wants != nil {
		if status := a.left(t); !slices.Contains(wants, status) {
			t.Errorf("requests end with %v, want one of %v", status, wants)
		}
	}
	if !gone && !e.resumes {
		if at := s.mem.Differs(0, slices.Repeat([]byte{poisonByte}, s.mem.Size)); at >= 0 {
			t.Errorf("byte %d was written to later", at)
		}
	}
	for _, m := range d.machines() {
		must(t, m.f.Guest.Check())
	}
	if e.after != nil {
		n := e.after(t, d, m)
		if m == d.a {
			d.a = n
		} else {
			d.b = n
		}
	}
	for _, x := range []*side{a, b} {
		if gone && x == s {
			continue
		}
		endSides(t, x)
	}
	for _, m := range d.machines() {
		must(t, m.f.Guest.Check())
	}
}
