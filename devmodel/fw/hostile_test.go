// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostileRings(t *testing.T) {
	const ring = memBase + atqRing
	for _, c := range []struct {
		what string
		do   func(d *testDriver)
		crit bool
		head uint32
		want any // the one event
	}{
		{"ring at unmapped memory", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, 0x1000, entries)
			d.regs.Write32(fwATQ+4*stepFW, 1)
		}, true, 0, QueueFault{Queue: "PF_FW_ATQ", Object: "descriptor", Address: 0x1000}},
		{"ring that leaves mapped memory", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, memBase+memSize-64, entries)
			d.regs.Write32(fwATQ+3*stepFW, 2)
			d.regs.Write32(fwATQ+4*stepFW, 3)
		}, true, 2, QueueFault{Queue: "PF_FW_ATQ", Index: 2, Object: "descriptor", Address: memBase + memSize}},
		{"ring base that wraps", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, math.MaxUint64&^63, entries)
			d.regs.Write32(fwATQ+3*stepFW, 2)
			d.regs.Write32(fwATQ+4*stepFW, 5)
		}, true, 2, QueueFault{Queue: "PF_FW_ATQ", Index: 2, Object: "descriptor", Address: 0}},
		{"TAIL past the entries", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, ring, entries)
			d.regs.Write32(fwATQ+4*stepFW, entries)
		}, true, 0, BadIndex{"PF_FW_ATQT", entries, entries}},
		{"TAIL of all ones", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, ring, entries)
			d.regs.Write32(fwATQ+4*stepFW, math.MaxUint32)
		}, true, 0, BadIndex{"PF_FW_ATQT", 1023, entries}},
		{"HEAD past the entries", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, ring, entries)
			d.regs.Write32(fwATQ+3*stepFW, entries)
			d.regs.Write32(fwATQ+4*stepFW, 1)
		}, true, entries, BadIndex{"PF_FW_ATQH", entries, entries}},
		{"LEN 0, enabled", func(d *testDriver) {
			d.setUp(fwATQ, stepFW, ring, 0)
			d.regs.Write32(fwATQ+4*stepFW, 1)
		}, false, 0, BadIndex{"PF_FW_ATQT", 1, 0}},
		{"doorbell of a queue that is off", func(d *testDriver) {
			d.regs.Write32(fwATQ+4*stepFW, 1)
		}, false, 0, BadIndex{"PF_FW_ATQT", 1, 0}},
		{"ARQ TAIL past the entries", func(d *testDriver) {
			d.setUp(fwARQ, stepFW, memBase+arqRing, entries)
			d.regs.Write32(fwARQ+4*stepFW, 17)
		}, false, 0, BadIndex{"PF_FW_ARQT", 17, entries}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newTestDriver(t)
			c.do(d)
			if h := d.regs.Read32(fwATQ + 3*stepFW); h != c.head {
				t.Errorf("HEAD is %d, want %d", h, c.head)
			}
			if got := d.regs.Read32(fwATQ+2*stepFW)&lenCRIT != 0; got != c.crit {
				t.Errorf("ATQCRIT is %v", got)
			}
			if len(d.events) != 1 {
				t.Fatalf("events %v", d.events)
			}
			e := d.events[0]
			if f, ok := e.(QueueFault); ok {
				if f.Err == nil {
					t.Error("no cause")
				}
				f.Err = nil
				e = f
			}
			if diff := cmp.Diff(c.want, e); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A ring that was wrong works when it is set up again.
func TestRingRecovers(t *testing.T) {
	d := newTestDriver(t)
	d.setUp(fwATQ, stepFW, 0x1000, entries)
	d.regs.Write32(fwATQ+4*stepFW, 1)
	d.bringUp()
	d.ok(0x0001, 0, nil, nil)
}

func TestHostileDescriptors(t *testing.T) {
	for _, c := range []struct {
		what           string
		flags, op, len uint16
		addr           uint64
		rc             errno
		bad            string // of a BadDescriptor; "" if the event is a fault
	}{
		{"datalen 65535", flagBUF | flagLB, 0x000a, 65535, memBase + atqBufs, rcEINVAL, "buffer longer than 4096"},
		{"datalen 65535 to read", flagBUF | flagLB | flagRD, 0x0c40, 65535, memBase + atqBufs, rcEINVAL, "buffer longer than 4096"},
		{"datalen 4097", flagBUF | flagLB | flagRD, 0x0c40, 4097, memBase + atqBufs, rcEINVAL, "buffer longer than 4096"},
		{"buffer without RD", flagBUF, 0x0002, 16, memBase + atqBufs, rcEINVAL, "driver_ver without flag RD"},
		{"no buffer", 0, 0x000a, 0, 0, rcEINVAL, "list_func_caps needs a buffer of 32 bytes"},
		{"length without flag BUF", flagRD, 0x0601, 24, memBase + atqBufs, rcEINVAL, "set_phy_cfg needs a buffer of 24 bytes"},
		{"unmapped buffer to read", flagBUF | flagRD, 0x0601, 24, 0x1000, rcEIO, ""},
		{"unmapped buffer to write", flagBUF, 0x0607, 32, 0x1000, rcEIO, ""},
		{"buffer at the end of the address space", flagBUF, 0x0607, 32, math.MaxUint64 - 3, rcEIO, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := booted(t)
			desc := d.mem.b[atqRing:][:descSize]
			clear(desc)
			le.PutUint16(desc[0:], c.flags)
			le.PutUint16(desc[2:], c.op)
			le.PutUint16(desc[4:], c.len)
			le.PutUint32(desc[24:], uint32(c.addr>>32))
			le.PutUint32(desc[28:], uint32(c.addr))
			d.regs.Write32(fwATQ+4*stepFW, 1)
			if h := d.regs.Read32(fwATQ + 3*stepFW); h != 1 {
				t.Fatalf("HEAD is %d", h)
			}
			if rc := errno(le.Uint16(desc[6:])); rc != c.rc || le.Uint16(desc)&flagERR == 0 {
				t.Errorf("%v, flags %#x", rc, le.Uint16(desc))
			}
			if c.bad == "" {
				if f := seen[QueueFault](d); len(f) != 1 || f[0].Address != c.addr || f[0].Object != "buffer" || !errors.Is(f[0].Err, errUnmapped) {
					t.Errorf("events %v", d.events)
				}
				return
			}
			want := []BadDescriptor{{"PF_FW_ATQ", 0, c.op, c.flags, c.len, memBase + atqRing, c.bad}}
			if diff := cmp.Diff(want, seen[BadDescriptor](d)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A buffer above 512 bytes without its flag is reported and served.
func TestLargeBufferFlag(t *testing.T) {
	d := booted(t)
	desc := d.mem.b[atqRing:][:descSize]
	le.PutUint16(desc[0:], flagBUF)
	le.PutUint16(desc[2:], 0x000a)
	le.PutUint16(desc[4:], 4096)
	le.PutUint32(desc[24:], memBase>>32)
	le.PutUint32(desc[28:], atqBufs)
	d.regs.Write32(fwATQ+4*stepFW, 1)
	if rc := errno(le.Uint16(desc[6:])); rc != rcOK {
		t.Error(rc)
	}
	if n := len(seen[BadDescriptor](d)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// FuzzAdminDescriptor posts two descriptors with a buffer of the fuzzer's
// choice. Whatever they are, the queue moves on and answers with DD, and
// nothing is written past the buffer.
func FuzzAdminDescriptor(f *testing.F) {
	f.Fuzz(func(t *testing.T, desc, buf []byte) {
		d := booted(t)
		buf = buf[:min(len(buf), 8192)]
		// Objects that commands can name.
		vsi := make([]byte, 128)
		vsi[2] = swid
		d.ok(0x0210, flagRD, params(0, 0, 0, 2), vsi)
		for range 2 {
			slot := d.mem.b[atqRing+d.next*descSize:][:descSize]
			copy(slot, desc)
			if le.Uint16(slot[0:])&flagBUF != 0 {
				le.PutUint32(slot[24:], memBase>>32)
				le.PutUint32(slot[28:], atqBufs)
			}
			copy(d.mem.b[atqBufs:], buf)
			const guard = 0xa5
			end := atqBufs + maxAdminBuf
			if le.Uint16(slot[0:])&flagBUF != 0 {
				end = atqBufs + int(le.Uint16(slot[4:]))
			}
			d.mem.b[end] = guard
			d.next = (d.next + 1) % entries
			d.regs.Write32(fwATQ+4*stepFW, d.next)
			if h := d.regs.Read32(fwATQ + 3*stepFW); h != d.next {
				t.Fatalf("HEAD is %d, want %d", h, d.next)
			}
			if d.f.atq.stopped {
				return // by Queue Shutdown
			}
			flags := le.Uint16(slot[0:])
			if flags&flagDD == 0 || (flags&flagERR != 0) != (le.Uint16(slot[6:]) != 0) {
				t.Fatalf("descriptor % x", slot)
			}
			if d.mem.b[end] != guard {
				t.Fatal("write past the buffer")
			}
			checkSteering(t, d.f)
		}
	})
}

// checkSteering holds the steering in effect against what it may name: VSIs
// that there are, and queues that the function has.
func checkSteering(t *testing.T, f *Firmware) {
	t.Helper()
	s := f.steering
	if f.sw.stale != fresh {
		t.Fatal("the steering is out of date after a command")
	}
	for n, v := range s.VSIs {
		if f.sw.vsis[n] == nil || v.Number != n {
			t.Fatalf("VSI %d is steered to, and absent", n)
		}
		for _, q := range v.Queues {
			if q >= NumQueues {
				t.Fatalf("VSI %d has queue %d", n, q)
			}
		}
		if l := len(v.LUT); l != 0 && l != rssVSILUTSize && l != rssPFLUTSize {
			t.Fatalf("VSI %d has a lookup table of %d", n, l)
		}
	}
	if len(s.VSIs) != len(f.sw.vsis) {
		t.Fatalf("%d VSIs are steered to, of %d", len(s.VSIs), len(f.sw.vsis))
	}
	named := [][]uint16{s.Default, s.DefaultTx}
	for _, m := range s.Addresses {
		named = append(named, m.VSIs)
	}
	for _, m := range s.EtherTypes {
		named = append(named, m.VSIs)
	}
	for _, vsis := range named {
		for _, n := range vsis {
			if s.VSIs[n] == nil {
				t.Fatalf("a rule means VSI %d, which is absent", n)
			}
		}
	}
	if s.MaxFrame < minFrame-fcsSize || s.MaxFrame > maxFrame-fcsSize || s.Link != f.LinkUp() {
		t.Fatalf("largest frame %d, link %t", s.MaxFrame, s.Link)
	}
}
