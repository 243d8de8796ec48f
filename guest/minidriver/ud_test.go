// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/vrnic/vrnic/devmodel/frame"
)

// newDatagramSide is a QP for datagrams in RTS, with a CQ and memory.
func newDatagramSide(t testing.TB, r *IRDMA, rnd *rand.Rand, user bool) *side {
	t.Helper()
	s := &side{rnd: rnd}
	var err error
	const entries = 701
	if s.cq, err = r.CreateCQ(entries, 0, user); err != nil {
		t.Fatal(err)
	}
	if s.qp, err = r.NewDatagramQP(QPConfig{Send: s.cq, Recv: s.cq, PD: pairPD, SendWRs: 128, RecvWRs: 64, SendSGEs: 3, RecvSGEs: 3,
		Inline: maxInline, User: user}); err != nil {
		t.Fatal(err)
	}
	if err := s.qp.ToRTS(); err != nil {
		t.Fatal(err)
	}
	if s.mem, err = newFlat(r, rnd, regionKind{size: 64 << 10, va: 0x7fee_0000_0100, page: Page4K, level: 1}, pairPD, Everything); err != nil {
		t.Fatal(err)
	}
	return s
}

func newHandle(t testing.TB, r *IRDMA, a AHAttr) *AH {
	t.Helper()
	h, err := r.NewAH(a)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// slots are pieces of a receiver's memory, one for each datagram of a round.
const slotSize = 2048

func (s *side) bytes(at, n int) []byte {
	p := make([]byte, n)
	s.mem.Read(at, p)
	return p
}

// Datagrams of every kind between two machines: payload, headers and completion
// are as sent, by programs' QPs and the kernel's.
func TestDatagrams(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(7, uint64(d.way)))
		for _, user := range []bool{true, false} {
			a, b := newDatagramSide(t, d.a.r, rnd, user), newDatagramSide(t, d.b.r, rnd, user)
			for _, ipv6 := range []bool{false, true} {
				attr := d.a.r.AddressOf(d.b.r, pairPD, ipv6)
				attr.TrafficClass, attr.FlowLabel, attr.HopLimit = 0x48, 0x54321, 9
				if attr.Tagged = d.way == loopback; attr.Tagged {
					attr.VLANTag = 5<<13 | 77
				}
				h := newHandle(t, d.a.r, attr)
				exchange(t, a, b, h, rnd)
				must(t, h.Destroy())
			}
			endSides(t, a, b)
		}
		d.end(t)
	})
}

// exchange sends datagrams of all shapes from a to b.
func exchange(t *testing.T, a, b *side, h *AH, rnd *rand.Rand) {
	t.Helper()
	const count = 24
	for i := range count {
		n := rnd.IntN(900)
		w := SendWR{ID: uint64(100 + i), Op: IRDMA_OP_TYPE_SEND, Signalled: true, HasImm: i%3 == 0, Imm: uint32(i) * 0x01010101}
		if i%4 == 1 {
			w.Op = IRDMA_OP_TYPE_SEND_SOL
		}
		at := rnd.IntN(8 << 10)
		switch i % 5 {
		case 0:
			n = min(n, maxInline)
			w.Inline = a.bytes(at, n)
		case 1:
			n = 1024
			w.SGEs = []SGE{a.sge(at, 1000), a.sge(at+1000, 24)}
		case 2:
			n = 0
		default:
			w.SGEs = []SGE{a.sge(at, n)}
		}
		slot := 16<<10 + i*slotSize
		must(t, b.qp.PostRecv(RecvWR{ID: uint64(i), SGEs: []SGE{b.sge(slot, 30), b.sge(slot+30, slotSize-30)}}))
		must(t, a.qp.PostSend(h.Request(w, b.qp.ID, gsiQKey)))
		payload := a.bytes(at, n)
		var got, sent WC
		for _, wc := range both(t, a, b) {
			if wc.Send {
				sent = wc
			} else {
				got = wc
			}
		}
		if sent.ID != w.ID || sent.Status != Success || sent.Op != w.Op {
			t.Errorf("datagram %d: sent %+v", i, sent)
		}
		want := WC{QP: b.qp, ID: uint64(i), Status: Success, Op: 0x3e, Len: uint32(n) + GRHSize, HasImm: w.HasImm, Solicited: w.Op == IRDMA_OP_TYPE_SEND_SOL,
			From: Sender{QP: a.qp.ID, IPv4: !h.Attr.IPv6}}
		if w.HasImm {
			want.Imm = w.Imm
		}
		if !b.qp.Cfg.User {
			want.From.MAC, want.From.HasMAC = a.qp.r.ICE.MAC, true
			want.From.VLAN, want.From.HasVLAN = h.Attr.VLANTag, h.Attr.Tagged
		}
		if got != want {
			t.Errorf("datagram %d: received\n%+v, want\n%+v", i, got, want)
		}
		if !bytes.Equal(b.bytes(slot+GRHSize, n), payload) {
			t.Errorf("datagram %d: another payload", i)
		}
		checkGRH(t, &h.Attr, b.bytes(slot, GRHSize), n, w.HasImm)
	}
}

