// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// Fields of a completion queue entry (irdma/defs.h:IRDMA_CQ_*, IRDMACQ_*).
const (
	cqeMinorMask   = 0xffff
	cqeMajorBit    = 16
	cqeIndexBit    = 32
	cqeIndexMask   = 0x7fff
	cqeExtended    = 1 << 50
	cqePushDropped = 1 << 51
	cqeSRQ         = 1 << 52
	cqeSTag        = 1 << 53
	cqeSolicited   = 1 << 54
	cqeOpBit       = 56
	cqeOpMask      = 0x3f
	cqeSQ          = 1 << 62
	cqeQPBit       = 32
	cqeQPMask      = 0xffffff
	extImmediate   = 1 << 62

	flushMajor = 1 // IRDMA_FLUSH_MAJOR_ERR
)

// Opcodes of receive completions that are not of plain sends: those of the last
// packet (verbs.h:set_ib_wc_op_rq).
const (
	cqeWriteLastImm = 0x09
	cqeWriteOnlyImm = 0x0b
)

// Status is how a work request ended. Those above Success are the minor codes of
// a flush (irdma/user.h:irdma_flush_opcode).
type Status uint8

const (
	Success       Status = 0
	WRFlushErr    Status = 1
	LocProtErr    Status = 2
	RemAccessErr  Status = 3
	LocQPOpErr    Status = 4
	RemOpErr      Status = 5
	LocLenErr     Status = 6
	FatalErr      Status = 7
	RetryExcErr   Status = 8
	MWBindErr     Status = 9
	RemInvReqErr  Status = 10
	RNRRetryExc   Status = 11
	GeneralErr    Status = 0xfe // a major code that is not a flush
	statusInvalid Status = 0xff
)

