// SPDX-License-Identifier: Apache-2.0

package fw

import "slices"

// Sizes of the structures in ice_adminq_cmd.h.
const (
	elemDataSize   = 24                                     // ice_aqc_txsched_elem_data
	groupHeader    = 8                                      // ice_aqc_txsched_topo_grp_info_hdr
	moveHeader     = 12                                     // ice_aqc_txsched_move_grp_info_hdr
	branchSize     = groupHeader + schedLayers*elemDataSize // ice_aqc_get_topo_elem
	teidSize       = 4
	rlProfileSize  = 12 // ice_aqc_rl_profile_elem
	layerPropSize  = 32 // ice_aqc_layer_props
	schedPropSize  = 32 // ice_aqc_generic_sched_props
	schedResSize   = schedPropSize + schedLayers*layerPropSize
	portETSSize    = 64  // ice_aqc_port_ets_elem
	moveSamePF     = 0   // ICE_AQC_MOVE_ELEM_MODE_SAME_PF
	congestDomains = 8   // max_device_cgds, max_pf_cgds
	wholeBandwidth = 100 // percent
)

// record writes the node as a struct ice_aqc_txsched_elem_data.
func (n *node) record(b []byte) {
	parent := uint32(invalidTEID)
	if n.parent != nil {
		parent = n.parent.teid
	}
	le.PutUint32(b, parent)
	le.PutUint32(b[4:], n.teid)
	copy(b[8:elemDataSize], n.elem[:])
}

// batch runs one for each of count elements or groups of the buffer, of at
// least size bytes each, until one fails. one gets what is left of the buffer
// and returns how much of it was its own. How many succeeded goes to done.
func batch(buf []byte, count uint16, done []byte, size int, one func(b []byte) (used int, rc errno)) errno {
	if count == 0 {
		return rcEINVAL
	}
	le.PutUint16(done, 0)
	for i := range count {
		if len(buf) < size {
			return rcEINVAL
		}
		used, rc := one(buf)
		if rc != rcOK {
			return rc
		}
		buf = buf[min(used, len(buf)):]
		le.PutUint16(done, i+1)
	}
	return rcOK
}

// schedBatch is batch for the commands of struct ice_aqc_sched_elem_cmd and,
// alike, ice_aqc_rl_profile: count at 0, number done at 2.
func schedBatch(r *request, size int, one func(b []byte) (int, errno)) errno {
	return batch(r.buf, le.Uint16(r.p()), r.p()[2:], size, one)
}

// defaultTopology describes the branch that exists after a reset, whatever
// became of it since.
func defaultTopology(f *Firmware, r *request) errno {
	if r.p()[0] != lport {
		return rcENOENT
	}
	r.p()[1] = 1 // num_branches
	fresh := newScheduler()
	le.PutUint32(r.buf, invalidTEID)
	elems := 0
	for n := fresh.root; n != nil; elems++ {
		n.record(r.buf[groupHeader+elems*elemDataSize:])
		if len(n.children) == 0 {
			n = nil
		} else {
			n = n.children[0]
		}
	}
	le.PutUint16(r.buf[4:], uint16(elems))
	r.n = branchSize
	return rcOK
}

func addSchedElems(f *Firmware, r *request) errno {
	s := f.sched
	return schedBatch(r, groupHeader, func(b []byte) (int, errno) {
		parent := s.nodes[le.Uint32(b)]
		count := int(le.Uint16(b[4:]))
		used := groupHeader + count*elemDataSize
		switch {
		case count == 0 || used > len(b):
			return 0, rcEINVAL
		case parent == nil:
			return 0, rcENOENT
		case parent.layer+1 < firstSE || parent.layer >= qgrpLayer:
			return 0, rcEINVAL
		case !s.room(parent, count):
			return 0, rcENOSPC
		}
		records := slices.Collect(slices.Chunk(b[groupHeader:used], elemDataSize))
		for _, rec := range records {
			e := element(rec[8:])
			if e.kind() != elemGeneric {
				return 0, rcEINVAL
			}
			if rc := s.check(&e, parent.layer+1); rc != rcOK {
				return 0, rc
			}
		}
		for _, rec := range records {
			e := element(rec[8:])
			e[3] = 0 // flags: reserved here
			s.add(parent, e).record(rec)
		}
		return used, rcOK
	})
}

func configureSchedElems(f *Firmware, r *request) errno {
	return schedBatch(r, elemDataSize, func(b []byte) (int, errno) {
		n := f.sched.nodes[le.Uint32(b[4:])]
		if n == nil {
			return 0, rcENOENT
		}
		u := element(b[8:])
		rc := f.sched.configure(n, &u)
		return elemDataSize, rc
	})
}

