// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// CQConfig is a completion queue as CREATE_CQ describes it.
type CQConfig struct {
	ID            uint32
	Size          uint32 // slots of 32 bytes
	Buf           hmc.Buffer
	Shadow        uint64 // guest address of the shadow area
	Context       uint64 // bits 62:0, echoed in CEQEs
	CEQ           uint32
	CEQValid      bool // CEQIDVALID
	CEQMask       bool // ENCEQEMASK
	CheckOverflow bool // CHKOVERFLOW
}

// CCQ is the number of the control QP's completion queue.
const CCQ = 0

type armed uint8

const (
	armNone armed = iota
	armSolicited
	armAny
)

func (a armed) String() string { return [...]string{"no", "solicited", "any"}[a] }

// CQ is the handle of one completion queue. It may be kept: after the queue's
// end it stays valid and does nothing. Positions count slots since creation
// or resize.
type CQ struct {
	q   *Queues
	cfg CQConfig // Buf and Size change at a resize, under mu

	mu        sync.Mutex
	ring      ring
	produced  uint64
	consumed  uint64 // as far as the shadow head showed it
	solicited uint64 // position behind the last entry that a solicited arm wants
	armed     armed
	masked    bool   // a CEQE is out and not acknowledged, with ENCEQEMASK
	owed      bool   // an event became due while masked
	unacked   uint32 // CEQEs out and not acknowledged; with ENCEQEMASK at most one
	stopped   bool   // overflowed, or its memory is gone
	dead      bool   // destroyed

	// After a resize the shadow head speaks of the old buffer until software
	// has counted it in SW_CQ_SELECT, and stays what it was until the first
	// entry of the new one is consumed.
	resizes uint32
	newHead headState
	stale   uint32 // where it stays: behind the old buffer's last entry
}

// headState tells how far a resize has got.
type headState uint8

