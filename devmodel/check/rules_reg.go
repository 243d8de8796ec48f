// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// regRules are about register accesses.
var regRules = []Rule{
	{ID: "reg-unknown", Grade: Note, Meaning: "a register that the model does not know was accessed",
		Device: "stored it like memory", Hardware: "has more registers than any driver names",
		Driver: "-",
		match:  on(func(e reg.Unknown) string { return fmt.Sprintf("offset %#06x", e.Offset) })},
	{ID: "reg-width", Grade: Warning, Meaning: "a register access was not a whole, aligned dword",
		Device: "dropped the write, or answered from the dword", Hardware: "inferred: takes naturally aligned 4- and 8-byte accesses; others are undefined",
		Driver: "ice_osdep.h:wr32",
		match:  on(func(e reg.BadAccess) string { return fmt.Sprintf("offset %#06x", e.Offset) })},
}
