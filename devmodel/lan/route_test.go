// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"net"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// otherVSI has otherMAC and receive queue 7; queues of VSIs that a frame was
// placed in show where it went.
const otherVSI = 6

var otherMAC = net.HardwareAddr{2, 0, 0, 0, 0, 6}

func TestRoutes(t *testing.T) {
	to := func(a net.HardwareAddr, ty layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: ownMAC, DstMAC: a, EthernetType: ty}
	}
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, c := range []struct {
		name     string
		to       net.HardwareAddr
		ty       layers.EthernetType
		context1 uint64
		do       func(s *Steering)
		wire     int
		own      int // frames placed for theVSI
		other    int
		errors   uint32 // GLV_TEPC
		down     uint32 // GLPRT_TDOLD
	}{
		{name: "to a peer", to: peerMAC, wire: 1},
		{name: "to another VSI", to: otherMAC, other: 1},
		{name: "to itself", to: ownMAC},
		{name: "to itself, not pruned", to: ownMAC, own: 1, do: func(s *Steering) { s.VSIs[theVSI].SrcPrune = false }},
		{name: "broadcast", to: all, wire: 1, other: 1},
		{name: "without loopback", to: otherMAC, wire: 1, do: func(s *Steering) { s.VSIs[theVSI].AllowLB = false }},
		{name: "VSI without LAN", to: peerMAC, do: func(s *Steering) { s.VSIs[theVSI].LAN = false }},
		{name: "link down", to: peerMAC, do: func(s *Steering) { s.Link = false }, down: 1},
		{name: "VSI gone", to: peerMAC, do: func(s *Steering) { delete(s.VSIs, theVSI) }, errors: 1},
		{name: "LLDP", to: peerMAC, ty: frame.TypeLLDP, do: func(s *Steering) { s.VSIs[theVSI].DropTx = []uint16{frame.TypeLLDP} }, errors: 1},
		{name: "LLDP to the uplink", to: peerMAC, ty: frame.TypeLLDP, context1: uint64(overrideUplink) << 8,
			do: func(s *Steering) { s.VSIs[theVSI].DropTx = []uint16{frame.TypeLLDP} }, wire: 1},
		{name: "override not allowed", to: peerMAC, ty: frame.TypeLLDP, context1: uint64(overrideUplink) << 8, do: func(s *Steering) {
			s.VSIs[theVSI].DropTx, s.VSIs[theVSI].DestOverride = []uint16{frame.TypeLLDP}, false
		}, errors: 1},
		{name: "to a VSI by number", to: peerMAC, context1: uint64(overrideVSI)<<8 | otherVSI<<50, other: 1},
		{name: "local only", to: all, context1: uint64(overrideLocal) << 8, other: 1},
		{name: "spoofed", to: peerMAC, do: func(s *Steering) { s.VSIs[theVSI].AntiSpoof = true }, errors: 1},
		{name: "not spoofed", to: peerMAC, do: func(s *Steering) {
			s.VSIs[theVSI].AntiSpoof, s.VSIs[theVSI].Own = true, map[[6]byte]bool{[6]byte(ownMAC): true}
		}, wire: 1},
		{name: "VLAN not of the VSI", to: peerMAC, do: func(s *Steering) { s.VSIs[theVSI].PruneTx = true }, errors: 1},
		{name: "MAC loopback", to: all, do: func(s *Steering) { s.Loopback = true }, own: 1, other: 2},
		{name: "MAC loopback without link", to: ownMAC, do: func(s *Steering) { s.Loopback, s.Link = true, false }},
		{name: "another VSI listens to all", to: peerMAC, do: func(s *Steering) { s.DefaultTx = []uint16{otherVSI} }, wire: 1, other: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := newCard(t), testSteering()
			s.VSIs[otherVSI] = &VSI{Number: otherVSI, Queues: []uint16{7}, LAN: true}
			s.Addresses[[6]byte(otherMAC)] = Forward{VSIs: []uint16{otherVSI}, LB: true}
			b := s.Addresses[[6]byte(all)]
			b.VSIs = append(b.VSIs, otherVSI)
			s.Addresses[[6]byte(all)] = b
			if c.do != nil {
				c.do(s)
			}
			r.Steer(s)
			r.receiver(2, 8, rxConfig{})
			r.receiver(7, 8, rxConfig{})
			if c.ty == 0 {
				c.ty = 0x0806
			}
			r.transmit(t, frametest.Build(t, to(c.to, c.ty), payload(50)), 0, c.context1, 0)
			own, other := 0, 0
			for _, q := range r.rxDone {
				if q == 2 {
					own++
				} else {
					other++
				}
			}
			if len(r.wire) != c.wire || own != c.own || other != c.other {
				t.Errorf("wire %d, want %d; own VSI %d, want %d; other VSI %d, want %d", len(r.wire), c.wire, own, c.own, other, c.other)
			}
			if got := r.Read32(0x312000 + 4*theVSI); got != c.errors {
				t.Errorf("GLV_TEPC = %d, want %d", got, c.errors)
			}
			if got := r.Read32(0x381280); got != c.down {
				t.Errorf("GLPRT_TDOLD = %d, want %d", got, c.down)
			}
			if len(r.events) != 0 {
				t.Errorf("events %v", r.events)
			}
		})
	}
}

