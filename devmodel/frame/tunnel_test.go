// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// Ports of tunnels in the tests.
const (
	portGENEVE = 6081
	portOwn    = 5000 // VXLAN on a port of its own
)

// tunnelCase is a frame with a tunnel: what it carries and its ptype
// (libie/rx.c:libie_rx_pt_lut).
type tunnelCase struct {
	name      string
	f         []byte
	ptype     uint16
	carried   []gopacket.SerializableLayer // behind the tunnel's headers
	tunnel    Tunnel
	kind      uint16
	innerPort bool
}

// tunnels are all combinations of an outer header, a tunnel, and what it carries.
func tunnels(t testing.TB) (list []tunnelCase) {
	type stack []gopacket.SerializableLayer
	tcp, udp, sctp := &layers.TCP{SrcPort: 1, DstPort: 2}, &layers.UDP{SrcPort: 3, DstPort: 4}, &layers.SCTP{SrcPort: 5, DstPort: 6}
	pay := gopacket.Payload("thirteen byte")
	fragment := ip4(layers.IPProtocolUDP)
	fragment.Flags = layers.IPv4MoreFragments
	inner := func(v6 bool, kind uint16) stack {
		ip := func(p layers.IPProtocol) gopacket.SerializableLayer {
			if v6 {
				return ip6(p)
			}
			return ip4(p)
		}
		switch kind {
		case PTypeFrag:
			if v6 {
				return stack{ip6(layers.IPProtocolIPv6Fragment), gopacket.Payload{17, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8}}
			}
			return stack{fragment, pay}
		case PTypeIPOnly:
			return stack{ip(89), pay}
		case PTypeUDP:
			return stack{ip(17), udp, pay}
		case PTypeTCP:
			return stack{ip(6), tcp, pay}
		case PTypeSCTP:
			return stack{ip(132), sctp, pay}
		}
		if v6 {
			return stack{ip6(58), &layers.ICMPv6{TypeCode: 0x8000}, pay}
		}
		return stack{ip4(1), &layers.ICMPv4{TypeCode: 0x800}, pay}
	}
	mac := func(v6 bool) stack {
		if v6 {
			return stack{eth6}
		}
		return stack{eth4}
	}
	tagged := func(v6 bool) stack {
		next := layers.EthernetTypeIPv4
		if v6 {
			next = layers.EthernetTypeIPv6
		}
		return stack{&layers.Ethernet{SrcMAC: eth4.SrcMAC, DstMAC: eth4.DstMAC, EthernetType: layers.EthernetTypeDot1Q}, &layers.Dot1Q{VLANIdentifier: 7, Type: next}}
	}
	etherType := func(v6 bool) layers.EthernetType {
		if v6 {
			return layers.EthernetTypeIPv6
		}
		return layers.EthernetTypeIPv4
	}
	vxlan := &layers.VXLAN{ValidIDFlag: true, VNI: 5}
	geneve := gopacket.Payload{2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 0, 1, 9, 9, 9, 9} // with an option
	for _, tun := range []struct {
		name   string
		kind   Tunnel
		proto  func(v6 bool) layers.IPProtocol
		header func(v6 bool) stack
		v4, v6 uint16 // ptypes of a fragment in IPv4
	}{
		{"IP", TunnelIP, func(v6 bool) layers.IPProtocol {
			if v6 {
				return 41
			}
			return 4
		}, func(bool) stack { return nil }, 29, 36},
		{"GRE", TunnelGRE, nil, func(v6 bool) stack { return stack{&layers.GRE{Protocol: etherType(v6)}} }, 44, 51},
		{"GRE with all options", TunnelGRE, nil, func(v6 bool) stack {
			return stack{&layers.GRE{Protocol: etherType(v6), ChecksumPresent: true, KeyPresent: true, Key: 1, SeqPresent: true, Seq: 2}}
		}, 44, 51},
		{"NVGRE", TunnelGRE, nil, func(v6 bool) stack {
			return append(stack{&layers.GRE{Protocol: 0x6558, KeyPresent: true, Key: 0x500}}, mac(v6)...)
		}, 59, 66},
		{"NVGRE in a VLAN", TunnelGRE, nil, func(v6 bool) stack { return append(stack{&layers.GRE{Protocol: 0x6558}}, tagged(v6)...) }, 74, 81},
		{"VXLAN", TunnelUDP, nil, func(v6 bool) stack {
			return append(stack{&layers.UDP{SrcPort: 9, DstPort: portOwn}, vxlan}, mac(v6)...)
		}, 59, 66},
		{"VXLAN in a VLAN", TunnelUDP, nil, func(v6 bool) stack {
			return append(stack{&layers.UDP{SrcPort: 9, DstPort: PortVXLAN}, vxlan}, tagged(v6)...)
		}, 74, 81},
		{"GENEVE", TunnelUDP, nil, func(v6 bool) stack {
			return append(stack{&layers.UDP{SrcPort: 9, DstPort: portGENEVE}, geneve}, mac(v6)...)
		}, 59, 66},
	} {
		for _, outer6 := range []bool{false, true} {
			for _, inner6 := range []bool{false, true} {
				for n, kind := range []uint16{PTypeFrag, PTypeIPOnly, PTypeUDP, 0, PTypeTCP, PTypeSCTP, PTypeICMP} {
					if kind == 0 {
						continue // a number that nothing has
					}
					proto := layers.IPProtocol(47)
					switch {
					case tun.proto != nil:
						proto = tun.proto(inner6)
					case tun.kind == TunnelUDP:
						proto = 17
					}
					l := stack{eth4, ip4(proto)}
					base := tun.v4
					if inner6 {
						base = tun.v6
					}
					if outer6 {
						l, base = stack{eth6, ip6(proto)}, base+66
					}
					in := inner(inner6, kind)
					all := append(append(l, tun.header(inner6)...), in...)
					list = append(list, tunnelCase{fmt.Sprintf("%s: outer 6 %t, inner 6 %t, %d", tun.name, outer6, inner6, kind), frametest.Build(t, all...),
						base + uint16(n), in, tun.kind, kind, kind == PTypeUDP || kind == PTypeTCP || kind == PTypeSCTP})
				}
			}
		}
	}
	return list
}

