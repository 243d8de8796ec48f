// SPDX-License-Identifier: Apache-2.0

package decode

// The control WQEs' fields (defs.h:IRDMA_CQPSQ_*, uda_d.h:IRDMA_UDA_CQPSQ_*).
// Those without a macro are stored whole by the function named in the table of
// opcodes (devmodel/cqp).

var (
	qpTypes   = enum("", "IRDMA_QP_TYPE_IWARP", "IRDMA_QP_TYPE_UDA", "IRDMA_QP_TYPE_ROCE_RC", "IRDMA_QP_TYPE_ROCE_UD")
	qpStates  = enum("IRDMA_QP_STATE_INVALID", "IRDMA_QP_STATE_IDLE", "IRDMA_QP_STATE_RTS", "IRDMA_QP_STATE_SQD (iWARP: CLOSING)", "IRDMA_QP_STATE_RTR", "IRDMA_QP_STATE_TERMINATE", "IRDMA_QP_STATE_ERROR")
	termActs  = enum("IRDMAQP_TERM_SEND_TERM_AND_FIN", "IRDMAQP_TERM_SEND_TERM_ONLY", "IRDMAQP_TERM_SEND_FIN_ONLY", "IRDMAQP_TERM_DONOT_SEND_TERM_OR_FIN")
	levels    = enum("contiguous: an address, no PBLEs", "level 1: a list of PBLEs", "", "level 2: a list of leaves of 512 PBLEs")
	pageSizes = enum("4 KiB", "2 MiB", "1 GiB")
	rights    = set("LOCALREAD", "LOCALWRITE", "REMOTEREAD", "REMOTEWRITE", "BIND_WINDOW")
	nodeOps   = enum("IRDMA_ADD_NODE", "IRDMA_MODIFY_NODE", "IRDMA_DEL_NODE")
	qhashOps  = enum("IRDMA_QHASH_MANAGE_TYPE_DELETE", "IRDMA_QHASH_MANAGE_TYPE_ADD", "IRDMA_QHASH_MANAGE_TYPE_MODIFY")
	qhashTyps = enum("", "IRDMA_QHASH_TYPE_TCP_ESTABLISHED", "IRDMA_QHASH_TYPE_TCP_SYN", "IRDMA_QHASH_TYPE_UDP_UNICAST", "IRDMA_QHASH_TYPE_UDP_MCAST", "IRDMA_QHASH_TYPE_ROCE_MCAST", "IRDMA_QHASH_TYPE_ROCEV2_HW")
	aeCodes   = Kind{"asynchronous event", func(v uint64) string { return aeName(uint16(v)) }}
	aeSources = enum("IRDMA_AE_SOURCE_RSVD", "IRDMA_AE_SOURCE_RQ", "IRDMA_AE_SOURCE_CQ", "IRDMA_AE_SOURCE_RQ_0011", "", "IRDMA_AE_SOURCE_SQ",
		"IRDMA_AE_SOURCE_CQ_0110", "IRDMA_AE_SOURCE_SQ_0111", "", "IRDMA_AE_SOURCE_IN_RR_WR", "IRDMA_AE_SOURCE_CQ_1010", "IRDMA_AE_SOURCE_IN_RR_WR_1011",
		"", "IRDMA_AE_SOURCE_OUT_RR", "IRDMA_AE_SOURCE_CQ_1110", "IRDMA_AE_SOURCE_OUT_RR_1111")
	flushMinors = Kind{"flush code", func(v uint64) string { return flushName(uint16(v)) }}
	hmcProfiles = enum("", "IRDMA_HMC_PROFILE_DEFAULT", "IRDMA_HMC_PROFILE_FAVOR_VF", "IRDMA_HMC_PROFILE_EQUAL")
)

// cqpHeader is in every control WQE.
var cqpHeader = []Field{
	{"IRDMA_CQPSQ_WQEVALID", 3, 63, 63, flag},
	{"IRDMA_CQPSQ_OPCODE", 3, 37, 32, hexa},
}

