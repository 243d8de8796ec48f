// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"math/bits"
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
	if low := le.Uint64(media); bits.OnesCount64(low) != 1 || le.Uint64(media[8:]) != 0 || media[16]&8 == 0 || media[34] != 0x44 || media[35] != 0 {
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

	d.ok(0x0603, 0, params(1522), nil)
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

func TestTopologyAndOptions(t *testing.T) {
	d := booted(t)
	d.fails(rcENOENT, 0x06e0, 0, []byte{0, 0, 0x16}, nil)
	a := d.ok(0x06ea, 0, []byte{0, 1}, make([]byte, 128))
	if a.p[2]&15 != 1 || a.p[4] != 0x80 || a.p[5] != 0 || len(a.buf) != 8 || a.buf[0] != 1 || a.buf[1] != 7 {
		t.Errorf("port options % x, % x", a.p, a.buf)
	}
	d.fails(rcEINVAL, 0x06ea, 0, []byte{1, 1}, make([]byte, 128))
}
