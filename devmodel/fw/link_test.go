// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

type linkView struct {
	lse       bool
	info, an  byte
	speed     uint16
	maxFrame  uint16
	low, high uint64
}

func viewLink(b []byte) linkView {
	return linkView{
		info: b[2], an: b[3], maxFrame: le.Uint16(b[6:]), speed: le.Uint16(b[10:]),
		low: le.Uint64(b[16:]), high: le.Uint64(b[24:]),
	}
}

// link is ice_aq_get_link_info.
func (d *testDriver) link(lse uint16) linkView {
	d.Helper()
	a := d.ok(0x0607, 0, params(0, lse), make([]byte, 32))
	if len(a.buf) != 32 {
		d.Fatalf("link status of %d bytes", len(a.buf))
	}
	v := viewLink(a.buf)
	v.lse = a.p[2]&lseIsEnabled != 0
	return v
}

func TestLinkIsUp(t *testing.T) {
	d := booted(t)
	want := linkView{info: 0xe1, an: 0x81, speed: 0x400, maxFrame: 0x2600, low: 1 << 51}
	if got := d.link(lseDisable); got != want {
		t.Errorf("link %+v, want %+v", got, want)
	}
	want.lse = true
	if got := d.link(lseEnable); got != want {
		t.Errorf("link %+v, want %+v", got, want)
	}
	if got := d.link(0); !got.lse {
		t.Error("a request that says nothing of events turned them off")
	}
	d.fails(rcEINVAL, 0x0607, 0, params(1, lseEnable), make([]byte, 32))
	d.fails(rcEINVAL, 0x0607, 0, params(0, lseEnable), make([]byte, 31))
}

func TestLinkEvents(t *testing.T) {
	d := booted(t)
	d.f.SetLink(false)
	if _, _, ok := d.event(); ok {
		t.Fatal("an event that nobody asked for")
	}
	if v := d.link(lseEnable); v.info != 0x40 || v.speed != 0 || v.low != 0 {
		t.Fatalf("link %+v while down", v)
	}
	d.f.SetLink(true)
	if d.interrupts != 1 {
		t.Errorf("%d interrupts", d.interrupts)
	}
	op, msg, ok := d.event()
	if !ok || op != 0x0607 || len(msg) != 32 || viewLink(msg).info != 0xe1 || viewLink(msg).low != 1<<51 {
		t.Fatalf("event %#x % x %v", op, msg, ok)
	}
	// One event for each request with events enabled.
	d.f.SetLink(false)
	if _, _, ok := d.event(); ok {
		t.Fatal("an event before the driver looked at the link")
	}
	d.link(lseEnable)
	d.f.SetLink(false) // no change
	if _, _, ok := d.event(); ok {
		t.Fatal("an event without a change")
	}
	// Masked: bit 1 of the event mask.
	d.ok(0x0613, 0, params(0, 0, 0, 0, 0x0002), nil)
	d.f.SetLink(true)
	if _, _, ok := d.event(); ok {
		t.Fatal("an event that is masked")
	}
	d.ok(0x0613, 0, params(0, 0, 0, 0, 0xfffd), nil)
	d.f.SetLink(false)
	if _, msg, ok := d.event(); !ok || viewLink(msg).info&1 != 0 {
		t.Fatal("no event of the link going down")
	}
	if n := len(seen[LinkChange](d)); n != 5 {
		t.Errorf("%d link changes", n)
	}
	if n := len(seen[Notice](d)); n != 2 {
		t.Errorf("%d notices", n)
	}
}

// The ring takes more events than it has slots, as the driver frees them.
func TestEventRingWraps(t *testing.T) {
	d := booted(t)
	for i := range 3 * entries {
		d.link(lseEnable)
		d.f.SetLink(i%2 == 1)
		if _, msg, ok := d.event(); !ok || (viewLink(msg).info&1 != 0) != (i%2 == 1) {
			t.Fatalf("event %d", i)
		}
	}
}

