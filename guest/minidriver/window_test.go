// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// moved fails unless what b has at off is what a has there.
func moved(t *testing.T, a, b *side, off, n int) {
	t.Helper()
	copy(b.mem.want[off:off+n], a.mem.want[off:off+n])
	must(t, b.mem.check("at the peer", off, n))
}

// through is a signalled write of n bytes to off of b's memory by another STag.
func (s *side) through(id uint64, b *side, stag uint32, off, n int) SendWR {
	w := s.write(id, b, off, n)
	w.RKey = stag
	return w
}

// faulted expects that an event tells that a QP is in error, for one of the
// reasons given.
func faulted(t *testing.T, q *QP, codes ...uint16) AE {
	t.Helper()
	r := q.r
	must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.eventsOf(q)) > 0 }))
	ae := r.eventsOf(q)[0]
	if !slices.Contains(codes, ae.Code) {
		t.Errorf("event %#x of QP %d, want one of %#x", ae.Code, q.ID, codes)
	}
	must(t, r.Work())
	return ae
}

// A fast registration holds for what comes after it in the same list, and for
// the peer; with another key the old one is none; invalidated, the STag opens
// nothing, and can be had again for other memory.
func TestFastRegister(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := start(t, k, Options{})
		r, rnd := m.r, rand.New(rand.NewPCG(10, 1))
		a, b := newPair(t, r, rnd, pairOptions{})
		pages := len(b.mem.pages)
		mr, err := r.AllocSTag(pairPD, pages)
		must(t, err)
		for n, key := range []uint8{7, 200, 7} {
			region := b.mem.Region
			if n == 1 { // one page, without a list
				region = &Region{VA: region.VA + 3*Page4K - uint64(region.first), Size: Page4K, PageSize: Page4K, pages: region.pages[3:4]}
			}
			f := FastReg{MR: mr, Key: key, Region: region, Access: LocalRead | LocalWrite | RemoteWrite}
			must(t, a.qp.PostRecv(RecvWR{ID: 5, SGEs: []SGE{a.sge(0, 100)}}))
			must(t, b.qp.PostSend(b.qp.FastRegWR(1, f), b.send(2, 0, 100)))
			b.waitFor(t, sent(1, Success), sent(2, Success))
			a.waitFor(t, received(5, Success))
			off := 3*Page4K - b.mem.first // the page that all registrations have
			must(t, a.qp.PostSend(a.through(3, b, mr.STag, off, Page4K)))
			a.waitFor(t, sent(3, Success))
			moved(t, a, b, off, Page4K)
			must(t, r.Query(mr.STag))
			must(t, b.qp.PostSend(b.qp.LocalInvWR(4, mr.STag)))
			b.waitFor(t, sent(4, Success))
			if err := r.Query(mr.STag); err == nil {
				t.Error("an STag is valid after its invalidation")
			}
		}
		quiet(t, complaints)
		must(t, a.qp.PostSend(a.through(9, b, mr.STag, 0, 10)))
		faulted(t, b.qp, noSTag...)
		must(t, mr.Dereg())
		endSides(t, a, b)
		must(t, m.takeDown())
	})
}

