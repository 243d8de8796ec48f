// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

// The bounds of what was promised of writes from one card to another that nobody
// watches.
const (
	engineOfCopy  = 0.5 // of a copy's bytes, for messages of 1 MiB
	engineLarge   = 6   // GB/s, for the same, where copies do twice that
	enginePage    = 1   // GB/s, for 4 KiB
	engineSmall   = 1e6 // writes of 64 B per second and shard
	engineAllocs  = 0.001
	quietMachine  = 0.9 // share of the CPUs wanted from which on the clock counts, too
	slicesOfRound = 4
)

// TestTraffic measures RDMA writes from one card to another.
func TestTraffic(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: its figures are worth something on a quiet machine only; make bench passes it")
	}
	var r report
	for _, way := range []string{near, framed, uplinked} {
		r.take(t, func(t *testing.T) []figure { return writes(t, way) })
	}
	r.close(t)
}

// The ways from one card to another.
const (
	near     = "bursts in one process"
	framed   = "frames in one process"
	uplinked = "frames over an uplink"
)

// flow is writes from one card to another, all over a region.
type flow struct {
	from, to *minidriver.Region
	qp       *minidriver.QP
	cq       *minidriver.CQ
	wrs      []minidriver.SendWR // of a region's length together, or a batch
	batch    int                 // with one doorbell, of which the last is signalled
	posted   int                 // batches
	done     int
}

const (
	flowBytes = 1 << 20
	flowWRs   = 1024
	flowPD    = 5
)

// twoCards serves two cards and brings the drivers up on both.
func twoCards(t *testing.T, way string) (list [2]*minidriver.IRDMA) {
	t.Helper()
	dir := t.TempDir()
	sockets := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	host := func(n serve.Network, sockets ...string) {
		h, err := serve.Start(t.Context(), serve.Options{Sockets: sockets, Network: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
	}
	x, y := filepath.Join(dir, "x"), filepath.Join(dir, "y")
	switch way {
	case uplinked:
		for k, spec := range []string{x + "," + y, y + "," + x} {
			u, err := fabric.ParseUplink("dgram:" + spec)
			if err != nil {
				t.Fatal(err)
			}
			host(serve.Network{Uplinks: []fabric.UplinkSpec{u}}, sockets[k])
		}
	case framed: // somebody wants to see them
		host(serve.Network{Capture: func(context.Context) (io.Writer, error) { return io.Discard, nil }}, sockets...)
	default:
		host(serve.Network{}, sockets...)
	}
	for k, socket := range sockets {
		list[k] = drivers(t, socket, 64)
	}
	return list
}

// newFlow connects two QPs, with regions of scattered pages of 4 KiB.
func newFlow(t *testing.T, cards [2]*minidriver.IRDMA, size, batch, mtu int) *flow {
	t.Helper()
	f := &flow{batch: batch}
	var qps [2]*minidriver.QP
	var mrs [2]*minidriver.MR
	for k, r := range cards {
		cq, err := r.CreateCQ(2*flowWRs, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		qps[k], err = r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: flowPD, SendWRs: flowWRs, RecvWRs: 1, SendSGEs: 1, RecvSGEs: 1})
		if err != nil {
			t.Fatal(err)
		}
		qps[k].Attr.MTU, qps[k].Attr.Retries = mtu, 7
		m, err := r.F.Guest.NewRegion(rand.New(rand.NewPCG(uint64(k), 1)), 0x7000_0000_0000, flowBytes, page)
		if err != nil {
			t.Fatal(err)
		}
		if mrs[k], err = r.RegMR(flowPD, m, minidriver.Everything, minidriver.MROptions{}); err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			f.qp, f.cq, f.from = qps[0], cq, m
		} else {
			f.to = m
		}
	}
	if err := minidriver.ConnectPair(qps[0], qps[1]); err != nil {
		t.Fatal(err)
	}
	for n := range max(batch, flowBytes/size) {
		off := n * size % flowBytes
		f.wrs = append(f.wrs, minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_RDMA_WRITE, Signalled: len(f.wrs)%batch == batch-1,
			SGEs:       []minidriver.SGE{{Addr: mrs[0].Addr(off), Len: uint32(size), LKey: mrs[0].STag}},
			RemoteAddr: mrs[1].Addr(off), RKey: mrs[1].STag})
	}
	return f
}

// run does so many writes more, with as many posted as there is room for.
func (f *flow) run(writes int) error {
	depth := flowWRs / f.batch
	for end := f.done + max(1, writes/f.batch); f.done < end; {
		for f.posted < end && f.posted-f.done < depth {
			at := f.posted * f.batch % len(f.wrs)
			if err := f.qp.PostSend(f.wrs[at : at+f.batch]...); err != nil {
				return err
			}
			f.posted++
		}
		wc, ok, err := f.cq.Poll()
		switch {
		case err != nil:
			return err
		case !ok:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case wc.Status != minidriver.Success:
			return fmt.Errorf("completion %+v", wc)
		default:
			f.done++
		}
	}
	return nil
}

// usage is what a flow or a copy has taken.
type usage struct {
	clock, cpu time.Duration // cpu: of the devices, or of the copying thread
	allocs     uint64
	// Of all threads: how long they ran, and how long they waited for a CPU.
	ran, waited time.Duration
}