// TAIL equal to HEAD is a ring without free slots; what comes then waits, up
// to a bound.
func TestEventsWaitForSlots(t *testing.T) {
	d := booted(t)
	send := func() { d.f.notify(notice{op: 0x1001, data: []byte{1, 2, 3, 4}}) }
	for range entries - 1 {
		send()
	}
	if h := d.regs.Read32(fwARQ + 3*stepFW); h != entries-1 {
		t.Fatalf("HEAD is %d", h)
	}
	was := d.interrupts
	for range maxPending {
		send()
	}
	if d.interrupts != was || d.regs.Read32(fwARQ+2*stepFW) != entries|lenENABLE {
		t.Fatal("an event went into a full ring")
	}
	send()
	if v := d.regs.Read32(fwARQ + 2*stepFW); v&lenOVFL == 0 {
		t.Errorf("ARQLEN is %#x after an overflow", v)
	}
	if n := len(seen[NoticeLost](d)); n != 1 {
		t.Errorf("%d lost", n)
	}
	n := 0
	for {
		if _, _, ok := d.event(); !ok {
			break
		}
		n++
	}
	if n != entries-1+maxPending {
		t.Errorf("%d events", n)
	}
}

func TestEventNeedsABuffer(t *testing.T) {
	for what, edit := range map[string]func(desc []byte){
		"no buffer":       func(b []byte) { le.PutUint16(b, 0) },
		"short buffer":    func(b []byte) { le.PutUint16(b[4:], 31) },
		"unmapped buffer": func(b []byte) { le.PutUint32(b[24:], 0xdead) },
	} {
		t.Run(what, func(t *testing.T) {
			d := booted(t)
			edit(d.mem.b[arqRing:])
			d.link(lseEnable)
			d.f.SetLink(false)
			if h := d.regs.Read32(fwARQ + 3*stepFW); h != 0 {
				t.Errorf("HEAD is %d", h)
			}
			if v := d.regs.Read32(fwARQ + 2*stepFW); v&lenCRIT == 0 {
				t.Errorf("ARQLEN is %#x", v)
			}
		})
	}
}

func phyReport(d *testDriver, mode uint16) []byte {
	d.Helper()
	a := d.ok(0x0600, 0, params(0, mode), make([]byte, 560))
	if len(a.buf) != 560 {
		d.Fatalf("PHY capabilities of %d bytes", len(a.buf))
	}
	return a.buf
}

func TestPhy(t *testing.T) {
	d := booted(t)
	media := phyReport(d, 2)
	for _, mode := range []uint16{0, 4, 8} {
		// Equal reports: the driver sees nothing to configure.
		if b := phyReport(d, mode); string(b) != string(media) {
			t.Errorf("mode %d differs", mode)
		}
	}
	if low := le.Uint64(media); bits.OnesCount64(low) != 1 || le.Uint64(media[8:]) != 0 || media[16] != 8 || media[17] != 4 || media[34] != 0x44 || media[35] != 0 {
		t.Errorf("PHY capabilities % x", media[:48])
	}
	d.fails(rcEINVAL, 0x0600, 0, params(0, 6), make([]byte, 560))

	// The link goes with the PHY's enable bit, and the driver hears of it.
	d.link(lseEnable)
	cfg := make([]byte, 24)
	copy(cfg, media[:22])
	cfg[16] = 0x20
	cfg[22] = 0x44
	d.ok(0x0601, flagRD, []byte{0}, cfg)
	if _, msg, ok := d.event(); !ok || viewLink(msg).info != 0xe0 {
		t.Errorf("event of the PHY's end: %v % x", ok, msg)
	}
	if d.f.LinkUp() {
		t.Error("the link is up without its PHY")
	}
	if b := phyReport(d, 4); b[16] != 0 {
		t.Errorf("active configuration has caps %#x", b[16])
	}
	if b := phyReport(d, 2); string(b) != string(media) {
		t.Error("the capabilities changed with the configuration")
	}
	d.ok(0x0605, 0, []byte{0, 0, 6}, nil) // restart with link enable
	if !d.f.LinkUp() {
		t.Error("the link is down after a restart")
	}
	le.PutUint64(cfg, 1<<50)
	d.fails(rcEINVAL, 0x0601, flagRD, []byte{0}, cfg)

	d.ok(0x0603, 0, params(1522, 0, 0xffff, 0x7fff), nil)
	if v := d.link(0); v.maxFrame != 1522 {
		t.Errorf("largest frame %d", v.maxFrame)
	}
	d.fails(rcEINVAL, 0x0603, 0, params(9729), nil)

	// A driver that goes leaves the port as it was; its events end.
	d.ok(0x0605, 0, []byte{0, 0, 2}, nil)
	d.reset(reg.PFR)
	if v := d.link(0); v.lse || v.info&1 != 0 || v.maxFrame != 1522 {
		t.Errorf("link %+v after PFR", v)
	}
	d.reset(reg.GLOBR)
	if v := d.link(0); v.info != 0xe1 || v.maxFrame != 0x2600 {
		t.Errorf("link %+v after GLOBR", v)
	}
}

