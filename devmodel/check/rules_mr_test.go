// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// by is who registers here.
var by = mr.Origin{Op: "IRDMA_CQP_OP_REG_MR", WQE: 17}

// mrTable has 64 PBLEs and 16 STags, of which 5 is registered.
func mrTable(t *testing.T, c *Checker) (*mr.Table, *hmc.Cache, func(pble uint32, v uint64)) {
	t.Helper()
	mem := rdmatest.Memory(t, 2<<20)
	h := hmc.New(hmc.Config{Mem: mem, Emit: c.Event})
	var buf [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(buf[48:], 16)
	binary.LittleEndian.PutUint64(buf[112:], 64)
	if err := h.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	base := binary.LittleEndian.Uint64(buf[112:]) >> 32 * 512
	if err := h.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: rdmatest.Base | 0x803}}); err != nil {
		t.Fatal(err)
	}
	if err := h.PagesAllocated(); err != nil {
		t.Fatal(err)
	}
	store := func(pble uint32, v uint64) {
		if err := mem.Store64(rdmatest.Base+base+8*uint64(pble), v); err != nil {
			t.Fatal(err)
		}
	}
	store(0, 0x50_0000)
	store(1, 0x60_0000)
	table := mr.New(mr.Config{HMC: h, Emit: c.Event})
	err := table.Register(mr.Region{Index: 5, Key: 0x77, PD: 3, Length: 2 << 12, Level: mr.Flat, PageShift: 12, Rights: mr.LocalRead | mr.RemoteRead, Remote: true}, by)
	if err != nil {
		t.Fatal(err)
	}
	return table, h, store
}

func TestSTagRules(t *testing.T) {
	const stag = 0x577
	type access struct {
		stag   uint32
		pd     uint32
		to     uint64
		n      uint32
		need   mr.Access
		kernel bool
		remote bool
	}
	good := access{stag, 3, 0, 2 << 12, mr.LocalRead, true, false}
	for _, c := range []struct {
		rule       string
		bad, close func(*access)
	}{
		{"stag-free", func(a *access) { a.stag = 0x677 }, func(*access) {}},
		{"stag-key", func(a *access) { a.stag = 0x578 }, func(*access) {}},
		{"stag-pd", func(a *access) { a.pd = 4 }, func(*access) {}},
		{"stag-bounds", func(a *access) { a.to = 1 }, func(a *access) { a.to, a.n = 1, 2<<12-1 }},
		{"stag-right", func(a *access) { a.need = mr.LocalWrite }, func(a *access) { a.need = mr.LocalRead | mr.RemoteRead }},
		{"stag-zero", func(a *access) { a.stag, a.kernel = 0, false }, func(a *access) { a.stag = 0 }},
	} {
		run := func(a access) []Finding {
			checker := New(nil)
			table, _, _ := mrTable(t, checker)
			_, _ = table.Resolve(nil, mr.Subject{PD: a.pd, QP: 9, Privileged: a.kernel}, a.stag, a.to, a.n, a.need, a.remote)
			return checker.Findings(Note)
		}
		bad, near := good, good
		c.bad(&bad)
		c.close(&near)
		if f := run(near); len(f) != 0 {
			t.Errorf("%s: a good access gives %v", c.rule, f)
		}
		if c.rule != "stag-zero" {
			if f := run(bad); len(f) != 1 || f[0].Rule != c.rule || f[0].Grade != Error {
				t.Errorf("%s of a kernel: %v", c.rule, f)
			}
		}
		bad.kernel = false
		if f := run(bad); len(f) != 1 || f[0].Rule != c.rule+"-app" || f[0].Grade != Note {
			t.Errorf("%s of an application: %v", c.rule, f)
		}
		bad.remote, bad.kernel = true, true
		if bad.need == mr.LocalRead {
			bad.need = mr.RemoteRead
		}
		if f := run(bad); len(f) != 1 || f[0].Rule != c.rule+"-app" {
			t.Errorf("%s of a peer: %v", c.rule, f)
		}
	}
}

