// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// FuzzResponder lets a peer send any requests to a connected QP, ICRC right, and
// compares what becomes of them with what the specification says: memory,
// completions, answers on the wire, event and counters.
//
// The input is a list of frames, each of them:
//
//	kind (1)     bits 0 to 2: from 4 on it is lost, see fate; bit 3: AckReq; bit 4:
//	             all headers are as they are given; bit 5: payload and RETH need
//	             not be as long as the opcode asks for
//	opcode (1)   of 128 and more the next byte is one, else it is a number among
//	             the requests
//	second byte of the BTH (1), PSN from the expected one on (1, signed)
//	headers:     given: how many words (1), up to 15, and those. Else, as the
//	             opcode has them: offset of the VA (2), key (1), length (2);
//	             immediate (1); key to invalidate (1)
//	payload (2)  its length, up to 1023
func FuzzResponder(f *testing.F) {
	for _, seed := range responderSeeds() {
		f.Add(seed)
	}
	x := newRoceWorld(f, 2)
	f.Fuzz(func(t *testing.T, input []byte) {
		x.w.t = t
		m := newResponder(t, x)
		x.begin(t)
		in, frames := fuzzInput(input), 0
		for ; len(in) > 0 && frames < fuzzFrames; frames++ {
			x.w.inject(m.next(&in, byte(frames)))
		}
		if !m.dead && !m.vague {
			// Whatever has been asked for is answered before this.
			last := x.frame(m.a.qp)
			last.opcode, last.psn, last.ack = opSendOnly, m.epsn-1, true
			x.w.inject(last.bytes())
			m.acknowledge(last.psn, last.psn)
			frames++
		}
		m.judge(t, x.settle(t, frames))
		must(t, m.a.qp.Destroy())
		must(t, x.i.F.Guest.Check())
		must(t, m.a.mem.check("memory", 0, m.a.mem.Size))
		must(t, m.spare.check("the other region", 0, m.spare.Size))
		must(t, m.spare.mr.Dereg())
		m.spare.Free()
		must(t, m.readOnly.mr.Dereg())
		must(t, m.foreign.mr.Dereg())
		m.foreign.Free()
		endSides(t, m.a)
	})
}

// responder is what a QP must do, packet by packet.
type responder struct {
	x *roceWorld
	a *side
	// spare may be ended by the peer, readOnly is a.mem again, foreign of another
	// protection domain.
	spare, readOnly, foreign *flat
	ended                    bool // spare is

	epsn, msn uint32
	nak       bool
	dead      bool
	// vague: what comes when decides on answers.
	vague bool
	codes []uint16 // of the event

	msg       byte // what message is under way
	off       int
	recv      RecvWR
	recvs     []RecvWR
	va        uint64
	key, left uint32

	answers []answered
	asked   []asked // which of the answers are to reads
	wcs     []WC
	reads   []readSeen

	dropped, inSends, inWrites, inReads, invalidated uint64
	after                                            uint64 // packets behind the one that ended it
}

// answered is a packet that is due.
type answered struct {
	opcode, syndrome uint8
	psn              uint32
	data             []byte
	at               span // that the data is from
	changed          bool // the data may be what came later
}

// span is a piece of a region.
type span struct {
	of      *flat
	off, to int
}

type readSeen struct{ psn, n, key uint32 }

// asked is a read, or one again, and its first answer.
type asked struct {
	psn, n uint32
	from   int
	again  bool
}

func newResponder(t *testing.T, x *roceWorld) *responder {
	a := x.connected(t, 0, 0)
	m := &responder{x: x, a: a, epsn: a.qp.Attr.RecvPSN}
	kind := regionKind{size: 8 << 10, va: 0x7f55_0000_0000, page: Page4K, level: 1}
	var err error
	m.spare, err = newFlat(x.r, x.rnd, kind, pairPD, Everything)
	must(t, err)
	kind.va += 1 << 20
	m.foreign, err = newFlat(x.r, x.rnd, kind, pairPD+1, Everything)
	must(t, err)
	again, err := x.r.RegMR(pairPD, a.mem.Region, LocalRead|RemoteRead, MROptions{Rand: x.rnd})
	must(t, err)
	m.readOnly = &flat{Region: a.mem.Region, mr: again, want: a.mem.want}
	at := 20 << 10
	for id, n := range []int{700, 0, 256, 1000, 1} {
		w := RecvWR{ID: uint64(id), SGEs: []SGE{a.sge(at, n/3), a.sge(at+n/3, n-n/3)}}
		at += n
		m.recvs = append(m.recvs, w)
	}
	must(t, a.qp.PostRecv(m.recvs...))
	return m
}

