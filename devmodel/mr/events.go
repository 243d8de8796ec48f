// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Use is an access that was refused: what every event about one tells.
type Use struct {
	STag   uint32
	QP, PD uint32 // of the QP that asked
	TO     uint64
	Len    uint64
	Need   Access
	Remote bool // asked by the peer
	Kernel bool // the QP is privileged: a kernel's own
}

func (u Use) String() string {
	who := "local"
	if u.Remote {
		who = "remote"
	}
	return fmt.Sprintf("%s access (%v) of QP %d, PD %d, to STag %#08x, %#x+%#x", who, u.Need, u.QP, u.PD, u.STag, u.TO, u.Len)
}

// STagFree is the event of using an STag that is free, and was not in use
// before as far as the device remembers.
type STagFree struct {
	Use
	Index uint32
}

func (e STagFree) String() string { return fmt.Sprintf("%v: index %d is free", e.Use, e.Index) }

// STagEnded is the event of using an STag after it was deallocated.
type STagEnded struct {
	Use
	Last Ended
}

func (e STagEnded) String() string { return fmt.Sprintf("%v: ended by %v", e.Use, e.Last.By) }

// STagInvalid is the event of using an STag that has no memory: nothing was
// registered or bound, or it was invalidated.
type STagInvalid struct {
	Use
	Kind Kind
	By   Origin // who left it so
}

func (e STagInvalid) String() string {
	return fmt.Sprintf("%v: the %v has no memory since %v", e.Use, e.Kind, e.By)
}

// STagQP is the event of using a window that belongs to another QP.
type STagQP struct {
	Use
	Owner uint32
}

func (e STagQP) String() string { return fmt.Sprintf("%v: the window is of QP %d", e.Use, e.Owner) }

// STagKey is the event of using an STag whose key, or whose driver bits of
// the index, are not those registered.
type STagKey struct {
	Use
	Valid uint32 // the STag that is valid at that index
}

func (e STagKey) String() string { return fmt.Sprintf("%v: valid is %#08x", e.Use, e.Valid) }

// STagPD is the event of using an STag from another protection domain.
type STagPD struct {
	Use
	Owner uint32
}

func (e STagPD) String() string { return fmt.Sprintf("%v: the STag is of PD %d", e.Use, e.Owner) }

// STagBounds is the event of an access outside its region.
type STagBounds struct {
	Use
	Start, Length uint64 // of the region; length 0: all of memory
}

func (e STagBounds) String() string {
	return fmt.Sprintf("%v: the region is %#x+%#x", e.Use, e.Start, e.Length)
}

// STagRight is the event of an access its region does not allow.
type STagRight struct {
	Use
	Rights        Access
	RemoteEnabled bool
}

func (e STagRight) String() string {
	remote := ""
	if !e.RemoteEnabled {
		remote = ", no remote access"
	}
	return fmt.Sprintf("%v: rights are %v%s", e.Use, e.Rights, remote)
}

// STagZero is the event of using the reserved STag 0 without the right to.
type STagZero struct{ Use }

func (e STagZero) String() string { return fmt.Sprintf("%v: STag 0 needs PRIVEN", e.Use) }

// PBLERange is the event of a page list that reaches beyond the committed
// PBLEs.
type PBLERange struct {
	STag   uint32
	Index  uint64 // of the first PBLE wanted
	Needed uint64
	Count  uint32 // PBLEs committed
}

func (e PBLERange) String() string {
	return fmt.Sprintf("STag %#08x: %d PBLEs from %#x on, there are %d", e.STag, e.Needed, e.Index, e.Count)
}

// PBLECrosses is the event of a page list, or of a leaf of one, that lies in
// more than one segment of the HMC. The driver's allocator never crosses one
// (utils.c:irdma_prm_get_pbles).
type PBLECrosses struct {
	STag      uint32
	First, N  uint32
	SD, EndSD uint32
	By        Origin
}

func (e PBLECrosses) String() string {
	return fmt.Sprintf("STag %#08x (%v): %d PBLEs from %d on lie in SDs %d to %d", e.STag, e.By, e.N, e.First, e.SD, e.EndSD)
}

