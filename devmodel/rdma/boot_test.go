// SPDX-License-Identifier: Apache-2.0

package rdma_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

func TestBootAndTeardown(t *testing.T) {
	for name, k := range map[string]Kernel{"6.1": Kernel61, "7.3": Kernel73} {
		t.Run(name, func(t *testing.T) {
			g := New(t, hmc.Profile{})
			for range 3 { // a driver comes and goes
				d := g.Boot(k, 4)
				d.PostReceives(GSIRecvs - 1)
				checkBooted(t, d)
				for _, p := range d.Teardown() {
					if !g.Poisoned(p[0], p[1]) {
						t.Errorf("memory at %#x written after its object was destroyed", p[0])
					}
				}
				if diff := cmp.Diff(empty(), g.Engine.Snapshot()); diff != "" {
					t.Errorf("something is left:\n%s", diff)
				}
				g = next(t, g)
			}
		})
	}
}

// next gives the same device fresh memory addresses to save test memory.
func next(t *testing.T, g *Guest) *Guest {
	if f := g.Findings(); len(f) != 0 {
		t.Errorf("findings of a correct driver: %v", f)
	}
	g.Rewind()
	return g
}

func empty() rdma.Snapshot {
	return rdma.New(rdma.Config{}).Snapshot()
}

func checkBooted(t *testing.T, d *Device) {
	t.Helper()
	g := d.G
	s := g.Engine.Snapshot()
	if len(s.SDs) != 3 || s.SDs[2].Type != "direct" || !s.SDs[2].Valid || s.SDs[2].Address != d.SDs[2][1] {
		t.Errorf("SDs: %+v", s.SDs)
	}
	if len(s.CQs) != 2 || len(s.CEQs) != 4 || s.AEQ == nil || s.AEQ.Size != AEQEntries {
		t.Errorf("queues: %d CQs, %d CEQs, AEQ %v", len(s.CQs), len(s.CEQs), s.AEQ)
	}
	if len(s.QPs) != 1 {
		t.Fatalf("%d QPs", len(s.QPs))
	}
	q := s.QPs[0]
	if q.ID != 1 || q.State != "RTS" || q.Type != "UD" || q.SendCQ != GSICQ || q.QKey != 0x80010000 || q.PD != 3 ||
		q.PKey != 0xFFFF || q.PathMTU != 1024 || !q.Privileged || uint32(q.QSHandle) != d.QSHandle {
		t.Errorf("GSI QP: %+v", q)
	}
	if d.QSHandle == 0 {
		t.Error("leaf node got no QS handle")
	}
	wantNodes := []cqp.WorkNode{
		{ID: 0, VSI: VSI, Weight: 1, Enabled: true},
		{ID: 1, VSI: VSI, Weight: 1, Enabled: true},
		{ID: 2, Parent: 1, VSI: VSI, Weight: 1, Leaf: true, Enabled: true, QSHandle: uint16(d.QSHandle)},
	}
	if diff := cmp.Diff(wantNodes, s.WorkNodes); diff != "" {
		t.Errorf("work scheduler:\n%s", diff)
	}
	if len(s.ARPs) != 1 || s.ARPs[0].MAC != [6]byte{0x52, 0x54, 0x00, 0x12, 0x34, 0x56} {
		t.Errorf("ARP: %+v", s.ARPs)
	}
	// The CCQ was armed when it was empty: CREATE_CEQ 1 was the event.
	if len(g.CEQs) != 1 || g.CEQs[0] != 0 {
		t.Errorf("CEQ causes %v, want one of CEQ 0", g.CEQs)
	}
	if v := g.Load(d.CEQ[0]); v != 1<<63 {
		t.Errorf("first CEQE %#x, want the CCQ's context 0 with the valid bit", v)
	}
}

