// SPDX-License-Identifier: Apache-2.0

// Package event is what the protocol engine tells the driver with:
// completion queues (the control QP's among them), completion event queues
// and the asynchronous event queue.
//
// Contract and traps:
//   - An entry is published by its word with the valid bit, stored last. The
//     valid bit starts as 1 and flips at every wrap; sizes need not be powers
//     of two.
//   - A CQ holds at most one armed state, not a count: one event per arming.
//     The shadow word's sequence number is no condition for it.
//   - A CEQ has no consumer index. What keeps it from overflowing is that a
//     CQ with ENCEQEMASK has at most one entry in it until PFPE_CQACK.
//   - What a driver put into CREATE_CQ as context is echoed bit for bit:
//     older kernels take it for a pointer.
//   - Destroyed queues are never written again, whoever holds their handle.
//   - Completions and asynchronous events are posted from any goroutine. Queues
//     are made, moved and ended, and doorbells handled, under the device's
//     control lock. Every queue has a lock of its own, taken in the order CQ,
//     then CEQ or AEQ; memory, event sink and interrupt causes are called with
//     them held and must not call back.
package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Memory is what the queues need of guest memory.
type Memory interface {
	Write(iova uint64, p []byte) error
	Load64(iova uint64) (uint64, error)
	Store64(iova uint64, v uint64) error
}

// Buffers addresses queue memory; *hmc.Cache does.
type Buffers interface {
	Check(b hmc.Buffer, size uint64) error
	At(b hmc.Buffer, off uint64) (uint64, error)
}

// Errors of the operations on queues.
var (
	// ErrParameter: a size, address or number that cannot be.
	ErrParameter = errors.New("parameter out of range")
	// ErrState: the object exists already, or does not exist.
	ErrState = errors.New("object in wrong state")
)

// Config of Queues.
type Config struct {
	Mem     Memory
	Buffers Buffers
	Emit    func(any)   // may be nil
	CEQ     func(n int) // raises CEQ n's interrupt cause; may be nil
	AEQ     func()      // raises the AEQ's cause; may be nil
}

// Queues are all completion and event queues of one function.
type Queues struct {
	mem  Memory
	bufs Buffers
	emit func(any)
	ceq  func(int)
	aeqi func()

	mu   sync.RWMutex // the maps; held for look-ups and changes only
	cqs  map[uint32]*CQ
	ceqs map[uint32]*ceq

	aeq aeq
}

// New makes Queues without a queue.
func New(c Config) *Queues {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	if c.CEQ == nil {
		c.CEQ = func(int) {}
	}
	if c.AEQ == nil {
		c.AEQ = func() {}
	}
	q := &Queues{mem: c.Mem, bufs: c.Buffers, emit: c.Emit, ceq: c.CEQ, aeqi: c.AEQ}
	q.Reset(reg.PFR)
	return q
}

// Reset ends every queue. When it returns nothing of any is written any more.
func (q *Queues) Reset(reg.Domain) {
	q.mu.Lock()
	cqs, ceqs := q.cqs, q.ceqs
	q.cqs, q.ceqs = map[uint32]*CQ{}, map[uint32]*ceq{}
	q.mu.Unlock()
	for _, c := range cqs {
		c.kill()
	}
	for _, e := range ceqs {
		e.kill()
	}
	q.aeq.kill()
}

// UserArm is the name of the user programs' way to PFPE_CQARM.
const UserArm = "IRDMA_DB_CQ_OFFSET"

// Registers are the doorbells of the queues.
func (q *Queues) Registers() []reg.Row {
	return []reg.Row{
		{Name: "PFPE_CQARM", Offset: 0x502C00, Source: "icrdma_hw.h:PFPE_CQARM; ctrl.c:irdma_sc_ccq_arm", Inferred: true,
			Write: func(_ int, v uint32) { q.arm(v, "PFPE_CQARM") }},
		// User programs' way to PFPE_CQARM, on a page that all of them share.
		{Name: UserArm, Offset: 0x7F0040, Source: "icrdma_hw.h:ICRDMA_DB_ADDR_OFFSET; rdma-core umain.h:IRDMA_DB_CQ_OFFSET",
			Write: func(_ int, v uint32) { q.arm(v, UserArm) }},
		{Name: "PFPE_CQACK", Offset: 0x502C80, Source: "icrdma_hw.h:PFPE_CQACK; ctrl.c:irdma_sc_cq_ack", Inferred: true,
			Write: func(_ int, v uint32) { q.ack(v) }},
		{Name: "PFPE_AEQALLOC", Offset: 0x502D00, Source: "icrdma_hw.h:PFPE_AEQALLOC; ctrl.c:irdma_sc_repost_aeq_entries",
			Write: func(_ int, v uint32) { q.credit(v) }},
	}
}

// ring is the device's side of a queue it produces into.
type ring struct {
	buf      hmc.Buffer
	size     uint32 // entries
	entry    uint32 // bytes per entry
	next     uint32 // index of the next entry written
	polarity uint64 // valid bit of this pass, 0 or 1
	scratch  [CQESize - 8]byte
}

// place is the index and valid bit of the entry ahead places behind the next.
func (r *ring) place(ahead uint32) (index uint32, polarity uint64) {
	if n := r.next + ahead; n < r.size {
		return n, r.polarity
	}
	return r.next + ahead - r.size, r.polarity ^ 1
}

// advance moves the ring on by n entries, at most its size.
func (r *ring) advance(n uint32) { r.next, r.polarity = r.place(n) }

const baseAlign = 256

// newRing checks what the driver says of a queue's memory.
func (q *Queues) newRing(buf hmc.Buffer, size, entry uint32) (ring, error) {
	r := ring{buf: buf, size: size, entry: entry, polarity: 1}
	if size == 0 {
		return r, fmt.Errorf("queue of 0 entries: %w", ErrParameter)
	}
	if !buf.Virtual && buf.Base%baseAlign != 0 {
		return r, fmt.Errorf("queue base %#x is not %d-byte aligned: %w", buf.Base, baseAlign, ErrParameter)
	}
	if err := q.bufs.Check(buf, uint64(size)*uint64(entry)); err != nil {
		return r, fmt.Errorf("%w: %w", ErrParameter, err)
	}
	return r, nil
}

const validBit = 63

// put writes the entry ahead places behind the next one: words[:n-1], then
// the last with the valid bit. The caller advances the ring.
func (q *Queues) put(r *ring, ahead uint32, words ...uint64) error {
	index, polarity := r.place(ahead)
	at, err := q.bufs.At(r.buf, uint64(index)*uint64(r.entry))
	if err != nil {
		return err
	}
	last := len(words) - 1
	if last > 0 {
		b := r.scratch[:8*last]
		for i, w := range words[:last] {
			binary.LittleEndian.PutUint64(b[8*i:], w)
		}
		if err := q.mem.Write(at, b); err != nil {
			return err
		}
	}
	return q.mem.Store64(at+8*uint64(last), words[last]&^(1<<validBit)|polarity<<validBit)
}

// QueueUnwritable is the event of an entry lost because the queue's memory
// cannot be reached.
type QueueUnwritable struct {
	Queue string // "CQ", "CEQ" or "AEQ"
	ID    uint32
	Err   error
}

func (e QueueUnwritable) String() string {
	return fmt.Sprintf("entry of %s %d lost: %v", e.Queue, e.ID, e.Err)
}
