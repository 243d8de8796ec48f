// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The table against a list of pages, over random maps and unmaps.
func TestTableAgainstAPageList(t *testing.T) {
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		const pages = 4096
		var m Memory
		var owner [pages]int // number of the map a page belongs to, 0: none
		n := 0
		grow := 5 + 4*rnd.IntN(2) // of 10 operations; the rest unmaps
		for range 6000 {
			first, size := rnd.IntN(pages), 1+rnd.IntN(3)
			if rnd.IntN(10) >= grow && rnd.IntN(20) == 0 {
				size = rnd.IntN(pages)
			}
			size = min(size, pages-first)
			own := owner[first : first+size]
			if rnd.IntN(10) < grow {
				size = min(size, 3)
				own = owner[first : first+size]
				free := !slices.ContainsFunc(own, func(o int) bool { return o != 0 })
				err := m.Map(uint64(first)*4096, uint64(size)*4096, nil, 0, true, true)
				if (err == nil) != free || err != nil && !errors.Is(err, syscall.EEXIST) {
					t.Fatalf("map %d+%d: %v, free %t", first, size, err, free)
				}
				if free && size > 0 {
					n++
					for i := range own {
						own[i] = n
					}
				}
				continue
			}
			cut := size > 0 && (first > 0 && own[0] != 0 && owner[first-1] == own[0] ||
				first+size < pages && own[size-1] != 0 && owner[first+size] == own[size-1])
			err := m.Unmap(uint64(first)*4096, uint64(size)*4096)
			if (err != nil) != cut {
				t.Fatalf("unmap %d+%d: %v, cuts %t", first, size, err, cut)
			}
			if err == nil {
				clear(own)
			}
		}
		count, tab := 0, m.table.Load()
		for i, o := range owner {
			if o != 0 && (i == 0 || owner[i-1] != o) {
				count++
			}
			if r, _ := tab.find(uint64(i)*4096 + 7); (r != nil) != (o != 0) {
				t.Fatalf("page %d is mapped %t, want %t", i, r != nil, o != 0)
			}
		}
		if tab.len() != count || len(tab.all()) != count || m.past != nil {
			t.Errorf("%d regions, %d listed, want %d; %d eras left", tab.len(), len(tab.all()), count, len(m.past))
		}
		if limit := 2 + 4*count/chunkMax + 2; tab != nil && len(tab.chunks) > limit {
			t.Errorf("%d chunks for %d regions", len(tab.chunks), count)
		}
	}
}

// Unmap does not wait for a running access; Settle says that there is one, and
// the host's mapping outlives it.
func TestUnmapDuringAnAccess(t *testing.T) {
	f := memfd(t, 8192)
	defer f.Close()
	var m Memory
	if err := m.Map(0x1000, 8192, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	if m.Settle() != nil {
		t.Error("something to wait for before any unmap")
	}
	running := m.enter()
	if err := m.Unmap(0x1000, 8192); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(0x1000, make([]byte, 8)); err == nil {
		t.Error("an access that began after the unmap found the memory")
	}
	wait := m.Settle()
	if wait == nil {
		t.Fatal("nothing to wait for during an access")
	}
	if b, f := running.span("read", 0x1000, 1, false); f != nil || b[0] != 0 {
		t.Error("the running access lost its memory")
	}
	// A new map of the same file meanwhile.
	if err := m.Map(0x8000, 4096, dup(t, f), 4096, true, true); err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() { wait(); close(settled) }()
	select {
	case <-settled:
		t.Error("settled during the access")
	default:
	}
	running.leave()
	<-settled
	if m.past != nil || m.pastMaps != 0 || m.files.mappings != 1 {
		t.Errorf("%d eras, %d maps, %d mappings left", len(m.past), m.pastMaps, m.files.mappings)
	}
	m.UnmapAll()
	nothingLeft(t, &m)
}

// What past eras hold on to counts as maps.
func TestPastMapsAreBounded(t *testing.T) {
	var m Memory
	if err := m.Map(0, 4096, nil, 0, true, true); err != nil {
		t.Fatal(err)
	}
	running := m.enter()
	n := 0
	for ; n < 2*maxMaps; n++ {
		if err := m.Map(4096, 4096, nil, 0, true, true); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
		if err := m.Unmap(4096, 4096); err != nil {
			t.Fatal(err)
		}
	}
	if n != maxMaps-1 {
		t.Errorf("%d maps came and went during one access, limit %d", n, maxMaps)
	}
	running.leave()
	if m.Settle() != nil {
		t.Error("not settled")
	}
	if err := m.Map(4096, 4096, nil, 0, true, true); err != nil {
		t.Error(err)
	}
}

// Accesses beside maps and unmaps find either the right bytes or a fault.
func TestAccessesBesideChanges(t *testing.T) {
	f := memfd(t, 64*4096)
	defer f.Close()
	var a, b Memory
	if err := b.Map(0, 4096, dup(t, f), 63*4096, true, true); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var users sync.WaitGroup
	for i := range 2 {
		users.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 2))
			var p [16]byte
			for !stop.Load() {
				page := rnd.IntN(63)
				if a.Read(uint64(page)*4096, p[:]) == nil && p[0] != byte(page) {
					t.Errorf("page %d begins with %d", page, p[0])
				}
				_ = Copy(&b, uint64(rnd.IntN(4000)), &a, uint64(page)*4096, 64)
				_ = Copy(&b, 0, &b, 2048, 64)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	for range 4000 {
		at := uint64(rnd.IntN(63)) * 4096
		if rnd.IntN(2) == 0 {
			_ = a.Map(at, 4096, dup(t, f), at, true, true)
		} else if err := a.Unmap(at, 4096); err != nil {
			t.Error(err)
		}
		if wait := a.Settle(); wait != nil {
			wait()
		}
	}
	stop.Store(true)
	users.Wait()
	a.UnmapAll()
	b.UnmapAll()
	nothingLeft(t, &a)
	nothingLeft(t, &b)
}

func TestIsMap(t *testing.T) {
	var m Memory
	t.Cleanup(m.UnmapAll)
	if m.IsMap(0x1000, 0x1000) {
		t.Error("something is a map of nothing")
	}
	for _, at := range []uint64{0x1000, 0x2000} {
		if err := m.Map(at, 0x1000, nil, 0, true, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		iova, size uint64
		want       bool
	}{{0x1000, 0x1000, true}, {0x2000, 0x1000, true}, {0x1000, 0x2000, false}, {0x1000, 0x800, false}, {0x1800, 0x800, false},
		{0x1800, 0x1000, false}, {0x3000, 0x1000, false}, {0, 0, false}} {
		if got := m.IsMap(tt.iova, tt.size); got != tt.want {
			t.Errorf("%#x+%#x is a map: %t", tt.iova, tt.size, got)
		}
	}
}
