// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// FuzzRequester lets a peer answer what it likes to the requests of a connected
// QP, ICRC right, and compares what becomes of them with what the specification
// says: completions, memory that was read into, event, counters, and every packet
// that is sent, for the first time or again.
//
// The input is the number of work requests (1), of which 1 to 4 are made, and for
// each a byte: bits 0 and 1: write, send, read, send with immediate data, the
// others: its length in units of 17 bytes; 61 to 63: 1, 2 or 4 full packets. Then
// comes a list of frames, each:
//
//	kind (1)     bits 0 to 2: from 4 on it is lost, see fate; bit 4: headers and
//	             length are as given; bit 5: the PSN counts from the first one
//	opcode (1)   a number among responses
//	PSN (1, signed), from the oldest one outstanding on
//	syndrome (1) a number among them, or itself
//	payload (2)  its length, up to 1023
func FuzzRequester(f *testing.F) {
	for n, seed := range requesterSeeds() {
		if !raced || n%4 == 0 {
			f.Add(seed)
		}
	}
	x := newRoceWorld(f, 3)
	f.Fuzz(func(t *testing.T, input []byte) {
		x.w.t = t
		in := fuzzInput(input)
		m := &requester{x: x, a: x.connected(t, 7, 7)}
		x.begin(t)
		m.post(t, &in)
		frames := 0
		for ; len(in) > 0 && frames < fuzzFrames; frames++ {
			x.w.inject(m.answer(&in, byte(frames)))
		}
		m.judge(t, x.settle(t, frames))
		must(t, m.a.qp.Destroy())
		must(t, x.i.F.Guest.Check())
		must(t, m.a.mem.check("memory", 0, m.a.mem.Size))
		endSides(t, m.a)
	})
}

// requester is what a QP must do, answer by answer.
type requester struct {
	x       *roceWorld
	a       *side
	posted  time.Time
	list    []*requested // all work requests
	next    uint32       // PSN behind them
	early   [][]byte     // frames sent before the first answer
	resting bool
	vague   bool // what comes when decides
	dead    bool
	code    uint16

	dropped, after uint64
}

// requested is a work request.
type requested struct {
	wr       SendWR
	first, n uint32
	acked    uint32 // packets, or responses placed
	done     bool
	len, off int // of its memory
}

func (e *requested) read() bool { return e.wr.Op == IRDMA_OP_TYPE_RDMA_READ }

// post makes the work requests and waits for their packets.
func (m *requester) post(t *testing.T, in *fuzzInput) {
	a := m.a
	m.next = a.qp.Attr.SendPSN
	packets := 0
	var wrs []SendWR
	for k := range 1 + int(in.take(1)&3) {
		b := int(in.take(1))
		n, off := b>>2*17, k*2048
		if units := b >> 2; units > 60 {
			n = fuzzMTU << (units - 61)
		}
		w := SendWR{ID: uint64(k), Op: []uint8{IRDMA_OP_TYPE_RDMA_WRITE, IRDMA_OP_TYPE_SEND, IRDMA_OP_TYPE_RDMA_READ, IRDMA_OP_TYPE_SEND}[b&3],
			Signalled: true, SGEs: []SGE{a.sge(off, n/2), a.sge(off+n/2, n-n/2)}, HasImm: b&3 == 3, Imm: 0x01020304}
		if w.Op != IRDMA_OP_TYPE_SEND {
			w.RemoteAddr, w.RKey = uint64(k+1)<<40, 0x5500+uint32(k)
		}
		e := &requested{wr: w, first: m.next, n: packetsOf(uint32(n)), len: n, off: off}
		if packets += int(e.n); e.read() {
			packets += 1 - int(e.n)
		}
		m.next += e.n
		m.list, wrs = append(m.list, e), append(wrs, w)
	}
	m.posted = time.Now()
	must(t, a.qp.PostSend(wrs...))
	for range packets {
		m.early = append(m.early, m.x.w.next())
	}
}

