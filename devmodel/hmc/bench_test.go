// SPDX-License-Identifier: Apache-2.0

package hmc_test

import (
	"fmt"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// BenchmarkPBLEs reads the page list of 1 GiB in 4 KiB pages over and over, as
// many entries at a time as a step of the data path needs.
func BenchmarkPBLEs(b *testing.B) {
	const pbles = 512 * 512
	for _, paged := range []bool{false, true} {
		p := hmc.SmallGuest()
		kind := "direct"
		p.PBLESD = 1
		if paged {
			kind = "paged"
		}
		mem := rdmatest.Memory(b, 8<<20)
		c := hmc.New(hmc.Config{Mem: mem, Profile: p, Emit: func(e any) { b.Error(e) }})
		var buf [hmc.FPMSize]byte
		buf[114] = pbles >> 16
		if err := c.Commit(&buf); err != nil {
			b.Fatal(err)
		}
		const list, pages = rdmatest.Base, rdmatest.Base + 2<<20
		data := uint64(pages | 0x803)
		if paged {
			data = list | 0x801
			for pd := range uint64(512) {
				if err := mem.Store64(list+8*pd, (pages+4096*(pd*5%512))|1); err != nil {
					b.Fatal(err)
				}
				for _, r := range c.Registers() {
					if r.Name == "PFHMC_PDINV" {
						r.Write(0, uint32(1|1<<15|pd<<16))
					}
				}
			}
		}
		if err := c.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008001, Data: data}}); err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				var dst [64]uint64
				b.ReportAllocs()
				at := uint32(0)
				for b.Loop() {
					if got, err := c.PBLEs(at, dst[:n]); err != nil || got != n {
						b.Fatal(got, err)
					}
					at = (at + uint32(n)) % pbles
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds()/1e6, "Mpages/s")
			})
		}
	}
}

// A hot walk allocates nothing.
func TestHotWalkAllocatesNothing(t *testing.T) {
	x := newPageTable(t)
	x.boot()
	var dst [16]uint64
	for _, walk := range []func(){
		func() { _, _ = x.cache.PBLEs(3, dst[:]) },
		func() { _, _ = x.cache.PBLE(1030) },
		func() { _, _ = x.cache.Resolve(hmc.PBLE, 600) },
	} {
		walk()
		if n := testing.AllocsPerRun(100, walk); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	x.saw()
}
