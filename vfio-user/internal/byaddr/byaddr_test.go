// SPDX-License-Identifier: Apache-2.0

package byaddr

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAgainstModel compares with a sorted slice of addresses whose values are the
// step that stored them.
func TestAgainstModel(t *testing.T) {
	var m Map[int]
	model := map[uint64]int{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for step := range 20_000 {
		addr := rnd.Uint64N(3000)
		if step%5000 < 3000 {
			m.Set(addr, step)
			model[addr] = step
		} else {
			m.Delete(addr)
			delete(model, addr)
		}
		if m.Len() != len(model) {
			t.Fatalf("step %d: %d entries, want %d", step, m.Len(), len(model))
		}
		if step%500 != 499 {
			continue
		}
		var want []uint64
		for a := range model {
			want = append(want, a)
		}
		slices.Sort(want)
		at, _ := slices.BinarySearch(want, addr)
		var got []uint64
		for a, v := range m.From(addr) {
			if got = append(got, a); v != model[a] {
				t.Fatalf("step %d: %d at %d, want %d", step, v, a, model[a])
			}
		}
		if !slices.Equal(got, want[at:]) {
			t.Fatalf("step %d: from %d on %v, want %v", step, addr, got, want[at:])
		}
		floor, ok := -1, false
		if at < len(want) && want[at] == addr {
			floor, ok = model[addr], true
		} else if at > 0 {
			floor, ok = model[want[at-1]], true
		}
		if v, has := m.Floor(addr); has != ok || ok && v != floor {
			t.Fatalf("step %d: floor of %d is %d, %v, want %d, %v", step, addr, v, has, floor, ok)
		}
	}
	m.Clear()
	if _, ok := m.Floor(1 << 63); ok || m.Len() != 0 {
		t.Error("entries after Clear")
	}
}

// TestChunksAreSmall: what an insertion moves is bounded, whatever the order.
func TestChunksAreSmall(t *testing.T) {
	for name, addr := range map[string]func(i uint64) uint64{
		"down":   func(i uint64) uint64 { return 1<<16 - i },
		"up":     func(i uint64) uint64 { return i },
		"middle": func(i uint64) uint64 { return 1<<20 + (i+1)/2*(1-2*(i%2)) },
	} {
		var m Map[struct{}]
		for i := range uint64(1 << 16) {
			m.Set(addr(i), struct{}{})
		}
		if m.Len() != 1<<16 || len(m.chunks) > 4*(1<<16)/most {
			t.Errorf("%s: %d entries in %d chunks", name, m.Len(), len(m.chunks))
		}
		for _, c := range m.chunks {
			if len(c) == 0 || len(c) > most {
				t.Fatalf("%s: chunk of %d", name, len(c))
			}
		}
	}
}
