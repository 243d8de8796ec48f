// SPDX-License-Identifier: Apache-2.0

package fw

import "github.com/vrnic/vrnic/devmodel/reg"

var macCommands = []command{
	{op: 0x0107, name: "manage_mac_read", minBuf: macEntry, run: (*Firmware).macRead, source: "ice_common.c:ice_aq_manage_mac_read"},
	{op: 0x0108, name: "manage_mac_write", run: (*Firmware).macWrite, source: "ice_common.c:ice_aq_manage_mac_write", inferred: true},
	{op: 0x0110, name: "clear_pxe_mode", run: (*Firmware).clearPXE, source: "ice_common.c:ice_aq_clear_pxe_mode"},
}

// Flags of the MAC commands (ice_adminq_cmd.h:ICE_AQC_MAN_MAC_*).
const (
	macLANValid = 1 << 4
	macWOLValid = 1 << 7

	macKeepOverPFR = 1 << 1
	macUpdateWOL   = 1 << 6

	macTypeLAN = 0
	macTypeWOL = 1
	macEntry   = 8 // sizeof(struct ice_aqc_manage_mac_read_resp)
)

// macState is the address that the driver chose for wake-on-LAN; the LAN
// address reported is always the port's own.
type macState struct {
	wol     [6]byte
	hasWOL  bool
	keepPFR bool
}

func (m *macState) reset(d reg.Domain) {
	if d >= reg.CORER || !m.keepPFR {
		*m = macState{}
	}
}

func (f *Firmware) macRead(r *request) errno {
	p := r.p()
	flags, n := uint16(macLANValid), 1
	copy(r.buf[2:8], f.cfg.MAC[:])
	r.buf[0], r.buf[1] = lport, macTypeLAN
	if f.mac.hasWOL && len(r.buf) >= 2*macEntry {
		flags, n = flags|macWOLValid, 2
		r.buf[8], r.buf[9] = lport, macTypeWOL
		copy(r.buf[10:16], f.mac.wol[:])
	}
	le.PutUint16(p[0:], flags)
	p[4] = byte(n)
	r.n = n * macEntry
	return rcOK
}

func (f *Firmware) macWrite(r *request) errno {
	p := r.p()
	flags := p[1]
	addr := [6]byte(p[2:8])
	if addr[0]&1 != 0 || addr == [6]byte{} {
		return rcEINVAL
	}
	if flags&macUpdateWOL != 0 {
		f.mac = macState{wol: addr, hasWOL: true, keepPFR: flags&macKeepOverPFR != 0}
	}
	return rcOK
}

// clearPXE ends the mode of the pre-boot driver, in which this function never
// is.
func (f *Firmware) clearPXE(r *request) errno {
	if r.p()[0] != 2 { // ICE_AQC_CLEAR_PXE_RX_CNT
		return rcEINVAL
	}
	return rcOK
}
