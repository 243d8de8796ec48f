// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// failures are errors of the transport: what the driver learns on both sides,
// and what the responder says on the wire.
var failures = map[string]struct {
	do       func(b *bench, x, y *side)
	codeX    uint16 // source 5
	wqe      uint16 // the failing one
	codeY    uint16
	sourceY  uint8
	nak      string
	complete int // completions of X before
}{
	"RNR retries": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opSend, sges: []sge{{data, 100}}})
	}, codeX: 0x050F, nak: "0x2c"},
	"retries": {do: func(b *bench, x, y *side) {
		y.modify(qp.Error)
		x.post(wr{op: opWrite, sges: []sge{{data, 100}}, raddr: data, key: rkey})
	}, codeX: 0x050A},
	"no such QP": {do: func(b *bench, x, y *side) {
		b.ok(b.table.Destroy(5))
		x.post(wr{op: opRead, sges: []sge{{data, 100}}, raddr: data, key: rkey})
	}, codeX: 0x050A},
	"remote STag": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: data, key: rkey})
		x.post(wr{op: opWrite, sges: []sge{{data, 100}}, raddr: data, key: 0x333})
	}, codeX: 0x020D, wqe: 1, codeY: 0x0102, sourceY: 9, nak: "0x62", complete: 1},
	"remote right": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opRead, sges: []sge{{data, 100}}, raddr: data, key: lkey})
	}, codeX: 0x020D, codeY: 0x0109, sourceY: 9, nak: "0x62"},
	"local STag": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opRead, flags: signalled, sges: []sge{{data, 10000}}, raddr: data, key: rkey})
		x.post(wr{op: opWrite, sges: []sge{{data, 100}}, raddr: data, key: rkey, stag: 0x444})
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: data, key: rkey})
	}, codeX: 0x0102, wqe: 1, complete: 1},
	"local bounds": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opWrite, sges: []sge{{data + dataSize - 10, 11}}, raddr: data, key: rkey})
	}, codeX: 0x0108},
	"opcode": {do: func(b *bench, x, y *side) {
		x.post(wr{op: 0x2A})
	}, codeX: 0x020A},
	"longer than 2^31": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opSend, sges: []sge{{data, 1<<31 - 1}, {data, 1}}})
	}, codeX: 0x0305},
	"inline too long": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opSend, inline: make([]byte, 102)})
	}, codeX: 0x020B},
	"inline read": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opRead, inline: make([]byte, 8)})
	}, codeX: 0x020B},
	"fifteen more fragments": {do: func(b *bench, x, y *side) {
		x.post(wr{op: opSend, header: 15 << 38})
	}, codeX: 0x020B},
	"crosses eight quanta": {do: func(b *bench, x, y *side) {
		for range 7 {
			x.post(wr{op: opNOP})
		}
		x.post(wr{op: opSend, header: 2 << 38})
	}, codeX: 0x020B, wqe: 7},
	"buffer too small": {do: func(b *bench, x, y *side) {
		y.receive(sge{data + 0x8000, 99})
		x.post(wr{op: opSend, sges: []sge{{data, 100}}})
	}, codeX: 0x0208, codeY: 0x0303, sourceY: 1, nak: "0x61"},
	"fragments of a receive WQE": {do: func(b *bench, x, y *side) {
		b.ok(b.mem.Store64(y.base+rqAt+24, 1<<63|3<<38))
		x.post(wr{op: opSend, sges: []sge{{data, 100}}})
	}, codeX: 0x020E, codeY: 0x020C, sourceY: 1, nak: "0x63"},
	"receive buffer's STag": {do: func(b *bench, x, y *side) {
		y.receive(sge{data + dataSize, 100})
		x.post(wr{op: opSend, sges: []sge{{data, 100}}})
	}, codeX: 0x020E, codeY: 0x0108, sourceY: 1, nak: "0x63"},
	"invalidation": {do: func(b *bench, x, y *side) {
		y.receive(sge{data, 100})
		x.post(wr{op: 4, sges: []sge{{data, 100}}, key: lkey})
	}, codeX: 0x020D, codeY: 0x0112, sourceY: 9, nak: "0x62"},
	"memory behind a region is gone": {do: func(b *bench, x, y *side) {
		b.regions[0x777] = region{0, 1 << 20, pd, all}
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: 0, key: 0x777})
	}, codeX: 0x020E, codeY: 0x0700, sourceY: 9, nak: "0x63"},
	"memory behind the source is gone": {do: func(b *bench, x, y *side) {
		b.regions[0x777] = region{0, 1 << 20, pd, all}
		x.post(wr{op: opWrite, sges: []sge{{0, 100}}, stag: 0x777, raddr: data, key: rkey})
	}, codeX: 0x0700},
	"source ends while it is sent": {do: func(b *bench, x, y *side) {
		b.regions[0x777] = region{data, dataSize, pd, all}
		x.post(wr{op: opRead, flags: signalled, sges: []sge{{data, 100}}, raddr: data, key: rkey})
		x.post(wr{op: opWrite, sges: []sge{{data, 0x10000}, {data, 0x10000}}, stag: 0x777, raddr: data + 0x80000, key: rkey})
		n := 0
		b.onResolve = func(stag uint32) {
			if n++; stag == 0x777 && n > 1 {
				delete(b.regions, 0x777)
			}
		}
	}, codeX: 0x0102, wqe: 1, complete: 1},
	"source of a response ends": {do: func(b *bench, x, y *side) {
		b.regions[0x777] = region{data, dataSize, pd, all}
		x.post(wr{op: opRead, sges: []sge{{data + 0x80000, 0x20000}}, raddr: data, key: 0x777})
		n := 0
		b.onResolve = func(stag uint32) {
			if n++; stag == 0x777 && n > 1 {
				delete(b.regions, 0x777)
			}
		}
	}, codeX: 0x020D, codeY: 0x0102, sourceY: 9, nak: "0x62"},
	"completion queue full": {do: func(b *bench, x, y *side) {
		b.full = true
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: data, key: rkey})
	}, codeX: 0x0700},
}

