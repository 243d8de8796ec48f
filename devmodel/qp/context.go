// SPDX-License-Identifier: Apache-2.0

package qp

import "encoding/binary"

// ContextSize is the length in bytes of a host QP context.
const ContextSize = 256

// Context is a copy of a RoCE host QP context, read by its fields
// (ctrl.c:irdma_sc_qp_setctx_roce_gen_2, defs.h:IRDMAQPC_*). Where kernels
// differ in the width of a field the widest is taken: the bits above a narrow
// one are zero in older kernels.
type Context [ContextSize]byte

func (c *Context) word(off int) uint64       { return binary.LittleEndian.Uint64(c[off:]) }
func (c *Context) setWord(off int, v uint64) { binary.LittleEndian.PutUint64(c[off:], v) }

func (c *Context) bits(off, hi, lo int) uint64 {
	return c.word(off) >> lo & (1<<(hi-lo+1) - 1)
}

func (c *Context) flag(off, bit int) bool { return c.bits(off, bit, bit) != 0 }

// IPv4 tells the header format.
func (c *Context) IPv4() bool { return c.flag(0, 3) }

// InsertVLAN tells whether frames sent carry VLANTag.
func (c *Context) InsertVLAN() bool { return c.flag(0, 5) }

// RQWQESize is the length in bytes of a receive WQE.
func (c *Context) RQWQESize() uint32 { return 32 << c.bits(0, 9, 8) }

// PD is the protection domain's number.
func (c *Context) PD() uint32 { return uint32(c.bits(0, 21, 20)<<16 | c.bits(56, 63, 48)) }

// SQAddr is the guest address of the send queue, or its first PBLE index.
func (c *Context) SQAddr() uint64 { return c.word(8) }

// RQAddr is the guest address of the receive queue, or its first PBLE index.
func (c *Context) RQAddr() uint64 { return c.word(16) }

// TTL is the hop limit.
func (c *Context) TTL() uint8 { return uint8(c.bits(24, 7, 0)) }

// RQQuanta is the receive queue's size in quanta of 32 bytes.
func (c *Context) RQQuanta() uint32 { return 4 << c.bits(24, 11, 8) }

// SQQuanta is the send queue's size in quanta of 32 bytes.
func (c *Context) SQQuanta() uint32 { return 4 << c.bits(24, 15, 12) }

// SQBytes is the send queue's length in bytes.
func (c *Context) SQBytes() uint64 { return uint64(c.SQQuanta()) * quantum }

// RQBytes is the receive queue's length in bytes.
func (c *Context) RQBytes() uint64 { return uint64(c.RQQuanta()) * quantum }

// PushPage is the push page that the QP's program writes to, if it has one
// (PPIDX, PMENA).
func (c *Context) PushPage() (page uint32, ok bool) { return uint32(c.bits(0, 41, 32)), c.flag(0, 47) }

// StatsInstance is the statistics instance that counts for the QP, if it names
// one (STAT_INDEX, USESTATSINSTANCE).
func (c *Context) StatsInstance() (i uint8, ok bool) {
	return uint8(c.bits(144, 6, 0)), c.flag(160, 26)
}

// TOS is the traffic class.
func (c *Context) TOS() uint8 { return uint8(c.bits(24, 31, 24)) }

// SourcePort is the UDP source port.
func (c *Context) SourcePort() uint16 { return uint16(c.bits(24, 47, 32)) }

// DestPort is the UDP destination port.
func (c *Context) DestPort() uint16 { return uint16(c.bits(24, 63, 48)) }

// DestIP is the destination address; IPv4 lies in the last four bytes.
func (c *Context) DestIP() [16]byte { return ip(c.word(40), c.word(32)) }

// LocalIP is the source address; IPv4 lies in the last four bytes.
func (c *Context) LocalIP() [16]byte { return ip(c.word(192), c.word(184)) }

// ip puts two context words, each of them two host-order 32-bit words, into
// network order.
func ip(hi, lo uint64) (a [16]byte) {
	binary.BigEndian.PutUint64(a[:], hi)
	binary.BigEndian.PutUint64(a[8:], lo)
	return a
}

// PathMTU is SNDMSS in bytes.
func (c *Context) PathMTU() uint32 { return uint32(c.bits(48, 29, 16)) }

// VLANTag is VLAN id and priority.
func (c *Context) VLANTag() uint16 { return uint16(c.bits(48, 47, 32)) }

// ARPIndex names the ARP entry with the destination MAC.
func (c *Context) ARPIndex() uint16 { return uint16(c.bits(48, 63, 48)) }

