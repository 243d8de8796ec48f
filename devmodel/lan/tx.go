// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// txContext is the 22-byte queue context of ice_aqc_opc_add_txqs
// (ice_common.c:ice_tlan_ctx_info), little-endian, fields by bit number.
type txContext [22]byte

// bits returns width bits from bit lsb on.
func (c *txContext) bits(lsb, width int) uint64 {
	var v uint64
	for i := 0; i < width; i++ {
		b := lsb + i
		v |= uint64(c[b/8]>>(b%8)&1) << i
	}
	return v
}

func (c *txContext) base() uint64 { return c.bits(0, 57) << 7 } // 128-byte units
func (c *txContext) srcVSI() int  { return int(c.bits(80, 10)) }
func (c *txContext) qlen() uint32 { return uint32(c.bits(135, 13)) }

// txDesc is one 16-byte transmit descriptor (ice_lan_tx_rx.h), a local copy.
type txDesc [16]byte

func (d *txDesc) buffer() uint64 { return binary.LittleEndian.Uint64(d[0:]) }
func (d *txDesc) word1() uint64  { return binary.LittleEndian.Uint64(d[8:]) }
func (d *txDesc) dtype() uint64  { return d.word1() & 0xf }
func (d *txDesc) size() int      { return int(d.word1() >> 34 & 0x3fff) }

// Descriptor types and command bits (ice_lan_tx_rx.h: ICE_TX_DESC_DTYPE_*,
// ICE_TX_DESC_CMD_*, ICE_TX_CTX_DESC_TSO).
const (
	dtypeData    = 0
	dtypeContext = 1
	dtypeFilter  = 8
	dtypeDone    = 0xf

	cmdEOP   = 1 << 4
	cmdRS    = 1 << 5
	cmdDummy = 1 << 8
	ctxTSO   = 1 << 4
)

// maxFrame is the MAC's limit without FCS (ice_aqc_opc_set_mac_cfg, 9728).
const (
	maxFrame = 9728
	// minFrame: shorter frames are padded before the wire.
	minFrame = 60
	// A step takes at most burst descriptors, and ends behind the one with
	// which it has read stepBytes.
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
	vsi     int
	tail    atomic.Uint32 // as the driver wrote it
	head    atomic.Uint32 // moved by steps
	stopped atomic.Bool   // by a bad descriptor

	// The frame being gathered, in steps; it may span doorbells.
	frame   []byte
	tooLong bool
	tso     bool
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
	q.ring.Store(&txRing{base: c.base(), length: c.qlen(), vsi: c.srcVSI()})
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
	case !r.live():
		l.cfg.Emit(BadQueue{Queue: i})
	case v >= r.length:
		l.cfg.Emit(BadTail{Queue: i, Tail: v, Length: r.length})
	default:
		r.tail.Store(v)
		q.task.Schedule()
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
	mem, head, bytes := q.lan.cfg.Mem, r.head.Load(), 0
	for ; n > 0 && bytes < stepBytes && head != r.tail.Load() && q.ring.Load() == r; n-- {
		at := r.base + uint64(head)*16
		var d txDesc
		if err := mem.Read(at, d[:]); err != nil {
			q.stop(r, d, err.Error())
			return done
		}
		switch d.dtype() {
		case dtypeContext:
			r.tso = d.word1()&ctxTSO != 0
		case dtypeFilter:
			// Flow director programming: its dummy packet follows.
		case dtypeData:
			if err := q.gather(r, &d); err != nil {
				q.stop(r, d, err.Error())
				return done
			}
			bytes += d.size()
			if d.word1()&cmdEOP != 0 {
				q.send(r, &d)
			}
			if d.word1()&cmdRS != 0 {
				if err := mem.Store64(at+8, d.word1()|dtypeDone); err != nil {
					q.stop(r, d, err.Error())
					return done
				}
				done = true
			}
		default:
			q.stop(r, d, fmt.Sprintf("descriptor type %d", d.dtype()))
			return done
		}
		if head++; head == r.length {
			head = 0
		}
		r.head.Store(head)
	}
	return done
}

// gather appends the descriptor's buffer to the frame under construction.
func (q *txQueue) gather(r *txRing, d *txDesc) error {
	if r.tso || r.tooLong || len(r.frame)+d.size() > maxFrame {
		r.tooLong = !r.tso
		return nil
	}
	n := len(r.frame)
	r.frame = append(r.frame, make([]byte, d.size())...)
	return q.lan.cfg.Mem.Read(d.buffer(), r.frame[n:])
}

// send ends the frame under construction: it leaves the port, or is dropped
// and counted as an error.
func (q *txQueue) send(r *txRing, d *txDesc) {
	drop := func(why string) {
		q.bad(r, *d, why)
		q.lan.stats.txError(r.vsi)
	}
	switch {
	case d.word1()&cmdDummy != 0: // never transmitted
	case r.tso:
		drop("segmentation (TSO) is not built")
	case r.tooLong:
		drop(fmt.Sprintf("frame longer than %d bytes", maxFrame))
	case len(r.frame) < 14:
		drop("frame shorter than an Ethernet header")
	default:
		q.lan.stats.sent(r.vsi, r.frame)
	}
	r.frame, r.tooLong, r.tso = r.frame[:0], false, false
}

// bad reports the descriptor at the head.
func (q *txQueue) bad(r *txRing, d txDesc, why string) {
	q.lan.cfg.Emit(BadTxDescriptor{q.id, r.head.Load(), d.buffer(), d.word1(), why})
}

func (q *txQueue) stop(r *txRing, d txDesc, why string) {
	q.bad(r, d, why+"; the queue stops")
	r.stopped.Store(true)
}