// both waits for the completions of one datagram at both ends, which may be
// one.
func both(t *testing.T, a, b *side) []WC {
	t.Helper()
	if a.cq == b.cq {
		return a.wait(t, 2)
	}
	return append(a.wait(t, 1), b.wait(t, 1)...)
}

// checkGRH compares the headers in front of a datagram with the way it was sent.
func checkGRH(t *testing.T, a *AHAttr, g []byte, n int, imm bool) {
	t.Helper()
	const udp, bth, deth, icrc = 8, 12, 8, 4
	length := udp + bth + deth + icrc + (n+3)&^3
	if imm {
		length += 4
	}
	ip := func(w [4]uint32, words int) (p []byte) {
		for _, v := range w[4-words:] {
			p = binary.BigEndian.AppendUint32(p, v)
		}
		return p
	}
	if a.IPv6 {
		if binary.BigEndian.Uint32(g) != 6<<28|uint32(a.TrafficClass)<<20|a.FlowLabel || int(binary.BigEndian.Uint16(g[4:])) != length ||
			g[6] != 17 || g[7] != a.HopLimit || !bytes.Equal(g[8:], append(ip(a.Source, 4), ip(a.Dest, 4)...)) {
			t.Errorf("IPv6 header % x of %d bytes", g, n)
		}
		return
	}
	h := g[20:]
	if !bytes.Equal(g[:20], make([]byte, 20)) || h[0] != 0x45 || h[1] != a.TrafficClass || int(binary.BigEndian.Uint16(h[2:])) != 20+length ||
		h[8] != a.HopLimit || h[9] != 17 || frame.Checksum(h, 0) != 0 || !bytes.Equal(h[12:], append(ip(a.Source, 1), ip(a.Dest, 1)...)) {
		t.Errorf("IPv4 header % x of %d bytes", g, n)
	}
}

// The QPs of the general services reach each other: the kernel's, by addresses
// of the device.
func TestGSI(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		const mad = 256
		a, b := d.a.r, d.b.r
		h := newHandle(t, a, a.AddressOf(b, a.gsi.Cfg.PD, false))
		from, to := a.F.alloc(mad), b.F.alloc(mad+GRHSize)
		for i := range mad {
			from.Bytes()[i] = byte(i) * 7
		}
		must(t, b.GSI().PostRecv(RecvWR{ID: 5, SGEs: []SGE{{to.IOVA, mad + GRHSize, 0}}}))
		must(t, a.GSI().PostSend(h.Request(SendWR{ID: 6, Op: IRDMA_OP_TYPE_SEND, Signalled: true, SGEs: []SGE{{from.IOVA, mad, 0}}}, 1, OwnQKey)))
		take := func(r *IRDMA, n int) (list []WC) {
			must(t, r.gsiCQ.PollFor(n, func(wc WC) error { list = append(list, wc); return nil }))
			return list
		}
		var list []WC
		if a == b {
			list = take(a, 2)
		} else {
			list = append(take(a, 1), take(b, 1)...)
		}
		for _, wc := range list {
			if wc.Status != Success || wc.Send && wc.ID != 6 || !wc.Send && (wc.ID != 5 || wc.Len != mad+GRHSize || wc.From.QP != 1) {
				t.Errorf("completion %+v", wc)
			}
		}
		if !bytes.Equal(to.Bytes()[GRHSize:][:mad], from.Bytes()[:mad]) {
			t.Error("another MAD came")
		}
		must(t, h.Destroy())
		from.Free()
		to.Free()
		d.end(t)
	})
}

