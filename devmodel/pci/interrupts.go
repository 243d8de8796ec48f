// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"sync"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// maxVectors is the size of the GLINT_* register arrays (ice_hw_autogen.h);
// a PF whose first vector is 0 uses its MSI-X indices in them.
const maxVectors = 2048

// Queues is the number of LAN queues with interrupt registers
// (ice_hw_autogen.h, QINT_RQCTL_MAX_INDEX).
const queues = 2048

// Bits of GLINT_DYN_CTL (ice_hw_autogen.h).
const (
	dynIntena     = 1 << 0
	dynSWInt      = 1 << 2
	dynITRShift   = 3
	dynIvlShift   = 5
	dynSWITREna   = 1 << 24
	dynSWITRShift = 25
	dynWBOnITR    = 1 << 30
	dynIntenaMsk  = 1 << 31
	itrNone       = 3
)

// Bits common to PFINT_*_CTL, QINT_*CTL, PFINT_AEQCTL and GLINT_CEQCTL.
const (
	ctlVector   = 0x7ff
	ctlITRShift = 11
	ctlCauseEna = 1 << 30
)

// OICR cause bits (ice_hw_autogen.h, PFINT_OICR_*_M).
const (
	OICRMalDetect    = 1 << 19
	OICRGlobalReset  = 1 << 20
	OICRHMCErr       = 1 << 26
	OICRPEPush       = 1 << 27
	OICRPECritErr    = 1 << 28
	oicrSWInt        = 1 << 31
	ceqs             = 2048 // GLINT_CEQCTL_MAX_INDEX + 1
	itrIntervalMask  = 0xfff
	glintCtlGranular = 0x22220000
)

// Interrupts turns causes into MSI-X vectors by the rules of the E810: a
// vector sends one message when it is enabled (INTENA) and an event is
// pending, and disables itself in sending; an event that comes while it is
// disabled is kept and sent at the next enable. CLEARPBA never drops an event:
// it concerns the pending bit array, which the client owns. A write with
// INTENA_MSK leaves INTENA alone.
//
// Queue causes without CAUSE_ENA are dropped; those of the firmware, other
// (OICR), completion and asynchronous event queues are kept until enabled.
//
// A message comes no sooner than the interval of its cause (GLINT_ITR at its
// ITR_INDX; 3 is none) and that of the vector (GLINT_RATE) after the previous
// one; one that comes later is sent at once. WB_ON_ITR is stored only:
// descriptors are always written back at once.
//
// Causes may be raised from any goroutine; the unit has a lock of its own, the
// last in the device's lock order. The signal function runs under it and must
// not block.
type Interrupts struct {
	signal func(vector int)
	clock  engine.Clock
	timer  engine.Timer

	mu sync.Mutex // guards everything below but the cells, which are atomic

	enabled, pending [maxVectors]bool
	throttle         throttle
	fwPending        bool
	aeqPending       bool
	ceqPending       map[int]bool

	dyn, itr, rate                reg.Cells
	oicr, oicrEna                 reg.Cells
	oicrCtl, fwCtl, mbxCtl, sbCtl reg.Cells
	rqCtl, tqCtl, aeqCtl, ceqCtl  reg.Cells
}

// NewInterrupts makes the interrupt unit; signal sends the message of a
// vector.
func NewInterrupts(clock engine.Clock, signal func(vector int)) *Interrupts {
	n := &Interrupts{signal: signal, clock: clock, ceqPending: map[int]bool{}}
	n.timer = clock.NewFineTimer(n.expired)
	n.throttle.reset()
	return n
}

var causeFields = []reg.Field{{Name: "MSIX_INDX", Hi: 10, Lo: 0}, {Name: "ITR_INDX", Hi: 12, Lo: 11}, {Name: "CAUSE_ENA", Hi: 30, Lo: 30}}

var oicrFields = []reg.Field{
	{Name: "TSYN_TX", Hi: 11, Lo: 11}, {Name: "TSYN_EVNT", Hi: 12, Lo: 12}, {Name: "ECC_ERR", Hi: 16, Lo: 16},
	{Name: "MAL_DETECT", Hi: 19, Lo: 19}, {Name: "GRST", Hi: 20, Lo: 20}, {Name: "PCI_EXCEPTION", Hi: 21, Lo: 21},
	{Name: "HMC_ERR", Hi: 26, Lo: 26}, {Name: "PE_PUSH", Hi: 27, Lo: 27}, {Name: "PE_CRITERR", Hi: 28, Lo: 28},
	{Name: "VFLR", Hi: 29, Lo: 29}, {Name: "SWINT", Hi: 31, Lo: 31},
}

