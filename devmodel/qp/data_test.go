// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// Two QPs of one port that are each other's peer. QP n's memory lies at
// rings+n*ringSpace: send queue, receive queue, shadow area.
const (
	rings     = rdmatest.Base
	ringSpace = 0x8000
	sqQuanta  = 512
	rqQuanta  = 64
	rqAt      = sqQuanta * 32
	shadowAt  = rqAt + rqQuanta*32
	data      = rdmatest.Base + 0x100000
	dataSize  = 0x200000
	lkey      = 0x101
	rkey      = 0x202
	pd        = 0x11234
	compCtx   = 0xFFFF_8881_0000_0000
)

// side is the driver's view of one QP.
type side struct {
	b        *bench
	id       uint32
	base     uint64
	ctx      qp.Context
	sqNext   uint32
	sqPass   uint64
	rqNext   uint32
	rqPass   uint64
	rqStride uint32
	elide    bool // ring the doorbell as kernels up to 6.12 do
	previous uint32
	rung     int
}

const all = mr.LocalRead | mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite

func (b *bench) newSide(id, peer uint32) *side {
	s := &side{b: b, id: id, base: rings + uint64(id)*ringSpace, sqPass: 1, rqPass: 1, rqStride: 64}
	c := context()
	put(&c, 0, 1<<8|1<<20|1<<3) // RQ WQEs of 64 bytes, IPv4
	put(&c, 8, s.base)
	put(&c, 16, s.base+rqAt)
	put(&c, 24, 4791<<48|0xC123<<32|7<<12|4<<8|64)
	put(&c, 48, 7<<48|1024<<16)
	put(&c, 64, uint64(peer))
	put(&c, 80, 0xFFFF<<32|uint64(0xFFFFF0+id))
	put(&c, 88, uint64(0xFFFFF0+peer))
	put(&c, 112, 0x400<<32)
	put(&c, 128, 5<<57|2<<54|2<<48)
	put(&c, 136, uint64(id+1)<<32|uint64(id)) // send CQ: its number, receive CQ: the next
	put(&c, 160, 3<<16|4)
	put(&c, 168, compCtx+uint64(id))
	put(&c, 184, 0xC0000201) // both have one address
	s.ctx = c
	return s
}

func arp(uint16) ([6]byte, bool) { return ownMAC, true }

func (s *side) create() {
	s.b.Helper()
	s.b.ok(s.b.table.Create(qp.CreateArgs{ID: s.id, Type: qp.RoCERC, State: qp.Idle, Shadow: s.base + shadowAt}, s.ctx))
}

func (s *side) modify(state qp.State) {
	s.b.Helper()
	find := arp
	if s.b.cable != nil {
		find = func(uint16) ([6]byte, bool) { return s.b.cable.far, true }
	}
	s.b.ok(s.b.table.Modify(qp.ModifyArgs{ID: s.id, State: state, CQNumbers: true, ARP: find},
		func() (qp.Context, error) { return s.ctx, nil }))
}

// connected is a bench with a pair of QPs, 2 and 5, in RTS.
func connected(t testing.TB, change ...func(a, b *side)) (*bench, *side, *side) {
	return newBench(t).connect(change...)
}

func (b *bench) connect(change ...func(a, b *side)) (*bench, *side, *side) {
	b.regions[lkey] = region{data, dataSize, pd, mr.LocalRead | mr.LocalWrite}
	b.regions[rkey] = region{data, dataSize, pd, all}
	x, y := b.newSide(2, 5), b.newSide(5, 2)
	for _, f := range change {
		f(x, y)
	}
	x.create()
	y.create()
	for _, state := range []qp.State{qp.RTR, qp.RTS} {
		x.modify(state)
		y.modify(state)
	}
	b.drain()
	return b, x, y
}

// sge is one element of a scatter/gather list.
type sge struct {
	at uint64
	n  uint32
}

// wr is a send work request.
type wr struct {
	op      uint64
	flags   uint64 // of the header
	sges    []sge
	inline  []byte
	imm     *uint32
	raddr   uint64
	key     uint32
	stag    uint32 // of the fragments; 0: lkey
	header  uint64 // or'ed in
	unready bool   // leave the valid bit wrong
}

const (
	opWrite, opRead, opSend, opSendSol = 0, 1, 3, 5
	signalled                          = 1 << 62
	readFence                          = 1 << 60
	localFence                         = 1 << 61
)

// quanta of a send WQE as uk.c:irdma_uk_send and others build it.
func (w *wr) quanta() uint32 {
	if w.inline != nil {
		switch n := len(w.inline); {
		case n <= 8:
			return 1
		default:
			return uint32(1 + (n-8+30)/31)
		}
	}
	n := len(w.sges)
	if w.imm != nil {
		n++
	}
	return uint32(max(1, (n+2)/2))
}

