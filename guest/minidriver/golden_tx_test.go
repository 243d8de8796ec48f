// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// stack is a list of layers.
type stack = []gopacket.SerializableLayer

// partial leaves in f what the stack leaves in the L4 header at l4, behind the
// IP header at ip, for the card to finish: size is the length of the L4 packet.
func partial(f []byte, ip, l4 int, proto uint8, size int) {
	switch proto {
	case protoTCP:
		be.PutUint16(f[l4+16:], pseudoSum(f, ip, proto, size))
	case protoUDP:
		be.PutUint16(f[l4+6:], pseudoSum(f, ip, proto, size))
	case protoSCTP:
		copy(f[l4+8:], "junk")
	}
}

// Every checksum that ice asks for, over what the frame is in, against
// gopacket's.
func TestGoldenChecksums(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{})
	eth := func(t layers.EthernetType) *layers.Ethernet { return etherLayer(i, true, t) }
	tag := func(id uint16, next layers.EthernetType) *layers.Dot1Q {
		return &layers.Dot1Q{Priority: 3, VLANIdentifier: id, Type: next}
	}
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 3, Ack: 4, ACK: true, Window: 5}
	udp, sctp := &layers.UDP{SrcPort: 3, DstPort: 4}, &layers.SCTP{SrcPort: 5, DstPort: 6, VerificationTag: 7}
	options := ipv4Layer(protoTCP)
	options.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}}
	hop := gopacket.Payload{protoUDP, 0, 1, 4, 0, 0, 0, 0}
	// gopacket computes the checksum of what follows an extension header with
	// the length of both.
	behind := func(l4 gopacket.SerializableLayer, n int) []byte {
		return frametest.Build(t, eth(0x86dd), ipv6Layer(protoUDP), l4, pattern(n))
	}
	extended := append(frametest.Build(t, eth(0x86dd), ipv6Layer(0), hop), behind(udp, 99)[54:]...)
	be.PutUint16(extended[18:], uint16(len(extended)-54))
	vxlan := func(outer stack) stack {
		return append(outer, &layers.UDP{SrcPort: 9, DstPort: 4789}, &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(333))
	}
	for _, c := range []struct {
		name     string
		want     []byte
		ip, l4   int // innermost
		proto    uint8
		outer    int // IP header of a tunnel
		outerL4  int
		zeroSum  bool // no outer UDP checksum
		bySender bool // the frame needs nothing
	}{
		{name: "nothing", want: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(10)), bySender: true},
		{name: "TCP", want: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp, pattern(101)), ip: 14, l4: 34, proto: protoTCP},
		{name: "TCP without payload", want: frametest.Build(t, eth(0x800), ipv4Layer(protoTCP), tcp)[:54], ip: 14, l4: 34, proto: protoTCP},
		{name: "TCP behind IP options", want: frametest.Build(t, eth(0x800), options, tcp, pattern(50)), ip: 14, l4: 42, proto: protoTCP},
		{name: "UDP", want: frametest.Build(t, eth(0x800), ipv4Layer(protoUDP), udp, pattern(33)), ip: 14, l4: 34, proto: protoUDP},
		{name: "SCTP", want: frametest.Build(t, eth(0x800), ipv4Layer(protoSCTP), sctp, pattern(64)), ip: 14, l4: 34, proto: protoSCTP},
		{name: "TCP over IPv6", want: frametest.Build(t, eth(0x86dd), ipv6Layer(protoTCP), tcp, pattern(1400)), ip: 14, l4: 54, proto: protoTCP},
		{name: "UDP over IPv6", want: frametest.Build(t, eth(0x86dd), ipv6Layer(protoUDP), udp, pattern(1)), ip: 14, l4: 54, proto: protoUDP},
		{name: "SCTP over IPv6", want: frametest.Build(t, eth(0x86dd), ipv6Layer(protoSCTP), sctp, pattern(4)), ip: 14, l4: 54, proto: protoSCTP},
		{name: "UDP behind hop-by-hop options", want: extended, ip: 14, l4: 62, proto: protoUDP},
		{name: "TCP in a VLAN", want: frametest.Build(t, eth(0x8100), tag(100, 0x800), ipv4Layer(protoTCP), tcp, pattern(40)), ip: 18, l4: 38, proto: protoTCP},
		{name: "UDP over IPv6 in two VLANs", want: frametest.Build(t, eth(0x88a8), tag(5, 0x8100), tag(100, 0x86dd), ipv6Layer(protoUDP), udp, pattern(40)), ip: 22, l4: 62, proto: protoUDP},
		{name: "TCP in GRE", want: frametest.Build(t, eth(0x800), ipv4Layer(protoGRE), &layers.GRE{Protocol: 0x86dd}, ipv6Layer(protoTCP), tcp, pattern(77)),
			outer: 14, outerL4: 34, ip: 38, l4: 78, proto: protoTCP},
		{name: "UDP in IP in IP", want: frametest.Build(t, eth(0x800), ipv4Layer(protoIPIP), ipv4Layer(protoUDP), udp, pattern(77)), outer: 14, outerL4: 34, ip: 34, l4: 54, proto: protoUDP},
		{name: "SCTP over IPv6 in IPv6", want: frametest.Build(t, eth(0x86dd), ipv6Layer(protoIPv6), ipv6Layer(protoSCTP), sctp, pattern(76)), outer: 14, outerL4: 54, ip: 54, l4: 94, proto: protoSCTP},
		{name: "TCP in VXLAN", want: frametest.Build(t, vxlan(stack{eth(0x800), ipv4Layer(protoUDP)})...), outer: 14, outerL4: 34, ip: 64, l4: 84, proto: protoTCP, zeroSum: true},
		{name: "TCP in VXLAN over IPv6", want: frametest.Build(t, vxlan(stack{eth(0x86dd), ipv6Layer(protoUDP)})...), outer: 14, outerL4: 54, ip: 84, l4: 104, proto: protoTCP, zeroSum: true},
	} {
		want := bytes.Clone(c.want)
		if c.zeroSum {
			clear(want[c.outerL4+6 : c.outerL4+8])
		}
		p := Packet{Data: bytes.Clone(want)}
		if !c.bySender {
			partial(p.Data, c.ip, c.l4, c.proto, len(p.Data)-c.l4)
			if p.Partial, p.Network, p.Transport = true, c.ip, c.l4; c.outer != 0 {
				p.Network, p.Transport, p.InnerNetwork, p.InnerTransport = c.outer, c.outerL4, c.ip, c.l4
			}
		}
		for n := len(want); n < 60; n++ { // padding
			want = append(want, 0)
		}
		// In one buffer, and in as many as a frame may have.
		for _, pieces := range [][]int{nil, scatter(len(p.Data), maxBuffersPerFrame)} {
			p.Pieces = pieces
			s, err := i.Send(i.queues[0], p, false)
			must(t, err)
			must(t, i.Wait(s))
			sameFrame(t, c.name, w.next(), want)
		}
	}
	if extra := onWire(t, i, w, i.queues[0]); len(extra) != 0 {
		t.Errorf("%d frames more than were sent", len(extra))
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// scatter cuts n bytes into at most count pieces, the first of them short.
func scatter(n, count int) (pieces []int) {
	for k := range count - 1 {
		piece := 1 + 13*k
		if n <= piece {
			break
		}
		pieces = append(pieces, piece)
		n -= piece
	}
	return append(pieces, n)
}

// A UDP checksum that comes out as 0 is sent as all ones, alone and in segments.
func TestGoldenUDPZero(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{})
	const l4, mss = 34, 100
	// The last two bytes are what makes the sum 0.
	zeroed := func(n int) []byte {
		f := frametest.Build(t, etherLayer(i, true, 0x800), ipv4Layer(protoUDP), &layers.UDP{SrcPort: 3, DstPort: 4}, pattern(n-2), gopacket.Payload{0, 0})
		copy(f[len(f)-2:], f[l4+6:l4+8])
		be.PutUint16(f[l4+6:], 0xffff)
		return f
	}
	one := zeroed(mss)
	p := Packet{Data: bytes.Clone(one), Network: 14, Transport: l4, Partial: true}
	partial(p.Data, 14, l4, protoUDP, len(one)-l4)
	s, err := i.Send(i.queues[0], p, false)
	must(t, err)
	must(t, i.Wait(s))
	sameFrame(t, "one frame", w.next(), one)

	p = Packet{Data: append(bytes.Clone(one), one[l4+8:]...), Network: 14, Transport: l4, Partial: true, MSS: mss, UDP: true}
	partial(p.Data, 14, l4, protoUDP, len(p.Data)-l4)
	s, err = i.Send(i.queues[0], p, false)
	must(t, err)
	must(t, i.Wait(s))
	for n := range 2 {
		if got := be.Uint16(w.next()[l4+6:]); got != 0xffff {
			t.Errorf("segment %d has the checksum %#x", n, got)
		}
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// Tags by the data descriptor, on short and long frames, also of segments.
func TestGoldenVLANs(t *testing.T) {
	i, w, complaints := wired(t, Linux612(), Options{})
	must(t, i.AddVLAN(100))
	vlan := uint16(0x6064)
	plain := frametest.Build(t, etherLayer(i, true, 0x806), pattern(28))[:42]
	tagged := append(append(bytes.Clone(plain[:12]), 0x81, 0, 0x60, 0x64), plain[12:]...)
	s, err := i.Send(i.queues[1], Packet{Data: plain, VLAN: &vlan}, false)
	must(t, err)
	must(t, i.Wait(s))
	sameFrame(t, "ARP", w.next(), append(tagged, make([]byte, 60-len(tagged))...))

	short := plain[:minTxLen]
	s, err = i.Send(i.queues[1], Packet{Data: short}, false)
	must(t, err)
	must(t, i.Wait(s))
	sameFrame(t, "17 bytes", w.next(), append(bytes.Clone(short), make([]byte, 60-minTxLen)...))

	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}
	dot1q := &layers.Dot1Q{Priority: 3, VLANIdentifier: 100, Type: 0x800}
	p := Packet{Data: frametest.Build(t, etherLayer(i, true, 0x800), ipv4Layer(protoTCP), tcp, pattern(2500)), Network: 14, Transport: 34, Partial: true, MSS: 1000, VLAN: &vlan}
	partial(p.Data, 14, 34, protoTCP, len(p.Data)-34)
	s, err = i.Send(i.queues[0], p, false)
	must(t, err)
	must(t, i.Wait(s))
	for n, size := range []int{1000, 1000, 500} {
		ip := ipv4Layer(protoTCP)
		ip.Id += uint16(n)
		tcp.Seq = uint32(1000 * n)
		want := frametest.Build(t, etherLayer(i, true, 0x8100), dot1q, ip, tcp, pattern(2500)[1000*n:1000*n+size])
		sameFrame(t, "segment in a VLAN", w.next(), want)
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// cut is a segment's place in the whole.
type cut struct {
	from        int
	n           int
	first, last bool
}

// segmentation is one kind of packet that ice has the card cut.
type segmentation struct {
	name    string
	size    int // payload
	mss     int
	headers int
	packet  Packet // offsets and kind
	proto   uint8  // innermost
	make    func(c cut, p []byte) []byte
	pieces  int
}

func segmentations(t testing.TB, i *ICE) []segmentation {
	eth := func(t layers.EthernetType) *layers.Ethernet { return etherLayer(i, true, t) }
	v4 := func(c cut, p layers.IPProtocol) *layers.IPv4 {
		ip := ipv4Layer(p)
		ip.Id += uint16(c.n) // it wraps
		return ip
	}
	tcp := func(c cut) *layers.TCP {
		return &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 0xfffff000 + uint32(c.from), Ack: 9, ACK: true, PSH: c.last, FIN: c.last, ECE: true, CWR: c.first, Window: 77,
			Options: []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {OptionType: 8, OptionLength: 10, OptionData: []byte("timestmp")}}}
	}
	udp := func() *layers.UDP { return &layers.UDP{SrcPort: 3, DstPort: 4} }
	tunnelUDP := func() *layers.UDP { return &layers.UDP{SrcPort: 9, DstPort: 4789} }
	vxlan := func() *layers.VXLAN { return &layers.VXLAN{ValidIDFlag: true, VNI: 5} }
	geneve := gopacket.Payload{1, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 0}
	noSum := func(f []byte, at int) []byte {
		clear(f[at+6 : at+8])
		return f
	}
	plain := func(ip, l4 int) Packet { return Packet{Network: ip, Transport: l4} }
	tunnel := func(ip, l4, inIP, inL4 int) Packet {
		return Packet{Network: ip, Transport: l4, InnerNetwork: inIP, InnerTransport: inL4}
	}
	with := func(p Packet, do func(*Packet)) Packet {
		do(&p)
		return p
	}
	uso := func(p *Packet) { p.UDP = true }
	csum := func(p *Packet) { p.TunnelCsum = true }
	partialGSO := func(p *Packet) { p.GSOPartial = true }
	both := func(p *Packet) { p.GSOPartial, p.TunnelCsum = true, true }
	hop := gopacket.Payload{protoTCP, 0, 1, 4, 0, 0, 0, 0}
	list := []segmentation{
		{name: "TCP", size: 5500, mss: 1000, headers: 66, packet: plain(14, 34), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP of one segment", size: 500, mss: 1000, headers: 66, packet: plain(14, 34), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP of whole segments", size: 3000, mss: 1000, headers: 66, packet: plain(14, 34), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP of the smallest segments", size: 6401, mss: 64, headers: 66, packet: plain(14, 34), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}, pieces: 40},
		{name: "TCP over IPv6", size: 5001, mss: 1428, headers: 86, packet: plain(14, 54), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x86dd), ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP behind hop-by-hop options", size: 4000, mss: 1420, headers: 94, packet: plain(14, 62), proto: protoTCP, make: func(c cut, p []byte) []byte {
			f := append(frametest.Build(t, eth(0x86dd), ipv6Layer(0), hop), frametest.Build(t, eth(0x86dd), ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))[54:]...)
			be.PutUint16(f[18:], uint16(len(f)-54))
			return f
		}},
		{name: "TCP in a VLAN", size: 3000, mss: 1448, headers: 70, packet: plain(18, 38), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x8100), &layers.Dot1Q{VLANIdentifier: 100, Type: 0x800}, v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "UDP", size: 3000, mss: 1000, headers: 42, packet: with(plain(14, 34), uso), proto: protoUDP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoUDP), udp(), gopacket.Payload(p))
		}},
		{name: "UDP over IPv6", size: 3100, mss: 1232, headers: 62, packet: with(plain(14, 54), uso), proto: protoUDP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x86dd), ipv6Layer(protoUDP), udp(), gopacket.Payload(p))
		}},
		{name: "TCP in GRE", size: 2500, mss: 1000, headers: 90, packet: tunnel(14, 34, 38, 58), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoGRE), &layers.GRE{Protocol: 0x800}, v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP over IPv6 in GRE with a key over IPv6", size: 2500, mss: 1000, headers: 134, packet: tunnel(14, 54, 62, 102), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x86dd), ipv6Layer(protoGRE), &layers.GRE{Protocol: 0x86dd, KeyPresent: true, Key: 7}, ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP in GRE with a checksum", size: 3000, mss: 1000, headers: 94, packet: with(tunnel(14, 34, 42, 62), partialGSO), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoGRE), &layers.GRE{Protocol: 0x800, ChecksumPresent: true}, v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP in IP in IP", size: 2500, mss: 1000, headers: 86, packet: tunnel(14, 34, 34, 54), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoIPIP), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP over IPv6 in IPv4", size: 2500, mss: 1000, headers: 106, packet: tunnel(14, 34, 34, 74), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoIPv6), ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP over IPv4 in IPv6", size: 2500, mss: 1000, headers: 106, packet: tunnel(14, 54, 54, 74), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x86dd), ipv6Layer(protoIPIP), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP over IPv6 in IPv6", size: 2500, mss: 1000, headers: 126, packet: tunnel(14, 54, 54, 94), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x86dd), ipv6Layer(protoIPv6), ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP in VXLAN", size: 2500, mss: 1000, headers: 116, packet: tunnel(14, 34, 64, 84), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return noSum(frametest.Build(t, eth(0x800), v4(c, protoUDP), tunnelUDP(), vxlan(), eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p)), 34)
		}},
		{name: "TCP in VXLAN with an outer checksum", size: 2500, mss: 1000, headers: 116, packet: with(tunnel(14, 34, 64, 84), csum), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoUDP), tunnelUDP(), vxlan(), eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
		{name: "TCP over IPv6 in GENEVE over IPv6 with an outer checksum", size: 2500, mss: 1000, headers: 160, packet: with(tunnel(14, 54, 88, 128), csum), proto: protoTCP,
			make: func(c cut, p []byte) []byte {
				return frametest.Build(t, eth(0x86dd), ipv6Layer(protoUDP), tunnelUDP(), geneve, eth(0x86dd), ipv6Layer(protoTCP), tcp(c), gopacket.Payload(p))
			}},
		// The stack has made headers that are right for each segment: all are
		// as long as the first.
		{name: "TCP in VXLAN with an outer checksum, partial", size: 3000, mss: 1000, headers: 116, packet: with(tunnel(14, 34, 64, 84), both), proto: protoTCP, make: func(c cut, p []byte) []byte {
			return frametest.Build(t, eth(0x800), v4(c, protoUDP), tunnelUDP(), vxlan(), eth(0x800), v4(c, protoTCP), tcp(c), gopacket.Payload(p))
		}},
	}
	return list
}

