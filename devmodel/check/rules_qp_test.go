// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

func TestStatesAreNoFindings(t *testing.T) {
	k := New(nil)
	k.Event(qp.Info{ID: 9})
	if got := k.Findings(Note); len(got) != 0 {
		t.Errorf("findings %+v", got)
	}
}

// worker is a booted driver with one more QP, in RTS unless its creation failed.
type worker struct {
	*rdmatest.Device
	engine *engine.Engine
	sq     uint64
	qpc    uint64
	page   uint64 // registered, for a datagram QP
}

const (
	workerQP   = 5
	workerType = uint64(qp.RoCERC) << 48

	workCreate = 0x00 << 32
	workModify = 0x01 << 32
	workFlush  = 0x22 << 32

	cqNumbers  = 1 << 47 // of MODIFY_QP and CREATE_QP: CQNUMVALID
	privileged = 1 << 25
)

// work makes a QP of a program or of the kernel; change may change its context.
func work(b *bench, program bool, change ...func(w *worker)) *worker {
	w := &worker{engine: engine.New(engine.Config{Manual: true})}
	b.Cleanup(w.engine.Close)
	w.Device = b.boot(func(c *rdma.Config) { c.Engine = w.engine })
	g := w.G
	w.sq, w.qpc = g.Alloc(4096), g.Alloc(256)
	rights := uint64(0)
	if !program {
		rights = privileged
	}
	rq, shadow := g.Alloc(4096), g.Alloc(4096)
	g.Store(w.qpc, 1<<3, w.sq, rq, 4791<<48|0xC000<<32|4<<12|4<<8|0x40)
	g.Store(w.qpc+48, rdmatest.ARPIndex<<48|1024<<16, 3<<48|0xFFFF<<32)
	g.Store(w.qpc+112, 0x400<<32)
	g.Store(w.qpc+128, 2<<54|2<<48, rdmatest.GSICQ<<32|rdmatest.GSICQ)
	g.Store(w.qpc+152, 0x525400123456<<16, rights, 0x7000, uint64(w.QSHandle)<<16)
	for _, f := range change {
		f(w)
	}
	g.Run(rdmatest.WQE{2: w.qpc, 3: workCreate | workerType | cqNumbers | 1<<60 | workerQP, 5: shadow})
	for _, state := range []qp.State{qp.RTR, qp.RTS} {
		w.modify(state)
	}
	return w
}

func (w *worker) modify(state qp.State) {
	w.G.Run(rdmatest.WQE{2: w.qpc, 3: workModify | workerType | cqNumbers | uint64(state)<<60 | workerQP})
}

// post writes a send WQE of one header, and rings for it.
func (w *worker) post(header uint64) {
	w.G.Store(w.sq+24, header|1<<63)
	w.ring("PFPE_WQEALLOC", workerQP)
}

func (w *worker) ring(register string, n uint32) {
	w.G.Write(register, n)
	w.engine.Drain(100)
}

// Send WQEs.
const (
	sendUnknown = 0x3B << 32
	sendNOP     = 0x0C << 32
	sendSEND    = 0x03 << 32
)

// sends are the scenarios of a rule about a send WQE, of the kernel and of a
// program.
func sends(id string, trigger, near uint64) map[string]scenario {
	with := func(program bool) scenario {
		return scenario{trigger: func(b *bench) { work(b, program).post(trigger) }, near: func(b *bench) { work(b, program).post(near) }}
	}
	return map[string]scenario{id: with(false), id + "-app": with(true)}
}

var qpScenarios = merge(
	sends("wqe-opcode", sendUnknown, sendNOP),
	sends("wqe-shape", sendSEND|15<<38, sendSEND|14<<38),
	map[string]scenario{
		"qp-doorbell": {
			trigger: func(b *bench) { work(b, false).ring("PFPE_WQEALLOC", workerQP+1) },
			near:    func(b *bench) { work(b, false).ring("PFPE_WQEALLOC", workerQP) }, // with nothing posted
		},
		"qp-doorbell-app": {
			trigger: func(b *bench) { work(b, true).ring(userDoorbell, workerQP+1) },
			near:    func(b *bench) { work(b, true).ring(userDoorbell, workerQP) },
		},
		"qp-memory": {
			trigger: func(b *bench) { work(b, false, unmappedSQ).ring("PFPE_WQEALLOC", workerQP) },
			near:    func(b *bench) { work(b, false, unmappedSQ) }, // never looked at
			with:    []string{"cqp-unmapped"},
		},
		"qp-cq": {
			trigger: func(b *bench) { work(b, false, otherCQ(77)) },
			near:    func(b *bench) { work(b, false, otherCQ(rdmatest.GSICQ)) },
			with:    []string{"cqp-refused", "object-absent"},
		},
		"qp-transition": {
			trigger: func(b *bench) { work(b, false).modify(qp.RTR) },
			near:    func(b *bench) { work(b, false).modify(qp.RTS) },
			with:    []string{"cqp-refused"},
		},
		"qp-geometry": {
			trigger: func(b *bench) {
				w := work(b, false)
				w.G.Store(w.qpc+168, 0x8000)
				w.modify(qp.RTS)
			},
			near: func(b *bench) { work(b, false).modify(qp.RTS) },
		},
		"qp-peer": {
			trigger: func(b *bench) {
				w := work(b, false)
				w.G.Store(w.qpc+64, workerQP+1)
				w.modify(qp.RTS)
			},
			near: func(b *bench) { // another path to the same peer
				w := work(b, false)
				w.G.Store(w.qpc+24, 4791<<48|0xC001<<32|8<<24|4<<12|4<<8|0x20)
				w.modify(qp.RTS)
			},
		},
		"qp-flush-state": {
			trigger: func(b *bench) { work(b, false).flush() },
			near: func(b *bench) {
				w := work(b, false)
				w.modify(qp.Error)
				w.flush()
			},
		},
	},
)

func (w *worker) flush() {
	w.G.Run(rdmatest.WQE{2: 0x0001_0001_0001_0001, 3: workFlush | 7<<60 | workerQP})
}

func unmappedSQ(w *worker) { w.G.Store(w.qpc+8, unmapped) }

func otherCQ(id uint64) func(*worker) {
	return func(w *worker) { w.G.Store(w.qpc+136, rdmatest.GSICQ<<32|id) }
}

// userDoorbell is the doorbell page that programs map.
const userDoorbell = "ICRDMA_DB_ADDR_OFFSET"
