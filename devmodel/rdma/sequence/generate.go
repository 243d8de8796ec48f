// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Generator makes operations, most of them such that a device in the state of
// the model does them.
type Generator struct {
	w     World
	m     *Model
	rnd   *rand.Rand
	slot  uint64
	kinds []kind // each as often as it is likely
}

type kind struct {
	name string
	op   uint8
	make func(*Generator, *Op)
}

// New makes a generator of operations on what m says there is.
func New(w World, m *Model, rnd *rand.Rand) *Generator {
	g := &Generator{w: w, m: m, rnd: rnd}
	for _, k := range []struct {
		weight int
		kind
	}{
		{5, kind{"CREATE_QP", opCreateQP, (*Generator).createQP}},
		{9, kind{"MODIFY_QP", opModifyQP, (*Generator).modifyQP}},
		{3, kind{"DESTROY_QP", opDestroyQP, (*Generator).destroyQP}},
		{6, kind{"CREATE_CQ", opCreateCQ, (*Generator).createCQ}},
		{2, kind{"MODIFY_CQ", opModifyCQ, (*Generator).modifyCQ}},
		{2, kind{"DESTROY_CQ", opDestroyCQ, (*Generator).destroyCQ}},
		{4, kind{"ALLOC_STAG", opAllocSTag, (*Generator).registration}},
		{9, kind{"REG_MR", opRegMR, (*Generator).registration}},
		{2, kind{"REG_SMR", opRegSMR, (*Generator).registration}},
		{2, kind{"QUERY_STAG", opQuerySTag, (*Generator).ofSTag}},
		{9, kind{"DEALLOC_STAG", opDeallocSTag, (*Generator).ofSTag}},
		{2, kind{"ALLOC_LOC_MAC", opAllocMAC, func(*Generator, *Op) {}}},
		{3, kind{"MANAGE_LOC_MAC", opManageMAC, (*Generator).manageMAC}},
		{4, kind{"MANAGE_ARP", opManageARP, (*Generator).manageARP}},
		{3, kind{"MANAGE_PUSH_PAGES", opPushPages, (*Generator).pushPages}},
		{1, kind{"QUERY_FEATURES", opFeatures, (*Generator).buffer}},
		{2, kind{"UPLOAD_CONTEXT", opUpload, (*Generator).upload}},
		{2, kind{"CREATE_CEQ", opCreateCEQ, (*Generator).eventQueue}},
		{1, kind{"DESTROY_CEQ", opDestroyCEQ, (*Generator).eventQueue}},
		{5, kind{"CREATE_AH", opCreateAH, (*Generator).ah}},
		{2, kind{"MODIFY_AH", opModifyAH, (*Generator).ah}},
		{4, kind{"DESTROY_AH", opDestroyAH, (*Generator).ah}},
		{3, kind{"UPDATE_PE_SDS", opUpdateSDs, (*Generator).updateSDs}},
		{1, kind{"QUERY_FPM_VAL", opQueryFPM, (*Generator).buffer}},
		{1, kind{"COMMIT_FPM_VAL", opCommitFPM, (*Generator).commit}},
		{4, kind{"FLUSH_WQES", opFlush, (*Generator).flush}},
		{3, kind{"MANAGE_APBVT", opAPBVT, (*Generator).acceptPort}},
		{1, kind{"NOP", opNOP, func(*Generator, *Op) {}}},
		{5, kind{"MANAGE_QHASH", opQuadHash, (*Generator).quadHash}},
		{3, kind{"CREATE_MCAST_GRP", opCreateGroup, (*Generator).group}},
		{2, kind{"MODIFY_MCAST_GRP", opModifyGroup, (*Generator).group}},
		{2, kind{"DESTROY_MCAST_GRP", opDestroyGroup, (*Generator).group}},
		{2, kind{"SUSPEND_QP", opSuspend, (*Generator).ofQP}},
		{2, kind{"RESUME_QP", opResume, (*Generator).ofQP}},
		{1, kind{"SHMC_PAGES_ALLOCATED", opPages, (*Generator).pages}},
		{6, kind{"WORK_SCHED_NODE", opNode, (*Generator).node}},
		{3, kind{"MANAGE_STATS", opManageStats, (*Generator).manageStats}},
		{2, kind{"GATHER_STATS", opGatherStats, (*Generator).gatherStats}},
		{1, kind{"UP_MAP", opUpMap, (*Generator).upMap}},
		{1, kind{"unknown", 0, (*Generator).unknown}},
	} {
		for range k.weight {
			g.kinds = append(g.kinds, k.kind)
		}
	}
	if w.AEQ {
		g.kinds = append(g.kinds, kind{"CREATE_AEQ", opCreateAEQ, (*Generator).eventQueue},
			kind{"DESTROY_AEQ", opDestroyAEQ, func(*Generator, *Op) {}})
	}
	return g
}

