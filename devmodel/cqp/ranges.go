// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vrnic/vrnic/devmodel/mr"
)

// owner is an object that lies in guest memory, and which part of it.
type owner struct {
	object string // "CQ", "SD" and the like
	id     uint32
	part   string // "ring", "shadow" and the like
}

func (o owner) String() string { return fmt.Sprintf("%s %d %s", o.object, o.id, o.part) }

// span is guest memory that the device may write at any time.
type span struct {
	start, end uint64 // end is behind the last byte
	owner      owner
}

// spans are the pieces of guest memory of live objects, which are disjoint:
// what overlaps one that is there is not taken in. Rings of page lists, whose
// pages lie anywhere, are left out: their lists are claimed of the STags' table.
//
// They are kept by the blocks they touch, so that neither many objects nor
// long rings make a command slow.
type spans struct {
	blocks map[uint64][]span // sorted by start
	owned  map[thing][]span
}

// thing is an object without its parts.
type thing struct {
	object string
	id     uint32
}

const blockShift = 21

func newSpans() spans { return spans{map[uint64][]span{}, map[thing][]span{}} }

// place is where a span that begins at start is, or belongs, in a block.
func place(block []span, start uint64) int {
	i, _ := slices.BinarySearchFunc(block, start, func(e span, start uint64) int { return cmp.Compare(e.start, start) })
	return i
}

// add takes a piece in. It returns the first one it overlaps with, if any.
func (s *spans) add(n span) (span, bool) {
	first, last := n.start>>blockShift, (n.end-1)>>blockShift
	for b := first; b <= last; b++ {
		block := s.blocks[b]
		i := place(block, n.start)
		if i > 0 && block[i-1].end > n.start {
			return block[i-1], false
		}
		if i < len(block) && block[i].start < n.end {
			return block[i], false
		}
	}
	for b := first; b <= last; b++ {
		s.blocks[b] = slices.Insert(s.blocks[b], place(s.blocks[b], n.start), n)
	}
	t := thing{n.owner.object, n.owner.id}
	s.owned[t] = append(s.owned[t], n)
	return span{}, true
}

// remove drops the pieces of an object, one part only if it is named.
func (s *spans) remove(object string, id uint32, part string) {
	t := thing{object, id}
	var rest []span
	for _, e := range s.owned[t] {
		if part != "" && e.owner.part != part {
			rest = append(rest, e)
			continue
		}
		for b := e.start >> blockShift; b <= (e.end-1)>>blockShift; b++ {
			i := place(s.blocks[b], e.start)
			if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
				delete(s.blocks, b)
			}
		}
	}
	if len(rest) == 0 {
		delete(s.owned, t)
	} else {
		s.owned[t] = rest
	}
}

// occupy notes that an object lies at [start, start+size), and reports another
// one that lies there. Fields bound size to some 64 MiB.
func (c *CQP) occupy(o owner, start, size uint64) {
	if size == 0 || start+size < start {
		return
	}
	if other, ok := c.tables.spans.add(span{start, start + size, o}); !ok {
		c.emit(Overlap{New: o.String(), Old: other.owner.String(), Start: start, Size: size})
	}
}

// vacate forgets where an object lies.
func (c *CQP) vacate(object string, id uint32) {
	c.tables.spans.remove(object, id, "")
	c.mrs.Release(mr.Queue{Object: object, ID: id})
}

// How far apart the looks at a ring are that tell whether it lies in guest
// memory, and how many there may be.
const probeStep, maxProbes = 64 << 10, 1024

// probe reports a piece of memory, given to the device for later use, that is
// not guest memory. It looks at the ends and at some places in between.
func (c *CQP) probe(w *wqe, what string, start, size uint64) {
	if size == 0 {
		return
	}
	step := max(probeStep, size/maxProbes)
	var b [1]byte
	look := func(at uint64) bool {
		err := c.mem.Read(at, b[:])
		if err != nil {
			c.emit(Unmapped{What: what, Address: at, Size: size, Op: w.name, Index: w.index, Err: err})
		}
		return err == nil
	}
	for off := uint64(0); off < size; off += step {
		if !look(start + off) {
			return
		}
	}
	look(start + size - 1)
}
