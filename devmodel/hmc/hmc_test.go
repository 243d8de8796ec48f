// SPDX-License-Identifier: Apache-2.0

package hmc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

func TestQuery(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1)
	buf := g.Alloc(256)
	g.Fill(buf, 256, 0xA5)
	g.Must(WQE{3: 0x8000002000000000, 4: buf})
	want := map[uint64]uint64{
		0: 64 << 32, 8: 9<<32 | 1024, 16: 6<<32 | 2048, 24: 0, 32: 6<<32 | 4096, 40: 6<<32 | 512, 48: 6<<32 | 16384,
		56: 4<<32 | 16384, 64: 4<<32 | 4096, 72: 2<<32 | 262144, 80: 4<<32 | 65536, 88: 6<<32 | 1536, 96: 6<<32 | 512,
		104: 6<<32 | 4096, 112: 2097152, 120: 512<<32 | 2<<16 | 64, 128: 4<<32 | 32768, 136: 4<<32 | 8192,
		144: 6<<32 | 1024, 152: 0, 160: 0, 168: 4 << 32,
		176: 0xA5A5A5A5A5A5A5A5, // older kernels' commit buffer begins here
	}
	for off, w := range want {
		if v := g.Load(buf + off); v != w {
			t.Errorf("query word @%d = %#x, want %#x", off, v, w)
		}
	}
	g.Fails(WQE{2: 1, 3: 0x8000002000000000, 4: buf}, 0x8001) // another function
	g.Fails(WQE{3: 0x8000002000000000, 4: 0x10}, 0x8001)      // no memory there
}

func TestCommitLayout(t *testing.T) {
	for _, size := range []uint64{176, 208} {
		g := New(t, hmc.Profile{})
		g.CreateCQP(10)
		_, commit := g.CommitFPM(size)
		want := []struct{ off, count, base uint64 }{
			{0, 1024, 0}, {8, 2048, 0x080000}, {16, 0, 0}, {24, 4096, 0x0A0000}, {32, 512, 0x0E0000}, {40, 1, 0x0E8000},
			{48, 16384, 0x0EA000}, {56, 16384, 0x1EA000}, {64, 4096, 0x22A000}, {72, 262144, 0x22E000}, {80, 65536, 0x32E000},
			{88, 1536, 0x36E000}, {96, 512, 0x386000}, {104, 4096, 0x38E000}, {112, 2097152, 0x466000}, {120, 0, 0},
			{128, 32768, 0x3CE000}, {136, 8192, 0x44E000}, {144, 1024, 0x456000}, {152, 0, 0}, {160, 0, 0}, {168, 0, 0},
		}
		for _, w := range want {
			v := g.Load(commit + w.off)
			if v&(1<<32-1) != w.count || v>>32*512 != w.base {
				t.Errorf("commit word @%d: count %d base %#x, want %d and %#x", w.off, v&(1<<32-1), v>>32*512, w.count, w.base)
			}
		}
	}
}

func TestCommitRefuses(t *testing.T) {
	tests := []struct {
		name string
		set  map[uint64]uint64
		op   uint64
	}{
		{"more QPs than offered", map[uint64]uint64{0: 1025}, 176},
		{"more than the segments hold", map[uint64]uint64{112: 1<<32 - 1}, 176},
		{"short buffer", map[uint64]uint64{0: 1024}, 168},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := New(t, hmc.Profile{})
			g.CreateCQP(10)
			buf := g.Alloc(256)
			for off, v := range tt.set {
				g.Store(buf+off, v)
			}
			g.Fails(WQE{3: 0x8000002100000000 | tt.op, 4: buf}, 0x8001)
		})
	}
}

func TestOrder(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(10)
	sd0 := WQE{0: 0x80008000, 1: Base + 0x803, 3: 0x8000001F00000000}
	g.Fails(sd0, 0x8002)                        // before COMMIT
	g.Fails(WQE{3: 0x8000002B00000000}, 0x8002) // before COMMIT
	g.CommitFPM(208)
	g.AddDirectSD(0)
	g.AddDirectSD(1)
	g.Fails(WQE{3: 0x8000002B00000000}, 0x8002) // segment 2 is missing
	if want := (hmc.StaticUnbacked{Object: hmc.RRF, SD: 2}); !has(g, want) {
		t.Errorf("no %v among %v", want, g.Findings())
	}
	ccq := g.NewConsumer(CCQSize)
	create := WQE{0: CCQSize, 3: 0x8002400300000000, 4: ccq.Ring, 5: ccq.Shadow}
	g.Fails(create, 0x8002)
	g.AddDirectSD(2)
	g.Must(WQE{3: 0x8000002B00000000})
	g.CCQ = ccq
	g.Must(create)
}

