// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// Fields of descriptors for tests, in the driver's units.
func offset(mac, ip, l4 int) uint64 {
	return uint64(mac/2)<<16 | uint64(ip/4)<<23 | uint64(l4/4)<<30
}

func iipt(k ipKind) uint64 { return uint64(k) << 9 }
func l4t(k l4Kind) uint64  { return uint64(k) << 12 }

// tsoContext is the second word of a context descriptor that asks for TSO.
func tsoContext(length, mss int) uint64 {
	return dtypeContext | ctxTSO | uint64(length)<<30 | uint64(mss)<<50
}

// tunnelContext is the first word of one for a tunnel.
func tunnelContext(outer ipKind, outerLen int, tunnel uint64, natLen int) uint64 {
	return uint64(outer) | uint64(outerLen/4)<<2 | tunnel<<9 | uint64(natLen/2)<<12
}

// transmit posts a frame, in buffers of at most 3000 bytes, behind a context
// descriptor if one of its words is not 0, and has it sent.
func (c *card) transmit(t testing.TB, f []byte, context0, context1, word1 uint64) {
	t.Helper()
	_ = c.mem.Write(frames, f)
	slot := int(c.Read32(0xE0000 + 4))
	post := func(w0, w1 uint64) {
		at := ring + 16*uint64(slot%ringN)
		_ = c.mem.Store64(at, w0)
		_ = c.mem.Store64(at+8, w1)
		slot++
	}
	if context0|context1 != 0 {
		post(context0, context1|dtypeContext)
	}
	for at := 0; at < len(f); at += 3000 {
		n, cmd := min(3000, len(f)-at), word1
		if at+n == len(f) {
			cmd |= cmdEOP | cmdRS
		}
		post(frames+uint64(at), cmd|uint64(n)<<34)
	}
	c.Write32(0x2C0000+4, uint32(slot%ringN))
	c.engine.Drain(1000)
	if got := c.mem.word(ring+16*uint64((slot+ringN-1)%ringN)+8) & 0xf; len(c.events) == 0 && got != dtypeDone {
		t.Errorf("the last descriptor has type %d", got)
	}
}

// partial leaves in the checksum field at of the L4 packet at l4 what the
// stack leaves there: the sum of the pseudo header, for TSO without its length.
func partial(f []byte, network frame.Network, l3, l4, at int, tso bool) {
	n := len(f) - l4
	if tso {
		n = 0
	}
	proto := uint8(frame.ProtoTCP)
	switch at {
	case 6:
		proto = frame.ProtoUDP
	case 8:
		copy(f[l4+8:], []byte{1, 2, 3, 4}) // undefined
		return
	}
	binary.BigEndian.PutUint16(f[l4+at:], frame.Fold(frame.PseudoHeader(f, network, l3, proto, n)))
}

