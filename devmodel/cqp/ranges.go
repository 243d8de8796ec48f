// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"cmp"
	"fmt"
	"slices"
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

// spans are the pieces of guest memory of live objects: disjoint, sorted. What
// overlaps one that is there is not taken in. Rings of page lists, whose pages
// lie anywhere, are left out.
type spans []span

// add takes a piece in. It returns the first one it overlaps with, if any.
func (s *spans) add(n span) (span, bool) {
	i, _ := slices.BinarySearchFunc(*s, n.start, func(e span, start uint64) int { return cmp.Compare(e.end, start+1) })
	if i < len(*s) && (*s)[i].start < n.end {
		return (*s)[i], false
	}
	*s = slices.Insert(*s, i, n)
	return span{}, true
}

// remove drops the pieces of an object, one part only if it is named.
func (s *spans) remove(object string, id uint32, part string) {
	*s = slices.DeleteFunc(*s, func(e span) bool {
		return e.owner.object == object && e.owner.id == id && (part == "" || e.owner.part == part)
	})
}

// occupy notes that an object lies at [start, start+size), and reports another
// one that lies there.
func (c *CQP) occupy(o owner, start, size uint64) {
	if size == 0 || start+size < start {
		return
	}
	if other, ok := c.tables.spans.add(span{start, start + size, o}); !ok {
		c.emit(Overlap{New: o.String(), Old: other.owner.String(), Start: start, Size: size})
	}
}

// vacate forgets where an object lies.
func (c *CQP) vacate(object string, id uint32) { c.tables.spans.remove(object, id, "") }

// probe is how far apart the looks at a ring are that tell whether it lies in
// guest memory.
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
