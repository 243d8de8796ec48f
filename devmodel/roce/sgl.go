// SPDX-License-Identifier: Apache-2.0

package roce

import "encoding/binary"

// Limits of a scatter/gather list: the first fragment and those of seven
// more quanta, and the inline data of GEN_2.
const (
	MaxFragments = 15
	MaxInline    = 101
)

// SGL names payload: fragments of registered memory, or bytes carried along.
// It is a value: copying it copies all of it.
type SGL struct {
	// Owner says whose memory the fragments are of. Only hosts look at it.
	Owner any
	// Generation of the owner's life in which the list is valid.
	Generation uint32
	// Remote: the fragments are named by the peer, so remote rights count.
	Remote bool
	Inline bool

	n     uint8 // fragments
	words [2 * MaxFragments]uint64
}

// Reset makes the list empty.
func (l *SGL) Reset() { l.Owner, l.Generation, l.Remote, l.Inline, l.n = nil, 0, false, false, 0 }

// Add appends a fragment. It returns false if the list is full.
func (l *SGL) Add(stag uint32, addr uint64, n uint32) bool {
	if l.n == MaxFragments {
		return false
	}
	l.words[2*l.n], l.words[2*l.n+1] = addr, uint64(stag)|uint64(n)<<32
	l.n++
	return true
}

// Len is the number of fragments.
func (l *SGL) Len() int { return int(l.n) }

// Fragment is fragment i.
func (l *SGL) Fragment(i int) (stag uint32, addr uint64, n uint32) {
	w := l.words[2*i+1]
	return uint32(w), l.words[2*i], uint32(w >> 32)
}

// SetInline makes the list at most MaxInline bytes of its own.
func (l *SGL) SetInline(p []byte) {
	l.Inline = true
	var b [8]byte
	for i := 0; len(p) > 0; i++ {
		n := copy(b[:], p)
		clear(b[n:])
		p = p[n:]
		l.words[i] = binary.LittleEndian.Uint64(b[:])
	}
}

// InlineBytes copies from inline data at off into p.
func (l *SGL) InlineBytes(p []byte, off uint32) {
	var b [8 * len(l.words)]byte
	for i, w := range l.words {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
	copy(p, b[off:])
}

// Piece is where byte off of the list lies: the fragment's STag, the address,
// and how many bytes of that fragment follow. The second result is false
// behind the end.
func (l *SGL) Piece(off uint32) (stag uint32, addr uint64, n uint32, ok bool) {
	for i := range l.Len() {
		stag, addr, n := l.Fragment(i)
		if off < n {
			return stag, addr + uint64(off), n - off, true
		}
		off -= n
	}
	return 0, 0, 0, false
}
