// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

// fixed is the choice of a format with one layout.
func fixed(l Layout) func(*Words) (*Layout, error) {
	return func(*Words) (*Layout, error) { return &l, nil }
}

// formats are all there are.
var formats = []Format{
	{Name: "cqp", About: "a control WQE", Words: cqpWords, Header: 3, Choose: chooseCQP},
	{Name: "wqe", About: "a send WQE", Words: maxWQEWords, Header: 3, Length: sendLength, Choose: chooseWQE},
	{Name: "rwqe", About: "a receive WQE", Words: maxWQEWords, Header: 3, Length: receiveLength, Choose: chooseRWQE},
	{Name: "ccqe", About: "an entry of the control QP's CQ", Words: 4, Header: 3, Choose: fixed(ccqe)},
	{Name: "cqe", About: "an entry of a CQ; the slot behind an extended one, too", Words: 8, Header: 3, Length: cqeLength, Choose: chooseCQE},
	{Name: "aeqe", About: "an entry of the AEQ", Words: 2, Header: 1, Choose: fixed(aeqe)},
	{Name: "ceqe", About: "an entry of a CEQ", Words: 1, Choose: fixed(ceqe)},
	{Name: "qpc", About: "a host context of a QP, in RoCE mode", Words: 32, Header: -1, Short: true, Choose: fixed(qpContext)},
	{Name: "cqpc", About: "a host context of the control QP", Words: 8, Header: -1, Choose: fixed(cqpContext)},
	{Name: "sd", About: "a segment descriptor: command and data, or one of them", Words: 2, Header: 1, Choose: chooseSD},
	{Name: "pd", About: "a page descriptor", Words: 1, Choose: fixed(pageDescriptor)},
	{Name: "pble", About: "a page buffer list entry", Words: 1, Choose: fixed(pageBufferEntry)},
	{Name: "cqsh", About: "a CQ's shadow area; one word: that of the arming", Words: 8, Header: 4, Short: true, Choose: fixed(cqShadow)},
	{Name: "qpsh", About: "a QP's shadow area", Words: 8, Header: 0, Short: true, Choose: fixed(qpShadow)},
	{Name: "mcast", About: "a member of a multicast group", Words: 1, Choose: fixed(groupMember)},
	{Name: "fpmq", About: "a buffer of QUERY_FPM_VAL", Words: 22, Header: -1, Short: true, Choose: fixed(fpmQuery)},
	{Name: "fpmc", About: "a buffer of COMMIT_FPM_VAL", Words: 22, Header: -1, Short: true, Choose: fixed(fpmCommit)},
	{Name: "feature", About: "an entry of a buffer of QUERY_RDMA_FEATURES", Words: 1, Choose: fixed(feature)},
	{Name: "stag", About: "an STag, as lkey and rkey have it", Words: 1, Choose: fixed(stag)},
	{Name: "ae", About: "an asynchronous event code", Words: 1, Choose: fixed(aeCode)},
	{Name: "err", About: "major and minor code in one number, as PFPE_CQPERRCODES has them", Words: 1, Choose: fixed(codes)},
}

// ccqe is an entry of CQ 0.
var ccqe = Layout{Name: "CQE of the control QP", Source: "ctrl.c:irdma_sc_ccq_get_cqe_info", Fields: []Field{
	{"IRDMA_CQ_QPCTX", 1, 63, 0, hexa},
	{"IRDMA_CCQ_DEFINFO", 2, 63, 32, unused},
	{"IRDMA_CCQ_OPRETVAL", 2, 31, 0, hexa},
	{"IRDMA_CQ_VALID", 3, 63, 63, flag},
	{"IRDMA_CQ_ERROR", 3, 55, 55, flag},
	{"IRDMA_OOO_CMPL", 3, 54, 54, unused},
	{"IRDMA_CQ_WQEIDX", 3, 46, 32, decimal},
	{"IRDMA_CQ_MAJERR", 3, 31, 16, hexa},
	{"IRDMA_CQ_MINERR", 3, 15, 0, hexa},
}, Notes: func(w *Words) []string {
	major := uint16(w.Bits(3, 31, 16))
	if !w.Flag(3, 55) {
		major = 0 // the driver looks at it with an error only
	}
	return []string{fmt.Sprintf("CQP WQE %d: %s", w.Bits(3, 46, 32), cqpCode(major, uint16(w.Bits(3, 15, 0))))}
}}

