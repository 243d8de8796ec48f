// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

const (
	ccqSize     = 2050 // IW_CCQ_SIZE
	cqeSize     = 32
	ceqeSize    = 8
	aeqeSize    = 16
	eqeValid    = 1 << 63
	maxCEQSize  = 262143
	maxAEQSize  = 524287
	shadowSize  = 64
	scrubbedCQ  = 0xffffffff // IRDMA_INVALID_CQ_IDX
	cqCheckOver = 1 << 46
	cqVirtMap   = 1 << 47
	cqEnMask    = 1 << 48
	cqCEQValid  = 1 << 49
	pblLevel1   = 1 << 44

	armNext    = 1 << 14
	armNextSE  = 1 << 15
	armSeqOne  = 1 << 16
	armSeqMask = 3 << 16
)

// CQ is a completion queue; number 0 is the control QP's.
type CQ struct {
	ID     uint32
	Events int // CEQEs for it so far
	Size   int

	r        *IRDMA
	ctx      uint64
	ceq      *CEQ
	mem      []*Buf // one run, or the pages of a virtual one
	pbl      uint64
	virtual  bool
	shadow   *Buf
	head     int
	polarity uint64
}

// CEQ is a completion event queue.
type CEQ struct {
	ID       int
	Vector   *Vector
	mem      *Buf
	size     int
	tail     int
	polarity uint64
}

// AE is an asynchronous event.
type AE struct {
	Context uint64
	ID      uint32 // QP or CQ
	WQE     uint16
	Code    uint16
	Source  uint8
	State   uint8 // of the QP afterwards
}

type aeq struct {
	mem      *Buf
	size     int
	tail     int
	polarity uint64
}

// newCQ allocates memory for a CQ, either one run or pages with a page buffer
// list.
func (r *IRDMA) newCQ(id uint32, size int, ceq *CEQ, virtual bool) (*CQ, error) {
	q := &CQ{r: r, ID: id, Size: size, ceq: ceq, virtual: virtual, polarity: eqeValid, ctx: r.cqContext(id)}
	q.shadow = r.mem.own(r.F.alloc(shadowSize))
	if !virtual {
		q.mem = []*Buf{r.mem.own(r.F.alloc(size * cqeSize))}
		return q, nil
	}
	pages := (size*cqeSize + pageSize - 1) / pageSize
	var err error
	if q.pbl, err = r.AllocPBLEs(pages); err != nil {
		return nil, err
	}
	for n := range pages {
		page := r.mem.own(r.F.alloc(pageSize))
		q.mem = append(q.mem, page)
		r.SetPBLE(q.pbl+uint64(n), page.IOVA)
	}
	return q, nil
}

// cqContext is what the driver gives as context: what CEQEs carry.
func (r *IRDMA) cqContext(id uint32) uint64 {
	if !r.Kernel.PointerContext {
		return uint64(id)
	}
	r.pointers += 0x400
	return (0xffff_8881_0000_0000 + r.pointers) >> 1
}

// wqe is what CREATE_CQ and DESTROY_CQ have in common.
func (q *CQ) wqe() WQE {
	w := WQE{0: uint64(q.Size), 1: q.ctx, 3: uint64(q.ID) | cqCEQValid, 5: q.shadow.IOVA, 7: uint64(q.r.ICE.VSI()) << 8}
	if q.ceq != nil {
		w[3] |= uint64(q.ceq.ID) << 22
	}
	if q.ID != 0 {
		w[3] |= cqEnMask
	}
	if q.virtual {
		w[3] |= cqVirtMap | pblLevel1
		w[6] = q.pbl
	}
	return w
}

// createWQE is irdma_sc_cq_create.
func (q *CQ) createWQE() WQE {
	w := q.wqe()
	w[3] |= cqCheckOver
	w[2] = min(uint64(q.Size)/2, 0x3ffff)
	if q.ID == 0 {
		w[2] = 16
	}
	if !q.virtual {
		w[4] = q.mem[0].IOVA
	}
	return w
}

// CreateCQ makes a completion queue of the number of entries on a CEQ; a
// virtual one lies in scattered pages.
func (r *IRDMA) CreateCQ(size, ceq int, virtual bool) (*CQ, error) {
	id, err := r.newCQID()
	if err != nil {
		return nil, err
	}
	q, err := r.newCQ(id, size, r.ceqs[ceq], virtual)
	if err != nil {
		return nil, err
	}
	r.cqs[q.ctx] = q
	if _, err := r.Exec(IRDMA_CQP_OP_CREATE_CQ, q.createWQE()); err != nil {
		delete(r.cqs, q.ctx)
		q.free()
		return nil, err
	}
	return q, nil
}

