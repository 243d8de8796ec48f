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
//     resulting SIGBUS ends the access with a *Fault, not the process.
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
	maxFiles   = 256
	maxMapSize = 1 << 43 // 8 TiB
	maxVirtual = 1 << 44 // of all files together
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

// file is a file behind maps. It is mapped once and as a whole, however many
// DMA maps show parts of it: the kernel limits how many mappings a process
// may have, and the whole process would suffer from a device at the limit.
type file struct {
	id    fileID
	bytes []byte
	refs  int // regions
}

type fileID struct {
	dev, ino uint64
	writable bool
}

// Memory is the DMA address space of one device. The zero value has no maps.
type Memory struct {
	// Missing, if set before the first Map, is told of accesses to memory that
	// only messages reach, by the goroutine of the access. It must not call
	// back.
	Missing func(iova uint64)

	table atomic.Pointer[table] // what accesses see; nil: nothing

	mu      sync.Mutex // held by who changes the maps; never waits for an access
	files   map[fileID]*file
	virtual uint64 // bytes that files map
	// Eras that have ended and may have accesses yet, oldest first, and how
	// many regions they hold on to.
	past     []*era
	pastMaps int
	garbage  [][]byte // mappings without a user, for unlock
}

// unlock releases mu, and then the mappings that nobody uses any more, which
// takes time if they are large.
func (m *Memory) unlock() {
	garbage := m.garbage
	m.garbage = nil
	m.mu.Unlock()
	for _, b := range garbage {
		_ = unix.Munmap(b)
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
// range that makes no sense or a file that is too short, ENOSPC past a limit.
func (m *Memory) Map(iova, size uint64, f *os.File, off uint64, readable, writable bool) error {
	if f != nil {
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
		if r.file, err = m.open(f, off, size, writable); err != nil {
			return err
		}
		r.file.refs++
		r.host = r.file.bytes[off : off+size : off+size]
	}
	m.table.Store(t.insert(at, r))
	return nil
}

// open returns the mapping of the file behind f, which holds off+size bytes.
func (m *Memory) open(f *os.File, off, size uint64, writable bool) (*file, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat of DMA map descriptor: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("DMA map of something that is no regular file: %w", syscall.EINVAL)
	}
	if off > uint64(st.Size) || size > uint64(st.Size)-off {
		return nil, fmt.Errorf("DMA map of file offset %#x+%#x, but the file has %#x bytes: %w", off, size, st.Size, syscall.EINVAL)
	}
	id := fileID{uint64(st.Dev), st.Ino, writable}
	if have := m.files[id]; have != nil && uint64(len(have.bytes)) >= off+size {
		return have, nil
	}
	// hugetlb files want a length in whole pages of theirs.
	length := uint64(st.Size)
	if b := uint64(st.Blksize); b > pageSize && b&(b-1) == 0 && b <= 1<<30 {
		length = (length + b - 1) &^ (b - 1)
	}
	if len(m.files) >= maxFiles || length > maxMapSize || m.virtual+length > maxVirtual {
		return nil, fmt.Errorf("DMA map of another file of %#x bytes: %w", length, syscall.ENOSPC)
	}
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(length), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %#x bytes of guest memory: %w", length, err)
	}
	n := &file{id: id, bytes: b}
	if m.files == nil {
		m.files = map[fileID]*file{}
	}
	m.files[id] = n // a shorter mapping of it lives as long as its regions
	m.virtual += length
	return n, nil
}

// close ends a region's use of its file.
func (m *Memory) close(r *region) {
	f := r.file
	if f == nil {
		return
	}
	if f.refs--; f.refs > 0 {
		return
	}
	if m.files[f.id] == f {
		delete(m.files, f.id)
	}
	m.virtual -= uint64(len(f.bytes))
	m.garbage = append(m.garbage, f.bytes)
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
			m.close(r)
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
