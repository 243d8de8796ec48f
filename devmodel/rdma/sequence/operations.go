// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"fmt"
	"maps"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Opcodes (defs.h:IRDMA_CQP_OP_*).
const (
	opCreateQP     = 0x00
	opModifyQP     = 0x01
	opDestroyQP    = 0x02
	opCreateCQ     = 0x03
	opModifyCQ     = 0x04
	opDestroyCQ    = 0x05
	opAllocSTag    = 0x09
	opRegMR        = 0x0a
	opQuerySTag    = 0x0b
	opRegSMR       = 0x0c
	opDeallocSTag  = 0x0d
	opManageMAC    = 0x0e
	opManageARP    = 0x0f
	opPushPages    = 0x11
	opFeatures     = 0x12
	opUpload       = 0x13
	opAllocMAC     = 0x14
	opCreateCEQ    = 0x16
	opDestroyCEQ   = 0x18
	opCreateAEQ    = 0x19
	opDestroyAEQ   = 0x1b
	opCreateAH     = 0x1c
	opModifyAH     = 0x1d
	opDestroyAH    = 0x1e
	opUpdateSDs    = 0x1f
	opQueryFPM     = 0x20
	opCommitFPM    = 0x21
	opFlush        = 0x22
	opAPBVT        = 0x23
	opNOP          = 0x24
	opQuadHash     = 0x25
	opCreateGroup  = 0x26
	opModifyGroup  = 0x27
	opDestroyGroup = 0x28
	opSuspend      = 0x29
	opResume       = 0x2a
	opPages        = 0x2b
	opNode         = 0x2c
	opManageStats  = 0x2d
	opGatherStats  = 0x2e
	opUpMap        = 0x2f
)

// operations are what the model knows; others a device of this generation
// refuses.
var operations = [64]func(*Model, *Op) Verdict{
	opCreateQP: (*Model).createQP, opModifyQP: (*Model).modifyQP, opDestroyQP: (*Model).destroyQP,
	opCreateCQ: (*Model).createCQ, opModifyCQ: (*Model).modifyCQ, opDestroyCQ: (*Model).destroyCQ,
	opAllocSTag: (*Model).allocSTag, opRegMR: (*Model).regMR, opQuerySTag: (*Model).querySTag, opRegSMR: (*Model).regSMR,
	opDeallocSTag: (*Model).deallocSTag, opManageMAC: (*Model).manageMAC, opManageARP: (*Model).manageARP,
	opPushPages: (*Model).pushPages, opFeatures: (*Model).features, opUpload: (*Model).upload, opAllocMAC: (*Model).allocMAC,
	opCreateCEQ: (*Model).createCEQ, opDestroyCEQ: (*Model).destroyCEQ, opCreateAEQ: (*Model).createAEQ, opDestroyAEQ: (*Model).destroyAEQ,
	opCreateAH: (*Model).createAH, opModifyAH: (*Model).modifyAH, opDestroyAH: (*Model).destroyAH,
	opUpdateSDs: (*Model).updateSDs, opQueryFPM: (*Model).queryFPM, opCommitFPM: (*Model).commitFPM, opFlush: (*Model).flush,
	opAPBVT: (*Model).acceptPort, opNOP: func(*Model, *Op) Verdict { return Done }, opQuadHash: (*Model).quadHash,
	opCreateGroup: (*Model).createGroup, opModifyGroup: (*Model).modifyGroup, opDestroyGroup: (*Model).destroyGroup,
	opSuspend: (*Model).suspend, opResume: (*Model).resume, opPages: (*Model).pagesAllocated, opNode: (*Model).node,
	opManageStats: (*Model).manageStats, opGatherStats: (*Model).gatherStats, opUpMap: (*Model).upMap,
}

func (m *Model) ownFunction(fn uint64) bool { return fn == m.w.Function }

// buffer tells whether a queue may lie where the words say.
func (m *Model) buffer(o *Op, size uint64) bool {
	if size == 0 {
		return false
	}
	if !o.flag(3, 47) { // VIRTMAP
		return o.WQE[4]%256 == 0 && o.WQE[4]+size >= o.WQE[4]
	}
	return o.bits(3, 45, 44) == 1 && m.pbles(o.bits(6, 27, 0), (size+4095)/4096)
}

