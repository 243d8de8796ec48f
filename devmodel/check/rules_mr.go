// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/mr"
)

// mrRules are about STags and page lists. What an application or a peer names
// is theirs to get wrong, and is answered with an error completion; a kernel
// QP's own STags come from drivers.
var mrRules = append(stagRules(),
	Rule{ID: "pble-range", Grade: Error, Meaning: "a page list reaches beyond the committed PBLEs",
		Device: "failed the registration or the access", Hardware: "fails the command or the access; which is inferred",
		Driver: "pble.c:irdma_get_pble",
		match:  on(func(e mr.PBLERange) string { return stag(e.STag) })},
	Rule{ID: "pble-unmapped", Grade: Error, Meaning: "a PBLE of a valid STag has no memory",
		Device: "failed the access", Hardware: "raises HMC_ERR and stops the QP with an asynchronous event (inferred)",
		Driver: "pble.c:add_pble_prm",
		match:  on(func(e mr.PBLEUnmapped) string { return stag(e.STag) })},
	Rule{ID: "pble-misaligned", Grade: Error, Meaning: "a PBLE is no multiple of its region's page size",
		Device: "cleared the low bits", Hardware: "inferred: clears or adds the low bits; the data goes to another place of memory",
		Driver: "verbs.c:irdma_copy_user_pgaddrs",
		match:  on(func(e mr.PBLEMisaligned) string { return stag(e.STag) })},
)

func stag(s uint32) string { return fmt.Sprintf("STag %#08x", s) }

// stagRules has two rows for each way to use an STag wrongly: the driver's
// own and everybody else's.
func stagRules() []Rule {
	var out []Rule
	for _, r := range []struct {
		id, meaning, driver string
		use                 func(any) (mr.Use, bool)
	}{
		{"stag-free", "an STag was used that is free or has no memory yet", "verbs.c:irdma_dereg_mr",
			use(func(e mr.STagFree) mr.Use { return e.Use })},
		{"stag-key", "an STag was used with another key than it was registered with", "verbs.c:irdma_create_stag",
			use(func(e mr.STagKey) mr.Use { return e.Use })},
		{"stag-pd", "an STag was used by a QP of another protection domain", "verbs.c:irdma_hwreg_mr",
			use(func(e mr.STagPD) mr.Use { return e.Use })},
		{"stag-bounds", "an access went outside its STag's region", "verbs.c:irdma_post_send",
			use(func(e mr.STagBounds) mr.Use { return e.Use })},
		{"stag-right", "an STag was used without the right to", "verbs.c:irdma_get_mr_access",
			use(func(e mr.STagRight) mr.Use { return e.Use })},
		{"stag-zero", "STag 0 was used by a QP that is not privileged, or by a peer", "verbs.c:irdma_setup_kmode_qp",
			use(func(e mr.STagZero) mr.Use { return e.Use })},
	} {
		for _, own := range []bool{true, false} {
			row := Rule{ID: r.id, Grade: Error, Meaning: r.meaning, Device: "refused the access with an error completion",
				Hardware: "stops the QP with an asynchronous event, completes the request in error or answers a NAK", Driver: r.driver}
			if !own {
				row.ID, row.Grade, row.Meaning, row.Driver = r.id+"-app", Note, r.meaning+", by an application or a peer", "-"
			}
			row.match = func(event any) (string, bool) {
				u, ok := r.use(event)
				if !ok || (u.Kernel && !u.Remote) != own {
					return "", false
				}
				return stag(u.STag), true
			}
			out = append(out, row)
		}
	}
	return out
}

// use gets the refused access out of one type of event.
func use[E any](f func(E) mr.Use) func(any) (mr.Use, bool) {
	return func(event any) (mr.Use, bool) {
		e, ok := event.(E)
		if !ok {
			return mr.Use{}, false
		}
		return f(e), true
	}
}
