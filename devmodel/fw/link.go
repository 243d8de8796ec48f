// SPDX-License-Identifier: Apache-2.0

package fw

import "github.com/vrnic/vrnic/devmodel/reg"

var linkCommands = []command{
	{op: 0x0600, name: "get_phy_caps", minBuf: phyCapsSize, run: (*Firmware).phyCaps, source: "ice_common.c:ice_aq_get_phy_caps"},
	{op: 0x0601, name: "set_phy_cfg", rd: true, minBuf: phyCfgSize, run: (*Firmware).setPhyConfig, source: "ice_common.c:ice_aq_set_phy_cfg", inferred: true},
	{op: 0x0603, name: "set_mac_cfg", run: (*Firmware).setMACConfig, source: "ice_common.c:ice_aq_set_mac_cfg", inferred: true},
	{op: 0x0605, name: "restart_an", run: (*Firmware).restartAN, source: "ice_common.c:ice_aq_set_link_restart_an", inferred: true},
	{op: 0x0607, name: "get_link_status", minBuf: linkStatusSize, run: (*Firmware).linkStatus, source: "ice_common.c:ice_aq_get_link_info"},
	{op: 0x0613, name: "set_event_mask", run: (*Firmware).setEventMask, source: "ice_common.c:ice_aq_set_event_mask"},
	{op: 0x0620, name: "set_mac_lb", run: (*Firmware).setLoopback, source: "ice_common.c:ice_aq_set_mac_loopback", inferred: true},
	{op: 0x06e0, name: "get_link_topo", run: (*Firmware).linkTopology, source: "ice_common.c:ice_aq_get_netlist_node"},
	{op: 0x06e9, name: "set_port_id_led", run: (*Firmware).setLED, source: "ice_common.c:ice_aq_set_port_id_led"},
	{op: 0x06ea, name: "get_port_options", minBuf: portOptionSize, run: (*Firmware).portOptions, source: "ice_common.c:ice_aq_get_port_options"},
	{op: 0x06ee, name: "sff_eeprom", rd: true, minBuf: 1, run: (*Firmware).moduleEEPROM, source: "ice_common.c:ice_aq_sff_eeprom", inferred: true},
}

const (
	phyCapsSize    = 560 // sizeof(struct ice_aqc_get_phy_caps_data)
	phyCfgSize     = 24  // sizeof(struct ice_aqc_set_phy_cfg_data)
	linkStatusSize = 32  // ICE_AQC_LS_DATA_SIZE_V1
	portOptionSize = 8   // sizeof(struct ice_aqc_get_port_options_elem)

	// Report modes of 0x0600 (ice_adminq_cmd.h:ICE_AQC_REPORT_*).
	reportModeMask = 7 << 1
	reportNoMedia  = 0
	reportMedia    = 1 << 1
	reportActive   = 1 << 2
	reportDefault  = 1 << 3

	// The port is a 100 Gbit/s one with a copper cable. Exactly one type, or
	// the driver does not know the medium (ice_common.c:ice_get_media_type).
	type100GCR4 = 1 << 51 // ICE_PHY_TYPE_LOW_100GBASE_CR4
	speed100G   = 1 << 10 // ICE_AQ_LINK_SPEED_100GB

	phyEnableLink = 1 << 3
	phyCapsValid  = 0xef // ICE_AQ_PHY_ENA_VALID_MASK
	phyAutoUpdate = 1 << 5
	phyAutoFEC    = 1 << 7
	phyClause73   = 1 << 2      // ICE_AQC_PHY_AN_EN_CLAUSE73, of low_power_ctrl_an
	fecRSAbility  = 1 << 6      // ICE_AQC_PHY_FEC_25G_RS_CLAUSE91_EN
	fecRSRequest  = 1<<2 | 1<<4 // ICE_AQC_PHY_FEC_25G_RS_528_REQ, _544_REQ
	fecRS         = fecRSAbility | 1<<2

	linkUp          = 1 << 0
	linkUpPort      = 1 << 5
	linkMedia       = 1 << 6
	linkSignal      = 1 << 7
	anCompleted     = 1 << 0
	anQualified     = 1 << 7
	linkFEC         = 1 << 1 // ICE_AQ_LINK_25G_RS_528_FEC_EN
	lseDisable      = 2
	lseEnable       = 3
	lseIsEnabled    = 1
	lseMask         = 3
	eventUpDown     = 1 << 1 // ICE_AQ_LINK_EVENT_UPDOWN
	anRestart       = 1 << 1
	anLinkEnable    = 1 << 2
	maxFrame        = 9728 // ICE_AQ_SET_MAC_FRAME_SIZE_MAX
	minFrame        = 64
	portOptionValid = 1 << 7
	portOption100G  = 7
	macLoopback     = 1 << 0 // ICE_AQ_MAC_LB_EN
	ledBlink        = 1 << 0 // ICE_AQC_PORT_IDENT_LED_BLINK
	opGetLinkStatus = 0x0607
	nameLinkStatus  = "get_link_status"
	moduleIdentQSFP = 0x11 // SFF-8024: QSFP28 or later
	moduleCopper    = 1 << 3
)

