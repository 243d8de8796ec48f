// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"fmt"
	"testing"
)

func TestGuestTellsOnStrayWrites(t *testing.T) {
	g, err := NewGuest(4)
	must(t, err)
	defer g.Close()
	b, err := g.Alloc(100)
	must(t, err)
	must(t, g.Check())

	// Behind the run, before it, in memory nobody had, in memory given back, in
	// the canaries around every map, in memory that is read-only.
	page := func(b *Buf) int {
		for p := range g.pages {
			if g.pages[p] == used && g.iova(p) == b.IOVA {
				return p
			}
		}
		t.Fatal("allocation not found")
		return 0
	}
	p := page(b)
	strays := map[string]func() *byte{
		"behind": func() *byte { return &g.page(p + 1)[0] },
		"before": func() *byte { return &g.page(p - 1)[pageSize-1] },
		"fresh":  func() *byte { return &g.page(g.ramPages() - 2)[17] },
		"ROM":    func() *byte { return &g.page(g.ramPages() + romPages)[17] },
		"freed": func() *byte {
			old, err := g.Alloc(1)
			must(t, err)
			q := page(old)
			old.Free()
			return &g.page(q)[5]
		},
	}
	for n, r := range g.Ranges() {
		if r.File == nil {
			continue
		}
		strays[fmt.Sprintf("before map %d", n)] = func() *byte { return &g.ram[r.Offset-1] }
		strays[fmt.Sprintf("behind map %d", n)] = func() *byte { return &g.ram[r.Offset+r.Size] }
	}
	for name, stray := range strays {
		*stray() ^= 1
		if err := g.Check(); !errors.Is(err, ErrDevice) {
			t.Errorf("%s: Check says %v, want ErrDevice", name, err)
		}
		if err := g.Check(); err != nil {
			t.Errorf("%s: told twice: %v", name, err)
		}
	}
}

func TestGuestAllocation(t *testing.T) {
	g, err := NewGuest(8)
	must(t, err)
	defer g.Close()
	var all []*Buf
	seen := make(map[uint64]bool)
	for {
		b, err := g.Alloc(3 * pageSize)
		if errors.Is(err, ErrNoMemory) {
			break
		}
		must(t, err)
		for off := uint64(0); off < 3*pageSize; off += pageSize {
			if seen[b.IOVA+off] {
				t.Fatalf("%#x is given twice", b.IOVA+off)
			}
			seen[b.IOVA+off] = true
		}
		all = append(all, b)
	}
	// A guard page between neighbours and one at either end of a bank, where
	// they are the canaries.
	if most := 8 * mib / pageSize / 4; len(all) > most || len(all) < most-len(banks) {
		t.Errorf("%d runs of 3 pages and a guard fit, want about %d", len(all), most)
	}
	for _, b := range all {
		b.Free()
	}
	if n := g.InUse(); n != 0 {
		t.Errorf("%d pages in use after all was freed", n)
	}
	if _, err := g.Alloc(g.bankSize() - 2*pageSize); err != nil {
		t.Errorf("a whole bank but its canaries, after all was freed: %v", err)
	}
	if _, err := g.Alloc(g.bankSize()); !errors.Is(err, ErrNoMemory) {
		t.Errorf("a whole bank: %v, want ErrNoMemory", err)
	}
	must(t, g.Check())
}

func (g *Guest) bankSize() int { return int(g.bank) }
