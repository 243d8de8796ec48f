// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func sent(id uint64, s Status) WC     { return WC{ID: id, Status: s, Send: true} }
func received(id uint64, s Status) WC { return WC{ID: id, Status: s} }

// verbsError is a work request that fails, and what becomes of it at both ends.
type verbsError struct {
	name string
	user bool
	attr func(*QPAttr)
	// make returns the request of a that fails.
	make func(t *testing.T, a, b *side) SendWR
	recv func(b *side) RecvWR // default: some buffer
	// events that the failing ends may tell; none: that end goes on
	atA, atB         []uint16
	sourceA, sourceB []uint8
}

var (
	sq      = []uint8{aeSourceSQ, aeSourceSQ7}
	rq      = []uint8{aeSourceRQ, aeSourceRQ3}
	inbound = []uint8{aeSourceInbound, aeSourceInbound11}

	noSTag   = []uint16{IRDMA_AE_AMP_UNALLOCATED_STAG, IRDMA_AE_AMP_INVALID_STAG, IRDMA_AE_AMP_BAD_STAG_INDEX}
	badKey   = []uint16{IRDMA_AE_AMP_BAD_STAG_KEY}
	badPD    = []uint16{IRDMA_AE_AMP_BAD_PD}
	bounds   = []uint16{IRDMA_AE_AMP_BOUNDS_VIOLATION}
	rights   = []uint16{IRDMA_AE_AMP_RIGHTS_VIOLATION}
	noAccess = []uint16{IRDMA_AE_IB_REMOTE_ACCESS_ERROR}
)

// another registers the side's memory once more, until the test's end.
func (s *side) another(t *testing.T, pd uint32, access Access) *MR {
	t.Helper()
	mr := s.register(t, pd, access)
	t.Cleanup(func() { must(t, mr.Dereg()) })
	return mr
}

// freed is a registration that is no more.
func (s *side) freed(t *testing.T) *MR {
	t.Helper()
	mr := s.register(t, pairPD, Everything)
	must(t, mr.Dereg())
	return mr
}

func (s *side) register(t *testing.T, pd uint32, access Access) *MR {
	t.Helper()
	mr, err := s.qp.r.RegMR(pd, s.mem.Region, access, MROptions{Rand: s.rnd})
	must(t, err)
	return mr
}

func local(change func(t *testing.T, a *side, s *SGE)) func(t *testing.T, a, b *side) SendWR {
	return func(t *testing.T, a, b *side) SendWR {
		w := a.write(0, b, 100, 3000)
		change(t, a, &w.SGEs[0])
		return w
	}
}

func remote(change func(t *testing.T, b *side, w *SendWR)) func(t *testing.T, a, b *side) SendWR {
	return func(t *testing.T, a, b *side) SendWR {
		w := a.write(0, b, 100, 3000)
		change(t, b, &w)
		return w
	}
}

