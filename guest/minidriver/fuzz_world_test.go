// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
)

// roceWorld is a card with both drivers on it, and no other station in the world
// than the fuzzer.
type roceWorld struct {
	i      *ICE
	w      *wire
	r      *IRDMA
	rnd    *rand.Rand
	before Counters
}

const (
	fuzzPeerQP  = 0x77 // the peer of fuzzed QPs, which is the fuzzer
	fuzzPeerARP = 7
	fuzzMTU     = 256
	// fuzzFrames bounds the frames of an input: so many wait in all queues on
	// the way without loss.
	fuzzFrames = 40
)

func newRoceWorld(f *testing.F, seed uint64) *roceWorld {
	i, w, _ := wiredIn(f, context.Background(), Linux73(), Options{})
	i.F.Patience = fuzzPatience
	r, err := ProbeRDMA(i, Options{})
	if err != nil {
		f.Fatal(err)
	}
	if err := r.SetARP(fuzzPeerARP, [6]byte(worldMAC)); err != nil {
		f.Fatal(err)
	}
	return &roceWorld{i: i, w: w, r: r, rnd: rand.New(rand.NewPCG(21, seed))}
}

// connected is a QP in RTS whose peer is the fuzzer.
func (x *roceWorld) connected(t *testing.T, retries, rnrTries uint8) *side {
	a, err := newSide(x.r, x.rnd, pairOptions{attr: func(q *QPAttr) {
		q.DestQP, q.ARP, q.MTU, q.Retries, q.RNRTries = fuzzPeerQP, fuzzPeerARP, fuzzMTU, retries, rnrTries
		q.DestIP[3]++
	}})
	must(t, err)
	must(t, a.qp.ToRTS())
	return a
}

// begin notes where counters stand, and forgets what was.
func (x *roceWorld) begin(t *testing.T) {
	x.w.t = t
	x.r.AEs, x.r.cqp.trace, x.i.aq.trace = nil, nil, nil
	onWire(t, x.i, x.w, x.i.queues[0]) // of QPs that were
	var err error
	x.before, err = x.r.ReadCounters()
	must(t, err)
}

// settle waits until the card has counted n packets since begin, which it does
// when it is done with them, and returns how far all counters have come.
func (x *roceWorld) settle(t *testing.T, n int) Counters {
	return x.settleWhen(t, n, func(Counters) bool { return true })
}

// settleWhen is settle until done is true as well.
func (x *roceWorld) settleWhen(t *testing.T, n int, done func(Counters) bool) (now Counters) {
	err := x.i.F.poll("packets to be counted", func() bool {
		must(t, x.r.Work())
		c, err := x.r.ReadCounters()
		must(t, err)
		for name := range c {
			c[name] -= x.before[name]
		}
		now = c
		return now[IP4InPkts] >= uint64(n) && done(now)
	})
	if err != nil {
		t.Fatalf("%v: %d of %d, %+v", err, now[IP4InPkts], n, x.r.AEs)
	}
	if now[IP4InPkts] != uint64(n) {
		t.Errorf("%d packets came, %d were sent", now[IP4InPkts], n)
	}
	return now
}

// dropped are the packets that went no further.
func (c Counters) dropped() (n uint64) {
	for _, name := range []Counter{IP4InDiscards, IP4InTruncated, IP4InReasmRqd, RxVlanErrors} {
		n += c[name]
	}
	return n
}

// packet is what the card sent to the fuzzer.
type packet struct {
	opcode uint8
	ack    bool
	psn    uint32
	ext    []byte
	data   []byte
}

// sent are the RoCE packets that the card has sent, looked at for what is the
// same in all.
func (x *roceWorld) sent(t *testing.T, q *QP) (list []packet) { return x.sentAfter(t, q, nil) }

