// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// unit is an interrupt unit behind its registers, recording messages.
type unit struct {
	*Interrupts
	*reg.Space
	sent  []int
	clock engine.ManualClock
}

func newUnit() *unit {
	u := &unit{}
	u.Interrupts = NewInterrupts(&u.clock, func(v int) { u.sent = append(u.sent, v) })
	u.Space = reg.NewSpace(RegisterSize, nil, u.Registers())
	return u
}

func (u *unit) Reset(d reg.Domain) { u.Interrupts.Reset(d); u.Space.Reset(d) }

const (
	dynCtl    = 0x160000
	oicr      = 0x16CA00
	oicrEna   = 0x16C900
	oicrCtl   = 0x16CA80
	fwCtl     = 0x16C800
	aeqCtl    = 0x16CB00
	ceqCtl    = 0x15C000
	rqCtl     = 0x150000
	itr0      = 0x154000
	causeEna  = 1 << 30
	enableVec = 0x1B // INTENA | CLEARPBA | no ITR, as ice and irdma write it
)

func TestVectorIsOneShotAndLosesNothing(t *testing.T) {
	u := newUnit()
	u.Write32(rqCtl+4*7, causeEna|3)
	step := func(what string, want ...int) {
		t.Helper()
		if !slices.Equal(u.sent, want) {
			t.Errorf("%s: messages %v, want %v", what, u.sent, want)
		}
		u.sent = nil
	}
	u.RxQueue(7)
	step("event while disabled")
	u.Write32(dynCtl+4*3, enableVec)
	step("enable with an event pending: CLEARPBA must not drop it", 3)
	u.RxQueue(7)
	step("the vector disabled itself in sending")
	u.RxQueue(7)
	u.Write32(dynCtl+4*3, 3<<3|dynIntenaMsk|dynWBOnITR)
	step("INTENA_MSK leaves INTENA alone")
	u.Write32(dynCtl+4*3, enableVec)
	step("two events are one message", 3)
	u.Write32(dynCtl+4*3, enableVec)
	step("nothing pending")
	if got := u.Read32(dynCtl + 4*3); got&1 != 1 {
		t.Errorf("GLINT_DYN_CTL reads %#x, want INTENA", got)
	}
	u.RxQueue(7)
	step("enabled", 3)
	u.Write32(rqCtl+4*7, 3)
	u.RxQueue(7)
	u.Write32(rqCtl+4*7, causeEna|3)
	u.Write32(dynCtl+4*3, enableVec)
	step("a queue cause without CAUSE_ENA is dropped")
	u.Write32(dynCtl+4*3, 3<<3|dynSWInt|1)
	step("software interrupt", 3)
}

func TestCausesWaitForTheirRoute(t *testing.T) {
	u := newUnit()
	for v := uint32(0); v < 4; v++ {
		u.Write32(dynCtl+4*v, enableVec)
	}
	u.FW()
	u.AEQ()
	u.CEQ(5)
	u.OICR(OICRHMCErr)
	if u.sent != nil {
		t.Fatalf("messages %v before any route", u.sent)
	}
	u.Write32(fwCtl, causeEna) // vector 0
	u.Write32(aeqCtl, causeEna|1)
	u.Write32(ceqCtl+4*5, causeEna|2)
	u.Write32(oicrCtl, causeEna|3)
	if want := []int{0, 1, 2}; !slices.Equal(u.sent, want) {
		t.Fatalf("messages %v, want %v: OICR is not enabled yet", u.sent, want)
	}
	u.Write32(oicrEna, OICRHMCErr)
	if want := []int{0, 1, 2, 3}; !slices.Equal(u.sent, want) {
		t.Fatalf("messages %v, want %v", u.sent, want)
	}
	if got := u.Read32(oicr); got != OICRHMCErr {
		t.Errorf("PFINT_OICR reads %#x", got)
	}
	if got := u.Read32(oicr); got != 0 {
		t.Errorf("PFINT_OICR reads %#x after being read", got)
	}
}

