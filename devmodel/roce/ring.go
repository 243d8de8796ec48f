// SPDX-License-Identifier: Apache-2.0

package roce

// ring is a queue that grows and then keeps its memory.
type ring[T any] struct {
	buf  []T // a power of two long
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// at is element i counted from the oldest.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// push makes room for an element and returns it, with whatever it held before.
func (r *ring[T]) push() *T {
	if r.n == len(r.buf) {
		bigger := make([]T, max(4, 2*len(r.buf)))
		for i := range r.n {
			bigger[i] = *r.at(i)
		}
		r.buf, r.head = bigger, 0
	}
	r.n++
	return r.at(r.n - 1)
}

func (r *ring[T]) pop() {
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

// drop takes the newest element away again.
func (r *ring[T]) drop() { r.n-- }

func (r *ring[T]) clear() { r.head, r.n = 0, 0 }
