// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"fmt"
	"sync"
	"syscall"
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
	// burst bounds how long a queue's lock is held.
	burst = 64
)

// txQueue is one transmit queue. Everything but the tail is guarded by mu.
type txQueue struct {
	mu         sync.Mutex
	enabled    bool
	kicked     bool
	base       uint64
	length     uint32
	vsi        int
	head, tail uint32
	// The frame being gathered; it may span doorbells.
	frame   []byte
	tooLong bool
	tso     bool
}

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
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.enabled {
		return fmt.Errorf("transmit queue %d: %w", id, syscall.EEXIST)
	}
	q.enabled, q.base, q.length, q.vsi = true, c.base(), c.qlen(), c.srcVSI()
	q.head, q.tail = 0, 0
	q.frame, q.tooLong, q.tso = q.frame[:0], false, false
	return nil
}

// DisableTxQueue stops queue id; when it returns no DMA of the queue follows.
func (l *LAN) DisableTxQueue(id uint16) {
	if int(id) >= Queues {
		return
	}
	q := &l.tx[id]
	lockedQueue(&q.mu, func() { q.enabled = false })
}

func (l *LAN) readTxHead(i int) uint32 {
	if i >= Queues {
		return 0
	}
	q := &l.tx[i]
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head
}

// writeTxBell takes a new tail and wakes the worker.
func (l *LAN) writeTxBell(i int, v uint32) {
	if i >= Queues {
		l.cfg.Emit(BadQueue{Queue: i})
		return
	}
	q := &l.tx[i]
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.enabled:
		l.cfg.Emit(BadQueue{Queue: i})
	case v >= q.length:
		l.cfg.Emit(BadTail{Queue: i, Tail: v, Length: q.length})
	default:
		q.tail = v
		if !q.kicked {
			q.kicked = true
			l.kicks <- i // one place per queue: never blocks
		}
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

// serve executes queue i in bursts until head meets tail, reporting
// completions after each burst.
func (l *LAN) serve(i int) {
	q := &l.tx[i]
	for more := true; more; {
		var done bool
		lockedQueue(&q.mu, func() {
			done = l.executeBurst(i, q)
			more = q.enabled && q.head != q.tail
			if !more {
				q.kicked = false
			}
		})
		if done && l.cfg.TxDone != nil {
			l.cfg.TxDone(i)
		}
	}
}

// executeBurst runs up to burst descriptors; it tells whether one that asked
// for a report was completed. A queue that meets a bad descriptor stops, as
// hardware stops a queue that it finds misprogrammed.
func (l *LAN) executeBurst(i int, q *txQueue) (done bool) {
	for n := 0; n < burst && q.enabled && q.head != q.tail; n++ {
		at := q.base + uint64(q.head)*16
		var d txDesc
		if err := l.cfg.Mem.Read(at, d[:]); err != nil {
			l.stop(i, q, d, err.Error())
			return done
		}
		switch d.dtype() {
		case dtypeContext:
			q.tso = d.word1()&ctxTSO != 0
		case dtypeFilter:
			// Flow director programming: its dummy packet follows.
		case dtypeData:
			if err := l.gather(q, &d); err != nil {
				l.stop(i, q, d, err.Error())
				return done
			}
			if d.word1()&cmdEOP != 0 {
				l.send(i, q, &d)
			}
			if d.word1()&cmdRS != 0 {
				if err := l.cfg.Mem.Store64(at+8, d.word1()|dtypeDone); err != nil {
					l.stop(i, q, d, err.Error())
					return done
				}
				done = true
			}
		default:
			l.stop(i, q, d, fmt.Sprintf("descriptor type %d", d.dtype()))
			return done
		}
		q.head++
		if q.head == q.length {
			q.head = 0
		}
	}
	return done
}

// gather appends the descriptor's buffer to the frame under construction.
func (l *LAN) gather(q *txQueue, d *txDesc) error {
	if q.tso || q.tooLong || len(q.frame)+d.size() > maxFrame {
		q.tooLong = !q.tso
		return nil
	}
	n := len(q.frame)
	q.frame = append(q.frame, make([]byte, d.size())...)
	return l.cfg.Mem.Read(d.buffer(), q.frame[n:])
}

// send ends the frame under construction: it leaves the port, or is dropped
// and counted as an error.
func (l *LAN) send(i int, q *txQueue, d *txDesc) {
	switch {
	case d.word1()&cmdDummy != 0: // never transmitted
	case q.tso:
		l.cfg.Emit(BadTxDescriptor{i, q.head, d.buffer(), d.word1(), "segmentation (TSO) is not built"})
		l.stats.txError(q.vsi)
	case q.tooLong:
		l.cfg.Emit(BadTxDescriptor{i, q.head, d.buffer(), d.word1(), fmt.Sprintf("frame longer than %d bytes", maxFrame)})
		l.stats.txError(q.vsi)
	case len(q.frame) < 14:
		l.cfg.Emit(BadTxDescriptor{i, q.head, d.buffer(), d.word1(), "frame shorter than an Ethernet header"})
		l.stats.txError(q.vsi)
	default:
		l.stats.sent(q.vsi, q.frame)
	}
	q.frame, q.tooLong, q.tso = q.frame[:0], false, false
}

func (l *LAN) stop(i int, q *txQueue, d txDesc, why string) {
	l.cfg.Emit(BadTxDescriptor{i, q.head, d.buffer(), d.word1(), why + "; the queue stops"})
	q.enabled = false
}
