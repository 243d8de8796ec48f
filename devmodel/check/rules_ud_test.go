// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

const (
	datagramQP = 7
	workAH     = 5
	foreignAH  = 6
	workPD     = 3

	workMTU      = 256
	workSTag     = 9<<8 | 1
	sendWrite    = 0x00 << 32
	ahIPv4       = 1 << 59
	workCreateAH = 0x1C << 32
	workRegMR    = 0x0A << 32
	localRead    = 1 << 48
	virtualAddr  = 1 << 59
	regionType   = 1 << 43
)

// datagramWork is work with a datagram QP of a program or the kernel beside it, a
// page to send from, and two address handles, the second of another protection
// domain.
func datagramWork(b *bench, program bool) *worker {
	w := work(b, program)
	g := w.G
	page, qpc, shadow := g.Alloc(4096), g.Alloc(256), g.Alloc(4096)
	w.sq = g.Alloc(4096)
	for off := uint64(0); off < 256; off += 8 {
		g.Store(qpc+off, g.Load(w.qpc+off))
	}
	g.Store(qpc+8, w.sq, g.Alloc(4096))
	g.Store(qpc+48, workMTU<<16, workPD<<48|0xFFFF<<32, 0x80010000<<32)
	const typ = uint64(qp.RoCEUD) << 48
	g.Must(rdmatest.WQE{2: qpc, 3: workCreate | typ | cqNumbers | 1<<60 | datagramQP, 5: shadow})
	for _, state := range []qp.State{qp.RTR, qp.RTS} {
		g.Must(rdmatest.WQE{2: qpc, 3: workModify | typ | cqNumbers | uint64(state)<<60 | datagramQP})
	}
	g.Must(rdmatest.WQE{0: page, 1: workPD<<46 | 4096, 2: workSTag, 3: workRegMR | regionType | virtualAddr | localRead, 4: page})
	for i, pd := range map[uint64]uint64{workAH: workPD, foreignAH: workPD + 1} {
		g.Must(rdmatest.WQE{0: 0x525400123456 << 16, 1: pd << 48, 2: rdmatest.ARPIndex<<48 | 64<<32, 3: workCreateAH | ahIPv4 | i, 4: 0xC0000202, 6: 0xC0000201})
	}
	w.page = page
	return w
}

// datagram posts one of n bytes to a QP that is not there.
func (w *worker) datagram(op, ah, n uint64) {
	w.G.Store(w.sq, w.page, n<<32|workSTag, (datagramQP+1)<<32)
	w.G.Store(w.sq+24, op|ah|1<<63)
	w.ring("PFPE_WQEALLOC", datagramQP)
}

// datagramRule are the scenarios of a rule about datagrams, of the kernel and of
// a program.
func datagramRule(id string, trigger, near func(w *worker)) map[string]scenario {
	with := func(program bool) scenario {
		return scenario{trigger: func(b *bench) { trigger(datagramWork(b, program)) }, near: func(b *bench) { near(datagramWork(b, program)) },
			with: []string{"roce-stray"}} // it is for nobody
	}
	return map[string]scenario{id: with(false), id + "-app": with(true)}
}

var udScenarios = merge(
	datagramRule("ud-opcode",
		func(w *worker) { w.datagram(sendWrite, workAH, 0) },
		func(w *worker) { w.datagram(sendSEND, workAH, 0) }),
	datagramRule("ah-absent",
		func(w *worker) {
			w.G.Must(rdmatest.WQE{3: 0x1E<<32 | workAH})
			w.datagram(sendSEND, workAH, 0)
		},
		func(w *worker) { // destroyed behind the datagram
			w.datagram(sendSEND, workAH, 0)
			w.G.Must(rdmatest.WQE{3: 0x1E<<32 | workAH})
		}),
	datagramRule("ah-pd",
		func(w *worker) { w.datagram(sendSEND, foreignAH, 0) },
		func(w *worker) { w.datagram(sendSEND, workAH, 0) }),
	datagramRule("ud-length",
		func(w *worker) { w.datagram(sendSEND, workAH, workMTU+1) },
		func(w *worker) { w.datagram(sendSEND, workAH, workMTU) }),
)