// Next is another operation. What it writes lies where the last few have not
// written.
func (g *Generator) Next() Op {
	k := g.kinds[g.rnd.IntN(len(g.kinds))]
	switch first := g.w.SDs.First; {
	case g.w.SDs.N == 0 || !g.oneOf(3):
	case len(g.m.sds) == 0 && g.oneOf(2):
		k = kind{"COMMIT_FPM_VAL", opCommitFPM, (*Generator).commit}
	case !g.m.sds[first]: // most operations need it
		k = kind{"UPDATE_PE_SDS", opUpdateSDs, (*Generator).firstSD}
	case !g.m.backed:
		k = kind{"SHMC_PAGES_ALLOCATED", opPages, (*Generator).pages}
	}
	o := Op{Name: k.name}
	o.WQE[3] = uint64(k.op) << 32
	k.make(g, &o)
	if g.oneOf(16) {
		g.spoil(&o)
	}
	return o
}

func (g *Generator) oneOf(n int) bool { return g.rnd.IntN(n) == 0 }

func (g *Generator) flag(o *Op, word, bit, oneOf int) {
	if g.oneOf(oneOf) {
		o.WQE[word] |= 1 << bit
	}
}

// spoil changes a bit of the header that names no object, or the place of
// something. Left alone are high bits of numbers, which generations of the device
// read differently, what would freeze a QP, and where memory that matters is.
func (g *Generator) spoil(o *Op) {
	op := o.opcode()
	switch g.rnd.IntN(3) {
	case 0:
		bit := 38 + g.rnd.IntN(25)
		aCQ := op == opCreateCQ || op == opModifyCQ || op == opDestroyCQ
		if op == opUpload && bit == 62 || g.w.Running && op == opCreateQP && bit == 45 || aCQ && bit >= 50 || op == opRegSMR && bit == 43 {
			return
		}
		o.WQE[3] ^= 1 << bit
	case 1:
		if op == opUpdateSDs || op == opCommitFPM || op == opCreateGroup || op == opModifyGroup {
			return
		}
		word := []int{2, 4, 5}[g.rnd.IntN(3)]
		o.WQE[word] ^= 1 << g.rnd.IntN(8)
	case 2:
		if op == opCreateQP || op == opModifyQP {
			o.WQE[2] = g.w.Nowhere
		}
	}
}

// fill is memory of the operation's own.
func (g *Generator) fill(o *Op, words int) {
	o.Addr = g.w.Fill + g.slot*SlotSize
	o.Memory = make([]uint64, words)
	g.slot = (g.slot + 1) % (FillSize / SlotSize)
}

// number picks an object's: mostly one that is live, or not, as asked for;
// sometimes any, sometimes one that there is not.
func number[V any](g *Generator, r Range, live map[uint32]V, wantLive bool, count uint32) uint64 {
	switch n := g.rnd.IntN(20); {
	case n == 0:
		return uint64(count + g.rnd.Uint32N(3))
	case n < 3 || wantLive && len(live) == 0:
		return uint64(r.First + g.rnd.Uint32N(r.N))
	case wantLive:
		return uint64(pick(g, live))
	}
	for range 4 {
		id := r.First + g.rnd.Uint32N(r.N)
		if _, ok := live[id]; !ok {
			return uint64(id)
		}
	}
	return uint64(r.First + g.rnd.Uint32N(r.N))
}

