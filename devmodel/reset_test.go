// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// resets is every way to reset a card, and how strong each is.
var resets = []struct {
	name string
	dom  reg.Domain
	do   func(c *card)
}{
	{"PFR", reg.PFR, func(c *card) { c.wr(pfgenCtrl, c.rd(pfgenCtrl)|1) }},
	{"FLR", reg.FLR, func(c *card) {
		if err := c.WriteRegion(configRegion, pcieDevCtl, []byte{0, 0x80}); err != nil {
			c.t.Fatal(err)
		}
	}},
	{"CORER", reg.CORER, func(c *card) { c.wr(rtrig, 1) }},
	{"GLOBR", reg.GLOBR, func(c *card) { c.wr(rtrig, 2) }},
	{"EMPR", reg.EMPR, func(c *card) { c.wr(rtrig, 4) }},
	{"CORER of another function", reg.CORER, func(c *card) { c.GlobalReset(reg.CORER) }},
	{"device reset", reg.POR, func(c *card) { c.Reset() }},
	{"new client", reg.POR, func(c *card) { c.Detach(); c.attach() }},
}

// witnesses are registers and the weakest reset that clears them, by what is
// known of hardware and not by the table.
var witnesses = map[string]reg.Domain{
	"QRX_CTRL(3)": reg.PFR, "PF_MBX_ATQLEN": reg.PFR, "PF_MBX_ARQLEN": reg.PFR, "PF_SB_ATQLEN": reg.PFR, "PF_SB_ARQLEN": reg.PFR,
	"PF_FW_ATQLEN": reg.PFR, "PFPE_CCQPHIGH": reg.PFR, "PFINT_OICR_ENA": reg.PFR, "GLINT_DYN_CTL(4)": reg.PFR,
	"QRX_CONTEXT(0,7)": reg.CORER, "QRX_TAIL(3)": reg.CORER, "QRXFLXP_CNTXT(9)": reg.CORER, "QTX_COMM_DBELL(5)": reg.CORER,
	"PFQF_FD_ENA": reg.CORER, "PFGEN_CTRL": reg.CORER,
	"PFPM_APM": reg.POR, "PFPM_WUFC": reg.POR,
}

// changed lists the registers that differ from their reset value.
func (c *card) changed() map[string]uint32 {
	m := map[string]uint32{}
	vals, err := c.Registers("")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, v := range vals {
		m[v.Name] = v.Value
	}
	return m
}

// dirtyAll writes some elements of every row, and returns the rows of those
// that changed.
func (c *card) dirtyAll() map[string]*reg.Row {
	owner := map[string]*reg.Row{}
	for _, r := range c.regs.Rows() {
		n, m := max(r.N, 1), max(r.M, 1)
		for i := range n * m {
			name := r.Name
			switch {
			case m > 1:
				name = fmt.Sprintf("%s(%d,%d)", r.Name, i/m, i%m)
			case n > 1:
				name = fmt.Sprintf("%s(%d)", r.Name, i)
			}
			owner[name] = &r
			if i > 10 && i < n*m-1 || r.Name == "GLGEN_RTRIG" {
				continue
			}
			off := r.Offset + uint32(i)*r.Stride
			if m > 1 {
				off = r.Offset + uint32(i/m)*r.Stride + uint32(i%m)*r.Stride2
			}
			v := uint32(0x5A5A5A5B)
			switch r.Name {
			case "PFGEN_CTRL":
				v = 2
			case "GLINT_DYN_CTL":
				v = 0x40000001 // an interrupt enabled
			}
			c.wr(uint64(off), v)
		}
	}
	return owner
}