// FlowLabel is the IPv6 flow label.
func (c *Context) FlowLabel() uint32 { return uint32(c.bits(56, 19, 0)) }

// PKey is the partition key.
func (c *Context) PKey() uint16 { return uint16(c.bits(56, 47, 32)) }

// DestQP is the remote QP number (RC).
func (c *Context) DestQP() uint32 { return uint32(c.bits(64, 23, 0)) }

// QKey is the QP's own queue key (UD).
func (c *Context) QKey() uint32 { return uint32(c.bits(64, 63, 32)) }

// SendPSN is PSNNXT, the first packet sequence number sent.
func (c *Context) SendPSN() uint32 { return uint32(c.bits(80, 23, 0)) }

// ExpectedPSN is EPSN.
func (c *Context) ExpectedPSN() uint32 { return uint32(c.bits(88, 23, 0)) }

// RetryCount is REXMIT_THRESH.
func (c *Context) RetryCount() uint8 { return uint8(c.bits(128, 53, 48)) }

// RNRRetryCount is RNRNAK_THRESH; 7 means for ever.
func (c *Context) RNRRetryCount() uint8 { return uint8(c.bits(128, 56, 54)) }

// SendCQ is TXCQNUM.
func (c *Context) SendCQ() uint32 { return uint32(c.bits(136, 24, 0)) }

// RecvCQ is RXCQNUM.
func (c *Context) RecvCQ() uint32 { return uint32(c.bits(136, 56, 32)) }

// MAC is the source address.
func (c *Context) MAC() (m [6]byte) {
	v := c.bits(152, 63, 16)
	for i := range m {
		m[i] = byte(v >> (40 - 8*i))
	}
	return m
}

// ORD is the number of reads and atomics the requester may have outstanding.
func (c *Context) ORD() uint8 { return uint8(c.bits(160, 7, 0)) }

// IRDEncoded is IRDSIZE: 4, 16, 64, 128, 256 entries.
func (c *Context) IRDEncoded() uint8 { return uint8(c.bits(160, 18, 16)) }

// IRDEntries is how many reads of the peer may wait (utils.c:
// irdma_sc_get_encoded_ird_size); codes without a meaning get the largest.
func (c *Context) IRDEntries() uint32 {
	sizes := [8]uint32{4, 16, 64, 128, 256, 256, 256, 256}
	return sizes[c.IRDEncoded()]
}

// Window is CWNDROCE, the packets that may be outstanding.
func (c *Context) Window() uint32 { return uint32(c.bits(112, 55, 32)) }

// DatagramExtension (UDPRIVCQENABLE) asks for the source MAC and the VLAN of
// datagrams in an extension of their completions.
func (c *Context) DatagramExtension() bool { return c.flag(160, 19) }

// Privileged (PRIVEN) allows STag 0.
func (c *Context) Privileged() bool { return c.flag(160, 25) }

// FastRegister (FASTREGEN) allows FAST_REG work requests.
func (c *Context) FastRegister() bool { return c.flag(160, 24) }

// NotifiesCongestion (DCQCNENABLE) asks for rate control by notifications.
func (c *Context) NotifiesCongestion() bool { return c.flag(160, 22) }

// Bind (BINDEN) allows memory window binds.
func (c *Context) Bind() bool { return c.flag(160, 23) }

// CompletionContext is echoed in CQEs and AEQEs.
func (c *Context) CompletionContext() uint64 { return c.word(168) }

// QSHandle is the QP's work scheduler leaf.
func (c *Context) QSHandle() uint16 { return uint16(c.bits(176, 25, 16)) }

func (c *Context) setQSHandle(h uint16) {
	c.setBits(176, 25, 16, uint64(h))
}

// setBits puts v into a field.
func (c *Context) setBits(off, hi, lo int, v uint64) {
	mask := uint64(1)<<(hi-lo+1) - 1
	c.setWord(off, c.word(off)&^(mask<<lo)|(v&mask)<<lo)
}

// keepWords puts the named words of old back.
func (c *Context) keepWords(old *Context, offs ...int) {
	for _, off := range offs {
		c.setWord(off, old.word(off))
	}
}

// geometryDiffers tells whether rings or completion context changed, which
// a modify cannot do.
func (c *Context) geometryDiffers(old *Context) bool {
	return c.SQAddr() != old.SQAddr() || c.RQAddr() != old.RQAddr() ||
		c.SQQuanta() != old.SQQuanta() || c.RQQuanta() != old.RQQuanta() ||
		c.RQWQESize() != old.RQWQESize() || c.CompletionContext() != old.CompletionContext()
}
