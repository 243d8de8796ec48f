// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// sdCmd is word 0 of UPDATE_PE_SDS for segment 0.
const sdCmd = 0x80008000

// paged is a host memory cache alone, with 16 QPs in segment 0 and PBLEs behind
// page descriptor 1 of segment 1, whose page of page descriptors is at rdmatest.Base.
type paged struct {
	*bench
	mem   *guestmem.Memory
	cache *hmc.Cache
	space *reg.Space
}

const (
	pagedSD = 1
	pagedPD = 1
)

func newPaged(b *bench) *paged {
	profile := hmc.SmallGuest()
	profile.PBLEPage = 1
	p := &paged{bench: b, mem: rdmatest.Memory(b, 1<<20)}
	p.cache = hmc.New(hmc.Config{Mem: p.mem, Emit: b.emit, Profile: profile})
	p.space = reg.NewSpace(8<<20, nil, p.cache.Registers())
	var layout [hmc.FPMSize]byte
	layout[0], layout[112] = 16, 255
	if err := p.cache.Commit(&layout); err != nil {
		b.Fatal(err)
	}
	return p
}

// program puts a word into segment descriptor i.
func (p *paged) program(i, data uint64) *paged {
	if err := p.cache.UpdateSDs([]hmc.SDEntry{{Cmd: sdCmd + i, Data: data}}); err != nil {
		p.Fatal(err)
	}
	return p
}

// setPD writes the page descriptor of the PBLEs, and tells or not.
func (p *paged) setPD(word uint64, tell bool) *paged {
	if err := p.mem.Store64(rdmatest.Base+8*pagedPD, word); err != nil {
		p.Fatal(err)
	}
	if tell {
		p.tell(pagedSD, pagedPD)
	}
	return p
}

// tell writes PFHMC_PDINV.
func (p *paged) tell(sd, pd uint32) {
	p.space.Write32(pdinvRegister(p.cache), sd|1<<15|pd<<16)
}

// use walks to an object as the device itself does.
func (p *paged) use(o hmc.Object, index uint32) *paged {
	_, _ = p.cache.Resolve(o, index)
	return p
}

func pdinvRegister(c *hmc.Cache) uint32 {
	for _, r := range c.Registers() {
		if r.Name == "PFHMC_PDINV" {
			return r.Offset
		}
	}
	panic("no PFHMC_PDINV")
}

const (
	pdPage  = rdmatest.Base | 0x801
	onePage = rdmatest.Base + 0x2000 | 1
	another = rdmatest.Base + 0x3000 | 1
)

var hmcScenarios = map[string]scenario{
	"hmc-sd-invalid": {
		trigger: func(b *bench) { newPaged(b).use(hmc.QP, 0) },
		near:    func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803).use(hmc.QP, 0) },
	},
	"hmc-pd-invalid": {
		trigger: func(b *bench) { newPaged(b).program(pagedSD, pdPage).use(hmc.PBLE, 0) },
		near:    func(b *bench) { newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0) },
	},
	"hmc-index": {
		trigger: func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803).use(hmc.QP, 16) },
		near:    func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803).use(hmc.QP, 15) },
	},
	"hmc-memory": {
		trigger: func(b *bench) { newPaged(b).program(pagedSD, unmapped|0x801).use(hmc.PBLE, 0) },
		near:    func(b *bench) { newPaged(b).program(pagedSD, unmapped|0x801) },
	},
	"pd-stale": {
		trigger: func(b *bench) {
			p := newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0)
			p.setPD(another, false).use(hmc.PBLE, 0)
		},
		near: func(b *bench) {
			p := newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0)
			p.setPD(another, true).use(hmc.PBLE, 0)
		},
	},
	"sd-double-clear": {
		trigger: command(rdmatest.WQE{0: sdCmd + 3, 1: 0x802, 3: opSDs}),
		near:    command(rdmatest.WQE{0: sdCmd + 2, 1: 0x802, 3: opSDs}),
		with:    []string{"sd-in-use"}, // segment 2 is behind the CCQ
	},
	"sd-overwrite": {
		trigger: func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803).program(0, rdmatest.Base+0x1000|0x803) },
		near:    func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803).program(0, rdmatest.Base|0x803) },
	},
	"sd-outside-fpm": {
		trigger: func(b *bench) { newPaged(b).program(2, rdmatest.Base|0x803) },
		near:    func(b *bench) { newPaged(b).program(1, rdmatest.Base|0x803) },
	},
	"pd-no-pdinv": {
		trigger: func(b *bench) { newPaged(b).setPD(onePage, false).program(pagedSD, pdPage).use(hmc.PBLE, 0) },
		near: func(b *bench) {
			newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0)
			newPaged(b).setPD(onePage, false).program(pagedSD, pdPage) // not used
		},
	},
	"pd-shared": {
		trigger: func(b *bench) {
			newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0).program(0, rdmatest.Base|0x803)
		},
		near: func(b *bench) {
			newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0).program(0, rdmatest.Base+0x3000|0x803)
		},
	},
	"pd-bits": {
		trigger: func(b *bench) { newPaged(b).setPD(onePage|8, true).program(pagedSD, pdPage).use(hmc.PBLE, 0) },
		near:    func(b *bench) { newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0) },
	},
	"pdinv-needless": {
		trigger: func(b *bench) {
			newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0).setPD(onePage, true)
		},
		near: func(b *bench) {
			newPaged(b).setPD(onePage, true).program(pagedSD, pdPage).use(hmc.PBLE, 0).setPD(0, true)
		},
	},
	"pdinv-outside-fpm": {
		trigger: func(b *bench) { newPaged(b).tell(2, 0) },
		near: func(b *bench) {
			newPaged(b).tell(pagedSD, 0)
			c := hmc.New(hmc.Config{Emit: b.emit}) // after a reset there is no layout
			reg.NewSpace(8<<20, nil, c.Registers()).Write32(pdinvRegister(c), 2|1<<15)
		},
	},
	"sd-bits": {
		trigger: func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x843) },
		near:    func(b *bench) { newPaged(b).program(0, rdmatest.Base|0x803) },
	},
	"hmc-commit": {
		trigger: func(b *bench) {
			_ = hmc.New(hmc.Config{Emit: b.emit}).Commit(&[hmc.FPMSize]byte{1, 4}) // 1025 QPs
		},
		near: func(b *bench) {
			_ = hmc.New(hmc.Config{Emit: b.emit}).Commit(&[hmc.FPMSize]byte{0, 4})
		},
	},
	"hmc-static": {
		trigger: func(b *bench) {
			g := b.guest()
			g.CreateCQP(10)
			g.CommitFPM(208)
			g.AddDirectSD(0)
			g.AddDirectSD(1)
			g.Run(rdmatest.WQE{3: opAllocated})
		},
		near: func(b *bench) {
			g := b.guest()
			g.CreateCQP(10)
			g.HMC(208)
		},
		with: []string{"cqp-refused"},
	},
}
