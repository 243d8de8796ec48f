// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"math/rand/v2"
	"testing"
)

// The set of live memory against one that looks at every byte.
func TestSpans(t *testing.T) {
	const bytes = 256
	r := rand.New(rand.NewPCG(1, 2))
	var s spans
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
		other, ok := s.add(span{start, end, owner{"CQ", id, "ring"}})
		if ok != (first == 0) || !ok && other.owner.id != first {
			t.Fatalf("[%d, %d): %v, %t, want %d", start, end, other, ok, first)
		}
		if ok {
			for i := start; i < end; i++ {
				owners[i] = id
			}
		}
		for i := 1; i < len(s); i++ {
			if s[i-1].end > s[i].start {
				t.Fatalf("out of order: %v", s)
			}
		}
	}
}

func TestSpansRemoveOnePart(t *testing.T) {
	var s spans
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
	if len(s) != 5 {
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
