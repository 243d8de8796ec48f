// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"errors"
	"fmt"
)

// ErrAccess is what every failed walk wraps.
var ErrAccess = errors.New("HMC access failed")

// Fault says at which step a walk failed. The numbers go to
// PFHMC_ERRORINFO.HMC_ERROR_TYPE and are this model's own.
type Fault uint8

// Faults, in the order in which a walk can meet them.
const (
	FaultNone Fault = iota
	FaultIndex
	FaultSD
	FaultPD
	FaultRead
)

func (f Fault) String() string {
	return [...]string{"no error", "object index beyond the committed count", "segment descriptor not valid",
		"page descriptor not valid", "page descriptor unreadable"}[f]
}

// Walk is one translation from an object to guest memory, with every word
// that took part in it.
type Walk struct {
	Object  Object
	Index   uint32
	Count   uint32 // committed objects of the type
	FPM     uint64
	SD      uint32
	Direct  bool
	SDAddr  uint64 // address in the segment descriptor
	PD      uint32 // paged segments only, as are the next three
	PDAt    uint64 // guest address of the page descriptor
	PDEntry uint64 // the copy in use
	Kept    bool   // the copy was kept from an earlier walk
	Stale   bool   // and differs from the word in memory now
	PDNow   uint64 // that word
	Untold  bool   // PFHMC_PDINV was not written since the word is what it is
	Address uint64 // guest address of the object
}

func (w Walk) String() string {
	s := fmt.Sprintf("%v %d: FPM %#x, SD %d", w.Object, w.Index, w.FPM, w.SD)
	if w.Direct {
		return s + fmt.Sprintf(" direct %#x -> %#x", w.SDAddr, w.Address)
	}
	kept := ""
	if w.Kept {
		kept = " (kept)"
	}
	switch {
	case w.Stale:
		kept = fmt.Sprintf(" (kept, stale: memory has %#x)", w.PDNow)
	case w.Untold:
		kept += " (no PFHMC_PDINV since)"
	}
	return s + fmt.Sprintf(" paged %#x, PD %d at %#x = %#x%s -> %#x", w.SDAddr, w.PD, w.PDAt, w.PDEntry, kept, w.Address)
}

// walk translates. keep says whether the device itself uses the result: then
// a page descriptor read is kept. The caller holds mu, shared at least.
func (h *Cache) walk(o Object, index uint32, keep bool) (Walk, Fault) {
	e := &h.layout[o]
	w := Walk{Object: o, Index: index, Count: e.count}
	if index >= e.count {
		return w, FaultIndex
	}
	w.FPM = e.base + uint64(index)<<e.log2
	w.SD = uint32(w.FPM >> segmentShift)
	s := h.sds[w.SD]
	if s == nil {
		return w, FaultSD
	}
	w.Direct, w.SDAddr = s.direct, s.addr
	if s.direct {
		w.Address = s.addr + w.FPM&(1<<segmentShift-1)
		return w, FaultNone
	}
	w.PD = uint32(w.FPM>>12) & (pdsPerSegment - 1)
	w.PDAt = s.addr + 8*uint64(w.PD)
	kept := &s.pds.kept[w.PD]
	inMemory, err := h.mem.Load64(w.PDAt)
	w.Untold = err == nil && s.pds.untold(w.PD, inMemory)
	if err == nil && inMemory&pdValid != 0 && keep && kept.Load() == 0 && kept.CompareAndSwap(0, inMemory) {
		w.PDEntry, w.PDNow = inMemory, inMemory
		h.fresh(&w)
	} else if w.PDEntry = kept.Load(); w.PDEntry != 0 {
		w.Kept, w.PDNow = true, inMemory
		w.Stale = err == nil && inMemory != w.PDEntry
	} else {
		w.PDEntry, w.PDNow = inMemory, inMemory
		if err != nil {
			return w, FaultRead
		}
		if inMemory&pdValid == 0 {
			return w, FaultPD
		}
	}
	w.Address = w.PDEntry&^pageMask + w.FPM&pageMask
	return w, FaultNone
}

// report tells of a walk of the device itself what is wrong with it: a
// failure is recorded in PFHMC_ERRORINFO and ERRORDATA and raises HMC_ERR.
func (h *Cache) report(w *Walk, f Fault) error {
	if w.Stale {
		h.emit(StalePD{SD: w.SD, PD: w.PD, At: w.PDAt, Kept: w.PDEntry, Memory: w.PDNow, Object: w.Object, Index: w.Index})
	}
	if f == FaultNone {
		return nil
	}
	h.emit(AccessFailed{Walk: *w, Fault: f})
	h.record(w, f)
	return failed(w, f)
}

// record leaves a failure to the driver, before a reset clears it or not at all.
func (h *Cache) record(w *Walk, f Fault) {
	h.mu.RLock() // Reset waits for it
	defer h.mu.RUnlock()
	if h.late() {
		return
	}
	if h.errInfo.Len() > 0 {
		h.errInfo.Set(0, 1<<31|uint32(w.Object)<<16|uint32(f)<<8|uint32(h.pf)&0x1F)
		data := w.Index
		switch f {
		case FaultSD:
			data = w.SD
		case FaultPD, FaultRead:
			data = w.SD<<9 | w.PD
		}
		h.errData.Set(0, data&(1<<30-1))
	}
	h.oicr(OICRHMCErr)
}

// failed is the error of a failed walk.
func failed(w *Walk, f Fault) error {
	return fmt.Errorf("%v %d: %v: %w", w.Object, w.Index, f, ErrAccess)
}

// Resolve returns the guest address of object index of type o, as the device
// itself uses it: a failure is recorded in PFHMC_ERRORINFO and ERRORDATA and
// raises HMC_ERR. Errors wrap ErrAccess.
func (h *Cache) Resolve(o Object, index uint32) (uint64, error) {
	h.mu.RLock()
	w, f := h.walk(o, index, true)
	h.mu.RUnlock()
	if f != FaultNone || w.Stale {
		if err := h.report(&w, f); err != nil {
			return 0, err
		}
	}
	return w.Address, nil
}

// Explain is Resolve for a person: the same walk, with nothing kept,
// recorded or raised.
func (h *Cache) Explain(o Object, index uint32) (Walk, error) {
	if o >= NumObjects {
		return Walk{}, fmt.Errorf("%v: %w", o, ErrParameter)
	}
	h.mu.RLock()
	w, f := h.walk(o, index, false)
	h.mu.RUnlock()
	if f != FaultNone {
		return w, failed(&w, f)
	}
	return w, nil
}