// aeqe is an entry of the AEQ.
var aeqe = Layout{Name: "AEQE", Source: "ctrl.c:irdma_sc_get_next_aeqe", Fields: []Field{
	{"IRDMA_AEQE_COMPCTX", 0, 63, 0, hexa},
	{"IRDMA_AEQE_VALID", 1, 63, 63, flag},
	{"IRDMA_AEQE_Q2DATA", 1, 62, 61, decimal},
	{"IRDMA_AEQE_TCPSTATE", 1, 60, 57, decimal},
	{"IRDMA_AEQE_IWSTATE", 1, 56, 54, qpStates},
	{"IRDMA_AEQE_AESRC", 1, 53, 50, aeSources},
	{"IRDMA_AEQE_QPCQID_HI", 1, 46, 46, decimal},
	{"IRDMA_AEQE_AECODE", 1, 45, 34, aeCodes},
	{"IRDMA_AEQE_OVERFLOW", 1, 33, 33, flag},
	{"IRDMA_AEQE_WQDESCIDX", 1, 32, 18, decimal},
	{"IRDMA_AEQE_QPCQID_LOW", 1, 17, 0, decimal},
}, Notes: aeqeNotes}

// source tells whose an event is by its AESRC.
type source uint8

const (
	sourceNone source = iota
	sourceRQ
	sourceSQ
	sourceCQ
	sourceResponder
)

// aeSource groups the values of AESRC (ctrl.c:irdma_sc_get_next_aeqe).
func aeSource(v uint64) source {
	switch v {
	case 1, 3:
		return sourceRQ
	case 5, 7:
		return sourceSQ
	case 2, 6, 0xA, 0xE:
		return sourceCQ
	case 9, 0xB, 0xD, 0xF:
		return sourceResponder
	}
	return sourceNone
}

func aeqeNotes(w *Words) (out []string) {
	id := w.Bits(1, 46, 46)<<18 | w.Bits(1, 17, 0)
	src := aeSource(w.Bits(1, 53, 50))
	what := "QP"
	if src == sourceCQ {
		what = "CQ"
	}
	s := fmt.Sprintf("%s %d", what, id)
	switch src {
	case sourceSQ:
		s += fmt.Sprintf(", send WQE at quantum %d", w.Bits(1, 32, 18))
	case sourceRQ:
		s += fmt.Sprintf(", receive WQE at quantum %d", w.Bits(1, 32, 18))
	case sourceResponder:
		s += ", on behalf of the peer"
	}
	out = append(out, s)
	if w.Flag(1, 33) {
		out = append(out, "OVERFLOW: the newest driver resets the function")
	}
	a := lookupAE(uint16(w.Bits(1, 45, 34)))
	switch {
	case a == nil:
		return append(out, "the driver does not know the code")
	case a.class == classSource && (src == sourceNone || src == sourceCQ):
		return append(out, "the driver drops it: it takes this code from a QP's source only")
	case a.class == classCQ && src != sourceCQ:
		return append(out, "the driver drops it: it takes this code from a CQ's source only")
	}
	return append(out, reasonAndReaction(a, src)...)
}

func reasonAndReaction(a *AE, src source) (out []string) {
	if a.Reason != "" {
		out = append(out, "raised when: "+a.Reason)
	}
	out = append(out, "the driver: "+a.reaction())
	if a.flush > flushGeneral && src == sourceResponder {
		out = append(out, "with this source both queues are flushed with FLUSH_GENERAL_ERR instead")
	}
	return out
}

// aeCode is a code alone.
var aeCode = Layout{Name: "Asynchronous event", Source: "user.h:IRDMA_AE_*; hw.c:irdma_process_aeq",
	Fields: []Field{{"IRDMA_AEQE_AECODE", 0, 15, 0, aeCodes}},
	Notes: func(w *Words) []string {
		a := lookupAE(uint16(w.Bits(0, 15, 0)))
		if a == nil {
			return []string{"the driver does not know the code"}
		}
		out := reasonAndReaction(a, sourceNone)
		switch a.class {
		case classSource:
			out = append(out, "taken only with the AESRC of a QP")
		case classCQ:
			out = append(out, "taken only with the AESRC of a CQ")
		}
		return out
	}}

var ceqe = Layout{Name: "CEQE", Source: "ctrl.c:irdma_sc_process_ceq", Fields: []Field{
	{"IRDMA_CEQE_VALID", 0, 63, 63, flag},
	{"IRDMA_CEQE_CQCTX", 0, 62, 0, hexa},
}, Notes: func(w *Words) []string {
	ctx := w.Bits(0, 62, 0)
	switch {
	case ctx == 0xFFFFFFFF:
		return []string{"the driver has taken the event back: its CQ is gone"}
	case ctx>>32 == 0:
		return []string{fmt.Sprintf("of CQ %d, as drivers since 7.x number it", ctx)}
	}
	return []string{fmt.Sprintf("of the driver's CQ object at %#x, as drivers up to 6.12 say it", ctx<<1)}
}}

