// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// vsis is the number of VSI counters (ice_hw_autogen.h, GLV_*_MAX_INDEX).
const vsis = 768

// classes of a destination address.
const (
	unicast = iota
	multicast
	broadcast
)

func class(frame []byte) int {
	all := true
	for _, b := range frame[:6] {
		all = all && b == 0xff
	}
	switch {
	case all:
		return broadcast
	case frame[0]&1 != 0:
		return multicast
	}
	return unicast
}

// fcsLen is counted in the port's octets.
const fcsLen = 4

// sizeBins are the upper limits, FCS included, of GLPRT_PTC64 and onwards.
var sizeBins = [...]int{64, 127, 255, 511, 1023, 1522, 9522}

// statistics are the counters that something is counted in. They are free
// running; the driver takes differences modulo 2^40 or 2^32.
type statistics struct {
	portOctets  atomic.Uint64
	rxOctets    atomic.Uint64
	portPackets [3]atomic.Uint64
	portSizes   [len(sizeBins)]atomic.Uint64
	vsiOctets   [vsis]atomic.Uint64
	vsiPackets  [3][vsis]atomic.Uint64
	vsiErrors   [vsis]atomic.Uint64
}

// sent counts one frame, given without padding and FCS.
func (s *statistics) sent(vsi int, frame []byte) {
	n := max(len(frame), minFrame) + fcsLen
	s.portOctets.Add(uint64(n))
	s.portPackets[class(frame)].Add(1)
	for i, limit := range sizeBins {
		if n <= limit || i == len(sizeBins)-1 {
			s.portSizes[i].Add(1)
			break
		}
	}
	if vsi < vsis {
		s.vsiOctets[vsi].Add(uint64(len(frame)))
		s.vsiPackets[class(frame)][vsi].Add(1)
	}
}

// received counts one frame at the port.
func (s *statistics) received(frame []byte) {
	if len(frame) < 14 {
		return
	}
	s.rxOctets.Add(uint64(len(frame) + fcsLen))
}

func (s *statistics) txError(vsi int) {
	if vsi < vsis {
		s.vsiErrors[vsi].Add(1)
	}
}

func (s *statistics) clear() {
	s.portOctets.Store(0)
	s.rxOctets.Store(0)
	for i := range s.portPackets {
		s.portPackets[i].Store(0)
	}
	for i := range s.portSizes {
		s.portSizes[i].Store(0)
	}
	for v := range s.vsiOctets {
		s.vsiOctets[v].Store(0)
		s.vsiErrors[v].Store(0)
		for c := range s.vsiPackets {
			s.vsiPackets[c][v].Store(0)
		}
	}
}

// wide makes the rows of an array of 40-bit counters: the low dword at an
// 8-byte stride and the high byte behind it. A nil value reads 0: nothing of
// the kind is ever counted.
func wide(name string, off uint32, n int, source string, value func(i int) uint64) []reg.Row {
	if value == nil {
		value = func(int) uint64 { return 0 }
	}
	return []reg.Row{
		{Name: name + "L", Offset: off, N: n, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: source,
			Read: func(i int) uint32 { return uint32(value(i)) }},
		{Name: name + "H", Offset: off + 4, N: n, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: source,
			Read: func(i int) uint32 { return uint32(value(i) >> 32 & 0xff) }},
	}
}

