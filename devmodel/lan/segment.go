// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// segmenter cuts a TCP or UDP packet into frames (ice_txrx.c:ice_tso). The
// headers of each are written right before its payload, over what is sent
// already: nothing is copied but they.
type segmenter struct {
	layout
	l4    l4Kind
	tags  insert
	total int // frames to send
	sent  int

	// Of a segmentation only; the layout is that behind the tags.
	mss          int // 0: none
	payload, end int // in the buffer
	inner, outer ipKind
	udpTunnel    bool
	tunnelSum    bool
	headerLen    int
	id, outerID  uint16
	seq          uint32
	flags        byte
}

const (
	tcpFIN = 1 << 0
	tcpPSH = 1 << 3
	tcpCWR = 1 << 7
)

// begin checks a segmentation and takes the headers.
func (g *segmenter) begin(o *outgoing) error {
	c, d := &o.context, &o.first
	headerLen := g.layout.l4 + d.l4Len()
	switch {
	case d.inner() == noIP:
		return fmt.Errorf("segmentation without IIPT")
	case g.l4 == l4TCP && d.l4Len() < 20, g.l4 == l4UDP && d.l4Len() != frame.UDPLen, g.l4 != l4TCP && g.l4 != l4UDP:
		return fmt.Errorf("segmentation with L4T %d and L4LEN %d", g.l4, d.l4Len())
	case c.mss() < minMSS:
		return fmt.Errorf("MSS %d is less than %d", c.mss(), minMSS)
	case headerLen > o.size:
		return fmt.Errorf("headers of %d bytes in a packet of %d", headerLen, o.size)
	case o.size-headerLen != c.tsoLen():
		return fmt.Errorf("TSO_LEN %d, but %d bytes follow the headers", c.tsoLen(), o.size-headerLen)
	case c.tsoLen() == 0:
		return fmt.Errorf("TSO_LEN is 0")
	case headerLen+g.tags.len()+c.mss() > maxFrame:
		return fmt.Errorf("segments longer than %d bytes", maxFrame)
	}
	tags := g.tags.len()
	f := o.buf[headroom:]
	g.headerLen = headerLen + tags
	copy(o.header[:], f[:frame.AddressesLen])
	copy(o.header[frame.AddressesLen:], g.tags.tags[:tags])
	copy(o.header[frame.AddressesLen+tags:], f[frame.AddressesLen:headerLen])
	g.l3, g.layout.l4 = g.l3+tags, g.layout.l4+tags
	if g.outer3 != 0 {
		g.outer3, g.outer4 = g.outer3+tags, g.outer4+tags
	}
	g.mss, g.payload, g.end = c.mss(), headroom+headerLen, headroom+o.size
	g.total = (c.tsoLen() + g.mss - 1) / g.mss
	g.inner, g.outer = d.inner(), c.outer()
	g.udpTunnel = g.outer3 != 0 && c.tunnel() == tunnelUDP
	g.tunnelSum = g.udpTunnel && c.tunnelSum()
	be := binary.BigEndian
	if g.inner != ipv6 {
		g.id = be.Uint16(o.header[g.l3+4:])
	}
	if g.outer3 != 0 && g.outer != ipv6 {
		g.outerID = be.Uint16(o.header[g.outer3+4:])
	}
	if g.l4 == l4TCP {
		g.seq, g.flags = be.Uint32(o.header[g.layout.l4+4:]), o.header[g.layout.l4+13]
	}
	return nil
}

// next makes the next segment in buf and returns where it is.
func (g *segmenter) next(buf []byte, header *[maxHeader]byte) (start, end int) {
	be := binary.BigEndian
	at := g.payload + g.sent*g.mss
	start, end = at-g.headerLen, min(at+g.mss, g.end)
	f := buf[start:end]
	copy(f, header[:g.headerLen])
	p := f[g.layout.l4:]
	field := 6
	if g.l4 == l4TCP {
		field = 16
		be.PutUint32(p[4:], g.seq+uint32(g.sent*g.mss))
		flags := g.flags
		if g.sent != 0 {
			flags &^= tcpCWR
		}
		if g.sent != g.total-1 {
			flags &^= tcpFIN | tcpPSH
		}
		p[13] = flags
	} else {
		be.PutUint16(p[4:], uint16(len(p)))
	}
	// The field holds the sum of the pseudo header without its length.
	finish(p, field, g.l4 == l4UDP)
	fixIP(f[g.l3:], g.inner, g.layout.l4-g.l3, g.id+uint16(g.sent))
	if g.udpTunnel {
		u := f[g.outer4:]
		be.PutUint16(u[4:], uint16(len(u)))
		if g.tunnelSum {
			finish(u, 6, true)
		}
	}
	if g.outer3 != 0 {
		fixIP(f[g.outer3:], g.outer, g.outer4-g.outer3, g.outerID+uint16(g.sent))
	}
	return start, end
}

// finish makes the checksum at a field that holds the sum of the pseudo header
// but for the length.
func finish(p []byte, field int, udp bool) {
	sum := frame.Checksum(p, uint64(len(p)))
	if sum == 0 && udp {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(p[field:], sum)
}

// fixIP gives the IP header h, of n bytes, the length of what it begins; an
// IPv4 header also its id and its checksum, which the length changes.
func fixIP(h []byte, kind ipKind, n int, id uint16) {
	be := binary.BigEndian
	if kind == ipv6 {
		be.PutUint16(h[4:], uint16(len(h)-40))
		return
	}
	be.PutUint16(h[2:], uint16(len(h)))
	be.PutUint16(h[4:], id)
	h[10], h[11] = 0, 0
	be.PutUint16(h[10:], frame.Checksum(h[:n], 0))
}
