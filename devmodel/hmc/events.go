// SPDX-License-Identifier: Apache-2.0

package hmc

import "fmt"

// AccessFailed is the event of a walk that did not end in guest memory.
type AccessFailed struct {
	Walk  Walk
	Fault Fault
}

func (e AccessFailed) String() string {
	w := &e.Walk
	switch e.Fault {
	case FaultIndex:
		return fmt.Sprintf("HMC_ERR: %v %d, there are %d", w.Object, w.Index, w.Count)
	case FaultSD:
		return fmt.Sprintf("HMC_ERR: %v %d at FPM %#x: SD %d is not valid", w.Object, w.Index, w.FPM, w.SD)
	case FaultPD:
		return fmt.Sprintf("HMC_ERR: %v %d: PD %d of SD %d at %#x is %#x, not valid", w.Object, w.Index, w.PD, w.SD, w.PDAt, w.PDNow)
	}
	return fmt.Sprintf("HMC_ERR: %v %d: PD %d of SD %d at %#x: no memory there", w.Object, w.Index, w.PD, w.SD, w.PDAt)
}

// WalkLines is the way as far as it went.
func (e AccessFailed) WalkLines() []string {
	w := e.Walk
	if e.Fault == FaultIndex {
		return nil
	}
	lines := []string{fmt.Sprintf("%v %d is at FPM %#x: SD %d", w.Object, w.Index, w.FPM, w.SD)}
	if e.Fault == FaultSD {
		return append(lines, fmt.Sprintf("SD %d is not valid", w.SD))
	}
	lines = append(lines, fmt.Sprintf("SD %d is paged, its page descriptors are at %#x", w.SD, w.SDAddr))
	if e.Fault == FaultRead {
		return append(lines, fmt.Sprintf("PD %d at %#x cannot be read", w.PD, w.PDAt))
	}
	return append(lines, fmt.Sprintf("PD %d at %#x is %#x", w.PD, w.PDAt, w.PDNow))
}

// StalePD is the event of using a kept page descriptor whose word in memory
// has changed since, with no PFHMC_PDINV between.
type StalePD struct {
	SD, PD       uint32
	At           uint64 // guest address of the word
	Kept, Memory uint64
	Object       Object
	Index        uint32
}

func (e StalePD) String() string {
	return fmt.Sprintf("%v %d: PD %d of SD %d at %#x is %#x, no PFHMC_PDINV: %#x in use",
		e.Object, e.Index, e.PD, e.SD, e.At, e.Memory, e.Kept)
}

// PDUntold is the event of the first use of a page descriptor that has
// appeared, or changed, with no PFHMC_PDINV since.
type PDUntold struct {
	SD, PD uint32
	At     uint64 // guest address of the word
	Entry  uint64
	Object Object
	Index  uint32
}

func (e PDUntold) String() string {
	return fmt.Sprintf("%v %d: PD %d of SD %d at %#x is %#x, no PFHMC_PDINV since", e.Object, e.Index, e.PD, e.SD, e.At, e.Entry)
}

// PDMalformed is the event of using a page descriptor with bits set that no
// driver sets, as those of an address that is not a page's.
type PDMalformed struct {
	SD, PD uint32
	At     uint64 // guest address of the word
	Entry  uint64
}

func (e PDMalformed) String() string {
	return fmt.Sprintf("PD %d of SD %d at %#x is %#x: bits 11:1 are set", e.PD, e.SD, e.At, e.Entry)
}

// PDINVNeedless is the event of PFHMC_PDINV for a page descriptor that has
// not changed since the last time, or that a direct segment does not have.
type PDINVNeedless struct {
	SD, PD uint32
	Direct bool
	At     uint64 // guest address of the word
	Entry  uint64
}

func (e PDINVNeedless) String() string {
	if e.Direct {
		return fmt.Sprintf("PFHMC_PDINV for PD %d of SD %d, which is direct", e.PD, e.SD)
	}
	return fmt.Sprintf("PFHMC_PDINV for PD %d of SD %d, which still is %#x at %#x", e.PD, e.SD, e.Entry, e.At)
}

// PDINVOutsideFPM is the event of PFHMC_PDINV for a segment in which no
// committed object lies.
type PDINVOutsideFPM struct {
	SD, PD uint32
	End    uint64 // of the layout
}

func (e PDINVOutsideFPM) String() string {
	return fmt.Sprintf("PFHMC_PDINV for PD %d of SD %d: no object lies there, FPM ends at %#x", e.PD, e.SD, e.End)
}

// SDNotValid is the event of clearing a segment descriptor that is not valid.
type SDNotValid struct {
	SD   uint32
	Data uint64
}

func (e SDNotValid) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS clears SD %d with %#x, it is not valid", e.SD, e.Data)
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

// SDOutsideFPM is the event of programming a segment in which no committed
// object lies: behind the layout, or in a gap of it.
type SDOutsideFPM struct {
	SD   uint32
	Data uint64
	End  uint64 // of the layout
}

func (e SDOutsideFPM) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS programs SD %d with %#x: no object is there, FPM ends at %#x", e.SD, e.Data, e.End)
}

// SDMalformed is the event of a segment descriptor whose low bits are not
// what drivers write, as those of an address that is not a page's.
type SDMalformed struct {
	SD   uint32
	Data uint64
}

func (e SDMalformed) String() string {
	return fmt.Sprintf("UPDATE_PE_SDS programs SD %d with %#x: PMSDBPCOUNT is not 512", e.SD, e.Data)
}

// BackingShared is the event of guest memory that backs two things at once.
type BackingShared struct {
	SD      uint32
	PD      int // -1: all of a direct segment; -2: the page of page descriptors
	Address uint64
	Other   string // what uses it already
}

func (e BackingShared) String() string {
	return fmt.Sprintf("%v takes the memory at %#x, which %s has", owner{e.SD, e.PD}, e.Address, e.Other)
}

// StaticUnbacked is the event of SHMC_PAGES_ALLOCATED with a segment missing.
type StaticUnbacked struct {
	Object Object
	SD     uint32
}

func (e StaticUnbacked) String() string {
	return fmt.Sprintf("SHMC_PAGES_ALLOCATED, but SD %d under the %v objects is not valid", e.SD, e.Object)
}

// CommitRefused is the event of COMMIT_FPM_VAL for more than QUERY_FPM_VAL
// has offered.
type CommitRefused struct {
	Object     Object // NumObjects: the segments are too few for all of them
	Count, Max uint64 // objects, or FPM addresses
}

func (e CommitRefused) String() string {
	if e.Object == NumObjects {
		return fmt.Sprintf("COMMIT_FPM_VAL: the layout ends at FPM %#x, %#x was offered", e.Count, e.Max)
	}
	return fmt.Sprintf("COMMIT_FPM_VAL: %d objects of type %v, %d were offered", e.Count, e.Object, e.Max)
}
