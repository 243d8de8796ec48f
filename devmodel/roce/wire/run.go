// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/vrnic/vrnic/devmodel/roce"

const psnMask = 1<<24 - 1

// Run makes r the run of this one packet of RC, on a path of that MTU. It does
// not touch r.SGL: where the payload is, the caller knows. False: the packet is
// none of RC.
func (p *Packet) Run(r *roce.Run, mtu uint32) bool {
	o := &opcodes[p.Opcode]
	if o.service != RC {
		return false
	}
	r.Op, r.First, r.Last = o.op, o.first, o.last
	r.AckReq, r.Solicited = p.AckReq, p.Solicited
	r.HasImm, r.HasInv, r.Response = o.headers&immdt != 0, o.headers&ieth != 0, false
	r.PSN, r.N, r.Size, r.Bytes, r.Off = p.PSN, 1, mtu, uint32(len(p.Payload)), 0
	r.VA, r.Key, r.DMALen = p.VA, p.Key, p.DMALen
	r.Imm, r.Inv = p.Imm, p.Inv
	r.Syndrome, r.MSN, r.Code = p.Syndrome, p.MSN, 0
	if o.unsupported {
		r.Op = roce.Unsupported
	}
	return true
}

// FromRun makes the packet number k of a run: opcode, flags and headers. PKey
// and DestQP remain, and so does what only other services have.
func (p *Packet) FromRun(r *roce.Run, k uint32) {
	last := r.Last && k+1 == r.N
	p.Opcode = OpcodeOf(r, k)
	p.Solicited = r.Solicited && last && (r.Op == roce.Send || r.Op == roce.Write && r.HasImm)
	p.AckReq = r.AckReq && k+1 == r.N
	p.FECN, p.BECN, p.TVer = false, false, 0
	p.PSN = (r.PSN + k) & psnMask
	p.VA, p.Key, p.DMALen = r.VA, r.Key, r.DMALen
	p.Syndrome, p.MSN = r.Syndrome, r.MSN
	p.Imm, p.Inv = r.Imm, r.Inv
	p.Payload = nil
}

// positions of a packet in its message.
const (
	middle = iota
	firstOnly
	lastOnly
	whole
)

// requests has the opcodes of sends, and of writes, by position and by what the
// last packet carries.
var requests = [2][4][3]uint8{
	{middle: {SendMiddle, SendMiddle, SendMiddle}, firstOnly: {SendFirst, SendFirst, SendFirst},
		lastOnly: {SendLast, SendLastImm, SendLastInv}, whole: {SendOnly, SendOnlyImm, SendOnlyInv}},
	{middle: {WriteMiddle, WriteMiddle, WriteMiddle}, firstOnly: {WriteFirst, WriteFirst, WriteFirst},
		lastOnly: {WriteLast, WriteLastImm, WriteLast}, whole: {WriteOnly, WriteOnlyImm, WriteOnly}},
}

var responses = [4]uint8{middle: ReadRespMiddle, firstOnly: ReadRespFirst, lastOnly: ReadRespLast, whole: ReadRespOnly}

// OpcodeOf is the opcode of packet k of a run.
func OpcodeOf(r *roce.Run, k uint32) uint8 {
	first, last := r.First && k == 0, r.Last && k+1 == r.N
	position := int(bit(first, 0) | bit(last, 1))
	carries := 0
	switch {
	case r.HasImm:
		carries = 1
	case r.HasInv:
		carries = 2
	}
	switch r.Op {
	case roce.Send:
		return requests[0][position][carries]
	case roce.Write:
		return requests[1][position][carries]
	case roce.ReadRequest:
		return ReadRequest
	case roce.ReadResponse:
		return responses[position]
	}
	return Acknowledge
}
