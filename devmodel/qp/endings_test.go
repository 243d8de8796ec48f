// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

var suspended = event.AE{Code: 0x900, Context: compCtx + 2, ID: 2, State: 2}

// wantAEs checks the events since the last time.
func (b *bench) wantAEs(want ...event.AE) {
	b.Helper()
	if d := cmp.Diff(want, b.aes); d != "" {
		b.Errorf("events:\n%s", d)
	}
	b.aes = nil
}

// later lets d pass.
func (b *bench) later(d time.Duration) {
	b.Helper()
	b.clock.Advance(d)
	b.drain()
}

// stops are the ways to stop a QP's requester, and to let it go on.
var stops = map[string]struct{ stop, goOn func(*bench, *side) }{
	"SQD":     {func(_ *bench, x *side) { x.modify(qp.SQD) }, func(_ *bench, x *side) { x.modify(qp.RTS) }},
	"suspend": {func(b *bench, x *side) { b.ok(b.table.Suspend(2)) }, func(b *bench, x *side) { b.ok(b.table.Resume(2, 7)) }},
}

// Stopped under traffic, a QP ends what it has begun, also what is lost on the
// way, and only then says so; requests of its peer go on all the time. Then it
// goes on where it was.
func TestStopUnderTraffic(t *testing.T) {
	for name, s := range stops {
		t.Run(name, func(t *testing.T) {
			b, x, y, c := cabled(t)
			p := b.fill(data, 0x40000, 3)
			deaf := true
			c.fate = func(p *wire.Packet) int {
				if deaf && p.DestQP == 5 && !wire.IsResponse(p.Opcode) && p.PSN&3 == 3 {
					return 0
				}
				return 1
			}
			var want []event.Entry
			for i := range uint64(2) {
				want = append(want, x.sent(x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data + i*0x10000, 0x10000}},
					raddr: data + 0x100000 + i*0x10000, key: rkey}), 0))
			}
			x.ring()
			b.engine.Drain(4)
			s.stop(b, x)
			deaf = false
			b.wantAEs()
			late := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 0x8000}}, raddr: data + 0x150000, key: rkey})
			x.ring()
			other := y.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x160000, 0x8000}}, raddr: data, key: rkey})
			y.ring()
			b.drain()
			b.later(time.Second)
			b.wantCQ(2, want...)
			b.wantCQ(5, y.sent(other, 1))
			b.wantAEs(suspended)
			b.same(p[:0x20000], data+0x100000)
			b.same(p[:0x8000], data+0x160000)
			s.goOn(b, x)
			b.drain()
			b.wantCQ(2, x.sent(late, 0))
			b.same(p[:0x8000], data+0x150000)
			b.wantAEs()
		})
	}
}

// A QP that has failed while it drains says that, and not that it is drained:
// but the driver waits for the end of each suspension.
func TestFailureWhileDraining(t *testing.T) {
	for name, s := range stops {
		b, x, _, c := cabled(t)
		c.fate = func(*wire.Packet) int { return 0 }
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: data, key: rkey})
		x.ring()
		b.drain()
		s.stop(b, x)
		for range 10 {
			b.later(time.Second)
		}
		ended := event.AE{Code: 0x900, Context: compCtx + 2, ID: 2, State: 6}
		want := []event.AE{{Code: 0x050A, Source: 5, Context: compCtx + 2, ID: 2, State: 6}}
		if name == "suspend" {
			want = append(want, ended)
		}
		b.wantAEs(want...)
		// Suspended when it has failed, it has nothing to do at once.
		b.ok(b.table.Suspend(2))
		b.wantAEs(ended)
		x.modify(qp.Error)
		b.wantAEs()
	}
}

// The driver may end a QP that it has suspended before that is done.
func TestErrorWhileSuspending(t *testing.T) {
	b, x, _, c := cabled(t)
	c.fate = func(*wire.Packet) int { return 0 }
	x.post(wr{op: opWrite, sges: []sge{{data, 100}}, raddr: data, key: rkey})
	x.ring()
	b.drain()
	b.ok(b.table.Suspend(2))
	b.wantAEs()
	x.modify(qp.Error)
	b.wantAEs(event.AE{Code: 0x900, Context: compCtx + 2, ID: 2, State: 6})
}

