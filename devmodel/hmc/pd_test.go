// SPDX-License-Identifier: Apache-2.0

package hmc_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// pageTable is a cache with 16 QPs in segment 0 and 3 pages of PBLEs: 2 in
// segment 1 behind page descriptors 510 and 511, 1 in segment 2.
type pageTable struct {
	t      *testing.T
	mem    *guestmem.Memory
	behind atomic.Pointer[guestmem.Memory] // what the cache reads
	mu     sync.Mutex
	cache  *hmc.Cache
	pdinv  reg.Row
	events []any
}

const (
	list1 = rdmatest.Base          // the page of page descriptors of segment 1
	list2 = rdmatest.Base + 0x1000 // of segment 2
	page0 = rdmatest.Base + 0x10000
	page1 = rdmatest.Base + 0x11000
	page2 = rdmatest.Base + 0x12000
)

func newPageTable(t *testing.T) *pageTable {
	p := hmc.SmallGuest()
	p.PBLEPage = 510
	x := &pageTable{t: t, mem: rdmatest.Memory(t, 8<<20)}
	x.behind.Store(x.mem)
	x.cache = hmc.New(hmc.Config{Mem: x, Profile: p, Emit: func(e any) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.events = append(x.events, e)
	}})
	for _, r := range x.cache.Registers() {
		if r.Name == "PFHMC_PDINV" {
			x.pdinv = r
		}
	}
	x.commit()
	return x
}

// Read and Load64 are the cache's.
func (x *pageTable) Read(at uint64, p []byte) error   { return x.behind.Load().Read(at, p) }
func (x *pageTable) Load64(at uint64) (uint64, error) { return x.behind.Load().Load64(at) }

func (x *pageTable) commit() {
	var buf [hmc.FPMSize]byte
	buf[0], buf[112], buf[113] = 16, 0, 6 // 3 * 512 PBLEs
	if err := x.cache.Commit(&buf); err != nil {
		x.t.Fatal(err)
	}
}

func (x *pageTable) invalidate(sd, pd uint32) { x.pdinv.Write(0, sd|1<<15|pd<<16) }

func (x *pageTable) store(at, v uint64) {
	if err := x.mem.Store64(at, v); err != nil {
		x.t.Fatal(err)
	}
}

// add is what a driver does to a page descriptor.
func (x *pageTable) add(list uint64, sd, pd uint32, entry uint64) {
	x.store(list+8*uint64(pd), entry)
	x.invalidate(sd, pd)
}

func (x *pageTable) program(i, data uint64) {
	if err := x.cache.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000 | i, Data: data}}); err != nil {
		x.t.Fatal(err)
	}
}

// at walks to a PBLE as the device does.
func (x *pageTable) at(index uint32, want uint64) {
	x.t.Helper()
	if got, err := x.cache.Resolve(hmc.PBLE, index); err != nil || got != want {
		x.t.Errorf("PBLE %d is at %#x, %v, want %#x", index, got, err, want)
	}
}

// saw checks the events since the last time.
func (x *pageTable) saw(want ...any) {
	x.t.Helper()
	if diff := cmp.Diff(want, x.events); diff != "" {
		x.t.Error(diff)
	}
	x.events = nil
}

// boot is a driver with two chunks of PBLEs.
func (x *pageTable) boot() {
	x.add(list1, 1, 510, page0|1)
	x.add(list1, 1, 511, page1|1)
	x.program(1, list1|0x801)
	x.add(list2, 2, 0, page2|1)
	x.program(2, list2|0x801)
}

// A driver's way, with the second chunk's descriptors told of before their
// segment is programmed and later ones after it.
func TestPDINVAsDriversDo(t *testing.T) {
	x := newPageTable(t)
	x.boot()
	x.at(0, page0)
	x.at(1023, page1+8*511)
	x.at(1024, page2)
	x.saw()
	// It goes: each is zeroed and told of, then the segment is cleared.
	x.add(list1, 1, 510, 0)
	x.add(list1, 1, 511, 0)
	x.program(1, 0x800)
	x.saw()
	// And comes again, elsewhere, one page after the segment is programmed.
	x.add(list1, 1, 510, page1|1)
	x.program(1, list1|0x801)
	x.at(0, page1)
	x.add(list1, 1, 511, page0|1)
	x.at(512, page0)
	x.saw()
	for _, d := range x.cache.SDs()[0].PDs {
		if d.Untold || d.Stale || !d.Kept {
			t.Errorf("PD %+v", d)
		}
	}
}