func TestPBLERules(t *testing.T) {
	user := mr.Subject{PD: 3}
	for _, c := range []struct {
		name, rule string
		do         func(*mr.Table, *hmc.Cache, func(uint32, uint64))
	}{
		{"registration over the end", "pble-range", func(m *mr.Table, _ *hmc.Cache, _ func(uint32, uint64)) {
			_ = m.Register(mr.Region{Index: 6, Length: 4097, Level: mr.Flat, First: 63, PageShift: 12}, by)
		}},
		{"registration up to the end", "", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(63, 0x12_3000)
			if err := m.Register(mr.Region{Index: 6, Length: 4096, Level: mr.Flat, First: 63, PageShift: 12}, by); err != nil {
				t.Error(err)
			}
		}},
		{"leaf with high bits", "pble-range", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(10, 1<<40)
			_ = m.Register(mr.Region{Index: 6, PD: 3, Length: 513 << 12, Level: mr.TwoLevel, First: 10, PageShift: 12, Rights: mr.LocalRead}, by)
			_, _ = m.Resolve(nil, user, 6<<8, 0, 8, mr.LocalRead, false)
		}},
		{"leaf within", "", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(10, 64-1)
			store(63, 0x12_3000)
			_ = m.Register(mr.Region{Index: 6, PD: 3, Length: 1 << 12, Level: mr.TwoLevel, First: 10, PageShift: 12, Rights: mr.LocalRead}, by)
			if _, f := m.Resolve(nil, user, 6<<8, 0, 8, mr.LocalRead, false); f != nil {
				t.Error(f)
			}
		}},
		{"segment gone", "pble-unmapped", func(m *mr.Table, h *hmc.Cache, _ func(uint32, uint64)) {
			if err := h.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: 0x802}}); err != nil {
				t.Error(err)
			}
			_, _ = m.Resolve(nil, user, 0x577, 0, 8, mr.LocalRead, false)
		}},
		{"segment gone, nothing used", "", func(m *mr.Table, h *hmc.Cache, _ func(uint32, uint64)) {
			if err := h.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: 0x802}}); err != nil {
				t.Error(err)
			}
			_, _ = m.Resolve(nil, user, 0x577, 0, 0, mr.LocalRead, false)
		}},
		{"misaligned", "pble-misaligned", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(1, 0x12_3800)
			_, _ = m.Resolve(nil, user, 0x577, 4096, 8, mr.LocalRead, false)
		}},
		{"misaligned, not used", "", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(1, 0x12_3800)
			_, _ = m.Resolve(nil, user, 0x577, 0, 4096, mr.LocalRead, false)
		}},
	} {
		checker := New(nil)
		m, h, store := mrTable(t, checker)
		c.do(m, h, store)
		found := false
		for _, f := range checker.Findings(Note) {
			found = found || f.Rule == c.rule && f.Grade == Error
			if c.rule == "" && f.Rule != "stag-fields" {
				t.Errorf("%s: %v", c.name, f)
			}
		}
		if found != (c.rule != "") {
			t.Errorf("%s: no %s", c.name, c.rule)
		}
	}
}

// table is mrTable with a store of several PBLEs.
func (b *bench) table() (*mr.Table, func(pble uint32, words ...uint64)) {
	t, _, store := mrTable(b.T, b.checker)
	return t, func(pble uint32, words ...uint64) {
		for i, w := range words {
			store(pble+uint32(i), w)
		}
	}
}

// flatRegion is a region of n pages from PBLE 8 on.
func flatRegion(index uint32, n uint64) mr.Region {
	return mr.Region{Index: index, Key: 1, PD: 3, Length: n << 12, Level: mr.Flat, PageShift: 12, First: 8, VABased: true, Start: 1 << 20,
		Rights: mr.LocalRead | mr.LocalWrite | mr.RemoteRead | mr.BindWindow, Remote: true}
}

// registered is a table with a region of 3 pages as STag 6<<8|1, at PBLE 8.
func (b *bench) registered(pages ...uint64) *mr.Table {
	t, store := b.table()
	store(8, pages...)
	if err := t.Register(flatRegion(6, uint64(len(pages))), by); err != nil {
		b.Error(err)
	}
	return t
}

var (
	kernelQP  = mr.Subject{PD: 3, QP: 9, Privileged: true}
	programQP = mr.Subject{PD: 3, QP: 9}
	byQP      = mr.Origin{Op: "INV_STAG", QP: 9, WQE: 4}
)

