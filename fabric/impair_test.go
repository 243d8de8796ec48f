// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// impaired makes two stations with rules, and makes them known.
func impaired(t testing.TB, specs ...string) (*Switch, func(time.Duration), []*sink, []*Port) {
	t.Helper()
	var rules []Impairment
	for _, spec := range specs {
		r, err := ParseImpair(spec)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	s, clock, sinks, ports := segment(t, 2, Options{})
	for i, p := range ports {
		p.Send(frame(broadcast, mac(i), 60, 0))
	}
	for _, k := range sinks {
		k.take()
	}
	s.Impair(rules...)
	return s, clock.Advance, sinks, ports
}

func TestParseImpair(t *testing.T) {
	got, err := ParseImpair("loss=1%,delay=2ms,jitter=500us,reorder=25%,duplicate=0.1%,corrupt=100%,rate=2.5gbit,queue=512k,seed=7,port=nic0,dir=both")
	if err != nil {
		t.Fatal(err)
	}
	want := Impairment{Loss: 0.01, Delay: 2e6, Jitter: 5e5, Reorder: 0.25, Duplicate: 0.001, Corrupt: 1, Rate: 2.5e9, Queue: 512 << 10, Seed: 7, Port: "nic0", Dir: Both}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for spec, rate := range map[string]uint64{"rate=9600bit": 9600, "rate=64kbit": 64e3, "rate=100Mbit": 1e8, "rate=10gbit": 1e10} {
		if r, err := ParseImpair(spec); err != nil || r.Rate != rate {
			t.Errorf("%s: %d, %v", spec, r.Rate, err)
		}
	}
	for spec, why := range map[string]string{
		"":                     `"" is none of loss, delay`,
		"los=1%":               `"los" is none of loss, delay`,
		"loss":                 "loss needs a value",
		"loss=":                "loss needs a value",
		"loss=1":               "not a percentage",
		"loss=101%":            "not a percentage",
		"loss=-1%":             "not a percentage",
		"loss=NaN%":            "not a percentage",
		"delay=2":              "not a time",
		"delay=-2ms":           "not a time",
		"delay=2h":             "not a time",
		"jitter=1ms":           "jitter is more than delay",
		"delay=1ms,jitter=2ms": "jitter is more than delay",
		"rate=100":             "not a rate",
		"rate=0mbit":           "not a rate",
		"rate=infmbit":         "not a rate",
		"queue=-1":             "not a number of bytes",
		"queue=9g":             "not a number of bytes",
		"seed=x":               "not a number",
		"dir=up":               "none of tx, rx, both",
		"dir=":                 "needs a value",
		"loss=1%,loss=2%":      "given twice",
		"loss=1%,":             `"" is none of`,
	} {
		if _, err := ParseImpair(spec); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "impairment") {
			t.Errorf("%q: %v, want %q", spec, err, why)
		}
	}
}