func (s Status) String() string {
	names := []string{"SUCCESS", "WR_FLUSH_ERR", "LOC_PROT_ERR", "REM_ACCESS_ERR", "LOC_QP_OP_ERR", "REM_OP_ERR",
		"LOC_LEN_ERR", "FATAL_ERR", "RETRY_EXC_ERR", "MW_BIND_ERR", "REM_INV_REQ_ERR", "RNR_RETRY_EXC_ERR"}
	switch {
	case int(s) < len(names):
		return names[s]
	case s == GeneralErr:
		return "GENERAL_ERR"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// WC is a work completion.
type WC struct {
	QP        *QP
	ID        uint64
	Status    Status
	Send      bool
	Op        uint8 // as in the entry
	Len       uint32
	Imm       uint32
	HasImm    bool
	Solicited bool
	STag      uint32 // that the peer invalidated
	HasSTag   bool
	From      Sender // of a datagram
}

// word finds a word of an entry.
func (q *CQ) word(entry, off int) (*Buf, int) {
	off += entry * cqeSize
	if q.virtual {
		return q.mem[off/pageSize], off % pageSize
	}
	return q.mem[0], off
}

func (q *CQ) load(entry, off int) uint64 {
	b, off := q.word(entry, off)
	return b.Load64(off)
}

func (q *CQ) store(entry, off int, v uint64) {
	b, off := q.word(entry, off)
	b.Store64(off, v)
}

func (q *CQ) empty() bool { return q.load(q.head, 24)&eqeValid != q.polarity }

func (q *CQ) moveHead(n int) {
	for range n {
		if q.head = (q.head + 1) % q.Size; q.head == 0 {
			q.polarity ^= eqeValid
		}
	}
	const lazy = 0x3f
	if q.r.Kernel.LazyCQHead && !q.virtual && q.head&lazy == 0 && !q.empty() {
		return
	}
	q.shadow.Store64(0, uint64(q.head))
}

// Next takes one entry as it is; ok is false if there is none.
func (q *CQ) Next() (cqe [4]uint64, ok bool) {
	cqe[3] = q.load(q.head, 24)
	if cqe[3]&eqeValid != q.polarity {
		return cqe, false
	}
	for n := range 3 {
		cqe[n] = q.load(q.head, 8*n)
	}
	q.moveHead(1)
	return cqe, true
}

// Poll takes one work completion; ok is false if there is none
// (uk.c:irdma_uk_cq_poll_cmpl). One entry of a flush stands for all work
// requests of its queue and stays until they are reported.
func (q *CQ) Poll() (wc WC, ok bool, err error) {
	for {
		w3 := q.load(q.head, 24)
		if w3&eqeValid != q.polarity {
			return wc, false, nil
		}
		slots := 1
		wc = WC{Status: Success, Send: w3&cqeSQ != 0, Op: uint8(w3 >> cqeOpBit & cqeOpMask), Solicited: w3&cqeSolicited != 0}
		if w3&cqeExtended != 0 {
			slots = 2
			next, polarity := (q.head+1)%q.Size, q.polarity
			if next == 0 {
				polarity ^= eqeValid
			}
			ext := q.load(next, 24)
			if ext&eqeValid != polarity {
				return wc, false, nil
			}
			if wc.HasImm = ext&extImmediate != 0; wc.HasImm {
				wc.Imm = uint32(q.load(next, 0))
			}
		}
		ctx, w2 := q.load(q.head, 8), q.load(q.head, 16)
		if ctx == 0 { // its QP is gone
			q.moveHead(slots)
			continue
		}
		qp := q.r.qps[uint32(w2>>cqeQPBit&cqeQPMask)]
		if qp == nil || qp.compCtx != ctx {
			return wc, false, broken("CQ %d: entry %d for QP %d with context %#x", q.ID, q.head, w2>>cqeQPBit&cqeQPMask, ctx)
		}
		if w3&(cqePushDropped|cqeSRQ) != 0 {
			return wc, false, broken("CQ %d: entry %d is %#x", q.ID, q.head, w3)
		}
		wc.QP = qp
		wc.Len = uint32(q.load(q.head, 0))
		if wc.HasSTag = w3&cqeSTag != 0; wc.HasSTag {
			wc.STag = uint32(w2)
		}
		if qp.kind == qpTypeUD && !wc.Send && w3&cqeError == 0 {
			q.datagram(&wc, uint32(w2), w3)
		}
		if w3&cqeError != 0 {
			wc.Status = GeneralErr
			if w3>>cqeMajorBit&0xffff == flushMajor {
				wc.Status = Status(w3 & cqeMinorMask)
			}
		} else if w3&0xffff_ffff != 0 {
			return wc, false, broken("CQ %d: success with codes %#x", q.ID, uint32(w3))
		}
		parked, found, err := false, true, error(nil)
		if wc.Send {
			parked, found, err = qp.sq.complete(&wc, int(w3>>cqeIndexBit&cqeIndexMask), qp)
		} else {
			parked, found, err = qp.rq.complete(&wc, int(w3>>cqeIndexBit&cqeIndexMask))
		}
		if err != nil {
			return wc, false, fmt.Errorf("CQ %d: entry %d: QP %d: %w", q.ID, q.head, qp.ID, err)
		}
		if parked {
			tail := qp.sq.tail
			if !wc.Send {
				tail = qp.rq.tail << qp.rq.shift
			}
			w3 = w3&^uint64(cqeMinorMask|cqeIndexMask<<cqeIndexBit) | uint64(WRFlushErr) | uint64(tail)<<cqeIndexBit
			q.store(q.head, 24, w3)
		} else {
			q.moveHead(slots)
		}
		if found {
			return wc, true, nil
		}
	}
}

// complete takes WQEs up to the one that the entry is for. On top of what the
// driver does it wants entries in order, and none that was not asked for.
func (s *sendQueue) complete(wc *WC, index int, q *QP) (parked, found bool, err error) {
	if wc.Status == Success || wc.Status == GeneralErr {
		if index >= s.size || (index-s.tail+s.size)%s.size >= s.used() {
			return false, false, broken("completion of send WQE %d, posted are %d to %d", index, s.tail, s.head)
		}
		t := &s.track[index]
		if t.quanta == 0 || !t.signalled {
			return false, false, broken("completion of send WQE %d, which asked for none", index)
		}
		if wc.Op != t.op {
			return false, false, broken("completion of send WQE %d with opcode %#x, posted was %#x", index, wc.Op, t.op)
		}
		for at := s.tail; at != index; at = (at + s.track[at].quanta) % s.size {
			if s.track[at].signalled {
				return false, false, broken("completion of send WQE %d before that of %d", index, at)
			}
		}
		wc.ID, wc.Len = t.id, t.len
		s.tail = (index + t.quanta) % s.size
		return false, true, nil
	}
	for s.used() > 0 {
		t := &s.track[s.tail]
		op := uint8(q.mem.load(s.tail*qpQuantum+24) >> sqOpcodeBit & cqeOpMask)
		s.tail = (s.tail + t.quanta) % s.size
		if op != IRDMA_OP_TYPE_NOP {
			wc.ID, wc.Len, wc.Op = t.id, t.len, op
			s.flushed = s.used() == 0
			return s.used() > 0, true, nil
		}
	}
	return false, false, broken("flush of an empty send queue")
}

func (s *recvQueue) complete(wc *WC, index int) (parked, found bool, err error) {
	if s.used() == 0 {
		return false, false, broken("completion of receive WQE %d, none is posted", index)
	}
	if index != s.tail<<s.shift && (wc.Status == Success || wc.Status == GeneralErr) {
		return false, false, broken("completion of receive WQE %d, the oldest is %d", index, s.tail<<s.shift)
	}
	wc.ID = s.ids[s.tail]
	s.tail = (s.tail + 1) % s.size
	if wc.Status == Success || wc.Status == GeneralErr {
		return false, true, nil
	}
	s.flushed = s.used() == 0
	return s.used() > 0, true, nil
}

// clean takes the QP's context out of pending entries, which Poll skips then
// (uk.c:irdma_uk_clean_cq).
func (q *CQ) clean(qp *QP) {
	if len(q.mem) == 0 { // only the device knows where the entries are
		return
	}
	for n, polarity := q.head, q.polarity; q.load(n, 24)&eqeValid == polarity; {
		step := 1
		if q.load(n, 24)&cqeExtended != 0 {
			step = 2
		}
		if q.load(n, 8) == qp.compCtx {
			q.store(n, 8, 0)
		}
		for range step {
			if n = (n + 1) % q.Size; n == 0 {
				polarity ^= eqeValid
			}
		}
		if n == q.head {
			return
		}
	}
}

// Arm asks for an event: for the next entry, or for the next solicited one.
func (q *CQ) Arm(solicited bool) {
	v := q.shadow.Load64(32)
	v = v&^uint64(armSeqMask|armNext) | (v+armSeqOne)&armSeqMask
	if q.ID != 0 {
		v |= armNextSE
	}
	if !solicited {
		v |= armNext
	}
	q.shadow.Store64(32, v)
	if q.virtual {
		q.r.F.Write32(userCQArm, q.ID)
		return
	}
	q.r.F.Write32(PFPE_CQARM, q.ID)
}

// WaitEvent waits for the interrupt of an event of an armed CQ, and does what
// the driver does with other events meanwhile.
func (q *CQ) WaitEvent() error {
	for before := q.Events; q.Events == before; {
		if err := q.r.WaitService(q.ceq.Vector); err != nil {
			return fmt.Errorf("CQ %d: %w", q.ID, err)
		}
	}
	return nil
}
