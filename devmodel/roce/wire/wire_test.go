// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// cnpOfHardware was captured from a ConnectX-4 Lx (scapy: test/contrib/roce.uts).
const cnpOfHardware = `e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c40004011 9161 0a001101 0a001201
0000 12b7 0028 0000 8100ffff40000118 00000000 00000000000000000000000000000000 82fd002a`

// ucOfHardware is a UC send whose ICRC Soft-RoCE gave (scapy: test/contrib/roce.uts).
const ucOfHardware = `248a07a8fa22 248a07a8fa22 0800 45010040047840004011 b4d5 c0a80007 c0a80007
c000 12b7 002c aca2 2460ffff000000d3 00cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3`

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(f []byte) (p Packet, v Verdict) {
	i := frame.Parse(f)
	v = p.Parse(f, &i)
	return p, v
}

func TestICRCOfOthers(t *testing.T) {
	for name, s := range map[string]string{"CNP of a ConnectX-4": cnpOfHardware, "UC send": ucOfHardware} {
		f := unhex(t, s)
		n := len(f)
		if got := ICRC(f[frame.HeaderLen:n-icrcLen], true); got != uint32(f[n-4])|uint32(f[n-3])<<8|uint32(f[n-2])<<16|uint32(f[n-1])<<24 {
			t.Errorf("%s: ICRC %#08x, the frame has % x", name, got, f[n-4:])
		}
	}
}

func TestParseCNPOfHardware(t *testing.T) {
	f := unhex(t, cnpOfHardware)
	p, v := parse(f)
	if v != OK || !p.CheckICRC(f) {
		t.Fatalf("verdict %v, ICRC %v", v, p.CheckICRC(f))
	}
	want := Packet{Opcode: CNP, BECN: true, PKey: 0xFFFF, DestQP: 0x118, Payload: make([]byte, CNPPayload), L3: 14, end: len(f), Path: Path{
		DestMAC: [6]byte{0xE4, 0x1D, 0x2D, 0xAB, 0x2B, 0xC2}, SourceMAC: [6]byte{0x7C, 0xFE, 0x90, 0x64, 0x3B, 0x32}, IPv4: true,
		Source: [16]byte{12: 10, 0, 17, 1}, Dest: [16]byte{12: 10, 0, 18, 1}, TrafficClass: 0xC2, HopLimit: 64}}
	if d := cmp.Diff(want, p, cmp.AllowUnexported(Packet{})); d != "" {
		t.Error(d)
	}
	// What a router changes leaves the ICRC right; what it must not, does not.
	for at, right := range map[int]bool{15: true, 22: true, 24: true, 40: true, 46: true, 18: false, 26: false, 33: false, 47: false, 60: false, 73: false} {
		f := unhex(t, cnpOfHardware)
		f[at] ^= 0x10
		if got := p.CheckICRC(f); got != right {
			t.Errorf("byte %d changed: ICRC right: %v", at, got)
		}
	}
}

var (
	macA, macB = [6]byte{2, 0, 0, 0, 0, 0xA}, [6]byte{2, 0, 0, 0, 0, 0xB}

	v4 = Path{DestMAC: macB, SourceMAC: macA, IPv4: true, Source: [16]byte{12: 10, 0, 0, 1}, Dest: [16]byte{12: 10, 0, 0, 2},
		TrafficClass: 0x68 | 2, HopLimit: 64, SourcePort: 0xC123}
	v6 = Path{DestMAC: macB, SourceMAC: macA, Source: [16]byte{0: 0xFE, 1: 0x80, 15: 1}, Dest: [16]byte{0: 0xFE, 1: 0x80, 15: 2},
		TrafficClass: 0x20, HopLimit: 255, FlowLabel: 0xABCDE, SourcePort: 0xFFFF}
)

func tagged(p Path) Path {
	p.Tagged, p.TCI = true, 3<<13|100
	return p
}

// paths are all forms of a path.
func paths() map[string]Path {
	return map[string]Path{"IPv4": v4, "IPv6": v6, "IPv4 tagged": tagged(v4), "IPv6 tagged": tagged(v6)}
}

// encode makes a frame with n bytes 1, 2, 3 and so on, in a buffer full of
// others' bytes.
func encode(p *Packet, path *Path, n int) []byte {
	h := HeaderLen(path, p.Opcode)
	f := bytes.Repeat([]byte{0xEE}, h+n+Trailer)
	for i := range n {
		f[h+i] = byte(i + 1)
	}
	return p.Encode(f, path, n)
}

