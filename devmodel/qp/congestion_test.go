// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// Packets that the network marks are counted. Where the driver asks for it, and
// none does, the sender is notified, now and then; it counts that and goes on.
func TestCongestion(t *testing.T) {
	for _, asks := range []bool{false, true} {
		b, x, y, c := cabled(t, func(x, y *side) {
			put(&x.ctx, 24, 4791<<48|0xC123<<32|3<<24|7<<12|4<<8|64) // as if the network marked all
			if asks {
				put(&y.ctx, 160, 3<<16|4|1<<22)
			}
		})
		b.fill(data, 0x3000, 1)
		var n int
		for range 3 {
			i := x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 0x3000}}, raddr: data + 0x100000, key: rkey})
			x.ring()
			b.drain()
			b.wantCQ(2, x.sent(i, 0))
			b.clock.Advance(49 * time.Microsecond)
			n++
		}
		b.clock.Advance(time.Second)
		i := y.post(wr{op: opWrite, flags: signalled})
		y.ring()
		b.drain()
		b.wantCQ(5, y.sent(i, 0))
		cnps := 0
		for _, s := range c.sent {
			if strings.HasPrefix(s, "2 CNP 0") {
				cnps++
			}
		}
		want := 0
		if asks {
			// At 0 and 98 µs, and with the acknowledgement of the write back.
			want = 3
		}
		stats := b.table.Stats()
		word := func(off int) uint64 { return binary.LittleEndian.Uint64(stats[off:]) }
		if marked := word(304); marked != uint64(n*12+1) {
			t.Errorf("RxECNMrkd %d, want %d", marked, n*12+1)
		}
		if cnps != want || word(320) != uint64(want) || word(312) != uint64(want)<<32 {
			t.Errorf("asks %t: %d notifications, cnpSent %d, cnpHandled and cnpIgnored %#x; want %d", asks, cnps, word(320), word(312), want)
		}
		if word(224) != word(232) || word(224) != uint64(len(c.sent)) {
			t.Errorf("RxUDP %d, TxUDP %d, %d frames", word(224), word(232), len(c.sent))
		}
		b.wantAEs()
	}
}
