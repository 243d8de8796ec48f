// SPDX-License-Identifier: Apache-2.0

package minidriver

// Counter is one of the device's, by its kernel name.
type Counter string

// Counters (verbs.c:irdma_hw_stat_descs).
const (
	RxVlanErrors      Counter = "rxVlanErrors"
	IP4InOctets       Counter = "ip4InOctets"
	IP4InPkts         Counter = "ip4InPkts"
	IP4InTruncated    Counter = "ip4InTruncatedPkts"
	IP4InDiscards     Counter = "ip4InDiscards"
	IP4InReasmRqd     Counter = "ip4InReasmRqd"
	IP4InMcastOctets  Counter = "ip4InMcastOctets"
	IP4InMcastPkts    Counter = "ip4InMcastPkts"
	IP6InOctets       Counter = "ip6InOctets"
	IP6InPkts         Counter = "ip6InPkts"
	IP6InTruncated    Counter = "ip6InTruncatedPkts"
	IP6InDiscards     Counter = "ip6InDiscards"
	IP6InReasmRqd     Counter = "ip6InReasmRqd"
	IP6InMcastOctets  Counter = "ip6InMcastOctets"
	IP6InMcastPkts    Counter = "ip6InMcastPkts"
	IP4OutOctets      Counter = "ip4OutOctets"
	IP4OutPkts        Counter = "ip4OutPkts"
	IP4OutMcastOctets Counter = "ip4OutMcastOctets"
	IP4OutMcastPkts   Counter = "ip4OutMcastPkts"
	IP6OutOctets      Counter = "ip6OutOctets"
	IP6OutPkts        Counter = "ip6OutPkts"
	IP6OutMcastOctets Counter = "ip6OutMcastOctets"
	IP6OutMcastPkts   Counter = "ip6OutMcastPkts"
	IP6OutNoRoutes    Counter = "ip6OutNoRoutes"
	IP4OutNoRoutes    Counter = "ip4OutNoRoutes"
	RetransSegs       Counter = "RetransSegs"
	RxUDP             Counter = "RxUDP"
	TxUDP             Counter = "TxUDP"
	InRdmaWrites      Counter = "InRdmaWrites"
	InRdmaReads       Counter = "InRdmaReads"
	InRdmaSends       Counter = "InRdmaSends"
	OutRdmaWrites     Counter = "OutRdmaWrites"
	OutRdmaReads      Counter = "OutRdmaReads"
	OutRdmaSends      Counter = "OutRdmaSends"
	RdmaBnd           Counter = "RdmaBnd"
	RdmaInv           Counter = "RdmaInv"
	RxECNMrkd         Counter = "RxECNMrkd"
	CnpHandled        Counter = "cnpHandled"
	CnpIgnored        Counter = "cnpIgnored"
	CnpSent           Counter = "cnpSent"
)

// Where they are in the buffer of GATHER_STATS: octet, lowest bit, width
// (icrdma_hw.c:icrdma_hw_stat_map).
var counterMap = map[Counter]struct{ off, bit, width int }{
	RxVlanErrors: {0, 32, 24}, IP4InOctets: {8, 0, 48}, IP4InPkts: {16, 0, 48}, IP4InTruncated: {24, 0, 32}, IP4InDiscards: {24, 32, 32},
	IP4InReasmRqd: {32, 0, 48}, IP4InMcastOctets: {40, 0, 48}, IP4InMcastPkts: {48, 0, 48},
	IP6InOctets: {56, 0, 48}, IP6InPkts: {64, 0, 48}, IP6InTruncated: {72, 0, 32}, IP6InDiscards: {72, 32, 32},
	IP6InReasmRqd: {80, 0, 48}, IP6InMcastOctets: {88, 0, 48}, IP6InMcastPkts: {96, 0, 48},
	IP4OutOctets: {104, 0, 48}, IP4OutPkts: {112, 0, 48}, IP4OutMcastOctets: {128, 0, 48}, IP4OutMcastPkts: {136, 0, 48},
	IP6OutOctets: {144, 0, 48}, IP6OutPkts: {152, 0, 48}, IP6OutMcastOctets: {168, 0, 48}, IP6OutMcastPkts: {176, 0, 48},
	IP6OutNoRoutes: {184, 0, 24}, IP4OutNoRoutes: {184, 32, 24}, RetransSegs: {216, 32, 32}, RxUDP: {224, 0, 48}, TxUDP: {232, 0, 48},
	InRdmaWrites: {240, 0, 48}, InRdmaReads: {248, 0, 48}, InRdmaSends: {256, 0, 48},
	OutRdmaWrites: {264, 0, 48}, OutRdmaReads: {272, 0, 48}, OutRdmaSends: {280, 0, 48}, RdmaBnd: {288, 0, 48}, RdmaInv: {296, 0, 48},
	RxECNMrkd: {304, 0, 56}, CnpHandled: {312, 0, 32}, CnpIgnored: {312, 32, 24}, CnpSent: {320, 0, 32},
}

// Counters are all counters at a time.
type Counters map[Counter]uint64

// ReadCounters asks for the counters and waits for them
// (verbs.c:irdma_get_hw_stats).
func (r *IRDMA) ReadCounters() (Counters, error) {
	if _, err := r.Exec(IRDMA_CQP_OP_GATHER_STATS, WQE{4: r.stats.IOVA, 5: r.fn()}); err != nil {
		return nil, err
	}
	c := make(Counters)
	for name, at := range counterMap {
		c[name] = r.stats.Load64(at.off) >> at.bit & (1<<at.width - 1)
	}
	return c, nil
}
