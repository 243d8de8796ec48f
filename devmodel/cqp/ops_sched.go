// SPDX-License-Identifier: Apache-2.0

package cqp

import "fmt"

// Work scheduler nodes form a tree: root (node 0), one node per VSI, one
// leaf per traffic class. A leaf has a handle by which QP contexts and the
// LAN scheduler know it (ws.c).

const (
	rootNode   = 0
	maxNodes   = 1024
	maxHandles = 1024 // QSHANDLE has ten bits
)

// workNode is one node of the tree.
type workNode struct {
	id, parent uint16
	vsi        uint16
	weight     uint8
	tc         uint8
	priority   uint8 // PRIOTYPE
	leaf       bool
	enabled    bool
	handle     uint16 // of a leaf
}

// NODEOP values (type.h:enum irdma_ws_node_op).
const (
	nodeAdd    = 0
	nodeModify = 1
	nodeDelete = 2
)

// workNode executes WORK_SCHED_NODE. Adding a leaf answers with its handle.
func (c *CQP) workNode(w *wqe) (result, error) {
	n := workNode{
		id: uint16(w.bits(3, 13, 0)), parent: uint16(w.bits(3, 29, 16)),
		vsi: uint16(w.bits(4, 63, 48)), weight: uint8(w.bits(4, 38, 32)),
		tc: uint8(w.bits(3, 58, 56)), priority: uint8(w.bits(3, 60, 59)),
		leaf: w.flag(3, 61), enabled: w.flag(3, 62),
	}
	if n.id >= maxNodes {
		return result{}, fmt.Errorf("work scheduler node %d: %w", n.id, errParameter)
	}
	old := c.tables.nodes[n.id]
	op := w.bits(3, 55, 52)
	if op != nodeAdd && old == nil {
		return result{}, c.absent(w, "work scheduler node", uint32(n.id))
	}
	switch op {
	case nodeAdd:
		if old != nil {
			return result{}, c.exists(w, "work scheduler node", uint32(n.id))
		}
		return c.addNode(w, &n)
	case nodeModify:
		if n.leaf != old.leaf {
			return result{}, fmt.Errorf("work scheduler node %d cannot change its type: %w", n.id, errParameter)
		}
		old.weight, old.tc, old.priority, old.enabled = n.weight, n.tc, n.priority, n.enabled
		return result{value: uint32(old.handle)}, nil
	case nodeDelete:
		for _, child := range c.tables.nodes {
			if child.parent == n.id && child.id != n.id {
				c.tell(NodeInUse{Node: n.id, Child: child.id})
				return result{}, fmt.Errorf("work scheduler node %d has node %d below it: %w", n.id, child.id, errState)
			}
		}
		if old.leaf {
			if id, ok := c.qps.UserOfHandle(old.handle); ok {
				c.emit(NodeInUse{Node: n.id, Handle: old.handle, QP: id})
			}
		}
		delete(c.tables.nodes, n.id)
		return result{}, nil
	}
	return result{}, fmt.Errorf("NODEOP %d: %w", op, errParameter)
}

func (c *CQP) addNode(w *wqe, n *workNode) (result, error) {
	if n.id == rootNode {
		if n.leaf {
			return result{}, fmt.Errorf("the root of the work scheduler as a leaf: %w", errParameter)
		}
		n.parent = rootNode
	} else if p := c.tables.nodes[n.parent]; p == nil || p.leaf {
		c.tell(BadParent{Node: n.id, Parent: n.parent, Leaf: p != nil, Index: w.index})
		return result{}, fmt.Errorf("work scheduler node %d below %d, which is no inner node: %w", n.id, n.parent, errState)
	}
	if n.leaf {
		h, ok := c.freeHandle()
		if !ok {
			return result{}, fmt.Errorf("all QS handles are taken: %w", errState)
		}
		n.handle = h
	}
	c.tables.nodes[n.id] = n
	return result{value: uint32(n.handle)}, nil
}

// freeHandle finds the lowest handle no leaf has. Handle 0 is left out: it
// is what a context has that never got one.
func (c *CQP) freeHandle() (uint16, bool) {
	var used [maxHandles]bool
	for _, n := range c.tables.nodes {
		if n.leaf {
			used[n.handle] = true
		}
	}
	for h := uint16(1); h < maxHandles; h++ {
		if !used[h] {
			return h, true
		}
	}
	return 0, false
}

// checkHandle reports a QS handle that is not of an enabled leaf.
func (c *CQP) checkHandle(w *wqe, object string, id uint32, handle uint16) {
	for _, n := range c.tables.nodes {
		if n.leaf && n.handle == handle {
			if !n.enabled {
				c.emit(BadHandle{Object: object, ID: id, Handle: handle, Disabled: true, Index: w.index})
			}
			return
		}
	}
	c.emit(BadHandle{Object: object, ID: id, Handle: handle, Index: w.index})
}
