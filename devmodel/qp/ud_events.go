// SPDX-License-Identifier: Apache-2.0

package qp

import "fmt"

// HandleAbsent is the event of a datagram by an address handle that does not
// exist.
type HandleAbsent struct {
	QP      uint32
	Program bool // posted by a user program, not by the kernel
	AH      uint32
	Index   uint32 // of the WQE, in quanta
}

func (e HandleAbsent) String() string {
	return fmt.Sprintf("send WQE %d of QP %d: AH %d does not exist", e.Index, e.QP, e.AH)
}

// HandleForeign is the event of a datagram by another protection domain's
// address handle.
type HandleForeign struct {
	QP      uint32
	Program bool // posted by a user program, not by the kernel
	AH      uint32
	Index   uint32 // of the WQE, in quanta
	PD, Own uint32 // the handle's and the QP's
}

func (e HandleForeign) String() string {
	return fmt.Sprintf("send WQE %d of QP %d, PD %d: AH %d is of PD %d", e.Index, e.QP, e.Own, e.AH, e.PD)
}

// DatagramTooLong is the event of a datagram that one packet cannot carry.
type DatagramTooLong struct {
	QP      uint32
	Program bool   // posted by a user program, not by the kernel
	Index   uint32 // of the WQE, in quanta
	Bytes   uint32
	MTU     uint32 // SNDMSS of the QP
}

func (e DatagramTooLong) String() string {
	return fmt.Sprintf("send WQE %d of QP %d: %d bytes in a datagram, the MTU is %d", e.Index, e.QP, e.Bytes, e.MTU)
}
