// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/engine"
	eventq "github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/grace"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/pci"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// system is the state of what concerns the function as a whole.
type system struct {
	pfgenCtrl, rtrig, rstat reg.Cells

	after *grace.After // what ends a reset
	pfr   bool         // PFSWR reads 1: the data path is not done with what it ended

	state   devState // of the card
	dom     reg.Domain
	release engine.Timer  // ends the state
	due     time.Duration // when release is meant to fire

	orphans atomic.Bool

	// stragglers: steps of the data path that began before a reset, or before
	// the control QP ended with all it had made, may still run, and find that
	// what they use is gone. leaving tells when they are over.
	stragglers atomic.Bool
	leaving    *grace.After
}

// devState is GLGEN_RSTAT.DEVSTATE. What 1 and 2 mean is inferred, from i40e's
// data sheet and from drivers: they take irdma apart, command by command, after
// the interrupt (ice_main.c:ice_prepare_for_reset), and with queue pairs alive
// that ends in a stall and a kernel warning if the card is dead by then.
type devState uint8

const (
	devActive    devState = 0
	devRequested devState = 1 // a reset was announced: everything works still
	devInReset   devState = 2 // everything is gone
)

// A reset of the whole card comes GLGEN_RSTCTL.GRSTDEL after it was announced,
// and soon once the driver has shut its admin queue, which is the last it does
// with the card before (ice_main.c:ice_prepare_for_reset), and has read the cause
// of the interrupt, without which it never rebuilds; then it takes a while. All by
// the engine's clock. The driver waits one second longer than GRSTDEL
// (ice_common.c:ice_check_reset), whatever that is: it has the largest value, as a
// guest may be slow. That a card does not wait in vain is inferred.
const (
	grstDel          = 63
	globalResetDelay = grstDel * 100 * time.Millisecond
	globalResetSoon  = 20 * time.Millisecond
	globalResetTime  = 100 * time.Millisecond
)

// Bits of GLGEN_RSTAT, GLGEN_RTRIG and PFGEN_CTRL (ice_hw_autogen.h), and what
// GLNVM_ULD shows when all modules have loaded, PE_DONE (bit 10) included
// (ice_common.c:ice_check_reset).
const (
	rstatState     = 3
	rstatTypeShift = 2
	pfswr          = 1 << 0
	uldDone        = 0x0000073B

	pfgenCtrlOffset = 0x00091000
	rtrigOffset     = 0x000B8190
)

// Reset is the event of a reset being carried out.
type Reset struct{ Domain reg.Domain }

func (r Reset) String() string { return fmt.Sprintf("%v reset", r.Domain) }

