// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

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
	Op  Op
	Err error
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
// end. A driver that is about to reset the function leaves them on purpose.
type Leaked struct {
	QPs, CQs, CEQs, AEQs, MRs, AHs, MulticastGroups, WorkNodes, SDs int
}

func (e Leaked) String() string {
	return fmt.Sprintf("CQP destroyed with %d QPs, %d CQs, %d CEQs, %d AEQs, %d MRs, %d AHs, %d multicast groups, %d work scheduler nodes, %d SDs alive",
		e.QPs, e.CQs, e.CEQs, e.AEQs, e.MRs, e.AHs, e.MulticastGroups, e.WorkNodes, e.SDs)
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
}

func (e ARPReplaced) String() string {
	return fmt.Sprintf("MANAGE_ARP puts %x over valid entry %d = %x", e.New, e.Index, e.Old)
}
