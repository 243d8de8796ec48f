// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// CQInfo is a completion queue as a person reads it.
type CQInfo struct {
	ID       uint32     `json:"id"`
	Size     uint32     `json:"size"`
	Buf      hmc.Buffer `json:"buf"`
	Shadow   uint64     `json:"shadow"`
	Context  uint64     `json:"context"`
	CEQ      int        `json:"ceq"`      // -1: none
	Next     uint32     `json:"next"`     // index of the next entry written
	Polarity uint64     `json:"polarity"` // its valid bit
	Unread   uint64     `json:"unread"`   // by the shadow head the device read last
	Armed    string     `json:"armed"`    // "no", "solicited", "any"
	Masked   bool       `json:"masked"`   // waits for PFPE_CQACK
	Stopped  bool       `json:"stopped"`  // overflowed, or its memory is gone
	Head     uint32     `json:"head"`     // shadow head as the device read it last
	CEQMask  bool       `json:"ceq_mask"` // ENCEQEMASK: one CEQE at a time
	Owed     bool       `json:"owed"`     // a CEQE follows when PFPE_CQACK is written
	Unacked  bool       `json:"unacked"`  // a CEQE was written and not acknowledged
	Resizes  uint32     `json:"resizes"`
}

// EQ is an event queue as a person reads it.
type EQ struct {
	ID       uint32     `json:"id"`
	Size     uint32     `json:"size"`
	Buf      hmc.Buffer `json:"buf"`
	Next     uint32     `json:"next"`
	Polarity uint64     `json:"polarity"`
	Free     uint32     `json:"free"`    // AEQ only: entries the driver has given back
	Backlog  int        `json:"backlog"` // AEQ only: events that wait for a free entry
}

// CQs lists the completion queues in order of number.
func (q *Queues) CQs() []CQInfo {
	out := []CQInfo{}
	q.mu.RLock()
	handles := slices.Collect(maps.Values(q.cqs))
	q.mu.RUnlock()
	for _, c := range handles {
		out = append(out, c.info())
	}
	slices.SortFunc(out, func(a, b CQInfo) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (c *CQ) info() CQInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	ceq := -1
	if c.cfg.CEQValid {
		ceq = int(c.cfg.CEQ)
	}
	return CQInfo{c.cfg.ID, c.cfg.Size, c.cfg.Buf, c.cfg.Shadow, c.cfg.Context, ceq, c.ring.next, c.ring.polarity,
		c.produced - c.consumed, c.armed.String(), c.masked, c.stopped,
		uint32(c.consumed % uint64(c.cfg.Size)), c.cfg.CEQMask, c.owed, c.unacked > 0, c.resizes}
}

// CEQs lists the completion event queues in order of number.
func (q *Queues) CEQs() []EQ {
	out := []EQ{}
	q.mu.RLock()
	handles := maps.Clone(q.ceqs)
	q.mu.RUnlock()
	for id, e := range handles {
		e.mu.Lock()
		r := &e.ring
		out = append(out, EQ{ID: id, Size: r.size, Buf: r.buf, Next: r.next, Polarity: r.polarity})
		e.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b EQ) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// AEQ is the asynchronous event queue, if there is one.
func (q *Queues) AEQ() (EQ, bool) {
	a := &q.aeq
	a.mu.Lock()
	defer a.mu.Unlock()
	return EQ{0, a.size, a.buf, a.next, a.polarity, a.free, len(a.backlog)}, a.live
}
