// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// crowdedCable is a cable that tells when to wait.
type crowdedCable struct {
	*cableOf
	crowded bool
}

func (c *crowdedCable) Crowded(dst [6]byte) bool {
	if dst != c.far {
		c.t.Errorf("asked for %x", dst)
	}
	return c.crowded
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
