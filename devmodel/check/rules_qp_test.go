// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"testing"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/qp"
)

// Package qp's tests show when it emits these events; here they become the
// right findings, and what only looks like them does not.
func TestQueuePairRules(t *testing.T) {
	for _, c := range []struct {
		event        any
		rule, object string // empty: none
	}{
		{qp.SendNotExecuted{QP: 3, Opcode: 0x3b}, "wqe-opcode", "QP 3"},
		{qp.SendNotExecuted{QP: 3, Program: true, Opcode: 0x3b}, "wqe-opcode-app", "QP 3"},
		{qp.SendNotExecuted{QP: 3, Opcode: 0x09, Name: "FAST_REG_NSMR"}, "qp-send-unbuilt", "QP 3"},
		{qp.BadWQE{QP: 4, Why: "15 fragments"}, "wqe-shape", "QP 4"},
		{qp.BadWQE{QP: 4, Program: true, Why: "15 fragments"}, "wqe-shape-app", "QP 4"},
		{qp.QueueUnreadable{QP: 5, Err: errors.New("no DMA map")}, "qp-memory", "QP 5"},
		{qp.InvalidateNotExecuted{QP: 6, STag: 0x100}, "qp-invalidate-unbuilt", "QP 6"},
		{qp.UnknownQP{QP: 7}, "qp-doorbell", "QP 7"},
		{qp.UnknownQP{QP: 7, User: true}, "qp-doorbell-app", "QP 7"},
		{event.UnknownCQ{Register: "PFPE_CQARM", CQ: 2}, "cq-doorbell", "CQ 2"},
		{event.UnknownCQ{Register: event.UserArm, CQ: 2}, "cq-doorbell-app", "CQ 2"},
		{event.UnknownCQ{Register: "PFPE_CQACK", CQ: 2}, "cq-ack-unknown", "CQ 2"},
		{qp.IllegalTransition{QP: 8}, "qp-transition", "QP 8"},
		{qp.Info{ID: 9}, "", ""},
	} {
		k := New(nil)
		k.Event(c.event)
		got := k.Findings(Note)
		if c.rule == "" {
			if len(got) != 0 {
				t.Errorf("%v: findings %+v", c.event, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Rule != c.rule || got[0].Object != c.object {
			t.Errorf("%v: findings %+v, want %s of %s", c.event, got, c.rule, c.object)
		}
	}
}
