// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// iommu is memory that a guest's driver maps for the device page by page, as
// QEMU tells of what happens in an IOMMU's tables.
type iommu struct {
	t    *testing.T
	c    *vfiouser.Client
	file *os.File
	mem  []byte
}

const (
	iommuBase  = 0xf_f000_0000
	iommuPages = 1024
)

func newIOMMU(t *testing.T, c *vfiouser.Client) *iommu {
	fd, err := unix.MemfdCreate("iommu", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "iommu")
	t.Cleanup(func() { f.Close() })
	must(t, f.Truncate(iommuPages*pageSize))
	return &iommu{t, c, f, make([]byte, iommuPages*pageSize)}
}

func at(page int) uint64 { return iommuBase + uint64(page)*pageSize }

// map maps pages one by one.
func (m *iommu) mapPages(first, n int) {
	m.t.Helper()
	for p := first; p < first+n; p++ {
		must(m.t, m.c.MapDMA(at(p), pageSize, m.file, uint64(p)*pageSize, vfiouser.DMARead|vfiouser.DMAWrite))
	}
}

func (m *iommu) unmap(first, n int) {
	m.t.Helper()
	must(m.t, m.c.UnmapDMA(at(first), uint64(n)*pageSize))
}

// A driver that unmaps a region's memory before it deregisters the region is
// told of; whoever else takes memory away is not.
func TestUnmapLiveMR(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r, g := m.r, m.f.Guest
	mmu := newIOMMU(t, m.f.Client)
	rnd := rand.New(rand.NewPCG(1, 2))
	register := func(first, n int) *MR {
		t.Helper()
		mr, err := r.RegMR(pairPD, g.foreign(at(first), mmu.mem[:n*pageSize]), Everything, MROptions{Rand: rnd})
		must(t, err)
		return mr
	}
	told := func(mr *MR) {
		t.Helper()
		lines := complaints.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "unmap-live-mr") {
			t.Errorf("complaints %q, want one about STag %#x", lines, mr.STag)
		}
	}
	mmu.mapPages(0, 64)
	quiet(t, complaints)

	// Several pages in one run, page by page and from the middle: once.
	mr := register(8, 8)
	mmu.unmap(12, 1)
	told(mr)
	mmu.unmap(13, 1)
	mmu.unmap(8, 1)
	must(t, mr.Dereg())
	mmu.mapPages(12, 2)
	mmu.mapPages(8, 1)
	quiet(t, complaints)

	// In order, and neighbours of what is live.
	mr = register(20, 2)
	mmu.unmap(19, 1)
	mmu.unmap(22, 1)
	must(t, mr.Dereg())
	mmu.unmap(20, 1)
	mmu.unmap(21, 1)
	mmu.mapPages(19, 4)
	quiet(t, complaints)

	// 2 MiB at once, as one entry of the table above.
	const pages = Page2M / pageSize
	mmu.mapPages(64, 2*pages-64)
	mr = register(pages-1, pages+1)
	mmu.unmap(pages, pages)
	told(mr)
	must(t, mr.Dereg())

	// All that the domain has.
	mr = register(3, 5)
	mmu.unmap(0, pages)
	mmu.unmap(0, iommuPages)
	must(t, mr.Dereg())
	quiet(t, complaints)

	// RAM goes, as when QEMU ends, under all there is.
	if _, err := r.RegAll(pairPD, Everything); err != nil {
		t.Fatal(err)
	}
	run, err := g.NewRun(0x5000_0000, 16*pageSize)
	must(t, err)
	if _, err := r.RegMR(pairPD, run, Everything, MROptions{Rand: rnd}); err != nil {
		t.Fatal(err)
	}
	must(t, g.Unmap(m.f.Client))
	quiet(t, complaints)
	run.Free()
	m.abandon()
}
