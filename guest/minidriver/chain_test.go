// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	devicehmc "github.com/vrnic/vrnic/devmodel/hmc"
)

var (
	long = flag.Bool("long", false, "run tests of memory and of control operations at full length")
	seed = flag.Uint64("seed", 1, "of tests with random shapes and sequences")
)

// startAs brings both drivers up on a card of a personality.
func startAs(t *testing.T, p devicehmc.Personality, k Kernel, o Options, g *Guest) (*machine, *findings) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	complaints := new(findings)
	socket := servePersonality(t, ctx, 1, complaints, p)[0]
	m, err := bringUp(attach(t, ctx, socket, g), k, o)
	must(t, err)
	return m, complaints
}

// forPersonalities runs a test once per personality, each with PBLEs in large
// pages where the driver can have them, and without large pages.
func forPersonalities(t *testing.T, test func(t *testing.T, p devicehmc.Personality, o Options)) {
	for _, p := range devicehmc.Personalities() {
		t.Run(p.Name, func(t *testing.T) { test(t, p, Options{}) })
		t.Run(p.Name+"_small_pages", func(t *testing.T) { test(t, p, pagedOptions()) })
	}
}

// shape is a way from an STag to memory.
type shape struct {
	level    int
	pageSize int
	pages    int // of the list
	first    int // offset of the first byte in the first page
	last     int // bytes that are left of the last page
	zero     bool
	pool     int // how much of the pool others have, see crowd
}

func (s shape) String() string {
	return fmt.Sprintf("level %d, %d pages of %d KiB, first byte at %#x, %#x bytes left of the last, zero based %v, pool %d",
		s.level, s.pages, s.pageSize>>10, s.first, s.last, s.zero, s.pool)
}

// randomShape favours borders: of pages, of leaves, of chunks.
func randomShape(rnd *rand.Rand) shape {
	pick := func(n ...int) int { return n[rnd.IntN(len(n))] }
	s := shape{level: rnd.IntN(3), pageSize: pick(Page4K, Page4K, Page2M, Page1G), zero: rnd.IntN(3) == 0}
	switch s.level {
	case 0:
		s.pages = pick(1, 1, 2, 3, 17)
		if s.pageSize != Page4K {
			s.pages = 1 // those in a row are one larger page
		}
	case 1:
		s.pages, s.pool = pick(2, 3, 8, 9, 511, 512, 513, 2+rnd.IntN(1500)), pick(crowdNone, crowdNone, crowdEnd)
	case 2:
		s.pages, s.pool = pick(513, 1023, 1024, 1025, 513+rnd.IntN(2500)), pick(crowdPages, crowdChunks)
	}
	s.first = pick(0, 0, 1, s.pageSize-1, rnd.IntN(s.pageSize))
	s.last = pick(0, 0, 1, s.pageSize-1, rnd.IntN(s.pageSize))
	if s.pages == 1 && s.first+s.last >= s.pageSize {
		s.last = 0
	}
	return s
}

// What of the pool of PBLEs others have.
const (
	crowdNone   = iota
	crowdEnd    // all but the end of every chunk
	crowdPages  // no run of more than a page is left
	crowdChunks // and of the first chunk only a page
)

// crowd makes the pool look used, and returns what undoes that.
func (r *IRDMA) crowd(kind, units int) (undo func()) {
	var marked []func()
	const perPage = pblesInPage / pbleUnit
	for n, c := range r.pble.chunks {
		for u := range c.units {
			busy := kind == crowdEnd && u < len(c.units)-units ||
				kind >= crowdPages && u%(perPage+1) == 0 ||
				kind == crowdChunks && n == 0 && u < len(c.units)-perPage
			if busy && !c.units[u] {
				c.units[u] = true
				marked = append(marked, func() { c.units[u] = false })
			}
		}
	}
	return func() {
		for _, f := range marked {
			f()
		}
	}
}