// TestChance: rates are those of the rule, the same seed gives the same fate,
// directions and ports have fates of their own, and every frame is accounted
// for.
func TestChance(t *testing.T) {
	const n = 20000
	run := func(specs ...string) ([]uint32, ImpairStats) {
		_, _, sinks, ports := impaired(t, specs...)
		for i := range n {
			ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
		}
		return sinks[1].numbers(), *ports[0].Stats().TxImpair
	}
	got, stats := run("loss=2%,duplicate=3%,corrupt=0.5%,seed=1")
	for _, c := range []struct {
		what string
		n    uint64
		p    float64
	}{{"lost", stats.Lost, 0.02}, {"duplicated", stats.Duplicated, 0.03 * 0.98}, {"corrupted", stats.Corrupted, 0.005 * 0.98}} {
		mean, sigma := n*c.p, math.Sqrt(n*c.p*(1-c.p))
		if math.Abs(float64(c.n)-mean) > 4*sigma {
			t.Errorf("%d of %d frames were %s, want %.0f±%.0f", c.n, n, c.what, mean, 4*sigma)
		}
	}
	check(t, "frames", stats.Frames, n)
	check(t, "passed", stats.Passed, n-stats.Lost)
	check(t, "arrived", uint64(len(got)), stats.Passed+stats.Duplicated)

	again, _ := run("loss=2%,duplicate=3%,corrupt=0.5%,seed=1")
	check(t, "same fate with the same seed", slices.Equal(got, again), true)
	other, _ := run("loss=2%,duplicate=3%,corrupt=0.5%,seed=2")
	check(t, "same fate with another seed", slices.Equal(got, other), false)

	// Whether a frame is lost does not depend on the other words of a rule.
	_, alone := run("loss=2%,seed=1")
	check(t, "lost by the word alone", alone.Lost, stats.Lost)

	_, _, sinks, ports := impaired(t, "loss=50%,dir=both,seed=1")
	for i := range n {
		ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
		ports[1].Send(frame(mac(0), mac(1), 60, uint32(i)))
	}
	check(t, "same fate at two ports", slices.Equal(sinks[0].numbers(), sinks[1].numbers()), false)
	tx, rx := ports[0].Stats().TxImpair, ports[1].Stats().RxImpair
	check(t, "frames at the second cable", rx.Frames, tx.Passed)
	if rx.Lost < rx.Frames*45/100 || rx.Lost > rx.Frames*55/100 {
		t.Errorf("the second cable lost %d of %d", rx.Lost, rx.Frames)
	}
}

func TestRules(t *testing.T) {
	s, _, sinks, ports := impaired(t, "loss=0%", "loss=100%,port=nic1,dir=rx", "loss=100%,port=other")
	ports[0].Send(frame(mac(1), mac(0), 60, 1))
	ports[1].Send(frame(mac(0), mac(1), 60, 2))
	check(t, "frames to nic1", len(sinks[1].take()), 0)
	check(t, "frames to nic0", len(sinks[0].take()), 1)
	k := newSink()
	late := s.Attach("other", k)
	late.Send(frame(broadcast, mac(7), 60, 3))
	check(t, "frames from a later port", len(sinks[0].take()), 0)
	s.Impair()
	late.Send(frame(broadcast, mac(7), 60, 3))
	check(t, "frames without rules", len(sinks[1].take()), 1)
	if late.Stats().TxImpair != nil {
		t.Error("statistics without a rule")
	}
}

func TestCorrupt(t *testing.T) {
	_, _, sinks, ports := impaired(t, "corrupt=100%")
	seen := map[int]bool{}
	for range 1500 {
		f := frame(mac(1), mac(0), 64, 0)
		before := bytes.Clone(f)
		ports[0].Send(f)
		same(t, "the sender's frame", f, before)
		got := sinks[1].take()[0]
		turned := 0
		for i := range got {
			if d := got[i] ^ f[i]; d != 0 {
				turned += bits.OnesCount8(d)
				seen[i*8+bits.TrailingZeros8(d)] = true
			}
		}
		check(t, "bits turned over", turned, 1)
	}
	for bit := range seen {
		if bit < headerLen*8 {
			t.Fatalf("bit %d of the header was turned over", bit)
		}
	}
	if len(seen) < 370 {
		t.Errorf("%d of 400 bits were ever turned over", len(seen))
	}
}

func TestDelay(t *testing.T) {
	_, advance, sinks, ports := impaired(t, "delay=2ms")
	for i := range 3 {
		ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
		advance(time.Millisecond / 2)
	}
	check(t, "frames held", ports[0].Stats().TxImpair.Held, 3)
	check(t, "bytes held", ports[0].Stats().TxImpair.HeldBytes, 3*256)
	for range 5 {
		advance(time.Millisecond / 2)
	}
	sinks[1].mu.Lock()
	at := slices.Clone(sinks[1].at)
	sinks[1].mu.Unlock()
	if d := cmp.Diff([]time.Duration{2e6, 25e5, 3e6}, at); d != "" {
		t.Error("times of arrival", d)
	}
	check(t, "order", slices.Equal(sinks[1].numbers(), []uint32{0, 1, 2}), true)
	check(t, "stats", *ports[0].Stats().TxImpair, ImpairStats{Frames: 3, Passed: 3})
}

