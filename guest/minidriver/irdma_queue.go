// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"fmt"
)

// ErrFull says that a queue has no room for a work request.
var ErrFull = errors.New("queue is full")

// Operations of send WQEs (irdma/user.h:IRDMA_OP_TYPE_*, defs.h:IRDMAQP_OP_*).
const (
	IRDMA_OP_TYPE_RDMA_WRITE     = 0x00
	IRDMA_OP_TYPE_RDMA_READ      = 0x01
	IRDMA_OP_TYPE_SEND           = 0x03
	IRDMA_OP_TYPE_SEND_INV       = 0x04
	IRDMA_OP_TYPE_SEND_SOL       = 0x05
	IRDMA_OP_TYPE_SEND_SOL_INV   = 0x06
	IRDMA_OP_TYPE_BIND_MW        = 0x08
	IRDMA_OP_TYPE_FAST_REG_NSMR  = 0x09
	IRDMA_OP_TYPE_INV_STAG       = 0x0a
	IRDMA_OP_TYPE_RDMA_READ_INV  = 0x0b // IRDMA_OP_TYPE_RDMA_READ_INV_STAG
	IRDMA_OP_TYPE_NOP            = 0x0c
	IRDMA_OP_TYPE_RDMA_WRITE_SOL = 0x0d
)

// Fields of the WQE header (irdma/defs.h:IRDMAQPSQ_*).
const (
	sqOpcodeBit    = 32
	sqAddFragBit   = 38
	sqImmData      = 1 << 47
	sqInlineLenBit = 48
	sqInlineData   = 1 << 57
	sqReadFence    = 1 << 60
	sqLocalFence   = 1 << 61
	sqSignalled    = 1 << 62
	fragLenBit     = 32

	sqChunk    = 8   // quanta that a WQE does not cross (max_hw_sq_chunk)
	sqClear    = 128 // quanta that are cleared at once (uk.c:irdma_clr_wqes)
	userDBPage = 0x7f0000
	userCQArm  = userDBPage + 64
)

// SGE is a piece of memory of a work request.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// SendWR is a work request for a send queue.
type SendWR struct {
	ID     uint64
	Op     uint8
	SGEs   []SGE
	Inline []byte // instead of SGEs, if not nil
	Imm    uint32
	HasImm bool

	Signalled, ReadFence, LocalFence bool

	RemoteAddr uint64
	RKey       uint32 // or the STag to invalidate

	FastReg *FastReg // of FAST_REG_NSMR
	Bind    *Bind    // of BIND_MW
}

// flags are the bits of the header that all requests have.
func (w *SendWR) flags() (header uint64) {
	if w.Signalled {
		header |= sqSignalled
	}
	if w.ReadFence {
		header |= sqReadFence
	}
	if w.LocalFence {
		header |= sqLocalFence
	}
	return header
}

// Len is the bytes that the request moves.
func (w *SendWR) Len() (n uint32) {
	n = uint32(len(w.Inline))
	for _, s := range w.SGEs {
		n += s.Len
	}
	return n
}

// RecvWR is a work request for a receive queue.
type RecvWR struct {
	ID   uint64
	SGEs []SGE
}

// sendQueue is the software side of a send queue, in quanta.
type sendQueue struct {
	size, head, tail int
	rung             int // where the head was when post_wr looked last
	polarity         bool
	track            []sendTrack // by the first quantum of a WQE
	flushed          bool        // the flush entry was used up
}

type sendTrack struct {
	id        uint64
	len       uint32
	quanta    int
	op        uint8
	signalled bool
}

func (s *sendQueue) init(size int) { *s = sendQueue{size: size, track: make([]sendTrack, size)} }

func (s *sendQueue) used() int { return (s.head - s.tail + s.size) % s.size }

// free is defs.h:IRDMA_SQ_RING_FREE_QUANTA.
func (s *sendQueue) free() int { return s.size - s.used() - (sqReserved - 1) }

func (s *sendQueue) moveHead(n int) { s.head = (s.head + n) % s.size }

// recvQueue is the software side of a receive queue, in WQEs.
type recvQueue struct {
	size, head, tail int
	shift            int // log2 of the quanta of a WQE
	polarity         bool
	ids              []uint64
	flushed          bool
}