// pick is one of the keys.
func pick[V any](g *Generator, live map[uint32]V) uint32 {
	if len(live) == 0 {
		return 0
	}
	keys := slices.Sorted(maps.Keys(live)) // the same for a seed
	return keys[g.rnd.IntN(len(keys))]
}

func (g *Generator) count(o hmc.Object) uint32 { return g.w.Objects[o].Count }

// zero and scratch are addresses of n bytes.
func (g *Generator) zero(n int) uint64    { return g.place(g.w.Zero, ZeroSize, n) }
func (g *Generator) scratch(n int) uint64 { return g.place(g.w.Scratch, ScratchSize, n) }

func (g *Generator) place(base uint64, size, n int) uint64 {
	const align = 256
	return base + uint64(g.rnd.IntN((size-n)/align))*align
}

func (g *Generator) pble() uint64 { return uint64(g.w.PBLEs.First + g.rnd.Uint32N(g.w.PBLEs.N)) }

// function is mostly the device's own.
func (g *Generator) function() uint64 {
	if g.oneOf(30) {
		return g.w.Function + 1
	}
	return g.w.Function
}

// queue fills in the memory of a queue of so many bytes.
func (g *Generator) queue(o *Op, bytes int) {
	if g.oneOf(3) {
		o.WQE[3] |= 1<<47 | 1<<44
		o.WQE[6] = g.pble()
		return
	}
	o.WQE[4] = g.scratch(bytes)
}

func (g *Generator) createCQ(o *Op) {
	entries := 1 + g.rnd.IntN(300)
	o.WQE[0] = uint64(entries)
	o.WQE[1] = g.rnd.Uint64() >> 1
	o.WQE[2] = uint64(entries) / 2
	o.WQE[3] |= number(g, g.w.CQs, g.m.cqs, false, g.count(hmc.CQ)) | 1<<46 | 1<<48
	o.WQE[5] = g.scratch(64)
	g.queue(o, entries*32)
	if !g.oneOf(4) {
		o.WQE[3] |= 1<<49 | number(g, Range{0, 1}, g.m.ceqs, true, g.w.MaxCEQs)<<22
	}
	if g.oneOf(30) {
		o.WQE[0] = 0
	}
}

func (g *Generator) modifyCQ(o *Op) {
	entries := 1 + g.rnd.IntN(300)
	o.WQE[0] = uint64(entries)
	o.WQE[3] |= number(g, g.w.CQs, g.m.cqs, true, g.count(hmc.CQ)) | 1<<43 | 1<<46
	o.WQE[5] = g.scratch(64)
	g.queue(o, entries*32)
}

func (g *Generator) destroyCQ(o *Op) {
	o.WQE[3] |= number(g, g.w.CQs, g.m.cqs, true, g.count(hmc.CQ))
}

func (g *Generator) eventQueue(o *Op) {
	n := 1 + g.rnd.IntN(256)
	o.WQE[2] = uint64(n)
	g.queue(o, n*16)
	if op := o.opcode(); op != opCreateAEQ {
		o.WQE[3] |= number(g, g.w.CEQs, g.sequencesCEQs(), op == opDestroyCEQ, g.w.MaxCEQs)
	}
}

// sequencesCEQs are those that are not the driver's own.
func (g *Generator) sequencesCEQs() map[uint32]bool {
	own := map[uint32]bool{}
	for id := range g.m.ceqs {
		if g.w.CEQs.Has(id) {
			own[id] = true
		}
	}
	return own
}

