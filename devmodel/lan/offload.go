// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// Bounds of a frame to send.
const (
	// maxFrame is the MAC's limit (ice_aqc_opc_set_mac_cfg, 9728).
	maxFrame = 9728
	// minFrame: shorter frames are padded before the wire.
	minFrame = 60
	// minMSS is the smallest segment size; drivers ask for none below it
	// (ice_main.c:ice_features_check).
	minMSS = 64
	// maxHeader is longer than what the fields of OFFSET and of a context
	// descriptor can name.
	maxHeader = 2048
	// headroom is for two tags before a frame.
	headroom = 2 * frame.TagLen
	// vlanInsert is the type of the tag that L2TAG1 inserts.
	vlanInsert = frame.TypeVLAN
)

// outgoing is a frame being gathered and then sent: at once, or segment by
// segment. The zero value is none.
type outgoing struct {
	packet

	// buf is the frame behind headroom, and minFrame bytes to spare.
	buf    []byte
	header [maxHeader]byte // of segments
}

// packet is what of an outgoing one ends with it.
type packet struct {
	open    bool   // something came: a context or filter descriptor, or data
	begun   bool   // first is set
	context txDesc // all zero: none
	first   txDesc // whose command and offsets count for the frame
	last    txDesc // the one with EOP, once it came
	ready   bool   // gathered, being sent
	size    int    // of the frame, without headroom
	seg     segmenter
}

// reset makes o empty; its buffer stays.
func (o *outgoing) reset() { o.packet = packet{} }

// room makes room for n more bytes and returns it.
func (o *outgoing) room(n int) []byte {
	at := headroom + o.size
	if need := at + n + minFrame; need > len(o.buf) {
		grown := make([]byte, max(need, 2*len(o.buf), 2048))
		copy(grown, o.buf[:min(at, len(o.buf))])
		o.buf = grown
	}
	o.size += n
	return o.buf[at : at+n]
}

// tso tells whether the frame is to be segmented.
func (o *outgoing) tso() bool { return o.context.has(bitTSO) && o.context.dtype() == dtypeContext }

// limit is the size that the frame must not exceed.
func (o *outgoing) limit() int {
	if o.tso() {
		return o.context.tsoLen() + maxHeader
	}
	return maxFrame
}

// layout is where the headers of a frame are, from its start.
type layout struct {
	outer3, outer4 int // 0: no tunnel
	l3, l4         int
}

// layout follows OFFSET and the context descriptor, not the frame
// (ice_txrx.c:ice_tx_csum): MACLEN is before the outermost IP header.
func (o *outgoing) layout() (y layout, err error) {
	c, d := &o.context, &o.first
	y.l3 = d.macLen()
	if c.outer() != noIP {
		y.outer3 = y.l3
		y.outer4 = y.outer3 + c.outerIPLen()
		y.l3 = y.outer4 + c.tunnelLen()
		if err := checkIP(c.outer(), c.outerIPLen(), "EIPLEN"); err != nil {
			return y, err
		}
		if c.tunnel() == tunnelUDP && c.tunnelLen() < frame.UDPLen {
			return y, fmt.Errorf("NATLEN %d is shorter than a UDP header", c.tunnelLen())
		}
	}
	y.l4 = y.l3 + d.ipLen()
	if d.macLen() < frame.HeaderLen {
		return y, fmt.Errorf("MACLEN %d is shorter than an Ethernet header", d.macLen())
	}
	if err := checkIP(d.inner(), d.ipLen(), "IPLEN"); err != nil {
		return y, err
	}
	if y.l4 > o.size {
		return y, fmt.Errorf("headers of %d bytes in a frame of %d", y.l4, o.size)
	}
	return y, nil
}

func checkIP(kind ipKind, n int, field string) error {
	if least := [...]int{noIP: 0, ipv6: 40, ipv4: 20, ipv4Sum: 20}[kind]; n < least {
		return fmt.Errorf("%s %d is shorter than its IP header", field, n)
	}
	return nil
}

// prepare does what the descriptors ask for once: checksums and tags, or the
// checks of a segmentation. An error is a frame that the driver must not send.
func (o *outgoing) prepare(s *steering, vsi uint16) error {
	if o.size < frame.HeaderLen {
		return errors.New("frame shorter than an Ethernet header")
	}
	d := &o.first
	y := layout{}
	if o.tso() || d.l4() != noL4 || d.inner() == ipv4Sum {
		var err error
		if y, err = o.layout(); err != nil {
			return err
		}
	}
	g := &o.seg
	*g = segmenter{layout: y, l4: d.l4(), tags: o.tags(s, vsi)}
	if o.tso() {
		return g.begin(o)
	}
	f := o.buf[headroom : headroom+o.size]
	if d.inner() == ipv4Sum {
		h := f[y.l3:y.l4]
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], frame.Checksum(h, 0))
	}
	if err := checksum(f, y.l4, d.l4()); err != nil {
		return err
	}
	if o.size+g.tags.len() > maxFrame {
		return fmt.Errorf("frame longer than %d bytes", maxFrame)
	}
	g.total = 1
	return nil
}

// checksum finishes the checksum of the L4 packet at l4, whose field holds the
// sum of the pseudo header.
func checksum(f []byte, l4 int, kind l4Kind) error {
	p := f[l4:]
	at := [...]int{l4TCP: 16, l4UDP: 6, l4SCTP: 8}[kind]
	switch {
	case kind == noL4:
		return nil
	case len(p) < at+2 || kind == l4SCTP && len(p) < 12:
		return fmt.Errorf("L4 packet of %d bytes has no checksum", len(p))
	case kind == l4SCTP:
		clear(p[8:12])
		binary.LittleEndian.PutUint32(p[8:], frame.CRC32C(0, p))
		return nil
	}
	sum := frame.Checksum(p, 0)
	if sum == 0 && kind == l4UDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(p[at:], sum)
	return nil
}

// insert is up to two tags to be inserted, the outer first.
type insert struct {
	n    int
	tags [headroom]byte
}

func (i *insert) len() int { return i.n * frame.TagLen }

func (i *insert) add(tpid, tci uint16) {
	binary.BigEndian.PutUint16(i.tags[i.len():], tpid)
	binary.BigEndian.PutUint16(i.tags[i.len()+2:], tci)
	i.n++
}

// tags are those that the descriptors ask for.
func (o *outgoing) tags(s *steering, vsi uint16) (i insert) {
	if o.context.has(bitIL2TAG2) {
		tpid := uint16(vlanInsert)
		if s != nil && s.VSIs[vsi] != nil {
			tpid = s.VSIs[vsi].InsertTPID
		}
		if tpid != 0 {
			i.add(tpid, o.context.l2tag2())
		}
	}
	if o.first.has(bitIL2TAG1) {
		i.add(vlanInsert, o.first.l2tag1())
	}
	return i
}

// next returns the next frame to send, padded, and its length before; ok tells
// whether there was one.
func (o *outgoing) next() (f []byte, n int, ok bool) {
	g := &o.seg
	if g.sent == g.total {
		return nil, 0, false
	}
	var start, end int
	if g.mss != 0 {
		start, end = g.next(o.buf, &o.header)
	} else {
		start, end = headroom-g.tags.len(), headroom+o.size
		if g.tags.n != 0 {
			copy(o.buf[start:], o.buf[headroom:headroom+frame.AddressesLen])
			copy(o.buf[start+frame.AddressesLen:], g.tags.tags[:g.tags.len()])
		}
	}
	g.sent++
	n = end - start
	if n < minFrame {
		clear(o.buf[end : start+minFrame])
		end = start + minFrame
	}
	return o.buf[start:end], n, true
}
