// SPDX-License-Identifier: Apache-2.0

package fw

// unsupportedCommands are commands that a driver knows and this firmware does
// not have. They fail with ESRCH under their name.
var unsupportedCommands = []command{
	{op: 0x020b, name: "share_res"},
	{op: 0x0417, name: "set_tx_topo"},
	{op: 0x0418, name: "get_tx_topo"},
	{op: 0x0630, name: "set_phy_rec_clk_out"},
	{op: 0x0631, name: "get_phy_rec_clk_out"},
	{op: 0x0632, name: "get_sensor_reading"},
	{op: 0x0682, name: "dnl_call"},
	{op: 0x06e2, name: "read_i2c"},
	{op: 0x06e3, name: "write_i2c"},
	{op: 0x06eb, name: "set_port_option"},
	{op: 0x06ec, name: "set_gpio"},
	{op: 0x06ed, name: "get_gpio"},
	{op: 0x0702, name: "nvm_erase"},
	{op: 0x0703, name: "nvm_write"},
	{op: 0x0707, name: "nvm_write_activate"},
	{op: 0x070a, name: "nvm_pkg_data"},
	{op: 0x070b, name: "nvm_pass_component_tbl"},
	{op: 0x0a00, name: "lldp_get_mib"},
	{op: 0x0a01, name: "lldp_set_mib_change"},
	{op: 0x0a05, name: "lldp_stop"},
	{op: 0x0a06, name: "lldp_start"},
	{op: 0x0a07, name: "get_cee_dcb_cfg"},
	{op: 0x0a09, name: "lldp_stop_start_specific_agent"},
	{op: 0x0a0a, name: "lldp_filter_ctrl"},
	{op: 0x0a0b, name: "lldp_execute_pending_mib"},
	{op: 0x0c00, name: "neighbour_device_request"},
	{op: 0x0c32, name: "cfg_txqs"},
	{op: 0x0c35, name: "set_txtimeqs"},
	{op: 0x0c59, name: "get_cgu_input_measure"},
	{op: 0x0c61, name: "get_cgu_abilities"},
	{op: 0x0c62, name: "set_cgu_input_config"},
	{op: 0x0c63, name: "get_cgu_input_config"},
	{op: 0x0c64, name: "set_cgu_output_config"},
	{op: 0x0c65, name: "get_cgu_output_config"},
	{op: 0x0c66, name: "get_cgu_dpll_status"},
	{op: 0x0c67, name: "set_cgu_dpll_config"},
	{op: 0x0c68, name: "set_cgu_ref_prio"},
	{op: 0x0c69, name: "get_cgu_ref_prio"},
	{op: 0x0c6a, name: "get_cgu_info"},
	{op: 0x0c90, name: "driver_shared_params"},
	{op: 0xff20, name: "set_health_status_cfg"},
}

// mailboxCommands are what a PF sends through its mailbox: messages to virtual
// functions, of which there are none.
var mailboxCommands = []command{
	{op: 0x0801, name: "send_msg_to_pf", run: noFunction, source: "ice_adminq_cmd.h:ice_mbx_opc_send_msg_to_pf", inferred: true},
	{op: 0x0802, name: "send_msg_to_vf", run: noFunction, source: "ice_adminq_cmd.h:ice_mbx_opc_send_msg_to_vf", inferred: true},
}

func noFunction(*Firmware, *request) errno { return rcENOENT }