// A message that ends an STag waits for the responses of a read before it, as
// peers may send it, and one of those cannot be read: that is what both learn.
func TestUnreadableResponseBeforeInvalidation(t *testing.T) {
	b, x, y, c := cabled(t)
	b.regions[0x777] = region{data, dataSize, pd, all}
	c.held = true
	y.receive(sge{data, 100})
	x.post(wr{op: opRead, sges: []sge{{data + 0x80000, 0x40000}}, raddr: data, key: 0x777})
	x.ring()
	b.drain()
	p := wire.Packet{Opcode: wire.SendOnlyInv, AckReq: true, PKey: 0xFFFF, DestQP: 5, PSN: (0xFFFFF2 + 0x100) & 0xFFFFFF, Inv: 0x999}
	c.kept = append(c.kept, p.Encode(make([]byte, 128), &c.path, 0))
	n := 0
	b.onResolve = func(stag uint32) {
		if n++; stag == 0x777 && n > 3 {
			delete(b.regions, 0x777)
		}
	}
	c.release()
	b.drain()
	if len(b.aes) != 2 || b.aes[0].ID != 5 || b.aes[0].Code != 0x0102 || b.aes[1].ID != 2 || b.aes[1].Code != 0x020D {
		t.Errorf("%+v", b.aes)
	}
}

// Errors of the transport as the driver sees them: an event, no completion,
// and a flush that reports the oldest WQE. The wire sees one NAK, and then
// nothing more, whatever comes.
func TestFailures(t *testing.T) {
	for name, tt := range failures {
		for _, cable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, cable), func(t *testing.T) {
				var b *bench
				var x, y *side
				var c *cableOf
				if cable {
					b, x, y, c = cabled(t)
				} else {
					b, x, y = connected(t)
				}
				tt.do(b, x, y)
				x.ring()
				b.drain()
				for range 10 {
					b.clock.Advance(time.Second)
					b.drain()
				}
				if n := len(b.cqes[2]); n != tt.complete {
					t.Errorf("%d completions, want %d", n, tt.complete)
				}
				var want []event.AE
				if tt.codeY != 0 {
					want = append(want, event.AE{Code: tt.codeY, Source: tt.sourceY, Context: compCtx + 5, ID: 5, State: 6})
				}
				want = append(want, event.AE{Code: tt.codeX, Source: 5, Context: compCtx + 2, ID: 2, WQE: tt.wqe, State: 6})
				if diff := cmp.Diff(want, b.aes); diff != "" {
					t.Errorf("events:\n%s", diff)
				}
				for i, id := range []uint32{2, 5} {
					s := b.state(id)
					if failed := i == 0 || tt.codeY != 0; failed != (s == "ERROR") && s != "" && name != "retries" {
						t.Errorf("QP %d is in state %s", id, s)
					}
				}
				if cable {
					c.wantNAK(tt.nak)
					c.wantSilence(b, tt.codeY != 0)
				}
				flushFailed(b, x, tt.wqe)
				if tt.codeY != 0 {
					flushPeer(b, y, tt.sourceY == 1)
				}
			})
		}
	}
}

