// SPDX-License-Identifier: Apache-2.0

// Package frame reads Ethernet frames as the card's parser does: where the
// headers are, what kind of packet it is (ptype), whether its checksums are
// right, and its RSS hash.
//
// Contract and traps:
//   - Frames are without FCS and hostile: every length is checked against the
//     frame, and what does not add up is a packet of a lower layer.
//   - Fields are in network byte order in the frame and numbers here; checksums
//     are kept as they stand in the frame, big-endian.
//   - Nothing allocates, nothing keeps the frame.
//   - One tunnel is looked into: IP-in-IP, GRE, and UDP to the ports that the
//     caller names. In what it carries, a further tunnel is IP with another
//     protocol, or UDP.
package frame

import "encoding/binary"

// Ethernet types.
const (
	TypeIPv4        = 0x0800
	TypeARP         = 0x0806
	TypeVLAN        = 0x8100
	TypeIPv6        = 0x86DD
	TypeQinQ        = 0x88A8
	TypeFlowControl = 0x8808
	TypeLLDP        = 0x88CC
	TypePTP         = 0x88F7
	TypeQinQOld     = 0x9100
)

// IP protocols.
const (
	ProtoHopByHop = 0
	ProtoICMP     = 1
	ProtoIPIP     = 4
	ProtoTCP      = 6
	ProtoUDP      = 17
	ProtoIPv6     = 41
	ProtoRouting  = 43
	ProtoFragment = 44
	ProtoGRE      = 47
	ProtoAH       = 51
	ProtoICMPv6   = 58
	ProtoNone     = 59
	ProtoDestOpts = 60
	ProtoSCTP     = 132
	ProtoMobility = 135
)

// Well-known UDP ports.
const (
	PortVXLAN = 4789
	PortRoCE  = 4791
)

// Packet types as drivers decode them (libie/rx.c:libie_rx_pt_lut). Those of
// IPv6 lie v6 above those of IPv4.
const (
	PTypeL2     = 1
	PTypePTP    = 2
	PTypeARP    = 11
	PTypeFrag   = 22
	PTypeIPOnly = 23
	PTypeUDP    = 24
	PTypeTCP    = 26
	PTypeSCTP   = 27
	PTypeICMP   = 28
	PTypeV6     = 88 - 22
)

// Header sizes.
const (
	AddressesLen = 12 // both MAC addresses
	HeaderLen    = 14 // Ethernet without a tag
	TagLen       = 4
	UDPLen       = 8
	tcpMin       = 20
	sctpMin      = 12
	icmpMin      = 4
	ipv4Min      = 20
	ipv6Len      = 40
)

// Network is the network layer of a frame.
type Network uint8

// Network layers.
const (
	NoIP Network = iota
	IPv4
	IPv6
)

// Packet is an IP packet in a frame. Offsets count from the frame's start; 0
// means absent.
type Packet struct {
	Network Network
	Proto   uint8 // behind the extension headers
	// Kind is what the transport is, as one of PTypeFrag to PTypeICMP; 0: it
	// is no IP packet.
	Kind uint16
	// L3 is where the IP header is or, if there is none, what stands in its
	// place; L4 the header of Proto, in a fragment what is in its place; L4Len
	// its length where the parser knows Proto, else 0. End is behind the IP
	// payload, where padding begins.
	L3, L4, L4Len, End int

	Fragment bool
	// AddressChanged: a routing header or home address option stands where the
	// pseudo header needs another address.
	AddressChanged bool
}

// Info is what a frame is.
type Info struct {
	// TPID and TCI are the outermost VLAN tag; TPID 0: there is none.
	TPID, TCI uint16
	Tags      uint8 // number of tags
	// Type is the Ethernet type behind the tags.
	Type  uint16
	PType uint16

	Packet
	Tunnel Tunnel
	Inner  Packet // in the tunnel
}

func be16(p []byte) uint16 { return binary.BigEndian.Uint16(p) }

// IsTag tells whether an Ethernet type begins a VLAN tag.
func IsTag(t uint16) bool { return t == TypeVLAN || t == TypeQinQ || t == TypeQinQOld }

// Parse reads f, of any length. A frame too short for an Ethernet header has
// Type 0. UDP to the ports named is a tunnel, if it looks like one.
func Parse(f []byte, udpTunnels ...uint16) (i Info) {
	i.PType, i.End = PTypeL2, len(f)
	at := AddressesLen
	if len(f) < HeaderLen {
		return i
	}
	i.Type = be16(f[at:])
	for i.Tags < 2 && IsTag(i.Type) && len(f) >= at+TagLen+2 {
		if i.Tags == 0 {
			i.TPID, i.TCI = i.Type, be16(f[at+2:])
		}
		i.Tags++
		at += TagLen
		i.Type = be16(f[at:])
	}
	i.L3 = at + 2
	switch i.Type {
	case TypeIPv4, TypeIPv6:
		if i.parse(f, i.Type) {
			i.PType = i.Kind
			i.tunnel(f, udpTunnels)
			if i.Network == IPv6 {
				i.PType += PTypeV6
			}
		}
	case TypeARP:
		i.PType = PTypeARP
	case TypePTP:
		i.PType = PTypePTP
	}
	return i
}

