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

// Halt is the first half of a flush: nothing of the QP's is sent or taken any
// more. Others may still copy for it until grace; then comes Flush.
func (t *Table) Halt(id uint32) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// After SQD the driver flushes too, where it only meant to drain.
	if q.state != Error && q.state != SQD {
		t.emit(FlushOutsideError{QP: q.id, State: q.state})
	}
	q.disown()
	return nil
}

// Flush ends everything posted on the selected queues of a QP and tells of
// which queues there was something. For each of them one error CQE is
// written, for the oldest WQE.
func (t *Table) Flush(a FlushArgs) (sq, rq bool, err error) {
	q, err := t.find(a.ID)
	if err != nil {
		return false, false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sq.forget()
	q.rq.forget()
	if a.SQ {
		if sq, err = q.flushSQ(a.SQCodes); err != nil {
			return false, false, err
		}
	}
	if a.RQ {
		if rq, err = q.flushRQ(a.RQCodes); err != nil {
			return sq, false, err
		}
	}
	return sq, rq, nil
}

// oldest is the WQE a flush reports.
type oldest struct {
	found bool
	index uint32 // in quanta
	op    uint8
}

// flushSQ drops WQEs in work and those posted. Every quantum of a send WQE
// ends with a valid bit, so the ring is walked by quanta.
func (q *QP) flushSQ(codes *Codes) (bool, error) {
	var o oldest
	if q.ep != nil {
		if w := q.ep.Oldest(); w != nil {
			o = oldest{true, w.Index, w.Op}
		}
		q.ep.Drop()
	}
	err := q.table.drop(&q.sq, func(h uint64) {
		if op := uint8(bits(h, 37, 32)); !o.found && op != opNOP {
			o = oldest{true, q.sq.next, op}
		}
	})
	if err != nil {
		return false, fmt.Errorf("flush of QP %d: %w", q.id, err)
	}
	// Older drivers do not ring the doorbell while this lags.
	if q.tail != q.sq.next {
		if err := q.storeTail(); err != nil {
			return false, fmt.Errorf("flush of QP %d: %w", q.id, err)
		}
	}
	if !o.found {
		return false, nil
	}
	return true, q.postFlushed(q.sendCQ, o, true, codes)
}

// flushRQ drops the receive WQE in work and those posted. Trailing quanta of
// a receive WQE may hold anything, so the ring is walked by WQEs.
func (q *QP) flushRQ(codes *Codes) (bool, error) {
	o := oldest{found: q.receiving, index: q.receive}
	q.receiving = false
	err := q.table.drop(&q.rq, func(uint64) {
		if !o.found {
			o = oldest{true, q.rq.next * (q.rq.stride / quantum), 0}
		}
	})
	if err != nil {
		return false, fmt.Errorf("flush of QP %d: %w", q.id, err)
	}
	if !o.found {
		return false, nil
	}
	return true, q.postFlushed(q.recvCQ, o, false, codes)
}

// drop walks over all posted slots, at most once around.
func (t *Table) drop(r *queue, f func(header uint64)) error {
	for range r.slots {
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
