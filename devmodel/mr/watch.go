// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"slices"
	"sync"
	"sync/atomic"
)

// span is [from, to) of guest addresses.
type span struct{ from, to uint64 }

// maxSpans bounds what is remembered of one region. Behind an IOMMU a region's
// pages are as a rule one piece; a region in more pieces is watched only as
// far as the first ones.
const maxSpans = 64

// spans are the first pieces of a region, neighbours merged.
type spans struct {
	list []span
	full bool
}

func (s *spans) add(from, n uint64) {
	if s.full || from+n < from {
		return
	}
	if k := len(s.list) - 1; k >= 0 && s.list[k].to == from {
		s.list[k].to += n
		return
	}
	if len(s.list) == maxSpans {
		s.full = true
		return
	}
	s.list = append(s.list, span{from, from + n})
}

// Spans are found by the blocks they touch: small ones by small blocks, large
// ones by large blocks, so that neither has many.
const (
	smallShift = 16
	largeShift = 26
	smallSpan  = 16 << smallShift
	maxBlocks  = 512 // of one span: 32 GiB; what is longer is not watched
	// maxWatched bounds the blocks of all regions; what is more is not watched.
	maxWatched = 1 << 20
	unmapUnit  = 4096 // memory is mapped and unmapped by pages
)

// watch knows where the memory of live regions lies, to tell when it is
// unmapped. Its lock is a leaf.
type watch struct {
	on atomic.Bool

	mu     sync.Mutex
	small  map[uint64][]uint32 // slots by block
	large  map[uint64][]uint32
	spans  map[uint32][]span // by slot
	stags  map[uint32]uint32
	origin map[uint32]Origin
	blocks int // in the lists of small and large
}

// maxWatchLook bounds the pages looked at of regions that were there before the
// watch; those of what is more are not watched.
const maxWatchLook = 4 * maxAudit

// WatchUnmaps makes Unmapping tell of regions, those there are and those to
// come. Fast registered ones are not among them: kernel users unmap their
// memory also when the QP has failed and nothing can be invalidated.
func (t *Table) WatchUnmaps() {
	if !t.listens || t.watch.on.Swap(true) {
		return
	}
	left := uint64(maxWatchLook)
	for i := range t.slots {
		e := t.slots[i].entry.Load()
		if e == nil || e.State != Valid || e.Kind != Memory || e.By.QP != 0 {
			continue
		}
		s := sight{table: t, entry: e, left: min(maxAudit, left), spans: &spans{}}
		s.look(false, 0)
		left -= s.seen
		t.watched(uint32(i), e, s.spans)
	}
}

// Unmapping tells that the mapping of [iova, iova+size) ends: of each live
// region that the range is a part of an event is emitted, once. A range that is
// more is not the doing of who registered the region. It costs two look-ups
// where there is none. The caller holds the control lock.
func (t *Table) Unmapping(iova, size uint64) {
	w := &t.watch
	if !w.on.Load() || size == 0 {
		return
	}
	for _, e := range w.hit(span{iova, iova + size}) {
		t.emit(e)
	}
}

// place is the blocks of a span, and which map has them.
func (w *watch) place(s span) (m map[uint64][]uint32, first, last uint64) {
	shift, m := uint(smallShift), w.small
	if s.to-s.from > smallSpan {
		shift, m = largeShift, w.large
	}
	return m, s.from >> shift, (s.to - 1) >> shift
}

// watched notes where the memory of e, in slot i, lies, unless that has ended
// meanwhile.
func (t *Table) watched(i uint32, e *Entry, s *spans) {
	w := &t.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := t.slots[i].entry.Load(); now == nil || now.STag() != e.STag() || now.State != Valid {
		return
	}
	w.drop(i)
	if w.spans == nil {
		w.small, w.large = map[uint64][]uint32{}, map[uint64][]uint32{}
		w.spans, w.stags, w.origin = map[uint32][]span{}, map[uint32]uint32{}, map[uint32]Origin{}
	}
	for _, x := range s.list {
		m, first, last := w.place(x)
		n := last - first + 1
		if n > maxBlocks || w.blocks+int(n) > maxWatched {
			continue
		}
		w.blocks += int(n)
		for b := first; b <= last; b++ {
			m[b] = append(m[b], i)
		}
		w.spans[i] = append(w.spans[i], x)
	}
	w.stags[i], w.origin[i] = e.STag(), e.By
}

// remove forgets the region e of slot i.
func (w *watch) remove(i uint32, e *Entry) {
	if !w.on.Load() || e.State != Valid {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(i)
}

// drop forgets slot i. The caller holds mu.
func (w *watch) drop(i uint32) {
	for _, x := range w.spans[i] {
		m, first, last := w.place(x)
		w.blocks -= int(last - first + 1)
		for b := first; b <= last; b++ {
			list := m[b]
			for k, o := range slices.Backward(list) {
				if o == i {
					list[k] = list[len(list)-1]
					list = list[:len(list)-1]
					break
				}
			}
			if m[b] = list; len(list) == 0 {
				delete(m, b)
			}
		}
	}
	delete(w.spans, i)
	delete(w.stags, i)
	delete(w.origin, i)
}

// forget drops all regions.
func (w *watch) forget() {
	if !w.on.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.small, w.large, w.spans, w.stags, w.origin, w.blocks = nil, nil, nil, nil, nil, 0
}

// hit finds the regions that lose memory, and forgets them.
func (w *watch) hit(gone span) (out []UnmapLiveMR) {
	if gone.to < gone.from {
		gone.to = ^uint64(0)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// From the end, where drop finds them at once: all may be in one block.
	for _, i := range slices.Backward(w.near(gone)) {
		for _, x := range w.spans[i] {
			if x.from&^(unmapUnit-1) <= gone.from && gone.to <= (x.to+unmapUnit-1)&^(unmapUnit-1) {
				out = append(out, UnmapLiveMR{STag: w.stags[i], IOVA: gone.from, Size: gone.to - gone.from, By: w.origin[i]})
				w.drop(i)
				break
			}
		}
	}
	return out
}

// near are slots that may have memory in a range, more than once perhaps. The
// caller holds mu.
func (w *watch) near(s span) (out []uint32) {
	for _, x := range []struct {
		m     map[uint64][]uint32
		shift uint
	}{{w.small, smallShift}, {w.large, largeShift}} {
		first, last := s.from>>x.shift, (s.to-1)>>x.shift
		if last-first < uint64(len(x.m)) {
			for b := first; b <= last; b++ {
				out = append(out, x.m[b]...)
			}
			continue
		}
		for b, list := range x.m {
			if b >= first && b <= last {
				out = append(out, list...)
			}
		}
	}
	return out
}
