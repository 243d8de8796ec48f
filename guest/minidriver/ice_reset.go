// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"fmt"
)

// ResetType says what a function comes back from. Those of the whole card are
// numbered as in GLGEN_RSTAT.RESET_TYPE and, less one, as the bits of
// GLGEN_RTRIG.
type ResetType uint8

const (
	PFR   ResetType = 0
	CORER ResetType = 1
	GLOBR ResetType = 2
	EMPR  ResetType = 3
)

func (r ResetType) String() string { return [...]string{"PFR", "CORER", "GLOBR", "EMPR"}[r&3] }

// errInReset is the driver's own refusal (ice_controlq.c:ice_sq_send_cmd with
// hw->reset_ongoing).
var errInReset = errors.New("not sent: a reset is going on")

// PrepareForReset is ice_main.c:ice_prepare_for_reset behind the removal of
// irdma. When the reset has been announced by the device (ongoing), no command
// is sent any more. Memory stays until the reset is over, but for that of the
// control queues.
func (i *ICE) PrepareForReset(ongoing bool) error {
	f := i.F
	i.aq.inReset = ongoing
	ignore := func(err error) error {
		if errors.Is(err, errInReset) {
			return nil
		}
		return err
	}
	i.wasOpen = i.queues != nil
	queues := i.queues
	if i.ctrlQueue != nil {
		queues = append(queues[:len(queues):len(queues)], i.ctrlQueue)
	}
	for _, q := range queues {
		f.Write32(QINT_RQCTL(q.id), f.Read32(QINT_RQCTL(q.id))&^uint32(causeEna))
		f.Write32(GLINT_DYN_CTL(q.vector.Index), 0)
		if err := ignore(i.disableQueue(q.leaf, uint16(q.id))); err != nil {
			return err
		}
		i.sched.forget(q.leaf)
	}
	for _, q := range queues {
		if err := i.enableRx(q.id, false); err != nil {
			return err
		}
	}
	// What is in use by RDMA stays; the driver does not look.
	if err := tolerate(ignore(i.sched.dropAll())); err != nil {
		return err
	}
	return ignore(i.shutdownControlQueues(false))
}

// CheckReset waits until the card is there again (ice_common.c:ice_check_reset).
func (i *ICE) CheckReset() error {
	f := i.F
	if err := f.poll("GLGEN_RSTAT.DEVSTATE", func() bool { return f.Read32(GLGEN_RSTAT)&3 == 0 }); err != nil {
		return err
	}
	return f.poll("GLNVM_ULD", func() bool { return f.Read32(GLNVM_ULD)&glnvmULDDone == glnvmULDDone })
}

// TriggerReset has the device reset the whole card (ice_common.c:ice_reset).
func (i *ICE) TriggerReset(t ResetType) {
	i.F.Write32(GLGEN_RTRIG, 1<<(t-1))
	i.F.flush()
}

// WaitReset waits for the interrupt that announces a reset and returns its type
// (ice_main.c:ice_misc_intr).
func (i *ICE) WaitReset() (ResetType, error) {
	for {
		if _, err := i.F.wait(i.misc); err != nil {
			return 0, err
		}
		oicr := i.F.Read32(PFINT_OICR)
		i.F.Read32(PFINT_OICR_ENA)
		if oicr&oicrGRST == 0 {
			i.rearm(i.misc)
			continue
		}
		t := ResetType(i.F.Read32(GLGEN_RSTAT) >> 2 & 3)
		if i.F.Err() == nil && t == PFR {
			return 0, broken("GRST with no RESET_TYPE: the driver would take it for a POR and do nothing")
		}
		i.rearm(i.misc)
		return t, i.F.Err()
	}
}

// ResetDone takes all of the driver's memory back. The device must have let go
// of it.
func (i *ICE) ResetDone() {
	i.mem.freeAll()
	i.aq.inReset = false
	i.aq.send.entries, i.aq.recv.entries = 0, 0
	i.mbx.send.entries, i.mbx.recv.entries = 0, 0
	i.rules, i.profiles, i.queues, i.vlans = nil, nil, nil, nil
	i.main, i.ctrl, i.ctrlQueue = nil, nil, nil
	i.sched.root, i.sched.tc, i.sched.agg = nil, nil, nil
	i.lostResources = true
}

// Rebuild makes everything anew after a reset (ice_main.c:ice_rebuild). irdma
// is probed behind it, as a device that was plugged.
func (i *ICE) Rebuild(t ResetType) error {
	steps := []step{{"control queues", i.initControlQueues}}
	if t != PFR {
		steps = append(steps, step{"package", i.download})
	}
	steps = append(steps,
		step{"clear configuration", i.clearConfig},
		step{"NVM", i.initNVM},
		step{"capabilities", i.initCaps},
		step{"MAC configuration", i.setMACConfig},
		step{"port parameters", i.setPortParams},
		step{"scheduler", func() error { return i.sched.initPort(byte(i.lport)) }},
		step{"misc vector", i.enableMisc},
		step{"FD pools", i.initFDPools},
		step{"DCB", i.sched.queryETS},
		step{"PF VSI", i.initMainVSI},
		step{"MAC rules", i.addMACRules},
		step{"DCB rule", i.addLLDPRule})
	if i.wasOpen {
		steps = append(steps, step{"VLANs", i.openVLANs}, step{"queues", i.openQueues})
	}
	return i.opts.run("ice: rebuild after "+t.String(), append(steps,
		step{"flow director", i.initFlowDirector},
		step{"link", func() error { return i.updateLink(lseEnable) }},
		step{"driver version", i.sendVersion},
		step{"active package", i.hasPackage}))
}

// hasPackage checks that the package is there, downloaded again or kept.
func (i *ICE) hasPackage() error {
	list, err := i.packages()
	if err != nil {
		return err
	}
	if len(list) != 1 || list[0] != ourPackage() {
		return broken("0x0C43 lists %v after the rebuild", list)
	}
	return nil
}

// RemoveInReset is icrdma_if.c:icrdma_remove when a reset was announced
// (rf->reset): no control operation is posted any more, and what the device
// needs not be told of is left alone. Memory stays until the reset is over.
func (r *IRDMA) RemoveInReset() error {
	f := r.F
	if r.aeq != nil {
		if !r.shared() {
			f.Write32(PFINT_AEQCTL, causeCtl(r.vectors[0], itrNone)&^uint32(causeEna))
			r.disable(r.vectors[0])
		}
		f.Write32(PFINT_AEQCTL, 0)
	}
	for n, e := range r.ceqs {
		if n > 0 || r.shared() {
			f.Write32(GLINT_CEQCTL(e.ID), causeCtl(e.Vector, itrNone)&^uint32(causeEna))
		}
		r.disable(e.Vector)
	}
	f.Write32(PFPE_CCQPHIGH, 0)
	f.Write32(PFPE_CCQPLOW, 0)
	if err := f.poll("PFPE_CCQPSTATUS.DONE", func() bool { return f.Read32(PFPE_CCQPSTATUS)&ccqpDone == 0 }); err != nil {
		return fmt.Errorf("irdma: removing in a reset: %w", err)
	}
	return nil
}
