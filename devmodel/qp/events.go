// SPDX-License-Identifier: Apache-2.0

package qp

import "fmt"

// UnknownQP is the event of a doorbell for a QP that does not exist.
type UnknownQP struct {
	QP   uint32
	User bool // by the page that user programs map
}

func (e UnknownQP) String() string {
	if e.User {
		return fmt.Sprintf("user doorbell page: QP %d does not exist", e.QP)
	}
	return fmt.Sprintf("PFPE_WQEALLOC: QP %d does not exist", e.QP)
}

// SendNotExecuted is the event of a send WQE that this model does not
// execute. Name is empty if no driver knows the opcode.
type SendNotExecuted struct {
	QP      uint32
	Program bool // posted by a user program, not by the kernel
	Opcode  uint8
	Name    string
	Index   uint32
}

func (e SendNotExecuted) String() string {
	return fmt.Sprintf("send WQE %d of QP %d, opcode %#02x %s, is not executed", e.Index, e.QP, e.Opcode, e.Name)
}

// PayloadFault is the event of payload whose STag allows the access, but leads
// outside guest memory.
type PayloadFault struct {
	QP     uint32
	STag   uint32
	Write  bool
	Remote bool   // the peer names the STag
	At     uint64 // of the access, as far as known
	Err    error
}

func (e PayloadFault) String() string {
	return fmt.Sprintf("QP %d, STag %#08x: %v", e.QP, e.STag, e.Err)
}

// BadWQE is the event of a WQE whose header cannot be.
type BadWQE struct {
	QP      uint32
	Program bool // posted by a user program, not by the kernel
	Receive bool
	Index   uint32 // in quanta
	Header  uint64
	Why     string
}

func (e BadWQE) String() string {
	return fmt.Sprintf("%s WQE %d of QP %d, header %#016x: %s", queueName(e.Receive), e.Index, e.QP, e.Header, e.Why)
}

// QueueUnreadable is the event of a ring or shadow area outside guest memory.
type QueueUnreadable struct {
	QP      uint32
	Receive bool
	Index   uint32
	Err     error
}

func (e QueueUnreadable) String() string {
	return fmt.Sprintf("%s queue of QP %d at WQE %d: %v", queueName(e.Receive), e.QP, e.Index, e.Err)
}

func queueName(receive bool) string {
	if receive {
		return "receive"
	}
	return "send"
}

// UnknownCQ is the event of a QP context that names a CQ that does not exist.
type UnknownCQ struct{ QP, CQ uint32 }

func (e UnknownCQ) String() string {
	return fmt.Sprintf("context of QP %d names CQ %d, which does not exist", e.QP, e.CQ)
}

// IllegalTransition is the event of a state change a QP cannot make.
type IllegalTransition struct {
	QP       uint32
	From, To State
	Failed   bool // the QP came to ERROR by itself: the driver may not know yet
}

func (e IllegalTransition) String() string {
	s := fmt.Sprintf("MODIFY_QP %d from %v to %v", e.QP, e.From, e.To)
	if e.Failed {
		s += ", after an asynchronous event"
	}
	return s
}

// GeometryChanged is the event of a context whose rings or completion
// context are not those the QP was created with; the old ones stay in use.
type GeometryChanged struct{ QP uint32 }

func (e GeometryChanged) String() string {
	return fmt.Sprintf("MODIFY_QP %d: context has other rings than at CREATE_QP", e.QP)
}

// PeerChanged is the event of a context that gives a connected QP another peer,
// or another path MTU; the old ones stay in use.
type PeerChanged struct {
	QP             uint32
	From, To       uint32 // QP number
	FromMTU, ToMTU uint32
}

func (e PeerChanged) String() string {
	return fmt.Sprintf("MODIFY_QP %d: peer QP %d with MTU %d becomes QP %d with MTU %d", e.QP, e.From, e.FromMTU, e.To, e.ToMTU)
}

// FlushOutsideError is the event of FLUSH_WQES for a QP not in ERROR.
type FlushOutsideError struct {
	QP    uint32
	State State
}

func (e FlushOutsideError) String() string {
	return fmt.Sprintf("FLUSH_WQES of QP %d in state %v", e.QP, e.State)
}

// FlushedAgain is the event of FLUSH_WQES of a queue already flushed, with
// nothing posted since.
type FlushedAgain struct {
	QP     uint32
	SQ, RQ bool
}

func (e FlushedAgain) String() string {
	return fmt.Sprintf("FLUSH_WQES again of QP %d: %s", e.QP, queues(e.SQ, e.RQ))
}

func queues(sq, rq bool) string {
	switch {
	case sq && rq:
		return "both queues"
	case sq:
		return "send queue"
	}
	return "receive queue"
}

// DestroyedWorking is the event of DESTROY_QP of a QP in RTS.
type DestroyedWorking struct{ QP uint32 }

func (e DestroyedWorking) String() string {
	return fmt.Sprintf("DESTROY_QP %d in state RTS", e.QP)
}

// DestroyedUnflushed is the event of DESTROY_QP of a QP in ERROR with work
// posted that nobody flushed.
type DestroyedUnflushed struct {
	QP     uint32
	SQ, RQ bool
}

func (e DestroyedUnflushed) String() string {
	return fmt.Sprintf("DESTROY_QP %d with work not flushed: %s", e.QP, queues(e.SQ, e.RQ))
}
