// SPDX-License-Identifier: Apache-2.0

package frame

import "encoding/binary"

// The longest input of a hash: two IPv6 addresses and two ports.
const maxTuple = 36

// Toeplitz is a hash function with a key, as receive side scaling uses it.
type Toeplitz struct {
	table [maxTuple][256]uint32
}

// NewToeplitz prepares the hash of a key of at least 40 bytes.
func NewToeplitz(key []byte) *Toeplitz {
	t := &Toeplitz{}
	for i := range t.table {
		window := uint64(binary.BigEndian.Uint32(key[i:]))<<8 | uint64(key[i+4])
		for b := range 8 {
			t.table[i][0x80>>b] = uint32(window >> (8 - b))
		}
		for v := 1; v < 256; v++ {
			low := v & -v
			t.table[i][v] = t.table[i][v&^low] ^ t.table[i][low]
		}
	}
	return t
}

// Hash of at most 36 bytes.
func (t *Toeplitz) Hash(p []byte) (h uint32) {
	for i, b := range p {
		h ^= t.table[i][b]
	}
	return h
}

// Tuple writes the input of the RSS hash of f into buf and returns its length:
// the addresses, and the ports where there are any, of what a tunnel carries if
// that is IP (ice_flow.c:ice_add_rss_cfg, ICE_RSS_ANY_HEADERS). 0: the frame has
// none, it is not IP.
func (i *Info) Tuple(f []byte, buf *[maxTuple]byte) (n int) {
	p := &i.Packet
	if i.Inner.Network != NoIP {
		p = &i.Inner
	}
	switch p.Network {
	case IPv4:
		n = copy(buf[:], f[p.L3+12:p.L3+20])
	case IPv6:
		n = copy(buf[:], f[p.L3+8:p.L3+40])
	default:
		return 0
	}
	if i.Tunnel != NoTunnel && p == &i.Packet {
		return n
	}
	switch p.Kind {
	case PTypeUDP, PTypeTCP, PTypeSCTP:
		n += copy(buf[n:], f[p.L4:p.L4+4])
	}
	return n
}

// Symmetric makes a tuple one that is the same for both directions: source and
// destination become their exclusive or.
func Symmetric(tuple []byte) {
	fold := func(a, b []byte) {
		for i := range a {
			a[i] ^= b[i]
			b[i] = a[i]
		}
	}
	addresses := len(tuple)
	if addresses%8 == 4 { // with ports
		addresses -= 4
		fold(tuple[addresses:addresses+2], tuple[addresses+2:])
	}
	fold(tuple[:addresses/2], tuple[addresses/2:addresses])
}
