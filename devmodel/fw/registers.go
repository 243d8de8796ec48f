// SPDX-License-Identifier: Apache-2.0

package fw

import "github.com/vrnic/vrnic/devmodel/reg"

// Registers describes the registers of the control queues, and those which
// firmware fills in or which belong to the blocks that it configures.
func (f *Firmware) Registers() []reg.Row {
	rows := f.atq.rows([5]uint32{0x00080000, 0x00080100, 0x00080200, 0x00080300, 0x00080400},
		func() { f.tailed(&f.atq) }, func() { f.resized(&f.atq) })
	rows = append(rows, f.arq.rows([5]uint32{0x00080080, 0x00080180, 0x00080280, 0x00080380, 0x00080480},
		f.deliver, f.arqResized)...)
	rows = append(rows, f.mbxATQ.rows([5]uint32{0x0022e100, 0x0022e180, 0x0022e200, 0x0022e280, 0x0022e300},
		func() { f.tailed(&f.mbxATQ) }, func() { f.resized(&f.mbxATQ) })...)
	rows = append(rows, f.mbxARQ.rows([5]uint32{0x0022e380, 0x0022e400, 0x0022e480, 0x0022e500, 0x0022e580},
		func() { f.indices(&f.mbxARQ) }, nil)...)
	rows = append(rows,
		reg.Row{Name: "PRTMAC_HSEC_CTL_TX_PAUSE_QUANTA", Offset: 0x001e36e0, N: pauseTimers, Stride: 32, Reset: 0xffff, Mask: 0xffff, Domain: reg.GLOBR,
			Cells: &f.link.pauseQuanta, Source: "ice_common.c:ice_fill_tx_timer_and_fc_thresh", Inferred: true},
		reg.Row{Name: "PRTMAC_HSEC_CTL_TX_PAUSE_REFRESH_TIMER", Offset: 0x001e3800, N: pauseTimers, Stride: 32, Reset: 0x7fff, Mask: 0xffff, Domain: reg.GLOBR,
			Cells: &f.link.pauseRefresh, Source: "ice_common.c:ice_fill_tx_timer_and_fc_thresh", Inferred: true},
		reg.Row{Name: "VSIQF_FD_SIZE", Offset: 0x00462000, N: NumVSIs, Stride: 4, Access: reg.RO, Read: f.flowFilters, Source: hwHeader, Inferred: true,
			Fields: []reg.Field{{Name: "FD_BSIZE", Hi: 29, Lo: 16}, {Name: "FD_GSIZE", Hi: 13, Lo: 0}}},
		reg.Row{Name: "VSIQF_FD_CNT", Offset: 0x00464000, N: NumVSIs, Stride: 4, Access: reg.RO, Read: f.flowFilters, Source: "ice_ethtool_fdir.c:ice_fdir_num_avail_fltr", Inferred: true,
			Fields: []reg.Field{{Name: "FD_BCNT", Hi: 29, Lo: 16}, {Name: "FD_GCNT", Hi: 13, Lo: 0}}},
		// No driver writes it: it says what the VSI's context says.
		reg.Row{Name: "VSIQF_PE_CTL1", Offset: 0x00414000, N: NumVSIs, Stride: 4, Access: reg.RO, Read: f.readPEControl, Source: "icrdma_hw.h:VSIQF_PE_CTL1", Inferred: true,
			Fields: []reg.Field{{Name: "PE_FLTENA", Hi: 0, Lo: 0}}},
	)
	return append(rows, plainRegisters...)
}

// flowFilters is how many filters a VSI may have, and how many of them are
// taken: all. The driver takes one from the other in 16 bits.
func (f *Firmware) flowFilters(n int) uint32 {
	v := f.sw.vsis[uint16(n)]
	if v == nil || !v.ctx.FlowDirector() {
		return 0
	}
	dedicated, shared := v.ctx.FlowFilters()
	return uint32(shared&0x3FFF)<<16 | uint32(dedicated&0x3FFF)
}