// A step that has many VSIs to bring a frame to sends few frames.
func TestManyVSIsTakeManySteps(t *testing.T) {
	const listeners, size = 100, 1000
	r, s := newCard(t), testSteering()
	all := [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	to := Forward{LB: true}
	for n := uint16(100); n < 100+listeners; n++ {
		s.VSIs[n] = &VSI{Number: n, Queues: []uint16{2}}
		to.VSIs = append(to.VSIs, n)
	}
	s.Addresses[all] = to
	r.Steer(s)
	f := make([]byte, size)
	copy(f, all[:])
	_ = r.mem.Write(frames, f)
	for i := range ringN {
		_ = r.mem.Store64(ring+16*uint64(i), frames)
		_ = r.mem.Store64(ring+16*uint64(i)+8, cmdEOP|cmdRS|size<<34)
	}
	r.Write32(0x2C0000+4, ringN-1)
	r.engine.Drain(1)
	if n := r.Read32(0x30E000 + 8*theVSI); n != 1 {
		t.Errorf("%d frames in a step, want 1: it copies 100 times 1000 bytes already", n)
	}
	r.engine.Drain(1000)
	if head := r.Read32(0xE0000 + 4); head != ringN-1 {
		t.Errorf("%d frames sent of %d", head, ringN-1)
	}
}

// A flow filter, which is not built, is told of; its packet is not sent.
func TestFilterNotBuilt(t *testing.T) {
	r := newCard(t)
	for i, w := range []uint64{0, dtypeFilter, frames, 100<<34 | cmdEOP | cmdRS | 1<<bitDummy} {
		_ = r.mem.Store64(ring+8*uint64(i), w)
	}
	r.Write32(0x2C0000+4, 2)
	r.engine.Drain(10)
	if len(r.events) != 1 || r.events[0] != (FilterNotBuilt{Queue: 1}) || r.mdd != 0 {
		t.Errorf("events %v, %d times MAL_DETECT", r.events, r.mdd)
	}
	if done := r.mem.word(ring+16+8) & 0xf; done != dtypeDone || len(r.wire) != 0 {
		t.Errorf("descriptor type %#x, %d frames sent", done, len(r.wire))
	}
}

// What the driver must not send stops its queue, and the card tells once.
func TestHostileDescriptors(t *testing.T) {
	tcp := frametest.Build(t, outbound(0x800), ip4(6), &layers.TCP{}, payload(1000))
	word := offset(14, 20, 20) | iipt(ipv4Sum) | l4t(l4TCP)
	raw := func(words ...uint64) func(r *card) {
		return func(r *card) {
			for i, w := range words {
				_ = r.mem.Store64(ring+8*uint64(i), w)
			}
			r.Write32(0x2C0000+4, uint32(len(words)/2))
			r.engine.Drain(1000)
		}
	}
	send := func(context0, context1, word1 uint64) func(r *card) {
		return func(r *card) { r.transmit(t, tcp, context0, context1, word1) }
	}
	const sized = 100<<34 | cmdEOP | cmdRS
	for name, do := range map[string]func(r *card){
		"zero length":           raw(frames, cmdEOP|cmdRS),
		"no EOP":                raw(frames, 100<<34),
		"context alone":         raw(0, tsoContext(100, 1000)),
		"two contexts":          raw(0, dtypeContext, 0, dtypeContext, frames, sized),
		"unmapped":              raw(1<<40, sized),
		"type":                  raw(frames, sized|7),
		"runt":                  raw(frames, 5<<34|cmdEOP|cmdRS),
		"MSS 0":                 send(0, tsoContext(1000, 0), word),
		"MSS 63":                send(0, tsoContext(1000, 63), word),
		"MSS beyond the MAC":    send(0, tsoContext(1000, 0x3fff), word),
		"TSO_LEN":               send(0, tsoContext(999, 500), word),
		"TSO_LEN 0":             send(0, tsoContext(0, 500), word),
		"TSO without IIPT":      send(0, tsoContext(1000, 500), offset(14, 20, 20)|l4t(l4TCP)),
		"TSO without L4T":       send(0, tsoContext(1000, 500), offset(14, 20, 20)|iipt(ipv4Sum)),
		"TSO of SCTP":           send(0, tsoContext(1000, 500), offset(14, 20, 12)|iipt(ipv4Sum)|l4t(l4SCTP)),
		"short IP header":       send(0, 0, offset(14, 16, 20)|iipt(ipv4)|l4t(l4TCP)),
		"short MAC header":      send(0, 0, offset(12, 20, 20)|iipt(ipv4)|l4t(l4TCP)),
		"headers beyond":        func(r *card) { r.transmit(t, tcp[:100], 0, 0, offset(254, 508, 20)|iipt(ipv4)|l4t(l4TCP)) },
		"no room for the sum":   func(r *card) { r.transmit(t, tcp[:36], 0, 0, word) },
		"tunnel beyond":         send(tunnelContext(ipv4, 508, 1, 254), tsoContext(1000, 500), word),
		"tunnel too short":      send(tunnelContext(ipv4, 20, 1, 4), tsoContext(1000, 500), word),
		"endless":               raw(bytesRepeat(frames, 16000<<34, 3)...),
		"tail beyond the ring":  func(r *card) { r.Write32(0x2C0000+4, ringN) },
		"segmentation disabled": func(r *card) { r.noTSO(); send(0, tsoContext(1000, 500), word)(r) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newCard(t)
			do(r)
			if len(r.wire) != 0 || len(r.events) != 1 || r.mdd != 1 {
				t.Fatalf("%d frames, events %v, %d times MAL_DETECT", len(r.wire), r.events, r.mdd)
			}
			t.Log(r.events[0])
			global, function, want := uint32(0xFC068), uint32(0xFC000), uint32(1<<31|1<<26|1)
			if _, ok := r.events[0].(BadTail); ok {
				global, function, want = 0x2D2E00, 0x2D2C80, 1<<31|1<<26|1<<12
			}
			if r.Read32(global) != want || r.Read32(function) != 1 {
				t.Errorf("GL_MDET %#x, want %#x; PF_MDET %#x", r.Read32(global), want, r.Read32(function))
			}
			// Deaf until it is made anew.
			r.Write32(0x2C0000+4, 3)
			if r.engine.Drain(10); len(r.events) != 1 {
				t.Errorf("events %v", r.events)
			}
			r.DisableTxQueue(1)
			if err := r.EnableTxQueue(1, testContext(ring, ringN)); err != nil {
				t.Fatal(err)
			}
			if r.transmit(t, tcp, 0, 0, 0); len(r.wire) != 1 || !bytes.Equal(r.wire[0], tcp) {
				t.Errorf("sent % x", r.wire)
			}
		})
	}
}

