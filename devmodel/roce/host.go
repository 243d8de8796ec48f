// SPDX-License-Identifier: Apache-2.0

package roce

import "time"

// Code is an asynchronous event code (user.h:IRDMA_AE_*).
type Code uint16

// Codes that the transport itself gives.
const (
	PrivilegeDenied  Code = 0x011C // PRIV_OPERATION_DENIED
	ReadWhileORDZero Code = 0x0205 // RDMA_READ_WHILE_ORD_ZERO
	TooManyReads     Code = 0x0207 // IB_RREQ_AND_Q1_FULL
	InvalidRequest   Code = 0x0208 // IB_INVALID_REQUEST
	UnexpectedOpcode Code = 0x020A // WQE_UNEXPECTED_OPCODE
	InvalidParameter Code = 0x020B // WQE_INVALID_PARAMETER
	InvalidFragment  Code = 0x020C // WQE_INVALID_FRAG_DATA
	RemoteAccess     Code = 0x020D // IB_REMOTE_ACCESS_ERROR
	RemoteOperation  Code = 0x020E // IB_REMOTE_OP_ERROR
	MessageTooLong   Code = 0x0303 // DDP_UBE_DDP_MESSAGE_TOO_LONG_FOR_AVAILABLE_BUFFER
	InvalidOffset    Code = 0x0305 // DDP_UBE_INVALID_MO
	ResponseLength   Code = 0x0316 // ROCE_RSP_LENGTH_ERROR
	TooManyRetries   Code = 0x050A // LLP_TOO_MANY_RETRIES
	TooManyRNRs      Code = 0x050F // LLP_TOO_MANY_RNRS
	Catastrophic     Code = 0x0700 // LCE_QP_CATASTROPHIC
)

// Source says which part of a QP an asynchronous event is about, as AESRC
// encodes it (ctrl.c:irdma_sc_get_next_aeqe).
type Source uint8

// Sources.
const (
	SourceRQ      Source = 1
	SourceSQ      Source = 5
	SourceInbound Source = 9
)

// Kind is what a WQE makes the requester do.
type Kind uint8

// Kinds. Local work is done by the host, in send queue order.
const (
	KindLocal Kind = iota
	KindSend
	KindWrite
	KindRead
)

// WQE is a send work request.
type WQE struct {
	Kind  Kind
	Op    uint8  // the opcode as posted
	Index uint32 // of its first quantum

	Signaled, ReadFence, LocalFence bool
	Solicited, HasImm, HasInv       bool

	// HasInv of a send: the peer is to end Inv. Of a read: the STags that its
	// data came by end with it.
	Imm, Inv uint32
	Addr     uint64 // remote
	Key      uint32 // remote
	Len      uint32
	// Fault, unless 0, says that the WQE cannot be executed: when everything
	// before it is complete, the QP fails with this code.
	Fault Code

	Raw [4]uint64 // of local work: the words as posted
	SGL SGL
}

// Recv is a receive work request.
type Recv struct {
	Index uint32 // of its first quantum
	Len   uint32 // of the buffers together
	SGL   SGL
}

// Received is what a receive completion tells.
type Received struct {
	Len       uint32
	Write     bool // an RDMA write with immediate used it up, not a send
	Only      bool // the message was one packet
	Solicited bool
	HasImm    bool
	HasInv    bool
	Imm, Inv  uint32
}

// Fault is a copy that failed. The zero value is success.
type Fault struct {
	Code Code
	// Gone: the payload's owner has ended; the packets are as good as lost.
	Gone bool
	// Source: it was the payload's side, not the destination's.
	Source bool
	// Operation: not a protection error, but the device could not do it.
	Operation bool
}

func (f Fault) failed() bool { return f.Code != 0 || f.Gone }

// Got is the result of asking for a receive WQE.
type Got uint8

// Results.
const (
	Empty Got = iota
	Taken
	Bad // Recv.Index is valid; the code comes with it
)

// Host is the queue pair around an Endpoint. It calls none of the Endpoint's
// methods from inside these.
type Host interface {
	// Now is the time; only differences count.
	Now() time.Duration

	// Fetch takes the next posted send WQE, if there is one and it may begin.
	Fetch(w *WQE) bool
	// Local executes a KindLocal WQE, or ends the STags of a read that HasInv
	// and has all its data. Not done: somebody may still use what it has
	// ended; Progress is called when nobody does, and then this once more,
	// with again.
	Local(w *WQE, again bool) (done bool, code Code)
	// Completed reports a finished send WQE. False: it cannot be reported.
	Completed(w *WQE) bool

	// Receive takes the next receive WQE.
	Receive(r *Recv) (Got, Code)
	// Received reports its completion. False: it cannot be reported.
	Received(r *Recv, c *Received) bool

	// Remote checks a peer's right to the whole of a range.
	Remote(key uint32, va uint64, n uint32, write bool) Fault
	// Invalidate ends an STag on a peer's request. Done and again are as with
	// Local.
	Invalidate(stag uint32, again bool) (done bool, code Code)
	// Copy moves n bytes, at most MaxRunBytes, from src, a list of the peer,
	// to dst, one of the host's own. It moves nothing if it finds a fault in
	// either list.
	Copy(dst *SGL, dstOff uint32, src *SGL, srcOff uint32, n uint32) Fault

	// List makes l one of the host's own, empty.
	List(l *SGL)
	// Transmit gives a run to the link. False: not now; Progress is called
	// when there may be room.
	Transmit(r *Run) bool
	// Fail tells that the connection has ended. The Endpoint does nothing any
	// more.
	Fail(code Code, source Source, index uint32)
}
