// SPDX-License-Identifier: Apache-2.0

package guestmem

import "runtime/debug"

// Gather fills p from the pieces of the list, as far as that goes. It fails like
// Read, before anything moves, and does not allocate.
func (m *Memory) Gather(p []byte, list []Segment) (err error) {
	x := exchange{cursor: cursor{list: list}}
	old := m.enterList(&x)
	defer m.leaveList(&x, old, &err)
	p = p[:min(uint64(len(p)), total(list))]
	if _, err := x.cursor.check(uint64(len(p)), nil); err != nil {
		return err
	}
	for len(p) > 0 {
		x.now, _ = x.cursor.next(uint64(len(p)))
		p = p[copy(p, x.now):]
	}
	return nil
}

// Scatter writes p to the pieces of the list, as far as that goes, in rising order
// with the last bytes last: receivers poll them. It fails like Write, before
// anything moves, and does not allocate.
func (m *Memory) Scatter(list []Segment, p []byte) (err error) {
	x := exchange{cursor: cursor{write: true, list: list}}
	old := m.enterList(&x)
	defer m.leaveList(&x, old, &err)
	p = p[:min(uint64(len(p)), total(list))]
	if _, err := x.cursor.check(uint64(len(p)), nil); err != nil {
		return err
	}
	for len(p) > 0 {
		x.now, _ = x.cursor.next(uint64(len(p)))
		n := len(x.now)
		if n < len(p) {
			copy(x.now, p)
		} else {
			copyLastLast(x.now, p)
		}
		p = p[n:]
	}
	return nil
}

// exchange is a copy between a list of pieces and the card's own memory.
type exchange struct {
	cursor cursor
	now    []byte // the piece being copied
}

func (m *Memory) enterList(x *exchange) (old bool) {
	old = debug.SetPanicOnFault(true)
	x.cursor.t = m.enter()
	return old
}

// leaveList is to be deferred.
func (m *Memory) leaveList(x *exchange, old bool, err *error) {
	x.cursor.t.leave()
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		if _, ok := r.(interface{ Addr() uintptr }); !ok {
			panic(r)
		}
		s := x.cursor.list[min(x.cursor.i, len(x.cursor.list)-1)]
		*err = &Fault{Op: x.cursor.op(), IOVA: s.IOVA, Len: uint64(s.Len), Why: fileGone}
	}
}