var cqpContext = Layout{Name: "Host context of the control QP", Source: "ctrl.c:irdma_sc_cqp_create", Fields: []Field{
	{"IRDMA_CQPHC_CEQPERVF", 0, 39, 32, decimal},
	{"IRDMA_CQPHC_SVER", 0, 31, 24, decimal},
	{"IRDMA_CQPHC_SQSIZE", 0, 11, 8, scaled("encoded size", func(v uint64) string { return fmt.Sprintf("%d WQEs", 2<<v) })},
	{"IRDMA_CQPHC_PROTOCOL_USED", 0, 4, 3, enum("any", "iWARP only", "RoCE only")},
	{"IRDMA_CQPHC_ROCEV2_RTO_POLICY", 0, 2, 2, flag},
	{"IRDMA_CQPHC_DISABLE_PFPDUS", 0, 1, 1, flag},
	{"IRDMA_CQPHC_EN_FINE_GRAINED_TIMERS", 0, 0, 0, unused},
	{"IRDMA_CQPHC_SQBASE", 1, 63, 9, shifted(9)},
	{"IRDMA_CQPHC_OOISC_BLKSIZE", 2, 63, 60, unused},
	{"IRDMA_CQPHC_RRSP_BLKSIZE", 2, 59, 56, unused},
	{"IRDMA_CQPHC_Q1_BLKSIZE", 2, 55, 52, unused},
	{"IRDMA_CQPHC_XMIT_BLKSIZE", 2, 51, 48, unused},
	{"IRDMA_CQPHC_ENABLED_VFS", 2, 37, 32, decimal},
	{"IRDMA_CQPHC_TS_SHIFT", 2, 12, 8, unused},
	{"IRDMA_CQPHC_TIMESTAMP_OVERRIDE", 2, 5, 5, unused},
	{"IRDMA_CQPHC_BLKSIZES_VALID", 2, 4, 4, unused},
	{"IRDMA_CQPHC_HMC_PROFILE", 2, 2, 0, hmcProfiles},
	{"IRDMA_CQPHC_QPCTX", 3, 63, 0, hexa},
	{"IRDMA_CQPHC_MIN_DEC_FACTOR", 4, 59, 56, decimal},
	{"IRDMA_CQPHC_MIN_RATE", 4, 51, 48, decimal},
	{"IRDMA_CQPHC_HW_MAJVER", 4, 31, 16, enum("GEN_1", "GEN_2", "GEN_3")},
	{"IRDMA_CQPHC_HW_MINVER", 4, 15, 0, decimal},
	{"IRDMA_CQPHC_RAI_FACTOR", 6, 63, 48, decimal},
	{"IRDMA_CQPHC_HAI_FACTOR", 6, 47, 32, decimal},
	{"IRDMA_CQPHC_DCQCN_T", 6, 15, 0, decimal},
	{"IRDMA_CQPHC_RREDUCE_MPERIOD", 7, 63, 32, decimal},
	{"IRDMA_CQPHC_CC_CFG_VALID", 7, 31, 31, flag},
	{"IRDMA_CQPHC_DCQCN_F", 7, 27, 25, decimal},
	{"IRDMA_CQPHC_DCQCN_B", 7, 24, 0, decimal},
}}

var (
	sdCommand = []Field{
		{"IRDMA_PFHMC_SDCMD_PMSDWR", 0, 31, 31, flag},
		{"partition (1: protocol engine)", 0, 15, 15, decimal},
		{"SD index", 0, 14, 0, decimal},
	}
	sdData = []Field{
		{"address", 1, 63, 12, shifted(12)},
		{"IRDMA_PFHMC_SDDATALOW_PMSDBPCOUNT", 1, 11, 2, decimal},
		{"IRDMA_PFHMC_SDDATALOW_PMSDTYPE", 1, 1, 1, enum("paged", "direct")},
		{"IRDMA_PFHMC_SDDATALOW_PMSDVALID", 1, 0, 0, flag},
	}
)

// chooseSD also takes a command alone for one: bits 30:16 of it are 0, bits 31
// and 15 set. Data has its page count there.
func chooseSD(w *Words) (*Layout, error) {
	l := &Layout{Name: "Segment descriptor", Source: "hmc.c:irdma_set_sd_entry, irdma_clr_sd_entry", Fields: join(sdCommand, sdData)}
	if !w.Has(0) && w.V[1]>>32 == 0 && w.V[1]>>15 == 0x10001 {
		w.V[0], w.V[1], w.Known = w.V[1], 0, 1
	}
	switch {
	case w.Has(0, 1):
		l.Notes = func(w *Words) []string { return []string{sdEntry(w.V[0], w.V[1])} }
	case w.Has(0):
		l.Name = "Segment descriptor, command"
	default:
		l.Name = "Segment descriptor, data"
	}
	return l, nil
}

