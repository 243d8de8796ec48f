// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// FuzzCQPWQE runs arbitrary control WQEs, 64 bytes each, on a booted device:
// whatever they say, each moves the tail by one, what exists stays within
// what the function was offered, and a reset leaves nothing.
func FuzzCQPWQE(f *testing.F) {
	f.Fuzz(func(t *testing.T, wqes []byte) {
		const most = 16
		g := New(t, hmc.Profile{})
		g.Boot(Kernel73, 2)
		for n := 0; n < most && len(wqes) >= 64; n++ {
			var q WQE
			for i := range q {
				q[i] = Word(wqes, 8*i)
			}
			wqes = wqes[64:]
			want := (g.Put(q) + 1) % 2048
			g.Ring()
			if tail := g.Read("PFPE_CQPTAIL"); tail&0x7FF != want {
				t.Fatalf("PFPE_CQPTAIL %#x after %#x, want tail %d", tail, q, want)
			}
			g.Write("PFPE_CQARM", uint32(q[3]))
			g.Write("PFPE_CQACK", uint32(q[3]))
			g.Write("PFPE_AEQALLOC", uint32(q[2]))
			g.Write("PFPE_WQEALLOC", uint32(q[3]))
			g.Write("PFHMC_PDINV", uint32(q[0]))
		}
		s := g.Engine.Snapshot()
		if len(s.SDs) > 64 || len(s.CEQs) > 64 || len(s.ARPs) > 512 || len(s.WorkNodes) > 1024 {
			t.Errorf("more than the function has: %d SDs, %d CEQs, %d ARP entries, %d nodes", len(s.SDs), len(s.CEQs), len(s.ARPs), len(s.WorkNodes))
		}
		for _, q := range s.QPs {
			if q.ID == 0 || q.ID >= 1024 {
				t.Errorf("QP %d", q.ID)
			}
		}
		g.Engine.Reset(reg.PFR)
		if diff := cmp.Diff(rdma.New(rdma.Config{}).Snapshot(), g.Engine.Snapshot()); diff != "" {
			t.Errorf("left after a reset:\n%s", diff)
		}
	})
}
