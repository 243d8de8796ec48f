// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"encoding/binary"
	"errors"

	"github.com/vrnic/vrnic/devmodel/reg"
)

var le = binary.LittleEndian

// Descriptor flags (include/linux/net/intel/libie/adminq.h: LIBIE_AQ_FLAG_*).
const (
	flagDD  = 1 << 0
	flagCMP = 1 << 1
	flagERR = 1 << 2
	flagLB  = 1 << 9
	flagRD  = 1 << 10
	flagBUF = 1 << 12
	flagSI  = 1 << 13

	largeBuf = 512 // LIBIE_AQ_LG_BUF: longer ones carry flag LB
)

// Bits of the LEN registers (ice_hw_autogen.h: PF_FW_ATQLEN_*).
const (
	lenCount  = 0x3ff
	lenOVFL   = 1 << 29
	lenCRIT   = 1 << 30
	lenENABLE = 1 << 31
)

const descSize = 32

// maxPending bounds the events that wait for a free slot.
const maxPending = 16

// ring is the register set of one control queue and the arithmetic on it.
type ring struct {
	name                      string // kernel prefix, e.g. "PF_FW_ATQ"
	bal, bah, len, head, tail reg.Cells
}

// rows describes the registers; off is the offsets of BAL, BAH, LEN, H, T.
// tailed and resized are called after a write of TAIL and LEN.
func (q *ring) rows(off [5]uint32, tailed, resized func()) []reg.Row {
	const src = "ice_hw_autogen.h:PF_FW_A[TR]Q*, PF_MBX_A[TR]Q*; ice_controlq.c:ice_cfg_cq_regs"
	on := func(f func()) func(int, uint32) {
		if f == nil {
			return nil
		}
		return func(int, uint32) { f() }
	}
	count := reg.Field{Name: "LEN", Hi: 9, Lo: 0}
	return []reg.Row{
		// The low six bits are of another field (PF_SB_ATQBAL_ATQBAL_LSB).
		{Name: q.name + "BAL", Offset: off[0], Mask: 0xffffffc0, Cells: &q.bal, Source: src, Inferred: true},
		{Name: q.name + "BAH", Offset: off[1], Cells: &q.bah, Source: src},
		{Name: q.name + "LEN", Offset: off[2], Mask: 0xf0000000 | lenCount, Cells: &q.len, Write: on(resized), Source: src,
			Fields: []reg.Field{{Name: "ENABLE", Hi: 31, Lo: 31}, {Name: "CRIT", Hi: 30, Lo: 30},
				{Name: "OVFL", Hi: 29, Lo: 29}, {Name: "VFE", Hi: 28, Lo: 28}, count}},
		{Name: q.name + "H", Offset: off[3], Mask: lenCount, Cells: &q.head, Source: src},
		{Name: q.name + "T", Offset: off[4], Mask: lenCount, Cells: &q.tail, Write: on(tailed), Source: src},
	}
}

// entries is the ring's size, 0 while it is off.
func (q *ring) entries() uint32 {
	if q.len.Len() == 0 { // not in a register space yet
		return 0
	}
	if l := q.len.Get(0); l&lenENABLE != 0 {
		return l & lenCount
	}
	return 0
}

// flag raises an error bit in LEN.
func (q *ring) flag(bit uint32) { q.len.Set(0, q.len.Get(0)|bit) }

var errWraps = errors.New("the ring passes the end of the address space")

// slot is the address of descriptor i.
func (q *ring) slot(i uint32) (uint64, error) {
	base := uint64(q.bah.Get(0))<<32 | uint64(q.bal.Get(0))
	addr := base + uint64(i)*descSize
	if addr+descSize-1 < base {
		return addr, errWraps
	}
	return addr, nil
}

// indices returns head and tail if both lie in the ring, and reports the one
// that does not. The driver may write either at any time.
func (f *Firmware) indices(q *ring) (head, tail, n uint32, ok bool) {
	n, head, tail = q.entries(), q.head.Get(0), q.tail.Get(0)
	switch {
	case tail >= n && (n > 0 || tail > 0): // zeroes are written to a queue that is off
		f.emit(BadIndex{q.name + "T", tail, n})
	case head >= n && n > 0:
		f.emit(BadIndex{q.name + "H", head, n})
	default:
		return head, tail, n, n > 0
	}
	if n > 0 {
		q.flag(lenCRIT)
	}
	return 0, 0, 0, false
}

// writeBack stores a descriptor, the quadword with its flags last.
func (f *Firmware) writeBack(addr uint64, d *[descSize]byte) error {
	if err := f.cfg.Mem.Write(addr+8, d[8:]); err != nil {
		return err
	}
	return f.cfg.Mem.Store64(addr, le.Uint64(d[:]))
}

// sendQueue is a queue of commands from the driver.
type sendQueue struct {
	ring
	commands map[uint16]*command
	maxBuf   int
	// stopped is set by Queue Shutdown and ended by the next set-up.
	stopped bool
	// rung: TAIL was written since the queue was last found empty or broken.
	rung bool
}

// tailed is a write of TAIL.
func (f *Firmware) tailed(q *sendQueue) {
	q.rung = true
	f.serve()
}

// resized is a write of LEN: what the queue had under way belongs to a ring
// that may be gone.
func (f *Firmware) resized(q *sendQueue) {
	q.stopped, q.rung = false, false
	f.after.Drop()
	f.serve()
}

