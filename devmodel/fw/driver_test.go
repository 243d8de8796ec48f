// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

var errUnmapped = errors.New("unmapped")

// testMemory is guest memory from memBase on.
type testMemory struct {
	tb testing.TB
	b  []byte
}

const (
	memBase = 0x1_0000_0000
	memSize = 0x30000
)

func (m *testMemory) at(iova uint64, n int) ([]byte, error) {
	if iova < memBase || iova-memBase > uint64(len(m.b)) || uint64(n) > uint64(len(m.b))-(iova-memBase) {
		return nil, fmt.Errorf("%#x+%d: %w", iova, n, errUnmapped)
	}
	return m.b[iova-memBase:][:n], nil
}

func (m *testMemory) Read(iova uint64, p []byte) error {
	b, err := m.at(iova, len(p))
	copy(p, b)
	return err
}

func (m *testMemory) Write(iova uint64, p []byte) error {
	b, err := m.at(iova, len(p))
	copy(b, p)
	return err
}

func (m *testMemory) Load64(iova uint64) (uint64, error) {
	b, err := m.at(iova, 8)
	if err != nil {
		return 0, err
	}
	return le.Uint64(b), nil
}

func (m *testMemory) Store64(iova uint64, v uint64) error {
	if iova%8 != 0 {
		m.tb.Errorf("misaligned store at %#x", iova)
	}
	b, err := m.at(iova, 8)
	if err == nil {
		le.PutUint64(b, v)
	}
	return err
}

// Where the test driver keeps its rings and buffers, as offsets.
const (
	atqRing = 0x00000
	arqRing = 0x02000
	atqBufs = 0x10000 // one for all commands
	arqBufs = 0x20000 // one per slot
	entries = 16
)

// testDriver does to the registers what ice_controlq.c does.
type testDriver struct {
	testing.TB
	f          *Firmware
	regs       *reg.Space
	mem        *testMemory
	events     []any
	interrupts int
	next       uint32 // ATQ next_to_use
	clean      uint32 // ARQ next_to_clean
}

func newTestDriver(tb testing.TB) *testDriver {
	d := &testDriver{TB: tb, mem: &testMemory{tb, make([]byte, memSize)}}
	d.f = New(Config{
		Mem:   d.mem,
		Emit:  func(e any) { d.events = append(d.events, e) },
		MAC:   [6]byte{0x02, 0x11, 0x22, 0x33, 0x44, 0x55},
		Event: func() { d.interrupts++ },
	})
	d.regs = reg.NewSpace(8<<20, nil, d.f.Registers())
	return d
}

// booted is a driver with its admin queues set up.
func booted(tb testing.TB) *testDriver {
	d := newTestDriver(tb)
	d.bringUp()
	return d
}

// Offsets of the first queue register of each queue.
const (
	fwATQ = 0x80000
	fwARQ = 0x80080
	mbATQ = 0x22e100

	stepFW  = 0x100 // between BAL, BAH, LEN, H, T
	stepMBX = 0x80
)

// setUp writes the registers of a queue in the order of ice_cfg_cq_regs.
func (d *testDriver) setUp(queue, step uint32, base uint64, n uint32) {
	d.Helper()
	d.regs.Write32(queue+3*step, 0)
	d.regs.Write32(queue+4*step, 0)
	d.regs.Write32(queue+2*step, n|lenENABLE)
	d.regs.Write32(queue, uint32(base))
	d.regs.Write32(queue+step, uint32(base>>32))
	if got := d.regs.Read32(queue); got != uint32(base) {
		d.Fatalf("BAL reads %#x after a write of %#x", got, uint32(base))
	}
}

func (d *testDriver) bringUp() {
	d.Helper()
	d.next, d.clean = 0, 0
	d.setUp(fwATQ, stepFW, memBase+atqRing, entries)
	for i := range uint32(entries) {
		d.fillARQ(i)
	}
	d.setUp(fwARQ, stepFW, memBase+arqRing, entries)
	d.regs.Write32(fwARQ+4*stepFW, entries-1)
}

func (d *testDriver) fillARQ(i uint32) {
	desc := d.mem.b[arqRing+i*descSize:][:descSize]
	clear(desc)
	le.PutUint16(desc[0:], flagBUF|flagLB)
	le.PutUint16(desc[4:], 4096)
	buf := memBase + arqBufs + uint64(i)*4096
	le.PutUint32(desc[24:], uint32(buf>>32))
	le.PutUint32(desc[28:], uint32(buf))
}

