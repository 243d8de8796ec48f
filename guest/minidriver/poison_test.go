// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// load posts bulk work from a on b's memory by an STag: writes only.
func load(t *testing.T, a, b *side, stag uint32) {
	t.Helper()
	var wrs []SendWR
	for n := range uint64(bulkOps) {
		wrs = append(wrs, a.through(n, b, stag, 0, bulkSize))
	}
	must(t, a.qp.PostSend(wrs...))
}

// staysPoison overwrites b's memory and, after all of a's work, finds it so.
func staysPoison(t *testing.T, a, b *side) {
	t.Helper()
	b.mem.Poison(0, b.mem.Size)
	if status := a.left(t); status != RemAccessErr && status != Success {
		t.Errorf("requests end with %v", status)
	}
	if at := b.mem.Differs(0, slices.Repeat([]byte{poisonByte}, b.mem.Size)); at >= 0 {
		t.Errorf("byte %d was written to later", at)
	}
}

// When the completion of what ends access to memory is there, nobody writes to
// that memory any more, whatever is under way: a local invalidation, one by a
// peer, the end of a window's binding.
func TestPoisonOnInvalidation(t *testing.T) {
	m, _ := startIn(t, newGuestOf(t, 256), Linux61(), Options{})
	poisonOnInvalidation(t, m.r, m.r)
	must(t, m.takeDown())
}

// The same with writes from another machine.
func TestPoisonOnInvalidationBetween(t *testing.T) {
	for _, w := range ways()[1:] {
		t.Run(w.String(), func(t *testing.T) {
			d := startDuo(t, duoOptions{way: w, kernel: Linux61(), guest: 256})
			poisonOnInvalidation(t, d.a.r, d.b.r)
			must(t, d.a.takeDown())
			must(t, d.b.takeDown())
		})
	}
}