func (u *usage) add(v usage) {
	u.clock, u.cpu, u.allocs = u.clock+v.clock, u.cpu+v.cpu, u.allocs+v.allocs
	u.ran, u.waited = u.ran+v.ran, u.waited+v.waited
}

// processTime is the processor's time that all threads have had.
func processTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// traffic is what do takes the devices: all that this process does and the
// driver's thread, to which the caller is bound, does not.
func traffic(t *testing.T, do func() error) (u usage) {
	t.Helper()
	ran, waited := scheduled(t, os.Getpid())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, cpu, own := time.Now(), processTime(), threadTime()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	u.clock, u.cpu = time.Since(began), processTime()-cpu-(threadTime()-own)
	runtime.ReadMemStats(&after)
	u.allocs = after.Mallocs - before.Mallocs
	u.ran, u.waited = scheduled(t, os.Getpid())
	u.ran, u.waited = u.ran-ran, u.waited-waited
	return u
}

// writes measures writes of several sizes, in turns with copies of the same
// bytes between the same pages.
func writes(t *testing.T, way string) (list []figure) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cards := twoCards(t, way)
	// The driver's thread stands for a guest's, which would be none of ours.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 1))
	for _, c := range []struct {
		name             string
		size, batch, mtu int
		bytes            int // of a slice
		packets          bool
	}{
		{"1 MiB, MTU 4096", 1 << 20, 4, 4096, 256 << 20, true},
		{"1 MiB, MTU 1024", 1 << 20, 4, 1024, 256 << 20, true},
		{"4 KiB", 4 << 10, 16, 4096, 64 << 20, false},
		{"64 B, 32 with a doorbell", 64, 32, 1024, 8 << 20, false},
	} {
		if way == near && c.mtu == 1024 && c.packets {
			continue // it makes no difference without frames
		}
		bytes := c.bytes
		if way != near {
			bytes /= 64
		}
		f := newFlow(t, cards, c.size, c.batch, c.mtu)
		n := bytes / c.size
		run := func() error { return f.run(n) }
		traffic(t, run) // warm
		var m measured
		for range rounds {
			var sent, copied usage
			for range slicesOfRound {
				sent.add(traffic(t, run))
				began, cpu := time.Now(), threadTime()
				for k := range n {
					f.from.CopyTo(f.to, k*c.size%flowBytes, c.size)
				}
				copied.add(usage{clock: time.Since(began), cpu: threadTime() - cpu})
			}
			m.take(slicesOfRound*n, max(1, c.size/c.mtu), sent, copied)
		}
		list = append(list, m.figures("RDMA write by "+way+", "+c.name, c.size, c.mtu, way == near, c.packets && way != near)...)
	}
	return list
}

// measured are the rounds of a flow: operations per second of the processor's
// time and by the clock, beside those of copies.
type measured struct {
	rate, clock, copied samples
	allocs, share       samples
}

func (m *measured) take(n, packets int, sent, copied usage) {
	m.rate = append(m.rate, float64(n)/sent.cpu.Seconds())
	m.clock = append(m.clock, float64(n)/sent.clock.Seconds())
	m.copied = append(m.copied, float64(n)/copied.cpu.Seconds())
	m.allocs = append(m.allocs, float64(sent.allocs)/float64(n*packets))
	m.share = append(m.share, float64(sent.ran)/float64(sent.ran+sent.waited))
}

func (s samples) times(f float64) samples {
	out := make(samples, len(s))
	for i, v := range s {
		out[i] = v * f
	}
	return out
}

// figures are the rows of the table for writes of a size. Only what was promised
// has bounds.
func (m *measured) figures(name string, size, mtu int, promised, packets bool) (list []figure) {
	scale, unit := 1.0, "1/s"
	least := bound{atLeast: engineSmall}
	if size >= 4<<10 {
		scale, unit = float64(size)/1e9, "GB/s"
		least = bound{atLeast: enginePage}
	}
	copies := m.copied.times(scale)
	if size == 1<<20 {
		least = bound{}
		if copies.median() >= engineLarge/engineOfCopy {
			least = bound{atLeast: engineLarge}
		}
	}
	clock := least
	if m.share.median() < quietMachine {
		clock = bound{} // others had the CPUs
	}
	none := bound{atMost: engineAllocs}
	ratio := bound{}
	if size == 1<<20 {
		ratio = bound{atLeast: engineOfCopy}
	}
	if !promised {
		least, clock, none, ratio = bound{}, bound{}, bound{}, bound{}
	}
	list = append(list, figure{name: name, unit: unit + " of CPU time", samples: m.rate.times(scale), bound: least})
	if size >= 4<<10 {
		list = append(list, figure{name: name + " / memcpy", unit: "ratio of CPU time", samples: m.rate.over(m.copied), bound: ratio})
	}
	list = append(list, figure{name: name + ", by the clock", unit: unit, samples: m.clock.times(scale), bound: clock})
	if packets {
		list = append(list, figure{name: name, unit: "packets/s of CPU time", samples: m.rate.times(float64(size / mtu))})
	}
	return append(list,
		figure{name: name + ", allocations", unit: "per packet", samples: m.allocs, bound: none},
		figure{name: name + ", share of the CPUs wanted", unit: "ratio", samples: m.share})
}
