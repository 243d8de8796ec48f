// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// segment makes a switch with n stations on a clock that stands still.
func segment(t testing.TB, n int, o Options) (*Switch, *engine.ManualClock, []*sink, []*Port) {
	c := &engine.ManualClock{}
	o.Clock = c
	s := NewSwitch(o)
	t.Cleanup(s.Close)
	var sinks []*sink
	var ports []*Port
	for i := range n {
		k := newSink()
		k.clock = c.Now
		sinks = append(sinks, k)
		ports = append(ports, s.Attach(fmt.Sprint("nic", i), k))
	}
	return s, c, sinks, ports
}

func TestLearning(t *testing.T) {
	_, clock, sinks, ports := segment(t, 3, Options{})
	counts := func() (n [3]int) {
		for i, k := range sinks {
			n[i] = len(k.take())
		}
		return n
	}
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "deliveries to an unknown station", counts(), [3]int{0, 1, 1})
	ports[1].Send(frame(mac(0), mac(1), 60, 0))
	check(t, "deliveries to a known station", counts(), [3]int{1, 0, 0})
	ports[2].Send(frame(mac(2), mac(2), 60, 0))
	check(t, "deliveries to oneself", counts(), [3]int{})
	check(t, "filtered", ports[2].Stats().Filtered, 1)
	ports[0].Send(frame(broadcast, mac(0), 60, 0))
	ports[0].Send(frame(multicast, mac(0), 60, 0))
	check(t, "deliveries to groups", counts(), [3]int{0, 2, 2})

	ports[2].Send(frame(mac(0), mac(1), 60, 0)) // station 1 moves
	counts()
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "deliveries to a station that moved", counts(), [3]int{0, 0, 1})

	ports[0].Send(frame(broadcast, broadcast, 60, 0)) // nobody's address
	counts()
	ports[1].Send(frame(broadcast, mac(9), 60, 0))
	check(t, "deliveries after a group as source", counts(), [3]int{1, 0, 1})

	clock.Advance(defaultAging - time.Second)
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "deliveries just before aging", counts(), [3]int{0, 0, 1})
	clock.Advance(defaultAging / 2)
	ports[2].Send(frame(mac(0), mac(2), 60, 0))
	check(t, "deliveries to a station heard lately", counts(), [3]int{1, 0, 0})
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "deliveries to a silent station", counts(), [3]int{0, 1, 1})
}

func TestFrameLimits(t *testing.T) {
	_, _, sinks, ports := segment(t, 2, Options{})
	f := frame(broadcast, mac(0), 42, 7)
	ports[0].Send(f[:42])
	same(t, "padded frame", sinks[1].take()[0], append(f[:42:42], make([]byte, 18)...))
	ports[0].Send(f[:13])
	ports[0].Send(nil)
	ports[0].Send(make([]byte, MaxFrame+1))
	ports[0].Send(frame(broadcast, mac(0), MaxFrame, 7))
	got := sinks[1].take()
	if len(got) != 1 || len(got[0]) != MaxFrame {
		t.Fatalf("%d frames have come, want the longest alone", len(got))
	}
	check(t, "stats", ports[0].Stats(), PortStats{TxFrames: 2, TxBytes: 60 + MaxFrame, Short: 2, Long: 1})
	check(t, "stats", ports[1].Stats(), PortStats{RxFrames: 2, RxBytes: 60 + MaxFrame})
}

func TestLink(t *testing.T) {
	s, _, sinks, ports := segment(t, 3, Options{})
	ports[1].Send(frame(broadcast, mac(1), 60, 0))
	ports[1].SetLink(false)
	check(t, "link", ports[1].Link(), false)
	for _, k := range sinks {
		k.take()
	}
	ports[1].Send(frame(broadcast, mac(1), 60, 0))
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "frames through a cut cable", len(sinks[1].take()), 0)
	check(t, "frames to others, as the station is forgotten", len(sinks[2].take()), 1)
	check(t, "frames from a cut cable", len(sinks[0].take()), 0)
	check(t, "LinkDown", ports[1].Stats().LinkDown, 2)
	ports[1].SetLink(true)
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "frames after the link is back", len(sinks[1].take()), 1)

	ports[2].Close()
	ports[2].Close()
	ports[2].SetLink(true)
	check(t, "link of a closed port", ports[2].Link(), false)
	sinks[2].take()
	k := newSink()
	again := s.Attach("new", k)
	check(t, "id of the next port", again.id, ports[2].id)
	ports[2].Close() // does not take its successor away
	ports[0].Send(frame(broadcast, mac(0), 60, 0))
	check(t, "frames to the next port", len(k.take()), 1)
	check(t, "frames to a closed port", len(sinks[2].take()), 0)
	check(t, "port by name", s.Port("new"), again)
	check(t, "number of ports", len(s.Ports()), 3)
}

