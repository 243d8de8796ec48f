// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// operation is one send opcode (user.h:IRDMA_OP_TYPE_*).
type operation struct {
	name       string // empty: none of this generation
	kind       roce.Kind
	solicited  bool
	invalidate bool
	datagram   bool // of a UD QP, too, which only sends
}

// operations are all opcodes of this generation.
var operations = [64]operation{
	0x00: {name: "RDMA_WRITE", kind: roce.KindWrite},
	0x01: {name: "RDMA_READ", kind: roce.KindRead},
	0x03: {name: "SEND", kind: roce.KindSend, datagram: true},
	0x04: {name: "SEND_INV", kind: roce.KindSend, invalidate: true},
	0x05: {name: "SEND_SOL", kind: roce.KindSend, solicited: true, datagram: true},
	0x06: {name: "SEND_SOL_INV", kind: roce.KindSend, solicited: true, invalidate: true},
	0x08: {name: "BIND_MW", kind: roce.KindLocal},
	0x09: {name: "FAST_REG_NSMR", kind: roce.KindLocal},
	0x0A: {name: "INV_STAG", kind: roce.KindLocal},
	0x0B: {name: "RDMA_READ_INV_STAG", kind: roce.KindRead, invalidate: true},
	0x0C: {name: "NOP", kind: roce.KindLocal, datagram: true},
	0x0D: {name: "RDMA_WRITE_SOL", kind: roce.KindWrite, solicited: true},
}

// Fetch takes the next send WQE, if one is posted.
//
// Drivers up to 6.12 ring the doorbell only if the shadow tail, read behind a
// full barrier after the WQE was written, says that the device has come as
// far as the WQEs before. So the tail is stored when there is nothing more,
// and the valid bit looked at once more behind it (uk.c:irdma_uk_qp_post_wr).
func (q *QP) Fetch(w *roce.WQE) bool {
	if q.state != RTS || q.paused {
		return false
	}
	for {
		at, header, posted, err := q.table.header(&q.sq)
		switch {
		case err != nil:
			return q.unreadable(w, err)
		case posted:
			q.parse(w, at, header)
			return true
		case q.tail == q.sq.next:
			return false
		}
		if err := q.storeTail(); err != nil {
			return q.unreadable(w, err)
		}
	}
}

// storeTail tells how far the send queue is read.
func (q *QP) storeTail() error {
	if err := q.table.cfg.Mem.Store64(q.shadow, uint64(q.sq.next)&hwSQTailMask); err != nil {
		return fmt.Errorf("shadow tail: %w", err)
	}
	q.tail = q.sq.next
	return nil
}

// unreadable makes w the end of the QP: its send queue cannot be reached.
func (q *QP) unreadable(w *roce.WQE, err error) bool {
	q.table.emit(QueueUnreadable{QP: q.id, Index: q.sq.next, Err: err})
	*w = roce.WQE{Index: q.sq.next, Fault: roce.Catastrophic}
	return true
}

