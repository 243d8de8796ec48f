// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/guest/minidriver"
	"github.com/vrnic/vrnic/serve"
)

// TestTraffic measures RDMA writes from one card to another and prints the table.
// Nothing is promised of them yet.
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
	wrs      []minidriver.SendWR // of a region's length together
	batch    int                 // with one doorbell, of which the last is signalled
	posted   int                 // batches
	done     int
}

const (
	flowBytes = 1 << 20
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
		const size = 64
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
		if err == nil {
			list[k], err = minidriver.ProbeRDMA(i, minidriver.Options{})
		}
		if err = errors.Join(err, i.Open()); err != nil {
			t.Fatal(err)
		}
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
		cq, err := r.CreateCQ(512, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		qps[k], err = r.NewQP(minidriver.QPConfig{Send: cq, Recv: cq, PD: flowPD, SendWRs: 512, RecvWRs: 1, SendSGEs: 1, RecvSGEs: 1})
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
	for off := 0; off < flowBytes; off += size {
		f.wrs = append(f.wrs, minidriver.SendWR{Op: minidriver.IRDMA_OP_TYPE_RDMA_WRITE, Signalled: len(f.wrs)%batch == batch-1,
			SGEs:       []minidriver.SGE{{Addr: mrs[0].Addr(off), Len: uint32(size), LKey: mrs[0].STag}},
			RemoteAddr: mrs[1].Addr(off), RKey: mrs[1].STag})
	}
	return f
}

// run does so many writes more, a few batches ahead.
func (f *flow) run(writes int) error {
	depth := max(2, 192/f.batch)
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
			runtime.Gosched()
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		case wc.Status != minidriver.Success:
			return fmt.Errorf("completion %+v", wc)
		default:
			f.done++
		}
	}
	return nil
}

// writes measures writes of several sizes, in turns with copies of the same
// bytes between the same pages.
func writes(t *testing.T, way string) (list []figure) {
	cards := twoCards(t, way)
	for _, c := range []struct {
		name             string
		size, batch, mtu int
		bytes            int // of a round
		packets          bool
	}{
		{"1 MiB, MTU 4096", 1 << 20, 1, 4096, 256 << 20, true},
		{"1 MiB, MTU 1024", 1 << 20, 1, 1024, 128 << 20, true},
		{"4 KiB", 4 << 10, 16, 4096, 64 << 20, false},
		{"64 B, 32 with a doorbell", 64, 32, 1024, 4 << 20, false},
	} {
		if way == near && c.mtu == 1024 && c.packets {
			continue // it makes no difference without frames
		}
		bytes := c.bytes
		if way != near {
			bytes /= 32
		}
		f := newFlow(t, cards, c.size, c.batch, c.mtu)
		writes := bytes / c.size
		measureOnce := func() float64 {
			began := time.Now()
			if err := f.run(writes); err != nil {
				t.Fatalf("%s, %s: %v", way, c.name, err)
			}
			return float64(writes) / time.Since(began).Seconds()
		}
		measureOnce() // warm
		var rate, copied samples
		for range rounds {
			rate = append(rate, measureOnce())
			began := time.Now()
			for n := range writes {
				f.from.CopyTo(f.to, n*c.size%flowBytes, c.size)
			}
			copied = append(copied, float64(writes)/time.Since(began).Seconds())
		}
		name := "RDMA write by " + way + ", " + c.name
		scaled := func(s samples, by float64) (out samples) {
			for _, v := range s {
				out = append(out, v*by)
			}
			return out
		}
		if c.size >= 4<<10 {
			list = append(list, figure{name: name, unit: "GB/s", samples: scaled(rate, float64(c.size)/1e9)},
				figure{name: name + " / memcpy", unit: "ratio", samples: rate.over(copied)})
		} else {
			list = append(list, figure{name: name, unit: "1/s", samples: rate})
		}
		if c.packets && way != near {
			list = append(list, figure{name: name, unit: "packets/s", samples: scaled(rate, float64(c.size/c.mtu))})
		}
	}
	return list
}
