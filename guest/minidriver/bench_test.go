// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func benchFunction(b *testing.B) *Function {
	b.Helper()
	sockets, _ := serveCards(b, b.Context(), 1)
	g, err := NewGuest(guestMiB)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close() })
	f, err := Attach(b.Context(), sockets[0], g)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Detach)
	return f
}

// BenchmarkLife is one bring-up and teardown of both drivers.
func BenchmarkLife(b *testing.B) {
	f := benchFunction(b)
	for b.Loop() {
		m, err := bringUp(f, Linux73(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.takeDown(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCQP is one control operation, completed by interrupt.
func BenchmarkCQP(b *testing.B) {
	f := benchFunction(b)
	m, err := bringUp(f, Linux73(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := m.takeDown(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRegister is a registration and its end, with one or several threads
// at it. Every operation rings for itself, and completes by interrupt.
func BenchmarkRegister(b *testing.B) {
	for _, c := range []struct {
		name           string
		pages, threads int
	}{{"alone", 1, 1}, {"64_threads", 1, 64}, {"64_threads_16_pages", 16, 64}} {
		b.Run(c.name, func(b *testing.B) {
			f := benchFunction(b)
			m, err := bringUp(f, Linux73(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(4, 4))
			region, err := f.Guest.NewRegion(rnd, 0x7000_0000_0000, c.pages*Page4K, Page4K)
			if err != nil {
				b.Fatal(err)
			}
			mrs := make([]*MR, c.threads)
			for n := 0; b.Loop(); n++ {
				if n%c.threads != 0 {
					continue
				}
				if err := registerAll(m.r, region, mrs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
			region.Free()
			if err := m.takeDown(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// registerAll registers a region as often as mrs has room and ends all of it.
func registerAll(r *IRDMA, region *Region, mrs []*MR) (err error) {
	for k := range mrs {
		if mrs[k], err = r.StartRegMR(pairPD, region, Everything, MROptions{}); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.Wait(); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.StartDereg(); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// stream posts writes from a to b, a batch with one doorbell, and keeps depth
// batches under way. Only the last of a batch is signalled. They go over all of
// a MiB, so that copies of the same pieces do not stay in the first cache.
type stream struct {
	a, b         *side
	wrs          []SendWR
	batch, depth int
	posted, done int // batches
}

func newStream(b *testing.B, r *IRDMA, size, batch, depth int) *stream {
	rnd := rand.New(rand.NewPCG(4, uint64(size)))
	s := &stream{batch: batch, depth: depth}
	s.a, s.b = newPair(b, r, rnd, pairOptions{size: 1 << 20})
	for k := range 1 << 20 / size {
		w := s.a.write(0, s.b, k*size, size)
		w.Signalled = k%batch == batch-1
		s.wrs = append(s.wrs, w)
	}
	return s
}

// run does n batches.
func (s *stream) run(n int) error {
	vain := 0
	for end := s.done + n; s.done < end; {
		for s.posted < end && s.posted-s.done < s.depth {
			at := s.posted * s.batch % len(s.wrs)
			if err := s.a.qp.PostSend(s.wrs[at : at+s.batch]...); err != nil {
				return err
			}
			s.posted++
		}
		wc, ok, err := s.a.cq.Poll()
		switch {
		case err != nil:
			return err
		case !ok:
			yield(vain)
			vain++
			if err := s.a.qp.r.F.Err(); err != nil {
				return err
			}
			continue
		case wc.Status != Success:
			return fmt.Errorf("completion %+v", wc)
		}
		s.done++
		vain = 0
	}
	return nil
}

// whole moves all of the MiB once and looks at it.
func (s *stream) whole(b *testing.B) {
	b.Helper()
	s.b.mem.Poison(0, s.b.mem.Size)
	if err := s.run(len(s.wrs) / s.batch); err != nil {
		b.Fatal(err)
	}
	s.b.mem.want = s.a.mem.want
	if err := s.b.mem.check("destination", 0, s.b.mem.Size); err != nil {
		b.Fatal(err)
	}
}

// copies does the same moves with copy, between the same pages, and returns the
// nanoseconds one takes.
func (s *stream) copies(n int) float64 {
	began := time.Now()
	for k := range n {
		w := &s.wrs[k%len(s.wrs)]
		off, size := int(w.SGEs[0].Addr-s.a.mem.mr.Addr(0)), int(w.SGEs[0].Len)
		for size > 0 {
			src, dst := s.a.mem.bytes(off, size), s.b.mem.bytes(off, size)
			moved := copy(dst, src)
			off, size = off+moved, size-moved
		}
	}
	return float64(time.Since(began)) / float64(n)
}

// bytes is what lies in one page, at most n of it.
func (m *Region) bytes(off, n int) []byte {
	p := m.first + off
	b := m.pages[p/m.PageSize].b[p%m.PageSize:]
	return b[:min(n, len(b))]
}

// BenchmarkRCWrite moves data between two QPs of one device with RDMA writes,
// and with copy in the same run: vs-copy is the rate of the first in units of
// the second.
func BenchmarkRCWrite(b *testing.B) {
	for _, c := range []struct {
		name               string
		size, batch, depth int
	}{
		{"1MiB", 1 << 20, 1, 4},
		{"4KiB", 4 << 10, 1, 64},
		{"4KiB_16_per_doorbell", 4 << 10, 16, 8},
		{"64B_32_per_doorbell", 64, 32, 6},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := benchFunction(b)
			m, err := bringUp(f, Linux73(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			s := newStream(b, m.r, c.size, c.batch, c.depth)
			s.whole(b)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			batches := (b.N + c.batch - 1) / c.batch
			const turns = 8 // in which both are measured, for the machine's moods
			var copied float64
			b.ResetTimer()
			for k := range turns {
				if err := s.run(batches*(k+1)/turns - batches*k/turns); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				copied += s.copies(max(len(s.wrs), min(b.N, 1<<30/c.size)/turns)) / turns
				b.StartTimer()
			}
			b.StopTimer()
			per := float64(b.Elapsed()) / float64(batches*c.batch)
			b.ReportMetric(float64(time.Second)/per, "ops/s")
			b.ReportMetric(copied/per, "vs-copy")
			s.whole(b)
			endSides(b, s.a, s.b)
			if err := m.takeDown(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