// Destroy removes the queue and scrubs its pending events, as the driver does.
func (q *CQ) Destroy() error {
	r := q.r
	if _, err := r.Exec(IRDMA_CQP_OP_DESTROY_CQ, q.wqe()); err != nil {
		return err
	}
	r.scrub(q)
	delete(r.cqs, q.ctx)
	q.free()
	return nil
}

// newCQID finds a number that is free (verbs.c:irdma_create_cq).
func (r *IRDMA) newCQID() (uint32, error) {
	limit := uint32(r.hmc.objects[IRDMA_HMC_IW_CQ].Count)
	for range limit {
		id := r.nextCQ
		if r.nextCQ++; r.nextCQ >= limit {
			r.nextCQ = firstCQ
		}
		if !r.cqIDs[id] {
			r.cqIDs[id] = true
			return id, nil
		}
	}
	return 0, fmt.Errorf("all %d CQs in use", limit)
}

func (q *CQ) free() {
	delete(q.r.cqIDs, q.ID)
	q.r.mem.free(q.mem...)
	q.r.mem.free(q.shadow)
}

// scrub is irdma_sc_cleanup_ceqes.
func (r *IRDMA) scrub(q *CQ) {
	e := q.ceq
	if e == nil || e.mem == nil {
		return
	}
	for n, polarity := e.tail, e.polarity; ; {
		v := e.mem.Load64(n * ceqeSize)
		if v&eqeValid != polarity {
			return
		}
		if v&^uint64(eqeValid) == q.ctx {
			e.mem.Store64(n*ceqeSize, v&eqeValid|scrubbedCQ)
		}
		if n = (n + 1) % e.size; n == 0 {
			polarity ^= eqeValid
		}
		if n == e.tail {
			return
		}
	}
}

// createCCQ is hw.c:irdma_create_ccq: its first entry completes its creation.
func (r *IRDMA) createCCQ() error {
	// The CEQ's id is in the WQE before the CEQ exists.
	q, err := r.newCQ(0, ccqSize, nil, false)
	if err != nil {
		return err
	}
	if r.Kernel.PointerContext {
		r.cqs[q.ctx] = q
	} else {
		r.cqs[0] = q
	}
	req, err := r.cqp.post(IRDMA_CQP_OP_CREATE_CQ, q.createWQE())
	if err != nil {
		return err
	}
	r.cqp.doorbell()
	r.ccq = q
	return r.pollCCQ(req)
}

// pollCCQ waits for a completion without an interrupt
// (irdma_sc_poll_for_cqp_op_done).
func (r *IRDMA) pollCCQ(req *request) error {
	err := r.F.poll(fmt.Sprintf("CCQ entry of CQP op %#04x", req.op), func() bool {
		if _, err := r.drainCCQ(); err != nil {
			r.F.fail(err)
		}
		return req.done
	})
	if err != nil {
		return err
	}
	return req.c.err()
}

// drainCCQ takes all entries and returns their number.
func (r *IRDMA) drainCCQ() (int, error) {
	n := 0
	for {
		cqe, ok := r.ccq.Next()
		if !ok {
			return n, nil
		}
		if err := r.cqp.complete(cqe); err != nil {
			return n, err
		}
		n++
	}
}

// ccqHandler is hw.c:irdma_cqp_ce_handler.
func (r *IRDMA) ccqHandler() error {
	n, err := r.drainCCQ()
	if n > 0 {
		r.ccq.Arm(false)
	}
	return err
}

func (r *IRDMA) newCEQ(id int, v *Vector) *CEQ {
	size := int(min(r.hmc.objects[IRDMA_HMC_IW_CQ].Count, maxCEQSize))
	return &CEQ{ID: id, Vector: v, size: size, polarity: eqeValid, mem: r.mem.own(r.F.alloc(size * ceqeSize))}
}

func (e *CEQ) createWQE(vsi uint16) WQE {
	return WQE{2: uint64(e.size), 3: uint64(e.ID), 4: e.mem.IOVA, 7: uint64(vsi) << 8}
}

// createCEQ0 is hw.c:irdma_setup_ceq_0 and the CCQ's first arming.
func (r *IRDMA) createCEQ0() error {
	v := r.vectors[0]
	if !r.shared() {
		v = r.vectors[1]
	}
	e := r.newCEQ(0, v)
	req, err := r.cqp.post(IRDMA_CQP_OP_CREATE_CEQ, e.createWQE(r.ICE.VSI()))
	if err != nil {
		return err
	}
	r.cqp.doorbell()
	if err := r.pollCCQ(req); err != nil {
		return err
	}
	r.ceqs = append(r.ceqs, e)
	r.ccq.ceq = e
	r.F.Write32(GLINT_CEQCTL(0), causeCtl(v, itrNone))
	r.rearm(v)
	r.ccq.Arm(false)
	return nil
}

