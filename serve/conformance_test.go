// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"testing"

	"github.com/vrnic/vrnic/vfio-user/conformance"
)

// The card is held against the protocol like any other device. What it has not
// (INTx, DMA by message) is its own choice; that it has the rest is not.
func TestCardConforms(t *testing.T) {
	_, o := start(t, 1)
	have, err := conformance.Probe(t.Context(), o.Sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range []conformance.Needs{conformance.NeedReset, conformance.NeedMSIX, conformance.NeedPCIe, conformance.NeedMulti} {
		if have&need == 0 {
			t.Errorf("the card has not: %v", need)
		}
	}
	ran := 0
	for _, c := range conformance.Cases() {
		if c.Lacks(have) != "" {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), o.Sockets[0]); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("%d cases", ran)
	if ran == 0 {
		t.Error("no case is for a device like this")
	}
}