// stag is the n-th key that a peer may try.
func (m *responder) stag(n uint8) uint32 {
	switch n & 15 {
	case 8, 9:
		return m.spare.mr.STag
	case 10:
		return m.readOnly.mr.STag
	case 11:
		return m.foreign.mr.STag
	case 12:
		return m.spare.mr.STag ^ 0xff
	case 13:
		return 0
	case 14:
		return 0x00ff_ff00 | uint32(n)
	}
	return m.a.mem.mr.STag
}

var fuzzRequests = []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x16, 0x17, 0x0a, 0x13}

// next makes the next frame of an input and takes it into account.
func (m *responder) next(in *fuzzInput, number byte) []byte {
	kind, opcode := uint8(in.take(1)), uint8(in.take(1))
	if opcode >= 128 {
		opcode = uint8(in.take(1))
	} else {
		opcode = fuzzRequests[int(opcode)%len(fuzzRequests)]
	}
	r := m.x.frame(m.a.qp)
	r.opcode, r.ack = opcode, kind&8 != 0
	r.flags = uint8(in.take(1))
	r.psn = m.epsn + uint32(int8(in.take(1)))
	o := rcOperations[opcode]
	length := 0
	if kind&16 != 0 {
		for range in.take(1) & 15 {
			r.ext = be.AppendUint32(r.ext, uint32(in.take(4)))
		}
		length = int(in.take(2)) & 1023
	} else {
		r.flags &= bthSolicited
		if o.kind == 'r' || o.kind == 'w' && o.first {
			off, key, n := in.take(2), m.stag(uint8(in.take(1))), uint32(in.take(2))
			f := m.region(key)
			if f == nil {
				f = m.a.mem
			}
			r.ext = reth(f.mr.Addr(int(off)), key, n)
		}
		if o.imm {
			r.ext = be.AppendUint32(r.ext, uint32(in.take(1))<<16)
		}
		if o.inv {
			key := m.stag(uint8(in.take(1)))
			if f := m.region(key); f == m.a.mem || f == m.readOnly { // they stay
				key = m.spare.mr.STag
			}
			r.ext = be.AppendUint32(r.ext, key)
		}
		length = int(in.take(2)) & 1023
		if kind&32 == 0 {
			length = wellFormed(o, length)
			if o.kind == 'w' && o.first && o.last {
				be.PutUint32(r.ext[12:], uint32(length))
			}
		}
	}
	r.payload = make([]byte, length)
	for k := range r.payload {
		r.payload[k] = number*31 + byte(k*7)
	}
	lost := r.fate(kind)
	if opcode == opCNP && r.pkey != 0 { // of any partition
		lost = false
	}
	frame := r.bytes()
	switch {
	case m.dead:
		m.after++
	case lost || !m.packet(frame):
		m.dropped++
	}
	return frame
}

// wellFormed is a length of payload that an opcode may have.
func wellFormed(o rcOperation, n int) int {
	switch {
	case o.kind != 's' && o.kind != 'w':
		return 0
	case !o.last:
		return fuzzMTU
	case o.first:
		return n % (fuzzMTU + 1)
	}
	return 1 + n%fuzzMTU
}

