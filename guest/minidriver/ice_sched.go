// SPDX-License-Identifier: Apache-2.0

package minidriver

// Element types of the Tx scheduler (ice_adminq_cmd.h:ICE_AQC_ELEM_TYPE_*).
const (
	ICE_AQC_ELEM_TYPE_ROOT_PORT   = 1
	ICE_AQC_ELEM_TYPE_TC          = 2
	ICE_AQC_ELEM_TYPE_SE_GENERIC  = 3
	ICE_AQC_ELEM_TYPE_ENTRY_POINT = 4
	ICE_AQC_ELEM_TYPE_LEAF        = 5
)

const (
	schedElemSize   = 24
	schedMaxLayers  = 9
	schedInvalid    = 0xffffffff
	schedDefaultBW  = 4 // ICE_SCHED_DFLT_BW_WT
	schedValidParts = 1 | 2 | 4
)

// schedNode is an element of the tree as the driver remembers it.
type schedNode struct {
	teid     uint32
	kind     uint8
	layer    int
	parent   *schedNode
	children []*schedNode
}

// scheduler is the driver's copy of the Tx scheduler tree (ice_sched.c).
type scheduler struct {
	aq          *adminQueue
	layers      int
	maxChildren [schedMaxLayers]int
	entry       int // software entry point layer
	root, tc    *schedNode
	agg         *schedNode
}

func (s *scheduler) vsiLayer() int  { return s.layers - 4 }
func (s *scheduler) aggLayer() int  { return s.layers - 6 }
func (s *scheduler) qgrpLayer() int { return s.layers - 2 }

func (i *ICE) initScheduler() error {
	i.sched = scheduler{aq: &i.aq}
	s := &i.sched
	if err := s.queryResources(); err != nil {
		return err
	}
	i.F.Read32(GLGEN_CLKSTAT_SRC)
	return s.initPort(byte(i.lport))
}

// queryResources is ice_sched_query_res_alloc.
func (s *scheduler) queryResources() error {
	const propsSize, layerSize = 32, 32
	c := &Command{Op: ice_aqc_opc_query_sched_res, Buf: make([]byte, propsSize+schedMaxLayers*layerSize)}
	if err := s.aq.do(c); err != nil {
		return err
	}
	s.layers = int(le.Uint16(c.Buf[2:]))
	if s.layers != schedMaxLayers {
		return c.wrong("%d logical layers", s.layers)
	}
	for n := range s.layers - 1 {
		s.maxChildren[n] = int(le.Uint16(c.Buf[propsSize+(n+1)*layerSize+10:]))
		if s.maxChildren[n] == 0 {
			return c.wrong("layer %d: sibling group of 0", n+1)
		}
	}
	return nil
}

// initPort is ice_sched_init_port: it takes over the default tree and removes
// what is below the traffic class.
func (s *scheduler) initPort(port byte) error {
	c := &Command{Op: ice_aqc_opc_get_dflt_topo, Buf: make([]byte, aqBufSize)}
	c.P[0] = port
	if err := s.aq.do(c); err != nil {
		return err
	}
	const header, branchSize = 8, 8 + schedMaxLayers*schedElemSize
	branches, n := int(c.P[1]), int(le.Uint16(c.Buf[4:]))
	if branches < 1 || branches > 8 || n < 1 || n > schedMaxLayers {
		return c.wrong("%d branches, %d elements", branches, n)
	}
	if c.Len < (branches-1)*branchSize+header+n*schedElemSize {
		return c.wrong("%d branches in %d bytes", branches, c.Len)
	}
	elem := c.Buf[header:]
	s.root = &schedNode{teid: le.Uint32(elem[4:]), kind: elem[8]}
	if s.root.kind != ICE_AQC_ELEM_TYPE_ROOT_PORT {
		return c.wrong("first element is of type %d", s.root.kind)
	}
	parent := s.root
	for layer := 1; layer < n; layer++ {
		elem = elem[schedElemSize:]
		if elem[8] == ICE_AQC_ELEM_TYPE_ENTRY_POINT {
			s.entry = layer
		}
		if up := le.Uint32(elem); up != parent.teid {
			return c.wrong("element of layer %d has parent %#x, not %#x", layer, up, parent.teid)
		}
		node, err := s.remember(parent, le.Uint32(elem[4:]))
		if err != nil {
			return err
		}
		if node.kind == ICE_AQC_ELEM_TYPE_TC {
			s.tc = node
		}
		parent = node
	}
	if s.entry == 0 || s.tc == nil {
		return c.wrong("no entry point or traffic class in the default topology")
	}
	if parent.kind == ICE_AQC_ELEM_TYPE_LEAF {
		if err := s.remove(parent); err != nil {
			return err
		}
		s.forget(parent)
	}
	for _, below := range append([]*schedNode(nil), s.tc.children...) {
		if err := s.free(below); err != nil {
			return err
		}
	}
	return nil
}