func verbsErrors() []verbsError {
	longSend := func(t *testing.T, a, b *side) SendWR { return a.send(0, 0, 5000) }
	list := []verbsError{
		{name: "lkey that is not there", atA: noSTag, make: local(func(t *testing.T, a *side, s *SGE) { s.LKey ^= 1 << 12 })},
		{name: "lkey above the table", atA: noSTag, make: local(func(t *testing.T, a *side, s *SGE) { s.LKey ^= 1 << 30 })},
		{name: "lkey with another key", atA: badKey, make: local(func(t *testing.T, a *side, s *SGE) { s.LKey ^= 1 })},
		{name: "freed lkey", atA: noSTag, make: local(func(t *testing.T, a *side, s *SGE) { s.LKey = a.freed(t).STag })},
		{name: "lkey of another PD", atA: badPD, make: local(func(t *testing.T, a *side, s *SGE) { s.LKey = a.another(t, pairPD+1, Everything).STag })},
		{name: "one byte too far", atA: bounds, make: local(func(t *testing.T, a *side, s *SGE) { s.Addr = a.mem.mr.Addr(a.mem.Size - int(s.Len) + 1) })},
		{name: "one byte too early", atA: bounds, make: local(func(t *testing.T, a *side, s *SGE) { s.Addr = a.mem.VA - 1 })},
		{name: "address that wraps", atA: append(bounds, IRDMA_AE_AMP_TO_WRAP), make: local(func(t *testing.T, a *side, s *SGE) { s.Addr = ^uint64(0) - 10 })},
		{name: "second SGE", atA: noSTag, make: func(t *testing.T, a, b *side) SendWR {
			w := a.write(0, b, 0, 200)
			w.SGEs = append(w.SGEs, SGE{a.mem.VA, 50, a.mem.mr.STag ^ 1<<13})
			return w
		}},
		{name: "send with a bad lkey", atA: badKey, make: func(t *testing.T, a, b *side) SendWR {
			w := a.send(0, 0, 2000)
			w.SGEs[0].LKey ^= 0x40
			return w
		}},
		{name: "read into memory without local write", atA: rights, make: func(t *testing.T, a, b *side) SendWR {
			w := a.read(0, b, 0, 500)
			w.SGEs[0].LKey = a.another(t, pairPD, LocalRead|RemoteRead).STag
			return w
		}},
		{name: "STag 0 of a program", user: true, atA: []uint16{IRDMA_AE_STAG_ZERO_INVALID, IRDMA_AE_PRIV_OPERATION_DENIED},
			make: local(func(t *testing.T, a *side, s *SGE) { *s = SGE{a.mem.pages[0].IOVA, 64, 0} })},
		{name: "opcode that is not there", atA: []uint16{IRDMA_AE_WQE_UNEXPECTED_OPCODE},
			make: func(t *testing.T, a, b *side) SendWR { return SendWR{Op: 0x3f, Signalled: true} }},
		{name: "message of 2 GiB", atA: []uint16{IRDMA_AE_DDP_UBE_INVALID_MO}, make: func(t *testing.T, a, b *side) SendWR {
			all, err := a.qp.r.RegAll(pairPD, Everything)
			must(t, err)
			w := a.write(0, b, 0, 0)
			w.SGEs = []SGE{{0, 1 << 30, all.STag}, {1 << 30, 1 << 30, all.STag}}
			return w
		}},

		{name: "rkey that is not there", atA: noAccess, atB: noSTag, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RKey ^= 1 << 12 })},
		{name: "rkey with another key", atA: noAccess, atB: badKey, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RKey ^= 0x80 })},
		{name: "freed rkey", atA: noAccess, atB: noSTag, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RKey = b.freed(t).STag })},
		{name: "rkey of another PD", atA: noAccess, atB: badPD, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RKey = b.another(t, pairPD+1, Everything).STag })},
		{name: "write out of bounds", atA: noAccess, atB: bounds, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RemoteAddr = b.mem.mr.Addr(b.mem.Size - 2999) })},
		{name: "write far out of bounds", atA: noAccess, atB: bounds, make: remote(func(t *testing.T, b *side, w *SendWR) { w.RemoteAddr = 1 })},
		{name: "write without the right", atA: noAccess, atB: rights, make: remote(func(t *testing.T, b *side, w *SendWR) {
			w.RKey = b.another(t, pairPD, LocalRead|LocalWrite|RemoteRead).STag
		})},
		{name: "write to memory that is only local", atA: noAccess, atB: rights, make: remote(func(t *testing.T, b *side, w *SendWR) {
			w.RKey = b.another(t, pairPD, LocalRead|LocalWrite).STag
		})},
		{name: "write with STag 0", atA: noAccess, atB: append(noSTag, IRDMA_AE_STAG_ZERO_INVALID), make: remote(func(t *testing.T, b *side, w *SendWR) {
			w.RKey, w.RemoteAddr = 0, b.mem.pages[0].IOVA
		})},
		{name: "read without the right", atA: noAccess, atB: rights, make: remote(func(t *testing.T, b *side, w *SendWR) {
			w.Op, w.RKey = IRDMA_OP_TYPE_RDMA_READ, b.another(t, pairPD, LocalRead|LocalWrite|RemoteWrite).STag
		})},
		{name: "read out of bounds", atA: noAccess, atB: bounds, make: remote(func(t *testing.T, b *side, w *SendWR) {
			w.Op, w.RemoteAddr = IRDMA_OP_TYPE_RDMA_READ, b.mem.mr.Addr(b.mem.Size-1)
		})},

		{name: "invalidation of an STag that is not there", atA: noAccess, atB: append(noSTag, IRDMA_AE_AMP_INVALIDATE_NO_RIGHTS),
			make: func(t *testing.T, a, b *side) SendWR {
				w := a.send(0, 0, 100)
				w.Op, w.RKey = IRDMA_OP_TYPE_SEND_INV, b.freed(t).STag
				return w
			}},
		{name: "send longer than the buffer", atA: []uint16{IRDMA_AE_IB_INVALID_REQUEST}, atB: []uint16{IRDMA_AE_DDP_UBE_MESSAGE_TOO_LONG},
			sourceB: rq, make: longSend, recv: func(b *side) RecvWR { return RecvWR{SGEs: []SGE{b.sge(0, 4999)}} }},
		{name: "send into no buffer", atA: []uint16{IRDMA_AE_IB_INVALID_REQUEST}, atB: []uint16{IRDMA_AE_DDP_UBE_MESSAGE_TOO_LONG},
			sourceB: rq, make: longSend, recv: func(b *side) RecvWR { return RecvWR{} }},
		{name: "buffer with a bad lkey", atA: []uint16{IRDMA_AE_IB_REMOTE_OP_ERROR}, atB: badKey, sourceB: rq, make: longSend,
			recv: func(b *side) RecvWR {
				s := b.sge(0, 8000)
				s.LKey ^= 2
				return RecvWR{SGEs: []SGE{s}}
			}},
		{name: "buffer out of bounds", atA: []uint16{IRDMA_AE_IB_REMOTE_OP_ERROR}, atB: bounds, sourceB: rq, make: longSend,
			recv: func(b *side) RecvWR { return RecvWR{SGEs: []SGE{b.sge(b.mem.Size-4999, 5000)}} }},
	}
	for k := range list {
		if list[k].sourceA == nil {
			list[k].sourceA = sq
		}
		if list[k].sourceB == nil {
			list[k].sourceB = inbound
		}
	}
	return list
}

