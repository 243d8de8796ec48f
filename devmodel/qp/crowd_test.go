// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// crowdedCable is a cable that tells when to wait.
type crowdedCable struct {
	*cableOf
	crowded bool
	brief   bool // ask once, and the crowd is over
}

func (c *crowdedCable) Crowded(dst [6]byte) bool {
	if dst != c.far {
		c.t.Errorf("asked for %x", dst)
	}
	was := c.crowded
	c.crowded = was && !c.brief
	return was
}

// Payload waits while the way is crowded, without a retransmission, and goes on
// when it is not; what has no payload does not wait.
func TestCrowdedWire(t *testing.T) {
	c := &crowdedCable{cableOf: &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}, crowded: true}
	b := newBench(t, func(q *qp.Config) { q.Wire = c })
	b.cable, c.b = c.cableOf, b
	_, x, y := b.connect()
	p := b.fill(data, 100_000, 3)
	i := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100_000}}, raddr: data + 0x40000, key: rkey})
	x.ring()
	y.post(wr{op: opRead, sges: []sge{{data + 0x80000, 3000}}, raddr: data, key: rkey})
	y.ring()
	b.drain()
	if len(c.sent) != 1 || c.sent[0] != "2 RDMA_READ_REQUEST 16777205" {
		t.Fatalf("sent %v", c.sent)
	}
	for range 5 {
		b.clock.Advance(time.Millisecond)
		b.drain()
	}
	if len(c.sent) != 1 {
		t.Fatalf("sent %v", c.sent)
	}
	c.crowded = false
	b.clock.Advance(time.Millisecond)
	b.drain()
	b.wantCQ(2, x.sent(i, 0))
	b.same(p, data+0x40000)
	b.same(p[:3000], data+0x80000)
	if o := b.outcome(); o.Stats[216] != 0 || o.Events != "[] []" {
		t.Errorf("%d packets were sent again; %s", o.Stats[216], o.Events)
	}
}

// A crowd may be over between the response that waits for it and the request
// behind that: the response is not forgotten.
func TestCrowdEndsMeanwhile(t *testing.T) {
	c := &crowdedCable{cableOf: &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}, brief: true}
	b := newBench(t, func(q *qp.Config) { q.Wire = c })
	b.cable, c.b = c.cableOf, b
	_, x, y := b.connect()
	c.fate = func(p *wire.Packet) int {
		if p.Opcode == wire.WriteOnly {
			return 0
		}
		return 1
	}
	c.held = true
	i := y.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x80000, 300}}, raddr: data, key: rkey})
	y.ring()
	b.drain()
	x.post(wr{op: opWrite, sges: []sge{{data, 10}}, raddr: data + 0x40000, key: rkey})
	c.crowded = true
	c.release()
	x.ring()
	b.drain()
	if len(b.cqes[5]) != 0 {
		t.Fatal("the response did not wait")
	}
	b.clock.Advance(time.Millisecond)
	b.drain()
	b.wantCQ(5, y.sent(i, 1))
}

// Who waits does not use up its retries, and finds out that the peer is gone when
// there is no crowd any more.
func TestCrowdedLong(t *testing.T) {
	c := &crowdedCable{cableOf: &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}, fate: func(*wire.Packet) int { return 0 }}, crowded: true}
	b := newBench(t, func(q *qp.Config) { q.Wire = c })
	b.cable, c.b = c.cableOf, b
	_, x, _ := b.connect()
	c.crowded = false
	x.post(wr{op: opWrite, sges: []sge{{data, 10}}, raddr: data + 0x40000, key: rkey})
	x.ring()
	b.drain()
	c.crowded = true
	x.post(wr{op: opWrite, sges: []sge{{data, 10}}, raddr: data + 0x40000, key: rkey})
	x.ring()
	for range 10_000 {
		b.drain()
		b.clock.Advance(time.Millisecond)
	}
	if len(b.aes) != 0 || len(c.sent) != 1 {
		t.Fatalf("in the crowd: sent %v, events %v", c.sent, b.aes)
	}
	c.crowded = false
	for range 5000 {
		b.drain()
		b.clock.Advance(time.Millisecond)
	}
	if len(b.aes) != 1 || b.aes[0].Code != 0x050A {
		t.Errorf("events %v", b.aes)
	}
}

// Datagrams wait, too, once there is a crowd where the last one went.
func TestCrowdedDatagrams(t *testing.T) {
	b, out, s := datagrams(t, nil, 2)
	x := s[0]
	out.crowded = true
	for range 3 {
		x.post(wr{op: opSend, sges: []sge{{data, 10}}}.to(farAH, 5, qkey))
	}
	x.ring()
	b.drain()
	if len(out.frames) != 1 {
		t.Fatalf("%d frames", len(out.frames))
	}
	b.clock.Advance(time.Millisecond)
	b.drain()
	if len(out.frames) != 1 {
		t.Fatalf("%d frames", len(out.frames))
	}
	out.crowded = false
	b.clock.Advance(time.Millisecond)
	b.drain()
	if len(out.frames) != 3 {
		t.Errorf("%d frames", len(out.frames))
	}
}