func (m *Model) createCQ(o *Op) Verdict {
	id, entries := uint32(o.bits(3, 18, 0)), o.bits(0, 20, 0)
	_, exists := m.cqs[id]
	ceq := uint32(o.bits(3, 31, 22))
	ok := !exists && m.object(hmc.CQ, id) && m.buffer(o, entries*32) && o.WQE[5]%8 == 0 &&
		(!o.flag(3, 49) || ceq < m.w.MaxCEQs && m.ceqs[ceq])
	if ok {
		m.cqs[id] = uint32(entries)
	}
	return verdict(ok)
}

func (m *Model) modifyCQ(o *Op) Verdict {
	id, entries := uint32(o.bits(3, 18, 0)), o.bits(0, 20, 0)
	_, exists := m.cqs[id]
	ok := exists && o.flag(3, 43) && m.buffer(o, entries*32)
	if ok {
		m.cqs[id] = uint32(entries)
	}
	return verdict(ok)
}

func (m *Model) destroyCQ(o *Op) Verdict {
	id := uint32(o.bits(3, 18, 0))
	if _, exists := m.cqs[id]; !exists {
		return Refused
	}
	delete(m.cqs, id)
	for n, q := range m.qps {
		if q.sendCQ == id || q.recvCQ == id {
			m.dangling = append(m.dangling, fmt.Sprintf("CQ %d of QP %d", id, n))
		}
	}
	return Done
}

func (m *Model) createCEQ(o *Op) Verdict {
	id := uint32(o.bits(3, 15, 0))
	ok := id < m.w.MaxCEQs && !m.ceqs[id] && m.buffer(o, o.bits(2, 21, 0)*8)
	if ok {
		m.ceqs[id] = true
	}
	return verdict(ok)
}

func (m *Model) destroyCEQ(o *Op) Verdict {
	id := uint32(o.bits(3, 15, 0))
	ok := m.ceqs[id]
	delete(m.ceqs, id)
	return verdict(ok)
}

func (m *Model) createAEQ(o *Op) Verdict {
	ok := !m.aeq && m.buffer(o, o.bits(2, 18, 0)*16)
	m.aeq = m.aeq || ok
	return verdict(ok)
}

func (m *Model) destroyAEQ(*Op) Verdict {
	ok := m.aeq
	m.aeq = false
	return verdict(ok)
}

// context is a word of the QP context that the operation names; the driver has
// written it just before.
func (o *Op) context(at int) uint64 { return o.Memory[at/8] }

// contextThere tells whether the device can read it.
func (m *Model) contextThere(o *Op) bool { return o.WQE[2]%256 == 0 && m.mapped(o.WQE[2]) }

// cqsThere tells whether the CQs of a context are there, and of the right kind.
func (m *Model) cqsThere(o *Op) (send, recv uint32, ok bool) {
	send, recv = uint32(o.context(136)&0x1ffffff), uint32(o.context(136)>>32&0x1ffffff)
	_, a := m.cqs[send]
	_, b := m.cqs[recv]
	return send, recv, a && b && send != 0 && recv != 0
}

func (m *Model) createQP(o *Op) Verdict {
	id, kind := uint32(o.bits(3, 23, 0)), uint8(o.bits(3, 50, 48))
	const gsi = 1
	if m.qps[id] != nil || id == 0 || id == gsi && kind != typeUD || kind != typeRC && kind != typeUD || !m.object(hmc.QP, id) ||
		o.bits(3, 62, 60) != stateIdle || o.WQE[5]%8 != 0 || !m.contextThere(o) {
		return Refused
	}
	send, recv, ok := m.cqsThere(o)
	virtual := o.flag(3, 45)
	for _, q := range []struct{ at, size, stride uint64 }{
		{o.context(8), 32 * (4 << (o.context(24) >> 12 & 0xf)), 32},
		{o.context(16), 32 * (4 << (o.context(24) >> 8 & 0xf)), 32 << (o.context(0) >> 8 & 3)},
	} {
		if virtual {
			ok = ok && m.pbles(q.at, (q.size+4095)/4096)
		} else {
			ok = ok && q.at%32 == 0 && q.at+q.size >= q.at
		}
		ok = ok && q.size >= q.stride
	}
	if ok {
		m.qps[id] = &qpModel{kind: kind, state: stateIdle, virtual: virtual, sendCQ: send, recvCQ: recv}
	}
	return verdict(ok)
}

