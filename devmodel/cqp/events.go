// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/event"
)

// Op is the event of a completed command.
type Op struct {
	Index  uint32 // of the WQE
	Opcode uint8
	Name   string
	WQE    [8]uint64
	Major  uint16
	Minor  uint16
	Value  uint32 // op_ret_val
}

func (o Op) String() string {
	return fmt.Sprintf("%s (WQE %d) -> %#04x/%#04x value %d", o.Name, o.Index, o.Major, o.Minor, o.Value)
}

// OpFailed is the event of a command that was refused, and why.
type OpFailed struct {
	Op   Op
	Err  error
	Told bool // an event before said what is wrong, or the failure is an answer
}

func (e OpFailed) String() string {
	return fmt.Sprintf("%s (WQE %d) fails with %#04x/%#04x: %v", e.Op.Name, e.Op.Index, e.Op.Major, e.Op.Minor, e.Err)
}

// UnknownOpcode is the event of an opcode that no driver header names.
type UnknownOpcode struct {
	Opcode uint8
	Index  uint32
}

func (e UnknownOpcode) String() string {
	return fmt.Sprintf("CQP opcode %#02x (WQE %d) is unknown", e.Opcode, e.Index)
}

// NotBuilt is the event of a command this model does not have.
type NotBuilt struct {
	Opcode uint8
	Name   string
	Index  uint32
}

func (e NotBuilt) String() string {
	return fmt.Sprintf("%s (WQE %d) is not built", e.Name, e.Index)
}

// ReservedBits is the event of a command with bits set that have no meaning.
type ReservedBits struct {
	Name  string
	Index uint32
	Bits  [8]uint64 // those without a meaning, by word
}

func (e ReservedBits) String() string {
	for i, b := range e.Bits {
		if b != 0 {
			return fmt.Sprintf("CQP WQE %d, %s: word %d has reserved bits %#x", e.Index, short(e.Name), i, b)
		}
	}
	return fmt.Sprintf("CQP WQE %d, %s: no reserved bits", e.Index, short(e.Name))
}

// short is an opcode's name without what all have in front.
func short(name string) string { return strings.TrimPrefix(name, "IRDMA_CQP_OP_") }

// Created is the event of a control QP coming to life.
type Created struct {
	Context, Ring uint64
	Size          uint32
}

func (e Created) String() string {
	return fmt.Sprintf("CQP created from context %#x: %d WQEs at %#x", e.Context, e.Size, e.Ring)
}

// CreateFailed is the event of a context no control QP can be made from.
type CreateFailed struct {
	Context uint64
	Err     error
}

func (e CreateFailed) String() string {
	return fmt.Sprintf("CQP not created from context %#x: %v", e.Context, e.Err)
}

// CreatedTwice is the event of a context written while a control QP lives.
type CreatedTwice struct{ Old, New uint64 }

func (e CreatedTwice) String() string {
	return fmt.Sprintf("PFPE_CCQPLOW: CQP created from %#x while that from %#x is live", e.New, e.Old)
}

// Destroyed is the event of the control QP's end.
type Destroyed struct{}

func (Destroyed) String() string { return "CQP destroyed" }

// Leaked is the event of objects that were still there at the control QP's
// end. A driver that is about to reset the function leaves them on purpose; one
// that leaves in order has ended its event queues and segments.
type Leaked struct {
	QPs, CQs, CEQs, AEQs, MRs, AHs, MulticastGroups, WorkNodes, SDs int

	// The first few of them.
	FirstQPs, FirstCQs, FirstSTags []uint32

	// Orderly: there were CEQs, an AEQ and segments, and the driver ended all
	// of them.
	Orderly bool
}

func (e Leaked) String() string {
	s := "CQP destroyed with"
	for _, o := range []struct {
		n    int
		name string
	}{{e.QPs, "QPs"}, {e.CQs, "CQs"}, {e.CEQs, "CEQs"}, {e.AEQs, "AEQs"}, {e.MRs, "STags"}, {e.AHs, "AHs"},
		{e.MulticastGroups, "multicast groups"}, {e.WorkNodes, "work scheduler nodes"}, {e.SDs, "SDs"}} {
		if o.n > 0 {
			s += fmt.Sprintf(" %d %s,", o.n, o.name)
		}
	}
	s = strings.TrimSuffix(s, ",") + " alive"
	if len(e.FirstQPs) > 0 {
		s += fmt.Sprintf("; QPs %d", e.FirstQPs)
	}
	if len(e.FirstCQs) > 0 {
		s += fmt.Sprintf("; CQs %d", e.FirstCQs)
	}
	if len(e.FirstSTags) > 0 {
		s += fmt.Sprintf("; STags %#08x", e.FirstSTags)
	}
	return s
}

