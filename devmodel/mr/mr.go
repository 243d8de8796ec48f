// SPDX-License-Identifier: Apache-2.0

// Package mr is the table of STags: memory regions with their rights, and the
// translation from (STag, address, length) to guest memory.
//
// Contract and traps:
//   - An entry is immutable and hangs on an atomic pointer: translations run
//     on any goroutine beside changes of the table. Whoever removes an entry
//     must wait until translations that still hold it have ended (grace)
//     before telling the driver.
//   - The 24-bit index a driver sends carries random bits of its own on top
//     of the table index. They belong to the STag: all 32 bits must match.
//   - A length of 0 in a registration means all of memory. A length of 0 in
//     an access validates nothing, not even the STag.
//   - Page buffer list entries (PBLEs) are read from the guest at every
//     translation: they have no valid bit and no invalidation.
//   - Explain is the data path's own walk with a recorder.
package mr

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Access is a set of rights, in the bits of the ARIGHTS field
// (user.h:IRDMA_ACCESS_FLAGS_*).
type Access uint8

// Rights.
const (
	LocalRead Access = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	BindWindow
)

func (a Access) String() string {
	s := ""
	for i, name := range [...]string{"LOCAL_READ", "LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE", "BIND_WINDOW"} {
		if a>>i&1 != 0 {
			if s != "" {
				s += "|"
			}
			s += name
		}
	}
	if s == "" {
		return "none"
	}
	return s
}

// State of an entry.
type State uint8

// States. A free entry is an absent one.
const (
	Free      State = iota
	Allocated       // ALLOC_STAG done, no memory registered yet
	Valid
)

func (s State) String() string { return [...]string{"FREE", "ALLOCATED", "VALID"}[s] }

// Level is how an entry names its memory, in the bits of LPBLSIZE.
type Level uint8

// Levels. 2 is not used by any driver.
const (
	Contiguous Level = 0 // one address
	Flat       Level = 1 // a list of PBLEs
	TwoLevel   Level = 3 // a list of indices of lists of 512 PBLEs
)

func (l Level) String() string {
	switch l {
	case Contiguous:
		return "contiguous"
	case Flat:
		return "flat"
	case TwoLevel:
		return "two-level"
	}
	return fmt.Sprintf("LPBLSIZE %d", uint8(l))
}

// leafEntries is the number of PBLEs in every leaf of a two-level list but
// the last (pble.c:get_lvl2_pble).
const leafEntries = 512

// pageShifts are the page sizes of HPAGESIZE.
var pageShifts = [...]uint8{12, 21, 30}

// PageShift is the log2 of the page size of a HPAGESIZE code; ok is false
// for a code without one.
func PageShift(code uint8) (shift uint8, ok bool) {
	if int(code) >= len(pageShifts) {
		return 0, false
	}
	return pageShifts[code], true
}

// Region is what a driver registers.
type Region struct {
	Index     uint32 // 24 bits, the driver's own bits included
	Key       uint8
	PD        uint32
	Length    uint64 // bytes; 0: all of memory
	Start     uint64 // virtual address of the first byte, or its offset in the first page
	VABased   bool   // accesses name virtual addresses; otherwise offsets from the first byte
	Level     Level
	PageShift uint8
	Rights    Access
	Remote    bool   // REMACCENABLED
	Base      uint64 // Contiguous: guest address of the first page
	First     uint32 // otherwise: index of the first PBLE
}

// STag is the 32-bit name of the region.
func (r *Region) STag() uint32 { return r.Index<<8 | uint32(r.Key) }

// offset of the region's first byte in its first page.
func (r *Region) offset() uint64 { return r.Start & (1<<r.PageShift - 1) }

// pages is the number of PBLEs the region needs (Flat and TwoLevel).
func (r *Region) pages() uint64 {
	return (r.offset() + r.Length + 1<<r.PageShift - 1) >> r.PageShift
}

// listed is the number of consecutive PBLEs that First starts.
func (r *Region) listed() uint64 {
	switch r.Level {
	case Flat:
		return r.pages()
	case TwoLevel:
		return (r.pages() + leafEntries - 1) / leafEntries
	}
	return 0
}

// Entry is one STag. It never changes once in the table.
type Entry struct {
	Region
	State State
}

// Errors of table operations. The first two are the driver's parameters,
// ErrState is an object in the wrong state.
var (
	ErrParameter = errors.New("parameter out of range")
	ErrState     = errors.New("STag in wrong state")
)

// Config of a Table.
type Config struct {
	HMC  *hmc.Cache
	Emit func(any) // may be nil
}

// Table holds the STags of one function. Translations may run on any
// goroutine; changes of the table are made under the control lock.
type Table struct {
	hmc  *hmc.Cache
	emit func(any)

	// drvBits is the number of the driver's own bits on top of an index.
	drvBits atomic.Uint32
	entries []atomic.Pointer[Entry]
	count   atomic.Int64
}

// New makes an empty table.
func New(c Config) *Table {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	t := &Table{hmc: c.HMC, emit: c.Emit, entries: make([]atomic.Pointer[Entry], c.HMC.Max(hmc.MR))}
	t.drvBits.Store(driverBits(0))
	return t
}

// driverBits is the number of random bits a driver with count regions puts
// on top of the table index in a 24-bit STag index
// (hw.c:irdma_initialize_hw_rsrc).
func driverBits(count uint32) uint32 {
	order := 14
	if count > 1 {
		order = max(order, bits.Len32(count-1))
	}
	return uint32(max(24-order, 0))
}

