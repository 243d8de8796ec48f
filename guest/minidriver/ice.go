// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
)

// Options are what a user of the machine decides.
type Options struct {
	// CPUs of the guest; 0 means 2.
	CPUs int
	// Step is called before each step of a driver with its name. An error ends
	// the driver there.
	Step func(name string) error
	// NoLargePages makes allocations of 2 MiB for PBLEs fail, so that their
	// segment descriptors are paged ones.
	NoLargePages bool
	// NoPDINV is a fault: PFHMC_PDINV is never written.
	NoPDINV bool
	// MTU of the interface; 0 means 1500.
	MTU int
}

func (o Options) cpus() int {
	if o.CPUs == 0 {
		return 2
	}
	return o.CPUs
}

// step is one stage of a driver.
type step struct {
	name string
	do   func() error
}

func (o Options) run(driver string, steps []step) error {
	for _, s := range steps {
		if o.Step != nil {
			if err := o.Step(s.name); err != nil {
				return fmt.Errorf("%s: before %s: %w", driver, s.name, err)
			}
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %s: %w", driver, s.name, err)
		}
	}
	return nil
}

// ICE is the ice driver bound to a Function.
type ICE struct {
	F      *Function
	Kernel Kernel
	PF     int     // function number
	MAC    [6]byte // permanent address
	NVM    NVM
	Caps   Caps
	Link   Link
	Pkg    Package // what the device says is active

	opts  Options
	mem   arena
	aq    adminQueue
	mbx   adminQueue
	lport uint16
	swID  uint16
	sched scheduler
	misc  *Vector
	lanV  []*Vector // by PF queue
	ctrlV *Vector
	rdmaV []*Vector

	fdCounter uint16
	main      *VSI
	ctrl      *VSI
	rules     []rule
	profiles  []profile
	queues    []*queuePair // of the PF VSI, while open
	ctrlQueue *queuePair
	vlans     []vlan
	fwlog     bool

	wasOpen       bool // before a reset
	lostResources bool // by a reset, with all that firmware had allocated
}

// Probe binds ice to the function, as far as register_netdev and the auxiliary
// device (ice_main.c:ice_probe). On error the ICE is returned too, for Abandon.
func Probe(f *Function, k Kernel, o Options) (*ICE, error) {
	i := &ICE{F: f, Kernel: k, opts: o}
	i.aq.flushTail = k.FlushesTail
	return i, o.run("ice", i.probeSteps())
}

func (i *ICE) probeSteps() []step {
	steps := []step{
		{"identity", i.identify},
		{"PF reset", i.pfReset},
		{"control queues", i.initControlQueues},
		{"clear configuration", i.clearConfig},
		{"NVM", i.initNVM},
		{"capabilities", i.initCaps},
		{"switch configuration", i.initSwitch},
		{"scheduler", i.initScheduler},
		{"link query", i.queryLink},
		{"MAC address", i.initMAC},
		{"FD counter", i.initFDCounter},
		{"package", i.initPackage},
		{"FD pools", i.initFDPools},
		{"vectors", i.initVectors},
		{"misc vector", i.enableMisc},
		{"port parameters", i.setPortParams},
		{"PF VSI", i.initMainVSI},
	}
	version, macs := step{"driver version", i.sendVersion}, step{"MAC rules", i.addMACRules}
	link := step{"link", i.initLink}
	if i.Kernel.VersionFirst {
		steps = append(steps, macs, version, link)
	} else {
		steps = append(steps, link, version, macs)
	}
	return append(steps,
		step{"flow director", i.initFlowDirector},
		step{"DCB", i.initDCB},
		step{"RDMA vectors", i.initRDMAVectors},
	)
}

// Remove unbinds ice; irdma must be gone (ice_main.c:ice_remove). It goes on
// after an error and returns the first.
func (i *ICE) Remove() error {
	var first error
	note := func(what string, err error) {
		if err != nil && first == nil {
			first = fmt.Errorf("ice: removing %s: %w", what, err)
		}
	}
	if i.queues != nil {
		note("queues", i.Close())
	}
	note("flow director", i.dropFlowDirector())
	note("rules", i.dropRules())
	note("PF VSI", i.dropVSI(i.main))
	i.disableMisc()
	err := i.freeResource(ICE_AQC_RES_TYPE_FDIR_COUNTER_BLOCK, i.fdCounter)
	if i.lostResources { // the driver does not allocate it again, and does not look
		err = tolerate(err)
	}
	note("FD counter", err)
	note("scheduler", i.sched.dropAll())
	note("queue shutdown", i.shutdownControlQueues(true))
	note("function", i.pfReset())
	i.F.Write32(PFPM_APM, 0)
	i.F.Write32(PFPM_WUFC, 0)
	note("transactions", i.F.pendingTransactions())
	note("vectors", i.F.dropVectors())
	i.Abandon()
	return first
}