func TestChecksumOffload(t *testing.T) {
	tcp, udp, sctp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}, &layers.UDP{SrcPort: 3, DstPort: 4}, &layers.SCTP{SrcPort: 5, DstPort: 6}
	tag := &layers.Dot1Q{VLANIdentifier: 9, Type: 0x800}
	for _, c := range []struct {
		name    string
		want    []byte
		network frame.Network
		l3, l4  int
		field   int
		word1   uint64
	}{
		{"TCP", frametest.Build(t, outbound(0x800), ip4(6), tcp, payload(101)), frame.IPv4, 14, 34, 16, offset(14, 20, 20) | iipt(ipv4) | l4t(l4TCP)},
		{"UDP", frametest.Build(t, outbound(0x800), ip4(17), udp, payload(33)), frame.IPv4, 14, 34, 6, offset(14, 20, 8) | iipt(ipv4) | l4t(l4UDP)},
		{"SCTP", frametest.Build(t, outbound(0x800), ip4(132), sctp, payload(64)), frame.IPv4, 14, 34, 8, offset(14, 20, 12) | iipt(ipv4) | l4t(l4SCTP)},
		{"TCP over IPv6", frametest.Build(t, outbound(0x86dd), ip6(6), tcp, payload(3000)), frame.IPv6, 14, 54, 16, offset(14, 40, 20) | iipt(ipv6) | l4t(l4TCP)},
		{"UDP in a VLAN", frametest.Build(t, outbound(0x8100), tag, ip4(17), udp, payload(4000)), frame.IPv4, 18, 38, 6, offset(18, 20, 8) | iipt(ipv4) | l4t(l4UDP)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCard(t)
			f := bytes.Clone(c.want)
			partial(f, c.network, c.l3, c.l4, c.field, false)
			s.transmit(t, f, 0, 0, c.word1)
			if len(s.wire) != 1 || !bytes.Equal(s.wire[0], c.want) {
				t.Fatalf("sent % x\nwant % x\nevents %v", s.wire, c.want, s.events)
			}
		})
	}
	// A UDP checksum that comes out as 0 is sent as all ones.
	s := newCard(t)
	f := frametest.Build(t, outbound(0x800), ip4(17), udp, payload(32))
	f[len(f)-2], f[len(f)-1] = 0, 0
	partial(f, frame.IPv4, 14, 34, 6, false)
	rest := frame.Checksum(f[34:], 0)
	binary.BigEndian.PutUint16(f[len(f)-2:], rest)
	if s.transmit(t, f, 0, 0, offset(14, 20, 8)|iipt(ipv4)|l4t(l4UDP)); len(s.wire) != 1 || binary.BigEndian.Uint16(s.wire[0][40:]) != 0xffff {
		t.Errorf("sent % x", s.wire)
	}
}

func TestPaddingAndTags(t *testing.T) {
	arp := frametest.Build(t, outbound(0x806))[:14]
	arp = append(arp, payload(28)...)
	tagged := func(tags ...byte) []byte { return append(append(bytes.Clone(arp[:12]), tags...), arp[12:]...) }
	for _, c := range []struct {
		name     string
		context0 uint64
		context1 uint64
		word1    uint64
		want     []byte
	}{
		{"padding", 0, 0, 0, arp},
		{"L2TAG1", 0, 0, 1<<bitIL2TAG1 | 0x6064<<48, tagged(0x81, 0, 0x60, 0x64)},
		{"L2TAG2", 0x2005 << 32, 1 << bitIL2TAG2, 0, tagged(0x88, 0xa8, 0x20, 5)},
		{"both", 0x2005 << 32, 1 << bitIL2TAG2, 1<<bitIL2TAG1 | 0x6064<<48, tagged(0x88, 0xa8, 0x20, 5, 0x81, 0, 0x60, 0x64)},
	} {
		s, steer := newCard(t), testSteering()
		steer.VSIs[theVSI].InsertTPID = 0x88a8
		s.Steer(steer)
		_ = s.mem.Write(frames+uint64(len(arp)), bytes.Repeat([]byte{0xee}, 100)) // what must not leak
		s.transmit(t, arp, c.context0, c.context1, c.word1)
		want := append(bytes.Clone(c.want), make([]byte, 60-len(c.want))...)
		if len(s.wire) != 1 || !bytes.Equal(s.wire[0], want) {
			t.Errorf("%s: sent % x\nwant % x", c.name, s.wire, want)
		}
	}
}