// Each segment is what gopacket makes of its part of the payload: addresses,
// lengths, ids, sequence numbers, flags (PSH and FIN on the last, CWR on the
// first) and all checksums.
func TestGoldenSegments(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{})
	for n, c := range segmentations(t, i) {
		data := pattern(c.size)
		want := func(k int) []byte {
			from, to := k*c.mss, min((k+1)*c.mss, c.size)
			return c.make(cut{from, k, k == 0, to == c.size}, data[from:to])
		}
		p := c.super(want(0), data)
		p.Pieces = []int{c.headers, c.size}
		if c.pieces > 0 {
			p.Pieces = append([]int{c.headers}, scatter(c.size, c.pieces)...)
		}
		q := i.queues[n%len(i.queues)]
		s, err := i.Send(q, p, false)
		must(t, err)
		must(t, i.Wait(s))
		segments := onWire(t, i, w, q)
		if count := (c.size + c.mss - 1) / c.mss; len(segments) != count {
			t.Errorf("%s: %d segments, want %d", c.name, len(segments), count)
			continue
		}
		for k, got := range segments {
			sameFrame(t, c.name, got, want(k))
		}
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// super is the packet as the stack hands it down: first are the headers of the
// first segment with its payload.
func (c *segmentation) super(first, data []byte) Packet {
	p := c.packet
	p.Partial, p.MSS = true, c.mss
	p.Data = append(bytes.Clone(first[:c.headers]), data...)
	f, ip, l4 := p.Data, p.Network, p.Transport
	if p.InnerNetwork != 0 {
		ip, l4 = p.InnerNetwork, p.InnerTransport
		if p.TunnelCsum && !p.GSOPartial {
			be.PutUint16(f[p.Transport+6:], pseudoSum(f, p.Network, protoUDP, len(f)-p.Transport))
		}
	}
	if c.proto == protoTCP { // as for the packet as a whole
		f[l4+13] |= 1<<0 | 1<<3
	}
	partial(f, ip, l4, c.proto, len(f)-l4)
	return p
}

// As much as the stack of 7.3 hands down at once, in the largest pieces, with
// the segments of the largest MTU.
func TestGoldenLongSegments(t *testing.T) {
	i, w, complaints := wired(t, Linux73(), Options{MTU: maxMTU})
	const size, mss, headers = 131072 - 54, maxMTU - 40, 54
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}
	data := pattern(size)
	p := Packet{Network: 14, Transport: 34, Partial: true, MSS: mss, Pieces: []int{headers, 100, 32 << 10, 60 << 10}}
	p.Data = append(frametest.Build(t, etherLayer(i, true, 0x800), ipv4Layer(protoTCP), tcp)[:headers], data...)
	p.Pieces = append(p.Pieces, size-100-(92<<10))
	partial(p.Data, 14, 34, protoTCP, len(p.Data)-34)
	s, err := i.Send(i.queues[0], p, false)
	must(t, err)
	must(t, i.Wait(s))
	for n := 0; n*mss < size; n++ {
		ip := ipv4Layer(protoTCP)
		ip.Id += uint16(n)
		tcp.Seq = uint32(n * mss)
		sameFrame(t, "segment", w.next(), frametest.Build(t, etherLayer(i, true, 0x800), ip, tcp, data[n*mss:min((n+1)*mss, size)]))
	}
	if extra := onWire(t, i, w, i.queues[0]); len(extra) != 0 {
		t.Errorf("%d segments too many", len(extra))
	}
	must(t, i.Remove())
	quiet(t, complaints)
}

// A ring full of frames of all sizes at one doorbell, around its end many times.
func TestGoldenRing(t *testing.T) {
	i, w, complaints := wired(t, Linux61(), Options{})
	q := i.queues[0]
	for round := range 12 {
		var list []*sentPacket
		var want [][]byte
		for used := 0; used < ringLen-16; {
			n := len(want)
			f := frametest.Build(t, &layers.Ethernet{SrcMAC: net.HardwareAddr(i.MAC[:]), DstMAC: worldMAC, EthernetType: 0x88b6}, pattern(46+(n*97+round*31)%1455))
			s, err := i.Send(q, Packet{Data: f, Pieces: scatter(len(f), 1+n%maxBuffersPerFrame)}, true)
			must(t, err)
			list, want, used = append(list, s), append(want, f), used+s.n
		}
		i.Kick(q)
		must(t, i.Wait(list...))
		for _, f := range want {
			sameFrame(t, "frame", w.next(), f)
		}
	}
	must(t, i.Remove())
	quiet(t, complaints)
}
