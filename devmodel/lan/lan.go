// SPDX-License-Identifier: Apache-2.0

// Package lan is the Ethernet side of the function: transmit queues with their
// offloads, the switch between VSIs and wire as rules decide, receive queues
// with hash, checksum status and stripped tags, and the statistics registers.
//
// A frame goes from the sender's memory to the receiver's in one step of the
// sender's queue: through the switch and, by Config.Wire and LAN.Receive, over
// the wire. A receiver without descriptors drops, nothing waits for it.
//
// Contract and traps:
//   - Registers and queue control run under the device's control lock and wait
//     for nothing. Descriptors and payload are read in steps of the engine,
//     beside that lock.
//   - A queue that is disabled, or reset, starts no descriptor any more; the
//     one under way is over after grace (package grace), which is for the
//     caller to wait for before it tells the driver.
//   - A queue's life is an object of its own: what still runs on an old one
//     does not touch the head, the frame or the tail of the next.
//   - Head and tail of a transmit queue are 0 after it is added, whatever
//     its doorbell register last held.
//   - QRX_TAIL is written before QRX_CTRL enables the queue and stays.
//   - Lock order: control lock, receive queue, whatever raises interrupts. A
//     transmit queue is its task; no lock is held while a frame leaves.
//   - A queue that meets a descriptor it cannot execute stops, and the card
//     tells (malicious driver detection): until it is disabled it does nothing.
package lan

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Queues is the number of queue pairs the function offers; it equals
// capabilities 0x41 and 0x42 that firmware reports.
const Queues = 64

// rxRegisters is the size of the register arrays of receive queues
// (ice_hw_autogen.h).
const rxRegisters = 2048

// Memory is guest memory as the unit needs it.
type Memory interface {
	Read(iova uint64, p []byte) error
	Write(iova uint64, p []byte) error
	Store64(iova uint64, v uint64) error
}

// Config is what a LAN unit is made of.
type Config struct {
	Mem  Memory
	Emit func(any) // may be nil
	// TxDone is the interrupt cause of a transmit queue. It is called in steps,
	// with no lock held.
	TxDone func(queue int)
	// RxDone is the interrupt cause of a receive queue. It is called by whoever
	// calls Receive, with no lock held.
	RxDone func(queue int)
	// Wire takes a frame without FCS, of at least 60 bytes, valid during the
	// call, in a step. nil: a segment without other stations.
	Wire func(frame []byte)
	// RDMA takes the RoCEv2 frames to the address of a VSI with the protocol
	// engine's filter on, and of those to groups what Group asks for. It is
	// called like Receive. nil: there is no such engine.
	RDMA func(f []byte, i frame.Info)
	// Group tells whether the engine wants frames to a group address, whatever
	// rules say. May be nil.
	Group func(address [6]byte) bool
	// MayDMA tells whether the function may write to memory; nil: always. If
	// not, nothing is received: no driver can help frames that come then.
	MayDMA func() bool
	// Overtaken tells whether a reset has overtaken steps that may still run:
	// what they find is reported, but leaves no trace in registers. nil: never.
	Overtaken func() bool
	// Malicious is the cause OICR.MAL_DETECT; may be nil.
	Malicious func()
	Engine    *engine.Engine // runs the queues
}

// LAN is the Ethernet side of one function.
type LAN struct {
	cfg Config
	tx  [Queues]txQueue
	rx  [Queues]rxQueue

	steering atomic.Pointer[steering]
	mdet     [mdets]mdet

	rxCtrl, rxContext, rxTail, rxFlex, txBell reg.Cells
	stats                                     statistics
}

// New makes the unit.
func New(c Config) *LAN {
	if c.Emit == nil {
		c.Emit = func(any) {}
	}
	if c.TxDone == nil {
		c.TxDone = func(int) {}
	}
	if c.RxDone == nil {
		c.RxDone = func(int) {}
	}
	if c.MayDMA == nil {
		c.MayDMA = func() bool { return true }
	}
	if c.Overtaken == nil {
		c.Overtaken = func() bool { return false }
	}
	if c.Malicious == nil {
		c.Malicious = func() {}
	}
	if c.Group == nil {
		c.Group = func([6]byte) bool { return false }
	}
	l := &LAN{cfg: c}
	for i := range l.rx {
		l.rx[i].lan, l.rx[i].id = l, i
	}
	for i := range l.tx {
		l.tx[i].lan, l.tx[i].id = l, i
		l.tx[i].task.Init(c.Engine, &l.tx[i], uint32(i))
	}
	return l
}