// TestCrowd: a port that makes up addresses costs others nothing.
func TestCrowd(t *testing.T) {
	s, _, sinks, ports := segment(t, 3, Options{Stations: 512})
	var known []int
	for i := range 100 {
		before := ports[0].Stats().Unlearned
		ports[0].Send(frame(broadcast, mac(i), 60, 0))
		if ports[0].Stats().Unlearned == before {
			known = append(known, i)
		}
	}
	for i := range 6000 {
		ports[1].Send(frame(broadcast, mac(1e6+i), 60, 0))
	}
	entries := 0
	for i := range s.table.buckets {
		entries += len(s.table.buckets[i])
	}
	check(t, "size of the table", entries, 512)
	sinks[1].take()
	for _, i := range known {
		ports[2].Send(frame(mac(i), mac(-1), 60, 0))
	}
	check(t, "frames flooded to the crowd", len(sinks[1].take()), 0)
	if len(known) < 90 {
		t.Errorf("%d of 100 stations were learned by an empty table of 512", len(known))
	}
	ports[2].Send(frame(broadcast, mac(-2), 60, 0))
	check(t, "frames of stations without a place", ports[2].Stats().Unlearned, uint64(len(known))+1)
}

// TestModel holds the switch against the plainest model of one: a map.
func TestModel(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, clock, sinks, ports := segment(t, 5, Options{})
		type place struct {
			port int
			seen time.Duration
		}
		where := map[int]place{}
		up := []bool{true, true, true, true, true}
		forget := func(port int) {
			for m, p := range where {
				if p.port == port {
					delete(where, m)
				}
			}
		}
		small := 0
		for step := range 2000 {
			switch p := r.IntN(1000); {
			case p < 10:
				i := r.IntN(5)
				up[i] = !up[i]
				ports[i].SetLink(up[i])
				if !up[i] {
					forget(i)
				}
				continue
			case p < 20 && small < 250:
				small++
				clock.Advance(time.Second)
				continue
			case p < 22:
				small = 0
				clock.Advance(400 * time.Second)
				continue
			case p < 24:
				i := r.IntN(5)
				ports[i].Close()
				ports[i] = s.Attach("again", sinks[i])
				up[i] = true
				forget(i)
				continue
			}
			from, src, dst := r.IntN(5), r.IntN(12), r.IntN(12)
			f := frame(mac(dst), mac(src), 60+r.IntN(100), uint32(step))
			if dst == 0 {
				copy(f, broadcast)
			}
			ports[from].Send(f)
			var to []int
			if up[from] {
				where[src] = place{from, clock.Now()}
				p, ok := where[dst]
				switch {
				case dst == 0 || !ok || clock.Now()-p.seen > 300*time.Second:
					to = []int{0, 1, 2, 3, 4}
				default:
					to = []int{p.port}
				}
				to = slices.DeleteFunc(to, func(i int) bool { return i == from || !up[i] })
			}
			for i, k := range sinks {
				got := k.take()
				wanted := 0
				if slices.Contains(to, i) {
					wanted = 1
				}
				if len(got) != wanted || wanted == 1 && !slices.Equal(got[0], f) {
					t.Fatalf("seed %d step %d: frame %d→%d from port %d: port %d got %d frames, want %d", seed, step, src, dst, from, i, len(got), wanted)
				}
			}
		}
	}
}

