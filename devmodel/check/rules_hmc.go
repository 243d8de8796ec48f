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
		Driver: "hmc.c:irdma_sc_create_hmc_obj, irdma_hmc_sd_grp",
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
	{ID: "sd-double-clear", Grade: Warning, Meaning: "a segment descriptor was cleared that is not valid",
		Device: "nothing", Hardware: "nothing (inferred)",
		Driver: "hmc.c:irdma_finish_del_sd_reg",
		match:  on(func(e hmc.SDNotValid) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-overwrite", Grade: Error, Meaning: "a valid segment descriptor was programmed again",
		Device: "took the new one", Hardware: "takes the new address; page descriptors cached of the old one may stay (inferred)",
		Driver: "hmc.c:irdma_hmc_sd_grp",
		match:  on(func(e hmc.SDReprogrammed) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "sd-outside-fpm", Grade: Error, Meaning: "a segment descriptor beyond the committed layout was programmed",
		Device: "see the command's completion", Hardware: "fails the command or leaves the segment unused (inferred)",
		Driver: "hmc.c:irdma_hmc_sd_grp",
		match:  on(func(e hmc.SDBeyondLayout) string { return fmt.Sprintf("SD %d", e.SD) })},
	{ID: "hmc-static", Grade: Error, Meaning: "SHMC_PAGES_ALLOCATED came before all static objects had memory",
		Device: "failed the command", Hardware: "fails the command, or meets the missing segment later: HMC_ERR (inferred)",
		Driver: "hw.c:irdma_create_hmc_objs",
		match:  on(func(e hmc.StaticUnbacked) string { return fmt.Sprintf("%v", e.Object) })},
}

// accessFailed matches a walk that failed in one way.
func accessFailed(fault hmc.Fault, object func(hmc.Walk) string) func(any) (string, bool) {
	return when(func(e hmc.AccessFailed) bool { return e.Fault == fault }, func(e hmc.AccessFailed) string { return object(e.Walk) })
}
