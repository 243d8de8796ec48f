// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
)

// unwatched are contracts of drivers with memory, objects and the control QP
// that no rule watches, and why.
var unwatched = []struct{ contract, why string }{
	{"ARM_SEQ_NUM in a CQ's shadow area goes up by one from arm to arm",
		"the doorbell is a posted write: by the time it is seen, the word may be that of a later arm, or that of a resize"},
	{"a CQ is not destroyed while a CEQE of it is out",
		"drivers do it all the time and take the entry back themselves (ctrl.c:irdma_sc_cleanup_ceqes)"},
	{"an STag is not deallocated while work posted with it is outstanding",
		"it is seen when the work comes to use the STag: `stag-ended`; work that never does harms nobody"},
	{"an event queue whose interrupt is enabled is looked at before long",
		"under emulation no time is too long; a lost interrupt shows in the driver's own timeouts"},
	{"an enabled vector has a queue that leads to it",
		"drivers enable vectors before and after the causes, in an order of their own"},
	{"a push page is written to only by the one who has it", "the function gives out none"},
	{"memory is not given to segments that are never used", "it is a matter of cost: `vrnic explain hmc` shows it"},
}

// writeUnwatched writes them as a section of the catalogue.
func writeUnwatched(b *strings.Builder) {
	b.WriteString("\n## What no rule watches\n\n| contract | why |\n|---|---|\n")
	for _, u := range unwatched {
		fmt.Fprintf(b, "| %s | %s |\n", cell(u.contract), cell(u.why))
	}
}