// Each reset puts back exactly the registers of its own domain and of the
// weaker ones.
func TestResetDomains(t *testing.T) {
	for _, x := range resets {
		t.Run(x.name, func(t *testing.T) {
			clock := &engine.ManualClock{}
			c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
			owner := c.dirtyAll()
			before := c.changed()
			dirty := map[string]bool{}
			for name := range before {
				dirty[owner[name].Name] = true
			}
			for _, r := range c.regs.Rows() {
				if r.Access == reg.RW && r.Write == nil && r.Read == nil && !dirty[r.Name] {
					t.Errorf("%s cannot be made dirty", r.Name)
				}
			}
			x.do(c)
			clock.Advance(globalResetDelay)
			clock.Advance(globalResetTime)
			after := c.changed()
			for name, v := range before {
				row := owner[name]
				got, differs := after[name]
				switch {
				case name == "PFINT_OICR" || name == "GLGEN_RSTAT": // tell of the reset
				case row.Domain <= x.dom && differs:
					t.Errorf("%s, of domain %v, still reads %#x", name, row.Domain, got)
				case row.Domain > x.dom && got != v:
					t.Errorf("%s, of domain %v, reads %#x, had %#x", name, row.Domain, got, v)
				}
			}
			for name, v := range after {
				if _, had := before[name]; !had && name != "PFINT_OICR" && name != "GLGEN_RSTAT" {
					t.Errorf("%s = %#x came with the reset", name, v)
				}
			}
			for name, dom := range witnesses {
				if _, had := before[name]; !had {
					t.Errorf("%s was not dirty", name)
				}
				if _, has := after[name]; has == (dom <= x.dom) {
					t.Errorf("%s is cleared %t by %s", name, !has, x.name)
				}
			}
		})
	}
}

// A driver rebuilds only if it sees the GRST cause with a reset type, by the
// interrupt set-up that the reset takes away; then it polls for the end.
func TestGlobalReset(t *testing.T) {
	for trigger, kind := range map[uint32]uint32{1: 1, 2: 2, 4: 3, 7: 3} {
		clock := &engine.ManualClock{}
		c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
		c.dirty()
		c.wr(rtrig, trigger)
		if !slices.Equal(c.sent, []int{0}) {
			t.Errorf("trigger %d: messages %v", trigger, c.sent)
		}
		if got := c.rd(rstat); got != kind<<2|1 {
			t.Errorf("trigger %d: GLGEN_RSTAT = %#x, want type %d and requested", trigger, got, kind)
		}
		// The driver has a while to take leave, and everything works.
		clock.Advance(globalResetDelay - 1)
		c.wr(qrxCtrl, 0)
		c.wr(qrxCtrl, 1)
		if got, uld := c.rd(rstat)&3, c.rd(nvmULD); got != 1 || uld != 0x73B || c.rd(qrxCtrl) == 0 || c.rd(fwATQLen)>>31 == 0 {
			t.Errorf("trigger %d: DEVSTATE = %d, GLNVM_ULD = %#x before the reset, and queues may be gone", trigger, got, uld)
		}
		clock.Advance(1)
		if got := c.rd(nvmULD); got&0x73B == 0x73B {
			t.Errorf("trigger %d: GLNVM_ULD = %#x during the reset", trigger, got)
		}
		c.wr(qrxCtrl, 1)
		c.wr(dynCtl0, 0x1B)
		c.wr(fwATQLen, 1<<31|64)
		clock.Advance(globalResetTime - 1)
		if got := c.rd(rstat) & 3; got != 2 {
			t.Errorf("trigger %d: DEVSTATE = %d before its time", trigger, got)
		}
		clock.Advance(1)
		if got := c.rd(oicr); got != 1<<20 {
			t.Errorf("trigger %d: PFINT_OICR = %#x, want GRST", trigger, got)
		}
		for name, want := range map[uint64]uint32{rstat: kind << 2, rtrig: 0, nvmULD: 0x73B, qrxCtrl: 0, dynCtl0: 0, fwATQLen: 0} {
			if got := c.rd(name); got != want {
				t.Errorf("trigger %d: register %#x = %#x, want %#x", trigger, name, got, want)
			}
		}
		c.wr(qrxCtrl, 1)
		if c.rd(qrxCtrl) == 0 {
			t.Errorf("trigger %d: no writes taken after the reset", trigger)
		}
	}
}

