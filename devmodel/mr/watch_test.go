// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// unmapped are the STags that an unmapping tells of.
func (b *bench) unmapped(iova, size uint64) (stags []uint32) {
	b.events = nil
	b.table.Unmapping(iova, size)
	for _, e := range of[UnmapLiveMR](b.events) {
		stags = append(stags, e.STag)
		if e.IOVA != iova || e.Size != size || e.By.Op == "" {
			b.t.Errorf("%+v", e)
		}
	}
	slices.Sort(stags)
	return stags
}

func TestUnmapping(t *testing.T) {
	b := newBench(t, true)
	flat := Region{Index: 1, PD: owner.PD, Length: 0x2000, Start: 0x800, Level: Flat, PageShift: 12}
	b.name(&flat, []uint64{0x10_0000, 0x20_0000, 0x10_1000}) // its last half page is at 10_1000
	huge := Region{Index: 2, PD: owner.PD, Length: 600 << 21, Level: TwoLevel, PageShift: 21}
	pages := make([]uint64, 600)
	for i := range pages {
		pages[i] = 0x1_0000_0000 + uint64(i)<<21
	}
	b.name(&huge, pages)
	one := Region{Index: 3, PD: owner.PD, Length: 16, Start: 0x7FF8, VABased: true, Base: 0x30_0000, PageShift: 12}
	all := Region{Index: 4, PD: owner.PD, PageShift: 12, VABased: true}
	setup := func(watchFirst bool) {
		t.Helper()
		b.table.Reset(reg.PFR)
		b.events = nil
		if watchFirst {
			b.table.WatchUnmaps()
		}
		for _, r := range []Region{flat, huge, one, all} {
			b.register(r)
		}
		b.table.WatchUnmaps()
		b.table.WatchUnmaps()
	}
	for _, c := range []struct {
		iova, size uint64
		want       []uint32
	}{
		{0x10_0000, 0x1000, []uint32{1 << 8}}, // the first byte is in its middle
		{0x10_1000, 0x1000, []uint32{1 << 8}}, // the last as well
		{0x0F_F000, 0x1000, nil},
		{0x10_2000, 0x1000, nil},
		{0x0F_F000, 0x2000, nil}, // more than the region has
		{0x20_0000, 0x1000, []uint32{1 << 8}},
		{0x20_1000, 0x1000, nil},
		{0x30_0000, 0x1000, []uint32{3 << 8}},
		{0x30_0000, 0x2000, []uint32{3 << 8}},
		{0x30_0000, 0x3000, nil},
		{0x30_1000, 0x1000, []uint32{3 << 8}},
		{0x30_2000, 0x1000, nil},
		{0x1_0000_0000, 1 << 30, []uint32{2 << 8}},
		{0x1_0000_0000 + 599<<21, 0x1000, []uint32{2 << 8}},
		{0x1_0000_0000 + 600<<21, 0x1000, nil},
		{0xFFFF_F000, 0x1000, nil},
		{0, 1 << 40, nil}, // nobody's doing who has registered one of these
		{0, ^uint64(0), nil},
		{1 << 63, 1 << 63, nil},
		{0x10_0000, 0, nil},
	} {
		for _, first := range []bool{false, true} {
			setup(first)
			if got := b.unmapped(c.iova, c.size); !slices.Equal(got, c.want) {
				t.Errorf("%#x+%#x (%t): %#x, want %#x", c.iova, c.size, first, got, c.want)
			}
			if got := b.unmapped(c.iova, c.size); len(got) != 0 {
				t.Errorf("%#x+%#x twice: %#x", c.iova, c.size, got)
			}
		}
	}
	// The ends of a region end the watch; fast registrations are none of its.
	setup(true)
	b.code("invalidation", b.table.Invalidate(kernel, 3<<8, false, post), 0)
	if err := b.table.Deallocate(1, owner.PD, true, by); err != nil {
		t.Error(err)
	}
	fast := one
	fast.Rights, fast.Length = 0, 8
	b.code("registration", b.table.FastRegister(kernel, fast, post), 0)
	for _, gone := range []uint64{0x10_0000, 0x30_0000} {
		if got := b.unmapped(gone, 0x1000); len(got) != 0 {
			t.Errorf("%#x: %#x", gone, got)
		}
	}
	if got := b.unmapped(0x1_0000_0000, 0x1000); !slices.Equal(got, []uint32{2 << 8}) {
		t.Errorf("%#x", got)
	}
}

