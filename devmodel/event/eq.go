// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

const (
	ceqeSize = 8
	aeqeSize = 16
)

// ceq is one completion event queue.
type ceq struct {
	mu   sync.Mutex
	ring ring
	dead bool
}

func (q *Queues) ceqOf(id uint32) *ceq {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.ceqs[id]
}

// HasCEQ tells whether CEQ id exists.
func (q *Queues) HasCEQ(id uint32) bool { return q.ceqOf(id) != nil }

// CreateCEQ adds completion event queue id with size entries.
func (q *Queues) CreateCEQ(id uint32, buf hmc.Buffer, size uint32) error {
	if q.ceqOf(id) != nil {
		return fmt.Errorf("CEQ %d exists: %w", id, ErrState)
	}
	r, err := q.newRing(buf, size, ceqeSize)
	if err != nil {
		return fmt.Errorf("CEQ %d: %w", id, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ceqs[id] = &ceq{ring: r}
	return nil
}

// DestroyCEQ removes CEQ id. CQs still attached to it are reported; their
// events are lost from then on. The CCQ is expected to outlive CEQ 0.
func (q *Queues) DestroyCEQ(id uint32) error {
	q.mu.Lock()
	e := q.ceqs[id]
	delete(q.ceqs, id)
	var users []uint32
	for _, c := range q.cqs {
		if c.cfg.CEQValid && c.cfg.CEQ == id && c.cfg.ID != CCQ {
			users = append(users, c.cfg.ID)
		}
	}
	q.mu.Unlock()
	if e == nil {
		return fmt.Errorf("CEQ %d does not exist: %w", id, ErrState)
	}
	e.kill()
	for _, cq := range users {
		q.emit(CEQInUse{CEQ: id, CQ: cq})
	}
	return nil
}

func (e *ceq) kill() {
	e.mu.Lock()
	e.dead = true
	e.mu.Unlock()
}

// writeCEQE writes one entry and raises the queue's cause. It returns false
// where the entry is lost.
func (q *Queues) writeCEQE(id uint32, context uint64) bool {
	e := q.ceqOf(id)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return false
	}
	if err := q.put(&e.ring, 0, context); err != nil {
		q.emit(QueueUnwritable{Queue: "CEQ", ID: id, Err: err})
		return false
	}
	e.ring.advance(1)
	q.ceq(int(id))
	return true
}

// Asynchronous event codes and sources this package itself uses
// (user.h:IRDMA_AE_*, ctrl.c:irdma_sc_get_next_aeqe).
const (
	AECQOperationError  = 0x0203
	AEQPSuspendComplete = 0x0900

	AESrcNone = 0
	AESrcCQ   = 2
)

// AE is an asynchronous event.
type AE struct {
	Code    uint16
	Source  uint8
	Context uint64 // of the QP or CQ
	ID      uint32 // QP or CQ number
	WQE     uint16 // index of the WQE it is about
	State   uint8  // QP state after the event
}

// aeq is the asynchronous event queue. free entries are those the driver has
// given back with PFPE_AEQALLOC.
type aeq struct {
	mu   sync.Mutex
	live bool
	ring
	free    uint32
	backlog []AE
	lost    bool // the backlog overflowed: say so in the next entry
}

const maxBacklog = 1024

// CreateAEQ adds the asynchronous event queue.
func (q *Queues) CreateAEQ(buf hmc.Buffer, size uint32) error {
	r, err := q.newRing(buf, size, aeqeSize)
	a := &q.aeq
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.live:
		return fmt.Errorf("the AEQ exists: %w", ErrState)
	case err != nil:
		return fmt.Errorf("AEQ: %w", err)
	}
	a.live, a.ring, a.free = true, r, size
	return nil
}

// DestroyAEQ removes the asynchronous event queue.
func (q *Queues) DestroyAEQ() error {
	if !q.aeq.kill() {
		return fmt.Errorf("the AEQ does not exist: %w", ErrState)
	}
	return nil
}

// kill ends the queue and tells whether there was one.
func (a *aeq) kill() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.live
	a.live, a.ring, a.free, a.backlog, a.lost = false, ring{}, 0, nil, false
	return was
}

// HasAEQ tells whether the AEQ exists.
func (q *Queues) HasAEQ() bool {
	q.aeq.mu.Lock()
	defer q.aeq.mu.Unlock()
	return q.aeq.live
}

// AE tells the driver of an asynchronous event. Without free entries it waits
// for PFPE_AEQALLOC; without an AEQ it is lost. It may be called from any
// goroutine, with or without the control lock.
func (q *Queues) AE(e AE) {
	a := &q.aeq
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.live:
		q.emit(AELost{AE: e})
	case a.free > 0:
		q.writeAEQE(e)
		q.aeqi()
	case len(a.backlog) < maxBacklog:
		a.backlog = append(a.backlog, e)
	default:
		a.lost = true
		q.emit(AELost{AE: e})
	}
}

func (q *Queues) writeAEQE(e AE) {
	w := uint64(e.ID)&0x3FFFF | uint64(e.ID)>>18&1<<46 |
		uint64(e.WQE)&0x7FFF<<18 |
		uint64(e.Code)&0xFFF<<34 |
		uint64(e.Source)&0xF<<50 |
		uint64(e.State)&7<<54
	if q.aeq.lost {
		q.aeq.lost = false
		w |= 1 << 33
	}
	if err := q.put(&q.aeq.ring, 0, e.Context, w); err != nil {
		q.emit(QueueUnwritable{Queue: "AEQ", Err: err})
		return
	}
	q.aeq.advance(1)
	q.aeq.free--
}

// credit is a write of PFPE_AEQALLOC: the driver is done with n entries.
func (q *Queues) credit(n uint32) {
	a := &q.aeq
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.live {
		q.emit(AEQCredit{Count: n, NoAEQ: true})
		return
	}
	if out := a.size - a.free; n > out {
		q.emit(AEQCredit{Count: n, Outstanding: out})
		n = out
	}
	a.free += n
	raised := false
	for a.free > 0 && len(a.backlog) > 0 {
		e := a.backlog[0]
		a.backlog = a.backlog[1:]
		q.writeAEQE(e)
		raised = true
	}
	if raised {
		q.aeqi()
	}
}

// CEQInUse is the event of destroying a CEQ that a CQ still uses.
type CEQInUse struct{ CEQ, CQ uint32 }

func (e CEQInUse) String() string {
	return fmt.Sprintf("DESTROY_CEQ %d while CQ %d is attached to it", e.CEQ, e.CQ)
}

// AELost is the event of an asynchronous event that no queue could take.
type AELost struct{ AE AE }

func (e AELost) String() string {
	return fmt.Sprintf("asynchronous event %#04x for %d is lost", e.AE.Code, e.AE.ID)
}

// AEQCredit is the event of a PFPE_AEQALLOC for entries the driver never got.
type AEQCredit struct {
	Count, Outstanding uint32
	NoAEQ              bool
}

func (e AEQCredit) String() string {
	if e.NoAEQ {
		return fmt.Sprintf("PFPE_AEQALLOC of %d without an AEQ", e.Count)
	}
	return fmt.Sprintf("PFPE_AEQALLOC of %d, only %d entries are outstanding", e.Count, e.Outstanding)
}
