// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// rxContext is the 32-byte receive queue context in QRX_CONTEXT
// (ice_common.c:ice_rlan_ctx_info), fields by bit number.
type rxContext [32]byte

func (c *rxContext) bits(lsb, width int) uint64 { return bitField(c[:], lsb, width) }

func (c *rxContext) head() uint32    { return uint32(c.bits(0, 13)) }
func (c *rxContext) base() uint64    { return c.bits(32, 57) << 7 } // 128-byte units
func (c *rxContext) qlen() uint32    { return uint32(c.bits(89, 13)) }
func (c *rxContext) dbuf() int       { return int(c.bits(102, 7)) * 128 }
func (c *rxContext) hbuf() int       { return int(c.bits(109, 5)) * 64 }
func (c *rxContext) dtype() uint64   { return c.bits(114, 2) }
func (c *rxContext) dsize32() bool   { return c.bits(116, 1) != 0 }
func (c *rxContext) crcStrip() bool  { return c.bits(117, 1) != 0 }
func (c *rxContext) l2tag1() bool    { return c.bits(119, 1) != 0 } // l2tsel
func (c *rxContext) split() uint64   { return c.bits(120, 4) }      // hsplit_0
func (c *rxContext) showInner() bool { return c.bits(127, 1) != 0 } // showiv
func (c *rxContext) rxMax() int      { return int(c.bits(174, 14)) }

// Header split (ice_lan_tx_rx.h: ICE_RX_DTYPE_*, ICE_RLAN_RX_HSPLIT_0_*).
const (
	dtypeNoSplit     = 0
	dtypeHeaderSplit = 1
	dtypeSplitAlways = 2

	splitL2     = 1 << 0
	splitIP     = 1 << 1
	splitTCPUDP = 1 << 2
	splitSCTP   = 1 << 3
)

// Bits of the write-back descriptor of RXDID 2 (ice_lan_tx_rx.h:
// ice_32b_rx_flex_desc_nic, ICE_RX_FLEX_DESC_STATUS0_*).
const (
	rxdidNIC  = 2 // ICE_RXDID_FLEX_NIC
	rxdidNIC2 = 6 // ICE_RXDID_FLEX_NIC_2

	statusDD         = 1 << 0
	statusEOF        = 1 << 1
	statusHBO        = 1 << 2
	statusL3L4P      = 1 << 3
	statusIPE        = 1 << 4
	statusL4E        = 1 << 5
	statusEIPE       = 1 << 6
	statusEUDPE      = 1 << 7
	statusLPBK       = 1 << 8
	statusIPv6ExtAdd = 1 << 9
	statusRSSValid   = 1 << 12
	statusL2TAG1P    = 1 << 13
	status1NAT       = 1 << 4
	status1L2TAG2P   = 1 << 11

	sph = 1 << 11 // split header, in the word of hdr_len

	rxDescLen = 32
)

// bitField returns width bits of c from bit lsb on.
func bitField(c []byte, lsb, width int) (v uint64) {
	for i := range width {
		b := lsb + i
		v |= uint64(c[b/8]>>(b%8)&1) << i
	}
	return v
}

// rxQueue is one receive queue. Its lock is a leaf: whoever holds it copies at
// most one frame into guest memory. Once it is disabled under the lock no DMA
// of the queue follows.
type rxQueue struct {
	lan *LAN
	id  int

	mu     sync.Mutex
	on     bool
	c      rxContext
	base   uint64
	length uint32
	head   uint32
	dbuf   int
	hbuf   int
	max    int
	rxdid  uint8
	// Scratch, here as it would escape.
	wb     [rxDescLen]byte
	fcs    [4]byte
	posted rxBuffers
}

// rxBuffers is a descriptor in the format that the device reads.
type rxBuffers [16]byte

func (b *rxBuffers) packet() uint64 { return binary.LittleEndian.Uint64(b[0:]) }
func (b *rxBuffers) header() uint64 { return binary.LittleEndian.Uint64(b[8:]) }

// outcome of placing a frame.
type outcome int

const (
	dropped outcome = iota // the queue does not take it
	noDescriptors
	placed
)

// enable loads the context; the tail is what the driver has written.
func (q *rxQueue) enable(c rxContext, rxdid uint8) error {
	switch {
	case c.qlen() == 0:
		return fmt.Errorf("qlen is 0")
	case !c.dsize32():
		return fmt.Errorf("descriptors of 16 bytes (dsize 0) are not built")
	case rxdid != rxdidNIC && rxdid != rxdidNIC2:
		return fmt.Errorf("RXDID %d is not built", rxdid)
	case c.head() >= c.qlen():
		return fmt.Errorf("head %d of a ring of %d", c.head(), c.qlen())
	case c.dtype() != dtypeNoSplit && c.hbuf() == 0:
		return fmt.Errorf("header split with hbuf 0")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.on, q.c, q.rxdid = true, c, rxdid
	q.base, q.length, q.head = c.base(), c.qlen(), c.head()
	q.dbuf, q.max, q.hbuf = c.dbuf(), c.rxMax(), 0
	if c.dtype() != dtypeNoSplit {
		q.hbuf = c.hbuf()
	}
	return nil
}

func (q *rxQueue) disable() {
	q.mu.Lock()
	q.on = false
	q.mu.Unlock()
}

// place writes a frame and its descriptors. The frame is dropped as a whole
// before any descriptor is touched.
func (q *rxQueue) place(d *delivery) outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.on || q.dbuf == 0 || !q.lan.cfg.MayDMA() {
		return dropped
	}
	var fcs []byte
	if !q.c.crcStrip() {
		q.fcs = frame.FCS(d.f)
		fcs = q.fcs[:]
	}
	if q.c.showInner() && d.vsi.Strip == StripInner {
		d.stripped = false
	}
	p := d.pieces(fcs)
	n := p.len()
	if n > q.max {
		return dropped
	}
	header, overflow := q.headerLen(d, n)
	count := max((n-header+q.dbuf-1)/q.dbuf, 1)
	tail := q.lan.rxTail.Get(q.id)
	if tail >= q.length || count > int((tail+q.length-q.head)%q.length) {
		return noDescriptors
	}
	if err := q.fill(d, &p, header, overflow, count); err != nil {
		q.on = false
		q.lan.bad(mdetRx, q.id, BadRxDescriptor{Queue: q.id, Index: q.head, Why: err.Error()})
		return dropped
	}
	return placed
}

