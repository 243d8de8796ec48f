// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma"
)

var stateNames = map[uint8]string{stateIdle: "IDLE", stateRTS: "RTS", stateSQD: "SQD", stateRTR: "RTR", stateError: "ERROR"}

// Check compares a device with the model: of what is the sequences', nothing is
// missing and nothing left over, and all is as the operations made it.
func (m *Model) Check(s rdma.Snapshot) error {
	seen := 0
	for _, q := range s.QPs {
		if !m.w.QPs.Has(q.ID) {
			continue
		}
		seen++
		want := m.qps[q.ID]
		if want == nil {
			return fmt.Errorf("QP %d is there still", q.ID)
		}
		if q.State != stateNames[want.state] || q.Suspended != want.suspended || q.SendCQ != want.sendCQ || q.RecvCQ != want.recvCQ {
			return fmt.Errorf("QP %d is %s, suspended %v, of CQs %d and %d; want %s, %v, %d, %d",
				q.ID, q.State, q.Suspended, q.SendCQ, q.RecvCQ, stateNames[want.state], want.suspended, want.sendCQ, want.recvCQ)
		}
	}
	if err := all("QPs", seen, len(m.qps)); err != nil {
		return err
	}
	seen = 0
	for _, c := range s.CQs {
		if !m.w.CQs.Has(c.ID) {
			continue
		}
		seen++
		if want, ok := m.cqs[c.ID]; !ok || c.Size != want {
			return fmt.Errorf("CQ %d has %d entries, want %d (0: none of that number)", c.ID, c.Size, want)
		}
	}
	if err := all("CQs", seen, len(m.cqs)); err != nil {
		return err
	}
	if err := m.checkSTags(s.MRs); err != nil {
		return err
	}
	if err := m.checkTables(s); err != nil {
		return err
	}
	seen = 0
	for _, sd := range s.SDs {
		seen++
		if direct, ok := m.sds[sd.Index]; !ok || direct != (sd.Type == "direct") {
			return fmt.Errorf("SD %d is %s; want valid %v, direct %v", sd.Index, sd.Type, ok, direct)
		}
	}
	return all("SDs", seen, len(m.sds))
}

func all(what string, seen, want int) error {
	if seen != want {
		return fmt.Errorf("%d %s, want %d", seen, what, want)
	}
	return nil
}

func (m *Model) checkSTags(list []mr.Entry) error {
	seen := 0
	for _, e := range list {
		i := m.slot(e.Index)
		if !m.w.MRs.Has(i) {
			continue
		}
		seen++
		want := m.stags[i]
		if want == nil || want.index != e.Index || want.pd != e.PD || want.window != e.Kind.Window() || want.valid != (e.State == mr.Valid) {
			return fmt.Errorf("STag %#x of PD %d is %v, %v; want %+v", e.Index<<8, e.PD, e.Kind, e.State, want)
		}
		if e.Windows != 0 || e.Parent != 0 {
			return fmt.Errorf("STag %#x has %d windows and parent %#x: nobody bound one", e.Index<<8, e.Windows, e.Parent)
		}
	}
	return all("STags", seen, len(m.stags))
}

func (m *Model) checkTables(s rdma.Snapshot) error {
	seen := 0
	for _, a := range s.AHs {
		if m.w.AHs.Has(a.Index) {
			if seen++; !m.ahs[a.Index] {
				return fmt.Errorf("AH %d is there", a.Index)
			}
		}
	}
	if err := all("AHs", seen, len(m.ahs)); err != nil {
		return err
	}
	seen = 0
	for _, a := range s.ARPs {
		if i := uint32(a.Index); m.w.ARPs.Has(i) {
			var mac uint64
			for _, b := range a.MAC {
				mac = mac<<8 | uint64(b)
			}
			if seen++; m.arps[i] != mac {
				return fmt.Errorf("ARP entry %d is %#x, want %#x", i, mac, m.arps[i])
			}
		}
	}
	if err := all("ARP entries", seen, len(m.arps)); err != nil {
		return err
	}
	seen = 0
	for _, g := range s.Multicast {
		if i := uint32(g.Index); m.w.Groups.Has(i) {
			var members []uint32
			for _, member := range g.Members {
				members = append(members, member.QP)
			}
			if seen++; !slices.Equal(members, m.groups[i]) {
				return fmt.Errorf("group %d has members %d, want %d", i, members, m.groups[i])
			}
		}
	}
	if err := all("groups", seen, len(m.groups)); err != nil {
		return err
	}
	seen = 0
	for _, n := range s.WorkNodes {
		if m.w.Nodes.Has(uint32(n.ID)) {
			want, ok := m.nodes[n.ID]
			if seen++; !ok || n.Leaf != want.leaf || n.Parent != want.parent || n.Enabled != want.enabled || n.Leaf && uint32(n.QSHandle) != want.handle {
				return fmt.Errorf("work scheduler node %+v, want %+v", n, want)
			}
		}
	}
	nodes := len(m.nodes)
	if m.w.Leaf != 0 {
		nodes--
	}
	if err := all("work scheduler nodes", seen, nodes); err != nil {
		return err
	}
	if (s.AEQ != nil) != m.aeq {
		return fmt.Errorf("AEQ is there: %v", s.AEQ != nil)
	}
	seen = 0
	for _, q := range s.CEQs {
		if m.w.CEQs.Has(q.ID) {
			if seen++; !m.ceqs[q.ID] {
				return fmt.Errorf("CEQ %d is there", q.ID)
			}
		}
	}
	want := 0
	for id := range m.ceqs {
		if m.w.CEQs.Has(id) {
			want++
		}
	}
	return all("CEQs", seen, want)
}

