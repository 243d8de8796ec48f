// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// dmaRanges are the ranges that a client has mapped, by address. The reader
// changes them; whoever does DMA by message looks at them.
type dmaRanges struct {
	mu   sync.RWMutex
	list []dmaRange
}

// dmaRange is [iova, iova+size), which may end at 2^64.
type dmaRange struct {
	iova, size         uint64
	readable, writable bool
}

// full tells whether no more range may come.
func (r *dmaRanges) full() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.list) >= maxDMAMaps
}

// add notes a range that the device accepted. Whether ranges may overlap is the
// device's decision.
func (r *dmaRanges) add(n dmaRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.after(n.iova)
	if i > 0 && r.list[i-1].iova == n.iova {
		r.list[i-1] = n
		return
	}
	r.list = slices.Insert(r.list, i, n)
}

// remove forgets all ranges inside [iova, iova+size).
func (r *dmaRanges) remove(iova, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := sort.Search(len(r.list), func(i int) bool { return r.list[i].iova >= iova })
	end := r.after(iova + (size - 1))
	kept := slices.DeleteFunc(r.list[first:end], func(m dmaRange) bool { return m.iova+(m.size-1) <= iova+(size-1) })
	r.list = slices.Delete(r.list, first+len(kept), end)
}

func (r *dmaRanges) removeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

// after is the index behind the ranges that start at iova or below.
func (r *dmaRanges) after(iova uint64) int {
	return sort.Search(len(r.list), func(i int) bool { return r.list[i].iova > iova })
}

// check finds out whether a DMA_READ or DMA_WRITE of n bytes stays inside ranges
// that allow it. No bytes are always fine.
func (r *dmaRanges) check(cmd Command, iova uint64, n int) error {
	left := uint64(n)
	if left > 0 && !fits(iova, left) {
		return unix.EFAULT
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := r.after(iova) - 1; left > 0; i++ {
		if i < 0 || i >= len(r.list) || r.list[i].iova > iova || iova-r.list[i].iova >= r.list[i].size {
			return fmt.Errorf("%#x is not mapped: %w", iova, unix.EFAULT)
		}
		m := &r.list[i]
		if cmd == CmdDMARead && !m.readable || cmd == CmdDMAWrite && !m.writable {
			return fmt.Errorf("%#x is not mapped for that: %w", iova, unix.EFAULT)
		}
		step := min(left, m.size-(iova-m.iova))
		iova, left = iova+step, left-step
	}
	return nil
}
