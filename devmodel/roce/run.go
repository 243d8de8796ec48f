// SPDX-License-Identifier: Apache-2.0

package roce

// Op is the class of packets in a run.
type Op uint8

// Classes. SourceFault is no packet of the wire: it is how the side that
// copies tells the sender of a payload that it cannot be read, or how the
// sender's own host does that has cut the run into packets. Unsupported is
// a request that no card of this generation executes, as atomics are.
const (
	Send Op = iota
	Write
	ReadRequest
	ReadResponse
	Acknowledge
	SourceFault
	Unsupported
)

func (o Op) String() string {
	if int(o) < 7 {
		return [...]string{"SEND", "WRITE", "READ_REQUEST", "READ_RESPONSE", "ACKNOWLEDGE", "source fault", "unsupported"}[o]
	}
	return "?"
}

// Limits of a run.
const (
	MaxRunBytes   = 64 << 10
	MaxRunPackets = 64
)

// MaxMessage is the longest message.
const MaxMessage = 1 << 31

// Run is consecutive packets of one message. The fields of extended headers
// mean something only where the packet that carries them is in the run.
type Run struct {
	Op          Op
	First, Last bool // the message's first or last packet is in the run
	AckReq      bool // on the run's last packet
	Solicited   bool // SE, on the message's last packet
	HasImm      bool // ImmDt, on the last packet
	HasInv      bool // IETH, on the last packet
	Response    bool // SourceFault: of a read response, not of a request

	PSN   uint32 // of the first packet
	N     uint32 // packets
	Size  uint32 // payload bytes of every packet but the message's last
	Bytes uint32 // payload bytes of all packets
	Off   uint32 // of the payload in SGL

	VA     uint64 // RETH
	Key    uint32 // RETH
	DMALen uint32 // RETH
	Imm    uint32 // value of the big-endian word
	Inv    uint32

	Syndrome uint8  // AETH
	MSN      uint32 // AETH
	Code     Code   // SourceFault

	SGL SGL
}

// IsResponse tells whether the run is for the requester of the other side.
func (r *Run) IsResponse() bool {
	return r.Op == ReadResponse || r.Op == Acknowledge || r.Op == SourceFault && !r.Response
}

// PacketBytes is how much payload packet k of the run has.
func (r *Run) PacketBytes(k uint32) uint32 {
	if k+1 < r.N {
		return r.Size
	}
	return r.Bytes - k*r.Size
}

// skip drops the first k of more packets.
func (r *Run) skip(k uint32) {
	r.PSN = psn(r.PSN + k)
	r.N -= k
	r.Off += k * r.Size
	r.Bytes -= k * r.Size
	r.First = false
}

// cut keeps the first k of more packets.
func (r *Run) cut(k uint32) {
	r.N, r.Bytes = k, k*r.Size
	r.Last, r.AckReq = false, false
}

// well tells whether packets have the sizes the path MTU asks for.
func (r *Run) well(mtu uint32) bool {
	if r.Size != mtu || r.N == 0 {
		return false
	}
	full := uint64(r.N) * uint64(mtu)
	if !r.Last {
		return uint64(r.Bytes) == full
	}
	if uint64(r.Bytes) > full {
		return false
	}
	return uint64(r.Bytes) > full-uint64(mtu) || r.Bytes == 0 && r.First && r.N == 1
}

// Sizes of headers in bytes.
const (
	ipv4Header = 20
	ipv6Header = 40
	base       = 8 + 12 + 4 // UDP, BTH, ICRC
	reth       = 16
	aeth       = 4
	word       = 4 // ImmDt, IETH
)

// octets is the length of all packets as IP counts them.
func (r *Run) octets(ipv6 bool) uint64 {
	header := uint64(ipv4Header + base)
	if ipv6 {
		header = ipv6Header + base
	}
	n := uint64(r.N)*header + uint64(r.Bytes+3)&^3
	switch r.Op {
	case Write:
		if r.First {
			n += reth
		}
	case ReadRequest:
		n += reth
	case Acknowledge:
		n += aeth
	case ReadResponse:
		if r.First {
			n += aeth
		}
		if r.Last && (!r.First || r.N > 1) {
			n += aeth
		}
	}
	if r.Last && r.HasImm {
		n += word
	}
	if r.Last && r.HasInv {
		n += word
	}
	return n
}

const psnMask = 1<<24 - 1

func psn(v uint32) uint32 { return v & psnMask }

// distance is how far b is ahead of a, 0 to 2^24-1.
func distance(a, b uint32) uint32 { return (b - a) & psnMask }

// diff is a-b as a signed distance, -2^23 to 2^23-1.
func diff(a, b uint32) int32 { return int32((a-b)<<8) >> 8 }

// packets is how many packets a message of n bytes takes.
func packets(n, mtu uint32) uint32 {
	if n == 0 {
		return 1
	}
	return uint32((uint64(n) + uint64(mtu) - 1) / uint64(mtu))
}

// Syndromes of AETH.
const (
	synACK       = 0x1F // no credits told
	synRNR       = 0x20 // and the timer code
	synSequence  = 0x60
	synInvalid   = 0x61
	synAccess    = 0x62
	synOperation = 0x63
)
