// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"slices"
	"testing"
)

// pagedOptions make PBLE chunks that start in a new segment paged ones.
func pagedOptions() Options { return Options{NoLargePages: true} }

// skipChunks makes further allocations come from a new chunk.
func (r *IRDMA) skipChunks() {
	for _, c := range r.pble.chunks {
		c.mark(0, len(c.units), true)
	}
}

// cqOn makes a CQ of one page whose page buffer list is at a given index, and
// says nothing about where the page is: that is for the device to find out.
func (r *IRDMA) cqOn(t *testing.T, pbl uint64) *CQ {
	t.Helper()
	id, err := r.newCQID()
	must(t, err)
	q := &CQ{r: r, ID: id, Size: pageSize / cqeSize, ceq: r.ceqs[0], virtual: true, polarity: eqeValid,
		ctx: r.cqContext(id), pbl: pbl, shadow: r.mem.own(r.F.alloc(shadowSize))}
	r.cqs[q.ctx] = q
	_, err = r.Exec(IRDMA_CQP_OP_CREATE_CQ, q.createWQE())
	must(t, err)
	return q
}

// A CQ in scattered pages, through the wrap: the device finds each page by PBLE,
// in a direct segment and in a paged one.
func TestVirtualCQ(t *testing.T) {
	for name, o := range map[string]Options{"direct": {}, "paged": pagedOptions()} {
		t.Run(name, func(t *testing.T) {
			m, complaints := start(t, Linux73(), o)
			r := m.r
			if o.NoLargePages {
				r.skipChunks() // the first chunk shares a direct segment
			}
			const size = 2*pageSize/cqeSize + 3
			cq, err := r.CreateCQ(size, 0, true)
			must(t, err)
			if c := r.pble.chunks[len(r.pble.chunks)-1]; c.paged != o.NoLargePages {
				t.Fatalf("chunk %+v", c)
			}
			for n := range size + 5 {
				flushOne(t, r, cq)
				cqe, ok := cq.Next()
				if !ok {
					t.Fatalf("no entry %d of %d", n, size)
				}
				if cqe[3]&cqeError == 0 || cqe[3]>>16&0xffff != 1 {
					t.Fatalf("entry %d is %#x, not a flush", n, cqe)
				}
			}
			must(t, cq.Destroy())
			must(t, m.takeDown())
			quiet(t, complaints)
		})
	}
}

// The device keeps its copy of a PD entry until PFHMC_PDINV, and tells when it
// notices that the copy is stale.
func TestPDCache(t *testing.T) {
	m, complaints := start(t, Linux73(), pagedOptions())
	r := m.r
	r.skipChunks()
	pbl, err := r.AllocPBLEs(1)
	must(t, err)
	chunk := r.pble.chunks[len(r.pble.chunks)-1]
	if !chunk.paged {
		t.Fatal("the chunk is not paged")
	}
	g := m.f.Guest
	page := func() *Buf {
		b, err := g.Alloc(pageSize)
		must(t, err)
		t.Cleanup(b.Free)
		return b
	}
	oldRing, newRing, newPBLEs := page(), page(), page()
	r.SetPBLE(pbl, oldRing.IOVA)
	off := int(pbl-chunk.first) * pbleSize
	newPBLEs.Store64(off%pageSize, newRing.IOVA)
	pd := int((r.pble.base + pbl*pbleSize) % sdSize / pageSize)

	lands := func(want, other *Buf) {
		t.Helper()
		clear(oldRing.Bytes())
		clear(newRing.Bytes())
		cq := r.cqOn(t, pbl)
		flushOne(t, r, cq)
		if want.Load64(24)&eqeValid == 0 {
			t.Errorf("no entry where it was expected; in the other ring: %v", other.Load64(24)&eqeValid != 0)
		}
		must(t, cq.Destroy())
	}
	lands(oldRing, newRing)
	quiet(t, complaints)

	r.hmc.sds[chunk.sd].buf.Store64(8*pd, newPBLEs.IOVA|1)
	lands(oldRing, newRing)
	if lines := complaints.take(); !slices.Equal(broke(lines), []string{"pd-stale"}) {
		t.Errorf("a stale PD entry was used: %q, want pd-stale", lines)
	}

	r.invalidatePD(chunk.sd, pd)
	lands(newRing, oldRing)

	// Back, properly, for the driver's own teardown.
	old := chunk.mem[off/pageSize]
	r.hmc.sds[chunk.sd].buf.Store64(8*pd, old.IOVA|1)
	r.invalidatePD(chunk.sd, pd)
	must(t, r.Remove())
	must(t, m.i.Remove())
	quiet(t, complaints)
}

