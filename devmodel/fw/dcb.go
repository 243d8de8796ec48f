// SPDX-License-Identifier: Apache-2.0

package fw

// PRTDCB_GENS says that the firmware's own LLDP agent is disabled: the driver
// then does DCBX itself, and these are all the commands it has for us.
var dcbCommands = []command{
	{op: 0x0302, name: "query_pfc_mode", run: (*Firmware).queryPFCMode, source: "ice_adminq_cmd.h:struct ice_aqc_set_query_pfc_mode"},
	{op: 0x0303, name: "set_pfc_mode", run: (*Firmware).setPFCMode, source: "ice_dcb.c:ice_aq_set_pfc_mode"},
	{op: 0x0a08, name: "lldp_set_local_mib", rd: true, minBuf: 1, run: (*Firmware).setLocalMIB, source: "ice_dcb.c:ice_aq_set_lldp_mib"},
}

const (
	pfcVLAN = 1 // ICE_AQC_PFC_VLAN_BASED_PFC
	pfcDSCP = 2 // ICE_AQC_PFC_DSCP_BASED_PFC

	maxLLDPDU = 1500 // ICE_LLDPDU_SIZE
)

// dcbState is the port's DCB configuration as the driver set it.
type dcbState struct {
	pfcMode  uint8
	localMIB []byte // LLDP TLVs, at most maxLLDPDU
}

func (f *Firmware) queryPFCMode(r *request) errno {
	clear(r.p())
	r.p()[0] = f.dcb.pfcMode
	return rcOK
}

func (f *Firmware) setPFCMode(r *request) errno {
	mode := r.p()[0]
	if mode != pfcVLAN && mode != pfcDSCP {
		return rcEINVAL
	}
	f.dcb.pfcMode = mode
	return rcOK // the mode in the response is the one in effect
}

func (f *Firmware) setLocalMIB(r *request) errno {
	n := int(le.Uint16(r.p()[2:]))
	if n == 0 || n > len(r.buf) || n > maxLLDPDU {
		return rcEINVAL
	}
	f.dcb.localMIB = append([]byte(nil), r.buf[:n]...)
	r.n = 0
	return rcOK
}