// packet takes a frame. False: it is dropped.
func (m *responder) packet(f []byte) bool {
	const ip, at = 14, 14 + 20 + 8
	b := f[at : ip+int(be.Uint16(f[ip+2:]))-4]
	o, known := rcOperations[b[0]]
	pad := int(b[1] >> 4 & 3)
	if b[0] == opCNP {
		return b[1]&0xf == 0 && len(b) >= 12+pad
	}
	if b[1]&0xf != 0 || !known || len(b) < 12+o.ext+pad {
		return false
	}
	if o.kind == 'd' || o.kind == 'a' {
		return true // nobody waits for it
	}
	psn, ack := be.Uint32(b[8:])&0xffffff, b[8]&0x80 != 0
	ext, data := b[12:12+o.ext], b[12+o.ext:len(b)-pad]
	switch d := psnAhead(psn, m.epsn); {
	case d > 0:
		if !m.nak {
			m.nak = true
			m.answer(answered{opcode: opAcknowledge, syndrome: synSequence, psn: m.epsn})
		}
		return true
	case d < 0 && o.kind == 'r':
		m.again(psn, ext)
		return true
	case d < 0 && o.kind == 'u':
		return true
	case d < 0:
		m.acknowledge(m.epsn-1, psn)
		return true
	}
	m.nak = false
	switch o.kind {
	case 's':
		m.send(o, b[1]&bthSolicited != 0, ack, ext, data)
	case 'w':
		m.write(o, b[1]&bthSolicited != 0, ack, ext, data)
	case 'r':
		m.read(ext)
	default:
		m.refuse(0x61, IRDMA_AE_IB_INVALID_REQUEST)
	}
	return true
}

func (m *responder) answer(a answered) {
	a.psn &= 0xffffff
	m.answers = append(m.answers, a)
}

// acknowledge answers that everything up to psn is done, but not what comes after
// responses that the peer asks for again: to a duplicate at dup, the records of
// reads behind that one hold it up.
func (m *responder) acknowledge(psn, dup uint32) {
	if psn != dup {
		for _, x := range m.reads {
			if before := x.psn - 1; psnAhead(before, dup) >= 0 && psnAhead(before, psn) < 0 {
				psn = before
			}
		}
	}
	m.answer(answered{opcode: opAcknowledge, syndrome: synACK, psn: psn})
}

// refuse ends the connection.
func (m *responder) refuse(syndrome uint8, codes ...uint16) {
	m.dead, m.codes = true, codes
	m.answer(answered{opcode: opAcknowledge, syndrome: syndrome, psn: m.epsn})
}

func (m *responder) invalid() { m.refuse(0x61, IRDMA_AE_IB_INVALID_REQUEST) }

func (m *responder) notReady() {
	m.nak = true
	m.answer(answered{opcode: opAcknowledge, syndrome: synRNR, psn: m.epsn})
}

// fits tells whether a payload may come with an opcode, at this point.
func (m *responder) fits(o rcOperation, data []byte) bool {
	under := m.msg == o.kind
	if o.first {
		under = m.msg == 0
	}
	switch {
	case !under:
		return false
	case !o.last:
		return len(data) == fuzzMTU
	}
	return len(data) <= fuzzMTU && (len(data) > 0 || o.first)
}

// receive takes a receive request.
func (m *responder) receive() bool {
	if len(m.recvs) == 0 {
		return false
	}
	m.recv, m.recvs = m.recvs[0], m.recvs[1:]
	return true
}

// put writes to memory.
func (m *responder) put(f *flat, off int, data []byte) {
	copy(f.want[off:], data)
	for k := range m.answers {
		if s := &m.answers[k].at; s.of != nil && s.of.Region == f.Region && off < s.to && off+len(data) > s.off {
			m.answers[k].changed = true
		}
	}
}

func (m *responder) send(o rcOperation, solicited, ack bool, ext, data []byte) {
	if !m.fits(o, data) {
		m.invalid()
		return
	}
	if o.first {
		if !m.receive() {
			m.notReady()
			return
		}
		m.msg, m.off = 's', 0
	}
	room := int(m.recv.SGEs[0].Len + m.recv.SGEs[1].Len)
	if m.off+len(data) > room {
		m.refuse(0x61, IRDMA_AE_DDP_UBE_MESSAGE_TOO_LONG)
		return
	}
	m.put(m.a.mem, int(m.recv.SGEs[0].Addr-m.a.mem.mr.Addr(0))+m.off, data)
	m.off += len(data)
	if o.last {
		m.inSends++
	}
	if o.last && o.inv {
		if codes := m.invalidate(be.Uint32(ext)); codes != nil {
			m.refuse(0x62, codes...)
			return
		}
		m.invalidated++
	}
	m.epsn++
	if o.last {
		m.finish(o, solicited, true, ext)
	}
	if ack {
		m.acknowledge(m.epsn-1, m.epsn-1)
	}
}