// legal are the changes of state (verbs.c:irdma_modify_qp_roce).
func legal(from, to uint8) bool {
	switch to {
	case stateError:
		return true
	case stateIdle, stateRTR:
		return from == stateIdle
	case stateRTS:
		return from == stateRTR || from == stateRTS || from == stateSQD
	case stateSQD:
		return from == stateRTS
	}
	return false
}

func (m *Model) modifyQP(o *Op) Verdict {
	q, to := m.qps[uint32(o.bits(3, 23, 0))], uint8(o.bits(3, 62, 60))
	if q == nil || !legal(q.state, to) {
		return Refused
	}
	if to != stateError && to != stateSQD {
		if !m.contextThere(o) {
			return Refused
		}
		if mtu := o.context(48) >> 16 & 0x3fff; q.kind == typeRC && to != stateIdle && (mtu < 256 || mtu > 4096 || mtu&(mtu-1) != 0) {
			return Refused
		}
		if o.flag(3, 47) {
			send, recv, ok := m.cqsThere(o)
			if !ok {
				return Refused
			}
			q.sendCQ, q.recvCQ = send, recv
		}
	}
	q.state = to
	if o.flag(3, 55) {
		m.forgetHashes(uint32(o.bits(3, 23, 0)))
	}
	return Done
}

func (m *Model) destroyQP(o *Op) Verdict {
	id := uint32(o.bits(3, 23, 0))
	if m.qps[id] == nil {
		return Refused
	}
	delete(m.qps, id)
	if o.flag(3, 55) {
		m.forgetHashes(id)
	}
	return Done
}

func (m *Model) forgetHashes(qp uint32) {
	for k, q := range m.quads {
		if q == qp {
			delete(m.quads, k)
		}
	}
}

func (m *Model) flush(o *Op) Verdict {
	q := m.qps[uint32(o.bits(3, 23, 0))]
	generate, sq, rq := o.flag(3, 59), o.flag(3, 61), o.flag(3, 62)
	switch {
	case q == nil || !generate && !sq && !rq:
		return Refused
	case (sq || rq) && q.virtual: // where its rings are only the device knows
		return Either
	}
	return Done
}

func (m *Model) suspend(o *Op) Verdict {
	q := m.qps[uint32(o.bits(3, 23, 0))]
	if q == nil {
		return Refused
	}
	q.suspended = true
	return Done
}

func (m *Model) resume(o *Op) Verdict {
	q := m.qps[uint32(o.bits(3, 23, 0))]
	if q == nil || !q.suspended {
		return Refused
	}
	q.suspended = false
	return Done
}

func (m *Model) upload(o *Op) Verdict {
	q := m.qps[uint32(o.bits(3, 23, 0))]
	return verdict(q != nil && m.contextThere(o) && o.bits(3, 51, 48) == uint64(q.kind))
}

// slot is the index into the table of an STag index of 24 bits, on top of which
// the driver has bits of its own (hw.c:irdma_initialize_hw_rsrc).
func (m *Model) slot(index uint32) uint32 {
	order := 14
	for 1<<order < m.w.Objects[hmc.MR].Count {
		order++
	}
	return index & (1<<order - 1)
}

func (o *Op) stagIndex() uint32 { return uint32(o.bits(2, 31, 8)) }
func (o *Op) pd() uint32        { return uint32(o.bits(1, 63, 46) | o.bits(2, 59, 54)<<18) }

// stag reads the fields of a registration; ok is false if they make none.
func (m *Model) stag(o *Op, valid bool) (s *stagModel, ok bool) {
	s = &stagModel{index: o.stagIndex(), pd: o.pd(), window: !o.flag(3, 43), valid: valid}
	if s.window {
		s.shift = 12
		return s, !valid
	}
	s.length, s.level, s.first = o.bits(1, 45, 0), uint8(o.bits(3, 45, 44)), o.bits(6, 27, 0)
	shift := o.bits(3, 47, 46)
	if shift == 3 || o.flag(3, 60) && !m.ownFunction(o.bits(5, 15, 0)) {
		return s, false
	}
	s.shift = uint8(12 + 9*shift)
	if valid {
		s.start = o.WQE[0]
	}
	return s, true
}

