// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// The control QP's CQ has no mask: events follow each other before the driver
// acknowledges them, and each acknowledgement has its event.
func TestAcksOfAnUnmaskedCQ(t *testing.T) {
	b := newBench(t)
	b.ok(b.q.CreateCEQ(0, hmc.Buffer{Base: ceqRing}, 4))
	b.ok(b.q.CreateCQ(event.CQConfig{ID: event.CCQ, Size: 8, Buf: hmc.Buffer{Base: cqRing}, Shadow: shadow, CEQValid: true}))
	for range 3 {
		b.arm(event.CCQ, true)
		b.complete(event.CCQ, false)
	}
	if len(b.ceqs) != 3 {
		t.Errorf("%d events of 3 arms", len(b.ceqs))
	}
	for range 3 {
		b.ack(event.CCQ)
	}
	if len(b.events) != 0 {
		t.Errorf("%v", b.events)
	}
	b.ack(event.CCQ)
	if len(b.events) != 1 {
		t.Errorf("one acknowledgement too many: %v", b.events)
	}
}