// dealloc is what a driver does with a region that it has registered.
func (b *bench) dealloc(t *mr.Table, index uint32) {
	if err := t.Deallocate(index, 3, true, by); err != nil {
		b.Error(err)
	}
}

// window is STag 7<<8, bound to a part of 6<<8|1 by QP 9.
func (b *bench) window(t *mr.Table, kind mr.Kind) {
	if err := t.Allocate(mr.Region{Index: 7, PD: 3, PageShift: 12}, kind, by); err != nil {
		b.Error(err)
	}
	_, code := t.Bind(programQP, mr.Binding{Window: 7 << 8, Parent: 6<<8 | 1, Start: 1 << 20, Length: 4096, VABased: true, Rights: mr.RemoteRead,
		Type1: kind == mr.Window1}, byQP)
	if code != 0 {
		b.Error(code)
	}
}

// uses makes the scenarios of a rule about an access, for a kernel and for
// a program.
func uses(id string, trigger, near func(b *bench, s mr.Subject)) map[string]scenario {
	with := func(s mr.Subject) scenario {
		return scenario{trigger: func(b *bench) { trigger(b, s) }, near: func(b *bench) { near(b, s) }}
	}
	return map[string]scenario{id: with(kernelQP), id + "-app": with(programQP)}
}

// Headers of the STag commands.
const (
	opRegMR     = 0x8803080A00000000 // one block, VA-based, local read and write
	opDeallocMR = 0x8000080D00000000
)

// writeTo has a kernel's QP, which is its own peer, write 8 bytes from an
// address.
func writeTo(b *bench, at uint64) {
	const arp, remote, remoteAll = 5, 9 << 8, 0x2C << 48
	w := work(b, false, func(w *worker) {
		g := w.G
		g.Must(rdmatest.WQE{3: 0x80000C0F00000000 + arp}) // the port's address is 0 here
		g.Must(rdmatest.WQE{1: 3<<46 | 4096, 2: remote, 3: opRegMR | remoteAll, 4: rdmatest.Base})
		g.Store(w.qpc+48, arp<<48|1024<<16)
		g.Store(w.qpc+64, workerQP)
	})
	const arpValid = 1 << 59
	w.G.Must(rdmatest.WQE{2: w.qpc, 3: workModify | workerType | cqNumbers | arpValid | uint64(qp.RTS)<<60 | workerQP})
	w.G.Store(w.sq, at, 8<<32, 0)
	w.post(remote)
}

// crossing registers two pages by the last PBLE but n of a segment of the HMC and
// the next.
func crossing(b *bench, n uint32) {
	g := b.guest()
	g.CreateCQP(10)
	g.HMC(208)
	g.CreateCCQ()
	var last uint32
	for first, _ := g.Engine.Explain(hmc.PBLE, 0); ; last++ {
		if w, _ := g.Engine.Explain(hmc.PBLE, last+1); w.SD != first.SD {
			break
		}
	}
	first, err := g.Engine.Explain(hmc.PBLE, last-1)
	if err != nil {
		b.Fatal(err)
	}
	g.AddDirectSD(uint64(first.SD) + 1)
	for i := range uint32(3) {
		w, err := g.Engine.Explain(hmc.PBLE, last-1+i)
		if err != nil {
			b.Fatal(err)
		}
		g.Store(w.Address, 0x10_0000+uint64(i)<<12)
	}
	const flat = 1 << 44
	g.Must(rdmatest.WQE{1: 2 << 12, 2: 9 << 8, 3: opRegMR | flat, 6: uint64(last - 1 + n)})
}

// read accesses the first byte of an STag.
func read(t *mr.Table, s mr.Subject, stag uint32) {
	_, _ = t.Resolve(nil, s, stag, 1<<20, 1, mr.LocalRead, false)
}

// readWindow accesses STag 7<<8 as a peer would.
func readWindow(b *bench, t *mr.Table, s mr.Subject) *mr.Fault {
	b.window(t, mr.Window2)
	_, f := t.Resolve(nil, s, 7<<8, 1<<20, 1, mr.RemoteRead, !s.Privileged)
	return f
}

