// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
)

const (
	quantum = 32 // bytes; the unit of both rings

	wqeHeaderAt  = 24      // bytes from the start of a WQE
	wqeValid     = 1 << 63 // of the header; also of any further quantum's last word
	opNOP        = 0x0C    // user.h:IRDMA_OP_TYPE_NOP, fills the send ring's gaps
	hwSQTailMask = 1<<15 - 1
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

// Flush ends everything posted on the selected queues of a QP and tells of
// which queues there was something. For each of them one error CQE is
// written, for the oldest WQE.
func (t *Table) Flush(a FlushArgs) (sq, rq bool, err error) {
	q, err := t.find(a.ID)
	if err != nil {
		return false, false, err
	}
	// After SQD the driver flushes too, where it only meant to drain.
	if q.State != Error && q.State != SQD {
		t.emit(FlushOutsideError{QP: q.ID, State: q.State})
	}
	if a.SQ {
		if sq, err = t.flushQueue(q, &q.sq, true, a.SQCodes); err != nil {
			return false, false, err
		}
		if sq {
			// Older drivers do not ring the doorbell while this lags.
			if err := t.mem.Store64(q.Shadow, uint64(q.sq.next)&hwSQTailMask); err != nil {
				return false, false, fmt.Errorf("shadow tail of QP %d: %w", q.ID, err)
			}
		}
	}
	if a.RQ {
		if rq, err = t.flushQueue(q, &q.rq, false, a.RQCodes); err != nil {
			return sq, false, err
		}
	}
	return sq, rq, nil
}

// header loads the word that holds the valid bit of the queue's next slot
// and tells whether the slot is posted.
func (t *Table) header(r *queue) (at, h uint64, posted bool, err error) {
	if at, err = t.bufs.At(r.buf, uint64(r.next)*uint64(r.stride)); err != nil {
		return 0, 0, false, err
	}
	if h, err = t.mem.Load64(at + wqeHeaderAt); err != nil {
		return 0, 0, false, err
	}
	return at, h, h>>63 == r.polarity, nil
}

func (r *queue) advance() {
	if r.next++; r.next == r.slots {
		r.next, r.polarity = 0, r.polarity^1
	}
}

// flushQueue walks over all posted slots. Every quantum of a send WQE ends
// with a valid bit, so that ring is walked by quanta; trailing quanta of a
// receive WQE may hold anything, so that one is walked by whole WQEs.
func (t *Table) flushQueue(q *QP, r *queue, send bool, codes *Codes) (bool, error) {
	var first uint64 // header of the oldest WQE
	index, found := uint32(0), false
	for n := uint32(0); n < r.slots; n++ {
		_, h, posted, err := t.header(r)
		if err != nil {
			return false, fmt.Errorf("flush of QP %d: %w", q.ID, err)
		}
		if !posted {
			break
		}
		if !found && (!send || h>>32&0x3F != opNOP) {
			first, index, found = h, r.next*(r.stride/quantum), true
		}
		r.advance()
	}
	if !found {
		return false, nil
	}
	c := flushed
	if codes != nil {
		c = *codes
	}
	cq, op := q.Ctx.RecvCQ(), uint64(0)
	w3 := uint64(c.Minor) | uint64(c.Major)<<16 | uint64(index)<<32 | 1<<55
	if send {
		cq, op = q.Ctx.SendCQ(), first>>32&0x3F
		w3 |= 1 << 62
	}
	w3 |= op << 56
	return true, t.cqs.Complete(cq, event.CQE{0, q.Ctx.CompletionContext(), uint64(q.ID) << 32, w3}, true)
}

// UnknownQP is the event of a doorbell for a QP that does not exist.
type UnknownQP struct{ QP uint32 }

func (e UnknownQP) String() string {
	return fmt.Sprintf("PFPE_WQEALLOC: QP %d does not exist", e.QP)
}

// SendNotExecuted is the event of a doorbell for send work that this model
// does not execute yet.
type SendNotExecuted struct{ QP uint32 }

func (e SendNotExecuted) String() string {
	return fmt.Sprintf("PFPE_WQEALLOC: send work of QP %d is not executed", e.QP)
}

// UnknownCQ is the event of a QP context that names a CQ that does not exist.
type UnknownCQ struct{ QP, CQ uint32 }

func (e UnknownCQ) String() string {
	return fmt.Sprintf("context of QP %d names CQ %d, which does not exist", e.QP, e.CQ)
}

// IllegalTransition is the event of a state change a QP cannot make.
type IllegalTransition struct {
	QP       uint32
	From, To State
}

func (e IllegalTransition) String() string {
	return fmt.Sprintf("MODIFY_QP %d from %v to %v", e.QP, e.From, e.To)
}

// GeometryChanged is the event of a context whose rings or completion
// context are not those the QP was created with; the old ones stay in use.
type GeometryChanged struct{ QP uint32 }

func (e GeometryChanged) String() string {
	return fmt.Sprintf("MODIFY_QP %d: context has other rings than at CREATE_QP", e.QP)
}

// FlushOutsideError is the event of FLUSH_WQES for a QP not in ERROR.
type FlushOutsideError struct {
	QP    uint32
	State State
}

func (e FlushOutsideError) String() string {
	return fmt.Sprintf("FLUSH_WQES of QP %d in state %v", e.QP, e.State)
}
