// SPDX-License-Identifier: Apache-2.0

package fw

// The Tx scheduler: a tree of nine layers. Layer 0 is the port's root, layer 1
// its traffic classes, layers 2 to 7 are scheduling elements that drivers add,
// move and delete, layer 8 the leaves: LAN Tx queues and RDMA queue sets,
// which come and go with 0x0C30, 0x0C33 and 0x0C31.
const (
	schedLayers = 9 // ICE_SCHED_9_LAYERS
	qgrpLayer   = schedLayers - 2
	leafLayer   = schedLayers - 1
	firstSE     = 2 // the lowest layer of scheduling elements
	maxSiblings = 8 // a driver's child counter has 8 bits (ice_sched_node.num_children)
	maxTCs      = 8 // ICE_MAX_TRAFFIC_CLASS

	maxQsets      = 1024 // a queue set number has 10 bits in QPs
	maxRLProfiles = 256  // of one layer and type, the default one included

	invalidTEID = 0xFFFFFFFF // ICE_INVAL_TEID
)

// layerNodes is how many nodes fit in each layer; that silicon has as many is
// inferred.
var layerNodes = [schedLayers]uint16{1, 8, 64, 512, 2048, 2048, 2048, 2048, NumQueues + maxQsets}

// Node identifiers of the default branch.
const (
	rootTEID = 1 + iota
	tcTEID
	entryTEID
	firstFreeTEID
)

// Element types (ice_adminq_cmd.h:ICE_AQC_ELEM_TYPE_*).
const (
	elemRoot    = 1
	elemTC      = 2
	elemGeneric = 3
	elemEntry   = 4
	elemLeaf    = 5
)

// Element sections (ICE_AQC_ELEM_VALID_*).
const (
	elemValidGeneric = 1 << 0
	elemValidCIR     = 1 << 1
	elemValidEIR     = 1 << 2
	elemValidShared  = 1 << 3

	elemSuspended = 1 << 0 // ICE_AQC_ELEM_FLAG_SUSPEND_M
	defaultWeight = 4      // ICE_SCHED_DFLT_BW_WT
)

// element is struct ice_aqc_txsched_elem.
type element [16]byte

func (e *element) kind() uint8     { return e[0] }
func (e *element) valid() uint8    { return e[1] }
func (e *element) suspended() bool { return e[3]&elemSuspended != 0 }
func (e *element) cir() uint16     { return le.Uint16(e[4:]) }
func (e *element) eir() uint16     { return le.Uint16(e[8:]) }
func (e *element) srl() uint16     { return le.Uint16(e[12:]) }

// defaultElement is an element of equal weight and no limit.
func defaultElement(kind uint8) (e element) {
	e[0] = kind
	e[1] = elemValidGeneric | elemValidCIR | elemValidEIR
	le.PutUint16(e[6:], defaultWeight)
	le.PutUint16(e[10:], defaultWeight)
	return e
}

// Rate limit profile types (ICE_AQC_RL_PROFILE_TYPE_*).
const (
	rlCIR = iota
	rlEIR
	rlSRL
	rlTypes
)

// rlKey names the profiles of one layer and type.
type rlKey struct {
	layer int
	kind  uint8
}

// rlProfiles are the rate limit profiles of one layer and type: their
// parameters, and how many nodes use each. Profile 0 is the default, no limit,
// and always there.
type rlProfiles struct {
	numbers *pool
	params  map[uint16]rlParams
	users   map[uint16]int
}

// rlParams is what a profile says: max_burst_size, rl_multiply, wake_up_calc
// and rl_encode, raw.
type rlParams [8]byte

// node is one node of the tree.
type node struct {
	teid     uint32
	layer    int
	parent   *node
	children []*node
	elem     element
	queue    queueID // of a leaf
}

// queueID is what a leaf stands for.
type queueID struct {
	rdma bool
	id   uint16
}

// scheduler is the tree and the rate limit profiles of its layers.
type scheduler struct {
	root     *node
	nodes    map[uint32]*node
	count    [schedLayers]int
	leaves   map[queueID]*node
	profiles map[rlKey]*rlProfiles
	nextTEID uint32
}

func newScheduler() *scheduler {
	s := new(scheduler)
	s.reset()
	return s
}

// reset restores the default branch, as PFR and Clear PF Configuration do.
func (s *scheduler) reset() {
	*s = scheduler{
		nodes:    make(map[uint32]*node),
		leaves:   make(map[queueID]*node),
		profiles: make(map[rlKey]*rlProfiles),
		nextTEID: firstFreeTEID,
	}
	s.root = s.insert(nil, rootTEID, defaultElement(elemRoot))
	tc := s.insert(s.root, tcTEID, defaultElement(elemTC))
	s.insert(tc, entryTEID, defaultElement(elemEntry))
}