// A driver that has shut its admin queue and knows of the reset is done with the
// card: nothing is waited for any more.
func TestGlobalResetOfAReadyDriver(t *testing.T) {
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
	c.dirty()
	c.GlobalReset(reg.CORER)
	clock.Advance(globalResetSoon)
	if got := c.rd(rstat) & 3; got != 1 {
		t.Errorf("DEVSTATE = %d with the admin queue open", got)
	}
	c.wr(fwATQLen, 0)
	clock.Advance(globalResetSoon)
	if got := c.rd(rstat) & 3; got != 1 {
		t.Errorf("DEVSTATE = %d with the cause unread", got)
	}
	if got := c.rd(oicr); got&(1<<20) == 0 {
		t.Errorf("PFINT_OICR = %#x, want GRST", got)
	}
	c.wr(dynCtl0, 0x1B)
	clock.Advance(globalResetSoon - 1)
	c.wr(fwATQLen, 0) // which does not begin the time anew
	if got := c.rd(rstat) & 3; got != 1 {
		t.Errorf("DEVSTATE = %d at once", got)
	}
	clock.Advance(1)
	if got := c.rd(rstat) & 3; got != 2 {
		t.Errorf("DEVSTATE = %d soon after", got)
	}
}

// A driver that asks for the reset after it has shut its admin queue
// (ice_main.c:ice_do_reset) gets the interrupt before the reset, also if the handler
// of another one has read the causes just before, however long it takes.
func TestGlobalResetIsAlwaysTold(t *testing.T) {
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
	c.dirty()
	c.wr(dynCtl0, 3<<3|1<<2|1) // SWINT_TRIG: any will do
	if !slices.Equal(c.sent, []int{0}) {
		t.Fatalf("messages %v", c.sent)
	}
	c.sent = nil
	c.rd(oicr)
	c.wr(fwATQLen, 0)
	c.wr(rtrig, 1)
	clock.Advance(globalResetDelay - 1)
	if len(c.sent) != 0 {
		t.Errorf("messages %v of a vector that is disabled", c.sent)
	}
	c.wr(dynCtl0, 0x1B)
	if got := c.rd(rstat); !slices.Equal(c.sent, []int{0}) || got != 1<<2|1 {
		t.Errorf("messages %v, GLGEN_RSTAT = %#x; want one before the reset", c.sent, got)
	}
}

// It gets it before the reset, too, if it has to wait for the interval after another
// one and the timer is as late as a busy machine makes it.
func TestGlobalResetIsToldByALateTimer(t *testing.T) {
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
	c.dirty()
	c.wr(0x154000, 62)         // GLINT_ITR(0,0), as ice_main.c:ice_req_irq_msix_misc
	c.wr(dynCtl0, 3<<3|1<<2|1) // SWINT_TRIG
	if !slices.Equal(c.sent, []int{0}) {
		t.Fatalf("messages %v", c.sent)
	}
	c.sent = nil
	c.rd(oicr)
	c.wr(dynCtl0, 0x1B)
	c.wr(rtrig, 1)
	if len(c.sent) != 0 {
		t.Errorf("messages %v within the interval", c.sent)
	}
	c.Device.mu.Lock()
	c.carryOut()
	c.Device.mu.Unlock()
	if !slices.Equal(c.sent, []int{0}) {
		t.Errorf("messages %v with the reset, want one", c.sent)
	}
}

