// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// unmapped is a guest address without memory, aligned for anything.
const unmapped = 0x1000

// Headers of commands, without the valid bit.
const (
	opCreateQP  = 0x00 << 32
	opModifyQP  = 0x01 << 32
	opDestroyQP = 0x02 << 32
	opCreateCQ  = 0x03 << 32
	opDestroyCQ = 0x05 << 32
	opARP       = 0x0F << 32
	opPush      = 0x11 << 32
	opFeatures  = 0x12 << 32
	opCEQ       = 0x16 << 32
	opAEQEnd    = 0x1B << 32
	opAH        = 0x1C << 32
	opSDs       = 0x1F << 32
	opCommit    = 0x21 << 32
	opNOP       = 0x24 << 32
	opGroup     = 0x26 << 32
	opSuspend   = 0x29 << 32
	opAllocated = 0x2B << 32
	opNode      = 0x2C << 32
)

// command is a play that comes up as far as a control QP with its HMC and CCQ,
// and gives one command.
func command(w rdmatest.WQE) func(*bench) { return func(b *bench) { ready(b).Run(w) } }

// ready is a driver with control QP, HMC and CCQ.
func ready(b *bench) *rdmatest.Guest {
	g := b.guest()
	g.CreateCQP(10)
	g.HMC(208)
	g.CreateCCQ()
	return g
}

// booted is a play that boots and gives commands.
func booted(ws ...func(*rdmatest.Device) rdmatest.WQE) func(*bench) {
	return func(b *bench) {
		d := b.boot()
		for _, w := range ws {
			d.G.Run(w(d))
		}
	}
}

func wqe(w rdmatest.WQE) func(*rdmatest.Device) rdmatest.WQE {
	return func(*rdmatest.Device) rdmatest.WQE { return w }
}

// modifyGSI takes the GSI QP from RTS to RTS, its context patched.
func modifyGSI(off, value uint64) func(*rdmatest.Device) rdmatest.WQE {
	return func(d *rdmatest.Device) rdmatest.WQE {
		d.WriteContext()
		d.G.Store(d.QPC+off, value)
		return rdmatest.WQE{2: d.QPC, 3: opModifyQP | 2<<60 | 1<<47 | 4<<48 | rdmatest.GSIQP, 5: d.QPShadow}
	}
}

// group makes multicast group 4 of the given context words.
func group(handle func(*rdmatest.Device) uint64, members ...uint64) func(*rdmatest.Device) rdmatest.WQE {
	return func(d *rdmatest.Device) rdmatest.WQE {
		at := d.G.Alloc(64)
		d.G.Store(at, members...)
		return rdmatest.WQE{2: handle(d), 3: opGroup | 4, 4: at}
	}
}

func leaf(d *rdmatest.Device) uint64 { return uint64(d.QSHandle) }

const member = 1 << 31 // VALIDENT

// endGSI ends the GSI QP's work.
func endGSI(d *rdmatest.Device) {
	d.G.Run(errorGSI(d))
	d.G.Run(flushGSI)
}

func errorGSI(d *rdmatest.Device) rdmatest.WQE {
	return rdmatest.WQE{2: d.QPC, 3: opModifyQP | 6<<60 | 4<<48 | rdmatest.GSIQP, 5: d.QPShadow}
}

var flushRQ = rdmatest.WQE{3: 0x22<<32 | 1<<62 | rdmatest.GSIQP}

var flushGSI = rdmatest.WQE{2: 0x0001_0001_0001_0001, 3: 0x22<<32 | 7<<60 | rdmatest.GSIQP}

// failed is a play in which QP 3 fails in RTS, its rings being nowhere, and
// then may do something.
func failed(then func(d *rdmatest.Device)) func(*bench) {
	return func(b *bench) {
		e := engine.New(engine.Config{Manual: true})
		d := b.boot(func(c *rdma.Config) { c.Engine = e })
		d.WriteContext()
		d.G.Store(d.QPC+8, unmapped, unmapped)
		d.G.Store(d.QPC+48, 1024<<16|rdmatest.ARPIndex<<48)
		d.G.Run(rdmatest.WQE{2: d.QPC, 3: opCreateQP | 1<<60 | 1<<47 | 3<<48 | 3, 5: d.QPShadow + 64})
		for _, state := range []uint64{4, 2} { // RTR, RTS
			d.G.Run(rdmatest.WQE{2: d.QPC, 3: opModifyQP | state<<60 | 1<<59 | 1<<47 | 3<<48 | 3, 5: d.QPShadow + 64})
		}
		e.Drain(100)
		then(d)
	}
}

