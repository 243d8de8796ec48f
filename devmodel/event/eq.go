// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

const (
	ceqeSize = 8
	aeqeSize = 16
)

// CreateCEQ adds completion event queue id with size entries.
func (q *Queues) CreateCEQ(id uint32, buf hmc.Buffer, size uint32) error {
	if q.ceqs[id] != nil {
		return fmt.Errorf("CEQ %d exists: %w", id, ErrState)
	}
	r, err := q.newRing(buf, size, ceqeSize)
	if err != nil {
		return fmt.Errorf("CEQ %d: %w", id, err)
	}
	q.ceqs[id] = &r
	return nil
}

// DestroyCEQ removes CEQ id. CQs still attached to it are reported; their
// events are lost from then on. The CCQ is expected to outlive CEQ 0.
func (q *Queues) DestroyCEQ(id uint32) error {
	if q.ceqs[id] == nil {
		return fmt.Errorf("CEQ %d does not exist: %w", id, ErrState)
	}
	for _, c := range q.cqs {
		if c.CEQValid && c.CEQ == id && c.ID != CCQ {
			q.emit(CEQInUse{CEQ: id, CQ: c.ID})
		}
	}
	delete(q.ceqs, id)
	return nil
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
	ring
	free    uint32
	backlog []AE
	lost    bool // the backlog overflowed: say so in the next entry
}

const maxBacklog = 1024

// CreateAEQ adds the asynchronous event queue.
func (q *Queues) CreateAEQ(buf hmc.Buffer, size uint32) error {
	if q.aeq != nil {
		return fmt.Errorf("the AEQ exists: %w", ErrState)
	}
	r, err := q.newRing(buf, size, aeqeSize)
	if err != nil {
		return fmt.Errorf("AEQ: %w", err)
	}
	q.aeq = &aeq{ring: r, free: size}
	return nil
}

// DestroyAEQ removes the asynchronous event queue.
func (q *Queues) DestroyAEQ() error {
	if q.aeq == nil {
		return fmt.Errorf("the AEQ does not exist: %w", ErrState)
	}
	q.aeq = nil
	return nil
}

// HasAEQ tells whether the AEQ exists.
func (q *Queues) HasAEQ() bool { return q.aeq != nil }

// Raise tells the driver of an asynchronous event. Without free entries it
// waits for PFPE_AEQALLOC; without an AEQ it is lost.
func (q *Queues) Raise(e AE) {
	if q.aeq == nil {
		q.emit(AELost{AE: e})
		return
	}
	if q.aeq.free == 0 {
		if len(q.aeq.backlog) == maxBacklog {
			q.aeq.lost = true
			q.emit(AELost{AE: e})
			return
		}
		q.aeq.backlog = append(q.aeq.backlog, e)
		return
	}
	q.writeAEQE(e)
	q.aeqi()
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
	if err := q.put(&q.aeq.ring, e.Context, w); err != nil {
		q.emit(QueueUnwritable{Queue: "AEQ", Err: err})
		return
	}
	q.aeq.free--
}

// credit is a write of PFPE_AEQALLOC: the driver is done with n entries.
func (q *Queues) credit(n uint32) {
	if q.aeq == nil {
		q.emit(AEQCredit{Count: n, NoAEQ: true})
		return
	}
	if out := q.aeq.size - q.aeq.free; n > out {
		q.emit(AEQCredit{Count: n, Outstanding: out})
		n = out
	}
	q.aeq.free += n
	raised := false
	for q.aeq.free > 0 && len(q.aeq.backlog) > 0 {
		e := q.aeq.backlog[0]
		q.aeq.backlog = q.aeq.backlog[1:]
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