func (s *recvQueue) init(quanta, shift int) {
	*s = recvQueue{size: quanta >> shift, shift: shift, ids: make([]uint64, quanta>>shift)}
}

func (s *recvQueue) quanta() int { return s.size << s.shift }

func (s *recvQueue) used() int { return (s.head - s.tail + s.size) % s.size }

func valid(polarity bool) uint64 {
	if polarity {
		return wqeValid
	}
	return 0
}

// fragQuanta is uk.c:irdma_fragcnt_to_quanta_sq.
func fragQuanta(n int) int { return max(1, n/2+1) }

// inlineQuanta is uk.c:irdma_inline_data_size_to_quanta.
func inlineQuanta(n int) int {
	if n <= 8 {
		return 1
	}
	return 1 + (n-8+30)/31
}

// PostSend puts work requests into the send queue and rings once
// (verbs.c:irdma_post_send). Those before one that fails are posted.
func (q *QP) PostSend(wrs ...SendWR) error {
	wasEmpty := q.sq.used() == 0
	var err error
	for k := range wrs {
		if err = q.put(&wrs[k]); err != nil {
			break
		}
	}
	switch {
	case q.Cfg.User:
		q.r.F.Write32(userDBPage, q.ID)
		if wasEmpty && q.State == IRDMA_QP_STATE_ERROR && err == nil {
			// uverbs.c:irdma_upost_send
			_, err = q.flush(flushSQ, flushCodes{})
		}
	case !q.flushed && q.hwState <= IRDMA_QP_STATE_RTS:
		q.ring()
	}
	return errors.Join(err, q.r.F.Err())
}

// ring is uk.c:irdma_uk_qp_post_wr. Old kernels ring only if the device, by
// what it says, fetches from what was posted since the last look.
func (q *QP) ring() {
	s := &q.sq
	if q.r.Kernel.ElidesDoorbells {
		tail := int(q.mem.load(q.shadowOff) & 0x7fff)
		rings := false
		if s.head != s.rung && s.head != tail {
			if s.head > s.rung {
				rings = tail >= s.rung && tail < s.head
			} else {
				rings = tail >= s.rung || tail < s.head
			}
		}
		s.rung = s.head
		if !rings {
			return
		}
	}
	q.r.F.Write32(PFPE_WQEALLOC, q.ID)
}

// place finds the quanta of a WQE, behind NOPs if it would cross a chunk
// (uk.c:irdma_qp_get_next_send_wqe, irdma_clr_wqes).
func (q *QP) place(quanta int, t sendTrack) (at int, slot []byte, err error) {
	s := &q.sq
	left := sqChunk - s.head%sqChunk
	pad := 0
	if quanta > left {
		pad = left
	}
	if quanta+pad > s.free() {
		return 0, nil, fmt.Errorf("send queue of QP %d: %w", q.ID, ErrFull)
	}
	for range pad {
		q.nop()
		s.moveHead(1)
	}
	at = s.head
	if at == 0 {
		s.polarity = !s.polarity
	}
	s.moveHead(quanta)
	t.quanta = quanta
	s.track[at] = t
	if at%sqClear == 0 {
		next := (at + sqClear) % s.size
		fill := byte(0)
		if s.polarity != (next != 0) {
			fill = 0xff
		}
		for k := next; k < next+sqClear; k++ {
			b := q.mem.slice(k*qpQuantum, qpQuantum)
			for n := range b {
				b[n] = fill
			}
		}
	}
	return at, q.mem.slice(at*qpQuantum, quanta*qpQuantum), nil
}

// nop is uk.c:irdma_nop_1.
func (q *QP) nop() {
	s := &q.sq
	s.track[s.head] = sendTrack{quanta: 1, op: IRDMA_OP_TYPE_NOP}
	off := s.head * qpQuantum
	for n := range 3 {
		q.mem.store(off+8*n, 0)
	}
	q.mem.store(off+24, IRDMA_OP_TYPE_NOP<<sqOpcodeBit|valid(s.polarity))
}

