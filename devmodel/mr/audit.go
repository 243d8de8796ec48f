// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"math"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Bounds of a look at a page list, in pages. A registration happens under the
// device's control lock, a fast one in a step of the data path.
const (
	maxAudit     = 1 << 18
	maxFastAudit = 1 << 12
)

// audit is what was seen of a region's page list when it became VALID. It is
// made only if somebody listens: the device itself reads the list when it is
// used.
type audit struct {
	pages uint64 // looked at
	sum   uint64 // over the list as far as that
}

// sight is what a look at a page list makes of it.
type sight struct {
	table *Table
	entry *Entry
	pages uint64 // of the region
	left  uint64 // pages that may be looked at

	sum   uint64
	seen  uint64
	spans *spans // nil: not wanted

	zero, index, odd *PBLEAt // the first of each kind that cannot be
	beyond           *PBLERange
	crosses          *PBLECrosses
	shared           *PBLEShared
}

// examine looks at the page list of e, which is now in slot i, and reports
// what cannot be.
func (t *Table) examine(i uint32, e *Entry, limit uint64) {
	if !t.listens {
		return
	}
	s := sight{table: t, entry: e, left: limit}
	if t.watch.on.Load() && e.By.QP == 0 {
		s.spans = &spans{}
	}
	s.look(true, i)
	if s.spans != nil {
		t.watched(i, e, s.spans)
	}
	s.report()
	// The entry may be gone already; then nobody looks at this.
	if e.By.QP == 0 && !e.Shared {
		t.mu.Lock()
		if t.slots[i].entry.Load() == e {
			c := *e
			c.audit = &audit{pages: s.seen, sum: s.sum}
			t.slots[i].entry.Store(&c)
		}
		t.mu.Unlock()
	}
}

// unchanged reports a region whose page list is not as it was registered. Fast
// registered lists are the driver's to change.
func (t *Table) unchanged(e *Entry, by Origin) {
	if !t.listens || e.audit == nil || e.audit.pages == 0 {
		return
	}
	s := sight{table: t, entry: e, left: e.audit.pages}
	s.look(false, 0)
	if s.seen == e.audit.pages && s.sum != e.audit.sum {
		t.emit(PBLEChanged{STag: e.STag(), Pages: s.seen, First: e.First, RegisteredBy: e.By, By: by})
	}
}

// Looked counts the pages looked at for the sake of reports, from whatever
// start: who bounds what is done at once counts them, too.
func (t *Table) Looked() uint64 { return t.looked.Load() }

// look walks through the list and keeps nothing. claim: the PBLEs become slot
// i's.
func (s *sight) look(claim bool, i uint32) {
	defer func() { s.table.looked.Add(s.seen) }()
	e := s.entry
	s.pages = e.pages()
	switch e.Level {
	case Contiguous:
		if s.spans != nil && e.Length > 0 {
			s.spans.add(e.Base+e.offset(), e.Length)
		}
		return
	case Flat:
		n := min(s.pages, s.left)
		if claim {
			s.run(uint64(e.First), s.pages)
			s.claim(i, uint64(e.First), s.pages)
		}
		s.leaf(uint64(e.First), n)
		return
	}
	roots := (s.pages + leafEntries - 1) / leafEntries
	if claim {
		s.run(uint64(e.First), roots)
		s.claim(i, uint64(e.First), roots)
	}
	var buf [64]uint64
	for at := uint64(0); at < roots && s.left > 0; {
		n, _, err := s.table.hmc.ExplainPBLEs(uint32(uint64(e.First)+at), buf[:min(uint64(len(buf)), roots-at)])
		if err != nil {
			return
		}
		for _, leaf := range buf[:n] {
			s.add(leaf)
			pages := min(s.pages-s.seen, leafEntries, s.left)
			if pages == 0 {
				break
			}
			count := uint64(s.table.hmc.Count(hmc.PBLE))
			if leaf >= count || pages > count-leaf {
				if s.beyond == nil {
					s.beyond = &PBLERange{STag: e.STag(), Index: leaf, Needed: pages, Count: uint32(count)}
				}
				return
			}
			if claim {
				s.run(leaf, pages)
				s.claim(i, leaf, pages)
			}
			if !s.leaf(leaf, pages) {
				return
			}
		}
		at += uint64(n)
	}
}

// run notes a run of PBLEs that lies in two segments.
func (s *sight) run(first, n uint64) {
	if s.crosses != nil || n == 0 {
		return
	}
	a, _ := s.table.hmc.Explain(hmc.PBLE, uint32(first))
	b, _ := s.table.hmc.Explain(hmc.PBLE, uint32(first+n-1))
	if a.SD != b.SD {
		s.crosses = &PBLECrosses{STag: s.entry.STag(), First: uint32(first), N: uint32(n), SD: a.SD, EndSD: b.SD, By: s.entry.By}
	}
}

