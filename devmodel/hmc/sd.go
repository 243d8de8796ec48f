// SPDX-License-Identifier: Apache-2.0

package hmc

import "fmt"

// segment is one valid segment descriptor.
type segment struct {
	direct bool
	addr   uint64       // of the 2 MiB, or of the page of page descriptors
	pds    *descriptors // of a paged one
}

// SDEntry is one entry of an UPDATE_PE_SDS command as the driver writes it
// (hmc.c:irdma_set_sd_entry, irdma_clr_sd_entry).
type SDEntry struct{ Cmd, Data uint64 }

const (
	sdCmdWrite    = 1 << 31 // PMSDWR
	sdValid       = 1 << 0  // PMSDVALID
	sdDirect      = 1 << 1  // PMSDTYPE
	sdPages       = 512 << 2
	sdPagesMask   = 0x3FF << 2 // PMSDBPCOUNT
	sdIndexMask   = 0x7FFF
	pageMask      = 0xFFF
	pdsPerSegment = 512
	pblesInPage   = 512
)

// Index is the segment the entry is about.
func (e SDEntry) Index() uint32 { return uint32(e.Cmd & sdIndexMask) }

// Valid tells whether the entry programs the segment; otherwise it clears it.
func (e SDEntry) Valid() bool { return e.Data&sdValid != 0 }

// UpdateSDs checks all entries, then applies them all. Programming a segment
// drops the page descriptors kept of it.
func (h *Cache) UpdateSDs(entries []SDEntry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.committed {
		return fmt.Errorf("segment update before a layout was committed: %w", ErrState)
	}
	for _, e := range entries {
		if e.Cmd&sdCmdWrite == 0 {
			return fmt.Errorf("SD command %#x without PMSDWR: %w", e.Cmd, ErrParameter)
		}
		if i := e.Index(); i < h.profile.FirstSD || i >= h.profile.FirstSD+h.profile.MaxSDs {
			if e.Valid() {
				h.emit(SDOutsideFPM{SD: i, Data: e.Data, End: h.end})
			}
			return fmt.Errorf("SD index %d, the function has %d from %d on: %w", i, h.profile.MaxSDs, h.profile.FirstSD, ErrParameter)
		}
	}
	for _, e := range entries {
		h.updateSD(e)
	}
	return nil
}

func (h *Cache) updateSD(e SDEntry) {
	i := e.Index()
	old := h.sds[i]
	if old != nil {
		h.release(i, old)
	}
	if !e.Valid() {
		if old == nil {
			h.emit(SDNotValid{SD: i, Data: e.Data})
		}
		delete(h.sds, i)
		delete(h.pds, i)
		return
	}
	s := &segment{direct: e.Data&sdDirect != 0, addr: e.Data &^ pageMask}
	if old != nil && (old.direct != s.direct || old.addr != s.addr) {
		h.emit(SDReprogrammed{SD: i, Old: old.addr, New: s.addr})
	}
	if e.Data&sdPagesMask != sdPages {
		h.emit(SDMalformed{SD: i, Data: e.Data})
	}
	if !h.covers(i) {
		h.emit(SDOutsideFPM{SD: i, Data: e.Data, End: h.end})
	}
	if s.direct {
		delete(h.pds, i)
	} else {
		s.pds = h.descriptors(i)
		s.pds.begin(h.mem, s.addr)
	}
	h.sds[i] = s
	h.claim(i, s)
}

// covers tells whether a committed object lies in segment i, in whole or in
// part.
func (h *Cache) covers(i uint32) bool {
	from := uint64(i) << segmentShift
	for _, e := range h.layout {
		if e.count > 0 && e.base < from+1<<segmentShift && e.end() > from {
			return true
		}
	}
	return false
}
