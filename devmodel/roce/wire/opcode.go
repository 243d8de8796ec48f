// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/roce"
)

// Opcodes of the base transport header (rxe_opcode.h, ib_pack.h:IB_OPCODE_*).
const (
	SendFirst      = 0x00
	SendMiddle     = 0x01
	SendLast       = 0x02
	SendLastImm    = 0x03
	SendOnly       = 0x04
	SendOnlyImm    = 0x05
	WriteFirst     = 0x06
	WriteMiddle    = 0x07
	WriteLast      = 0x08
	WriteLastImm   = 0x09
	WriteOnly      = 0x0A
	WriteOnlyImm   = 0x0B
	ReadRequest    = 0x0C
	ReadRespFirst  = 0x0D
	ReadRespMiddle = 0x0E
	ReadRespLast   = 0x0F
	ReadRespOnly   = 0x10
	Acknowledge    = 0x11
	AtomicAck      = 0x12
	CompareSwap    = 0x13
	FetchAdd       = 0x14
	SendLastInv    = 0x16
	SendOnlyInv    = 0x17
	Flush          = 0x1C
	AtomicWrite    = 0x1D
	UDSendOnly     = 0x64
	UDSendOnlyImm  = 0x65
	CNP            = 0x81
)

// Service is the transport service of an opcode.
type Service uint8

// Services.
const (
	NoService Service = iota
	RC
	UD
	Congestion // CNP, of any service
)

// headers are the extended headers behind the base transport header, in the
// order in which they stand there.
type headers uint8

const (
	deth headers = 1 << iota
	reth
	aeth
	immdt
	ieth
	atomiceth
	atomicack
	feth
)

// sizes of extended headers in bytes, in the order of their bits
// (rxe_hdr.h:RXE_*_BYTES).
var sizes = [...]int{8, 16, 4, 4, 4, 28, 8, 4}

// opcode is what an opcode means.
type opcode struct {
	name        string
	service     Service
	op          roce.Op
	first, last bool
	headers     headers
	// unsupported: a request that a GEN_2 responder refuses.
	unsupported bool
	source      string
}

const pack = "ib_pack.h:IB_OPCODE_*"

var opcodes = [256]opcode{
	SendFirst:      {name: "SEND_FIRST", service: RC, op: roce.Send, first: true, source: pack},
	SendMiddle:     {name: "SEND_MIDDLE", service: RC, op: roce.Send, source: pack},
	SendLast:       {name: "SEND_LAST", service: RC, op: roce.Send, last: true, source: pack},
	SendLastImm:    {name: "SEND_LAST_WITH_IMMEDIATE", service: RC, op: roce.Send, last: true, headers: immdt, source: pack},
	SendOnly:       {name: "SEND_ONLY", service: RC, op: roce.Send, first: true, last: true, source: pack},
	SendOnlyImm:    {name: "SEND_ONLY_WITH_IMMEDIATE", service: RC, op: roce.Send, first: true, last: true, headers: immdt, source: pack},
	WriteFirst:     {name: "RDMA_WRITE_FIRST", service: RC, op: roce.Write, first: true, headers: reth, source: pack},
	WriteMiddle:    {name: "RDMA_WRITE_MIDDLE", service: RC, op: roce.Write, source: pack},
	WriteLast:      {name: "RDMA_WRITE_LAST", service: RC, op: roce.Write, last: true, source: pack},
	WriteLastImm:   {name: "RDMA_WRITE_LAST_WITH_IMMEDIATE", service: RC, op: roce.Write, last: true, headers: immdt, source: pack},
	WriteOnly:      {name: "RDMA_WRITE_ONLY", service: RC, op: roce.Write, first: true, last: true, headers: reth, source: pack},
	WriteOnlyImm:   {name: "RDMA_WRITE_ONLY_WITH_IMMEDIATE", service: RC, op: roce.Write, first: true, last: true, headers: reth | immdt, source: pack},
	ReadRequest:    {name: "RDMA_READ_REQUEST", service: RC, op: roce.ReadRequest, first: true, last: true, headers: reth, source: pack},
	ReadRespFirst:  {name: "RDMA_READ_RESPONSE_FIRST", service: RC, op: roce.ReadResponse, first: true, headers: aeth, source: pack},
	ReadRespMiddle: {name: "RDMA_READ_RESPONSE_MIDDLE", service: RC, op: roce.ReadResponse, source: pack},
	ReadRespLast:   {name: "RDMA_READ_RESPONSE_LAST", service: RC, op: roce.ReadResponse, last: true, headers: aeth, source: pack},
	ReadRespOnly:   {name: "RDMA_READ_RESPONSE_ONLY", service: RC, op: roce.ReadResponse, first: true, last: true, headers: aeth, source: pack},
	Acknowledge:    {name: "ACKNOWLEDGE", service: RC, op: roce.Acknowledge, first: true, last: true, headers: aeth, source: pack},
	// Nothing of ours waits for it.
	AtomicAck:     {name: "ATOMIC_ACKNOWLEDGE", headers: aeth | atomicack, source: pack},
	CompareSwap:   {name: "COMPARE_SWAP", service: RC, unsupported: true, headers: atomiceth, source: pack},
	FetchAdd:      {name: "FETCH_ADD", service: RC, unsupported: true, headers: atomiceth, source: pack},
	SendLastInv:   {name: "SEND_LAST_WITH_INVALIDATE", service: RC, op: roce.Send, last: true, headers: ieth, source: pack},
	SendOnlyInv:   {name: "SEND_ONLY_WITH_INVALIDATE", service: RC, op: roce.Send, first: true, last: true, headers: ieth, source: pack},
	Flush:         {name: "FLUSH", service: RC, unsupported: true, headers: feth | reth, source: pack},
	AtomicWrite:   {name: "ATOMIC_WRITE", service: RC, unsupported: true, headers: reth, source: pack},
	UDSendOnly:    {name: "UD_SEND_ONLY", service: UD, op: roce.Send, first: true, last: true, headers: deth, source: pack},
	UDSendOnlyImm: {name: "UD_SEND_ONLY_WITH_IMMEDIATE", service: UD, op: roce.Send, first: true, last: true, headers: deth | immdt, source: pack},
	CNP:           {name: "CNP", service: Congestion, source: "IBTA RoCEv2 annex A17.9.3"},
}

// ServiceOf is the service of an opcode; NoService: it is not known.
func ServiceOf(op uint8) Service { return opcodes[op].service }

// IsResponse tells whether an opcode answers a request of RC.
func IsResponse(op uint8) bool {
	o := &opcodes[op]
	return o.op == roce.ReadResponse || o.op == roce.Acknowledge
}

// Name is the name of an opcode in ib_pack.h, without the service if that is RC.
func Name(op uint8) string {
	if n := opcodes[op].name; n != "" {
		return n
	}
	return fmt.Sprintf("opcode %#02x", op)
}

// len is the length of extended headers in bytes.
func (h headers) len() (n int) {
	for i := range sizes {
		if h>>i&1 != 0 {
			n += sizes[i]
		}
	}
	return n
}