// TestConcurrent: frames of many senders arrive once, in order, nowhere else,
// while links and ports come and go beside them.
func TestConcurrent(t *testing.T) {
	const n, frames = 4, 1000
	s, _, sinks, ports := segment(t, n, Options{Stations: 64})
	for i := range n {
		ports[i].Send(frame(broadcast, mac(i), 60, 0))
	}
	for _, k := range sinks {
		k.take()
	}
	var senders, others sync.WaitGroup
	stop := make(chan struct{})
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			p := s.Attach("passing", newSink())
			p.Send(frame(mac(1e6+i), mac(2e6+i), 60, 0))
			p.SetLink(i%2 == 0)
			p.Close()
		}
	})
	for i := range n {
		senders.Go(func() {
			for j := range frames {
				ports[i].Send(frame(mac((i+1+j%(n-1))%n), mac(i), 60, uint32(j)))
			}
		})
	}
	senders.Wait()
	close(stop)
	others.Wait()
	for i, k := range sinks {
		next := make([]int, n)
		for j := range next {
			next[j] = -1
		}
		total := 0
		for _, f := range k.take() {
			src := int(f[11])
			if f[9] != 0 || src >= n {
				continue // of the passing port
			}
			total++
			if address(f) != address(mac(i)) {
				t.Fatalf("port %d got a frame for %x", i, f[:6])
			}
			if m := int(number(f)); m <= next[src] {
				t.Fatalf("port %d got frame %d of %d after %d", i, m, src, next[src])
			} else {
				next[src] = m
			}
		}
		// Every sender sends each peer a third of its frames, give or take one.
		wanted := 0
		for src := range n {
			for j := range frames {
				if (src+1+j%(n-1))%n == i {
					wanted++
				}
			}
		}
		check(t, "frames", total, wanted)
	}
}

// discard is a station that keeps nothing.
type discard struct{ n atomic.Uint64 }

func (d *discard) Receive(f []byte) { d.n.Add(1) }

func TestNoAllocation(t *testing.T) {
	s := NewSwitch(Options{})
	defer s.Close()
	a, b := s.Attach("a", &discard{}), s.Attach("b", &discard{})
	s.Attach("c", &discard{})
	b.Send(frame(broadcast, mac(1), 60, 0))
	unicast, flood := frame(mac(1), mac(0), 1514, 0), frame(broadcast, mac(0), 1514, 0)
	check(t, "allocations per frame", testing.AllocsPerRun(1000, func() {
		a.Send(unicast)
		a.Send(flood)
	}), 0)
}

func BenchmarkForward(b *testing.B) {
	for _, size := range []int{60, 1514, 9014} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := NewSwitch(Options{})
			defer s.Close()
			from, to := s.Attach("a", &discard{}), s.Attach("b", &discard{})
			to.Send(frame(broadcast, mac(1), 60, 0))
			f := frame(mac(1), mac(0), size, 0)
			b.ReportAllocs()
			for b.Loop() {
				from.Send(f)
			}
		})
	}
}

func BenchmarkForwardPadded(b *testing.B) {
	s := NewSwitch(Options{})
	defer s.Close()
	from := s.Attach("a", &discard{})
	s.Attach("b", &discard{})
	f := frame(mac(1), mac(0), 42, 0)
	b.ReportAllocs()
	for b.Loop() {
		from.Send(f)
	}
}

// BenchmarkForwardParallel: pairs of ports beside each other.
func BenchmarkForwardParallel(b *testing.B) {
	s := NewSwitch(Options{})
	defer s.Close()
	var pairs atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		n := int(pairs.Add(2))
		from, to := s.Attach("a", &discard{}), s.Attach("b", &discard{})
		to.Send(frame(broadcast, mac(n+1), 60, 0))
		f := frame(mac(n+1), mac(n), 1514, 0)
		for pb.Next() {
			from.Send(f)
		}
	})
}

func BenchmarkFlood(b *testing.B) {
	s := NewSwitch(Options{})
	defer s.Close()
	from := s.Attach("a", &discard{})
	for range 3 {
		s.Attach("b", &discard{})
	}
	f := frame(broadcast, mac(0), 1514, 0)
	b.ReportAllocs()
	for b.Loop() {
		from.Send(f)
	}
}

func BenchmarkCaptured(b *testing.B) {
	c := NewCapture(io.Discard)
	defer c.Close(b.Context())
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	from, to := s.Attach("a", &discard{}), s.Attach("b", &discard{})
	to.Send(frame(broadcast, mac(1), 60, 0))
	f := frame(mac(1), mac(0), 1514, 0)
	b.ReportAllocs()
	for b.Loop() {
		from.Send(f)
	}
}