// Work posted to a QP in ERROR is found by the next flush, and by that alone;
// one CQE each time, on the queue that has something.
func TestFlushAgain(t *testing.T) {
	b, x, y, c := cabled(t)
	b.fill(data, 5000, 1)
	x.receive(sge{data, 100})
	x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 5000}}})
	x.ring()
	b.drain()
	x.modify(qp.Error)
	c.sent = nil
	for round := range 5 {
		sq, rq, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true, RQ: true})
		b.ok(err)
		if n := len(b.cqes[2]) + len(b.cqes[3]); sq != (round%2 == 0) || rq != (round == 0 || round == 3) || n != btoi(sq)+btoi(rq) {
			t.Errorf("round %d: flushed %t %t, %d CQEs", round, sq, rq, n)
		}
		b.cqes = map[uint32][]event.Entry{}
		if round%2 == 1 {
			x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 50}}})
			x.post(wr{op: opWrite})
			x.ring()
		}
		if round == 2 {
			x.receive(sge{data, 100})
		}
		y.post(wr{op: opSend, sges: []sge{{data, 10}}})
		y.ring()
		b.drain()
		b.later(time.Second)
		if len(b.cqes[2])+len(b.cqes[3]) != 0 {
			t.Errorf("round %d: completions without a flush", round)
		}
	}
	for _, s := range c.sent {
		if strings.HasPrefix(s, "5 ") {
			t.Errorf("sent in ERROR: %s", s)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A change of the path takes effect at RTS -> RTS, in the middle of traffic, and
// nothing else does: not the PSNs, which the context gives as at the start.
func TestModifyUnderTraffic(t *testing.T) {
	b, x, _, c := cabled(t)
	p := b.fill(data, 0x20000, 3)
	lost := map[string]int{}
	c.fate = func(p *wire.Packet) int {
		k := fmt.Sprint(p.DestQP, " ", p.PSN)
		if lost[k]++; p.PSN%5 == 2 && lost[k] == 1 {
			return 0
		}
		return 1
	}
	w := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 0x20000}}, raddr: data + 0x100000, key: rkey})
	r := x.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x180000, 0x20000}}, raddr: data, key: rkey})
	x.ring()
	for i := range uint64(6) {
		b.engine.Drain(3)
		put(&x.ctx, 24, 4791<<48|(0xC200+i)<<32|0x40<<24|7<<12|4<<8|33)
		c.far[5]++
		x.modify(qp.RTS)
		// What is rewritten in memory without a command counts for nothing.
		put(&x.ctx, 80, 0xFFFF<<32|77)
	}
	b.drain()
	for range 5 {
		b.later(time.Second)
	}
	b.wantCQ(2, x.sent(w, 0), x.sent(r, 1))
	b.same(p, data+0x100000)
	b.same(p, data+0x180000)
	b.wantAEs()
	x.post(wr{op: opWrite, flags: signalled})
	x.ring()
	c.held = true
	b.drain()
	if got := c.path; got.SourcePort != 0xC205 || got.TrafficClass != 0x40 || got.HopLimit != 33 || got.DestMAC != c.far {
		t.Errorf("path %+v", got)
	}
}

// Frames that wait for a QP, and those that come late, end with it: nothing is
// written, and their memory is free.
func TestEndWithFramesUnderWay(t *testing.T) {
	ends := map[string]func(*bench, *side){
		"destroy": func(b *bench, y *side) { b.ok(b.table.Destroy(5)) },
		"ERROR":   func(b *bench, y *side) { y.modify(qp.Error) },
		"reset":   func(b *bench, y *side) { b.table.Reset(0) },
	}
	for name, end := range ends {
		for _, op := range []uint64{opWrite, opSend} {
			b, x, y, c := cabled(t)
			b.fill(data, 0x20000, 1)
			y.receive(sge{data + 0x100000, 0x20000})
			x.post(wr{op: op, flags: signalled, sges: []sge{{data, 0x20000}}, raddr: data + 0x100000, key: rkey})
			x.ring()
			b.engine.Drain(1) // x has sent, y has not looked
			if b.table.Waiting() == 0 {
				t.Fatal("no frame waits")
			}
			end(b, y)
			before := b.read(data+0x100000, 0x20000)
			b.drain()
			c.again()
			b.drain()
			b.same(before, data+0x100000)
			if n := b.table.Waiting(); n != 0 {
				t.Errorf("%s: %d bytes of frames wait still", name, n)
			}
			if len(b.cqes[6]) != 0 {
				t.Errorf("%s: %v", name, b.cqes[6])
			}
		}
	}
}