// NotLive is the event of a doorbell without a control QP.
type NotLive struct{ Doorbell uint32 }

func (e NotLive) String() string {
	return fmt.Sprintf("PFPE_CQPDB %d without a CQP", e.Doorbell)
}

// BadDoorbell is the event of a doorbell past the ring's end.
type BadDoorbell struct{ Head, Size uint32 }

func (e BadDoorbell) String() string {
	return fmt.Sprintf("PFPE_CQPDB %d, the CQP has %d WQEs", e.Head, e.Size)
}

// BadPolarity is the event of a WQE covered by the doorbell whose valid bit
// is not that of the current pass.
type BadPolarity struct {
	Index  uint32
	Header uint64
}

func (e BadPolarity) String() string {
	return fmt.Sprintf("CQP WQE %d is covered by the doorbell but not valid: header %#016x", e.Index, e.Header)
}

// RingUnreadable is the event of a WQE outside guest memory.
type RingUnreadable struct {
	Index uint32
	Err   error
}

func (e RingUnreadable) String() string {
	return fmt.Sprintf("CQP WQE %d: %v", e.Index, e.Err)
}

// CompletionLost is the event of a completion its CQ could not take.
type CompletionLost struct{ Index uint32 }

func (e CompletionLost) String() string {
	return fmt.Sprintf("completion of CQP WQE %d lost: CQ %d has stopped", e.Index, event.CCQ)
}

// SDInUse is the event of clearing a segment under a live object.
type SDInUse struct {
	SD     uint32
	Object string
	ID     uint32
}

func (e SDInUse) String() string {
	if e.Object == "STag" {
		return fmt.Sprintf("UPDATE_PE_SDS clears SD %d under the live STag %#08x", e.SD, e.ID)
	}
	return fmt.Sprintf("UPDATE_PE_SDS clears SD %d under the live %s %d", e.SD, e.Object, e.ID)
}

// CQInUse is the event of destroying a CQ that a QP completes to.
type CQInUse struct{ CQ, QP uint32 }

func (e CQInUse) String() string {
	return fmt.Sprintf("DESTROY_CQ %d while QP %d uses it", e.CQ, e.QP)
}

// ARPReplaced is the event of an ARP entry overwritten with another address.
type ARPReplaced struct {
	Index    uint16
	Old, New [6]byte
	User     string // that sends by it; empty: none
}

func (e ARPReplaced) String() string {
	s := fmt.Sprintf("MANAGE_ARP puts %x over valid entry %d = %x", e.New, e.Index, e.Old)
	if e.User != "" {
		s += " of " + e.User
	}
	return s
}

// ObjectExists is the event of making an object under a number that is taken.
type ObjectExists struct {
	Object string
	ID     uint32
	Op     string
	Index  uint32 // of the WQE
}

func (e ObjectExists) String() string {
	return fmt.Sprintf("CQP WQE %d, %s: %s %d exists", e.Index, short(e.Op), e.Object, e.ID)
}

// ObjectAbsent is the event of a command about an object that does not exist.
type ObjectAbsent struct {
	Object string
	ID     uint32
	Op     string
	Index  uint32 // of the WQE
}

func (e ObjectAbsent) String() string {
	return fmt.Sprintf("CQP WQE %d, %s: %s %d does not exist", e.Index, short(e.Op), e.Object, e.ID)
}

// ObjectReserved is the event of making an object under a number that is kept
// for something else.
type ObjectReserved struct {
	Object string
	ID     uint32
	Op     string
	Index  uint32 // of the WQE
}

func (e ObjectReserved) String() string {
	return fmt.Sprintf("CQP WQE %d, %s: %s %d is reserved", e.Index, short(e.Op), e.Object, e.ID)
}

// Unmapped is the event of an address in a command that is not guest memory.
type Unmapped struct {
	What          string
	Address, Size uint64
	Op            string
	Index         uint32 // of the WQE
	Err           error
}

func (e Unmapped) String() string {
	return fmt.Sprintf("CQP WQE %d, %s: %s %#x+%#x: %v", e.Index, short(e.Op), e.What, e.Address, e.Size, e.Err)
}

// Misaligned is the event of an address in a command that is not as aligned as
// its object has to be.
type Misaligned struct {
	What           string
	Address, Align uint64
	Op             string
	Index          uint32 // of the WQE
}

func (e Misaligned) String() string {
	return fmt.Sprintf("CQP WQE %d, %s: %s %#x is not %d-byte aligned", e.Index, short(e.Op), e.What, e.Address, e.Align)
}

// Overlap is the event of an object put where another one lies.
type Overlap struct {
	New, Old    string
	Start, Size uint64 // of the new one
}