// writeContext makes a QP context (ctrl.c:irdma_sc_qp_setctx_roce_gen_2), not
// always a right one.
func (g *Generator) writeContext(o *Op, virtual bool) {
	const words = 32
	g.fill(o, words)
	o.WQE[2] = o.Addr
	set := func(at int, v uint64) { o.Memory[at/8] |= v }
	set(0, 1<<3|uint64(g.rnd.IntN(4))<<8)
	for _, at := range []int{8, 16} {
		if virtual {
			set(at, g.pble())
		} else {
			set(at, g.zero(32<<10)) // which 256 quanta of 32 bytes fit into
		}
	}
	set(24, uint64(g.rnd.IntN(7))<<8|uint64(g.rnd.IntN(7))<<12|0xc000<<32|4791<<48)
	mtu := uint64(256) << g.rnd.IntN(5)
	if g.oneOf(20) {
		mtu = uint64(g.rnd.IntN(9000))
	}
	set(48, mtu<<16)
	set(56, uint64(g.rnd.IntN(4))<<48)
	cq := func() uint64 {
		if g.oneOf(20) {
			return uint64(g.count(hmc.CQ))
		}
		return uint64(pick(g, g.m.cqs))
	}
	set(136, cq()|cq()<<32)
	set(160, 1<<20|1<<21)
	set(168, g.rnd.Uint64())
}

func (g *Generator) createQP(o *Op) {
	kind := uint64(typeRC + g.rnd.IntN(2))
	virtual := !g.w.Running && g.oneOf(5)
	o.WQE[3] |= number(g, g.w.QPs, g.m.qps, false, g.count(hmc.QP)) | kind<<48 | 1<<47 | 1<<51 | stateIdle<<60
	if virtual {
		o.WQE[3] |= 1 << 45
	}
	o.WQE[5] = g.zero(64)
	g.writeContext(o, virtual)
}

// ofQP names a QP.
func (g *Generator) ofQP(o *Op) {
	o.WQE[3] |= number(g, g.w.QPs, g.m.qps, true, g.count(hmc.QP))
}

func (g *Generator) modifyQP(o *Op) {
	g.ofQP(o)
	q := g.m.qps[uint32(o.bits(3, 23, 0))]
	to := uint64(1 + g.rnd.IntN(6))
	if q != nil && !g.oneOf(4) {
		to = uint64(map[uint8]uint8{stateIdle: stateRTR, stateRTR: stateRTS, stateRTS: stateSQD, stateSQD: stateRTS, stateError: stateError}[q.state])
	}
	o.WQE[3] |= to << 60
	if q != nil {
		o.WQE[3] |= uint64(q.kind) << 48
	}
	g.flag(o, 3, 47, 2)
	g.flag(o, 3, 42, 2)
	g.flag(o, 3, 55, 8)
	o.WQE[5] = g.zero(64)
	g.writeContext(o, false)
}

func (g *Generator) destroyQP(o *Op) {
	g.ofQP(o)
	if !g.oneOf(8) {
		o.WQE[3] |= 1 << 55
	}
}

func (g *Generator) upload(o *Op) {
	g.ofQP(o)
	if q := g.m.qps[uint32(o.bits(3, 23, 0))]; q != nil && !g.oneOf(8) {
		o.WQE[3] |= uint64(q.kind) << 48
	}
	o.WQE[2] = g.scratch(256)
}

func (g *Generator) flush(o *Op) {
	g.ofQP(o)
	o.WQE[1] = uint64(g.rnd.IntN(0x1000)) | uint64(g.rnd.IntN(16))<<16
	o.WQE[2] = 0x0001_0001_0001_0001
	g.flag(o, 3, 59, 4)
	g.flag(o, 3, 60, 2)
	for _, bit := range []int{61, 62} {
		if !g.oneOf(4) {
			o.WQE[3] |= 1 << bit
		}
	}
}

// stagSlot is an index into the table of STags. Where the table is as large as an
// index can be none is too high: then it is 0, which there is not either.
func (g *Generator) stagSlot(wantLive bool) uint64 {
	n := number(g, g.w.MRs, g.m.stags, wantLive, g.count(hmc.MR))
	if slot := g.m.slot(uint32(n)); slot < g.count(hmc.MR) && !g.w.MRs.Has(slot) {
		return 0
	}
	return n
}

