// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// pagesOf are n page addresses.
func pagesOf(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = 0x4000_0000 + uint64(i)<<13
	}
	return out
}

// of picks the events of a type.
func of[E any](events []any) (out []E) {
	for _, e := range events {
		if x, ok := e.(E); ok {
			out = append(out, x)
		}
	}
	return out
}

// What cannot be an address is told of once for each kind, with its place.
func TestPageListsAreLookedAt(t *testing.T) {
	for _, paged := range []bool{false, true} {
		for _, level := range []Level{Flat, TwoLevel} {
			b := newBench(t, paged)
			pages := pagesOf(1500)
			pages[3], pages[1200] = 0, 0
			pages[700] = 0x4000_0123
			pages[513] = 0x17
			r := Region{Index: 5, Key: 1, PD: owner.PD, Length: 1500<<12 - 5, Level: level, PageShift: 12, Rights: LocalRead}
			b.name(&r, pages)
			b.register(r)
			zero, odd, index := of[PBLEZero](b.events), of[PBLEMisaligned](b.events), of[PBLENotAddress](b.events)
			if len(b.events) != 3 || len(zero) != 1 || len(odd) != 1 || len(index) != 1 {
				t.Fatalf("level %v: %v", level, b.events)
			}
			first := r.First
			if level == TwoLevel {
				first = 0 // where leaves begin
			}
			at := func(page uint32) PBLEAt {
				w, err := b.hmc.Explain(hmc.PBLE, first+page)
				if err != nil {
					t.Fatal(err)
				}
				p := PBLEAt{STag: r.STag(), Page: uint64(page), Pages: 1500, Level: level, Index: first + page, At: b.at(first + page), HMC: w, Value: pages[page],
					PageSize: 4096, Count: 1, By: by}
				if level == TwoLevel {
					p.Root = r.First + page/512
				}
				return p
			}
			want := at(3)
			want.Count = 2
			if zero[0].PBLEAt != want || odd[0].PBLEAt != at(700) || index[0].PBLEAt != at(513) {
				t.Errorf("level %v: %+v, %+v, %+v", level, zero, odd, index)
			}
			// And at their use.
			b.events = nil
			if _, f := b.table.Resolve(nil, owner, r.STag(), 700<<12, 8, LocalRead, false); f != nil {
				t.Error(f)
			}
			if odd := of[PBLEMisaligned](b.events); len(b.events) != 1 || len(odd) != 1 || odd[0].PBLEAt != at(700) {
				t.Errorf("at use: %+v", b.events)
			}
			lines := strings.Join(odd[0].WalkLines(), "\n")
			parts := []string{"REG_MR, CQP WQE 17", fmt.Sprintf("page 700: PBLE %d is at FPM ", first+700), fmt.Sprintf("PBLE %d at %#x is 0x40000123", first+700, b.at(first+700))}
			if level == TwoLevel {
				parts = append(parts, fmt.Sprintf("root: PBLE %d is 512", r.First+1))
			}
			if paged {
				parts = append(parts, "is paged: PD ")
			}
			for _, part := range parts {
				if !strings.Contains(lines, part) {
					t.Errorf("the walk\n%s\nlacks %q", lines, part)
				}
			}
		}
	}
}

// A fast registration of more than 512 pages for which the driver has got a
// list of two levels, and which it announces as one level
// (verbs.c:irdma_alloc_mr, irdma_post_send): what it looks like is said.
func TestTwoLevelsAnnouncedAsOne(t *testing.T) {
	const n = 600
	b := newBench(t, true)
	b.next = 512
	two := Region{Level: TwoLevel, PageShift: 12}
	b.name(&two, pagesOf(n))
	if err := b.table.Allocate(Region{Index: 5, PD: owner.PD, Length: n << 12, PageShift: 12, Remote: true}, Memory, by); err != nil {
		t.Fatal(err)
	}
	r := Region{Index: 5, Key: 7, Length: n << 12, VABased: true, Start: 0x7000_0000, Level: Flat, PageShift: 12, First: two.First, Rights: LocalRead}
	fast := Origin{Op: "FAST_REG_NSMR", QP: 9, WQE: 12}
	b.code("registration", b.table.FastRegister(kernel, r, fast), 0)
	got := of[PBLENotAddress](b.events)
	if len(got) != 1 || got[0].Page != 0 || got[0].Value != 512 || got[0].Leaf != 0x4000_0000 || got[0].Pages != n || got[0].By != fast {
		t.Fatalf("%v", b.events)
	}
	s := got[0].String()
	for _, part := range []string{"FAST_REG_NSMR, WQE 12 of QP 9", fmt.Sprintf("PBLE %d ", two.First), "is 0x200", "two levels", "one level of 600 pages"} {
		if !strings.Contains(s, part) {
			t.Errorf("%q lacks %q", s, part)
		}
	}
	// The same list announced as what it is.
	b = newBench(t, true)
	b.next = 512
	b.name(&r, pagesOf(n))
	if err := b.table.Allocate(Region{Index: 5, PD: owner.PD, Length: n << 12, PageShift: 12, Remote: true}, Memory, by); err != nil {
		t.Fatal(err)
	}
	b.code("registration", b.table.FastRegister(kernel, r, fast), 0)
	if len(b.events) != 0 {
		t.Errorf("%v", b.events)
	}
}

