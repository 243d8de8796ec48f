// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// claims tells which live object last named each PBLE, in units of what
// drivers allocate at once (pble.c:PBLE_SHIFT): for the report that two live
// lists share one. It is guarded by the table's lock.
type claims struct {
	chunks map[uint32]*claimChunk
	ranges map[uint32][]claim // by slot of a region, or number of a queue
	runs   int                // in ranges

	queues map[Queue]uint32 // their numbers, all above those of slots
	last   uint32
	owners map[uint32]queueClaim
}

// Queue is a queue whose memory is a page list.
type Queue struct {
	Object string // "QP", "CQ" and the like
	ID     uint32
}

func (q Queue) String() string { return fmt.Sprintf("%s %d", q.Object, q.ID) }

// queueClaim is a queue with claims, and what made it.
type queueClaim struct {
	Queue
	by Origin
}

// firstQueue is above all slots, which have 24 bits.
const firstQueue = 1 << 24

func (c *claims) init() {
	if c.chunks == nil {
		c.chunks, c.ranges = map[uint32]*claimChunk{}, map[uint32][]claim{}
		c.queues, c.owners, c.last = map[Queue]uint32{}, map[uint32]queueClaim{}, firstQueue
	}
}

// claim is a run of PBLEs.
type claim struct{ first, n uint32 }

const (
	claimUnit  = 8 // PBLEs
	chunkUnits = 512
	// maxClaims bounds what is remembered of one region: the root and all
	// leaves of 512 pages. maxRuns bounds all; what is more is not looked at.
	maxClaims = 1 + maxAudit/leafEntries
	maxRuns   = 1 << 18
)

// claimChunk has the number that has claimed each unit; 0: none.
type claimChunk [chunkUnits]uint32

// claim makes n PBLEs from first on slot i's, and notes whose they were.
func (s *sight) claim(i uint32, first, n uint64) {
	if n == 0 || s.entry.Shared {
		return
	}
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[i].entry.Load() != s.entry {
		return // gone again
	}
	c := &t.claims
	c.init()
	if len(c.ranges[i]) >= maxClaims {
		c.end(i) // fast registrations of ever other lists
	}
	if o, index := c.take(i, claim{uint32(first), uint32(min(n, maxAudit))}); o != 0 && s.shared == nil {
		s.shared = t.sharing(o)
		s.shared.Object, s.shared.Index, s.shared.By = fmt.Sprintf("STag %#08x", s.entry.STag()), index, s.entry.By
	}
}

// Claim notes the page list of a queue of n pages, if somebody listens. A list
// that a live object has is reported.
func (t *Table) Claim(q Queue, first uint32, n uint64, by Origin) {
	if !t.listens || n == 0 || uint64(first) >= uint64(t.hmc.Count(hmc.PBLE)) {
		return
	}
	if event := t.claimQueue(q, claim{first, uint32(min(n, maxAudit))}, by); event != nil {
		t.emit(*event)
	}
}

func (t *Table) claimQueue(q Queue, r claim, by Origin) (event *PBLEShared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.claims
	c.init()
	i, ok := c.queues[q]
	if !ok {
		c.last++
		i = c.last
		c.queues[q], c.owners[i] = i, queueClaim{q, by}
	}
	if o, index := c.take(i, r); o != 0 {
		event = t.sharing(o)
		event.Object, event.Index, event.By = q.String(), index, by
	}
	return event
}

// Release forgets the page lists of a queue.
func (t *Table) Release(q Queue) {
	if !t.listens {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.claims
	if i, ok := c.queues[q]; ok {
		c.end(i)
		delete(c.queues, q)
		delete(c.owners, i)
	}
}

// sharing is the event of sharing PBLEs with the owner of number o. The caller
// holds mu.
func (t *Table) sharing(o uint32) *PBLEShared {
	if q, ok := t.claims.owners[o]; ok {
		return &PBLEShared{Other: q.String(), OtherBy: q.by}
	}
	e := t.slots[o].entry.Load()
	if e == nil {
		return &PBLEShared{Other: fmt.Sprintf("STag index %d", o)}
	}
	return &PBLEShared{Other: fmt.Sprintf("STag %#08x", e.STag()), OtherBy: e.By}
}

// take makes a run number i's. If another owner has part of it, that one's
// number and the first PBLE of it come back.
func (c *claims) take(i uint32, r claim) (other, index uint32) {
	if c.runs == maxRuns || slices.Contains(c.ranges[i], r) {
		return 0, 0
	}
	c.each(r, true, func(x *uint32) {
		if o := *x; o != 0 && o != i && other == 0 {
			if shared, at := c.meets(o, r); shared {
				other, index = o, at
			}
		}
		*x = i
	})
	c.ranges[i] = append(c.ranges[i], r)
	c.runs++
	return other, index
}

// each calls f with the units of a run; without create, only with those that
// somebody has claimed once.
func (c *claims) each(r claim, create bool, f func(*uint32)) {
	end := (r.first+r.n-1)/claimUnit + 1
	for u := r.first / claimUnit; u < end; {
		next := min((u/chunkUnits+1)*chunkUnits, end)
		k := c.chunks[u/chunkUnits]
		if k == nil && create {
			k = new(claimChunk)
			c.chunks[u/chunkUnits] = k
		}
		if k != nil {
			for j := u; j < next; j++ {
				f(&k[j%chunkUnits])
			}
		}
		u = next
	}
}

// meets tells whether a run has PBLEs of number i, and which is the first.
func (c *claims) meets(i uint32, r claim) (bool, uint32) {
	for _, o := range c.ranges[i] {
		if o.first < r.first+r.n && r.first < o.first+o.n {
			return true, max(o.first, r.first)
		}
	}
	return false, 0
}

// end drops what number i has claimed.
func (c *claims) end(i uint32) {
	for _, r := range c.ranges[i] {
		c.each(r, false, func(x *uint32) {
			if *x == i {
				*x = 0
			}
		})
	}
	c.runs -= len(c.ranges[i])
	delete(c.ranges, i)
}
