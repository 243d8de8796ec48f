// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Words in a fuzzed WQE that stand for what a program could know.
const (
	someAddress = 'G' << 56   // in its highest byte: an address in the memory registration
	someSTag    = 0x4741_5453 // as its lower half: the registration's STag
)

// FuzzWQEs lets a program write what it wants into the rings of its two QPs.
// Whatever it does, the device lives, and writes to nothing but the program's
// registered memory and what the driver gave it.
//
// The input is a list of instructions: a byte that tells the kind, then
//
//	0 send WQE:     quanta (1), that many times 32 bytes
//	1 receive WQE:  32 bytes
//	2 torn WQE:     as 0, but the header with its valid bit is there first, and
//	                the doorbell rung before the rest is
//	3 proper work:  operation (1), length (2)
//	4 a quantum somewhere in the send ring: index (2), 32 bytes
//	5 doorbells of both QPs and of numbers near them: offset (1)
//
// The highest bit of the kind chooses the QP.
func FuzzWQEs(f *testing.F) {
	seedWQEs(f)
	rnd := rand.New(rand.NewPCG(5, 1))
	fuzzMachine(f, func(t *testing.T, m *machine, program []byte) {
		r := m.r
		tryWQEs(t, r, r, rnd, program)
	})
}

// FuzzWQEsNear is FuzzWQEs with the QPs on two cards, which are near each other,
// of two guests.
func FuzzWQEsNear(f *testing.F) {
	if !raced { // those checked in do
		seedWQEs(f)
	}
	rnd := rand.New(rand.NewPCG(5, 9))
	fuzzMachines(f, 2, func(t *testing.T, m []*machine, program []byte) {
		tryWQEs(t, m[0].r, m[1].r, rnd, program)
	})
}

// tryWQEs tries an input on two cards, or one.
func tryWQEs(t *testing.T, r, peer *IRDMA, rnd *rand.Rand, program []byte) {
	a, b := newPair(t, r, rnd, pairOptions{peer: peer, user: true, attr: func(a *QPAttr) { a.Retries, a.RNRTries = 1, 7 }})
	runWQEs(a, b, program)
	for _, s := range []*side{a, b} {
		s.qp.r.AEs, s.qp.r.cqp.trace, s.qp.r.ICE.aq.trace = nil, nil, nil
		must(t, s.qp.Destroy())
		for {
			if _, ok := s.cq.Next(); !ok {
				break
			}
		}
	}
	// The device goes on for others.
	c, d := newPair(t, r, rnd, pairOptions{peer: peer})
	must(t, c.qp.PostSend(c.write(1, d, 0, 5000)))
	c.waitFor(t, sent(1, Success))
	moved(t, c, d, 0, 5000)
	endSides(t, a, b, c, d)
	must(t, r.F.Guest.Check())
	must(t, peer.F.Guest.Check())
}

// fuzzMachine tries inputs on a machine that is up, the same one as long as none
// fails.
func fuzzMachine(f *testing.F, try func(t *testing.T, m *machine, input []byte)) {
	fuzzMachines(f, 1, func(t *testing.T, m []*machine, input []byte) { try(t, m[0], input) })
}

// fuzzMachines is fuzzMachine with n of them, with cards of one process.
func fuzzMachines(f *testing.F, n int, try func(t *testing.T, m []*machine, input []byte)) {
	ctx, sockets := serveForFuzz(f, n)
	var m []*machine
	leave := func() {
		for _, m := range m {
			m.f.Detach()
			m.f.Guest.Close()
		}
		m = nil
	}
	f.Cleanup(leave)
	f.Fuzz(func(t *testing.T, input []byte) {
		for len(m) < n {
			g, err := NewGuest(guestMiB)
			must(t, err)
			fn, err := attachForFuzz(ctx, sockets[len(m)], g)
			must(t, err)
			one, err := bringUp(fn, Linux73(), Options{})
			must(t, err)
			m = append(m, one)
		}
		defer func() {
			if t.Failed() { // the next input gets a machine in order
				leave()
			}
		}()
		try(t, m, input)
	})
}

