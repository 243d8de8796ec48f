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