// post writes a WQE into the send queue; the index of its first quantum.
func (s *side) post(w wr) uint32 {
	s.b.Helper()
	for s.sqNext%8+w.quanta() > 8 {
		s.put(s.take(1), [][4]uint64{{3: opNOP << 32}}, false)
	}
	index := s.sqNext
	pass := s.sqPass
	s.take(w.quanta())
	q := make([][4]uint64, w.quanta())
	header := w.op<<32 | w.flags | uint64(w.key) | w.header
	stag := w.stag
	if stag == 0 {
		stag = lkey
	}
	fragment := func(x sge) (uint64, uint64) {
		v := uint64(x.n)<<32 | pass<<63
		if x.n > 0 {
			v |= uint64(stag)
		}
		return x.at, v
	}
	q[0][2] = w.raddr
	if w.inline != nil {
		header |= 1<<57 | uint64(len(w.inline))<<48
		var b [8]byte
		rest := w.inline[copy(b[:], w.inline):]
		q[0][1] = binary.LittleEndian.Uint64(b[:])
		for i := 1; i < len(q); i++ {
			var b [32]byte
			rest = rest[copy(b[:31], rest):]
			b[31] = byte(pass << 7)
			for j := range 4 {
				q[i][j] = binary.LittleEndian.Uint64(b[8*j:])
			}
		}
	} else {
		more := w.sges
		if w.imm == nil && len(more) > 0 {
			q[0][0], q[0][1] = fragment(more[0])
			more = more[1:]
		}
		n := len(w.sges)
		if w.imm != nil {
			n++
		}
		count := max(n-1, 0)
		for i, x := range more {
			q[1+i/2][i%2*2], q[1+i/2][i%2*2+1] = fragment(x)
		}
		if n > 0 && n%2 == 0 {
			q[len(q)-1][3] = pass << 63
			count++
		}
		header |= uint64(count) << 38
	}
	if w.imm != nil {
		q[0][0], header = uint64(*w.imm)|0xDEAD<<32, header|1<<47
	}
	q[0][3] = header
	if w.unready {
		pass ^= 1
	}
	s.store(index, q, pass)
	return index
}

func (s *side) take(n uint32) uint32 {
	i := s.sqNext
	if s.sqNext += n; s.sqNext == sqQuanta {
		s.sqNext, s.sqPass = 0, s.sqPass^1
	}
	return i
}

func (s *side) put(index uint32, q [][4]uint64, _ bool) {
	pass := s.sqPass
	if s.sqNext == 0 {
		pass ^= 1 // taking the last slot flipped it
	}
	s.store(index, q, pass)
}

func (s *side) store(index uint32, q [][4]uint64, pass uint64) {
	for i := len(q) - 1; i >= 0; i-- {
		at := s.base + uint64(index+uint32(i))*32
		for j, v := range q[i] {
			if j == 3 {
				if i == 0 || v>>63 == 0 {
					v = v&^(1<<63) | pass<<63
				}
			}
			s.b.ok(s.b.mem.Store64(at+8*uint64(j), v))
		}
	}
}

// ring rings the doorbell, or not, as the driver would.
func (s *side) ring() {
	if s.elide {
		tail, err := s.b.mem.Load64(s.base + shadowAt)
		s.b.ok(err)
		from, to := s.previous, s.sqNext
		s.previous = s.sqNext
		in := func(x uint32) bool {
			if from <= to {
				return x >= from && x < to
			}
			return x >= from || x < to
		}
		if from == to || uint32(tail) == to || !in(uint32(tail)) {
			return
		}
	}
	s.rung++
	s.b.space.Write32(0x504400, s.id)
}

// receive posts a receive WQE with up to three elements.
func (s *side) receive(sges ...sge) {
	at := s.base + rqAt + uint64(s.rqNext)*uint64(s.rqStride)
	var w [8]uint64
	count := 0
	for i, x := range append(slices.Clone(sges), make([]sge, 1-len(sges)%2)...) {
		v := uint64(x.n)<<32 | s.rqPass<<63
		if x.n > 0 {
			v |= lkey
		}
		slot := 0
		if i > 0 {
			slot, count = 2+2*i, count+1
		}
		w[slot], w[slot+1] = x.at, v
	}
	w[3] = uint64(count)<<38 | s.rqPass<<63
	for _, j := range []int{0, 1, 2, 4, 5, 6, 7, 3} {
		s.b.ok(s.b.mem.Store64(at+8*uint64(j), w[j]))
	}
	if s.rqNext++; s.rqNext == rqQuanta*32/s.rqStride {
		s.rqNext, s.rqPass = 0, s.rqPass^1
	}
}