// room tells whether n nodes more fit below parent.
func (s *scheduler) room(parent *node, n int) bool {
	layer := parent.layer + 1
	return len(parent.children)+n <= maxSiblings && s.count[layer]+n <= int(layerNodes[layer])
}

// insert makes a node; the caller has seen that it fits.
func (s *scheduler) insert(parent *node, teid uint32, e element) *node {
	n := &node{teid: teid, parent: parent, elem: e}
	if parent != nil {
		n.layer = parent.layer + 1
		parent.children = append(parent.children, n)
	}
	s.nodes[teid] = n
	s.count[n.layer]++
	s.use(n, +1)
	return n
}

// add makes a node with an identifier of its own. There are far fewer nodes
// than identifiers, so one is found soon.
func (s *scheduler) add(parent *node, e element) *node {
	for s.nextTEID < firstFreeTEID || s.nextTEID == invalidTEID || s.nodes[s.nextTEID] != nil {
		s.nextTEID++
	}
	n := s.insert(parent, s.nextTEID, e)
	s.nextTEID++
	return n
}

// remove takes a node without children out of the tree.
func (s *scheduler) remove(n *node) {
	n.detach()
	s.use(n, -1)
	delete(s.nodes, n.teid)
	s.count[n.layer]--
	if n.elem.kind() == elemLeaf {
		delete(s.leaves, n.queue)
	}
}

// detach takes a node out of its parent's children.
func (n *node) detach() {
	siblings := n.parent.children
	for i, c := range siblings {
		if c == n {
			n.parent.children = append(siblings[:i:i], siblings[i+1:]...)
			return
		}
	}
}

// limits calls f for each rate limit profile, the default ones apart, that an
// element of a layer refers to.
func (e *element) limits(layer int, f func(k rlKey, id uint16)) {
	for _, l := range []struct {
		valid, kind uint8
		id          uint16
	}{
		{elemValidCIR, rlCIR, e.cir()},
		{elemValidEIR, rlEIR, e.eir()},
		{elemValidShared, rlSRL, e.srl()},
	} {
		if e.valid()&l.valid != 0 && l.id != 0 {
			f(rlKey{layer, l.kind}, l.id)
		}
	}
}

// use counts a node as a user of its rate limit profiles, or no longer.
func (s *scheduler) use(n *node, by int) {
	n.elem.limits(n.layer, func(k rlKey, id uint16) { s.profiles[k].users[id] += by })
}

// check refuses an element that no node of that layer can be: without its
// generic section (ice_common.c:ice_ena_vsi_txq: "will fail with error code
// ICE_AQ_RC_EINVAL"), with both an EIR and a shared limit
// (ice_sched.c:ice_sched_cfg_node_bw_lmt: mutually exclusive), or with a rate
// limit profile that does not exist.
func (s *scheduler) check(e *element, layer int) errno {
	if e.valid()&elemValidGeneric == 0 || e.valid()&elemValidEIR != 0 && e.valid()&elemValidShared != 0 {
		return rcEINVAL
	}
	rc := rcOK
	e.limits(layer, func(k rlKey, id uint16) {
		if p := s.profiles[k]; p == nil || !p.numbers.has(int(id)) {
			rc = rcENOENT
		}
	})
	return rc
}

// configure applies the sections of u that it flags valid. Type and flags are
// reserved there (ice_sched.c:ice_sched_update_elem). Setting one of the
// exclusive limits ends the other.
func (s *scheduler) configure(n *node, u *element) errno {
	if u.valid()&elemValidEIR != 0 && u.valid()&elemValidShared != 0 {
		return rcEINVAL
	}
	e := n.elem
	if u.valid()&elemValidGeneric != 0 {
		e[2] = u[2]
	}
	if u.valid()&elemValidCIR != 0 {
		copy(e[4:8], u[4:8])
	}
	if u.valid()&elemValidEIR != 0 {
		copy(e[8:12], u[8:12])
		e[1] &^= elemValidShared
	}
	if u.valid()&elemValidShared != 0 {
		copy(e[12:14], u[12:14])
		e[1] &^= elemValidEIR
	}
	e[1] |= u.valid() & (elemValidGeneric | elemValidCIR | elemValidEIR | elemValidShared)
	if rc := s.check(&e, n.layer); rc != rcOK {
		return rc
	}
	s.use(n, -1)
	n.elem = e
	s.use(n, +1)
	return rcOK
}
