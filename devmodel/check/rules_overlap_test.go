// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"

// secondCQ makes CQ 9, its ring some bytes behind the begin of the GSI QP's CQ's
// or in memory of its own.
func secondCQ(b *bench, own bool) {
	d := b.boot()
	ring, shadow := d.GSI.Ring+256, d.G.Alloc(64)
	if own {
		ring = d.G.Alloc(4096)
	}
	d.G.Run(rdmatest.WQE{0: 16, 2: 8, 3: opCreateCQ | 9, 4: ring, 5: shadow})
}

var overlapScenarios = map[string]scenario{
	"memory-overlap-app": {
		trigger: func(b *bench) { secondCQ(b, false) },
		near:    func(b *bench) { secondCQ(b, true) },
	},
}
