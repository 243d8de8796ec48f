// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// CQ is a completion queue as a person reads it.
type CQ struct {
	ID       uint32
	Size     uint32
	Buf      hmc.Buffer
	Shadow   uint64
	Context  uint64
	CEQ      int    // -1: none
	Next     uint32 // index of the next entry written
	Polarity uint64 // its valid bit
	Unread   uint64 // by the shadow head the device read last
	Armed    string // "no", "solicited", "any"
	Masked   bool   // waits for PFPE_CQACK
	Overflow bool
}

// EQ is an event queue as a person reads it.
type EQ struct {
	ID       uint32
	Size     uint32
	Buf      hmc.Buffer
	Next     uint32
	Polarity uint64
	Free     uint32 // AEQ only: entries the driver has given back
}

// CQs lists the completion queues in order of number.
func (q *Queues) CQs() []CQ {
	out := []CQ{}
	for _, c := range q.cqs {
		ceq := -1
		if c.CEQValid {
			ceq = int(c.CEQ)
		}
		out = append(out, CQ{c.ID, c.Size, c.Buf, c.Shadow, c.Context, ceq, c.ring.next, c.ring.polarity,
			c.produced - c.consumed, c.armed.String(), c.masked, c.overflow})
	}
	slices.SortFunc(out, func(a, b CQ) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// CEQs lists the completion event queues in order of number.
func (q *Queues) CEQs() []EQ {
	out := []EQ{}
	for id, r := range q.ceqs {
		out = append(out, EQ{ID: id, Size: r.size, Buf: r.buf, Next: r.next, Polarity: r.polarity})
	}
	slices.SortFunc(out, func(a, b EQ) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// AEQ is the asynchronous event queue, if there is one.
func (q *Queues) AEQ() (EQ, bool) {
	if q.aeq == nil {
		return EQ{}, false
	}
	a := q.aeq
	return EQ{0, a.size, a.buf, a.next, a.polarity, a.free}, true
}
