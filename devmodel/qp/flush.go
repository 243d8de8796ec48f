// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
)

// Codes are the error codes a flush puts into its CQE. The zero value stands
// for the usual ones.
type Codes struct{ Major, Minor uint16 }

// Flushed is the default error: FLUSH_MAJOR_ERR, FLUSH_GENERAL_ERR.
var flushed = Codes{1, 1}

// FlushArgs are the words of FLUSH_WQES.
type FlushArgs struct {
	ID     uint32
	SQ, RQ bool
	// The codes to report, USERFLCODE; nil for the usual ones.
	SQCodes, RQCodes *Codes
}

// FlushLimit is how many slots one call of Flush.Run looks at; a ring has up to
// 131072.
const FlushLimit = 4096

// Flush is a flush under way.
type Flush struct {
	args FlushArgs
	qp   *QP
	// What is to be walked still; sq first.
	sq, rq walk
}

// walk is a flush of one queue.
type walk struct {
	todo   bool
	again  bool // the queue was flushed before
	begun  bool
	left   uint32 // slots not looked at, once around
	oldest oldest
}

// Halt is the first half of a flush: nothing of the QP's is sent or taken any
// more. Others may still copy for it until grace; then comes Run.
func (t *Table) Halt(a FlushArgs) (*Flush, error) {
	q, err := t.find(a.ID)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// After SQD the driver flushes too, where it only meant to drain.
	if q.state != Error && q.state != SQD {
		t.emit(FlushOutsideError{QP: q.id, State: q.state})
	}
	q.disown()
	f := &Flush{args: a, qp: q, sq: walk{todo: a.SQ, again: q.flushed.sq, left: q.sq.slots}, rq: walk{todo: a.RQ, again: q.flushed.rq, left: q.rq.slots}}
	q.flushed.sq, q.flushed.rq = q.flushed.sq || a.SQ, q.flushed.rq || a.RQ
	return f, nil
}

// Run ends what is posted on the selected queues of the QP, FlushLimit slots at
// a time: it is called until it is done. For each queue with something posted
// one error CQE is written, for the oldest WQE.
func (f *Flush) Run() (done bool, err error) {
	q := f.qp
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sq.forget()
	q.rq.forget()
	budget := uint32(FlushLimit)
	if f.sq.todo {
		if err := q.flushSQ(&f.sq, &budget, f.args.SQCodes); err != nil || f.sq.todo {
			return false, err
		}
	}
	if f.rq.todo {
		if err := q.flushRQ(&f.rq, &budget, f.args.RQCodes); err != nil || f.rq.todo {
			return false, err
		}
	}
	sq, rq := f.args.SQ && f.sq.again && !f.sq.oldest.found, f.args.RQ && f.rq.again && !f.rq.oldest.found
	if q.state == Error && (sq || rq) {
		q.table.emit(FlushedAgain{QP: q.id, SQ: sq, RQ: rq})
	}
	return true, nil
}

// Found tells on which queues there was something.
func (f *Flush) Found() (sq, rq bool) { return f.sq.oldest.found, f.rq.oldest.found }

// oldest is the WQE a flush reports.
type oldest struct {
	found bool
	index uint32 // in quanta
	op    uint8
}

// flushSQ drops WQEs in work and those posted. Every quantum of a send WQE
// ends with a valid bit, so the ring is walked by quanta.
func (q *QP) flushSQ(w *walk, budget *uint32, codes *Codes) error {
	if !w.begun && q.ep != nil {
		if o := q.ep.Oldest(); o != nil {
			w.oldest = oldest{true, o.Index, o.Op}
		}
		q.ep.Drop()
	}
	if !w.begun && q.ud != nil {
		w.oldest, q.ud.failed = q.ud.failed, oldest{}
	}
	err := q.table.drop(&q.sq, w, budget, func(h uint64) {
		if op := uint8(bits(h, 37, 32)); !w.oldest.found && op != opNOP {
			w.oldest = oldest{true, q.sq.next, op}
		}
	})
	// Older drivers do not ring the doorbell while this lags.
	if err == nil && !w.todo && q.tail != q.sq.next {
		err = q.storeTail()
	}
	if err != nil {
		return fmt.Errorf("flush of QP %d: %w", q.id, err)
	}
	if w.todo || !w.oldest.found {
		return nil
	}
	return q.postFlushed(q.sendCQ, w.oldest, true, codes)
}

// flushRQ drops the receive WQE in work and those posted. Trailing quanta of
// a receive WQE may hold anything, so the ring is walked by WQEs.
func (q *QP) flushRQ(w *walk, budget *uint32, codes *Codes) error {
	if !w.begun {
		w.oldest = oldest{found: q.receiving, index: q.receive}
		if q.receiving && q.ep != nil {
			q.ep.DropReceive()
		}
		q.receiving = false
	}
	err := q.table.drop(&q.rq, w, budget, func(uint64) {
		if !w.oldest.found {
			w.oldest = oldest{true, q.rq.next * (q.rq.stride / quantum), 0}
		}
	})
	if err != nil {
		return fmt.Errorf("flush of QP %d: %w", q.id, err)
	}
	if w.todo || !w.oldest.found {
		return nil
	}
	return q.postFlushed(q.recvCQ, w.oldest, false, codes)
}

// drop walks over posted slots, at most once around and as far as the budget
// goes.
func (t *Table) drop(r *queue, w *walk, budget *uint32, f func(header uint64)) error {
	w.begun = true
	for ; w.left > 0; w.left-- {
		if *budget == 0 {
			return nil
		}
		*budget--
		_, h, posted, err := t.header(r)
		if err != nil {
			return err
		}
		if !posted {
			break
		}
		f(h)
		r.advance(1)
	}
	w.todo = false
	return nil
}

func (q *QP) postFlushed(cq CQ, o oldest, send bool, codes *Codes) error {
	c := flushed
	if codes != nil {
		c = *codes
	}
	if !cq.Post(event.Entry{Context: q.ctx.CompletionContext(), QP: q.id, WQE: uint16(o.index), Op: o.op,
		Major: c.Major, Minor: c.Minor, SQ: send, Error: true}) {
		return fmt.Errorf("flush of QP %d: its CQ takes no completion: %w", q.id, ErrState)
	}
	return nil
}