// Nobody listens, or nobody has asked: nothing is kept.
func TestUnmappingIsOff(t *testing.T) {
	b := newBench(t, false)
	b.register(Region{Index: 3, PD: owner.PD, Length: 16, Base: 0x30_0000, PageShift: 12})
	if got := b.unmapped(0x30_0000, 0x1000); len(got) != 0 {
		t.Errorf("%#x", got)
	}
	b.table = New(Config{HMC: b.hmc})
	b.table.WatchUnmaps()
	b.register(Region{Index: 3, PD: owner.PD, Length: 16, Base: 0x30_0000, PageShift: 12})
	if got := b.unmapped(0x30_0000, 0x1000); len(got) != 0 {
		t.Errorf("%#x", got)
	}
}

// Random regions come and go; what an unmapping tells is what a flat list of
// their pages says.
func TestUnmappingEqualsFlatList(t *testing.T) {
	b := newBench(t, false)
	b.table.WatchUnmaps()
	r := rand.New(rand.NewPCG(5, 6))
	live := map[uint32][][2]uint64{} // pages as [from, to)
	for range 3000 {
		index := 1 + r.Uint32N(regions-1)
		if live[index] != nil {
			if err := b.table.Deallocate(index, owner.PD, true, by); err != nil {
				t.Fatal(err)
			}
			delete(live, index)
		} else {
			n := 1 + r.Uint64N(20)
			b.next = index * 32
			reg := Region{Index: index, PD: owner.PD, Length: n << 12, Level: Flat, PageShift: 12}
			pages := make([]uint64, n)
			at := (1 + r.Uint64N(1<<14)) << 12
			for i := range pages {
				if r.IntN(4) == 0 {
					at += r.Uint64N(1<<14) << 12
				}
				at += 1 << 12
				pages[i] = at
				live[index] = append(live[index], [2]uint64{at, at + 4096})
			}
			b.name(&reg, pages)
			b.register(reg)
		}
		from := r.Uint64N(1<<18) << 12
		size := (1 + r.Uint64N(4)) << 12
		if r.IntN(20) == 0 {
			size <<= r.IntN(16)
		}
		var want []uint32
		for i, pages := range live {
			var inside uint64
			for _, p := range pages {
				if from <= p[0] && p[1] <= from+size {
					inside += p[1] - p[0]
				}
			}
			if inside == size {
				want = append(want, i<<8)
			}
		}
		slices.Sort(want)
		if got := b.unmapped(from, size); !slices.Equal(got, want) {
			t.Fatalf("%#x+%#x: %#x, want %#x", from, size, got, want)
		}
		for _, s := range want {
			if err := b.table.Deallocate(s>>8, owner.PD, true, by); err != nil {
				t.Fatal(err)
			}
			delete(live, s>>8)
		}
	}
}

func BenchmarkUnmappingOfNothing(bb *testing.B) {
	b := newBench(bb, false)
	b.table.WatchUnmaps()
	for i := range uint32(regions - 1) {
		b.register(Region{Index: i + 1, PD: owner.PD, Length: 1 << 20, Base: 0x1000_0000 + uint64(i)<<21, PageShift: 12})
	}
	for bb.Loop() {
		b.table.Unmapping(0x8000_0000, 4096)
	}
}

// However much is registered when the watch begins, it begins soon.
func TestAWatchThatBeginsLateLooksAtSoMuchOnly(t *testing.T) {
	const pages, many = 1 << 18, 8
	b := newBigBench(t, pages+512)
	r := Region{PD: owner.PD, Length: pages << 12, Level: Flat, PageShift: 12}
	list := make([]uint64, pages)
	for i := range list {
		list[i] = 1<<40 + uint64(i)<<12
	}
	b.name(&r, list)
	for r.Index = 1; r.Index <= many; r.Index++ {
		b.register(r)
	}
	before := b.table.Looked()
	b.table.WatchUnmaps()
	if n := b.table.Looked() - before; n != 4*pages {
		t.Errorf("%d pages looked at", n)
	}
	if got, want := b.unmapped(1<<40, 4096), []uint32{1 << 8, 2 << 8, 3 << 8, 4 << 8}; !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}
