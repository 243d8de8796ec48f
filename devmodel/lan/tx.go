// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// A step takes at most burst descriptors, and ends behind the one with which it
// has read or sent stepBytes.
const (
	burst     = 64
	stepBytes = 64 << 10
)

// txQueue is one transmit queue; ring is nil while it is disabled.
type txQueue struct {
	lan  *LAN
	id   int
	task engine.Task
	ring atomic.Pointer[txRing]
}

// txRing is a queue from being enabled to being disabled.
type txRing struct {
	base    uint64
	length  uint32
	vsi     uint16
	tso     bool          // tso_ena
	tail    atomic.Uint32 // as the driver wrote it
	head    atomic.Uint32 // moved by steps
	stopped atomic.Bool   // by a bad descriptor

	// The frame being gathered and sent, in steps.
	out  outgoing
	desc txDesc // being read: here as it would escape
}

// live tells whether the queue runs.
func (r *txRing) live() bool { return r != nil && !r.stopped.Load() }

// EnableTxQueue starts queue id with the context the driver gave: head and
// tail are 0. Errors wrap EINVAL (bad number or geometry), EEXIST (running).
func (l *LAN) EnableTxQueue(id uint16, context [22]byte) error {
	c := txContext(context)
	if int(id) >= Queues {
		return fmt.Errorf("transmit queue %d of %d: %w", id, Queues, syscall.EINVAL)
	}
	if c.qlen() == 0 {
		return fmt.Errorf("transmit queue %d of length 0: %w", id, syscall.EINVAL)
	}
	q := &l.tx[id]
	if q.ring.Load().live() {
		return fmt.Errorf("transmit queue %d: %w", id, syscall.EEXIST)
	}
	q.ring.Store(&txRing{base: c.base(), length: c.qlen(), vsi: c.srcVSI(), tso: c.tsoEnabled()})
	return nil
}

// DisableTxQueue stops queue id; after grace no DMA of the queue follows.
func (l *LAN) DisableTxQueue(id uint16) {
	if int(id) < Queues {
		l.tx[id].ring.Store(nil)
	}
}

func (l *LAN) readTxHead(i int) uint32 {
	if i >= Queues {
		return 0
	}
	r := l.tx[i].ring.Load()
	if r == nil {
		return 0
	}
	return r.head.Load()
}

// writeTxBell takes a new tail and lets the queue run.
func (l *LAN) writeTxBell(i int, v uint32) {
	if i >= Queues {
		l.cfg.Emit(BadQueue{Queue: i})
		return
	}
	q := &l.tx[i]
	switch r := q.ring.Load(); {
	case r == nil:
		l.cfg.Emit(BadQueue{Queue: i})
	case r.stopped.Load(): // told already
	case v >= r.length:
		r.stopped.Store(true)
		l.bad(mdetTxPQM, i, BadTail{Queue: i, Tail: v, Length: r.length})
	default:
		r.tail.Store(v)
		q.task.Ring()
	}
}

// BadTail is the event of a tail beyond the end of the ring.
type BadTail struct {
	Queue        int
	Tail, Length uint32
}

func (b BadTail) String() string {
	return fmt.Sprintf("QTX_COMM_DBELL(%d) = %d, but the ring has %d descriptors", b.Queue, b.Tail, b.Length)
}

// BadTxDescriptor is the event of a descriptor that cannot be executed.
type BadTxDescriptor struct {
	Queue int
	Index uint32
	Word0 uint64
	Word1 uint64
	Why   string
}

func (b BadTxDescriptor) String() string {
	return fmt.Sprintf("transmit queue %d descriptor %d (%#016x %#016x): %s", b.Queue, b.Index, b.Word0, b.Word1, b.Why)
}

// FilterNotBuilt is the event of a flow director filter being programmed or
// removed, which changes nothing: flows go where their hash says.
type FilterNotBuilt struct{ Queue int }

func (f FilterNotBuilt) String() string {
	return fmt.Sprintf("transmit queue %d: a flow filter was programmed, but nothing filters flows", f.Queue)
}

// Step executes descriptors until head meets tail or enough is done, and
// reports completions.
func (q *txQueue) Step(s *engine.Shard) (again bool) {
	r := q.ring.Load()
	if !r.live() {
		return false
	}
	if q.execute(r, s.Part(burst)) {
		q.lan.cfg.TxDone(q.id)
	}
	return q.ring.Load() == r && !r.stopped.Load() && r.head.Load() != r.tail.Load()
}