// What fails, fails at the right work request, with the right event, status and
// state at both ends; what was before it is done, what is behind it is flushed.
func TestVerbsErrors(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, _ := start(t, k, Options{})
		rnd := rand.New(rand.NewPCG(1, 1))
		for _, c := range verbsErrors() {
			t.Run(c.name, func(t *testing.T) { c.run(t, m.r, m.r, rnd) })
		}
		must(t, m.r.Remove())
		must(t, m.i.Remove())
	})
}

func (c verbsError) run(t *testing.T, r, peer *IRDMA, rnd *rand.Rand) {
	a, b := newPair(t, r, rnd, pairOptions{user: c.user, attr: c.attr, peer: peer})
	recv := RecvWR{SGEs: []SGE{b.sge(0, 8000)}}
	if c.recv != nil {
		recv = c.recv(b)
	}
	const good, bad, late, buffer = 1, 2, 3, 9
	recv.ID = buffer
	must(t, b.qp.PostRecv(recv))
	w := c.make(t, a, b)
	w.ID = bad
	must(t, a.qp.PostSend(a.write(good, b, 60_000, 100), w, a.write(late, b, 0, 10)))
	ae := a.awaitEvent(t)
	if len(ae) != 1 || !slices.Contains(c.atA, ae[0].Code) || !slices.Contains(c.sourceA, ae[0].Source) || ae[0].State != IRDMA_QP_STATE_ERROR {
		t.Errorf("events at a %+v, want one of %#x from %v", ae, c.atA, c.sourceA)
	}
	must(t, r.Work())
	a.waitFor(t, sent(good, Success), sent(bad, r.Kernel.flushCode(ae[0].Code)), sent(late, WRFlushErr))
	a.nothing(t)
	if c.atB == nil {
		if ae := peer.eventsOf(b.qp); len(ae) != 0 || b.qp.State != IRDMA_QP_STATE_RTS {
			t.Errorf("events at b %+v", ae)
		}
		b.nothing(t)
	} else {
		ae := b.awaitEvent(t)
		must(t, peer.Work())
		if len(ae) != 1 || !slices.Contains(c.atB, ae[0].Code) || !slices.Contains(c.sourceB, ae[0].Source) || ae[0].State != IRDMA_QP_STATE_ERROR {
			t.Fatalf("events at b %+v, want one of %#x from %v", ae, c.atB, c.sourceB)
		}
		status := WRFlushErr // whom the fault of an inbound request does not concern
		if slices.Contains(rq, ae[0].Source) {
			status = r.Kernel.flushCode(ae[0].Code)
		}
		b.waitFor(t, received(buffer, status))
		b.nothing(t)
	}
	if c.user { // uverbs.c: posting to an empty queue in ERROR flushes once more
		must(t, a.qp.PostSend(a.write(4, b, 0, 10), a.write(5, b, 0, 10)))
		a.waitFor(t, sent(4, WRFlushErr))
	}
	endSides(t, a, b)
}