// sentAfter is sent behind frames that were taken already.
func (x *roceWorld) sentAfter(t *testing.T, q *QP, frames [][]byte) (list []packet) {
	const ip, bth = 14, 14 + 20 + 8
	for _, f := range append(frames, onWire(t, x.i, x.w, x.i.queues[0])...) {
		if be.Uint16(f[12:]) != 0x0800 || f[ip+9] != 17 {
			continue
		}
		end := ip + int(be.Uint16(f[ip+2:]))
		if end > len(f) || end < bth+12+4 || be.Uint16(f[ip+20+2:]) != roceUDPPort {
			t.Fatalf("on the wire % x", f)
		}
		at := &q.Attr
		if be.Uint32(f[ip+12:]) != at.LocalIP[3] || be.Uint32(f[ip+16:]) != at.DestIP[3] || [6]byte(f) != [6]byte(worldMAC) {
			t.Errorf("on the wire, to somebody else: % x", f)
		}
		if want := icrcOf(f[ip : end-4]); le.Uint32(f[end-4:]) != want {
			t.Errorf("ICRC %#x, want %#x", le.Uint32(f[end-4:]), want)
		}
		b := f[bth : end-4]
		o, ok := rcOperations[b[0]]
		pad := int(b[1] >> 4 & 3)
		if !ok || len(b) < 12+o.ext+pad || be.Uint32(b[4:]) != fuzzPeerQP || be.Uint16(b[2:]) != 0xffff || b[1]&0xf != 0 {
			t.Fatalf("packet % x", b)
		}
		list = append(list, packet{b[0], b[8]&0x80 != 0, be.Uint32(b[8:]) & 0xffffff, b[12 : 12+o.ext], b[12+o.ext : len(b)-pad]})
	}
	return list
}

// icrcOf is the invariant CRC of a packet of IPv4 from there on.
func icrcOf(b []byte) uint32 {
	b = slices.Clone(b)
	for _, at := range []int{1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4} {
		b[at] = 0xff
	}
	return crc32.ChecksumIEEE(slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, b))
}

// rcOperation is what an opcode of reliable connections means.
type rcOperation struct {
	kind        byte // of send, write, read request, response, acknowledgement, unsupported
	first, last bool
	imm, inv    bool
	ext         int // bytes of headers behind the BTH
}

// rcOperations are all that cards know (rxe_opcode.c:rxe_opcode).
var rcOperations = map[uint8]rcOperation{
	0x00: {kind: 's', first: true}, 0x01: {kind: 's'}, 0x02: {kind: 's', last: true}, 0x03: {kind: 's', last: true, imm: true, ext: 4},
	0x04: {kind: 's', first: true, last: true}, 0x05: {kind: 's', first: true, last: true, imm: true, ext: 4},
	0x06: {kind: 'w', first: true, ext: 16}, 0x07: {kind: 'w'}, 0x08: {kind: 'w', last: true}, 0x09: {kind: 'w', last: true, imm: true, ext: 4},
	0x0a: {kind: 'w', first: true, last: true, ext: 16}, 0x0b: {kind: 'w', first: true, last: true, imm: true, ext: 20},
	0x0c: {kind: 'r', first: true, last: true, ext: 16},
	0x0d: {kind: 'd', first: true, ext: 4}, 0x0e: {kind: 'd'}, 0x0f: {kind: 'd', last: true, ext: 4}, 0x10: {kind: 'd', first: true, last: true, ext: 4},
	0x11: {kind: 'a', ext: 4}, 0x13: {kind: 'u', ext: 28}, 0x14: {kind: 'u', ext: 28},
	0x16: {kind: 's', last: true, inv: true, ext: 4}, 0x17: {kind: 's', first: true, last: true, inv: true, ext: 4},
	0x1c: {kind: 'u', ext: 20}, 0x1d: {kind: 'u', ext: 16},
}

// fuzzInput is taken from the front; behind its end there are zeros.
type fuzzInput []byte

func (in *fuzzInput) take(n int) (v uint64) {
	for range n {
		v <<= 8
		if len(*in) > 0 {
			v |= uint64((*in)[0])
			*in = (*in)[1:]
		}
	}
	return v
}

// frame is a good frame of the fuzzer to a QP.
func (x *roceWorld) frame(q *QP) roceFrame {
	at := &q.Attr
	return roceFrame{dstMAC: x.i.MAC, srcMAC: [6]byte(worldMAC), src: at.DestIP, dst: at.LocalIP, ttl: 9, qp: q.ID, psn: at.RecvPSN}
}

// fates are what may be wrong with a frame so that no card acts on it, by
// number. It tells whether something is.
func (r *roceFrame) fate(n uint8) (lost bool) {
	switch n & 7 {
	case 4:
		r.badICRC = true
	case 5:
		r.qp ^= 1 << 11
	case 6:
		r.src[3] ^= 1 << 8
	case 7:
		r.pkey = 0xfffe
	default:
		return false
	}
	return true
}

// psnAhead is how far PSN a is ahead of b.
func psnAhead(a, b uint32) int32 { return int32((a-b)<<8) >> 8 }
