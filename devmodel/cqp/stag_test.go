// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// Headers of the STag commands as drivers write them.
const (
	regFlat       = 0x882F180A00000000 // level 1, 4 KiB, VA-based, all rights
	regContiguous = 0x8803080A00000000 // level 0, 4 KiB, VA-based, local read and write
	regTwoLevel   = 0x882F380A00000000
	allocMR       = 0x8020080900000000
	deallocMR     = 0x8000080D00000000
)

// stagGuest is a guest with its HMC up; pble is the guest address of PBLE 0.
func stagGuest(t *testing.T) (g *Guest, pble uint64) {
	g = New(t, hmc.Profile{})
	g.CreateCQP(10)
	g.HMC(208)
	g.CreateCCQ()
	w, err := g.Engine.Explain(hmc.PBLE, 0) // in the last of the static segments
	if err != nil {
		t.Fatal(err)
	}
	return g, w.Address
}

func TestRegisterAndDeallocate(t *testing.T) {
	g, pble := stagGuest(t)
	const (
		pd    = 0x2_9876
		index = 7 | 0x2A5<<14
		va    = 0x7F12_3456_7890
	)
	g.Store(pble+8*16, 0x1_0000_2000, 0x1_0000_9000)
	reg := WQE{0: va, 1: pd<<46 | 0x1000, 2: index<<8 | 0x5C, 3: regFlat, 6: 16}
	g.Must(reg)
	want := mr.Region{Index: index, Key: 0x5C, PD: pd, Length: 0x1000, Start: va, VABased: true, Level: mr.Flat, PageShift: 12,
		Rights: mr.LocalRead | mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite, Remote: true, First: 16}
	if got := g.Engine.Snapshot().MRs; len(got) != 1 || got[0].Region != want || got[0].State != mr.Valid || got[0].Kind != mr.Memory {
		t.Errorf("regions %+v", got)
	}
	w, err := g.Engine.ExplainMR(index<<8|0x5C, va, 0x1000)
	segs := []mr.Segment{{IOVA: 0x1_0000_2890, Len: 0x770}, {IOVA: 0x1_0000_9000, Len: 0x890}}
	if err != nil || !slices.Equal(w.Segments, segs) {
		t.Errorf("walk: %v, %v", err, w)
	}
	g.Fails(reg, 0x8002)
	g.Fails(WQE{1: pd<<46 | 0x1000, 2: index << 8, 3: allocMR}, 0x8002)
	g.Fails(WQE{1: (pd + 1) << 46, 2: index << 8, 3: deallocMR}, 0x8002)
	g.Fails(WQE{1: pd << 46, 2: (index ^ 1<<20) << 8, 3: deallocMR}, 0x8002)
	g.Must(WQE{1: pd << 46, 2: index << 8, 3: deallocMR})
	g.Fails(WQE{1: pd << 46, 2: index << 8, 3: deallocMR}, 0x8002)
	if got := g.Engine.Snapshot().MRs; len(got) != 0 {
		t.Errorf("regions %+v", got)
	}
	if _, err := g.Engine.ExplainMR(index<<8|0x5C, va, 1); err == nil {
		t.Error("a walk through a deallocated STag")
	}
	g.Must(reg) // the index is free again
}