func TestTunnels(t *testing.T) {
	h := NewToeplitz(bytes.Repeat([]byte{0x6d, 0x5a, 1, 0x77}, 10))
	ports := []uint16{portOwn, PortVXLAN, portGENEVE}
	for _, c := range tunnels(t) {
		i := Parse(c.f, ports...)
		if i.PType != c.ptype || i.Tunnel != c.tunnel || i.Inner.Kind != c.kind {
			t.Errorf("%s: ptype %d, want %d; %+v", c.name, i.PType, c.ptype, i)
			continue
		}
		if v := i.Verify(c.f); v != Verified {
			t.Errorf("%s: verdict %b of a good frame", c.name, v)
		}
		changed := func(at int, how byte) Verdict {
			f := bytes.Clone(c.f)
			f[at] ^= how
			again := Parse(f, ports...)
			return again.Verify(f)
		}
		checksummed := c.tunnel == TunnelUDP
		gre := c.tunnel == TunnelGRE && be16(c.f[i.L4:])&greChecksum != 0
		if i.Network == IPv4 {
			if v := changed(i.L3+8, 1); v != Verified|BadOuterIP { // TTL
				t.Errorf("%s: verdict %b of another outer TTL", c.name, v)
			}
		}
		if i.Inner.Network == IPv4 {
			want := Verified | BadIP
			switch {
			case checksummed:
				want |= BadOuterUDP
			case gre:
				want = 0
			}
			if v := changed(i.Inner.L3+8, 1); v != want {
				t.Errorf("%s: verdict %b of another inner TTL, want %b", c.name, v, want)
			}
		}
		if c.innerPort {
			want := Verified | BadL4
			switch {
			case checksummed:
				want |= BadOuterUDP
			case gre:
				want = 0
			}
			if v := changed(i.Inner.L4+1, 1); v != want {
				t.Errorf("%s: verdict %b of another port, want %b", c.name, v, want)
			}
		}
		if c.tunnel == TunnelUDP {
			if v := changed(i.L4, 1); v != Verified|BadOuterUDP {
				t.Errorf("%s: verdict %b of another outer port", c.name, v)
			}
			f := bytes.Clone(c.f)
			f[i.L4+6], f[i.L4+7] = 0, 0
			again := Parse(f, ports...)
			if v := again.Verify(f); v != Verified {
				t.Errorf("%s: verdict %b without an outer checksum", c.name, v)
			}
			plain := Parse(c.f)
			if plain.Tunnel != NoTunnel || plain.L4Kind() != PTypeUDP || plain.Verify(c.f) != Verified {
				t.Errorf("%s: with no port named: %+v", c.name, plain)
			}
		}
		// The hash is that of the packet inside.
		in := []gopacket.SerializableLayer{eth4}
		if i.Inner.Network == IPv6 {
			in[0] = eth6
		}
		alone := frametest.Build(t, append(in, c.carried...)...)
		a := Parse(alone)
		var buf, want [maxTuple]byte
		n, m := i.Tuple(c.f, &buf), a.Tuple(alone, &want)
		if n != m || h.Hash(buf[:n]) != h.Hash(want[:m]) {
			t.Errorf("%s: tuple % x, want % x", c.name, buf[:n], want[:m])
		}
	}
}

