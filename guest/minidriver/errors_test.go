// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"slices"
	"testing"
)

func cqpError(err error) *CQPError {
	var e *CQPError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func TestAdminErrors(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	i := m.i
	const absent = 700 | vsiNumValid
	with := func(op uint16, p0 uint16, buf []byte) *Command {
		c := &Command{Op: op, RD: buf != nil, Buf: buf}
		c.put16(0, p0)
		return c
	}
	sched := func(parent uint32, tail ...byte) []byte {
		b := le.AppendUint32(nil, parent)
		return append(append(b, 1, 0, 0, 0), tail...)
	}
	elem := make([]byte, schedElemSize)
	putSchedElem(elem, 0x7777)
	nothing := []AQCode{AQENOENT, AQEINVAL}
	tests := []struct {
		name string
		c    *Command
		want []AQCode
	}{
		{"unknown opcode", with(0x0fff, 0, nil), []AQCode{AQESRCH}},
		{"unknown opcode with buffer", with(0x0ffe, 0, make([]byte, 64)), []AQCode{AQESRCH}},
		{"update of an absent VSI", with(ice_aqc_opc_update_vsi, absent, make([]byte, vsiPropsSize)), nothing},
		{"free of an absent VSI", with(ice_aqc_opc_free_vsi, absent, nil), nothing},
		{"VSI in a short buffer", with(ice_aqc_opc_add_vsi, 0, make([]byte, 16)), []AQCode{AQEINVAL}},
		{"RSS key of an absent VSI", with(ice_aqc_opc_set_rss_key, absent, make([]byte, 52)), nothing},
		{"removal of an absent rule", with(ice_aqc_opc_remove_sw_rules, 1, rule{index: 0x3fff}.bytes(false)), []AQCode{AQENOENT}},
		{"a rule that is there", with(ice_aqc_opc_add_sw_rules, 1, i.macRule(i.MAC).bytes(true)), []AQCode{AQEEXIST}},
		{"a rule for an absent VSI", with(ice_aqc_opc_add_sw_rules, 1,
			rule{kind: ruleTx, recipe: recipeMAC, src: 700, act: 700<<4 | actValid, header: dummyHeader}.bytes(true)), nothing},
		{"more rules than buffer", with(ice_aqc_opc_add_sw_rules, 99, i.macRule([6]byte{2, 3}).bytes(true)), nothing},
		{"prune list that was not allocated", with(ice_aqc_opc_add_sw_rules, 1, listRule(rulePruneSet, 0x3f0, i.VSI())), nothing},
		{"element of an absent parent", with(ice_aqc_opc_add_sched_elems, 1, sched(0x7777, elem...)), nothing},
		{"elements beyond the buffer", with(ice_aqc_opc_add_sched_elems, 1, append(le.AppendUint32(nil, i.sched.tc.teid), 0xff, 0xff, 0, 0)), []AQCode{AQEINVAL}},
		{"query of an absent element", with(ice_aqc_opc_get_sched_elems, 1, append(make([]byte, 4), 0x77, 0x77, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), nothing},
		{"deletion of an absent element", with(ice_aqc_opc_delete_sched_elems, 1, sched(i.sched.tc.teid, 0x77, 0x77, 0, 0)), nothing},
		{"queue of an absent parent", with(ice_aqc_opc_add_txqs, 1, append([]byte{0x77, 0x77, 0, 0, 1, 0, 0, 0}, make([]byte, 48)...)), nothing},
		{"end of an absent queue", with(ice_aqc_opc_dis_txqs, 0x0108, append(le.AppendUint32(nil, i.main.lan.teid), 1, 0, 60, 0)), nothing},
		{"free of a resource that is not allocated", resourceCommand(ice_aqc_opc_free_res, ICE_AQC_RES_TYPE_HASH_PROF_BLDR_PROFID, 127), nothing},
		{"resource of an unknown type", resourceCommand(ice_aqc_opc_alloc_res, 0x7f, 0), []AQCode{AQEINVAL, AQENOENT, AQENOSPC}},
	}
	nvm := &Command{Op: ice_aqc_opc_nvm_read, Buf: make([]byte, 16)}
	nvm.P = [16]byte{0: 0xf8, 1: 0xff, 2: 0xff, 3: 1 << 7, 6: 16}
	tests = append(tests, struct {
		name string
		c    *Command
		want []AQCode
	}{"flash past its end", nvm, []AQCode{AQEINVAL}})
	for _, test := range tests {
		err := i.Do(test.c)
		if got := aqCode(err); !slices.Contains(test.want, got) {
			t.Errorf("%s: %v, want one of %v", test.name, err, test.want)
		}
	}
	must(t, i.Do(&Command{Op: ice_aqc_opc_get_ver}))
	must(t, m.takeDown())
}

func TestCQPErrors(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r := m.r
	spare := r.mem.own(m.f.alloc(64 << 10))
	const wrongState, badParameter = 0x8002, 0x8001
	cq := func(id uint32, change func(w *WQE)) WQE {
		q := &CQ{r: r, ID: id, Size: 64, ceq: r.ceqs[0], mem: []*Buf{spare}, shadow: spare.part(32<<10, shadowSize)}
		w := q.createWQE()
		if change != nil {
			change(&w)
		}
		return w
	}
	qp := func(id uint64, change func(w *WQE)) WQE {
		q := &QP{r: r, ID: uint32(id), kind: qpTypeRC, Cfg: QPConfig{Send: r.gsiCQ, Recv: r.gsiCQ}, qsHandle: r.ws.qsHandle,
			ctx: spare.part(0, qpCtxSize), mem: extent{bufs: []*Buf{spare.part(4096, 32<<10)}}, rqOff: 4096, shadowOff: 8192}
		q.sq.init(64)
		q.rq.init(64, 0)
		q.fillContext()
		w := q.wqe(qpMACValid | qpCQNumValid | IRDMA_QP_STATE_IDLE<<qpStateBit)
		if change != nil {
			change(&w)
		}
		return w
	}
	tests := []struct {
		name string
		op   uint8
		w    WQE
	}{
		{"opcode 0x17", 0x17, WQE{}},
		{"opcode 0x1a", 0x1a, WQE{}},
		{"opcode 0x3f", 0x3f, WQE{}},
		{"DESTROY_QP of none", IRDMA_CQP_OP_DESTROY_QP, qp(100, nil)},
		{"MODIFY_QP of none", IRDMA_CQP_OP_MODIFY_QP, qp(100, nil)},
		{"FLUSH_WQES of none", IRDMA_CQP_OP_FLUSH_WQES, WQE{3: 100 | 3<<61}},
		{"CREATE_QP that exists", IRDMA_CQP_OP_CREATE_QP, qp(1, nil)},
		{"CREATE_QP out of range", IRDMA_CQP_OP_CREATE_QP, qp(0xfffff, nil)},
		{"CREATE_QP with its context nowhere", IRDMA_CQP_OP_CREATE_QP, qp(100, func(w *WQE) { w[2] = 0xdead_beef_0000 })},
		{"DESTROY_CQ of none", IRDMA_CQP_OP_DESTROY_CQ, cq(900, nil)},
		{"CREATE_CQ that exists", IRDMA_CQP_OP_CREATE_CQ, cq(r.gsiCQ.ID, nil)},
		{"CREATE_CQ out of range", IRDMA_CQP_OP_CREATE_CQ, cq(0x7ffff, nil)},
		{"CREATE_CQ misaligned", IRDMA_CQP_OP_CREATE_CQ, cq(900, func(w *WQE) { w[4] += 8 })},
		{"CREATE_CQ of no entries", IRDMA_CQP_OP_CREATE_CQ, cq(900, func(w *WQE) { w[0] = 0 })},
		{"CREATE_CQ on no CEQ", IRDMA_CQP_OP_CREATE_CQ, cq(900, func(w *WQE) { w[3] |= 60 << 22 })},
		{"DESTROY_CEQ of none", IRDMA_CQP_OP_DESTROY_CEQ, WQE{2: 64, 3: 60}},
		{"CREATE_CEQ that exists", IRDMA_CQP_OP_CREATE_CEQ, WQE{2: 64, 4: spare.IOVA}},
		{"CREATE_CEQ out of range", IRDMA_CQP_OP_CREATE_CEQ, WQE{2: 64, 3: 1000, 4: spare.IOVA}},
		{"CREATE_AEQ twice", IRDMA_CQP_OP_CREATE_AEQ, WQE{2: 64, 4: spare.IOVA}},
		{"MANAGE_ARP out of range", IRDMA_CQP_OP_MANAGE_ARP, WQE{2: 1, 3: 4095 | 1<<42}},
		{"work scheduler node below none", IRDMA_CQP_OP_WORK_SCHED_NODE, WQE{3: 7 | 500<<16, 4: 1 << 32}},
		{"deletion of no work scheduler node", IRDMA_CQP_OP_WORK_SCHED_NODE, WQE{3: 7 | 1<<16 | wsDelete<<52}},
		{"DESTROY_ADDR_HANDLE of none", IRDMA_CQP_OP_DESTROY_ADDR_HANDLE, WQE{3: 9}},
		{"CREATE_ADDR_HANDLE out of range", IRDMA_CQP_OP_CREATE_ADDR_HANDLE, WQE{3: 0xffff}},
		{"UPDATE_PE_SDS out of range", IRDMA_CQP_OP_UPDATE_PE_SDS, WQE{0: sdCmdWrite | sdCmdPE | 0x7fff, 1: spare.IOVA | sdPageCount | sdDirect | sdValid}},
	}
	for _, test := range tests {
		_, err := r.Exec(test.op, test.w)
		e := cqpError(err)
		if e == nil || e.Major != 0xffff || e.Minor != wrongState && e.Minor != badParameter {
			t.Errorf("%s: %v, want error 0xffff/0x8001 or 0x8002", test.name, err)
			continue
		}
		if codes := m.f.Read32(PFPE_CQPERRCODES); codes != uint32(e.Major)<<16|uint32(e.Minor) {
			t.Errorf("%s: PFPE_CQPERRCODES is %#x, the CCQ said %v", test.name, codes, e)
		}
		if m.f.Read32(PFPE_CQPTAIL)&cqpTailOpErr == 0 {
			t.Errorf("%s: PFPE_CQPTAIL shows no error", test.name)
		}
	}
	_, err := r.Exec(IRDMA_CQP_OP_NOP, WQE{})
	must(t, err)
	if tail := m.f.Read32(PFPE_CQPTAIL); tail&cqpTailOpErr != 0 {
		t.Errorf("PFPE_CQPTAIL is %#x after a success", tail)
	}
	r.mem.free(spare)
	must(t, m.takeDown())
}

// QP states that do not follow.
func TestQPTransitions(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r := m.r
	cq, err := r.CreateCQ(64, 0, false)
	must(t, err)
	qp, err := r.CreateQP(cq, cq)
	must(t, err)
	refused := func(state uint8) {
		t.Helper()
		from := qp.State
		if _, err := qp.Modify(state); cqpError(err) == nil {
			t.Errorf("from state %d to %d: %v, want a CQP error", from, state, err)
		}
	}
	refused(IRDMA_QP_STATE_RTS)
	must(t, qp.Connect(qp.ID))
	refused(IRDMA_QP_STATE_RTR)
	_, err = qp.Modify(IRDMA_QP_STATE_ERROR)
	must(t, err)
	refused(IRDMA_QP_STATE_RTS)
	_, err = qp.Modify(IRDMA_QP_STATE_ERROR)
	must(t, err)
	must(t, qp.Destroy())
	must(t, cq.Destroy())
	must(t, m.takeDown())
}

// Flushing tells which queues had work, writes one entry per queue and echoes
// what the context says.
func TestFlush(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r := m.r
	cq, err := r.CreateCQ(64, 0, false)
	must(t, err)
	for _, test := range []struct {
		sends, receives int
		minor           []uint16
	}{
		{0, 0, []uint16{0}}, {0, 3, []uint16{2}}, {2, 0, []uint16{3}}, {1, 1, []uint16{4}},
	} {
		qp, err := r.CreateQP(cq, cq)
		must(t, err)
		// A peer that is not there: what the QP may find before it is told to end
		// stays in work.
		must(t, qp.Connect(qp.ID+100))
		for range test.sends {
			must(t, qp.put(&SendWR{Signalled: true}))
		}
		for range test.receives {
			must(t, qp.PostRecv(RecvWR{}))
		}
		c, err := qp.Modify(IRDMA_QP_STATE_ERROR)
		must(t, err)
		if !slices.Contains(test.minor, c.Minor) {
			t.Errorf("%+v: flush completes with minor %d", test, c.Minor)
		}
		queues := min(test.sends, 1) + min(test.receives, 1)
		for n := range queues {
			cqe, ok := cq.Next()
			if !ok {
				t.Fatalf("%+v: %d entries", test, n)
			}
			const flushMajor, flushGeneral = 1, 1
			if cqe[1] != qp.compCtx || cqe[2]>>32&0xffffff != uint64(qp.ID) || cqe[3]&cqeError == 0 ||
				cqe[3]>>16&0xffff != flushMajor || cqe[3]&0xffff != flushGeneral || cqe[3]>>32&0x7fff != 0 {
				t.Errorf("%+v: entry %#x for QP %d with context %#x", test, cqe, qp.ID, qp.compCtx)
			}
		}
		if cqe, ok := cq.Next(); ok {
			t.Errorf("%+v: one entry too many: %#x", test, cqe)
		}
		must(t, qp.Destroy())
	}
	must(t, cq.Destroy())
	must(t, m.takeDown())
	quiet(t, complaints)
}

// A WQE with the wrong valid bit is not executed; the device waits for a
// doorbell with a right one.
func TestWrongPolarity(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r, q := m.r, &m.r.cqp
	before := m.f.Read32(PFPE_CQPTAIL)
	off := int(q.head)*cqpWQESize + 24
	req, err := r.post(IRDMA_CQP_OP_NOP, WQE{})
	must(t, err)
	right := q.ring.Load64(off)
	q.ring.Store64(off, right^wqeValid)
	q.doorbell()
	if tail := m.f.Read32(PFPE_CQPTAIL); tail != before {
		t.Errorf("PFPE_CQPTAIL went from %#x to %#x", before, tail)
	}
	if _, err := r.drainCCQ(); err != nil || req.done {
		t.Errorf("completed: %v, %v", req.done, err)
	}
	if len(complaints.take()) == 0 {
		t.Error("nobody complained")
	}
	q.ring.Store64(off, right)
	q.doorbell()
	_, err = r.wait(req)
	must(t, err)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// Doorbells before there is anything behind them, and after it is gone.
func TestDoorbellsWithoutCQP(t *testing.T) {
	ctx, sockets, complaints := cards(t, 1)
	f := plug(t, ctx, sockets[0])
	ring := func() {
		for _, reg := range []uint32{PFPE_CQPDB, PFPE_CQARM, PFPE_CQACK, PFPE_AEQALLOC, PFPE_WQEALLOC} {
			f.Write32(reg, 3)
		}
		f.flush()
	}
	ring()
	i, err := Probe(f, Linux73(), Options{})
	must(t, err)
	ring()
	if len(complaints.take()) == 0 {
		t.Error("nobody complained about doorbells without a CQP")
	}
	r, err := ProbeRDMA(i, Options{})
	must(t, err)
	quiet(t, complaints)
	must(t, r.Remove())
	ring()
	must(t, i.Remove())
	must(t, f.Guest.Check())
	check(t, f, Linux73())
}

// Contexts that no CQP can be made of: an error, and a good one works afterwards.
func TestBadCQPContext(t *testing.T) {
	ctx, sockets, _ := cards(t, 1)
	f := plug(t, ctx, sockets[0])
	i, err := Probe(f, Linux73(), Options{})
	must(t, err)
	ring, err := f.Guest.Alloc(cqpSize * cqpWQESize)
	must(t, err)
	b, err := f.Guest.Alloc(cqpCtxSize)
	must(t, err)
	for name, bad := range map[string]func() uint64{
		"ring of 2^16":       func() uint64 { b.Store64(0, protocolRoCE<<3|15<<8); return b.IOVA },
		"ring misaligned":    func() uint64 { b.Store64(8, ring.IOVA+64); return b.IOVA },
		"generation 3":       func() uint64 { b.Store64(32, 2<<16); return b.IOVA },
		"context nowhere":    func() uint64 { return 0x6_6666_0000 },
		"context half there": func() uint64 { return f.Guest.ROM().IOVA + romPages*pageSize - 32 },
	} {
		b.Store64(0, protocolRoCE<<3|sqSizeEnc2048<<8)
		b.Store64(8, ring.IOVA)
		b.Store64(16, 1)
		b.Store64(24, cqpContext)
		b.Store64(32, hwMajVerGen2<<16)
		addr := bad()
		f.Write32(PFPE_CCQPSTATUS, 0)
		f.Write32(PFPE_CCQPHIGH, uint32(addr>>32))
		f.Write32(PFPE_CCQPLOW, uint32(addr))
		if status := f.Read32(PFPE_CCQPSTATUS); status&ccqpErr == 0 {
			t.Errorf("%s: PFPE_CCQPSTATUS is %#x, want an error", name, status)
		}
		f.Write32(PFPE_CCQPHIGH, 0)
		f.Write32(PFPE_CCQPLOW, 0)
	}
	ring.Free()
	b.Free()
	r, err := ProbeRDMA(i, Options{})
	must(t, err)
	must(t, r.Remove())
	must(t, i.Remove())
}
