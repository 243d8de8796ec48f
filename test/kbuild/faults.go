// SPDX-License-Identifier: Apache-2.0

package kbuild

// Fault is a mistake that a driver of RDMA could make with memory.
type Fault struct {
	Name  string
	About string
	Edits []Edit
}

// Faults are written for the irdma of debian-12's kernel, Linux 6.1.
func Faults() []Fault {
	return []Fault{
		{
			Name:  "pdinv",
			About: "irdma_add_pd_table_entry writes a page descriptor and does not tell the device",
			Edits: []Edit{{
				File: "hmc.c",
				Old:  "\t\tirdma_invalidate_pf_hmc_pd(dev, sd_idx, rel_pd_idx);\n",
			}},
		},
		{
			// Linux had this mistake once; the kernel of debian-12 has the fix.
			Name:  "sd-index",
			About: "get_sd_pd_idx computes the segment descriptor of a PBLE in 32 bits",
			Edits: []Edit{{
				File: "pble.c",
				Old:  "idx->sd_idx = pble_rsrc->next_fpm_addr / IRDMA_HMC_DIRECT_BP_SIZE;",
				New:  "idx->sd_idx = (u32)pble_rsrc->next_fpm_addr / IRDMA_HMC_DIRECT_BP_SIZE;",
			}},
		},
		{
			Name:  "dereg",
			About: "irdma_dereg_mr gives pages and PBLEs back with the STag still valid in the device",
			Edits: []Edit{{
				File: "verbs.c",
				Old: "\tstatus = irdma_handle_cqp_op(iwdev->rf, cqp_request);\n" +
					"\tirdma_put_cqp_request(&iwdev->rf->cqp, cqp_request);\n" +
					"\tif (status)\n\t\treturn status;\n\n" +
					"\tirdma_free_stag(iwdev, iwmr->stag);\n",
				New: "\tstatus = 0;\n" +
					"\tirdma_put_cqp_request(&iwdev->rf->cqp, cqp_request);\n" +
					"\tif (status)\n\t\treturn status;\n\n" +
					"\tirdma_free_stag(iwdev, iwmr->stag);\n",
			}},
		},
		{
			Name:  "level",
			About: "irdma_hwreg_mr announces a region of two levels as one of a flat list",
			Edits: []Edit{{
				File: "verbs.c",
				Old:  "\t\t\tstag_info->first_pm_pbl_index = palloc->level2.root.idx;\n\t\t\tstag_info->chunk_size = 3;\n",
				New:  "\t\t\tstag_info->first_pm_pbl_index = palloc->level2.root.idx;\n\t\t\tstag_info->chunk_size = 1;\n",
			}},
		},
		{
			Name:  "late",
			About: "irdma_setup_pbles copies the pages of a region to one PBLE after the first",
			Edits: []Edit{{
				File: "verbs.c",
				Old:  "\tirdma_copy_user_pgaddrs(iwmr, pbl, pbl_len, level);\n",
				New: "\tif (use_pbles && iwmr->type == IRDMA_MEMREG_TYPE_MEM)\n\t\tpbl++;\n" +
					"\tirdma_copy_user_pgaddrs(iwmr, pbl, pbl_len, level);\n",
			}},
		},
	}
}
