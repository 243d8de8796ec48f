// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/roce"
)

const nop = 0x24 << 32

func TestOpcodeTable(t *testing.T) {
	last := -1
	for _, o := range cqp.Opcodes() {
		if int(o.Op) <= last || o.Op > 0x3F {
			t.Errorf("%s: opcode %#02x after %#02x", o.Name, o.Op, last)
		}
		last = int(o.Op)
		if !strings.HasPrefix(o.Name, "IRDMA_CQP_OP_") || o.Source == "" {
			t.Errorf("row %+v", o)
		}
	}
}

// Commands before and after the CCQ, over several passes of both rings,
// whose lengths differ.
func TestRingsWrap(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(10) // 2048
	g.HMC(208)
	for range 2100 {
		g.Must(WQE{3: nop})
	}
	g.CreateCCQ() // 2050
	for range 3*2050 + 7 {
		g.Must(WQE{3: nop})
	}
	if f := g.Findings(); len(f) != 0 {
		t.Errorf("findings: %v", f)
	}
}

// One doorbell for many WQEs: a completion for each, in order.
func TestDoorbellCoversSeveral(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(4)
	g.HMC(208)
	g.CreateCCQ()
	first := g.Put(WQE{3: nop})
	g.Put(WQE{3: 0x0D << 32}) // not built: fails in the middle
	g.Put(WQE{3: nop})
	g.Ring()
	for i := range uint32(3) {
		e, ok := g.CCQ.Poll()
		if !ok || uint32(e[3]>>32&0x7FFF) != first+i || (e[3]>>55&1 == 1) != (i == 1) {
			t.Fatalf("completion %d: %#x", i, e)
		}
	}
	if v := g.Read("PFPE_CQPTAIL"); v != first+3 {
		t.Errorf("PFPE_CQPTAIL %#x: the last one did not fail", v)
	}
	g.Ring() // nothing new
	if _, ok := g.CCQ.Poll(); ok {
		t.Error("completion without a WQE")
	}
}

func TestBadPolarityStops(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1) // 4
	g.Must(WQE{3: nop})
	g.Write("PFPE_CQPDB", 3) // two WQEs never written
	if v := g.Read("PFPE_CQPTAIL"); v != 1 {
		t.Errorf("PFPE_CQPTAIL %#x", v)
	}
	want := []any{cqp.BadPolarity{Index: 1}}
	if diff := cmp.Diff(want, g.Findings()); diff != "" {
		t.Error(diff)
	}
	g.Put(WQE{3: nop})
	g.Put(WQE{3: nop})
	g.Ring()
	if v := g.Read("PFPE_CQPTAIL"); v != 3 {
		t.Errorf("PFPE_CQPTAIL %#x after the WQEs came", v)
	}
	g.Must(WQE{3: nop}) // index 3 -> 0
	g.Must(WQE{3: nop}) // second pass
}

func TestErrorBitEndsWithTheNextPost(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1)
	g.Fails(WQE{3: 0x06 << 32}, 0x8001)
	if v := g.Read("PFPE_CQPTAIL"); v != 1<<31|1 {
		t.Errorf("PFPE_CQPTAIL %#x", v)
	}
	if v := g.Read("PFPE_CQPERRCODES"); v != 0xFFFF8001 {
		t.Errorf("PFPE_CQPERRCODES %#x", v)
	}
	g.Write("PFPE_CQPDB", 2) // the WQE is not there yet
	if v := g.Read("PFPE_CQPTAIL"); v != 1 {
		t.Errorf("PFPE_CQPTAIL %#x after a doorbell", v)
	}
	g.Must(WQE{3: nop})
	if v := g.Read("PFPE_CQPTAIL"); v != 2 {
		t.Errorf("PFPE_CQPTAIL %#x", v)
	}
}

func TestNotBuiltAndUnknown(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.Boot(Kernel73, 1)
	for op := range uint64(64) {
		var row *cqp.Opcode
		for _, o := range cqp.Opcodes() {
			if uint64(o.Op) == op {
				row = &o
			}
		}
		if row != nil && row.Built {
			continue
		}
		g.Events = nil
		index := g.Put(WQE{3: op << 32})
		g.Ring()
		e, _ := g.CCQ.Poll()
		if e[3]&0xFFFFFFFF != 0xFFFF8001 || e[3]>>55&1 != 1 {
			t.Errorf("opcode %#02x: CQE %#x", op, e)
		}
		var want any = cqp.UnknownOpcode{Opcode: uint8(op), Index: index}
		if row != nil {
			want = cqp.NotBuilt{Opcode: row.Op, Name: row.Name, Index: index}
		}
		if !cmp.Equal(g.Events[0], want) {
			t.Errorf("opcode %#02x: event %v", op, g.Events[0])
		}
	}
}

