// SPDX-License-Identifier: Apache-2.0

package lan

import "encoding/binary"

// rxConfig is what a test wants of a receive queue's context.
type rxConfig struct {
	base              uint64
	n, dbuf, hbuf     int
	dtype, split, max int
	keepCRC, tag2     bool
	rxdid             int // 0: 2
}

// rxContext writes the context of queue q as ice_write_rxq_ctx does.
func (f *fixture) rxContext(q int, c rxConfig) {
	var b [32]byte
	set := func(lsb int, v uint64) {
		for ; v != 0; lsb, v = lsb+1, v>>1 {
			b[lsb/8] |= byte(v&1) << (lsb % 8)
		}
	}
	bit := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	set(32, c.base>>7)
	set(89, uint64(c.n))
	set(102, uint64(c.dbuf/128))
	set(109, uint64(c.hbuf/64))
	set(114, uint64(c.dtype))
	set(116, 1)
	set(117, bit(!c.keepCRC))
	set(119, bit(!c.tag2))
	set(120, uint64(c.split))
	set(174, uint64(c.max))
	for i := range 8 {
		f.Write32(uint32(0x280000+i*0x2000+4*q), binary.LittleEndian.Uint32(b[4*i:]))
	}
	if c.rxdid == 0 {
		c.rxdid = rxdidNIC
	}
	f.Write32(uint32(0x480000+4*q), uint32(c.rxdid))
}
