// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
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

func (c *CQP) createCQ(w *wqe) (result, error) {
	if err := c.object(hmc.CQ, w.cqID()); err != nil {
		return result{}, err
	}
	buf, err := w.buffer()
	if err != nil {
		return result{}, err
	}
	ceq := uint32(w.bits(3, 31, 22))
	if w.flag(3, 49) && ceq >= c.hmc.MaxCEQs() {
		return result{}, fmt.Errorf("CEQ %d, the function has %d: %w", ceq, c.hmc.MaxCEQs(), errParameter)
	}
	return result{}, c.queues.CreateCQ(event.CQConfig{
		ID: w.cqID(), Size: uint32(w.bits(0, 20, 0)), Buf: buf, Shadow: w.q[5], Context: w.bits(1, 62, 0),
		CEQ: ceq, CEQValid: w.flag(3, 49), CEQMask: w.flag(3, 48), CheckOverflow: w.flag(3, 46),
	})
}

// modifyCQ can only resize.
func (c *CQP) modifyCQ(w *wqe) (result, error) {
	if !w.flag(3, 43) {
		return result{}, fmt.Errorf("MODIFY_CQ %d without CQRESIZE: %w", w.cqID(), errParameter)
	}
	buf, err := w.buffer()
	if err != nil {
		return result{}, err
	}
	return result{}, c.queues.ResizeCQ(w.cqID(), buf, uint32(w.bits(0, 20, 0)))
}

func (c *CQP) destroyCQ(w *wqe) (result, error) {
	for _, user := range c.qps.UsersOfCQ(w.cqID()) {
		c.emit(CQInUse{CQ: w.cqID(), QP: user})
	}
	return result{grace: true}, c.queues.DestroyCQ(w.cqID())
}

func (c *CQP) createCEQ(w *wqe) (result, error) {
	id := uint32(w.bits(3, 15, 0))
	if id >= c.hmc.MaxCEQs() {
		return result{}, fmt.Errorf("CEQ %d, the function has %d: %w", id, c.hmc.MaxCEQs(), errParameter)
	}
	buf, err := w.buffer()
	if err != nil {
		return result{}, err
	}
	return result{}, c.queues.CreateCEQ(id, buf, uint32(w.bits(2, 21, 0)))
}

func (c *CQP) destroyCEQ(w *wqe) (result, error) {
	return result{}, c.queues.DestroyCEQ(uint32(w.bits(3, 15, 0)))
}

func (c *CQP) createAEQ(w *wqe) (result, error) {
	buf, err := w.buffer()
	if err != nil {
		return result{}, err
	}
	return result{}, c.queues.CreateAEQ(buf, uint32(w.bits(2, 18, 0)))
}

func (c *CQP) destroyAEQ(*wqe) (result, error) { return result{}, c.queues.DestroyAEQ() }

func (w *wqe) qpID() uint32 { return uint32(w.bits(3, 23, 0)) }

func (w *wqe) nextState() qp.State { return qp.State(w.bits(3, 62, 60)) }

// context reads the host QP context a QP command names.
func (c *CQP) context(w *wqe) (qp.Context, error) {
	var ctx qp.Context
	if w.q[2]%qp.ContextSize != 0 {
		return ctx, fmt.Errorf("context of QP %d at %#x is not %d-byte aligned: %w", w.qpID(), w.q[2], qp.ContextSize, errParameter)
	}
	if err := c.mem.Read(w.q[2], ctx[:]); err != nil {
		return ctx, fmt.Errorf("context of QP %d: %w", w.qpID(), err)
	}
	return ctx, nil
}

func (c *CQP) createQP(w *wqe) (result, error) {
	if err := c.object(hmc.QP, w.qpID()); err != nil {
		return result{}, err
	}
	ctx, err := c.context(w)
	if err != nil {
		return result{}, err
	}
	return result{}, c.qps.Create(qp.CreateArgs{ID: w.qpID(), Type: qp.Type(w.bits(3, 50, 48)),
		State: w.nextState(), Shadow: w.q[5], Virtual: w.flag(3, 45)}, ctx)
}

func (c *CQP) modifyQP(w *wqe) (result, error) {
	// In ERROR and SQD the QP starts nothing more; what it has begun ends first.
	stops := w.nextState() == qp.Error || w.nextState() == qp.SQD
	args := qp.ModifyArgs{ID: w.qpID(), State: w.nextState(), CQNumbers: w.flag(3, 47)}
	if w.flag(3, 59) {
		args.ARP = c.tables.lookupARP
	}
	return result{grace: stops}, c.qps.Modify(args, func() (qp.Context, error) { return c.context(w) })
}

func (c *CQP) destroyQP(w *wqe) (result, error) {
	return result{grace: true}, c.qps.Destroy(w.qpID())
}

func (c *CQP) suspendQP(w *wqe) (result, error) {
	return result{grace: true}, c.qps.Suspend(w.qpID())
}

func (c *CQP) resumeQP(w *wqe) (result, error) {
	return result{}, c.qps.Resume(w.qpID(), uint16(w.bits(2, 9, 0)))
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