// finish ends a message.
func (m *responder) finish(o rcOperation, solicited, receives bool, ext []byte) {
	m.msn++
	if receives {
		wc := WC{ID: m.recv.ID, Status: Success, Op: 0x3e, Len: uint32(m.off), Solicited: solicited, HasImm: o.imm, HasSTag: o.inv}
		switch {
		case m.msg == 'w' && o.first:
			wc.Op = 0x0b
		case m.msg == 'w':
			wc.Op = 0x09
		}
		if o.imm {
			wc.Imm = be.Uint32(ext[len(ext)-4:])
		}
		if o.inv {
			wc.STag = be.Uint32(ext)
		}
		m.wcs = append(m.wcs, wc)
	}
	m.msg = 0
}

func (m *responder) write(o rcOperation, solicited, ack bool, ext, data []byte) {
	if !m.fits(o, data) {
		m.invalid()
		return
	}
	if o.first {
		va, key, n := be.Uint64(ext), be.Uint32(ext[8:]), be.Uint32(ext[12:])
		if n > 1<<31 {
			m.invalid()
			return
		}
		if codes := m.denied(key, va, n, true); codes != nil {
			m.refuse(0x62, codes...)
			return
		}
		m.msg, m.off, m.va, m.key, m.left = 'w', 0, va, key, n
	}
	if n := uint32(len(data)); n > m.left || o.last && n != m.left {
		m.invalid()
		return
	}
	if o.imm && !m.receive() {
		if o.first {
			m.msg = 0
		}
		m.notReady()
		return
	}
	if len(data) > 0 {
		if codes := m.denied(m.key, m.va, uint32(len(data)), true); codes != nil { // ended under way
			m.refuse(0x62, codes...)
			return
		}
		f := m.region(m.key)
		m.put(f, int(m.va-f.mr.Addr(0)), data)
	}
	m.va, m.left, m.off = m.va+uint64(len(data)), m.left-uint32(len(data)), m.off+len(data)
	m.epsn++
	if o.last {
		m.inWrites++
		m.finish(o, solicited, o.imm, ext)
	}
	if ack {
		m.acknowledge(m.epsn-1, m.epsn-1)
	}
}

func packetsOf(n uint32) uint32 { return max(1, (n+fuzzMTU-1)/fuzzMTU) }

func (m *responder) read(ext []byte) {
	va, key, n := be.Uint64(ext), be.Uint32(ext[8:]), be.Uint32(ext[12:])
	if m.msg != 0 || n > 1<<31 {
		m.invalid()
		return
	}
	if codes := m.denied(key, va, n, false); codes != nil {
		m.refuse(0x62, codes...)
		return
	}
	m.respond(m.epsn, va, key, n, false)
	m.reads = append(m.reads, readSeen{m.epsn, packetsOf(n), key})
	m.inReads++
	m.msn++
	m.epsn += packetsOf(n)
}

// again is a read that was executed already.
func (m *responder) again(psn uint32, ext []byte) {
	va, key, n := be.Uint64(ext), be.Uint32(ext[8:]), be.Uint32(ext[12:])
	for _, x := range m.reads {
		d := (psn - x.psn) & 0xffffff
		if n > 1<<20 || d >= x.n || packetsOf(n) > x.n-d || key != x.key {
			continue
		}
		// The peer may ask for more than it had, and the region may end before
		// it is answered.
		if m.denied(key, va, n, false) != nil || m.region(key) == m.spare {
			m.vague = true
		} else {
			m.respond(psn, va, key, n, true)
		}
		return
	}
}