var mrScenarios = merge(
	uses("stag-ended", func(b *bench, s mr.Subject) {
		t := b.registered(0x10_0000)
		b.dealloc(t, 6)
		read(t, s, 6<<8|1)
	}, func(b *bench, s mr.Subject) {
		t := b.registered(0x10_0000)
		read(t, s, 6<<8|1)
		b.dealloc(t, 6)
	}),
	uses("stag-invalid", func(b *bench, s mr.Subject) {
		t := b.registered(0x10_0000)
		if code := t.Invalidate(s, 6<<8|1, false, byQP); code != 0 {
			b.Error(code)
		}
		read(t, s, 6<<8|1)
	}, func(b *bench, s mr.Subject) {
		t := b.registered(0x10_0000)
		t.Invalidate(s, 6<<8|1, false, byQP)
		again := flatRegion(6, 1)
		again.Key = 2
		if code := t.FastRegister(s, again, byQP); code != 0 {
			b.Error(code)
		}
		read(t, s, 6<<8|2)
	}),
	uses("mw-qp", func(b *bench, s mr.Subject) {
		s.QP++
		readWindow(b, b.registered(0x10_0000), s)
	}, func(b *bench, s mr.Subject) {
		if f := readWindow(b, b.registered(0x10_0000), s); f != nil {
			b.Error(f)
		}
	}),
	map[string]scenario{
		"pble-zero": {
			trigger: func(b *bench) { b.registered(0, 0x10_0000) },
			near: func(b *bench) { // what follows the list is not the region's
				b.dealloc(b.registered(0x11_0000, 0x10_0000), 6)
			},
		},
		"pble-not-address": {
			trigger: func(b *bench) { b.registered(0x10, 0x10_0000) },
			near:    func(b *bench) { b.registered(0x1000, 0x10_0000) }, // a low page is one
		},
		"pble-crosses": {
			trigger: func(b *bench) { crossing(b, 1) },
			near:    func(b *bench) { crossing(b, 0) },
		},
		"stag-leak": {
			trigger: func(b *bench) {
				d := b.boot()
				d.G.Must(rdmatest.WQE{1: 4096, 2: 9 << 8, 3: opRegMR, 4: rdmatest.Base})
				d.Teardown()
			},
			near: func(b *bench) { // deregistered; and one who resets leaves all
				d := b.boot()
				d.G.Must(rdmatest.WQE{1: 4096, 2: 9 << 8, 3: opRegMR, 4: rdmatest.Base})
				d.G.Must(rdmatest.WQE{2: 9 << 8, 3: opDeallocMR})
				d.Teardown()
				b.guest().CreateCQP(10)
			},
			with: []string{"sd-in-use"}, // which the STag's entry is in
		},
		"mr-no-memory": {
			trigger: func(b *bench) { writeTo(b, unmapped) },
			near:    func(b *bench) { writeTo(b, rdmatest.Base) },
		},
		"pble-changed": {
			trigger: func(b *bench) {
				t, store := b.table()
				store(8, 0x10_0000, 0x20_0000)
				_ = t.Register(flatRegion(6, 2), by)
				store(9, 0x30_0000)
				b.dealloc(t, 6)
			},
			near: func(b *bench) { // behind the list, and in another's that is fast registered
				t, store := b.table()
				store(8, 0x10_0000, 0x20_0000)
				_ = t.Register(flatRegion(6, 2), by)
				store(10, 0x30_0000)
				b.dealloc(t, 6)
				_ = t.Allocate(mr.Region{Index: 6, PD: 3, Length: 2 << 12, PageShift: 12, Remote: true}, mr.Memory, by)
				t.FastRegister(kernelQP, flatRegion(6, 2), byQP)
				store(8, 0x40_0000)
				b.dealloc(t, 6)
			},
		},
		"pble-shared": {
			trigger: func(b *bench) {
				t := b.registered(0x10_0000, 0x20_0000, 0x30_0000)
				r := flatRegion(7, 1)
				r.First += 2
				if err := t.Register(r, by); err != nil {
					b.Error(err)
				}
			},
			near: func(b *bench) { // the same, later; and its neighbour
				t := b.registered(0x10_0000, 0x20_0000)
				b.dealloc(t, 6)
				if err := t.Register(flatRegion(7, 1), by); err != nil {
					b.Error(err)
				}
				r := flatRegion(8, 1)
				r.First++
				if err := t.Register(r, by); err != nil {
					b.Error(err)
				}
			},
		},
		"stag-busy": {
			trigger: func(b *bench) {
				_ = b.registered(0x10_0000).Allocate(mr.Region{Index: 6, Length: 1, PageShift: 12}, mr.Memory, by)
			},
			near: func(b *bench) {
				t := b.registered(0x10_0000)
				b.dealloc(t, 6)
				_ = t.Register(flatRegion(6, 1), by)
			},
		},
		"stag-index": {
			trigger: func(b *bench) {
				t, _ := b.table()
				_ = t.Allocate(mr.Region{Index: 16, Length: 1, PageShift: 12}, mr.Memory, by)
			},
			near: func(b *bench) {
				t, _ := b.table()
				_ = t.Allocate(mr.Region{Index: 15, Length: 1, PageShift: 12}, mr.Memory, by)
			},
		},
		"stag-fields": {
			trigger: func(b *bench) {
				t, store := b.table()
				store(8, 16)
				store(16, 0x10_0000)
				r := flatRegion(6, 1)
				r.Level = mr.TwoLevel
				_ = t.Register(r, by)
			},
			near: func(b *bench) { // all of memory is what it looks like
				t, _ := b.table()
				_ = t.Register(mr.Region{Index: 6, PageShift: 12, VABased: true}, by)
			},
		},
		"dealloc-free": {
			trigger: func(b *bench) {
				t := b.registered(0x10_0000)
				b.dealloc(t, 6)
				_ = t.Deallocate(6, 3, true, by)
			},
			near: func(b *bench) { b.dealloc(b.registered(0x10_0000), 6) },
		},
		"dealloc-wrong": {
			trigger: func(b *bench) { _ = b.registered(0x10_0000).Deallocate(6, 4, true, by) },
			near:    func(b *bench) { _ = b.registered(0x10_0000).Deallocate(6, 3, true, by) },
		},
		"mw-bound": {
			trigger: func(b *bench) {
				t := b.registered(0x10_0000)
				b.window(t, mr.Window1)
				_ = t.Deallocate(6, 3, true, by)
			},
			near: func(b *bench) {
				t := b.registered(0x10_0000)
				b.window(t, mr.Window1)
				if err := t.Deallocate(7, 3, false, by); err != nil {
					b.Error(err)
				}
				b.dealloc(t, 6)
			},
		},
		"mw-left": {
			trigger: func(b *bench) {
				t := b.registered(0x10_0000)
				b.window(t, mr.Window2)
				t.QPEnds(9, by)
			},
			near: func(b *bench) { // one of type 1 is its protection domain's
				t := b.registered(0x10_0000)
				b.window(t, mr.Window1)
				t.QPEnds(9, by)
			},
		},
		"stag-refused": {
			trigger: func(b *bench) { b.registered(0x10_0000).FastRegister(kernelQP, flatRegion(6, 1), byQP) },
			near: func(b *bench) {
				t := b.registered(0x10_0000)
				t.Invalidate(kernelQP, 6<<8|1, false, byQP)
				t.FastRegister(kernelQP, flatRegion(6, 1), byQP)
			},
		},
		"stag-refused-app": {
			trigger: func(b *bench) { b.registered(0x10_0000).Invalidate(kernelQP, 6<<8|2, true, byQP) },
			near:    func(b *bench) { b.registered(0x10_0000).Invalidate(kernelQP, 6<<8|1, true, byQP) },
		},
		"unmap-live-mr": {
			trigger: func(b *bench) {
				t := b.registered(0x10_0000, 0x20_0000)
				t.WatchUnmaps()
				t.Unmapping(0x20_0000, 0x1000)
			},
			near: func(b *bench) { // its neighbours, and itself when it is not registered any more
				t := b.registered(0x10_0000, 0x20_0000)
				t.WatchUnmaps()
				t.Unmapping(0x10_1000, 0xF_F000)
				t.Unmapping(0x20_1000, 0x1000)
				t.Unmapping(0, 1<<30) // a domain is left, or memory is taken away
				t.Unmapping(0x1F_F000, 0x2000)
				b.dealloc(t, 6)
				t.Unmapping(0x10_0000, 0x20_0000)
			},
		},
	},
)
