// SPDX-License-Identifier: Apache-2.0

package devmodel

import "testing"

// A card that nobody watches tells nothing of its protocol engine, and goes on as
// any other.
func TestUnwatched(t *testing.T) {
	const cqpDB = 0x500800
	for _, unwatched := range []bool{false, true} {
		events := 0
		d := New(Config{Unwatched: unwatched, Emit: func(any) { events++ }})
		c := &card{Device: d, t: t}
		c.wr(cqpDB, 1) // without a control QP
		if v := c.rd(cqpDB); v != 1 {
			t.Errorf("PFPE_CQPDB = %d", v)
		}
		if (events == 0) != unwatched {
			t.Errorf("unwatched %t: %d events", unwatched, events)
		}
		d.Close()
	}
}
