// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/vfio-user/internal/byaddr"
	"golang.org/x/sys/unix"
)

// dmaRanges are the ranges that a client has mapped. The reader changes them;
// whoever does DMA by message looks at them.
type dmaRanges struct {
	mu  sync.RWMutex
	all byaddr.Map[dmaRange]
}

// dmaRange is [iova, iova+size), which may end at 2^64.
type dmaRange struct {
	iova, size         uint64
	readable, writable bool
}

func (m *dmaRange) last() uint64 { return m.iova + (m.size - 1) }

// full tells whether no more range may come.
func (r *dmaRanges) full() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all.Len() >= maxDMAMaps
}

// add notes a range that the device accepted. Whether ranges may overlap is the
// device's decision.
func (r *dmaRanges) add(n dmaRange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Set(n.iova, n)
}

// remove forgets all ranges inside [iova, iova+size).
func (r *dmaRanges) remove(iova, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := iova + (size - 1)
	var inside []uint64
	for at, m := range r.all.From(iova) {
		if at > last {
			break
		}
		if m.last() <= last {
			inside = append(inside, at)
		}
	}
	for _, at := range inside {
		r.all.Delete(at)
	}
}

func (r *dmaRanges) removeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Clear()
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
	for left > 0 {
		m, ok := r.all.Floor(iova)
		if !ok || iova > m.last() {
			return fmt.Errorf("%#x is not mapped: %w", iova, unix.EFAULT)
		}
		if cmd == CmdDMARead && !m.readable || cmd == CmdDMAWrite && !m.writable {
			return fmt.Errorf("%#x is not mapped for that: %w", iova, unix.EFAULT)
		}
		step := min(left, m.size-(iova-m.iova))
		iova, left = iova+step, left-step
	}
	return nil
}