// Abandon frees all memory without telling the device: right after a reset, or
// when the device is gone.
func (i *ICE) Abandon() {
	if i.F.err == nil {
		if err := i.F.dropVectors(); err != nil {
			i.F.fail(err)
		}
	}
	i.mem.freeAll()
	i.queues = nil
}

// Trace are the opcodes of all admin commands so far, in order.
func (i *ICE) Trace() []uint16 { return append([]uint16(nil), i.aq.trace...) }

// VSI is the number of the PF's VSI.
func (i *ICE) VSI() uint16 { return i.main.num }

// Misc is the vector of the admin queue's events and of OICR.
func (i *ICE) Misc() *Vector { return i.misc }

// Do sends any admin command; a test of the unexpected.
func (i *ICE) Do(c *Command) error { return i.aq.do(c) }

// direct sends a command without buffer.
func (i *ICE) direct(op uint16, p ...byte) (*Command, error) {
	c := &Command{Op: op}
	copy(c.P[:], p)
	return c, i.aq.do(c)
}

// tolerate drops an error code of the firmware: the drivers go on without.
func tolerate(err error) error {
	if aqCode(err) != AQOK {
		return nil
	}
	return err
}

func (i *ICE) identify() error {
	if i.Kernel.ReadsFWSM && i.F.Read32(GL_MNG_FWSM)&fwsmRecoveryMode != 0 {
		return broken("GL_MNG_FWSM says recovery mode")
	}
	i.PF = int(i.F.Read32(PF_FUNC_RID) & 7)
	return i.F.Err()
}

// pfReset is ice_common.c:ice_pf_reset.
func (i *ICE) pfReset() error {
	f := i.F
	if stat := f.Read32(GLGEN_RSTAT); f.Err() == nil && stat&3 != 0 {
		return broken("GLGEN_RSTAT is %#x outside of a reset", stat)
	}
	if uld := f.Read32(GLNVM_ULD); f.Err() == nil && uld&glnvmULDDone != glnvmULDDone {
		return broken("GLNVM_ULD is %#x", uld)
	}
	f.Write32(PFGEN_CTRL, f.Read32(PFGEN_CTRL)|pfgenCtrlPFSWR)
	return f.poll("PFGEN_CTRL.PFSWR", func() bool { return f.Read32(PFGEN_CTRL)&pfgenCtrlPFSWR == 0 })
}

// Reset does a PF reset that nobody prepared for. The drivers must be abandoned
// then.
func (i *ICE) Reset() error { return i.pfReset() }

func (i *ICE) initControlQueues() error {
	f := i.F
	f.Read32(GL_PWR_MODE_CTL)
	atq := ctrlRegs{PF_FW_ATQBAL, PF_FW_ATQBAH, PF_FW_ATQLEN, PF_FW_ATQH, PF_FW_ATQT}
	arq := ctrlRegs{PF_FW_ARQBAL, PF_FW_ARQBAH, PF_FW_ARQLEN, PF_FW_ARQH, PF_FW_ARQT}
	if err := i.aq.send.setup(f, &i.mem, "PF_FW_ATQ", atq, aqEntries); err != nil {
		return err
	}
	if err := i.aq.recv.setupReceive(f, &i.mem, "PF_FW_ARQ", arq, aqEntries); err != nil {
		return err
	}
	ver, err := i.direct(ice_aqc_opc_get_ver)
	if err != nil {
		return err
	}
	if major := ver.P[13]; major > 1 {
		return ver.wrong("API version %d.%d", major, ver.P[14])
	}
	matq := ctrlRegs{PF_MBX_ATQBAL, PF_MBX_ATQBAH, PF_MBX_ATQLEN, PF_MBX_ATQH, PF_MBX_ATQT}
	marq := ctrlRegs{PF_MBX_ARQBAL, PF_MBX_ARQBAH, PF_MBX_ARQLEN, PF_MBX_ARQH, PF_MBX_ARQT}
	if err := i.mbx.send.setup(f, &i.mem, "PF_MBX_ATQ", matq, mbxSendEntries); err != nil {
		return err
	}
	if err := i.mbx.recv.setupReceive(f, &i.mem, "PF_MBX_ARQ", marq, mbxRecvEntries); err != nil {
		return err
	}
	if i.Kernel.FWLog && i.PF == 0 {
		return i.queryFWLog()
	}
	return nil
}

func (i *ICE) queryFWLog() error {
	for range 2 {
		c := &Command{Op: ice_aqc_opc_fw_logs_query, Buf: make([]byte, aqBufSize)}
		if err := i.aq.do(c); err != nil {
			return tolerate(err)
		}
		if n := int(c.u16(6)); 4*n > c.Len {
			return c.wrong("%d modules in %d bytes", n, c.Len)
		}
	}
	i.fwlog = true
	return nil
}

