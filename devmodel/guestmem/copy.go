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
// allocate. The caller bounds the lists: who waits for an unmapping waits for
// the whole of it.
func CopySegments(dst *Memory, d []Segment, src *Memory, s []Segment) (err error) {
	c := copier{dst: cursor{write: true, list: d}, src: cursor{list: s}}
	old := debug.SetPanicOnFault(true)
	// In one order everywhere: who waits for one of them stops further readers.
	switch {
	case dst == src:
		c.dst.t = dst.enter()
		c.src.t = c.dst.t
	case uintptr(unsafe.Pointer(dst)) < uintptr(unsafe.Pointer(src)):
		c.dst.t = dst.enter()
		c.src.t = src.enter()
	default:
		c.src.t = src.enter()
		c.dst.t = dst.enter()
	}
	defer func() {
		c.dst.t.leave()
		if dst != src {
			c.src.t.leave()
		}
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
	t     *table
	write bool
	list  []Segment
	i     int
	off   uint32
	// Where the last pieces were: a guest's memory is in few maps, so that the
	// next one mostly is there, too.
	near, other *region
}

// find returns the region that holds iova, or nil.
func (c *cursor) find(iova uint64) *region {
	switch {
	case c.near.holds(iova):
	case c.other.holds(iova):
		c.near, c.other = c.other, c.near
	default:
		r, _ := c.t.find(iova)
		if r == nil {
			return nil
		}
		c.near, c.other = r, c.near
	}
	return c.near
}

func (r *region) holds(iova uint64) bool { return r != nil && iova-r.start < r.size }

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
	if iova < s.IOVA {
		return nil, &Fault{Op: c.op(), IOVA: s.IOVA, Len: uint64(s.Len), Why: wraps}
	}
	b, f := c.find(iova).span(c.op(), iova, min(n, uint64(s.Len-c.off)), c.write)
	if f != nil {
		f.Len = uint64(s.Len - c.off)
		return nil, f
	}
	c.off += uint32(len(b))
	return b, nil
}

// check walks the next n bytes of the list without touching them, and stays where
// it is. It returns how many pieces there are, and the first ones in into.
func (c *cursor) check(n uint64, into [][]byte) (pieces int, err error) {
	i, off := c.i, c.off
	for n > 0 && err == nil {
		var b []byte
		b, err = c.next(n)
		n -= uint64(len(b))
		if pieces < len(into) {
			into[pieces] = b
		}
		pieces++
	}
	c.i, c.off = i, off
	return pieces, err
}

func total(list []Segment) (n uint64) {
	for _, s := range list {
		n += uint64(s.Len)
	}
	return n
}

// whole finds the bytes of both sides if they are in one piece each, as the most
// and shortest copies are.
func (c *copier) whole(n uint64) (whole bool, err error) {
	if len(c.src.list) != 1 || len(c.dst.list) != 1 || n == 0 {
		return false, nil
	}
	if c.srcNow, err = c.src.next(n); err != nil {
		return false, err
	}
	if uint64(len(c.srcNow)) == n {
		if c.dstNow, err = c.dst.next(n); err != nil || uint64(len(c.dstNow)) == n {
			return err == nil, err
		}
	}
	c.srcNow, c.dstNow = nil, nil
	c.src.i, c.src.off, c.dst.i, c.dst.off = 0, 0, 0, 0
	return false, nil
}

func (c *copier) run() error {
	left := min(total(c.dst.list), total(c.src.list))
	if whole, err := c.whole(left); err != nil {
		return err
	} else if whole {
		copyLastLast(c.dstNow, c.srcNow)
		return nil
	}
	return c.pieces(left)
}

// pieces is run for lists of several. Those of a step, of as many pages as its
// bytes have, are looked up once.
func (c *copier) pieces(left uint64) error {
	const most = 18
	var src, dst [most][]byte
	s, err := c.src.check(left, src[:])
	if err != nil {
		return err
	}
	d, err := c.dst.check(left, dst[:])
	if err != nil {
		return err
	}
	// A piece is a segment then, so that i tells which.
	if left == 0 || s > most || d > most || s != len(c.src.list) || d != len(c.dst.list) {
		c.walk(left)
		return nil
	}
	for c.srcNow, c.dstNow = src[0], dst[0]; ; {
		n := min(len(c.srcNow), len(c.dstNow))
		if left -= uint64(n); left == 0 {
			copyLastLast(c.dstNow[:n], c.srcNow[:n])
			return nil
		}
		copy(c.dstNow[:n], c.srcNow[:n])
		if c.srcNow = c.srcNow[n:]; len(c.srcNow) == 0 {
			c.src.i++
			c.srcNow = src[c.src.i]
		}
		if c.dstNow = c.dstNow[n:]; len(c.dstNow) == 0 {
			c.dst.i++
			c.dstNow = dst[c.dst.i]
		}
	}
}

// walk copies as it goes through the lists again.
func (c *copier) walk(left uint64) {
	for left > 0 {
		// Both lists are checked and their maps held.
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
	return &Fault{Op: side.op(), IOVA: side.list[i].IOVA, Len: uint64(side.list[i].Len), Why: fileGone}
}
