// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// shortcut brings runs of a bench back to it, as if it were another card that is
// near, as long as it is open.
type shortcut struct {
	b      *bench
	shut   func() bool // nil: never
	frames uint64
	bytes  uint64
}

func (s *shortcut) Find(path *wire.Path, b *qp.Burst) (*qp.Table, any) {
	if s.shut != nil && s.shut() {
		return nil, nil
	}
	return s.b.table, s
}

func (s *shortcut) Passed(way any, path *wire.Path, b *qp.Burst, times uint64) {
	s.frames += b.Frames * times
	s.bytes += b.Bytes() * times
}

// near is cabled, with a shortcut.
func near(t testing.TB, change ...func(a, b *side)) (*bench, *side, *side, *shortcut) {
	c := &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}
	s := &shortcut{}
	b := newBench(t, func(q *qp.Config) { q.Wire, q.Near = c, s })
	b.cable, c.b, s.b = c, b, b
	_, x, y := b.connect(change...)
	return b, x, y, s
}

// Offsets in the buffer of GATHER_STATS of the messages that a connection counts,
// and of packets sent again.
var messageStats = []int{216, 240, 248, 256, 264, 272, 280, 288, 296}

// outcome is all that work leaves behind.
type outcome struct {
	CQEs   map[uint32][]event.Entry
	QPs    []progress
	Stats  map[int]uint64
	Memory uint32
	Events string
}

// progress is how far a QP has come.
type progress struct {
	ID                                uint32
	State                             string
	SendPSN, RecvPSN, Unacked, Sent   uint32
	NextSend, NextReceive, StoredTail uint32
	Working                           bool
}

func (b *bench) outcome() outcome {
	o := outcome{CQEs: b.cqes, Stats: map[int]uint64{}, Events: fmt.Sprint(b.events, b.aes)}
	for _, q := range b.table.QPs() {
		o.QPs = append(o.QPs, progress{q.ID, q.State, q.SendPSN, q.RecvPSN, q.Unacked, q.Sent, q.SQ.Next, q.RQ.Next, q.SQTail, q.Working})
	}
	stats := b.table.Stats()
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(stats[off:]) }
	for _, off := range messageStats {
		o.Stats[off] = word(off)
	}
	// How many acknowledgements are left out, as a later one tells the same, is
	// a matter of time: the octets of packets are told as far as they are more
	// than those of an acknowledgement.
	packets, octets := word(112)+word(152), word(104)+word(144)
	o.Stats[104] = octets - 48*word(112) - 68*word(152)
	if word(16)+word(64) != packets || word(8)+word(56) != octets || word(224) != packets || word(232) != packets {
		b.Errorf("packets in %d, %d, %d, out %d, %d, octets in %d, out %d", word(16), word(64), word(224), packets, word(232), word(8)+word(56), octets)
	}
	o.Memory = crc32.ChecksumIEEE(b.read(data, dataSize))
	return o
}

// sent is the frames counted as sent, and their bytes.
func (b *bench) sent() (frames, bytes uint64) {
	stats := b.table.Stats()
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(stats[off:]) }
	frames = word(112) + word(152)
	return frames, word(104) + word(144) + 14*frames
}

// work has both QPs of a pair send, write and read as the seed says. What one
// operation reads none writes.
func work(b *bench, x, y *side, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	b.fill(data, 0x40000, byte(seed))
	// Each side's operations write to a quarter of its own: reads, which may come
	// to their end behind later operations, to the second half of that.
	for range 6 {
		for i, s := range []*side{x, y} {
			other := []*side{y, x}[i]
			area := uint64(data + 0x100000 + i*0x80000)
			for range 1 + r.IntN(8) {
				n := uint32([]int{0, 1, r.IntN(100), r.IntN(3000), 1024 * r.IntN(4), r.IntN(150_000)}[r.IntN(6)])
				from := data + uint64(r.IntN(0x10000))
				var sges []sge
				for left := n; left > 0; {
					k := min(left, uint32(1+r.IntN(int(n))))
					if len(sges) == 4 {
						k = left
					}
					sges = append(sges, sge{from, k})
					from, left = from+uint64(k), left-k
				}
				to := area + uint64(r.IntN(0x1B000))
				w := wr{op: opWrite, sges: sges, raddr: to, key: rkey}
				if r.IntN(2) == 0 {
					w.flags |= signalled
				}
				if r.IntN(3) == 0 {
					w.flags |= readFence
				}
				switch imm := r.Uint32(); r.IntN(5) {
				case 0:
					w.op, w.raddr, w.key = []uint64{opSend, opSendSol}[r.IntN(2)], 0, 0
					if r.IntN(2) == 0 {
						w.imm = &imm
					}
					other.receive(sge{to, n/2 + 1}, sge{to + uint64(n/2+1), n}, sge{})
				case 1:
					w.op = opRead
					w.sges, w.raddr = []sge{{to + 0x40000, n}}, data+uint64(r.IntN(0x10000))
				case 2:
					if len(w.sges) < 5 {
						w.imm = &imm
						other.receive()
					}
				case 3:
					w.sges, w.inline = nil, b.read(data, 1+r.IntN(100))
				}
				s.post(w)
			}
			s.ring()
		}
		b.drain()
	}
}

