// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
)

// buffer is how CQs, CEQs and the AEQ name their memory: the base in word 4,
// or the first PBLE in word 6 where bit 47 says it is virtual.
func (w *wqe) buffer() (hmc.Buffer, error) {
	if !w.flag(3, 47) {
		return hmc.Buffer{Base: w.q[4]}, nil
	}
	if l := w.bits(3, 45, 44); l != 1 {
		return hmc.Buffer{}, fmt.Errorf("virtual queue with LPBLSIZE %d: %w", l, errParameter)
	}
	return hmc.Buffer{Virtual: true, First: uint32(w.bits(6, 27, 0))}, nil
}

func (w *wqe) cqID() uint32 { return uint32(w.bits(3, 18, 0)) }

// Sizes and alignments of queue memory (defs.h:IRDMA_CQ0_ALIGNMENT and the
// like, irdma.h:IRDMA_SHADOW_AREA_SIZE).
const (
	queueAlign     = 256
	shadowSize     = 64
	shadowAlign    = 8
	ccqShadowAlign = 128
	ceqeSize       = 8
	aeqeSize       = 16
)

// queue reads and checks the memory of a queue of so many entries.
func (c *CQP) queue(w *wqe, what string, entries, entry uint64) (hmc.Buffer, uint64, error) {
	buf, err := w.buffer()
	if err != nil {
		return buf, 0, err
	}
	size := entries * entry
	if !buf.Virtual {
		if err := c.align(w, what, buf.Base, queueAlign); err != nil {
			return buf, 0, err
		}
		c.probe(w, what, buf.Base, size)
	}
	return buf, size, nil
}

// occupyQueue notes where a queue lies.
func (c *CQP) occupyQueue(w *wqe, object string, id uint32, buf hmc.Buffer, size uint64) {
	if !buf.Virtual {
		c.occupy(owner{object, id, "ring"}, buf.Base, size)
		return
	}
	c.mrs.Claim(mr.Queue{Object: object, ID: id}, buf.First, pages(size), w.origin(w.name))
}

// pages is how many PBLEs a ring of size bytes takes.
func pages(size uint64) uint64 { return (size + 4095) >> 12 }

func (c *CQP) createCQ(w *wqe) (result, error) {
	id, entries := w.cqID(), w.bits(0, 20, 0)
	if c.queues.HasCQ(id) {
		return result{}, c.exists(w, "CQ", id)
	}
	if err := c.object(hmc.CQ, id); err != nil {
		return result{}, err
	}
	ceq := uint32(w.bits(3, 31, 22))
	// The CCQ is there before CEQ 0.
	switch {
	case !w.flag(3, 49):
	case ceq >= c.hmc.MaxCEQs():
		return result{}, fmt.Errorf("CEQ %d, the function has %d: %w", ceq, c.hmc.MaxCEQs(), errParameter)
	case id != event.CCQ && !c.queues.HasCEQ(ceq):
		return result{}, c.absent(w, "CEQ", ceq)
	}
	buf, size, err := c.queue(w, "CQ", entries, event.CQESize)
	if err != nil {
		return result{}, err
	}
	align := uint64(shadowAlign)
	if id == event.CCQ {
		align = ccqShadowAlign
	}
	if err := c.align(w, "CQ shadow area", w.q[5], align); err != nil {
		return result{}, err
	}
	c.probe(w, "CQ shadow area", w.q[5], shadowSize)
	if err := c.queues.CreateCQ(event.CQConfig{
		ID: id, Size: uint32(entries), Buf: buf, Shadow: w.q[5], Context: w.bits(1, 62, 0),
		CEQ: ceq, CEQValid: w.flag(3, 49), CEQMask: w.flag(3, 48), CheckOverflow: w.flag(3, 46),
	}); err != nil {
		return result{}, err
	}
	c.occupyQueue(w, "CQ", id, buf, size)
	c.occupy(owner{"CQ", id, "shadow"}, w.q[5], shadowSize)
	return result{}, nil
}

