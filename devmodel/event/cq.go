// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// CQConfig is a completion queue as CREATE_CQ describes it.
type CQConfig struct {
	ID            uint32
	Size          uint32 // entries of 32 bytes
	Buf           hmc.Buffer
	Shadow        uint64 // guest address of the shadow area
	Context       uint64 // bits 62:0, echoed in CEQEs
	CEQ           uint32
	CEQValid      bool // CEQIDVALID
	CEQMask       bool // ENCEQEMASK
	CheckOverflow bool // CHKOVERFLOW
}

// CQESize is the length in bytes of a completion queue entry.
const CQESize = 32

// CCQ is the number of the control QP's completion queue.
const CCQ = 0

type armed uint8

const (
	armNone armed = iota
	armSolicited
	armAny
)

func (a armed) String() string { return [...]string{"no", "solicited", "any"}[a] }

// cq is one completion queue. Positions count entries since creation or
// resize.
type cq struct {
	CQConfig
	ring      ring
	produced  uint64
	consumed  uint64 // as far as the shadow head showed it
	solicited uint64 // position behind the last entry that a solicited arm wants
	armed     armed
	masked    bool // a CEQE is out and not acknowledged, with ENCEQEMASK
	owed      bool // an event became due while masked
	unacked   bool
	overflow  bool

	// After a resize the shadow head speaks of the old buffer until software
	// has counted it in SW_CQ_SELECT, and stays what it was until the first
	// entry of the new one is consumed.
	resizes   uint32
	headStale bool
	oldHead   uint32
}

// Fields of the shadow area's words at 0 and 32 (defs.h:IRDMA_CQ_DBSA_*).
const (
	shadowHeadMask   = 1<<20 - 1
	shadowArmAt      = 32
	shadowSelectMask = 1<<14 - 1
	shadowArmNext    = 1 << 14
	shadowArmNextSE  = 1 << 15
)

// CreateCQ adds a completion queue: empty, not armed. A CQ may name a CEQ
// that does not exist only if it is the CCQ, which comes before CEQ 0.
func (q *Queues) CreateCQ(c CQConfig) error {
	if q.cqs[c.ID] != nil {
		return fmt.Errorf("CQ %d exists: %w", c.ID, ErrState)
	}
	if c.CEQValid && q.ceqs[c.CEQ] == nil && c.ID != CCQ {
		return fmt.Errorf("CQ %d for CEQ %d, which does not exist: %w", c.ID, c.CEQ, ErrState)
	}
	align := uint64(8)
	if c.ID == CCQ {
		align = 128
	}
	if c.Shadow%align != 0 {
		return fmt.Errorf("shadow area of CQ %d at %#x is not %d-byte aligned: %w", c.ID, c.Shadow, align, ErrParameter)
	}
	r, err := q.newRing(c.Buf, c.Size, CQESize)
	if err != nil {
		return fmt.Errorf("CQ %d: %w", c.ID, err)
	}
	q.cqs[c.ID] = &cq{CQConfig: c, ring: r}
	return nil
}

// ResizeCQ moves a CQ to a new buffer: the next entry goes to its slot 0.
// Entries left in the old one are software's to drain.
func (q *Queues) ResizeCQ(id uint32, buf hmc.Buffer, size uint32) error {
	c := q.cqs[id]
	if c == nil {
		return fmt.Errorf("CQ %d does not exist: %w", id, ErrState)
	}
	r, err := q.newRing(buf, size, CQESize)
	if err != nil {
		return fmt.Errorf("CQ %d: %w", id, err)
	}
	c.ring, c.Buf, c.Size = r, buf, size
	c.produced, c.consumed, c.solicited = 0, 0, 0
	c.resizes, c.headStale = (c.resizes+1)&shadowSelectMask, true
	return nil
}

// DestroyCQ removes a CQ; nothing of it is written afterwards.
func (q *Queues) DestroyCQ(id uint32) error {
	if q.cqs[id] == nil {
		return fmt.Errorf("CQ %d does not exist: %w", id, ErrState)
	}
	delete(q.cqs, id)
	return nil
}

// HasCQ tells whether CQ id exists.
func (q *Queues) HasCQ(id uint32) bool { return q.cqs[id] != nil }

// refresh reads the shadow head and counts what software has consumed.
func (q *Queues) refresh(c *cq) {
	word, err := q.mem.Load64(c.Shadow)
	if err != nil {
		q.emit(ShadowUnreadable{CQ: c.ID, Err: err})
		return
	}
	head := uint32(word & shadowHeadMask)
	if c.headStale {
		sel, err := q.mem.Load64(c.Shadow + shadowArmAt)
		if err != nil || uint32(sel&shadowSelectMask) != c.resizes {
			c.oldHead = head
			return
		}
		if head == c.oldHead {
			return
		}
		c.headStale = false
	}
	last := uint32(c.consumed % uint64(c.Size))
	if head == last {
		return
	}
	if head >= c.Size {
		q.emit(BadShadowHead{CQ: c.ID, Head: head, Last: last, Unread: c.produced - c.consumed})
		return
	}
	n := uint64((head + c.Size - last) % c.Size)
	if n > c.produced-c.consumed {
		q.emit(BadShadowHead{CQ: c.ID, Head: head, Last: last, Unread: c.produced - c.consumed})
		return
	}
	c.consumed += n
}

