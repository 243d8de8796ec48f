// SPDX-License-Identifier: Apache-2.0

package fw

import "math/bits"

// pool hands out numbers first..first+size-1. Freed numbers are used again.
type pool struct {
	first, size, used int
	bits              []uint64
}

func newPool(first, size int) *pool {
	return &pool{first: first, size: size, bits: make([]uint64, (size+63)/64)}
}

func (p *pool) free() int { return p.size - p.used }

// has tells whether number id is handed out.
func (p *pool) has(id int) bool {
	i := id - p.first
	return i >= 0 && i < p.size && p.bits[i/64]&(1<<(i%64)) != 0
}

// take hands out the given number; false if it is out of range or taken.
func (p *pool) take(id int) bool {
	i := id - p.first
	if i < 0 || i >= p.size || p.has(id) {
		return false
	}
	p.bits[i/64] |= 1 << (i % 64)
	p.used++
	return true
}

// put takes a number back; false if it was not handed out.
func (p *pool) put(id int) bool {
	if !p.has(id) {
		return false
	}
	i := id - p.first
	p.bits[i/64] &^= 1 << (i % 64)
	p.used--
	return true
}

// lowest hands out the lowest free number.
func (p *pool) lowest() (int, bool) {
	for w, v := range p.bits {
		if i := w*64 + bits.TrailingZeros64(^v); v != ^uint64(0) && i < p.size {
			return p.first + i, p.take(p.first + i)
		}
	}
	return 0, false
}

// highest hands out the highest free number.
func (p *pool) highest() (int, bool) {
	for id := p.first + p.size - 1; id >= p.first; id-- {
		if p.take(id) {
			return id, true
		}
	}
	return 0, false
}

// run hands out n consecutive numbers and returns the first of them.
func (p *pool) run(n int) (int, bool) {
	for id, length := p.first, 0; id < p.first+p.size; id++ {
		if p.has(id) {
			length = 0
			continue
		}
		if length++; length == n {
			base := id - n + 1
			for k := base; k <= id; k++ {
				p.take(k)
			}
			return base, true
		}
	}
	return 0, false
}