func bytesRepeat(w0, w1 uint64, n int) (words []uint64) {
	for range n {
		words = append(words, w0, w1)
	}
	return words
}

// noTSO makes the queue anew with tso_ena 0.
func (c *card) noTSO() {
	x := testContext(ring, ringN)
	x[152/8] &^= 1
	c.DisableTxQueue(1)
	_ = c.EnableTxQueue(1, x)
}

// A packet of 256 KiB is sent in steps of 64.
func TestLongSegmentation(t *testing.T) {
	c := newCard(t)
	const length = 1<<18 - 1
	head := frametest.Build(t, outbound(0x800), ip4(6), &layers.TCP{}, payload(100))[:54]
	_ = c.mem.Write(frames, head)
	post := func(i int, at uint64, n int, cmd uint64) {
		c.post(i, at, n, cmd|offset(14, 20, 20)|iipt(ipv4Sum)|l4t(l4TCP))
	}
	_ = c.mem.Store64(ring, 0)
	_ = c.mem.Store64(ring+8, tsoContext(length, 9000))
	post(1, frames, len(head), 0)
	slot := 2
	for left := length; left > 0; slot++ {
		n, cmd := min(left, 16000), uint64(0)
		if left -= n; left == 0 {
			cmd = cmdEOP | cmdRS
		}
		post(slot, 0x10000, n, cmd)
	}
	c.Write32(0x2C0000+4, uint32(slot))
	steps, most, before := 0, 0, 0
	for c.engine.Drain(1) == 1 {
		steps++
		sent := 0
		for _, f := range c.wire {
			sent += len(f)
		}
		most, before = max(most, sent-before), sent
	}
	if len(c.wire) != 30 || most > stepBytes+maxFrame || steps < 8 {
		t.Errorf("%d segments, at most %d bytes in one of %d steps", len(c.wire), most, steps)
	}
	if got := c.Read32(0xE0000 + 4); got != uint32(slot) {
		t.Errorf("head %d, want %d", got, slot)
	}
}

