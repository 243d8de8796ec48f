// SPDX-License-Identifier: Apache-2.0

// Package guestmem is the one gate to guest memory: the only place that maps
// it, checks bounds, and turns an IOVA into bytes.
//
// Contract and traps:
//   - Nothing hands out a slice of guest memory: callers copy in and out.
//   - Every access is checked once against the maps of that moment; an access
//     that is not wholly inside mapped memory fails with a *Fault and moves
//     nothing. An access may span maps that touch.
//   - Unmap makes a range unreachable at once: no access that begins later
//     finds it. Accesses that were running may still be; Settle tells whether
//     any is and how to wait for it. The host's mapping of a file lives until
//     then.
//   - Copies go in rising address order.
//   - The file behind a map is the guest's: it may be truncated under us. The
//     resulting SIGBUS ends the access with a *Fault, not the process. Only
//     files are mapped whose pages come without anybody's help: in memory or
//     on a disk.
//   - Guest memory changes while we read it: read a word once, decide on the
//     copy.
package guestmem

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Range is a span of IOVA space that cannot wrap; the zero Range is empty.
type Range struct{ start, size uint64 }

// NewRange checks that start+size does not pass 2^64.
func NewRange(start, size uint64) (Range, error) {
	if size > 0 && start+size-1 < start {
		return Range{}, fmt.Errorf("range %#x+%#x wraps: %w", start, size, syscall.EINVAL)
	}
	return Range{start, size}, nil
}

// Start is the first IOVA of the range.
func (r Range) Start() uint64 { return r.start }

// Size in bytes.
func (r Range) Size() uint64 { return r.size }

func (r Range) last() uint64 { return r.start + r.size - 1 }

func (r Range) overlaps(o Range) bool {
	return r.size > 0 && o.size > 0 && r.start <= o.last() && o.start <= r.last()
}

// Fault is a failed access to guest memory.
type Fault struct {
	Op   string // "read", "write", "load", "store"
	IOVA uint64
	Len  uint64
	Why  string
	// Err is ErrNoDescriptor where that is why.
	Err error
}

func (f *Fault) Error() string {
	return fmt.Sprintf("guest memory %s of %d bytes at %#x: %s", f.Op, f.Len, f.IOVA, f.Why)
}

// Unwrap returns the cause that has a name.
func (f *Fault) Unwrap() error { return f.Err }

// ErrNoDescriptor tells memory that only messages reach from absent memory.
var ErrNoDescriptor = errors.New("mapped without a descriptor")

// Limits of one device's maps: a bound on what a client can make us hold.
// QEMU with a virtual IOMMU maps page by page, up to 65535 maps, all of the
// same few files.
const (
	pageSize   = 4096
	maxMaps    = 65535
	maxMapSize = 1 << 43 // 8 TiB
)

// region is one DMA map. host is nil when the client gave no descriptor: such
// memory is reachable only by messages.
type region struct {
	Range
	host     []byte // the bytes of the range
	file     *file
	readable bool
	writable bool
	missing  func(iova uint64) // where host is nil; may be nil
}

// Memory is the DMA address space of one device. The zero value has no maps.
type Memory struct {
	// Missing, if set before the first Map, is told of accesses to memory that
	// only messages reach, by the goroutine of the access. It must not call
	// back.
	Missing func(iova uint64)

	table atomic.Pointer[table] // what accesses see; nil: nothing

	mu    sync.Mutex // held by who changes the maps; never waits for an access
	files files
	// Eras that have ended and may have accesses yet, oldest first, and how
	// many regions they hold on to.
	past     []*era
	pastMaps int

	closer closer
}

