// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// station is a port of the first host's switch that sends what it likes.
type station struct {
	conn *net.UnixConn
	to   *net.UnixAddr
	mac  [6]byte
	stop atomic.Bool
	wg   sync.WaitGroup
	sent atomic.Int64
}

// newStation makes one; spec is for duoOptions.raw.
func newStation(t testing.TB) (s *station, spec string) {
	t.Helper()
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	s = &station{conn: conn, to: &net.UnixAddr{Name: local, Net: "unixgram"}, mac: [6]byte{2, 0, 0, 0, 0, 0x66}}
	s.wg.Go(func() { // what the switch floods
		b := make([]byte, 10<<10)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		s.stop.Store(true)
		conn.Close()
		s.wg.Wait()
	})
	return s, "dgram:" + local + "," + remote
}

func (s *station) send(f []byte) bool {
	if _, err := s.conn.WriteTo(f, s.to); err != nil {
		return false
	}
	s.sent.Add(1)
	return true
}

// storm sends what next makes until the returned function is called. That waits
// until at least so many frames were sent.
func (s *station) storm(next func() []byte) (end func(least int64)) {
	before, done := s.sent.Load(), make(chan struct{})
	var least atomic.Int64
	least.Store(1 << 62)
	s.wg.Go(func() {
		defer close(done)
		for !s.stop.Load() && s.sent.Load()-before < least.Load() {
			if !s.send(next()) {
				return
			}
		}
	})
	return func(n int64) {
		least.Store(n)
		<-done
	}
}

// target is a QP as a station knows it that has looked at its traffic.
type target struct {
	mac        [6]byte
	ipv6       bool
	own, peer  [4]uint32
	qp         uint32
	sends      uint32 // PSN of its first request
	expects    uint32 // and of its peer's
	mtu        int
	rkey, lkey uint32 // of memory that its peer may write to, and of its own
	va         uint64
}

func (tr *traffic) targets() (list []target) {
	for _, e := range tr.ends {
		a := &e.qp.Attr
		list = append(list, target{e.qp.r.ICE.MAC, a.IPv6, a.LocalIP, a.DestIP, e.qp.ID, a.SendPSN, a.RecvPSN, a.MTU, e.dst.mr.STag, e.src.mr.STag, e.dst.mr.Addr(0)})
	}
	return list
}

// forger makes frames.
type forger struct {
	rnd     *rand.Rand
	mac     [6]byte
	targets []target
}

// to is a frame of a target's connection, from its peer, but for the opcode.
func (g *forger) to(v *target) roceFrame {
	return roceFrame{dstMAC: v.mac, srcMAC: g.mac, ipv6: v.ipv6, src: v.peer, dst: v.own, ttl: 64, qp: v.qp, ack: g.rnd.IntN(2) == 0}
}

func (g *forger) fill(n int) []byte {
	b := make([]byte, n)
	fillRandom(g.rnd, b)
	return b
}

// request gives a frame a random request's headers and a payload.
func (g *forger) request(f *roceFrame, v *target, length int) {
	rnd := g.rnd
	f.payload = g.fill(length)
	switch rnd.IntN(8) {
	case 0:
		f.opcode = opSendOnly
	case 1:
		f.opcode = opSendFirst
	case 2:
		f.opcode = opSendMiddle
	case 3:
		f.opcode, f.ext = opWriteOnly, reth(v.va+uint64(rnd.IntN(1000)), v.rkey, uint32(length))
	case 4:
		f.opcode, f.ext = opWriteFirst, reth(v.va, v.rkey, rnd.Uint32()>>rnd.IntN(32))
	case 5:
		f.opcode = opWriteLast
	case 6:
		f.opcode, f.ext, f.payload = opReadRequest, reth(v.va, v.rkey, uint32(rnd.IntN(20_000))), nil
	case 7:
		f.opcode, f.ext = opSendOnlyInv, be.AppendUint32(nil, v.lkey)
	}
}

