// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

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
	table := mr.New(mr.Config{HMC: h, Emit: c.Event})
	err := table.Register(mr.Region{Index: 5, Key: 0x77, PD: 3, Length: 2 << 12, Level: mr.Flat, PageShift: 12, Rights: mr.LocalRead | mr.RemoteRead, Remote: true})
	if err != nil {
		t.Fatal(err)
	}
	return table, h, func(pble uint32, v uint64) {
		if err := mem.Store64(rdmatest.Base+base+8*uint64(pble), v); err != nil {
			t.Fatal(err)
		}
	}
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
			_ = m.Register(mr.Region{Index: 6, Length: 4097, Level: mr.Flat, First: 63, PageShift: 12})
		}},
		{"registration up to the end", "", func(m *mr.Table, _ *hmc.Cache, _ func(uint32, uint64)) {
			if err := m.Register(mr.Region{Index: 6, Length: 4096, Level: mr.Flat, First: 63, PageShift: 12}); err != nil {
				t.Error(err)
			}
		}},
		{"leaf with high bits", "pble-range", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(10, 1<<40)
			_ = m.Register(mr.Region{Index: 6, PD: 3, Length: 513 << 12, Level: mr.TwoLevel, First: 10, PageShift: 12, Rights: mr.LocalRead})
			_, _ = m.Resolve(nil, user, 6<<8, 0, 8, mr.LocalRead, false)
		}},
		{"leaf within", "", func(m *mr.Table, _ *hmc.Cache, store func(uint32, uint64)) {
			store(10, 63)
			_ = m.Register(mr.Region{Index: 6, PD: 3, Length: 513 << 12, Level: mr.TwoLevel, First: 10, PageShift: 12, Rights: mr.LocalRead})
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
			if c.rule == "" {
				t.Errorf("%s: %v", c.name, f)
			}
		}
		if found != (c.rule != "") {
			t.Errorf("%s: no %s", c.name, c.rule)
		}
	}
}

var mrScenarios = map[string]scenario{}