// Registers returns the rows of the unit. The driver rewrites all of them
// after every reset; clearing them with the function reset makes sure that a
// reset function is silent.
func (n *Interrupts) Registers() []reg.Row {
	const src = "ice_hw_autogen.h"
	cause := func(name string, off uint32, count int, cells *reg.Cells, write func(int, uint32)) reg.Row {
		return reg.Row{Name: name, Offset: off, N: count, Stride: 4, Fields: causeFields, Cells: cells, Write: write,
			Source: src + "; icrdma_hw.h; ice_main.c:ice_ena_ctrlq_interrupts"}
	}
	return []reg.Row{
		{Name: "PFINT_OICR", Offset: 0x0016CA00, Access: reg.RCW1S, Fields: oicrFields, Cells: &n.oicr,
			Write: n.locked(func(int) { n.oicrChanged() }), Source: src + "; ice_main.c:ice_misc_intr"},
		{Name: "PFINT_OICR_ENA", Offset: 0x0016C900, Fields: oicrFields, Cells: &n.oicrEna,
			Write: n.locked(func(int) { n.oicrChanged() }), Source: src + "; ice_main.c:ice_ena_misc_vector"},
		cause("PFINT_OICR_CTL", 0x0016CA80, 1, &n.oicrCtl, n.locked(func(int) { n.oicrChanged() })),
		cause("PFINT_FW_CTL", 0x0016C800, 1, &n.fwCtl, n.locked(func(int) { n.fwChanged() })),
		cause("PFINT_MBX_CTL", 0x0016B280, 1, &n.mbxCtl, nil),
		cause("PFINT_SB_CTL", 0x0016B600, 1, &n.sbCtl, nil),
		{Name: "PFINT_ALLOC", Offset: 0x001D2600, Access: reg.RO, Reset: 1<<31 | (Vectors-1)<<12,
			Fields: []reg.Field{{Name: "FIRST", Hi: 10, Lo: 0}, {Name: "LAST", Hi: 22, Lo: 12}, {Name: "VALID", Hi: 31, Lo: 31}},
			Domain: reg.POR, Source: src + "; ice_ptp_hw.h: only FIRST is read", Inferred: true},
		{Name: "PFINT_TSYN_MSK", Offset: 0x0016C980, Source: src},
		{Name: "GLINT_DYN_CTL", Offset: 0x00160000, N: maxVectors, Stride: 4, Cells: &n.dyn, Read: n.readDyn, Write: n.writeDyn,
			Fields: []reg.Field{{Name: "INTENA", Hi: 0, Lo: 0}, {Name: "CLEARPBA", Hi: 1, Lo: 1}, {Name: "SWINT_TRIG", Hi: 2, Lo: 2},
				{Name: "ITR_INDX", Hi: 4, Lo: 3}, {Name: "INTERVAL", Hi: 16, Lo: 5}, {Name: "SW_ITR_INDX_ENA", Hi: 24, Lo: 24},
				{Name: "SW_ITR_INDX", Hi: 26, Lo: 25}, {Name: "WB_ON_ITR", Hi: 30, Lo: 30}, {Name: "INTENA_MSK", Hi: 31, Lo: 31}},
			Source: src + "; ice.h:ice_irq_dynamic_ena; icrdma_hw.c:icrdma_ena_irq"},
		{Name: "GLINT_ITR", Offset: 0x00154000, N: 3, Stride: 0x2000, M: maxVectors, Stride2: 4, Mask: itrIntervalMask, Cells: &n.itr,
			Fields: []reg.Field{{Name: "INTERVAL", Hi: 11, Lo: 0}}, Source: src + "; ice_base.c:ice_write_itr"},
		{Name: "GLINT_RATE", Offset: 0x0015A000, N: maxVectors, Stride: 4, Cells: &n.rate,
			Fields: []reg.Field{{Name: "INTERVAL", Hi: 5, Lo: 0}, {Name: "INTRL_ENA", Hi: 6, Lo: 6}}, Source: src},
		{Name: "GLINT_VECT2FUNC", Offset: 0x00162000, N: maxVectors, Stride: 4, Domain: reg.CORER, Source: src},
		{Name: "GLINT_CTL", Offset: 0x0016CC54, Reset: glintCtlGranular, Domain: reg.CORER,
			Fields: []reg.Field{{Name: "DIS_AUTOMASK", Hi: 0, Lo: 0}, {Name: "ITR_GRAN_200", Hi: 19, Lo: 16}, {Name: "ITR_GRAN_100", Hi: 23, Lo: 20},
				{Name: "ITR_GRAN_50", Hi: 27, Lo: 24}, {Name: "ITR_GRAN_25", Hi: 31, Lo: 28}}, Source: src + "; ice_base.c:ice_cfg_itr_gran"},
		cause("QINT_RQCTL", 0x00150000, queues, &n.rqCtl, nil),
		cause("QINT_TQCTL", 0x00140000, queues, &n.tqCtl, nil),
		cause("PFINT_AEQCTL", 0x0016CB00, 1, &n.aeqCtl, n.locked(func(int) { n.aeqChanged() })),
		cause("GLINT_CEQCTL", 0x0015C000, ceqs, &n.ceqCtl, n.locked(n.ceqChanged)),
	}
}