func TestTransmitDoesNotAllocate(t *testing.T) {
	c := newCard(t)
	c.LAN.cfg.Wire, c.LAN.cfg.TxDone = func([]byte) {}, func(int) {}
	f := frametest.Build(t, outbound(0x800), ip4(6), &layers.TCP{}, payload(1400))
	_ = c.mem.Write(frames, f)
	slot := 0
	if n := testing.AllocsPerRun(100, func() {
		_ = c.mem.Store64(ring+16*uint64(slot), frames)
		_ = c.mem.Store64(ring+16*uint64(slot)+8, uint64(len(f))<<34|cmdEOP|cmdRS|offset(14, 20, 20)|iipt(ipv4)|l4t(l4TCP))
		slot = (slot + 1) % ringN
		c.Write32(0x2C0000+4, uint32(slot))
		c.engine.Drain(10)
	}); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

// One operation is a packet of 64 KiB, cut into segments of 1448.
func BenchmarkSegmentation(b *testing.B) {
	c := newCard(b)
	c.LAN.cfg.Wire, c.LAN.cfg.TxDone = func([]byte) {}, func(int) {}
	const length = 45 * 1448
	_ = c.mem.Write(frames, frametest.Build(b, outbound(0x800), ip4(6), &layers.TCP{}, payload(100))[:54])
	word := offset(14, 20, 20) | iipt(ipv4Sum) | l4t(l4TCP)
	b.SetBytes(length)
	b.ReportAllocs()
	slot := 0
	next := func(w0, w1 uint64) {
		_ = c.mem.Store64(ring+16*uint64(slot), w0)
		_ = c.mem.Store64(ring+16*uint64(slot)+8, w1)
		slot = (slot + 1) % ringN
	}
	for b.Loop() {
		next(0, tsoContext(length, 1448))
		next(frames, word|54<<34)
		for i := range 5 {
			cmd := word | length/5<<34
			if i == 4 {
				cmd |= cmdEOP | cmdRS
			}
			next(0x10000, cmd)
		}
		c.Write32(0x2C0000+4, uint32(slot))
		c.engine.Drain(100)
	}
}