// Fields that several operations share.
var (
	qpWords = []Field{
		{"IRDMA_CQPSQ_QP_QPCTX", 2, 63, 0, address},
		{"IRDMA_CQPSQ_QP_QPTYPE", 3, 50, 48, qpTypes},
		{"IRDMA_CQPSQ_QP_QPID", 3, 23, 0, decimal},
		{"IRDMA_CQPSQ_QP_DBSHADOWADDR", 5, 63, 0, address},
	}
	qpFlags = []Field{
		{"IRDMA_CQPSQ_QP_NEXTIWSTATE", 3, 62, 60, qpStates},
		{"IRDMA_CQPSQ_QP_ARPTABIDXVALID", 3, 59, 59, flag},
		{"IRDMA_CQPSQ_QP_MACVALID", 3, 51, 51, flag},
		{"IRDMA_CQPSQ_QP_CQNUMVALID", 3, 47, 47, flag},
		{"IRDMA_CQPSQ_QP_FORCELOOPBACK", 3, 46, 46, flag},
		{"IRDMA_CQPSQ_QP_VQ", 3, 45, 45, flag},
		{"IRDMA_CQPSQ_QP_TOECTXVALID", 3, 43, 43, flag},
		{"IRDMA_CQPSQ_QP_ORDVALID", 3, 42, 42, flag},
	}
	cqWords = []Field{
		{"IRDMA_CQPSQ_CQ_CQSIZE", 0, 20, 0, decimal},
		{"IRDMA_CQPSQ_CQ_CQCTX", 1, 62, 0, hexa},
		{"IRDMA_CQPSQ_CQ_SHADOW_READ_THRESHOLD", 2, 17, 0, decimal},
		{"IRDMA_CQPSQ_CQ_AVOIDMEMCNFLCT", 3, 61, 61, unused},
		{"IRDMA_CQPSQ_TPHEN", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_CQ_CEQID_HIGH", 3, 59, 54, unused},
		{"IRDMA_CQPSQ_CQ_CQID_HIGH", 3, 52, 50, unused},
		{"IRDMA_CQPSQ_CQ_CEQIDVALID", 3, 49, 49, flag},
		{"IRDMA_CQPSQ_CQ_ENCEQEMASK", 3, 48, 48, flag},
		{"IRDMA_CQPSQ_CQ_VIRTMAP", 3, 47, 47, flag},
		{"IRDMA_CQPSQ_CQ_CHKOVERFLOW", 3, 46, 46, flag},
		{"IRDMA_CQPSQ_CQ_LPBLSIZE", 3, 45, 44, levels},
		{"IRDMA_CQPSQ_CQ_CQRESIZE", 3, 43, 43, flag},
		{"IRDMA_CQPSQ_CQ_CEQID", 3, 31, 22, decimal},
		{"IRDMA_CQPSQ_CQ_CQID", 3, 18, 0, decimal},
		{"buffer", 4, 63, 0, address},
		{"shadow area", 5, 63, 0, address},
		{"IRDMA_CQPSQ_CQ_FIRSTPMPBLIDX", 6, 27, 0, decimal},
		{"IRDMA_CQPSQ_VSIIDX", 7, 23, 8, decimal},
		{"IRDMA_CQPSQ_TPHVAL", 7, 7, 0, hexa},
	}
	srqWords = []Field{
		{"IRDMA_CQPSQ_SRQ_SRQ_LIMIT", 0, 43, 32, decimal},
		{"IRDMA_CQPSQ_SRQ_RQ_WQE_SIZE", 0, 5, 4, decimal},
		{"IRDMA_CQPSQ_SRQ_RQSIZE", 0, 3, 0, decimal},
		{"SRQ context", 1, 63, 0, hexa},
		{"IRDMA_CQPSQ_SRQ_PD_ID", 2, 39, 16, decimal},
		{"IRDMA_CQPSQ_SRQ_ARM_LIMIT_EVENT", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_SRQ_TPH_EN", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_SRQ_VIRTMAP", 3, 47, 47, flag},
		{"IRDMA_CQPSQ_SRQ_LEAF_PBL_SIZE", 3, 45, 44, levels},
		{"IRDMA_CQPSQ_SRQ_SRQ_ID", 3, 15, 0, decimal},
		{"IRDMA_CQPSQ_SRQ_PHYSICAL_BUFFER_ADDR", 4, 63, 8, shifted(8)},
		{"IRDMA_CQPSQ_SRQ_DB_SHADOW_ADDR", 5, 63, 6, shifted(6)},
		{"IRDMA_CQPSQ_SRQ_FIRST_PM_PBL_IDX", 6, 27, 0, decimal},
		{"IRDMA_CQPSQ_SRQ_TPH_VALUE", 7, 7, 0, hexa},
	}
	stagWords = []Field{
		{"IRDMA_CQPSQ_STAG_PDID", 1, 63, 46, decimal},
		{"IRDMA_CQPSQ_STAG_PDID_HI", 2, 59, 54, decimal},
		{"IRDMA_CQPSQ_STAG_IDX", 2, 31, 8, hexa},
		{"IRDMA_CQPSQ_STAG_MR", 3, 43, 43, flag},
	}
	regionWords = []Field{
		{"IRDMA_CQPSQ_STAG_STAGLEN", 1, 45, 0, hexa},
		{"IRDMA_CQPSQ_STAG_REMOTE_ATOMIC_EN", 3, 61, 61, unused},
		{"IRDMA_CQPSQ_STAG_USEHMCFNIDX", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_STAG_REMACCENABLED", 3, 53, 53, flag},
		{"IRDMA_CQPSQ_STAG_ARIGHTS", 3, 52, 48, rights},
		{"IRDMA_CQPSQ_STAG_HPAGESIZE", 3, 47, 46, pageSizes},
		{"IRDMA_CQPSQ_STAG_LPBLSIZE", 3, 45, 44, levels},
		{"IRDMA_CQPSQ_STAG_HMCFNIDX", 5, 15, 0, decimal},
		{"IRDMA_CQPSQ_STAG_FIRSTPMPBLIDX", 6, 27, 0, decimal},
	}
	regMR = []Field{
		{"IRDMA_CQPSQ_STAG_VA_FBO", 0, 63, 0, address},
		{"IRDMA_CQPSQ_STAG_KEY", 2, 7, 0, hexa},
		{"IRDMA_CQPSQ_STAG_VABASEDTO", 3, 59, 59, flag},
		{"IRDMA_CQPSQ_STAG_PBA", 4, 63, 0, address},
	}
	ceqWords = []Field{
		{"IRDMA_CQPSQ_CEQ_CEQSIZE", 2, 21, 0, decimal},
		{"IRDMA_CQPSQ_PASID_VALID", 3, 62, 62, unused},
		{"IRDMA_CQPSQ_TPHEN", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_CEQ_VMAP", 3, 47, 47, flag},
		{"IRDMA_CQPSQ_CEQ_ITRNOEXPIRE", 3, 46, 46, flag},
		{"IRDMA_CQPSQ_CEQ_LPBLSIZE", 3, 45, 44, levels},
		{"IRDMA_CQPSQ_CEQ_CEQID_HIGH", 3, 15, 10, unused},
		{"IRDMA_CQPSQ_CEQ_CEQID", 3, 9, 0, decimal},
		{"buffer", 4, 63, 0, address},
		{"IRDMA_CQPSQ_CEQ_FIRSTPMPBLIDX", 6, 27, 0, decimal},
		{"IRDMA_CQPSQ_PASID", 7, 51, 32, unused},
		{"IRDMA_CQPSQ_VSIIDX", 7, 23, 8, decimal},
		{"IRDMA_CQPSQ_TPHVAL", 7, 7, 0, hexa},
	}
	aeqWords = []Field{
		{"IRDMA_CQPSQ_AEQ_AEQECNT", 2, 18, 0, decimal},
		{"IRDMA_CQPSQ_PASID_VALID", 3, 62, 62, unused},
		{"IRDMA_CQPSQ_TPHEN", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_AEQ_VMAP", 3, 47, 47, flag},
		{"IRDMA_CQPSQ_AEQ_LPBLSIZE", 3, 45, 44, levels},
		{"buffer", 4, 63, 0, address},
		{"IRDMA_CQPSQ_AEQ_FIRSTPMPBLIDX", 6, 27, 0, decimal},
		{"IRDMA_CQPSQ_PASID", 7, 51, 32, unused},
	}
	ahWords = []Field{
		{"source MAC", 0, 63, 16, mac},
		{"IRDMA_UDA_CQPSQ_MAV_PDINDEXLO", 1, 63, 48, decimal},
		{"IRDMA_UDA_CQPSQ_MAV_TC", 1, 39, 32, hexa},
		{"VLAN tag", 1, 15, 0, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ARPINDEX", 2, 63, 48, decimal},
		{"IRDMA_UDA_CQPSQ_MAV_HOPLIMIT", 2, 39, 32, decimal},
		{"IRDMA_UDA_CQPSQ_MAV_PDINDEXHI", 2, 27, 20, decimal},
		{"IRDMA_UDA_CQPSQ_MAV_FLOWLABEL", 2, 19, 0, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_DOLOOPBACKK", 3, 62, 62, flag},
		{"IRDMA_UDA_CQPSQ_MAV_INSERTVLANTAG", 3, 60, 60, flag},
		{"IRDMA_UDA_CQPSQ_MAV_IPV4VALID", 3, 59, 59, flag},
		{"IRDMA_UDA_CQPSQ_MAV_AVIDX", 3, 23, 0, decimal},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR2 (dest)", 4, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR3 (dest)", 4, 31, 0, quad},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR0 (dest)", 5, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR1 (dest)", 5, 31, 0, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR2 (source)", 6, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR3 (source)", 6, 31, 0, quad},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR0 (source)", 7, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR1 (source)", 7, 31, 0, hexa},
	}
	groupWords = []Field{
		{"destination MAC", 0, 47, 0, mac},
		{"IRDMA_UDA_CQPSQ_MG_HMC_FCN_ID", 1, 5, 0, decimal},
		{"IRDMA_UDA_CQPSQ_MG_VLANID", 2, 43, 32, decimal},
		{"IRDMA_UDA_CQPSQ_QS_HANDLE", 2, 9, 0, decimal},
		{"IRDMA_UDA_CQPSQ_MG_IPV4VALID", 3, 60, 60, flag},
		{"IRDMA_UDA_CQPSQ_MG_VLANVALID", 3, 59, 59, flag},
		{"IRDMA_UDA_CQPSQ_MG_MGIDX", 3, 12, 0, decimal},
		{"member list", 4, 63, 0, address},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR2 (dest)", 6, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR3 (dest)", 6, 31, 0, quad},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR0 (dest)", 7, 63, 32, hexa},
		{"IRDMA_UDA_CQPSQ_MAV_ADDR1 (dest)", 7, 31, 0, hexa},
	}
	statsWords = []Field{
		{"IRDMA_CQPSQ_STATS_ALLOC_INST", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_STATS_USE_INST", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_STATS_USE_HMC_FCN_INDEX", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_STATS_INST_INDEX", 3, 6, 0, decimal},
		{"buffer", 4, 63, 0, address},
		{"IRDMA_CQPSQ_STATS_HMC_FCN_INDEX", 5, 15, 0, decimal},
	}
)

func join(groups ...[]Field) (out []Field) {
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// cqpOperations are the fields of each opcode, but for the header's.
var cqpOperations = map[uint8]struct {
	fields []Field
	notes  func(w *Words) []string
}{
	0x00: {join(qpWords, qpFlags), qpNotes},
	0x01: {join(qpWords, qpFlags, []Field{
		{"IRDMA_CQPSQ_QP_TERMLEN", 1, 51, 48, decimal},
		{"IRDMA_CQPSQ_QP_NEWMSS", 1, 45, 32, decimal},
		{"IRDMA_CQPSQ_QP_RESETCON", 3, 58, 58, flag},
		{"IRDMA_CQPSQ_QP_TERMACT", 3, 57, 56, termActs},
		{"IRDMA_CQPSQ_QP_REMOVEHASHENTRY", 3, 55, 55, flag},
		{"IRDMA_CQPSQ_QP_MSSCHANGE", 3, 52, 52, flag},
		{"IRDMA_CQPSQ_QP_CACHEDVARVALID", 3, 44, 44, flag},
	}), qpNotes},
	0x02: {join(qpWords, []Field{
		{"IRDMA_CQPSQ_QP_REMOVEHASHENTRY", 3, 55, 55, flag},
		{"IRDMA_CQPSQ_QP_IGNOREMWBOUND", 3, 54, 54, flag},
	}), qpNotes},
	0x03: {cqWords, cqNotes},
	0x04: {cqWords, cqNotes},
	0x05: {cqWords, cqNotes},
	0x06: {srqWords, nil},
	0x07: {srqWords, nil},
	0x08: {srqWords, nil},
	0x09: {join(stagWords, regionWords, []Field{
		{"IRDMA_CQPSQ_STAG_MW1_BIND_DONT_VLDT_KEY", 3, 58, 58, flag},
		{"IRDMA_CQPSQ_STAG_MWTYPE", 3, 42, 42, enum("type 2", "type 1")},
	}), stagNotes},
	0x0A: {join(stagWords, regionWords, regMR), stagNotes},
	0x0B: {stagWords, stagNotes},
	// Without IRDMA_CQPSQ_STAG_PDID_HI, which is newer and lies over the parent,
	// and without memory of its own.
	0x0C: {join(stagWords[:1], stagWords[2:], regionWords, regMR[:3], []Field{{"IRDMA_CQPSQ_STAG_PARENTSTAGIDX", 2, 55, 32, hexa}}), nil},
	0x0D: {stagWords, stagNotes},
	0x0E: {[]Field{
		{"IRDMA_CQPSQ_MLM_FREEENTRY", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_MLM_IGNORE_REF_CNT", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_MLM_TABLEIDX", 3, 5, 0, decimal},
		{"MAC address", 4, 47, 0, mac},
	}, nil},
	0x0F: {[]Field{
		{"IRDMA_CQPSQ_MAT_REACHMAX", 1, 31, 0, decimal},
		{"IRDMA_CQPSQ_MAT_MACADDR", 2, 47, 0, mac},
		{"IRDMA_CQPSQ_MAT_QUERY", 3, 44, 44, flag},
		{"IRDMA_CQPSQ_MAT_PERMANENT", 3, 43, 43, flag},
		{"IRDMA_CQPSQ_MAT_ENTRYVALID", 3, 42, 42, flag},
		{"IRDMA_CQPSQ_MAT_ARPENTRYIDX", 3, 11, 0, decimal},
	}, arpNotes},
	0x10: {[]Field{
		{"IRDMA_CQPSQ_MVPBP_SD_INX", 2, 43, 32, decimal},
		{"IRDMA_CQPSQ_MVPBP_FIRST_PD_INX", 2, 24, 16, decimal},
		{"IRDMA_CQPSQ_MVPBP_PD_ENTRY_CNT", 2, 9, 0, decimal},
		{"IRDMA_CQPSQ_MVPBP_INV_PD_ENT", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_MVPBP_PD_PLPBA", 4, 63, 3, shifted(3)},
	}, nil},
	0x11: {[]Field{
		{"QS handle", 2, 31, 0, decimal},
		{"IRDMA_CQPSQ_MPP_FREE_PAGE", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_MPP_PPTYPE", 3, 61, 60, decimal},
		{"IRDMA_CQPSQ_MPP_PPIDX", 3, 31, 0, decimal},
	}, nil},
	0x12: {[]Field{
		{"IRDMA_CQPSQ_QUERY_RDMA_FEATURES_BUF_LEN", 3, 31, 0, decimal},
		{"buffer", 4, 63, 0, address},
	}, nil},
	0x13: {[]Field{
		{"IRDMA_CQPSQ_UCTX_QPCTXADDR", 2, 63, 0, address},
		{"IRDMA_CQPSQ_UCTX_FREEZEQP", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_UCTX_RAWFORMAT", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_UCTX_QPTYPE", 3, 51, 48, qpTypes},
		{"IRDMA_CQPSQ_UCTX_QPID", 3, 23, 0, decimal},
	}, nil},
	0x14: {nil, nil},
	0x15: {[]Field{
		{"IRDMA_CQPSQ_MHMC_FREEPMFN", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_MHMC_VFIDX", 3, 15, 0, decimal},
	}, nil},
	0x16: {ceqWords, nil},
	0x18: {ceqWords, nil},
	0x19: {aeqWords, nil},
	0x1B: {aeqWords, nil},
	0x1C: {ahWords, ahNotes},
	0x1D: {ahWords, ahNotes},
	0x1E: {ahWords, ahNotes},
	0x1F: {[]Field{
		{"IRDMA_CQPSQ_UPESD_SDCMD", 0, 31, 0, hexa},
		{"SD data of entry 0", 1, 63, 0, hexa},
		{"extra entries", 2, 63, 7, shifted(7)},
		{"IRDMA_CQPSQ_UPESD_HMCFNID", 2, 5, 0, decimal},
		{"IRDMA_CQPSQ_UPESD_SKIP_ENTRY", 3, 7, 7, flag},
		{"IRDMA_CQPSQ_UPESD_ENTRY_COUNT", 3, 3, 0, decimal},
		{"IRDMA_CQPSQ_UPESD_ENTRY_VALID", 4, 63, 63, flag},
		{"IRDMA_CQPSQ_UPESD_SDCMD", 4, 31, 0, hexa},
		{"SD data of entry 1", 5, 63, 0, hexa},
		{"IRDMA_CQPSQ_UPESD_ENTRY_VALID", 6, 63, 63, flag},
		{"IRDMA_CQPSQ_UPESD_SDCMD", 6, 31, 0, hexa},
		{"SD data of entry 2", 7, 63, 0, hexa},
	}, sdUpdateNotes},
	0x20: {[]Field{{"HMC function", 2, 15, 0, decimal}, {"buffer", 4, 63, 0, address}}, nil},
	0x21: {[]Field{
		{"HMC function", 2, 15, 0, decimal},
		{"IRDMA_CQPSQ_CFPM_FW_SCRATCH_BUF_PRESENT", 3, 38, 38, unused},
		{"IRDMA_CQPSQ_BUFSIZE", 3, 31, 0, decimal},
		{"buffer", 4, 63, 0, address},
	}, nil},
	0x22: {[]Field{
		{"IRDMA_CQPSQ_FWQE_AESOURCE", 1, 19, 16, aeSources},
		{"IRDMA_CQPSQ_FWQE_AECODE", 1, 15, 0, aeCodes},
		{"IRDMA_CQPSQ_FWQE_SQMJERR", 2, 63, 48, hexa},
		{"IRDMA_CQPSQ_FWQE_SQMNERR", 2, 47, 32, flushMinors},
		{"IRDMA_CQPSQ_FWQE_RQMJERR", 2, 31, 16, hexa},
		{"IRDMA_CQPSQ_FWQE_RQMNERR", 2, 15, 0, flushMinors},
		{"IRDMA_CQPSQ_FWQE_FLUSHRQ", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_FWQE_FLUSHSQ", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_FWQE_USERFLCODE", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_FWQE_GENERATE_AE", 3, 59, 59, flag},
		{"IRDMA_CQPSQ_FWQE_ERR_RQ_IDX_VALID", 3, 43, 43, unused},
		{"IRDMA_CQPSQ_FWQE_ERR_SQ_IDX_VALID", 3, 42, 42, unused},
		{"IRDMA_CQPSQ_FWQE_QPID", 3, 23, 0, decimal},
		{"IRDMA_CQPSQ_FWQE_ERR_SQ_IDX", 5, 49, 32, unused},
		{"IRDMA_CQPSQ_FWQE_ERR_RQ_IDX", 6, 46, 32, unused},
	}, flushNotes},
	0x23: {[]Field{
		{"IRDMA_CQPSQ_MAPT_PORT", 2, 15, 0, decimal},
		{"IRDMA_CQPSQ_MAPT_ADDPORT", 3, 62, 62, flag},
	}, nil},
	0x24: {nil, nil},
	0x25: {[]Field{
		{"MAC address", 0, 47, 0, mac},
		{"IRDMA_CQPSQ_QHASH_QPN", 1, 49, 32, decimal},
		{"IRDMA_CQPSQ_QHASH_SRC_PORT", 1, 31, 16, decimal},
		{"IRDMA_CQPSQ_QHASH_DEST_PORT", 1, 15, 0, decimal},
		{"IRDMA_CQPSQ_QHASH_VLANID", 2, 43, 32, decimal},
		{"IRDMA_CQPSQ_QHASH_QS_HANDLE", 2, 9, 0, decimal},
		{"IRDMA_CQPSQ_QHASH_MANAGE", 3, 62, 61, qhashOps},
		{"IRDMA_CQPSQ_QHASH_IPV4VALID", 3, 60, 60, flag},
		{"IRDMA_CQPSQ_QHASH_VLANVALID", 3, 59, 59, flag},
		{"IRDMA_CQPSQ_QHASH_ENTRYTYPE", 3, 44, 42, qhashTyps},
		{"IRDMA_CQPSQ_QHASH_ADDR2 (source)", 4, 63, 32, hexa},
		{"IRDMA_CQPSQ_QHASH_ADDR3 (source)", 4, 31, 0, quad},
		{"IRDMA_CQPSQ_QHASH_ADDR0 (source)", 5, 63, 32, hexa},
		{"IRDMA_CQPSQ_QHASH_ADDR1 (source)", 5, 31, 0, hexa},
		{"IRDMA_CQPSQ_QHASH_ADDR2 (dest)", 6, 63, 32, hexa},
		{"IRDMA_CQPSQ_QHASH_ADDR3 (dest)", 6, 31, 0, quad},
		{"IRDMA_CQPSQ_QHASH_ADDR0 (dest)", 7, 63, 32, hexa},
		{"IRDMA_CQPSQ_QHASH_ADDR1 (dest)", 7, 31, 0, hexa},
	}, nil},
	0x26: {groupWords, nil},
	0x27: {groupWords, nil},
	0x28: {groupWords, nil},
	0x29: {[]Field{{"IRDMA_CQPSQ_SUSPENDQP_QPID", 3, 23, 0, decimal}}, nil},
	0x2A: {[]Field{
		{"IRDMA_CQPSQ_RESUMEQP_QSHANDLE", 2, 31, 0, decimal},
		{"IRDMA_CQPSQ_RESUMEQP_QPID", 3, 23, 0, decimal},
	}, nil},
	0x2B: {[]Field{{"IRDMA_SHMC_PAGE_ALLOCATED_HMC_FN_ID", 2, 5, 0, decimal}}, nil},
	0x2C: {[]Field{
		{"IRDMA_CQPSQ_WS_ENABLENODE", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_WS_NODETYPE", 3, 61, 61, enum("inner node", "leaf")},
		{"IRDMA_CQPSQ_WS_PRIOTYPE", 3, 60, 59, enum("", "IRDMA_PRIO_WEIGHTED_RR", "IRDMA_PRIO_STRICT", "IRDMA_PRIO_WEIGHTED_STRICT")},
		{"IRDMA_CQPSQ_WS_TC", 3, 58, 56, decimal},
		{"IRDMA_CQPSQ_WS_NODEOP", 3, 55, 52, nodeOps},
		{"IRDMA_CQPSQ_WS_VMVFNUM", 3, 51, 42, decimal},
		{"IRDMA_CQPSQ_WS_PARENTID", 3, 29, 16, decimal},
		{"IRDMA_CQPSQ_WS_NODEID", 3, 13, 0, decimal},
		{"IRDMA_CQPSQ_WS_VSI", 4, 63, 48, decimal},
		{"IRDMA_CQPSQ_WS_WEIGHT", 4, 38, 32, decimal},
	}, nil},
	0x2D: {statsWords, nil},
	0x2E: {statsWords, nil},
	0x2F: {[]Field{
		{"user priority map", 0, 63, 0, hexa},
		{"IRDMA_CQPSQ_UP_USEVLAN", 3, 62, 62, flag},
		{"IRDMA_CQPSQ_UP_USEOVERRIDE", 3, 61, 61, flag},
		{"IRDMA_CQPSQ_UP_CNPOVERRIDE", 5, 37, 32, decimal},
		{"IRDMA_CQPSQ_UP_HMCFCNIDX", 5, 15, 0, decimal},
	}, nil},
}