// sample is a packet with something in every field that an opcode has.
func sample(op uint8) Packet {
	p := Packet{Opcode: op, Solicited: true, AckReq: true, FECN: true, BECN: true, PKey: 0x8001, DestQP: 0xABCDEF, PSN: 0x123456}
	h := opcodes[op].headers
	if h&reth != 0 {
		p.VA, p.Key, p.DMALen = 0x0102030405060708, 0x11223344, 0x55667788
	}
	if h&aeth != 0 {
		p.Syndrome, p.MSN = 0x61, 0x654321
	}
	if h&immdt != 0 {
		p.Imm = 0xCAFEF00D
	}
	if h&ieth != 0 {
		p.Inv = 0x0BADBEEF
	}
	if h&deth != 0 {
		p.QKey, p.SourceQP = 0x80010000, 0xFEDCBA
	}
	return p
}

func TestRoundTrip(t *testing.T) {
	seen := 0
	for op := range 256 {
		if ServiceOf(uint8(op)) == NoService {
			continue
		}
		seen++
		for name, path := range paths() {
			for _, n := range []int{0, 1, 2, 3, 4, 255, 4096} {
				t.Run(fmt.Sprintf("%s %s %d", Name(uint8(op)), name, n), func(t *testing.T) {
					p := sample(uint8(op))
					f := encode(&p, &path, n)
					// Ethernet pads behind the packet.
					f = append(f, 1, 2, 3)
					got, v := parse(f)
					if v != OK || !got.CheckICRC(f) {
						t.Fatalf("verdict %v, ICRC %v: % x", v, got.CheckICRC(f), f)
					}
					want := p
					want.Path = path
					if path.IPv4 {
						want.FlowLabel = 0
					}
					if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Packet{}), cmpopts.IgnoreFields(Packet{}, "Payload", "L3")); d != "" {
						t.Error(d)
					}
					if len(got.Payload) != n || n > 0 && (got.Payload[0] != 1 || got.Payload[n-1] != byte(n)) {
						t.Errorf("payload of %d bytes, want %d", len(got.Payload), n)
					}
					i := frame.Parse(f)
					if w := i.Verify(f); w&frame.BadIP != 0 {
						t.Error("checksum of the IP header")
					}
					if c := f[i.L4+6 : i.L4+8]; c[0]|c[1] != 0 {
						t.Errorf("UDP checksum % x", c)
					}
					if want := i.End - i.L3; got.Octets() != want || i.End != len(f)-3 {
						t.Errorf("octets %d, want %d", got.Octets(), want)
					}
				})
			}
		}
	}
	if seen != 27 {
		t.Errorf("%d opcodes", seen)
	}
}

// A packet made by hand from the standard's figures, IBTA 9.2 and A17.
func TestEncode(t *testing.T) {
	p := Packet{Opcode: WriteOnlyImm, Solicited: true, AckReq: true, PKey: 0xFFFF, DestQP: 7, PSN: 0x10203, VA: 0x7F0011223344, Key: 0x1234, DMALen: 5, Imm: 9}
	path := tagged(v4)
	got := encode(&p, &path, 5)
	want := unhex(t, `02000000000b 02000000000a 8100 6064 0800
		456a 0048 0203 4000 40 11 2436 0a000001 0a000002
		c123 12b7 0034 0000
		0b f0 ffff 00 000007 80 010203
		00007f0011223344 00001234 00000005 00000009
		0102030405 000000`)
	if !bytes.Equal(got[:len(got)-icrcLen], want) {
		t.Errorf("got\n% x\nwant\n% x", got[:len(got)-icrcLen], want)
	}
}

func TestCongestionMark(t *testing.T) {
	for ecn, want := range map[uint8]bool{0: false, 1: false, 2: false, 3: true} {
		for _, path := range []Path{v4, v6} {
			path.TrafficClass = 0x40 | ecn
			p := sample(SendOnly)
			if got, v := parse(encode(&p, &path, 4)); v != OK || got.CE != want {
				t.Errorf("ECN %d, IPv4 %v: verdict %v, CE %v", ecn, path.IPv4, v, got.CE)
			}
		}
	}
}

func TestMulticast(t *testing.T) {
	for _, c := range []struct {
		path  Path
		first byte
		want  bool
	}{{v4, 239, true}, {v4, 223, false}, {v4, 240, false}, {v6, 0xFF, true}, {v6, 0xFE, false}} {
		if c.path.IPv4 {
			c.path.Dest[12] = c.first
		} else {
			c.path.Dest[0] = c.first
		}
		p := sample(UDSendOnly)
		if got, v := parse(encode(&p, &c.path, 4)); v != OK || got.Multicast() != c.want {
			t.Errorf("%+v: verdict %v, multicast %v", c, v, got.Multicast())
		}
	}
}

// fix makes the checksum of an IPv4 header at 14 right again.
func fix(f []byte) {
	f[24], f[25] = 0, 0
	be.PutUint16(f[24:], frame.Checksum(f[14:34], 0))
}