// insert makes an STag of it.
func (m *Model) insert(s *stagModel, vaBased bool) Verdict {
	if vaBased && s.length > 0 && s.start+s.length-1 < s.start {
		return Refused
	}
	switch s.level {
	case 0:
	case 1, 3:
		if s.length == 0 || !m.pbles(s.first, s.listed()) {
			return Refused
		}
	default:
		return Refused
	}
	i := m.slot(s.index)
	if i == 0 || !m.object(hmc.MR, i) || m.stags[i] != nil {
		return Refused
	}
	m.stags[i] = s
	return Done
}

func (m *Model) allocSTag(o *Op) Verdict {
	s, ok := m.stag(o, false)
	if !ok {
		return Refused
	}
	return m.insert(s, false)
}

func (m *Model) regMR(o *Op) Verdict {
	s, ok := m.stag(o, true)
	if !ok {
		return Refused
	}
	return m.insert(s, o.flag(3, 59))
}

func (m *Model) regSMR(o *Op) Verdict {
	s, ok := m.stag(o, true)
	if !ok {
		return Refused
	}
	p := m.stags[m.slot(uint32(o.bits(2, 55, 32)))]
	if p == nil || p.index != uint32(o.bits(2, 55, 32)) || !p.valid || p.window {
		return Refused
	}
	s.level, s.shift, s.first = p.level, p.shift, p.first
	if s.length != p.length || s.start&(1<<s.shift-1) != p.start&(1<<s.shift-1) {
		return Refused
	}
	return m.insert(s, o.flag(3, 59))
}

func (m *Model) querySTag(o *Op) Verdict {
	s := m.stags[m.slot(o.stagIndex())]
	return verdict(s != nil && s.index == o.stagIndex() && s.valid)
}

func (m *Model) deallocSTag(o *Op) Verdict {
	i := m.slot(o.stagIndex())
	s := m.stags[i]
	if s == nil || s.index != o.stagIndex() || s.pd != o.pd() || s.window == o.flag(3, 43) {
		return Refused
	}
	delete(m.stags, i)
	return Done
}

func (m *Model) manageARP(o *Op) Verdict {
	i := uint32(o.bits(3, 11, 0))
	if i == 0 || !m.object(hmc.ARP, i) || o.flag(3, 44) {
		return Refused
	}
	if o.flag(3, 42) {
		m.arps[i] = o.bits(2, 47, 0)
		return Done
	}
	_, ok := m.arps[i]
	delete(m.arps, i)
	return verdict(ok)
}

func (m *Model) allocMAC(*Op) Verdict { return verdict(len(m.macs) < 64) }

func (m *Model) manageMAC(o *Op) Verdict {
	i := uint32(o.bits(3, 5, 0))
	ok := m.macs[i]
	if o.flag(3, 62) {
		delete(m.macs, i)
	}
	return verdict(ok)
}

func (m *Model) pushPages(o *Op) Verdict {
	if o.flag(3, 62) {
		page := uint32(o.bits(3, 31, 0))
		ok := m.pushes[page]
		delete(m.pushes, page)
		return verdict(ok)
	}
	return verdict(o.bits(3, 61, 60) == 0)
}

func (m *Model) features(o *Op) Verdict { return verdict(o.bits(3, 31, 0) >= 8 && m.mapped(o.WQE[4])) }

func (m *Model) queryFPM(o *Op) Verdict {
	return verdict(m.ownFunction(o.bits(2, 15, 0)) && m.mapped(o.WQE[4]))
}

// commitFPM: nobody lays memory out anew while there are segments. Sequences
// always ask for what there is.
func (m *Model) commitFPM(o *Op) Verdict {
	if len(m.sds) > 0 || !m.ownFunction(o.bits(2, 15, 0)) {
		return Refused
	}
	m.backed = false
	return Done
}

