// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

const (
	pbleSize = 8
	pbleUnit = 8 // PBLEs of the smallest allocation (PBLE_SHIFT)
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
	first, count, used uint64
	sd                 uint64
	mem                []*Buf // the pages of a paged segment, or one run
	paged              bool
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
	if p.left < pageSize/pbleSize {
		return fmt.Errorf("no PBLEs left")
	}
	sd, pd := p.next/sdSize, int(p.next%sdSize/pageSize)
	pages := min(sdPages-pd, int(p.left*pbleSize/pageSize))
	c := &pbleChunk{sd: sd, first: (p.next - p.base) / pbleSize, count: uint64(pages) * pageSize / pbleSize}
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

// AllocPBLEs returns the index of a run of n entries in one chunk. It adds
// chunks as needed.
func (r *IRDMA) AllocPBLEs(n int) (uint64, error) {
	want := roundUp(uint64(n), pbleUnit)
	for tries := 0; ; tries++ {
		for _, c := range r.pble.chunks {
			if c.count-c.used >= want {
				index := c.first + c.used
				c.used += want
				return index, nil
			}
		}
		if tries > 1 {
			return 0, fmt.Errorf("no run of %d PBLEs", n)
		}
		if err := r.growPBLEs(); err != nil {
			return 0, err
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