func TestHostContext(t *testing.T) {
	good := [8]uint64{10<<8 | 2<<3, Base + 0x10000, 1, CQPContext, 1 << 16, 0, 0, 0}
	tests := map[string]struct {
		word int
		v    uint64
	}{
		"ring too small":  {0, 2 << 3},
		"ring too large":  {0, 11<<8 | 2<<3},
		"ring misaligned": {1, Base + 0x10100},
		"generation 1":    {4, 0},
		"generation 3":    {4, 2 << 16},
	}
	create := func(g *Guest, ctx uint64) {
		g.Write("PFPE_CCQPHIGH", uint32(ctx>>32))
		g.Write("PFPE_CCQPLOW", uint32(ctx))
	}
	for name, tt := range tests {
		g := New(t, hmc.Profile{})
		w := good
		w[tt.word] = tt.v
		g.Store(Base, w[:]...)
		create(g, Base)
		if s := g.Read("PFPE_CCQPSTATUS"); s != 1<<31 {
			t.Errorf("%s: PFPE_CCQPSTATUS %#x", name, s)
		}
		if v := g.Read("PFPE_CQPERRCODES"); v != 0xFFFF8001 {
			t.Errorf("%s: PFPE_CQPERRCODES %#x", name, v)
		}
		if g.Engine.Snapshot().CQP.Live {
			t.Errorf("%s: live", name)
		}
	}
	g := New(t, hmc.Profile{})
	create(g, 0x1000) // no memory there
	if s := g.Read("PFPE_CCQPSTATUS"); s != 1<<31 {
		t.Errorf("unreadable: PFPE_CCQPSTATUS %#x", s)
	}
	g.Store(Base, good[:]...)
	create(g, Base)
	want := cqp.Status{Live: true, Context: Base, Ring: Base + 0x10000, Size: 2048, Polarity: 1, Protocol: 2}
	if diff := cmp.Diff(want, g.Engine.Snapshot().CQP); diff != "" {
		t.Error(diff)
	}
	g.Events = nil
	create(g, Base) // again, without an end
	if !cmp.Equal(g.Events[0], any(cqp.CreatedTwice{Old: Base, New: Base})) {
		t.Errorf("events %v", g.Events)
	}
	if s := g.Read("PFPE_CCQPSTATUS"); s != 1 {
		t.Errorf("PFPE_CCQPSTATUS %#x", s)
	}
}

func TestDoorbellWithoutCQP(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.Write("PFPE_CQPDB", 0) // as the driver does at init
	g.Write("PFPE_CQPDB", 7)
	g.CreateCQP(1)
	g.Write("PFPE_CQPDB", 4)
	want := []any{cqp.NotLive{Doorbell: 7}, cqp.BadDoorbell{Head: 4, Size: 4}}
	if diff := cmp.Diff(want, g.Findings()); diff != "" {
		t.Error(diff)
	}
}

func TestFeatures(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1)
	b := g.Alloc(512)
	g.Fill(b, 512, 0xA5)
	g.Must(WQE{3: 0x8000001200000110, 4: b})
	if w := g.Load(b); w>>48 != 0 || w>>32&0xFFFF != 2 || w>>16&0xFFFF != 1 || w&0xFFFF != 65 {
		t.Errorf("feature 0: %#x", w)
	}
	if w := g.Load(b + 8); w>>48 != 1 {
		t.Errorf("feature 1: %#x", w)
	}
	if !g.Poisoned(b+16, 496) {
		t.Error("more written than two features")
	}
	g.Fill(b, 16, 0xA5)
	g.Must(WQE{3: 0x8000001200000008, 4: b})
	if !g.Poisoned(b+8, 8) || g.Load(b)>>32&0xFFFF != 2 {
		t.Error("buffer of one feature")
	}
	g.Fails(WQE{3: 0x8000001200000004, 4: b}, 0x8001)
}