// readPEControl is bit PE_FLTR_EN of the VSI's context.
func (f *Firmware) readPEControl(n int) uint32 {
	if v := f.sw.vsis[uint16(n)]; v != nil && v.ctx.RDMAFilter() {
		return 1
	}
	return 0
}

// arqResized forgets what waits for a receive queue that is switched off.
func (f *Firmware) arqResized() {
	if f.arq.entries() == 0 {
		f.arq.pending = nil
	}
}

const hwHeader = "ice_hw_autogen.h"

// plainRegisters have no behaviour beyond their value.
var plainRegisters = []reg.Row{
	// The sideband queue is of other devices (ice_controlq.c:ice_is_sbq_supported).
	{Name: "PF_SB_ATQBAL", Offset: 0x0022fc00, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ATQBAH", Offset: 0x0022fc80, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ATQLEN", Offset: 0x0022fd00, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ATQH", Offset: 0x0022fd80, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ATQT", Offset: 0x0022fe00, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ARQBAL", Offset: 0x0022fe80, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ARQBAH", Offset: 0x0022ff00, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ARQLEN", Offset: 0x0022ff80, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ARQH", Offset: 0x00230000, Source: hwHeader, Inferred: true},
	{Name: "PF_SB_ARQT", Offset: 0x00230080, Source: hwHeader, Inferred: true},

	{Name: "GL_MNG_FWSM", Offset: 0x000b6134, Access: reg.RO, Domain: reg.EMPR, Source: "ice_lib.c:ice_is_recovery_mode, ice_common.c:ice_wait_fw_load",
		Fields: []reg.Field{{Name: "FW_LOADING", Hi: 30, Lo: 30}, {Name: "FW_MODES", Hi: 2, Lo: 0}}},
	// 2^6 * 512 words of shadow RAM. 7 overflows the driver's 16 bits.
	{Name: "GLNVM_GENS", Offset: 0x000b6100, Reset: 6 << 5, Access: reg.RO, Domain: reg.POR, Source: "ice_nvm.c:ice_init_nvm",
		Fields: []reg.Field{{Name: "SR_SIZE", Hi: 7, Lo: 5}}},
	{Name: "GLNVM_FLA", Offset: 0x000b6108, Reset: 1 << 6, Access: reg.RO, Domain: reg.POR, Source: "ice_nvm.c:ice_init_nvm",
		Fields: []reg.Field{{Name: "LOCKED", Hi: 6, Lo: 6}}},

	{Name: "PRTDCB_GENC", Offset: 0x00083000, Domain: reg.CORER, Source: hwHeader,
		Fields: []reg.Field{{Name: "PFCLDA", Hi: 31, Lo: 16}}},
	// 7: the LLDP agent is disabled, the driver does DCBX.
	{Name: "PRTDCB_GENS", Offset: 0x00083020, Reset: 7, Access: reg.RO, Domain: reg.CORER, Source: "ice_dcb.c:ice_get_dcbx_status",
		Fields: []reg.Field{{Name: "DCBX_STATUS", Hi: 2, Lo: 0}}},
	// All user priorities are of traffic class 0.
	{Name: "PRTDCB_TUP2TC", Offset: 0x001d26c0, Access: reg.RO, Domain: reg.CORER, Source: "ice_dcb_lib.c:ice_setup_dcb_qos_info"},

	{Name: "PFQF_FD_ENA", Offset: 0x0043a000, Mask: 1, Domain: reg.CORER, Source: "ice_common.c:ice_init_hw"},
	{Name: "PFQF_FD_SIZE", Offset: 0x00460100, Access: reg.RO, Source: "ice_main.c:ice_rebuild"},
	// Guaranteed and best-effort filters. Not zero: a function with none is
	// left half set up (ice_lib.c:ice_vsi_alloc). But all are taken, here and
	// in VSIQF_FD_CNT, as nothing filters flows: the driver refuses to add any
	// (ice_ethtool_fdir.c:ice_fdir_num_avail_fltr).
	{Name: "GLQF_FD_SIZE", Offset: 0x00460010, Reset: maxFDEntries<<16 | maxFDEntries, Access: reg.RO, Domain: reg.CORER, Source: "ice_common.c:ice_parse_fdir_func_caps",
		Fields: []reg.Field{{Name: "FD_BSIZE", Hi: 30, Lo: 16}, {Name: "FD_GSIZE", Hi: 14, Lo: 0}}},
	{Name: "GLQF_FD_CNT", Offset: 0x00460018, Reset: maxFDEntries<<16 | maxFDEntries, Access: reg.RO, Domain: reg.CORER, Source: "ice_ethtool_fdir.c:ice_fdir_num_avail_fltr", Inferred: true,
		Fields: []reg.Field{{Name: "FD_BCNT", Hi: 30, Lo: 16}, {Name: "FD_GCNT", Hi: 14, Lo: 0}}},

	{Name: "GLQF_HSYMM", Offset: 0x0040f000, N: 128, Stride: 4, M: 6, Stride2: 512, Domain: reg.CORER, Source: "ice_flow.c:ice_rss_config_xor"},
	{Name: "GLQF_HMASK", Offset: 0x0040fc00, N: 32, Stride: 4, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_write_prof_mask_reg",
		Fields: []reg.Field{{Name: "MASK", Hi: 31, Lo: 16}, {Name: "MSK_INDEX", Hi: 4, Lo: 0}}},
	{Name: "GLQF_HMASK_SEL", Offset: 0x00410000, N: 128, Stride: 4, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_write_prof_mask_enable_res"},
	{Name: "GLQF_FDMASK_SEL", Offset: 0x00410400, N: 128, Stride: 4, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_write_prof_mask_enable_res"},
	{Name: "GLQF_FDMASK", Offset: 0x00410800, N: 32, Stride: 4, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_write_prof_mask_reg",
		Fields: []reg.Field{{Name: "MASK", Hi: 31, Lo: 16}, {Name: "MSK_INDEX", Hi: 4, Lo: 0}}},
	{Name: "GLQF_FDINSET", Offset: 0x00412000, N: 128, Stride: 4, M: 6, Stride2: 512, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_update_fd_swap"},
	{Name: "GLQF_FDSWAP", Offset: 0x00413000, N: 128, Stride: 4, M: 6, Stride2: 512, Domain: reg.CORER, Source: "ice_flex_pipe.c:ice_update_fd_swap"},

	{Name: "GL_PREEXT_L2_PMASK0", Offset: 0x0020f0fc, N: 3, Stride: 4, Domain: reg.CORER, Source: "ice_ddp.c:ice_init_pkg_regs"},
	{Name: "GL_PREEXT_L2_PMASK1", Offset: 0x0020f108, N: 3, Stride: 4, Domain: reg.CORER, Source: "ice_ddp.c:ice_init_pkg_regs"},

	{Name: "GLFLXP_RXDID_FLX_WRD_0", Offset: 0x0045c800, N: 64, Stride: 4, Domain: reg.CORER, Source: hwHeader},
	{Name: "GLFLXP_RXDID_FLX_WRD_1", Offset: 0x0045c900, N: 64, Stride: 4, Domain: reg.CORER, Source: hwHeader},
	{Name: "GLFLXP_RXDID_FLX_WRD_2", Offset: 0x0045ca00, N: 64, Stride: 4, Domain: reg.CORER, Source: hwHeader},
	{Name: "GLFLXP_RXDID_FLX_WRD_3", Offset: 0x0045cb00, N: 64, Stride: 4, Domain: reg.CORER, Source: hwHeader},
	{Name: "GLFLXP_RXDID_FLAGS", Offset: 0x0045d000, N: 64, Stride: 4, M: 5, Stride2: 256, Domain: reg.CORER, Source: "ice_main.c:ice_init_supported_rxdids"},
}