func (m *Model) pagesAllocated(o *Op) Verdict {
	if !m.ownFunction(o.bits(2, 5, 0)) {
		return Refused
	}
	for t, e := range m.w.Objects {
		if e.Count == 0 || hmc.Object(t) == hmc.PBLE {
			continue
		}
		for sd := e.Base >> 21; sd <= (e.Base+uint64(e.Count)*e.Size-1)>>21; sd++ {
			if _, ok := m.sds[uint32(sd)]; !ok {
				return Refused
			}
		}
	}
	m.backed = true
	return Done
}

// updateSDs sets all segments of the command or none.
func (m *Model) updateSDs(o *Op) Verdict {
	n := o.bits(3, 3, 0)
	if !m.ownFunction(o.bits(2, 5, 0)) || n > 8 {
		return Refused
	}
	type entry struct{ cmd, data uint64 }
	var list []entry
	if !o.flag(3, 7) {
		list = append(list, entry{o.bits(0, 31, 0), o.WQE[1]})
	}
	for _, k := range []int{4, 6} {
		if o.flag(k, 63) {
			list = append(list, entry{o.bits(k, 31, 0), o.WQE[k+1]})
		}
	}
	if n > 0 && !m.mapped(o.WQE[2]&^0x7f) {
		return Refused
	}
	for k := range n {
		list = append(list, entry{o.Memory[2*k] & 0xffffffff, o.Memory[2*k+1]})
	}
	for _, e := range list {
		if sd := uint32(e.cmd & 0x7fff); e.cmd>>31 == 0 || sd < m.w.FirstSD || sd >= m.w.FirstSD+m.w.MaxSDs {
			return Refused
		}
	}
	before := maps.Clone(m.sds)
	for _, e := range list {
		sd := uint32(e.cmd & 0x7fff)
		if e.data&1 != 0 {
			m.sds[sd] = e.data&2 != 0
			continue
		}
		if _, valid := before[sd]; valid {
			m.clears(sd)
		}
		delete(m.sds, sd)
	}
	return Done
}

// clears notes what the device must complain about when a segment goes.
func (m *Model) clears(sd uint32) {
	in := func(o hmc.Object, first, n uint64) bool {
		e := m.w.Objects[o]
		return n > 0 && (e.Base+first*e.Size)>>21 <= uint64(sd) && uint64(sd) <= (e.Base+(first+n)*e.Size-1)>>21
	}
	for id := range m.qps {
		if in(hmc.QP, uint64(id), 1) {
			m.dangling = append(m.dangling, fmt.Sprintf("SD %d of QP %d", sd, id))
		}
	}
	for id := range m.cqs {
		if in(hmc.CQ, uint64(id), 1) {
			m.dangling = append(m.dangling, fmt.Sprintf("SD %d of CQ %d", sd, id))
		}
	}
	for i, s := range m.stags {
		if in(hmc.MR, uint64(i), 1) || in(hmc.PBLE, s.first, s.listed()) {
			m.dangling = append(m.dangling, fmt.Sprintf("SD %d of an STag", sd))
			return
		}
	}
}

func (m *Model) acceptPort(o *Op) Verdict {
	port := uint16(o.bits(2, 15, 0))
	if !m.object(hmc.APBVT, 0) {
		return Refused
	}
	if o.flag(3, 62) {
		m.ports[port] = true
		return Done
	}
	ok := m.ports[port]
	delete(m.ports, port)
	return verdict(ok)
}

func (m *Model) quadHash(o *Op) Verdict {
	const established, last = 1, 6
	kind, op := o.bits(3, 44, 42), o.bits(3, 62, 61)
	if kind < established || kind > last || !m.object(hmc.HTE, 0) {
		return Refused
	}
	key := quadKey{kind | o.bits(3, 60, 59)<<8 | o.bits(1, 15, 0)<<16, o.WQE[6], o.WQE[7]}
	if o.flag(3, 59) {
		key[0] |= o.bits(2, 43, 32) << 32
	}
	if kind == established {
		key[3], key[4], key[5] = o.WQE[4], o.WQE[5], o.bits(1, 31, 16)
	}
	_, exists := m.quads[key]
	qp := uint32(o.bits(1, 49, 32))
	switch op {
	case 0: // delete
		delete(m.quads, key)
		return verdict(exists)
	case 1: // add
		if exists || m.qps[qp] == nil || uint32(len(m.quads)) >= m.w.Objects[hmc.HTE].Count {
			return Refused
		}
	case 2: // modify
		if !exists || m.qps[qp] == nil {
			return Refused
		}
	default:
		return Refused
	}
	m.quads[key] = qp
	return Done
}

