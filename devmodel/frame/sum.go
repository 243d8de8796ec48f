// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Sum adds p to a one's complement sum of 16-bit words (RFC 1071). Only the
// last part of a sum may have an odd length. Fold ends it.
func Sum(p []byte, sum uint64) uint64 {
	var carry uint64
	for len(p) >= 32 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(p), 0)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(p[8:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(p[16:]), carry)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(p[24:]), carry)
		sum, carry = bits.Add64(sum, 0, carry)
		sum += carry
		p = p[32:]
	}
	for len(p) >= 8 {
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(p), 0)
		sum += carry
		p = p[8:]
	}
	if len(p) > 0 {
		var last [8]byte
		copy(last[:], p)
		sum, carry = bits.Add64(sum, binary.BigEndian.Uint64(last[:]), 0)
		sum += carry
	}
	return sum
}

// Fold reduces a sum to 16 bits; the checksum is its complement.
func Fold(sum uint64) uint16 {
	sum = sum>>32 + sum&0xffffffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	return uint16(sum)
}

// Checksum is the Internet checksum of p, added to sum.
func Checksum(p []byte, sum uint64) uint16 { return ^Fold(Sum(p, sum)) }

// PseudoHeader is the sum of the pseudo header of a packet with the IP header
// at l3 of f (RFC 9293, RFC 8200).
func PseudoHeader(f []byte, n Network, l3 int, proto uint8, length int) uint64 {
	sum := uint64(proto) + uint64(length)
	if n == IPv4 {
		return Sum(f[l3+12:l3+20], sum)
	}
	return Sum(f[l3+8:l3+40], sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C continues an SCTP checksum; it begins with 0, and stands in the packet
// in little-endian order.
func CRC32C(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// FCS is the frame check sequence of f, as it follows the frame.
func FCS(f []byte) (fcs [4]byte) {
	binary.LittleEndian.PutUint32(fcs[:], crc32.ChecksumIEEE(f))
	return fcs
}

// Verdict is what a look at the checksums of a frame gave.
type Verdict uint8

// Verdicts. Verified: every checksum that PType's layers have was computed. The
// others are of the innermost packet, except for what the name says.
const (
	Verified    Verdict = 1 << iota
	BadIP               // the IPv4 header's
	BadL4               // that of TCP, UDP or SCTP
	BadOuterIP          // the IPv4 header's of a tunnel
	BadOuterUDP         // that of a tunnel's UDP
)

// Verify computes the checksums of f, of which i is the Info. An absent UDP
// checksum of IPv4, or of a tunnel, counts as right; packets whose pseudo header
// needs another address than the IP header has, ICMP that is wrong, and what is
// in GRE whose own checksum is wrong, are not Verified.
func (i *Info) Verify(f []byte) (v Verdict) {
	if i.Tunnel == NoTunnel {
		return i.Packet.verify(f)
	}
	p := f[i.L4:i.End]
	switch {
	case i.Tunnel == TunnelUDP && be16(p[6:]) == 0:
		v = i.Packet.verifyHeader(f)
	case i.Tunnel == TunnelGRE && be16(p)&greChecksum != 0 && Checksum(p, 0) != 0:
		return 0
	default:
		v = i.Packet.verify(f)
	}
	if v&Verified == 0 {
		return 0
	}
	if v&BadIP != 0 {
		v = v&^BadIP | BadOuterIP
	}
	if v&BadL4 != 0 {
		v = v&^BadL4 | BadOuterUDP
	}
	if i.Inner.Network == NoIP {
		return v
	}
	in := i.Inner.verify(f)
	if in&Verified == 0 {
		return 0
	}
	return v | in
}

// verifyHeader is verify for the IP header alone.
func (p *Packet) verifyHeader(f []byte) Verdict {
	if p.Network == IPv4 && Checksum(f[p.L3:p.L4], 0) != 0 {
		return Verified | BadIP
	}
	return Verified
}

// verify computes the checksums of one packet.
func (q *Packet) verify(f []byte) (v Verdict) {
	if q.Network == NoIP {
		return 0
	}
	v = q.verifyHeader(f)
	p := f[q.L4:q.End]
	switch q.Kind {
	case PTypeTCP, PTypeUDP:
		if q.AddressChanged {
			return 0
		}
		if q.Kind == PTypeUDP {
			n := int(be16(p[4:]))
			if n < UDPLen || n > len(p) {
				return v | BadL4
			}
			p = p[:n]
			if be16(p[6:]) == 0 {
				if q.Network == IPv6 {
					return 0
				}
				return v
			}
		}
		if Checksum(p, PseudoHeader(f, q.Network, q.L3, q.Proto, len(p))) != 0 {
			v |= BadL4
		}
	case PTypeSCTP:
		c := CRC32C(0, p[:8])
		c = CRC32C(c, zero[:])
		if CRC32C(c, p[12:]) != binary.LittleEndian.Uint32(p[8:]) {
			v |= BadL4
		}
	case PTypeICMP:
		var sum uint64
		if q.Network == IPv6 {
			if q.AddressChanged {
				return 0
			}
			sum = PseudoHeader(f, IPv6, q.L3, ProtoICMPv6, len(p))
		}
		if Checksum(p, sum) != 0 {
			return 0
		}
	}
	return v
}

var zero [4]byte