// modifyCQ can only resize.
func (c *CQP) modifyCQ(w *wqe) (result, error) {
	if !w.flag(3, 43) {
		return result{}, fmt.Errorf("MODIFY_CQ %d without CQRESIZE: %w", w.cqID(), errParameter)
	}
	id, entries := w.cqID(), w.bits(0, 20, 0)
	if !c.queues.HasCQ(id) {
		return result{}, c.absent(w, "CQ", id)
	}
	buf, size, err := c.queue(w, "CQ", entries, event.CQESize)
	if err != nil {
		return result{}, err
	}
	if err := c.queues.ResizeCQ(id, buf, uint32(entries)); err != nil {
		return result{}, err
	}
	// The old ring is software's from now on.
	c.tables.spans.remove("CQ", id, "ring")
	c.mrs.Release(mr.Queue{Object: "CQ", ID: id})
	c.occupyQueue(w, "CQ", id, buf, size)
	return result{}, nil
}

func (c *CQP) destroyCQ(w *wqe) (result, error) {
	id := w.cqID()
	if !c.queues.HasCQ(id) {
		return result{}, c.absent(w, "CQ", id)
	}
	for _, user := range c.qps.UsersOfCQ(id) {
		c.emit(CQInUse{CQ: id, QP: user})
	}
	if id == event.CCQ {
		if n := len(c.queues.CQs()) - 1; n > 0 {
			c.emit(CCQFirst{CQs: n})
		}
	}
	c.vacate("CQ", id)
	return result{grace: true}, c.queues.DestroyCQ(id)
}

func (w *wqe) ceqID() uint32 { return uint32(w.bits(3, 15, 0)) }

func (c *CQP) createCEQ(w *wqe) (result, error) {
	id, entries := w.ceqID(), w.bits(2, 21, 0)
	if id >= c.hmc.MaxCEQs() {
		return result{}, fmt.Errorf("CEQ %d, the function has %d: %w", id, c.hmc.MaxCEQs(), errParameter)
	}
	if c.queues.HasCEQ(id) {
		return result{}, c.exists(w, "CEQ", id)
	}
	buf, size, err := c.queue(w, "CEQ", entries, ceqeSize)
	if err != nil {
		return result{}, err
	}
	if err := c.queues.CreateCEQ(id, buf, uint32(entries)); err != nil {
		return result{}, err
	}
	c.tables.had.ceq = true
	c.occupyQueue(w, "CEQ", id, buf, size)
	return result{}, nil
}

func (c *CQP) destroyCEQ(w *wqe) (result, error) {
	if !c.queues.HasCEQ(w.ceqID()) {
		return result{}, c.absent(w, "CEQ", w.ceqID())
	}
	c.vacate("CEQ", w.ceqID())
	return result{}, c.queues.DestroyCEQ(w.ceqID())
}

func (c *CQP) createAEQ(w *wqe) (result, error) {
	if c.queues.HasAEQ() {
		return result{}, c.exists(w, "AEQ", 0)
	}
	entries := w.bits(2, 18, 0)
	buf, size, err := c.queue(w, "AEQ", entries, aeqeSize)
	if err != nil {
		return result{}, err
	}
	if err := c.queues.CreateAEQ(buf, uint32(entries)); err != nil {
		return result{}, err
	}
	c.tables.had.aeq = true
	c.occupyQueue(w, "AEQ", 0, buf, size)
	return result{}, nil
}