// Complained tells whether the events since the operation before tell of every
// object that it left without what it needs.
func (m *Model) Complained(events []any) error {
	for _, d := range m.dangling {
		if !slices.ContainsFunc(events, func(e any) bool { return complaint(e) == d }) {
			return fmt.Errorf("nothing tells of %s", d)
		}
	}
	return nil
}

// Dangling tells whether it left any.
func (m *Model) Dangling() bool { return len(m.dangling) > 0 }

func complaint(e any) string {
	switch e := e.(type) {
	case cqp.CQInUse:
		return fmt.Sprintf("CQ %d of QP %d", e.CQ, e.QP)
	case cqp.SDInUse:
		if e.Object == "STag" {
			return fmt.Sprintf("SD %d of an STag", e.SD)
		}
		return fmt.Sprintf("SD %d of %s %d", e.SD, e.Object, e.ID)
	}
	return ""
}

// Ends are operations that end all that is left, in an order that leaves
// nothing without what it needs, and of a PD as it was made.
func (m *Model) Ends() (list []Op) {
	add := func(name string, op uint64, w WQE) {
		w[3] |= op << 32
		list = append(list, Op{Name: name, WQE: w})
	}
	for k, qp := range m.quads {
		w := WQE{1: k[0]>>16&0xffff | k[5]<<16 | uint64(qp)<<32, 2: k[0] >> 32 << 32,
			3: k[0]&7<<42 | k[0]>>8&3<<59, 4: k[3], 5: k[4], 6: k[1], 7: k[2]}
		add("MANAGE_QHASH", opQuadHash, w)
	}
	for id := range m.groups {
		add("DESTROY_MCAST_GRP", opDestroyGroup, WQE{1: m.w.Function, 3: uint64(id)})
	}
	for id, q := range m.qps {
		add("DESTROY_QP", opDestroyQP, WQE{3: uint64(id) | uint64(q.kind)<<48})
	}
	for id := range m.cqs {
		add("DESTROY_CQ", opDestroyCQ, WQE{3: uint64(id)})
	}
	for _, s := range m.stags {
		w := WQE{1: uint64(s.pd) << 46, 2: uint64(s.index)<<8 | uint64(s.pd>>18)<<54}
		if !s.window {
			w[3] = 1 << 43
		}
		add("DEALLOC_STAG", opDeallocSTag, w)
	}
	for id := range m.ahs {
		add("DESTROY_AH", opDestroyAH, WQE{3: uint64(id)})
	}
	for id := range m.arps {
		add("MANAGE_ARP", opManageARP, WQE{3: uint64(id)})
	}
	for _, id := range m.nodesFromBelow() {
		w := WQE{3: uint64(id) | 2<<52}
		if m.nodes[id].leaf {
			w[3] |= 1 << 61
		}
		add("WORK_SCHED_NODE", opNode, w)
	}
	for id := range m.macs {
		add("MANAGE_LOC_MAC", opManageMAC, WQE{3: uint64(id) | 1<<62})
	}
	for id := range m.stats {
		add("MANAGE_STATS", opManageStats, WQE{3: uint64(id)})
	}
	for port := range m.ports {
		add("MANAGE_APBVT", opAPBVT, WQE{2: uint64(port)})
	}
	for page := range m.pushes {
		add("MANAGE_PUSH_PAGES", opPushPages, WQE{3: uint64(page) | 1<<62})
	}
	for id := range m.ceqs {
		if m.w.CEQs.Has(id) {
			add("DESTROY_CEQ", opDestroyCEQ, WQE{3: uint64(id)})
		}
	}
	return list
}

// nodesFromBelow are the sequences' nodes, each before the one it is below.
func (m *Model) nodesFromBelow() (list []uint16) {
	children := map[uint16]int{}
	for id, n := range m.nodes {
		if n.parent != id {
			children[n.parent]++
		}
	}
	left := maps.Clone(m.nodes)
	for more := true; more; {
		more = false
		for id, n := range left {
			if children[id] > 0 || !m.w.Nodes.Has(uint32(id)) {
				continue
			}
			list, more = append(list, id), true
			children[n.parent]--
			delete(left, id)
		}
	}
	return list
}