// parse makes a WQE of the slots at the send queue's head and moves behind
// them. What cannot be executed gets a fault.
func (q *QP) parse(w *roce.WQE, at, header uint64) {
	index := q.sq.next
	op := uint8(bits(header, 37, 32))
	row := &operations[op]
	w.Kind, w.Op, w.Index, w.Fault = row.kind, op, index, 0
	w.Signaled, w.ReadFence, w.LocalFence = flag(header, 62), flag(header, 60), flag(header, 61)
	w.Solicited, w.HasInv = row.solicited, row.invalidate
	w.HasImm = flag(header, 47)
	w.Key, w.Inv = uint32(header), uint32(header)
	w.Imm, w.Addr, w.Len = 0, 0, 0
	q.List(&w.SGL)

	if row.name == "" || q.typ == RoCEUD && !row.datagram {
		q.sq.advance(1)
		w.Fault = roce.UnexpectedOpcode
		q.table.emit(SendNotExecuted{QP: q.id, Program: q.program(), Opcode: op, Name: row.name, Index: index})
		return
	}
	if row.kind == roce.KindLocal {
		q.sq.advance(1)
		q.parseLocal(w, at, header)
		return
	}
	fragments, inline := uint32(bits(header, 41, 38)), flag(header, 57)
	size := uint32(bits(header, 55, 48))
	quanta := 1 + (fragments+1)/2
	if inline {
		quanta = inlineQuanta(size)
	}
	bad := func(code roce.Code, why string) {
		w.Fault = code
		q.table.emit(BadWQE{QP: q.id, Program: q.program(), Index: index, Header: header, Why: why})
	}
	if quanta > maxQuanta || index%maxQuanta+quanta > maxQuanta || index+quanta > q.sq.slots {
		q.sq.advance(1)
		bad(roce.InvalidParameter, fmt.Sprintf("%d quanta from slot %d on", quanta, index))
		return
	}
	q.sq.advance(quanta)
	switch {
	case inline && (size > roce.MaxInline || fragments != 0 || row.kind == roce.KindRead):
		bad(roce.InvalidParameter, fmt.Sprintf("%d inline bytes, %d fragments", size, fragments))
		return
	case w.HasImm && row.kind == roce.KindRead:
		bad(roce.InvalidParameter, "immediate data")
		return
	}
	raw := &q.work.wqe
	if err := q.table.load(raw, at, quanta*quantum); err != nil {
		q.table.emit(QueueUnreadable{QP: q.id, Index: index, Err: err})
		w.Fault = roce.Catastrophic
		return
	}
	w.Imm, w.Addr = uint32(raw.word(0)), raw.word(2)
	if inline {
		q.takeInline(w, raw, size)
		return
	}
	q.takeFragments(w, raw, fragments, bad)
}

// takeFragments reads the scatter/gather list. With immediate data the first
// fragment's place holds that.
func (q *QP) takeFragments(w *roce.WQE, raw *words, n uint32, bad func(roce.Code, string)) {
	total := uint64(0)
	add := func(i uint32) {
		addr, v := raw.word(i), raw.word(i+1)
		if length := uint32(bits(v, 62, 32)); length > 0 {
			w.SGL.Add(uint32(v), addr, length)
			total += uint64(length)
		}
	}
	if !w.HasImm {
		add(0)
	}
	for i := range n {
		add(4 + 2*i)
	}
	if total >= roce.MaxMessage {
		bad(roce.InvalidOffset, fmt.Sprintf("%#x bytes", total))
		return
	}
	w.Len = uint32(total)
	need := mr.LocalRead
	if w.Kind == roce.KindRead {
		need = mr.LocalWrite
	}
	for i := range w.SGL.Len() {
		stag, addr, length := w.SGL.Fragment(i)
		if f := q.table.cfg.Regions.Check(q.owner.subject, stag, addr, uint64(length), need, false); f != nil {
			w.Fault = roce.Code(f.Code)
			return
		}
	}
}

// inlineQuanta is how many quanta n inline bytes take: 8 bytes lie in the
// first, 31 in each other, whose last byte has the valid bit.
func inlineQuanta(n uint32) uint32 {
	if n <= 8 {
		return 1
	}
	return 1 + (n-8+30)/31
}

// takeInline collects inline data.
func (q *QP) takeInline(w *roce.WQE, raw *words, n uint32) {
	var data [roce.MaxInline]byte
	got := copy(data[:n], raw.raw[8:16])
	for at := quantum; got < int(n); at += quantum {
		got += copy(data[got:n], raw.raw[at:at+quantum-1])
	}
	w.SGL.SetInline(data[:n])
	w.Len = n
}

// Completed reports a send WQE.
func (q *QP) Completed(w *roce.WQE) bool {
	q.passed()
	return q.sendCQ.Post(event.Entry{Context: q.ctx.CompletionContext(), QP: q.id, WQE: uint16(w.Index), Op: w.Op, SQ: true})
}

// program tells whether a user program posts to the QP: kernel QPs may use
// STag 0, user QPs may not.
func (q *QP) program() bool { return !q.owner.subject.Privileged }
