// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"slices"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Drivers with a fault each in how they handle regions, and what the device has
// to say of each: that and no more.
func TestFaults(t *testing.T) {
	// lists makes a region of so many pages with a list of that level, and
	// returns the operation that registers it.
	lists := func(t *testing.T, r *IRDMA, rnd *rand.Rand, pages, level int) (*MR, WQE) {
		t.Helper()
		region, err := r.F.Guest.NewRegion(rnd, 0x7f00_0000_0000, pages*Page4K, Page4K)
		must(t, err)
		t.Cleanup(region.Free)
		if level == 2 {
			must(t, r.growPBLEs())
			defer r.crowd(crowdPages, 0)()
		}
		m := &MR{r: r, PD: pairPD, Len: uint64(region.Size), base: region.VA, Level: level}
		m.list, err = r.newPageList(region.addresses())
		must(t, err)
		if m.list.level != level {
			t.Fatalf("list of level %d, want %d", m.list.level, level)
		}
		return m, WQE{0: region.VA, 1: m.Len, 3: stagVABased | 1<<stagLPBLSizeBit, 6: m.list.index}
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, r *IRDMA, rnd *rand.Rand) *MR
		want []string
	}{
		{"none", func(t *testing.T, r *IRDMA, rnd *rand.Rand) *MR {
			m, w := lists(t, r, rnd, 600, 2)
			w[3] |= 3 << stagLPBLSizeBit
			must(t, m.start(w, Everything, rnd))
			return m
		}, nil},
		{"two levels announced as one", func(t *testing.T, r *IRDMA, rnd *rand.Rand) *MR {
			m, w := lists(t, r, rnd, 600, 2)
			must(t, m.start(w, Everything, rnd))
			return m
			// Behind the root's two entries nothing was ever written.
		}, []string{"pble-zero", "pble-not-address"}},
		{"pages copied one entry late", func(t *testing.T, r *IRDMA, rnd *rand.Rand) *MR {
			m, w := lists(t, r, rnd, 16, 1)
			for k := uint64(15); k > 0; k-- {
				b, off := r.pbleWord(m.list.index + k - 1)
				r.SetPBLE(m.list.index+k, b.Load64(off))
			}
			r.SetPBLE(m.list.index, 0)
			must(t, m.start(w, Everything, rnd))
			return m
		}, []string{"pble-zero"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, complaints := startAs(t, pagedPBLEs(t), Linux73(), Options{}, newGuestOf(t, 256))
			mr := c.do(t, m.r, rand.New(rand.NewPCG(16, 1)))
			must(t, mr.Wait())
			lines := complaints.take()
			if rules := broke(lines); !slices.Equal(rules, c.want) {
				t.Errorf("broke %q, want %q: %q", rules, c.want, lines)
			}
			must(t, mr.Dereg())
			must(t, m.r.Remove())
			must(t, m.i.Remove())
			quiet(t, complaints)
		})
	}
}

// A fast registration of more pages than a list of one level holds: the driver
// gets one of two, and registers its root as if it were a list. The device says
// what it sees there, and reaches nothing by it.
func TestLargeFastRegister(t *testing.T) {
	m, complaints := startAs(t, pagedPBLEs(t), Linux73(), Options{}, newGuestOf(t, 256))
	r, rnd := m.r, rand.New(rand.NewPCG(16, 2))
	const pages = 700
	a, b := newPair(t, r, rnd, pairOptions{size: pages * Page4K})
	for _, level := range []int{1, 2} {
		undo := func() {}
		if level == 2 {
			undo = r.crowd(crowdPages, 0)
		}
		mr, err := r.AllocSTag(pairPD, len(b.mem.pages))
		undo()
		must(t, err)
		if mr.list.level != level {
			t.Fatalf("list of level %d, want %d", mr.list.level, level)
		}
		must(t, b.qp.PostSend(b.qp.FastRegWR(1, FastReg{MR: mr, Key: 5, Region: b.mem.Region, Access: Everything})))
		b.waitFor(t, sent(1, Success))
		lines := complaints.take()
		if level == 1 {
			if rules := broke(lines); rules != nil {
				t.Errorf("a list of one level broke %q: %q", rules, lines)
			}
			must(t, a.qp.PostSend(a.through(2, b, mr.STag, 0, b.mem.Size)))
			a.waitFor(t, sent(2, Success))
			moved(t, a, b, 0, b.mem.Size)
		} else {
			// Behind the root's entries is what else is in the pool.
			if rules := broke(lines); !slices.Contains(rules, "pble-not-address") {
				t.Errorf("a root as a list broke %q, want pble-not-address too: %q", rules, lines)
			}
			must(t, m.f.Guest.Check())
		}
		must(t, b.qp.PostSend(b.qp.LocalInvWR(3, mr.STag)))
		b.waitFor(t, sent(3, Success))
		must(t, mr.Dereg())
	}
	endSides(t, a, b)
	must(t, m.takeDown())
}

// A region that is never deregistered: told of when its memory goes from the
// device's address space, as an IOMMU's driver takes it away page by page, and
// again when the driver goes.
func TestForgottenRegion(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	f, r, rnd := m.f, m.r, rand.New(rand.NewPCG(16, 3))
	region, err := f.Guest.NewRegion(rnd, 0x7f00_0000_0000, 9*Page4K, Page4K)
	must(t, err)
	const at = 0x00ff_0000_0000
	mapped := &Region{VA: region.VA, Size: region.Size, PageSize: Page4K}
	for k, b := range region.pages {
		iova := uint64(at + k*3*pageSize)
		must(t, f.Client.MapDMAs([]vfiouser.DMARange{{IOVA: iova, Size: pageSize, File: f.Guest.file, Offset: f.Guest.offset(b.IOVA),
			Flags: vfiouser.DMARead | vfiouser.DMAWrite}}))
		mapped.pages = append(mapped.pages, &Buf{IOVA: iova, b: b.b})
	}
	kept, err := r.RegMR(pairPD, mapped, Everything, MROptions{Rand: rnd})
	must(t, err)
	gone, err := r.RegMR(pairPD, mapped, Everything, MROptions{Rand: rnd})
	must(t, err)
	must(t, gone.Dereg())
	quiet(t, complaints)
	for k := range mapped.pages {
		must(t, f.Client.UnmapDMA(uint64(at+k*3*pageSize), pageSize))
	}
	lines := complaints.take()
	if rules := broke(lines); !slices.Equal(rules, []string{"unmap-live-mr"}) || len(lines) != 1 {
		t.Errorf("memory of one region unmapped: broke %q, want unmap-live-mr of STag %#x once: %q", rules, kept.STag, lines)
	}
	must(t, r.Remove())
	if rules := broke(complaints.take()); !slices.Contains(rules, "stag-leak") {
		t.Errorf("the driver goes with a region left: broke %q, want stag-leak", rules)
	}
	region.Free()
	must(t, m.i.Remove())
}