// chains are the pages that all shapes are made of. A list names them again and
// again, in another order every time, so that long ones need no more memory;
// what one request covers are different ones.
type chains struct {
	r    *IRDMA
	a, b *side
	bufs map[int][]*Buf // by page size
}

const chainAccess = 160 << 10

func newChains(t *testing.T, r *IRDMA, rnd *rand.Rand) *chains {
	t.Helper()
	c := &chains{r: r, bufs: map[int][]*Buf{}}
	c.a, c.b = newPair(t, r, rnd, pairOptions{size: chainAccess})
	for range 3 * chainAccess / Page4K {
		b, err := r.F.Guest.randomPage(rnd)
		must(t, err)
		c.bufs[Page4K] = append(c.bufs[Page4K], b)
	}
	for size, n := range map[int]int{Page2M: 3, Page1G: 2} {
		for range n {
			b, err := r.F.Guest.allocAligned(size)
			must(t, err)
			c.bufs[size] = append(c.bufs[size], b)
		}
	}
	return c
}

func (c *chains) end(t *testing.T) {
	endSides(t, c.a, c.b)
	for _, list := range c.bufs {
		for _, b := range list {
			b.Free()
		}
	}
}

// region is memory of a shape.
func (c *chains) region(rnd *rand.Rand, s shape) (*Region, func(), error) {
	size := s.pages*s.pageSize - s.first - s.last
	va := uint64(1+rnd.IntN(1000))<<36 + uint64(s.first)
	if s.level == 0 && s.pages > 1 {
		m, err := c.r.F.Guest.NewRun(va, size)
		return m, m.Free, err
	}
	m := &Region{VA: va, Size: size, PageSize: s.pageSize, first: s.first}
	bufs := c.bufs[s.pageSize]
	order := rnd.Perm(len(bufs))
	for k := range s.pages {
		m.pages = append(m.pages, bufs[order[k%len(bufs)]])
	}
	return m, func() {}, nil
}

// try makes a shape and moves bytes to and from it in all ways.
func (c *chains) try(rnd *rand.Rand, s shape, accesses int) error {
	m, free, err := c.region(rnd, s)
	if err != nil {
		return err
	}
	defer free()
	undo := c.r.crowd(s.pool, pbleUnits(s.pages))
	mr, err := c.r.RegMR(pairPD, m, Everything, MROptions{ZeroBased: s.zero, Rand: rnd})
	undo()
	if err != nil {
		return err
	}
	if mr.Level != s.level && !(s.level == 2 && mr.Level == 1) { // a chunk may have been added
		return fmt.Errorf("it is of level %d", mr.Level)
	}
	for range accesses {
		off, n := c.place(rnd, s, m.Size)
		if err := c.access(rnd, m, mr, off, n); err != nil {
			return fmt.Errorf("%d bytes at %#x: %w", n, off, err)
		}
	}
	return mr.Dereg()
}

// place is a piece of the region, likely at or across a border.
func (c *chains) place(rnd *rand.Rand, s shape, size int) (off, n int) {
	n = min(1+rnd.IntN([]int{1, 9, 5000, chainAccess}[rnd.IntN(4)]), size)
	page := 1 + rnd.IntN(s.pages)
	if rnd.IntN(2) == 0 {
		page = (page + pblesInPage - 1) / pblesInPage * pblesInPage // of leaves
	}
	border := page*s.pageSize - s.first
	switch rnd.IntN(5) {
	case 0:
		off = 0
	case 1:
		off = size - n
	case 2:
		off = border // of two pages
	case 3:
		off = border - 1 - rnd.IntN(n)
	case 4:
		off = rnd.IntN(size)
	}
	return min(max(off, 0), size-n), n
}

