// SPDX-License-Identifier: Apache-2.0

package minidriver

import "fmt"

// VSI is one of ours at the device.
type VSI struct {
	num    uint16
	node   *schedNode // in the Tx scheduler
	lan    *schedNode // queue group of LAN queues
	rdma   *schedNode // queue group of RDMA queue sets
	qopt   [3]byte    // queueing options as last sent: RSS, TC, flags
	queues int
}

// VSI context (ice_adminq_cmd.h:ice_aqc_vsi_props).
const (
	vsiPropsSize = 128
	vsiNumValid  = 1 << 15
	vsiTypePF    = 2

	propSwitch   = 1 << 0
	propSecurity = 1 << 1
	propVLAN     = 1 << 2
	propQueueOpt = 1 << 7
	propFD       = 1 << 11

	swFlagAllowLoopback  = 1 << 5
	swFlagSourcePrune    = 1 << 7
	swFlag2VLANPrune     = 1 << 0
	swFlag2LANEnable     = 1 << 4
	secAllowDestOverride = 1 << 0
	vlanTxAll            = 3
	vlanStrip            = 0 << 3
	vlanKeep             = 3 << 3
	qoptLUTPF            = 2
	qoptPEFilterEnable   = 1 << 0
)

// addVSI is ice_lib.c:ice_vsi_init with the scheduler part of ice_vsi_cfg_def.
func (i *ICE) addVSI(firstQueue, queues int, valid uint16) (*VSI, error) {
	b := make([]byte, vsiPropsSize)
	le.PutUint16(b, valid)
	b[2] = byte(i.swID)
	b[3] = swFlagSourcePrune | swFlagAllowLoopback
	b[4] = swFlag2LANEnable
	b[6] = secAllowDestOverride
	b[12] = vlanTxAll | vlanKeep
	for up := range uint32(8) {
		table := le.Uint32(b[16:]) | up<<(3*up)
		le.PutUint32(b[16:], table)
		le.PutUint32(b[20:], table)
		le.PutUint32(b[84:], table)
	}
	le.PutUint16(b[30:], uint16(firstQueue))
	le.PutUint16(b[32:], uint16(queues))
	log2 := 0
	for 1<<log2 < queues {
		log2++
	}
	le.PutUint16(b[62:], uint16(log2)<<11)
	b[78] = qoptLUTPF
	if valid&propFD != 0 {
		le.PutUint16(b[90:], 0x9)
	}
	c := &Command{Op: ice_aqc_opc_add_vsi, RD: true, Buf: b}
	c.put16(6, vsiTypePF)
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	v := &VSI{num: c.u16(0) & 0x3ff, queues: queues, qopt: [3]byte(b[78:81])}
	if int(v.num) >= 768 || c.Len != vsiPropsSize {
		return nil, c.wrong("VSI %d, %d bytes", v.num, c.Len)
	}
	return v, nil
}

// scheduleVSI puts a VSI and its LAN queue group into the Tx scheduler.
func (i *ICE) scheduleVSI(v *VSI) error {
	var err error
	if v.node, err = i.sched.addVSI(); err != nil {
		return err
	}
	if v.lan, err = i.sched.addQueueGroup(v.node); err != nil {
		return err
	}
	return nil
}

func (i *ICE) updateVSI(v *VSI, sections uint16, fill func(b []byte)) error {
	c := &Command{Op: ice_aqc_opc_update_vsi, RD: true, Buf: make([]byte, vsiPropsSize)}
	le.PutUint16(c.Buf, sections)
	fill(c.Buf)
	c.put16(0, v.num|vsiNumValid)
	return i.aq.do(c)
}

// dropVSI removes a VSI with its part of the scheduler (ice_lib.c:ice_vsi_release).
func (i *ICE) dropVSI(v *VSI) error {
	if v == nil {
		return nil
	}
	if v.node != nil {
		if err := i.sched.free(v.node); err != nil {
			return err
		}
	}
	c := &Command{Op: ice_aqc_opc_free_vsi}
	c.put16(0, v.num|vsiNumValid)
	return i.aq.do(c)
}

// initMainVSI is ice_lib.c:ice_vsi_setup for the PF VSI.
func (i *ICE) initMainVSI() error {
	n := len(i.lanV)
	var err error
	if i.main, err = i.addVSI(0, n, propSecurity|propFD); err != nil {
		return err
	}
	if err := i.initRSS(); err != nil {
		return err
	}
	if err := i.scheduleVSI(i.main); err != nil {
		return err
	}
	const pause, lldp = 0x8808, 0x88cc
	for _, ethertype := range []uint16{pause, lldp} {
		if err := i.addRule(ethertypeRule(ruleTx, i.main.num, ethertype, actDrop|actValid)); err != nil {
			return err
		}
	}
	if err := i.sched.moveToAggregator(i.main.node); err != nil {
		return err
	}
	i.F.Read32(PFPM_WUS)
	i.F.Write32(PFPM_WUS, 0xffffffff)
	return i.F.Err()
}

// SetRSSTable gives the PF's table: the queues by hash (ice_common.c:ice_aq_set_rss_lut).
func (i *ICE) SetRSSTable(queues []byte) error {
	lut := &Command{Op: ice_aqc_opc_set_rss_lut, RD: true, Buf: append([]byte(nil), queues...)}
	const typePF, size2K = 1, 2 << 2
	lut.put16(0, i.main.num|vsiNumValid)
	lut.put16(2, typePF|size2K)
	return i.aq.do(lut)
}

