// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"hash/crc32"
	"slices"
)

// Parts of RoCEv2 frames (InfiniBand specification, annex A17; rxe_hdr.h).
const (
	bthSolicited = 1 << 7
	bthAckReq    = 1 << 7
	bthBECN      = 1 << 6

	opSendFirst    = 0x00
	opSendMiddle   = 0x01
	opSendLast     = 0x02
	opSendOnly     = 0x04
	opWriteFirst   = 0x06
	opWriteMiddle  = 0x07
	opWriteLast    = 0x08
	opWriteOnly    = 0x0a
	opReadRequest  = 0x0c
	opReadResponse = 0x10 // READ_RESP_ONLY
	opAcknowledge  = 0x11
	opSendOnlyInv  = 0x17
	opUD           = 0x64
	opCNP          = 0x81

	synACK         = 0x1f
	synRNR         = 0x2c
	synSequence    = 0x60
	synAccess      = 0x62
	multicastQPNum = 0xffffff
)

// roceFrame is a frame as some station might send it. The zero value of what is
// not given is what a good station sends.
type roceFrame struct {
	dstMAC, srcMAC [6]byte
	tags           [][2]uint16 // TPID and TCI, outermost first
	ipv6           bool
	src, dst       [4]uint32
	tos, ttl       uint8
	fragment       uint16 // flags and offset, or an IPv6 fragment header's
	extension      bool   // a hop-by-hop header of IPv6
	dstPort        uint16 // 0: 4791

	opcode, flags, tver, resv uint8
	pkey                      uint16 // 0: 0xffff
	qp, psn                   uint32
	ack                       bool
	ext                       []byte // headers behind the BTH
	payload                   []byte
	badICRC                   bool
}

func reth(va uint64, key, n uint32) []byte {
	return be.AppendUint32(be.AppendUint32(be.AppendUint64(nil, va), key), n)
}

func aeth(syndrome uint8, msn uint32) []byte {
	return be.AppendUint32(nil, uint32(syndrome)<<24|msn&0xffffff)
}

// bytes is the frame without FCS.
func (r *roceFrame) bytes() []byte {
	pkey, port := r.pkey, r.dstPort
	if pkey == 0 {
		pkey = 0xffff
	}
	if port == 0 {
		port = roceUDPPort
	}
	pad := -len(r.payload) & 3
	bth := []byte{r.opcode, r.flags | uint8(pad)<<4 | r.tver}
	bth = be.AppendUint16(bth, pkey)
	bth = be.AppendUint32(bth, uint32(r.resv)<<24|r.qp&0xffffff)
	a := uint32(0)
	if r.ack {
		a = bthAckReq << 24
	}
	bth = be.AppendUint32(bth, a|r.psn&0xffffff)
	body := slices.Concat(bth, r.ext, r.payload, make([]byte, pad))
	udpLen := 8 + len(body) + 4
	udp := be.AppendUint16(be.AppendUint16(be.AppendUint16(nil, 0xc123), port), uint16(udpLen))
	udp = append(udp, 0, 0)
	ip, masked := r.ip(udpLen)
	// The ICRC covers what no router changes.
	udpMasked := slices.Clone(udp)
	udpMasked[6], udpMasked[7] = 0xff, 0xff
	bodyMasked := slices.Clone(body)
	bodyMasked[4] = 0xff
	crc := crc32.ChecksumIEEE(slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, masked, udpMasked, bodyMasked))
	if r.badICRC {
		crc ^= 1 << 13
	}
	f := slices.Concat(r.dstMAC[:], r.srcMAC[:])
	for _, t := range r.tags {
		f = be.AppendUint16(be.AppendUint16(f, t[0]), t[1])
	}
	kind := uint16(0x0800)
	if r.ipv6 {
		kind = 0x86dd
	}
	f = be.AppendUint16(f, kind)
	f = le.AppendUint32(slices.Concat(f, ip, udp, body), crc)
	if len(f) < 60 {
		f = append(f, make([]byte, 60-len(f))...)
	}
	return f
}

// ip is the header, and what of it the ICRC covers.
func (r *roceFrame) ip(udpLen int) (ip, masked []byte) {
	ttl := max(r.ttl, 1)
	if !r.ipv6 {
		fragment := r.fragment
		if fragment == 0 {
			fragment = 1 << 14 // do not fragment
		}
		ip = []byte{0x45, r.tos}
		ip = be.AppendUint16(ip, uint16(20+udpLen))
		ip = be.AppendUint16(be.AppendUint16(ip, 0x4321), fragment)
		ip = append(ip, ttl, 17, 0, 0)
		ip = be.AppendUint32(be.AppendUint32(ip, r.src[3]), r.dst[3])
		be.PutUint16(ip[10:], ^sum16(ip))
		masked = slices.Clone(ip)
		masked[1], masked[8], masked[10], masked[11] = 0xff, 0xff, 0xff, 0xff
		return ip, masked
	}
	const hopByHop, fragmentHeader, udp = 0, 44, 17
	var ext []byte
	next := uint8(udp)
	if r.fragment != 0 {
		ext = be.AppendUint16([]byte{next, 0}, r.fragment)
		ext, next = be.AppendUint32(ext, 7), fragmentHeader
	}
	if r.extension {
		ext, next = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, ext...), hopByHop
	}
	ip = []byte{0x60 | r.tos>>4, r.tos << 4, 0, 0}
	ip = append(be.AppendUint16(ip, uint16(len(ext)+udpLen)), next, ttl)
	for _, a := range [][4]uint32{r.src, r.dst} {
		for _, w := range a {
			ip = be.AppendUint32(ip, w)
		}
	}
	masked = slices.Clone(ip)
	copy(masked, []byte{0x6f, 0xff, 0xff, 0xff})
	masked[7] = 0xff
	return append(ip, ext...), append(masked, ext...)
}

func sum16(b []byte) uint16 {
	var sum uint32
	for k := 0; k+1 < len(b); k += 2 {
		sum += uint32(be.Uint16(b[k:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
