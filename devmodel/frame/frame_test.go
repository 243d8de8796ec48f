// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

var (
	eth4 = &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	eth6 = &layers.Ethernet{SrcMAC: eth4.SrcMAC, DstMAC: eth4.DstMAC, EthernetType: layers.EthernetTypeIPv6}
)

func ip4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ip6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
}

func TestParse(t *testing.T) {
	pay := gopacket.Payload("thirteen byte")
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true, Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}}}
	udp := &layers.UDP{SrcPort: 1000, DstPort: PortRoCE}
	sctp := &layers.SCTP{SrcPort: 1, DstPort: 2}
	vlan := func(next layers.EthernetType) *layers.Dot1Q {
		return &layers.Dot1Q{Priority: 3, VLANIdentifier: 100, Type: next}
	}
	options := ip4(layers.IPProtocolTCP)
	options.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}}
	fragment := ip4(layers.IPProtocolUDP)
	fragment.Flags = layers.IPv4MoreFragments
	hop := ip6(layers.IPProtocolIPv6HopByHop)
	hopHeader := gopacket.Payload(append([]byte{ProtoUDP, 0, 1, 4, 0, 0, 0, 0}, frametest.Build(t, eth6, ip6(17), udp, pay)[54:]...))
	fragment6 := ip6(layers.IPProtocolIPv6Fragment)
	// The ethertype of the first tag's frame names the tag.
	tagged := *eth4
	tagged.EthernetType = layers.EthernetTypeDot1Q
	qinq := *eth4
	qinq.EthernetType = layers.EthernetTypeQinQ
	arp := *eth4
	arp.EthernetType = layers.EthernetTypeARP
	for _, c := range []struct {
		name string
		f    []byte
		want Info
	}{
		{"TCP", frametest.Build(t, eth4, ip4(6), tcp, pay), Info{Type: 0x800, PType: 26, Packet: Packet{Network: IPv4, Kind: 26, Proto: 6, L3: 14, L4: 34, L4Len: 24, End: 71}}},
		{"IP options", frametest.Build(t, eth4, options, tcp, pay), Info{Type: 0x800, PType: 26, Packet: Packet{Network: IPv4, Kind: 26, Proto: 6, L3: 14, L4: 42, L4Len: 24, End: 79}}},
		{"padded UDP", append(frametest.Build(t, eth4, ip4(17), udp), make([]byte, 18)...), Info{Type: 0x800, PType: 24, Packet: Packet{Network: IPv4, Kind: 24, Proto: 17, L3: 14, L4: 34, L4Len: 8, End: 42}}},
		{"SCTP", frametest.Build(t, eth4, ip4(132), sctp, pay), Info{Type: 0x800, PType: 27, Packet: Packet{Network: IPv4, Kind: 27, Proto: 132, L3: 14, L4: 34, L4Len: 12, End: 59}}},
		{"ICMP", frametest.Build(t, eth4, ip4(1), &layers.ICMPv4{TypeCode: 0x800}), Info{Type: 0x800, PType: 28, Packet: Packet{Network: IPv4, Kind: 28, Proto: 1, L3: 14, L4: 34, L4Len: 4, End: 42}}},
		{"fragment", frametest.Build(t, eth4, fragment, udp, pay), Info{Type: 0x800, PType: 22, Packet: Packet{Network: IPv4, Kind: 22, Proto: 17, L3: 14, L4: 34, End: 55, Fragment: true}}},
		{"VXLAN", frametest.Build(t, eth4, ip4(17), &layers.UDP{DstPort: PortVXLAN}, &layers.VXLAN{ValidIDFlag: true}, eth4, ip4(1)), Info{Type: 0x800, PType: 24, Packet: Packet{Network: IPv4, Kind: 24, Proto: 17, L3: 14, L4: 34, L4Len: 8, End: 110}}},
		{"v6 TCP", frametest.Build(t, eth6, ip6(6), tcp, pay), Info{Type: 0x86dd, PType: 92, Packet: Packet{Network: IPv6, Kind: 26, Proto: 6, L3: 14, L4: 54, L4Len: 24, End: 91}}},
		{"v6 hop by hop", frametest.Build(t, eth6, hop, hopHeader), Info{Type: 0x86dd, PType: 90, Packet: Packet{Network: IPv6, Kind: 24, Proto: 17, L3: 14, L4: 62, L4Len: 8, End: 83}}},
		{"v6 fragment", frametest.Build(t, eth6, fragment6, gopacket.Payload{17, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8}), Info{Type: 0x86dd, PType: 88, Packet: Packet{Network: IPv6, Kind: 22, Proto: 17, L3: 14, L4: 62, End: 70, Fragment: true}}},
		{"v6 routing", frametest.Build(t, eth6, ip6(layers.IPProtocolIPv6Routing), gopacket.Payload{17, 0, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 8, 0, 0}), Info{Type: 0x86dd, PType: 90, Packet: Packet{Network: IPv6, Kind: 24, Proto: 17, L3: 14, L4: 62, L4Len: 8, End: 70, AddressChanged: true}}},
		{"v6 cut extension", frametest.Build(t, eth6, ip6(layers.IPProtocolIPv6Destination), gopacket.Payload{17, 9, 0, 0, 0, 0, 0, 0}), Info{Type: 0x86dd, PType: 89, Packet: Packet{Network: IPv6, Kind: 23, Proto: 60, L3: 14, L4: 54, End: 62, AddressChanged: true}}},
		{"ICMPv6", frametest.Build(t, eth6, ip6(58), &layers.ICMPv6{TypeCode: 0x8700}, pay), Info{Type: 0x86dd, PType: 94, Packet: Packet{Network: IPv6, Kind: 28, Proto: 58, L3: 14, L4: 54, L4Len: 4, End: 71}}},
		{"VLAN", frametest.Build(t, &tagged, vlan(0x800), ip4(17), udp), Info{TPID: 0x8100, TCI: 0x6064, Tags: 1, Type: 0x800, PType: 24, Packet: Packet{Network: IPv4, Kind: 24, Proto: 17, L3: 18, L4: 38, L4Len: 8, End: 46}}},
		{"QinQ", frametest.Build(t, &qinq, vlan(0x8100), vlan(0x86dd), ip6(17), udp), Info{TPID: 0x88a8, TCI: 0x6064, Tags: 2, Type: 0x86dd, PType: 90, Packet: Packet{Network: IPv6, Kind: 24, Proto: 17, L3: 22, L4: 62, L4Len: 8, End: 70}}},
		{"ARP", frametest.Build(t, &arp, gopacket.Payload(make([]byte, 28))), Info{Type: 0x806, PType: 11, Packet: Packet{L3: 14, End: 60}}},
		{"cut IP", frametest.Build(t, eth4, ip4(6), tcp)[:40], Info{Type: 0x800, PType: 1, Packet: Packet{L3: 14, End: 40}}},
		{"runt", []byte{1, 2, 3}, Info{PType: 1, Packet: Packet{End: 3}}},
	} {
		got := Parse(c.f)
		if got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
		if c.want.Network == NoIP {
			continue
		}
		// What gopacket computed is right; one bit away, it is not.
		v := got.Verify(c.f)
		changed := c.want.AddressChanged
		if want := Verified; v != want && !changed {
			t.Errorf("%s: verdict %b of a good frame", c.name, v)
		}
		if got.L4Len == 0 || changed {
			continue
		}
		bad := append([]byte(nil), c.f...)
		bad[got.L4+got.L4Len-1] ^= 4
		if i := Parse(bad); i.Verify(bad) == Verified && !(c.want.L4Kind() == PTypeUDP && bad[i.L4+6] == 0 && bad[i.L4+7] == 0) {
			t.Errorf("%s: verdict %b of a changed frame", c.name, i.Verify(bad))
		}
	}
	f := frametest.Build(t, eth4, ip4(17), udp, pay)
	i := Parse(f)
	f[i.L4+6], f[i.L4+7] = 0, 0
	if v := i.Verify(f); v != Verified || !i.RoCE(f) {
		t.Errorf("UDP without a checksum: verdict %b, RoCE %t", v, i.RoCE(f))
	}
	f[i.L3+8]--
	if v := i.Verify(f); v != Verified|BadIP {
		t.Errorf("another TTL: verdict %b", v)
	}
}