// remember reads an element back and hangs it into the tree (ice_sched_add_node).
func (s *scheduler) remember(parent *schedNode, teid uint32) (*schedNode, error) {
	c := &Command{Op: ice_aqc_opc_get_sched_elems, RD: true, Buf: make([]byte, schedElemSize)}
	c.put16(0, 1)
	le.PutUint32(c.Buf[4:], teid)
	if err := s.aq.do(c); err != nil {
		return nil, err
	}
	if c.u16(2) != 1 || c.Len != schedElemSize {
		return nil, c.wrong("%d elements in %d bytes", c.u16(2), c.Len)
	}
	if up, self := le.Uint32(c.Buf), le.Uint32(c.Buf[4:]); up != parent.teid || self != teid {
		return nil, c.wrong("element %#x of %#x, asked for %#x of %#x", self, up, teid, parent.teid)
	}
	n := &schedNode{teid: teid, kind: c.Buf[8], layer: parent.layer + 1, parent: parent}
	parent.children = append(parent.children, n)
	return n, nil
}

// add makes one generic element below parent (ice_sched_add_elems).
func (s *scheduler) add(parent *schedNode) (*schedNode, error) {
	if len(parent.children) >= s.maxChildren[parent.layer] {
		return nil, broken("scheduler element %#x has no room for another child", parent.teid)
	}
	const header = 8
	c := &Command{Op: ice_aqc_opc_add_sched_elems, RD: true, Buf: make([]byte, header+schedElemSize)}
	c.put16(0, 1)
	le.PutUint32(c.Buf, parent.teid)
	le.PutUint16(c.Buf[4:], 1)
	putSchedElem(c.Buf[header:], parent.teid)
	if err := s.aq.do(c); err != nil {
		return nil, err
	}
	teid := le.Uint32(c.Buf[header+4:])
	if c.u16(2) != 1 || teid == 0 || teid == schedInvalid {
		return nil, c.wrong("%d groups, TEID %#x", c.u16(2), teid)
	}
	n, err := s.remember(parent, teid)
	if err == nil && n.kind != ICE_AQC_ELEM_TYPE_SE_GENERIC {
		return nil, broken("new scheduler element %#x is of type %d", teid, n.kind)
	}
	return n, err
}

// putSchedElem fills the part of an element that the driver decides on.
func putSchedElem(e []byte, parent uint32) {
	le.PutUint32(e, parent)
	e[8] = ICE_AQC_ELEM_TYPE_SE_GENERIC
	e[9] = schedValidParts
	le.PutUint16(e[14:], schedDefaultBW)
	le.PutUint16(e[18:], schedDefaultBW)
}

// remove deletes one element (ice_sched_remove_elems).
func (s *scheduler) remove(n *schedNode) error {
	c := &Command{Op: ice_aqc_opc_delete_sched_elems, RD: true, Buf: make([]byte, 12)}
	c.put16(0, 1)
	le.PutUint32(c.Buf, n.parent.teid)
	le.PutUint16(c.Buf[4:], 1)
	le.PutUint32(c.Buf[8:], n.teid)
	if err := s.aq.do(c); err != nil {
		return err
	}
	if c.u16(2) != 1 {
		return c.wrong("%d groups deleted", c.u16(2))
	}
	return nil
}

func (s *scheduler) forget(n *schedNode) {
	for k, c := range n.parent.children {
		if c == n {
			n.parent.children = append(n.parent.children[:k], n.parent.children[k+1:]...)
			return
		}
	}
}

