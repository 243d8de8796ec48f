// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// window of memory at an address of the device that is not of the allocator's.
func (g *Guest) foreign(iova uint64, mem []byte) *Region {
	m := &Region{VA: 0x7fed_0000_0000, Size: len(mem), PageSize: Page4K}
	for at := 0; at < len(mem); at += pageSize {
		m.pages = append(m.pages, &Buf{IOVA: iova + uint64(at), b: mem[at : at+pageSize]})
	}
	return m
}

// The device reads from memory that is mapped to be read, writes nothing there,
// and does neither where there is no descriptor. It says so and goes on.
func TestMapsWithoutRights(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r, g := m.r, m.f.Guest
	rnd := rand.New(rand.NewPCG(10, 1))
	rom := g.ROM()
	nowhere := rom.IOVA + uint64(rom.Len())

	register := func(iova uint64, mem []byte) *MR {
		mr, err := r.RegMR(pairPD, g.foreign(iova, mem), Everything, MROptions{Rand: rnd})
		must(t, err)
		return mr
	}
	inROM := register(rom.IOVA, rom.Bytes())
	inNothing := register(nowhere, make([]byte, messagePages*pageSize))
	across := register(rom.IOVA+uint64(rom.Len())-pageSize, make([]byte, 2*pageSize))
	const n = 6000

	for _, c := range []struct {
		name  string
		op    uint8
		local *MR
		good  bool
	}{
		{"write from it", IRDMA_OP_TYPE_RDMA_WRITE, inROM, true},
		{"read into it", IRDMA_OP_TYPE_RDMA_READ, inROM, false},
		{"write from memory without descriptor", IRDMA_OP_TYPE_RDMA_WRITE, inNothing, false},
		{"read into memory without descriptor", IRDMA_OP_TYPE_RDMA_READ, inNothing, false},
		{"write from both", IRDMA_OP_TYPE_RDMA_WRITE, across, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newPair(t, r, rnd, pairOptions{attr: func(a *QPAttr) { a.Retries = 1 }})
			w := a.write(1, b, 0, n)
			w.Op, w.SGEs = c.op, []SGE{{c.local.Addr(0), n, c.local.STag}}
			must(t, a.qp.PostSend(w))
			if wc := a.wait(t, 1)[0]; (wc.Status == Success) != c.good {
				t.Errorf("completion %+v, good %v", wc, c.good)
			}
			if c.good {
				copy(b.mem.want, rom.Bytes()[:n])
				must(t, b.mem.check("from the ROM", 0, n))
			}
			endSides(t, a, b)
			must(t, g.Check())
		})
	}

	// A completion queue there is as good as none, for its users alone.
	for _, iova := range []uint64{rom.IOVA, nowhere} {
		q, err := r.newCQ(700, 64, r.ceqs[0], false)
		must(t, err)
		wqe := q.createWQE()
		wqe[4] = iova
		if _, err := r.Exec(IRDMA_CQP_OP_CREATE_CQ, wqe); err == nil {
			r.cqs[q.ctx] = q
			_, _ = tryFlush(t, r, q)
			must(t, g.Check())
			_, err := r.Exec(IRDMA_CQP_OP_DESTROY_CQ, q.wqe())
			must(t, err)
			delete(r.cqs, q.ctx)
		}
		q.free()
	}

	// Nor does firmware write there; it may read a command's buffer.
	c := &Command{Op: ice_aqc_opc_driver_ver, RD: true, Buf: []byte("ROM!")}
	c.P = [16]byte{0: 6, 1: 1}
	b := m.i.aq.send.bufs[m.i.aq.send.next]
	good := b.IOVA
	b.IOVA = rom.IOVA
	must(t, m.i.Do(c))
	b.IOVA = good
	caps := &Command{Op: ice_aqc_opc_list_dev_caps, Buf: make([]byte, aqBufSize)}
	for _, iova := range []uint64{rom.IOVA, nowhere} {
		b := m.i.aq.send.bufs[m.i.aq.send.next]
		good := b.IOVA
		b.IOVA = iova
		if err := m.i.Do(caps); aqCode(err) == AQOK {
			t.Errorf("an answer to %#x: %v", iova, err)
		}
		b.IOVA = good
	}
	if !bytes.Equal(rom.Bytes()[:4], []byte("ROM!")) {
		t.Error("the ROM changed")
	}
	for _, mr := range []*MR{inROM, inNothing, across} {
		must(t, mr.Dereg())
	}
	must(t, m.takeDown())
}