// Objects out of range, absent and twice, for every kind of them.
func TestObjectErrors(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel61, 2)
	const (
		param = 0x8001
		state = 0x8002
	)
	cq := func(id uint64) WQE {
		return WQE{0: 64, 3: 0x8003400300000000 + id, 4: d.GSI.Ring, 5: d.GSI.Shadow}
	}
	ah := func(op, i uint64) WQE { return WQE{3: 0x8800000000000000 | op<<32 | i} }
	ws := func(op, id, parent, bits uint64) WQE {
		return WQE{3: 0x8000002C00000000 | op<<52 | parent<<16 | id | bits}
	}
	mc := g.Alloc(64)
	group := func(op, i uint64) WQE { return WQE{3: 0x9000000000000000 | op<<32 | i, 4: mc} }
	const leaf = 1 << 61
	steps := []struct {
		name  string
		wqe   WQE
		minor uint16 // 0: succeeds
	}{
		{"CQ exists", cq(GSICQ), state},
		{"CQ out of range", cq(2048), param},
		{"CQ on absent CEQ", WQE{0: 64, 3: 0x8003400300000000 + 9 | 2<<22, 4: d.GSI.Ring, 5: d.GSI.Shadow}, state},
		{"CQ on CEQ out of range", WQE{0: 64, 3: 0x8003400300000000 + 9 | 64<<22, 4: d.GSI.Ring, 5: d.GSI.Shadow}, param},
		{"virtual CQ of level 2", WQE{0: 64, 3: 0x8003F00300000000 + 9, 5: d.GSI.Shadow}, param},
		{"destroy absent CQ", WQE{3: 0x8003000500000000 + 9}, state},
		{"modify without resize", WQE{0: 64, 3: 0x8000000400000000 + GSICQ, 4: d.GSI.Ring}, param},
		{"CEQ exists", WQE{2: 16, 3: 0x8000001600000001, 4: d.CEQ[1]}, state},
		{"CEQ out of range", WQE{2: 16, 3: 0x8000001600000040, 4: d.CEQ[1]}, param},
		{"CEQ empty", WQE{3: 0x8000001600000002, 4: d.CEQ[1]}, param},
		{"destroy absent CEQ", WQE{3: 0x8000001800000009}, state},
		{"AEQ exists", WQE{2: 16, 3: 0x8000001900000000, 4: d.AEQ}, state},

		{"QP exists", WQE{2: d.QPC, 3: 0x900C800000000000 + GSIQP, 5: d.QPShadow}, state},
		{"QP out of range", WQE{2: d.QPC, 3: 0x900C800000000000 + 1024, 5: d.QPShadow}, param},
		{"QP context misaligned", WQE{2: d.QPC + 64, 3: 0x900C800000000000 + 3, 5: d.QPShadow}, param},
		{"QP context unreadable", WQE{2: 0x1000, 3: 0x900C800000000000 + 3, 5: d.QPShadow}, param},
		{"modify absent QP", WQE{2: d.QPC, 3: 0xE003000100000000 + 3}, state},
		{"destroy absent QP", WQE{2: d.QPC, 3: 0x8083000200000000 + 3}, state},
		{"flush absent QP", WQE{3: 0xF000002200000000 + 3}, state},
		{"flush of no queue", WQE{3: 0x8000002200000000 + GSIQP}, param},
		{"suspend absent QP", WQE{3: 0x8000002900000003}, state},
		{"RTR from RTS", WQE{2: d.QPC, 3: 0xC804800100000000 + GSIQP}, state},

		{"ARP 0", WQE{3: 0x80000C0F00000000}, param},
		{"ARP out of range", WQE{3: 0x80000C0F00000200}, param},
		{"ARP query", WQE{3: 0x8000100F00000001}, param},
		{"delete absent ARP", WQE{3: 0x8000000F00000005}, state},
		{"ARP add", WQE{2: 1, 3: 0x80000C0F00000005}, 0},
		{"ARP delete", WQE{3: 0x8000000F00000005}, 0},

		{"AH 0", ah(0x1C, 0), param},
		{"AH out of range", ah(0x1C, 4096), param},
		{"AH", ah(0x1C, 1), 0},
		{"AH exists", ah(0x1C, 1), state},
		{"AH modify", ah(0x1D, 1), 0},
		{"AH destroy", ah(0x1E, 1), 0},
		{"AH destroy twice", ah(0x1E, 1), state},
		{"AH modify absent", ah(0x1D, 1), state},

		{"group", group(0x26, 3), 0},
		{"group exists", group(0x26, 3), state},
		{"group modify", group(0x27, 3), 0},
		{"group destroy", group(0x28, 3), 0},
		{"group destroy twice", group(0x28, 3), state},
		{"group out of range", group(0x26, 512), param},

		{"root exists", ws(0, 0, 0, 0), state},
		{"node with children", ws(2, 1, 0, 0), state},
		{"below a leaf", ws(0, 5, 2, leaf), state},
		{"below nothing", ws(0, 5, 77, leaf), state},
		{"number too large", ws(0, 1024, 1, leaf), param},
		{"modify absent node", ws(1, 5, 1, leaf), state},
		{"delete absent node", ws(2, 5, 1, leaf), state},
		{"no such NODEOP", ws(3, 2, 1, leaf), param},

		{"gather without instance", WQE{3: 0x8000002E00000005 | 1<<61, 4: d.Stats}, state},
		{"free absent instance", WQE{3: 0x8000002D00000005}, state},
		{"local MAC not allocated", WQE{3: 0x8000000E00000000, 4: 1}, state},
		{"local MAC", WQE{3: 0x8000001400000000}, 0},
		{"local MAC add", WQE{3: 0x8000000E00000000, 4: 1}, 0},
		{"local MAC free", WQE{3: 0x8000000E00000000 | 1<<62}, 0},
		{"local MAC free twice", WQE{3: 0x8000000E00000000 | 1<<62}, state},
	}
	before := g.Engine.Snapshot()
	for _, s := range steps {
		c := g.Run(s.wqe)
		want := Completion{}
		if s.minor != 0 {
			want = Completion{Error: true, Major: 0xFFFF, Minor: s.minor}
		}
		if c != want {
			t.Errorf("%s: %+v, want %+v", s.name, c, want)
		}
	}
	after := g.Engine.Snapshot()
	after.CQP, after.CQs = before.CQP, before.CQs
	if diff := cmp.Diff(before, after, cmpopts.IgnoreUnexported(roce.Stats{})); diff != "" {
		t.Errorf("refused commands changed something:\n%s", diff)
	}
}