func TestPDINVMissing(t *testing.T) {
	untold := func(pd uint32, entry uint64, index uint32) hmc.PDUntold {
		return hmc.PDUntold{SD: 1, PD: pd, At: list1 + 8*uint64(pd), Entry: entry, Object: hmc.PBLE, Index: index}
	}
	for name, play := range map[string]func(x *pageTable){
		"never told": func(x *pageTable) {
			x.store(list1+8*510, page0|1)
			x.program(1, list1|0x801)
			if w, err := x.cache.Explain(hmc.PBLE, 7); err != nil || !w.Untold || w.Address != page0+56 {
				t.Errorf("%v, %v", w, err)
			}
			x.saw()
			x.at(7, page0+56)
			x.at(8, page0+64)
			x.saw(untold(510, page0|1, 7))
		},
		"the other is told of": func(x *pageTable) {
			x.store(list1+8*510, page0|1)
			x.add(list1, 1, 511, page1|1)
			x.program(1, list1|0x801)
			x.at(0, page0)
			x.at(512, page1)
			x.saw(untold(510, page0|1, 0))
		},
		"told of too early": func(x *pageTable) {
			x.program(1, list1|0x801)
			x.invalidate(1, 510)
			x.store(list1+8*510, page0|1)
			x.at(0, page0)
			x.saw(untold(510, page0|1, 0))
		},
		"appears when its segment is there": func(x *pageTable) {
			x.add(list1, 1, 510, page0|1)
			x.program(1, list1|0x801)
			x.store(list1+8*511, page1|1)
			x.at(512, page1)
			x.saw(untold(511, page1|1, 512))
		},
		"changes before it is used": func(x *pageTable) {
			x.add(list1, 1, 510, page0|1)
			x.program(1, list1|0x801)
			x.store(list1+8*510, page1|1)
			x.at(0, page1)
			x.saw(untold(510, page1|1, 0))
		},
		"told of before the segment went and came": func(x *pageTable) {
			x.add(list1, 1, 510, page0|1)
			x.program(1, list1|0x801)
			x.program(1, 0x800)
			x.program(1, list1|0x801)
			x.at(0, page0)
			x.saw(untold(510, page0|1, 0))
		},
		"told of before the reset": func(x *pageTable) {
			x.add(list1, 1, 510, page0|1)
			x.cache.Reset(reg.PFR)
			x.commit()
			x.program(1, list1|0x801)
			x.at(0, page0)
			x.saw(untold(510, page0|1, 0))
		},
		"told of as the LAN's": func(x *pageTable) {
			x.store(list1+8*510, page0|1)
			x.pdinv.Write(0, 1|510<<16)
			x.program(1, list1|0x801)
			x.at(0, page0)
			x.saw(untold(510, page0|1, 0))
		},
	} {
		t.Run(name, func(t *testing.T) { play(newPageTable(t)) })
	}
}

// A device that may not read what it is told of takes what it finds later.
func TestPDINVUnread(t *testing.T) {
	x := newPageTable(t)
	x.add(list1, 1, 510, page0|1)
	x.add(list1, 1, 511, page1|1)
	x.mem.Clear()
	x.program(1, list1|0x801)
	x.invalidate(1, 511)
	m := rdmatest.Memory(t, 8<<20)
	for at, v := range map[uint64]uint64{list1 + 8*510: page0 | 1, list1 + 8*511: page1 | 1} {
		if err := m.Store64(at, v); err != nil {
			t.Fatal(err)
		}
	}
	x.behind.Store(m)
	x.at(0, page0)
	x.at(512, page1)
	x.saw()
}

