// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

const (
	quantum = 32 // bytes; the unit of both rings
	// A WQE is at most eight quanta long and does not cross a multiple of
	// that (uk.c:irdma_qp_get_next_send_wqe), so none crosses a page.
	maxQuanta = 8

	wqeHeaderAt  = 24   // bytes from the start of a WQE
	opNOP        = 0x0C // user.h:IRDMA_OP_TYPE_NOP, fills the send ring's gaps
	hwSQTailMask = 1<<15 - 1
)

// queue is the device's place in a QP's ring.
type queue struct {
	buf      hmc.Buffer
	stride   uint32 // bytes from one possible WQE to the next
	slots    uint32
	next     uint32 // slot of the next WQE
	polarity uint64 // valid bit of this pass

	// The page of a virtual ring found last, good for one step.
	known    bool
	page     uint32
	pageAddr uint64
}

func (t *Table) newQueue(addr uint64, size, stride uint32, virtual bool) (queue, error) {
	q := queue{buf: hmc.Buffer{Base: addr}, stride: stride, slots: size / stride, polarity: 1}
	if virtual {
		if addr >= 1<<28 {
			return q, fmt.Errorf("PBLE index %#x: %w", addr, ErrParameter)
		}
		q.buf = hmc.Buffer{Virtual: true, First: uint32(addr)}
	} else if addr%quantum != 0 {
		return q, fmt.Errorf("base %#x is not aligned to a quantum: %w", addr, ErrParameter)
	}
	if q.slots == 0 {
		return q, fmt.Errorf("%d bytes hold no WQE of %d: %w", size, stride, ErrParameter)
	}
	if err := t.cfg.Buffers.Check(q.buf, uint64(size)); err != nil {
		return q, fmt.Errorf("%w: %w", ErrParameter, err)
	}
	return q, nil
}

// forget drops what a step must not keep.
func (r *queue) forget() { r.known = false }

// at is the guest address of a byte of the ring.
func (t *Table) at(r *queue, off uint64) (uint64, error) {
	if !r.buf.Virtual {
		return r.buf.Base + off, nil
	}
	const pageShift, pageMask = 12, 1<<12 - 1
	if p := uint32(off >> pageShift); !r.known || p != r.page {
		a, err := t.cfg.Buffers.At(r.buf, off&^pageMask)
		if err != nil {
			return 0, err
		}
		r.known, r.page, r.pageAddr = true, p, a
	}
	return r.pageAddr + off&pageMask, nil
}

// header loads the word that holds the valid bit of the queue's next slot
// and tells whether the slot is posted.
func (t *Table) header(r *queue) (at, h uint64, posted bool, err error) {
	if at, err = t.at(r, uint64(r.next)*uint64(r.stride)); err != nil {
		return 0, 0, false, err
	}
	if h, err = t.cfg.Mem.Load64(at + wqeHeaderAt); err != nil {
		return 0, 0, false, err
	}
	return at, h, h>>63 == r.polarity, nil
}

// advance moves n slots on; n is at most the distance to the ring's end.
func (r *queue) advance(n uint32) {
	if r.next += n; r.next >= r.slots {
		r.next, r.polarity = r.next-r.slots, r.polarity^1
	}
}

// words is a copy of a WQE. The word at 3, the header, is the one loaded
// first.
type words struct {
	raw [maxQuanta * quantum]byte
}

func (w *words) word(i uint32) uint64 { return binary.LittleEndian.Uint64(w.raw[8*i:]) }

// load copies the first n bytes of a WQE at guest address at.
func (t *Table) load(w *words, at uint64, n uint32) error {
	return t.cfg.Mem.Read(at, w.raw[:n])
}

// bits cuts a field out of a word.
func bits(w uint64, hi, lo int) uint64 { return w >> lo & (1<<(hi-lo+1) - 1) }

func flag(w uint64, bit int) bool { return w>>bit&1 != 0 }
