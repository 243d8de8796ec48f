// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// TestRegisterDump reads what "ethtool -d" dumps of the pipeline.
func TestRegisterDump(t *testing.T) {
	c := newCard(t)
	for _, r := range diagnosticRegisters() {
		for i := range max(r.N, 1) {
			if v := c.rd(uint64(r.Offset) + 4*uint64(i)); v != 0 {
				t.Errorf("%s(%d): %#x", r.Name, i, v)
			}
		}
	}
	for _, e := range c.events {
		if u, ok := e.(reg.Unknown); ok {
			t.Error(u)
		}
	}
}