// dropped is a frame that no card may act on.
func (g *forger) dropped() []byte {
	rnd := g.rnd
	v := &g.targets[rnd.IntN(len(g.targets))]
	f := g.to(v)
	// Even with the PSN that is expected.
	f.psn = v.expects + uint32(rnd.IntN(200))
	length := rnd.IntN(v.mtu + 1)
	switch rnd.IntN(3) {
	case 0:
		length = v.mtu
	case 1:
		f.psn = v.sends + uint32(rnd.IntN(200))
	}
	g.request(&f, v, length)
	if rnd.IntN(4) == 0 {
		f.opcode, f.ext, f.payload = opAcknowledge, aeth([]uint8{synACK, synRNR, synSequence, synAccess}[rnd.IntN(4)], rnd.Uint32()), nil
	}
	switch rnd.IntN(15) {
	case 0:
		f.badICRC = true
	case 1:
		f.src[3] ^= 1 << rnd.IntN(32)
	case 2:
		f.dst[3] ^= 1 << rnd.IntN(32)
	case 3:
		f.qp ^= 1 << (10 + rnd.IntN(14))
	case 4:
		f.pkey = 0xfffe ^ uint16(rnd.IntN(2))<<14
	case 5:
		f.tver = uint8(1 + rnd.IntN(15))
	case 6:
		f.fragment = uint16(1<<13 | rnd.IntN(2)*8)
		if f.ipv6 {
			f.fragment = uint16(1 | rnd.IntN(2)*8)
		}
	case 7:
		f.tags = [][2]uint16{{0x88a8, 0}, {0x8100, 0}}
	case 8:
		f.tags = [][2]uint16{{0x8100, uint16(1 + rnd.IntN(4000))}}
	case 9:
		f.opcode = uint8(0x20 + rnd.IntN(0xe0)) // of another service
		if f.opcode == opCNP {
			f.opcode++
		}
	case 10:
		f.dstPort = roceUDPPort + 1
	case 11:
		f.opcode, f.ext = opUD, be.AppendUint32(be.AppendUint32(nil, 0x11111111), 5)
		f.qp = []uint32{1, v.qp, multicastQPNum, 0, 2}[rnd.IntN(5)]
	case 12: // cut short, or with something behind
		b := f.bytes()
		if rnd.IntN(2) == 0 {
			return b[:14+rnd.IntN(len(b)-14-4)]
		}
		b[14+3] ^= 1 // the length of IPv4, of IPv6 the flow label: made wrong, or
		b[14+5] ^= 1 // its length
		return b
	case 13: // bits turned over where the ICRC covers them
		b := f.bytes()
		head := 14 + 20 + 8
		if f.ipv6 {
			head += 20
		}
		if rest := len(b) - head - 12; rest > 0 {
			b[head+5+rnd.IntN(3)] ^= 1 << rnd.IntN(8)
		} else {
			b[head] ^= 1
		}
		return b
	case 14:
		f.ipv6 = !f.ipv6
	}
	return f.bytes()
}

// stale is a frame of a target's connection that is long out of date or far too
// early, or only a notification: it may cost an answer, and nothing else.
func (g *forger) stale() []byte {
	rnd := g.rnd
	v := &g.targets[rnd.IntN(len(g.targets))]
	f := g.to(v)
	const before = 1 << 22
	switch rnd.IntN(4) {
	case 0: // a request that was executed
		f.psn = v.expects - 1 - rnd.Uint32N(before)
		g.request(&f, v, rnd.IntN(v.mtu+1))
	case 1: // an answer to nothing
		f.psn = v.sends - 1 - rnd.Uint32N(before)
		f.opcode, f.ext = opAcknowledge, aeth([]uint8{synACK, synRNR, synSequence, synAccess}[rnd.IntN(4)], rnd.Uint32())
	case 2:
		f.psn = v.sends - 1 - rnd.Uint32N(before)
		f.opcode, f.ext, f.payload = opReadResponse, aeth(synACK, 0), g.fill(rnd.IntN(v.mtu+1))
	case 3:
		f.opcode, f.resv, f.payload, f.ack = opCNP, bthBECN, make([]byte, 16), false
	}
	return f.bytes()
}