func (b *bench) read(at uint64, n int) []byte {
	b.Helper()
	p := make([]byte, n)
	b.ok(b.mem.Read(at, p))
	return p
}

func (b *bench) fill(at uint64, n int, seed byte) []byte {
	b.Helper()
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)*3 + byte(i>>8) + seed
	}
	b.ok(b.mem.Write(at, p))
	return p
}

func (b *bench) same(want []byte, at uint64) {
	b.Helper()
	if !bytes.Equal(want, b.read(at, len(want))) {
		b.Errorf("memory at %#x differs", at)
	}
}

func (s *side) sent(index uint32, op uint8) event.Entry {
	return event.Entry{Context: compCtx + uint64(s.id), QP: s.id, WQE: uint16(index), Op: op, SQ: true}
}

func (b *bench) wantCQ(id uint32, want ...event.Entry) {
	b.Helper()
	if diff := cmp.Diff(want, b.cqes[id]); diff != "" {
		b.Errorf("CQ %d:\n%s", id, diff)
	}
	delete(b.cqes, id)
}

func TestSendWriteRead(t *testing.T) {
	b, x, y := connected(t)
	imm := uint32(0x1234)
	p := b.fill(data, 5000, 1)
	r := b.fill(data+0x90000, 3000, 7)
	y.receive(sge{data + 0x20000, 100}, sge{}, sge{data + 0x21000, 5000})
	y.receive(sge{data + 0x30000, 50})
	y.receive()
	want := []event.Entry{
		x.sent(x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 1000}, {data + 1000, 3000}, {data + 4000, 1000}}}), 3),
		x.sent(x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 2500}, {data + 2500, 2500}}, raddr: data + 0x40000, key: rkey}), 0),
		x.sent(x.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x50000, 1}, {data + 0x50001, 2999}}, raddr: data + 0x90000, key: rkey}), 1),
		x.sent(x.post(wr{op: opSendSol, flags: signalled, inline: p[:45], imm: &imm}), 5),
	}
	x.post(wr{op: opWrite, sges: []sge{{data, 2100}}, raddr: data + 0x60000, key: rkey, imm: &imm})
	x.ring()
	b.drain()
	b.wantCQ(2, want...)
	rx := func(i uint16, op uint8, n uint32) event.Entry {
		return event.Entry{Context: compCtx + 5, QP: 5, WQE: i, Op: op, Length: n}
	}
	second, third := rx(2, 0x3E, 45), rx(4, 0x09, 2100)
	second.Solicited = true
	second.Ext = event.Extension{HasImmediate: true, Immediate: imm}
	third.Ext = second.Ext
	b.wantCQ(6, rx(0, 0x3E, 5000), second, third)
	b.same(p[:100], data+0x20000)
	b.same(p[100:], data+0x21000)
	b.same(p, data+0x40000)
	b.same(r, data+0x50000)
	b.same(p[:45], data+0x30000)
	b.same(p[:2100], data+0x60000)
	if len(b.aes)+len(b.events) > 0 {
		t.Errorf("%v %v", b.aes, b.events)
	}
	if v, _ := b.mem.Load64(x.base + shadowAt); uint32(v) != x.sqNext {
		t.Errorf("HW_SQ_TAIL %d, want %d", v, x.sqNext)
	}
	stats := b.table.Stats()
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(stats[off:]) }
	if word(256) != 2 || word(240) != 2 || word(248) != 1 || word(280) != 2 || word(264) != 2 || word(272) != 1 {
		t.Errorf("messages %d %d %d %d %d %d", word(256), word(240), word(248), word(280), word(264), word(272))
	}
	if word(16) != word(112) || word(8) != word(104) || word(16) == 0 || word(224) != word(232) {
		t.Errorf("packets in %d out %d, octets in %d out %d", word(16), word(112), word(8), word(104))
	}
}

