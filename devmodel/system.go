// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/pci"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// system is the state of the registers that concern the function as a whole.
type system struct {
	pfgenCtrl, rtrig, rstat reg.Cells
}

// Bits of GLGEN_RSTAT, GLGEN_RTRIG and PFGEN_CTRL (ice_hw_autogen.h).
const (
	rstatTypeShift = 2
	pfswr          = 1 << 0
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
		{Name: "PFGEN_CTRL", Offset: 0x00091000, Cells: &d.system.pfgenCtrl, Write: func(_ int, v uint32) {
			if v&pfswr != 0 {
				d.reset(reg.PFR) // done before the write returns: PFSWR reads 0
			}
		}, Fields: []reg.Field{{Name: "PFSWR", Hi: 0, Lo: 0}}, Source: hdr + "; ice_common.c:ice_pf_reset"},
		{Name: "GLGEN_RTRIG", Offset: 0x000B8190, Domain: reg.CORER, Cells: &d.system.rtrig, Write: func(_ int, v uint32) { d.triggerReset(v) },
			Fields: []reg.Field{{Name: "CORER", Hi: 0, Lo: 0}, {Name: "GLOBR", Hi: 1, Lo: 1}, {Name: "EMPFWR", Hi: 2, Lo: 2}},
			Source: hdr + "; ice_common.c:ice_reset"},
		{Name: "GLGEN_RSTAT", Offset: 0x000B8188, Access: reg.RO, Domain: reg.POR, Cells: &d.system.rstat,
			Fields: []reg.Field{{Name: "DEVSTATE", Hi: 1, Lo: 0}, {Name: "RESET_TYPE", Hi: 3, Lo: 2}}, Source: hdr + "; ice_common.c:ice_check_reset"},
		constant("GLGEN_RSTCTL", 0x000B8180, 1, "ice_common.c:ice_check_reset"),
		constant("GLGEN_STAT", 0x000B612C, 0, "ice_osdep.h:ice_flush"),
		constant("GLGEN_CLKSTAT_SRC", 0x000B826C, 0x20, "ice_sched.c:ice_sched_get_psm_clk_freq"),
		{Name: "GLGEN_VFLRSTAT", Offset: 0x00093A04, N: 8, Stride: 4, Access: reg.W1C, Domain: reg.CORER, Source: hdr + "; ice_sriov.c:ice_process_vflr_event"},
		// All modules report loading done, PE_DONE (bit 10) included.
		constant("GLNVM_ULD", 0x000B6008, 0x0000073B, "ice_common.c:ice_check_reset"),
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
// first, so that nothing of theirs acts on cleared registers.
func (d *Device) reset(dom reg.Domain) {
	d.rdma.Reset(dom)
	d.lan.Reset(dom)
	d.fw.Reset(dom)
	d.irqs.Reset(dom)
	d.regs.Reset(dom)
	d.emit(Reset{dom})
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

// globalReset carries out a reset of the whole card. The driver rebuilds only if
// it gets the GRST cause with a reset type, so the message goes out by the
// interrupt set-up of before, and the cause stays readable after it.
func (d *Device) globalReset(dom reg.Domain) {
	d.irqs.OICR(pci.OICRGlobalReset)
	d.reset(dom)
	d.system.rstat.Set(0, uint32(dom-reg.CORER+1)<<rstatTypeShift)
	d.irqs.OICR(pci.OICRGlobalReset)
}