// anything is a frame of a target's connection, at any PSN, that may end it.
func (g *forger) anything() []byte {
	rnd := g.rnd
	v := &g.targets[rnd.IntN(len(g.targets))]
	f := g.to(v)
	f.psn = v.expects + uint32(rnd.IntN(5000)) - 100
	if rnd.IntN(3) == 0 {
		f.psn = v.sends + uint32(rnd.IntN(5000)) - 100
	}
	length := []int{0, 1, v.mtu - 1, v.mtu, v.mtu + 1, rnd.IntN(9000)}[rnd.IntN(6)]
	switch rnd.IntN(6) {
	case 0:
		f.opcode, f.ext = opAcknowledge, aeth(uint8(rnd.IntN(256)), rnd.Uint32())
	case 1:
		f.opcode, f.ext, f.payload = uint8(0x0d+rnd.IntN(4)), aeth(synACK, rnd.Uint32()), g.fill(length)
	case 2: // any opcode with anything behind it
		f.opcode, f.ext, f.flags = uint8(rnd.IntN(256)), g.fill(4*rnd.IntN(8)), uint8(rnd.IntN(2))<<7
		f.payload = g.fill(length)
	case 3:
		f.opcode, f.ext = opWriteFirst, reth(rnd.Uint64(), rnd.Uint32(), rnd.Uint32())
		f.payload = g.fill(length)
	case 4:
		f.opcode, f.ext = opReadRequest, reth(v.va, v.rkey, rnd.Uint32())
	case 5:
		g.request(&f, v, length)
	}
	b := f.bytes()
	if rnd.IntN(4) == 0 {
		for range 1 + rnd.IntN(4) {
			b[12+rnd.IntN(len(b)-12)] ^= 1 << rnd.IntN(8)
		}
	}
	return b
}

// Frames that no card may act on, and frames of connections that are stale, come
// by the ten thousand: traffic beside them is as without.
func TestHostileFrames(t *testing.T) {
	for _, w := range []way{near, wired2, uplink} {
		t.Run(w.String(), func(t *testing.T) {
			s, spec := newStation(t)
			d := startDuo(t, duoOptions{way: w, guest: 256, raw: spec})
			rnd := rand.New(rand.NewPCG(19, uint64(w)))
			tr, err := newTrafficBetween(d.a.r, d.b.r, rnd, 4)
			must(t, err)
			g := &forger{rand.New(rand.NewPCG(19, 9)), s.mac, tr.targets()}
			rounds, least := 6, int64(8_000)
			switch {
			case *full:
				rounds, least = 300, 1_000_000
			case raced:
				rounds, least = 3, 2_000
			}
			must(t, tr.round(false))
			before := processSize()
			for _, next := range []func() []byte{g.dropped, g.stale} {
				end := s.storm(next)
				for n := range rounds {
					if err := tr.round(n%4 == 0); err != nil {
						t.Fatalf("round %d: %v", n, err)
					}
				}
				end(least)
				must(t, tr.round(false))
			}
			if list := tr.events(); len(list) > 0 {
				t.Errorf("events %+v", list)
			}
			for _, e := range tr.ends {
				must(t, e.src.check(e.name+": source", 0, e.src.Size))
				must(t, e.dst.check(e.name+": destination", 0, e.dst.Size))
			}
			if err := before.grown(); err != nil {
				t.Error(err)
			}
			a, b := d.counters(t)
			for _, c := range []Counter{CnpIgnored, IP4InDiscards, IP6InDiscards} {
				if a[c] == 0 || b[c] == 0 {
					t.Errorf("%s %d and %d", c, a[c], b[c])
				}
			}
			must(t, tr.close())
			d.end(t)
		})
	}
}

// Frames that may end connections: with what a peer could do to them all the
// same. Neither machine is written to where nobody has registered memory, the
// process keeps its size, and new connections are as good as the first.
func TestHostilePeer(t *testing.T) {
	for _, w := range []way{wired2, uplink} {
		t.Run(w.String(), func(t *testing.T) {
			s, spec := newStation(t)
			d := startDuo(t, duoOptions{way: w, guest: 256, raw: spec})
			rnd := rand.New(rand.NewPCG(20, uint64(w)))
			lives, frames := 3, int64(3000)
			switch {
			case *full:
				lives, frames = 100, 30_000
			case raced:
				lives, frames = 2, 1000
			}
			var before size
			for life := range lives {
				tr, err := newTrafficBetween(d.a.r, d.b.r, rnd, 3)
				must(t, err)
				g := &forger{rand.New(rand.NewPCG(20, uint64(life))), s.mac, tr.targets()}
				tr.prepare()
				end := s.storm(g.anything)
				must(t, tr.post())
				end(frames)
				for _, m := range d.machines() {
					must(t, m.r.Work())
				}
				must(t, tr.close())
				for _, m := range d.machines() {
					must(t, m.f.Guest.Check())
				}
				if life == 0 {
					before = processSize()
				}
			}
			if err := before.grown(); err != nil {
				t.Error(err)
			}
			d.findings.take() // of what peers did to memory that was open to them
			d.random(t, rnd, 2, 100)
			d.end(t)
		})
	}
}