func TestInterruptSelfTestSeesSWINT(t *testing.T) {
	u := newUnit()
	u.Write32(oicrCtl, causeEna) // vector 0
	u.Write32(dynCtl, enableVec)
	u.Write32(dynCtl, 3<<25|dynIntenaMsk|dynSWInt|3<<3)
	if !slices.Equal(u.sent, []int{0}) || u.Read32(oicr) != oicrSWInt {
		t.Errorf("messages %v; SWINT must show without OICR_ENA", u.sent)
	}
}

func TestIntervalWritesShowInITR(t *testing.T) {
	u := newUnit()
	u.Write32(dynCtl+4*9, 1<<3|25<<5)
	if got := u.Read32(itr0 + 0x2000 + 4*9); got != 25 {
		t.Errorf("GLINT_ITR(1,9) = %d, want 25", got)
	}
	u.Write32(itr0+4*9, 0xffffffff)
	if got := u.Read32(itr0 + 4*9); got != 0xfff {
		t.Errorf("GLINT_ITR keeps %#x, want 12 bits", got)
	}
}

func TestResetSilences(t *testing.T) {
	u := newUnit()
	u.Write32(rqCtl, causeEna|1)
	u.RxQueue(0)
	u.Reset(reg.PFR)
	u.Write32(rqCtl, causeEna|1)
	u.Write32(dynCtl+4, enableVec)
	if u.sent != nil {
		t.Errorf("an event from before the reset was sent: %v", u.sent)
	}
}

func TestHostileVectors(t *testing.T) {
	u := newUnit()
	u.Write32(rqCtl, causeEna|0x7ff)
	u.Write32(dynCtl+4*0x7ff, enableVec)
	u.RxQueue(0)
	u.CEQ(1 << 20)
	u.CEQ(-1)
	if u.sent != nil {
		t.Errorf("messages %v for vectors beyond the table", u.sent)
	}
}

func TestConfigCapabilities(t *testing.T) {
	c := NewConfig(0x0123456789abcdef)
	d := make([]byte, ConfigSize)
	c.Read(0, d)
	le := binary.LittleEndian
	seen := map[byte]int{}
	for at := d[0x34]; at != 0; at = d[at+1] {
		if _, loop := seen[d[at]]; loop {
			t.Fatal("the capability list loops")
		}
		seen[d[at]] = int(at)
	}
	for id, name := range map[byte]string{0x01: "power management", 0x11: "MSI-X", 0x10: "PCI Express"} {
		if seen[id] == 0 {
			t.Errorf("no %s capability", name)
		}
	}
	if n := le.Uint16(d[seen[0x11]+2:])&0x7ff + 1; n != Vectors {
		t.Errorf("MSI-X table of %d entries, want %d", n, Vectors)
	}
	if dev := le.Uint32(d[seen[0x10]+4:]); dev&(1<<28) == 0 {
		t.Error("no FLR in Device Capabilities")
	}
	if le.Uint32(d[offBAR0:])&0xf != 0xc || le.Uint32(d[offBAR0+12:])&0xf != 0xc {
		t.Error("BAR0 and BAR3 must be 64-bit and prefetchable from the start")
	}
	var serial uint64
	for at := uint32(0x100); at != 0; {
		h := le.Uint32(d[at:])
		if h&0xffff == 3 {
			serial = le.Uint64(d[at+4:])
		}
		at = h >> 20
	}
	if serial != 0x0123456789abcdef {
		t.Errorf("serial number %#x", serial)
	}
}

func TestConfigWrites(t *testing.T) {
	c := NewConfig(1)
	flr := 0
	c.FLR = func() { flr++ }
	before := c.data
	all := make([]byte, ConfigSize)
	for i := range all {
		all[i] = 0xff
	}
	all[offDevCtl+1] = 0x7f
	c.Write(0, all)
	for i := range before {
		if got := c.data[i] ^ before[i]; got&^c.mask[i] != 0 {
			t.Errorf("read-only bits %#x of byte %#x changed", got&^c.mask[i], i)
		}
	}
	if !c.BusMaster() || flr != 0 {
		t.Errorf("bus master %v, %d resets", c.BusMaster(), flr)
	}
	c.Write(offDevCtl, []byte{0, 0x80})
	if flr != 1 || c.BusMaster() || c.data[offDevCtl+1]&0x80 != 0 {
		t.Errorf("FLR: called %d times, bus master %v", flr, c.BusMaster())
	}
}