// What nobody looks at does no harm.
func TestZeroLength(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	a, b := newPair(t, m.r, rand.New(rand.NewPCG(1, 2)), pairOptions{})
	bogus := SGE{^uint64(0), 0, 0xdead_beef}
	must(t, b.qp.PostRecv(RecvWR{ID: 8, SGEs: []SGE{bogus, bogus}}, RecvWR{ID: 9}))
	must(t, a.qp.PostSend(
		SendWR{ID: 1, Op: IRDMA_OP_TYPE_RDMA_WRITE, Signalled: true, SGEs: []SGE{bogus}, RemoteAddr: 3, RKey: 0xbad0_bad0},
		SendWR{ID: 2, Op: IRDMA_OP_TYPE_RDMA_READ, Signalled: true, SGEs: []SGE{bogus, bogus}, RemoteAddr: 3, RKey: 0xbad0_bad0},
		SendWR{ID: 3, Op: IRDMA_OP_TYPE_SEND, Signalled: true, SGEs: []SGE{bogus}},
		SendWR{ID: 4, Op: IRDMA_OP_TYPE_RDMA_WRITE, Signalled: true, Inline: []byte{}, RemoteAddr: 3, RKey: 0xbad0_bad0},
		SendWR{ID: 5, Op: IRDMA_OP_TYPE_SEND, Signalled: true},
		SendWR{ID: 6, Op: IRDMA_OP_TYPE_NOP, Signalled: true}))
	a.waitFor(t, sent(1, Success), sent(2, Success), sent(3, Success), sent(4, Success), sent(5, Success), sent(6, Success))
	b.waitFor(t, received(8, Success), received(9, Success))
	endSides(t, a, b)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// fetched waits until the device has read all send WQEs.
func (q *QP) fetched() error {
	return q.r.F.poll("the shadow tail", func() bool { return int(q.mem.load(q.shadowOff)) == q.sq.head })
}

// A receiver that is late gets the message when it has a buffer.
func TestReceiverNotReady(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := start(t, k, Options{})
		a, b := newPair(t, m.r, rand.New(rand.NewPCG(1, 3)), pairOptions{attr: func(a *QPAttr) { a.RNRTries = 7 }})
		for n := range uint64(20) {
			must(t, a.qp.PostSend(a.send(n, 0, 6000), a.write(100+n, b, 20_000, 50)))
			must(t, a.qp.fetched())
			a.nothing(t)
			b.nothing(t)
			must(t, b.qp.PostRecv(RecvWR{ID: n, SGEs: []SGE{b.sge(100, 3000), b.sge(10_000, 3000)}}))
			b.waitFor(t, received(n, Success))
			a.waitFor(t, sent(n, Success), sent(100+n, Success))
		}
		copy(b.mem.want[100:], a.mem.want[:3000])
		copy(b.mem.want[10_000:], a.mem.want[3000:6000])
		copy(b.mem.want[20_000:], a.mem.want[20_000:20_050])
		must(t, b.mem.check("receiver", 0, b.mem.Size))
		endSides(t, a, b)
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}

// Retries that end: of a receiver without buffers, and of a peer that is not
// there. The receiver goes on in the first case.
func TestRetriesEnd(t *testing.T) {
	for _, k := range []Kernel{Linux61(), Linux73()} {
		t.Run(k.Name, func(t *testing.T) {
			m, _ := start(t, k, Options{})
			r, rnd := m.r, rand.New(rand.NewPCG(1, 4))
			once := func(a *QPAttr) { a.RNRTries, a.Retries = 1, 1 }
			var fails []func() // when all are posted: they wait at the same time
			post := func(a, b *side, w SendWR, code uint16) {
				w.ID = 1
				must(t, a.qp.PostSend(w, a.send(2, 0, 4)))
				fails = append(fails, func() {
					must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.eventsOf(a.qp)) > 0 }))
					ae := r.eventsOf(a.qp)
					if len(ae) != 1 || ae[0].Code != code || !slices.Contains(sq, ae[0].Source) || ae[0].State != IRDMA_QP_STATE_ERROR {
						t.Errorf("events %+v, want %#x", ae, code)
					}
					a.waitFor(t, sent(1, k.flushCode(code)), sent(2, WRFlushErr))
					if ae := r.eventsOf(b.qp); len(ae) > 0 {
						t.Errorf("events of the other end %+v", ae)
					}
					endSides(t, a, b)
				})
			}
			a, b := newPair(t, r, rnd, pairOptions{attr: once})
			post(a, b, a.send(0, 0, 100), IRDMA_AE_LLP_TOO_MANY_RNRS)

			a, b = newPair(t, r, rnd, pairOptions{attr: once, lone: true})
			must(t, a.qp.Connect(b.qp.ID)) // which is not connected
			post(a, b, a.write(0, b, 0, 100), IRDMA_AE_LLP_TOO_MANY_RETRIES)

			a, b = newPair(t, r, rnd, pairOptions{attr: once, lone: true})
			must(t, a.qp.Connect(0x1234)) // which does not exist
			post(a, b, a.read(0, b, 0, 100), IRDMA_AE_LLP_TOO_MANY_RETRIES)

			a, b = newPair(t, r, rnd, pairOptions{attr: once})
			_, err := b.qp.Modify(IRDMA_QP_STATE_ERROR)
			must(t, err)
			post(a, b, a.write(0, b, 0, 100), IRDMA_AE_LLP_TOO_MANY_RETRIES)

			a, b = newPair(t, r, rnd, pairOptions{attr: once, lone: true})
			must(t, r.SetARP(5, [6]byte{2, 1, 1, 1, 1, 1}))
			a.qp.Attr.DestQP, a.qp.Attr.ARP = b.qp.ID, 5 // another host
			must(t, a.qp.ToRTS())
			post(a, b, a.send(0, 0, 100), IRDMA_AE_LLP_TOO_MANY_RETRIES)
			for _, end := range fails {
				end()
			}
			must(t, m.takeDown())
		})
	}
}