// registration is of a region or, if it allocates, of a window.
func (g *Generator) registration(o *Op) {
	const rights = 52 - 48 + 1
	pd := uint64(1 + g.rnd.IntN(3))
	length := uint64(g.rnd.IntN([]int{1, 5000, 1 << 20, 1 << 31}[g.rnd.IntN(4)]))
	index := g.stagSlot(false) | uint64(g.rnd.IntN(4))<<22
	start := g.rnd.Uint64() >> g.rnd.IntN(40)
	if g.oneOf(20) {
		start = ^uint64(0) - uint64(g.rnd.IntN(1000))
	}
	o.WQE[0], o.WQE[1] = start, length|pd<<46
	o.WQE[2] = index<<8 | uint64(g.rnd.IntN(256))
	o.WQE[3] |= uint64(g.rnd.IntN(1<<rights)) << 48
	g.flag(o, 3, 53, 2)
	g.flag(o, 3, 59, 2)
	if g.oneOf(8) {
		o.WQE[3] |= 1 << 60
		o.WQE[5] = g.function()
	}
	switch o.opcode() {
	case opAllocSTag:
		if g.oneOf(3) { // a window, of type 1 or 2
			o.WQE[3] &^= 1 << 53
			g.flag(o, 3, 42, 2)
			return
		}
	case opRegSMR:
		parent := g.m.stags[pick(g, g.m.stags)]
		if parent == nil {
			break
		}
		o.WQE[2] |= uint64(parent.index) << 32
		if !g.oneOf(4) {
			o.WQE[0] = o.WQE[0]>>30<<30 | parent.start&(1<<30-1)
			o.WQE[1] = parent.length | pd<<46
		}
	}
	o.WQE[3] |= 1 << 43
	o.WQE[3] |= uint64(g.rnd.IntN(3)) << 46
	switch level := []uint64{0, 0, 1, 1, 1, 3, 3, 2}[g.rnd.IntN(8)]; {
	case level == 2 && !g.oneOf(4):
	default:
		o.WQE[3] |= level << 44
	}
	if o.opcode() == opRegMR && o.bits(3, 45, 44) == 0 {
		o.WQE[4] = g.scratch(4096)
	}
	o.WQE[6] = g.pble()
	if g.oneOf(20) {
		o.WQE[6] = uint64(g.count(hmc.PBLE)) - uint64(g.rnd.IntN(3))
	}
}

// ofSTag names one that is live, mostly as it was made.
func (g *Generator) ofSTag(o *Op) {
	slot := uint32(g.stagSlot(true))
	index, pd, region := uint64(slot), uint64(1+g.rnd.IntN(3)), true
	if s := g.m.stags[slot]; s != nil && !g.oneOf(12) {
		index, pd, region = uint64(s.index), uint64(s.pd), !s.window
	}
	o.WQE[1], o.WQE[2] = pd<<46, index<<8
	if region != g.oneOf(20) {
		o.WQE[3] |= 1 << 43
	}
}

func (g *Generator) manageMAC(o *Op) {
	o.WQE[3] |= uint64(pick(g, g.m.macs))
	if g.oneOf(8) {
		o.WQE[3] |= uint64(g.rnd.IntN(64))
	}
	o.WQE[4] = g.rnd.Uint64() >> 16
	g.flag(o, 3, 62, 2)
}

func (g *Generator) manageARP(o *Op) {
	add := !g.oneOf(3)
	o.WQE[2] = g.rnd.Uint64() >> 16
	if g.oneOf(3) {
		o.WQE[2] = g.w.MAC
	}
	o.WQE[3] |= number(g, g.w.ARPs, g.m.arps, !add, g.count(hmc.ARP))
	if add {
		o.WQE[3] |= 1<<42 | 1<<43
	}
	g.flag(o, 3, 44, 40)
	if g.oneOf(40) {
		o.WQE[3] &^= 0xfff // there is no entry 0
	}
}

func (g *Generator) pushPages(o *Op) {
	o.WQE[2] = uint64(g.rnd.IntN(8))
	if g.oneOf(2) {
		o.WQE[3] |= 1<<62 | uint64(pick(g, g.m.pushes))
	}
}

func (g *Generator) buffer(o *Op) {
	o.WQE[4] = g.scratch(4096)
	if g.oneOf(20) {
		o.WQE[4] = g.w.Nowhere
	}
	if o.opcode() == opFeatures {
		o.WQE[3] |= uint64(g.rnd.IntN(300))
	} else {
		o.WQE[2] = g.function()
	}
}