// A group has members at both ends; each gets what anybody sends to it, once.
func TestMulticast(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(9, uint64(d.way)))
		for _, ipv6 := range []bool{false, true} {
			sides := []*side{newDatagramSide(t, d.a.r, rnd, false), newDatagramSide(t, d.a.r, rnd, true),
				newDatagramSide(t, d.b.r, rnd, true), newDatagramSide(t, d.b.r, rnd, true)}
			groups := map[*IRDMA]*Group{}
			for _, s := range sides[:3] { // the last is none
				r := s.qp.r
				if groups[r] == nil {
					groups[r] = r.NewGroup(r.AddressOfGroup(3, pairPD, ipv6))
				}
				must(t, groups[r].Attach(s.qp))
			}
			before, _ := d.counters(t)
			for i, from := range []*side{sides[0], sides[2], sides[3]} {
				h := newHandle(t, from.qp.r, from.qp.r.AddressOfGroup(3, pairPD, ipv6))
				for _, s := range sides {
					must(t, s.qp.PostRecv(RecvWR{ID: 9, SGEs: []SGE{s.sge(32<<10, 1000)}}))
				}
				must(t, from.qp.PostSend(h.Request(SendWR{ID: 8, Op: IRDMA_OP_TYPE_SEND, Signalled: true, SGEs: []SGE{from.sge(0, 600)}}, MulticastQP, gsiQKey)))
				for k, s := range sides {
					want := 0
					if k < 3 {
						want++
					}
					if s == from {
						want++
					}
					for _, wc := range s.wait(t, want) {
						if wc.Status != Success || !wc.Send && (wc.Len != 640 || wc.From.QP != from.qp.ID) {
							t.Errorf("datagram %d: member %d has %+v", i, k, wc)
						}
					}
					if k < 3 && !bytes.Equal(s.bytes(32<<10+GRHSize, 600), from.bytes(0, 600)) {
						t.Errorf("datagram %d: member %d has another payload", i, k)
					}
				}
				for k := range sides[:3] {
					sides[k].nothing(t)
				}
				must(t, h.Destroy())
			}
			after, _ := d.counters(t)
			name := IP4OutMcastPkts
			if ipv6 {
				name = IP6OutMcastPkts
			}
			if n := after[name] - before[name]; n == 0 {
				t.Errorf("%s has not moved", name)
			}
			for _, s := range sides[:3] {
				must(t, groups[s.qp.r].Detach(s.qp))
			}
			endSides(t, sides...)
		}
		d.end(t)
	})
}

// What is wrong with a datagram stops its QP, with the status that tells why.
func TestDatagramErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		status Status
		code   uint16
		make   func(t *testing.T, a *side, h *AH) (w SendWR, other *AH)
	}{
		{"no such handle", WRFlushErr, IRDMA_AE_INVALID_AH_ENTRY, func(t *testing.T, a *side, h *AH) (SendWR, *AH) {
			w := a.send(2, 0, 10)
			gone := newHandle(t, a.qp.r, h.Attr)
			must(t, gone.Destroy())
			return gone.Request(w, a.qp.ID, gsiQKey), nil
		}},
		{"handle of another PD", LocQPOpErr, IRDMA_AE_UDA_XMIT_BAD_PD, func(t *testing.T, a *side, h *AH) (SendWR, *AH) {
			attr := h.Attr
			attr.PD++
			other := newHandle(t, a.qp.r, attr)
			return other.Request(a.send(2, 0, 10), a.qp.ID, gsiQKey), other
		}},
		{"longer than the MTU", LocLenErr, IRDMA_AE_UDA_XMIT_DGRAM_TOO_LONG, func(t *testing.T, a *side, h *AH) (SendWR, *AH) {
			return h.Request(a.send(2, 0, 1025), a.qp.ID, gsiQKey), nil
		}},
		{"wrong lkey", LocProtErr, IRDMA_AE_AMP_BAD_STAG_KEY, func(t *testing.T, a *side, h *AH) (SendWR, *AH) {
			w := h.Request(a.send(2, 0, 10), a.qp.ID, gsiQKey)
			w.SGEs[0].LKey ^= 1
			return w, nil
		}},
		{"no datagram", LocQPOpErr, IRDMA_AE_WQE_UNEXPECTED_OPCODE, func(t *testing.T, a *side, h *AH) (SendWR, *AH) {
			w := h.Request(a.send(2, 0, 10), a.qp.ID, gsiQKey)
			w.Op = IRDMA_OP_TYPE_RDMA_WRITE
			return w, nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDuo(t, duoOptions{way: loopback})
			rnd := rand.New(rand.NewPCG(3, 3))
			a := newDatagramSide(t, d.a.r, rnd, true)
			h := newHandle(t, d.a.r, d.a.r.AddressOf(d.a.r, pairPD, false))
			must(t, a.qp.PostRecv(RecvWR{ID: 11, SGEs: []SGE{a.sge(1000, 100)}}, RecvWR{ID: 12, SGEs: []SGE{a.sge(2000, 100)}}))
			good := h.Request(a.send(1, 0, 20), a.qp.ID, gsiQKey)
			bad, other := c.make(t, a, h)
			last := good
			last.ID = 3
			must(t, a.qp.PostSend(good, bad, last))
			status := map[uint64]Status{}
			for _, wc := range a.wait(t, 5) {
				status[wc.ID] = wc.Status
			}
			for id, want := range map[uint64]Status{1: Success, 2: c.status, 3: WRFlushErr, 12: WRFlushErr} {
				if status[id] != want {
					t.Errorf("request %d ended %v, want %v", id, status[id], want)
				}
			}
			if n := len(d.a.r.AEs); n != 1 || d.a.r.AEs[0].Code != c.code || d.a.r.AEs[0].Source != aeSourceSQ {
				t.Errorf("events %+v", d.a.r.AEs)
			}
			if other != nil {
				must(t, other.Destroy())
			}
			must(t, h.Destroy())
			endSides(t, a)
			d.end(t)
		})
	}
}