// dropFWLog ends logging; 6.12 tries even where it is not supported.
func (i *ICE) dropFWLog() error {
	if !i.Kernel.FWLog || i.PF != 0 || !i.fwlog {
		return nil
	}
	_, err := i.direct(ice_aqc_opc_fw_logs_register)
	return tolerate(err)
}

func (i *ICE) shutdownControlQueues(unloading bool) error {
	var err error
	if i.aq.send.alive() {
		err = i.dropFWLog()
		p := byte(0)
		if unloading || !i.Kernel.AnnouncesReset {
			p = 1
		}
		if _, e := i.direct(ice_aqc_opc_q_shutdown, p); e != nil && err == nil {
			err = e
		}
	}
	for _, q := range []*adminQueue{&i.aq, &i.mbx} {
		if q.send.entries > 0 {
			q.send.shutdown(&i.mem)
		}
		if q.recv.entries > 0 {
			q.recv.shutdown(&i.mem)
		}
	}
	return err
}

func (i *ICE) clearConfig() error {
	if _, err := i.direct(ice_aqc_opc_clear_pf_cfg); err != nil {
		return err
	}
	i.F.Write32(PFQF_FD_ENA, 1)
	_, err := i.direct(ice_aqc_opc_clear_pxe_mode, 2)
	return err
}

func (i *ICE) initMAC() error {
	c := &Command{Op: ice_aqc_opc_manage_mac_read, Buf: make([]byte, 16)}
	if err := i.aq.do(c); err != nil {
		return err
	}
	const lanValid, typeLAN = 1 << 4, 0
	if c.u16(0)&lanValid == 0 {
		return c.wrong("flags %#x, no LAN address", c.u16(0))
	}
	found := false
	for n := 0; n < int(c.P[4]) && 8*(n+1) <= c.Len; n++ {
		if e := c.Buf[8*n:]; e[1] == typeLAN {
			copy(i.MAC[:], e[2:8])
			found = true
		}
	}
	if !found || i.MAC[0]&1 != 0 || i.MAC == [6]byte{} {
		return c.wrong("LAN address % x", i.MAC)
	}
	return i.setMACConfig()
}

func (i *ICE) setMACConfig() error {
	quanta := i.F.Read32(PRTMAC_HSEC_TX_PS_QNT)
	refresh := i.F.Read32(PRTMAC_HSEC_TX_PS_RFSH)
	const maxFrame = 9728
	mac := &Command{Op: ice_aqc_opc_set_mac_cfg}
	mac.put16(0, maxFrame)
	mac.put16(4, uint16(quanta))
	mac.put16(6, uint16(refresh))
	return i.aq.do(mac)
}

func (i *ICE) setPortParams() error {
	c := &Command{Op: ice_aqc_opc_set_port_params}
	if i.Kernel.LocalForward {
		const valid = 1 << 2
		c.put16(6, valid)
	}
	return i.aq.do(c)
}

func (i *ICE) sendVersion() error {
	c := &Command{Op: ice_aqc_opc_driver_ver, RD: true, Buf: []byte(i.Kernel.Name + "\x00")}
	c.P = [16]byte{0: 6, 1: 1}
	if err := i.aq.do(c); err != nil {
		return err
	}
	i.F.Read32(GLPCI_CNF2)
	return i.F.Err()
}

// enableMisc is ice_main.c:ice_ena_misc_vector and ice_req_irq_msix_misc.
func (i *ICE) enableMisc() error {
	f, v := i.F, i.misc.Index
	f.Write32(GL_MDCK_TX_TDPU, f.Read32(GL_MDCK_TX_TDPU)|1<<1)
	f.Write32(PFINT_OICR_ENA, 0)
	f.Read32(PFINT_OICR)
	f.Write32(PFINT_OICR_ENA, oicrCauses)
	f.Write32(GLINT_DYN_CTL(v), dynCtlSWITRNone|dynCtlINTENAMask)
	for _, reg := range []uint32{PFINT_OICR_CTL, PFINT_FW_CTL, PFINT_MBX_CTL, PFINT_SB_CTL} {
		f.Write32(reg, causeCtl(i.misc, 0))
	}
	const perSecond8000 = 62
	f.Write32(GLINT_ITR(0, v), perSecond8000)
	f.flush()
	i.rearm(i.misc)
	return f.Err()
}

