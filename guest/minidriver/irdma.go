// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// IRDMA is the irdma driver bound to the auxiliary device of an ICE, in RoCE
// mode.
type IRDMA struct {
	ICE    *ICE
	F      *Function
	Kernel Kernel
	AEs    []AE // asynchronous events so far

	opts     Options
	mem      arena
	vectors  []*Vector // by irdma's own numbers
	cqp      cqp
	hmc      hmc
	pble     pblePool
	ccq      *CQ
	cqs      map[uint64]*CQ // by context
	ceqs     []*CEQ
	aeq      *aeq
	stats    *Buf
	gsiCQ    *CQ
	gsi      *QP
	ws       *wsTree
	features []uint64
	qps      map[uint32]*QP
	failed   []*QP           // that an event told of
	stags    map[uint32]bool // indexes in use
	cqIDs    map[uint32]bool
	nextCQ   uint32
	nextQP   uint32
	pointers uint64

	neighbours map[[6]byte]uint16 // of the address table
	handles    map[uint32]bool    // address handles in use
	groups     map[uint32]bool    // multicast groups in use
}

// Ids that the driver keeps for itself (hw.c:irdma_initialize_hw_rsrc).
const (
	firstCQ = 3
	firstQP = 3
)

// LocalARP is the index of the table entry with the port's own address.
const LocalARP = 1

// ProbeRDMA binds irdma (icrdma_if.c:icrdma_probe). On error the IRDMA is
// returned too, for Abandon.
func ProbeRDMA(i *ICE, o Options) (*IRDMA, error) {
	r := &IRDMA{ICE: i, F: i.F, Kernel: i.Kernel, opts: o, vectors: i.rdmaV, cqs: make(map[uint64]*CQ),
		qps: make(map[uint32]*QP), stags: make(map[uint32]bool), cqIDs: make(map[uint32]bool),
		neighbours: make(map[[6]byte]uint16), handles: make(map[uint32]bool), groups: make(map[uint32]bool), nextCQ: firstCQ, nextQP: firstQP}
	if !i.Caps.RDMA {
		return r, broken("no RDMA capability")
	}
	const fewest = 2
	if len(r.vectors) < fewest {
		return r, fmt.Errorf("irdma: %d vectors", len(r.vectors))
	}
	return r, o.run("irdma", r.probeSteps())
}

func (r *IRDMA) probeSteps() []step {
	features := step{"features", r.queryFeatures}
	steps := []step{
		{"engine", r.checkEngine},
		{"CQP", func() error { return r.cqp.create(r.F, &r.mem) }},
	}
	if r.Kernel.FeaturesFirst {
		steps = append(steps, features)
	}
	steps = append(steps,
		step{"HMC layout", r.configureHMC},
		step{"HMC objects", r.createHMC},
		step{"CCQ", r.createCCQ})
	if !r.Kernel.FeaturesFirst {
		steps = append(steps, features)
	}
	return append(steps,
		step{"CEQ 0", r.createCEQ0},
		step{"CEQs", r.createCEQs},
		step{"PBLEs", r.initPBLEs},
		step{"AEQ", r.createAEQ},
		step{"statistics", r.initStats},
		step{"ARP", func() error { return r.SetARP(LocalARP, r.ICE.MAC) }},
		step{"GSI QP", r.createGSI},
		step{"RDMA filter", func() error { return r.ICE.RDMAFilter(true) }},
	)
}

// Remove unbinds irdma (icrdma_if.c:icrdma_remove, hw.c:irdma_ctrl_deinit_hw).
// All CQs and QPs of the user must be gone. It goes on after an error and
// returns the first.
func (r *IRDMA) Remove() error {
	steps := []step{
		{"GSI QP", r.destroyGSI},
		{"AEQ", r.destroyAEQ},
		{"PBLEs", func() error { r.dropPBLEs(); return nil }},
		{"CEQs", r.destroyCEQs},
		{"CEQ 0", r.destroyCEQ0},
		{"CCQ", r.destroyCCQ},
		{"HMC objects", r.deleteHMC},
		{"CQP", func() error { return r.cqp.destroy(&r.mem) }},
	}
	filter := step{"RDMA filter", func() error { return r.ICE.RDMAFilter(false) }}
	if r.Kernel.PointerContext { // 6.x withdraws it last
		steps = append(steps, filter)
	} else {
		steps = append([]step{filter}, steps...)
	}
	var first error
	for _, s := range steps {
		if err := s.do(); err != nil && first == nil {
			first = fmt.Errorf("irdma: removing %s: %w", s.name, err)
		}
	}
	r.Abandon()
	return first
}