func TestResetDropsAll(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 2)
	g.Engine.Reset(reg.PFR)
	g.Space.Reset(reg.PFR)
	if diff := cmp.Diff(empty(), g.Engine.Snapshot()); diff != "" {
		t.Errorf("PFR left something:\n%s", diff)
	}
	for _, r := range []string{"PFPE_CCQPSTATUS", "PFPE_CQPTAIL", "PFPE_CQPDB", "GLPE_CRITERR", "PFHMC_ERRORINFO"} {
		if v := g.Read(r); v != 0 {
			t.Errorf("%s = %#x after PFR", r, v)
		}
	}
	if v := g.Read("GLPE_CPUSTATUS0"); v != 0x80 {
		t.Errorf("GLPE_CPUSTATUS0 = %#x after PFR", v)
	}
	before := g.Load(d.GSI.Ring + 24)
	g.Write("PFPE_CQARM", 0)
	g.Write("PFPE_WQEALLOC", GSIQP)
	if g.Load(d.GSI.Ring+24) != before {
		t.Error("CQ written after PFR")
	}
	g.Rewind()
	g.Boot(Kernel73, 2)
}

// The flush of a removal: one CQE for the oldest receive, with the driver's
// codes, before the command completes; nothing for the empty send queue.
func TestFlushOfPostedReceives(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel61, 1)
	d.PostReceives(7)
	const flush = 0xF000002200000000 + GSIQP
	g.Must(WQE{2: d.QPC, 3: 0xE004000100000000 + GSIQP, 5: d.QPShadow})
	if c := g.Must(WQE{2: 0x0001_0001_0001_0001, 3: flush}); c.Minor != 2 {
		t.Errorf("minor %d, want 2: only the receive queue had WQEs", c.Minor)
	}
	e, ok := d.GSI.Poll()
	want := [4]uint64{0, GSIQPCtx, GSIQP << 32, 1<<63 | 1<<55 | 1<<16 | 1}
	if !ok || e != want {
		t.Errorf("flush CQE %#x, want %#x", e, want)
	}
	if e, ok := d.GSI.Poll(); ok {
		t.Errorf("second flush CQE %#x", e)
	}
	if c := g.Must(WQE{2: 0x0001_0001_0001_0001, 3: flush}); c.Minor != 0 {
		t.Errorf("minor %d for a flush of nothing", c.Minor)
	}
	// What is posted afterwards is found by the next flush.
	d.G.Store(d.RQ+7*32+24, 1<<63)
	if c := g.Must(WQE{2: 0x0001_0001_0001_0001, 3: flush}); c.Minor != 2 {
		t.Errorf("minor %d after a later receive", c.Minor)
	}
	if e, ok := d.GSI.Poll(); !ok || e[3]>>32&0x7FFF != 7 {
		t.Errorf("flush CQE %#x, want WQE 7", e)
	}
}

// What the driver has not ended ends inside Overtake, as steps of the data path
// may still be using it.
func TestLeakIsReported(t *testing.T) {
	var g *Guest
	var during []int // QPs before and after
	g = New(t, hmc.Profile{}, func(c *rdma.Config) {
		c.Overtake = func(end func()) {
			during = append(during, len(g.Engine.Snapshot().QPs))
			end()
			during = append(during, len(g.Engine.Snapshot().QPs))
		}
	})
	g.CreateCQP(10)
	g.DestroyCQP()
	if len(during) != 0 {
		t.Error("overtakes the data path with nothing alive")
	}
	g.Rewind()
	g.Boot(Kernel73, 2)
	g.DestroyCQP()
	if diff := cmp.Diff([]int{1, 0}, during); diff != "" {
		t.Errorf("QPs before and after:\n%s", diff)
	}
	want := cqp.Leaked{QPs: 1, CQs: 2, CEQs: 2, AEQs: 1, WorkNodes: 3, SDs: 3,
		FirstQPs: []uint32{GSIQP}, FirstCQs: []uint32{0, GSICQ}}
	if diff := cmp.Diff([]any{want}, g.Findings()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(empty(), g.Engine.Snapshot()); diff != "" {
		t.Errorf("outlived the control QP:\n%s", diff)
	}
}