// fill writes count descriptors' worth of p. Descriptors are fetched now, not
// earlier: drivers write them anew without moving the tail (ice_ethtool.c:
// ice_lbtest_receive_frames). The payload of a buffer comes before its
// descriptor, and of that the word with DD last.
func (q *rxQueue) fill(d *delivery, p *pieces, header int, overflow bool, count int) error {
	mem := q.lan.cfg.Mem
	status := d.status | d.checked()
	tags := d.tags(q.c.l2tag1())
	nat := uint16(0)
	if d.i.Tunnel == frame.TunnelGRE || d.i.Tunnel == frame.TunnelUDP {
		nat = status1NAT
	}
	for k := range count {
		at := q.base + uint64(q.head)*rxDescLen
		b := &q.posted
		if err := mem.Read(at, b[:]); err != nil {
			return err
		}
		wb := &q.wb
		*wb = [rxDescLen]byte{0: q.rxdid, 1: byte(frame.Class(d.f)) << 6}
		le := binary.LittleEndian
		le.PutUint16(wb[2:], d.i.PType)
		if header > 0 {
			if err := p.write(mem, b.header(), header); err != nil {
				return err
			}
			le.PutUint16(wb[6:], uint16(header)|sph)
			header = 0
		}
		n := min(p.len(), q.dbuf)
		if err := p.write(mem, b.packet(), n); err != nil {
			return err
		}
		le.PutUint16(wb[4:], uint16(n))
		word := uint64(statusDD)
		if k == count-1 {
			word |= uint64(statusEOF | status | tags.status0)
		}
		if overflow && k == 0 {
			word |= statusHBO
		}
		word |= uint64(tags.tag1)<<16 | uint64(d.hash)<<32
		le.PutUint16(wb[16:], tags.status1|nat)
		le.PutUint16(wb[22:], tags.tag2)
		if q.rxdid == rxdidNIC2 {
			le.PutUint16(wb[26:], d.vsi.Number)
		}
		if err := mem.Write(at, wb[:]); err != nil { // the word with DD is 0 still
			return err
		}
		if err := mem.Store64(at+8, word); err != nil {
			return err
		}
		if q.head++; q.head == q.length {
			q.head = 0
		}
	}
	return nil
}

// tagFields are where the stripped tag is shown.
type tagFields struct{ status0, status1, tag1, tag2 uint16 }

func (d *delivery) tags(first bool) (t tagFields) {
	switch {
	case !d.stripped:
	case first:
		t.status0, t.tag1 = statusL2TAG1P, d.tag
	default:
		t.status1, t.tag2 = status1L2TAG2P, d.tag
	}
	return t
}

// headerLen is how many of n bytes go to the header buffer. overflow: the
// header is longer than that; then nothing is split.
func (q *rxQueue) headerLen(d *delivery, n int) (header int, overflow bool) {
	if q.hbuf == 0 {
		return 0, false
	}
	i, points := &d.i, q.c.split()
	kind := i.L4Kind()
	switch {
	case points&splitTCPUDP != 0 && (kind == frame.PTypeTCP || kind == frame.PTypeUDP),
		points&splitSCTP != 0 && kind == frame.PTypeSCTP:
		header = i.L4 + i.L4Len
	case points&splitIP != 0 && i.Network != frame.NoIP:
		header = i.L4
	case points&splitL2 != 0:
		header = i.L3
	}
	if header > 0 && d.stripped {
		header -= frame.TagLen
	}
	if header == 0 && q.c.dtype() == dtypeSplitAlways {
		header = min(q.hbuf, n)
	}
	if header > q.hbuf {
		return 0, true
	}
	return header, false
}

// BadRxDescriptor is the event of a receive descriptor or buffer that cannot be
// used; the queue stops.
type BadRxDescriptor struct {
	Queue int
	Index uint32
	Why   string
}

func (b BadRxDescriptor) String() string {
	return fmt.Sprintf("receive queue %d descriptor %d: %s; the queue stops", b.Queue, b.Index, b.Why)
}

// BadRxContext is the event of enabling a receive queue whose context cannot
// be.
type BadRxContext struct {
	Queue int
	Why   string
}

func (b BadRxContext) String() string {
	return fmt.Sprintf("QRX_CTRL(%d): the queue is not enabled: %s", b.Queue, b.Why)
}
