// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"fmt"
	"sync/atomic"
)

// segment is one valid segment descriptor.
type segment struct {
	direct bool
	addr   uint64 // of the 2 MiB, or of the page of page descriptors
	// pds are the page descriptors kept of a paged segment; 0 is none, as a
	// valid one has its valid bit. Walks add to them beside each other.
	pds *[pdsPerSegment]atomic.Uint64
}

// SDEntry is one entry of an UPDATE_PE_SDS command as the driver writes it
// (hmc.c:irdma_set_sd_entry, irdma_clr_sd_entry).
type SDEntry struct{ Cmd, Data uint64 }

const (
	sdCmdWrite    = 1 << 31 // PMSDWR
	sdValid       = 1 << 0
	sdDirect      = 1 << 1
	sdIndexMask   = 0x7FFF
	pageMask      = 0xFFF
	partSelect    = 1 << 15 // set for the protocol engine's part of the HMC
	pdValid       = 1 << 0
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
	if !e.Valid() {
		if old == nil {
			h.emit(SDNotValid{SD: i, Data: e.Data})
		}
		delete(h.sds, i)
		return
	}
	s := &segment{direct: e.Data&sdDirect != 0, addr: e.Data &^ pageMask}
	if !s.direct {
		s.pds = new([pdsPerSegment]atomic.Uint64)
	}
	if old != nil && (old.direct != s.direct || old.addr != s.addr) {
		h.emit(SDReprogrammed{SD: i, Old: old.addr, New: s.addr})
	}
	if uint64(i)<<segmentShift >= h.end {
		h.emit(SDBeyondLayout{SD: i, End: h.end})
	}
	h.sds[i] = s
}

// invalidate is a write of PFHMC_PDINV. The driver sends it also for
// segments it has not programmed yet.
func (h *Cache) invalidate(v uint32) {
	if v&partSelect == 0 {
		return // the LAN part, which this family does not have
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.sds[v&0xFFF]; s != nil && !s.direct {
		s.pds[v>>16&0x1FF].Store(0)
	}
}

// SDNotValid is the event of clearing a segment descriptor that is not valid.
type SDNotValid struct {
	SD   uint32
	Data uint64
}

func (e SDNotValid) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS clears SD %d, which is not valid", e.SD)
}

// SDReprogrammed is the event of programming a valid segment descriptor with
// another address or type, without clearing it first.
type SDReprogrammed struct {
	SD       uint32
	Old, New uint64
}

func (e SDReprogrammed) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS programs SD %d with %#x while it is valid with %#x", e.SD, e.New, e.Old)
}

// SDBeyondLayout is the event of a segment behind the committed layout.
type SDBeyondLayout struct {
	SD  uint32
	End uint64
}

func (e SDBeyondLayout) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS programs SD %d, the committed layout ends at FPM %#x", e.SD, e.End)
}

// StaticUnbacked is the event of SHMC_PAGES_ALLOCATED with a segment missing.
type StaticUnbacked struct {
	Object Object
	SD     uint32
}

func (e StaticUnbacked) String() string {
	return fmt.Sprintf("SHMC_PAGES_ALLOCATED, but SD %d under the %v objects is not valid", e.SD, e.Object)
}
