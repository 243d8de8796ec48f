// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// FuzzTxQueue enables a transmit queue with any context and runs any
// descriptors. The engine comes to rest, and of guest memory at most the done
// bits of the ring's own descriptors change.
func FuzzTxQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, context, descriptors []byte, tail uint32) {
		var c [22]byte
		copy(c[:], context)
		mem, ctx := &ram{}, txContext(c)
		base := ctx.base() % uint64(len(mem.b))
		copy(mem.b[base:], descriptors)
		before := mem.b
		e := engine.New(engine.Config{Manual: true})
		defer e.Close()
		events := 0
		l := New(Config{Mem: mem, Emit: func(any) { events++ }, Engine: e})
		s := reg.NewSpace(32<<20, nil, l.Registers())
		if err := l.EnableTxQueue(3, c); err != nil {
			return
		}
		s.Write32(0x2C0000+12, tail)
		s.Write32(0x2C0000+12, tail%ctx.qlen())
		if n := e.Drain(10000); n == 10000 {
			t.Fatal("the engine does not come to rest")
		}
		if head := s.Read32(0xE0000 + 12); head >= ctx.qlen() {
			t.Errorf("head %d of %d", head, ctx.qlen())
		}
		if events > 2*int(ctx.qlen()) {
			t.Errorf("%d events", events)
		}
		ring := ctx.base()
		for at := 0; at < len(mem.b); at += 8 {
			was, is := binary.LittleEndian.Uint64(before[at:]), binary.LittleEndian.Uint64(mem.b[at:])
			if was == is {
				continue
			}
			off := uint64(at) - ring
			if was|dtypeDone != is || off%16 != 8 || off/16 >= uint64(ctx.qlen()) {
				t.Fatalf("word at %#x: %#x -> %#x", at, was, is)
			}
		}
		l.Reset(reg.PFR)
		e.Drain(100)
	})
}
