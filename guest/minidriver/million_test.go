// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A million pages in one region: every one is where its list says. The pages are
// the same few thousand again and again, in no order; each says which it is.
func TestMillionPages(t *testing.T) {
	const pages, distinct = 1_000_000, 4096
	kinds := []Options{pagedOptions(), {}}
	if !*long {
		kinds = kinds[:1]
	}
	for _, o := range kinds {
		m, complaints := startIn(t, newGuestOf(t, 256), Linux73(), o)
		r, rnd := m.r, rand.New(rand.NewPCG(15, 1))
		if o.NoLargePages {
			r.skipChunks()
		}
		a, b := newPair(t, r, rnd, pairOptions{size: 1 << 20})
		var bufs []*Buf
		for n := range uint64(distinct) {
			p, err := m.f.Guest.randomPage(rnd)
			must(t, err)
			p.Store64(0, n)
			p.Store64(pageSize-8, ^n)
			bufs = append(bufs, p)
		}
		region := &Region{VA: 0x6000_0000_0000, Size: pages * pageSize, PageSize: pageSize}
		which := make([]uint16, pages)
		for n := range which {
			which[n] = uint16(rnd.IntN(distinct))
			region.pages = append(region.pages, bufs[which[n]])
		}
		mr, err := r.RegMR(pairPD, region, LocalRead|RemoteRead, MROptions{Rand: rnd})
		must(t, err)
		if mr.Level != 2 {
			t.Fatalf("the list is of level %d", mr.Level)
		}
		// All of it, a MiB with each read: both ends of each page are looked at.
		const perRead = 1 << 20 / pageSize
		step, got := 1, make([]byte, 1<<20)
		if !*long {
			step = 101 // a part of it
		}
		for n := 0; n < pages; n += step * perRead {
			count := min(perRead, pages-n)
			w := a.read(1, b, 0, count*pageSize)
			w.RemoteAddr, w.RKey = mr.Addr(n*pageSize), mr.STag
			must(t, a.qp.PostSend(w))
			a.waitFor(t, sent(1, Success))
			a.mem.Read(0, got[:count*pageSize])
			for k := range count {
				p := got[k*pageSize:][:pageSize]
				first, last := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[pageSize-8:])
				if want := uint64(which[n+k]); first != want || last != ^want {
					t.Fatalf("page %d is page %d, ending as %d; want %d", n+k, first, ^last, want)
				}
			}
		}
		must(t, mr.Dereg())
		for _, p := range bufs {
			p.Free()
		}
		endSides(t, a, b)
		must(t, m.takeDown())
		quiet(t, complaints)
	}
}