// access moves n bytes in each of the four ways: remote and local, to and from.
func (c *chains) access(rnd *rand.Rand, m *Region, mr *MR, off, n int) error {
	a, b := c.a, c.b
	plain := rnd.IntN(chainAccess - n + 1)
	there := SGE{mr.Addr(off), uint32(n), mr.STag}
	here := a.sge(plain, n)
	want, got := make([]byte, n), make([]byte, n)
	for k, w := range []struct {
		name   string
		by     *side
		wr     SendWR
		toThem bool
	}{
		{"RDMA write to it", a, SendWR{Op: IRDMA_OP_TYPE_RDMA_WRITE, SGEs: []SGE{here}, RemoteAddr: there.Addr, RKey: there.LKey}, true},
		{"RDMA read from it", a, SendWR{Op: IRDMA_OP_TYPE_RDMA_READ, SGEs: []SGE{here}, RemoteAddr: there.Addr, RKey: there.LKey}, false},
		{"RDMA write out of it", b, SendWR{Op: IRDMA_OP_TYPE_RDMA_WRITE, SGEs: []SGE{there}, RemoteAddr: here.Addr, RKey: here.LKey}, false},
		{"RDMA read into it", b, SendWR{Op: IRDMA_OP_TYPE_RDMA_READ, SGEs: []SGE{there}, RemoteAddr: here.Addr, RKey: here.LKey}, true},
	} {
		fillRandom(rnd, want)
		w.wr.ID, w.wr.Signalled = uint64(k), true
		from, fromOff, to, toOff := m, off, a.mem.Region, plain
		if w.toThem {
			from, fromOff, to, toOff = a.mem.Region, plain, m, off
		}
		from.Write(fromOff, want)
		if err := w.by.qp.PostSend(w.wr); err != nil {
			return err
		}
		if err := w.by.cq.PollFor(1, func(wc WC) error {
			if wc.Status != Success || wc.ID != w.wr.ID {
				return fmt.Errorf("completion %+v", wc)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("%s: %w; events %+v", w.name, err, c.r.AEs)
		}
		if to.Read(toOff, got); !bytes.Equal(got, want) {
			return fmt.Errorf("%s: byte %#x is %#x, want %#x", w.name, firstDifference(got, want), got[firstDifference(got, want)], want[firstDifference(got, want)])
		}
	}
	return nil
}

func firstDifference(a, b []byte) int {
	for k := range a {
		if a[k] != b[k] {
			return k
		}
	}
	return -1
}

// guestOfChains has room for pages of 1 GiB; next to nothing of it is ever
// touched.
const guestOfChains = 16 << 10

// Regions of every shape, through tables of every kind, hold the bytes that a
// flat map of them says.
func TestChains(t *testing.T) {
	shapes, accesses := 24, 4
	if *long {
		shapes, accesses = 700, 8
	}
	forPersonalities(t, func(t *testing.T, p devicehmc.Personality, o Options) {
		m, complaints := startAs(t, p, Linux73(), o, newGuestOf(t, guestOfChains))
		rnd := rand.New(rand.NewPCG(6, *seed))
		if first := m.r.pble.chunks[0]; !first.paged && o.NoLargePages {
			m.r.skipChunks() // it shares the last direct segment of the static objects
		}
		if len(m.r.pble.chunks) == 1 {
			must(t, m.r.growPBLEs())
		}
		c := newChains(t, m.r, rnd)
		levels := map[[2]int]int{}
		for n := range shapes {
			s := randomShape(rnd)
			if err := c.try(rnd, s, accesses); err != nil {
				t.Fatalf("-seed %d, shape %d (%v): %v", *seed, n, s, err)
			}
			levels[[2]int{s.level, s.pageSize}]++
		}
		for _, k := range m.r.pble.chunks {
			t.Logf("chunk of %d PBLEs in segment %d, paged %v", k.count, k.sd, k.paged)
		}
		for level := range 3 {
			for _, size := range []int{Page4K, Page2M, Page1G} {
				if levels[[2]int{level, size}] == 0 && *long {
					t.Errorf("no shape of level %d with pages of %d KiB", level, size>>10)
				}
			}
		}
		c.end(t)
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}
