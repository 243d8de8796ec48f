// SPDX-License-Identifier: Apache-2.0

// Package ring has the queues of the data path: they grow as they fill, and
// keep nothing while they are empty.
//
// Contract and traps:
//   - A Ring has memory only while it holds something, or since it last did
//     and until Rest: who owns thousands of idle ones calls that.
//   - That memory comes from a Pool and goes back there, with whatever was in
//     it: a Pool must not outlive what its elements point to for long. It is
//     not kept for ever (sync.Pool).
//   - A Ring is used by one goroutine at a time, a Pool by any.
package ring

import (
	"math/bits"
	"sync"
)

const (
	minLen  = 4
	classes = 11 // lengths from minLen on by powers of two
)

// Pool is memory for Rings of one kind. The zero value is empty.
type Pool[T any] struct {
	free [classes]sync.Pool // of *block[T]
}

// block is a piece of such memory; its length is a power of two.
type block[T any] struct{ items []T }

// class is the one for at least n elements, which may be beyond the pooled.
func class(n int) int { return bits.Len(uint(max(n, minLen)-1)) - bits.Len(uint(minLen-1)) }

func (p *Pool[T]) get(n int) *block[T] {
	c := class(n)
	if c < classes {
		if b, ok := p.free[c].Get().(*block[T]); ok {
			return b
		}
	}
	return &block[T]{make([]T, minLen<<c)}
}

func (p *Pool[T]) put(b *block[T]) {
	if c := class(len(b.items)); c < classes {
		p.free[c].Put(b)
	}
}

// Ring is a queue. The zero value is empty.
type Ring[T any] struct {
	mem  *block[T] // nil: none
	head int
	n    int
	most int // elements at once since it had none, or while it has none, before
}

// Len is the number of elements.
func (r *Ring[T]) Len() int { return r.n }

// At is element i counted from the oldest, below Len.
func (r *Ring[T]) At(i int) *T {
	items := r.mem.items
	return &items[(r.head+i)&(len(items)-1)]
}

// Push makes room for an element, with memory of p if need be, and returns it
// with whatever was there before.
func (r *Ring[T]) Push(p *Pool[T]) *T {
	if r.mem == nil || r.n == len(r.mem.items) {
		r.grow(p)
	}
	r.n++
	r.most = max(r.most, r.n)
	return r.At(r.n - 1)
}

// grow gets memory for one more, or as much as was needed the last time.
func (r *Ring[T]) grow(p *Pool[T]) {
	bigger := p.get(max(r.n+1, r.most))
	if r.mem == nil {
		r.most = 0
	}
	for i := range r.n {
		bigger.items[i] = *r.At(i)
	}
	if r.mem != nil {
		p.put(r.mem)
	}
	r.mem, r.head = bigger, 0
}

// Pop takes the oldest element away; what At gave of it is valid until the next
// Push or Rest.
func (r *Ring[T]) Pop() {
	r.head = (r.head + 1) & (len(r.mem.items) - 1)
	r.n--
}

// Clear takes all elements away.
func (r *Ring[T]) Clear() { r.head, r.n = 0, 0 }

// Rest gives the memory to p if the Ring is empty.
func (r *Ring[T]) Rest(p *Pool[T]) {
	if r.n == 0 && r.mem != nil {
		p.put(r.mem)
		r.mem, r.head = nil, 0
	}
}