func poisonOnInvalidation(t *testing.T, r, peer *IRDMA) {
	rnd := rand.New(rand.NewPCG(14, 1))
	times := 4
	if r != peer {
		times = 2
	}
	if *long {
		times = 40
	}
	for _, c := range []struct {
		name string
		// stag opens b's memory; end ends that, and waits for the completion.
		stag func(t *testing.T, b *side) (stag uint32, end func(c, d *side), free func())
	}{
		{"INV_STAG", func(t *testing.T, b *side) (uint32, func(c, d *side), func()) {
			mr := b.register(t, pairPD, Everything)
			return mr.STag, func(_, d *side) {
				must(t, d.qp.PostSend(d.qp.LocalInvWR(1, mr.STag)))
				d.waitFor(t, sent(1, Success))
			}, func() { must(t, mr.Dereg()) }
		}},
		{"SEND_INV", func(t *testing.T, b *side) (uint32, func(c, d *side), func()) {
			mr := b.register(t, pairPD, Everything)
			return mr.STag, func(c, d *side) {
				must(t, d.qp.PostRecv(RecvWR{ID: 2, SGEs: []SGE{d.sge(0, 100)}}))
				w := c.send(1, 0, 100)
				w.Op, w.RKey = IRDMA_OP_TYPE_SEND_INV, mr.STag
				must(t, c.qp.PostSend(w))
				if wc := d.wait(t, 1)[0]; wc.Status != Success || wc.STag != mr.STag {
					t.Errorf("completion %+v", wc)
				}
				c.waitFor(t, sent(1, Success))
			}, func() { must(t, mr.Dereg()) }
		}},
		{"BIND_MW to nothing", func(t *testing.T, b *side) (uint32, func(c, d *side), func()) {
			return boundWindow(t, b, true, func(w *MW, parent *MR, d *side) {
				must(t, d.qp.PostSend(d.qp.BindWR(1, Bind{MW: w, STag: NextKey(w.STag), Parent: parent})))
				d.waitFor(t, sent(1, Success))
			})
		}},
		{"INV_STAG of a window", func(t *testing.T, b *side) (uint32, func(c, d *side), func()) {
			return boundWindow(t, b, false, func(w *MW, _ *MR, _ *side) {
				must(t, b.qp.PostSend(b.qp.LocalInvWR(1, w.STag)))
				b.waitFor(t, sent(1, Success))
			})
		}},
		{"DEALLOC_STAG of a window", func(t *testing.T, b *side) (uint32, func(c, d *side), func()) {
			return boundWindow(t, b, true, func(w *MW, _ *MR, _ *side) { must(t, w.Dealloc()) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range times {
				a, b := newPair(t, r, rnd, pairOptions{size: bulkSize, peer: peer, attr: func(a *QPAttr) { a.Retries = 1 }})
				x, y := newPair(t, r, rnd, pairOptions{peer: peer})
				stag, end, free := c.stag(t, b)
				load(t, a, b, stag)
				a.begun(t)
				end(x, y)
				staysPoison(t, a, b)
				must(t, r.F.Guest.Check())
				must(t, peer.F.Guest.Check())
				free()
				endSides(t, a, b, x, y)
			}
		})
	}
}

// boundWindow binds one to all of b's memory. Whoever ends it may have ended it for
// good.
func boundWindow(t *testing.T, b *side, type1 bool, end func(w *MW, parent *MR, d *side)) (uint32, func(c, d *side), func()) {
	t.Helper()
	r := b.qp.r
	parent := b.register(t, pairPD, Everything|BindWindow)
	w, err := r.AllocMW(pairPD, type1, b.rnd)
	must(t, err)
	must(t, b.qp.PostSend(b.qp.BindWR(9, Bind{MW: w, STag: w.STag, Parent: parent, Addr: parent.Addr(0), Len: uint64(b.mem.Size), Access: RemoteWrite})))
	b.waitFor(t, sent(9, Success))
	index := w.STag >> stagIndexBit & r.stagIndexMask()
	return w.STag, func(_, d *side) { end(w, parent, d) }, func() {
		if r.stags[index] {
			must(t, w.Dealloc())
		}
		must(t, parent.Dereg())
	}
}

// The memory of page lists: behind PFHMC_PDINV, and behind the completion of a
// segment's clearing, the device does not look at the old page any more. What is
// there then leads nowhere.
func TestPoisonOfPageLists(t *testing.T) {
	g := newGuestOf(t, 256)
	m, complaints := startAs(t, pagedPBLEs(t), Linux73(), Options{}, g)
	r, rnd := m.r, rand.New(rand.NewPCG(14, 2))
	times := 20
	if *long {
		times = 200
	}
	a, b := newPair(t, r, rnd, pairOptions{size: bulkSize})
	page, _ := r.pbleWord(b.mem.mr.list.index)
	fpm := r.pble.base + b.mem.mr.list.index*pbleSize
	sd, pd := fpm/sdSize, int(fpm%sdSize/pageSize)
	for range times {
		load(t, a, b, b.mem.mr.STag)
		a.begun(t)
		next, err := g.Alloc(pageSize)
		must(t, err)
		copy(next.Bytes(), page.Bytes())
		r.hmc.sds[sd].buf.Store64(8*pd, next.IOVA|1)
		r.invalidatePD(sd, pd)
		r.F.flush()
		old := *page
		*page, *next = *next, old // the pool's page from now on
		next.Free()
		if status := a.left(t); status != Success {
			t.Fatalf("requests end with %v", status)
		}
	}
	// A descriptor may be seen to have changed before the invalidation comes.
	if rules := broke(complaints.take()); len(rules) > 0 && !slices.Equal(rules, []string{"pd-stale"}) {
		t.Errorf("broke %q", rules)
	}

	load(t, a, b, b.mem.mr.STag)
	a.begun(t)
	s := r.hmc.sds[sd]
	must(t, r.updateSDs([]uint64{sd}, false))
	poison := slices.Clone(s.buf.Bytes())
	for k := range sdPages {
		s.buf.Store64(8*k, 0xdbdb_dbdb_dbdb_d001)
	}
	b.mem.Poison(0, b.mem.Size)
	a.left(t)
	if at := b.mem.Differs(0, slices.Repeat([]byte{poisonByte}, b.mem.Size)); at >= 0 {
		t.Errorf("byte %d was written to by a list whose segment is gone", at)
	}
	copy(s.buf.Bytes(), poison)
	must(t, r.updateSDs([]uint64{sd}, true))
	endSides(t, a, b)
	must(t, m.takeDown())
}
