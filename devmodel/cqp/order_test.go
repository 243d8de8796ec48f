// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// reasons are what was said of a command before it failed.
func reasons(g *Guest) (out []any) {
	for _, e := range g.Findings() {
		if _, ok := e.(cqp.OpFailed); !ok {
			out = append(out, e)
		}
	}
	return out
}

// Commands in the wrong order, about objects that exist or do not: which error,
// and what is said of it.
func TestWrongOrder(t *testing.T) {
	const createQP, modifyQP, arp = 0x8000000000000000, 0x8000000100000000, 0x8000000F00000000
	exists := func(object string, id uint32) any { return cqp.ObjectExists{Object: object, ID: id} }
	absent := func(object string, id uint32) any { return cqp.ObjectAbsent{Object: object, ID: id} }
	reserved := func(object string, id uint32) any { return cqp.ObjectReserved{Object: object, ID: id} }
	for name, c := range map[string]struct {
		wqe   func(*Device) WQE
		minor uint16 // 0: succeeds
		why   any
	}{
		"QP 0":           {func(*Device) WQE { return WQE{3: createQP | 3<<48} }, param, reserved("QP", 0)},
		"RC QP 1":        {func(*Device) WQE { return WQE{3: createQP | 3<<48 | GSIQP} }, param, reserved("QP", 1)},
		"QP twice":       {func(d *Device) WQE { return WQE{2: d.QPC, 3: createQP | 4<<48 | GSIQP} }, state, exists("QP", 1)},
		"modify no QP":   {func(d *Device) WQE { return WQE{2: d.QPC, 3: modifyQP | 6<<60 | 9} }, state, absent("QP", 9)},
		"destroy no QP":  {func(*Device) WQE { return WQE{3: 0x8000000200000009} }, state, absent("QP", 9)},
		"flush no QP":    {func(*Device) WQE { return WQE{3: 0xE000002200000009} }, state, absent("QP", 9)},
		"suspend no QP":  {func(*Device) WQE { return WQE{3: 0x8000002900000009} }, state, absent("QP", 9)},
		"resume no QP":   {func(*Device) WQE { return WQE{3: 0x8000002A00000009} }, state, absent("QP", 9)},
		"upload no QP":   {func(d *Device) WQE { return WQE{2: d.QPC, 3: 0x8000001300000009} }, state, absent("QP", 9)},
		"CQ twice":       {func(d *Device) WQE { return WQE{0: 16, 3: 0x8000000300000000 + GSICQ} }, state, exists("CQ", GSICQ)},
		"CQ of no CEQ":   {func(*Device) WQE { return WQE{0: 16, 3: 0x8002000300000009 | 5<<22} }, state, absent("CEQ", 5)},
		"resize no CQ":   {func(*Device) WQE { return WQE{0: 16, 3: 0x8000080400000009} }, state, absent("CQ", 9)},
		"destroy no CQ":  {func(*Device) WQE { return WQE{3: 0x8000000500000009} }, state, absent("CQ", 9)},
		"CEQ twice":      {func(*Device) WQE { return WQE{2: 16, 3: 0x8000001600000000} }, state, exists("CEQ", 0)},
		"destroy no CEQ": {func(*Device) WQE { return WQE{3: 0x8000001800000009} }, state, absent("CEQ", 9)},
		"AEQ twice":      {func(*Device) WQE { return WQE{2: 16, 3: 0x8000001900000000} }, state, exists("AEQ", 0)},
		"ARP 0":          {func(*Device) WQE { return WQE{3: arp | 3<<42} }, param, reserved("ARP entry", 0)},
		"delete no ARP":  {func(*Device) WQE { return WQE{3: arp | 5} }, state, absent("ARP entry", 5)},
		"AH 0":           {func(*Device) WQE { return WQE{3: 0x8000001C00000000} }, param, reserved("AH", 0)},
		"destroy no AH":  {func(*Device) WQE { return WQE{3: 0x8000001E00000005} }, state, absent("AH", 5)},
		"modify no AH":   {func(*Device) WQE { return WQE{3: 0x8000001D00000005} }, state, absent("AH", 5)},
		"group 0":        {func(*Device) WQE { return WQE{3: 0x8000002600000000} }, param, reserved("multicast group", 0)},
		"modify group":   {func(*Device) WQE { return WQE{3: 0x8000002700000005} }, state, absent("multicast group", 5)},
		"destroy group":  {func(*Device) WQE { return WQE{3: 0x8000002800000005} }, state, absent("multicast group", 5)},
		"node twice":     {func(*Device) WQE { return WQE{3: 0x8000002C00000001} }, state, exists("work scheduler node", 1)},
		"delete no node": {func(*Device) WQE { return WQE{3: 0x8020002C00000009} }, state, absent("work scheduler node", 9)},
		"below a leaf":   {func(*Device) WQE { return WQE{3: 0x8000002C00020009} }, state, cqp.BadParent{Node: 9, Parent: 2, Leaf: true}},
		"below nothing":  {func(*Device) WQE { return WQE{3: 0x8000002C00080009} }, state, cqp.BadParent{Node: 9, Parent: 8}},
		"with children":  {func(*Device) WQE { return WQE{3: 0x8020002C00000001} }, state, cqp.NodeInUse{Node: 1, Child: 2}},
		"used leaf":      {func(*Device) WQE { return WQE{3: 0x8020002C00000002} }, 0, cqp.NodeInUse{Node: 2, Handle: 1, QP: GSIQP}},
		"AEQ first":      {func(*Device) WQE { return WQE{3: 0x8000001B00000000} }, 0, cqp.AEQInUse{QPs: 1, CQs: 1}},
		"no MAC":         {func(*Device) WQE { return WQE{3: 0x8000000E00000003} }, state, absent("local MAC entry", 3)},
		"no instance":    {func(d *Device) WQE { return WQE{3: 0xA000002E00000003, 4: d.Stats} }, state, absent("statistics instance", 3)},
		"queue askew": {func(d *Device) WQE { return WQE{0: 16, 3: 0x8000000300000009, 4: d.SQ + 128} }, param,
			cqp.Misaligned{What: "CQ", Align: 256}},
		"context askew": {func(d *Device) WQE { return WQE{2: d.QPC + 128, 3: createQP | 3<<48 | 9} }, param,
			cqp.Misaligned{What: "QP context", Align: 256}},
		"CQ over a ring": {func(d *Device) WQE { return WQE{0: 16, 3: 0x8000000300000009, 4: d.SQ, 5: d.G.Alloc(64)} }, 0,
			cqp.Overlap{New: "CQ 9 ring", Old: "QP 1 SQ", Size: 512}},
		"CEQ over an SD": {func(d *Device) WQE { return WQE{2: 512, 3: 0x8000001600000009, 4: d.SDs[1][1] + 4096} }, 0,
			cqp.Overlap{New: "CEQ 9 ring", Old: "SD 1 backing", Size: 4096}},
	} {
		g := New(t, hmc.Profile{})
		d := g.Boot(Kernel73, 1)
		got := g.Run(c.wqe(d))
		want := Completion{}
		if c.minor != 0 {
			want = Completion{Error: true, Major: 0xFFFF, Minor: c.minor}
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		ignore := []cmp.Option{
			cmpopts.IgnoreFields(cqp.ObjectExists{}, "Op", "Index"), cmpopts.IgnoreFields(cqp.ObjectAbsent{}, "Op", "Index"),
			cmpopts.IgnoreFields(cqp.ObjectReserved{}, "Op", "Index"), cmpopts.IgnoreFields(cqp.BadParent{}, "Index"),
			cmpopts.IgnoreFields(cqp.Misaligned{}, "Address", "Op", "Index"), cmpopts.IgnoreFields(cqp.Overlap{}, "Start"),
		}
		if diff := cmp.Diff([]any{c.why}, reasons(g), ignore...); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		for _, e := range g.Findings() {
			if f, ok := e.(cqp.OpFailed); ok && !f.Told {
				t.Errorf("%s: fails without a reason told: %v", name, f)
			}
		}
	}
}

// What a driver that leaves in order forgot is named.
func TestForgottenObjectsAreNamed(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	g.Must(WQE{1: 4096, 2: 5<<8 | 0x11, 3: regContiguous, 4: 0x100000})
	g.Must(WQE{1: 4096, 2: 9<<8 | 0x22, 3: regContiguous, 4: 0x100000})
	d.Teardown()
	var leak cqp.Leaked
	for _, e := range g.Findings() {
		if l, ok := e.(cqp.Leaked); ok {
			leak = l
		}
	}
	if diff := cmp.Diff(cqp.Leaked{MRs: 2, FirstSTags: []uint32{0x511, 0x922}, Orderly: true}, leak); diff != "" {
		t.Error(diff)
	}
}

// A driver that brings the HMC up in another order than it has to.
func TestWrongOrderOfTheHMC(t *testing.T) {
	const sd, allocated = 0x8000001F00000000, 0x8000002B00000000
	g := New(t, hmc.Profile{})
	g.CreateCQP(10)
	order := func(w WQE, before string) {
		t.Helper()
		g.Events = nil
		g.Fails(w, state)
		if e, ok := find[cqp.OutOfOrder](g); !ok || e.Before != before {
			t.Errorf("%v, %t, want before %s", e, ok, before)
		}
	}
	backing := g.Alloc(2 << 20)
	order(WQE{0: 0x80008000, 1: backing | 0x803, 3: sd}, "COMMIT_FPM_VAL")
	order(WQE{3: allocated}, "COMMIT_FPM_VAL")
	g.CommitFPM(208)
	for i := range uint64(3) {
		g.AddDirectSD(i)
	}
	ring := g.Alloc(4096)
	for _, w := range []WQE{
		{0: 16, 3: 0x8002000300000000, 4: ring, 5: g.Alloc(64)}, // CREATE_CQ
		{2: g.Alloc(256), 3: 0x900C800000000001},                // CREATE_QP
		{1: 4096, 2: 5<<8 | 0x11, 3: regContiguous},
		{1: 4096, 2: 5 << 8, 3: allocMR},
		{2: 1, 3: 0x80000C0F00000001}, // MANAGE_ARP
		{3: 0x8800001C00000001},       // CREATE_AH
	} {
		order(w, "SHMC_PAGES_ALLOCATED")
	}
	g.Events = nil
	g.Must(WQE{3: allocated})
	g.Must(WQE{1: 4096, 2: 5 << 8, 3: allocMR})
	if f := g.Findings(); len(f) != 0 {
		t.Errorf("findings of the right order: %v", f)
	}
}