func (m *responder) respond(psn uint32, va uint64, key, n uint32, again bool) {
	f, count := m.region(key), packetsOf(n)
	m.asked = append(m.asked, asked{psn & 0xffffff, count, len(m.answers), again})
	for k := range count {
		a := answered{opcode: 0x0e, psn: psn + k}
		switch {
		case count == 1:
			a.opcode = 0x10
		case k == 0:
			a.opcode = 0x0d
		case k == count-1:
			a.opcode = 0x0f
		}
		if n > 0 {
			off := int(va-f.mr.Addr(0)) + int(k)*fuzzMTU
			to := min(off+fuzzMTU, int(va-f.mr.Addr(0))+int(n))
			a.at = span{f, off, to}
			a.data = slices.Clone(f.want[off:to])
		}
		m.answer(a)
	}
}

// region is what a key is of, whatever its low bits.
func (m *responder) region(key uint32) *flat {
	for _, f := range []*flat{m.a.mem, m.spare, m.readOnly, m.foreign} {
		if f.mr.STag>>8 == key>>8 {
			return f
		}
	}
	return nil
}

// refused are the codes of a key that is none.
func (m *responder) refused(key uint32) []uint16 {
	f := m.region(key)
	switch {
	case key == 0:
		return []uint16{IRDMA_AE_STAG_ZERO_INVALID}
	case f == nil:
		return []uint16{IRDMA_AE_AMP_UNALLOCATED_STAG, IRDMA_AE_AMP_BAD_STAG_INDEX}
	case f == m.spare && m.ended:
		return []uint16{IRDMA_AE_AMP_INVALID_STAG}
	case f.mr.STag != key:
		return []uint16{IRDMA_AE_AMP_BAD_STAG_KEY}
	case f == m.foreign:
		return []uint16{IRDMA_AE_AMP_BAD_PD}
	}
	return nil
}

// denied are the codes of an access that is not allowed.
func (m *responder) denied(key uint32, va uint64, n uint32, write bool) []uint16 {
	if n == 0 {
		return nil
	}
	if codes := m.refused(key); codes != nil {
		return codes
	}
	f := m.region(key)
	base, end := f.mr.Addr(0), va+uint64(n-1)
	switch {
	case f == m.readOnly && write:
		return []uint16{IRDMA_AE_AMP_RIGHTS_VIOLATION}
	case end < va:
		return []uint16{IRDMA_AE_AMP_TO_WRAP}
	case va < base || end >= base+uint64(f.Size):
		return []uint16{IRDMA_AE_AMP_BOUNDS_VIOLATION}
	}
	return nil
}

func (m *responder) invalidate(key uint32) []uint16 {
	codes := m.refused(key)
	m.ended = m.ended || codes == nil
	return codes
}

// judge compares with what the card did.
func (m *responder) judge(t *testing.T, c Counters) {
	a := m.a
	if m.dead && !m.vague {
		events := a.awaitEvent(t)
		if e := events[0]; !slices.Contains(m.codes, e.Code) || e.State != IRDMA_QP_STATE_ERROR || len(events) > 1 {
			t.Errorf("events %+v, want one of %#x", events, m.codes)
		}
		must(t, m.x.r.Work())
	} else if list := m.x.r.eventsOf(a.qp); len(list) > 0 && !m.vague {
		t.Errorf("events %+v", list)
	}
	for n := 0; ; n++ {
		wc, ok, err := a.cq.Poll()
		must(t, err)
		if !ok {
			if n < len(m.wcs) && !m.vague {
				t.Errorf("%d completions, want %+v", n, m.wcs)
			}
			break
		}
		if n >= len(m.wcs) {
			if wc.Status == Success && !m.vague {
				t.Errorf("one completion too many: %+v", wc)
			}
			continue
		}
		want := m.wcs[n]
		if want.QP = a.qp; wc != want && !m.vague {
			t.Errorf("completion %d is %+v, want %+v", n, wc, want)
		}
	}
	sent := m.x.sent(t, a.qp)
	if m.vague {
		m.resync(t)
		return
	}
	if c.dropped() < m.dropped || c.dropped() > m.dropped+m.after {
		t.Errorf("%d packets dropped, want %d, or up to %d more", c.dropped(), m.dropped, m.after)
	}
	for name, want := range map[Counter]uint64{InRdmaSends: m.inSends, InRdmaWrites: m.inWrites, InRdmaReads: m.inReads, RdmaInv: m.invalidated} {
		if c[name] != want {
			t.Errorf("%s %d, want %d", name, c[name], want)
		}
	}
	m.compare(t, sent)
}