// answer is a command's descriptor and buffer as the driver sees them after.
type answer struct {
	rc      errno
	flags   uint16
	datalen uint16
	p       []byte
	buf     []byte // datalen bytes
}

// send posts one command with p at the start of its parameters and waits for
// HEAD, like ice_sq_send_cmd.
func (d *testDriver) send(op, flags uint16, p, buf []byte) answer {
	d.Helper()
	if h := d.regs.Read32(fwATQ + 3*stepFW); h != d.next {
		d.Fatalf("HEAD is %d before the command, want %d", h, d.next)
	}
	desc := d.mem.b[atqRing+d.next*descSize:][:descSize]
	clear(desc)
	flags |= flagSI
	copy(desc[16:], p)
	if len(buf) > 0 {
		flags |= flagBUF
		if len(buf) > largeBuf {
			flags |= flagLB
		}
		copy(d.mem.b[atqBufs:], buf)
		le.PutUint16(desc[4:], uint16(len(buf)))
		addr := uint64(memBase + atqBufs)
		le.PutUint32(desc[24:], uint32(addr>>32))
		le.PutUint32(desc[28:], uint32(addr&0xffffffff))
	}
	le.PutUint16(desc[0:], flags)
	le.PutUint16(desc[2:], op)
	le.PutUint32(desc[8:], 0x11223344)
	d.next = (d.next + 1) % entries
	d.regs.Write32(fwATQ+4*stepFW, d.next)
	if h := d.regs.Read32(fwATQ + 3*stepFW); h != d.next {
		d.Fatalf("opcode %#04x: HEAD is %d, want %d", op, h, d.next)
	}
	a := answer{
		rc:      errno(le.Uint16(desc[6:])),
		flags:   le.Uint16(desc[0:]),
		datalen: le.Uint16(desc[4:]),
		p:       append([]byte(nil), desc[16:32]...),
	}
	if int(a.datalen) > len(buf) {
		d.Fatalf("opcode %#04x: datalen %d, more than the %d sent", op, a.datalen, len(buf))
	}
	if a.flags&(flagDD|flagCMP) != flagDD|flagCMP || (a.flags&flagERR != 0) != (a.rc != rcOK) {
		d.Fatalf("opcode %#04x: flags %#x with retval %v", op, a.flags, a.rc)
	}
	if le.Uint16(desc[2:]) != op || le.Uint32(desc[8:]) != 0x11223344 {
		d.Fatalf("opcode %#04x: opcode or cookie changed", op)
	}
	a.buf = append([]byte(nil), d.mem.b[atqBufs:][:a.datalen]...)
	return a
}

// ok sends a command that must succeed.
func (d *testDriver) ok(op, flags uint16, p, buf []byte) answer {
	d.Helper()
	a := d.send(op, flags, p, buf)
	if a.rc != rcOK {
		d.Fatalf("opcode %#04x: %v", op, a.rc)
	}
	return a
}

// fails sends a command that must fail with rc.
func (d *testDriver) fails(rc errno, op, flags uint16, p, buf []byte) answer {
	d.Helper()
	a := d.send(op, flags, p, buf)
	if a.rc != rc {
		d.Fatalf("opcode %#04x: %v, want %v", op, a.rc, rc)
	}
	return a
}

// event takes one event off the receive queue, like ice_clean_rq_elem.
func (d *testDriver) event() (op uint16, msg []byte, ok bool) {
	d.Helper()
	if d.regs.Read32(fwARQ+3*stepFW) == d.clean {
		return 0, nil, false
	}
	i := d.clean
	desc := d.mem.b[arqRing+i*descSize:][:descSize]
	if f := le.Uint16(desc[0:]); f&(flagDD|flagCMP) != flagDD|flagCMP || f&flagERR != 0 {
		d.Fatalf("event with flags %#x", f)
	}
	op = le.Uint16(desc[2:])
	msg = append([]byte(nil), d.mem.b[arqBufs+i*4096:][:le.Uint16(desc[4:])]...)
	d.fillARQ(i)
	d.regs.Write32(fwARQ+4*stepFW, i)
	d.clean = (i + 1) % entries
	return op, msg, true
}

// seen counts the events of type T.
func seen[T any](d *testDriver) []T {
	var out []T
	for _, e := range d.events {
		if v, ok := e.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// params lays out parameters, 16-bit words.
func params(w ...uint16) []byte {
	b := make([]byte, 2*len(w))
	for i, v := range w {
		le.PutUint16(b[2*i:], v)
	}
	return b
}