func TestRegionFields(t *testing.T) {
	g, _ := stagGuest(t)
	for i, c := range []struct {
		wqe  WQE
		want mr.Region
	}{
		{WQE{0: 0x7000_0123, 1: 4096, 3: regContiguous, 4: 0x1234_5000},
			mr.Region{Length: 4096, Start: 0x7000_0123, VABased: true, PageShift: 12, Rights: 3, Base: 0x1234_5000}},
		{WQE{0: 0x123, 1: 4096, 3: regContiguous &^ (1 << 59), 4: 0x1234_5000},
			mr.Region{Length: 4096, Start: 0x123, PageShift: 12, Rights: 3, Base: 0x1234_5000}},
		{WQE{1: 0, 3: regContiguous},
			mr.Region{VABased: true, PageShift: 12, Rights: 3}},
		{WQE{1: 1<<46 - 1, 2: 0x3F << 54, 3: regContiguous},
			mr.Region{PD: 0x3F << 18, Length: 1<<46 - 1, VABased: true, PageShift: 12, Rights: 3}},
		{WQE{1: 513 << 21, 3: regTwoLevel | 1<<46, 6: 77},
			mr.Region{Length: 513 << 21, VABased: true, Level: mr.TwoLevel, PageShift: 21, Rights: 15, Remote: true, First: 77}},
		{WQE{1: 3 << 30, 3: regFlat | 2<<46, 6: 2097149},
			mr.Region{Length: 3 << 30, VABased: true, Level: mr.Flat, PageShift: 30, Rights: 15, Remote: true, First: 2097149}},
	} {
		c.wqe[2] |= uint64(i+1)<<8 | 0xA0
		c.want.Index, c.want.Key = uint32(i+1), 0xA0
		g.Must(c.wqe)
		if got := g.Engine.Snapshot().MRs[i].Region; got != c.want {
			t.Errorf("%d: %+v, want %+v", i, got, c.want)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	g, _ := stagGuest(t)
	for name, w := range map[string]WQE{
		"index 0":         {1: 4096, 3: regContiguous},
		"LPBLSIZE 2":      {1: 4096, 2: 1 << 8, 3: regContiguous | 2<<44},
		"HPAGESIZE 3":     {1: 4096, 2: 1 << 8, 3: regContiguous | 3<<46},
		"list beyond":     {1: 4097, 2: 1 << 8, 3: regFlat, 6: 2097151},
		"root beyond":     {1: 4096, 2: 1 << 8, 3: regTwoLevel, 6: 1<<28 - 1},
		"longest list":    {1: 1<<46 - 1, 2: 1 << 8, 3: regFlat},
		"list of all":     {1: 0, 2: 1 << 8, 3: regFlat},
		"other function":  {1: 4096, 2: 1 << 8, 3: regContiguous | 1<<60, 5: 9},
		"VA range wraps":  {0: ^uint64(0), 1: 2, 2: 1 << 8, 3: regContiguous},
		"a memory window": {1: 4096, 2: 1 << 8, 3: regContiguous &^ (1 << 43)},
	} {
		g.Events = nil
		g.Fails(w, 0x8001)
		if _, gap := find[cqp.NotBuilt](g); gap {
			t.Errorf("%s: NotBuilt", name)
		}
	}
	if got := g.Engine.Snapshot().MRs; len(got) != 0 {
		t.Errorf("regions %+v", got)
	}
}

func find[E any](g *Guest) (e E, ok bool) {
	for _, x := range g.Events {
		if e, ok = x.(E); ok {
			return e, true
		}
	}
	return e, false
}

func TestAllocatedSTag(t *testing.T) {
	g, _ := stagGuest(t)
	g.Must(WQE{1: 5<<46 | 0x10000, 2: 9 << 8, 3: allocMR})
	got := g.Engine.Snapshot().MRs
	if len(got) != 1 || got[0].State != mr.Allocated || got[0].Length != 0x10000 || !got[0].Remote || got[0].PD != 5 {
		t.Errorf("regions %+v", got)
	}
	if _, err := g.Engine.ExplainMR(9<<8, 0, 1); err == nil {
		t.Error("a walk through an STag without memory")
	}
	g.Must(WQE{1: 5 << 46, 2: 9 << 8, 3: deallocMR})
}

// The end of the control QP ends its regions and tells of them.
func TestRegionsEndWithTheCQP(t *testing.T) {
	g, _ := stagGuest(t)
	g.Must(WQE{1: 4096, 2: 9 << 8, 3: regContiguous})
	g.DestroyCQP()
	if l, ok := find[cqp.Leaked](g); !ok || l.MRs != 1 {
		t.Errorf("leaked %+v", l)
	}
	if got := g.Engine.Snapshot().MRs; len(got) != 0 {
		t.Errorf("regions %+v", got)
	}
}

// Registration needs the HMC's MR object to have memory.
func TestRegisterWithoutBacking(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(10)
	g.Fails(WQE{1: 4096, 2: 9 << 8, 3: regContiguous}, 0x8002)
	g.HMC(208)
	g.Must(WQE{0: 0x80008000 + 1, 1: 0x802, 3: 0x8000001F00000000})
	g.Must(WQE{0: 0x80008000, 1: 0x802, 3: 0x8000001F00000000})
	g.Fails(WQE{1: 4096, 2: 9 << 8, 3: regContiguous}, 0x8001)
}

// Memory windows are STags of their own: allocated and deallocated as such,
// of two types.
func TestWindows(t *testing.T) {
	g, _ := stagGuest(t)
	const (
		allocMW   = allocMR &^ (1<<43 | 1<<53)
		wide      = 1 << 42
		deallocMW = deallocMR &^ (1 << 43)
	)
	g.Must(WQE{1: 5 << 46, 2: 9 << 8, 3: allocMW | wide})
	g.Must(WQE{1: 5 << 46, 2: 10 << 8, 3: allocMW})
	got := g.Engine.Snapshot().MRs
	if len(got) != 2 || got[0].Kind != mr.Window1 || got[1].Kind != mr.Window2 || got[0].State != mr.Allocated || got[0].PD != 5 ||
		got[0].By != (mr.Origin{Op: "IRDMA_CQP_OP_ALLOC_STAG", WQE: got[1].By.WQE - 1}) {
		t.Errorf("%+v", got)
	}
	g.Fails(WQE{1: 5 << 46, 2: 9 << 8, 3: allocMW | wide}, 0x8002)
	g.Fails(WQE{1: 5 << 46, 2: 9 << 8, 3: deallocMR}, 0x8002)
	g.Fails(WQE{1: 6 << 46, 2: 9 << 8, 3: deallocMW}, 0x8002)
	g.Must(WQE{1: 5 << 46, 2: 9 << 8, 3: deallocMW})
	g.Must(WQE{1: 5 << 46, 2: 10 << 8, 3: deallocMW})
	g.Fails(WQE{1: 5 << 46, 2: 10 << 8, 3: deallocMW}, 0x8002)
	last, ok := find[mr.DeallocFree](g)
	if !ok || last.Index != 10 || last.Last.By.Op != "IRDMA_CQP_OP_DEALLOC_STAG" {
		t.Errorf("%v", last)
	}
}

func TestQuerySTag(t *testing.T) {
	g, _ := stagGuest(t)
	const query = 0x8000000B00000000
	g.Must(WQE{1: 4096, 2: 9 << 8, 3: regContiguous})
	g.Must(WQE{1: 4096, 2: 10 << 8, 3: allocMR})
	g.Must(WQE{2: 9 << 8, 3: query})
	for _, index := range []uint64{0, 10, 11, 9 | 1<<20} {
		g.Fails(WQE{2: index << 8, 3: query}, 0x8002)
	}
}

func TestSharedRegion(t *testing.T) {
	g, pble := stagGuest(t)
	const (
		va     = 0x7F12_3456_7890
		share  = 0x8803080C00000000
		parent = 9
	)
	g.Store(pble+8*16, 0x1_0000_2000, 0x1_0000_9000)
	g.Must(WQE{0: va, 1: 0x1000, 2: parent << 8, 3: regFlat, 6: 16})
	g.Fails(WQE{0: va, 1: 0x1000, 2: 8<<32 | 10<<8, 3: share}, 0x8002)
	g.Fails(WQE{0: va, 1: 0x1001, 2: parent<<32 | 10<<8, 3: share}, 0x8001)
	g.Fails(WQE{0: va + 1, 1: 0x1000, 2: parent<<32 | 10<<8, 3: share}, 0x8001)
	g.Must(WQE{0: 0x890, 1: 5<<46 | 0x1000, 2: parent<<32 | 10<<8 | 0xAB, 3: share})
	want := mr.Region{Index: 10, Key: 0xAB, PD: 5, Length: 0x1000, Start: 0x890, VABased: true, Level: mr.Flat, PageShift: 12, Rights: 3, First: 16}
	if got := g.Engine.Snapshot().MRs; len(got) != 2 || got[1].Region != want || !got[0].Shared || !got[1].Shared {
		t.Errorf("%+v", got)
	}
	w, err := g.Engine.ExplainMR(10<<8|0xAB, 0x890, 0x1000)
	if segs := []mr.Segment{{IOVA: 0x1_0000_2890, Len: 0x770}, {IOVA: 0x1_0000_9000, Len: 0x890}}; err != nil || !slices.Equal(w.Segments, segs) {
		t.Errorf("walk: %v, %v", err, w.Segments)
	}
}

// A ring's page list and a region's are the same memory: that is told of, until
// one of them ends.
func TestPageListOfARingAndARegion(t *testing.T) {
	g, pble := stagGuest(t)
	const createCQ, destroyCQ, virtual = 0x8003400300000000, 0x8003400500000000, 1<<47 | 1<<44
	pages := g.Alloc(2 << 12)
	g.Store(pble+8*16, pages, pages+4096)
	shadow := g.Alloc(64)
	cq := WQE{0: 256, 1: 3, 3: (createCQ | virtual | 3) &^ (1 << 49), 5: shadow, 6: 16}
	g.Must(cq)
	region := WQE{1: 4096, 2: 9<<8 | 1, 3: regFlat, 6: 17}
	g.Must(region)
	e, ok := find[mr.PBLEShared](g)
	want := mr.PBLEShared{Object: "STag 0x00000901", Other: "CQ 3", Index: 17, By: e.By, OtherBy: e.OtherBy}
	if !ok || e != want || e.By.Op != "IRDMA_CQP_OP_REG_MR" || e.OtherBy.Op != "IRDMA_CQP_OP_CREATE_CQ" {
		t.Errorf("%+v", e)
	}
	g.Must(WQE{2: 9 << 8, 3: deallocMR})
	g.Events = nil
	g.Must(WQE{0: 256, 1: 3, 3: (destroyCQ | virtual | 3) &^ (1 << 49), 5: shadow, 6: 16})
	g.Must(region)
	if e, ok := find[mr.PBLEShared](g); ok {
		t.Errorf("%+v", e)
	}
}