// commitWord is where the commit buffer has the counts of types
// (ctrl.c:irdma_sc_cfg_iw_fpm).
func commitWord(o hmc.Object) (word int, ok bool) {
	words := map[hmc.Object]int{hmc.QP: 0, hmc.CQ: 1, hmc.HTE: 3, hmc.ARP: 4, hmc.APBVT: 5, hmc.MR: 6, hmc.XF: 7, hmc.XFFL: 8, hmc.Q1: 9,
		hmc.Q1FL: 10, hmc.TIMER: 11, hmc.FSIMC: 12, hmc.FSIAV: 13, hmc.PBLE: 14, hmc.RRF: 16, hmc.RRFFL: 17, hmc.HDR: 18}
	word, ok = words[o]
	return word, ok
}

// commit asks for the layout that there is, mostly too late.
func (g *Generator) commit(o *Op) {
	const words = 26
	g.fill(o, words)
	o.WQE[2], o.WQE[4] = g.function(), o.Addr
	o.WQE[3] |= 8 * words
	for t, e := range g.w.Objects {
		if word, ok := commitWord(hmc.Object(t)); ok {
			o.Memory[word] = uint64(e.Count)
		}
	}
}

func (g *Generator) pages(o *Op) { o.WQE[2] = g.function() }
func (g *Generator) upMap(o *Op) { o.WQE[0], o.WQE[5] = g.rnd.Uint64(), g.function() }

// Fields of segment descriptors (hmc.c:irdma_set_sd_entry).
const (
	sdWrite, sdPE            = 1 << 31, 1 << 15
	sdPages, sdDirect, sdSet = 512 << 2, 2, 1
)

// firstSD gives all objects but PBLEs their memory back.
func (g *Generator) firstSD(o *Op) {
	o.WQE[0] = sdWrite | sdPE | uint64(g.w.SDs.First)
	o.WQE[1] = g.place(g.w.Zero, ZeroSize, 2<<20)&^0xfff | sdPages | sdDirect | sdSet
	o.WQE[2] = g.w.Function
}

// updateSDs sets and clears segments of the sequences: their own memory is
// zero, so that nothing is found behind them.
func (g *Generator) updateSDs(o *Op) {
	entry := func() (cmd, data uint64) {
		sd := g.w.SDs.First + g.rnd.Uint32N(g.w.SDs.N)
		if sd == g.w.SDs.First && !g.oneOf(4) {
			sd++
		}
		cmd, data = sdWrite|sdPE|uint64(sd), sdPages
		if g.oneOf(2) {
			data |= sdDirect
		}
		if !g.oneOf(3) {
			data |= g.place(g.w.Zero, ZeroSize, 2<<20)&^0xfff | sdSet
		}
		if g.oneOf(40) {
			cmd &^= sdWrite
		}
		return cmd, data
	}
	o.WQE[2] = g.function()
	if g.oneOf(12) && g.w.SDs.First == 0 { // all go at once
		g.fill(o, 16)
		o.WQE[2] |= o.Addr
		o.WQE[3] |= 1<<7 | uint64(g.w.SDs.N)
		for k := range g.w.SDs.N {
			o.Memory[2*k], o.Memory[2*k+1] = sdWrite|sdPE|uint64(k), sdPages
		}
		return
	}
	o.WQE[0], o.WQE[1] = entry()
	for _, k := range []int{4, 6} {
		if g.oneOf(4) {
			cmd, data := entry()
			o.WQE[k], o.WQE[k+1] = cmd|1<<63, data
		}
	}
	if g.oneOf(4) {
		g.fill(o, 16)
		n := 1 + g.rnd.IntN(8)
		for k := range n {
			o.Memory[2*k], o.Memory[2*k+1] = entry()
		}
		o.WQE[2] |= o.Addr
		o.WQE[3] |= uint64(n)
	}
}

func (g *Generator) acceptPort(o *Op) {
	o.WQE[2] = uint64(g.rnd.IntN(6))
	g.flag(o, 3, 62, 2)
}

