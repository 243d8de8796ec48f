// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

// queueSize is SQSIZE and RQSIZE (ctrl.c:irdma_get_encoded_wqe_size).
var queueSize = scaled("encoded size", func(v uint64) string { return fmt.Sprintf("%d quanta", 4<<v) })

// qpContext is the context of a QP in RoCE mode (defs.h:IRDMAQPC_*).
var qpContext = Layout{Name: "Host context of a QP", Source: "ctrl.c:irdma_sc_qp_setctx_roce_gen_2", Fields: []Field{
	{"IRDMAQPC_ROCE_TVER", 0, 63, 60, decimal},
	{"IRDMAQPC_PMENA", 0, 47, 47, flag},
	{"IRDMAQPC_PPIDX", 0, 41, 32, decimal},
	{"IRDMAQPC_SQTPHEN", 0, 31, 31, flag},
	{"IRDMAQPC_RQTPHEN", 0, 30, 30, flag},
	{"IRDMAQPC_XMITTPHEN", 0, 29, 29, flag},
	{"IRDMAQPC_RCVTPHEN", 0, 28, 28, flag},
	{"IRDMAQPC_DC_TCP_EN", 0, 25, 25, flag},
	{"IRDMAQPC_PDIDXHI", 0, 21, 20, decimal},
	{"IRDMAQPC_ERR_RQ_IDX_VALID", 0, 19, 19, flag},
	{"IRDMAQPC_RQWQESIZE", 0, 9, 8, scaled("encoded size", func(v uint64) string { return fmt.Sprintf("%d bytes", 32<<v) })},
	{"IRDMAQPC_ISQP1", 0, 6, 6, flag},
	{"IRDMAQPC_INSERTVLANTAG", 0, 5, 5, flag},
	{"IRDMAQPC_IPV4", 0, 3, 3, flag},
	{"IRDMAQPC_SQADDR", 1, 63, 0, hexa},
	{"IRDMAQPC_RQADDR", 2, 63, 0, hexa},
	{"IRDMAQPC_DESTPORTNUM", 3, 63, 48, decimal},
	{"IRDMAQPC_SRCPORTNUM", 3, 47, 32, decimal},
	{"IRDMAQPC_TOS", 3, 31, 24, hexa},
	{"IRDMAQPC_SQSIZE", 3, 15, 12, queueSize},
	{"IRDMAQPC_RQSIZE", 3, 11, 8, queueSize},
	{"IRDMAQPC_TTL", 3, 7, 0, decimal},
	{"IRDMAQPC_DESTIPADDR2", 4, 63, 32, hexa},
	{"IRDMAQPC_DESTIPADDR3", 4, 31, 0, quad},
	{"IRDMAQPC_DESTIPADDR0", 5, 63, 32, hexa},
	{"IRDMAQPC_DESTIPADDR1", 5, 31, 0, hexa},
	{"IRDMAQPC_ARPIDX", 6, 63, 48, decimal},
	{"IRDMAQPC_VLANTAG", 6, 47, 32, hexa},
	{"IRDMAQPC_SNDMSS", 6, 29, 16, decimal},
	{"IRDMAQPC_PDIDX", 7, 63, 48, decimal},
	{"IRDMAQPC_PKEY", 7, 47, 32, hexa},
	{"IRDMAQPC_ACKCREDITS", 7, 24, 20, decimal},
	{"IRDMAQPC_FLOWLABEL", 7, 19, 0, hexa},
	{"IRDMAQPC_QKEY", 8, 63, 32, hexa},
	{"IRDMAQPC_DESTQP", 8, 23, 0, decimal},
	{"IRDMAQPC_LSN", 10, 55, 32, hexa},
	{"IRDMAQPC_PSNNXT", 10, 23, 0, hexa},
	{"IRDMAQPC_EPSN", 11, 23, 0, hexa},
	{"IRDMAQPC_PSNUNA", 12, 55, 32, hexa},
	{"IRDMAQPC_PSNMAX", 12, 23, 0, hexa},
	{"IRDMAQPC_CWNDROCE", 14, 55, 32, decimal},
	{"IRDMAQPC_RTOMIN", 16, 63, 57, decimal},
	{"IRDMAQPC_RNRNAK_THRESH", 16, 56, 54, scaled("retries", func(v uint64) string {
		if v == 7 {
			return "for ever"
		}
		return "times"
	})},
	{"IRDMAQPC_REXMIT_THRESH", 16, 53, 48, decimal},
	{"IRDMAQPC_ERR_RQ_IDX", 16, 46, 32, decimal},
	{"IRDMAQPC_RXCQNUM", 17, 56, 32, decimal},
	{"IRDMAQPC_TXCQNUM", 17, 24, 0, decimal},
	{"IRDMAQPC_STAT_INDEX", 18, 6, 0, decimal},
	{"IRDMAQPC_MACADDRESS", 19, 63, 16, mac},
	{"IRDMAQPC_RCVNOICRC", 20, 31, 31, flag},
	{"IRDMAQPC_FW_CC_ENABLE", 20, 28, 28, flag},
	{"IRDMAQPC_TIMELYENABLE", 20, 27, 27, flag},
	{"IRDMAQPC_USESTATSINSTANCE", 20, 26, 26, flag},
	{"IRDMAQPC_PRIVEN", 20, 25, 25, flag},
	{"IRDMAQPC_FASTREGEN", 20, 24, 24, flag},
	{"IRDMAQPC_BINDEN", 20, 23, 23, flag},
	{"IRDMAQPC_DCQCNENABLE", 20, 22, 22, flag},
	{"IRDMAQPC_RDOK", 20, 21, 21, flag},
	{"IRDMAQPC_WRRDRSPOK", 20, 20, 20, flag},
	{"IRDMAQPC_UDPRIVCQENABLE", 20, 19, 19, flag},
	{"IRDMAQPC_IRDSIZE", 20, 18, 16, scaled("encoded size", func(v uint64) string {
		sizes := [8]int{4, 16, 64, 128, 256, 0, 0, 0}
		if sizes[v] == 0 {
			return "no size"
		}
		return fmt.Sprintf("%d entries", sizes[v])
	})},
	{"IRDMAQPC_ORDSIZE", 20, 7, 0, decimal},
	{"IRDMAQPC_QPCOMPCTX", 21, 63, 0, hexa},
	{"IRDMAQPC_QSHANDLE", 22, 25, 16, decimal},
	{"IRDMAQPC_RQTPHVAL", 22, 15, 8, hexa},
	{"IRDMAQPC_SQTPHVAL", 22, 7, 0, hexa},
	{"IRDMAQPC_LOCAL_IPADDR2", 23, 63, 32, hexa},
	{"IRDMAQPC_LOCAL_IPADDR3", 23, 31, 0, quad},
	{"IRDMAQPC_LOCAL_IPADDR0", 24, 63, 32, hexa},
	{"IRDMAQPC_LOCAL_IPADDR1", 24, 31, 0, hexa},
	{"IRDMAQPC_THIGH", 25, 63, 52, decimal},
	{"IRDMAQPC_TLOW", 25, 39, 32, decimal},
	{"IRDMAQPC_REMENDPOINTIDX", 26, 16, 0, decimal},
}, Notes: qpcNotes}

func qpcNotes(w *Words) (out []string) {
	if w.Has(0, 7) {
		out = append(out, fmt.Sprintf("PD %d", w.Bits(0, 21, 20)<<16|w.Bits(7, 63, 48)))
	}
	if w.Has(0, 4, 5, 23, 24) {
		v4 := w.Flag(0, 3)
		out = append(out, fmt.Sprintf("from %s to %s", ipText(w.V[23], w.V[24], v4), ipText(w.V[4], w.V[5], v4)))
	}
	if w.Has(1, 2) {
		out = append(out, "SQADDR and RQADDR are PBLE indices if IRDMA_CQPSQ_QP_VQ is set in the WQE, else addresses")
	}
	return out
}
