// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// seed is the CRC of the eight bytes of ones that stand for the local route
// header (rxe_icrc.c:rxe_icrc_hdr).
const seed = 0x2144DF1C

// ICRC computes the invariant CRC of a packet from its IP header to the pad. The
// fields that may change on the way count as ones. It reads b only: others may
// read it, too.
func ICRC(b []byte, ipv4 bool) uint32 {
	// A byte at a time: a masked copy given to crc32.Update would be allocated.
	table := crc32.IEEETable
	crc := ^uint32(seed)
	feed := func(v byte) { crc = table[byte(crc)^v] ^ crc>>8 }
	at := 0
	same := func(n int) {
		for _, v := range b[at : at+n] {
			feed(v)
		}
		at += n
	}
	ones := func(n int) {
		for range n {
			feed(0xFF)
		}
		at += n
	}
	if ipv4 {
		same(1)
		ones(1) // TOS
		same(6)
		ones(1) // TTL
		same(1)
		ones(2) // checksum
		same(8)
	} else {
		feed(b[0] | 0x0F) // traffic class, flow label
		at++
		ones(3)
		same(3)
		ones(1) // hop limit
		same(32)
	}
	same(6)
	ones(2) // UDP checksum
	same(4)
	ones(1) // reserved, FECN and BECN
	return crc32.Update(^crc, crc32.IEEETable, b[at:])
}

// CheckICRC tells whether the ICRC of the packet, which Parse has read from f, is
// right.
func (p *Packet) CheckICRC(f []byte) bool {
	ip := ipv6Len
	if p.IPv4 {
		ip = ipv4Len
	}
	at := p.end - icrcLen
	if at < p.L3+ip+frame.UDPLen+bthLen || p.end > len(f) {
		return false
	}
	return binary.LittleEndian.Uint32(f[at:]) == ICRC(f[p.L3:at], p.IPv4)
}
