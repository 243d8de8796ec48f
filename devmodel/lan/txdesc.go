// SPDX-License-Identifier: Apache-2.0

package lan

import "encoding/binary"

// txContext is the 22-byte queue context of ice_aqc_opc_add_txqs
// (ice_common.c:ice_tlan_ctx_info), little-endian, fields by bit number.
type txContext [22]byte

func (c *txContext) bits(lsb, width int) uint64 { return bitField(c[:], lsb, width) }
func (c *txContext) base() uint64               { return c.bits(0, 57) << 7 } // 128-byte units
func (c *txContext) srcVSI() uint16             { return uint16(c.bits(80, 10)) }
func (c *txContext) qlen() uint32               { return uint32(c.bits(135, 13)) }
func (c *txContext) tsoEnabled() bool           { return c.bits(152, 1) != 0 }

// txDesc is one 16-byte transmit descriptor (ice_lan_tx_rx.h), a local copy.
type txDesc [16]byte

func (d *txDesc) word0() uint64 { return binary.LittleEndian.Uint64(d[0:]) }
func (d *txDesc) word1() uint64 { return binary.LittleEndian.Uint64(d[8:]) }
func (d *txDesc) dtype() uint64 { return d.word1() & 0xf }

// Of a data descriptor. Lengths are in bytes.
func (d *txDesc) buffer() uint64  { return d.word0() }
func (d *txDesc) has(b int) bool  { return d.word1()>>b&1 != 0 }
func (d *txDesc) inner() ipKind   { return ipKind(d.word1() >> 9 & 3) }      // IIPT
func (d *txDesc) l4() l4Kind      { return l4Kind(d.word1() >> 12 & 3) }     // L4T
func (d *txDesc) macLen() int     { return int(d.word1()>>16&0x7f) * 2 }     // MACLEN
func (d *txDesc) ipLen() int      { return int(d.word1()>>23&0x7f) * 4 }     // IPLEN
func (d *txDesc) l4Len() int      { return int(d.word1()>>30&0xf) * 4 }      // L4LEN
func (d *txDesc) size() int       { return int(d.word1() >> 34 & 0x3fff) }   // BUF_SZ
func (d *txDesc) l2tag1() uint16  { return uint16(d.word1() >> 48) }         // L2TAG1
func (d *txDesc) outer() ipKind   { return ipKind(d.word0() & 3) }           // EIPT
func (d *txDesc) outerIPLen() int { return int(d.word0()>>2&0x7f) * 4 }      // EIPLEN
func (d *txDesc) tunnel() uint64  { return d.word0() >> 9 & 3 }              // L4TUNT
func (d *txDesc) tunnelLen() int  { return int(d.word0()>>12&0x7f) * 2 }     // NATLEN
func (d *txDesc) tunnelSum() bool { return d.word0()>>23&1 != 0 }            // L4T_CS
func (d *txDesc) l2tag2() uint16  { return uint16(d.word0() >> 32) }         // l2tag2
func (d *txDesc) to() override    { return override(d.word1() >> 8 & 3) }    // SWTCH
func (d *txDesc) target() uint16  { return uint16(d.word1() >> 50 & 0x3ff) } // target VSI
func (d *txDesc) tsoLen() int     { return int(d.word1() >> 30 & 0x3ffff) }  // TSO_LEN
func (d *txDesc) mss() int        { return int(d.word1() >> 50 & 0x3fff) }   // MSS

// Descriptor types (ice_lan_tx_rx.h: ICE_TX_DESC_DTYPE_*).
const (
	dtypeData    = 0
	dtypeContext = 1
	dtypeFilter  = 8
	dtypeDone    = 0xf
)

// Command bits by their number in the word: of data descriptors
// (ICE_TX_DESC_CMD_*), of context descriptors (ICE_TX_CTX_DESC_*).
const (
	bitEOP     = 4
	bitRS      = 5
	bitIL2TAG1 = 7
	bitDummy   = 8

	bitTSO     = 4
	bitIL2TAG2 = 6
)

// ipKind is IIPT and EIPT: which IP header, and what to do with its checksum.
type ipKind uint8

const (
	noIP ipKind = iota
	ipv6
	ipv4
	ipv4Sum
)

// l4Kind is L4T: which checksum to compute.
type l4Kind uint8

const (
	noL4 l4Kind = iota
	l4TCP
	l4SCTP
	l4UDP
)

// Values of L4TUNT (ICE_TXD_CTX_UDP_TUNNELING, ICE_TXD_CTX_GRE_TUNNELING).
const (
	tunnelUDP = 1
)