func has(g *Guest, want any) bool {
	for _, e := range g.Findings() {
		if cmp.Equal(e, want) {
			return true
		}
	}
	return false
}

func hasType[T any](g *Guest) bool {
	for _, e := range g.Findings() {
		if _, ok := e.(T); ok {
			return true
		}
	}
	return false
}

func TestUpdateSDsInlineAndMemory(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.MapAt(0x10_0000_0000, 64<<20) // behind segments that only have to be there
	g.CreateCQP(10)
	g.CommitFPM(208)
	cmd := func(i uint64) uint64 { return 0x80008000 + i }
	addr := func(i uint64) uint64 { return 0x10_0000_0000 + i<<21 + 0x5000 } // 4 KiB aligned only
	mem := g.Alloc(4096)
	const room = 8
	for i := range uint64(room) {
		g.Store(mem+128+16*i, cmd(3+i), addr(3+i)|0x803)
	}
	g.Must(WQE{
		0: cmd(0), 1: addr(0) | 0x803, 2: mem + 128, 3: 0x8000001F00000000 | room,
		4: 1<<63 | cmd(1), 5: addr(1) | 0x803, 6: 1<<63 | cmd(2), 7: addr(2) | 0x801,
	})
	sds := g.Engine.Snapshot().SDs
	if len(sds) != 11 {
		t.Fatalf("%d segments, want 11", len(sds))
	}
	for i, s := range sds {
		kind := "direct"
		if i == 2 {
			kind = "paged"
		}
		if s.Index != uint32(i) || s.Address != addr(uint64(i)) || s.Type != kind || !s.Valid {
			t.Errorf("segment %d: %+v", i, s)
		}
	}
	w, err := g.Engine.Explain(hmc.MR, 1) // FPM 0xEA040, in segment 0
	if err != nil || w.Address != addr(0)+0xEA040 {
		t.Errorf("MR 1: %v, %v", w, err)
	}
	g.Fails(WQE{0: cmd(0), 1: 0x802, 2: mem, 3: 0x8000001F00000009}, 0x8001) // nine in memory
	g.Fails(WQE{0: cmd(64), 1: 0x802, 3: 0x8000001F00000000}, 0x8001)        // no such segment
	g.Fails(WQE{0: 0x8000, 1: 0x802, 3: 0x8000001F00000000}, 0x8001)         // no PMSDWR
	g.Fails(WQE{0: cmd(0), 1: 0x802, 2: 1, 3: 0x8000001F00000000}, 0x8001)   // another function
	if n := len(g.Engine.Snapshot().SDs); n != 11 {
		t.Errorf("%d segments after refused updates", n)
	}
	g.Events = nil
	g.Must(WQE{0: cmd(1), 1: 0x802, 3: 0x8000001F00000000})
	if f := g.Findings(); len(f) != 0 {
		t.Errorf("findings for a plain clear: %v", f)
	}
	g.Must(WQE{0: cmd(1), 1: 0x802, 3: 0x8000001F00000000})
	g.Must(WQE{0: cmd(0), 1: addr(7) | 0x803, 3: 0x8000001F00000000})
	g.Must(WQE{0: cmd(20), 1: addr(20) | 0x803, 3: 0x8000001F00000000})
	const end = 0x466000 + 8*2097152
	want := []any{
		hmc.SDNotValid{SD: 1, Data: 0x802},
		hmc.SDReprogrammed{SD: 0, Old: addr(0), New: addr(7)},
		hmc.SDOutsideFPM{SD: 20, Data: addr(20) | 0x803, End: end},
	}
	// That two segments share memory the control QP reports.
	got := slices.DeleteFunc(g.Findings(), func(e any) bool { return strings.HasPrefix(fmt.Sprintf("%T", e), "cqp.") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	g.Events = nil
	g.Fails(WQE{0: cmd(64), 1: addr(20) | 0x803, 3: 0x8000001F00000000}, 0x8001)
	if want := (hmc.SDOutsideFPM{SD: 64, Data: addr(20) | 0x803, End: end}); !has(g, want) {
		t.Errorf("no %v among %v", want, g.Findings())
	}
}

// pagedGuest has the first PBLEs behind one paged segment with two pages.
func pagedGuest(t *testing.T) (g *Guest, c *hmc.Cache, pdPage, pages uint64) {
	p := hmc.SmallGuest()
	p.PBLEPage = 1
	g = New(t, p)
	pdPage, pages = g.Alloc(4096), g.Alloc(4*4096)
	c = hmc.New(hmc.Config{Mem: g.Mem, Emit: func(e any) { g.Events = append(g.Events, e) },
		OICR: func(b uint32) { g.OICR |= b }, Profile: p})
	return g, c, pdPage, pages
}

// The walk through a paged segment, the copy kept of a page descriptor, and
// what PFHMC_PDINV does about it.
func TestPagedSegment(t *testing.T) {
	p := hmc.SmallGuest()
	p.PBLEPage = 1
	g := New(t, p)
	d := g.Boot(Kernel73, 1)
	pdPage, pages := g.Alloc(4096), g.Alloc(3*4096)
	// PBLEs begin at FPM 0x601000: segment 3, page descriptor 1.
	const sd, pd = 3, 1
	pdinv := func(pd uint32) { g.Write("PFHMC_PDINV", sd|1<<15|pd<<16) }
	for i := range uint64(2) {
		g.Store(pdPage+8*(pd+i), pages+4096*i|1)
		pdinv(uint32(pd + i)) // the segment is not programmed yet: harmless
	}
	g.Must(WQE{0: 0x80008000 + sd, 1: pdPage + 0x801, 3: 0x8000001F00000000})

	w, err := g.Engine.Explain(hmc.PBLE, 513)
	if err != nil || w.Address != pages+4096+8 || w.PD != 2 || w.PDAt != pdPage+16 || w.Kept {
		t.Errorf("PBLE 513: %v, %v", w, err)
	}

	// A CQ whose ring is named by PBLEs 0 and 1.
	ring := g.Alloc(2 * 4096)
	shadow := g.Alloc(64)
	g.Store(pages, ring+4096, ring) // in reverse, so that the walk shows
	g.Must(WQE{0: 256, 1: 7, 3: 0x8000D00300000000 + 7 | 1<<49, 5: shadow, 6: 0})
	qpc := d.QPC
	g.Store(qpc+136, 7<<32|7)
	g.Must(WQE{2: qpc, 3: 0x8000000100000000 | 4<<48 | 2<<60 | 1<<47 | GSIQP})
	d.PostReceives(1)
	g.Events = nil
	flush := WQE{3: 0x8000002200000000 | 1<<62 | GSIQP}
	g.Must(WQE{3: 0xE004000100000000 + GSIQP})
	g.Must(flush)
	if v := g.Load(ring + 4096 + 24); v>>63 != 1 {
		t.Errorf("flush CQE is not in the page of PBLE 0: %#x", v)
	}

	// The driver moves the page without telling: the old one stays in use.
	g.Store(pages+2*4096, ring, ring)
	g.Store(pdPage+8*pd, pages+2*4096|1)
	g.Store(d.RQ+32+24, 1<<63)
	g.Must(flush)
	if v := g.Load(ring + 4096 + 32 + 24); v>>63 != 1 {
		t.Errorf("second flush CQE did not go where the kept copy leads: %#x", v)
	}
	want := hmc.StalePD{SD: sd, PD: pd, At: pdPage + 8*pd, Kept: pages | 1, Memory: pages + 2*4096 | 1, Object: hmc.PBLE}
	if !has(g, want) {
		t.Errorf("no %v among %v", want, g.Findings())
	}
	s := g.Engine.Snapshot().SDs[3]
	if len(s.PDs) != 2 || !s.PDs[0].Stale || !s.PDs[0].Kept || s.PDs[0].InUse != pages || s.PDs[0].Address != pages+2*4096 || s.PDs[1].Stale {
		t.Errorf("PDs: %+v", s.PDs)
	}
	pdinv(pd)
	g.Events = nil
	g.Store(d.RQ+2*32+24, 1<<63)
	g.Must(flush)
	if v := g.Load(ring + 2*32 + 24); v>>63 != 1 {
		t.Errorf("third flush CQE did not follow the new page: %#x", v)
	}
	if f := g.Findings(); len(f) != 0 {
		t.Errorf("findings after PFHMC_PDINV: %v", f)
	}
}

func TestFailedWalks(t *testing.T) {
	g, c, pdPage, _ := pagedGuest(t)
	var buf [hmc.FPMSize]byte
	buf[0], buf[112] = 16, 255 // 16 QPs, 255 PBLEs
	if err := c.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	// QPs in segment 0, PBLEs in segment 1 at page descriptor 1.
	tests := []struct {
		object hmc.Object
		index  uint32
	}{{hmc.QP, 16}, {hmc.QP, 0}, {hmc.PBLE, 0}, {hmc.CQ, 0}}
	if err := c.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008001, Data: pdPage | 0x801}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		g.Events, g.OICR = nil, 0
		_, err := c.Resolve(tt.object, tt.index)
		if !errors.Is(err, hmc.ErrAccess) {
			t.Errorf("%v %d: %v", tt.object, tt.index, err)
		}
		if g.OICR != 1<<26 || !hasType[hmc.AccessFailed](g) {
			t.Errorf("%v %d: OICR %#x, events %v", tt.object, tt.index, g.OICR, g.Events)
		}
		g.OICR = 0
		if _, err := c.Explain(tt.object, tt.index); !errors.Is(err, hmc.ErrAccess) || g.OICR != 0 {
			t.Errorf("Explain %v %d: %v, OICR %#x", tt.object, tt.index, err, g.OICR)
		}
	}
}

