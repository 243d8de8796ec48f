// SPDX-License-Identifier: Apache-2.0

package mr

// claims tells which live region last named each PBLE, in units of what
// drivers allocate at once (pble.c:PBLE_SHIFT): for the report that two live
// lists share one. It is guarded by the table's lock.
type claims struct {
	chunks map[uint32]*claimChunk
	ranges map[uint32][]claim // by slot
}

// claim is a run of PBLEs of one region.
type claim struct{ first, n uint32 }

const (
	claimUnit  = 8 // PBLEs
	chunkUnits = 512
	// maxClaims bounds what is remembered of one region: the root and all
	// leaves of 512 pages.
	maxClaims = 1 + maxAudit/leafEntries
)

// claimChunk has the slot that has claimed each unit; 0: none.
type claimChunk [chunkUnits]uint32

// claim makes n PBLEs from first on slot i's, and notes whose they were.
func (s *sight) claim(i uint32, first, n uint64) {
	if n == 0 || s.entry.Shared {
		return
	}
	n = min(n, maxAudit)
	t := s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[i].entry.Load() != s.entry {
		return // gone again
	}
	c := &t.claims
	if c.chunks == nil {
		c.chunks, c.ranges = map[uint32]*claimChunk{}, map[uint32][]claim{}
	}
	if len(c.ranges[i]) >= maxClaims {
		c.end(i) // fast registrations of ever other lists
	}
	r := claim{uint32(first), uint32(n)}
	for _, old := range c.ranges[i] {
		if old == r {
			return
		}
	}
	c.each(r, true, func(x *uint32) {
		if o := *x; o != 0 && o != i && !s.overlaps {
			s.overlaps, s.shared = c.meets(o, r)
			s.other = o
		}
		*x = i
	})
	c.ranges[i] = append(c.ranges[i], r)
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

// meets tells whether a run has PBLEs of slot i, and which is the first.
func (c *claims) meets(i uint32, r claim) (bool, uint32) {
	for _, o := range c.ranges[i] {
		if o.first < r.first+r.n && r.first < o.first+o.n {
			return true, max(o.first, r.first)
		}
	}
	return false, 0
}

// end drops what slot i has claimed.
func (c *claims) end(i uint32) {
	for _, r := range c.ranges[i] {
		c.each(r, false, func(x *uint32) {
			if *x == i {
				*x = 0
			}
		})
	}
	delete(c.ranges, i)
}