func TestResetsDuringAGlobalReset(t *testing.T) {
	type state struct{ rstat, then uint32 } // at once, and 50 ms before the end of one that began anew
	for _, x := range []struct {
		name      string
		do        func(c *card)
		announced state // what they do in the time before the reset
		under     state // and while it is under way
	}{
		{"weaker", func(c *card) { c.GlobalReset(reg.CORER) }, state{2<<2 | 1, 2<<2 | 2}, state{2<<2 | 2, 2 << 2}},
		{"same", func(c *card) { c.wr(rtrig, 2) }, state{2<<2 | 1, 2<<2 | 2}, state{2<<2 | 2, 2 << 2}},
		{"stronger", func(c *card) { c.wr(rtrig, 4) }, state{3<<2 | 1, 3<<2 | 2}, state{3<<2 | 2, 3<<2 | 2}},
		{"PFR", func(c *card) { c.wr(pfgenCtrl, 1) }, state{2<<2 | 1, 2<<2 | 2}, state{2<<2 | 2, 2 << 2}},
		{"FLR", resets[1].do, state{2<<2 | 1, 2<<2 | 2}, state{2<<2 | 2, 2 << 2}},
		{"device reset", func(c *card) { c.Reset() }, state{}, state{}},
		{"new client", func(c *card) { c.Detach(); c.attach() }, state{}, state{}},
	} {
		for phase, want := range []state{x.announced, x.under} {
			clock := &engine.ManualClock{}
			c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
			c.dirty()
			c.wr(rtrig, 2)
			half := globalResetDelay / 2
			if phase == 1 {
				clock.Advance(globalResetDelay)
				half = globalResetTime / 2
			}
			clock.Advance(half)
			x.do(c)
			if got := c.rd(rstat); got != want.rstat {
				t.Errorf("%s, phase %d: GLGEN_RSTAT = %#x, want %#x", x.name, phase, got, want.rstat)
			}
			clock.Advance(half)
			if got := c.rd(rstat); got != want.then {
				t.Errorf("%s, phase %d: GLGEN_RSTAT = %#x later, want %#x", x.name, phase, got, want.then)
			}
			clock.Advance(globalResetTime)
			if got := c.rd(rstat) & 3; got != 0 {
				t.Errorf("%s, phase %d: DEVSTATE = %d at the end", x.name, phase, got)
			}
		}
	}
}

// A client finds the card as at power-on, whatever was done to it before.
func TestGlobalResetWithoutAClient(t *testing.T) {
	for phase, passed := range []time.Duration{0, globalResetSoon, globalResetSoon + globalResetTime} {
		clock := &engine.ManualClock{}
		c := newCardOn(t, engine.Config{Manual: true, Clock: clock})
		c.Detach()
		c.GlobalReset(reg.EMPR)
		clock.Advance(min(passed, globalResetSoon))
		clock.Advance(passed - min(passed, globalResetSoon))
		if got := c.rd(rstat); got == 0 {
			t.Errorf("phase %d: no reset", phase)
		}
		c.attach()
		if changed := c.changed(); len(changed) != 0 {
			t.Errorf("phase %d: the client finds %v", phase, changed)
		}
		c.wr(qrxCtrl, 1)
		clock.Advance(globalResetDelay)
		if c.rd(qrxCtrl) == 0 || c.rd(rstat) != 0 {
			t.Errorf("phase %d: the reset came after all", phase)
		}
	}
}

// A card may go while it is in reset.
func TestCloseDuringAGlobalReset(t *testing.T) {
	for range 20 {
		d := New(Config{})
		d.GlobalReset(reg.EMPR)
		d.Close()
	}
}

// busy keeps the data path inside a step until the function it returns is
// called.
func (c *card) busy() (end func()) {
	b := &blocker{in: make(chan struct{}), out: make(chan struct{})}
	b.task.Init(c.engine, b, 0)
	b.task.Schedule()
	<-b.in
	return func() { close(b.out) }
}

type blocker struct {
	task    engine.Task
	in, out chan struct{}
}

func (b *blocker) Step(*engine.Shard) bool {
	close(b.in)
	<-b.out
	return false
}

// until waits for a condition that other goroutines bring about. Polling: they
// tell nobody.
func (c *card) until(what string, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("never: %s", what)
		}
	}
}