var (
	fuzzResponses = []uint8{opAcknowledge, 0x10, 0x0d, 0x0e, 0x0f}
	fuzzSyndromes = []uint8{synACK, 0, synRNR, 0x21, synSequence, 0x61, synAccess, 0x63, 0x64, 0x9f, 0x40, 0xff}
)

// answer makes the next frame of an input and takes it into account.
func (m *requester) answer(in *fuzzInput, number byte) []byte {
	kind, opcode, psn, syndrome, length := uint8(in.take(1)), uint8(in.take(1)), uint32(int8(in.take(1))), uint8(in.take(1)), int(in.take(2))&1023
	r := m.x.frame(m.a.qp)
	if psn += m.una(); kind&32 != 0 {
		psn += m.a.qp.Attr.SendPSN - m.una()
	}
	r.psn, r.opcode = psn, fuzzResponses[int(opcode)%len(fuzzResponses)]
	if kind&16 == 0 {
		if int(syndrome) < len(fuzzSyndromes) {
			syndrome = fuzzSyndromes[syndrome]
		}
		if r.opcode != opAcknowledge {
			r.opcode, length = m.proper(psn)
		} else {
			length = 0
		}
	}
	if r.opcode != 0x0e {
		r.ext = aeth(syndrome, uint32(number))
	}
	r.payload = make([]byte, length)
	for k := range r.payload {
		r.payload[k] = number*29 + byte(k*11)
	}
	lost := r.fate(kind)
	switch {
	case m.dead:
		m.after++
	case lost:
		m.dropped++
	case r.opcode == opAcknowledge:
		m.acknowledge(psn&0xffffff, syndrome)
	default:
		m.respond(psn&0xffffff, rcOperations[r.opcode].last, r.payload)
	}
	return r.bytes()
}

// proper is what a response at a PSN looks like.
func (m *requester) proper(psn uint32) (opcode uint8, length int) {
	for _, e := range m.list {
		k := (psn - e.first) & 0xffffff
		if !e.read() || k >= e.n {
			continue
		}
		length = min(fuzzMTU, e.len-int(k)*fuzzMTU)
		switch {
		case e.n == 1, k == e.n-1 && e.acked == k && psn&1 != 0: // asked for by itself
			return 0x10, length
		case k == 0:
			return 0x0d, length
		case k == e.n-1:
			return 0x0f, length
		}
		return 0x0e, length
	}
	return 0x10, 0
}

// una is the oldest PSN that is not acknowledged.
func (m *requester) una() uint32 {
	for _, e := range m.list {
		if !e.done {
			return e.first + e.acked
		}
	}
	return m.next
}

// outstanding tells whether a PSN was sent and is not acknowledged.
func (m *requester) outstanding(psn uint32) bool {
	return (psn-m.una())&0xffffff < (m.next-m.una())&0xffffff
}

// cover takes all up to psn as done, up to a read whose data is missing.
func (m *requester) cover(psn uint32) (progress, missing bool) {
	if !m.outstanding(psn) {
		return false, false
	}
	for _, e := range m.list {
		if e.done || psnAhead(psn, e.first+e.acked) < 0 {
			continue
		}
		if e.read() {
			return progress, true
		}
		e.acked = min(e.n, (psn-e.first)&0xffffff+1)
		e.done, progress = e.acked == e.n, true
	}
	return progress, false
}

// oldest is the first work request that is not done; there is one.
func (m *requester) oldest() *requested {
	for _, e := range m.list {
		if !e.done {
			return e
		}
	}
	return nil
}

func (m *requester) fail(code uint16) { m.dead, m.code = true, code }

func (m *requester) acknowledge(psn uint32, syndrome uint8) {
	if !m.outstanding(psn) {
		return
	}
	switch syndrome >> 5 {
	case 0:
		m.cover(psn)
	case 1:
		progress, _ := m.cover(psn - 1)
		// While it rests the QP takes no notice, and how long it does nobody knows.
		m.vague = m.vague || m.resting && progress
		m.resting = true
	case 3:
		_, missing := m.cover(psn - 1)
		e := m.oldest()
		switch {
		case syndrome == synSequence:
		case missing && (psn-e.first)&0xffffff >= e.n:
		case syndrome == 0x61:
			m.fail(IRDMA_AE_IB_INVALID_REQUEST)
		case syndrome == synAccess:
			m.fail(IRDMA_AE_IB_REMOTE_ACCESS_ERROR)
		default:
			m.fail(IRDMA_AE_IB_REMOTE_OP_ERROR)
		}
	}
}