// free removes a subtree from below. Leaves go with their queues, not by a
// command (ice_free_sched_node).
func (s *scheduler) free(n *schedNode) error {
	for len(n.children) > 0 {
		if err := s.free(n.children[0]); err != nil {
			return err
		}
	}
	if n.layer >= s.entry && n.kind != ICE_AQC_ELEM_TYPE_TC && n.kind != ICE_AQC_ELEM_TYPE_LEAF {
		if err := s.remove(n); err != nil {
			return err
		}
	}
	s.forget(n)
	return nil
}

// dropAll empties the tree (ice_sched_cleanup_all).
func (s *scheduler) dropAll() error {
	if s.tc == nil {
		return nil
	}
	for len(s.tc.children) > 0 {
		if err := s.free(s.tc.children[0]); err != nil {
			return err
		}
	}
	*s = scheduler{aq: s.aq}
	return nil
}

// descend goes from n down to the layer, adding what is missing on the way.
func (s *scheduler) descend(n *schedNode, layer int) (*schedNode, error) {
	for n.layer < layer {
		var err error
		if len(n.children) > 0 {
			n = n.children[0]
		} else if n, err = s.add(n); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// addVSI adds a VSI's element under the traffic class (ice_sched_add_vsi_to_topo).
func (s *scheduler) addVSI() (*schedNode, error) {
	parent, err := s.descend(s.tc, s.vsiLayer()-1)
	if err != nil {
		return nil, err
	}
	return s.add(parent)
}

// addQueueGroup adds the layers between a VSI and its queues, for one owner
// (ice_sched_update_vsi_child_nodes).
func (s *scheduler) addQueueGroup(vsi *schedNode) (*schedNode, error) {
	n := vsi
	for n.layer < s.qgrpLayer() {
		var err error
		if n, err = s.add(n); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// moveToAggregator puts a VSI under the default aggregator
// (ice_sched_add_agg_cfg, ice_sched_move_vsi_to_agg).
func (s *scheduler) moveToAggregator(vsi *schedNode) error {
	if s.agg == nil {
		parent, err := s.descend(s.tc, s.aggLayer()-1)
		if err != nil {
			return err
		}
		if s.agg, err = s.add(parent); err != nil {
			return err
		}
	}
	dest, err := s.descend(s.agg, s.vsiLayer()-1)
	if err != nil {
		return err
	}
	c := &Command{Op: ice_aqc_opc_move_sched_elems, RD: true, Buf: make([]byte, 16)}
	c.put16(0, 1)
	le.PutUint32(c.Buf, vsi.parent.teid)
	le.PutUint32(c.Buf[4:], dest.teid)
	le.PutUint16(c.Buf[8:], 1)
	le.PutUint32(c.Buf[12:], vsi.teid)
	if err := s.aq.do(c); err != nil {
		return err
	}
	if c.u16(2) != 1 {
		return c.wrong("%d groups moved", c.u16(2))
	}
	s.forget(vsi)
	vsi.parent = dest
	dest.children = append(dest.children, vsi)
	return nil
}

// leaf remembers the element of a new queue.
func (s *scheduler) leaf(group *schedNode, teid uint32) (*schedNode, error) {
	n, err := s.remember(group, teid)
	if err == nil && n.kind != ICE_AQC_ELEM_TYPE_LEAF {
		return nil, broken("queue element %#x is of type %d, not a leaf", teid, n.kind)
	}
	return n, err
}

// queryETS is ice_dcb.c:ice_query_port_ets with its check of the answer.
func (s *scheduler) queryETS() error {
	c := &Command{Op: ice_aqc_opc_query_port_ets, Buf: make([]byte, 64)}
	c.put32(0, s.root.teid)
	if err := s.aq.do(c); err != nil {
		return err
	}
	if c.Len != 64 {
		return c.wrong("%d bytes", c.Len)
	}
	for tc := range 8 {
		want := uint32(schedInvalid)
		if tc == 0 {
			want = s.tc.teid
		}
		if got := le.Uint32(c.Buf[32+4*tc:]); got != want {
			return c.wrong("element of TC %d is %#x, want %#x", tc, got, want)
		}
	}
	return nil
}
