// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// Lengths in bytes.
const (
	ipv4Len = 20
	ipv6Len = 40
	bthLen  = 12
	icrcLen = 4
	// Trailer is the most that Encode writes behind the payload: pad and ICRC.
	Trailer = 3 + icrcLen
	// CNPPayload is what follows the base transport header of a CNP: reserved.
	CNPPayload = 16
	// MaxHeader is the longest HeaderLen.
	MaxHeader = frame.HeaderLen + frame.TagLen + ipv6Len + frame.UDPLen + bthLen + 28
)

// ECN field of the traffic class (RFC 3168).
const (
	ecnMask = 3
	ecnCE   = 3
)

// Path is the way of a packet through the network.
type Path struct {
	DestMAC, SourceMAC [6]byte
	Tagged             bool   // with an 802.1Q tag
	TCI                uint16 // of the tag
	IPv4               bool
	// Source and Dest are IP addresses; one of IPv4 is in the last four bytes.
	Source, Dest           [16]byte
	TrafficClass, HopLimit uint8
	FlowLabel              uint32 // 20 bits; of IPv6
	SourcePort             uint16 // of UDP
}

// Packet is a RoCEv2 packet. Fields of extended headers mean something only
// where the opcode has the header.
type Packet struct {
	Opcode            uint8
	Solicited, AckReq bool
	FECN, BECN        bool
	TVer              uint8 // transport version
	PKey              uint16
	DestQP, PSN       uint32

	VA          uint64 // RETH
	Key, DMALen uint32 // RETH
	Syndrome    uint8  // AETH
	MSN         uint32 // AETH
	Imm         uint32 // ImmDt: value of the big-endian word
	Inv         uint32 // IETH
	QKey        uint32 // DETH
	SourceQP    uint32 // DETH

	Payload []byte // in the frame, without pad

	Path      // as in the frame: Source is the sender's
	CE   bool // the network marks congestion
	L3   int  // offset of the IP header in the frame
	end  int  // offset behind the ICRC
}

var be = binary.BigEndian

func get24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func put24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

// Octets is the length of a parsed packet as IP counts it.
func (p *Packet) Octets() int { return p.end - p.L3 }

// Multicast tells whether the destination is a group of IP.
func (p *Path) Multicast() bool {
	if p.IPv4 {
		return p.Dest[12]>>4 == 0xE
	}
	return p.Dest[0] == 0xFF
}

// Parse reads the packet in f, of which i is the Info. Unless the verdict is OK
// or UnknownOpcode, fields may be missing.
func (p *Packet) Parse(f []byte, i *frame.Info) Verdict {
	*p = Packet{L3: i.L3, end: i.End}
	p.IPv4 = i.Network == frame.IPv4
	if i.Fragment {
		return Fragment
	}
	if !i.RoCE(f) || i.Tags > 1 || i.Tags == 1 && i.TPID != frame.TypeVLAN {
		return NotRoCE
	}
	copy(p.DestMAC[:], f)
	copy(p.SourceMAC[:], f[6:])
	p.Tagged, p.TCI = i.Tags == 1, i.TCI
	ip, udp := f[i.L3:], f[i.L4:i.End]
	want := i.L3 + ipv6Len
	if p.IPv4 {
		want = i.L3 + ipv4Len
		copy(p.Source[12:], ip[12:16])
		copy(p.Dest[12:], ip[16:20])
		p.TrafficClass, p.HopLimit = ip[1], ip[8]
	} else {
		copy(p.Source[:], ip[8:24])
		copy(p.Dest[:], ip[24:40])
		word := be.Uint32(ip)
		p.TrafficClass, p.FlowLabel, p.HopLimit = uint8(word>>20), word&0xFFFFF, ip[7]
	}
	p.CE = p.TrafficClass&ecnMask == ecnCE
	p.SourcePort = be.Uint16(udp)
	switch {
	case i.L4 != want:
		return Options
	case int(be.Uint16(udp[4:])) != len(udp) || len(udp) < frame.UDPLen+bthLen+icrcLen:
		return BadLength
	case p.IPv4 && frame.Checksum(ip[:ipv4Len], 0) != 0,
		be.Uint16(udp[6:]) != 0 && frame.Checksum(udp, frame.PseudoHeader(f, i.Network, i.L3, frame.ProtoUDP, len(udp))) != 0:
		return BadChecksum
	}
	return p.transport(udp[frame.UDPLen : len(udp)-icrcLen])
}

