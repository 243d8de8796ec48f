// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
)

// access uses STag 6<<8|1, two pages readable, in some way.
func access(change func(b *bench, t *mr.Table, s *mr.Subject, a *use1)) func(*bench, mr.Subject) {
	return func(b *bench, s mr.Subject) {
		t := b.registered(0x10_0000, 0x20_0000)
		a := use1{stag: 6<<8 | 1, to: 1 << 20, n: 2 << 12, need: mr.LocalRead}
		if change != nil {
			change(b, t, &s, &a)
		}
		_, _ = t.Resolve(nil, s, a.stag, a.to, a.n, a.need, false)
	}
}

// use1 is one access to an STag.
type use1 struct {
	stag uint32
	to   uint64
	n    uint32
	need mr.Access
}

// accessScenarios are of rules about what is done with an STag.
var accessScenarios = merge(
	uses("stag-free", access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.stag = 9<<8 | 1 }), access(nil)),
	uses("stag-key", access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.stag++ }), access(nil)),
	uses("stag-pd", access(func(_ *bench, _ *mr.Table, s *mr.Subject, _ *use1) { s.PD++ }), access(nil)),
	uses("stag-bounds", access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.to++ }),
		access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.to++; a.n-- })),
	uses("stag-right", access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.need = mr.RemoteWrite }),
		access(func(_ *bench, _ *mr.Table, _ *mr.Subject, a *use1) { a.need = mr.LocalWrite })),
	map[string]scenario{
		// A privileged QP may use STag 0 by itself, its peer may not.
		"stag-zero-app": {
			trigger: func(b *bench) {
				t, _ := b.table()
				_, _ = t.Resolve(nil, kernelQP, 0, 1<<20, 8, mr.RemoteRead, true)
			},
			near: func(b *bench) {
				t, _ := b.table()
				_, _ = t.Resolve(nil, kernelQP, 0, 1<<20, 8, mr.LocalRead, false)
			},
		},
		"pble-range": {
			trigger: func(b *bench) { b.registersAtEnd(2) },
			near:    func(b *bench) { b.registersAtEnd(1) },
		},
		"pble-unmapped": {
			trigger: func(b *bench) { b.readWithoutSegment(8) },
			near:    func(b *bench) { b.readWithoutSegment(0) }, // nothing is read
			with:    []string{"hmc-sd-invalid"},
		},
		"pble-misaligned": {
			trigger: func(b *bench) { b.registered(0x10_0800) },
			near:    func(b *bench) { b.registered(0x10_0000) },
		},
	},
)

// registersAtEnd registers pages from the last of the PBLEs on.
func (b *bench) registersAtEnd(pages uint64) {
	t, store := b.table()
	store(63, 0x10_0000)
	r := flatRegion(6, pages)
	r.First = 63
	_ = t.Register(r, by)
}

// readWithoutSegment reads a region whose page list has lost its memory.
func (b *bench) readWithoutSegment(n uint32) {
	t, cache, _ := mrTable(b.T, b.checker)
	if err := cache.UpdateSDs([]hmc.SDEntry{{Cmd: sdCmd, Data: 0x802}}); err != nil {
		b.Fatal(err)
	}
	_, _ = t.Resolve(nil, kernelQP, 0x577, 0, n, mr.LocalRead, false)
}
