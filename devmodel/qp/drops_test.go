// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// word is a word of the buffer of GATHER_STATS.
func word(b *bench, off int) uint64 {
	s := b.table.Stats()
	return binary.LittleEndian.Uint64(s[off:])
}

// Without an ARP entry nothing leaves: each packet, also each that is sent again,
// counts as without a route and not as sent.
func TestNoRoute(t *testing.T) {
	b, x, _ := connected(t)
	b.ok(b.table.Modify(qp.ModifyArgs{ID: x.id, State: qp.RTS, ARP: func(uint16) ([6]byte, bool) { return [6]byte{}, false }},
		func() (qp.Context, error) { return x.ctx, nil }))
	x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 2500}}, raddr: data + 0x40000, key: rkey})
	x.ring()
	b.drain()
	if got, again := word(b, 184), word(b, 216)>>32; got != 3<<32 || again != 0 {
		t.Errorf("%#x without a route, %d again; want 3 packets of IPv4", got, again)
	}
	b.clock.Advance(time.Minute)
	b.drain()
	if got, again := word(b, 184), word(b, 216)>>32; got != 6<<32 || again != 3 {
		t.Errorf("%#x without a route, %d again; want 3 packets more", got, again)
	}
	if out, octets, udp, in := word(b, 112), word(b, 104), word(b, 232), word(b, 16); out|octets|udp|in != 0 {
		t.Errorf("%d packets, %d octets, %d UDP out, %d in", out, octets, udp, in)
	}
	if n := word(b, 264); n != 1 {
		t.Errorf("%d writes", n)
	}
}

// What comes for a QP in a state that does not take it was received, and dropped.
func TestDroppedByState(t *testing.T) {
	b, x, y := connected(t)
	x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 2500}}, raddr: data + 0x40000, key: rkey})
	b.ok(b.table.Modify(qp.ModifyArgs{ID: y.id, State: qp.Error}, func() (qp.Context, error) { return y.ctx, nil }))
	x.ring()
	b.drain()
	if in, dropped, out := word(b, 16), word(b, 24)>>32, word(b, 112); in != 3 || dropped != 3 || out != 3 {
		t.Errorf("%d packets in, %d of them dropped, %d out; want 3 each", in, dropped, out)
	}
	if in, out := word(b, 8), word(b, 104); in != out || in == 0 {
		t.Errorf("%d octets in, %d out", in, out)
	}
	want := []any{qp.PacketDropped{QP: y.id, From: "192.0.2.1", Opcode: wire.WriteFirst, PSN: 0xFFFFF2, Packets: 3, Verdict: wire.WrongState}}
	if d := cmp.Diff(want, b.events); d != "" {
		t.Error(d)
	}
}