func TestRefused(t *testing.T) {
	p := sample(WriteOnly)
	good := encode(&p, &v4, 6) // at 14 IP, 34 UDP, 42 BTH, 54 RETH, 70 payload, 76 pad, 78 ICRC
	six := encode(&p, &v6, 6)
	for name, c := range map[string]struct {
		f    []byte
		do   func(f []byte) []byte
		want Verdict
	}{
		"nothing":           {good, func(f []byte) []byte { return nil }, NotRoCE},
		"other port":        {good, func(f []byte) []byte { f[36]++; return f }, NotRoCE},
		"TCP":               {good, func(f []byte) []byte { f[23] = 6; fix(f); return f }, NotRoCE},
		"two tags":          {good, func(f []byte) []byte { return tag(tag(f, 0x8100), 0x8100) }, NotRoCE},
		"service tag":       {good, func(f []byte) []byte { return tag(f, 0x88A8) }, NotRoCE},
		"more fragments":    {good, func(f []byte) []byte { f[20] |= 0x20; fix(f); return f }, Fragment},
		"fragment offset":   {good, func(f []byte) []byte { f[21] = 1; fix(f); return f }, Fragment},
		"IPv4 options":      {good, options, Options},
		"IPv6 extension":    {six, extension, Options},
		"UDP length short":  {good, func(f []byte) []byte { f[39]--; return f }, BadLength},
		"UDP length long":   {good, func(f []byte) []byte { f[39]++; return f }, BadLength},
		"no room for ICRC":  {good, func(f []byte) []byte { return cut(f, 42+bthLen+3) }, BadLength},
		"no room for RETH":  {good, func(f []byte) []byte { return cut(f, 54+15+4) }, BadLength},
		"pad beyond":        {good, func(f []byte) []byte { f = cut(f, 54+16+1+4); return f }, BadLength},
		"IP checksum":       {good, func(f []byte) []byte { f[25]++; return f }, BadChecksum},
		"UDP checksum":      {good, func(f []byte) []byte { f[41] = 1; return f }, BadChecksum},
		"UDP checksum IPv6": {six, func(f []byte) []byte { f[14+40+7] = 1; return f }, BadChecksum},
		"version":           {good, func(f []byte) []byte { f[43] |= 1; return f }, BadVersion},
		"UC":                {good, func(f []byte) []byte { f[42] = 0x24; return f }, UnknownOpcode},
		"hole":              {good, func(f []byte) []byte { f[42] = 0x15; return f }, UnknownOpcode},
		"atomic response":   {good, func(f []byte) []byte { f[42] = AtomicAck; return f }, UnknownOpcode},
	} {
		f := c.do(bytes.Clone(c.f))
		q, v := parse(f)
		if v != c.want {
			t.Errorf("%s: verdict %v, want %v", name, v, c.want)
		}
		q.CheckICRC(f)
	}
	if _, v := parse(good); v != OK {
		t.Errorf("verdict %v of the packet before", v)
	}
}

func tag(f []byte, tpid uint16) []byte {
	return bytes.Join([][]byte{f[:12], be.AppendUint16(nil, tpid), {0, 1}, f[12:]}, nil)
}

// cut ends a frame of IPv4 at n, with lengths that fit.
func cut(f []byte, n int) []byte {
	f = f[:n]
	be.PutUint16(f[16:], uint16(n-14))
	be.PutUint16(f[38:], uint16(n-34))
	fix(f)
	return f
}

func options(f []byte) []byte {
	f = bytes.Join([][]byte{f[:34], {1, 1, 1, 1}, f[34:]}, nil)
	f[14]++
	be.PutUint16(f[16:], be.Uint16(f[16:])+4)
	f[24], f[25] = 0, 0
	be.PutUint16(f[24:], frame.Checksum(f[14:38], 0))
	return f
}

func extension(f []byte) []byte {
	f = bytes.Join([][]byte{f[:54], {frame.ProtoUDP, 0, 1, 4, 0, 0, 0, 0}, f[54:]}, nil)
	f[20] = frame.ProtoDestOpts
	be.PutUint16(f[18:], be.Uint16(f[18:])+8)
	return f
}

// Who computes the UDP checksum is heard as well.
func TestUDPChecksum(t *testing.T) {
	f := unhex(t, ucOfHardware)
	f[42] = UDSendOnly
	f[40], f[41] = 0, 0
	be.PutUint16(f[40:], frame.Checksum(f[34:], frame.PseudoHeader(f, frame.IPv4, 14, frame.ProtoUDP, len(f)-34)))
	if _, v := parse(f); v != OK {
		t.Errorf("verdict %v", v)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	p, path := sample(WriteFirst), tagged(v6)
	f := encode(&p, &path, 4096)
	i := frame.Parse(f)
	var q Packet
	if n := testing.AllocsPerRun(100, func() {
		p.Encode(f, &path, 4096)
		if q.Parse(f, &i) != OK || !q.CheckICRC(f) {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkICRC(b *testing.B) {
	for _, n := range []int{0, 1024, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := sample(SendOnly)
			f := encode(&p, &v4, n)
			q, _ := parse(f)
			for b.Loop() {
				q.CheckICRC(f)
			}
		})
	}
}