// Many times around both rings, with and without the doorbells that older
// drivers leave out: all comes, once and in order.
func TestRings(t *testing.T) {
	for _, elide := range []bool{false, true} {
		for seed := range uint64(3) {
			b, x, y := connected(t, func(x, _ *side) { x.elide = elide })
			r := rand.New(rand.NewPCG(seed, 1))
			var want []event.Entry
			received := uint32(0)
			for range 1500 {
				n := uint32(r.IntN(3000))
				var sges []sge
				for range r.IntN(6) {
					c := uint32(r.IntN(int(n) + 1))
					sges = append(sges, sge{data + uint64(r.IntN(1000)), c})
					n -= c
				}
				w := wr{op: opWrite, sges: sges, raddr: data + 0x10000, key: rkey}
				switch r.IntN(3) {
				case 0:
					w.op, w.raddr, w.key = opSend, 0, 0
					y.receive(sge{data + 0x20000, 4000})
					received++
				case 1:
					w.inline = b.read(data, r.IntN(101)+1)
				}
				if r.IntN(3) > 0 {
					w.flags = signalled
				}
				i := x.post(w)
				if w.flags != 0 {
					want = append(want, x.sent(i, uint8(w.op)))
				}
				if r.IntN(4) == 0 {
					x.ring()
					b.engine.Drain(r.IntN(20))
				}
				if received%20 == 0 || r.IntN(10) == 0 {
					x.ring()
					b.drain()
				}
			}
			x.ring()
			b.drain()
			if diff := cmp.Diff(want, b.cqes[2]); diff != "" {
				t.Fatalf("elide %t seed %d:\n%s", elide, seed, diff)
			}
			if n := len(b.cqes[6]); n != int(received) {
				t.Fatalf("elide %t seed %d: %d received, want %d", elide, seed, n, received)
			}
			for i, e := range b.cqes[6] {
				if w := uint16(i * 2 % rqQuanta); e.WQE != w {
					t.Fatalf("receive completion %d is of WQE %d, want %d", i, e.WQE, w)
				}
			}
		}
	}
}

// A WQE written between the device's look at its valid bit and the store of
// the shadow tail gets no doorbell from older drivers: the device sees it by
// itself.
func TestTailIsStoredBeforeTheLastLook(t *testing.T) {
	b, x, _ := connected(t, func(x, _ *side) { x.elide = true })
	var want []event.Entry
	late := 3
	b.onStore = func(at uint64) {
		if at == x.base+shadowAt && late > 0 {
			// The driver sees the old tail, which lags, and does not ring.
			late--
			want = append(want, x.sent(x.post(wr{op: opNOP, flags: signalled}), opNOP))
			x.ring()
		}
	}
	want = append(want, x.sent(x.post(wr{op: opNOP, flags: signalled}), opNOP))
	x.ring()
	b.drain()
	if x.rung != 1 {
		t.Errorf("rung %d times", x.rung)
	}
	b.wantCQ(2, want...)
}

// The responses to a read are more than an inbox holds; nothing but room in
// it makes the responder go on.
func TestLongRead(t *testing.T) {
	b, x, _ := connected(t, func(x, y *side) {
		put(&x.ctx, 48, 7<<48|256<<16)
		put(&y.ctx, 48, 7<<48|256<<16)
	})
	const size = 0x180000
	p := b.fill(data, size, 5)
	i := x.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x80000, size}}, raddr: data, key: rkey})
	x.ring()
	b.drain()
	b.wantCQ(2, x.sent(i, 1))
	b.same(p[:0x80000], data+0x80000)
}

// A send before its buffer: the receiver has no doorbell, the requester asks
// again.
func TestReceiverNotReady(t *testing.T) {
	b, x, y := connected(t)
	p := b.fill(data, 100, 1)
	i := x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 100}}})
	x.ring()
	b.drain()
	b.wantCQ(2)
	y.receive(sge{data + 0x1000, 100})
	b.clock.Advance(640*time.Microsecond - 1)
	b.drain()
	b.wantCQ(2)
	b.clock.Advance(1)
	b.drain()
	b.wantCQ(2, x.sent(i, 3))
	b.same(p, data+0x1000)
}

// The receive WQE of a message that has only begun is flushed as the oldest.
func TestFlushOfMessageInProgress(t *testing.T) {
	b, x, y := connected(t)
	y.receive(sge{data + 0x20000, 0x50000})
	y.receive(sge{data, 1})
	x.post(wr{op: opSend, sges: []sge{{data, 0x40000}}})
	x.ring()
	b.engine.Drain(2) // one step of each
	y.modify(qp.Error)
	before := b.read(data+0x20000, 0x50000)
	_, rq, err := flush(b.table, qp.FlushArgs{ID: 5, SQ: true, RQ: true})
	b.ok(err)
	if !rq {
		t.Error("nothing flushed")
	}
	b.wantCQ(6, event.Entry{Context: compCtx + 5, QP: 5, Major: 1, Minor: 1, Error: true})
	b.drain()
	b.same(before, data+0x20000)
	b.wantCQ(6)
}