// Abandon frees all memory without telling the device: right after a reset, or
// when the device is gone.
func (r *IRDMA) Abandon() { r.mem.freeAll() }

// Trace are the opcodes of all control operations so far, in order.
func (r *IRDMA) Trace() []uint8 { return append([]uint8(nil), r.cqp.trace...) }

// Objects is the committed layout of the HMC, by IRDMA_HMC_IW_*.
func (r *IRDMA) Objects() []HMCObject { return append([]HMCObject(nil), r.hmc.objects[:]...) }

// shared says whether the AEQ shares a vector with CEQ 0
// (hw.c:irdma_save_msix_info).
func (r *IRDMA) shared() bool { return len(r.vectors) <= r.opts.cpus() }

// fn is the HMC function id.
func (r *IRDMA) fn() uint64 { return uint64(r.ICE.PF) }

// checkEngine is ctrl.c:irdma_sc_dev_init.
func (r *IRDMA) checkEngine() error {
	const ready = 0x80
	for _, reg := range []uint32{GLPE_CPUSTATUS0, GLPE_CPUSTATUS1, GLPE_CPUSTATUS2} {
		if v := r.F.Read32(reg); r.F.Err() == nil && v != ready {
			return broken("GLPE_CPUSTATUS at %#x is %#x", reg, v)
		}
	}
	if size := r.F.Read32(GLPCI_LBARCTRL) >> 4 & 3; r.F.Err() == nil && size != 1 && size != 2 {
		return broken("GLPCI_LBARCTRL.PE_DB_SIZE is %d", size)
	}
	return r.F.Err()
}

// post writes an operation into the ring without ringing. Its completion is
// taken by whoever services the CCQ.
func (r *IRDMA) post(op uint8, w WQE) (*request, error) {
	if err := r.F.Err(); err != nil {
		return nil, err
	}
	return r.cqp.post(op, w)
}

// Exec does one control operation and waits for its completion by interrupt
// alone, so that a lost one is an error and not a delay
// (utils.c:irdma_wait_event).
func (r *IRDMA) Exec(op uint8, w WQE) (Completion, error) {
	req, err := r.post(op, w)
	if err != nil {
		return Completion{}, err
	}
	r.cqp.doorbell()
	return r.wait(req)
}

func (r *IRDMA) wait(req *request) (Completion, error) {
	for !req.done {
		if err := r.WaitService(r.ccq.ceq.Vector); err != nil {
			return Completion{}, fmt.Errorf("CQP op %#04x: %w", req.op, err)
		}
	}
	return req.c, req.c.err()
}

// ExecPolled does one control operation and looks at the CCQ itself. It does not
// arm it again: it is for the time before the first arming and after the last.
func (r *IRDMA) ExecPolled(op uint8, w WQE) (Completion, error) {
	req, err := r.post(op, w)
	if err != nil {
		return Completion{}, err
	}
	r.cqp.doorbell()
	err = r.pollCCQ(req)
	return req.c, err
}

// queryFeatures is ctrl.c:irdma_get_rdma_features.
func (r *IRDMA) queryFeatures() error {
	size := int(roundUp(uint64(8*r.Kernel.FeatureTypes), 16))
	b := r.mem.own(r.F.alloc(size))
	defer r.mem.free(b)
	w := WQE{3: uint64(size), 4: b.IOVA}
	if r.ccq == nil {
		if err := r.cqp.registers(IRDMA_CQP_OP_QUERY_RDMA_FEATURES, w); err != nil {
			return err
		}
	} else if _, err := r.ExecPolled(IRDMA_CQP_OP_QUERY_RDMA_FEATURES, w); err != nil {
		return err
	}
	head := b.Load64(0)
	count := int(head >> 32 & 0xffff)
	if head>>48 != 0 || count < 2 || count > r.Kernel.FeatureTypes {
		return broken("feature query: first entry %#x", head)
	}
	for n := range count {
		r.features = append(r.features, b.Load64(8*n))
	}
	return nil
}