// PFSWR reads 1 while the data path is not done with what the reset ended, and
// nobody waits for that.
func TestFunctionResetWaitsForTheDataPath(t *testing.T) {
	c := newCard(t)
	c.wr(pfgenCtrl, 1)
	if got := c.rd(pfgenCtrl); got != 0 {
		t.Errorf("PFGEN_CTRL = %#x after the reset of a quiet function", got)
	}
	end := c.busy()
	c.wr(qrxCtrl, 1)
	for range 2 { // the second one while the first is under way
		c.wr(pfgenCtrl, 1)
		if got := c.rd(pfgenCtrl); got != 1 {
			t.Errorf("PFGEN_CTRL = %#x during a step", got)
		}
	}
	if got := c.rd(qrxCtrl); got != 0 {
		t.Error("a queue survived")
	}
	end()
	c.until("PFSWR is 0", func() bool { return c.rd(pfgenCtrl) == 0 })
}

// What a step finds is the driver's fault again as soon as the steps are over
// that were under way at the end of what they used.
func TestOvertake(t *testing.T) {
	c := newCard(t)
	overtake := func(end func()) (after bool) {
		c.Device.mu.Lock()
		defer c.Device.mu.Unlock()
		c.overtake(func() {
			if !c.system.stragglers.Load() {
				t.Error("something ends with the steps not overtaken")
			}
			end()
		})
		return c.system.stragglers.Load()
	}
	if overtake(func() {}) || c.system.leaving.Parked() {
		t.Error("a quiet data path has stragglers")
	}
	var end func()
	if !overtake(func() { end = c.busy() }) {
		t.Error("no stragglers during a step")
	}
	end()
	c.until("no stragglers", func() bool { return !c.system.stragglers.Load() })
}

// A global reset ends when the data path is done, too.
func TestGlobalResetWaitsForTheDataPath(t *testing.T) {
	clock := &engine.ManualClock{}
	c := newCardOn(t, engine.Config{Clock: clock})
	end := c.busy()
	c.wr(rtrig, 1)
	clock.Advance(globalResetDelay)
	clock.Advance(globalResetTime)
	if got := c.rd(rstat); got != 1<<2|2 {
		t.Errorf("GLGEN_RSTAT = %#x during a step", got)
	}
	end()
	c.until("DEVSTATE is 0", func() bool { return c.rd(rstat) == 1<<2 })
}

// What is to be waited for is told once, by whoever asks after the call.
func TestSettle(t *testing.T) {
	master := func(on byte) func(*card) {
		return func(c *card) {
			if err := c.WriteRegion(configRegion, command, []byte{on, 0}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		name string
		do   func(c *card)
		wait bool
	}{
		{"device reset", func(c *card) { c.Reset() }, true},
		{"FLR", resets[1].do, true},
		{"bus mastering off", master(0), true},
		{"bus mastering on", master(4), false},
		{"unmap of nothing", func(c *card) { c.UnmapAllDMA() }, false},
	} {
		c := newCard(t)
		master(4)(c)
		if c.Settle() != nil {
			t.Errorf("%s: something to wait for at first", x.name)
		}
		end := c.busy()
		x.do(c)
		wait := c.Settle()
		if (wait != nil) != x.wait {
			t.Errorf("%s: to be waited for %t", x.name, wait != nil)
		}
		if c.Settle() != nil {
			t.Errorf("%s: told twice", x.name)
		}
		done := make(chan struct{})
		if wait != nil {
			go func() { wait(); close(done) }()
			select {
			case <-done:
				t.Errorf("%s: settled during the step", x.name)
			default:
			}
			end()
			<-done
			continue
		}
		end()
	}
}

// Detach waits itself.
func TestDetachWaits(t *testing.T) {
	c := newCard(t)
	end := c.busy()
	done := make(chan struct{})
	go func() { c.Detach(); close(done) }()
	c.until("a new life", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.events, any(Reset{reg.POR}))
	})
	select {
	case <-done:
		t.Error("detached during the step")
	default:
	}
	end()
	<-done
}
