// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// descriptors packs words as a ring holds them.
func descriptors(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// FuzzTxQueue enables a transmit queue with any context and runs any
// descriptors on any payload. The engine comes to rest, frames have a size that
// the wire has, and of guest memory at most the done bits of the ring's own
// descriptors change.
func FuzzTxQueue(f *testing.F) {
	c := testContext(ring, ringN)
	tcp := frametest.Build(f, outbound(0x800), ip4(6), &layers.TCP{}, payload(1000))
	n := uint64(len(tcp))
	word := offset(14, 20, 20) | iipt(ipv4Sum) | l4t(l4TCP) | cmdEOP | cmdRS | n<<34
	f.Add(c[:], descriptors(frames, word), uint32(1), tcp)
	f.Add(c[:], descriptors(0, tsoContext(1000, 100), frames, word), uint32(2), tcp)
	f.Add(c[:], descriptors(0x2005<<32, 1<<bitIL2TAG2|dtypeContext, frames, word|1<<bitIL2TAG1|5<<48), uint32(2), tcp)
	f.Add(c[:], descriptors(tunnelContext(ipv4Sum, 20, 1, 8), tsoContext(972, 300), frames, word), uint32(2), tcp)
	f.Add(c[:], descriptors(frames, 100<<34, frames, word), uint32(2), tcp)
	f.Add(c[:], descriptors(0, dtypeFilter, frames, word|1<<bitDummy), uint32(2), tcp)
	f.Fuzz(func(t *testing.T, context, descriptors []byte, tail uint32, data []byte) {
		var c [22]byte
		copy(c[:], context)
		mem, ctx := &ram{}, txContext(c)
		copy(mem.b[frames:], data)
		copy(mem.b[ctx.base()%uint64(len(mem.b)):], descriptors)
		before := mem.b
		e := engine.New(engine.Config{Manual: true})
		defer e.Close()
		events := 0
		l := New(Config{Mem: mem, Emit: func(e any) {
			if _, gap := e.(FilterNotBuilt); !gap {
				events++
			}
		}, Engine: e, Wire: func(f []byte) {
			if len(f) < minFrame || len(f) > maxFrame {
				t.Fatalf("a frame of %d bytes", len(f))
			}
		}})
		s := reg.NewSpace(32<<20, nil, l.Registers())
		if len(data)%2 == 1 {
			l.Steer(testSteering())
		}
		if err := l.EnableTxQueue(3, c); err != nil {
			return
		}
		s.Write32(0x2C0000+12, tail%ctx.qlen())
		if n := e.Drain(10000); n == 10000 {
			t.Fatal("the engine does not come to rest")
		}
		s.Write32(0x2C0000+12, tail)
		e.Drain(10000)
		if head := s.Read32(0xE0000 + 12); head >= ctx.qlen() {
			t.Errorf("head %d of %d", head, ctx.qlen())
		}
		if events > 1 {
			t.Errorf("%d events of a queue that stops", events)
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

// FuzzRxQueue enables a receive queue with any context and any descriptors and
// brings it any frame, by rules of any kind. It never writes where neither the
// ring nor a buffer is.
func FuzzRxQueue(f *testing.F) {
	context := func(c rxConfig) []byte { b := c.pack(); return b[:] }
	plain := context(rxConfig{base: rxRing(2), n: rxRingN, dbuf: 2048, max: 9728})
	split := context(rxConfig{base: rxRing(2), n: rxRingN, dbuf: 128, hbuf: 64, dtype: dtypeSplitAlways, split: 0xf, max: 9728, keepCRC: true})
	buffers := descriptors(0x80000, 0x70000, 0, 0, 0x81000, 0x71000, 0, 0, 0x82000, 0x72000, 0, 0)
	tcp := frametest.Build(f, ethernet(0x800), ip4(6), &layers.TCP{}, payload(300))
	tagged := frametest.Build(f, ethernet(0x8100), &layers.Dot1Q{VLANIdentifier: 5, Type: 0x86dd}, ip6(17), &layers.UDP{}, payload(30))
	f.Add(plain, buffers, tcp, uint16(3), uint8(0))
	f.Add(split, buffers, tcp, uint16(15), uint8(1))
	f.Add(split, buffers, tagged, uint16(15), uint8(2))
	f.Add(plain, descriptors(1<<40, 0, 0, 0), tagged, uint16(3), uint8(3))
	f.Fuzz(func(t *testing.T, context, descriptors, frame []byte, tail uint16, kind uint8) {
		var c rxContext
		copy(c[:], context)
		mem := &ram{}
		copy(mem.b[c.base()%uint64(len(mem.b)):], descriptors)
		e := engine.New(engine.Config{Manual: true})
		defer e.Close()
		placed := 0
		l := New(Config{Mem: mem, Engine: e, RxDone: func(int) { placed++ }})
		s := reg.NewSpace(32<<20, nil, l.Registers())
		steer := testSteering()
		v := steer.VSIs[theVSI]
		steer.Default, v.Strip, v.LUT, v.HashScheme = []uint16{theVSI}, Strip(kind%3), []byte{0, kind, 1}, kind%4
		v.InsertTPID, steer.UDPTunnels = 0x8100, []uint16{4789}
		l.Steer(steer)
		for i := range 8 {
			for q := range 4 {
				s.Write32(uint32(0x280000+i*0x2000+4*(2+q)), binary.LittleEndian.Uint32(c[4*i:]))
			}
		}
		for q := range 4 {
			s.Write32(uint32(0x480000+4*(2+q)), rxdidNIC)
			s.Write32(uint32(0x290000+4*(2+q)), uint32(tail))
			s.Write32(uint32(0x120000+4*(2+q)), qenaReq)
		}
		for range 20 {
			l.Receive(frame)
		}
		if placed > 20 {
			t.Errorf("%d placed of 20", placed)
		}
		l.Reset(reg.PFR)
		before := bytes.Clone(mem.b[:])
		if l.Receive(frame); !bytes.Equal(before, mem.b[:]) {
			t.Error("a queue writes after the reset")
		}
	})
}