// serveLimit is how many commands are executed before the control lock is
// free for others.
const serveLimit = 16

// serve executes the commands up to TAIL, or up to one that has to wait.
func (f *Firmware) serve() {
	for n := 0; !f.after.Parked(); n++ {
		q := f.waiting()
		if q == nil {
			return
		}
		if n == serveLimit {
			f.after.Park(f.serve)
			return
		}
		if !f.serveOne(q, q.head.Get(0)) {
			q.flag(lenCRIT)
			return
		}
	}
}

// waiting is a send queue with a command to execute.
func (f *Firmware) waiting() *sendQueue {
	for _, q := range []*sendQueue{&f.atq, &f.mbxATQ} {
		if q.stopped || !q.rung {
			continue
		}
		if head, tail, _, ok := f.indices(&q.ring); ok && head != tail {
			return q
		}
		q.rung = false
	}
	return nil
}

func (f *Firmware) serveOne(q *sendQueue, i uint32) bool {
	addr, err := q.slot(i)
	var r request
	if err == nil {
		err = f.cfg.Mem.Read(addr, r.desc[:])
	}
	if err != nil {
		q.rung = false
		f.emit(QueueFault{q.name, i, "descriptor", addr, err})
		return false
	}
	if r.desc == ([descSize]byte{}) {
		f.emit(BlankDescriptor{q.name, i, addr})
	}
	rc := f.execute(q, i, addr, &r)
	if r.grace && !f.after.Quiet() {
		f.after.Park(func() {
			f.answer(q, i, addr, &r, rc)
			f.serve()
		})
		return true
	}
	return f.answer(q, i, addr, &r, rc)
}

// answer writes a command's descriptor back and moves HEAD.
func (f *Firmware) answer(q *sendQueue, i uint32, addr uint64, r *request, rc errno) bool {
	flags := le.Uint16(r.desc[0:])
	done := flags&^flagERR | flagDD | flagCMP
	if rc != rcOK {
		done |= flagERR
	}
	le.PutUint16(r.desc[0:], done)
	le.PutUint16(r.desc[6:], uint16(rc))
	if err := f.writeBack(addr, &r.desc); err != nil {
		q.rung = false
		f.emit(QueueFault{q.name, i, "descriptor", addr, err})
		return false
	}
	if n := q.entries(); n > 0 {
		q.head.Set(0, (i+1)%n)
	}
	if flags&flagSI == 0 {
		f.interrupt()
	}
	if r.then != nil {
		r.then()
	}
	return true
}

// notice is a message for the driver. data is shorter than 4 KiB.
type notice struct {
	op     uint16
	name   string
	params [8]byte // the first half; the second is the buffer's address
	data   []byte
}

// recvQueue is the queue of messages to the driver.
type recvQueue struct {
	ring
	pending []notice
}

// notify puts m on the receive queue, now or when there is room.
func (f *Firmware) notify(m notice) {
	q := &f.arq
	if q.entries() == 0 {
		f.emit(NoticeLost{m.op, "the receive queue is off"})
		return
	}
	if len(q.pending) >= maxPending {
		q.flag(lenOVFL)
		f.emit(NoticeLost{m.op, "the receive queue is full"})
		return
	}
	q.pending = append(q.pending, m)
	f.deliver()
}

// deliver moves waiting messages to free slots.
func (f *Firmware) deliver() {
	q := &f.arq
	head, tail, n, ok := f.indices(&q.ring)
	sent := false
	for ok && head != tail && len(q.pending) > 0 {
		m := q.pending[0]
		q.pending = q.pending[1:]
		if !f.put(q, head, m) {
			q.flag(lenCRIT)
			break
		}
		f.emit(Notice{head, m.op, m.name})
		head = (head + 1) % n
		q.head.Set(0, head)
		sent = true
	}
	if sent {
		f.interrupt()
	}
}

// put writes m to slot i.
func (f *Firmware) put(q *recvQueue, i uint32, m notice) bool {
	addr, err := q.slot(i)
	var d [descSize]byte
	if err == nil {
		err = f.cfg.Mem.Read(addr, d[:])
	}
	if err != nil {
		f.emit(QueueFault{q.name, i, "descriptor", addr, err})
		return false
	}
	flags, room := le.Uint16(d[0:]), int(le.Uint16(d[4:]))
	if len(m.data) > 0 {
		if flags&flagBUF == 0 || room < len(m.data) {
			f.emit(BadDescriptor{q.name, i, m.op, flags, uint16(room), addr, "no buffer for an event of this size"})
			return false
		}
		buf := uint64(le.Uint32(d[24:]))<<32 | uint64(le.Uint32(d[28:]))
		if err := f.cfg.Mem.Write(buf, m.data); err != nil {
			f.emit(QueueFault{q.name, i, "buffer", buf, err})
			return false
		}
	}
	le.PutUint16(d[0:], flags&(flagBUF|flagLB)|flagDD|flagCMP)
	le.PutUint16(d[2:], m.op)
	le.PutUint16(d[4:], uint16(len(m.data)))
	clear(d[6:16])
	copy(d[16:24], m.params[:])
	if err := f.writeBack(addr, &d); err != nil {
		f.emit(QueueFault{q.name, i, "descriptor", addr, err})
		return false
	}
	return true
}

// interrupt raises the admin queue cause.
func (f *Firmware) interrupt() {
	if f.cfg.Event != nil {
		f.cfg.Event()
	}
}
