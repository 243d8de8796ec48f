// SPDX-License-Identifier: Apache-2.0

package fw

import "slices"

const (
	txqEntrySize  = 48 // ice_aqc_add_txqs_perq
	txqCtxSize    = 22 // ICE_TXQ_CTX_SZ
	qsetEntrySize = 24 // ice_aqc_add_tx_rdma_qset_entry
	disItemHeader = 6  // ice_aqc_dis_txq_item without q_id
	disIsQset     = 1 << 15
)

// txqContext is the queue context of Add Tx LAN Queues, packed
// (ice_common.c:ice_tlan_ctx_info). The LAN unit reads most of it.
type txqContext [txqCtxSize]byte

// sourceVSI is src_vsi, bits 80 to 89.
func (c *txqContext) sourceVSI() uint16 { return le.Uint16(c[10:]) & 0x3FF }

// leafEntry is one queue in a buffer of 0x0C30 or 0x0C33.
type leafEntry struct {
	queue queueID
	elem  element
	teid  []byte // where its node's identifier goes
}

// addLeaves makes the leaves of one group, all or none. start, if any, sets
// the i-th of them going.
func (s *scheduler) addLeaves(parent *node, leaves []leafEntry, start func(i int) error) errno {
	switch {
	case len(leaves) == 0:
		return rcEINVAL
	case parent == nil:
		return rcENOENT
	case parent.layer != qgrpLayer:
		return rcEINVAL
	case !s.room(parent, len(leaves)):
		return rcENOSPC
	}
	for i := range leaves {
		l := &leaves[i]
		same := func(o leafEntry) bool { return o.queue == l.queue }
		if s.leaves[l.queue] != nil || slices.ContainsFunc(leaves[:i], same) {
			return rcEEXIST
		}
		l.elem[0], l.elem[3] = elemLeaf, 0
		if rc := s.check(&l.elem, leafLayer); rc != rcOK {
			return rc
		}
	}
	if start != nil {
		for i := range leaves {
			if err := start(i); err != nil {
				return rcEINVAL
			}
		}
	}
	for _, l := range leaves {
		n := s.add(parent, l.elem)
		n.queue = l.queue
		s.leaves[l.queue] = n
		le.PutUint32(l.teid, n.teid)
	}
	return rcOK
}

func addTxQueues(f *Firmware, r *request) errno {
	var done [2]byte
	return batch(r.buf, uint16(r.p()[0]), done[:], groupHeader, func(b []byte) (int, errno) {
		used := groupHeader + int(b[4])*txqEntrySize
		if used > len(b) {
			return 0, rcEINVAL
		}
		var leaves []leafEntry
		var contexts []txqContext
		for e := range slices.Chunk(b[groupHeader:used], txqEntrySize) {
			id, ctx := le.Uint16(e), txqContext(e[8:])
			if id >= NumQueues {
				return 0, rcEINVAL
			}
			if f.sw.vsis[ctx.sourceVSI()] == nil {
				return 0, rcENOENT
			}
			leaves = append(leaves, leafEntry{queueID{id: id}, element(e[32:]), e[4:8]})
			contexts = append(contexts, ctx)
		}
		started := 0
		start := func(i int) error {
			if f.cfg.LAN == nil {
				return nil
			}
			err := f.cfg.LAN.EnableTxQueue(leaves[i].queue.id, contexts[i])
			if err == nil {
				started++
			}
			return err
		}
		rc := f.sched.addLeaves(f.sched.nodes[le.Uint32(b)], leaves, start)
		if rc != rcOK {
			for _, l := range leaves[:started] {
				f.cfg.LAN.DisableTxQueue(l.queue.id)
			}
		}
		return used, rc
	})
}

func addQsets(f *Firmware, r *request) errno {
	var done [2]byte
	return batch(r.buf, uint16(r.p()[0]), done[:], groupHeader, func(b []byte) (int, errno) {
		used := groupHeader + int(le.Uint16(b[4:]))*qsetEntrySize
		if used > len(b) {
			return 0, rcEINVAL
		}
		var leaves []leafEntry
		for e := range slices.Chunk(b[groupHeader:used], qsetEntrySize) {
			id := le.Uint16(e)
			if id >= maxQsets {
				return 0, rcEINVAL
			}
			leaves = append(leaves, leafEntry{queueID{rdma: true, id: id}, element(e[8:]), e[4:8]})
		}
		return used, f.sched.addLeaves(f.sched.nodes[le.Uint32(b)], leaves, nil)
	})
}

// disableTxQueues stops queues and queue sets and removes their leaves: the
// driver forgets them without a Delete Scheduling Elements. The memory of a
// queue is the driver's again when the answer is there. The type of the
// command makes no difference: there are no VMs or VFs whose reset it could
// be part of.
func disableTxQueues(f *Firmware, r *request) errno {
	p := r.p()
	le.PutUint32(p[4:], 0) // blocked_cgds
	r.grace = true
	var done [2]byte
	return batch(r.buf, uint16(p[1]), done[:], disItemHeader, func(b []byte) (int, errno) {
		n := int(b[4])
		size := disItemHeader + 2*n
		if n == 0 || size > len(b) {
			return 0, rcEINVAL
		}
		parent := f.sched.nodes[le.Uint32(b)]
		if parent == nil {
			return 0, rcENOENT
		}
		ids := elements16(b[disItemHeader:size])
		for i := range n {
			q := queueID{rdma: ids.get(i)&disIsQset != 0, id: ids.get(i) &^ disIsQset}
			leaf := f.sched.leaves[q]
			switch {
			case leaf == nil:
				return 0, rcENOENT
			case leaf.parent != parent:
				return 0, rcEINVAL
			}
			if !q.rdma && f.cfg.LAN != nil {
				f.cfg.LAN.DisableTxQueue(q.id)
			}
			f.sched.remove(leaf)
		}
		// Items are padded to four bytes.
		return size + size%4, rcOK
	})
}

var txqCommands = []command{
	{op: 0x0C30, name: "add_txqs", rd: true, minBuf: groupHeader + txqEntrySize, run: addTxQueues, source: "ice_common.c:ice_ena_vsi_txq"},
	{op: 0x0C31, name: "dis_txqs", rd: true, minBuf: disItemHeader + 2, run: disableTxQueues, source: "ice_common.c:ice_dis_vsi_txq, ice_dis_vsi_rdma_qset"},
	{op: 0x0C33, name: "add_rdma_qset", rd: true, minBuf: groupHeader + qsetEntrySize, run: addQsets, source: "ice_common.c:ice_ena_vsi_rdma_qset"},
}