func getSchedElems(f *Firmware, r *request) errno {
	return schedBatch(r, elemDataSize, func(b []byte) (int, errno) {
		n := f.sched.nodes[le.Uint32(b[4:])]
		if n == nil {
			return 0, rcENOENT
		}
		n.record(b)
		return elemDataSize, rcOK
	})
}

// moveSchedElems moves elements, with what is below them, to another parent of
// the same layer: an element never changes its layer, so a move cannot close a
// circle.
func moveSchedElems(f *Firmware, r *request) errno {
	s := f.sched
	return schedBatch(r, moveHeader, func(b []byte) (int, errno) {
		from, to := s.nodes[le.Uint32(b)], s.nodes[le.Uint32(b[4:])]
		count := int(le.Uint16(b[8:]))
		used := moveHeader + count*teidSize
		switch {
		case count == 0 || used > len(b) || b[10] != moveSamePF:
			return 0, rcEINVAL
		case from == nil || to == nil:
			return 0, rcENOENT
		}
		for t := range slices.Chunk(b[moveHeader:used], teidSize) {
			n := s.nodes[le.Uint32(t)]
			switch {
			case n == nil:
				return 0, rcENOENT
			case n.parent != from || n.elem.kind() != elemGeneric || n.layer != to.layer+1:
				return 0, rcEINVAL
			case from == to:
				continue
			case len(to.children) >= maxSiblings:
				return 0, rcENOSPC
			}
			n.detach()
			n.parent = to
			to.children = append(to.children, n)
		}
		return used, rcOK
	})
}

func suspendSchedElems(f *Firmware, r *request) errno { return setSuspended(f, r, elemSuspended) }
func resumeSchedElems(f *Firmware, r *request) errno  { return setSuspended(f, r, 0) }

func setSuspended(f *Firmware, r *request, flag byte) errno {
	return schedBatch(r, teidSize, func(b []byte) (int, errno) {
		n := f.sched.nodes[le.Uint32(b)]
		switch {
		case n == nil:
			return 0, rcENOENT
		case n.elem.kind() == elemRoot:
			return 0, rcEINVAL
		}
		n.elem[3] = n.elem[3]&^elemSuspended | flag
		return teidSize, rcOK
	})
}

// deleteSchedElems deletes elements that nothing hangs on. Root, traffic
// classes and leaves are not software's to delete here
// (ice_sched.c:ice_free_sched_node).
func deleteSchedElems(f *Firmware, r *request) errno {
	s := f.sched
	return schedBatch(r, groupHeader, func(b []byte) (int, errno) {
		parent := s.nodes[le.Uint32(b)]
		count := int(le.Uint16(b[4:]))
		used := groupHeader + count*teidSize
		switch {
		case count == 0 || used > len(b):
			return 0, rcEINVAL
		case parent == nil:
			return 0, rcENOENT
		}
		for t := range slices.Chunk(b[groupHeader:used], teidSize) {
			n := s.nodes[le.Uint32(t)]
			switch {
			case n == nil:
				return 0, rcENOENT
			case n.parent != parent:
				return 0, rcEINVAL
			case n.elem.kind() != elemGeneric && n.elem.kind() != elemEntry:
				return 0, rcEPERM
			case len(n.children) > 0:
				return 0, rcEBUSY
			}
			s.remove(n)
		}
		return used, rcOK
	})
}

// queryPortETS tells which traffic classes the port has and the share of
// each. All user priorities belong to class 0.
func queryPortETS(f *Firmware, r *request) errno {
	root := f.sched.root
	switch n := f.sched.nodes[le.Uint32(r.p())]; {
	case n == nil:
		return rcENOENT
	case n != root:
		return rcEINVAL
	}
	b := r.buf[:portETSSize]
	clear(b)
	le.PutUint32(b[16:], uint32(root.elem.eir()))
	le.PutUint32(b[20:], uint32(root.elem.cir()))
	for tc := range maxTCs {
		teid := uint32(invalidTEID)
		if tc < len(root.children) {
			teid = root.children[tc].teid
			b[0] |= 1 << tc
			b[8+tc] = byte(wholeBandwidth / len(root.children))
		}
		le.PutUint32(b[32+4*tc:], teid)
	}
	r.n = portETSSize
	return rcOK
}

// profile reads the names in a struct ice_aqc_rl_profile_elem, whose levels
// count from 1 (ice_sched.c:ice_sched_add_rl_profile).
func profile(b []byte) (k rlKey, id uint16, ok bool) {
	k = rlKey{int(b[0]) - 1, b[1] & 3}
	return k, le.Uint16(b[2:]), k.layer >= 0 && k.layer < schedLayers && k.kind < rlTypes
}