func TestQSHandlesAreReused(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	add := func(id uint64) uint32 {
		return g.Must(WQE{3: 0xA800002C00010000 | id, 4: VSI<<48 | 1<<32}).Value
	}
	a, b := add(3), add(4)
	if a == b || a == d.QSHandle || b == d.QSHandle {
		t.Errorf("handles %d %d %d", d.QSHandle, a, b)
	}
	g.Must(WQE{3: 0xA820002C00010003})
	if c := add(5); c != a {
		t.Errorf("handle %d, want the freed %d", c, a)
	}
}

func TestStatistics(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	g.Fill(d.Stats, 2048, 0xA5)
	g.Must(WQE{3: 0x8000002E00000000, 4: d.Stats})
	if g.Load(d.Stats) != 0 || g.Load(d.Stats+1016) != 0 || !g.Poisoned(d.Stats+1024, 1024) {
		t.Error("GATHER_STATS does not write exactly 1024 bytes")
	}
	for i := range uint32(128) {
		if v := g.Must(WQE{3: 0x8000002D00000000 | 1<<62}).Value; v != i {
			t.Fatalf("instance %d, want %d", v, i)
		}
	}
	g.Fails(WQE{3: 0x8000002D00000000 | 1<<62}, 0x8002)
	g.Must(WQE{3: 0x8000002D00000011})
	if v := g.Must(WQE{3: 0x8000002D00000000 | 1<<62}).Value; v != 0x11 {
		t.Errorf("instance %d, want the freed one", v)
	}
}