func (i *ICE) disableMisc() {
	if i.misc == nil {
		return
	}
	f := i.F
	f.Write32(PFINT_OICR_ENA, 0)
	for _, reg := range []uint32{PFINT_FW_CTL, PFINT_MBX_CTL, PFINT_SB_CTL, PFINT_OICR_CTL} {
		f.Write32(reg, f.Read32(reg)&^uint32(causeEna))
	}
	f.flush()
}

// rearm is ice.h:ice_irq_dynamic_ena.
func (i *ICE) rearm(v *Vector) {
	i.F.Write32(GLINT_DYN_CTL(v.Index), dynCtlINTENA|dynCtlCLEARPBA|dynCtlITRNone)
}

// HandleMisc is the misc interrupt's handler and the service task behind it: it
// returns the causes and the messages of the firmware
// (ice_main.c:ice_misc_intr, ice_clean_adminq_subtask).
func (i *ICE) HandleMisc() (oicr uint32, events []Event, err error) {
	oicr = i.F.Read32(PFINT_OICR)
	i.F.Read32(PFINT_OICR_ENA)
	i.rearm(i.misc)
	events, err = i.aq.events()
	for _, e := range events {
		if e.Op == ice_aqc_opc_get_link_status {
			if err := i.updateLink(lseEnable); err != nil {
				return oicr, events, err
			}
		}
	}
	return oicr, events, err
}

// WaitMisc waits for the misc interrupt and handles it.
func (i *ICE) WaitMisc() (oicr uint32, events []Event, err error) {
	if _, err := i.F.wait(i.misc); err != nil {
		return 0, nil, err
	}
	return i.HandleMisc()
}

// Malice is what malicious driver detection has latched of one source.
type Malice struct {
	Source string // TX_PQM, TX_TCLAN, RX
	Queue  int
	PF     int
}

// HandleMalice reads and clears what was latched, as the service task does after
// OICR.MAL_DETECT (ice_main.c:ice_handle_mdd_event).
func (i *ICE) HandleMalice() (list []Malice, err error) {
	const valid = 1 << 31
	for _, s := range []struct {
		name         string
		global, pf   uint32
		queueBit, qn uint32
		pfBit        uint32
	}{
		{"TX_PQM", GL_MDET_TX_PQM, PF_MDET_TX_PQM, 12, 1<<14 - 1, 0},
		{"TX_TCLAN", GL_MDET_TX_TCLAN, PF_MDET_TX_TCLAN, 0, 1<<15 - 1, 23},
		{"RX", GL_MDET_RX, PF_MDET_RX, 0, 1<<15 - 1, 23},
	} {
		reg := i.F.Read32(s.global)
		own := i.F.Read32(s.pf)
		if i.F.Err() == nil && own&1 != reg>>31 {
			return list, broken("GL_MDET_%s is %#x, PF_MDET_%s %#x", s.name, reg, s.name, own)
		}
		if reg&valid == 0 {
			continue
		}
		list = append(list, Malice{s.name, int(reg >> s.queueBit & s.qn), int(reg >> s.pfBit & 7)})
		i.F.Write32(s.global, 0xffffffff)
		i.F.Write32(s.pf, 0xffff)
		if a, b := i.F.Read32(s.global), i.F.Read32(s.pf); i.F.Err() == nil && a|b != 0 {
			return list, broken("GL_MDET_%s is %#x, PF_MDET_%s %#x after they were cleared", s.name, a, s.name, b)
		}
	}
	return list, i.F.Err()
}

// grabVectors takes n vectors in the manner of the kernel.
func (i *ICE) grabVectors(n int) ([]*Vector, error) {
	if !i.Kernel.DynamicVectors {
		return i.F.addVectors(n)
	}
	var all []*Vector
	for range n {
		v, err := i.F.addVectors(1)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

func (i *ICE) initVectors() error {
	lan := i.Kernel.lanQueues(i.opts.cpus())
	rdma := i.Kernel.rdmaVectors(i.opts.cpus())
	if i.Kernel.DynamicVectors {
		rdma = 0 // irdma asks for them
	}
	all, err := i.grabVectors(1 + lan + 1 + rdma)
	if err != nil {
		return err
	}
	i.misc, i.lanV, i.ctrlV, i.rdmaV = all[0], all[1:1+lan], all[1+lan], all[2+lan:]
	return nil
}

// initRDMAVectors gives irdma what it asks for, if ice did not reserve it.
func (i *ICE) initRDMAVectors() error {
	if tup := i.F.Read32(PRTDCB_TUP2TC); i.F.Err() == nil && tup != 0 {
		return broken("PRTDCB_TUP2TC is %#x with one traffic class", tup)
	}
	if !i.Kernel.DynamicVectors {
		return i.F.Err()
	}
	var err error
	i.rdmaV, err = i.grabVectors(i.Kernel.rdmaVectors(i.opts.cpus()))
	return err
}