// CQE is a completion queue entry without its valid bit.
type CQE [4]uint64

// Complete writes one entry. wanted says that an arm for solicited entries
// wants it too: a solicited receive, or any error. If the CQ is full and
// checked for it, the entry is dropped, the CQ stops for good, and an
// asynchronous event tells.
func (q *Queues) Complete(id uint32, e CQE, wanted bool) error {
	c := q.cqs[id]
	if c == nil {
		return fmt.Errorf("CQ %d does not exist: %w", id, ErrState)
	}
	if c.overflow {
		return fmt.Errorf("CQ %d has overflowed: %w", id, ErrState)
	}
	if c.CheckOverflow {
		q.refresh(c)
		if c.produced-c.consumed >= uint64(c.Size) {
			c.overflow = true
			q.emit(CQOverflow{CQ: id, Size: c.Size})
			q.Raise(AE{Code: AECQOperationError, Source: AESrcCQ, Context: c.Context, ID: id})
			return fmt.Errorf("CQ %d is full: %w", id, ErrState)
		}
	}
	if err := q.put(&c.ring, e[:]...); err != nil {
		q.emit(QueueUnwritable{Queue: "CQ", ID: id, Err: err})
		return err
	}
	c.produced++
	if wanted {
		c.solicited = c.produced
	}
	if c.armed == armAny || c.armed == armSolicited && wanted {
		q.fire(c)
	}
	return nil
}

// Arm is a write of PFPE_CQARM: take the arm bits from the shadow area, and
// fire at once if an entry they want is there unread.
func (q *Queues) Arm(id uint32) {
	c := q.cqs[id]
	if c == nil {
		q.emit(UnknownCQ{Register: "PFPE_CQARM", CQ: id})
		return
	}
	word, err := q.mem.Load64(c.Shadow + shadowArmAt)
	if err != nil {
		q.emit(ShadowUnreadable{CQ: id, Err: err})
		return
	}
	switch {
	case word&shadowArmNext != 0:
		c.armed = armAny
	case word&shadowArmNextSE != 0:
		c.armed = max(c.armed, armSolicited)
	}
	q.refresh(c)
	if c.armed == armAny && c.produced > c.consumed || c.armed == armSolicited && c.solicited > c.consumed {
		q.fire(c)
	}
}

// fire uses up the arming: one CEQE now, or after the acknowledgement of the
// one before. Without a CEQ the event is lost.
func (q *Queues) fire(c *cq) {
	c.armed = armNone
	if !c.CEQValid {
		return
	}
	if c.masked {
		c.owed = true
		return
	}
	q.writeCEQE(c)
}

func (q *Queues) writeCEQE(c *cq) {
	r := q.ceqs[c.CEQ]
	if r == nil {
		return
	}
	if err := q.put(r, c.Context); err != nil {
		q.emit(QueueUnwritable{Queue: "CEQ", ID: c.CEQ, Err: err})
		return
	}
	c.masked, c.unacked = c.CEQMask, true
	q.ceq(int(c.CEQ))
}

// ack is a write of PFPE_CQACK.
func (q *Queues) ack(id uint32) {
	c := q.cqs[id]
	if c == nil {
		q.emit(UnknownCQ{Register: "PFPE_CQACK", CQ: id})
		return
	}
	if !c.unacked {
		q.emit(SpuriousAck{CQ: id})
	}
	c.masked, c.unacked = false, false
	if c.owed {
		c.owed = false
		q.writeCEQE(c)
	}
}

// UnknownCQ is the event of a doorbell for a CQ that does not exist.
type UnknownCQ struct {
	Register string
	CQ       uint32
}

func (e UnknownCQ) String() string {
	return fmt.Sprintf("%s: CQ %d does not exist", e.Register, e.CQ)
}

// SpuriousAck is the event of PFPE_CQACK without a CEQE to acknowledge.
type SpuriousAck struct{ CQ uint32 }

func (e SpuriousAck) String() string {
	return fmt.Sprintf("PFPE_CQACK: CQ %d has no unacknowledged CEQE", e.CQ)
}

// CQOverflow is the event of a completion that found its CQ full.
type CQOverflow struct{ CQ, Size uint32 }

func (e CQOverflow) String() string {
	return fmt.Sprintf("CQ %d overflows: none of its %d entries consumed", e.CQ, e.Size)
}

// BadShadowHead is the event of a shadow head that names an entry never
// written.
type BadShadowHead struct {
	CQ, Head, Last uint32
	Unread         uint64
}

func (e BadShadowHead) String() string {
	return fmt.Sprintf("shadow head of CQ %d moves from %d to %d, only %d entries are unread", e.CQ, e.Last, e.Head, e.Unread)
}

// ShadowUnreadable is the event of a CQ shadow area outside guest memory.
type ShadowUnreadable struct {
	CQ  uint32
	Err error
}

func (e ShadowUnreadable) String() string {
	return fmt.Sprintf("shadow area of CQ %d: %v", e.CQ, e.Err)
}