func TestTablesAsSnapshots(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.Boot(Kernel73, 1)
	g.Must(WQE{
		0: 0x525400123456 << 16, 1: 3<<48 | 0x20<<32 | 0x2064, 2: 7<<48 | 64<<32 | 1<<20 | 0xABCDE,
		3: 0x9800001C00000000 + 9, 4: 0xC0000201, 6: 0xC0000202,
	})
	want := []cqp.AH{{Index: 9, PD: 0x10003, SourceMAC: [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56},
		Dest: [16]byte{12: 192, 14: 2, 15: 1}, Source: [16]byte{12: 192, 14: 2, 15: 2}, IPv4: true, InsertVLAN: true,
		VLANTag: 0x2064, TrafficClass: 0x20, HopLimit: 64, FlowLabel: 0xABCDE, ARPIndex: 7}}
	if diff := cmp.Diff(want, g.Engine.Snapshot().AHs); diff != "" {
		t.Error(diff)
	}
	mc := g.Alloc(64)
	g.Store(mc, 4791<<32|1<<31|GSIQP, 4791<<32|5) // the second is not valid
	g.Must(WQE{0: 0x01005E000001, 2: 5 << 32, 3: 0x9800002600000004, 4: mc, 6: 0xE0000001})
	groups := []cqp.Multicast{{Index: 4, MAC: [6]byte{1, 0, 0x5E, 0, 0, 1}, IP: [16]byte{12: 224, 15: 1}, IPv4: true, VLAN: 5,
		Members: []cqp.Member{{QP: GSIQP, DestPort: 4791}}}}
	if diff := cmp.Diff(groups, g.Engine.Snapshot().Multicast); diff != "" {
		t.Error(diff)
	}
}

func TestViolationsOfLifetime(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.Boot(Kernel73, 2)
	g.Must(WQE{2: 0x525400FFFFFF, 3: 0x80000C0F00000000 + ARPIndex})
	g.Must(WQE{1: 4096, 2: 5<<8 | 0x11, 3: 0x8803080A00000000, 4: 0x100000}) // REG_MR
	g.Must(WQE{0: 0x80008000, 1: 0x802, 3: 0x8000001F00000000})
	g.Must(WQE{3: 0x8003000500000000 + GSICQ})
	g.Must(WQE{0: 0x525400123456 << 16, 2: ARPIndex << 48, 3: 0x8800001C00000000 + 9})
	g.Must(WQE{0: 0x80008001, 1: 0x802, 3: 0x8000001F00000000})
	want := []any{
		cqp.ARPReplaced{Index: ARPIndex, Old: [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}, New: [6]byte{0x52, 0x54, 0, 0xFF, 0xFF, 0xFF}},
		cqp.SDInUse{SD: 0, Object: "QP", ID: GSIQP}, cqp.SDInUse{SD: 0, Object: "CQ", ID: 0}, cqp.SDInUse{SD: 0, Object: "CQ", ID: GSICQ},
		cqp.SDInUse{SD: 0, Object: "STag", ID: 0x511},
		cqp.CQInUse{CQ: GSICQ, QP: GSIQP},
		cqp.SDInUse{SD: 1, Object: "AH", ID: 9},
	}
	if diff := cmp.Diff(want, g.Findings()); diff != "" {
		t.Error(diff)
	}
	if s := (cqp.SDInUse{SD: 2, Object: "STag", ID: 0x511}).String(); s != "UPDATE_PE_SDS clears SD 2 under the live STag 0x00000511" {
		t.Error(s)
	}
}

func TestGenerateAE(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	if c := g.Must(WQE{1: 5<<16 | 0x050A, 3: 0x8000002200000000 | 1<<59 | GSIQP}); c.Minor != 0 {
		t.Errorf("minor %d", c.Minor)
	}
	if q0, q1 := g.Load(d.AEQ), g.Load(d.AEQ+8); q0 != GSIQPCtx || q1 != 1<<63|2<<54|5<<50|0x050A<<34|GSIQP {
		t.Errorf("AEQE %#x %#x", q0, q1)
	}
	if g.AEQs != 1 {
		t.Errorf("%d AEQ causes", g.AEQs)
	}
}

func TestFailureNamesItsReason(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.Boot(Kernel73, 1)
	g.Fails(WQE{3: 0x8083000200000003}, 0x8002)
	for _, e := range g.Findings() {
		if f, ok := e.(cqp.OpFailed); ok {
			if f.Op.Name != "IRDMA_CQP_OP_DESTROY_QP" || f.Op.Minor != 0x8002 || errors.Unwrap(f.Err) == nil || !strings.Contains(f.String(), "QP 3 does not exist") {
				t.Errorf("%v", f)
			}
			return
		}
	}
	t.Error("no OpFailed")
}