// systemRegisters returns the rows of resets, identity and power.
func (d *Device) systemRegisters() []reg.Row {
	const hdr = "ice_hw_autogen.h"
	constant := func(name string, off, value uint32, source string) reg.Row {
		return reg.Row{Name: name, Offset: off, Reset: value, Access: reg.RO, Domain: reg.POR, Source: hdr + "; " + source}
	}
	return []reg.Row{
		{Name: "PFGEN_CTRL", Offset: pfgenCtrlOffset, Mask: ^uint32(pfswr), Domain: reg.CORER, Cells: &d.system.pfgenCtrl, Write: func(_ int, v uint32) {
			if v&pfswr != 0 {
				d.functionReset()
			}
		}, Read: func(int) uint32 {
			v := d.system.pfgenCtrl.Get(0)
			if d.system.pfr {
				v |= pfswr
			}
			return v
		}, Fields: []reg.Field{{Name: "PFSWR", Hi: 0, Lo: 0}}, Source: hdr + "; ice_common.c:ice_pf_reset"},
		{Name: "GLGEN_RTRIG", Offset: rtrigOffset, Domain: reg.CORER, Cells: &d.system.rtrig, Write: func(_ int, v uint32) {
			d.system.rtrig.Set(0, 0) // self-clearing (ice_main.c:ice_pci_err_slot_reset)
			d.triggerReset(v)
		},
			Fields: []reg.Field{{Name: "CORER", Hi: 0, Lo: 0}, {Name: "GLOBR", Hi: 1, Lo: 1}, {Name: "EMPFWR", Hi: 2, Lo: 2}},
			Source: hdr + "; ice_common.c:ice_reset"},
		{Name: "GLGEN_RSTAT", Offset: 0x000B8188, Access: reg.RO, Domain: reg.POR, Cells: &d.system.rstat,
			Fields: []reg.Field{{Name: "DEVSTATE", Hi: 1, Lo: 0}, {Name: "RESET_TYPE", Hi: 3, Lo: 2}}, Source: hdr + "; ice_common.c:ice_check_reset"},
		constant("GLGEN_RSTCTL", 0x000B8180, grstDel, "ice_common.c:ice_check_reset"),
		constant("GLGEN_STAT", 0x000B612C, 0, "ice_osdep.h:ice_flush"),
		constant("GLGEN_CLKSTAT_SRC", 0x000B826C, 0x20, "ice_sched.c:ice_sched_get_psm_clk_freq"),
		{Name: "GLGEN_VFLRSTAT", Offset: 0x00093A04, N: 8, Stride: 4, Access: reg.W1C, Domain: reg.CORER, Source: hdr + "; ice_sriov.c:ice_process_vflr_event"},
		{Name: "GLNVM_ULD", Offset: 0x000B6008, Reset: uldDone, Access: reg.RO, Domain: reg.POR, Source: hdr + "; ice_common.c:ice_check_reset",
			Read: func(int) uint32 {
				if d.system.state == devInReset {
					return 0
				}
				return uldDone
			}},
		constant("GL_PWR_MODE_CTL", 0x000B820C, 1<<30, "ice_common.c:ice_get_itr_intrl_gran"),
		constant("PF_FUNC_RID", 0x0009E880, 0, "ice_common.c:ice_init_hw"),
		constant("GLPCI_CNF2", 0x000BE004, 0, "ice_main.c:ice_verify_cacheline_size"),
		// PE_DB_SIZE = 2: the doorbell page lies below 8 MiB.
		constant("GLPCI_LBARCTRL", 0x0009DE74, 2<<4, "icrdma_hw.h; ctrl.c:irdma_sc_dev_init"),
		constant("PFGEN_STATE", 0x00088000, 0, "ice_ethtool.c:ice_regs_dump_list"),
		// Written by a stray tail pointer of 6.1's and 6.12's ethtool -G.
		constant("PRTGEN_STATUS", 0x000B8100, 0, "ice_ethtool.c:ice_regs_dump_list"),
		{Name: "PFPM_WUS", Offset: 0x0009DB80, Access: reg.W1C, Domain: reg.POR, Source: hdr + "; ice_main.c:ice_set_wake"},
		{Name: "PFPM_APM", Offset: 0x000B8080, Domain: reg.POR, Source: hdr + "; ice_main.c:ice_remove"},
		{Name: "PFPM_WUFC", Offset: 0x0009DC00, Domain: reg.POR, Source: hdr + "; ice_main.c:ice_remove"},
	}
}

// reset puts the function into the state after a reset of strength dom. Units
// first, so that nothing of theirs acts on cleared registers. It waits for
// nothing: what the data path has begun is over after grace, and touches nothing
// made since.
func (d *Device) reset(dom reg.Domain) {
	if dom >= reg.POR {
		d.system.end()
		d.system.orphans.Store(false)
	}
	d.unsettled = true
	d.overtake(func() {
		d.rdma.Reset(dom)
		d.lan.Reset(dom)
		d.fw.Reset(dom)
		d.irqs.Reset(dom)
		d.regs.Reset(dom)
	})
	d.emit(Reset{dom})
}

// powerOn ends what a global reset has done to the card while it had no client.
func (d *Device) powerOn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.system.rstat.Get(0) != 0 {
		d.reset(reg.POR)
		d.unsettled = false // nothing was there to be ended
	}
}

// overtake calls end, which ends what the data path may be using: until its steps
// are over, what they find is nobody's fault.
func (d *Device) overtake(end func()) {
	s := &d.system
	s.stragglers.Store(true)
	end()
	if s.leaving.Quiet() {
		s.leaving.Drop()
		s.stragglers.Store(false)
		return
	}
	s.leaving.Park(func() { s.stragglers.Store(false) })
}

// functionReset is the reset that the driver asks for in PFSWR, which reads 1
// until it is over.
func (d *Device) functionReset() {
	d.reset(reg.PFR)
	if s := &d.system; !s.after.Quiet() {
		s.pfr = true
		s.after.Park(func() { s.pfr = false })
	}
}

// triggerReset carries out what is asked for in GLGEN_RTRIG; the strongest wins.
func (d *Device) triggerReset(trigger uint32) {
	switch {
	case trigger&4 != 0:
		d.globalReset(reg.EMPR)
	case trigger&2 != 0:
		d.globalReset(reg.GLOBR)
	case trigger&1 != 0:
		d.globalReset(reg.CORER)
	}
}

