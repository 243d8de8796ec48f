// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"encoding/binary"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// Segment is a piece of guest memory.
type Segment struct {
	IOVA uint64
	Len  uint32
}

// Copy moves n bytes from src to dst, which may be the memories of two guests
// or the same one, with one copy and no buffer. It fails like Read and Write:
// the Fault's Op, "read" or "write", tells which side.
func Copy(dst *Memory, dstIOVA uint64, src *Memory, srcIOVA uint64, n uint32) error {
	d, s := [1]Segment{{dstIOVA, n}}, [1]Segment{{srcIOVA, n}}
	return CopySegments(dst, d[:], src, s[:])
}

// CopySegments is Copy for lists of pieces, for as many bytes as the shorter
// list has, with one check of both lists before anything moves. It does not
// allocate. The caller bounds the lists: Unmap waits for the whole of it.
func CopySegments(dst *Memory, d []Segment, src *Memory, s []Segment) (err error) {
	c := copier{dst: cursor{m: dst, write: true, list: d}, src: cursor{m: src, list: s}}
	old := debug.SetPanicOnFault(true)
	first, second := dst, src
	if uintptr(unsafe.Pointer(first)) > uintptr(unsafe.Pointer(second)) {
		first, second = second, first
	}
	first.mu.RLock() // in one order everywhere: a waiting Unmap stops further readers
	if second != first {
		second.mu.RLock()
	}
	defer func() {
		if second != first {
			second.mu.RUnlock()
		}
		first.mu.RUnlock()
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			f, ok := r.(interface{ Addr() uintptr })
			if !ok {
				panic(r)
			}
			err = c.gone(f.Addr())
		}
	}()
	return c.run()
}

// copier is one copy under way.
type copier struct {
	dst, src       cursor
	dstNow, srcNow []byte // the rest of the pieces being copied
}

// cursor goes through a list of segments.
type cursor struct {
	m     *Memory
	write bool
	list  []Segment
	i     int
	off   uint32
}

// op names the cursor's accesses in a Fault.
func (c *cursor) op() string {
	if c.write {
		return "write"
	}
	return "read"
}

// next returns the host bytes where the cursor stands, at most n and as many
// as lie in one map, and moves behind them. Empty: the list is at its end.
func (c *cursor) next(n uint64) ([]byte, error) {
	for c.i < len(c.list) && c.off == c.list[c.i].Len {
		c.i, c.off = c.i+1, 0
	}
	if c.i == len(c.list) {
		return nil, nil
	}
	s := c.list[c.i]
	iova := s.IOVA + uint64(c.off)
	b, why := c.m.span(iova, min(n, uint64(s.Len-c.off)), c.write)
	if why != "" {
		return nil, &Fault{c.op(), iova, uint64(s.Len - c.off), why}
	}
	c.off += uint32(len(b))
	return b, nil
}

// check walks the first n bytes of the list without touching them.
func (c cursor) check(n uint64) error {
	for n > 0 {
		b, err := c.next(n)
		if err != nil {
			return err
		}
		n -= uint64(len(b))
	}
	return nil
}

func total(list []Segment) (n uint64) {
	for _, s := range list {
		n += uint64(s.Len)
	}
	return n
}

// span returns the bytes of the map at iova, at most n, or why there are
// none. The caller holds mu shared.
func (m *Memory) span(iova, n uint64, write bool) ([]byte, string) {
	i := m.find(iova)
	if i < 0 {
		return nil, "no DMA map"
	}
	r := &m.regions[i]
	switch {
	case r.host == nil:
		return nil, errNoDescriptor.Error()
	case write && !r.writable:
		return nil, "DMA map is read-only"
	case !write && !r.readable:
		return nil, "DMA map is write-only"
	}
	off := iova - r.start
	return r.host[off : off+min(n, r.size-off)], ""
}

func (c *copier) run() error {
	left := min(total(c.dst.list), total(c.src.list))
	if err := c.src.check(left); err != nil {
		return err
	}
	if err := c.dst.check(left); err != nil {
		return err
	}
	for left > 0 {
		// Both lists are checked and their maps locked.
		if len(c.srcNow) == 0 {
			c.srcNow, _ = c.src.next(left)
		}
		if len(c.dstNow) == 0 {
			c.dstNow, _ = c.dst.next(left)
		}
		n := min(len(c.srcNow), len(c.dstNow))
		left -= uint64(n)
		if left > 0 {
			copy(c.dstNow[:n], c.srcNow[:n])
		} else {
			copyLastLast(c.dstNow[:n], c.srcNow[:n])
		}
		c.srcNow, c.dstNow = c.srcNow[n:], c.dstNow[n:]
	}
	return nil
}

// copyLastLast copies with the last bytes last: receivers poll them. The
// order inside a copy is the library's own.
func copyLastLast(dst, src []byte) {
	k := max(len(src)-8, 0)
	if k == 0 && len(src) < 8 {
		copy(dst, src)
		return
	}
	last := binary.NativeEndian.Uint64(src[k:]) // before an overlapping copy
	copy(dst[:k], src[:k])
	if p := unsafe.Pointer(&dst[k]); uintptr(p)%8 == 0 {
		atomic.StoreUint64((*uint64)(p), last)
	} else {
		binary.NativeEndian.PutUint64(dst[k:], last)
	}
}

// gone is the fault of a file truncated under its map.
func (c *copier) gone(addr uintptr) error {
	side := &c.src
	if b := c.dstNow; len(b) > 0 {
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); addr >= at && addr < at+uintptr(len(b)) {
			side = &c.dst
		}
	}
	i := min(side.i, len(side.list)-1)
	return &Fault{side.op(), side.list[i].IOVA, uint64(side.list[i].Len), "the memory behind the DMA map is gone (file truncated?)"}
}