var pageDescriptor = Layout{Name: "Page descriptor", Source: "hmc.c:irdma_add_pd_table_entry", Fields: []Field{
	{"page address", 0, 63, 12, shifted(12)},
	{"valid", 0, 0, 0, flag},
}, Notes: func(w *Words) []string {
	if w.Bits(0, 0, 0) == 0 {
		return []string{"not valid: an access through it fails with PFINT_OICR.HMC_ERR"}
	}
	return nil
}}

var pageBufferEntry = Layout{Name: "PBLE", Source: "verbs.c:irdma_copy_user_pgaddrs; pble.c:get_lvl2_pble", Fields: []Field{
	{"page address, or index of a leaf", 0, 63, 0, hexa},
}, Notes: func(w *Words) []string {
	v := w.V[0]
	switch {
	case v == 0:
		return []string{"0: never written, or page 0"}
	case v&(1<<30-1) == 0:
		return []string{"aligned to 1 GiB, 2 MiB and 4 KiB pages"}
	case v&(1<<21-1) == 0:
		return []string{"aligned to 2 MiB and 4 KiB pages"}
	case v&(1<<12-1) == 0:
		return []string{"aligned to 4 KiB pages"}
	case v < 1<<28:
		return []string{fmt.Sprintf("no page address: PBLE index %d, the first of a leaf, if this is the root of a level 2 list", v)}
	}
	return []string{"neither a page address nor a PBLE index"}
}}

var cqShadow = Layout{Name: "Shadow area of a CQ", Source: "uk.c:irdma_uk_cq_request_notification", Fields: []Field{
	{"IRDMA_CQ_DBSA_CQEIDX", 0, 19, 0, decimal},
	{"IRDMA_CQ_DBSA_ARM_SEQ_NUM", 4, 17, 16, decimal},
	{"IRDMA_CQ_DBSA_ARM_NEXT_SE", 4, 15, 15, flag},
	{"IRDMA_CQ_DBSA_ARM_NEXT", 4, 14, 14, flag},
	{"IRDMA_CQ_DBSA_SW_CQ_SELECT", 4, 13, 0, decimal},
}, Notes: func(w *Words) (out []string) {
	if w.Has(4) {
		arm := "arms for nothing"
		switch {
		case w.Flag(4, 14):
			arm = "arms for any completion"
		case w.Flag(4, 15):
			arm = "arms for solicited completions and errors"
		}
		out = append(out, arm+", when PFPE_CQARM is written")
	}
	return out
}}

var qpShadow = Layout{Name: "Shadow area of a QP", Source: "uk.c:irdma_uk_qp_post_wr", Fields: []Field{
	{"IRDMA_QP_DBSA_HW_SQ_TAIL", 0, 14, 0, decimal},
}}

var groupMember = Layout{Name: "Member of a multicast group", Source: "uda.c:irdma_create_mg_ctx", Fields: []Field{
	{"IRDMA_UDA_MGCTX_DESTPORT", 0, 47, 32, decimal},
	{"IRDMA_UDA_MGCTX_VALIDENT", 0, 31, 31, flag},
	{"IRDMA_UDA_MGCTX_FLAGIGNOREDPORT", 0, 30, 30, flag},
	{"IRDMA_UDA_MGCTX_VFFLAG", 0, 29, 29, flag},
	{"IRDMA_UDA_MGCTX_VFID", 0, 28, 22, decimal},
	{"IRDMA_UDA_MGCTX_PFID", 0, 21, 18, decimal},
	{"IRDMA_UDA_MGCTX_QPID", 0, 17, 0, decimal},
}}

var stag = Layout{Name: "STag", Source: "verbs.c:irdma_create_stag", Fields: []Field{
	{"index, with the driver's own bits", 0, 31, 8, hexa},
	{"key", 0, 7, 0, hexa},
}, Notes: func(w *Words) []string {
	if w.V[0] == 0 {
		return []string{"the local DMA key: bus addresses, on QPs with PRIVEN only"}
	}
	return []string{fmt.Sprintf("index %d of the table if there are at most 16384 regions, %d if there are 65536", w.V[0]>>8&0x3FFF, w.V[0]>>8&0xFFFF)}
}}

var codes = Layout{Name: "Codes of a completion", Source: "utils.c:irdma_wait_event; verbs.c:irdma_flush_err_to_ib_wc_status", Fields: []Field{
	{"major", 0, 31, 16, hexa},
	{"minor", 0, 15, 0, hexa},
}, Notes: func(w *Words) []string {
	major, minor := uint16(w.Bits(0, 31, 16)), uint16(w.Bits(0, 15, 0))
	return []string{"of a control operation: " + cqpCode(major, minor), "of a work request: " + cqeCode(major, minor)}
}}
