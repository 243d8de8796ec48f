// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// A doorbell for a whole ring does not keep the control lock to its end.
func TestALongRingIsExecutedInTurns(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(10)
	for range 2047 {
		g.Put(WQE{3: nop})
	}
	g.Lock.Lock()
	g.Space.Write32(0x500800, 2047)
	tail := g.Space.Read32(0x500880)
	g.Lock.Unlock()
	if tail == 0 || tail > 128 {
		t.Errorf("%d WQEs in the doorbell's own turn", tail)
	}
	g.Await()
}

// Nor do a few commands about regions that there is much to look at of.
func TestLongListsAreLookedAtInTurns(t *testing.T) {
	g, _ := stagGuest(t)
	const n, sd = 6, 4 // the segment with the PBLEs of 1 GiB
	first := uint32(0)
	for w, _ := g.Engine.Explain(hmc.PBLE, 0); w.SD < sd; w, _ = g.Engine.Explain(hmc.PBLE, first) {
		first++
	}
	g.AddDirectSD(sd)
	last := uint32(0)
	for i := range uint64(n) {
		last = g.Put(WQE{0: 0x7000_0000, 1: 1 << 30, 2: (i + 1) << 8, 3: regFlat, 6: uint64(first)})
	}
	g.Lock.Lock()
	g.Space.Write32(0x500800, last+1)
	done := len(g.Engine.Snapshot().MRs)
	g.Lock.Unlock()
	if done == 0 || done > 2 {
		t.Errorf("%d regions in the doorbell's own turn", done)
	}
	g.Await()
	if done = len(g.Snapshot().MRs); done != n {
		t.Errorf("%d regions", done)
	}
}