// What of one STag is not allowed.
func TestFastRegisterErrors(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r, rnd := m.r, rand.New(rand.NewPCG(10, 2))
	for _, c := range []struct {
		name string
		user bool
		make func(t *testing.T, b *side, mr *MR) []SendWR
		want uint16
	}{
		{"valid already", false, func(t *testing.T, b *side, mr *MR) []SendWR {
			f := FastReg{MR: mr, Key: 1, Region: b.mem.Region, Access: Everything}
			return []SendWR{b.qp.FastRegWR(1, f), b.qp.FastRegWR(2, f)}
		}, IRDMA_AE_AMP_FASTREG_VALID_STAG},
		{"more than was allocated", false, func(t *testing.T, b *side, mr *MR) []SendWR {
			f := FastReg{MR: mr, Key: 1, Region: b.mem.Region, Access: Everything}
			f.Region = &Region{VA: b.mem.VA, Size: 200 * Page4K, PageSize: Page4K, first: b.mem.first, pages: b.mem.pages}
			return []SendWR{b.qp.FastRegWR(2, f)}
		}, IRDMA_AE_AMP_FASTREG_INVALID_LENGTH},
		{"of a program", true, func(t *testing.T, b *side, mr *MR) []SendWR {
			return []SendWR{b.qp.FastRegWR(2, FastReg{MR: mr, Key: 1, Region: b.mem.Region, Access: Everything})}
		}, IRDMA_AE_PRIV_OPERATION_DENIED},
		{"invalidation of what is not valid", false, func(t *testing.T, b *side, mr *MR) []SendWR {
			return []SendWR{b.qp.LocalInvWR(2, mr.STag)}
		}, IRDMA_AE_AMP_INVALID_STAG},
		{"invalidation with another key", false, func(t *testing.T, b *side, mr *MR) []SendWR {
			f := FastReg{MR: mr, Key: 1, Region: b.mem.Region, Access: Everything}
			return []SendWR{b.qp.FastRegWR(1, f), b.qp.LocalInvWR(2, NextKey(mr.STag&^0xff|1))}
		}, IRDMA_AE_AMP_BAD_STAG_KEY},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, r, rnd, pairOptions{user: c.user})
			mr, err := r.AllocSTag(pairPD, len(b.mem.pages))
			must(t, err)
			list := c.make(t, b, mr)
			must(t, b.qp.PostSend(append(list, b.send(3, 0, 10))...))
			ae := faulted(t, b.qp, c.want)
			var want []WC
			if len(list) > 1 {
				want = append(want, sent(1, Success))
			}
			b.waitFor(t, append(want, sent(2, r.Kernel.flushCode(ae.Code)), sent(3, WRFlushErr))...)
			must(t, mr.Dereg())
			endSides(t, a, b)
		})
	}
	must(t, m.takeDown())
}

// A peer ends an STag with its message, and the completion names it; a read ends
// the one that it has read into.
func TestRemoteInvalidate(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r, rnd := m.r, rand.New(rand.NewPCG(10, 3))
	a, b := newPair(t, r, rnd, pairOptions{})
	for _, op := range []uint8{IRDMA_OP_TYPE_SEND_INV, IRDMA_OP_TYPE_SEND_SOL_INV} {
		mr := b.register(t, pairPD, Everything)
		must(t, b.qp.PostRecv(RecvWR{ID: 1, SGEs: []SGE{b.sge(0, 5000)}}))
		w := a.send(2, 0, 5000)
		w.Op, w.RKey = op, mr.STag
		must(t, a.qp.PostSend(a.through(3, b, mr.STag, 9000, 3000), w))
		a.waitFor(t, sent(3, Success), sent(2, Success))
		if wc := b.wait(t, 1)[0]; wc.Status != Success || !wc.HasSTag || wc.STag != mr.STag {
			t.Errorf("completion %+v, want one that names STag %#x", wc, mr.STag)
		}
		moved(t, a, b, 0, 5000)
		moved(t, a, b, 9000, 3000)
		if err := r.Query(mr.STag); err == nil {
			t.Error("an STag is valid after the peer invalidated it")
		}
		must(t, mr.Dereg())
	}
	sink, err := r.AllocSTag(pairPD, len(a.mem.pages))
	must(t, err)
	f := FastReg{MR: sink, Key: 3, Region: a.mem.Region, Access: LocalRead | LocalWrite}
	fast := a.qp.FastRegWR(4, f)
	must(t, a.qp.PostSend(fast))
	a.waitFor(t, sent(4, Success))
	w := a.read(5, b, 100, 20_000)
	w.Op, w.SGEs[0].LKey = IRDMA_OP_TYPE_RDMA_READ_INV, sink.STag
	must(t, a.qp.PostSend(w))
	a.waitFor(t, sent(5, Success))
	moved(t, b, a, 100, 20_000)
	if err := r.Query(sink.STag); err == nil {
		t.Error("an STag is valid after a read that ends it")
	}
	must(t, sink.Dereg())
	quiet(t, complaints)
	endSides(t, a, b)
	must(t, m.takeDown())
}

