// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// scenario is the proof of a rule: a driver that breaks it and one that comes
// as close as a correct one may. Both are played on the units themselves; events
// made by hand prove nothing.
type scenario struct {
	trigger func(*bench)
	near    func(*bench)
	// with are rules that the play breaks beside, in either part. Whatever is
	// neither expected nor listed fails the test.
	with []string
}

// scenarios has a row for each rule.
var scenarios = merge(regScenarios, fwScenarios, lanScenarios, cqpScenarios, hmcScenarios, eventScenarios, qpScenarios, udScenarios, roceScenarios, mrScenarios, accessScenarios, overlapScenarios)

// merge joins tables; a rule that two of them prove is a mistake.
func merge(tables ...map[string]scenario) map[string]scenario {
	all := map[string]scenario{}
	for _, t := range tables {
		for id, s := range t {
			if _, twice := all[id]; twice {
				panic("two scenarios for " + id)
			}
			all[id] = s
		}
	}
	return all
}

// bench is where a scenario is played: whatever is built with its emit is
// watched by a checker.
type bench struct {
	*testing.T
	checker *Checker
	events  []any
}

func (b *bench) emit(event any) {
	b.events = append(b.events, event)
	b.checker.Event(event)
}

// guest is a driver in front of a protocol engine; see rdmatest.
func (b *bench) guest(options ...func(*rdma.Config)) *rdmatest.Guest {
	watch := func(c *rdma.Config) {
		record := c.Emit
		c.Emit = func(event any) { record(event); b.checker.Event(event) }
	}
	return rdmatest.New(b, hmc.Profile{}, append([]func(*rdma.Config){watch}, options...)...)
}

// boot is a guest whose driver has come up to a GSI QP in RTS, in the order of
// 7.3.
func (b *bench) boot(options ...func(*rdma.Config)) *rdmatest.Device {
	return b.guest(options...).Boot(rdmatest.Kernel73, 1)
}

// broken are the rules broken so far.
func (b *bench) broken() []string {
	ids := map[string]bool{}
	for _, f := range b.checker.Findings(Note) {
		ids[f.Rule] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

func play(t *testing.T, do func(*bench)) (broken []string, all string) {
	b := &bench{T: t, checker: New(nil)}
	do(b)
	for _, f := range b.checker.Findings(Note) {
		all += fmt.Sprintf("\n  %v", f)
	}
	return b.broken(), all
}

func TestEveryRuleHasATriggerAndANearMiss(t *testing.T) {
	for _, r := range Rules() {
		s, ok := scenarios[r.ID]
		if !ok {
			t.Errorf("rule %s has no scenario", r.ID)
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			broken, all := play(t, s.trigger)
			if !slices.Contains(broken, r.ID) {
				t.Errorf("the trigger does not break it:%s", all)
			}
			for _, id := range broken {
				if id != r.ID && !slices.Contains(s.with, id) {
					t.Errorf("the trigger breaks %s, too:%s", id, all)
				}
			}
			broken, all = play(t, s.near)
			for _, id := range broken {
				if id == r.ID || !slices.Contains(s.with, id) {
					t.Errorf("the near miss breaks %s:%s", id, all)
				}
			}
		})
	}
	for id := range scenarios {
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.ID == id }) {
			t.Errorf("a scenario for %s, which is no rule", id)
		}
	}
}
