// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"
)

const pairPD = 7

// side is one of two connected QPs with a CQ and registered memory.
type side struct {
	qp  *QP
	cq  *CQ
	mem *flat
	rnd *rand.Rand
}

// pairOptions vary a pair.
type pairOptions struct {
	user bool
	size int // of the memory of each
	attr func(*QPAttr)
	lone bool   // do not connect
	peer *IRDMA // that b is of; nil: of the same
}

func newSide(r *IRDMA, rnd *rand.Rand, o pairOptions) (*side, error) {
	s := &side{rnd: rnd}
	var err error
	const entries = 701
	if s.cq, err = r.CreateCQ(entries, 0, o.user); err != nil {
		return nil, err
	}
	if s.qp, err = r.NewQP(QPConfig{Send: s.cq, Recv: s.cq, PD: pairPD, SendWRs: 256, RecvWRs: 64, SendSGEs: 3, RecvSGEs: 3,
		Inline: maxInline, User: o.user}); err != nil {
		return nil, err
	}
	if o.attr != nil {
		at := &s.qp.Attr
		if o.attr(at); at.IPv6 {
			at.LocalIP = r.Address(true)
			at.DestIP = at.LocalIP
		}
	}
	kind := regionKind{size: max(o.size, 64<<10), va: 0x7fee_0000_0100, page: Page4K, level: 1}
	s.mem, err = newFlat(r, rnd, kind, pairPD, Everything)
	return s, err
}

func newPair(t testing.TB, r *IRDMA, rnd *rand.Rand, o pairOptions) (a, b *side) {
	t.Helper()
	a, b, err := tryPair(r, rnd, o)
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func tryPair(r *IRDMA, rnd *rand.Rand, o pairOptions) (a, b *side, err error) {
	if a, err = newSide(r, rnd, o); err != nil {
		return nil, nil, err
	}
	if o.peer == nil {
		o.peer = r
	}
	if b, err = newSide(o.peer, rnd, o); err != nil || o.lone {
		return a, b, err
	}
	return a, b, ConnectPair(a.qp, b.qp)
}

// end destroys what is left of sides.
func endSides(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		if !s.qp.gone {
			if err := s.qp.Destroy(); err != nil {
				t.Fatal(err)
			}
		}
		if s.mem != nil {
			if s.mem.mr != nil {
				if err := s.mem.mr.Dereg(); err != nil {
					t.Fatal(err)
				}
			}
			s.mem.Free()
		}
		if err := s.cq.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *side) sge(off, n int) SGE { return SGE{s.mem.mr.Addr(off), uint32(n), s.mem.mr.STag} }

// write is a signalled write of n bytes from off of s to off of the peer.
func (s *side) write(id uint64, peer *side, off, n int) SendWR {
	return SendWR{ID: id, Op: IRDMA_OP_TYPE_RDMA_WRITE, Signalled: true, SGEs: []SGE{s.sge(off, n)},
		RemoteAddr: peer.mem.mr.Addr(off), RKey: peer.mem.mr.STag}
}

// read is the same the other way.
func (s *side) read(id uint64, peer *side, off, n int) SendWR {
	w := s.write(id, peer, off, n)
	w.Op = IRDMA_OP_TYPE_RDMA_READ
	return w
}

// send is a signalled send of n bytes from off.
func (s *side) send(id uint64, off, n int) SendWR {
	return SendWR{ID: id, Op: IRDMA_OP_TYPE_SEND, Signalled: true, SGEs: []SGE{s.sge(off, n)}}
}

// wait takes n completions.
func (s *side) wait(t testing.TB, n int) []WC {
	t.Helper()
	var list []WC
	if n > 0 {
		if err := s.cq.PollFor(n, func(wc WC) error { list = append(list, wc); return nil }); err != nil {
			t.Fatalf("QP %d: %d of %d completions: %v; events %+v", s.qp.ID, len(list), n, err, s.qp.r.AEs)
		}
	}
	return list
}

// waitFor takes completions and compares status and id with those that are due.
func (s *side) waitFor(t testing.TB, want ...WC) {
	t.Helper()
	for n, wc := range s.wait(t, len(want)) {
		if w := want[n]; wc.Status != w.Status || wc.ID != w.ID || wc.Send != w.Send {
			t.Errorf("QP %d: completion %d is %d %v, send %v; want %d %v, send %v; events %+v",
				s.qp.ID, n, wc.ID, wc.Status, wc.Send, w.ID, w.Status, w.Send, s.qp.r.AEs)
		}
	}
}

// nothing fails if there is a completion.
func (s *side) nothing(t testing.TB) {
	t.Helper()
	if wc, ok, err := s.cq.Poll(); ok || err != nil {
		t.Errorf("QP %d: one completion too many: %+v, %v", s.qp.ID, wc, err)
	}
}

// awaitEvent waits until there is an asynchronous event of the side's QP, and
// returns all of them.
func (s *side) awaitEvent(t testing.TB) []AE {
	t.Helper()
	r := s.qp.r
	err := r.F.poll("event", func() bool {
		if err := r.Work(); err != nil {
			t.Fatal(err)
		}
		return len(r.eventsOf(s.qp)) > 0
	})
	if err != nil {
		t.Fatalf("QP %d: %v", s.qp.ID, err)
	}
	return r.eventsOf(s.qp)
}

// eventsOf are the asynchronous events of a QP.
func (r *IRDMA) eventsOf(q *QP) (list []AE) {
	for _, ae := range r.AEs {
		if ae.ID == q.ID && ae.Context == q.compCtx {
			list = append(list, ae)
		}
	}
	return list
}
