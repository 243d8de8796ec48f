// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"math/bits"
)

// Link is the state of the port (ice_adminq_cmd.h:ice_aqc_get_link_status_data).
type Link struct {
	Up       bool
	Media    bool
	Speed    uint16 // one bit, ICE_AQ_LINK_SPEED_*
	PHYType  uint64
	MaxFrame uint16
	Events   bool // the device sends events on changes
}

// ICE_AQ_LINK_SPEED_100GB is the bit of 100 Gb/s.
const ICE_AQ_LINK_SPEED_100GB = 1 << 10

// What 0x0607 does to link status events: they are off, or the next one is
// asked for.
const (
	lseDisable = 2
	lseEnable  = 3
)

// Report modes of 0x0600.
const (
	phyNoMedia = 0 << 1
	phyMedia   = 1 << 1
	phyActive  = 2 << 1

	phyCapLinkEnabled = 1 << 3
	phyAutoLinkUpdate = 1 << 5
	phyCapsSize       = 560
)

// updateLink is ice_common.c:ice_aq_get_link_info.
func (i *ICE) updateLink(lse byte) error {
	const size = 32
	c := &Command{Op: ice_aqc_opc_get_link_status, Buf: make([]byte, size)}
	c.P[0] = byte(i.lport)
	c.P[2] = lse
	if err := i.aq.do(c); err != nil {
		return err
	}
	if c.Len != size {
		return c.wrong("%d bytes", c.Len)
	}
	b := c.Buf
	i.Link = Link{
		Up:       b[2]&1 != 0,
		Media:    b[2]&(1<<6) != 0,
		MaxFrame: le.Uint16(b[6:]),
		Speed:    le.Uint16(b[10:]),
		PHYType:  le.Uint64(b[16:]),
		Events:   c.P[2]&1 != 0,
	}
	if high := le.Uint64(b[24:]); bits.OnesCount64(i.Link.PHYType)+bits.OnesCount64(high) > 1 {
		return c.wrong("several PHY types: %#x %#x", i.Link.PHYType, high)
	}
	return nil
}

func (i *ICE) phyCaps(mode uint16) ([]byte, error) {
	c := &Command{Op: ice_aqc_opc_get_phy_caps, Buf: make([]byte, phyCapsSize)}
	c.P[0] = byte(i.lport)
	c.put16(2, mode)
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	return c.Buf, nil
}

// queryLink is the link part of ice_common.c:ice_init_hw.
func (i *ICE) queryLink() error {
	if _, err := i.phyCaps(phyMedia); err != nil {
		return tolerate(err)
	}
	return i.updateLink(lseDisable)
}

// initLink is ice_main.c:ice_init_link.
func (i *ICE) initLink() error {
	const up, topology, media, overtemp = 1 << 1, 1 << 8, 1 << 2, 1 << 9
	c := &Command{Op: ice_aqc_opc_set_event_mask}
	c.P[0] = byte(i.lport)
	c.put16(8, ^uint16(up|topology|media|overtemp))
	if err := i.aq.do(c); err != nil {
		return err
	}
	if err := i.updateLink(lseEnable); err != nil {
		return err
	}
	if !i.Link.Events {
		return broken("link events are not on after 0x0607 with enable")
	}
	if _, err := i.phyCaps(phyNoMedia); err != nil {
		return err
	}
	if err := i.updateLink(lseEnable); err != nil {
		return err
	}
	if !i.Link.Media {
		return nil // the service task would look again every second
	}
	if _, err := i.findPFA(linkOverride); err != nil {
		return err
	}
	return i.configurePHY()
}

// configurePHY is ice_main.c:ice_phy_cfg: it turns the link on unless the
// active configuration says that it is.
func (i *ICE) configurePHY() error {
	media, err := i.phyCaps(phyMedia)
	if err != nil {
		return err
	}
	active, err := i.phyCaps(phyActive)
	if err != nil {
		return err
	}
	if active[16]&phyCapLinkEnabled != 0 && bytes.Equal(active[:22], media[:22]) && active[34] == media[34] {
		return nil
	}
	c := &Command{Op: ice_aqc_opc_set_phy_cfg, RD: true, Buf: make([]byte, 24)}
	c.P[0] = byte(i.lport)
	copy(c.Buf, media[:16])
	c.Buf[16] = active[16] | phyCapLinkEnabled | phyAutoLinkUpdate
	c.Buf[17] = media[17]
	copy(c.Buf[18:22], media[18:22])
	c.Buf[22] = media[34]
	if err := i.aq.do(c); err != nil && aqCode(err) != AQEMODE {
		return err
	}
	return nil
}

// initDCB is the software path of ice_dcb_lib.c:ice_init_pf_dcb.
func (i *ICE) initDCB() error {
	if status := i.F.Read32(PRTDCB_GENS) & 7; i.F.Err() == nil && status != prtdcbGensDisable {
		return broken("PRTDCB_GENS is %d, firmware does DCBX", status)
	}
	const vlanBased = 1
	c, err := i.direct(ice_aqc_opc_set_pfc_mode, vlanBased)
	if err != nil {
		return err
	}
	if c.P[0] != vlanBased {
		return c.wrong("mode %d", c.P[0])
	}
	mib := &Command{Op: ice_aqc_opc_lldp_set_local_mib, RD: true, Buf: etsTLV()}
	mib.put16(2, uint16(len(mib.Buf)))
	if err := i.aq.do(mib); err != nil {
		return err
	}
	for range 2 {
		if err := i.sched.queryETS(); err != nil {
			return err
		}
	}
	return i.addLLDPRule()
}

// addLLDPRule brings frames of LLDP to the PF VSI.
func (i *ICE) addLLDPRule() error {
	const lldp = 0x88cc
	return i.addRule(ethertypeRule(ruleRx, i.lport, lldp, uint32(i.main.num)<<4|actValid))
}

// etsTLV is an IEEE 802.1Qaz ETS configuration: everything in one class.
func etsTLV() []byte {
	const size, vendor = 25, 127
	b := make([]byte, 2+size)
	head := uint16(vendor<<9 | size)
	b[0], b[1] = byte(head>>8), byte(head)
	copy(b[2:], []byte{0x00, 0x80, 0xc2, 0x09})
	b[11] = 100 // bandwidth of class 0
	return b
}