// execute runs up to n descriptors; it tells whether one that asked for a
// report was completed. A queue that meets a bad descriptor stops, as hardware
// stops a queue that it finds misprogrammed.
func (q *txQueue) execute(r *txRing, n int) (done bool) {
	o, left := &r.out, stepBytes
	for ; n > 0 && left > 0 && q.ring.Load() == r; n-- {
		head := r.head.Load()
		if !o.ready {
			if head == r.tail.Load() {
				// Drivers move the tail by whole frames.
				if o.open {
					q.stop(r, o.first, "the tail is in the middle of a frame: no descriptor with EOP")
				}
				return done
			}
			d, err := q.fetch(r, head)
			if err != nil {
				q.stop(r, d, err.Error())
				return done
			}
			left -= d.sizeIfData()
		}
		if o.ready {
			left -= q.transmit(r, left)
			if o.ready {
				return done // more to send, in the next step
			}
		}
		if o.last.has(bitRS) {
			at := r.base + uint64(head)*16
			if err := q.lan.cfg.Mem.Store64(at+8, o.last.word1()|dtypeDone); err != nil {
				q.stop(r, o.last, err.Error())
				return done
			}
			done = true
		}
		o.last = txDesc{}
		if head++; head == r.length {
			head = 0
		}
		r.head.Store(head)
	}
	return done
}

// sizeIfData is how much a descriptor's execution has read.
func (d *txDesc) sizeIfData() int {
	if d.dtype() == dtypeData {
		return d.size()
	}
	return 0
}

// fetch reads the descriptor at head and does what it says. A frame with all
// its data is ready.
func (q *txQueue) fetch(r *txRing, head uint32) (d txDesc, err error) {
	o, mem := &r.out, q.lan.cfg.Mem
	if err := mem.Read(r.base+uint64(head)*16, r.desc[:]); err != nil {
		return d, err
	}
	d = r.desc
	switch d.dtype() {
	case dtypeContext:
		if o.open {
			return d, fmt.Errorf("a context descriptor in the middle of a frame")
		}
		o.open, o.context = true, d
		if o.tso() && !r.tso {
			return d, fmt.Errorf("segmentation on a queue whose context has tso_ena 0")
		}
	case dtypeFilter:
		// Flow director programming: its dummy packet follows. Drivers that ask
		// first how many filters are free make none, but accelerated RFS does
		// not ask (ice_arfs.c:ice_rx_flow_steer), and no completion says no.
		if o.open {
			return d, fmt.Errorf("a filter descriptor in the middle of a frame")
		}
		o.open = true
		q.lan.cfg.Emit(FilterNotBuilt{Queue: q.id})
	case dtypeData:
		if !o.begun {
			o.open, o.begun, o.first = true, true, d
		}
		n := d.size()
		if n == 0 {
			return d, fmt.Errorf("a buffer of 0 bytes")
		}
		if o.size+n > o.limit() {
			return d, fmt.Errorf("frame longer than %d bytes", o.limit())
		}
		if err := mem.Read(d.buffer(), o.room(n)); err != nil {
			return d, err
		}
		// What asks for a report without EOP gets it, once its data is read.
		o.last = d
		if d.has(bitEOP) {
			return d, q.ready(r)
		}
	default:
		return d, fmt.Errorf("descriptor type %d", d.dtype())
	}
	return d, nil
}

// ready begins to send a frame that is gathered.
func (q *txQueue) ready(r *txRing) error {
	o := &r.out
	if !o.first.has(bitDummy) { // what has it is never transmitted
		if err := o.prepare(q.lan.steering.Load(), r.vsi); err != nil {
			return err
		}
	}
	o.ready = true
	return nil
}

// transmit sends frames of what is ready until limit bytes are sent, those to
// several VSIs as often, or it is all, and o is empty again. It returns how many.
func (q *txQueue) transmit(r *txRing, limit int) (sent int) {
	o := &r.out
	for sent < limit && q.ring.Load() == r {
		f, n, ok := o.next()
		if !ok {
			last := o.last
			o.reset()
			o.last = last
			return sent
		}
		sent += len(f) * q.lan.send(r.vsi, f, n, o.context.to(), o.context.target())
	}
	return sent
}

// stop ends the queue's work for a descriptor at the head. What a step finds
// after the queue was disabled is nobody's fault.
func (q *txQueue) stop(r *txRing, d txDesc, why string) {
	r.stopped.Store(true)
	if q.ring.Load() != r {
		return
	}
	q.lan.stats.txError(r.vsi)
	q.lan.bad(mdetTxTCLAN, q.id, BadTxDescriptor{q.id, r.head.Load(), d.word0(), d.word1(), why + "; the queue stops"})
}