// leaf looks at n PBLEs that name pages.
func (s *sight) leaf(first, n uint64) bool {
	var buf [64]uint64
	mask := uint64(1)<<s.entry.PageShift - 1
	for n > 0 {
		got, w, err := s.table.hmc.ExplainPBLEs(uint32(first), buf[:min(uint64(len(buf)), n)])
		if err != nil || got == 0 {
			return false
		}
		for k, v := range buf[:got] {
			s.add(v)
			if v == 0 || v&mask != 0 {
				s.bad(v, w, uint32(k))
			}
			if s.spans != nil {
				s.page(v &^ mask)
			}
			s.seen++
			s.left--
		}
		first, n = first+uint64(got), n-uint64(got)
	}
	return true
}

// add mixes a word into the sum.
func (s *sight) add(v uint64) {
	s.sum = (s.sum ^ v) * 0x9E3779B97F4A7C15
	s.sum ^= s.sum >> 29
}

// page notes page number s.seen, as much of it as the region has.
func (s *sight) page(a uint64) {
	e, size := s.entry, uint64(1)<<s.entry.PageShift
	from, to := uint64(0), size
	if s.seen == 0 {
		from = e.offset()
	}
	if s.seen == s.pages-1 {
		to = (e.offset()+e.Length-1)&(size-1) + 1
	}
	s.spans.add(a+from, to-from)
}

// bad sorts a PBLE that cannot be the address of a page: the one k behind that
// which w leads to.
func (s *sight) bad(v uint64, w hmc.Walk, k uint32) {
	kind := &s.odd
	switch {
	case v == 0:
		kind = &s.zero
	case v < uint64(s.table.hmc.Count(hmc.PBLE)):
		kind = &s.index
	}
	if *kind == nil {
		w.Index, w.FPM, w.Address = w.Index+k, w.FPM+8*uint64(k), w.Address+8*uint64(k)
		*kind = newPBLEAt(s.entry, s.seen, v, w)
	}
	(*kind).Count++
}

// newPBLEAt is the PBLE of a page, which w leads to.
func newPBLEAt(e *Entry, page, v uint64, w hmc.Walk) *PBLEAt {
	p := &PBLEAt{STag: e.STag(), Page: page, Pages: e.pages(), Level: e.Level, Index: w.Index, At: w.Address, HMC: w, Value: v,
		PageSize: 1 << e.PageShift, By: e.By}
	if e.Level == TwoLevel {
		p.Root = e.First + uint32(page/leafEntries)
	}
	return p
}

func (s *sight) report() {
	t := s.table
	if s.zero != nil {
		t.emit(PBLEZero{*s.zero})
	}
	if s.index != nil {
		t.emit(PBLENotAddress{PBLEAt: *s.index, Leaf: t.leafAt(s.entry, s.index)})
	}
	if s.odd != nil {
		t.emit(PBLEMisaligned{*s.odd})
	}
	if s.beyond != nil {
		t.emit(*s.beyond)
	}
	if s.crosses != nil {
		t.emit(*s.crosses)
	}
	if s.shared != nil {
		t.emit(*s.shared)
	}
}

// leafAt is the first entry of the list that p's value is the index of, if
// that has the looks of an address. A large fast registration, whose list the
// driver has got in two levels but announces as one, looks like this
// (verbs.c:irdma_alloc_mr, pble.c:get_lvl1_lvl2_pble).
func (t *Table) leafAt(e *Entry, p *PBLEAt) uint64 {
	if e.Level != Flat || p.Value > math.MaxUint32 {
		return 0
	}
	var v [1]uint64
	n, _, err := t.hmc.ExplainPBLEs(uint32(p.Value), v[:])
	if err != nil || n == 0 || v[0]&(p.PageSize-1) != 0 {
		return 0
	}
	return v[0]
}

// badPBLE reports the PBLE of a page that cannot be its address, at its use.
func (t *Table) badPBLE(q *query, e *Entry, page, v uint64) {
	if q.rec != nil || !t.listens {
		return
	}
	index := uint64(e.First) + page
	if e.Level == TwoLevel {
		var leaf [1]uint64
		if n, _, err := t.hmc.ExplainPBLEs(e.First+uint32(page/leafEntries), leaf[:]); err != nil || n == 0 {
			return
		}
		index = leaf[0] + page%leafEntries
	}
	w, _ := t.hmc.Explain(hmc.PBLE, uint32(index))
	p := newPBLEAt(e, page, v, w)
	p.Count = 1
	switch {
	case v == 0:
		t.emit(PBLEZero{*p})
	case v < uint64(t.hmc.Count(hmc.PBLE)):
		t.emit(PBLENotAddress{PBLEAt: *p, Leaf: t.leafAt(e, p)})
	default:
		t.emit(PBLEMisaligned{*p})
	}
}
