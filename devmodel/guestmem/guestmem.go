// SPDX-License-Identifier: Apache-2.0

// Package guestmem is the one gate to guest memory: the only place that maps
// it, checks bounds, and turns an IOVA into bytes.
//
// Contract and traps:
//   - Nothing hands out a slice of guest memory: callers copy in and out.
//   - Every access is checked once against the maps of that moment; an access
//     that is not wholly inside mapped memory fails with a *Fault and moves
//     nothing. An access may span maps that touch.
//   - Unmap returns only when no access to the range can still be running.
//   - Copies go in rising address order.
//   - The file behind a map is the guest's: it may be truncated under us. The
//     resulting SIGBUS ends the access with a *Fault, not the process.
//   - Guest memory changes while we read it: read a word once, decide on the
//     copy.
package guestmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

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
}

func (f *Fault) Error() string {
	return fmt.Sprintf("guest memory %s of %d bytes at %#x: %s", f.Op, f.Len, f.IOVA, f.Why)
}

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

// Memory is the DMA address space of one device.
type Memory struct {
	mu      sync.RWMutex // held shared during every access, so that Unmap waits
	regions []region     // sorted by start, disjoint
	files   map[fileID]*file
	virtual uint64 // bytes that files map
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
	r := region{Range: rg, readable: readable, writable: writable}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.regions) >= maxMaps {
		return fmt.Errorf("more than %d maps: %w", maxMaps, syscall.ENOSPC)
	}
	i := sort.Search(len(m.regions), func(i int) bool { return m.regions[i].start > iova })
	if i > 0 && m.regions[i-1].overlaps(rg) || i < len(m.regions) && m.regions[i].overlaps(rg) {
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
	m.regions = append(m.regions, region{})
	copy(m.regions[i+1:], m.regions[i:])
	m.regions[i] = r
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
	r.file, r.host = nil, nil
	if f.refs--; f.refs > 0 {
		return
	}
	if m.files[f.id] == f {
		delete(m.files, f.id)
	}
	m.virtual -= uint64(len(f.bytes))
	_ = unix.Munmap(f.bytes)
}

// Unmap drops every map that lies wholly inside [iova, iova+size) and returns
// when nothing can touch them any more. Nothing there is no error (a virtual
// IOMMU unmaps the whole address space); cutting a map in two is EINVAL.
func (m *Memory) Unmap(iova, size uint64) error {
	rg, err := NewRange(iova, size)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.regions {
		r := &m.regions[i]
		if r.overlaps(rg) && (r.start < rg.start || r.last() > rg.last()) {
			return fmt.Errorf("unmap %#x+%#x cuts the map %#x+%#x: %w", iova, size, r.start, r.size, syscall.EINVAL)
		}
	}
	keep := m.regions[:0]
	for i := range m.regions {
		if m.regions[i].overlaps(rg) {
			m.close(&m.regions[i])
			continue
		}
		keep = append(keep, m.regions[i])
	}
	clear(m.regions[len(keep):])
	m.regions = keep
	return nil
}

// UnmapAll drops every map and waits like Unmap.
func (m *Memory) UnmapAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.regions {
		m.close(&m.regions[i])
	}
	m.regions = nil
}

// find returns the index of the region that holds iova, or -1.
func (m *Memory) find(iova uint64) int {
	i := sort.Search(len(m.regions), func(i int) bool { return m.regions[i].start > iova }) - 1
	if i < 0 || iova > m.regions[i].last() {
		return -1
	}
	return i
}

// errNoDescriptor tells memory that only messages reach from absent memory.
var errNoDescriptor = errors.New("mapped without a descriptor (start QEMU with memory-backend-memfd,share=on)")

// walk checks that [iova, iova+n) is accessible and calls f for each piece in
// rising order. The caller holds mu shared.
func (m *Memory) walk(op string, iova uint64, n int, write bool, f func(piece []byte)) error {
	fault := func(why string) error { return &Fault{op, iova, uint64(n), why} }
	rg, err := NewRange(iova, uint64(n))
	if err != nil {
		return fault("wraps around")
	}
	if n == 0 {
		return nil
	}
	for pass := 0; pass < 2; pass++ { // check everything, then move
		at, left := rg.start, rg.size
		for i := m.find(at); left > 0; i++ {
			if i < 0 || i >= len(m.regions) || m.regions[i].start > at {
				return fault(fmt.Sprintf("no DMA map at %#x", at))
			}
			r := &m.regions[i]
			if r.host == nil {
				return fault(errNoDescriptor.Error())
			}
			if write && !r.writable {
				return fault(fmt.Sprintf("DMA map at %#x is read-only", r.start))
			}
			if !write && !r.readable {
				return fault(fmt.Sprintf("DMA map at %#x is write-only", r.start))
			}
			off := at - r.start
			c := min(left, r.size-off)
			if pass == 1 {
				f(r.host[off : off+c])
			}
			at, left = at+c, left-c
		}
	}
	return nil
}

// guarded runs one access so that a SIGBUS of a truncated file becomes a
// Fault.
func (m *Memory) guarded(op string, iova uint64, n int, f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if _, ok := r.(interface{ Addr() uintptr }); !ok {
				panic(r)
			}
			err = &Fault{op, iova, uint64(n), "the memory behind the DMA map is gone (file truncated?)"}
		}
	}()
	m.mu.RLock()
	defer m.mu.RUnlock()
	return f()
}

// Read copies len(p) bytes at iova into p.
func (m *Memory) Read(iova uint64, p []byte) error {
	return m.guarded("read", iova, len(p), func() error {
		dst := p
		return m.walk("read", iova, len(p), false, func(b []byte) { dst = dst[copy(dst, b):] })
	})
}

// Write copies p to iova.
func (m *Memory) Write(iova uint64, p []byte) error {
	return m.guarded("write", iova, len(p), func() error {
		src := p
		return m.walk("write", iova, len(p), true, func(b []byte) { src = src[copy(b, src):] })
	})
}

// Load64 loads the aligned little-endian 8-byte word at iova in one atomic
// access, ordered before every later access of the caller.
func (m *Memory) Load64(iova uint64) (v uint64, err error) {
	err = m.guarded("load", iova, 8, func() error {
		if iova%8 != 0 {
			return &Fault{"load", iova, 8, "not 8-byte aligned"}
		}
		return m.walk("load", iova, 8, false, func(b []byte) {
			v = littleEndian(atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b)))))
		})
	})
	return v, err
}

// Store64 stores v, little-endian, into the aligned 8-byte word at iova in
// one atomic access, ordered after every earlier access of the caller: it
// publishes an entry whose other words are already written.
func (m *Memory) Store64(iova uint64, v uint64) error {
	return m.guarded("store", iova, 8, func() error {
		if iova%8 != 0 {
			return &Fault{"store", iova, 8, "not 8-byte aligned"}
		}
		return m.walk("store", iova, 8, true, func(b []byte) {
			atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), littleEndian(v))
		})
	})
}

// littleEndian converts between the host's order and the guest's.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
