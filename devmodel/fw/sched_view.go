// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"maps"
	"slices"
)

// SchedNode is a snapshot of one node of the Tx scheduler.
type SchedNode struct {
	TEID, Parent uint32 // Parent is 0xFFFFFFFF for the root
	Layer        int    // 0 root .. 8 leaves
	Type         uint8  // ICE_AQC_ELEM_TYPE_*: 1 root, 2 TC, 3 generic, 4 entry point, 5 leaf
	Suspended    bool
	// A leaf is LAN Tx queue number Queue or, if RDMA, queue set number Queue.
	RDMA  bool
	Queue uint16
}

// SchedNodes returns the tree in the order of the nodes' identifiers.
func (f *Firmware) SchedNodes() []SchedNode {
	all := make([]SchedNode, 0, len(f.sched.nodes))
	for _, teid := range slices.Sorted(maps.Keys(f.sched.nodes)) {
		n := f.sched.nodes[teid]
		parent := uint32(invalidTEID)
		if n.parent != nil {
			parent = n.parent.teid
		}
		all = append(all, SchedNode{teid, parent, n.layer, n.elem.kind(), n.elem.suspended(), n.queue.rdma, n.queue.id})
	}
	return all
}