// Runs inside a card, runs to a card that is near and frames do the same: PSNs,
// completions, counters and memory come out alike.
func TestWays(t *testing.T) {
	for seed := range uint64(12) {
		kind := func(x, y *side) {
			for _, s := range []*side{x, y} {
				if put(&s.ctx, 48, 7<<48|uint64(256<<(seed%5))<<16); seed%2 == 1 {
					put(&s.ctx, 0, 1<<8|1<<20)
				}
			}
		}
		b, x, y := connected(t, kind)
		work(b, x, y, seed)
		want := b.outcome()

		b, x, y, short := near(t, kind)
		work(b, x, y, seed)
		if diff := cmp.Diff(want, b.outcome()); diff != "" {
			t.Errorf("seed %d, near:\n%s", seed, diff)
		}
		if n, bytes := b.sent(); short.frames != n || short.bytes != bytes {
			t.Errorf("seed %d: %d frames of %d bytes passed, %d of %d were counted as sent", seed, short.frames, short.bytes, n, bytes)
		}
		if len(b.cable.sent) > 0 {
			t.Errorf("seed %d: %d frames were sent to a card that is near", seed, len(b.cable.sent))
		}

		b, x, y, cable := cabled(t, kind)
		work(b, x, y, seed)
		if diff := cmp.Diff(want, b.outcome()); diff != "" {
			t.Errorf("seed %d, by frames:\n%s", seed, diff)
		}
		bytes := uint64(0)
		for _, f := range cable.all {
			bytes += uint64(len(f))
		}
		if n, counted := b.sent(); n != uint64(len(cable.all)) || counted != bytes {
			t.Errorf("seed %d: %d frames of %d bytes counted, %d of %d were sent", seed, n, counted, len(cable.all), bytes)
		}
		if b.table.Waiting() != 0 {
			t.Errorf("seed %d: %d bytes of frames wait", seed, b.table.Waiting())
		}
	}
}

// A way that is near for some runs and not for others loses nothing and sends
// nothing twice.
func TestWaysAlternate(t *testing.T) {
	for seed := range uint64(8) {
		b, x, y := connected(t)
		work(b, x, y, seed)
		want := b.outcome()
		b, x, y, short := near(t)
		r := rand.New(rand.NewPCG(seed, 9))
		short.shut = func() bool { return r.IntN(3) == 0 }
		work(b, x, y, seed)
		if diff := cmp.Diff(want, b.outcome()); diff != "" {
			t.Errorf("seed %d:\n%s", seed, diff)
		}
		if len(b.cable.all) == 0 || short.frames == 0 {
			t.Errorf("seed %d: %d frames, %d passed", seed, len(b.cable.all), short.frames)
		}
	}
}

// straight is a wire back to the card that remembers nothing.
type straight struct{ table *qp.Table }

func (s *straight) Send(f []byte) bool {
	i := frame.Parse(f)
	s.table.Receive(f, &i)
	return true
}

// eachWay runs f with a pair of QPs that are connected in each of the ways.
func eachWay[T testing.TB](t T, run func(name string, f func(t T))) func(f func(t T, b *bench, x *side)) {
	return func(f func(t T, b *bench, x *side)) {
		run("loopback", func(t T) {
			b, x, _ := connected(t)
			f(t, b, x)
		})
		run("near", func(t T) {
			b, x, _, _ := near(t)
			f(t, b, x)
		})
		run("wire", func(t T) {
			w := &straight{}
			b := newBench(t, func(c *qp.Config) { c.Wire = w })
			b.cable, w.table = &cableOf{far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}, b.table
			_, x, _ := b.connect()
			f(t, b, x)
		})
	}
}

// A WQE costs no allocation once the buffers have grown, whatever way its
// packets go.
func TestAllocations(t *testing.T) {
	eachWay(t, func(name string, f func(*testing.T)) { t.Run(name, f) })(func(t *testing.T, b *bench, x *side) {
		b.quiet = true
		round := x.loop(1, 3000)
		round()
		// Pools lose some of what they hold now and then, with the race detector at
		// random: the least counts.
		least := math.Inf(1)
		for range 100 {
			least = min(least, testing.AllocsPerRun(1, round))
		}
		if least > 0 {
			t.Errorf("%v allocations for a WQE", least)
		}
		if b.posted != 201 || len(b.aes) != 0 {
			t.Errorf("%d completions, events %v", b.posted, b.aes)
		}
	})
}

func BenchmarkWrite(bm *testing.B) {
	for _, size := range []uint32{64, 4096, 65536, 1 << 20} {
		eachWay(bm, func(name string, f func(*testing.B)) { bm.Run(fmt.Sprintf("%s/%d", name, size), f) })(func(bm *testing.B, b *bench, x *side) {
			b.quiet = true
			round := x.loop(32, size)
			bm.SetBytes(32 * int64(size))
			bm.ReportAllocs()
			for bm.Loop() {
				round()
			}
			bm.ReportMetric(float64(bm.N)*32/bm.Elapsed().Seconds(), "WQE/s")
		})
	}
}