func (e Overlap) String() string {
	return fmt.Sprintf("%s at %#x+%#x overlaps the live %s", e.New, e.Start, e.Size, e.Old)
}

// PushPageInUse is the event of freeing a push page that a QP writes to.
type PushPageInUse struct{ Page, QP uint32 }

func (e PushPageInUse) String() string {
	return fmt.Sprintf("MANAGE_PUSH_PAGES frees page %d while QP %d uses it", e.Page, e.QP)
}

// BadHandle is the event of a QS handle that no work scheduler leaf has, or
// one that is not enabled.
type BadHandle struct {
	Object   string
	ID       uint32
	Handle   uint16
	Disabled bool
	Index    uint32 // of the WQE
}

func (e BadHandle) String() string {
	why := "is no leaf's"
	if e.Disabled {
		why = "is of a leaf not enabled"
	}
	return fmt.Sprintf("CQP WQE %d: QS handle %d of %s %d %s", e.Index, e.Handle, e.Object, e.ID, why)
}

// CCQFirst is the event of destroying the control QP's CQ while others live.
type CCQFirst struct{ CQs int }

func (e CCQFirst) String() string {
	return fmt.Sprintf("DESTROY_CQ %d while %d other CQs live", event.CCQ, e.CQs)
}

// AEQInUse is the event of destroying the AEQ while there is something it
// could tell of.
type AEQInUse struct{ QPs, CQs int }

func (e AEQInUse) String() string {
	return fmt.Sprintf("DESTROY_AEQ while %d QPs and %d CQs live", e.QPs, e.CQs)
}

// QPInGroup is the event of destroying a QP that a multicast group lists.
type QPInGroup struct {
	QP    uint32
	Group uint16
}

func (e QPInGroup) String() string {
	return fmt.Sprintf("DESTROY_QP %d while multicast group %d lists it", e.QP, e.Group)
}

// NodeInUse is the event of deleting a work scheduler node with another below
// it, or a leaf that a QP sends by.
type NodeInUse struct {
	Node, Child uint16 // Child 0: none
	Handle      uint16 // of a leaf
	QP          uint32
}

func (e NodeInUse) String() string {
	if e.Child != 0 {
		return fmt.Sprintf("work scheduler node %d deleted with node %d below it", e.Node, e.Child)
	}
	return fmt.Sprintf("work scheduler leaf %d deleted while QP %d has its handle %d", e.Node, e.QP, e.Handle)
}

// BadParent is the event of adding a work scheduler node below one that is
// none, or a leaf.
type BadParent struct {
	Node, Parent uint16
	Leaf         bool
	Index        uint32 // of the WQE
}

func (e BadParent) String() string {
	why := "does not exist"
	if e.Leaf {
		why = "is a leaf"
	}
	return fmt.Sprintf("CQP WQE %d adds work scheduler node %d below %d, which %s", e.Index, e.Node, e.Parent, why)
}

// ARPInUse is the event of deleting an ARP entry by which something sends.
type ARPInUse struct {
	Index uint16
	User  string
}

func (e ARPInUse) String() string {
	return fmt.Sprintf("MANAGE_ARP deletes entry %d while %s uses it", e.Index, e.User)
}

// NoARP is the event of something that is to send by an ARP entry that does
// not exist.
type NoARP struct {
	Object string
	ID     uint32
	ARP    uint16
}

func (e NoARP) String() string {
	return fmt.Sprintf("%s %d is to send by ARP entry %d, which does not exist", e.Object, e.ID, e.ARP)
}

// OddGroup is the event of a multicast group whose datagrams cannot all be
// delivered.
type OddGroup struct {
	Group uint16
	QP    uint32 // 0: none
	Why   string
	Index uint32 // of the WQE
}

func (e OddGroup) String() string {
	s := fmt.Sprintf("CQP WQE %d: multicast group %d %s", e.Index, e.Group, e.Why)
	if e.QP != 0 {
		s += fmt.Sprintf(": QP %d", e.QP)
	}
	return s
}

// OutOfOrder is the event of a command given before one that has to come
// first.
type OutOfOrder struct {
	Op, Before string
	Index      uint32 // of the WQE
}

func (e OutOfOrder) String() string {
	return fmt.Sprintf("CQP WQE %d, %s before %s", e.Index, short(e.Op), e.Before)
}

// OddContext is the event of a QP context with a field that makes no sense.
type OddContext struct {
	QP    uint32
	Field string
	Value uint64
	Index uint32 // of the WQE
}

func (e OddContext) String() string {
	return fmt.Sprintf("CQP WQE %d: context of QP %d has %s %d", e.Index, e.QP, e.Field, e.Value)
}