// Datagrams that nobody takes are gone, and the next ones come.
func TestDatagramsDropped(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(5, uint64(d.way)))
		a, b := newDatagramSide(t, d.a.r, rnd, true), newDatagramSide(t, d.b.r, rnd, true)
		h := newHandle(t, d.a.r, d.a.r.AddressOf(d.b.r, pairPD, false))
		send := func(n int, qp, qkey uint32) {
			must(t, a.qp.PostSend(h.Request(a.send(1, 0, n), qp, qkey)))
			a.waitFor(t, sent(1, Success))
		}
		send(10, b.qp.ID, gsiQKey) // no receive WQE
		_, before := d.counters(t)
		for { // until it has come
			if _, now := d.counters(t); now[IP4InDiscards] > 0 {
				break
			}
		}
		must(t, b.qp.PostRecv(RecvWR{ID: 7, SGEs: []SGE{b.sge(0, 100)}}))
		send(61, b.qp.ID, gsiQKey)   // too long
		send(10, b.qp.ID, gsiQKey+1) // wrong QKEY
		send(10, 0x3ffff, gsiQKey)   // nobody
		send(60, b.qp.ID, gsiQKey)
		b.waitFor(t, received(7, Success))
		if _, after := d.counters(t); after[IP4InDiscards]-before[IP4InDiscards] < 3 {
			t.Errorf("%d discards", after[IP4InDiscards]-before[IP4InDiscards])
		}
		must(t, h.Destroy())
		endSides(t, a, b)
		d.end(t)
	})
}

// Datagrams that are on their way when their receiver ends, or its memory does,
// do not arrive any more once the driver is told.
func TestDatagramsAtTheEnd(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(6, uint64(d.way)))
		for round, end := range []func(s *side) error{
			func(s *side) error { return s.qp.Destroy() },
			func(s *side) error { return s.mem.mr.Dereg() },
			func(s *side) error { _, err := s.qp.Modify(IRDMA_QP_STATE_ERROR); return err },
			func(s *side) error { return s.qp.Destroy() },
		} {
			a, b := newDatagramSide(t, d.a.r, rnd, true), newDatagramSide(t, d.b.r, rnd, round < 3)
			h := newHandle(t, d.a.r, d.a.r.AddressOf(d.b.r, pairPD, false))
			const count = 60
			var sends []SendWR
			for i := range count {
				must(t, b.qp.PostRecv(RecvWR{ID: uint64(i), SGEs: []SGE{b.sge(1024*i, 1000)}}))
				w := h.Request(a.send(uint64(i), 0, 900), b.qp.ID, gsiQKey)
				w.Signalled = i == count-1
				sends = append(sends, w)
			}
			must(t, a.qp.PostSend(sends...))
			must(t, end(b))
			b.mem.Poison(0, b.mem.Size)
			before := b.bytes(0, b.mem.Size)
			a.waitFor(t, sent(count-1, Success))
			d.counters(t) // what was sent has come by now, or soon
			if !bytes.Equal(before, b.bytes(0, b.mem.Size)) {
				t.Errorf("round %d: written after the end", round)
			}
			must(t, h.Destroy())
			if round == 1 {
				b.mem.mr = nil
				if !b.qp.gone {
					must(t, b.qp.r.Work())
				}
			}
			endSides(t, a, b)
		}
		d.end(t)
	})
}
