// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// enter begins an access: the maps returned stay what they are until leave.
// The caller has a SIGBUS guard.
func (m *Memory) enter() *table {
	for {
		t := m.table.Load()
		if t == nil {
			return nil
		}
		t.era.use.RLock()
		// An era that has ended in between is not to be entered: who ended it
		// may have looked already.
		if now := m.table.Load(); now != nil && now.era == t.era {
			return now
		}
		t.era.use.RUnlock()
	}
}

// leave ends an access.
func (t *table) leave() {
	if t != nil {
		t.era.use.RUnlock()
	}
}

// span returns the bytes at iova, at most n and as many as lie in one map, or
// the fault of an access op.
func (t *table) span(op string, iova, n uint64, write bool) ([]byte, *Fault) {
	r, _ := t.find(iova)
	return r.span(op, iova, n, write)
}

// span is span of a table for the region that holds iova, or nil if none does.
func (r *region) span(op string, iova, n uint64, write bool) ([]byte, *Fault) {
	if r == nil || r.host == nil || write && !r.writable || !write && !r.readable {
		return nil, r.fault(op, iova, n, write)
	}
	off := iova - r.start
	return r.host[off : off+min(n, r.size-off)], nil
}

// fault is why op does not work on r, which is nil for no map.
func (r *region) fault(op string, iova, n uint64, write bool) *Fault {
	f := &Fault{Op: op, IOVA: iova, Len: n}
	switch {
	case r == nil:
		f.Why = fmt.Sprintf("no DMA map at %#x", iova)
	case r.host == nil:
		f.Why, f.Err = ErrNoDescriptor.Error(), ErrNoDescriptor
		if r.missing != nil {
			r.missing(iova)
		}
	case write:
		f.Why = fmt.Sprintf("DMA map at %#x is read-only", r.start)
	default:
		f.Why = fmt.Sprintf("DMA map at %#x is write-only", r.start)
	}
	return f
}

// access is one access under way, with its guard: a SIGBUS of a truncated file
// becomes a Fault.
type access struct {
	t    *table
	op   string
	iova uint64
	n    int
	old  bool // of debug.SetPanicOnFault
}

func (m *Memory) begin(op string, iova uint64, n int) access {
	old := debug.SetPanicOnFault(true)
	return access{m.enter(), op, iova, n, old}
}

// end is to be deferred.
func (a *access) end(err *error) {
	debug.SetPanicOnFault(a.old)
	a.t.leave()
	if r := recover(); r != nil {
		if _, ok := r.(interface{ Addr() uintptr }); !ok {
			panic(r)
		}
		*err = &Fault{Op: a.op, IOVA: a.iova, Len: uint64(a.n), Why: fileGone}
	}
}

// Reasons of a Fault.
const (
	fileGone = "the memory behind the DMA map is gone (file truncated?)"
	wraps    = "wraps around"
)

// check returns the first piece of the access and whether it is all of it,
// after a look at the others.
func (a *access) check(write bool) (piece []byte, whole bool, err error) {
	rg, err := NewRange(a.iova, uint64(a.n))
	if err != nil {
		return nil, false, &Fault{Op: a.op, IOVA: a.iova, Len: uint64(a.n), Why: wraps}
	}
	first, f := a.t.span(a.op, rg.start, rg.size, write)
	for at, left := rg.start+uint64(len(first)), rg.size-uint64(len(first)); f == nil && left > 0; {
		var b []byte
		b, f = a.t.span(a.op, at, left, write)
		at, left = at+uint64(len(b)), left-uint64(len(b))
	}
	if f != nil {
		f.IOVA, f.Len = a.iova, uint64(a.n)
		return nil, false, f
	}
	return first, len(first) == a.n, nil
}

// Read copies len(p) bytes at iova into p.
func (m *Memory) Read(iova uint64, p []byte) (err error) {
	if len(p) == 0 {
		return nil
	}
	a := m.begin("read", iova, len(p))
	defer a.end(&err)
	b, whole, err := a.check(false)
	if err != nil {
		return err
	}
	n := copy(p, b)
	for !whole && n < len(p) {
		b, _ = a.t.span(a.op, iova+uint64(n), uint64(len(p)-n), false)
		n += copy(p[n:], b)
	}
	return nil
}

// Write copies p to iova.
func (m *Memory) Write(iova uint64, p []byte) (err error) {
	if len(p) == 0 {
		return nil
	}
	a := m.begin("write", iova, len(p))
	defer a.end(&err)
	b, whole, err := a.check(true)
	if err != nil {
		return err
	}
	n := copy(b, p)
	for !whole && n < len(p) {
		b, _ = a.t.span(a.op, iova+uint64(n), uint64(len(p)-n), true)
		n += copy(b, p[n:])
	}
	return nil
}

// word is the aligned 8-byte word at iova. Maps are whole pages, so it lies in
// one.
func (a *access) word(write bool) (*uint64, error) {
	if a.iova%8 != 0 {
		return nil, &Fault{Op: a.op, IOVA: a.iova, Len: 8, Why: "not 8-byte aligned"}
	}
	b, f := a.t.span(a.op, a.iova, 8, write)
	if f != nil {
		return nil, f
	}
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))), nil
}

// Load64 loads the aligned little-endian 8-byte word at iova in one atomic
// access, ordered before every later access of the caller.
func (m *Memory) Load64(iova uint64) (v uint64, err error) {
	a := m.begin("load", iova, 8)
	defer a.end(&err)
	w, err := a.word(false)
	if err != nil {
		return 0, err
	}
	return littleEndian(atomic.LoadUint64(w)), nil
}

// Store64 stores v, little-endian, into the aligned 8-byte word at iova in
// one atomic access, ordered after every earlier access of the caller: it
// publishes an entry whose other words are already written.
func (m *Memory) Store64(iova uint64, v uint64) (err error) {
	a := m.begin("store", iova, 8)
	defer a.end(&err)
	w, err := a.word(true)
	if err != nil {
		return err
	}
	atomic.StoreUint64(w, littleEndian(v))
	return nil
}

// littleEndian converts between the host's order and the guest's.
func littleEndian(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.LittleEndian.Uint64(b[:])
}