// locked makes a write handler that runs f under the unit's lock.
func (n *Interrupts) locked(f func(i int)) func(int, uint32) {
	return func(i int, _ uint32) {
		n.mu.Lock()
		defer n.mu.Unlock()
		f(i)
	}
}

// Reset drops enables and pending events: every reset silences the function. One
// of the whole card was announced by an interrupt, longer ago than any interval:
// if our timer is that late, what waits for it is sent first.
func (n *Interrupts) Reset(dom reg.Domain) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if dom >= reg.CORER && dom < reg.POR {
		n.flush()
	}
	n.enabled, n.pending = [maxVectors]bool{}, [maxVectors]bool{}
	n.throttle.reset()
	n.fwPending, n.aeqPending = false, false
	clear(n.ceqPending)
}

// Release gives back what the clock's timer holds, until it is needed again. It is
// to be called after a Reset without a client.
func (n *Interrupts) Release() { n.timer.Stop() }

// FW is the admin receive queue's cause: an event was written.
func (n *Interrupts) FW() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fwPending = true
	n.fwChanged()
}

// OICR sets bits of the other-interrupt cause register.
func (n *Interrupts) OICR(bits uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.oicr.Or(0, bits)
	n.oicrChanged()
}

// Unseen tells whether a bit of the other-interrupt cause register that the driver
// wants to be interrupted for is still to be read by it.
func (n *Interrupts) Unseen(bit uint32) bool {
	return n.oicr.Get(0)&n.oicrEna.Get(0)&bit != 0 && n.oicrCtl.Get(0)&ctlCauseEna != 0
}

// AEQ is the asynchronous event queue's cause: an entry was written.
func (n *Interrupts) AEQ() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aeqPending = true
	n.aeqChanged()
}

// CEQ is the cause of completion event queue q.
func (n *Interrupts) CEQ(q int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q >= 0 && q < ceqs {
		n.ceqPending[q] = true
		n.ceqChanged(q)
	}
}

// RxQueue is the cause of LAN receive queue q: a descriptor was written back.
func (n *Interrupts) RxQueue(q int) { n.queue(&n.rqCtl, q) }

// TxQueue is the cause of LAN transmit queue q.
func (n *Interrupts) TxQueue(q int) { n.queue(&n.tqCtl, q) }

func (n *Interrupts) queue(ctl *reg.Cells, q int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := ctl.Get(q); c&ctlCauseEna != 0 {
		n.event(int(c&ctlVector), c>>ctlITRShift&3)
	}
}

func (n *Interrupts) fwChanged() {
	if c := n.fwCtl.Get(0); n.fwPending && c&ctlCauseEna != 0 {
		n.fwPending = false
		n.event(int(c&ctlVector), c>>ctlITRShift&3)
	}
}

func (n *Interrupts) oicrChanged() {
	if c := n.oicrCtl.Get(0); n.oicr.Get(0)&n.oicrEna.Get(0) != 0 && c&ctlCauseEna != 0 {
		n.event(int(c&ctlVector), c>>ctlITRShift&3)
	}
}

func (n *Interrupts) aeqChanged() {
	if c := n.aeqCtl.Get(0); n.aeqPending && c&ctlCauseEna != 0 {
		n.aeqPending = false
		n.event(int(c&ctlVector), c>>ctlITRShift&3)
	}
}

func (n *Interrupts) ceqChanged(q int) {
	if c := n.ceqCtl.Get(q); n.ceqPending[q] && c&ctlCauseEna != 0 {
		delete(n.ceqPending, q)
		n.event(int(c&ctlVector), c>>ctlITRShift&3)
	}
}

// readDyn shows the state the device keeps; the command bits read 0.
func (n *Interrupts) readDyn(v int) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.dyn.Get(v) & dynWBOnITR
	if n.enabled[v] {
		r |= dynIntena
	}
	return r
}

func (n *Interrupts) writeDyn(v int, val uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if val&dynIntenaMsk == 0 {
		n.enabled[v] = val&dynIntena != 0
	}
	if i := int(val >> dynITRShift & 3); i != itrNone {
		n.itr.Set(i*maxVectors+v, val>>dynIvlShift&itrIntervalMask)
	}
	if val&dynSWInt != 0 {
		// The ethtool self-test reads the cause without enabling it.
		if v == int(n.oicrCtl.Get(0)&ctlVector) {
			n.oicr.Or(0, oicrSWInt)
		}
		itr := uint32(itrNone)
		if val&dynSWITREna != 0 {
			itr = val >> dynSWITRShift & 3
		}
		n.event(v, itr)
		return
	}
	n.deliver(v)
}