func (m *Model) ah(o *Op, exists bool) (uint32, bool) {
	i := uint32(o.bits(3, 23, 0))
	return i, i != 0 && m.object(hmc.FSIAV, i) && m.ahs[i] == exists
}

func (m *Model) setAH(o *Op, exists bool) Verdict {
	i, ok := m.ah(o, exists)
	if !ok || o.bits(2, 27, 20)<<16|o.bits(1, 63, 48) >= 1<<18 {
		return Refused
	}
	m.ahs[i] = true
	return Done
}

func (m *Model) createAH(o *Op) Verdict { return m.setAH(o, false) }
func (m *Model) modifyAH(o *Op) Verdict { return m.setAH(o, true) }

func (m *Model) destroyAH(o *Op) Verdict {
	i, ok := m.ah(o, true)
	if ok {
		delete(m.ahs, i)
	}
	return verdict(ok)
}

func (m *Model) group(o *Op, exists bool) (uint32, bool) {
	i := uint32(o.bits(3, 12, 0))
	_, there := m.groups[i]
	return i, i != 0 && m.object(hmc.FSIMC, i) && m.ownFunction(o.bits(1, 5, 0)) && there == exists
}

func (m *Model) setGroup(o *Op, exists bool) Verdict {
	i, ok := m.group(o, exists)
	if !ok || !m.mapped(o.WQE[4]) {
		return Refused
	}
	members := []uint32{}
	for _, w := range o.Memory[:8] {
		if w>>31&1 != 0 {
			members = append(members, uint32(w&0x3ffff))
		}
	}
	m.groups[i] = members
	return Done
}

func (m *Model) createGroup(o *Op) Verdict { return m.setGroup(o, false) }
func (m *Model) modifyGroup(o *Op) Verdict { return m.setGroup(o, true) }

func (m *Model) destroyGroup(o *Op) Verdict {
	i, ok := m.group(o, true)
	if ok {
		delete(m.groups, i)
	}
	return verdict(ok)
}

func (m *Model) node(o *Op) Verdict {
	const add, modify, remove, nodes = 0, 1, 2, 1024
	id, parent := uint16(o.bits(3, 13, 0)), uint16(o.bits(3, 29, 16))
	leaf, enabled := o.flag(3, 61), o.flag(3, 62)
	old, exists := m.nodes[id]
	if id >= nodes {
		return Refused
	}
	switch op := o.bits(3, 55, 52); {
	case op == add && !exists:
		if id == 0 {
			if leaf {
				return Refused
			}
			parent = 0
		} else if p, ok := m.nodes[parent]; !ok || p.leaf {
			return Refused
		}
		m.nodes[id] = nodeModel{parent: parent, leaf: leaf, enabled: enabled}
		return Done
	case op == modify && exists && old.leaf == leaf:
		old.enabled = enabled
		m.nodes[id] = old
		return Done
	case op == remove && exists:
		for child, n := range m.nodes {
			if n.parent == id && child != id {
				return Refused
			}
		}
		delete(m.nodes, id)
		return Done
	}
	return Refused
}

// statsFunction: the function counts only if the operation says so.
func (m *Model) statsFunction(o *Op) bool { return !o.flag(3, 60) || m.ownFunction(o.bits(5, 15, 0)) }

func (m *Model) manageStats(o *Op) Verdict {
	if !m.statsFunction(o) {
		return Refused
	}
	if o.flag(3, 62) {
		return verdict(len(m.stats) < 128)
	}
	i := uint32(o.bits(3, 6, 0))
	ok := m.stats[i]
	delete(m.stats, i)
	return verdict(ok)
}

func (m *Model) gatherStats(o *Op) Verdict {
	return verdict(m.statsFunction(o) && (!o.flag(3, 61) || m.stats[uint32(o.bits(3, 6, 0))]) && m.mapped(o.WQE[4]))
}

func (m *Model) upMap(o *Op) Verdict { return verdict(m.ownFunction(o.bits(5, 15, 0))) }