// Registers returns the rows of the unit.
func (l *LAN) Registers() []reg.Row {
	const src = "ice_hw_autogen.h"
	rows := []reg.Row{
		{Name: "QRX_CTRL", Offset: 0x00120000, N: rxRegisters, Stride: 4, Mask: qenaReq, Cells: &l.rxCtrl, Write: l.writeRxCtrl,
			Fields: []reg.Field{{Name: "QENA_REQ", Hi: 0, Lo: 0}, {Name: "QENA_STAT", Hi: 2, Lo: 2}},
			Source: src + "; ice_base.c:ice_vsi_ctrl_one_rx_ring"},
		{Name: "QRX_CONTEXT", Offset: 0x00280000, N: 8, Stride: 0x2000, M: rxRegisters, Stride2: 4, Domain: reg.CORER, Cells: &l.rxContext,
			Source: src + "; ice_common.c:ice_write_rxq_ctx"},
		{Name: "QRX_TAIL", Offset: 0x00290000, N: rxRegisters, Stride: 4, Domain: reg.CORER, Mask: 0x1fff, Cells: &l.rxTail, Source: src + "; ice_txrx_lib.c:ice_release_rx_desc"},
		{Name: "QRXFLXP_CNTXT", Offset: 0x00480000, N: rxRegisters, Stride: 4, Domain: reg.CORER, Cells: &l.rxFlex,
			Fields: []reg.Field{{Name: "RXDID_IDX", Hi: 5, Lo: 0}, {Name: "RXDID_PRIO", Hi: 10, Lo: 8}, {Name: "TS", Hi: 11, Lo: 11}},
			Source: src + "; ice_lib.c:ice_write_qrxflxp_cntxt"},
		{Name: "QTX_COMM_DBELL", Offset: 0x002C0000, N: 16384, Stride: 4, Domain: reg.CORER, Cells: &l.txBell, Write: l.writeTxBell, Source: src + "; ice_txrx.c:ice_tx_map"},
		{Name: "QTX_COMM_HEAD", Offset: 0x000E0000, N: 16384, Stride: 4, Access: reg.RO, Read: l.readTxHead,
			Fields: []reg.Field{{Name: "HEAD", Hi: 12, Lo: 0}}, Source: src + "; ice_main.c:ice_tx_timeout"},
		{Name: "GL_MDCK_TX_TDPU", Offset: 0x00049348, Domain: reg.CORER, Source: src + "; ice_main.c:ice_ena_misc_vector"},
	}
	return append(append(rows, l.mdetRegisters()...), l.stats.registers()...)
}

// Reset stops every queue; statistics survive the function resets.
func (l *LAN) Reset(d reg.Domain) {
	l.ResetQueues()
	if d >= reg.CORER {
		l.stats.clear()
	}
}

// ResetQueues stops all queues; none does DMA after grace.
func (l *LAN) ResetQueues() {
	for q := range l.tx {
		l.DisableTxQueue(uint16(q))
	}
	for q := range l.rx {
		l.rx[q].disable()
	}
	for q := 0; q < l.rxCtrl.Len(); q++ {
		l.rxCtrl.Set(q, 0)
	}
}

// Bits of QRX_CTRL.
const (
	qenaReq  = 1 << 0
	qenaStat = 1 << 2
)

// writeRxCtrl lets the state follow the request at once: the driver polls it
// for about a millisecond. It waits for the frame that is being placed, if one
// is, so that a queue that reads disabled does no DMA.
func (l *LAN) writeRxCtrl(q int, v uint32) {
	want, is := v&qenaReq != 0, l.rxCtrl.Get(q)&qenaStat != 0
	if q >= Queues {
		if want {
			l.cfg.Emit(BadQueue{Queue: q, Rx: true})
		}
		l.rxCtrl.Set(q, 0)
		return
	}
	switch {
	case want && !is:
		if err := l.enableRx(q); err != nil {
			l.bad(mdetRx, q, BadRxContext{q, err.Error()})
			l.rxCtrl.Set(q, qenaReq)
			return
		}
		l.rxCtrl.Set(q, qenaReq|qenaStat)
	case want:
		l.rxCtrl.Set(q, qenaReq|qenaStat)
	default:
		l.rx[q].disable()
		l.rxCtrl.Set(q, 0)
	}
}

// enableRx loads the context of receive queue q from its registers.
func (l *LAN) enableRx(q int) error {
	var c rxContext
	for i := range len(c) / 4 {
		binary.LittleEndian.PutUint32(c[4*i:], l.rxContext.Get(i*rxRegisters+q))
	}
	return l.rx[q].enable(c, uint8(l.rxFlex.Get(q)&0x3f))
}

// BadQueue is the event of using a queue that the function does not have or
// that is not enabled.
type BadQueue struct {
	Queue int
	Rx    bool
}

func (b BadQueue) String() string {
	if b.Rx {
		return fmt.Sprintf("QRX_CTRL(%d): the function has no such receive queue", b.Queue)
	}
	return fmt.Sprintf("QTX_COMM_DBELL(%d) rung, but the queue is not enabled", b.Queue)
}
