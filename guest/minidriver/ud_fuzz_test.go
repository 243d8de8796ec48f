// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"testing"
)

// FuzzDatagramWQEs is FuzzWQEs with two QPs for datagrams. Address handle 1 goes
// to a group that both are in, 2 to the port, and 3 is another protection
// domain's.
func FuzzDatagramWQEs(f *testing.F) {
	seedDatagrams(f)
	rnd := rand.New(rand.NewPCG(5, 7))
	fuzzMachine(f, func(t *testing.T, m *machine, program []byte) {
		r := m.r
		a, b := newDatagramSide(t, r, rnd, true), newDatagramSide(t, r, rnd, true)
		group := r.NewGroup(r.AddressOfGroup(1, pairPD, false))
		must(t, group.Attach(a.qp))
		must(t, group.Attach(b.qp))
		var handles []*AH
		for _, attr := range []AHAttr{group.Attr, r.AddressOf(r, pairPD, true), r.AddressOf(r, pairPD+1, false)} {
			handles = append(handles, newHandle(t, r, attr))
		}
		runWQEs(a, b, program)
		r.AEs, r.cqp.trace, m.i.aq.trace = nil, nil, nil
		must(t, group.Detach(b.qp))
		must(t, group.Detach(a.qp))
		for _, s := range []*side{a, b} {
			must(t, s.qp.Destroy())
			for {
				if _, ok := s.cq.Next(); !ok {
					break
				}
			}
		}
		// The device goes on for others.
		c := newDatagramSide(t, r, rnd, false)
		must(t, c.qp.PostRecv(RecvWR{ID: 2, SGEs: []SGE{c.sge(5000, 1100)}}))
		must(t, c.qp.PostSend(handles[1].Request(c.send(1, 0, 1000), c.qp.ID, OwnQKey)))
		for _, wc := range c.wait(t, 2) {
			if wc.Status != Success {
				t.Errorf("afterwards %+v", wc)
			}
		}
		for _, h := range handles {
			must(t, h.Destroy())
		}
		endSides(t, a, b, c)
		must(t, m.f.Guest.Check())
	})
}

func seedDatagrams(f *testing.F) {
	quanta := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = le.AppendUint64(b, w)
		}
		return b
	}
	const key, length, all = uint64(someSTag), uint64(300) << fragLenBit, MulticastQP<<udDestQPBit | OwnQKey
	recv := func(n uint64) []byte { return append([]byte{1}, quanta(someAddress, n<<fragLenBit|key, 0, 0)...) }
	send := func(kind byte, ah, to, op, more uint64) []byte {
		return append([]byte{kind, 0}, quanta(someAddress, length|key, to, ah|op<<sqOpcodeBit|sqSignalled|more)...)
	}
	join := func(parts ...[]byte) (b []byte) {
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	for ah := range uint64(5) {
		f.Add(join(recv(400), recv(300), send(0, ah, all, IRDMA_OP_TYPE_SEND, 0), send(0x80, ah, all, IRDMA_OP_TYPE_SEND_SOL, 0)))
	}
	for op := range uint64(0x10) {
		f.Add(join(send(0, 1, all, op, 0), send(0, 1, 1<<udDestQPBit|gsiQKey, op, sqInlineData|90<<sqInlineLenBit)))
	}
	f.Add(join(recv(400), send(2, 1, all, IRDMA_OP_TYPE_SEND, sqImmData), []byte{5, 0}, recv(20), send(0x82, 1, all, IRDMA_OP_TYPE_SEND, 0)))
	f.Add(join(recv(400), send(0, 1, all, IRDMA_OP_TYPE_SEND, 15<<sqAddFragBit)))
	rnd := rand.New(rand.NewPCG(5, 8))
	for range 8 {
		b := make([]byte, 300)
		fillRandom(rnd, b)
		for k := 0; k < len(b); k += 34 { // now and then something known
			b[k] %= 6
		}
		f.Add(b)
	}
}