func TestJitterKeepsOrder(t *testing.T) {
	_, advance, sinks, ports := impaired(t, "delay=5ms,jitter=5ms,seed=3")
	const n = 2000
	sent := make([]time.Duration, n)
	for i := range n {
		sent[i] = time.Duration(i) * 100 * time.Microsecond
		ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
		advance(100 * time.Microsecond)
	}
	for range 200 {
		advance(100 * time.Microsecond)
	}
	at := slices.Clone(sinks[1].at)
	got := sinks[1].numbers()
	check(t, "frames", len(got), n)
	check(t, "order", slices.IsSorted(got), true)
	for i, a := range at {
		if late := a - sent[i]; late < 0 || late > 10*time.Millisecond+100*time.Microsecond {
			t.Fatalf("frame %d is %v late", i, late)
		}
	}
}

func TestReorder(t *testing.T) {
	for _, spec := range []string{"reorder=5%,seed=1", "reorder=5%,delay=3ms,seed=1"} {
		_, advance, sinks, ports := impaired(t, spec)
		const n = 2000
		for i := range n {
			ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
			advance(200 * time.Microsecond)
		}
		for range 100 {
			advance(time.Millisecond)
		}
		got := sinks[1].numbers()
		check(t, "frames", len(got), n)
		late, top := uint64(0), uint32(0)
		for _, m := range got {
			if m < top {
				late++
			}
			top = max(top, m)
		}
		stats := ports[0].Stats().TxImpair
		if late != stats.Reordered || late < n*4/100 || late > n*6/100 {
			t.Errorf("%s: %d frames were overtaken, counted %d, want about 5 %% of %d", spec, late, stats.Reordered, n)
		}
	}
}

// TestRate: a frame leaves when those before it have passed the wire.
func TestRate(t *testing.T) {
	_, advance, sinks, ports := impaired(t, "rate=100mbit")
	const n = 100
	for i := range n {
		ports[0].Send(frame(mac(1), mac(0), 1514, uint32(i)))
	}
	perFrame := time.Duration((1514 + 24) * 8 * 10) // ns at 10 ns a bit
	check(t, "frames at once", len(sinks[1].frames), 1)
	for range n {
		advance(perFrame)
	}
	at := slices.Clone(sinks[1].at)
	check(t, "frames", len(at), n)
	for i := range at {
		check(t, "time of arrival", at[i], time.Duration(i)*perFrame)
	}
	sinks[1].take()
	advance(time.Second)
	ports[0].Send(frame(mac(1), mac(0), 1514, 0))
	check(t, "frames over an idle wire", len(sinks[1].take()), 1)
}

func TestQueueBound(t *testing.T) {
	_, advance, sinks, ports := impaired(t, "rate=1mbit,queue=64k")
	for i := range 1000 {
		ports[0].Send(frame(mac(1), mac(0), 1514, uint32(i)))
	}
	stats := *ports[0].Stats().TxImpair
	check(t, "stats", stats, ImpairStats{Frames: 1000, Passed: 1, Held: 32, HeldBytes: 64 << 10, Overflow: 967})
	advance(time.Minute)
	check(t, "frames", len(sinks[1].take()), 33)
	check(t, "bytes held", ports[0].Stats().TxImpair.HeldBytes, 0)
}