func TestChangedLists(t *testing.T) {
	for name, c := range map[string]struct {
		level Level
		page  int // that changes; -1: the root; -2: none
		told  bool
	}{
		"flat": {Flat, 1499, true}, "leaf": {TwoLevel, 700, true}, "root": {TwoLevel, -1, true},
		"flat, as it was": {Flat, -2, false}, "two levels, as they were": {TwoLevel, -2, false},
	} {
		b := newBench(t, true)
		pages := pagesOf(1500)
		r := Region{Index: 5, Key: 1, PD: owner.PD, Length: 1500 << 12, Level: c.level, PageShift: 12}
		b.name(&r, pages)
		b.register(r)
		switch {
		case c.page >= 0 && c.level == Flat:
			b.store(b.at(r.First+uint32(c.page)), 0x1000)
		case c.page >= 0:
			b.store(b.at(uint32(c.page)), 0x1000)
		case c.page == -1: // other pages with the same contents
			for i := range uint32(512) {
				b.store(b.at(50000+i), pages[512+i])
			}
			b.store(b.at(r.First+1), 50000)
		}
		if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
			t.Fatal(err)
		}
		if got := of[PBLEChanged](b.events); (len(got) == 1) != c.told || len(b.events) != len(got) {
			t.Errorf("%s: %v", name, b.events)
		}
	}
}

func TestSharedPBLEs(t *testing.T) {
	b := newBench(t, true)
	one := Region{Index: 5, Key: 1, PD: owner.PD, Length: 1500 << 12, Level: TwoLevel, PageShift: 12}
	b.name(&one, pagesOf(1500)) // leaves at 0, 512 and 1024
	b.register(one)
	register := func(index, first, n uint32) []PBLEShared {
		t.Helper()
		b.events = nil
		for i := range n {
			b.store(b.at(first+i), 0x1000)
		}
		b.register(Region{Index: index, Key: 1, PD: owner.PD, Length: uint64(n) << 12, Level: Flat, PageShift: 12, First: first})
		return of[PBLEShared](b.events)
	}
	if got := register(6, 1500, 4); len(got) != 0 { // behind the last leaf, in the same unit of 8
		t.Errorf("%v", got)
	}
	if got := register(7, 1023, 1); len(got) != 1 || got[0].Other != "STag 0x00000501" || got[0].Index != 1023 || got[0].Object != "STag 0x00000701" {
		t.Errorf("%v", got)
	}
	if got := register(8, one.First, 1); len(got) != 1 || got[0].Other != "STag 0x00000501" {
		t.Errorf("root: %v", got)
	}
	for _, i := range []uint32{5, 7, 8} {
		if err := b.table.Deallocate(i, owner.PD, true, by); err != nil {
			t.Error(err)
		}
	}
	if got := register(9, 1024, 400); len(got) != 0 {
		t.Errorf("after the end: %v", got)
	}
}

