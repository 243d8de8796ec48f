// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRangesAgainstPages holds the ranges against a plain map of pages.
func TestRangesAgainstPages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const pages = 40
	var r dmaRanges
	var model [pages + 1]*dmaRange // who has the page
	base := uint64(math.MaxUint64 - pages*pageSize + 1)
	for range 20000 {
		at := rnd.IntN(pages)
		n := 1 + rnd.IntN(min(6, pages-at))
		iova, size := base+uint64(at)*pageSize, uint64(n)*pageSize
		switch rnd.IntN(8) {
		case 0:
			r.remove(iova, size)
			for i := at; i < at+n; i++ {
				if m := model[i]; m != nil && m.iova >= iova && m.iova+(m.size-1) <= iova+(size-1) {
					model[i] = nil
				}
			}
		case 1, 2:
			free := true
			for i := at; i < at+n; i++ {
				free = free && model[i] == nil
			}
			if free {
				m := &dmaRange{iova, size, rnd.IntN(4) > 0, rnd.IntN(4) > 0}
				r.add(*m)
				for i := at; i < at+n; i++ {
					model[i] = m
				}
			}
		default:
			cmd, from := CmdDMARead, iova+uint64(rnd.IntN(pageSize))
			if rnd.IntN(2) == 0 {
				cmd = CmdDMAWrite
			}
			length := 1 + rnd.IntN(n*pageSize)
			want := uint64(length)-1 <= math.MaxUint64-from
			for i := int((from - base) / pageSize); want && i <= int((from+uint64(length)-1-base)/pageSize); i++ {
				m := model[i]
				want = m != nil && (cmd == CmdDMARead && m.readable || cmd == CmdDMAWrite && m.writable)
			}
			if err := r.check(cmd, from, length); (err == nil) != want || err != nil && !errors.Is(err, unix.EFAULT) {
				t.Fatalf("%v of %#x+%#x: %v, want %v", cmd, from, length, err, want)
			}
		}
	}
	r.removeAll()
	if err := r.check(CmdDMARead, base, 0); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

func TestRangesAreBounded(t *testing.T) {
	var r dmaRanges
	for i := range uint64(maxDMAMaps) {
		if r.full() {
			t.Fatalf("full with %d", i)
		}
		r.add(dmaRange{iova: i * pageSize, size: pageSize})
	}
	if !r.full() {
		t.Error("not full")
	}
	r.remove(0, pageSize)
	if r.full() {
		t.Error("full after an unmap")
	}
}

// BenchmarkRangesDownwards maps as much as may be, the highest address first.
func BenchmarkRangesDownwards(b *testing.B) {
	for b.Loop() {
		var r dmaRanges
		for i := range uint64(maxDMAMaps) {
			r.add(dmaRange{iova: (maxDMAMaps - i) * pageSize, size: pageSize})
		}
	}
}