// parse looks for an IP packet at L3, in what of f is before End. If there is
// none, nothing changes.
func (p *Packet) parse(f []byte, etherType uint16) bool {
	switch etherType {
	case TypeIPv4:
		p.ipv4(f[:p.End])
	case TypeIPv6:
		p.ipv6(f[:p.End])
	}
	return p.Network != NoIP
}

func (p *Packet) ipv4(f []byte) {
	h := f[p.L3:]
	if len(h) < ipv4Min || h[0]>>4 != 4 {
		return
	}
	n, total := int(h[0]&0xf)*4, int(be16(h[2:]))
	if n < ipv4Min || total < n || total > len(h) {
		return
	}
	p.Network, p.Proto = IPv4, h[9]
	p.L4, p.End = p.L3+n, p.L3+total
	p.Fragment = be16(h[6:])&0x3fff != 0 // more fragments, or an offset
	p.transport(f)
}

func (p *Packet) ipv6(f []byte) {
	h := f[p.L3:]
	if len(h) < ipv6Len || h[0]>>4 != 6 {
		return
	}
	total := ipv6Len + int(be16(h[4:]))
	if total > len(h) {
		return
	}
	p.Network, p.Proto = IPv6, h[6]
	at, end := p.L3+ipv6Len, p.L3+total
	p.L4, p.End = at, end
	for !p.Fragment {
		n := 0
		if end-at >= 8 {
			n = 8 + int(f[at+1])*8
		}
		switch p.Proto {
		case ProtoHopByHop, ProtoMobility:
		case ProtoRouting:
			p.AddressChanged = true
		case ProtoDestOpts:
			p.AddressChanged = true // may hold a home address
		case ProtoFragment:
			n = min(n, 8)
			// Without offset and more to come it is whole (RFC 6946).
			p.Fragment = n == 8 && be16(f[at+2:])&0xfff9 != 0
		case ProtoAH:
			if n != 0 {
				n = (int(f[at+1]) + 2) * 4
			}
		default:
			p.transport(f)
			return
		}
		if n == 0 || n > end-at {
			// A header cut short: IP it is, of the protocol that is missing.
			p.Kind = PTypeIPOnly
			return
		}
		p.Proto = f[at]
		at += n
		p.L4 = at
	}
	p.transport(f)
}

// transport looks at the header of Proto.
func (p *Packet) transport(f []byte) {
	b := f[p.L4:p.End]
	p.Kind = PTypeIPOnly
	switch {
	case p.Fragment:
		p.Kind = PTypeFrag
	case p.Proto == ProtoUDP && len(b) >= UDPLen:
		// A UDP length beyond the packet's is not the parser's business, but
		// the checksum is then wrong.
		p.Kind, p.L4Len = PTypeUDP, UDPLen
	case p.Proto == ProtoTCP && len(b) >= tcpMin && int(b[12]>>4)*4 >= tcpMin && int(b[12]>>4)*4 <= len(b):
		p.Kind, p.L4Len = PTypeTCP, int(b[12]>>4)*4
	case p.Proto == ProtoSCTP && len(b) >= sctpMin:
		p.Kind, p.L4Len = PTypeSCTP, sctpMin
	case p.Network == IPv4 && p.Proto == ProtoICMP && len(b) >= icmpMin,
		p.Network == IPv6 && p.Proto == ProtoICMPv6 && len(b) >= icmpMin:
		p.Kind, p.L4Len = PTypeICMP, icmpMin
	}
}

// L4Kind is PType without the network layer and without what a tunnel carries:
// one of the constants for IPv4, or 0 for what is not IP.
func (i *Info) L4Kind() uint16 { return i.Kind }

// VID is the VLAN id of the outermost tag, 0 without.
func (i *Info) VID() uint16 { return i.TCI & 0xfff }

// Ports are the source and destination ports, of UDP, TCP and SCTP.
func (i *Info) Ports(f []byte) (src, dst uint16, ok bool) {
	switch i.L4Kind() {
	case PTypeUDP, PTypeTCP, PTypeSCTP:
		return be16(f[i.L4:]), be16(f[i.L4+2:]), true
	}
	return 0, 0, false
}

// RoCE tells whether the frame is RoCEv2 (UDP, destination port 4791, whole).
func (i *Info) RoCE(f []byte) bool {
	return i.L4Kind() == PTypeUDP && be16(f[i.L4+2:]) == PortRoCE
}

// Class of a destination address: 0 unicast, 1 multicast, 2 broadcast.
func Class(f []byte) int {
	switch {
	case f[0]&1 == 0:
		return 0
	case binary.LittleEndian.Uint32(f)&binary.LittleEndian.Uint32(f[2:]) == 0xffffffff:
		return 2
	}
	return 1
}