// resync takes memory as it is that a read, or what came behind one, may have
// kept from being written: all but what the model knows cannot have been.
func (m *responder) resync(t *testing.T) {
	for _, f := range []*flat{m.a.mem, m.spare} {
		f.Read(0, f.want)
	}
}

// compare compares answers. Acknowledgements that wait are sent as one.
func (m *responder) compare(t *testing.T, sent []packet) {
	var got []answered
	for _, p := range sent {
		a := answered{opcode: p.opcode, psn: p.psn, data: p.data}
		if len(p.ext) > 0 {
			a.syndrome = p.ext[0]
			if p.opcode != opAcknowledge {
				a.syndrome = 0
			}
		}
		got = merge(got, a)
	}
	differs := ""
	if o := (orders{all: m.items(), left: 1000}); !o.from(0, nil, func(list []item) bool {
		var want []answered
		for _, i := range list {
			for _, a := range i.packets {
				want = merge(want, a)
			}
		}
		differs = difference(got, want)
		return differs == ""
	}) {
		t.Fatal(differs)
	}
	if n := len(sent); n > 0 && !m.dead {
		if last := sent[n-1]; be.Uint32(last.ext)&0xffffff != m.msn&0xffffff {
			t.Errorf("MSN %d, want %d", be.Uint32(last.ext)&0xffffff, m.msn)
		}
	}
}

func isACK(a *answered) bool { return a.opcode == opAcknowledge && a.syndrome == synACK }

// difference of two lists of answers; "": there is none.
func difference(got, want []answered) string {
	for n := range max(len(got), len(want)) {
		if n >= len(got) || n >= len(want) || got[n].opcode != want[n].opcode || got[n].psn != want[n].psn || got[n].syndrome != want[n].syndrome ||
			len(got[n].data) != len(want[n].data) || !want[n].changed && !bytes.Equal(got[n].data, want[n].data) {
			return fmt.Sprintf("answer %d differs\n got %v\nwant %v", n, describe(got), describe(want))
		}
	}
	return ""
}

// item is an answer, or the responses to a read that begin with its PSN, behind
// what was sent of it before it was asked for again.
type item struct {
	packets []answered
	sent    int
	psn, n  uint32
	again   bool
}

// items are the answers in the order in which they were asked for.
func (m *responder) items() (list []item) {
	for k, reads := 0, m.asked; k < len(m.answers); k++ {
		if len(reads) == 0 || reads[0].from > k {
			list = append(list, item{packets: m.answers[k : k+1]})
			continue
		}
		x := reads[0]
		list = append(list, item{m.answers[k : k+int(x.n)], 0, x.psn, x.n, x.again})
		k, reads = k+int(x.n)-1, reads[1:]
	}
	return list
}

// orders are those in which answers may come: it depends on when the card has sent
// them. A read that is asked for again is answered in its place, from there on, or,
// once it is through, behind all others.
type orders struct {
	all  []item
	left int // to be tried; then any will do
}

// runPackets is how many responses are sent at once.
const runPackets = 65536 / fuzzMTU

// from tries what item k of all does to the list of those before it.
func (o *orders) from(k int, list []item, good func([]item) bool) bool {
	if k == len(o.all) {
		o.left--
		return o.left < 0 || good(list)
	}
	x := o.all[k]
	for i := range list {
		y := list[i]
		if d := (x.psn - y.psn) & 0xffffff; !x.again || d >= y.n || x.n != y.n-d {
			continue
		}
		for at := y.sent; at < len(y.packets); at += runPackets {
			other := slices.Clone(list)
			other[i] = item{slices.Concat(y.packets[:at], x.packets), at, x.psn, x.n, true}
			if o.from(k+1, other, good) {
				return true
			}
		}
	}
	return o.from(k+1, append(slices.Clip(list), x), good)
}

func merge(list []answered, a answered) []answered {
	if n := len(list); n > 0 && isACK(&list[n-1]) && isACK(&a) {
		if psnAhead(a.psn, list[n-1].psn) > 0 {
			list[n-1].psn = a.psn
		}
		return list
	}
	return append(list, a)
}

