// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// hmcRules are about the host memory cache: segments, page descriptors, the
// layout.
var hmcRules = []Rule{
	{ID: "hmc-sd-invalid", Grade: Error, Meaning: "the walk to an HMC object met a segment descriptor that is not valid",
		Device: "failed the access, raised HMC_ERR", Hardware: "raises HMC_ERR with the object in PFHMC_ERRORINFO; its error codes are inferred",
		Driver: "hmc.c:irdma_sc_create_hmc_obj, pble.c:add_pble_prm",
		match:  accessFailed(hmc.FaultSD, func(w hmc.Walk) string { return fmt.Sprintf("%v SD %d", w.Object, w.SD) })},
	{ID: "hmc-pd-invalid", Grade: Error, Meaning: "the walk to an HMC object met a page descriptor that is not valid",
		Device: "failed the access, raised HMC_ERR", Hardware: "raises HMC_ERR with the object in PFHMC_ERRORINFO; its error codes are inferred",
		Driver: "hmc.c:irdma_add_pd_table_entry",
		match:  accessFailed(hmc.FaultPD, func(w hmc.Walk) string { return fmt.Sprintf("%v SD %d PD %d", w.Object, w.SD, w.PD) })},
	{ID: "hmc-index", Grade: Error, Meaning: "an HMC object was named beyond the committed count",
		Device: "failed the access, raised HMC_ERR", Hardware: "raises HMC_ERR with the object in PFHMC_ERRORINFO; its error codes are inferred",
		Driver: "ctrl.c:irdma_sc_commit_fpm_val",
		match:  accessFailed(hmc.FaultIndex, func(w hmc.Walk) string { return fmt.Sprintf("%v %d", w.Object, w.Index) })},
	{ID: "hmc-memory", Grade: Error, Meaning: "a page of page descriptors lies outside guest memory",
		Device: "failed the access, raised HMC_ERR", Hardware: "DMA fails: HMC_ERR, PE_CRITERR or both (inferred)",
		Driver: "hmc.c:irdma_add_sd_table_entry",
		match:  accessFailed(hmc.FaultRead, func(w hmc.Walk) string { return fmt.Sprintf("SD %d", w.SD) })},
	{ID: "pd-stale", Grade: Error, Meaning: "a page descriptor was changed without PFHMC_PDINV and then used",
		Device: "went on using its own copy", Hardware: "goes on using the page descriptor in its cache: it reads and writes memory that the driver has freed",
		Driver: "hmc.c:irdma_invalidate_pf_hmc_pd",
		match:  on(func(e hmc.StalePD) string { return fmt.Sprintf("SD %d PD %d", e.SD, e.PD) })},
	{ID: "pd-no-pdinv", Grade: Error, Meaning: "a page descriptor was used with no PFHMC_PDINV since its word appeared or changed",
		Device: "read it and used it", Hardware: "may go on with what it read before, if it had read that the entry is not valid (inferred)",
		Driver: "hmc.c:irdma_add_pd_table_entry",
		match:  on(func(e hmc.PDUntold) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "pd-shared", Grade: Error, Meaning: "the page of a page descriptor is memory that another descriptor or a segment names",
		Device: "used it", Hardware: "writes the state of one object over that of another",
		Driver: "hmc.c:irdma_add_pd_table_entry",
		match:  on(func(e hmc.BackingShared) string { return fmt.Sprintf("%#x", e.Address) })},
	{ID: "pd-bits", Grade: Warning, Meaning: "a page descriptor has bits set that are neither VALID nor a page's address",
		Device: "ignored them", Hardware: "ignores them, or they mean something (inferred)",
		Driver: "hmc.c:irdma_add_pd_table_entry",
		match:  on(func(e hmc.PDMalformed) string { return fmt.Sprintf("SD %d PD %d", e.SD, e.PD) })},
	{ID: "pdinv-needless", Grade: Note, Meaning: "PFHMC_PDINV for a page descriptor that has not changed: one too many, or the entry was to be zeroed first",
		Device: "forgot its copy", Hardware: "forgets its copy, and reads the entry again",
		Driver: "hmc.c:irdma_remove_pd_bp",
		match:  on(func(e hmc.PDINVNeedless) string { return fmt.Sprintf("SD %d PD %d", e.SD, e.PD) })},
	{ID: "pdinv-outside-fpm", Grade: Error, Meaning: "PFHMC_PDINV names a segment in which no committed object lies",
		Device: "ignored it", Hardware: "does nothing, or something to another object's descriptor (inferred)",
		Driver: "hmc.c:irdma_invalidate_pf_hmc_pd",
		match:  on(func(e hmc.PDINVOutsideFPM) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-double-clear", Grade: Warning, Meaning: "a segment descriptor was cleared that is not valid",
		Device: "nothing", Hardware: "nothing (inferred)",
		Driver: "hmc.c:irdma_finish_del_sd_reg",
		match:  on(func(e hmc.SDNotValid) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-overwrite", Grade: Error, Meaning: "a valid segment descriptor was programmed again",
		Device: "took the new one", Hardware: "takes the new address; page descriptors cached of the old one may stay (inferred)",
		Driver: "hmc.c:irdma_hmc_sd_grp",
		match:  on(func(e hmc.SDReprogrammed) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-outside-fpm", Grade: Error, Meaning: "a segment descriptor was programmed in whose 2 MiB of FPM space no committed object lies",
		Device: "programmed it, or failed the command if the function has no such segment", Hardware: "fails the command or leaves the segment unused (inferred)",
		Driver: "pble.c:get_sd_pd_idx, hmc.c:irdma_find_sd_index_limit",
		match:  on(func(e hmc.SDOutsideFPM) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-bits", Grade: Warning, Meaning: "a segment descriptor has a page count other than 512, as with an address that is not a page's",
		Device: "took it for a whole segment", Hardware: "may refuse accesses behind the count (inferred)",
		Driver: "hmc.c:irdma_set_sd_entry",
		match:  on(func(e hmc.SDMalformed) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "hmc-commit", Grade: Warning, Meaning: "COMMIT_FPM_VAL asks for more objects, or for more segments, than QUERY_FPM_VAL has offered",
		Device: "failed the command", Hardware: "fails the command (inferred)",
		Driver: "ctrl.c:irdma_cfg_fpm_val",
		match: on(func(e hmc.CommitRefused) string {
			if e.Object == hmc.NumObjects {
				return "layout"
			}
			return e.Object.String()
		})},
	{ID: "hmc-static", Grade: Error, Meaning: "SHMC_PAGES_ALLOCATED came before all static objects had memory",
		Device: "failed the command", Hardware: "fails the command, or meets the missing segment later: HMC_ERR (inferred)",
		Driver: "hw.c:irdma_create_hmc_objs",
		match:  on(func(e hmc.StaticUnbacked) string { return fmt.Sprintf("%v", e.Object) })},
}

// accessFailed matches a walk that failed in one way.
func accessFailed(fault hmc.Fault, object func(hmc.Walk) string) func(any) (string, bool) {
	return when(func(e hmc.AccessFailed) bool { return e.Fault == fault }, func(e hmc.AccessFailed) string { return object(e.Walk) })
}