func addRLProfiles(f *Firmware, r *request) errno {
	return schedBatch(r, rlProfileSize, func(b []byte) (int, errno) {
		k, _, ok := profile(b)
		if !ok {
			return 0, rcEINVAL
		}
		p := f.sched.profiles[k]
		if p == nil {
			p = &rlProfiles{newPool(1, maxRLProfiles-1), make(map[uint16]rlParams), make(map[uint16]int)}
			f.sched.profiles[k] = p
		}
		id, ok := p.numbers.lowest()
		if !ok {
			return 0, rcENOSPC
		}
		p.params[uint16(id)] = rlParams(b[4:])
		le.PutUint16(b[2:], uint16(id))
		return rlProfileSize, rcOK
	})
}

func removeRLProfiles(f *Firmware, r *request) errno {
	return schedBatch(r, rlProfileSize, func(b []byte) (int, errno) {
		k, id, ok := profile(b)
		if !ok {
			return 0, rcEINVAL
		}
		p := f.sched.profiles[k]
		switch {
		case p == nil || !p.numbers.has(int(id)):
			return 0, rcENOENT
		case p.users[id] > 0:
			return 0, rcEBUSY
		}
		p.numbers.put(int(id))
		delete(p.params, id)
		delete(p.users, id)
		return rlProfileSize, rcOK
	})
}

// querySchedRes tells the shape of the tree. The children a node may have are
// the siblings of the layer below (ice_sched.c:ice_sched_query_res_alloc).
func querySchedRes(f *Firmware, r *request) errno {
	b := r.buf[:schedResSize]
	clear(b)
	le.PutUint16(b[0:], schedLayers) // phys_levels
	le.PutUint16(b[2:], schedLayers) // logical_levels
	b[5] = congestDomains            // max_device_cgds
	b[6] = congestDomains            // max_pf_cgds
	le.PutUint16(b[8:], maxQsets)
	for layer := range schedLayers {
		l := b[schedPropSize+layer*layerPropSize:]
		l[0] = byte(layer)
		l[1] = 1 // chunk_size
		le.PutUint16(l[2:], layerNodes[layer])
		le.PutUint16(l[4:], layerNodes[layer])
		le.PutUint16(l[10:], maxSiblings)
		le.PutUint16(l[12:], maxRLProfiles)
		le.PutUint16(l[14:], maxRLProfiles)
		le.PutUint16(l[16:], maxRLProfiles)
	}
	r.n = schedResSize
	return rcOK
}

var treeCommands = []command{
	{op: 0x0400, name: "get_dflt_topo", minBuf: branchSize, run: defaultTopology, source: "ice_sched.c:ice_sched_init_port"},
	{op: 0x0401, name: "add_sched_elems", rd: true, minBuf: groupHeader + elemDataSize, run: addSchedElems, source: "ice_sched.c:ice_sched_add_elems"},
	{op: 0x0403, name: "cfg_sched_elems", rd: true, minBuf: elemDataSize, run: configureSchedElems, source: "ice_sched.c:ice_sched_update_elem"},
	{op: 0x0404, name: "get_sched_elems", rd: true, minBuf: elemDataSize, run: getSchedElems, source: "ice_sched.c:ice_aq_query_sched_elems"},
	{op: 0x0408, name: "move_sched_elems", rd: true, minBuf: moveHeader + teidSize, run: moveSchedElems, source: "ice_sched.c:ice_sched_move_nodes", inferred: true},
	{op: 0x0409, name: "suspend_sched_elems", rd: true, minBuf: teidSize, run: suspendSchedElems, source: "ice_sched.c:ice_sched_suspend_resume_elems"},
	{op: 0x040A, name: "resume_sched_elems", rd: true, minBuf: teidSize, run: resumeSchedElems, source: "ice_sched.c:ice_sched_suspend_resume_elems"},
	{op: 0x040E, name: "query_port_ets", minBuf: portETSSize, run: queryPortETS, source: "ice_dcb.c:ice_update_port_tc_tree_cfg"},
	{op: 0x040F, name: "delete_sched_elems", rd: true, minBuf: groupHeader + teidSize, run: deleteSchedElems, source: "ice_sched.c:ice_sched_remove_elems", inferred: true},
	{op: 0x0410, name: "add_rl_profiles", rd: true, minBuf: rlProfileSize, run: addRLProfiles, source: "ice_sched.c:ice_sched_add_rl_profile"},
	{op: 0x0412, name: "query_sched_res", minBuf: schedResSize, run: querySchedRes, source: "ice_sched.c:ice_sched_query_res_alloc"},
	{op: 0x0415, name: "remove_rl_profiles", rd: true, minBuf: rlProfileSize, run: removeRLProfiles, source: "ice_sched.c:ice_sched_del_rl_profile"},
}

// schedCommands are those of the Tx scheduler, queues included.
var schedCommands = slices.Concat(treeCommands, txqCommands)