// phyConfig is what the driver configures with 0x0601.
type phyConfig struct {
	typeLow, typeHigh   uint64
	caps, lowPower      uint8
	eee, eeer           uint16
	fec, moduleEnforced uint8
}

// linkState is the port's PHY, MAC and link events.
type linkState struct {
	carrier  bool // what the medium gives
	config   phyConfig
	maxFrame uint16
	pacing   uint8
	loopback bool // the MAC returns what it is given to send
	blink    bool // the port's LED blinks for someone to find it

	// The timers of pause frames, by priority; the last are for all of them.
	pauseQuanta, pauseRefresh reg.Cells

	events bool   // the driver wants link events
	armed  bool   // and has not been sent one since it asked
	mask   uint16 // kinds it does not want
}

// defaultPHY is what the port with its cable is capable of, and what it does
// until configured: a clause that must negotiate, FEC that must be there, and
// no pause frames, which no segment sends or heeds.
var defaultPHY = phyConfig{typeLow: type100GCR4, caps: phyEnableLink, lowPower: phyClause73, fec: fecRS}

func (l *linkState) restoreConfig() {
	l.config = defaultPHY
	l.maxFrame = maxFrame
	l.pacing = 0
	l.loopback, l.blink = false, false
}

// listen turns link events on or off.
func (l *linkState) listen(on bool) { l.events, l.armed = on, on }

// up is whether frames pass.
func (l *linkState) up() bool {
	return l.carrier && l.config.caps&phyEnableLink != 0 && l.config.typeLow&type100GCR4 != 0
}

// negotiated is whether the link is the outcome of auto-negotiation.
func (l *linkState) negotiated() bool { return l.up() && l.config.lowPower&phyClause73 != 0 }

// fecOn is whether the link has the one FEC that the PHY knows: it has if the
// driver asks for it or leaves the choice to the PHY.
func (l *linkState) fecOn() bool {
	c := &l.config
	return l.up() && (c.fec&fecRSRequest != 0 || c.caps&phyAutoFEC != 0 && c.fec&fecRSAbility != 0)
}

// LinkUp says whether frames pass: the medium has a carrier and the driver
// has not switched the PHY off.
func (f *Firmware) LinkUp() bool { return f.link.up() }

// SetLink is the carrier of the medium coming or going.
func (f *Firmware) SetLink(up bool) {
	f.changeLink(func(l *linkState) { l.carrier = up })
}

// changeLink applies a change and tells the driver if the link changed by it.
// So does one that leaves it up with another FEC or negotiation: on a wire it
// would be down meanwhile, and the driver asks for its status only then.
func (f *Firmware) changeLink(change func(*linkState)) {
	l := &f.link
	up, negotiated, fec := l.up(), l.negotiated(), l.fecOn()
	change(l)
	f.sw.touch(stalePort)
	f.steer()
	if l.up() != up {
		f.emit(LinkChange{l.up()})
	}
	if l.up() != up || l.negotiated() != negotiated || l.fecOn() != fec {
		f.linkEvent()
	}
}

// linkEvent sends a link event. There is one for each time that the driver
// asks for the status with events enabled; what it then reads is current.
func (f *Firmware) linkEvent() {
	l := &f.link
	if !l.armed || l.mask&eventUpDown != 0 {
		return
	}
	l.armed = false
	m := notice{op: opGetLinkStatus, name: nameLinkStatus, data: make([]byte, linkStatusSize)}
	m.params[0] = lport
	le.PutUint16(m.params[2:], lseIsEnabled)
	l.fill(m.data)
	f.notify(m)
}

// fill writes struct ice_aqc_get_link_status_data.
func (l *linkState) fill(b []byte) {
	clear(b[:linkStatusSize])
	b[2] = linkMedia
	if l.carrier {
		b[2] |= linkSignal | linkUpPort
	}
	b[3] = anQualified
	le.PutUint16(b[6:], l.maxFrame)
	b[8] = l.pacing
	if l.up() {
		b[2] |= linkUp
		le.PutUint16(b[10:], speed100G)
		le.PutUint64(b[16:], type100GCR4)
	}
	if l.negotiated() {
		b[3] |= anCompleted
	}
	if l.fecOn() {
		b[8] |= linkFEC
	}
}

func (f *Firmware) linkStatus(r *request) errno {
	p := r.p()
	if p[0] != lport {
		return rcEINVAL
	}
	l := &f.link
	switch le.Uint16(p[2:]) & lseMask {
	case lseEnable:
		l.listen(true)
	case lseDisable:
		l.listen(false)
	}
	var flags uint16
	if l.events {
		flags = lseIsEnabled
	}
	le.PutUint16(p[2:], flags)
	l.fill(r.buf)
	r.n = linkStatusSize
	return rcOK
}