// destroyAEQ: in iWARP mode drivers keep QPs and CQs 1 and 2 beyond the AEQ
// (hw.c:irdma_rt_deinit_hw).
func (c *CQP) destroyAEQ(w *wqe) (result, error) {
	if !c.queues.HasAEQ() {
		return result{}, c.absent(w, "AEQ", 0)
	}
	const ownIDs = 2
	qps, cqs := 0, 0
	for id := range c.qps.IDs() {
		if id > ownIDs || c.ctx.protocol != iWARPOnly {
			qps++
		}
	}
	for _, q := range c.queues.CQs() {
		if q.ID != event.CCQ && (q.ID > ownIDs || c.ctx.protocol != iWARPOnly) {
			cqs++
		}
	}
	if qps+cqs > 0 {
		c.emit(AEQInUse{QPs: qps, CQs: cqs})
	}
	c.vacate("AEQ", 0)
	return result{}, c.queues.DestroyAEQ()
}

func (w *wqe) qpID() uint32 { return uint32(w.bits(3, 23, 0)) }

func (w *wqe) nextState() qp.State { return qp.State(w.bits(3, 62, 60)) }

// context reads the host QP context a QP command names.
func (c *CQP) context(w *wqe) (qp.Context, error) {
	var ctx qp.Context
	if err := c.align(w, "QP context", w.q[2], qp.ContextSize); err != nil {
		return ctx, err
	}
	return ctx, c.read(w, "QP context", w.q[2], ctx[:])
}

// PROTOCOL_USED of the control QP's context (type.h:enum
// irdma_protocol_used).
const iWARPOnly = 1

func (c *CQP) createQP(w *wqe) (result, error) {
	id, typ := w.qpID(), qp.Type(w.bits(3, 50, 48))
	if id == 0 || id == qp.GSI && typ != qp.RoCEUD && typ != qp.UDA {
		return result{}, c.reserved(w, "QP", id)
	}
	if typ == qp.IWARP || typ == qp.UDA {
		c.emit(NotBuilt{Opcode: w.opcode(), Name: "IRDMA_CQP_OP_CREATE_QP of an iWARP QP", Index: w.index})
		return result{}, fmt.Errorf("QP %d of type %v is not built: %w", id, typ, errParameter)
	}
	if c.qps.Has(id) {
		return result{}, c.exists(w, "QP", id)
	}
	if err := c.object(hmc.QP, id); err != nil {
		return result{}, err
	}
	ctx, err := c.context(w)
	if err != nil {
		return result{}, err
	}
	if err := c.align(w, "QP shadow area", w.q[5], shadowAlign); err != nil {
		return result{}, err
	}
	virtual := w.flag(3, 45)
	if err := c.qps.Create(qp.CreateArgs{ID: id, Type: typ, State: w.nextState(), Shadow: w.q[5], Virtual: virtual}, ctx); err != nil {
		return result{}, err
	}
	c.probe(w, "QP shadow area", w.q[5], shadowSize)
	c.occupy(owner{"QP", id, "context"}, w.q[2], qp.ContextSize)
	c.occupy(owner{"QP", id, "shadow"}, w.q[5], shadowSize)
	for _, r := range []struct {
		name       string
		addr, size uint64
	}{{"SQ", ctx.SQAddr(), ctx.SQBytes()}, {"RQ", ctx.RQAddr(), ctx.RQBytes()}} {
		if virtual {
			c.mrs.Claim(mr.Queue{Object: "QP", ID: id}, uint32(r.addr), pages(r.size), w.origin(w.name))
			continue
		}
		c.probe(w, r.name, r.addr, r.size)
		c.occupy(owner{"QP", id, r.name}, r.addr, r.size)
	}
	return result{}, nil
}

func (c *CQP) modifyQP(w *wqe) (result, error) {
	if !c.qps.Has(w.qpID()) {
		return result{}, c.absent(w, "QP", w.qpID())
	}
	// In ERROR and SQD the QP starts nothing more; what it has begun ends first.
	stops := w.nextState() == qp.Error || w.nextState() == qp.SQD
	args := qp.ModifyArgs{ID: w.qpID(), State: w.nextState(), CQNumbers: w.flag(3, 47)}
	if w.flag(3, 59) {
		args.ARP = c.tables.lookupARP
	}
	err := c.qps.Modify(args, func() (qp.Context, error) {
		ctx, err := c.context(w)
		if err == nil {
			c.checkContext(w, &ctx)
		}
		return ctx, err
	})
	if err == nil && w.flag(3, 55) {
		c.removeHashes(w.qpID())
	}
	return result{grace: stops}, err
}

