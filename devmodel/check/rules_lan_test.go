// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// What is overtaken by a reset is no driver's fault.
func TestOrphansBreakNothing(t *testing.T) {
	c := New(nil)
	c.Event(devmodel.Orphan{Event: lan.BadQueue{Queue: 3}})
	if got := c.Findings(Note); len(got) != 0 {
		t.Errorf("findings %+v of what a reset has ended", got)
	}
}

// ethernet is the LAN unit of a card alone. Transmit queue 1 has 32 descriptors
// at lanRing, receive queue 2 has 8 at rxRing.
type ethernet struct {
	*bench
	unit   *lan.LAN
	mem    *guestmem.Memory
	regs   *reg.Space
	engine *engine.Engine
}

const (
	lanRing  = rdmatest.Base
	rxRing   = rdmatest.Base + 0x1000
	lanFrame = rdmatest.Base + 0x2000
	rxBuffer = rdmatest.Base + 0x3000
	lanVSI   = 5

	txBell, rxCtrl, rxContext, rxTail, rxFlex = 0x2C0000, 0x120000, 0x280000, 0x290000, 0x480000

	txEOP, txRS = 1 << 4, 1 << 5
	txFilter    = 8 // DTYPE of flow director programming
)

func newEthernet(b *bench) *ethernet {
	e := &ethernet{bench: b, mem: rdmatest.Memory(b, 1<<20), engine: engine.New(engine.Config{Manual: true})}
	b.Cleanup(e.engine.Close)
	e.unit = lan.New(lan.Config{Mem: e.mem, Emit: b.emit, Engine: e.engine})
	e.regs = reg.NewSpace(32<<20, b.emit, e.unit.Registers())
	e.unit.Steer(&lan.Steering{Link: true, VSIs: map[uint16]*lan.VSI{lanVSI: {Number: lanVSI, Queues: []uint16{2}}},
		Addresses: map[[6]byte]lan.Forward{{2}: {VSIs: []uint16{lanVSI}}}})
	return e
}

// bits packs fields into a context (ice_common.c:ice_set_ctx).
func pack(c []byte, fields ...[2]uint64) {
	for _, f := range fields {
		for bit, v := f[0], f[1]; v != 0; bit, v = bit+1, v>>1 {
			c[bit/8] |= byte(v&1) << (bit % 8)
		}
	}
}

// transmitting has the transmit queue enabled.
func transmitting(b *bench) *ethernet {
	e := newEthernet(b)
	var c [22]byte
	pack(c[:], [2]uint64{0, lanRing >> 7}, [2]uint64{80, lanVSI}, [2]uint64{135, 32}, [2]uint64{152, 1})
	if err := e.unit.EnableTxQueue(1, c); err != nil {
		b.Fatal(err)
	}
	return e
}

// post writes transmit descriptor 0 and moves the tail behind it.
func (e *ethernet) post(buffer, word uint64) *ethernet {
	e.store(lanRing, buffer, word)
	e.regs.Write32(txBell+4, 1)
	e.engine.Drain(100)
	return e
}

func (e *ethernet) store(at uint64, words ...uint64) {
	for i, w := range words {
		if err := e.mem.Store64(at+8*uint64(i), w); err != nil {
			e.Fatal(err)
		}
	}
}

// receiving enables the receive queue with some number of entries, and gives
// it one buffer at an address.
func receiving(b *bench, entries uint64, buffer uint64) *ethernet {
	e := newEthernet(b)
	e.store(rxRing, buffer, 0)
	var c [32]byte
	pack(c[:], [2]uint64{32, rxRing >> 7}, [2]uint64{89, entries}, [2]uint64{102, 2048 / 128}, [2]uint64{116, 1}, [2]uint64{117, 1}, [2]uint64{174, 1522})
	for i := range uint32(len(c) / 4) {
		w := uint32(c[4*i]) | uint32(c[4*i+1])<<8 | uint32(c[4*i+2])<<16 | uint32(c[4*i+3])<<24
		e.regs.Write32(rxContext+0x2000*i+4*2, w)
	}
	e.regs.Write32(rxFlex+4*2, 2)
	e.regs.Write32(rxTail+4*2, 1)
	e.regs.Write32(rxCtrl+4*2, 1)
	return e
}

// receive takes a frame for the VSI.
func (e *ethernet) receive() {
	f := make([]byte, 60)
	f[0], f[6] = 2, 4
	e.unit.Receive(f)
}

var lanScenarios = map[string]scenario{
	"lan-queue": {
		trigger: func(b *bench) { transmitting(b).regs.Write32(txBell+8, 1) },
		near:    func(b *bench) { transmitting(b).regs.Write32(txBell+4, 0) },
	},
	"lan-tail": {
		trigger: func(b *bench) { transmitting(b).regs.Write32(txBell+4, 32) },
		near:    func(b *bench) { transmitting(b).regs.Write32(txBell+4, 31) }, // nothing moves before Drain
	},
	"lan-descriptor": {
		trigger: func(b *bench) { transmitting(b).post(lanFrame, txEOP|txRS) }, // of 0 bytes
		near:    func(b *bench) { transmitting(b).post(lanFrame, txEOP|txRS|60<<34) },
	},
	"lan-rx-descriptor": {
		trigger: func(b *bench) { receiving(b, 8, unmapped).receive() },
		near: func(b *bench) {
			e := receiving(b, 8, rxBuffer)
			e.receive()
			e.receive() // no buffer is left: dropped
			if w, err := e.mem.Load64(rxRing + 8); err != nil || w&1 == 0 {
				b.Errorf("nothing was received: %#x, %v", w, err)
			}
		},
	},
	"lan-rx-context": {
		trigger: func(b *bench) { receiving(b, 0, rxBuffer) },
		near:    func(b *bench) { receiving(b, 8, rxBuffer) },
	},
	"lan-filter-unbuilt": {
		trigger: func(b *bench) { transmitting(b).post(0, txFilter) },
		near:    func(b *bench) { transmitting(b).post(lanFrame, txEOP|txRS|60<<34) },
		with:    []string{"lan-descriptor"}, // no packet follows
	},
}
