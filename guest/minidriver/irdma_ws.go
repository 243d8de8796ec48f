// SPDX-License-Identifier: Apache-2.0

package minidriver

// Work scheduler nodes (ws.c, ctrl.c:irdma_sc_manage_ws_node).
const (
	wsAdd    = 0
	wsModify = 1
	wsDelete = 2

	wsRoot = 0
	wsVSI  = 1
	wsLeaf = 2

	wsWeightedRR = 1
)

// wsTree is the tree of the one traffic class: root, VSI, leaf.
type wsTree struct {
	users    int // QPs on the leaf
	qsHandle uint16
	qset     *rdmaQset
}

func (r *IRDMA) wsNode(op, id, parent uint64, leaf, enable bool) (Completion, error) {
	w := WQE{4: uint64(r.ICE.VSI())<<48 | 1<<32, 3: id | parent<<16 | op<<52 | wsWeightedRR<<59}
	if leaf {
		w[3] |= 1 << 61
	}
	if enable {
		w[3] |= 1 << 62
	}
	return r.Exec(IRDMA_CQP_OP_WORK_SCHED_NODE, w)
}

// useNodes puts a QP on the leaf, which it makes for the first one
// (ws.c:irdma_ws_add).
func (r *IRDMA) useNodes(q *QP) error {
	if r.ws == nil {
		if err := r.addNodes(); err != nil {
			return err
		}
	}
	r.ws.users++
	q.qsHandle = r.ws.qsHandle
	return nil
}

func (r *IRDMA) addNodes() error {
	if _, err := r.wsNode(wsAdd, wsRoot, wsRoot, false, true); err != nil {
		return err
	}
	if _, err := r.wsNode(wsAdd, wsVSI, wsRoot, false, true); err != nil {
		return err
	}
	c, err := r.wsNode(wsAdd, wsLeaf, wsVSI, true, false)
	if err != nil {
		return err
	}
	t := &wsTree{qsHandle: uint16(c.RetVal)}
	if c.RetVal >= 1024 {
		return broken("QS handle %#x does not fit the QP context", c.RetVal)
	}
	if t.qset, err = r.ICE.addQset(t.qsHandle); err != nil {
		return err
	}
	if _, err := r.wsNode(wsModify, wsLeaf, wsVSI, true, true); err != nil {
		return err
	}
	r.ws = t
	return nil
}

// leaveNodes takes a QP off the leaf and removes the tree behind the last
// (ws.c:irdma_ws_remove).
func (r *IRDMA) leaveNodes() error {
	if r.ws.users--; r.ws.users > 0 {
		return nil
	}
	t := r.ws
	r.ws = nil
	if _, err := r.wsNode(wsDelete, wsLeaf, wsVSI, true, true); err != nil {
		return err
	}
	if err := r.ICE.dropQset(t.qset); err != nil {
		return err
	}
	if _, err := r.wsNode(wsDelete, wsVSI, wsRoot, false, true); err != nil {
		return err
	}
	_, err := r.wsNode(wsDelete, wsRoot, wsRoot, false, true)
	return err
}