// The sums agree with the plainest way to do them, for every length.
func TestSum(t *testing.T) {
	p := make([]byte, 200)
	for i := range p {
		p[i] = byte(i*i + 0xf0)
	}
	for n := range p {
		var want uint32
		for i := 0; i < n; i += 2 {
			w := uint32(p[i]) << 8
			if i+1 < n {
				w |= uint32(p[i+1])
			}
			want += w
		}
		for want>>16 != 0 {
			want = want>>16 + want&0xffff
		}
		if got := Fold(Sum(p[:n], 0)); uint32(got) != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	if got := Fold(Sum([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ^uint64(0))); got != 0xffff {
		t.Errorf("carries: %#x", got)
	}
	if got := FCS([]byte("123456789")); binary.LittleEndian.Uint32(got[:]) != 0xCBF43926 {
		t.Errorf("FCS %x", got)
	}
	if got := CRC32C(0, []byte("123456789")); got != 0xE3069283 {
		t.Errorf("CRC32c %#x", got)
	}
}

// The vectors of the specification of receive side scaling.
func TestToeplitz(t *testing.T) {
	key, _ := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	h := NewToeplitz(key)
	for _, c := range []struct {
		src, dst    string
		sp, dp      layers.TCPPort
		ports, addr uint32
	}{
		{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x51ccc178, 0x323e8fc2},
		{"199.92.111.2", "65.69.140.83", 14230, 4739, 0xc626b0ea, 0xd718262a},
		{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x40207d3d, 0x2cc18cd5},
		{"3ffe:501:8::260:97ff:fe40:efab", "ff02::1", 14230, 4739, 0xdde51bbf, 0x0f0c461c},
	} {
		src, dst := netip.MustParseAddr(c.src), netip.MustParseAddr(c.dst)
		tcp := &layers.TCP{SrcPort: c.sp, DstPort: c.dp}
		make := func(p layers.IPProtocol, l gopacket.SerializableLayer) []byte {
			if src.Is4() {
				i := ip4(p)
				i.SrcIP, i.DstIP = src.AsSlice(), dst.AsSlice()
				return frametest.Build(t, eth4, i, l)
			}
			i := ip6(p)
			i.SrcIP, i.DstIP = src.AsSlice(), dst.AsSlice()
			return frametest.Build(t, eth6, i, l)
		}
		for _, x := range []struct {
			f    []byte
			want uint32
		}{{make(6, tcp), c.ports}, {make(89, gopacket.Payload("ospf")), c.addr}} {
			var buf [maxTuple]byte
			i := Parse(x.f)
			n := i.Tuple(x.f, &buf)
			if got := h.Hash(buf[:n]); got != x.want {
				t.Errorf("%s -> %s: %#x, want %#x", c.src, c.dst, got, x.want)
			}
		}
	}
	a, b := []byte{10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2}, []byte{10, 0, 0, 2, 10, 0, 0, 1, 0, 2, 0, 1}
	Symmetric(a)
	Symmetric(b)
	if h.Hash(a) != h.Hash(b) || h.Hash(a) == 0 {
		t.Errorf("symmetric: %#x and %#x", h.Hash(a), h.Hash(b))
	}
}

func TestClass(t *testing.T) {
	for want, a := range [][]byte{{0, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		if got := Class(a); got != want {
			t.Errorf("class of % x is %d, want %d", a, got, want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	f := frametest.Build(t, eth6, ip6(6), &layers.TCP{}, gopacket.Payload(make([]byte, 1000)))
	h := NewToeplitz(make([]byte, 40))
	if n := testing.AllocsPerRun(100, func() {
		var buf [maxTuple]byte
		i := Parse(f)
		_ = i.Verify(f)
		h.Hash(buf[:i.Tuple(f, &buf)])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzParse: whatever arrives, offsets are inside the frame and in order.
func FuzzParse(f *testing.F) {
	pay := gopacket.Payload("payload")
	f.Add(frametest.Build(f, eth4, ip4(6), &layers.TCP{}, pay))
	f.Add(frametest.Build(f, eth4, ip4(132), &layers.SCTP{}, pay))
	f.Add(frametest.Build(f, eth6, ip6(17), &layers.UDP{}, pay))
	f.Add(frametest.Build(f, eth6, ip6(0), gopacket.Payload{43, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 51, 0, 0, 0, 0, 0, 0, 0, 44, 4, 0, 0, 0, 0, 0, 0}))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0, 1, 0x88, 0xa8, 0, 2, 8, 6})
	for _, c := range tunnels(f) {
		f.Add(c.f)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		i := Parse(p, PortVXLAN, 0)
		if i.Network != NoIP && (i.L3 < HeaderLen || i.L4 < i.L3+ipv4Min || i.L4+i.L4Len > i.End) || i.End > len(p) {
			t.Fatalf("%+v of %d bytes", i, len(p))
		}
		if in := i.Inner; i.Tunnel != NoTunnel && (in.L3 < i.L4 || in.End > i.End || in.L3 > in.End || in.L4+in.L4Len > in.End) {
			t.Fatalf("%+v of %d bytes", i, len(p))
		}
		if k := i.PType; k < 1 || k > 153 {
			t.Fatalf("ptype %d", k)
		}
		_ = i.Verify(p)
		_, _, _ = i.Ports(p)
		_ = i.RoCE(p)
		var buf [maxTuple]byte
		Symmetric(buf[:i.Tuple(p, &buf)])
	})
}

func BenchmarkVerify(b *testing.B) {
	f := frametest.Build(b, eth4, ip4(6), &layers.TCP{}, gopacket.Payload(make([]byte, 1446)))
	b.SetBytes(int64(len(f)))
	for b.Loop() {
		i := Parse(f)
		if i.Verify(f) != Verified {
			b.Fatal("bad")
		}
	}
}
