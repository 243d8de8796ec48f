// SPDX-License-Identifier: Apache-2.0

package fw

var portCommands = []command{
	{op: 0x0200, name: "get_sw_cfg", minBuf: swElem, run: (*Firmware).switchConfig, source: "ice_switch.c:ice_get_initial_sw_cfg"},
	{op: 0x0203, name: "set_port_params", run: (*Firmware).setPortParams, source: "ice_common.c:ice_aq_set_port_params", inferred: true},
	{op: 0x020c, name: "set_vlan_mode_parameters", rd: true, minBuf: vlanModeSize, run: (*Firmware).setVLANMode, source: "ice_vlan_mode.c:ice_aq_set_vlan_mode", inferred: true},
	{op: 0x020d, name: "get_vlan_mode_parameters", minBuf: vlanModeSize, run: (*Firmware).getVLANMode, source: "ice_vlan_mode.c:ice_aq_get_vlan_mode"},
}

const (
	lport  = 0 // the logical port of the function
	swid   = 1 // the switch that it is a port of
	swElem = 6 // sizeof(struct ice_aqc_get_sw_cfg_resp_elem)

	doubleVLAN     = 1 << 2  // ICE_AQC_SET_P_PARAMS_DOUBLE_VLAN_ENA
	portSWIDValid  = 1 << 15 // ICE_AQC_PORT_SWID_VALID
	portSWIDMask   = 0xff
	localFwdValid  = 1 << 2 // ICE_AQC_SET_P_PARAMS_LOCAL_FWD_MODE_VALID
	localFwdMask   = 3
	vlanModeSize   = 100
	singleVLANRDMA = 0x10 // ICE_AQ_SVM_VLAN_RDMA_PKT_FLAG_SETTING
	rdmaTagMask    = 0x3f // ICE_AQ_VLAN_RDMA_TAG_M
)

// portState is the switch configuration of the port.
type portState struct {
	localForward uint8 // ICE_LOCAL_FWD_MODE_*
	prioTag      uint8 // ICE_AQ_VLAN_PRIO_TAG_*
}

// switchConfig lists the elements that exist before any driver: the port.
func (f *Firmware) switchConfig(r *request) errno {
	p := r.p()
	if le.Uint16(p[2:]) > 0 {
		return rcEINVAL // there is no second element to go on with
	}
	le.PutUint16(p[4:], 1)
	le.PutUint16(r.buf[0:], lport) // bits 15:14 zero: a physical port
	le.PutUint16(r.buf[2:], swid)
	le.PutUint16(r.buf[4:], uint16(f.cfg.PF))
	r.n = swElem
	return rcOK
}

func (f *Firmware) setPortParams(r *request) errno {
	p := r.p()
	if le.Uint16(p[0:])&doubleVLAN != 0 {
		return rcEINVAL // see getVLANMode
	}
	if s := le.Uint16(p[4:]); s&portSWIDValid != 0 && s&portSWIDMask != swid {
		return rcEINVAL
	}
	if p[6]&localFwdValid != 0 {
		f.port.localForward = p[6] & localFwdMask
	}
	return rcOK
}

// setVLANMode takes the parameters of single VLAN mode, the only one.
func (f *Firmware) setVLANMode(r *request) errno {
	if r.buf[66]&rdmaTagMask != singleVLANRDMA {
		return rcEINVAL
	}
	f.port.prioTag = r.buf[1]
	r.n = 0
	return rcOK
}

// getVLANMode says single VLAN mode: bit 0 clear.
func (f *Firmware) getVLANMode(r *request) errno {
	r.buf[1] = f.port.prioTag
	r.n = vlanModeSize
	return rcOK
}
