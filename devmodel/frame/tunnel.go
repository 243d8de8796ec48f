// SPDX-License-Identifier: Apache-2.0

package frame

import "slices"

// Tunnel is how a packet carries another one.
type Tunnel uint8

// Tunnels.
const (
	NoTunnel  Tunnel = iota
	TunnelIP         // IP in IP
	TunnelGRE        // with NVGRE
	TunnelUDP        // VXLAN, GENEVE
)

// Packet types of tunnels begin here (libie/rx.c:LIBIE_RX_PT_IP): for IP in IP
// with an inner IPv4 fragment, for the others with what carries no IP, before
// IPv4. Those of inner IPv6 lie innerV6 above.
const (
	ptypeIPinIP    = 29
	ptypeGRENAT    = 43 // GRE or UDP with IP inside
	ptypeGRENATMAC = 58 // with an Ethernet frame inside
	ptypeGRENATTag = 73 // with one in a VLAN
	ptypeInnerV6   = 7
)

// Of GRE (RFC 2784, RFC 2890), VXLAN (RFC 7348) and GENEVE (RFC 8926).
const (
	greChecksum = 1 << 15
	greRouting  = 1 << 14
	greKey      = 1 << 13
	greSequence = 1 << 12
	greVersion  = 7
	greMin      = 4

	tunnelUDPMin = 8 // behind UDP, of both
	vxlanVNI     = 1 << 3
	geneveVer    = 0xc0
	geneveLen    = 0x3f

	typeMAC = 0x6558 // transparent Ethernet bridging
)

// tunnel looks into the packet for another one. What does not add up is no
// tunnel.
func (i *Info) tunnel(f []byte, udp []uint16) {
	if i.Fragment {
		return
	}
	in := Packet{End: i.End}
	var kind Tunnel
	var carries uint16 // an Ethernet type
	base := uint16(ptypeGRENAT)
	switch {
	case i.Proto == ProtoIPIP:
		kind, base, carries, in.L3 = TunnelIP, ptypeIPinIP, TypeIPv4, i.L4
	case i.Proto == ProtoIPv6:
		kind, base, carries, in.L3 = TunnelIP, ptypeIPinIP, TypeIPv6, i.L4
	case i.Proto == ProtoGRE:
		n := 0
		if n, carries = gre(f[i.L4:i.End]); n == 0 {
			return
		}
		kind, in.L3 = TunnelGRE, i.L4+n
	case i.Kind == PTypeUDP && slices.Contains(udp, be16(f[i.L4+2:])):
		n := int(be16(f[i.L4+4:]))
		if n < UDPLen || n > i.End-i.L4 {
			return
		}
		in.End = i.L4 + n
		if n, carries = udpTunnel(f[i.L4+UDPLen : in.End]); n == 0 {
			return
		}
		kind, in.L3 = TunnelUDP, i.L4+UDPLen+n
	default:
		return
	}
	if carries == typeMAC {
		if in.End-in.L3 < HeaderLen {
			return
		}
		base, carries, in.L3 = ptypeGRENATMAC, be16(f[in.L3+AddressesLen:]), in.L3+HeaderLen
		if IsTag(carries) && in.End-in.L3 >= TagLen {
			base, carries, in.L3 = ptypeGRENATTag, be16(f[in.L3+2:]), in.L3+TagLen
		}
	}
	switch is := in.parse(f, carries); {
	case is:
		if base != ptypeIPinIP {
			base++
		}
		base += in.Kind - PTypeFrag
		if in.Network == IPv6 {
			base += ptypeInnerV6
		}
	case kind == TunnelIP:
		return
	}
	i.Tunnel, i.Inner, i.PType = kind, in, base
}

// gre returns how long the GRE header p begins with is, and the Ethernet type of
// what follows; 0: it is none.
func gre(p []byte) (n int, carries uint16) {
	if len(p) < greMin {
		return 0, 0
	}
	flags := be16(p)
	if flags&(greRouting|greVersion) != 0 {
		return 0, 0
	}
	n = greMin
	for _, option := range [...]uint16{greChecksum, greKey, greSequence} {
		if flags&option != 0 {
			n += 4
		}
	}
	if n > len(p) {
		return 0, 0
	}
	return n, be16(p[2:])
}

// udpTunnel is the same for a VXLAN or GENEVE header. Both are told by what they
// have in the same place: GENEVE the type of its payload, VXLAN zeros.
func udpTunnel(p []byte) (n int, carries uint16) {
	if len(p) < tunnelUDPMin {
		return 0, 0
	}
	switch t := be16(p[2:]); {
	case (t == typeMAC || t == TypeIPv4 || t == TypeIPv6) && p[0]&geneveVer == 0:
		if n = tunnelUDPMin + int(p[0]&geneveLen)*4; n <= len(p) {
			return n, t
		}
	case t == 0 && p[0]&vxlanVNI != 0:
		return tunnelUDPMin, typeMAC
	}
	return 0, 0
}
