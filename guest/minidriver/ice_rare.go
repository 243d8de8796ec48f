// SPDX-License-Identifier: Apache-2.0

package minidriver

// Admin commands that no life of a driver needs.

// schedElem is an element of the Tx scheduler as 0x0404 shows it.
func (i *ICE) schedElem(teid uint32) ([]byte, error) {
	c := &Command{Op: ice_aqc_opc_get_sched_elems, RD: true, Buf: make([]byte, schedElemSize)}
	c.put16(0, 1)
	le.PutUint32(c.Buf[4:], teid)
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	if c.u16(2) != 1 {
		return nil, c.wrong("%d elements", c.u16(2))
	}
	return c.Buf, nil
}

// configureElem changes an element (ice_sched.c:ice_sched_update_elem).
func (i *ICE) configureElem(elem []byte) error {
	c := &Command{Op: ice_aqc_opc_cfg_sched_elems, RD: true, Buf: append([]byte(nil), elem...)}
	c.put16(0, 1)
	// The parent is reserved there.
	clear(c.Buf[:4])
	if err := i.aq.do(c); err != nil {
		return err
	}
	if c.u16(2) != 1 {
		return c.wrong("%d elements", c.u16(2))
	}
	return nil
}

// pauseElem suspends or resumes an element (ice_sched.c:ice_sched_suspend_resume_elems).
func (i *ICE) pauseElem(teid uint32, suspend bool) error {
	c := &Command{Op: ice_aqc_opc_resume_sched_elems, RD: true, Buf: le.AppendUint32(nil, teid)}
	if suspend {
		c.Op = ice_aqc_opc_suspend_sched_elems
	}
	c.put16(0, 1)
	if err := i.aq.do(c); err != nil {
		return err
	}
	if c.u16(2) != 1 {
		return c.wrong("%d elements", c.u16(2))
	}
	return nil
}

// rateProfile is a profile of a rate limit (ice_adminq_cmd.h:ice_aqc_rl_profile_elem).
// for elements of a layer, as the driver counts them.
func rateProfile(layer int, id uint16) []byte {
	const size, eir = 12, 1
	b := make([]byte, size)
	b[0], b[1] = byte(layer+1), eir
	le.PutUint16(b[2:], id)
	le.PutUint16(b[4:], 15360)
	le.PutUint16(b[6:], 0x100)
	return b
}

// addRateProfile makes one (ice_sched.c:ice_sched_add_rl_profile).
func (i *ICE) addRateProfile(layer int) (id uint16, err error) {
	c := &Command{Op: ice_aqc_opc_add_rl_profiles, RD: true, Buf: rateProfile(layer, 0)}
	c.put16(0, 1)
	if err := i.aq.do(c); err != nil {
		return 0, err
	}
	if c.u16(2) != 1 {
		return 0, c.wrong("%d profiles", c.u16(2))
	}
	return le.Uint16(c.Buf[2:]), nil
}

// removeRateProfile removes it (ice_sched.c:ice_sched_del_rl_profile).
func (i *ICE) removeRateProfile(layer int, id uint16) error {
	c := &Command{Op: ice_aqc_opc_remove_rl_profiles, RD: true, Buf: rateProfile(layer, id)}
	c.put16(0, 1)
	return i.aq.do(c)
}

// setMAC is ice_common.c:ice_aq_manage_mac_write.
func (i *ICE) setMAC(mac [6]byte) error {
	const updateLAA = 1 << 6
	c := &Command{Op: ice_aqc_opc_manage_mac_write}
	c.P[1] = updateLAA
	copy(c.P[2:], mac[:])
	return i.aq.do(c)
}