// initStats is ctrl.c:irdma_vsi_stats_init with a first gathering.
func (r *IRDMA) initStats() error {
	const halves = 2 * 1024
	r.stats = r.mem.own(r.F.alloc(halves))
	return r.GatherStats()
}

// GatherStats has the device write its counters. The driver does not wait; the
// next operation that does finds the completion.
func (r *IRDMA) GatherStats() error {
	if _, err := r.post(IRDMA_CQP_OP_GATHER_STATS, WQE{4: r.stats.IOVA, 5: r.fn()}); err != nil {
		return err
	}
	r.cqp.doorbell()
	return nil
}

// SetARP puts an address into the table. The driver does not wait.
func (r *IRDMA) SetARP(index uint16, mac [6]byte) error {
	const valid, permanent = 1 << 42, 1 << 43
	return r.arp(WQE{2: macWord(mac), 3: uint64(index) | valid | permanent})
}

// DropARP removes an entry of the table. The driver does not wait.
func (r *IRDMA) DropARP(index uint16) error { return r.arp(WQE{3: uint64(index)}) }

func (r *IRDMA) arp(w WQE) error {
	if _, err := r.post(IRDMA_CQP_OP_MANAGE_ARP, w); err != nil {
		return err
	}
	r.cqp.doorbell()
	return nil
}

// macWord is a MAC address as a number, first octet highest.
func macWord(mac [6]byte) (v uint64) {
	for _, b := range mac {
		v = v<<8 | uint64(b)
	}
	return v
}

func (r *IRDMA) disable(v *Vector) { r.F.Write32(GLINT_DYN_CTL(v.Index), 0) }

func (r *IRDMA) destroyAEQ() error {
	if r.aeq == nil {
		return nil
	}
	if !r.shared() {
		r.F.Write32(PFINT_AEQCTL, causeCtl(r.vectors[0], itrNone)&^uint32(causeEna))
		r.disable(r.vectors[0])
	}
	r.F.Write32(PFINT_AEQCTL, 0)
	_, err := r.Exec(IRDMA_CQP_OP_DESTROY_AEQ, WQE{})
	r.mem.free(r.aeq.mem)
	r.aeq = nil
	return err
}

// destroyCEQs is hw.c:irdma_del_ceqs.
func (r *IRDMA) destroyCEQs() error {
	for len(r.ceqs) > 1 {
		e := r.ceqs[1]
		r.ceqs = append(r.ceqs[:1], r.ceqs[2:]...)
		r.F.Write32(GLINT_CEQCTL(e.ID), causeCtl(e.Vector, itrNone)&^uint32(causeEna))
		r.disable(e.Vector)
		_, err := r.Exec(IRDMA_CQP_OP_DESTROY_CEQ, WQE{2: uint64(e.size), 3: uint64(e.ID)})
		r.mem.free(e.mem)
		if err != nil {
			return err
		}
	}
	return nil
}

// destroyCEQ0 is hw.c:irdma_del_ceq_0: no interrupts any more.
func (r *IRDMA) destroyCEQ0() error {
	if len(r.ceqs) == 0 {
		return nil
	}
	e := r.ceqs[0]
	if r.shared() {
		r.F.Write32(GLINT_CEQCTL(0), causeCtl(e.Vector, itrNone)&^uint32(causeEna))
	}
	r.disable(e.Vector)
	_, err := r.ExecPolled(IRDMA_CQP_OP_DESTROY_CEQ, WQE{2: uint64(e.size)})
	r.mem.free(e.mem)
	r.ceqs = nil
	return err
}

// destroyCCQ is ctrl.c:irdma_sc_ccq_destroy: CQPTAIL tells.
func (r *IRDMA) destroyCCQ() error {
	if r.ccq == nil {
		return nil
	}
	q := r.ccq
	if _, err := r.drainCCQ(); err != nil {
		return err
	}
	q.ceq = nil
	err := r.cqp.registers(IRDMA_CQP_OP_DESTROY_CQ, q.wqe())
	r.ccq = nil
	delete(r.cqs, q.ctx)
	q.free()
	return err
}