// flushFailed goes the driver's way from an event on. Doorbells in between do
// nothing.
func flushFailed(b *bench, x *side, wqe uint16) {
	b.Helper()
	b.full = false
	b.cqes = map[uint32][]event.Entry{}
	x.post(wr{op: opWrite, flags: signalled})
	x.ring()
	b.drain()
	x.modify(qp.Error)
	sq, _, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true, RQ: true, SQCodes: &qp.Codes{Major: 1, Minor: 8}})
	b.ok(err)
	flushed := b.cqes[2]
	if !sq || len(flushed) != 1 || !flushed[0].Error || flushed[0].Minor != 8 || flushed[0].WQE != wqe {
		b.Errorf("flushed %t %+v, want WQE %d", sq, flushed, wqe)
	}
	if v, _ := b.mem.Load64(x.base + shadowAt); uint32(v) != x.sqNext {
		b.Errorf("HW_SQ_TAIL %d, want %d", v, x.sqNext)
	}
	if sq, rq, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true, RQ: true}); sq || rq || err != nil {
		b.Errorf("second flush: %t %t %v", sq, rq, err)
	}
}

// flushPeer is the same for the responder, whose receive WQE, if it was to
// blame, is the one reported.
func flushPeer(b *bench, y *side, blamed bool) {
	b.Helper()
	b.cqes = map[uint32][]event.Entry{}
	y.receive(sge{data, 10})
	y.modify(qp.Error)
	_, rq, err := flush(b.table, qp.FlushArgs{ID: 5, SQ: true, RQ: true, RQCodes: &qp.Codes{Major: 1, Minor: 6}})
	b.ok(err)
	if f := b.cqes[6]; !rq || len(f) != 1 || !f[0].Error || f[0].Minor != 6 || blamed && f[0].WQE != 0 {
		b.Errorf("receive queue flushed %t %+v", rq, f)
	}
	if len(b.cqes[5]) != 0 {
		b.Errorf("send queue flushed: %+v", b.cqes[5])
	}
}

// wantNAK checks the last answer of the responder; "": no NAK.
func (c *cableOf) wantNAK(want string) {
	c.t.Helper()
	got := ""
	for _, s := range c.sent {
		var id, psn int
		var syndrome string
		if n, _ := fmt.Sscanf(s, "%d ACKNOWLEDGE %d %s", &id, &psn, &syndrome); n == 3 && syndrome != "0x1f" {
			got = syndrome
		}
	}
	if got != want {
		c.t.Errorf("NAK %q, want %q, of %q", got, want, c.sent)
	}
}

// wantSilence repeats to a failed responder what it got, and something new.
func (c *cableOf) wantSilence(b *bench, failed bool) {
	c.t.Helper()
	if !failed {
		return
	}
	n := len(c.sent)
	c.again()
	b.drain()
	if len(c.sent) != n {
		c.t.Errorf("a failed QP answers %q", c.sent[n:])
	}
}

func (b *bench) state(id uint32) string {
	for _, q := range b.table.QPs() {
		if q.ID == id {
			return q.State
		}
	}
	return ""
}

// Requests of cards that can more end the connection as invalid.
func TestUnsupportedRequest(t *testing.T) {
	b, x, _, c := cabled(t)
	c.held = true
	x.post(wr{op: opWrite, flags: signalled})
	x.ring()
	b.drain()
	f := c.kept[0]
	i := frame.Parse(f)
	var p wire.Packet
	p.Parse(f, &i)
	path := p.Path
	p = wire.Packet{Opcode: wire.FetchAdd, PKey: 0xFFFF, DestQP: 5, PSN: p.PSN, AckReq: true}
	out := make([]byte, wire.HeaderLen(&path, p.Opcode)+wire.Trailer)
	c.kept = [][]byte{p.Encode(out, &path, 0)}
	c.sent = nil
	c.release()
	b.drain()
	c.wantNAK("0x61")
	if len(b.aes) == 0 || b.aes[0] != (event.AE{Code: 0x0208, Source: 9, Context: compCtx + 5, ID: 5, State: 6}) {
		t.Errorf("%+v", b.aes)
	}
}
