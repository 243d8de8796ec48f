// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/reg"
)

func TestBringUpAndShutdown(t *testing.T) {
	d := booted(t)
	for round := range 3 {
		a := d.ok(0x0001, 0, nil, nil)
		want := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 3, 0, 0, 1, 5, 0}
		if diff := cmp.Diff(want, a.p); diff != "" {
			t.Fatalf("version: %s", diff)
		}
		if v := d.regs.Read32(fwATQ + 2*stepFW); v != entries|lenENABLE {
			t.Fatalf("round %d: ATQLEN is %#x", round, v)
		}
		// ice_shutdown_ctrlq: 0x0003, then zeroes, HEAD and TAIL first.
		d.ok(0x0003, 0, []byte{1}, nil)
		for _, q := range []uint32{fwATQ, fwARQ} {
			for _, r := range []uint32{3, 4, 2, 0, 1} {
				d.regs.Write32(q+r*stepFW, 0)
			}
		}
		d.bringUp()
	}
	if d.interrupts != 0 {
		t.Errorf("%d interrupts for commands with SI", d.interrupts)
	}
	for _, e := range d.events {
		if _, ok := e.(Command); !ok {
			t.Errorf("event %v", e)
		}
	}
}

// The ring is longer than the commands of one round trip.
func TestRingWraps(t *testing.T) {
	d := booted(t)
	for range 3*entries + 1 {
		d.ok(0x0001, 0, nil, nil)
	}
}

