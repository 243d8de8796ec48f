// SPDX-License-Identifier: Apache-2.0

package mr

import "fmt"

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

// STagFree is the event of using an STag that is free, or allocated without
// memory.
type STagFree struct {
	Use
	Index uint32
	State State
}

func (e STagFree) String() string { return fmt.Sprintf("%v: index %d is %v", e.Use, e.Index, e.State) }

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

// PBLEUnmapped is the event of a PBLE that has no memory.
type PBLEUnmapped struct {
	STag  uint32
	Index uint32
	Err   error
}

func (e PBLEUnmapped) String() string {
	return fmt.Sprintf("STag %#08x: PBLE %d: %v", e.STag, e.Index, e.Err)
}

// PBLEMisaligned is the event of a PBLE that is no multiple of the region's
// page size.
type PBLEMisaligned struct {
	STag     uint32
	Page     uint64 // of the region, from 0
	Value    uint64
	PageSize uint64
}

func (e PBLEMisaligned) String() string {
	return fmt.Sprintf("STag %#08x: PBLE of page %d is %#x, pages have %#x bytes", e.STag, e.Page, e.Value, e.PageSize)
}
