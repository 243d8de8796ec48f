// SPDX-License-Identifier: Apache-2.0

package hmc

import "sync/atomic"

const (
	pdValid    = 1 << 0
	partSelect = 1 << 15 // PMSDPARTSEL, set for the protocol engine's part of the HMC
)

// descriptors is what the device knows of the page descriptors of a segment.
// It begins with the first PFHMC_PDINV, which the driver writes before it
// programs the segment, and ends when the segment is cleared.
type descriptors struct {
	// kept are the copies in use; 0 is none, as a valid one has its valid bit.
	// Walks add to them beside each other.
	kept [pdsPerSegment]atomic.Uint64
	// told are those that PFHMC_PDINV was written for, and word what was in
	// memory then, or when the segment was programmed. Both are the cache's to
	// change with mu held.
	told [pdsPerSegment]bool
	word [pdsPerSegment]uint64 // or unread
}

// unread stands for a word that the device could not reach when it was told of
// it: any will do.
const unread = ^uint64(0)

// descriptors returns what is known of segment i, if only just now.
func (h *Cache) descriptors(i uint32) *descriptors {
	d := h.pds[i]
	if d == nil {
		d = &descriptors{}
		h.pds[i] = d
	}
	return d
}

// begin makes the descriptors those of the page at addr: none is kept, and
// those that the driver told of are told of as they are now.
func (d *descriptors) begin(mem Memory, addr uint64) {
	var page [8 * pdsPerSegment]byte
	err := mem.Read(addr, page[:]) // of an error a walk will tell
	for k := range d.word {
		d.kept[k].Store(0)
		if d.word[k] = word(page[:], 8*k); err != nil {
			d.word[k] = unread
		}
	}
}

// untold tells that word is in memory as descriptor pd and the driver has not
// written PFHMC_PDINV since it is.
func (d *descriptors) untold(pd uint32, word uint64) bool {
	return !d.told[pd] || d.word[pd] != word && d.word[pd] != unread
}

// invalidate is a write of PFHMC_PDINV. The driver sends it also for
// segments it has not programmed yet.
func (h *Cache) invalidate(v uint32) {
	if v&partSelect == 0 {
		return // the LAN part, which this family does not have
	}
	sd, pd := v&(maxSegments-1), v>>16&(pdsPerSegment-1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.committed {
		return // a driver tidies up after a reset that has ended all of it
	}
	if !h.covers(sd) {
		h.emit(PDINVOutsideFPM{SD: sd, PD: pd, End: h.end})
		return
	}
	s := h.sds[sd]
	switch {
	case s == nil:
		h.descriptors(sd).told[pd] = true
		return
	case s.direct:
		h.emit(PDINVNeedless{SD: sd, PD: pd, Direct: true})
		return
	}
	d, at := s.pds, s.addr+8*uint64(pd)
	now, err := h.mem.Load64(at)
	kept := d.kept[pd].Swap(0)
	if kept != 0 {
		h.backing.release(kept&^pageMask, owner{sd, int(pd)})
	}
	switch {
	case err != nil: // a walk will tell
		now = unread
	case d.told[pd] && d.word[pd] == now && (kept == 0 || kept == now):
		h.emit(PDINVNeedless{SD: sd, PD: pd, At: at, Entry: now})
	}
	d.told[pd], d.word[pd] = true, now
}

// fresh looks at a page descriptor that the device begins to use. The caller
// holds mu, shared at least, so that no PFHMC_PDINV comes between.
func (h *Cache) fresh(w *Walk) {
	if w.Untold {
		h.emit(PDUntold{SD: w.SD, PD: w.PD, At: w.PDAt, Entry: w.PDEntry, Object: w.Object, Index: w.Index})
	}
	if w.PDEntry&pageMask != pdValid {
		h.emit(PDMalformed{SD: w.SD, PD: w.PD, At: w.PDAt, Entry: w.PDEntry})
	}
	h.claimPage(w.PDEntry&^pageMask, owner{w.SD, int(w.PD)})
}