// PBLEUnmapped is the event of a PBLE that has no memory.
type PBLEUnmapped struct {
	STag  uint32
	Index uint32
	Err   error
}

func (e PBLEUnmapped) String() string {
	return fmt.Sprintf("STag %#08x: PBLE %d: %v", e.STag, e.Index, e.Err)
}

// PBLEAt is a page buffer list entry that cannot be what it stands for, the
// first of its kind in a region.
type PBLEAt struct {
	STag     uint32
	Page     uint64 // of the region, from 0
	Pages    uint64 // of the region
	Level    Level
	Root     uint32   // of two levels: the PBLE that names the list of Index
	Index    uint32   // of the PBLE
	At       uint64   // guest address it was read from
	HMC      hmc.Walk // how that was found
	Value    uint64
	PageSize uint64
	Count    uint64 // of the kind, as far as the list was looked at
	By       Origin // who registered the region
}

func (p PBLEAt) String() string {
	return fmt.Sprintf("STag %#08x (%v), page %d: PBLE %d at %#x is %#x", p.STag, p.By, p.Page, p.Index, p.At, p.Value)
}

// WalkLines is the way from the STag to the entry.
func (p PBLEAt) WalkLines() []string {
	lines := []string{fmt.Sprintf("STag %#08x: %v, %d pages of %#x, %v list", p.STag, p.By, p.Pages, p.PageSize, p.Level)}
	if p.Level == TwoLevel {
		lines = append(lines, fmt.Sprintf("root: PBLE %d is %d", p.Root, uint64(p.Index)-p.Page%leafEntries))
	}
	w := &p.HMC
	lines = append(lines, fmt.Sprintf("page %d: PBLE %d is at FPM %#x: SD %d", p.Page, p.Index, w.FPM, w.SD))
	if w.Direct {
		lines = append(lines, fmt.Sprintf("SD %d is direct, at %#x", w.SD, w.SDAddr))
	} else {
		lines = append(lines, fmt.Sprintf("SD %d is paged: PD %d at %#x is %#x", w.SD, w.PD, w.PDAt, w.PDEntry))
	}
	return append(lines, fmt.Sprintf("PBLE %d at %#x is %#x", p.Index, p.At, p.Value))
}

// PBLEZero is the event of a page without an address.
type PBLEZero struct{ PBLEAt }

func (e PBLEZero) String() string {
	return fmt.Sprintf("%v; %d of %d are", e.PBLEAt, e.Count, e.Pages)
}

// PBLENotAddress is the event of a page's PBLE with the looks of the index of
// one.
type PBLENotAddress struct {
	PBLEAt
	Leaf uint64 // what that one holds, if it has the looks of an address
}

func (e PBLENotAddress) String() string {
	s := fmt.Sprintf("%v, no address", e.PBLEAt)
	if e.Leaf != 0 {
		s += fmt.Sprintf(" but the index of one, %#x: the root of two levels, announced as one level of %d pages", e.Leaf, e.Pages)
	}
	return s
}

// WalkLines goes on to what the entry may be the index of.
func (e PBLENotAddress) WalkLines() []string {
	lines := e.PBLEAt.WalkLines()
	if e.Leaf != 0 {
		lines = append(lines, fmt.Sprintf("PBLE %d, if that is an index, is %#x", e.Value, e.Leaf))
	}
	return lines
}

// PBLEMisaligned is the event of a PBLE that is no multiple of the region's
// page size.
type PBLEMisaligned struct{ PBLEAt }

func (e PBLEMisaligned) String() string {
	return fmt.Sprintf("%v, pages have %#x bytes", e.PBLEAt, e.PageSize)
}

// PBLEChanged is the event of a page list that is not as it was registered.
type PBLEChanged struct {
	STag             uint32
	First            uint32 // PBLE
	Pages            uint64
	RegisteredBy, By Origin
}