// SetRSSKey gives the main VSI's key: the standard part, or with the extension.
func (i *ICE) SetRSSKey(k []byte) error {
	key := &Command{Op: ice_aqc_opc_set_rss_key, RD: true, Buf: make([]byte, 52)}
	copy(key.Buf, k)
	key.put16(0, i.main.num|vsiNumValid)
	return i.aq.do(key)
}

func (i *ICE) initRSS() error {
	lut := make([]byte, i.Caps.RSSTable)
	for n := range lut {
		lut[n] = byte(n % i.main.queues)
	}
	if err := i.SetRSSTable(lut); err != nil {
		return err
	}
	key := make([]byte, 52)
	for n := range key {
		key[n] = byte(7*n + 1)
	}
	if err := i.SetRSSKey(key); err != nil {
		return err
	}
	for range 4 {
		if err := i.addProfile(ICE_AQC_RES_TYPE_HASH_PROF_BLDR_PROFID, ICE_AQC_RES_TYPE_HASH_PROF_BLDR_TCAM, ICE_SID_XLT1_RSS); err != nil {
			return err
		}
	}
	return nil
}

// initFlowDirector is ice_main.c:ice_init_fdir: the control VSI with its queue.
func (i *ICE) initFlowDirector() error {
	var err error
	if i.ctrl, err = i.addVSI(len(i.lanV), 1, propSecurity|propFD); err != nil {
		return err
	}
	if err := i.scheduleVSI(i.ctrl); err != nil {
		return err
	}
	if err := i.sched.moveToAggregator(i.ctrl.node); err != nil {
		return err
	}
	if i.ctrlQueue, err = i.openQueue(i.ctrl, len(i.lanV), i.ctrlV, 0); err != nil {
		return err
	}
	for range 4 {
		if err := i.addProfile(ICE_AQC_RES_TYPE_FD_PROF_BLDR_PROFID, ICE_AQC_RES_TYPE_FD_PROF_BLDR_TCAM, ICE_SID_XLT1_FD); err != nil {
			return err
		}
	}
	return nil
}

func (i *ICE) dropFlowDirector() error {
	if i.ctrl == nil {
		return nil
	}
	if err := i.dropProfiles(ICE_AQC_RES_TYPE_FD_PROF_BLDR_PROFID, ICE_SID_XLT1_FD); err != nil {
		return err
	}
	if i.ctrlQueue != nil {
		if err := i.closeQueues(i.ctrlQueue); err != nil {
			return err
		}
		i.ctrlQueue = nil
	}
	err := i.dropVSI(i.ctrl)
	i.ctrl = nil
	return err
}

// RDMAFilter steers RoCE frames of the PF VSI to the protocol engine or back
// (ice_switch.c:ice_cfg_rdma_fltr).
func (i *ICE) RDMAFilter(enable bool) error {
	v := i.main
	v.qopt[2] &^= qoptPEFilterEnable
	if enable {
		v.qopt[2] |= qoptPEFilterEnable
	}
	return i.updateVSI(v, propQueueOpt, func(b []byte) { copy(b[78:], v.qopt[:]) })
}

// rdmaQset is a queue set in the LAN's scheduler: what a work scheduler leaf
// of the RDMA engine stands on.
type rdmaQset struct {
	handle uint16
	leaf   *schedNode
}

// addQset is ice_idc.c:ice_add_rdma_qset.
func (i *ICE) addQset(handle uint16) (*rdmaQset, error) {
	v := i.main
	if v.rdma == nil {
		var err error
		if v.rdma, err = i.sched.addQueueGroup(v.node); err != nil {
			return nil, err
		}
	}
	const header = 8
	c := &Command{Op: ice_aqc_opc_add_rdma_qset, RD: true, Buf: make([]byte, header+24)}
	c.P[0] = 1
	le.PutUint32(c.Buf, v.rdma.teid)
	le.PutUint16(c.Buf[4:], 1)
	e := c.Buf[header:]
	le.PutUint16(e, handle)
	putQueueElem(e[8:])
	if err := i.aq.do(c); err != nil {
		return nil, err
	}
	leaf, err := i.sched.leaf(v.rdma, le.Uint32(e[4:]))
	return &rdmaQset{handle, leaf}, err
}

// putQueueElem fills the scheduler data of a new leaf (ice_ena_vsi_txq,
// ice_ena_vsi_rdma_qset).
func putQueueElem(e []byte) {
	e[0] = ICE_AQC_ELEM_TYPE_LEAF
	e[1] = schedValidParts
	le.PutUint16(e[6:], schedDefaultBW)
	le.PutUint16(e[10:], schedDefaultBW)
}

// dropQset is ice_common.c:ice_dis_vsi_rdma_qset.
func (i *ICE) dropQset(q *rdmaQset) error {
	const rdmaQueueSet = 1 << 15
	if err := i.disableQueue(q.leaf, q.handle|rdmaQueueSet); err != nil {
		return fmt.Errorf("queue set %d: %w", q.handle, err)
	}
	i.sched.forget(q.leaf)
	return nil
}