func describe(list []answered) (s []string) {
	for _, a := range list {
		s = append(s, fmt.Sprintf("%#02x/%#02x:%#x+%d", a.opcode, a.syndrome, a.psn, len(a.data)))
	}
	return s
}

// responderSeeds are inputs that come to all of it.
func responderSeeds() (list [][]byte) {
	// Numbers among fuzzRequests, with headers.
	sendFirst, sendMiddle, sendLast := []byte{0}, []byte{1}, []byte{2}
	request := func(kind, number byte, psn int8, rest ...byte) []byte {
		return append([]byte{kind, number, 0, byte(psn)}, rest...)
	}
	head := func(off uint16, key byte, n uint16) []byte {
		return []byte{byte(off >> 8), byte(off), key, byte(n >> 8), byte(n)}
	}
	first := request(0, sendFirst[0], 0, 1, 0)
	middle := request(8, sendMiddle[0], 0, 1, 0)
	last := request(8, sendLast[0], 0, 0, 100)
	only := func(kind byte, n byte) []byte { return request(kind, 4, 0, 0, n) }
	write := func(key byte) []byte {
		return slices.Concat(request(0, 6, 0, append(head(1000, key, 600), 1, 0)...), request(8, 7, 0, 1, 0), request(8, 8, 0, 0, 87))
	}
	read := func(psn int8, key byte, off, n uint16) []byte {
		return request(8, 12, psn, append(head(off, key, n), 0, 0)...)
	}
	inv := func(key byte) []byte { return request(8, 14, 0, key, 0, 0) }
	list = append(list,
		slices.Concat(first, middle, last, only(8, 0), only(8, 9)),
		slices.Concat(first, middle, middle, middle),
		slices.Concat(only(8, 200), only(8, 1)),
		slices.Concat(write(0), write(0), read(0, 0, 0, 3000), read(-3, 0, 512, 700), only(8, 5)),
		slices.Concat(read(0, 10, 100, 1000), read(-4, 10, 100, 1000), read(-4, 10, 100, 256), read(-1, 10, 0, 9)),
		slices.Concat(request(8, 11, 0, append(head(5, 0, 9), 7, 0, 9)...), request(8, 9, 0, 7, 0, 1)),
		slices.Concat(inv(8), only(8, 0), inv(8)),
		slices.Concat(write(8), inv(8), write(8)),
		slices.Concat(read(0, 8, 0, 5000), inv(8), only(8, 0), read(0, 8, 0, 1)),
		slices.Concat(only(8, 3), only(8, 0), only(8, 3), only(8, 3), only(8, 0), only(8, 3), only(8, 3)),
		slices.Concat(request(8, 4, 3, 0, 9), request(8, 4, 5, 0, 9), only(8, 9), request(8, 4, 3, 0, 0)),
		slices.Concat(first, request(8, 4, -1, 0, 0), request(8, 6, 0, append(head(0, 0, 9), 0, 0)...)),
		slices.Concat(request(40, 10, 0, append(head(0, 0, 10), 0, 9)...)),
		slices.Concat(request(8, 12, 0, append(head(0, 0, 0), 0, 0)...), request(8, 10, 0, append(head(0, 14, 0), 0, 0)...)),
		slices.Concat(request(24, 4, 0, 0, 0, 9), []byte{8, 0x80, 0x81, 0, 0, 0, 0}, []byte{8, 0x80, 0x64, 0, 0, 0, 0}, []byte{8, 0x80, 0x1c, 0, 0, 0, 0}),
		slices.Concat([]byte{0x18, 0x80, 4, 0x31, 0, 0, 0, 2}, only(8, 3)),
	)
	for fate := range byte(8) {
		list = append(list, slices.Concat(only(8|fate, 9), only(8, 0)))
	}
	for key := range byte(8) {
		list = append(list, write(8+key), read(0, 8+key, 7000, 1500), inv(8+key))
	}
	for number := range byte(17) {
		list = append(list, slices.Concat(request(8, number, 0, 0, 100, 0, 0, 200, 0, 0), request(40, number, 0, 1, 0, 0, 0, 0, 1, 1)))
	}
	return list
}
