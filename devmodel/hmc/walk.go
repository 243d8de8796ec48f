// SPDX-License-Identifier: Apache-2.0

package hmc

import (
	"errors"
	"fmt"
)

// ErrAccess is what every failed walk wraps.
var ErrAccess = errors.New("HMC access failed")

// fault says at which step a walk failed. The numbers go to
// PFHMC_ERRORINFO.HMC_ERROR_TYPE and are this model's own.
type fault uint8

const (
	faultNone fault = iota
	faultIndex
	faultSD
	faultPD
	faultRead
)

func (f fault) String() string {
	return [...]string{"no error", "object index beyond the committed count", "segment descriptor not valid",
		"page descriptor not valid", "page descriptor unreadable"}[f]
}

// Walk is one translation from an object to guest memory, with every word
// that took part in it.
type Walk struct {
	Object  Object
	Index   uint32
	FPM     uint64
	SD      uint32
	Direct  bool
	SDAddr  uint64 // address in the segment descriptor
	PD      uint32 // paged segments only, as are the next three
	PDAt    uint64 // guest address of the page descriptor
	PDEntry uint64 // the copy in use
	Kept    bool   // the copy was kept from an earlier walk
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
	return s + fmt.Sprintf(" paged %#x, PD %d at %#x = %#x%s -> %#x", w.SDAddr, w.PD, w.PDAt, w.PDEntry, kept, w.Address)
}

// walk translates. keep says whether the device itself uses the result: then
// a page descriptor read is kept, and a kept one compared with memory.
func (h *Cache) walk(o Object, index uint32, keep bool) (Walk, fault) {
	w := Walk{Object: o, Index: index}
	e := h.layout[o]
	if index >= e.count {
		return w, faultIndex
	}
	w.FPM = e.base + uint64(index)<<e.log2
	w.SD = uint32(w.FPM >> segmentShift)
	s := h.sds[w.SD]
	if s == nil {
		return w, faultSD
	}
	w.Direct, w.SDAddr = s.direct, s.addr
	if s.direct {
		w.Address = s.addr + w.FPM&(1<<segmentShift-1)
		return w, faultNone
	}
	w.PD = uint32(w.FPM>>12) & (pdsPerSegment - 1)
	w.PDAt = s.addr + 8*uint64(w.PD)
	inMemory, err := h.mem.Load64(w.PDAt)
	w.PDEntry, w.Kept = s.pds[w.PD]
	if w.Kept {
		if keep && err == nil && inMemory != w.PDEntry {
			h.emit(StalePD{SD: w.SD, PD: w.PD, Kept: w.PDEntry, Memory: inMemory, Object: o, Index: index})
		}
	} else {
		if err != nil {
			return w, faultRead
		}
		w.PDEntry = inMemory
		if w.PDEntry&pdValid == 0 {
			return w, faultPD
		}
		if keep {
			s.pds[w.PD] = w.PDEntry
		}
	}
	w.Address = w.PDEntry&^pageMask + w.FPM&pageMask
	return w, faultNone
}

// Resolve returns the guest address of object index of type o, as the device
// itself uses it: a failure is recorded in PFHMC_ERRORINFO and ERRORDATA and
// raises HMC_ERR. Errors wrap ErrAccess.
func (h *Cache) Resolve(o Object, index uint32) (uint64, error) {
	w, f := h.walk(o, index, true)
	if f == faultNone {
		return w.Address, nil
	}
	if h.errInfo.Len() > 0 {
		h.errInfo.Set(0, 1<<31|uint32(o)<<16|uint32(f)<<8|uint32(h.pf)&0x1F)
		data := index
		switch f {
		case faultSD:
			data = w.SD
		case faultPD, faultRead:
			data = w.SD<<9 | w.PD
		}
		h.errData.Set(0, data&(1<<30-1))
	}
	h.emit(AccessFailed{Walk: w, Why: f.String()})
	h.oicr(OICRHMCErr)
	return 0, fmt.Errorf("%v %d: %v: %w", o, index, f, ErrAccess)
}

// Explain is Resolve for a person: the same walk, with nothing kept,
// recorded or raised.
func (h *Cache) Explain(o Object, index uint32) (Walk, error) {
	if o >= NumObjects {
		return Walk{}, fmt.Errorf("%v: %w", o, ErrParameter)
	}
	w, f := h.walk(o, index, false)
	if f != faultNone {
		return w, fmt.Errorf("%v %d: %v: %w", o, index, f, ErrAccess)
	}
	return w, nil
}

// PBLE reads page buffer list entry index: the guest address of a page.
func (h *Cache) PBLE(index uint32) (uint64, error) {
	at, err := h.Resolve(PBLE, index)
	if err != nil {
		return 0, err
	}
	v, err := h.mem.Load64(at)
	if err != nil {
		return 0, fmt.Errorf("PBLE %d: %w", index, err)
	}
	return v, nil
}

// AccessFailed is the event of a walk that did not end in guest memory.
type AccessFailed struct {
	Walk Walk
	Why  string
}

func (e AccessFailed) String() string {
	return fmt.Sprintf("HMC_ERR: %v %d at FPM %#x (SD %d, PD %d): %s", e.Walk.Object, e.Walk.Index, e.Walk.FPM, e.Walk.SD, e.Walk.PD, e.Why)
}

// StalePD is the event of using a kept page descriptor whose word in memory
// has changed since, with no PFHMC_PDINV between.
type StalePD struct {
	SD, PD       uint32
	Kept, Memory uint64
	Object       Object
	Index        uint32
}

func (e StalePD) String() string {
	return fmt.Sprintf("PD %d of SD %d is %#x in memory, %#x in use: no PFHMC_PDINV in between (%v %d)",
		e.PD, e.SD, e.Memory, e.Kept, e.Object, e.Index)
}

// PBLEs reads consecutive page buffer list entries from index on into dst, as
// many as lie in one page of their memory; it returns how many. Errors are
// those of PBLE.
func (h *Cache) PBLEs(index uint32, dst []uint64) (int, error) {
	v, err := h.PBLE(index)
	if err != nil {
		return 0, err
	}
	dst[0] = v
	return 1, nil
}