// registers returns the statistics rows. All ports but 0 read 0.
func (s *statistics) registers() []reg.Row {
	const (
		ports   = 8
		portSrc = "ice_hw_autogen.h; ice_main.c:ice_update_pf_stats"
		vsiSrc  = "ice_hw_autogen.h; ice_lib.c:ice_update_eth_stats"
	)
	port := func(c *atomic.Uint64) func(int) uint64 {
		return func(i int) uint64 {
			if i != 0 {
				return 0
			}
			return c.Load()
		}
	}
	vsi := func(c *[vsis]atomic.Uint64) func(int) uint64 {
		return func(i int) uint64 { return c[i].Load() }
	}
	var rows []reg.Row
	for _, r := range []struct {
		name  string
		off   uint32
		value func(int) uint64
	}{
		{"GLPRT_GORC", 0x00380000, port(&s.rxOctets)}, {"GLPRT_GOTC", 0x00380B40, port(&s.portOctets)},
		{"GLPRT_UPRC", 0x00381300, nil}, {"GLPRT_MPRC", 0x00381340, nil}, {"GLPRT_BPRC", 0x00381380, nil},
		{"GLPRT_UPTC", 0x003811C0, port(&s.portPackets[unicast])},
		{"GLPRT_MPTC", 0x00381200, port(&s.portPackets[multicast])},
		{"GLPRT_BPTC", 0x00381240, port(&s.portPackets[broadcast])},
		{"GLPRT_PRC64", 0x00380900, nil}, {"GLPRT_PRC127", 0x00380940, nil}, {"GLPRT_PRC255", 0x00380980, nil},
		{"GLPRT_PRC511", 0x003809C0, nil}, {"GLPRT_PRC1023", 0x00380A00, nil}, {"GLPRT_PRC1522", 0x00380A40, nil}, {"GLPRT_PRC9522", 0x00380A80, nil},
		{"GLPRT_PTC64", 0x00380B80, port(&s.portSizes[0])}, {"GLPRT_PTC127", 0x00380BC0, port(&s.portSizes[1])},
		{"GLPRT_PTC255", 0x00380C00, port(&s.portSizes[2])}, {"GLPRT_PTC511", 0x00380C40, port(&s.portSizes[3])},
		{"GLPRT_PTC1023", 0x00380C80, port(&s.portSizes[4])}, {"GLPRT_PTC1522", 0x00380CC0, port(&s.portSizes[5])},
		{"GLPRT_PTC9522", 0x00380D00, port(&s.portSizes[6])},
	} {
		rows = append(rows, wide(r.name, r.off, ports, portSrc, r.value)...)
	}
	for _, r := range []struct {
		name  string
		off   uint32
		value func(int) uint64
	}{
		{"GLV_GORC", 0x003B0000, nil}, {"GLV_UPRC", 0x003B2000, nil}, {"GLV_MPRC", 0x003B4000, nil}, {"GLV_BPRC", 0x003B6000, nil},
		{"GLV_GOTC", 0x00300000, vsi(&s.vsiOctets)}, {"GLV_UPTC", 0x0030A000, vsi(&s.vsiPackets[unicast])},
		{"GLV_MPTC", 0x0030C000, vsi(&s.vsiPackets[multicast])}, {"GLV_BPTC", 0x0030E000, vsi(&s.vsiPackets[broadcast])},
	} {
		rows = append(rows, wide(r.name, r.off, vsis, vsiSrc, r.value)...)
	}
	rows = append(rows, wide("GLSTAT_FD_CNT0", 0x003A0000, 256, portSrc, nil)...)
	// 32-bit port counters of errors and pause frames, which a wire without
	// either never counts.
	for _, r := range []struct {
		name string
		off  uint32
	}{
		{"GLPRT_TDOLD", 0x00381280}, {"GLPRT_CRCERRS", 0x00380100}, {"GLPRT_ILLERRC", 0x003801C0}, {"GLPRT_MLFC", 0x00380040},
		{"GLPRT_MRFC", 0x00380080}, {"GLPRT_RUC", 0x00380200}, {"GLPRT_RFC", 0x00380AC0}, {"GLPRT_ROC", 0x00380240},
		{"GLPRT_RJC", 0x00380B00}, {"GLPRT_RLEC", 0x00380140}, {"GLPRT_LXONRXC", 0x00380280}, {"GLPRT_LXOFFRXC", 0x003802C0},
		{"GLPRT_LXONTXC", 0x00381140}, {"GLPRT_LXOFFTXC", 0x00381180},
	} {
		rows = append(rows, reg.Row{Name: r.name, Offset: r.off, N: ports, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: portSrc})
	}
	for _, r := range []struct {
		name string
		off  uint32
	}{
		{"GLPRT_PXONRXC", 0x00380300}, {"GLPRT_PXOFFRXC", 0x00380500}, {"GLPRT_PXONTXC", 0x00380D40}, {"GLPRT_PXOFFTXC", 0x00380F40}, {"GLPRT_RXON2OFFCNT", 0x00380700},
	} {
		rows = append(rows, reg.Row{Name: r.name, Offset: r.off, N: 8, Stride: 64, M: ports, Stride2: 8, Access: reg.RO, Domain: reg.CORER, Source: "ice_hw_autogen.h; ice_dcb_lib.c:ice_update_dcb_stats"})
	}
	return append(rows,
		reg.Row{Name: "PRTRPB_RDPC", Offset: 0x000AC260, Access: reg.RO, Domain: reg.CORER, Source: portSrc},
		reg.Row{Name: "GLV_RDPC", Offset: 0x00294C04, N: vsis, Stride: 4, Access: reg.RO, Domain: reg.CORER, Source: vsiSrc},
		reg.Row{Name: "GLV_TEPC", Offset: 0x00312000, N: vsis, Stride: 4, Access: reg.RO, Domain: reg.CORER, Source: vsiSrc,
			Read: func(i int) uint32 { return uint32(s.vsiErrors[i].Load()) }},
	)
}