// globalReset announces a reset of the whole card. The driver rebuilds only if
// it gets the GRST cause with a reset type. Of two, the stronger one is carried
// out, at the time of the first; one that comes too late for that begins at once.
func (d *Device) globalReset(dom reg.Domain) {
	s := &d.system
	if s.state != devActive && dom <= s.dom {
		return
	}
	s.dom = dom
	switch s.state {
	case devActive:
		d.enter(devRequested, globalResetDelay)
	case devRequested:
		s.show()
	case devInReset:
		d.carryOut()
	}
	d.irqs.OICR(pci.OICRGlobalReset)
	d.hasten()
}

// enter begins a state that ends after a while.
func (d *Device) enter(state devState, lasts time.Duration) {
	s := &d.system
	s.state = state
	s.show()
	s.due = d.engine.Clock().Now() + lasts
	s.release.Reset(lasts)
}

// hasten is to be called when the driver may have become ready for a reset that
// was announced.
func (d *Device) hasten() {
	s := &d.system
	if s.state == devRequested && !d.fw.Enabled() && !d.irqs.Unseen(pci.OICRGlobalReset) && d.engine.Clock().Now()+globalResetSoon < s.due {
		d.enter(devRequested, globalResetSoon)
	}
}

// carryOut is the reset itself. The cause stays readable, for a driver that has
// not come to it yet.
func (d *Device) carryOut() {
	s := &d.system
	s.pfr = false
	s.after.Drop()
	s.orphans.Store(true)
	d.reset(s.dom)
	d.enter(devInReset, globalResetTime)
	d.irqs.OICR(pci.OICRGlobalReset)
}

// released is the time for the next state: a reset is carried out, or over, as
// soon as the data path is done, too.
func (d *Device) released() {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.system
	switch {
	case s.state == devActive || d.engine.Clock().Now() < s.due:
		// ended, or begun anew, meanwhile
	case s.state == devRequested:
		d.carryOut()
	case s.after.Quiet():
		s.end()
	default:
		s.after.Park(s.end)
	}
}

// show has GLGEN_RSTAT say what goes on.
func (s *system) show() {
	s.rstat.Set(0, uint32(s.dom-reg.CORER+1)<<rstatTypeShift|uint32(s.state))
}

// end ends a reset that is under way.
func (s *system) end() {
	s.after.Drop()
	s.release.Stop()
	s.state, s.pfr = devActive, false
	s.rstat.Set(0, s.rstat.Get(0)&^rstatState)
}

// frozen tells whether a write of the register at offset is lost: a card in
// reset takes none but that of a stronger reset.
func (s *system) frozen(offset uint64) bool { return s.state == devInReset && offset != rtrigOffset }

// Orphan is the event of something that a reset has ended: of a doorbell or the
// like whose driver may not know yet, after a global one; of a step of the data
// path that was under way, after any, or that bus mastering ended under. It breaks
// no rule.
type Orphan struct{ Event any }

func (o Orphan) String() string { return fmt.Sprintf("overtaken by a reset: %v", o.Event) }

// judge keeps from the sinks as a violation what a driver cannot know: between
// a global reset and its first command to the new firmware it goes on with what
// it had; and what is the reset's doing, not the driver's.
func (d *Device) judge(event any) any {
	if d.system.stragglers.Load() {
		switch event.(type) {
		case Reset, Attached, Unreachable, fw.Command, cqp.Leaked:
		default:
			return Orphan{event}
		}
	}
	if d.blocked(event) {
		return Orphan{event}
	}
	if !d.system.orphans.Load() {
		return event
	}
	switch e := event.(type) {
	case fw.Command:
		if e.Opcode == fw.GetVersion {
			d.system.orphans.Store(false)
		}
	case lan.BadQueue, lan.BadRxContext, cqp.NotLive, qp.UnknownQP, eventq.UnknownCQ, eventq.AEQCredit, fw.BadIndex:
		return Orphan{event}
	}
	return event
}

// blocked tells of a step of the data path that was not let reach memory. A
// machine that is reset under traffic takes bus mastering away some time before
// it resets the card, and no driver has a part in that.
func (d *Device) blocked(event any) bool {
	switch event.(type) {
	case qp.QueueUnreadable, eventq.QueueUnwritable, hmc.AccessFailed, lan.BadTxDescriptor, lan.BadRxDescriptor:
		return !d.config.BusMaster()
	}
	return false
}