// respond takes a response to a read.
func (m *requester) respond(psn uint32, last bool, data []byte) {
	at := slices.IndexFunc(m.list, func(e *requested) bool { return e.read() && !e.done })
	if at < 0 || !m.outstanding(psn) {
		return
	}
	e := m.list[at]
	if psn != (e.first+e.acked)&0xffffff {
		return
	}
	for _, before := range m.list[:at] {
		before.acked, before.done = before.n, true
	}
	want := min(fuzzMTU, e.len-int(e.acked)*fuzzMTU)
	if last != (e.acked == e.n-1) || len(data) != want {
		m.fail(IRDMA_AE_ROCE_RSP_LENGTH_ERROR)
		return
	}
	copy(m.a.mem.want[e.off+int(e.acked)*fuzzMTU:], data)
	e.acked++
	e.done = e.acked == e.n
}

// judge compares with what the card did.
func (m *requester) judge(t *testing.T, c Counters) {
	a := m.a
	must(t, m.x.r.Work())
	if m.dead && !m.vague {
		a.awaitEvent(t)
	}
	events := m.x.r.eventsOf(a.qp)
	// Whoever answers with nothing is given up some time.
	const patience = 3 * time.Second
	late := len(events) > 0 && events[0].Code == IRDMA_AE_LLP_TOO_MANY_RETRIES && time.Since(m.posted) > patience
	m.vague = m.vague || late
	switch {
	case m.vague:
	case !m.dead && len(events) > 0, m.dead && (len(events) != 1 || events[0].Code != m.code || events[0].State != IRDMA_QP_STATE_ERROR):
		t.Errorf("events %+v, want %#x", events, m.code)
	}
	must(t, m.x.r.Work())
	n := 0
	for {
		wc, ok, err := a.cq.Poll()
		must(t, err)
		if !ok {
			break
		}
		if wc.Status != Success {
			if !m.dead && !m.vague {
				t.Errorf("completion %+v", wc)
			}
			continue
		}
		if wc.ID != uint64(n) || !wc.Send {
			t.Errorf("completion %d is %+v", n, wc)
		}
		n++
	}
	want := slices.IndexFunc(m.list, func(e *requested) bool { return !e.done })
	if want < 0 {
		want = len(m.list)
	}
	if n != want && !m.vague {
		t.Errorf("%d work requests done, want %d", n, want)
	}
	m.compare(t)
	if m.vague { // memory may be as it was, too
		for _, e := range m.list {
			if e.read() {
				a.mem.Read(e.off, a.mem.want[e.off:e.off+e.len])
			}
		}
		return
	}
	if c.dropped() < m.dropped || c.dropped() > m.dropped+m.after {
		t.Errorf("%d packets dropped, want %d, or up to %d more", c.dropped(), m.dropped, m.after)
	}
	begun := map[Counter]uint64{OutRdmaWrites: 0, OutRdmaSends: 0, OutRdmaReads: 0}
	for _, e := range m.list {
		switch {
		case e.read():
			begun[OutRdmaReads]++
		case e.wr.Op == IRDMA_OP_TYPE_SEND:
			begun[OutRdmaSends]++
		default:
			begun[OutRdmaWrites]++
		}
	}
	for name, want := range begun {
		if c[name] != want {
			t.Errorf("%s %d, want %d", name, c[name], want)
		}
	}
}

// compare looks at every packet that was sent.
func (m *requester) compare(t *testing.T) {
	late := m.x.sentAfter(t, m.a.qp, m.early)
	for _, p := range late {
		k := slices.IndexFunc(m.list, func(e *requested) bool { return (p.psn-e.first)&0xffffff < e.n })
		if k < 0 {
			t.Errorf("packet %+v", p)
			continue
		}
		want := m.list[k].packet(m.a, (p.psn-m.list[k].first)&0xffffff)
		if p.opcode != want.opcode || !bytes.Equal(p.ext, want.ext) || !bytes.Equal(p.data, want.data) {
			t.Errorf("packet at PSN %#x\n got %+v\nwant %+v", p.psn, p, want)
		}
	}
}

