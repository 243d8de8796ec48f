// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

// The bounds of what was promised of many queue pairs and pages.
const (
	maxOfMany = 1.5  // times the cost with few
	maxIdleQP = 4096 // bytes
)

const (
	manyQPs   = 10_000
	manyPages = 1_000_000
	scaleTurn = 8 // writes with one doorbell
)

// TestScale measures what many queue pairs and many registered pages cost.
func TestScale(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: its figures are worth something on a quiet machine only; make bench passes it")
	}
	var r report
	r.take(t, manyPairs)
	r.take(t, manyRegistered)
	r.close(t)
}

// roomy is a profile for as many QPs. Objects that nobody looks into are small.
func roomy() hmc.Personality {
	const qps = 16384
	p := hmc.SmallGuest()
	p.MaxSDs = 128
	for o, max := range map[hmc.Object]uint32{hmc.QP: qps, hmc.CQ: 2 * qps, hmc.HTE: 1 << 17, hmc.XF: 16 * qps, hmc.XFFL: 4 * qps,
		hmc.Q1: 1 << 22, hmc.Q1FL: 1 << 20, hmc.TIMER: 512 * 64, hmc.RRF: 32 * qps, hmc.RRFFL: 8 * qps, hmc.HDR: qps} {
		p.Limits[o].Max = max
	}
	for _, o := range []hmc.Object{hmc.HTE, hmc.XF, hmc.Q1, hmc.RRF, hmc.HDR, hmc.TIMER} {
		p.Limits[o].Log2 = 2
	}
	return hmc.Personality{Name: "roomy", Profile: p}
}

// oneCard serves a card with a profile and brings the drivers up on it, in a guest
// of so many MiB.
func oneCard(t *testing.T, p hmc.Personality, size int) *minidriver.IRDMA {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "card")
	h, err := serve.Start(t.Context(), serve.Options{Sockets: []string{socket}, Personality: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return drivers(t, socket, size)
}

// drivers brings the drivers up on a card, in a guest of so many MiB.
func drivers(t *testing.T, socket string, size int) *minidriver.IRDMA {
	t.Helper()
	g, err := minidriver.NewGuest(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	f, err := minidriver.Attach(t.Context(), socket, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Detach)
	i, err := minidriver.Probe(f, minidriver.Linux73(), minidriver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := minidriver.ProbeRDMA(i, minidriver.Options{})
	if err = errors.Join(err, i.Open()); err != nil {
		t.Fatal(err)
	}
	return r
}

// deviceHeap is the memory in use that was not allocated by the driver or the
// test: that of the devices. It counts what is allocated while
// runtime.MemProfileRate is 1.
func deviceHeap() (n int64) {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second, and counts after it
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 100_000)
	k, ok := runtime.MemProfile(records, false)
	if !ok {
		panic(fmt.Sprintf("%d places that allocate", k))
	}
	for _, r := range records[:k] {
		if !ofDriver(r.Stack()) {
			n += r.InUseBytes()
		}
	}
	return n
}

// ofDriver tells whether a stack is one of the driver or of the test.
func ofDriver(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/guest/minidriver.") || strings.Contains(f.Function, "/test/bench.") {
			return true
		}
		if !more {
			return false
		}
	}
}

// crowd is pairs of QPs of a card, each writing within the same region.
type crowd struct {
	r   *minidriver.IRDMA
	cq  *minidriver.CQ
	mem *minidriver.Region
	mr  *minidriver.MR
	qps []*minidriver.QP // of each pair the one that writes
	wrs []minidriver.SendWR
	at  int // the next turn's QP
}

const scaleBytes = 64 // of a write

func newCrowd(t *testing.T, r *minidriver.IRDMA) *crowd {
	t.Helper()
	c := &crowd{r: r}
	var err error
	if c.cq, err = r.CreateCQ(4096, 0, false); err != nil {
		t.Fatal(err)
	}
	if c.mem, err = r.F.Guest.NewRegion(rand.New(rand.NewPCG(8, 3)), 0x7000_0000_0000, 64*page, page); err != nil {
		t.Fatal(err)
	}
	if c.mr, err = r.RegMR(flowPD, c.mem, minidriver.Everything, minidriver.MROptions{}); err != nil {
		t.Fatal(err)
	}
	for k := range scaleTurn {
		c.wrs = append(c.wrs, minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_RDMA_WRITE, Signalled: k == scaleTurn-1,
			SGEs:       []minidriver.SGE{{Addr: c.mr.Addr(k * page), Len: scaleBytes, LKey: c.mr.STag}},
			RemoteAddr: c.mr.Addr((32 + k) * page), RKey: c.mr.STag})
	}
	return c
}

