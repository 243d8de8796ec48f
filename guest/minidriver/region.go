// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// Page sizes of regions and of their registrations.
const (
	Page4K = 4 << 10
	Page2M = 2 << 20
	Page1G = 1 << 30
)

// Region is memory of a program: one run by the program's own addresses, in
// pages that lie anywhere for the device.
type Region struct {
	VA       uint64 // of its first byte
	Size     int
	PageSize int

	first int // offset of the first byte in the first page
	pages []*Buf
}

// NewRegion allocates a region of size bytes at address va. Pages of 4 KiB lie
// at random, those of 2 MiB where there is room.
func (g *Guest) NewRegion(rnd *rand.Rand, va uint64, size, page int) (*Region, error) {
	m := &Region{VA: va, Size: size, PageSize: page, first: int(va % uint64(page))}
	alloc := func() (*Buf, error) { return g.allocAligned(page) }
	if page == Page4K {
		alloc = func() (*Buf, error) { return g.randomPage(rnd) }
	}
	for n := (m.first + size + page - 1) / page; len(m.pages) < n; {
		b, err := alloc()
		if err != nil {
			m.Free()
			return nil, err
		}
		m.pages = append(m.pages, b)
	}
	return m, nil
}

// NewRun is NewRegion in one run of 4 KiB pages.
func (g *Guest) NewRun(va uint64, size int) (*Region, error) {
	m := &Region{VA: va, Size: size, PageSize: Page4K, first: int(va % Page4K)}
	n := (m.first + size + Page4K - 1) / Page4K
	b, err := g.Alloc(n * Page4K)
	if err != nil {
		return nil, err
	}
	for k := range n {
		page := b.part(k*Page4K, Page4K)
		page.guest = g
		m.pages = append(m.pages, page)
	}
	return m, nil
}

// randomPage allocates a page, by chance if chance finds one; in the upper half
// of the RAM, since long runs are needed too.
func (g *Guest) randomPage(rnd *rand.Rand) (*Buf, error) {
	perBank := g.perBank()
	for range 32 {
		p := g.ramPages()/2 + rnd.IntN(g.ramPages()/2)
		if at := p % perBank; at != 0 && at != perBank-1 && g.lastUsed(p-1, 3) < 0 {
			return g.take(p, 1, pageSize), nil
		}
	}
	return g.Alloc(pageSize)
}

// allocAligned allocates a run that is aligned to its own size for the device.
func (g *Guest) allocAligned(size int) (*Buf, error) {
	n, perBank := size/pageSize, g.perBank()
	for k, iova := range banks {
		skip := int((roundUp(iova, uint64(size)) - iova) / pageSize)
		for at := 1 + skip; at+n < perBank; at += n {
			if p := k*perBank + at; g.lastUsed(p-1, n+2) < 0 {
				return g.take(p, n, size), nil
			}
		}
	}
	return nil, fmt.Errorf("allocating an aligned run of %d bytes: %w", size, ErrNoMemory)
}

// Repeated is a region at address va whose pages are those of m, again and again:
// many pages in little memory. It is not to be freed; m is, when it is not in use.
// m begins and ends with a page.
func (m *Region) Repeated(va uint64, times int) (*Region, error) {
	if m.first != 0 || m.Size%m.PageSize != 0 || va%uint64(m.PageSize) != 0 {
		return nil, fmt.Errorf("%d bytes at %#x, %d in their first page, are not repeated: no whole pages of %d", m.Size, va, m.first, m.PageSize)
	}
	r := &Region{VA: va, Size: times * m.Size, PageSize: m.PageSize}
	for range times {
		r.pages = append(r.pages, m.pages...)
	}
	return r, nil
}

// Free gives the pages back; they are poison now.
func (m *Region) Free() {
	for _, b := range m.pages {
		b.Free()
	}
	m.pages = nil
}

// chunks calls do for the pieces of [off, off+n), in order, until it says false.
func (m *Region) chunks(off, n int, do func(at int, b []byte) bool) {
	for at := 0; at < n; {
		p := m.first + off + at
		b := m.pages[p/m.PageSize].b[p%m.PageSize:]
		b = b[:min(len(b), n-at)]
		if !do(at, b) {
			return
		}
		at += len(b)
	}
}

// Write puts p at offset off.
func (m *Region) Write(off int, p []byte) {
	m.chunks(off, len(p), func(at int, b []byte) bool { copy(b, p[at:]); return true })
}

// Read fills p from offset off.
func (m *Region) Read(off int, p []byte) {
	m.chunks(off, len(p), func(at int, b []byte) bool { copy(p[at:], b); return true })
}

// CopyTo copies n bytes at off to the same place in dst, piece by piece as the
// pages of both lie: what there would be to do without a card.
func (m *Region) CopyTo(dst *Region, off, n int) {
	m.chunks(off, n, func(at int, b []byte) bool { dst.Write(off+at, b); return true })
}

// Poison overwrites n bytes at off with poison.
func (m *Region) Poison(off, n int) {
	poison := m.pages[0].guest.poison
	m.chunks(off, n, func(_ int, b []byte) bool {
		for len(b) > 0 {
			b = b[copy(b, poison):]
		}
		return true
	})
}

// Differs returns the offset of the first byte that is not as in want, which is
// what should be at off; -1 if there is none.
func (m *Region) Differs(off int, want []byte) int {
	found := -1
	m.chunks(off, len(want), func(at int, b []byte) bool {
		if bytes.Equal(b, want[at:at+len(b)]) {
			return true
		}
		for k := range b {
			if b[k] != want[at+k] {
				found = off + at + k
				break
			}
		}
		return false
	})
	return found
}

// addresses are those of the pages for the device.
func (m *Region) addresses() []uint64 {
	list := make([]uint64, len(m.pages))
	for k, b := range m.pages {
		list[k] = b.IOVA
	}
	return list
}

// extent is memory that is one run for its user; for the device it may be pages.
type extent struct {
	bufs  []*Buf
	paged bool
}

func (e extent) at(off int) (*Buf, int) {
	if e.paged {
		return e.bufs[off/pageSize], off % pageSize
	}
	return e.bufs[0], off
}

// slice is memory that does not cross a page.
func (e extent) slice(off, n int) []byte {
	b, off := e.at(off)
	return b.b[off : off+n : off+n]
}

func (e extent) load(off int) uint64 {
	b, off := e.at(off)
	return b.Load64(off)
}

func (e extent) store(off int, v uint64) {
	b, off := e.at(off)
	b.Store64(off, v)
}

func (e extent) iova(off int) uint64 {
	b, off := e.at(off)
	return b.IOVA + uint64(off)
}
