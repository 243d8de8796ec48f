// SPDX-License-Identifier: Apache-2.0

package hmc

import "slices"

// SD is a segment descriptor as a person reads it.
type SD struct {
	Index   uint32 `json:"index"`
	Type    string `json:"type"` // "direct" or "paged"
	Valid   bool   `json:"valid"`
	Address uint64 `json:"address"`
	PDs     []PD   `json:"pds"` // paged: those that are valid in memory or kept
}

// PD is a page descriptor of a paged segment.
type PD struct {
	Index   uint32 `json:"index"`
	Valid   bool   `json:"valid"`   // in guest memory
	Address uint64 `json:"address"` // in guest memory
	Kept    bool   `json:"kept"`    // the device uses its own copy
	InUse   uint64 `json:"in_use"`  // address in that copy
	Stale   bool   `json:"stale"`   // the two differ
	Untold  bool   `json:"untold"`  // PFHMC_PDINV was not written since the word in memory is
}

// Extent is one object type's place in FPM space.
type Extent struct {
	Object string `json:"object"`
	Count  uint32 `json:"count"`
	Max    uint32 `json:"max"`
	Size   uint32 `json:"size"`
	Base   uint64 `json:"base"`
}

// SDs lists the valid segment descriptors in order of index, with the page
// descriptors of paged ones as they are in guest memory now.
func (h *Cache) SDs() []SD {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := []SD{}
	for i, s := range h.sds {
		d := SD{Index: i, Type: "direct", Valid: true, Address: s.addr}
		if !s.direct {
			d.Type, d.PDs = "paged", h.list(s)
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b SD) int { return int(a.Index) - int(b.Index) })
	return out
}

func (h *Cache) list(s *segment) (out []PD) {
	var page [8 * pdsPerSegment]byte
	if err := h.mem.Read(s.addr, page[:]); err != nil {
		page = [8 * pdsPerSegment]byte{} // unreadable: only what is kept
	}
	for i := uint32(0); i < pdsPerSegment; i++ {
		e := word(page[:], int(8*i))
		kept := s.pds.kept[i].Load()
		ok := kept != 0
		if e&pdValid == 0 && !ok {
			continue
		}
		out = append(out, PD{Index: i, Valid: e&pdValid != 0, Address: e &^ pageMask,
			Kept: ok, InUse: kept &^ pageMask, Stale: ok && kept != e, Untold: s.pds.untold(i, e)})
	}
	return out
}

// ValidSDs is the number of valid segment descriptors.
func (h *Cache) ValidSDs() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.sds)
}

// Extents lists the committed layout in order of object type.
func (h *Cache) Extents() []Extent {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := []Extent{}
	for o, e := range h.layout {
		if e.count > 0 {
			out = append(out, Extent{Object(o).String(), e.count, h.profile.Limits[o].Max, 1 << e.log2, e.base})
		}
	}
	return out
}

// Within is the range [first, end) of objects of type o that segment sd is
// needed for. It is empty if sd is not valid, as when it backs none.
func (h *Cache) Within(o Object, sd uint32) (first, end uint32) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	e := h.layout[o]
	from, to := uint64(sd)<<segmentShift, uint64(sd+1)<<segmentShift
	if h.sds[sd] == nil || e.count == 0 || to <= e.base || from >= e.end() {
		return 0, 0
	}
	if from > e.base {
		first = uint32((from - e.base) >> e.log2)
	}
	if end = e.count; to < e.end() {
		end = uint32((to - e.base + 1<<e.log2 - 1) >> e.log2)
	}
	return first, end
}
