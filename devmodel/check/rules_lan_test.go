// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/lan"
)

// What a driver does wrong with LAN queues is a finding by queue; what a reset
// has overtaken is none.
func TestLANRules(t *testing.T) {
	for _, x := range []struct {
		event any
		rule  string
	}{
		{lan.BadQueue{Queue: 3}, "lan-queue"},
		{lan.BadTail{Queue: 3, Tail: 64, Length: 64}, "lan-tail"},
		{lan.BadTxDescriptor{Queue: 3, Why: "a buffer of 0 bytes"}, "lan-descriptor"},
		{lan.BadRxDescriptor{Queue: 3, Why: "no DMA map"}, "lan-rx-descriptor"},
		{lan.BadRxContext{Queue: 3, Why: "qlen is 0"}, "lan-rx-context"},
	} {
		c := New(nil)
		c.Event(devmodel.Orphan{Event: x.event})
		if got := c.Findings(Note); len(got) != 0 {
			t.Errorf("%s: findings %+v of what a reset has ended", x.rule, got)
		}
		c.Event(x.event)
		if got := c.Findings(Error); len(got) != 1 || got[0].Rule != x.rule || got[0].Object != "queue 3" {
			t.Errorf("%s: findings %+v", x.rule, got)
		}
	}
}

// What the model lacks is said, and is not the driver's fault.
func TestFilterNotBuiltIsAGap(t *testing.T) {
	c := New(nil)
	c.Event(lan.FilterNotBuilt{Queue: 3})
	if got := c.Findings(Note); len(got) != 1 || got[0].Rule != "lan-filter-unbuilt" || got[0].Grade != Note {
		t.Errorf("findings %+v", got)
	}
}
