// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func contents(r *Ring[int]) (out []int) {
	for i := range r.Len() {
		out = append(out, *r.At(i))
	}
	return out
}

// A Ring does what a slice does.
func TestRing(t *testing.T) {
	var p Pool[int]
	var r Ring[int]
	var want []int
	rnd := rand.New(rand.NewPCG(1, 1))
	for n := range 20_000 {
		switch k := rnd.IntN(20); {
		case k < 11:
			*r.Push(&p) = n
			want = append(want, n)
		case k < 17 && len(want) > 0:
			r.Pop()
			want = want[1:]
		case k == 18:
			r.Rest(&p)
		case k == 19 && rnd.IntN(100) == 0:
			r.Clear()
			want = nil
		}
		if got := contents(&r); !slices.Equal(got, want) {
			t.Fatalf("after %d operations: %v, want %v", n, got, want)
		}
	}
}

// What is empty keeps nothing, and what works again needs no new memory.
func TestRest(t *testing.T) {
	var p Pool[[64]byte]
	var r Ring[[64]byte]
	work := func() {
		for range 100 {
			r.Push(&p)
		}
		r.Rest(&p)
		if r.mem == nil {
			t.Fatal("a ring that holds something has lost its memory")
		}
		for range 100 {
			r.Pop()
		}
		r.Rest(&p)
		if r.mem != nil {
			t.Fatal("an empty ring keeps memory")
		}
	}
	work()
	if n := testing.AllocsPerRun(1000, work); n >= 1 && !raced {
		t.Errorf("%v allocations", n)
	}
}

// What needed much memory the last time gets it at once.
func TestRemembers(t *testing.T) {
	var p Pool[int]
	var r Ring[int]
	fill := func(n int) (first int) {
		for i := range n {
			r.Push(&p)
			if i == 0 {
				first = len(r.mem.items)
			}
		}
		for range n {
			r.Pop()
		}
		r.Rest(&p)
		return first
	}
	var got []int
	for _, n := range []int{100, 3, 20, 1} {
		got = append(got, fill(n))
	}
	if want := []int{4, 128, 4, 32}; !slices.Equal(got, want) {
		t.Errorf("memory for the first element: %v, want %v", got, want)
	}
}

func TestClasses(t *testing.T) {
	for n, want := range map[int]int{0: 4, 1: 4, 4: 4, 5: 8, 8: 8, 9: 16, 4096: 4096, 5000: 8192} {
		if got := minLen << class(n); got != want {
			t.Errorf("memory for %d: %d, want %d", n, got, want)
		}
	}
}