// What only looks like a tunnel is not one; what carries no IP says so.
func TestNoTunnel(t *testing.T) {
	pay := gopacket.Payload(make([]byte, 40))
	arp := &layers.Ethernet{SrcMAC: eth4.SrcMAC, DstMAC: eth4.DstMAC, EthernetType: layers.EthernetTypeARP}
	udp := &layers.UDP{SrcPort: 9, DstPort: PortVXLAN}
	short := frametest.Build(t, eth4, ip4(17), udp, gopacket.Payload{8, 0, 0, 0, 0, 0, 5, 0}, pay)
	binary.BigEndian.PutUint16(short[38:], 15)
	fragment := ip4(47)
	fragment.FragOffset = 100
	for _, c := range []struct {
		name  string
		f     []byte
		ptype uint16
		n     int // of the hash's input
	}{
		{"GRE of something", frametest.Build(t, eth4, ip4(47), &layers.GRE{Protocol: 0x9000}, pay), 43, 8},
		{"ARP in NVGRE", frametest.Build(t, eth6, ip6(47), &layers.GRE{Protocol: 0x6558}, arp, pay), 58 + 66, 32},
		{"ARP in VXLAN", frametest.Build(t, eth4, ip4(17), udp, gopacket.Payload{8, 0, 0, 0, 0, 0, 5, 0}, gopacket.Payload(frametest.Build(t, arp)[:14]), pay), 58, 8},
		{"VXLAN without VNI", frametest.Build(t, eth4, ip4(17), udp, gopacket.Payload{0, 0, 0, 0, 0, 0, 5, 0}, pay), 24, 12},
		{"GENEVE options beyond", frametest.Build(t, eth4, ip4(17), udp, gopacket.Payload{0x3f, 0, 0x65, 0x58, 0, 0, 5, 0}, pay), 24, 12},
		{"UDP shorter than VXLAN", short, 24, 12},
		{"GRE with routing", frametest.Build(t, eth4, ip4(47), gopacket.Payload{0x40, 0, 8, 0}, ip4(6), pay), 23, 8},
		{"GRE of another version", frametest.Build(t, eth4, ip4(47), gopacket.Payload{0, 1, 8, 0}, ip4(6), pay), 23, 8},
		{"GRE cut", frametest.Build(t, eth4, ip4(47), gopacket.Payload{0xb0, 0, 8, 0, 1, 2}), 23, 8},
		{"MAC cut", frametest.Build(t, eth4, ip4(47), gopacket.Payload{0, 0, 0x65, 0x58}, pay[:13]), 23, 8},
		{"IP in IP that is none", frametest.Build(t, eth4, ip4(4), pay), 23, 8},
		{"fragment", frametest.Build(t, eth4, fragment, gopacket.Payload{0, 0, 8, 0}, ip4(6), pay), 22, 8},
	} {
		i := Parse(c.f, PortVXLAN)
		var buf [maxTuple]byte
		if n := i.Tuple(c.f, &buf); i.PType != c.ptype || n != c.n {
			t.Errorf("%s: ptype %d, want %d; tuple of %d, want %d; %+v", c.name, i.PType, c.ptype, n, c.n, i)
		}
	}
}