// transport reads the headers from BTH on.
func (p *Packet) transport(b []byte) Verdict {
	p.Opcode = b[0]
	p.Solicited, p.TVer = b[1]>>7 != 0, b[1]&0xF
	pad := int(b[1] >> 4 & 3)
	p.PKey = be.Uint16(b[2:])
	p.FECN, p.BECN = b[4]>>7 != 0, b[4]>>6&1 != 0
	p.DestQP = get24(b[5:])
	p.AckReq = b[8]>>7 != 0
	p.PSN = get24(b[9:])
	b = b[bthLen:]
	if p.TVer != 0 {
		return BadVersion
	}
	o := &opcodes[p.Opcode]
	if o.service == NoService {
		return UnknownOpcode
	}
	h := o.headers
	if len(b) < h.len()+pad {
		return BadLength
	}
	if h&deth != 0 {
		p.QKey, p.SourceQP = be.Uint32(b), get24(b[5:])
		b = b[8:]
	}
	if h&feth != 0 {
		b = b[4:]
	}
	if h&reth != 0 {
		p.VA, p.Key, p.DMALen = be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])
		b = b[16:]
	}
	if h&aeth != 0 {
		p.Syndrome, p.MSN = b[0], get24(b[1:])
		b = b[4:]
	}
	if h&atomiceth != 0 {
		b = b[28:]
	}
	if h&immdt != 0 {
		p.Imm = be.Uint32(b)
		b = b[4:]
	}
	if h&ieth != 0 {
		p.Inv = be.Uint32(b)
		b = b[4:]
	}
	p.Payload = b[:len(b)-pad]
	return OK
}

// L3 is where the IP header stands in a frame on a path.
func L3(path *Path) int {
	if path.Tagged {
		return frame.HeaderLen + frame.TagLen
	}
	return frame.HeaderLen
}

// Octets is the length, as IP counts it, of a packet with n bytes of payload.
func Octets(path *Path, opcode uint8, n int) int {
	return HeaderLen(path, opcode) - L3(path) + (n+3)&^3 + icrcLen
}

// HeaderLen is the number of bytes before the payload of a packet on a path.
func HeaderLen(path *Path, opcode uint8) int {
	n := L3(path) + frame.UDPLen + bthLen + opcodes[opcode].headers.len()
	if path.IPv4 {
		return n + ipv4Len
	}
	return n + ipv6Len
}

// Encode completes the frame of a packet in f: the payload of n bytes lies
// already at HeaderLen, and there is room for Trailer bytes behind it. The
// packet's own Path is not looked at. The UDP checksum is 0, as rxe's is
// (rxe_net.c:prepare_udp_hdr). IPv4 packets have DF; their ID, which then means
// nothing (RFC 6864), is the low half of the PSN. MIG is set, as HCAs do.
func (p *Packet) Encode(f []byte, path *Path, n int) []byte {
	header := HeaderLen(path, p.Opcode)
	pad := -n & 3
	end := header + n + pad + icrcLen
	f = f[:end]
	clear(f[header+n : header+n+pad])

	at := ethernet(f, path)
	l3 := at
	l4 := p.ip(f, l3, path)
	udp := f[l4:]
	be.PutUint16(udp, path.SourcePort)
	be.PutUint16(udp[2:], frame.PortRoCE)
	be.PutUint16(udp[4:], uint16(len(udp)))
	p.bth(udp[frame.UDPLen:], pad)

	binary.LittleEndian.PutUint32(f[end-icrcLen:], ICRC(f[l3:end-icrcLen], path.IPv4))
	return f
}