func (e PBLEChanged) String() string {
	return fmt.Sprintf("STag %#08x: list of %d pages from PBLE %d on changed between %v and %v", e.STag, e.Pages, e.First, e.RegisteredBy, e.By)
}

// PBLEShared is the event of two live objects with the same PBLE.
type PBLEShared struct {
	Object, Other string // "STag 0x00000577", "QP 5"
	Index         uint32 // the first of those PBLEs, as far as known
	By, OtherBy   Origin
}

func (e PBLEShared) String() string {
	return fmt.Sprintf("%s (%v) has PBLE %d of the live %s (%v)", e.Object, e.By, e.Index, e.Other, e.OtherBy)
}

// STagBusy is the event of allocating or registering an STag that is not free.
type STagBusy struct {
	STag, Old uint32
	State     State // of the old one
	OldBy, By Origin
}

func (e STagBusy) String() string {
	return fmt.Sprintf("%v: STag %#08x over %v %#08x of %v", e.By, e.STag, e.State, e.Old, e.OldBy)
}

// STagIndex is the event of an STag with an index the function does not have.
type STagIndex struct {
	Index, Count uint32
	By           Origin
}

func (e STagIndex) String() string {
	return fmt.Sprintf("%v: table index %d, the function has 1 to %d", e.By, e.Index, int64(e.Count)-1)
}

// RegionFields is the event of a registration with words that do not go
// together.
type RegionFields struct {
	STag uint32
	Why  string
	By   Origin
}

func (e RegionFields) String() string { return fmt.Sprintf("STag %#08x, %v: %s", e.STag, e.By, e.Why) }

// DeallocFree is the event of deallocating an STag that is free.
type DeallocFree struct {
	Index, PD uint32
	Last      Ended // what was there, if anything is remembered
	By        Origin
}

func (e DeallocFree) String() string {
	s := fmt.Sprintf("%v: STag index %#x is free", e.By, e.Index)
	if e.Last.By.Op != "" {
		s += fmt.Sprintf(": %#08x ended by %v", e.Last.STag, e.Last.By)
	}
	return s
}

// DeallocWrong is the event of deallocating an STag as what it is not.
type DeallocWrong struct {
	STag      uint32
	Why       string
	OldBy, By Origin
}

func (e DeallocWrong) String() string {
	return fmt.Sprintf("%v: STag %#08x (%v) %s", e.By, e.STag, e.OldBy, e.Why)
}

// WindowsBound is the event of deallocating a region that has windows.
type WindowsBound struct {
	STag, Windows uint32
	By            Origin
}

func (e WindowsBound) String() string {
	return fmt.Sprintf("%v: STag %#08x has %d memory windows bound", e.By, e.STag, e.Windows)
}

// WindowsLeft is the event of destroying a QP that windows belong to.
type WindowsLeft struct {
	QP      uint32
	Windows int
	First   []uint32 // STags of the first few
	By      Origin
}

func (e WindowsLeft) String() string {
	return fmt.Sprintf("%v: QP %d has %d memory windows bound, STag %#08x first", e.By, e.QP, e.Windows, e.First[0])
}

// Refused is the event of a work request that changes an STag and was refused.
type Refused struct {
	By     Origin
	STag   uint32
	Parent uint32 // of a bind
	Code   Code
	Kernel bool // the QP is privileged: a kernel's own
	Remote bool // asked by the peer
}

func (e Refused) String() string {
	s := fmt.Sprintf("%v: STag %#08x", e.By, e.STag)
	if e.Parent != 0 {
		s += fmt.Sprintf(" to %#08x", e.Parent)
	}
	return fmt.Sprintf("%s: %v", s, e.Code)
}

// UnmapLiveMR is the event of memory of a live region being unmapped.
type UnmapLiveMR struct {
	STag       uint32
	IOVA, Size uint64 // what goes
	By         Origin // who registered the region
}

func (e UnmapLiveMR) String() string {
	return fmt.Sprintf("STag %#08x (%v) is live, its memory %#x+%#x is unmapped", e.STag, e.By, e.IOVA, e.Size)
}