// A page buffer list that leads nowhere costs the CQ, not the device.
func TestWalkFails(t *testing.T) {
	m, _ := start(t, Linux73(), pagedOptions())
	r := m.r
	r.skipChunks()
	pbl, err := r.AllocPBLEs(1)
	must(t, err)
	chunk := r.pble.chunks[len(r.pble.chunks)-1]
	pd := int((r.pble.base + pbl*pbleSize) % sdSize / pageSize)
	entry := r.hmc.sds[chunk.sd].buf
	good := entry.Load64(8 * pd)
	for name, bad := range map[string]uint64{"invalid": good &^ 1, "nowhere": 0xdead_beef_f000 | 1} {
		entry.Store64(8*pd, bad)
		r.invalidatePD(chunk.sd, pd)
		id, err := r.newCQID()
		must(t, err)
		cq := &CQ{r: r, ID: id, Size: 64, ceq: r.ceqs[0], virtual: true, ctx: r.cqContext(id), pbl: pbl,
			shadow: r.mem.own(r.F.alloc(shadowSize))}
		if _, err := r.Exec(IRDMA_CQP_OP_CREATE_CQ, cq.createWQE()); err == nil {
			if _, err := tryFlush(t, r, cq); err != nil && cqpError(err) == nil {
				t.Fatalf("%s: %v", name, err)
			}
			must(t, cq.Destroy())
		} else if cqpError(err) == nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	entry.Store64(8*pd, good)
	r.invalidatePD(chunk.sd, pd)
	const hmcErr, detected = 1 << 26, 1 << 31 // PFINT_OICR, PFHMC_ERRORINFO
	oicr, _, err := m.i.WaitMisc()
	must(t, err)
	if oicr&hmcErr == 0 {
		t.Errorf("PFINT_OICR is %#x, want HMC_ERR", oicr)
	}
	if info := m.f.Read32(PFHMC_ERRORINFO); info&detected == 0 {
		t.Errorf("PFHMC_ERRORINFO is %#x", info)
	}
	must(t, m.takeDown())
}

// A CQ that nobody empties: an asynchronous event, and no entry is overwritten.
func TestCQOverflow(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, _ := start(t, k, Options{})
		r := m.r
		const size = 8
		cq, err := r.CreateCQ(size, 0, false)
		must(t, err)
		for range size - 1 {
			flushOne(t, r, cq)
		}
		first := cq.mem[0].Load64(16)
		for range 3 { // which the flush may report, too
			if _, err := tryFlush(t, r, cq); err != nil && cqpError(err) == nil {
				t.Fatal(err)
			}
		}
		if got := cq.mem[0].Load64(16); got != first {
			t.Errorf("the oldest entry was overwritten: QP word %#x, was %#x", got, first)
		}
		must(t, m.f.poll("asynchronous event", func() bool {
			if len(r.AEs) == 0 {
				must(t, r.WaitService(r.vectors[0]))
			}
			return len(r.AEs) > 0
		}))
		const cqOperationError = 0x0203 // IRDMA_AE_CQ_OPERATION_ERROR
		ae := r.AEs[0]
		if ae.Code != cqOperationError || ae.ID != cq.ID || ae.Context != cq.ctx || !slices.Contains([]uint8{2, 6, 0xa, 0xe}, ae.Source) {
			t.Errorf("event %+v, want code %#x of CQ %d with context %#x", ae, cqOperationError, cq.ID, cq.ctx)
		}
		must(t, cq.Destroy())
		must(t, m.takeDown())
	})
}