// slot is the table index in a 24-bit STag index.
func (t *Table) slot(index uint32) uint32 {
	return index & (1<<(24-t.drvBits.Load()) - 1)
}

// Reset frees every STag. Running translations may still hold one: the caller
// waits for grace.
func (t *Table) Reset(reg.Domain) {
	for i := range t.entries {
		if t.count.Load() == 0 {
			return // a driver may reset again and again
		}
		if t.entries[i].Load() != nil { // few are: a load is far cheaper
			t.entries[i].Store(nil)
			t.count.Add(-1)
		}
	}
}

// Len is the number of STags that are not free.
func (t *Table) Len() int { return int(t.count.Load()) }

// Allocate makes r.Index ALLOCATED: reserved for a later fast registration
// (ALLOC_STAG). Errors wrap ErrParameter, ErrState or hmc.ErrAccess.
func (t *Table) Allocate(r Region) error { return t.insert(r, Allocated) }

// Register makes r a VALID region (REG_MR). Errors wrap ErrParameter,
// ErrState or hmc.ErrAccess.
func (t *Table) Register(r Region) error { return t.insert(r, Valid) }

func (t *Table) insert(r Region, s State) error {
	if !t.hmc.Backed() {
		return fmt.Errorf("STag before SHMC_PAGES_ALLOCATED: %w", ErrState)
	}
	if err := t.checkRegion(&r); err != nil {
		return err
	}
	t.drvBits.Store(driverBits(t.hmc.Count(hmc.MR)))
	i := t.slot(r.Index)
	switch {
	case i == 0:
		return fmt.Errorf("STag index 0: %w", ErrParameter)
	case i >= t.hmc.Count(hmc.MR) || i >= uint32(len(t.entries)):
		return fmt.Errorf("STag index %d, the function has %d: %w", i, t.hmc.Count(hmc.MR), ErrParameter)
	}
	if _, err := t.hmc.Resolve(hmc.MR, i); err != nil {
		return err
	}
	if !t.entries[i].CompareAndSwap(nil, &Entry{Region: r, State: s}) {
		return fmt.Errorf("STag index %d is not free: %w", i, ErrState)
	}
	t.count.Add(1)
	return nil
}

func (t *Table) checkRegion(r *Region) error {
	if r.VABased && r.Length > 0 && r.Start+(r.Length-1) < r.Start {
		return fmt.Errorf("region %#x+%#x wraps: %w", r.Start, r.Length, ErrParameter)
	}
	switch r.Level {
	case Contiguous:
		return nil
	case Flat, TwoLevel:
	default:
		return fmt.Errorf("LPBLSIZE %d: %w", r.Level, ErrParameter)
	}
	entries := r.listed()
	if r.Length == 0 {
		return fmt.Errorf("all of memory by a page list: %w", ErrParameter)
	}
	if n := uint64(t.hmc.Count(hmc.PBLE)); uint64(r.First) >= n || entries > n-uint64(r.First) {
		t.emit(PBLERange{STag: r.STag(), Index: uint64(r.First), Needed: entries, Count: uint32(n)})
		return fmt.Errorf("%d PBLEs from %d on, there are %d: %w", entries, r.First, n, ErrParameter)
	}
	return nil
}

// Deallocate frees an STag (DEALLOC_STAG): no later translation finds it. The
// caller waits for grace before it tells the driver. Errors wrap ErrState.
func (t *Table) Deallocate(index, pd uint32) error {
	i := t.slot(index)
	if i >= uint32(len(t.entries)) {
		return fmt.Errorf("STag index %d is free: %w", i, ErrState)
	}
	e := t.entries[i].Load()
	switch {
	case e == nil:
		return fmt.Errorf("STag index %d is free: %w", i, ErrState)
	case e.Index != index:
		return fmt.Errorf("STag index %#x, registered as %#x: %w", index, e.Index, ErrState)
	case e.PD != pd:
		return fmt.Errorf("STag index %d is of PD %d, not %d: %w", i, e.PD, pd, ErrState)
	}
	if !t.entries[i].CompareAndSwap(e, nil) {
		return fmt.Errorf("STag index %d changed meanwhile: %w", i, ErrState)
	}
	t.count.Add(-1)
	return nil
}

// Entries lists the STags that are not free in order of table index.
func (t *Table) Entries() []Entry {
	out := []Entry{}
	for i := range t.entries {
		if e := t.entries[i].Load(); e != nil {
			out = append(out, *e)
		}
	}
	return out
}

// Using returns an STag whose table entry, or whose page list (of two levels:
// the upper one), lies in segment sd of the HMC: clearing it breaks the STag.
func (t *Table) Using(sd uint32) (stag uint32, ok bool) {
	firstMR, endMR := t.hmc.Within(hmc.MR, sd)
	firstPBLE, endPBLE := t.hmc.Within(hmc.PBLE, sd)
	if firstMR == endMR && firstPBLE == endPBLE {
		return 0, false
	}
	for i := range t.entries {
		e := t.entries[i].Load()
		if e == nil {
			continue
		}
		first := uint64(e.First)
		if uint32(i) >= firstMR && uint32(i) < endMR || first < uint64(endPBLE) && first+e.listed() > uint64(firstPBLE) && e.listed() > 0 {
			return e.STag(), true
		}
	}
	return 0, false
}