func ethernet(f []byte, path *Path) (l3 int) {
	copy(f, path.DestMAC[:])
	copy(f[6:], path.SourceMAC[:])
	if path.Tagged {
		be.PutUint16(f[12:], frame.TypeVLAN)
		be.PutUint16(f[14:], path.TCI)
	}
	l3 = L3(path)
	t := uint16(frame.TypeIPv6)
	if path.IPv4 {
		t = frame.TypeIPv4
	}
	be.PutUint16(f[l3-2:], t)
	return l3
}

func (p *Packet) ip(f []byte, l3 int, path *Path) (l4 int) {
	ip := f[l3:]
	if !path.IPv4 {
		be.PutUint32(ip, 6<<28|uint32(path.TrafficClass)<<20|path.FlowLabel&0xFFFFF)
		be.PutUint16(ip[4:], uint16(len(ip)-ipv6Len))
		ip[6], ip[7] = frame.ProtoUDP, path.HopLimit
		copy(ip[8:], path.Source[:])
		copy(ip[24:], path.Dest[:])
		be.PutUint16(ip[ipv6Len+6:], 0)
		return l3 + ipv6Len
	}
	const dontFragment = 1 << 14
	ip[0], ip[1] = 4<<4|ipv4Len/4, path.TrafficClass
	be.PutUint16(ip[2:], uint16(len(ip)))
	be.PutUint16(ip[4:], uint16(p.PSN))
	be.PutUint16(ip[6:], dontFragment)
	ip[8], ip[9] = path.HopLimit, frame.ProtoUDP
	be.PutUint16(ip[10:], 0)
	copy(ip[12:], path.Source[12:])
	copy(ip[16:], path.Dest[12:])
	be.PutUint16(ip[10:], frame.Checksum(ip[:ipv4Len], 0))
	be.PutUint16(ip[ipv4Len+6:], 0)
	return l3 + ipv4Len
}

// bth writes the headers from BTH on.
func (p *Packet) bth(b []byte, pad int) {
	const migrated = 1 << 6
	b[0] = p.Opcode
	b[1] = bit(p.Solicited, 7) | migrated | uint8(pad)<<4 | p.TVer&0xF
	be.PutUint16(b[2:], p.PKey)
	b[4] = bit(p.FECN, 7) | bit(p.BECN, 6)
	put24(b[5:], p.DestQP)
	b[8] = bit(p.AckReq, 7)
	put24(b[9:], p.PSN)
	b = b[bthLen:]
	h := opcodes[p.Opcode].headers
	if h&deth != 0 {
		be.PutUint32(b, p.QKey)
		b[4] = 0
		put24(b[5:], p.SourceQP)
		b = b[8:]
	}
	if h&feth != 0 {
		clear(b[:4])
		b = b[4:]
	}
	if h&reth != 0 {
		be.PutUint64(b, p.VA)
		be.PutUint32(b[8:], p.Key)
		be.PutUint32(b[12:], p.DMALen)
		b = b[16:]
	}
	if h&aeth != 0 {
		b[0] = p.Syndrome
		put24(b[1:], p.MSN)
		b = b[4:]
	}
	if h&atomiceth != 0 {
		clear(b[:28])
		b = b[28:]
	}
	if h&atomicack != 0 {
		clear(b[:8])
		b = b[8:]
	}
	if h&immdt != 0 {
		be.PutUint32(b, p.Imm)
		b = b[4:]
	}
	if h&ieth != 0 {
		be.PutUint32(b, p.Inv)
	}
}

func bit(v bool, n int) uint8 {
	if v {
		return 1 << n
	}
	return 0
}
