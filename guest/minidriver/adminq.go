// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"encoding/binary"
	"fmt"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

const (
	aqDescSize = 32
	aqBufSize  = 4096

	aqEntries      = 192 // ICE_AQ_LEN
	mbxSendEntries = 64
	mbxRecvEntries = 1023

	ctrlqLenEnable = 1 << 31
	ctrlqLenErrors = 1<<28 | 1<<29 | 1<<30 // VF error, overflow, critical

	// libie/adminq.h, LIBIE_AQ_FLAG_*
	aqFlagDD  = 1 << 0
	aqFlagCMP = 1 << 1
	aqFlagERR = 1 << 2
	aqFlagLB  = 1 << 9
	aqFlagRD  = 1 << 10
	aqFlagBUF = 1 << 12
	aqFlagSI  = 1 << 13

	aqLargeBuf = 512
)

// ctrlRegs are the registers of one ring.
type ctrlRegs struct{ bal, bah, length, head, tail uint32 }

// ctrlRing is one ring of a control queue with a buffer for every entry
// (ice_controlq.c).
type ctrlRing struct {
	f       *Function
	regs    ctrlRegs
	name    string
	entries int
	ring    *Buf
	bufs    []*Buf
	run     *Buf // memory of all bufs, if they share it
	next    int
}

// setup allocates the ring and hands it to the device in the drivers' order of
// writes: the length with its enable bit comes before the address.
func (r *ctrlRing) setup(f *Function, mem *arena, name string, regs ctrlRegs, entries int) error {
	*r = ctrlRing{f: f, name: name, regs: regs, entries: entries}
	r.ring = mem.own(f.alloc(entries * aqDescSize))
	r.allocBufs(mem)
	f.Write32(regs.head, 0)
	f.Write32(regs.tail, 0)
	f.Write32(regs.length, uint32(entries)|ctrlqLenEnable)
	f.Write32(regs.bal, uint32(r.ring.IOVA))
	f.Write32(regs.bah, uint32(r.ring.IOVA>>32))
	if got := f.Read32(regs.bal); f.Err() == nil && got != uint32(r.ring.IOVA) {
		return broken("%s BAL reads %#x after a write of %#x", name, got, uint32(r.ring.IOVA))
	}
	return f.Err()
}

// allocBufs gives every entry a buffer of its own with free pages around it; in
// a long ring, which is the mailbox of virtual functions, they share one run.
func (r *ctrlRing) allocBufs(mem *arena) {
	if r.entries <= aqEntries {
		for range r.entries {
			r.bufs = append(r.bufs, mem.own(r.f.alloc(aqBufSize)))
		}
		return
	}
	r.run = mem.own(r.f.alloc(r.entries * aqBufSize))
	for i := range r.entries {
		r.bufs = append(r.bufs, r.run.part(i*aqBufSize, aqBufSize))
	}
}

// setupReceive also gives the device all entries but one.
func (r *ctrlRing) setupReceive(f *Function, mem *arena, name string, regs ctrlRegs, entries int) error {
	if err := r.setup(f, mem, name, regs, entries); err != nil {
		return err
	}
	for i := range entries {
		r.refill(i)
	}
	f.Write32(regs.tail, uint32(entries-1))
	return f.Err()
}

func (r *ctrlRing) refill(i int) {
	d := r.desc(i)
	clear(d)
	le.PutUint16(d, aqFlagBUF|aqFlagLB)
	le.PutUint16(d[4:], aqBufSize)
	putAQAddress(d, r.bufs[i].IOVA)
}

func (r *ctrlRing) desc(i int) []byte { return r.ring.Bytes()[i*aqDescSize:][:aqDescSize] }

// alive is ice_check_sq_alive.
func (r *ctrlRing) alive() bool {
	return r.entries > 0 && r.f.Read32(r.regs.length) == uint32(r.entries)|ctrlqLenEnable
}

func (r *ctrlRing) shutdown(mem *arena) {
	f := r.f
	for _, reg := range []uint32{r.regs.head, r.regs.tail, r.regs.length, r.regs.bal, r.regs.bah} {
		f.Write32(reg, 0)
	}
	f.flush()
	mem.free(r.ring, r.run)
	if r.run == nil {
		mem.free(r.bufs...)
	}
	*r = ctrlRing{f: f, regs: r.regs, name: r.name}
}

func putAQAddress(d []byte, iova uint64) {
	le.PutUint32(d[24:], uint32(iova>>32))
	le.PutUint32(d[28:], uint32(iova))
}

// Command is one admin command and then its answer.
type Command struct {
	Op  uint16
	P   [16]byte // parameters; the last eight bytes hold the buffer's address if there is one
	Buf []byte   // nil for a direct command
	RD  bool     // the device reads Buf

	Len int // answer: bytes of Buf that the device says are valid
}

