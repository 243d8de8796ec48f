// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"math/rand/v2"
	"testing"
)

// The set of live memory against one that looks at every byte.
func TestSpans(t *testing.T) {
	// Pieces of a quarter of a block: some touch two or more.
	const bytes, unit = 256, 1 << (blockShift - 2)
	r := rand.New(rand.NewPCG(1, 2))
	s := newSpans()
	var owners [bytes]uint32 // 0: free
	for id := uint32(1); id < 3000; id++ {
		if r.IntN(3) == 0 {
			gone := 1 + r.Uint32N(id)
			s.remove("CQ", gone, "")
			for i, o := range owners {
				if o == gone {
					owners[i] = 0
				}
			}
		}
		start := r.Uint64N(bytes)
		end := min(start+1+r.Uint64N(20), bytes)
		first := uint32(0)
		for i := start; i < end && first == 0; i++ {
			first = owners[i]
		}
		other, ok := s.add(span{start * unit, end * unit, owner{"CQ", id, "ring"}})
		if ok != (first == 0) || !ok && other.owner.id != first {
			t.Fatalf("[%d, %d): %v, %t, want %d", start, end, other, ok, first)
		}
		if ok {
			for i := start; i < end; i++ {
				owners[i] = id
			}
		}
	}
	for id := range uint32(3000) {
		s.remove("CQ", id, "")
	}
	if len(s.blocks)+len(s.owned) != 0 {
		t.Errorf("left: %v", s)
	}
}

func TestSpansRemoveOnePart(t *testing.T) {
	s := newSpans()
	for _, part := range []string{"ring", "shadow"} {
		for id := range uint32(3) {
			at := uint64(id)*100 + uint64(len(part))
			if _, ok := s.add(span{at, at + 1, owner{"CQ", id, part}}); !ok {
				t.Fatal(id, part)
			}
		}
	}
	s.remove("CQ", 1, "ring")
	s.remove("QP", 2, "")
	left := 0
	for _, b := range s.blocks {
		left += len(b)
	}
	if left != 5 || len(s.owned[thing{"CQ", 1}]) != 1 {
		t.Errorf("%v", s)
	}
}

// No field of a command lies outside its word or in the header's.
func TestMasks(t *testing.T) {
	if w := bits(field{0, 63, 0}, field{2, 5, 3}, field{7, 63, 63}); w != (words{0: ^uint64(0), 2: 0x38, 7: 1 << 63}) {
		t.Errorf("masks %#x", w)
	}
	for _, o := range opcodes {
		if o.known[3]&header[3] != 0 {
			t.Errorf("%s: a field over opcode or valid bit: %#x", o.name, o.known[3]&header[3])
		}
	}
}