const (
	headValid    headState = iota // the head is one of this buffer
	headDraining                  // software still drains the old buffer
	headUnmoved                   // drained; the head is where it was left, or came to the same place
)

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
func (q *Queues) CreateCQ(cfg CQConfig) error {
	if q.CQ(cfg.ID) != nil {
		return fmt.Errorf("CQ %d exists: %w", cfg.ID, ErrState)
	}
	if cfg.CEQValid && q.ceqOf(cfg.CEQ) == nil && cfg.ID != CCQ {
		return fmt.Errorf("CQ %d for CEQ %d, which does not exist: %w", cfg.ID, cfg.CEQ, ErrState)
	}
	align := uint64(8)
	if cfg.ID == CCQ {
		align = 128
	}
	if cfg.Shadow%align != 0 {
		return fmt.Errorf("shadow area of CQ %d at %#x is not %d-byte aligned: %w", cfg.ID, cfg.Shadow, align, ErrParameter)
	}
	r, err := q.newRing(cfg.Buf, cfg.Size, CQESize)
	if err != nil {
		return fmt.Errorf("CQ %d: %w", cfg.ID, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cqs[cfg.ID] = &CQ{q: q, cfg: cfg, ring: r}
	return nil
}

// ResizeCQ moves a CQ to a new buffer: the next entry goes to its slot 0.
// Entries left in the old one are software's to drain.
func (q *Queues) ResizeCQ(id uint32, buf hmc.Buffer, size uint32) error {
	c := q.CQ(id)
	if c == nil {
		return fmt.Errorf("CQ %d does not exist: %w", id, ErrState)
	}
	r, err := q.newRing(buf, size, CQESize)
	if err != nil {
		return fmt.Errorf("CQ %d: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.produced > 0 || c.newHead == headValid { // else software finds nothing there and leaves the head
		c.stale = c.ring.next
	}
	c.ring, c.cfg.Buf, c.cfg.Size = r, buf, size
	c.produced, c.consumed, c.solicited = 0, 0, 0
	c.resizes, c.newHead = (c.resizes+1)&shadowSelectMask, headDraining
	return nil
}

// DestroyCQ removes a CQ. When it returns nothing of it is written any more,
// by whichever goroutine holds its handle.
func (q *Queues) DestroyCQ(id uint32) error {
	q.mu.Lock()
	c := q.cqs[id]
	delete(q.cqs, id)
	q.mu.Unlock()
	if c == nil {
		return fmt.Errorf("CQ %d does not exist: %w", id, ErrState)
	}
	c.kill()
	return nil
}

func (c *CQ) kill() {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
}

// CQ returns the handle of a completion queue, nil if there is none.
func (q *Queues) CQ(id uint32) *CQ {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.cqs[id]
}

// HasCQ tells whether CQ id exists.
func (q *Queues) HasCQ(id uint32) bool { return q.CQ(id) != nil }

// ID is the number of the CQ.
func (c *CQ) ID() uint32 { return c.cfg.ID }

// refresh reads the shadow head and counts what software has consumed.
func (c *CQ) refresh() {
	word, err := c.q.mem.Load64(c.cfg.Shadow)
	if err != nil {
		c.q.emit(ShadowUnreadable{CQ: c.cfg.ID, Err: err})
		return
	}
	head := uint32(word & shadowHeadMask)
	if c.newHead == headDraining {
		sel, err := c.q.mem.Load64(c.cfg.Shadow + shadowArmAt)
		if err != nil || uint32(sel&shadowSelectMask) != c.resizes {
			return
		}
		// Read again: what was read before may be the old buffer's.
		if word, err = c.q.mem.Load64(c.cfg.Shadow); err != nil {
			return
		}
		head, c.newHead = uint32(word&shadowHeadMask), headUnmoved
	}
	if c.newHead == headUnmoved && head == c.stale {
		return
	}
	// Consumed are at most all entries, and unread at most a bufferful.
	size := uint64(c.cfg.Size)
	unread := (c.produced%size + size - uint64(head)%size) % size
	if uint64(head) >= size || unread > c.produced || c.newHead == headValid && c.moved(head) > c.produced-c.consumed {
		c.q.emit(BadShadowHead{CQ: c.cfg.ID, Head: head, Last: uint32(c.consumed % size), Unread: c.produced - c.consumed})
		return
	}
	if c.newHead == headValid {
		c.consumed += c.moved(head)
	} else {
		c.newHead, c.consumed = headValid, c.produced-unread
	}
}

// moved is how far the head has come since the last time.
func (c *CQ) moved(head uint32) uint64 {
	size := uint64(c.cfg.Size)
	return (uint64(head) + size - c.consumed%size) % size
}

// taken is how many entries software has consumed, as far as can be told. As
// long as the head is where it was left before a resize, it may have come there
// anew: a program that consumes is not to be stopped for one that does not, and
// then it would have overflowed the CQ anyway.
func (c *CQ) taken() uint64 {
	if c.newHead != headUnmoved {
		return c.consumed
	}
	again := uint64(c.stale)
	if again == 0 {
		again = uint64(c.cfg.Size)
	}
	if again > uint64(c.cfg.Size) || again > c.produced {
		return 0
	}
	return again
}

// Post writes one completion and, if the CQ is armed for it, the event. It
// may be called from any goroutine, with or without the control lock. False
// means that the entry is lost: the CQ is destroyed (or nil), or stopped for
// good because it overflowed or its memory is gone, of which an asynchronous
// event tells once.
//
// A CQ armed for solicited entries wants solicited ones and errors; the
// control QP's wants every one.
func (c *CQ) Post(e Entry) bool {
	if c == nil {
		return false
	}
	w, wanted := e.words(), e.Solicited || e.Error || c.cfg.ID == CCQ
	if !e.extended() {
		return c.post(&w, nil, wanted)
	}
	x := e.Ext.words()
	return c.post(&w, &x, wanted)
}

func (c *CQ) post(w, ext *cqe, wanted bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead || c.stopped {
		return false
	}
	need := uint32(1)
	if ext != nil {
		need = 2
	}
	if c.full(need) {
		c.q.emit(CQOverflow{CQ: c.cfg.ID, Size: c.cfg.Size})
		c.stop()
		return false
	}
	// The extension is complete before the entry that announces it.
	if ext != nil {
		if err := c.q.put(&c.ring, 1, ext[0], ext[1], ext[2], ext[3]); err != nil {
			return c.unwritable(err)
		}
	}
	if err := c.q.put(&c.ring, 0, w[0], w[1], w[2], w[3]); err != nil {
		return c.unwritable(err)
	}
	c.ring.advance(need)
	c.produced += uint64(need)
	if wanted {
		c.solicited = c.produced
	}
	// An arm either comes before and is seen here, or after and sees the
	// entry: both hold mu.
	if c.armed == armAny || c.armed == armSolicited && wanted {
		c.fire()
	}
	return true
}

// full tells whether need more slots would overwrite entries not consumed.
// The shadow head, a word in guest memory, is read only when half of the
// queue may be taken.
func (c *CQ) full(need uint32) bool {
	size := uint64(c.cfg.Size)
	if uint64(need) > size {
		return true
	}
	if !c.cfg.CheckOverflow {
		return false
	}
	if c.produced-c.consumed+uint64(need) > size/2 {
		c.refresh()
	}
	return c.produced-c.taken()+uint64(need) > size
}

// unwritable stops the CQ: of an extended entry one half may be in memory,
// and software would wait for ever for the entry lost.
func (c *CQ) unwritable(err error) bool {
	c.q.emit(QueueUnwritable{Queue: "CQ", ID: c.cfg.ID, Err: err})
	c.stop()
	return false
}

func (c *CQ) stop() {
	c.stopped = true
	c.q.AE(AE{Code: AECQOperationError, Source: AESrcCQ, Context: c.cfg.Context, ID: c.cfg.ID})
}

// arm is a write of PFPE_CQARM: take the arm bits from the shadow area, and
// fire at once if an entry they want is there unread.
func (q *Queues) arm(id uint32, register string) {
	c := q.CQ(id)
	if c == nil {
		q.emit(UnknownCQ{Register: register, CQ: id})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	word, err := q.mem.Load64(c.cfg.Shadow + shadowArmAt)
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
	c.refresh()
	if taken := c.taken(); c.armed == armAny && c.produced > taken || c.armed == armSolicited && c.solicited > taken {
		c.fire()
	}
}

// fire uses up the arming: one CEQE now, or after the acknowledgement of the
// one before. Without a CEQ the event is lost.
func (c *CQ) fire() {
	c.armed = armNone
	if !c.cfg.CEQValid {
		return
	}
	if c.masked {
		c.owed = true
		return
	}
	c.announce()
}

// announce writes the CEQE.
func (c *CQ) announce() {
	if c.q.writeCEQE(c.cfg.CEQ, c.cfg.Context) {
		c.masked = c.cfg.CEQMask
		c.unacked++
	}
}

// ack is a write of PFPE_CQACK.
func (q *Queues) ack(id uint32) {
	c := q.CQ(id)
	if c == nil {
		q.emit(UnknownCQ{Register: "PFPE_CQACK", CQ: id})
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	if c.unacked == 0 {
		q.emit(SpuriousAck{CQ: id})
	} else {
		c.unacked--
	}
	c.masked = false
	if c.owed {
		c.owed = false
		c.announce()
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
	return fmt.Sprintf("CQ %d overflows: none of its %d slots free", e.CQ, e.Size)
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
