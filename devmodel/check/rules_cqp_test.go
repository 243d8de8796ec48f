// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// unmapped is a guest address without memory, aligned for anything.
const unmapped = 0x1000

// Headers of commands, without the valid bit.
const (
	opDestroyQP = 0x02 << 32
	opCreateCQ  = 0x03 << 32
	opDestroyCQ = 0x05 << 32
	opARP       = 0x0F << 32
	opSDs       = 0x1F << 32
	opNOP       = 0x24 << 32
	opAllocated = 0x2B << 32
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

// unbuilt is an opcode that drivers know and the model does not have.
func unbuilt(b *bench) uint64 {
	for _, o := range cqp.Opcodes() {
		if !o.Built {
			return uint64(o.Op)
		}
	}
	b.Fatal("every opcode is built: the rule may go")
	return 0
}

// createControlQP writes a control QP's context and its address.
func createControlQP(g *rdmatest.Guest, ring uint64) {
	ctx := g.Alloc(64)
	g.Store(ctx, 1<<8|2<<3, ring, 1, rdmatest.CQPContext, 1<<16, 0, 0, 0) // of 4 WQEs
	g.Write("PFPE_CCQPHIGH", uint32(ctx>>32))
	g.Write("PFPE_CCQPLOW", uint32(ctx))
}

var cqpScenarios = map[string]scenario{
	"cqp-unbuilt": {
		trigger: func(b *bench) { ready(b).Run(rdmatest.WQE{3: unbuilt(b) << 32}) },
		near:    command(rdmatest.WQE{3: opNOP}),
		with:    []string{"cqp-refused"},
	},
	"cqp-unknown": {
		trigger: command(rdmatest.WQE{3: 0x3F << 32}),
		near:    command(rdmatest.WQE{3: opNOP}),
		with:    []string{"cqp-refused"},
	},
	"cqp-refused": {
		trigger: command(rdmatest.WQE{3: opARP | 5}), // there is none to delete
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
		with: []string{"queue-memory", "ae-lost"},
	},
	"cqp-leak": {
		trigger: func(b *bench) { b.boot().G.DestroyCQP() },
		near:    func(b *bench) { b.boot().Teardown() },
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
	"arp-replaced": {
		trigger: func(b *bench) { b.boot().G.Run(rdmatest.WQE{2: 0x525400FFFFFF, 3: opARP | 3<<42 | rdmatest.ARPIndex}) },
		near:    func(b *bench) { b.boot().G.Run(rdmatest.WQE{2: 0x525400123456, 3: opARP | 3<<42 | rdmatest.ARPIndex}) }, // the same
	},
}
