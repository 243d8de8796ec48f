// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
)

// FuzzSend lets a program fill the rings of two connected QPs as it likes.
//
// The input is WQEs of 9 + n*32 bytes: a byte whose bits 2:0 are n-1, the
// quanta, bit 3 the receive queue instead of the send queue, bit 4 the other
// QP, bit 5 an address in registered memory in every word with an STag behind
// it, bit 6 a doorbell before the valid bit; then the raw quanta. Bytes 1 to 8
// of the nine are xored into the first header.
//
// Whatever it is, the engine comes to rest, every QP's work is completed at
// most once, and nothing is written but registered memory that allows it and
// the shadow areas.
func FuzzSend(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		b, x, y := connected(t, func(x, y *side) {
			put(&x.ctx, 128, 5<<57|2<<54|1<<48)
			put(&y.ctx, 128, 5<<57|2<<54|1<<48)
		})
		fuzzRings(t, b, x, y, in, nil)
	})
}

// FuzzDatagrams does that with two UD QPs. Where bit 5 is set, a send WQE's
// address handle and destination are among those that there are, too.
func FuzzDatagrams(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _, s := datagrams(t, nil, 2, 5)
		b.table.SetGroup(1, qp.Group{MAC: groupMAC, IP: groupIP, IPv4: true, VLAN: -1, QPs: []uint32{2, 5, 9}})
		ahs := []uint64{ownAH, farAH, v6AH, groupAH, foreignAH, lostAH}
		fuzzRings(t, b, s[0], s[1], in, func(q []byte) {
			h := binary.LittleEndian.Uint64(q[24:])
			binary.LittleEndian.PutUint64(q[24:], h&^(1<<25-1)|ahs[h%uint64(len(ahs))])
			to := binary.LittleEndian.Uint64(q[16:])
			binary.LittleEndian.PutUint64(q[16:], []uint64{2, 5, 0xFFFFFF, 9}[to%4]<<32|qkey|to<<8&(1<<31))
		})
	})
}

// fuzzRings fills rings as FuzzSend says. known, unless nil, changes the first
// quantum of a send WQE that is to name what there is.
func fuzzRings(t *testing.T, b *bench, x, y *side, in []byte, known func([]byte)) {
	// Registered memory is small, so that a look at what lies around it is
	// quick: everything else in front of it, and a page behind it.
	const size = 0x20000
	b.regions[lkey] = region{data, size, pd, mr.LocalRead | mr.LocalWrite}
	b.regions[rkey] = region{data, size, pd, all}
	b.regions[0x303] = region{data + size, 0x1000, pd, mr.LocalRead}
	around := func() []byte {
		return append(b.read(rings+2*ringSpace, 4*ringSpace), b.read(data-0x1000, size+0x3000)...)
	}
	before := around()
	// within is a piece of memory at its place in before, or after.
	within := func(p []byte, at, n uint64) []byte {
		if at < rings+6*ringSpace {
			return p[at-(rings+2*ringSpace):][:n]
		}
		return p[4*ringSpace+at-(data-0x1000):][:n]
	}
	for posted := 0; len(in) >= 9 && posted < 32; posted++ {
		kind, tweak := in[0], binary.LittleEndian.Uint64(in[1:9])
		n := int(kind&7) + 1
		in = in[9:]
		s := x
		if kind&16 != 0 {
			s = y
		}
		at, next, quanta, pass := s.base, &s.sqNext, uint32(sqQuanta), &s.sqPass
		if kind&8 != 0 {
			at, next, quanta, pass = s.base+rqAt, &s.rqNext, rqQuanta, &s.rqPass
			n = 2
		} else if *next%8+uint32(n) > 8 {
			n = int(8 - *next%8)
		}
		for i := range n {
			var q [32]byte
			in = in[copy(q[:], in):]
			if i == 0 {
				binary.LittleEndian.PutUint64(q[24:], binary.LittleEndian.Uint64(q[24:])^tweak)
			}
			if kind&32 != 0 {
				for w := 0; w < 32; w += 16 {
					a := binary.LittleEndian.Uint64(q[w:])
					binary.LittleEndian.PutUint64(q[w:], data+a%(size+0x1000))
				}
				if known != nil && i == 0 && kind&8 == 0 {
					known(q[:])
				}
			}
			h := binary.LittleEndian.Uint64(q[24:])&^(1<<63) | *pass<<63
			slot := at + 32*uint64(*next)
			b.ok(b.mem.Write(slot, q[:24]))
			copy(within(before, slot, 24), q[:24])
			if kind&64 != 0 {
				s.ring()
				b.engine.Drain(3)
			}
			b.ok(b.mem.Store64(slot+24, h))
			binary.LittleEndian.PutUint64(within(before, slot+24, 8), h)
			if *next++; *next == quanta {
				*next, *pass = 0, *pass^1
			}
		}
		s.ring()
	}
	for range 8 {
		b.drain()
		b.clock.Advance(time.Second)
	}
	b.drain()
	for id, cqes := range b.cqes {
		if len(cqes) > 64*8 {
			t.Errorf("%d completions in CQ %d", len(cqes), id)
		}
	}
	after := around()
	for _, free := range [][2]uint64{{data, size}, {x.base + shadowAt, 64}, {y.base + shadowAt, 64}} {
		copy(within(after, free[0], free[1]), within(before, free[0], free[1]))
	}
	if !bytes.Equal(before, after) {
		t.Fatal("something was written outside registered memory")
	}
	for _, s := range []*side{x, y} {
		s.modify(qp.Error)
		if _, _, err := flush(b.table, qp.FlushArgs{ID: s.id, SQ: true, RQ: true}); err != nil {
			t.Error(err)
		}
		b.ok(b.table.Destroy(s.id))
	}
	b.drain()
}
