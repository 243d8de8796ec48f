// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"slices"
	"testing"
)

// FuzzDatagramPackets lets the world send any datagrams to a QP that is in a
// multicast group, too, and compares what becomes of them with what the
// specification says: memory, completions and counters.
//
// The input is a list of frames, each of them:
//
//	kind (1)     bits 0 to 2: what is wrong with it, from 4 on; bit 3: to the group;
//	             bit 4: opcode, second byte of the BTH (2) and headers in words (1,
//	             up to 15, and those) are given; bit 5: immediate data; bit 6:
//	             solicited
//	source (1)   low byte of the sending QP's number
//	payload (2)  its length, up to 2047
func FuzzDatagramPackets(f *testing.F) {
	for _, seed := range datagramSeeds() {
		f.Add(seed)
	}
	x := newRoceWorld(f, 4)
	group := x.r.NewGroup(x.r.AddressOfGroup(1, pairPD, false))
	f.Fuzz(func(t *testing.T, input []byte) {
		x.w.t = t
		m := &listener{x: x, a: newDatagramSide(t, x.r, x.rnd, false), group: &group.Attr}
		must(t, group.Attach(m.a.qp))
		at := 0
		for id, n := range []int{GRHSize, 300, 2087, 1000, GRHSize + 4, GRHSize - 1} {
			m.recvs = append(m.recvs, RecvWR{ID: uint64(id), SGEs: []SGE{m.a.sge(at, n/5), m.a.sge(at+n/5, n-n/5)}})
			m.offs, at = append(m.offs, at), at+n
		}
		must(t, m.a.qp.PostRecv(m.recvs...))
		x.begin(t)
		in, frames := fuzzInput(input), 0
		for ; len(in) > 0 && frames < fuzzFrames; frames++ {
			x.w.inject(m.next(&in, byte(frames)))
		}
		done := func(c Counters) bool { return c[InRdmaSends]+c.dropped()+c[CnpIgnored] >= uint64(frames) }
		m.judge(t, x.settleWhen(t, frames, done))
		must(t, group.Detach(m.a.qp))
		must(t, m.a.qp.Destroy())
		must(t, x.i.F.Guest.Check())
		must(t, m.a.mem.check("memory", 0, m.a.mem.Size))
		endSides(t, m.a)
	})
}

// listener is what a QP for datagrams must do, packet by packet.
type listener struct {
	x     *roceWorld
	a     *side
	group *AHAttr
	recvs []RecvWR
	offs  []int // of their memory
	wcs   []WC

	dropped, toGroup, cnps uint64
}

// next makes the next frame of an input and takes it into account.
func (m *listener) next(in *fuzzInput, number byte) []byte {
	kind, source := uint8(in.take(1)), uint32(in.take(1))
	r := m.x.frame(m.a.qp)
	r.src[3], r.dst[3], r.qp, r.psn = 0x0a000000|source, m.x.r.Address(false)[3], m.a.qp.ID, uint32(number)*77
	r.opcode, r.flags = opUD, kind<<1&bthSolicited
	qkey := uint32(gsiQKey)
	if kind&7 == 6 {
		qkey++
	}
	if kind&16 != 0 {
		r.opcode, r.flags = uint8(in.take(1)), uint8(in.take(1))
		for range in.take(1) & 15 {
			r.ext = be.AppendUint32(r.ext, uint32(in.take(4)))
		}
	} else {
		r.ext = be.AppendUint32(be.AppendUint32(nil, qkey), source)
		if kind&32 != 0 {
			r.opcode++
			r.ext = be.AppendUint32(r.ext, 0x0a0b0c00|source)
		}
	}
	if kind&8 != 0 {
		r.dstMAC, r.dst, r.qp = m.group.MAC, m.group.Dest, multicastQPNum
	}
	r.payload = make([]byte, int(in.take(2))&2047)
	for k := range r.payload {
		r.payload[k] = number*17 + byte(k*3)
	}
	lost := false
	if n := kind & 7; n != 6 { // who sends datagrams may be anybody
		lost = r.fate(n)
	}
	if r.opcode == opCNP && r.pkey != 0 { // of any partition
		lost = false
	}
	frame := r.bytes()
	if r.dstMAC == m.group.MAC {
		m.toGroup++
	}
	if lost || !m.packet(frame, kind&8 != 0) {
		m.dropped++
	}
	return frame
}