func (c *CQP) destroyQP(w *wqe) (result, error) {
	const removeHash, ignoreWindows = 55, 54
	id := w.qpID()
	if !c.qps.Has(id) {
		return result{}, c.absent(w, "QP", id)
	}
	for _, g := range c.tables.mcast {
		if g.has(id) {
			c.emit(QPInGroup{QP: id, Group: g.Index})
		}
	}
	if w.flag(3, removeHash) {
		c.removeHashes(id)
	}
	if !w.flag(3, ignoreWindows) {
		c.mrs.QPEnds(id, w.origin("IRDMA_CQP_OP_DESTROY_QP"))
	}
	c.vacate("QP", id)
	return result{grace: true}, c.qps.Destroy(id)
}

func (c *CQP) suspendQP(w *wqe) (result, error) {
	if !c.qps.Has(w.qpID()) {
		return result{}, c.absent(w, "QP", w.qpID())
	}
	return result{grace: true}, c.qps.Suspend(w.qpID())
}

func (c *CQP) resumeQP(w *wqe) (result, error) {
	if !c.qps.Has(w.qpID()) {
		return result{}, c.absent(w, "QP", w.qpID())
	}
	handle := uint16(w.bits(2, 9, 0))
	c.checkHandle(w, "QP", w.qpID(), handle)
	return result{}, c.qps.Resume(w.qpID(), handle)
}

// Minor codes with which FLUSH_WQES tells, in success, what it found
// (main.h:IRDMA_CQP_COMPL_*_WQE_FLUSHED).
const (
	flushedRQ   = 2
	flushedSQ   = 3
	flushedBoth = 4
)

// flushWQEs also has the driver's own events, GEN_AE.
func (c *CQP) flushWQEs(w *wqe) (result, error) {
	generate, sq, rq := w.flag(3, 59), w.flag(3, 61), w.flag(3, 62)
	if !c.qps.Has(w.qpID()) {
		return result{}, c.absent(w, "QP", w.qpID())
	}
	if !generate && !sq && !rq {
		return result{}, fmt.Errorf("flush of no queue of QP %d: %w", w.qpID(), errParameter)
	}
	if !sq && !rq {
		return result{}, c.generateAE(w)
	}
	args := qp.FlushArgs{ID: w.qpID(), SQ: sq, RQ: rq}
	if w.flag(3, 60) {
		args.SQCodes = &qp.Codes{Major: uint16(w.bits(2, 63, 48)), Minor: uint16(w.bits(2, 47, 32))}
		args.RQCodes = &qp.Codes{Major: uint16(w.bits(2, 31, 16)), Minor: uint16(w.bits(2, 15, 0))}
	}
	// A flush CQE is the last one of its queue: the flush itself comes after
	// all work begun before.
	flush, err := c.qps.Halt(args)
	if err != nil {
		return result{}, err
	}
	var then func() (result, error)
	then = func() (result, error) {
		switch done, err := flush.Run(); {
		case err != nil:
			return result{}, err
		case !done:
			return result{then: then}, nil
		case generate:
			if err := c.generateAE(w); err != nil {
				return result{}, err
			}
		}
		return flushResult(flush.Found()), nil
	}
	return result{grace: true, then: then}, nil
}

func flushResult(sq, rq bool) result {
	switch {
	case sq && rq:
		return result{minor: flushedBoth}
	case sq:
		return result{minor: flushedSQ}
	case rq:
		return result{minor: flushedRQ}
	}
	return result{}
}

func (c *CQP) generateAE(w *wqe) error {
	return c.qps.Raise(w.qpID(), uint16(w.bits(1, 15, 0)), uint8(w.bits(1, 19, 16)))
}
