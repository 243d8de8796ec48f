// SPDX-License-Identifier: Apache-2.0

package devmodel

import "github.com/vrnic/vrnic/devmodel/reg"

// diagnosticRegisters are what "ethtool -d" dumps of the insides of the pipeline
// beside the registers that drivers use: errors detected, none here, and the
// levels and credits of buffers between blocks, of which this card has none.
func diagnosticRegisters() (rows []reg.Row) {
	for _, r := range []struct {
		name   string
		offset uint32
		n      int // elements, from index 0; 0: not an array
	}{
		{"QRX_ITR", 0x00292000, 2048}, // what no driver sets: intervals of queues
		{"GLDCB_TLPM_PCI_DM", 0x000A0180, 0},
		{"GLDCB_TLPM_TC2PFC", 0x000A0194, 0},
		{"TCDCB_TLPM_WAIT_DM", 0x000A0080, 32},
		{"GLPCI_WATMK_CLNT_PIPEMON", 0x000BFD90, 0},
		{"GLPCI_CUR_CLNT_COMMON", 0x000BFD84, 0},
		{"GLPCI_CUR_CLNT_PIPEMON", 0x000BFD88, 0},
		{"GLPCI_PCIERR", 0x0009DEB0, 0},
		{"GLPSM_DEBUG_CTL_STATUS", 0x000B0600, 0},
		{"GLPSM0_DEBUG_FIFO_OVERFLOW_DETECT", 0x000B0680, 0},
		{"GLPSM0_DEBUG_FIFO_UNDERFLOW_DETECT", 0x000B0684, 0},
		{"GLPSM0_DEBUG_DT_OUT_OF_WINDOW", 0x000B0688, 0},
		{"GLPSM0_DEBUG_INTF_HW_ERROR_DETECT", 0x000B069C, 0},
		{"GLPSM0_DEBUG_MISC_HW_ERROR_DETECT", 0x000B06A0, 0},
		{"GLPSM1_DEBUG_FIFO_OVERFLOW_DETECT", 0x000B0E80, 0},
		{"GLPSM1_DEBUG_FIFO_UNDERFLOW_DETECT", 0x000B0E84, 0},
		{"GLPSM1_DEBUG_SRL_FIFO_OVERFLOW_DETECT", 0x000B0E88, 0},
		{"GLPSM1_DEBUG_SRL_FIFO_UNDERFLOW_DETECT", 0x000B0E8C, 0},
		{"GLPSM1_DEBUG_MISC_HW_ERROR_DETECT", 0x000B0E90, 0},
		{"GLPSM2_DEBUG_FIFO_OVERFLOW_DETECT", 0x000B1680, 0},
		{"GLPSM2_DEBUG_FIFO_UNDERFLOW_DETECT", 0x000B1684, 0},
		{"GLPSM2_DEBUG_MISC_HW_ERROR_DETECT", 0x000B1688, 0},
		{"GLTDPU_TCLAN_COMP_BOB", 0x00049ADC, 9},
		{"GLTDPU_TCB_CMD_BOB", 0x0004975C, 9},
		{"GLTDPU_PSM_UPDATE_BOB", 0x00049B5C, 9},
		{"GLTCB_CMD_IN_BOB", 0x000AE288, 9},
		{"GLLAN_TCLAN_FETCH_CTL_FBK_BOB_CTL", 0x000FC148, 9},
		{"GLLAN_TCLAN_FETCH_CTL_SCHED_BOB_CTL", 0x000FC248, 9},
		{"GLLAN_TCLAN_CACHE_CTL_BOB_CTL", 0x000FC1C8, 9},
		{"GLLAN_TCLAN_FETCH_CTL_PROC_BOB_CTL", 0x000FC188, 9},
		{"GLLAN_TCLAN_FETCH_CTL_PCIE_RD_BOB_CTL", 0x000FC288, 9},
		{"PRTDCB_TCUPM_REG_CM", 0x000BC360, 4},
		{"PRTDCB_TCUPM_REG_DM", 0x000BC3A0, 4},
		{"PRTDCB_TLPM_REG_DM", 0x000A0000, 4},
	} {
		row := reg.Row{Name: r.name, Offset: r.offset, Access: reg.RO, Domain: reg.CORER, Inferred: true, Source: "ice_ethtool.c:ice_regs_dump_list"}
		if r.n != 0 {
			row.N, row.Stride = r.n, 4
		}
		rows = append(rows, row)
	}
	return rows
}