// What of the link the driver's configuration decides, as `ethtool` shows it.
func TestLinkFollowsPhyConfig(t *testing.T) {
	for _, c := range []struct {
		name    string
		edit    func(cfg []byte)
		an, fec byte
		rc      errno
	}{
		{name: "as the media has it", edit: func([]byte) {}, an: 0x81, fec: 2},
		{name: "FEC off", edit: func(c []byte) { c[22] = 0 }, an: 0x81},
		{name: "RS-FEC", edit: func(c []byte) { c[22] = 0x54 }, an: 0x81, fec: 2},
		{name: "FEC auto", edit: func(c []byte) { c[16] |= 0x80; c[22] = 0x40 }, an: 0x81, fec: 2},
		{name: "ability without request", edit: func(c []byte) { c[22] = 0x40 }, an: 0x81},
		{name: "BASE-R FEC", edit: func(c []byte) { c[22] = 0x0a }, an: 0x81, fec: 2, rc: rcEINVAL},
		{name: "no negotiation", edit: func(c []byte) { c[17] = 0 }, an: 0x80, fec: 2},
		// Nobody at the other end sends or heeds pause frames.
		{name: "pause", edit: func(c []byte) { c[16] |= 3 }, an: 0x81, fec: 2},
	} {
		d := booted(t)
		cfg := make([]byte, 24)
		copy(cfg, phyReport(d, 4)[:22])
		cfg[16] |= 0x20
		cfg[22] = 0x44
		c.edit(cfg)
		d.link(lseEnable)
		d.fails(c.rc, 0x0601, flagRD, []byte{0}, cfg)
		_, msg, told := d.event()
		if changed := c.an != 0x81 || c.fec != 2; told != changed || told && (msg[3] != c.an || msg[8] != c.fec) {
			t.Errorf("%s: event %v % x", c.name, told, msg)
		}
		a := d.ok(0x0607, 0, params(0), make([]byte, 32))
		if a.buf[3] != c.an || a.buf[8] != c.fec || a.buf[2] != 0xe1 {
			t.Errorf("%s: link %#x, AN %#x, configuration %#x", c.name, a.buf[2], a.buf[3], a.buf[8])
		}
		if got := phyReport(d, 4); c.rc == rcOK && (got[16] != cfg[16]&^0x20 || got[17] != cfg[17] || got[34] != cfg[22]) {
			t.Errorf("%s: configuration reads % x", c.name, got[16:36])
		}
	}
}

func TestPauseTimers(t *testing.T) {
	d := booted(t)
	const quanta, refresh = 0x1e36e0, 0x1e3800
	d.ok(0x0603, 0, []byte{0, 0x26, 0, 0, 0x34, 0x12, 0x78, 0x56}, nil)
	d.ok(0x0603, 0, []byte{0, 0x26, 0, 1 << 3, 1, 0, 2, 0}, nil)
	for i, want := range map[uint32][2]uint32{0: {0xffff, 0x7fff}, 3: {1, 2}, 8: {0x1234, 0x5678}} {
		if q, r := d.regs.Read32(quanta+32*i), d.regs.Read32(refresh+32*i); q != want[0] || r != want[1] {
			t.Errorf("timers %d: %#x, %#x", i, q, r)
		}
	}
}