// Nothing is read for a QP once the driver has been told of its end.
func TestPayloadOfEndedQP(t *testing.T) {
	for name, end := range map[string]func(*bench, *side){
		"ERROR":   func(b *bench, x *side) { x.modify(qp.Error) },
		"destroy": func(b *bench, x *side) { b.ok(b.table.Destroy(x.id)) },
		"halt":    func(b *bench, x *side) { _, err := b.table.Halt(qp.FlushArgs{ID: x.id, SQ: true}); b.ok(err) },
		"reset":   func(b *bench, x *side) { b.table.Reset(0) },
	} {
		b, x, _ := connected(t)
		b.fill(data, 100, 1)
		x.post(wr{op: opWrite, sges: []sge{{data, 100}}, raddr: data + 0x1000, key: rkey})
		x.ring()
		b.engine.Drain(1)
		end(b, x)
		b.drain()
		if !bytes.Equal(b.read(data+0x1000, 100), make([]byte, 100)) {
			t.Errorf("%s: payload was copied", name)
		}
	}
}

// Draining for SQD ends with the event, after what is in work.
func TestDrain(t *testing.T) {
	b, x, _ := connected(t)
	first := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 0x40000}}, raddr: data + 0x100000, key: rkey})
	x.ring()
	b.engine.Drain(1)
	x.modify(qp.SQD)
	if len(b.aes) != 0 {
		t.Errorf("drained too early: %v", b.aes)
	}
	second := x.post(wr{op: opWrite, flags: signalled})
	x.ring()
	b.drain()
	b.wantCQ(2, x.sent(first, 0))
	if diff := cmp.Diff([]event.AE{{Code: 0x900, Context: compCtx + 2, ID: 2, State: 2}}, b.aes); diff != "" {
		t.Error(diff)
	}
	x.modify(qp.RTS)
	b.drain()
	b.wantCQ(2, x.sent(second, 0))
}

// Packets are for the QP whose addresses fit, as on a wire.
func TestAdmission(t *testing.T) {
	tests := map[string]func(x, y *side){
		"source address":      func(x, y *side) { put(&x.ctx, 184, 0xC0000209) },
		"destination address": func(x, y *side) { put(&x.ctx, 32, 0xC0000209) },
		"IPv6":                func(x, y *side) { put(&x.ctx, 0, 1<<8|1<<20) },
		"partition":           func(x, y *side) { put(&x.ctx, 56, 0x1234<<48|0xFFFE<<32) },
	}
	for name, change := range tests {
		b, x, _ := connected(t, change)
		x.post(wr{op: opWrite, flags: signalled})
		x.ring()
		b.drain()
		if len(b.cqes) != 0 {
			t.Errorf("%s: %v", name, b.cqes)
		}
	}
}

// What is not for the port itself goes to a wire that is not there.
func TestOtherMAC(t *testing.T) {
	b, x, _ := connected(t)
	b.ok(b.table.Modify(qp.ModifyArgs{ID: 2, State: qp.RTS, CQNumbers: true, ARP: func(uint16) ([6]byte, bool) { return [6]byte{1}, true }},
		func() (qp.Context, error) { return x.ctx, nil }))
	x.post(wr{op: opWrite, flags: signalled})
	x.ring()
	b.drain()
	b.wantCQ(2)
}

func TestUnreachableRings(t *testing.T) {
	for _, queue := range []int{8, 16} {
		b, x, y := connected(t, func(x, y *side) {
			put(&x.ctx, 8, 0x1000)
			if queue == 16 {
				put(&x.ctx, 8, x.base)
				put(&y.ctx, 16, 0x1000)
			}
		})
		if queue == 16 {
			x.post(wr{op: opSend, sges: []sge{{data, 1}}})
		}
		x.ring()
		b.drain()
		if len(b.aes) == 0 || b.aes[0].Code != 0x0700 || len(b.events) == 0 {
			t.Errorf("context word %d: %v %v", queue, b.aes, b.events)
		}
		_ = y
	}
}

// loop posts n writes of size bytes to a ring whose slots it has filled, by
// their headers alone.
func (s *side) loop(n int, size uint32) func() {
	slots := [sqQuanta]uint64{}
	for i := range slots {
		at := s.base + 32*uint64(i)
		for j, v := range []uint64{data, lkey | uint64(size)<<32, data + 0x100000} {
			s.b.ok(s.b.mem.Store64(at+8*uint64(j), v))
		}
	}
	return func() {
		for range n {
			pass := s.sqPass
			i := s.take(1)
			if err := s.b.mem.Store64(s.base+32*uint64(i)+24, pass<<63|signalled|rkey); err != nil {
				panic(err)
			}
		}
		s.b.space.Write32(0x504400, s.id)
		s.b.engine.Drain(1 << 20)
	}
}