// createCEQs is hw.c:irdma_setup_ceqs.
func (r *IRDMA) createCEQs() error {
	count := min(len(r.vectors), r.hmc.maxCEQs)
	first := 2
	if r.shared() {
		first = 1
	}
	for n := first; n < count; n++ {
		e := r.newCEQ(len(r.ceqs), r.vectors[n])
		if _, err := r.Exec(IRDMA_CQP_OP_CREATE_CEQ, e.createWQE(r.ICE.VSI())); err != nil {
			return err
		}
		r.ceqs = append(r.ceqs, e)
		r.F.Write32(GLINT_CEQCTL(e.ID), causeCtl(e.Vector, itrNone))
		r.rearm(e.Vector)
	}
	return nil
}

// createAEQ is hw.c:irdma_setup_aeq.
func (r *IRDMA) createAEQ() error {
	o := &r.hmc.objects
	size := int(min(o[IRDMA_HMC_IW_QP].Count+o[IRDMA_HMC_IW_CQ].Count, maxAEQSize))
	r.aeq = &aeq{size: size, polarity: eqeValid, mem: r.mem.own(r.F.alloc(size * aeqeSize))}
	if _, err := r.Exec(IRDMA_CQP_OP_CREATE_AEQ, WQE{2: uint64(size), 4: r.aeq.mem.IOVA}); err != nil {
		return err
	}
	r.F.Write32(PFINT_AEQCTL, causeCtl(r.vectors[0], itrNone))
	if !r.shared() {
		r.rearm(r.vectors[0])
	}
	return r.F.Err()
}

// rearm is icrdma_hw.c:icrdma_ena_irq.
func (r *IRDMA) rearm(v *Vector) {
	r.F.Write32(GLINT_DYN_CTL(v.Index), dynCtlINTENA|dynCtlCLEARPBA)
}

// processCEQ takes all events of a queue and acknowledges each
// (hw.c:irdma_process_ceq).
func (r *IRDMA) processCEQ(e *CEQ) error {
	for {
		v := e.mem.Load64(e.tail * ceqeSize)
		if v&eqeValid != e.polarity {
			return nil
		}
		if e.tail = (e.tail + 1) % e.size; e.tail == 0 {
			e.polarity ^= eqeValid
		}
		ctx := v &^ uint64(eqeValid)
		if ctx == scrubbedCQ {
			continue
		}
		q := r.cqs[ctx]
		if q == nil {
			return broken("CEQ %d: event for context %#x, which no CQ has", e.ID, ctx)
		}
		if q.ceq != e {
			return broken("CEQ %d: event for CQ %d, which is on another", e.ID, q.ID)
		}
		q.Events++
		r.F.Write32(PFPE_CQACK, q.ID)
		if q == r.ccq {
			if err := r.ccqHandler(); err != nil {
				return err
			}
		}
	}
}

// processAEQ takes all events and gives their entries back
// (hw.c:irdma_process_aeq).
func (r *IRDMA) processAEQ() error {
	a := r.aeq
	if a == nil {
		return nil
	}
	n := uint32(0)
	for ; ; n++ {
		w := a.mem.Load64(a.tail*aeqeSize + 8)
		if w&eqeValid != a.polarity {
			break
		}
		ctx := a.mem.Load64(a.tail * aeqeSize)
		if a.tail = (a.tail + 1) % a.size; a.tail == 0 {
			a.polarity ^= eqeValid
		}
		if w>>33&1 != 0 {
			return broken("AEQ overflow")
		}
		ae := AE{
			Context: ctx,
			ID:      uint32(w&0x3ffff | w>>46&1<<18),
			WQE:     uint16(w >> 18 & 0x7fff),
			Code:    uint16(w >> 34 & 0xfff),
			Source:  uint8(w >> 50 & 0xf),
			State:   uint8(w >> 54 & 7),
		}
		r.AEs = append(r.AEs, ae)
		r.react(ae)
	}
	if n > 0 {
		r.F.Write32(PFPE_AEQALLOC, n)
	}
	return nil
}

// Service is the tasklet of a vector: it takes what is there and enables the
// vector again (hw.c:irdma_dpc, irdma_ceq_dpc).
func (r *IRDMA) Service(v *Vector) error {
	for _, e := range r.ceqs {
		if e.Vector == v {
			if err := r.processCEQ(e); err != nil {
				return err
			}
		}
	}
	if v == r.vectors[0] {
		if err := r.processAEQ(); err != nil {
			return err
		}
	}
	r.rearm(v)
	return r.F.Err()
}

// WaitService waits for the vector's interrupt and services it.
func (r *IRDMA) WaitService(v *Vector) error {
	if _, err := r.F.wait(v); err != nil {
		return err
	}
	return r.Service(v)
}