// grow adds pairs until there are n.
func (c *crowd) grow(t *testing.T, n int) {
	t.Helper()
	for len(c.qps) < n {
		var pair [2]*minidriver.QP
		for k := range pair {
			q, err := c.r.NewQP(minidriver.QPConfig{Send: c.cq, Recv: c.cq, PD: flowPD, SendWRs: 16, RecvWRs: 1, SendSGEs: 1, RecvSGEs: 1})
			if err != nil {
				t.Fatalf("pair %d: %v", len(c.qps), err)
			}
			q.Attr.MTU, q.Attr.Retries = 1024, 7
			pair[k] = q
		}
		if err := minidriver.ConnectPair(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
		c.qps = append(c.qps, pair[0])
	}
}

// run takes turns with the first n of the pairs: in each one of them writes what
// next, if it is not nil, makes of wrs, and a few turns are under way.
func (c *crowd) run(n, turns int, next func()) error {
	const ahead = 4
	for posted, done := 0, 0; done < turns; {
		for posted < turns && posted-done < ahead {
			// From one to the next there are many others', so that nothing is in
			// the processor's caches by chance.
			c.at = (c.at + 617) % n
			if next != nil {
				next()
			}
			if err := c.qps[c.at].PostSend(c.wrs...); err != nil {
				return err
			}
			posted++
		}
		wc, ok, err := c.cq.Poll()
		switch {
		case err != nil:
			return err
		case !ok:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case wc.Status != minidriver.Success:
			return fmt.Errorf("completion %+v", wc)
		default:
			done++
		}
	}
	return nil
}

// manyPairs measures QPs: what they cost to make, to have and to use, first few
// and then many.
func manyPairs(t *testing.T) []figure {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	r := oneCard(t, roomy(), 640)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	const (
		few   = 8 // of them some are under way
		turns = 2000
	)
	c := newCrowd(t, r)
	c.grow(t, few)
	if err := c.run(few, turns, nil); err != nil {
		t.Fatal(err)
	}
	before, had := deviceHeap(), len(c.qps)
	// The cost of a pair: the first ones' beside the last ones'.

	var made [10]time.Duration
	for k := range made {
		u := traffic(t, func() error { c.grow(t, had+(k+1)*(manyQPs/2-had)/10); return nil })
		made[k] = u.cpu
	}
	// All have worked, and are idle.
	if err := c.run(len(c.qps), 4*len(c.qps), nil); err != nil {
		t.Fatal(err)
	}
	idle := float64(deviceHeap()-before) / float64(2*(len(c.qps)-had))
	runtime.MemProfileRate = 0
	debug.FreeOSMemory()

	var alone, together, ratio samples
	for range rounds {
		var a, b usage
		for range slicesOfRound {
			a.add(traffic(t, func() error { return c.run(few, turns, nil) }))
			b.add(traffic(t, func() error { return c.run(len(c.qps), turns, nil) }))
		}
		per := float64(slicesOfRound * turns * scaleTurn)
		alone = append(alone, float64(a.cpu)/per)
		together = append(together, float64(b.cpu)/per)
	}
	ratio = together.over(alone)
	making := samples{float64(made[8]+made[9]) / float64(made[0]+made[1])}
	const name = "QPs: 10,000, "
	return []figure{
		{name: name + "memory of one that is idle", unit: "bytes", samples: samples{idle}, bound: bound{atMost: maxIdleQP}},
		{name: fmt.Sprintf("QPs: %d, a write of 64 B, %d with a doorbell", 2*few, scaleTurn), unit: "ns of CPU time", samples: alone},
		{name: fmt.Sprintf(name+"a write of 64 B, %d with a doorbell", scaleTurn), unit: "ns of CPU time", samples: together},
		{name: fmt.Sprintf(name+"time of a write / with %d", 2*few), unit: "ratio", samples: ratio, bound: bound{atMost: maxOfMany}},
		{name: name + "time to make the last 2,000 / the first", unit: "ratio", samples: making, bound: bound{atMost: maxOfMany}},
	}
}

// manyRegistered measures writes of 4 KiB from and to pages anywhere in a region,
// of few pages and of many.
func manyRegistered(t *testing.T) []figure {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := oneCard(t, roomy(), 256)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	const (
		distinct = 64
		times    = manyPages / distinct
		turns    = 1000
	)
	c := newCrowd(t, r)
	c.grow(t, 1)
	rnd := rand.New(rand.NewPCG(8, 4))
	base, err := r.F.Guest.NewRegion(rnd, 0x6000_0000_0000, distinct*page, page)
	if err != nil {
		t.Fatal(err)
	}
	run := func(m *minidriver.MR, pages int) func() error {
		next := func() {
			for k := range c.wrs {
				from, to := rnd.IntN(pages), rnd.IntN(pages)
				c.wrs[k].SGEs[0] = minidriver.SGE{Addr: m.Addr(from * page), Len: page, LKey: m.STag}
				c.wrs[k].RemoteAddr, c.wrs[k].RKey = m.Addr(to*page), m.STag
			}
		}
		return func() error { return c.run(1, turns, next) }
	}
	register := func(times int) *minidriver.MR {
		region, err := base.Repeated(0x5000_0000_0000, times)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.RegMR(flowPD, region, minidriver.Everything, minidriver.MROptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	few, many := register(1), register(times)
	var alone, together samples
	for range rounds {
		var a, b usage
		for range slicesOfRound {
			a.add(traffic(t, run(few, distinct)))
			b.add(traffic(t, run(many, times*distinct)))
		}
		per := float64(slicesOfRound * turns * scaleTurn)
		alone, together = append(alone, float64(a.cpu)/per), append(together, float64(b.cpu)/per)
	}
	for _, m := range []*minidriver.MR{few, many} {
		if err := m.Dereg(); err != nil {
			t.Error(err)
		}
	}
	return []figure{
		{name: fmt.Sprintf("registered pages: %d, a write of 4 KiB anywhere", distinct), unit: "ns of CPU time", samples: alone},
		{name: "registered pages: 1,000,000, a write of 4 KiB anywhere", unit: "ns of CPU time", samples: together},
		{name: fmt.Sprintf("registered pages: 1,000,000, time of a write / with %d", distinct), unit: "ratio", samples: together.over(alone), bound: bound{atMost: maxOfMany}},
	}
}
