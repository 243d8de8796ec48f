// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

const (
	pbleSize    = 8
	pbleUnit    = 8   // PBLEs of the smallest allocation (PBLE_SHIFT)
	pblesInPage = 512 // of a leaf of a list of two levels (PBLE_PER_PAGE)
)

// pblePool hands out page buffer list entries, which are the one object of the
// HMC whose contents the driver writes (pble.c).
type pblePool struct {
	base   uint64 // private address of PBLE 0
	next   uint64 // private address where the next chunk starts
	left   uint64 // PBLEs not in a chunk yet
	chunks []*pbleChunk
}

// pbleChunk is a run of PBLEs inside one segment.
type pbleChunk struct {
	first, count uint64
	units        []bool // allocated ones
	sd           uint64
	mem          []*Buf // the pages of a paged segment, or one run
	paged        bool
}

// fit finds n free units in a row, the first such run; -1 if there is none.
func (c *pbleChunk) fit(n int) int {
	run := 0
	for u, busy := range c.units {
		if run++; busy {
			run = 0
		} else if run == n {
			return u - n + 1
		}
	}
	return -1
}

func (c *pbleChunk) mark(first, n int, busy bool) {
	for u := first; u < first+n; u++ {
		c.units[u] = busy
	}
}

// initPBLEs is irdma_hmc_init_pble.
func (r *IRDMA) initPBLEs() error {
	o := r.hmc.objects[IRDMA_HMC_IW_PBLE]
	start := roundUp(o.Base, pageSize)
	r.pble = pblePool{base: o.Base, next: start, left: o.Count - (start-o.Base)/pbleSize}
	return r.growPBLEs()
}

// growPBLEs adds the rest of a segment to the pool (add_pble_prm).
func (r *IRDMA) growPBLEs() error {
	p := &r.pble
	if p.left < pblesInPage {
		return fmt.Errorf("no PBLEs left")
	}
	sd, pd := p.next/sdSize, int(p.next%sdSize/pageSize)
	pages := min(sdPages-pd, int(p.left*pbleSize/pageSize))
	c := &pbleChunk{sd: sd, first: (p.next - p.base) / pbleSize, count: uint64(pages) * pblesInPage}
	c.units = make([]bool, c.count/pbleUnit)
	s := r.hmc.sds[sd]
	fresh := s == nil
	if fresh {
		s = &segment{valid: true, paged: pd != 0 || pages != sdPages || r.opts.NoLargePages}
		r.hmc.sds[sd] = s
		size := sdSize
		if s.paged {
			size, s.pages = pageSize, make([]*Buf, sdPages)
		}
		s.buf = r.mem.own(r.F.alloc(size))
		s.use = 1
	}
	if c.paged = s.paged; s.paged {
		for k := pd; k < pd+pages; k++ {
			page := r.mem.own(r.F.alloc(pageSize))
			c.mem = append(c.mem, page)
			s.pages[k] = page
			s.buf.Store64(8*k, page.IOVA|1)
			r.invalidatePD(sd, k)
		}
	} else {
		c.mem = []*Buf{s.buf.part(pd*pageSize, pages*pageSize)}
	}
	p.next += uint64(pages) * pageSize
	p.left -= c.count
	p.chunks = append(p.chunks, c)
	if fresh {
		return r.updateSDs([]uint64{sd}, true)
	}
	return nil
}

// dropPBLEs is irdma_destroy_pble_prm: it frees the pages of paged segments
// while their PD entries are still valid.
func (r *IRDMA) dropPBLEs() {
	for _, c := range r.pble.chunks {
		if c.paged {
			r.mem.free(c.mem...)
		}
	}
	r.pble.chunks = nil
}

func pbleUnits(n int) int { return (n + pbleUnit - 1) / pbleUnit }

// takePBLEs finds a run of n entries in the chunks there are.
func (r *IRDMA) takePBLEs(n int) (index uint64, ok bool) {
	units := pbleUnits(n)
	for _, c := range r.pble.chunks {
		if u := c.fit(units); u >= 0 {
			c.mark(u, units, true)
			return c.first + uint64(u)*pbleUnit, true
		}
	}
	return 0, false
}

