// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

const (
	bulkOps  = 48
	bulkSize = 120 << 10
)

// bulk posts much work from a: writes and reads of b's memory.
func bulk(t *testing.T, a, b *side) {
	t.Helper()
	var wrs []SendWR
	for n := range uint64(bulkOps) {
		w := a.write(n, b, 0, bulkSize)
		if n%3 == 2 {
			w = a.read(n, b, 0, bulkSize)
		}
		wrs = append(wrs, w)
	}
	must(t, a.qp.PostSend(wrs...))
}

// begun waits for the first completion, so that the rest is under way.
func (s *side) begun(t *testing.T) {
	t.Helper()
	if wc := s.wait(t, 1)[0]; wc.Status != Success {
		t.Fatalf("first completion %+v", wc)
	}
}

// left takes completions until one says that the QP is in error, and all of the
// flush behind it.
func (s *side) left(t *testing.T) (status Status) {
	t.Helper()
	status = Success
	n := s.qp.sq.outstanding()
	for _, wc := range s.wait(t, n) {
		if status == Success {
			status = wc.Status
		} else if wc.Status != WRFlushErr {
			t.Errorf("behind %v: completion %+v", status, wc)
		}
	}
	s.nothing(t)
	return status
}

// outstanding is the number of requests not reported yet.
func (s *sendQueue) outstanding() int {
	n := 0
	for at := s.tail; at != s.head; at = (at + s.track[at].quanta) % s.size {
		if s.track[at].op != IRDMA_OP_TYPE_NOP {
			n++
		}
	}
	return n
}

// Memory belongs to the program when the completion is there: what it puts into
// it then stays, and nobody reads it any more.
func TestPoisonOnCompletion(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := startIn(t, newGuestOf(t, 256), k, Options{})
		poisonOnCompletion(t, m.r, m.r)
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}

// The same with a peer that is another machine, whose memory is another's.
func TestPoisonOnCompletionBetween(t *testing.T) {
	forWays(t, duoOptions{guest: 256}, func(t *testing.T, d *duo) {
		poisonOnCompletion(t, d.a.r, d.b.r)
		d.end(t)
	})
}

func poisonOnCompletion(t *testing.T, r, peer *IRDMA) {
	rnd := rand.New(rand.NewPCG(2, 1))
	ops := 150
	if *full {
		ops = 450
	}
	a, b := newPair(t, r, rnd, pairOptions{peer: peer, attr: func(a *QPAttr) { a.RNRTries = 7 }})
	type work struct {
		src, dst   *flat
		recv       bool
		fromRemote bool
	}
	var pages, sizes = regionKind{va: 0x7fee_0000_0100, page: Page4K, level: 1}, []int{5000, 9000, 70_000, 150_000}
	fresh := func(r *IRDMA) *flat {
		pages.size = sizes[rnd.IntN(len(sizes))]
		f, err := newFlat(r, rnd, pages, pairPD, Everything)
		must(t, err)
		return f
	}
	kept := []*flat{} // poisoned ones, still registered
	poison := func(f *flat) {
		f.Poison(0, f.Size)
		if rnd.IntN(2) == 0 { // or given back for good
			must(t, f.mr.Dereg())
			f.Free()
			return
		}
		kept = append(kept, f)
		for k := range f.want {
			f.want[k] = 0xdb
		}
	}
	const batch = 6
	for n := 0; n < ops; n += batch {
		list := make([]work, batch)
		buffers := 0
		for k := range list {
			kind, from, to := rnd.IntN(3), r, peer
			if kind == 0 { // a read
				from, to = peer, r
			}
			w := work{src: fresh(from), dst: fresh(to)}
			size := min(w.src.Size, w.dst.Size)
			srcSGE := SGE{w.src.mr.Addr(0), uint32(size), w.src.mr.STag}
			dstSGE := SGE{w.dst.mr.Addr(0), uint32(size), w.dst.mr.STag}
			wr := SendWR{ID: uint64(k), Signalled: true, SGEs: []SGE{srcSGE}, RemoteAddr: dstSGE.Addr, RKey: dstSGE.LKey}
			switch kind {
			case 0:
				wr.Op, w.fromRemote = IRDMA_OP_TYPE_RDMA_READ, true
				wr.SGEs, wr.RemoteAddr, wr.RKey = []SGE{dstSGE}, srcSGE.Addr, srcSGE.LKey
			case 1:
				wr.Op = IRDMA_OP_TYPE_RDMA_WRITE
			case 2:
				wr.Op, w.recv = IRDMA_OP_TYPE_SEND, true
				buffers++
				must(t, b.qp.PostRecv(RecvWR{ID: uint64(k), SGEs: []SGE{dstSGE}}))
			}
			copy(w.dst.want, w.src.want[:size])
			list[k] = w
			must(t, a.qp.PostSend(wr))
		}
		finish := func(f *flat, what string) error {
			if err := f.check(what, 0, f.Size); err != nil {
				return err
			}
			poison(f)
			return nil
		}
		must(t, a.cq.PollFor(batch, func(wc WC) error {
			w := list[wc.ID]
			if wc.Status != Success {
				return fmt.Errorf("completion %+v", wc)
			}
			if err := finish(w.src, "source"); err != nil {
				return err
			}
			if w.recv {
				return nil
			}
			return finish(w.dst, "destination")
		}))
		if buffers > 0 {
			must(t, b.cq.PollFor(buffers, func(wc WC) error { return finish(list[wc.ID].dst, "buffer") }))
		}
		if len(kept) > 24 {
			for _, f := range kept {
				must(t, f.check("after its completion", 0, f.Size))
				must(t, f.mr.Dereg())
				f.Free()
			}
			kept = nil
		}
	}
	for _, f := range kept {
		must(t, f.check("after its completion", 0, f.Size))
		must(t, f.mr.Dereg())
		f.Free()
	}
	endSides(t, a, b)
}