// A step that a reset has overtaken fails, and leaves no trace behind the reset:
// neither one that finds nothing any more nor one that had failed before.
func TestOvertakenWalksRecordNothing(t *testing.T) {
	var cache *hmc.Cache
	overtaken, raised := false, 0
	var atEvent func()
	cache = hmc.New(hmc.Config{Overtaken: func() bool { return overtaken }, OICR: func(uint32) { raised++ },
		Emit: func(any) { atEvent() }})
	space := reg.NewSpace(8<<20, nil, cache.Registers())
	reset := func() {
		overtaken = true
		cache.Reset(reg.PFR)
		space.Reset(reg.PFR)
	}
	for name, c := range map[string]struct{ before, between func() }{
		"walks after the reset":    {reset, func() {}},
		"fails before, tells late": {func() {}, reset},
	} {
		atEvent, overtaken, raised = c.between, false, 0
		c.before()
		if _, err := cache.Resolve(hmc.QP, 3); !errors.Is(err, hmc.ErrAccess) {
			t.Errorf("%s: %v", name, err)
		}
		if changed := space.Changed(); len(changed) != 0 || raised != 0 {
			t.Errorf("%s: HMC_ERR %d times, registers %+v", name, raised, changed)
		}
	}
	atEvent, overtaken = func() {}, false
	if _, err := cache.Resolve(hmc.QP, 3); err == nil || raised != 1 || len(space.Changed()) != 2 {
		t.Errorf("a step of later: %v, HMC_ERR %d times, registers %+v", err, raised, space.Changed())
	}
}

func TestErrorRegisters(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(10)
	g.HMC(208)
	g.Must(WQE{0: 0x80008000, 1: 0x802, 3: 0x8000001F00000000}) // take segment 0 away
	g.Fails(WQE{3: 0x8000400300000000 + 5}, 0x8001)
	if v := g.Read("PFHMC_ERRORINFO"); v != 1<<31|uint32(hmc.CQ)<<16|2<<8 {
		t.Errorf("PFHMC_ERRORINFO = %#x", v)
	}
	if v := g.Read("PFHMC_ERRORDATA"); v != 0 {
		t.Errorf("PFHMC_ERRORDATA = %#x, want segment 0", v)
	}
	if g.OICR != 1<<26 {
		t.Errorf("OICR %#x", g.OICR)
	}
	g.Write("PFHMC_ERRORINFO", 1)
	if v := g.Read("PFHMC_ERRORINFO"); v != 0 {
		t.Errorf("PFHMC_ERRORINFO = %#x after a write", v)
	}
}