func seedWQEs(f *testing.F) {
	le64 := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
		return b
	}
	const key, length = uint64(someSTag), uint64(300) << fragLenBit
	header := func(op uint64, more uint64) uint64 { return op<<sqOpcodeBit | key | sqSignalled | more }
	for op := range uint64(0x40) {
		if op < 0x10 || op&0xf == 0 {
			f.Add(append([]byte{0, 1}, le64(someAddress, length|key, someAddress, header(op, 0))...))
		}
	}
	for _, more := range []uint64{0, 1 << sqLPBLSizeBit, 3 << sqLPBLSizeBit, sqVABased | 31<<sqRightsBit, sqVABased | sqWindowType1 | 12<<sqRightsBit} {
		for _, op := range []uint64{IRDMA_OP_TYPE_FAST_REG_NSMR, IRDMA_OP_TYPE_BIND_MW, IRDMA_OP_TYPE_INV_STAG} {
			// The STag is registered, as a region; the page, if one is named, its first.
			f.Add(append([]byte{0x40, 1}, le64(someAddress, key|key<<sqParentBit, 300, header(op, more))...))
		}
	}
	f.Add([]byte{3, 0, 0, 1, 3, 1, 0, 200, 3, 2, 0xff, 0x7f, 0x83, 2, 1, 1, 5, 0})
	f.Add(append([]byte{0, 2}, le64(someAddress, length|key, someAddress, header(0, 15<<sqAddFragBit), 0, 0, 0, 0)...))
	f.Add(append([]byte{0, 1}, le64(1, 2, someAddress, header(0, 0xff<<sqInlineLenBit|sqInlineData))...))
	f.Add(append([]byte{0, 1}, le64(1, 2, someAddress, header(1, 9<<sqInlineLenBit|sqInlineData))...))
	f.Add(append([]byte{0, 1}, le64(someAddress, 0x7fff_ffff<<fragLenBit|key, someAddress, header(3, sqImmData))...))
	f.Add(append(append([]byte{0x81}, le64(someAddress, 1<<62|key, 0, 15<<sqAddFragBit)...), 3, 2, 0, 9))
	f.Add(append([]byte{2, 4}, le64(someAddress, length|key, someAddress, header(0, 7<<sqAddFragBit), someAddress, length|key,
		someAddress, length|key, someAddress, length|key, someAddress, length|key, 0, 0, 0, 0)...))
	rnd := rand.New(rand.NewPCG(5, 2))
	for range 24 {
		b := make([]byte, 300)
		fillRandom(rnd, b)
		for k := 0; k < len(b); k += 34 { // now and then something known
			b[k] %= 6
		}
		f.Add(b)
	}
}

// runWQEs executes an input and gives the device a moment with it.
func runWQEs(a, b *side, p []byte) {
	take := func(n int) []byte {
		part := make([]byte, n)
		p = p[copy(part, p):]
		return part
	}
	for n := 0; len(p) > 0 && n < 64; n++ {
		kind := take(1)[0]
		s, peer := a, b
		if kind&0x80 != 0 {
			s, peer = b, a
		}
		q, f := s.qp, s.qp.r.F
		known := func(raw []byte) []byte {
			for off := 0; off < len(raw); off += 8 {
				w := le.Uint64(raw[off:])
				if w>>56 == 'G' {
					w = peer.mem.mr.Addr(int(w % 70_000))
				} else if uint32(w) == someSTag {
					w = w&^0xffff_ffff | uint64(peer.mem.mr.STag)
					if kind&0x40 != 0 {
						w = w&^0xffff_ffff | uint64(s.mem.mr.STag)
					}
				}
				le.PutUint64(raw[off:], w)
			}
			return raw
		}
		switch kind & 0x3f % 6 {
		case 0, 2:
			quanta := int(take(1)[0])%sqChunk + 1
			raw := known(take(quanta * qpQuantum))
			at, slot, err := q.place(quanta, sendTrack{signalled: true})
			if err != nil {
				continue
			}
			header := le.Uint64(raw[24:])&^wqeValid | valid(q.sq.polarity)
			if kind&0x3f%6 == 2 {
				q.mem.store(at*qpQuantum+24, header)
				f.Write32(userDBPage, q.ID)
			}
			copy(slot[:24], raw)
			copy(slot[32:], raw[32:])
			q.mem.store(at*qpQuantum+24, header)
			f.Write32(userDBPage, q.ID)
		case 1:
			raw := known(take(qpQuantum))
			if q.PostRecv(RecvWR{}) != nil {
				continue
			}
			at := (q.rq.head - 1 + q.rq.size) % q.rq.size
			off := q.rqOff + at<<q.rq.shift*qpQuantum
			copy(q.mem.slice(off, 24), raw)
			q.mem.store(off+24, le.Uint64(raw[24:])&^wqeValid|valid(q.rq.polarity))
		case 3:
			op, size := take(1)[0], int(le.Uint16(take(2)))
			switch op % 4 {
			case 0:
				_ = q.PostSend(s.write(0, peer, 0, size))
			case 1:
				_ = q.PostSend(s.read(0, peer, 0, size))
			case 2:
				_ = peer.qp.PostRecv(RecvWR{SGEs: []SGE{peer.sge(0, size)}})
				_ = q.PostSend(s.send(0, 0, size))
			case 3:
				_ = q.PostSend(s.send(0, 0, size))
			}
		case 4:
			at := int(le.Uint16(take(2))) % q.sq.size
			copy(q.mem.slice(at*qpQuantum, qpQuantum), take(qpQuantum))
		case 5:
			f.Write32(userDBPage, q.ID+uint32(take(1)[0]))
			f.Write32(userDBPage, q.ID)
			f.Write32(userCQArm, s.cq.ID)
		}
	}
	for _, s := range []*side{a, b} {
		s.qp.r.F.flush()
	}
	for end := time.Now().Add(2 * time.Millisecond); time.Now().Before(end); {
		if a.qp.r.Work() != nil || b.qp.r.Work() != nil {
			return
		}
	}
}
