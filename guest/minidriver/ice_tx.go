// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// Packet is what the network stack hands to ice: a frame with what is still to
// be done for it (struct sk_buff). Offsets count from the frame's start.
type Packet struct {
	Data []byte
	// Network and Transport are the outermost headers. Inner ones are there for
	// an encapsulated packet; with IP in IP, Transport is not looked at.
	Network, Transport           int
	InnerNetwork, InnerTransport int
	Partial                      bool // CHECKSUM_PARTIAL: the innermost L4 checksum is to be finished
	VLAN                         *uint16

	// GSO: 0, or the size of a segment's payload.
	MSS        int
	UDP        bool // SKB_GSO_UDP_L4
	GSOPartial bool // SKB_GSO_PARTIAL: outer headers are as every segment has them
	TunnelCsum bool // SKB_GSO_UDP_TUNNEL_CSUM

	// Pieces are the lengths of the buffers that hold the frame; nil: one.
	Pieces []int
	// Inserts a tag by the context descriptor, as in double VLAN mode.
	OuterVLAN *uint16
}

// Transmit descriptors (ice_lan_tx_rx.h).
const (
	txDtypeData    = 0
	txDtypeContext = 1
	txDtypeMask    = 0xf

	txCmdEOP      = 0x001 << 4
	txCmdRS       = 0x002 << 4
	txCmdIL2TAG1  = 0x008 << 4
	txCmdIPv6     = 0x020 << 4
	txCmdIPv4     = 0x040 << 4
	txCmdIPv4Csum = 0x060 << 4
	txCmdTCP      = 0x100 << 4
	txCmdSCTP     = 0x200 << 4
	txCmdUDP      = 0x300 << 4

	txMACLenBit = 16
	txIPLenBit  = 23
	txL4LenBit  = 30
	txSizeBit   = 34
	txTagBit    = 48

	ctxCmdTSO     = 0x01 << 4
	ctxCmdIL2TAG2 = 0x04 << 4
	ctxTSOLenBit  = 30
	ctxMSSBit     = 50
	ctxL2Tag2Bit  = 32

	ctxIPv6       = 1
	ctxIPv4NoCsum = 2
	ctxIPv4       = 3
	ctxIPLenBit   = 2
	ctxUDP        = 1 << 9
	ctxGRE        = 2 << 9
	ctxNATLenBit  = 12
	ctxL4TCS      = 1 << 23

	maxDataPerDesc        = 16<<10 - 1
	maxDataPerDescAligned = 12 << 10
	maxReadRequest        = 4 << 10
	maxBuffersPerFrame    = 8
	minTxLen              = 17

	protoIPIP, protoTCP, protoUDP, protoIPv6, protoGRE, protoSCTP = 4, 6, 17, 41, 47, 132
)

// offload is ice_txrx.h:ice_tx_offload_params.
type offload struct {
	cmd, offset      uint64
	tunnel           uint64 // first word of the context descriptor
	context          uint64 // second; 0: there is none
	headerLen, tsoed int
}

// isV4 tells the version of the IP header at off.
func (p *Packet) isV4(off int) bool { return p.Data[off]>>4 == 4 }

// clearLengths is what ice_tso does to an IP header.
func (p *Packet) clearLengths(off int) {
	if p.isV4(off) {
		clear(p.Data[off+2 : off+4])
		clear(p.Data[off+10 : off+12])
		return
	}
	clear(p.Data[off+4 : off+6])
}

// removeLength takes the payload length from the checksum at off
// (csum_replace_by_diff).
func (p *Packet) removeLength(off, n int) {
	sum := uint32(be.Uint16(p.Data[off:])) + ^uint32(n)&0xffff + ^uint32(n)>>16
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	be.PutUint16(p.Data[off:], uint16(sum))
}

// tso is ice_txrx.c:ice_tso.
func (p *Packet) tso(o *offload) {
	if !p.Partial || p.MSS == 0 {
		return
	}
	network, transport := p.Network, p.Transport
	p.clearLengths(network)
	if p.InnerNetwork != 0 {
		if !p.GSOPartial && p.TunnelCsum {
			clear(p.Data[transport+4 : transport+6])
			p.removeLength(transport+6, len(p.Data)-transport)
		}
		network, transport = p.InnerNetwork, p.InnerTransport
		p.clearLengths(network)
	}
	n := len(p.Data) - transport
	if p.UDP {
		p.removeLength(transport+6, n)
		o.headerLen = transport + 8
	} else {
		p.removeLength(transport+16, n)
		o.headerLen = transport + int(p.Data[transport+12]>>4)*4
	}
	o.tsoed = len(p.Data) - o.headerLen
	o.context |= txDtypeContext | ctxCmdTSO | uint64(o.tsoed)<<ctxTSOLenBit | uint64(p.MSS)<<ctxMSSBit
}

// protocol is what follows the IP header at off up to end, behind extension
// headers (ipv6_skip_exthdr).
func (p *Packet) protocol(off, end int) uint8 {
	if p.isV4(off) {
		return p.Data[off+9]
	}
	next, at := p.Data[off+6], off+40
	for at < end {
		n := 8 * (int(p.Data[at+1]) + 1)
		next, at = p.Data[at], at+n
	}
	return next
}