// AllocPBLEs returns the index of a run of n entries in one chunk. It adds
// chunks as needed.
func (r *IRDMA) AllocPBLEs(n int) (uint64, error) {
	for tries := 0; ; tries++ {
		if index, ok := r.takePBLEs(n); ok {
			return index, nil
		}
		if tries > 1 {
			return 0, fmt.Errorf("no run of %d PBLEs", n)
		}
		if err := r.growPBLEs(); err != nil {
			return 0, err
		}
	}
}

// FreePBLEs gives a run of n entries back.
func (r *IRDMA) FreePBLEs(index uint64, n int) {
	for _, c := range r.pble.chunks {
		if index >= c.first && index < c.first+c.count {
			c.mark(int(index-c.first)/pbleUnit, pbleUnits(n), false)
		}
	}
}

// pbleWord finds the memory of an entry.
func (r *IRDMA) pbleWord(index uint64) (*Buf, int) {
	for _, c := range r.pble.chunks {
		if index >= c.first && index < c.first+c.count {
			off := int(index-c.first) * pbleSize
			if c.paged {
				return c.mem[off/pageSize], off % pageSize
			}
			return c.mem[0], off
		}
	}
	return nil, 0
}

// SetPBLE writes an entry: the address of a page.
func (r *IRDMA) SetPBLE(index, addr uint64) {
	b, off := r.pbleWord(index)
	b.Store64(off, addr)
}

// pageList is a page buffer list of one or two levels.
type pageList struct {
	level int
	index uint64 // of the list, or of the root
	runs  []pbleRun
}

type pbleRun struct {
	index uint64
	n     int
}

// newPageList allocates a list and writes the pages into it. It is of two
// levels if the pool is too fragmented for one, and the list long enough
// (pble.c:irdma_get_pble, get_lvl1_lvl2_pble).
func (r *IRDMA) newPageList(pages []uint64) (*pageList, error) {
	const perChunk = 18 // bits of what a chunk holds at most
	for chunks := len(pages)>>perChunk + 1; ; chunks-- {
		if index, ok := r.takePBLEs(len(pages)); ok {
			l := &pageList{1, index, []pbleRun{{index, len(pages)}}}
			r.fill(l.runs, pages)
			return l, nil
		}
		if len(pages) > pblesInPage {
			if l := r.twoLevels(pages); l != nil {
				return l, nil
			}
		}
		if chunks == 0 {
			return nil, fmt.Errorf("no list of %d PBLEs", len(pages))
		}
		if err := r.growPBLEs(); err != nil {
			return nil, err
		}
	}
}

// twoLevels is pble.c:get_lvl2_pble; nil if there is no room.
func (r *IRDMA) twoLevels(pages []uint64) *pageList {
	leaves := (len(pages) + pblesInPage - 1) / pblesInPage
	root, ok := r.takePBLEs(leaves)
	if !ok {
		return nil
	}
	l := &pageList{2, root, nil}
	for k := range leaves {
		n := min(pblesInPage, len(pages)-k*pblesInPage)
		leaf, ok := r.takePBLEs(n)
		if !ok {
			l.runs = append(l.runs, pbleRun{root, leaves})
			r.freePageList(l)
			return nil
		}
		l.runs = append(l.runs, pbleRun{leaf, n})
		r.SetPBLE(root+uint64(k), leaf)
	}
	r.fill(l.runs, pages)
	l.runs = append(l.runs, pbleRun{root, leaves})
	return l
}

func (r *IRDMA) fill(runs []pbleRun, pages []uint64) {
	at := 0
	for _, run := range runs {
		for k := range run.n {
			r.SetPBLE(run.index+uint64(k), pages[at])
			at++
		}
	}
}

func (r *IRDMA) freePageList(l *pageList) {
	for _, run := range l.runs {
		r.FreePBLEs(run.index, run.n)
	}
}