// packet is number k of a work request's packets; of a read the request of what
// is missing from there on.
func (e *requested) packet(a *side, k uint32) (p packet) {
	if e.read() {
		return packet{opcode: opReadRequest, ext: reth(e.wr.RemoteAddr+uint64(k)*fuzzMTU, e.wr.RKey, uint32(e.len)-k*fuzzMTU)}
	}
	first, last := k == 0, k == e.n-1
	for op, o := range rcOperations {
		send := byte('w')
		if e.wr.Op == IRDMA_OP_TYPE_SEND {
			send = 's'
		}
		if o.kind == send && o.first == first && o.last == last && !o.inv && o.imm == (e.wr.HasImm && last) {
			p.opcode = op
		}
	}
	if send := e.wr.Op == IRDMA_OP_TYPE_SEND; !send && first {
		p.ext = reth(e.wr.RemoteAddr, e.wr.RKey, uint32(e.len))
	} else if send && last && e.wr.HasImm {
		p.ext = be.AppendUint32(nil, e.wr.Imm)
	}
	off := int(k) * fuzzMTU
	p.data = a.mem.want[e.off+off : e.off+min(off+fuzzMTU, e.len)]
	return p
}

// requesterSeeds are inputs that come to all of it.
func requesterSeeds() (list [][]byte) {
	const write, send, read, imm = 0, 1, 2, 3
	wr := func(op, units byte) byte { return units<<2 | op }
	posts := [][]byte{
		{0, wr(write, 0)}, {0, wr(send, 63)}, {0, wr(read, 40)}, {0, wr(read, 0)}, {0, wr(imm, 20)},
		{3, wr(write, 40), wr(read, 63), wr(send, 1), wr(read, 16)},
		{2, wr(read, 10), wr(read, 50), wr(write, 31)}, {0, wr(read, 61)}, {1, wr(read, 62), wr(write, 63)},
		{3, wr(send, 3), wr(imm, 63), wr(write, 63), wr(read, 63)},
	}
	frame := func(kind, opcode byte, psn int8, syndrome byte, length uint16) []byte {
		return []byte{kind, opcode, byte(psn), syndrome, byte(length >> 8), byte(length)}
	}
	ack := func(psn int8) []byte { return frame(0, 0, psn, 0, 0) }
	response := frame(0, 1, 0, 0, 0)
	for _, p := range posts {
		list = append(list,
			slices.Concat(p, ack(0), ack(0), ack(2), response, response, ack(3), response, response, response, response, ack(0)),
			slices.Concat(p, response, response, ack(0), response, frame(0, 1, 1, 0, 0), frame(0, 0, 0, 4, 0), response, response, ack(9)),
			slices.Concat(p, ack(100), response, frame(0, 1, -1, 0, 0), ack(-1), response, response, response, ack(1), ack(1)),
			slices.Concat(p, frame(0, 0, 1, 2, 0), ack(0), frame(0, 0, 2, 3, 0), response, ack(0)),
			slices.Concat(p, response, frame(16, 1, 0, 0, 9)),
			slices.Concat(p, frame(16, 3, 0, 0, 256), frame(16, 3, 0, 0, 256), frame(16, 3, 0, 0, 256), frame(16, 3, 0, 0, 256)),
			slices.Concat(p, response, frame(16, 3, 0, 0, 256), frame(16, 4, 0, 0, 256)))
		for s := range byte(len(fuzzSyndromes)) {
			if len(p) > 3 { // several requests
				list = append(list, slices.Concat(p, response, frame(0, 0, 2, s, 0), response, ack(1)))
			}
		}
	}
	for fate := range byte(8) {
		list = append(list, slices.Concat(posts[5], frame(fate, 0, 2, 0, 0), response))
	}
	return list
}