// checksums is ice_txrx.c:ice_tx_csum.
func (p *Packet) checksums(o *offload) error {
	if !p.Partial {
		return nil
	}
	ip, l4 := p.Network, p.Transport
	o.offset |= uint64(ip/2) << txMACLenBit
	if p.InnerNetwork != 0 {
		var tunnel uint64
		switch {
		case !p.isV4(ip):
			tunnel = ctxIPv6
		case p.MSS != 0:
			tunnel = ctxIPv4
		default:
			tunnel = ctxIPv4NoCsum
		}
		switch proto := p.protocol(ip, l4); proto {
		case protoUDP:
			tunnel |= ctxUDP
		case protoGRE:
			tunnel |= ctxGRE
		case protoIPIP, protoIPv6:
			l4 = p.InnerNetwork
		default:
			return fmt.Errorf("a tunnel of protocol %d", proto)
		}
		tunnel |= uint64((l4-ip)/4) << ctxIPLenBit
		tunnel |= uint64((p.InnerNetwork-l4)/2) << ctxNATLenBit
		if p.MSS != 0 && !p.GSOPartial && p.TunnelCsum {
			tunnel |= ctxL4TCS
		}
		o.tunnel |= tunnel
		o.context |= txDtypeContext
		ip, l4 = p.InnerNetwork, p.InnerTransport
	}
	switch {
	case !p.isV4(ip):
		o.cmd |= txCmdIPv6
	case p.MSS != 0:
		o.cmd |= txCmdIPv4Csum
	default:
		o.cmd |= txCmdIPv4
	}
	o.offset |= uint64((l4-ip)/4) << txIPLenBit
	switch proto := p.protocol(ip, l4); proto {
	case protoTCP:
		o.cmd |= txCmdTCP
		o.offset |= uint64(p.Data[l4+12]>>4) << txL4LenBit
	case protoUDP:
		o.cmd |= txCmdUDP
		o.offset |= 8 / 4 << txL4LenBit
	case protoSCTP:
		o.cmd |= txCmdSCTP
		o.offset |= 12 / 4 << txL4LenBit
	default:
		return fmt.Errorf("a checksum of protocol %d", proto)
	}
	return nil
}

// sentPacket is a packet that the device has.
type sentPacket struct {
	q    *queuePair
	last int // its descriptor with EOP
	bufs []*Buf
	n    int // descriptors
}

// post puts a descriptor into the ring.
func (q *queuePair) post(w0, w1 uint64) {
	at := q.txNext * txDescSize
	le.PutUint64(q.tx.Bytes()[at:], w0)
	q.tx.Store64(at+8, w1)
	q.txNext = (q.txNext + 1) % ringLen
}

// Send puts a packet into the ring and, unless more is to come at once, tells
// the device (ice_txrx.c:ice_xmit_frame_ring, ice_tx_map).
func (i *ICE) Send(q *queuePair, p Packet, more bool) (*sentPacket, error) {
	p.Data = append([]byte(nil), p.Data...)
	for len(p.Data) < minTxLen {
		p.Data = append(p.Data, 0)
	}
	pieces := p.Pieces
	if pieces == nil {
		pieces = []int{len(p.Data)}
	}
	if p.MSS == 0 && len(pieces) > maxBuffersPerFrame {
		return nil, fmt.Errorf("a frame of %d buffers, which the driver would have made one", len(pieces))
	}
	var o offload
	if p.VLAN != nil {
		o.cmd |= txCmdIL2TAG1
	}
	if p.OuterVLAN != nil {
		o.context |= txDtypeContext | ctxCmdIL2TAG2
		o.tunnel |= uint64(*p.OuterVLAN) << ctxL2Tag2Bit
	}
	p.tso(&o)
	if err := p.checksums(&o); err != nil {
		return nil, err
	}
	s := &sentPacket{q: q}
	first := q.txNext
	if o.context != 0 {
		q.post(o.tunnel, o.context)
	}
	word := o.cmd | o.offset | txDtypeData
	if p.VLAN != nil {
		word |= uint64(*p.VLAN) << txTagBit
	}
	at := 0
	for n, size := range pieces {
		// Where in a page the stack's buffers begin is anybody's guess.
		const step = 97
		skew := (n * step) % 256
		b := i.mem.own(i.F.alloc(skew + size))
		s.bufs = append(s.bufs, b)
		copy(b.Bytes()[skew:], p.Data[at:at+size])
		at += size
		iova := b.IOVA + uint64(skew)
		most := maxDataPerDescAligned + int(-iova&(maxReadRequest-1))
		for size > maxDataPerDesc {
			q.post(iova, word|uint64(most)<<txSizeBit)
			iova, size, most = iova+uint64(most), size-most, maxDataPerDescAligned
		}
		last := word | uint64(size)<<txSizeBit
		if n == len(pieces)-1 {
			last |= txCmdEOP | txCmdRS
			s.last = q.txNext
		}
		q.post(iova, last)
	}
	if at != len(p.Data) {
		return nil, fmt.Errorf("pieces of %d bytes in all, a frame of %d", at, len(p.Data))
	}
	s.n = (q.txNext - first + ringLen) % ringLen
	if !more {
		i.Kick(q)
	}
	return s, i.F.Err()
}

// Kick tells the device of all that was sent.
func (i *ICE) Kick(q *queuePair) { i.F.Write32(QTX_COMM_DBELL(q.id), uint32(q.txNext)) }

// done tells whether a packet is sent (ice_txrx.c:ice_clean_tx_irq).
func (s *sentPacket) done() bool { return s.q.tx.Load64(s.last*txDescSize+8)&txDtypeMask != 0 }

// Wait waits until packets are sent, in their order, and takes their memory
// back.
func (i *ICE) Wait(list ...*sentPacket) error {
	for _, s := range list {
		if err := i.F.poll("DD of a sent frame", s.done); err != nil {
			return err
		}
		for k := range s.n {
			slot := (s.last - k + ringLen) % ringLen
			if d := s.q.tx.Load64(slot*txDescSize+8) & txDtypeMask; k > 0 && d != txDtypeData && d != txDtypeContext {
				return broken("DTYPE %d of descriptor %d, which did not ask for a report", d, slot)
			}
		}
		i.mem.free(s.bufs...)
	}
	return nil
}