// Windows of both types: bound to a part of a region, moved, unbound, ended.
func TestWindows(t *testing.T) {
	for _, type1 := range []bool{true, false} {
		name := map[bool]string{true: "type 1", false: "type 2"}[type1]
		t.Run(name, func(t *testing.T) {
			m, complaints := start(t, Linux61(), Options{})
			r, rnd := m.r, rand.New(rand.NewPCG(10, 4))
			a, b := newPair(t, r, rnd, pairOptions{user: true})
			parent := b.register(t, pairPD, Everything|BindWindow)
			w, err := r.AllocMW(pairPD, type1, rnd)
			must(t, err)
			bind := func(id uint64, stag uint32, off, n int, access Access) {
				t.Helper()
				must(t, b.qp.PostSend(b.qp.BindWR(id, Bind{MW: w, STag: stag, Parent: parent, Addr: parent.Addr(off), Len: uint64(n), Access: access})))
				b.waitFor(t, sent(id, Success))
			}
			bind(1, NextKey(w.STag), 5000, 9000, RemoteWrite)
			must(t, a.qp.PostSend(a.through(2, b, w.STag, 5000, 9000), a.through(3, b, w.STag, 13_999, 1)))
			a.waitFor(t, sent(2, Success), sent(3, Success))
			moved(t, a, b, 5000, 9000)
			if err := parent.Dereg(); cqpError(err) == nil {
				t.Errorf("ending a region with a window: %v, want it refused", err)
			}
			// Moved: a type 2 window has to be invalid before.
			if !type1 {
				must(t, b.qp.PostSend(b.qp.LocalInvWR(4, w.STag)))
				b.waitFor(t, sent(4, Success))
			}
			bind(5, NextKey(w.STag), 20_000, 100, RemoteRead|RemoteWrite)
			rd := a.read(6, b, 20_000, 100)
			rd.RKey = w.STag
			must(t, a.qp.PostSend(rd))
			a.waitFor(t, sent(6, Success))
			moved(t, b, a, 20_000, 100)
			if type1 { // bound to nothing
				bind(7, NextKey(w.STag), 0, 0, 0)
			} else { // ended by the peer
				must(t, b.qp.PostRecv(RecvWR{ID: 8, SGEs: []SGE{b.sge(0, 10)}}))
				s := a.send(7, 0, 10)
				s.Op, s.RKey = IRDMA_OP_TYPE_SEND_INV, w.STag
				must(t, a.qp.PostSend(s))
				a.waitFor(t, sent(7, Success))
				if wc := b.wait(t, 1)[0]; !wc.HasSTag || wc.STag != w.STag {
					t.Errorf("completion %+v, want one that names STag %#x", wc, w.STag)
				}
			}
			complaints.take() // of the region that could not end
			must(t, a.qp.PostSend(a.through(9, b, w.STag, 20_000, 10)))
			faulted(t, b.qp, noSTag...)
			must(t, w.Dealloc())
			must(t, parent.Dereg())
			endSides(t, a, b)
			must(t, m.takeDown())
		})
	}
}