// A fenced request sees what the reads before it brought.
func TestFence(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	rnd := rand.New(rand.NewPCG(1, 5))
	a, b := newPair(t, m.r, rnd, pairOptions{size: 400 << 10})
	const n, there, back = 90_000, 100_000, 200_000
	for range 30 {
		fillRandom(rnd, b.mem.want[:n])
		b.mem.Write(0, b.mem.want[:n])
		must(t, b.qp.PostRecv(RecvWR{ID: 7, SGEs: []SGE{b.sge(there, n)}}))
		send := a.send(2, 0, n)
		send.ReadFence = true
		write := a.write(3, b, 0, 0)
		write.SGEs, write.RemoteAddr = []SGE{a.sge(0, n)}, b.mem.mr.Addr(back)
		write.LocalFence = true
		read := a.read(1, b, 0, n)
		must(t, a.qp.PostSend(read, send, write))
		a.waitFor(t, sent(1, Success), sent(2, Success), sent(3, Success))
		b.waitFor(t, received(7, Success))
		for _, at := range []int{there, back} {
			copy(b.mem.want[at:], b.mem.want[:n])
			must(t, b.mem.check("after the fence", at, n))
		}
	}
	endSides(t, a, b)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// Old kernels ring only if the device waits where the work is. Work that is
// posted the moment the device runs out of it is found all the same.
func TestElidedDoorbells(t *testing.T) {
	for _, k := range []Kernel{Linux61(), Linux612()} {
		t.Run(k.Name, func(t *testing.T) {
			m, complaints := start(t, k, Options{})
			rnd := rand.New(rand.NewPCG(1, 7))
			a, b := newPair(t, m.r, rnd, pairOptions{})
			const count, most, looks = 8_000, 60, 20_000
			nop := SendWR{Op: IRDMA_OP_TYPE_NOP, Signalled: true}
			must(t, a.qp.PostSend(nop))
			for nop.ID < count {
				for look := 0; a.cq.empty() && look < looks; look++ {
				}
				for range rnd.IntN(most) {
					a.qp.mem.load(a.qp.shadowOff)
				}
				nop.ID++
				must(t, a.qp.PostSend(nop))
				a.waitFor(t, sent(nop.ID-1, Success))
			}
			a.waitFor(t, sent(count, Success))
			endSides(t, a, b)
			must(t, m.takeDown())
			quiet(t, complaints)
		})
	}
}
