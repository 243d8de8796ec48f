// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"fmt"
	"sync"
)

// PBLE reads page buffer list entry index: the guest address of a page.
func (h *Cache) PBLE(index uint32) (uint64, error) {
	var v [1]uint64
	if _, err := h.PBLEs(index, v[:]); err != nil {
		return 0, err
	}
	return v[0], nil
}

// batch is the most PBLEs PBLEs reads at once.
const batch = 64

// buffers are for reads of more than one PBLE.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[8 * batch]byte {
	if p, ok := b.pool.Get().(*[8 * batch]byte); ok {
		return p
	}
	return new([8 * batch]byte)
}

// PBLEs reads consecutive page buffer list entries from index on into dst
// with one walk, as many as lie in one page of their memory and at most 64;
// it returns how many, at least one without an error. A failed walk is
// treated as by Resolve; other errors are those of guest memory.
func (h *Cache) PBLEs(index uint32, dst []uint64) (int, error) {
	n, w, f, err := h.pbles(index, dst, true)
	if f != FaultNone || w.Stale {
		if err := h.report(&w, f); err != nil {
			return 0, err
		}
	}
	return n, err
}

// ExplainPBLEs is PBLEs for a person: the same walk, told, with nothing kept,
// recorded or raised.
func (h *Cache) ExplainPBLEs(index uint32, dst []uint64) (int, Walk, error) {
	n, w, f, err := h.pbles(index, dst, false)
	if f != FaultNone {
		err = failed(&w, f)
	}
	return n, w, err
}

// one reads a single PBLE if there is nothing to be said of the walk to it, as is
// normal. It is what random access to long page lists is made of.
func (h *Cache) one(index uint32) (v uint64, ok bool) {
	e := &h.layout[PBLE]
	if index >= e.count {
		return 0, false
	}
	fpm := e.base + uint64(index)<<e.log2
	s := h.sds[uint32(fpm>>segmentShift)]
	if s == nil {
		return 0, false
	}
	at := s.addr + fpm&(1<<segmentShift-1)
	if !s.direct {
		pd := uint32(fpm>>12) & (pdsPerSegment - 1)
		kept := s.pds.kept[pd].Load()
		now, err := h.mem.Load64(s.addr + 8*uint64(pd))
		if err != nil || kept == 0 || now != kept || s.pds.untold(pd, now) {
			return 0, false
		}
		at = kept&^pageMask + fpm&pageMask
	}
	v, err := h.mem.Load64(at)
	return v, err == nil
}

// pbles keeps mu until the entries are read: who waited for it to change a
// segment may then give the old memory away.
func (h *Cache) pbles(index uint32, dst []uint64, keep bool) (int, Walk, Fault, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if len(dst) == 1 && keep {
		if v, ok := h.one(index); ok {
			dst[0] = v
			return 1, Walk{}, FaultNone, nil
		}
	}
	w, f := h.walk(PBLE, index, keep)
	if f != FaultNone || len(dst) == 0 {
		return 0, w, f, nil
	}
	n := min(uint64(len(dst)), batch, (pageMask+1-w.FPM&pageMask)/8, uint64(h.layout[PBLE].count-index))
	if n == 1 {
		v, err := h.mem.Load64(w.Address)
		if err != nil {
			return 0, w, f, fmt.Errorf("PBLE %d: %w", index, err)
		}
		dst[0] = v
		return 1, w, f, nil
	}
	b := h.buffers.get()
	defer h.buffers.pool.Put(b)
	if err := h.mem.Read(w.Address, b[:8*n]); err != nil {
		return 0, w, f, fmt.Errorf("PBLE %d and %d more: %w", index, n-1, err)
	}
	for i := range dst[:n] {
		dst[i] = word(b[:], 8*i)
	}
	return int(n), w, f, nil
}