// What a window does not open, and who may not bind one.
func TestWindowErrors(t *testing.T) {
	m, _ := start(t, Linux61(), Options{})
	r, rnd := m.r, rand.New(rand.NewPCG(10, 5))
	type bound struct {
		a, b   *side
		w      *MW
		parent *MR
	}
	remote := func(change func(c *bound, w *SendWR)) func(t *testing.T, c *bound) *QP {
		return func(t *testing.T, c *bound) *QP {
			w := c.a.through(2, c.b, c.w.STag, 5000, 100)
			change(c, &w)
			must(t, c.a.qp.PostSend(w))
			return c.b.qp
		}
	}
	binds := func(change func(c *bound, b *Bind)) func(t *testing.T, c *bound) *QP {
		return func(t *testing.T, c *bound) *QP {
			bind := Bind{MW: c.w, STag: NextKey(c.w.STag), Parent: c.parent, Addr: c.parent.Addr(0), Len: 10, Access: RemoteWrite}
			change(c, &bind)
			must(t, c.b.qp.PostSend(c.b.qp.BindWR(2, bind)))
			return c.b.qp
		}
	}
	for _, test := range []struct {
		name  string
		type1 bool
		do    func(t *testing.T, c *bound) *QP // whose fault it is
		want  uint16
	}{
		{"behind its end", true, remote(func(c *bound, w *SendWR) { w.RemoteAddr += 8901 }), IRDMA_AE_AMP_BOUNDS_VIOLATION},
		{"before its beginning", false, remote(func(c *bound, w *SendWR) { w.RemoteAddr-- }), IRDMA_AE_AMP_BOUNDS_VIOLATION},
		{"a right that it has not", true, remote(func(c *bound, w *SendWR) { w.Op = IRDMA_OP_TYPE_RDMA_READ }), IRDMA_AE_AMP_RIGHTS_VIOLATION},
		{"another key", true, remote(func(c *bound, w *SendWR) { w.RKey = NextKey(w.RKey) }), IRDMA_AE_AMP_BAD_STAG_KEY},
		{"another QP", false, func(t *testing.T, c *bound) *QP {
			x, y := newPair(t, r, rnd, pairOptions{user: true})
			t.Cleanup(func() { endSides(t, x, y) })
			must(t, x.qp.PostSend(x.through(2, c.b, c.w.STag, 5000, 100)))
			return y.qp
		}, IRDMA_AE_AMP_BAD_QP},
		{"bound to more than the region", true, binds(func(c *bound, b *Bind) { b.Len = uint64(c.b.mem.Size) + 1 }), IRDMA_AE_AMP_MWBIND_INVALID_BOUNDS},
		{"bound while bound", false, binds(func(c *bound, b *Bind) {}), IRDMA_AE_AMP_MWBIND_VALID_STAG},
		{"bound to a region that forbids it", true, binds(func(c *bound, b *Bind) { b.Parent = c.b.mem.mr }), IRDMA_AE_AMP_MWBIND_INVALID_RIGHTS},
		{"bound to nothing that is there", true, binds(func(c *bound, b *Bind) { b.Parent = &MR{STag: c.parent.STag ^ 1<<12} }), IRDMA_AE_AMP_MWBIND_TO_INVALID},
		{"a region as a window", true, binds(func(c *bound, b *Bind) { b.STag = c.b.mem.mr.STag }), IRDMA_AE_AMP_MWBIND_OF_MR_STAG},
		{"bound to a window", true, binds(func(c *bound, b *Bind) { b.Parent = &MR{STag: c.w.STag} }), IRDMA_AE_AMP_MWBIND_TO_MW_STAG},
		{"type 1 invalidated", true, func(t *testing.T, c *bound) *QP {
			must(t, c.b.qp.PostSend(c.b.qp.LocalInvWR(2, c.w.STag)))
			return c.b.qp
		}, IRDMA_AE_AMP_INVALIDATE_TYPE1_MW},
		{"a region with a window invalidated", true, func(t *testing.T, c *bound) *QP {
			must(t, c.b.qp.PostSend(c.b.qp.LocalInvWR(2, c.parent.STag)))
			return c.b.qp
		}, IRDMA_AE_AMP_INVALIDATE_BOUND},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &bound{}
			c.a, c.b = newPair(t, r, rnd, pairOptions{user: true})
			c.parent = c.b.register(t, pairPD, Everything|BindWindow)
			var err error
			c.w, err = r.AllocMW(pairPD, test.type1, rnd)
			must(t, err)
			stag := c.w.STag
			must(t, c.b.qp.PostSend(c.b.qp.BindWR(1, Bind{MW: c.w, STag: stag, Parent: c.parent, Addr: c.parent.Addr(5000), Len: 9000, Access: RemoteWrite})))
			c.b.waitFor(t, sent(1, Success))
			c.b.mem.Read(0, c.b.mem.want)
			faulted(t, test.do(t, c), test.want)
			must(t, c.b.mem.check("refused", 0, c.b.mem.Size))
			c.w.STag = stag
			must(t, c.w.Dealloc())
			must(t, c.parent.Dereg())
			endSides(t, c.a, c.b)
		})
	}
	// 7.3 lets no QP bind.
	n, _ := start(t, Linux73(), Options{})
	a, b := newPair(t, n.r, rnd, pairOptions{user: true})
	parent := b.register(t, pairPD, Everything|BindWindow)
	w, err := n.r.AllocMW(pairPD, true, rnd)
	must(t, err)
	must(t, b.qp.PostSend(b.qp.BindWR(1, Bind{MW: w, STag: w.STag, Parent: parent, Addr: parent.Addr(0), Len: 9, Access: RemoteWrite})))
	faulted(t, b.qp, IRDMA_AE_AMP_MWBIND_BIND_DISABLED)
	b.waitFor(t, sent(1, MWBindErr))
	must(t, w.Dealloc())
	must(t, parent.Dereg())
	endSides(t, a, b)
	must(t, n.takeDown())
	must(t, m.takeDown())
}