func TestMACLoopback(t *testing.T) {
	d := booted(t)
	on := func() bool { return d.f.steering.Loopback }
	d.ok(0x0620, 0, []byte{1}, nil)
	if !on() {
		t.Error("no loopback")
	}
	d.ok(0x0620, 0, nil, nil)
	if on() {
		t.Error("loopback stays")
	}
	for name, end := range map[string]func(){
		"driver's end": func() { d.ok(0x0003, 0, []byte{1}, nil); d.bringUp() },
		"GLOBR":        func() { d.reset(reg.GLOBR) },
	} {
		d.ok(0x0620, 0, []byte{1}, nil)
		d.reset(reg.PFR)
		if !on() {
			t.Errorf("%s: the port's loopback ended with PFR", name)
		}
		if end(); on() {
			t.Errorf("loopback outlives %s", name)
		}
	}
}

func TestPortLED(t *testing.T) {
	d := booted(t)
	for _, mode := range []byte{1, 1, 0, 1} {
		d.ok(0x06e9, 0, []byte{0, 0, mode}, nil)
	}
	d.fails(rcEINVAL, 0x06e9, 0, []byte{1, 1, 0}, nil)
	if got := seen[PortLED](d); !slices.Equal(got, []PortLED{{true}, {false}, {true}}) {
		t.Errorf("%v", got)
	}
}

// sff is ice_aq_sff_eeprom.
func sff(bus, at, page uint16) []byte { return params(0, bus, at, page<<8) }

// What `ethtool -m` reads, in blocks of 8 bytes, and what it concludes.
func TestModuleEEPROM(t *testing.T) {
	d := booted(t)
	var b []byte
	for at := uint16(0); at < 256; at += 8 {
		b = append(b, d.ok(0x06ee, flagRD, sff(0x50|1<<11, at, 0), make([]byte, 8)).buf...)
	}
	if len(b) != 256 || b[0] != 0x11 || b[1] <= 2 || b[2]&4 == 0 {
		t.Fatalf("module % x", b[:3])
	}
	if b[128] != b[0] || b[192] != 0x0b || b[146] != 1 || b[147]>>4 != 0xa || string(b[148:164]) != "vrnic           " ||
		string(b[196:212]) != "021122334455    " {
		t.Errorf("upper page % x", b[128:])
	}
	for _, r := range [][2]int{{128, 191}, {192, 223}} {
		var sum byte
		for _, v := range b[r[0]:r[1]] {
			sum += v
		}
		if sum != b[r[1]] {
			t.Errorf("checksum of %d to %d is %#x, byte %d is %#x", r[0], r[1]-1, sum, r[1], b[r[1]])
		}
	}
	if a := d.ok(0x06ee, flagRD, sff(0, 0, 0), make([]byte, 1)); a.buf[0] != 0x11 {
		t.Errorf("type %#x by the default address", a.buf[0])
	}
	for _, c := range []struct {
		name string
		rc   errno
		p    []byte
		n    int
	}{
		{"upper page 3", rcEINVAL, sff(0x50|1<<11, 128, 3), 8},
		{"past the end", rcEINVAL, sff(0x50, 249, 0), 8},
		{"17 bytes", rcEINVAL, sff(0x50, 0, 0), 17},
		{"no such address", rcEINVAL, sff(0x50, 0xFFFF, 0), 1},
		{"no such device", rcENOENT, sff(0x51, 0, 0), 1},
		{"10-bit bus address", rcENOENT, sff(0x50|1<<10, 0, 0), 1},
		{"write", rcEPERM, sff(0x50|1<<15, 127, 0), 1},
		{"another port", rcEINVAL, []byte{1, 1, 0x50, 0, 0, 0, 0, 0}, 1},
	} {
		if a := d.send(0x06ee, flagRD, c.p, make([]byte, c.n)); a.rc != c.rc {
			t.Errorf("%s: %v, want %v", c.name, a.rc, c.rc)
		}
	}
}

func TestTopologyAndOptions(t *testing.T) {
	d := booted(t)
	d.fails(rcENOENT, 0x06e0, 0, []byte{0, 0, 0x16}, nil)
	a := d.ok(0x06ea, 0, []byte{0, 1}, make([]byte, 128))
	if a.p[2]&15 != 1 || a.p[4] != 0x80 || a.p[5] != 0 || len(a.buf) != 8 || a.buf[0] != 1 || a.buf[1] != 7 {
		t.Errorf("port options % x, % x", a.p, a.buf)
	}
	d.fails(rcEINVAL, 0x06ea, 0, []byte{1, 1}, make([]byte, 128))
}