func (g *Generator) quadHash(o *Op) {
	const few = 3
	o.WQE[0] = g.w.MAC
	o.WQE[1] = uint64(g.rnd.IntN(few)) | uint64(g.rnd.IntN(few))<<16 | uint64(pick(g, g.m.qps))<<32
	o.WQE[3] |= uint64(1+g.rnd.IntN(2))<<42 | 1<<60 | uint64(g.rnd.IntN(3))<<61
	o.WQE[4], o.WQE[6] = uint64(g.rnd.IntN(few)), uint64(g.rnd.IntN(few))
	if g.oneOf(8) {
		o.WQE[3] |= 1 << 59
		o.WQE[2] = uint64(g.rnd.IntN(few)) << 32
	}
}

func (g *Generator) ah(o *Op) {
	i := number(g, g.w.AHs, g.m.ahs, o.opcode() != opCreateAH, g.count(hmc.FSIAV))
	if g.oneOf(40) {
		i = 0
	}
	o.WQE[0] = g.w.MAC << 16
	o.WQE[1] = uint64(g.rnd.IntN(4)) << 48
	o.WQE[2] = 64<<32 | uint64(pick(g, g.m.arps))<<48
	o.WQE[3] |= i | 1<<59
	o.WQE[4], o.WQE[6] = g.rnd.Uint64()>>32, g.rnd.Uint64()>>32
}

func (g *Generator) group(o *Op) {
	g.fill(o, 8)
	for k := range g.rnd.IntN(9) {
		o.Memory[k] = uint64(pick(g, g.m.qps)) | 1<<31 | 4791<<32
	}
	o.WQE[0] = 0x01005e000000 | uint64(g.rnd.IntN(100))
	o.WQE[1] = g.function()
	o.WQE[3] |= number(g, g.w.Groups, g.m.groups, o.opcode() != opCreateGroup, g.count(hmc.FSIMC)) | 1<<60
	o.WQE[4] = o.Addr
	if g.oneOf(30) {
		o.WQE[4] = g.w.Nowhere
	}
}

func (g *Generator) node(o *Op) {
	live := map[uint32]bool{}
	inner := []uint32{uint32(g.w.Leaf)}
	for _, id := range slices.Sorted(maps.Keys(g.m.nodes)) {
		if g.w.Nodes.Has(uint32(id)) {
			live[uint32(id)] = true
		}
		if !g.m.nodes[id].leaf {
			inner = append(inner, uint32(id))
		}
	}
	op := uint64(g.rnd.IntN(3))
	const nodes = 1024
	id := number(g, g.w.Nodes, live, op != 0, nodes)
	if _, root := g.m.nodes[0]; !root && g.w.Nodes.Has(0) && g.oneOf(2) {
		op, id = 0, 0
	}
	parent := uint64(inner[g.rnd.IntN(len(inner))])
	leaf := g.oneOf(2)
	if n, ok := g.m.nodes[uint16(id)]; ok && !g.oneOf(12) {
		leaf, parent = n.leaf, uint64(n.parent)
	}
	o.WQE[3] |= id | parent<<16 | op<<52 | 1<<59
	if leaf {
		o.WQE[3] |= 1 << 61
	}
	g.flag(o, 3, 62, 2)
	o.WQE[4] = 9<<48 | 1<<32
}

func (g *Generator) manageStats(o *Op) {
	o.WQE[3] |= 1 << 60
	o.WQE[5] = g.function()
	if g.oneOf(2) {
		o.WQE[3] |= 1 << 62
	} else {
		o.WQE[3] |= uint64(pick(g, g.m.stats))
	}
}

func (g *Generator) gatherStats(o *Op) {
	o.WQE[4], o.WQE[5] = g.scratch(4096), g.function()
	g.flag(o, 3, 60, 2)
	if g.oneOf(2) {
		o.WQE[3] |= 1<<61 | uint64(pick(g, g.m.stats))
	}
}

// unknown is an opcode that a function of this generation does not do.
func (g *Generator) unknown(o *Op) {
	list := []uint64{0x06, 0x07, 0x08, 0x10, 0x15, 0x17, 0x1a, 0x30, 0x3f}
	o.WQE[3] |= list[g.rnd.IntN(len(list))] << 32
}