// Each segment is what gopacket makes of its part of the payload.
func TestSegmentation(t *testing.T) {
	const mss = 1000
	type cut struct {
		from, to    int
		n           int
		first, last bool
	}
	v4 := func(p layers.IPProtocol, c cut) *layers.IPv4 {
		i := ip4(p)
		i.Id += uint16(c.n)
		return i
	}
	tcp := func(c cut) *layers.TCP {
		return &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 0xfffff000 + uint32(c.from), Ack: 9, ACK: true, PSH: c.last, FIN: c.last, CWR: c.first, Window: 77,
			Options: []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {OptionType: 8, OptionLength: 10, OptionData: make([]byte, 8)}}}
	}
	udp := func(c cut) *layers.UDP { return &layers.UDP{SrcPort: 3, DstPort: 4} }
	vxlan := func() gopacket.SerializableLayer { return &layers.VXLAN{ValidIDFlag: true, VNI: 5} }
	for _, c := range []struct {
		name     string
		size     int
		make     func(p []byte, c cut) []byte
		headers  int
		context0 uint64
		word1    uint64
		clear    func(f []byte) // as the stack leaves it
	}{
		{"TCP", 5500, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x800), v4(6, c), tcp(c), gopacket.Payload(p))
		}, 66, 0, offset(14, 20, 32) | iipt(ipv4Sum) | l4t(l4TCP), func(f []byte) {
			clear(f[16:18])
			clear(f[24:26])
			partial(f, frame.IPv4, 14, 34, 16, true)
		}},
		{"TCP over IPv6", 5001, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x86dd), ip6(6), tcp(c), gopacket.Payload(p))
		}, 86, 0, offset(14, 40, 32) | iipt(ipv6) | l4t(l4TCP), func(f []byte) {
			clear(f[18:20])
			partial(f, frame.IPv6, 14, 54, 16, true)
		}},
		{"UDP", 3000, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x800), v4(17, c), udp(c), gopacket.Payload(p))
		}, 42, 0, offset(14, 20, 8) | iipt(ipv4Sum) | l4t(l4UDP), func(f []byte) {
			clear(f[16:18])
			clear(f[24:26])
			partial(f, frame.IPv4, 14, 34, 6, true)
		}},
		{"one segment", 500, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x800), v4(6, c), tcp(c), gopacket.Payload(p))
		}, 66, 0, offset(14, 20, 32) | iipt(ipv4Sum) | l4t(l4TCP), func(f []byte) {
			clear(f[16:18])
			clear(f[24:26])
			partial(f, frame.IPv4, 14, 34, 16, true)
		}},
		{"GRE", 2500, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x800), v4(47, c), &layers.GRE{Protocol: 0x800}, v4(6, c), tcp(c), gopacket.Payload(p))
		}, 90, tunnelContext(ipv4Sum, 20, 2, 4), offset(14, 20, 32) | iipt(ipv4Sum) | l4t(l4TCP), func(f []byte) {
			clear(f[16:18])
			clear(f[24:26])
			clear(f[40:42])
			clear(f[48:50])
			partial(f, frame.IPv4, 38, 58, 16, true)
		}},
		{"IP in IP", 2500, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x800), v4(41, c), ip6(6), tcp(c), gopacket.Payload(p))
		}, 106, tunnelContext(ipv4Sum, 20, 0, 0), offset(14, 40, 32) | iipt(ipv6) | l4t(l4TCP), func(f []byte) {
			clear(f[16:18])
			clear(f[24:26])
			clear(f[38:40])
			partial(f, frame.IPv6, 34, 74, 16, true)
		}},
		{"VXLAN", 2500, func(p []byte, c cut) []byte {
			return frametest.Build(t, outbound(0x86dd), ip6(17), &layers.UDP{SrcPort: 9, DstPort: 4789}, vxlan(), outbound(0x800), v4(6, c), tcp(c), gopacket.Payload(p))
		}, 136, tunnelContext(ipv6, 40, 1, 30) | 1<<23, offset(14, 20, 32) | iipt(ipv4Sum) | l4t(l4TCP), func(f []byte) {
			clear(f[18:20])
			partial(f, frame.IPv6, 14, 54, 6, true)
			clear(f[58:60]) // UDP length
			clear(f[86:88])
			clear(f[94:96])
			partial(f, frame.IPv4, 84, 104, 16, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCard(t)
			data := payload(c.size)
			whole := c.make(data, cut{first: true, last: true})
			c.clear(whole)
			s.transmit(t, whole, c.context0, tsoContext(c.size, mss), c.word1)
			if want := (c.size + mss - 1) / mss; len(s.wire) != want {
				t.Fatalf("%d segments, want %d; events %v", len(s.wire), want, s.events)
			}
			for n, got := range s.wire {
				from, to := n*mss, min((n+1)*mss, c.size)
				want := c.make(data[from:to], cut{from, to, n, n == 0, to == c.size})
				if !bytes.Equal(got, want) {
					d := 0
					for d < len(got) && d < len(want) && got[d] == want[d] {
						d++
					}
					t.Errorf("segment %d of %d bytes, want %d: differs from byte %d on\n got % x\nwant % x", n, len(got), len(want), d, got[:min(140, len(got))], want[:min(140, len(want))])
				}
			}
		})
	}
}
