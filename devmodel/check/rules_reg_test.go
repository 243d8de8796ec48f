// SPDX-License-Identifier: Apache-2.0

package check

import "github.com/vrnic/vrnic/devmodel/reg"

// registers are one register, at 0x10.
func registers(b *bench) *reg.Space {
	return reg.NewSpace(1<<12, b.emit, []reg.Row{{Name: "PFPE_CQPDB", Offset: 0x10}})
}

var regScenarios = map[string]scenario{
	"reg-unknown": {
		trigger: func(b *bench) { registers(b).Write32(0x14, 1) },
		near:    func(b *bench) { registers(b).Write32(0x10, 1) },
	},
	"reg-width": {
		trigger: func(b *bench) { registers(b).Write(0x10, []byte{1, 2}) },
		near:    func(b *bench) { registers(b).Write(0x10, []byte{1, 2, 3, 4}) },
	},
}
