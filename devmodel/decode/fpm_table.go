// SPDX-License-Identifier: Apache-2.0

package decode

import "fmt"

var (
	logSize = scaled("log2 of the size", func(v uint64) string {
		if v > 40 {
			return "no size"
		}
		return fmt.Sprintf("%d bytes each", uint64(1)<<v)
	})
	fpmBase = scaled("base in units of 512 bytes", func(v uint64) string { return fmt.Sprintf("FPM %#x", v<<9) })
)

// offered are the fields of an object type in the query buffer.
func offered(word int, name string) []Field {
	return []Field{{name + " log2 size", word, 63, 32, logSize}, {name + " max count", word, 31, 0, decimal}}
}

// blocks are those of a free list.
func blocks(word int, name, macro string) []Field {
	return []Field{{macro, word, 63, 32, decimal}, {name + " max count", word, 31, 0, decimal}}
}

// laidOut are the fields of an object type in the commit buffer.
func laidOut(word int, name string) []Field {
	return []Field{{name + " base", word, 63, 32, fpmBase}, {name + " count", word, 31, 0, decimal}}
}

// fpmQuery is what QUERY_FPM_VAL writes, as far as this generation goes.
var fpmQuery = Layout{Name: "QUERY_FPM buffer", Source: "ctrl.c:irdma_sc_parse_fpm_query_buf", Fields: join(
	[]Field{{"IRDMA_QUERY_FPM_MAX_PE_SDS", 0, 44, 32, decimal}, {"IRDMA_QUERY_FPM_FIRST_PE_SD_INDEX", 0, 13, 0, decimal}},
	offered(1, "QP"), offered(2, "CQ"), offered(3, "SRQ"), offered(4, "HTE"), offered(5, "ARP"), offered(6, "MR"), offered(7, "XF"),
	blocks(8, "XFFL", "IRDMA_QUERY_FPM_XFBLOCKSIZE"), offered(9, "Q1"), blocks(10, "Q1FL", "IRDMA_QUERY_FPM_Q1BLOCKSIZE"),
	offered(11, "TIMER"), offered(12, "FSIMC"), offered(13, "FSIAV"), offered(14, "PBLE"),
	[]Field{{"IRDMA_QUERY_FPM_MAX_IRD", 15, 53, 50, unused}, {"IRDMA_QUERY_FPM_TIMERBUCKET", 15, 47, 32, decimal},
		{"IRDMA_QUERY_FPM_HTMULTIPLIER", 15, 19, 16, decimal}, {"IRDMA_QUERY_FPM_MAX_CEQS", 15, 9, 0, decimal}},
	offered(16, "RRF"), blocks(17, "RRFFL", "IRDMA_QUERY_FPM_RRFBLOCKSIZE"), offered(18, "HDR"), offered(19, "MD"),
	offered(20, "OOISC"), blocks(21, "OOISCFFL", "IRDMA_QUERY_FPM_OOISCFBLOCKSIZE"),
)}

// fpmCommit is what COMMIT_FPM_VAL takes, and gives back with the bases.
var fpmCommit = Layout{Name: "COMMIT_FPM buffer", Source: "ctrl.c:irdma_sc_cfg_iw_fpm, irdma_sc_parse_fpm_commit_buf", Fields: join(
	laidOut(0, "QP"), laidOut(1, "CQ"), laidOut(2, "SRQ"), laidOut(3, "HTE"), laidOut(4, "ARP"), laidOut(5, "APBVT"), laidOut(6, "MR"),
	laidOut(7, "XF"), laidOut(8, "XFFL"), laidOut(9, "Q1"), laidOut(10, "Q1FL"), laidOut(11, "TIMER"), laidOut(12, "FSIMC"),
	laidOut(13, "FSIAV"), laidOut(14, "PBLE"), laidOut(16, "RRF"), laidOut(17, "RRFFL"), laidOut(18, "HDR"), laidOut(19, "MD"),
	laidOut(20, "OOISC"), laidOut(21, "OOISCFFL"),
)}

// feature is an entry of the buffer of QUERY_RDMA_FEATURES.
var feature = Layout{Name: "Feature", Source: "ctrl.c:irdma_get_rdma_features", Fields: []Field{
	{"IRDMA_FEATURE_TYPE", 0, 63, 48, Kind{"feature type", func(v uint64) string {
		names := map[uint64]string{0: "IRDMA_FEATURE_FW_INFO", 1: "IRDMA_HW_VERSION_INFO", 26: "IRDMA_QSETS_MAX", 32: "IRDMA_FTN_FLAGS"}
		if n := names[v]; n != "" {
			return fmt.Sprintf("%d %s", v, n)
		}
		return fmt.Sprint(v)
	}}},
	{"IRDMA_FEATURE_INFO", 0, 47, 0, hexa},
}, Notes: func(w *Words) []string {
	v := w.V[0]
	switch v >> 48 {
	case 0:
		return []string{fmt.Sprintf("%d features, firmware %d.%d", v>>32&0xFFFF, v>>16&0xFFFF, v&0xFFFF)}
	case 1:
		return []string{fmt.Sprintf("hardware model %d, version %d.%d", v>>32&0xFFFF, v>>16&0xFF, v&0xFF)}
	}
	return nil
}}