// Rings have page lists, too.
func TestPBLEsOfQueues(t *testing.T) {
	b := newBench(t, true)
	sq, cq := Queue{Object: "QP", ID: 5}, Queue{Object: "CQ", ID: 5}
	claim := func(q Queue, first uint32, n uint64) []PBLEShared {
		b.events = nil
		b.table.Claim(q, first, n, by)
		return of[PBLEShared](b.events)
	}
	if got := append(claim(sq, 8, 10), claim(cq, 18, 6)...); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := claim(sq, 16, 3); len(got) != 1 || got[0].Object != "QP 5" || got[0].Other != "CQ 5" || got[0].Index != 18 {
		t.Errorf("%v", got)
	}
	b.table.Release(cq)
	b.table.Release(cq)
	b.table.Release(sq)
	if got := append(claim(cq, 8, 16), claim(sq, pbles, 1)...); len(got) != 0 {
		t.Errorf("%v", got)
	}
	b.events = nil
	for i := range uint32(16) {
		b.store(b.at(16+i), 0x1000)
	}
	b.register(Region{Index: 7, Key: 1, PD: owner.PD, Length: 16 << 12, Level: Flat, PageShift: 12, First: 16})
	if got := of[PBLEShared](b.events); len(got) != 1 || got[0].Other != "CQ 5" || got[0].Index != 16 {
		t.Errorf("%v", got)
	}
	if got := claim(sq, 31, 1); len(got) != 1 || got[0].Other != "STag 0x00000701" {
		t.Errorf("%v", got)
	}
	b.table.Reset(reg.PFR)
	if got := claim(sq, 8, 100); len(got) != 0 {
		t.Errorf("after a reset: %v", got)
	}
}

// Use after the end names who ended it, also when another has the index by
// then; what is remembered is bounded.
func TestUseAfterTheEnd(t *testing.T) {
	b := newBench(t, false)
	end := Origin{Op: "IRDMA_CQP_OP_DEALLOC_STAG", WQE: 99}
	r := Region{Index: 5 | 1<<20, Key: 1, PD: owner.PD, Length: 4096, PageShift: 12, Rights: LocalRead}
	b.register(r)
	if err := b.table.Deallocate(r.Index, owner.PD, true, end); err != nil {
		t.Fatal(err)
	}
	want := Ended{STag: r.STag(), PD: owner.PD, By: end}
	use := func(code Code) {
		t.Helper()
		b.events = nil
		_, got := b.use(owner, r.STag(), 0, 1, LocalRead, false)
		b.code("use", got, code)
		if e := of[STagEnded](b.events); len(b.events) != 1 || len(e) != 1 || e[0].Last != want || !strings.Contains(e[0].String(), "DEALLOC_STAG, CQP WQE 99") {
			t.Errorf("%v", b.events)
		}
	}
	use(UnallocatedSTag)
	again := r
	again.Index ^= 1 << 21
	b.register(again)
	use(BadIndex)
	b.events = nil
	if _, code := b.use(owner, again.STag()^1<<31, 0, 1, LocalRead, false); code != BadIndex || len(of[STagKey](b.events)) != 1 {
		t.Errorf("an STag that never was: %v, %v", code, b.events)
	}
	if err := b.table.Deallocate(5|7<<20, owner.PD, true, by); err == nil {
		t.Error("other driver bits")
	}
	b.table.Reset(reg.PFR)
	b.events = nil
	if _, code := b.use(owner, r.STag(), 0, 1, LocalRead, false); code != UnallocatedSTag || len(of[STagFree](b.events)) != 1 {
		t.Errorf("after a reset: %v, %v", code, b.events)
	}
}

// A million pages are registered and walked, all of them, whether somebody
// listens or not.
func TestMillionPages(t *testing.T) {
	const n = 1_000_000
	b := newBigBench(t, n+n/512+1024)
	r := Region{Index: 5, Key: 1, PD: owner.PD, Length: n << 12, VABased: true, Start: 0x7000_0000_0000, Level: TwoLevel, PageShift: 12, Rights: LocalRead}
	b.name(&r, pagesOf(n))
	for _, listens := range []bool{true, false} {
		if !listens {
			b.table = New(Config{HMC: b.hmc})
		}
		b.register(r)
		segs := make([]Segment, 0, 32)
		page := uint64(0)
		step := func() {
			k := min(MaxResolve, (n-page)<<12)
			s, f := b.table.Resolve(segs, owner, r.STag(), r.Start+page<<12, uint32(k), LocalRead, false)
			if f != nil {
				t.Fatal(f)
			}
			for _, x := range s {
				if x.IOVA != 0x4000_0000+page<<13 || x.Len != 4096 {
					t.Fatalf("page %d: %+v", page, x)
				}
				page++
			}
		}
		const steps = n << 12 / MaxResolve
		if a := testing.AllocsPerRun(steps-1, step); a != 0 { // and one to warm up
			t.Errorf("%v allocations in a step of a hot walk", a)
		}
		if page != n {
			t.Errorf("%d pages", page)
		}
		if err := b.table.Deallocate(5, owner.PD, true, by); err != nil || len(b.events) != 0 {
			t.Errorf("%v, %d events", err, len(b.events))
		}
	}
}