// put writes a WQE, valid bit last, and does not ring.
func (q *QP) put(w *SendWR) error {
	if words, header, ok := w.local(); ok {
		return q.putLocal(w, words, header)
	}
	t := sendTrack{id: w.ID, len: w.Len(), op: w.Op, signalled: w.Signalled}
	header := uint64(w.RKey) | uint64(w.Op)<<sqOpcodeBit | w.flags()
	if w.HasImm {
		header |= sqImmData
	}
	var at int
	var slot []byte
	var err error
	if w.Inline != nil {
		if len(w.Inline) > maxInline {
			return fmt.Errorf("%d bytes inline", len(w.Inline))
		}
		if at, slot, err = q.place(inlineQuanta(len(w.Inline)), t); err != nil {
			return err
		}
		header |= sqInlineData | uint64(len(w.Inline))<<sqInlineLenBit
		if w.HasImm {
			le.PutUint64(slot, uint64(w.Imm))
		}
		putInline(slot, w.Inline, q.sq.polarity)
	} else {
		if len(w.SGEs) > maxSGEs {
			return fmt.Errorf("%d SGEs", len(w.SGEs))
		}
		n := len(w.SGEs)
		if w.HasImm {
			n++
		}
		if at, slot, err = q.place(fragQuanta(n), t); err != nil {
			return err
		}
		first := w.SGEs
		if w.HasImm {
			le.PutUint64(slot, uint64(w.Imm))
		} else if len(first) > 0 {
			putFragment(slot, first[0], q.sq.polarity)
			first = first[1:]
		} else {
			putFragment(slot, SGE{}, q.sq.polarity)
		}
		header |= uint64(putFragments(slot, first, n, q.sq.polarity)) << sqAddFragBit
	}
	le.PutUint64(slot[16:], w.RemoteAddr)
	q.mem.store(at*qpQuantum+24, header|valid(q.sq.polarity))
	return nil
}

// putFragment is uk.c:irdma_set_fragment.
func putFragment(b []byte, s SGE, polarity bool) {
	le.PutUint64(b, s.Addr)
	le.PutUint64(b[8:], uint64(s.Len)<<fragLenBit|uint64(s.LKey)|valid(polarity))
}

// putFragments writes those behind the header, of n in all with what is before
// it, and an empty one if there is room for it. It returns how many there are.
func putFragments(wqe []byte, list []SGE, n int, polarity bool) int {
	off := 32
	for _, s := range list {
		putFragment(wqe[off:], s, polarity)
		off += 16
	}
	count := max(n-1, 0)
	if n > 0 && n%2 == 0 {
		putFragment(wqe[off:], SGE{}, polarity)
		count++
	}
	return count
}

// putInline is uk.c:irdma_copy_inline_data.
func putInline(wqe, data []byte, polarity bool) {
	n := copy(wqe[8:16], data)
	flag := byte(valid(polarity) >> 56)
	for off := 32; n < len(data); off += 32 {
		n += copy(wqe[off:off+31], data[n:])
		wqe[off+31] = flag
	}
}

// PostRecv puts work requests into the receive queue: the device finds them
// itself (uk.c:irdma_uk_post_receive).
func (q *QP) PostRecv(wrs ...RecvWR) error {
	wasEmpty := q.rq.used() == 0
	s := &q.rq
	for _, w := range wrs {
		if s.used() == s.size-1 {
			return fmt.Errorf("receive queue of QP %d: %w", q.ID, ErrFull)
		}
		if quanta := fragQuanta(len(w.SGEs)); quanta > 1<<s.shift {
			return fmt.Errorf("%d SGEs in WQEs of %d quanta", len(w.SGEs), 1<<s.shift)
		}
		at := s.head
		if at == 0 {
			s.polarity = !s.polarity
		}
		s.head = (s.head + 1) % s.size
		s.ids[at] = w.ID
		off := q.rqOff + at<<s.shift*qpQuantum
		slot := q.mem.slice(off, qpQuantum<<s.shift)
		rest := w.SGEs
		var first SGE
		if len(rest) > 0 {
			first, rest = rest[0], rest[1:]
		}
		putFragment(slot, first, s.polarity)
		count := putFragments(slot, rest, len(w.SGEs), s.polarity)
		le.PutUint64(slot[16:], 0)
		q.mem.store(off+24, uint64(count)<<sqAddFragBit|valid(s.polarity))
	}
	if q.Cfg.User && wasEmpty && q.State == IRDMA_QP_STATE_ERROR && len(wrs) > 0 {
		_, err := q.flush(flushRQ, flushCodes{}) // uverbs.c:irdma_upost_recv
		return err
	}
	return q.r.F.Err()
}