// packet takes a frame. False: it is dropped.
func (m *listener) packet(f []byte, toGroup bool) bool {
	const ip, at = 14, 14 + 20 + 8
	b := f[at : ip+int(be.Uint16(f[ip+2:]))-4]
	if b[1]&0xf != 0 {
		return false
	}
	ext, pad := map[uint8]int{opUD: 8, opUD + 1: 12}[b[0]], int(b[1]>>4&3)
	if b[0] == opCNP && !toGroup && len(b) >= 12+pad {
		m.cnps++
		return true
	}
	if ext == 0 || len(b) < 12+ext+pad || be.Uint32(b[12:]) != gsiQKey {
		return false
	}
	data := b[12+ext : len(b)-pad]
	if len(m.recvs) == 0 {
		return false
	}
	w, off := m.recvs[0], m.offs[0]
	if room := int(w.SGEs[0].Len + w.SGEs[1].Len); room < GRHSize+len(data) {
		return false // and the buffer stays
	}
	m.recvs, m.offs = m.recvs[1:], m.offs[1:]
	to := m.a.mem.want[off:]
	clear(to[:20])
	copy(to[20:], f[ip:ip+20])
	copy(to[GRHSize:], data)
	wc := WC{QP: m.a.qp, ID: w.ID, Status: Success, Op: 0x3e, Len: uint32(GRHSize + len(data)), Solicited: b[1]&bthSolicited != 0, HasImm: b[0] != opUD,
		From: Sender{QP: be.Uint32(b[16:]) & 0xffffff, IPv4: true, MAC: [6]byte(worldMAC), HasMAC: true}}
	if wc.HasImm {
		wc.Imm = be.Uint32(b[20:])
	}
	m.wcs = append(m.wcs, wc)
	return true
}

// judge compares with what the card did.
func (m *listener) judge(t *testing.T, c Counters) {
	if list := m.x.r.eventsOf(m.a.qp); len(list) > 0 {
		t.Errorf("events %+v", list)
	}
	var got []WC
	for {
		wc, ok, err := m.a.cq.Poll()
		must(t, err)
		if !ok {
			break
		}
		got = append(got, wc)
	}
	if !slices.Equal(got, m.wcs) {
		t.Errorf("completions\n got %+v\nwant %+v", got, m.wcs)
	}
	if list := m.x.sent(t, m.a.qp); len(list) > 0 {
		t.Errorf("sent %+v", list)
	}
	for name, want := range map[Counter]uint64{InRdmaSends: uint64(len(m.wcs)), IP4InMcastPkts: m.toGroup, CnpIgnored: m.cnps} {
		if c[name] != want {
			t.Errorf("%s %d, want %d", name, c[name], want)
		}
	}
	if c.dropped() != m.dropped {
		t.Errorf("%d packets dropped, want %d", c.dropped(), m.dropped)
	}
}

// datagramSeeds are inputs that come to all of it.
func datagramSeeds() (list [][]byte) {
	frame := func(kind byte, length uint16) []byte { return []byte{kind, 5, byte(length >> 8), byte(length)} }
	list = append(list,
		slices.Concat(frame(0, 0), frame(8, 260), frame(32, 2047), frame(64, 1), frame(0, 4), frame(0, 0), frame(0, 0)),
		slices.Concat(frame(0, 1), frame(0, 0), frame(0, 261), frame(8, 0), frame(40, 9)),
		slices.Concat(frame(8, 0), frame(8, 0), frame(72, 0), frame(104, 3)))
	for fate := range byte(8) {
		list = append(list, slices.Concat(frame(fate, 0), frame(8|fate, 0), frame(0, 9)))
	}
	for _, opcode := range []byte{0, 4, 0x11, 0x63, 0x64, 0x65, 0x66, opCNP} {
		for words := range byte(4) {
			b := slices.Concat([]byte{16, 5, opcode, 0, words}, make([]byte, 4*int(words)), []byte{0, 9})
			if words > 0 {
				copy(b[5:], be.AppendUint32(nil, gsiQKey))
			}
			list = append(list, slices.Concat(b, frame(0, 0)))
		}
	}
	return list
}
