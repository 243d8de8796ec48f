// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"slices"

	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// STags makes, binds and ends STags on the wish of work requests; *mr.Table
// does. Who has ended something by that waits for grace before it tells
// anybody.
type STags interface {
	FastRegister(s mr.Subject, r mr.Region, by mr.Origin) mr.Code
	Invalidate(s mr.Subject, stag uint32, remote bool, by mr.Origin) mr.Code
	Bind(s mr.Subject, b mr.Binding, by mr.Origin) (ended bool, code mr.Code)
}

// Opcodes of the work that a QP does by itself (user.h:IRDMA_OP_TYPE_*).
const (
	opBind           = 0x08
	opFastRegister   = 0x09
	opInvalidate     = 0x0A
	opReadInvalidate = 0x0B
)

// parseLocal takes the words of work that needs no peer.
//
// Invalidation waits for everything posted before, also where no fence asks
// for it, as programs' does not (rdma-core uverbs.c:irdma_upost_send): what was
// sent, and may have to be sent again, still needs its memory.
func (q *QP) parseLocal(w *roce.WQE, at, header uint64) {
	w.Raw = [4]uint64{3: header}
	if w.Op == opNOP {
		return
	}
	raw := &q.work.wqe
	if err := q.table.load(raw, at, quantum); err != nil {
		q.table.emit(QueueUnreadable{QP: q.id, Index: w.Index, Err: err})
		w.Fault = roce.Catastrophic
		return
	}
	for i := range uint32(3) {
		w.Raw[i] = raw.word(i)
	}
	if w.Op == opInvalidate {
		w.LocalFence = true
	}
}

// Local executes work that needs no peer, or the end of a read that ends the
// STags it has read into.
func (q *QP) Local(w *roce.WQE, again bool) (bool, roce.Code) {
	if again {
		return q.settled(q.bySelf), 0
	}
	ended, code := q.execute(w)
	if code != 0 || !ended {
		return true, roce.Code(code)
	}
	q.bySelf = q.settle()
	return q.settled(q.bySelf), 0
}

// execute changes an STag. It tells whether others may still be using what it
// has ended.
func (q *QP) execute(w *roce.WQE) (ended bool, code mr.Code) {
	regions, s := q.table.cfg.Regions, q.owner.subject
	by := mr.Origin{Op: operations[w.Op].name, QP: q.id, WQE: w.Index}
	switch w.Op {
	case opFastRegister:
		r := fastRegion(&w.Raw)
		if !q.ctx.FastRegister() {
			return false, q.refuse(mr.Refused{By: by, STag: r.STag(), Code: mr.Denied})
		}
		return false, regions.FastRegister(s, r, by)
	case opBind:
		b := binding(&w.Raw)
		if !q.ctx.Bind() {
			return false, q.refuse(mr.Refused{By: by, STag: b.Window, Parent: b.Parent, Code: mr.BindDisabled})
		}
		if ended, code = regions.Bind(s, b, by); code == 0 {
			q.ep.Stats.Binds++
		}
		return ended, code
	case opInvalidate:
		return true, q.end(uint32(w.Raw[1]), by)
	case opReadInvalidate:
		return true, q.endSink(&w.SGL, by)
	}
	return false, 0
}

// refuse reports what the QP itself may not do.
func (q *QP) refuse(e mr.Refused) mr.Code {
	e.Kernel = !q.program()
	q.table.emit(e)
	return e.Code
}

// end invalidates an STag.
func (q *QP) end(stag uint32, by mr.Origin) mr.Code {
	code := q.table.cfg.Regions.Invalidate(q.owner.subject, stag, false, by)
	if code == 0 {
		q.ep.Stats.Invalidations++
	}
	return code
}

// endSink invalidates the STags of a list, each once.
func (q *QP) endSink(l *roce.SGL, by mr.Origin) mr.Code {
	var seen [roce.MaxFragments]uint32
	n := 0
	for i := range l.Len() {
		stag, _, _ := l.Fragment(i)
		if slices.Contains(seen[:n], stag) {
			continue
		}
		seen[n] = stag
		n++
		if code := q.end(stag, by); code != 0 {
			return code
		}
	}
	return 0
}

// fastRegion reads a FAST_REG_NSMR (ctrl.c:irdma_sc_mr_fast_register). Of a
// page size that there is none for, PageShift is 0.
func fastRegion(w *[4]uint64) mr.Region {
	shift, _ := mr.PageShift(uint8(bits(w[3], 47, 46)))
	return mr.Region{
		Index:     uint32(bits(w[3], 31, 8)),
		Key:       uint8(w[3]),
		Length:    bits(w[2], 40, 0),
		Start:     w[0],
		VABased:   flag(w[3], 53),
		Level:     mr.Level(bits(w[3], 45, 44)),
		PageShift: shift,
		Rights:    mr.Access(bits(w[3], 52, 48)),
		Base:      w[1] &^ (1<<12 - 1),
		First:     uint32(bits(w[1], 11, 0)<<16 | bits(w[2], 63, 48)),
	}
}

// binding reads a BIND_MW (rdma-core uk.c:irdma_uk_mw_bind).
func binding(w *[4]uint64) mr.Binding {
	return mr.Binding{
		Window:  uint32(w[1]),
		Parent:  uint32(w[1] >> 32),
		Start:   w[0],
		Length:  w[2],
		VABased: flag(w[3], 53),
		Rights:  mr.Access(bits(w[3], 52, 48)),
		Type1:   flag(w[3], 54),
	}
}