var destroyGSI = wqe(rdmatest.WQE{3: opDestroyQP | 4<<48 | rdmatest.GSIQP})

// createControlQP writes a control QP's context and its address.
func createControlQP(g *rdmatest.Guest, ring uint64) {
	ctx := g.Alloc(64)
	g.Store(ctx, 1<<8|2<<3, ring, 1, rdmatest.CQPContext, 1<<16, 0, 0, 0) // of 4 WQEs
	g.Write("PFPE_CCQPHIGH", uint32(ctx>>32))
	g.Write("PFPE_CCQPLOW", uint32(ctx))
}

var cqpScenarios = map[string]scenario{
	"cqp-unbuilt": {
		trigger: command(rdmatest.WQE{3: opCreateQP | 1<<48 | 7}), // of iWARP
		near:    command(rdmatest.WQE{3: 0x06 << 32}),             // an SRQ, which the generation has not
		with:    []string{"cqp-refused"},
	},
	"cqp-unknown": {
		trigger: command(rdmatest.WQE{3: 0x3F << 32}),
		near:    command(rdmatest.WQE{3: opNOP}),
		with:    []string{"cqp-refused"},
	},
	"cqp-refused": {
		trigger: command(rdmatest.WQE{3: opARP | 1<<44 | 5}), // a query
		near: func(b *bench) {
			g := ready(b)
			g.Run(rdmatest.WQE{2: 1, 3: opARP | 3<<42 | 5})
			g.Run(rdmatest.WQE{3: opARP | 5})
		},
	},
	"cqp-context": {
		trigger: func(b *bench) { createControlQP(b.guest(), rdmatest.Base+0x10100) },
		near:    func(b *bench) { createControlQP(b.guest(), rdmatest.Base+0x10200) },
	},
	"cqp-twice": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			createControlQP(g, rdmatest.Base+0x10000)
		},
		near: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			g.DestroyCQP()
			g.CreateCQP(1)
		},
	},
	"cqp-dead": {
		trigger: func(b *bench) { b.guest().Write("PFPE_CQPDB", 1) },
		near:    func(b *bench) { b.guest().Write("PFPE_CQPDB", 0) }, // as at the driver's start
	},
	"cqp-doorbell": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			g.Write("PFPE_CQPDB", 4)
		},
		near: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			for range 3 {
				g.Put(rdmatest.WQE{3: opNOP})
			}
			g.Ring()
		},
	},
	"cqp-polarity": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			g.Write("PFPE_CQPDB", 1)
		},
		near: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			for range 5 { // past the wrap
				g.Run(rdmatest.WQE{3: opNOP})
			}
			g.Ring() // the same value again
		},
	},
	"cqp-memory": {
		trigger: func(b *bench) {
			g := b.guest()
			createControlQP(g, unmapped)
			g.Write("PFPE_CQPDB", 1)
		},
		near: func(b *bench) { createControlQP(b.guest(), unmapped) }, // never looked at
	},
	"cqp-completion": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(10)
			g.HMC(208)
			c := g.NewConsumer(4)
			g.Put(rdmatest.WQE{0: 4, 3: opCreateCQ | 1<<46, 4: unmapped, 5: c.Shadow})
			g.Ring()
		},
		near: func(b *bench) { ready(b) },
		with: []string{"queue-memory", "ae-lost", "cqp-unmapped"},
	},
	"cqp-abandoned": {
		trigger: func(b *bench) { b.boot().G.DestroyCQP() },
		near:    func(b *bench) { b.boot().Teardown() },
	},
	"cqp-leak": {
		trigger: func(b *bench) {
			d := b.boot()
			d.G.Run(rdmatest.WQE{2: rdmatest.ARPIndex << 48, 3: opAH | 1<<59 | 7}) // forgotten
			d.Teardown()
		},
		near: func(b *bench) { b.boot().Teardown() },
		with: []string{"sd-in-use", "arp-in-use"},
	},
	"cq-in-use": {
		trigger: func(b *bench) { b.boot().G.Run(rdmatest.WQE{3: opDestroyCQ | rdmatest.GSICQ}) },
		near:    func(b *bench) { b.boot().Teardown() },
	},
	"sd-in-use": {
		trigger: func(b *bench) { b.boot().G.Run(rdmatest.WQE{0: sdCmd, 1: 0x802, 3: opSDs}) },
		near: func(b *bench) {
			g := b.boot().G
			g.AddDirectSD(3) // of PBLEs, which nobody uses
			g.Run(rdmatest.WQE{0: sdCmd + 3, 1: 0x802, 3: opSDs})
		},
	},
	"cqp-reserved": {
		trigger: command(rdmatest.WQE{0: 1, 3: opNOP}),
		near:    command(rdmatest.WQE{3: opNOP}),
	},
	"cqp-unmapped": {
		trigger: command(rdmatest.WQE{3: opFeatures | 16, 4: unmapped}),
		near:    command(rdmatest.WQE{3: opFeatures | 16, 4: rdmatest.Base}),
	},
	"cqp-misaligned": {
		trigger: func(b *bench) { g := ready(b); g.Run(rdmatest.WQE{2: 16, 3: opCEQ, 4: g.Alloc(4096) + 128}) },
		near:    func(b *bench) { g := ready(b); g.Run(rdmatest.WQE{2: 16, 3: opCEQ, 4: g.Alloc(4096) + 256}) },
	},
	"memory-overlap": {
		trigger: func(b *bench) {
			g := ready(b)
			g.Run(rdmatest.WQE{2: 16, 3: opCEQ, 4: (g.CCQ.Ring + rdmatest.CCQSize*32) &^ 255}) // on its last entries
		},
		near: func(b *bench) {
			g := ready(b)
			g.Run(rdmatest.WQE{2: 16, 3: opCEQ, 4: (g.CCQ.Ring + rdmatest.CCQSize*32 + 255) &^ 255})
		},
	},
	"object-exists": {
		trigger: func(b *bench) { d := b.boot(); d.G.Run(rdmatest.WQE{2: 16, 3: opCEQ, 4: d.G.Alloc(4096)}) },
		near:    func(b *bench) { d := b.boot(); d.G.Run(rdmatest.WQE{2: 16, 3: opCEQ | 1, 4: d.G.Alloc(4096)}) },
	},
	"object-absent": {
		trigger: command(rdmatest.WQE{3: opARP | 5}), // there is none to delete
		near: func(b *bench) {
			g := ready(b)
			g.Run(rdmatest.WQE{2: 1, 3: opARP | 3<<42 | 5})
			g.Run(rdmatest.WQE{3: opARP | 5})
		},
	},
	"qp-absent-late": {
		trigger: command(rdmatest.WQE{3: opSuspend | 7}),
		near:    booted(wqe(rdmatest.WQE{3: opSuspend | rdmatest.GSIQP})),
	},
	"object-reserved": {
		trigger: command(rdmatest.WQE{3: opCreateQP | 3<<48 | rdmatest.GSIQP}), // an RC QP for the GSI
		near:    func(b *bench) { b.boot() },
	},
	"cqp-order": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(1)
			g.Run(rdmatest.WQE{3: opCommit | 176, 4: g.Alloc(176)})
		},
		near: func(b *bench) { ready(b) },
	},
	"ccq-first": {
		trigger: func(b *bench) {
			g := b.boot().G
			g.Put(rdmatest.WQE{3: opDestroyCQ})
			g.Ring()
		},
		near: func(b *bench) { b.boot().Teardown() },
	},
	"aeq-in-use": {
		trigger: booted(wqe(rdmatest.WQE{3: opAEQEnd})),
		near:    func(b *bench) { b.boot().Teardown() },
	},
	"qp-in-group": {
		trigger: func(b *bench) {
			d := b.boot()
			d.G.Run(group(leaf, member|rdmatest.GSIQP)(d))
			endGSI(d)
			d.G.Run(destroyGSI(d))
		},
		near: func(b *bench) {
			d := b.boot()
			d.G.Run(group(leaf, member|rdmatest.GSIQP)(d))
			d.G.Run(rdmatest.WQE{3: 0x28<<32 | 4})
			endGSI(d)
			d.G.Run(destroyGSI(d))
		},
	},
	"mcast-group": {
		trigger: booted(group(leaf, 0, member|rdmatest.GSIQP)), // behind a gap
		near:    booted(group(leaf, member|rdmatest.GSIQP)),
	},
	"qp-context": {
		trigger: booted(modifyGSI(24, 4790<<48|7<<12|7<<8)),
		near:    booted(modifyGSI(24, 4791<<48|7<<12|7<<8)),
	},
	"qs-handle": {
		trigger: booted(group(func(d *rdmatest.Device) uint64 { return leaf(d) + 1 }, member|rdmatest.GSIQP)),
		near:    booted(group(leaf, member|rdmatest.GSIQP)),
	},
	"ws-parent": {
		trigger: booted(wqe(rdmatest.WQE{3: opNode | 1<<61 | 2<<16 | 7})), // node 2 is a leaf
		near:    booted(wqe(rdmatest.WQE{3: opNode | 1<<61 | 1<<16 | 7})),
	},
	"ws-children": {
		trigger: booted(wqe(rdmatest.WQE{3: opNode | 2<<52 | 1})),
		near:    booted(wqe(rdmatest.WQE{3: opNode | 1<<61 | 1<<16 | 7}), wqe(rdmatest.WQE{3: opNode | 1<<61 | 2<<52 | 7})),
	},
	"ws-in-use": {
		trigger: booted(wqe(rdmatest.WQE{3: opNode | 1<<61 | 2<<52 | 2})),
		near: func(b *bench) {
			d := b.boot()
			endGSI(d)
			d.G.Run(rdmatest.WQE{3: opNode | 1<<61 | 2<<52 | 2})
		},
	},
	"push-in-use": {
		trigger: func(b *bench) {
			d := b.boot(func(c *rdma.Config) { c.PushPages = 1 })
			d.G.Run(rdmatest.WQE{2: leaf(d), 3: opPush})
			d.G.Run(modifyGSI(0, 1<<47|1<<3)(d)) // PMENA, page 0
			d.G.Run(rdmatest.WQE{2: leaf(d), 3: opPush | 1<<62})
		},
		near: func(b *bench) {
			d := b.boot(func(c *rdma.Config) { c.PushPages = 1 })
			d.G.Run(rdmatest.WQE{2: leaf(d), 3: opPush})
			d.G.Run(modifyGSI(0, 1<<47|1<<3)(d))
			endGSI(d)
			d.G.Run(rdmatest.WQE{2: leaf(d), 3: opPush | 1<<62})
		},
	},
	"arp-in-use": {
		trigger: booted(wqe(rdmatest.WQE{2: rdmatest.ARPIndex << 48, 3: opAH | 1<<59 | 7}), wqe(rdmatest.WQE{3: opARP | rdmatest.ARPIndex})),
		near:    booted(wqe(rdmatest.WQE{3: opARP | rdmatest.ARPIndex})),
	},
	"arp-missing": {
		trigger: booted(wqe(rdmatest.WQE{2: 9 << 48, 3: opAH | 1<<59 | 7})),
		near:    booted(wqe(rdmatest.WQE{2: rdmatest.ARPIndex << 48, 3: opAH | 1<<59 | 7})),
	},
	"qp-transition-late": {
		trigger: failed(func(d *rdmatest.Device) { d.G.Run(rdmatest.WQE{2: d.QPC, 3: opModifyQP | 2<<60 | 1<<47 | 3<<48 | 3}) }),
		near:    failed(func(d *rdmatest.Device) { d.G.Run(rdmatest.WQE{2: d.QPC, 3: opModifyQP | 6<<60 | 3<<48 | 3}) }),
		with:    []string{"cqp-refused", "qp-memory", "cqp-unmapped", "memory-overlap", "memory-overlap-app"},
	},
	"qp-flush-again": {
		trigger: func(b *bench) { d := b.boot(); endGSI(d); d.G.Run(flushGSI) },
		near:    func(b *bench) { d := b.boot(); endGSI(d); d.PostReceives(1); d.G.Run(flushRQ) },
	},
	"qp-destroy-working": {
		trigger: booted(destroyGSI),
		near:    func(b *bench) { d := b.boot(); endGSI(d); d.G.Run(destroyGSI(d)) },
	},
	"qp-destroy-unflushed": {
		trigger: func(b *bench) {
			d := b.boot()
			d.PostReceives(1)
			d.G.Run(errorGSI(d))
			d.G.Run(destroyGSI(d))
		},
		near: func(b *bench) {
			d := b.boot()
			d.PostReceives(1)
			endGSI(d)
			d.G.Run(destroyGSI(d))
		},
	},
	"arp-replaced": {
		trigger: func(b *bench) { b.boot().G.Run(rdmatest.WQE{2: 0x525400FFFFFF, 3: opARP | 3<<42 | rdmatest.ARPIndex}) },
		near:    func(b *bench) { b.boot().G.Run(rdmatest.WQE{2: 0x525400123456, 3: opARP | 3<<42 | rdmatest.ARPIndex}) }, // the same
	},
}