func (f *Firmware) setEventMask(r *request) errno {
	p := r.p()
	if p[0] != lport {
		return rcEINVAL
	}
	f.link.mask = le.Uint16(p[8:])
	return rcOK
}

// phyCaps reports what the port can do, or what is configured. The cable is
// always plugged in.
func (f *Firmware) phyCaps(r *request) errno {
	p := r.p()
	if p[0] != lport {
		return rcEINVAL
	}
	c := defaultPHY
	switch le.Uint16(p[2:]) & reportModeMask {
	case reportActive:
		c = f.link.config
	case reportNoMedia, reportMedia, reportDefault:
	default:
		return rcEINVAL
	}
	b := r.buf
	le.PutUint64(b[0:], c.typeLow)
	le.PutUint64(b[8:], c.typeHigh)
	b[16], b[17] = c.caps, c.lowPower
	le.PutUint16(b[18:], c.eee)
	le.PutUint16(b[20:], c.eeer)
	b[34], b[35] = c.fec, c.moduleEnforced
	b[37], b[38] = moduleIdentQSFP, moduleCopper
	r.n = phyCapsSize
	return rcOK
}

// setPhyConfig stores the configuration; it takes effect at once, with or
// without the automatic link update.
func (f *Firmware) setPhyConfig(r *request) errno {
	b := r.buf
	c := phyConfig{
		typeLow: le.Uint64(b[0:]), typeHigh: le.Uint64(b[8:]),
		caps: b[16] & phyCapsValid &^ phyAutoUpdate, lowPower: b[17],
		eee: le.Uint16(b[18:]), eeer: le.Uint16(b[20:]),
		fec: b[22], moduleEnforced: b[23],
	}
	if r.p()[0] != lport || c.typeLow&^type100GCR4 != 0 || c.typeHigh != 0 || c.fec&^(fecRSAbility|fecRSRequest) != 0 {
		return rcEINVAL // another type, or a FEC that this one has not
	}
	r.n = 0
	f.changeLink(func(l *linkState) { l.config = c })
	return rcOK
}

func (f *Firmware) restartAN(r *request) errno {
	p := r.p()
	if p[0] != lport {
		return rcEINVAL
	}
	f.changeLink(func(l *linkState) {
		l.config.caps &^= phyEnableLink
		if p[2]&anLinkEnable != 0 {
			l.config.caps |= phyEnableLink
		}
	})
	return rcOK
}

func (f *Firmware) setMACConfig(r *request) errno {
	p := r.p()
	size := le.Uint16(p[0:])
	if size < minFrame || size > maxFrame {
		return rcEINVAL
	}
	f.link.maxFrame = size
	f.sw.touch(stalePort)
	f.link.pacing = p[2] & 0xf8 // ICE_AQ_SET_MAC_PACE_M, _PACE_TYPE_M
	l, priorities := &f.link, p[3]
	for i := range pauseTimers {
		// No priority means the timers of the whole link, the last ones
		// (ice_common.c:ice_fill_tx_timer_and_fc_thresh).
		if last := i == pauseTimers-1; priorities>>i&1 != 0 || last && priorities == 0 {
			l.pauseQuanta.Set(i, uint32(le.Uint16(p[4:])))
			l.pauseRefresh.Set(i, uint32(le.Uint16(p[6:])))
		}
	}
	return rcOK
}

// pauseTimers is how many timers there are: one for each priority and one.
const pauseTimers = 9

// setLoopback makes the MAC return what it is given to send, or ends that.
func (f *Firmware) setLoopback(r *request) errno {
	f.link.loopback = r.p()[0]&macLoopback != 0
	f.sw.touch(stalePort)
	return rcOK
}

// setLED makes the port's LED blink, or show the link again.
func (f *Firmware) setLED(r *request) errno {
	p := r.p()
	if p[1]&1 != 0 && p[0] != lport {
		return rcEINVAL
	}
	if blink := p[2]&ledBlink != 0; blink != f.link.blink {
		f.link.blink = blink
		f.emit(PortLED{blink})
	}
	return rcOK
}

// linkTopology looks for a node of the board's netlist, which is empty.
func (f *Firmware) linkTopology(*request) errno { return rcENOENT }

// portOptions lists the ways in which lane 0 can be used: as one port.
func (f *Firmware) portOptions(r *request) errno {
	p := r.p()
	if p[1]&1 != 0 && p[0] != lport {
		return rcEINVAL
	}
	p[2], p[3] = 1, 0
	p[4], p[5] = portOptionValid, 0 // option 0 is active, none is pending
	r.buf[0], r.buf[1] = 1, portOption100G
	r.n = portOptionSize
	return rcOK
}
