// SPDX-License-Identifier: Apache-2.0

package cqp

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/qp"
)

// statsFunction checks the function a statistics command names, if it does.
func (c *CQP) statsFunction(w *wqe) error {
	const useFunction = 60
	if !w.flag(3, useFunction) {
		return nil
	}
	return c.checkFunction(w.bits(5, 15, 0))
}

// manageStats gives out counters of their own for the QPs whose contexts name
// them, and takes them back.
func (c *CQP) manageStats(w *wqe) (result, error) {
	const allocate = 62
	if err := c.statsFunction(w); err != nil {
		return result{}, err
	}
	if !w.flag(3, allocate) {
		i := uint8(w.bits(3, 6, 0))
		if !c.qps.FreeInstance(i) {
			return result{}, c.absent(w, "statistics instance", uint32(i))
		}
		return result{}, nil
	}
	i, ok := c.qps.AllocateInstance()
	if !ok {
		return result{}, fmt.Errorf("all %d statistics instances are taken: %w", qp.StatsInstances, errState)
	}
	return result{value: uint32(i)}, nil
}

// gatherStats writes the function's counters, or those of an instance.
func (c *CQP) gatherStats(w *wqe) (result, error) {
	const useInstance = 61
	if err := c.statsFunction(w); err != nil {
		return result{}, err
	}
	instance := w.flag(3, useInstance)
	i := uint8(w.bits(3, 6, 0))
	if _, ok := c.qps.InstanceStats(i); instance && !ok {
		return result{}, c.absent(w, "statistics instance", uint32(i))
	}
	// A step counts what it did at its end. Once those that run now are over,
	// all that completions have told of is counted.
	then := func() (result, error) {
		counters, ok := c.qps.Stats(), true
		if instance {
			if counters, ok = c.qps.InstanceStats(i); !ok {
				return result{}, c.absent(w, "statistics instance", uint32(i))
			}
		}
		return result{}, c.write(w, "statistics buffer", w.q[4], counters[:])
	}
	return result{grace: true, then: then}, nil
}

// Priorities is the map of user priorities, UP_MAP.
type Priorities struct {
	Map         [8]uint8
	VLAN        bool // USEVLAN
	CNP         uint8
	CNPOverride bool // USEOVERRIDE: CNP is the priority of congestion notifications
}

// mapPriorities stores the map. It is about frames, and so changes nothing
// between QPs of one card.
func (c *CQP) mapPriorities(w *wqe) (result, error) {
	if err := c.checkFunction(w.bits(5, 15, 0)); err != nil {
		return result{}, err
	}
	p := Priorities{VLAN: w.flag(3, 62), CNPOverride: w.flag(3, 61), CNP: uint8(w.bits(5, 37, 32))}
	for i := range p.Map {
		p.Map[i] = uint8(w.q[0] >> (8 * i))
	}
	c.tables.priorities = p
	return result{}, nil
}