// Walks run beside each other, PFHMC_PDINV and changes of segments; what a
// driver does in order, nobody complains about.
func TestWalksBesideChanges(t *testing.T) {
	x := newPageTable(t)
	x.add(list2, 2, 0, page2|1)
	x.program(2, list2|0x801)
	x.program(0, page0+1<<20|0x803)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for k := range uint32(3) {
		wg.Go(func() {
			var dst [64]uint64
			for i := k * 100; ; i = (i + 37) % 512 {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := x.cache.PBLEs(1024+i, dst[:]); err != nil {
					t.Error(err)
					return
				}
				if _, err := x.cache.Resolve(hmc.QP, i%16); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 300 {
		page := uint64(page0)
		if n%2 == 1 {
			page = page1
		}
		x.add(list1, 1, 510, page|1)
		x.program(1, list1|0x801)
		x.at(0, page)
		x.add(list1, 1, 510, 0)
		x.program(1, 0x800)
		x.add(list1, 1, 511, page|1)
		x.program(1, list1|0x801)
		x.at(512, page)
		x.add(list1, 1, 511, 0)
		x.program(1, 0x800)
	}
	close(stop)
	wg.Wait()
	x.saw()
}

// What is kept goes on being used until PFHMC_PDINV, also if it is gone.
func TestPDStale(t *testing.T) {
	x := newPageTable(t)
	x.boot()
	x.at(0, page0)
	stale := hmc.StalePD{SD: 1, PD: 510, At: list1 + 8*510, Kept: page0 | 1, Memory: page2 + 0x1000 | 1, Object: hmc.PBLE}
	x.store(stale.At, stale.Memory)
	x.at(0, page0)
	x.saw(stale)
	stale.Memory, stale.Index = 0, 3
	x.store(stale.At, 0)
	x.at(3, page0+24)
	x.saw(stale)
	x.store(stale.At, page0|1) // as it was: nothing is wrong any more
	x.at(0, page0)
	x.saw()
}

func TestPDINVNeedless(t *testing.T) {
	x := newPageTable(t)
	x.boot()
	x.at(0, page0)
	x.invalidate(1, 510) // to be removed, but not zeroed
	x.at(0, page0)       // so it is read again
	x.program(0, page0+1<<20|0x803)
	x.invalidate(0, 5)
	x.invalidate(5, 7)
	x.cache.Reset(reg.PFR)
	x.invalidate(5, 7) // a driver tidies up what the reset has ended
	x.saw(
		hmc.PDINVNeedless{SD: 1, PD: 510, At: list1 + 8*510, Entry: page0 | 1},
		hmc.PDINVNeedless{SD: 0, PD: 5, Direct: true},
		hmc.PDINVOutsideFPM{SD: 5, PD: 7, End: 2<<21 + 4096},
	)
}

func TestMalformedDescriptors(t *testing.T) {
	x := newPageTable(t)
	x.add(list1, 1, 510, page0|0x11)
	x.program(1, list1|0x801)
	x.at(0, page0)
	x.program(2, list2|0x841)
	x.saw(
		hmc.PDMalformed{SD: 1, PD: 510, At: list1 + 8*510, Entry: page0 | 0x11},
		hmc.SDMalformed{SD: 2, Data: list2 | 0x841},
	)
}

func TestBackingShared(t *testing.T) {
	const big = rdmatest.Base + 1<<20
	for name, play := range map[string]func(x *pageTable){
		"two descriptors": func(x *pageTable) {
			x.add(list2, 2, 0, page1|1)
			x.at(512, page1)
			x.at(1024, page1)
			x.saw(hmc.BackingShared{SD: 2, PD: 0, Address: page1, Other: "PD 511 of SD 1"})
		},
		"one after the other": func(x *pageTable) {
			x.at(512, page1)
			x.add(list1, 1, 511, 0)
			x.add(list2, 2, 0, page1|1)
			x.at(1024, page1)
			x.saw()
		},
		"one after the other's segment": func(x *pageTable) {
			x.at(512, page1)
			x.program(1, 0x800)
			x.add(list2, 2, 0, page1|1)
			x.at(1024, page1)
			x.saw()
		},
		"two pages of descriptors, as the control QP tells": func(x *pageTable) {
			x.program(1, 0x800)
			x.program(1, list2|0x801)
			x.saw()
		},
		"a descriptor in its own page": func(x *pageTable) {
			x.add(list2, 2, 0, list2|1)
			x.at(1024, list2)
			x.saw(hmc.BackingShared{SD: 2, PD: 0, Address: list2, Other: "the PDs of SD 2"})
		},
		"a descriptor inside a direct segment": func(x *pageTable) {
			x.program(0, big|0x803)
			x.add(list2, 2, 0, big+1<<21-0x1000|1)
			x.at(1024, big+1<<21-0x1000)
			x.add(list1, 1, 511, big+1<<21|1) // its neighbour
			x.at(512, big+1<<21)
			x.saw(hmc.BackingShared{SD: 2, PD: 0, Address: big + 1<<21 - 0x1000, Other: "SD 0"})
		},
		"a direct segment over a descriptor": func(x *pageTable) {
			x.at(512, page1)
			x.program(0, page1|0x803)
			x.saw(hmc.BackingShared{SD: 0, PD: -1, Address: page1, Other: "PD 511 of SD 1"})
		},
		"two direct segments, as the control QP tells": func(x *pageTable) {
			x.program(0, big|0x803)
			x.program(2, 0x800)
			x.program(2, big+1<<21-0x1000|0x803)
			x.saw()
		},
		"neighbours": func(x *pageTable) {
			x.program(0, big|0x803)
			x.program(2, 0x800)
			x.program(2, big+1<<21|0x803)
			x.program(0, 0x802)
			x.program(0, big|0x803)
			x.saw()
		},
		"after a reset": func(x *pageTable) {
			x.at(512, page1)
			x.cache.Reset(reg.PFR)
			x.commit()
			x.add(list2, 2, 0, page1|1)
			x.program(2, list2|0x801)
			x.at(1024, page1)
			x.saw()
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPageTable(t)
			x.boot()
			play(x)
		})
	}
}

func TestCommitTellsWhatItRefuses(t *testing.T) {
	x := newPageTable(t)
	x.cache.Reset(reg.PFR)
	var buf [hmc.FPMSize]byte
	buf[1] = 5 // 1280 QPs
	if err := x.cache.Commit(&buf); err == nil {
		t.Error("1280 QPs are taken")
	}
	buf[1], buf[115] = 0, 1 // 16M PBLEs
	if err := x.cache.Commit(&buf); err == nil {
		t.Error("16M PBLEs are taken")
	}
	x.saw(hmc.CommitRefused{Object: hmc.QP, Count: 1280, Max: 1024},
		hmc.CommitRefused{Object: hmc.NumObjects, Count: 2<<20 + 510*4096 + 1<<27, Max: 64 << 21})
}
