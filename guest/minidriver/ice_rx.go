// SPDX-License-Identifier: Apache-2.0

package minidriver

// rxGeometry is how big receive buffers are and what frames a queue takes
// (7.3: libeth/rx.c:libeth_rx_hw_len_mtu; before: ice_base.c:ice_vsi_cfg_frame_size).
type rxGeometry struct {
	buf    int // bytes that the device may fill
	max    int // of a frame
	stride int // from a buffer to the next
}

const (
	maxFrame    = 9728
	maxChained  = 5 // buffers of a frame
	rxHeadroom  = 64
	defaultMTU  = 1500
	frameExtras = 14 + 4 + 2*4 // header, FCS, two tags
	maxMTU      = maxFrame - frameExtras
)

func (k Kernel) rxGeometry(mtu int) rxGeometry {
	const unit, mostOfPage, jumbo = 128, 3712, 3072
	if mtu == 0 {
		mtu = defaultMTU
	}
	g := rxGeometry{stride: pageSize}
	switch {
	case k.DynamicVectors:
		g.buf = min((mtu+frameExtras+unit-1)/unit*unit, mostOfPage)
		g.max = min(maxFrame, maxChained*g.buf)
	case mtu <= defaultMTU:
		g.buf, g.max = 1536, 1536
	default:
		g.buf, g.max = jumbo, maxFrame
	}
	if g.buf < 2048-rxHeadroom {
		g.stride = 2048
	}
	return g
}

// RxFrame is a frame with what its last descriptor says of it
// (ice_lan_tx_rx.h:ice_32b_rx_flex_desc_nic).
type RxFrame struct {
	Queue            int
	Data             []byte
	Buffers          int
	PType            uint16
	Status0, Status1 uint16
	Tag1, Tag2       uint16 // l2tag1, l2tag2_2nd
	Hash             uint32
}

// Bits of status_error0 and status_error1 (ICE_RX_FLEX_DESC_STATUS0_*, ..1_*).
const (
	rxDD       = 1 << 0
	rxEOF      = 1 << 1
	rxHBO      = 1 << 2
	rxL3L4P    = 1 << 3
	rxIPE      = 1 << 4
	rxL4E      = 1 << 5
	rxEIPE     = 1 << 6
	rxEUDPE    = 1 << 7
	rxRXE      = 1 << 10
	rxRSSValid = 1 << 12
	rxL2TAG1P  = 1 << 13

	rxNAT     = 1 << 4
	rxL2TAG2P = 1 << 11
)

// rxBuffer is where in q.bufs the buffer of a slot lies.
func (q *queuePair) rxBuffer(slot int) (off int) { return slot*q.geometry.stride + rxHeadroom }

// postRx gives the device buffers up to 8 before the one it must not pass; the
// tail moves in steps of 8 (ice_txrx_lib.c:ice_release_rx_desc).
func (i *ICE) postRx(q *queuePair, n int) {
	for range n {
		off := q.rxBuffer(q.rxPosted)
		copy(q.bufs.Bytes()[off-rxHeadroom:][:q.geometry.stride], i.F.Guest.poison)
		// Only the address is written: what the device wrote behind it stays.
		q.rx.Store64(q.rxPosted*rxDescSize, q.bufs.IOVA+uint64(off))
		q.rxPosted = (q.rxPosted + 1) % ringLen
		le.PutUint16(q.rx.Bytes()[q.rxPosted*rxDescSize+8:], 0) // not DD any more
	}
	if tail := q.rxPosted &^ 7; tail != q.rxTail {
		q.rxTail = tail
		i.F.Write32(QRX_TAIL(q.id), uint32(tail))
	}
}

const poisonByte = 0xdb

// Receive takes the next frame of a queue; false if there is none
// (ice_txrx.c:ice_clean_rx_irq).
func (i *ICE) Receive(q *queuePair) (f RxFrame, ok bool, err error) {
	f.Queue = q.id
	for at, n := q.rxNext, 1; ; n++ {
		d := q.rx.Bytes()[at*rxDescSize:][:rxDescSize]
		word := q.rx.Load64(at*rxDescSize + 8)
		status := uint16(word)
		if status&rxDD == 0 {
			return f, false, nil
		}
		size := int(le.Uint16(d[4:]) & 0x3fff)
		last := status&rxEOF != 0
		off := q.rxBuffer(at)
		buf, rest := q.bufs.Bytes()[off:off+q.geometry.buf], q.bufs.Bytes()[off-rxHeadroom:][:q.geometry.stride]
		switch {
		case d[0] != rxdidFlexNIC:
			return f, false, broken("queue %d descriptor %d: RXDID %d", q.id, at, d[0])
		case size > len(buf) || size == 0:
			return f, false, broken("queue %d descriptor %d: %d bytes in a buffer of %d", q.id, at, size, len(buf))
		case !last && size != len(buf):
			return f, false, broken("queue %d descriptor %d: %d bytes in a buffer that is not the last", q.id, at, size)
		case status&(rxHBO|rxRXE) != 0 || le.Uint16(d[6:])&0x7ff != 0:
			return f, false, broken("queue %d descriptor %d: status %#x, hdr_len %#x", q.id, at, status, le.Uint16(d[6:]))
		}
		for k, b := range rest {
			if k -= rxHeadroom; (k < 0 || k >= size) && b != poisonByte {
				return f, false, broken("queue %d descriptor %d: a write beside its %d bytes, at %d", q.id, at, size, k)
			}
		}
		f.Data = append(f.Data, buf[:size]...)
		at = (at + 1) % ringLen
		if !last {
			if n == maxChained {
				return f, false, broken("queue %d descriptor %d: a frame of more than %d buffers", q.id, at, n)
			}
			continue
		}
		f.Buffers, f.PType = n, le.Uint16(d[2:])&0x3ff
		f.Status0, f.Tag1, f.Hash = status, uint16(word>>16), uint32(word>>32)
		f.Status1, f.Tag2 = le.Uint16(d[16:]), le.Uint16(d[22:])
		q.rxNext = at
		i.postRx(q, n)
		return f, true, i.F.Err()
	}
}
