// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// Opcodes of receive completions. Those of an RDMA write with immediate are
// the wire's; for a send every value means RECV to the kernel and to
// applications' normal way, and only this one to libirdma's extended CQs
// (verbs.h:set_ib_wc_op_rq; rdma-core uverbs.c:irdma_wc_read_opcode).
const (
	opReceive       = 0x3E
	opWriteLastImm  = 0x09
	opWriteOnlyImm  = 0x0B
	fragmentSize    = 16
	maxBufferLength = 1<<31 - 1
)

// Receive takes the next receive WQE, if one is posted. No doorbell tells of
// one, so this looks every time.
func (q *QP) Receive(r *roce.Recv) (roce.Got, roce.Code) {
	at, header, posted, err := q.table.header(&q.rq)
	if err != nil {
		return q.badReceive(r, roce.Catastrophic, QueueUnreadable{QP: q.id, Receive: true, Index: q.rq.next, Err: err})
	}
	if !posted {
		return roce.Empty, 0
	}
	r.Index = q.rq.next * (q.rq.stride / quantum)
	r.Len = 0
	q.List(&r.SGL)
	fragments := uint32(bits(header, 41, 38))
	size := quantum + fragments*fragmentSize
	if size > q.rq.stride {
		return q.badReceive(r, roce.InvalidFragment, BadWQE{QP: q.id, Program: q.program(), Receive: true, Index: r.Index, Header: header,
			Why: fmt.Sprintf("%d more fragments in %d bytes", fragments, q.rq.stride)})
	}
	raw := &q.work.wqe
	if err := q.table.load(raw, at, size); err != nil {
		return q.badReceive(r, roce.Catastrophic, QueueUnreadable{QP: q.id, Receive: true, Index: r.Index, Err: err})
	}
	total := uint64(0)
	for i := range fragments + 1 {
		w := 2 * i
		if i > 0 {
			w = 4 + 2*(i-1)
		}
		addr, v := raw.word(w), raw.word(w+1)
		if n := uint32(bits(v, 62, 32)); n > 0 {
			r.SGL.Add(uint32(v), addr, n)
			total += uint64(n)
		}
	}
	r.Len = uint32(min(total, maxBufferLength))
	q.rq.advance(1)
	q.receiving, q.receive = true, r.Index
	return roce.Taken, 0
}

// badReceive leaves the WQE where it is, for the flush.
func (q *QP) badReceive(r *roce.Recv, code roce.Code, why any) (roce.Got, roce.Code) {
	q.table.emit(why)
	r.Index = q.rq.next * (q.rq.stride / quantum)
	return roce.Bad, code
}

// Received reports a receive WQE used up.
func (q *QP) Received(r *roce.Recv, c *roce.Received) bool {
	if !q.receiving {
		return true // a flush, which drivers ask for also in SQD, has told of it
	}
	q.receiving = false
	q.passed()
	e := event.Entry{Context: q.ctx.CompletionContext(), QP: q.id, WQE: uint16(r.Index), Op: opReceive,
		Length: c.Len, Solicited: c.Solicited}
	switch {
	case c.Write && c.Only:
		e.Op = opWriteOnlyImm
	case c.Write:
		e.Op = opWriteLastImm
	}
	if c.HasInv {
		e.STag, e.Value = true, c.Inv
	}
	if c.HasImm {
		e.Ext = event.Extension{HasImmediate: true, Immediate: c.Imm}
	}
	return q.recvCQ.Post(e)
}

// Remote checks the peer's right to a range.
func (q *QP) Remote(key uint32, va uint64, n uint32, write bool) roce.Fault {
	need := mr.RemoteRead
	if write {
		need = mr.RemoteWrite
	}
	if f := q.table.cfg.Regions.Check(q.owner.subject, key, va, uint64(n), need, true); f != nil {
		return fault(f)
	}
	return roce.Fault{}
}

func fault(f *mr.Fault) roce.Fault {
	return roce.Fault{Code: roce.Code(f.Code), Operation: f.Class == mr.Translation}
}

// Invalidate ends an STag on the peer's request.
func (q *QP) Invalidate(stag uint32, again bool) (bool, roce.Code) {
	if again {
		return q.settled(q.byPeer), 0
	}
	by := mr.Origin{Op: "SEND_INV of the peer", QP: q.id, WQE: q.receive}
	if code := q.table.cfg.Regions.Invalidate(q.owner.subject, stag, true, by); code != 0 {
		return true, roce.Code(code)
	}
	q.byPeer = q.settle()
	return q.settled(q.byPeer), 0
}