// Where a frame is let go so slowly that others are late of themselves, those who
// can wait are told to while many do; what waits for its time is no reason.
func TestCrowdedImpairment(t *testing.T) {
	for _, dir := range []string{"tx,port=nic0", "rx,port=nic1"} {
		_, advance, sinks, ports := impaired(t, "delay=2ms,dir="+dir)
		const n, few = 400, crowdedAt / 2048
		dst := [6]byte(mac(1))
		for i := range n {
			ports[0].Send(frame(dst[:], mac(0), 1514, uint32(i)))
		}
		check(t, "crowded before any is due", ports[0].Crowded(dst), false)
		var crowded, want []int // how many were left then
		for left := n - 1; left > few; left-- {
			want = append(want, left)
		}
		sinks[1].clock = func() time.Duration {
			left := n - 1 - len(sinks[1].at)
			if left == n-1 {
				advance(2 * lagAllowed)
			}
			if ports[0].Crowded(dst) {
				crowded = append(crowded, left)
			}
			return 0
		}
		advance(2 * time.Millisecond)
		check(t, "frames", len(sinks[1].take()), n)
		if d := cmp.Diff(want, crowded); d != "" {
			t.Errorf("crowded with so many left: %s", d)
		}
		// Somebody does not wait, and fills up what is let go.
		crowded = nil
		left := n
		sinks[1].clock = func() time.Duration {
			if left--; left > 0 {
				advance(crowdPatience / 100)
				ports[0].Send(frame(dst[:], mac(0), 1514, 0))
				if ports[0].Crowded(dst) {
					crowded = append(crowded, left)
				}
			}
			return 0
		}
		for i := range n {
			ports[0].Send(frame(dst[:], mac(0), 1514, uint32(i)))
		}
		advance(2 * time.Millisecond)
		if k := len(crowded); k < 95 || k > 105 || crowded[k-1] != n-k {
			t.Errorf("crowded %d times of %d, want those of the first second: %v", k, n, crowded)
		}
	}
}

func TestCutWhileHeld(t *testing.T) {
	s, advance, sinks, ports := impaired(t, "delay=2ms,dir=both")
	send := func() {
		for i := range 5 {
			ports[0].Send(frame(mac(1), mac(0), 60, uint32(i)))
		}
	}
	send()
	ports[0].SetLink(false)
	check(t, "flushed", *ports[0].Stats().TxImpair, ImpairStats{Frames: 5, Flushed: 5})
	ports[0].SetLink(true)
	send()
	advance(2 * time.Millisecond) // now in the receiver's cable
	ports[1].SetLink(false)
	check(t, "flushed", *ports[1].Stats().RxImpair, ImpairStats{Frames: 5, Flushed: 5})
	ports[1].SetLink(true)
	send()
	s.Impair()
	advance(time.Second)
	check(t, "frames of a rule that was dropped", len(sinks[1].take()), 0)
	send()
	check(t, "frames after it", len(sinks[1].take()), 5)
	send()
	ports[0].Close()
	advance(time.Second)
}

// TestImpairConcurrent: on a clock that runs, with senders beside each other,
// every frame is accounted for and each sender's frames keep their order.
func TestImpairConcurrent(t *testing.T) {
	r, err := ParseImpair("delay=1ms,jitter=1ms,duplicate=1%,loss=1%,dir=both")
	if err != nil {
		t.Fatal(err)
	}
	s := NewSwitch(Options{Impair: []Impairment{r}})
	defer s.Close()
	k := newSink()
	to := s.Attach("to", k)
	const senders, n = 3, 500
	var all sync.WaitGroup
	var ports []*Port
	for i := range senders {
		p := s.Attach("from", newSink())
		ports = append(ports, p)
		all.Go(func() {
			for j := range n {
				p.Send(frame(broadcast, mac(i), 60, uint32(j)))
			}
		})
	}
	all.Wait()
	k.mu.Lock()
	last := [senders]int{}
	for {
		var wanted uint64
		held := 0
		for _, p := range ports {
			held += p.Stats().TxImpair.Held
		}
		rx := to.Stats().RxImpair
		wanted = rx.Passed + rx.Duplicated
		if held+rx.Held == 0 && uint64(len(k.frames)) == wanted {
			break
		}
		k.grown.Wait()
	}
	frames := k.frames
	k.mu.Unlock()
	for _, f := range frames {
		src, m := int(f[11]), int(number(f))
		if m < last[src] {
			t.Fatalf("frame %d of %d after %d", m, src, last[src])
		}
		last[src] = m
	}
	for _, p := range ports {
		st := p.Stats().TxImpair
		check(t, "frames accounted for", st.Passed+st.Lost, n)
	}
}

func BenchmarkImpaired(b *testing.B) {
	_, advance, sinks, ports := impaired(b, "delay=1ms")
	f := frame(mac(1), mac(0), 1514, 0)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		ports[0].Send(f)
		if n++; n%100 == 0 {
			advance(time.Millisecond)
			sinks[1].take()
		}
	}
}
