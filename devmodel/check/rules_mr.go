// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
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
	Rule{ID: "pble-zero", Grade: Error, Meaning: "a PBLE of a valid STag is 0",
		Device: "went on with address 0 where it was used", Hardware: "inferred: reads or writes at address 0",
		Driver: "verbs.c:irdma_copy_user_pgaddrs, irdma_set_page",
		match:  on(func(e mr.PBLEZero) string { return stag(e.STag) })},
	Rule{ID: "pble-not-address", Grade: Error, Meaning: "a PBLE of a valid STag is no address but has the looks of a PBLE's index",
		Device: "took it for an address", Hardware: "inferred: takes it for an address; the data goes to another place of memory",
		Driver: "verbs.c:irdma_hwreg_mr, irdma_alloc_mr",
		match:  on(func(e mr.PBLENotAddress) string { return stag(e.STag) })},
	Rule{ID: "pble-misaligned", Grade: Error, Meaning: "a PBLE is no multiple of its region's page size",
		Device: "cleared the low bits", Hardware: "inferred: clears or adds the low bits; the data goes to another place of memory",
		Driver: "verbs.c:irdma_copy_user_pgaddrs",
		match:  on(func(e mr.PBLEMisaligned) string { return stag(e.STag) })},
	Rule{ID: "pble-crosses", Grade: Error, Meaning: "a page list, or a leaf of one, lies in two segments of the HMC",
		Device: "read it as it is", Hardware: "not known: drivers never do it",
		Driver: "utils.c:irdma_prm_get_pbles",
		match:  on(func(e mr.PBLECrosses) string { return stag(e.STag) })},
	Rule{ID: "pble-changed", Grade: Warning, Meaning: "a page list changed between REG_MR and DEALLOC_STAG",
		Device: "used what was there at each access", Hardware: "inferred: uses the old or the new, there is no command to invalidate PBLEs",
		Driver: "verbs.c:irdma_rereg_mr_trans",
		match:  on(func(e mr.PBLEChanged) string { return stag(e.STag) })},
	Rule{ID: "pble-shared", Grade: Error, Meaning: "two live regions or queues have the same PBLE",
		Device: "used it for both", Hardware: "uses it for both",
		Driver: "pble.c:irdma_free_pble",
		match:  on(func(e mr.PBLEShared) string { return e.Object })},

	Rule{ID: "stag-busy", Grade: Error, Meaning: "an STag was allocated or registered that is not free",
		Device: "failed the command", Hardware: "fails the command (inferred)", Driver: "verbs.c:irdma_create_stag",
		match: on(func(e mr.STagBusy) string { return stag(e.STag) })},
	Rule{ID: "stag-index", Grade: Error, Meaning: "an STag has index 0 or one beyond the committed count",
		Device: "failed the command", Hardware: "fails the command (inferred)", Driver: "verbs.c:irdma_create_stag",
		match: on(func(e mr.STagIndex) string { return fmt.Sprintf("STag index %d", e.Index) })},
	Rule{ID: "stag-fields", Grade: Error, Meaning: "the words of a registration do not go together",
		Device: "failed the command if it has no meaning", Hardware: "not known", Driver: "verbs.c:irdma_hwreg_mr",
		match: on(func(e mr.RegionFields) string { return stag(e.STag) })},
	Rule{ID: "dealloc-free", Grade: Error, Meaning: "an STag was deallocated that is free",
		Device: "failed the command", Hardware: "fails the command (inferred)", Driver: "verbs.c:irdma_hwdereg_mr",
		match: on(func(e mr.DeallocFree) string { return fmt.Sprintf("STag index %#x", e.Index) })},
	Rule{ID: "dealloc-wrong", Grade: Error, Meaning: "an STag was deallocated with another protection domain, index or kind",
		Device: "failed the command", Hardware: "fails the command (inferred)", Driver: "verbs.c:irdma_hwdereg_mr, irdma_dealloc_mw",
		match: on(func(e mr.DeallocWrong) string { return stag(e.STag) })},
	Rule{ID: "mw-bound", Grade: Note, Meaning: "a region was deallocated that has memory windows bound, as an application can make the driver do",
		Device: "failed the command", Hardware: "fails the command (inferred)", Driver: "-",
		match: on(func(e mr.WindowsBound) string { return stag(e.STag) })},
	Rule{ID: "mw-left", Grade: Note, Meaning: "a QP was destroyed that memory windows belong to, without IGNOREMWBOUND, as drivers do for a program that leaves windows bound",
		Device: "destroyed it; the windows stay bound", Hardware: "not known: no driver sets the bit", Driver: "-",
		match: on(func(e mr.WindowsLeft) string { return fmt.Sprintf("QP %d", e.QP) })},
	Rule{ID: "stag-refused", Grade: Warning, Meaning: "a kernel's request to register, bind or invalidate an STag was refused",
		Device:   "stopped the QP with an asynchronous event",
		Hardware: "stops the QP with an asynchronous event; which of several codes is inferred", Driver: "verbs.c:irdma_post_send",
		match: when(func(e mr.Refused) bool { return e.Kernel && !e.Remote }, func(e mr.Refused) string { return stag(e.STag) })},
	Rule{ID: "stag-refused-app", Grade: Note, Meaning: "a request to bind or invalidate an STag was refused, of an application or a peer",
		Device:   "stopped the QP with an asynchronous event, and answered a NAK to a peer",
		Hardware: "stops the QP with an asynchronous event; which of several codes is inferred", Driver: "-",
		match: when(func(e mr.Refused) bool { return !e.Kernel || e.Remote }, func(e mr.Refused) string { return stag(e.STag) })},
	Rule{ID: "mr-no-memory", Grade: Error, Meaning: "an STag that allows an access leads to an address that is not memory",
		Device:   "stopped the QP with LCE_QP_CATASTROPHIC, and answered a NAK to a peer",
		Hardware: "inferred: DMA fails, the QP stops with an asynchronous event",
		Driver:   "verbs.c:irdma_reg_user_mr, irdma_dereg_mr",
		match:    on(func(e qp.PayloadFault) string { return stag(e.STag) })},
	Rule{ID: "unmap-live-mr", Grade: Error, Meaning: "memory was unmapped while a region on it is registered",
		Device: "went on; accesses to it will fault", Hardware: "goes on; the IOMMU refuses its accesses",
		Driver: "verbs.c:irdma_dereg_mr",
		match:  on(func(e mr.UnmapLiveMR) string { return stag(e.STag) })},
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
		{"stag-free", "an STag was used that is free", "verbs.c:irdma_reg_user_mr",
			use(func(e mr.STagFree) mr.Use { return e.Use })},
		{"stag-ended", "an STag was used after DEALLOC_STAG", "verbs.c:irdma_dereg_mr",
			use(func(e mr.STagEnded) mr.Use { return e.Use })},
		{"stag-invalid", "an STag was used that has no memory: nothing was registered or bound, or it was invalidated", "verbs.c:irdma_post_send",
			use(func(e mr.STagInvalid) mr.Use { return e.Use })},
		{"mw-qp", "a memory window was used by a QP that it does not belong to", "-",
			use(func(e mr.STagQP) mr.Use { return e.Use })},
		{"stag-key", "an STag was used with another key than it was registered with", "verbs.c:irdma_create_stag",
			use(func(e mr.STagKey) mr.Use { return e.Use })},
		{"stag-pd", "an STag was used by a QP of another protection domain", "verbs.c:irdma_hwreg_mr",
			use(func(e mr.STagPD) mr.Use { return e.Use })},
		{"stag-bounds", "an access went outside its STag's region", "verbs.c:irdma_post_send",
			use(func(e mr.STagBounds) mr.Use { return e.Use })},
		{"stag-right", "an STag was used without the right to", "verbs.c:irdma_get_mr_access",
			use(func(e mr.STagRight) mr.Use { return e.Use })},
		{"stag-zero", "STag 0 was used, which only a kernel's own QPs may", "verbs.c:irdma_setup_kmode_qp",
			use(func(e mr.STagZero) mr.Use { return e.Use })},
	} {
		for _, own := range []bool{true, false} {
			if own && r.id == "stag-zero" {
				continue // a kernel's own QP may, and is told by that it may
			}
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