func (c *Command) u16(off int) uint16      { return le.Uint16(c.P[off:]) }
func (c *Command) u32(off int) uint32      { return le.Uint32(c.P[off:]) }
func (c *Command) put16(off int, v uint16) { le.PutUint16(c.P[off:], v) }
func (c *Command) put32(off int, v uint32) { le.PutUint32(c.P[off:], v) }
func (c *Command) String() string          { return fmt.Sprintf("admin command %#06x", c.Op) }
func (c *Command) wrong(f string, a ...any) error {
	return broken("%v: %s", c, fmt.Sprintf(f, a...))
}

// adminQueue is the pair of rings to the firmware.
type adminQueue struct {
	send, recv ctrlRing
	flushTail  bool
	inReset    bool
	trace      []uint16 // opcodes in order
}

// do sends a command and waits for the head to reach the tail, which is what
// ends a command for the drivers (ice_controlq.c:ice_sq_send_cmd). An error
// code comes back as *AQError; the answer is in c all the same.
func (q *adminQueue) do(c *Command) error {
	r := &q.send
	f := r.f
	if f.Err() != nil {
		return f.err
	}
	if q.inReset {
		return fmt.Errorf("%v: %w", c, errInReset)
	}
	if r.entries == 0 {
		return fmt.Errorf("%v: the admin queue is down", c)
	}
	if head := f.Read32(r.regs.head); f.Err() == nil && head >= uint32(r.entries) {
		return broken("%s head overrun: %d of %d", r.name, head, r.entries)
	}
	q.trace = append(q.trace, c.Op)

	slot := r.next
	d := r.desc(slot)
	clear(d)
	flags := uint16(aqFlagSI)
	le.PutUint16(d[2:], c.Op)
	copy(d[16:], c.P[:])
	buf := r.bufs[slot].Bytes()
	if c.Buf != nil {
		flags |= aqFlagBUF
		if len(c.Buf) > aqLargeBuf {
			flags |= aqFlagLB
		}
		if c.RD {
			flags |= aqFlagRD
		}
		copy(buf, c.Buf)
		le.PutUint16(d[4:], uint16(len(c.Buf)))
		putAQAddress(d, r.bufs[slot].IOVA)
	}
	le.PutUint16(d, flags)

	r.next = (slot + 1) % r.entries
	f.Write32(r.regs.tail, uint32(r.next))
	if q.flushTail {
		f.flush()
	}
	if err := f.poll(c.String(), func() bool { return f.Read32(r.regs.head) == uint32(r.next) }); err != nil {
		return err
	}
	return c.answer(r.desc(slot), buf)
}

// answer takes the answer from the descriptor that the device wrote back.
func (c *Command) answer(d, buf []byte) error {
	flags, retval := le.Uint16(d), le.Uint16(d[6:])
	copy(c.P[:], d[16:])
	c.Len = int(le.Uint16(d[4:]))
	if flags&(aqFlagDD|aqFlagCMP) != aqFlagDD|aqFlagCMP {
		return c.wrong("head moved on but flags are %#x", flags)
	}
	if op := le.Uint16(d[2:]); op != c.Op {
		return c.wrong("answer is for %#x", op)
	}
	if (flags&aqFlagERR != 0) != (retval != 0) {
		return c.wrong("flags %#x with code %d", flags, retval)
	}
	if c.Len > len(c.Buf) {
		return c.wrong("answer of %d bytes in a buffer of %d", c.Len, len(c.Buf))
	}
	copy(c.Buf, buf[:len(c.Buf)])
	if code := AQCode(retval & 0xff); code != AQOK {
		return &AQError{c.Op, code}
	}
	return nil
}

// Event is a message of the firmware on the receive queue.
type Event struct {
	Op   uint16
	P    [16]byte
	Data []byte
}

// events takes what is on the receive queue and gives the entries back
// (ice_controlq.c:ice_clean_rq_elem).
func (q *adminQueue) events() ([]Event, error) {
	r := &q.recv
	f := r.f
	var all []Event
	if errs := f.Read32(r.regs.length) & ctrlqLenErrors; f.Err() == nil && errs != 0 {
		return nil, broken("%s length register shows errors %#x", r.name, errs)
	}
	for f.Read32(r.regs.head) != uint32(r.next) && f.Err() == nil {
		d := r.desc(r.next)
		flags, n := le.Uint16(d), int(le.Uint16(d[4:]))
		if flags&aqFlagDD == 0 || flags&aqFlagERR != 0 || n > aqBufSize {
			return all, broken("%s entry %d: flags %#x, %d bytes", r.name, r.next, flags, n)
		}
		e := Event{Op: le.Uint16(d[2:]), Data: append([]byte(nil), r.bufs[r.next].Bytes()[:n]...)}
		copy(e.P[:], d[16:])
		all = append(all, e)
		r.refill(r.next)
		f.Write32(r.regs.tail, uint32(r.next))
		r.next = (r.next + 1) % r.entries
	}
	return all, f.Err()
}