// What ends an object under load: when the operation is done, the memory behind
// the object is the driver's again. The guest's poison tells of late writes.
func TestEndUnderLoad(t *testing.T) {
	prot, access := LocProtErr, RemAccessErr
	m, _ := startIn(t, newGuestOf(t, 256), Linux73(), Options{})
	r, rnd := m.r, rand.New(rand.NewPCG(2, 2))
	dereg := func(t *testing.T, s *side) {
		must(t, s.mem.mr.Dereg())
		s.mem.Free()
		s.mem = nil
	}
	for _, c := range []struct {
		name  string
		end   func(t *testing.T, a, b *side)
		wants []Status // of the first request that fails; nil: nobody looks
		times int
	}{
		{"DEALLOC_STAG of the sender's memory", func(t *testing.T, a, b *side) { dereg(t, a) }, []Status{prot, Success}, 5},
		{"DEALLOC_STAG of the receiver's memory", func(t *testing.T, a, b *side) { dereg(t, b) }, []Status{access, Success}, 5},
		{"MODIFY_QP to ERROR and flush of the sender", func(t *testing.T, a, b *side) {
			_, err := a.qp.Modify(IRDMA_QP_STATE_ERROR)
			must(t, err)
			dereg(t, a)
			dereg(t, b)
		}, []Status{WRFlushErr, Success}, 5},
		{"DESTROY_QP of the sender", func(t *testing.T, a, b *side) {
			must(t, a.qp.Destroy())
			dereg(t, a)
			dereg(t, b)
			a.nothing(t)
		}, nil, 5},
		{"DESTROY_QP of the receiver", func(t *testing.T, a, b *side) {
			must(t, b.qp.Destroy())
			dereg(t, b)
		}, []Status{RetryExcErr, Success}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range c.times {
				a, b := newPair(t, r, rnd, pairOptions{size: bulkSize, attr: func(a *QPAttr) { a.Retries = 1 }})
				bulk(t, a, b)
				a.begun(t)
				c.end(t, a, b)
				must(t, m.f.Guest.Check())
				if c.wants != nil {
					status := a.left(t)
					if status != c.wants[0] && status != c.wants[1] {
						t.Errorf("requests end with %v, want %v", status, c.wants)
					}
				}
				endSides(t, a, b)
				must(t, m.f.Guest.Check())
			}
		})
	}
	must(t, m.takeDown())
}

// loaded is a machine with traffic under way.
func loaded(t *testing.T, f *Function, k Kernel, seed uint64) (*machine, *traffic) {
	t.Helper()
	m, err := bringUp(f, k, Options{})
	must(t, err)
	rnd := rand.New(rand.NewPCG(2, seed))
	tr, err := newTraffic(m.r, rnd, 2)
	must(t, err)
	must(t, tr.round(false))
	tr.prepare()
	return m, tr
}

// drop forgets the memory of the pairs, as a kernel does after a reset.
func (tr *traffic) drop() {
	for _, e := range tr.ends {
		e.src.Free()
		e.dst.Free()
	}
}

// worksStill is a bring-up with traffic and a teardown.
func worksStill(t *testing.T, f *Function, k Kernel) {
	t.Helper()
	m, tr := loaded(t, f, k, 99)
	must(t, tr.post())
	must(t, tr.drain(true))
	must(t, tr.close())
	must(t, m.takeDown())
}

// The guest takes its memory away, or its file shrinks, under traffic: it costs
// the guest its connections, not the process, and the next guest nothing.
func TestMemoryGoneUnderTraffic(t *testing.T) {
	k := Linux73()
	ctx, sockets, _ := cards(t, 1)
	t.Run("unmapped", func(t *testing.T) {
		f := attach(t, ctx, sockets[0], newGuestOf(t, 256))
		m, tr := loaded(t, f, k, 1)
		must(t, tr.post())
		must(t, f.Guest.Unmap(f.Client))
		tr.drop()
		m.abandon()
		must(t, f.Guest.Check())
		must(t, f.Guest.Map(f.Client))
		must(t, m.i.Reset())
		must(t, f.Guest.wipe())
		worksStill(t, f, k)
		f.Detach()
	})
	t.Run("truncated", func(t *testing.T) {
		g, err := NewGuest(256)
		must(t, err)
		defer g.Close()
		f := attach(t, ctx, sockets[0], g)
		m, tr := loaded(t, f, k, 2)
		// After the rings' pages are gone this process must not touch them.
		must(t, tr.post())
		must(t, g.file.Truncate(0))
		for _, e := range tr.ends {
			f.Write32(PFPE_WQEALLOC, e.qp.ID)
		}
		f.Write32(PFPE_CQPDB, m.r.cqp.head+1)
		f.flush()
		must(t, f.Err())
		f.Detach()
	})
	f := attach(t, ctx, sockets[0], newGuestOf(t, 256))
	worksStill(t, f, k)
}

// A context that ends takes a wait for completions with it.
func TestContextEndsPolling(t *testing.T) {
	ctx, sockets, _ := cards(t, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m, err := bringUp(plug(t, ctx, sockets[0]), Linux73(), Options{})
	must(t, err)
	cq, err := m.r.CreateCQ(64, 0, false)
	must(t, err)
	cancel()
	if err := cq.PollFor(1, func(WC) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("polling says %v, want the context's end", err)
	}
}
