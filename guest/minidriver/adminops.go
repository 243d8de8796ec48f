// SPDX-License-Identifier: Apache-2.0

package minidriver

// Admin commands by their kernel names (ice_adminq_cmd.h, libie/adminq.h).
const (
	ice_aqc_opc_get_ver             = 0x0001
	ice_aqc_opc_driver_ver          = 0x0002
	ice_aqc_opc_q_shutdown          = 0x0003
	ice_aqc_opc_req_res             = 0x0008
	ice_aqc_opc_release_res         = 0x0009
	ice_aqc_opc_list_func_caps      = 0x000a
	ice_aqc_opc_list_dev_caps       = 0x000b
	ice_aqc_opc_manage_mac_read     = 0x0107
	ice_aqc_opc_manage_mac_write    = 0x0108
	ice_aqc_opc_clear_pxe_mode      = 0x0110
	ice_aqc_opc_get_sw_cfg          = 0x0200
	ice_aqc_opc_set_port_params     = 0x0203
	ice_aqc_opc_alloc_res           = 0x0208
	ice_aqc_opc_free_res            = 0x0209
	ice_aqc_opc_set_vlan_mode       = 0x020c // ..._parameters
	ice_aqc_opc_get_vlan_mode       = 0x020d
	ice_aqc_opc_add_vsi             = 0x0210
	ice_aqc_opc_update_vsi          = 0x0211
	ice_aqc_opc_free_vsi            = 0x0213
	ice_aqc_opc_add_sw_rules        = 0x02a0
	ice_aqc_opc_update_sw_rules     = 0x02a1
	ice_aqc_opc_remove_sw_rules     = 0x02a2
	ice_aqc_opc_clear_pf_cfg        = 0x02a4
	ice_aqc_opc_query_pfc_mode      = 0x0302
	ice_aqc_opc_set_pfc_mode        = 0x0303
	ice_aqc_opc_get_dflt_topo       = 0x0400
	ice_aqc_opc_add_sched_elems     = 0x0401
	ice_aqc_opc_cfg_sched_elems     = 0x0403
	ice_aqc_opc_get_sched_elems     = 0x0404
	ice_aqc_opc_move_sched_elems    = 0x0408
	ice_aqc_opc_suspend_sched_elems = 0x0409
	ice_aqc_opc_resume_sched_elems  = 0x040a
	ice_aqc_opc_query_port_ets      = 0x040e
	ice_aqc_opc_delete_sched_elems  = 0x040f
	ice_aqc_opc_add_rl_profiles     = 0x0410
	ice_aqc_opc_query_sched_res     = 0x0412
	ice_aqc_opc_remove_rl_profiles  = 0x0415
	ice_aqc_opc_get_phy_caps        = 0x0600
	ice_aqc_opc_set_phy_cfg         = 0x0601
	ice_aqc_opc_set_mac_cfg         = 0x0603
	ice_aqc_opc_restart_an          = 0x0605
	ice_aqc_opc_get_link_status     = 0x0607
	ice_aqc_opc_set_event_mask      = 0x0613
	ice_aqc_opc_get_link_topo       = 0x06e0
	ice_aqc_opc_get_port_options    = 0x06ea
	ice_aqc_opc_nvm_read            = 0x0701
	ice_aqc_opc_nvm_update_empr     = 0x0709
	ice_mbx_opc_send_msg_to_vf      = 0x0802
	ice_aqc_opc_lldp_set_local_mib  = 0x0a08
	ice_aqc_opc_set_rss_key         = 0x0b02
	ice_aqc_opc_set_rss_lut         = 0x0b03
	ice_aqc_opc_add_txqs            = 0x0c30
	ice_aqc_opc_dis_txqs            = 0x0c31
	ice_aqc_opc_add_rdma_qset       = 0x0c33
	ice_aqc_opc_download_pkg        = 0x0c40
	ice_aqc_opc_upload_section      = 0x0c41
	ice_aqc_opc_update_pkg          = 0x0c42
	ice_aqc_opc_get_pkg_info_list   = 0x0c43
	ice_aqc_opc_fw_logs_config      = 0xff30
	ice_aqc_opc_fw_logs_register    = 0xff31
	ice_aqc_opc_fw_logs_query       = 0xff32
)

// Resources of 0x0008 and types of 0x0208.
const (
	ICE_NVM_RES_ID             = 1
	ICE_CHANGE_LOCK_RES_ID     = 3
	ICE_GLOBAL_CFG_LOCK_RES_ID = 4
	ICE_RES_READ               = 1
	ICE_RES_WRITE              = 2

	ICE_AQC_RES_TYPE_VSI_LIST_PRUNE          = 0x04
	ICE_AQC_RES_TYPE_FDIR_COUNTER_BLOCK      = 0x21
	ICE_AQC_RES_TYPE_FDIR_GUARANTEED_ENTRIES = 0x22
	ICE_AQC_RES_TYPE_FDIR_SHARED_ENTRIES     = 0x23
	ICE_AQC_RES_TYPE_FD_PROF_BLDR_PROFID     = 0x58
	ICE_AQC_RES_TYPE_FD_PROF_BLDR_TCAM       = 0x59
	ICE_AQC_RES_TYPE_HASH_PROF_BLDR_PROFID   = 0x60
	ICE_AQC_RES_TYPE_HASH_PROF_BLDR_TCAM     = 0x61
	ICE_AQC_RES_TYPE_FLAG_SHARED             = 1 << 7
	ICE_AQC_RES_TYPE_FLAG_SCAN_BOTTOM        = 1 << 12
)
