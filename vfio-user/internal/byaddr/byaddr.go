// SPDX-License-Identifier: Apache-2.0

// Package byaddr has an ordered map from addresses, in which every operation
// costs little with tens of thousands of entries, in whatever order they come and
// go: a client chooses that.
package byaddr

import (
	"iter"
	"slices"
	"sort"
)

// most is how many entries a chunk may have.
const most = 256

// Map is a map from addresses to values. The zero value is empty. It is not safe
// for concurrent changes.
type Map[T any] struct {
	chunks [][]entry[T] // none is empty
	n      int
}

type entry[T any] struct {
	addr  uint64
	value T
}

// Len is the number of entries.
func (m *Map[T]) Len() int { return m.n }

// Set stores the value at addr, instead of one that is there.
func (m *Map[T]) Set(addr uint64, value T) {
	c, i := m.from(addr)
	if c < len(m.chunks) && m.chunks[c][i].addr == addr {
		m.chunks[c][i].value = value
		return
	}
	m.n++
	switch {
	case len(m.chunks) == 0:
		m.chunks = append(m.chunks, nil)
	case i == 0 && c > 0: // rather the end of a chunk than the start of one
		c--
		i = len(m.chunks[c])
	}
	chunk := slices.Insert(m.chunks[c], i, entry[T]{addr, value})
	m.chunks[c] = chunk
	if len(chunk) > most {
		m.chunks[c] = chunk[: most/2 : most/2]
		m.chunks = slices.Insert(m.chunks, c+1, slices.Clone(chunk[most/2:]))
	}
}

// Delete removes the entry at addr, if there is one.
func (m *Map[T]) Delete(addr uint64) {
	c, i := m.from(addr)
	if c == len(m.chunks) || m.chunks[c][i].addr != addr {
		return
	}
	m.n--
	m.chunks[c] = slices.Delete(m.chunks[c], i, i+1)
	if len(m.chunks[c]) == 0 {
		m.chunks = slices.Delete(m.chunks, c, c+1)
	}
}

// Floor gives the value with the highest address that is not above addr.
func (m *Map[T]) Floor(addr uint64) (value T, ok bool) {
	c, i := m.from(addr)
	if c < len(m.chunks) && m.chunks[c][i].addr == addr {
		return m.chunks[c][i].value, true
	}
	if i > 0 {
		return m.chunks[c][i-1].value, true
	}
	if c > 0 {
		last := m.chunks[c-1]
		return last[len(last)-1].value, true
	}
	return value, false
}

// From goes through the entries at addr and above, in order. The map must not
// change meanwhile.
func (m *Map[T]) From(addr uint64) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		c, i := m.from(addr)
		for ; c < len(m.chunks); c, i = c+1, 0 {
			for _, e := range m.chunks[c][i:] {
				if !yield(e.addr, e.value) {
					return
				}
			}
		}
	}
}

// Clear removes all entries.
func (m *Map[T]) Clear() { m.chunks, m.n = nil, 0 }

// from is the place of the first entry at addr or above; behind the last one it
// is (len(m.chunks), 0).
func (m *Map[T]) from(addr uint64) (c, i int) {
	c = sort.Search(len(m.chunks), func(c int) bool {
		chunk := m.chunks[c]
		return chunk[len(chunk)-1].addr >= addr
	})
	if c == len(m.chunks) {
		return c, 0
	}
	chunk := m.chunks[c]
	return c, sort.Search(len(chunk), func(i int) bool { return chunk[i].addr >= addr })
}