// Several commands behind one write of TAIL, completed in order.
func TestBatch(t *testing.T) {
	d := booted(t)
	for i := range 3 {
		le.PutUint16(d.mem.b[atqRing+i*descSize+2:], 0x0001)
	}
	d.regs.Write32(fwATQ+4*stepFW, 3)
	if h := d.regs.Read32(fwATQ + 3*stepFW); h != 3 {
		t.Fatalf("HEAD is %d", h)
	}
	if d.interrupts != 3 {
		t.Errorf("%d interrupts for three commands without SI", d.interrupts)
	}
	got := seen[Command](d)
	for i, c := range got {
		if want := (Command{"PF_FW_ATQ", uint32(i), 0x0001, "get_ver", 0, 0}); c != want {
			t.Errorf("event %+v, want %+v", c, want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d events", len(got))
	}
}

// Nothing is fetched when LEN is written: the base address comes later.
func TestNothingFetchedBeforeTail(t *testing.T) {
	d := newTestDriver(t)
	d.regs.Write32(fwATQ+2*stepFW, entries|lenENABLE)
	d.regs.Write32(fwATQ, 0x40)
	d.regs.Write32(fwATQ+stepFW, 0)
	if len(d.events) != 0 {
		t.Fatalf("events %v", d.events)
	}
}

func TestShutdownStopsTheQueue(t *testing.T) {
	d := booted(t)
	d.ok(0x0003, 0, []byte{1}, nil)
	le.PutUint16(d.mem.b[atqRing+descSize+2:], 0x0001)
	d.regs.Write32(fwATQ+4*stepFW, 2)
	if h := d.regs.Read32(fwATQ + 3*stepFW); h != 1 {
		t.Fatalf("HEAD is %d: a command after the shutdown was executed", h)
	}
	d.bringUp()
	d.ok(0x0001, 0, nil, nil)
}

func TestUnknownCommand(t *testing.T) {
	d := booted(t)
	d.fails(rcESRCH, 0x7777, 0, nil, nil)
	d.fails(rcESRCH, 0x06e2, 0, nil, make([]byte, 16))
	want := []UnknownCommand{{"PF_FW_ATQ", 0, 0x7777, ""}, {"PF_FW_ATQ", 1, 0x06e2, "read_i2c"}}
	if diff := cmp.Diff(want, seen[UnknownCommand](d)); diff != "" {
		t.Error(diff)
	}
}

// Every row that can run says where it comes from.
func TestCommandTable(t *testing.T) {
	d := newTestDriver(t)
	for op, c := range d.f.atq.commands {
		if c.name == "" || c.run != nil && c.source == "" {
			t.Errorf("row %#04x has no name or no source", op)
		}
	}
	for _, c := range unsupportedCommands {
		if c.run != nil {
			t.Errorf("%s is not unsupported", c.name)
		}
	}
}

func TestDriverVersion(t *testing.T) {
	d := booted(t)
	d.ok(0x0002, flagRD, []byte{6, 12, 3, 0}, []byte("6.12.3+deb13\x00\x00\x00"))
	want := DriverVersion{6, 12, 3, 0, "6.12.3+deb13"}
	if got := d.f.DriverVersion(); got != want {
		t.Errorf("driver version %+v", got)
	}
	if got := seen[DriverVersion](d); len(got) != 1 || got[0] != want {
		t.Errorf("events %v", got)
	}
}

func TestResourceLocks(t *testing.T) {
	d := booted(t)
	a := d.ok(0x0008, 0, params(resNVM, accessRead), nil)
	if got := le.Uint32(a.p[4:]); got != 3000 {
		t.Errorf("NVM read lock for %d ms", got)
	}
	a = d.fails(rcEBUSY, 0x0008, 0, params(resNVM, accessRead), nil)
	if got := le.Uint32(a.p[4:]); got == 0 {
		t.Error("busy without a time to wait")
	}
	d.ok(0x0009, 0, params(resNVM), nil)
	d.ok(0x0008, 0, params(resNVM, accessWrite), nil)
	d.ok(0x0009, 0, params(resNVM), nil)
	d.fails(rcEINVAL, 0x0009, 0, params(resNVM), nil)
	d.fails(rcEINVAL, 0x0009, 0, params(0xffff), nil)
	if diff := cmp.Diff([]LockNotHeld{{resNVM}, {0xffff}}, seen[LockNotHeld](d)); diff != "" {
		t.Error(diff)
	}
	for _, p := range [][]byte{params(0, 1), params(5, 1), params(2, 1), params(resNVM, 0), params(resNVM, 3)} {
		d.fails(rcEINVAL, 0x0008, 0, p, nil)
	}
	// The global lock tells by its status.
	a = d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
	if got := le.Uint16(a.p[12:]); got != globalSuccess {
		t.Errorf("status %d", got)
	}
	a = d.send(0x0008, 0, params(resGlobal, accessWrite), nil)
	if got := le.Uint16(a.p[12:]); got != globalInProgress {
		t.Errorf("status %d", got)
	}
	// A reset frees them.
	d.reset(reg.PFR)
	d.ok(0x0008, 0, params(resGlobal, accessWrite), nil)
}

// reset does what the device does, and brings the queues up again.
func (d *testDriver) reset(dom reg.Domain) {
	d.Helper()
	d.f.Reset(dom)
	d.regs.Reset(dom)
	d.bringUp()
}

func TestResetTurnsQueuesOff(t *testing.T) {
	d := booted(t)
	d.f.Reset(reg.PFR)
	d.regs.Reset(reg.PFR)
	for _, off := range []uint32{fwATQ, fwARQ, mbATQ} {
		for i := range uint32(5) {
			step := uint32(stepFW)
			if off == mbATQ {
				step = stepMBX
			}
			if v := d.regs.Read32(off + i*step); v != 0 {
				t.Errorf("register %#x is %#x", off+i*step, v)
			}
		}
	}
	d.regs.Write32(fwATQ+4*stepFW, 0)
	if len(d.events) != 0 {
		t.Errorf("events %v", d.events)
	}
}

type capRecord struct{ number, logical, phys uint32 }

func caps(d *testDriver, op uint16) map[uint16]capRecord {
	d.Helper()
	a := d.ok(op, 0, nil, make([]byte, 4096))
	n := int(le.Uint32(a.p[4:]))
	if int(a.datalen) != n*32 {
		d.Fatalf("%d records in %d bytes", n, a.datalen)
	}
	m := map[uint16]capRecord{}
	for i := range n {
		b := a.buf[i*32:]
		m[le.Uint16(b)] = capRecord{le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
	}
	if len(m) != n {
		d.Fatalf("%d records, %d capabilities", n, len(m))
	}
	return m
}

func TestCapabilities(t *testing.T) {
	d := booted(t)
	want := map[uint16]capRecord{
		0x05: {1, 0, 0},
		0x17: {768, 0, 0},
		0x18: {1, 1, 8},
		0x40: {2048, 8, 0},
		0x41: {64, 0, 0},
		0x42: {64, 0, 0},
		0x43: {64, 0, 0},
		0x45: {16384, 0, 0},
		0x47: {9702, 0, 0},
		0x51: {1, 0, 0},
	}
	diff := func(a, b map[uint16]capRecord) string { return cmp.Diff(a, b, cmp.AllowUnexported(capRecord{})) }
	if s := diff(want, caps(d, 0x000b)); s != "" {
		t.Errorf("device: %s", s)
	}
	want[0x17] = capRecord{384, 0, 0}
	if s := diff(want, caps(d, 0x000a)); s != "" {
		t.Errorf("function: %s", s)
	}
	if a := d.fails(rcENOMEM, 0x000a, 0, nil, make([]byte, 64)); le.Uint32(a.p[4:]) != 10 {
		t.Errorf("%d records wanted", le.Uint32(a.p[4:]))
	}
}

func TestMACAddress(t *testing.T) {
	d := booted(t)
	port := []byte{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	read := func(n int, flags uint16) []byte {
		t.Helper()
		a := d.ok(0x0107, 0, nil, make([]byte, 16))
		if int(a.p[4]) != n || le.Uint16(a.p) != flags || len(a.buf) != 8*n {
			t.Fatalf("%d addresses, flags %#x, %d bytes", a.p[4], le.Uint16(a.p), len(a.buf))
		}
		return a.buf
	}
	if got, want := read(1, 0x10), append([]byte{0, 0}, port...); !bytes.Equal(got, want) {
		t.Errorf("LAN entry % x", got)
	}
	d.fails(rcEINVAL, 0x0108, 0, []byte{0, 0x40, 1, 2, 3, 4, 5, 6}, nil)
	d.ok(0x0108, 0, []byte{0, 0x40, 6, 2, 3, 4, 5, 6}, nil)
	if got, want := read(2, 0x90)[8:], []byte{0, 1, 6, 2, 3, 4, 5, 6}; !bytes.Equal(got, want) {
		t.Errorf("WoL entry % x", got)
	}
	d.reset(reg.PFR)
	read(1, 0x10)
	d.fails(rcEINVAL, 0x0107, 0, nil, make([]byte, 7))
}

func TestPortBasics(t *testing.T) {
	d := booted(t)
	a := d.ok(0x0200, 0, nil, make([]byte, 2048))
	if want := []byte{0, 0, 1, 0, 0, 0}; !bytes.Equal(a.buf, want) || le.Uint16(a.p[2:]) != 0 || le.Uint16(a.p[4:]) != 1 {
		t.Errorf("switch config % x, parameters % x", a.buf, a.p)
	}
	d.ok(0x0110, 0, []byte{2}, nil)
	d.ok(0x0203, 0, params(0, 0, 0, 4), nil)
	d.ok(0x0203, 0, params(0, 0, 0x8001, 4), nil)
	d.fails(rcEINVAL, 0x0203, 0, params(0, 0, 0x8002), nil)
	d.fails(rcEINVAL, 0x0203, 0, params(4), nil)
	if a := d.ok(0x020d, 0, nil, make([]byte, 100)); len(a.buf) != 100 || a.buf[0] != 0 {
		t.Errorf("VLAN mode % x", a.buf)
	}
	svm, dvm := make([]byte, 100), make([]byte, 100)
	svm[1], svm[66], dvm[66] = 4, 0x10, 0x1a
	d.fails(rcEINVAL, 0x020c, flagRD, nil, dvm)
	d.ok(0x020c, flagRD, nil, svm)
	if a := d.ok(0x020d, 0, nil, make([]byte, 100)); a.buf[1] != 4 {
		t.Errorf("priority tag %d", a.buf[1])
	}
	if a := d.ok(0x0303, 0, []byte{2}, nil); a.p[0] != 2 {
		t.Errorf("PFC mode %d", a.p[0])
	}
	d.fails(rcEINVAL, 0x0303, 0, []byte{3}, nil)
	if a := d.ok(0x0302, 0, nil, nil); a.p[0] != 2 {
		t.Errorf("PFC mode %d", a.p[0])
	}
	d.ok(0x0a08, flagRD, params(0, 60), make([]byte, 60))
	d.fails(rcEINVAL, 0x0a08, flagRD, params(0, 61), make([]byte, 60))
	d.fails(rcEINVAL, 0x0a08, flagRD, params(0, 1501), make([]byte, 1501))
}

func TestFirmwareLog(t *testing.T) {
	d := booted(t)
	query := func() ([]byte, answer) {
		t.Helper()
		a := d.ok(0xff32, 0, []byte{4}, make([]byte, 4096))
		if len(a.buf) != 128 || le.Uint16(a.p[6:]) != 32 {
			t.Fatalf("%d bytes for %d modules", len(a.buf), le.Uint16(a.p[6:]))
		}
		return a.buf, a
	}
	b, a := query()
	if a.p[0] != 0 || le.Uint16(a.p[4:]) != 10 {
		t.Errorf("parameters % x", a.p)
	}
	for i := range 32 {
		if le.Uint16(b[4*i:]) != uint16(i) || b[4*i+2] != 0 {
			t.Errorf("module % x", b[4*i:][:4])
		}
	}
	d.ok(0xff31, 0, []byte{1}, nil)
	d.ok(0xff30, flagRD, []byte{0x0a, 0, 0, 0, 20, 0, 1, 0}, []byte{8, 0, 3, 0})
	d.fails(rcEINVAL, 0xff30, flagRD, []byte{0x0a, 0, 0, 0, 20, 0, 2, 0}, []byte{8, 0, 3, 0})
	d.fails(rcEINVAL, 0xff30, flagRD, []byte{0x0a, 0, 0, 0, 20, 0, 1, 0}, []byte{32, 0, 3, 0})
	b, a = query()
	if a.p[0] != 6 || le.Uint16(a.p[4:]) != 20 || b[4*8+2] != 3 {
		t.Errorf("parameters % x, module 8 % x", a.p, b[32:36])
	}
	d.reset(reg.PFR)
	if _, a = query(); a.p[0] != 2 {
		t.Errorf("flags %#x after a reset of the function", a.p[0])
	}
}

func TestMailbox(t *testing.T) {
	d := booted(t)
	d.setUp(mbATQ, stepMBX, memBase+atqRing, 64)
	d.setUp(mbATQ+0x280, stepMBX, memBase+arqRing, 1023)
	d.regs.Write32(mbATQ+0x280+4*stepMBX, 1022)
	desc := d.mem.b[atqRing:][:descSize]
	clear(desc)
	le.PutUint16(desc[2:], 0x0802)
	d.regs.Write32(mbATQ+4*stepMBX, 1)
	if h := d.regs.Read32(mbATQ + 3*stepMBX); h != 1 {
		t.Fatalf("HEAD is %d", h)
	}
	if rc := errno(le.Uint16(desc[6:])); rc != rcENOENT {
		t.Errorf("%v", rc)
	}
}