// unlock releases mu, and then the mappings that nobody uses any more, which
// takes time if they are large. They count until they are gone.
func (m *Memory) unlock() {
	garbage := m.files.garbage
	m.files.garbage = nil
	m.mu.Unlock()
	if len(garbage) == 0 {
		return
	}
	for _, b := range garbage {
		_ = unix.Munmap(b)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range garbage {
		m.files.gone(b)
	}
}

// era is the time between two unmaps. Every access runs in one and holds use
// shared; once it has ended none enters it any more.
type era struct {
	use sync.RWMutex
	// The regions whose unmapping ended it. Their files are let go of when
	// this era and all before it have no access left.
	dropped []*region
}

// Map adds [iova, iova+size), backed by f from file offset off on. A nil f
// means memory reachable by messages only: known, but every access faults.
// Map takes ownership of f. Errors wrap EEXIST for an overlap, EINVAL for a
// range that makes no sense, a file that is too short or one that may keep us
// waiting, ENOSPC past a limit.
func (m *Memory) Map(iova, size uint64, f *os.File, off uint64, readable, writable bool) error {
	var like fileInfo
	if f != nil {
		var err error
		if like, err = examine(f); err != nil {
			m.closer.close(f)
			return err
		}
		defer f.Close()
	}
	rg, err := NewRange(iova, size)
	if err != nil {
		return err
	}
	if size == 0 {
		return fmt.Errorf("map of nothing at %#x: %w", iova, syscall.EINVAL)
	}
	if size > maxMapSize {
		return fmt.Errorf("map of %#x bytes: %w", size, syscall.ENOSPC)
	}
	r := &region{Range: rg, readable: readable, writable: writable}
	if f == nil {
		r.missing = m.Missing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if t.len()+m.pastMaps >= maxMaps {
		return fmt.Errorf("more than %d maps: %w", maxMaps, syscall.ENOSPC)
	}
	at, free := t.place(rg)
	if !free {
		return fmt.Errorf("map %#x+%#x overlaps another: %w", iova, size, syscall.EEXIST)
	}
	if f != nil {
		// Page alignment also keeps an aligned word inside one map, which the
		// atomic accesses rely on.
		if (iova|size|off)%pageSize != 0 {
			return fmt.Errorf("map %#x+%#x at file offset %#x is not page-aligned: %w", iova, size, off, syscall.EINVAL)
		}
		if r.file, err = m.files.open(f, like, off, size, writable); err != nil {
			return err
		}
		r.file.refs++
		r.host = r.file.bytes[off : off+size : off+size]
	}
	m.table.Store(t.insert(at, r))
	return nil
}

// IsMap tells whether [iova, iova+size) is one map, no more and no less.
func (m *Memory) IsMap(iova, size uint64) bool {
	r, _ := m.table.Load().find(iova)
	return r != nil && r.start == iova && r.size == size
}

// Unmap makes every map that lies wholly inside [iova, iova+size) unreachable.
// Nothing there is no error (a virtual IOMMU unmaps the whole address space);
// cutting a map in two is EINVAL, and changes nothing.
func (m *Memory) Unmap(iova, size uint64) error {
	rg, err := NewRange(iova, size)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.unlock()
	next, dropped, cut := m.table.Load().remove(rg)
	if cut != nil {
		return fmt.Errorf("unmap %#x+%#x cuts the map %#x+%#x: %w", iova, size, cut.start, cut.size, syscall.EINVAL)
	}
	m.replace(next, dropped)
	return nil
}

// Clear makes every map unreachable.
func (m *Memory) Clear() {
	m.mu.Lock()
	defer m.unlock()
	m.replace(nil, m.table.Load().all())
}

// UnmapAll drops every map and returns when no access is left.
func (m *Memory) UnmapAll() {
	m.Clear()
	if wait := m.Settle(); wait != nil {
		wait()
	}
}

// replace ends an era with the unmapping of regions.
func (m *Memory) replace(next *table, dropped []*region) {
	t := m.table.Load()
	if len(dropped) == 0 {
		return
	}
	m.table.Store(next)
	t.era.dropped = dropped
	m.past = append(m.past, t.era)
	m.pastMaps += len(dropped)
	m.reap()
}

// reap lets go of what past eras hold, as far as they have no access left.
func (m *Memory) reap() {
	for len(m.past) > 0 && m.past[0].use.TryLock() {
		e := m.past[0]
		e.use.Unlock()
		for _, r := range e.dropped {
			m.files.close(r.file)
		}
		m.pastMaps -= len(e.dropped)
		m.past[0] = nil
		m.past = m.past[1:]
	}
	if len(m.past) == 0 {
		m.past = nil
	}
}

// Settle returns nil if no access that began before an Unmap is running, or
// else a function that returns when those are over.
func (m *Memory) Settle() (wait func()) {
	m.mu.Lock()
	defer m.unlock()
	m.reap()
	if len(m.past) == 0 {
		return nil
	}
	past := append([]*era(nil), m.past...)
	return func() {
		for _, e := range past {
			e.use.Lock()
			e.use.Unlock() //lint:ignore SA2001 having had it is what counts
		}
		m.mu.Lock()
		defer m.unlock()
		m.reap()
	}
}
