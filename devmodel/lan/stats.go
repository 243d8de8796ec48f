// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"fmt"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// vsis is the number of VSI counters (ice_hw_autogen.h, GLV_*_MAX_INDEX).
const vsis = 768

// fcsLen is counted in the port's octets.
const fcsLen = 4

// sizeBins are the upper limits, FCS included, of GLPRT_PTC64 and onwards.
var sizeBins = [...]int{64, 127, 255, 511, 1023, 1522, 9522}

// portSide are the counters of one direction of the port.
type portSide struct {
	octets  atomic.Uint64
	packets [3]atomic.Uint64 // by class of destination address
	sizes   [len(sizeBins)]atomic.Uint64
}

// count counts a frame of n bytes, FCS included, on the wire.
func (p *portSide) count(f []byte, n int) { p.add(frame.Class(f), 1, n) }

// add counts frames of n bytes each.
func (p *portSide) add(class int, frames uint64, n int) {
	if frames == 0 {
		return
	}
	p.octets.Add(frames * uint64(n))
	p.packets[class].Add(frames)
	for i, limit := range sizeBins {
		if n <= limit || i == len(sizeBins)-1 {
			p.sizes[i].Add(frames)
			break
		}
	}
}

// vsiSide are the counters of one direction of all VSIs.
type vsiSide struct {
	octets  [vsis]atomic.Uint64
	packets [3][vsis]atomic.Uint64
}

func (v *vsiSide) count(n uint16, f []byte) {
	if n < vsis {
		v.octets[n].Add(uint64(len(f)))
		v.packets[frame.Class(f)][n].Add(1)
	}
}

// statistics are the counters that something is counted in. They are free
// running; the driver takes differences modulo 2^40 or 2^32.
type statistics struct {
	port struct{ rx, tx portSide }
	vsi  struct {
		rx, tx         vsiSide
		txErrors       [vsis]atomic.Uint64
		rxNoDescriptor [vsis]atomic.Uint64
	}
	linkDown              atomic.Uint64 // GLPRT_TDOLD
	rxDropped             atomic.Uint64 // PRTRPB_RDPC
	rxUndersize           atomic.Uint64
	rxOversize            atomic.Uint64
	rxPauseOn, rxPauseOff atomic.Uint64
}

// all visits every counter.
func (s *statistics) all(do func(*atomic.Uint64)) {
	list := func(c []atomic.Uint64) {
		for i := range c {
			do(&c[i])
		}
	}
	for _, p := range []*portSide{&s.port.rx, &s.port.tx} {
		do(&p.octets)
		list(p.packets[:])
		list(p.sizes[:])
	}
	for _, v := range []*vsiSide{&s.vsi.rx, &s.vsi.tx} {
		list(v.octets[:])
		for c := range v.packets {
			list(v.packets[c][:])
		}
	}
	list(s.vsi.txErrors[:])
	list(s.vsi.rxNoDescriptor[:])
	for _, c := range []*atomic.Uint64{&s.linkDown, &s.rxDropped, &s.rxUndersize, &s.rxOversize, &s.rxPauseOn, &s.rxPauseOff} {
		do(c)
	}
}

func (s *statistics) clear() { s.all(func(c *atomic.Uint64) { c.Store(0) }) }

// A frame of a VSI is counted without padding and FCS.
func (s *statistics) vsiTx(vsi uint16, f []byte) { s.vsi.tx.count(vsi, f) }
func (s *statistics) vsiRx(vsi uint16, f []byte) { s.vsi.rx.count(vsi, f) }

func (s *statistics) txError(vsi uint16) {
	if vsi < vsis {
		s.vsi.txErrors[vsi].Add(1)
	}
}

// noDescriptors counts a frame for which a VSI's queue had no room.
func (s *statistics) noDescriptors(vsi uint16) {
	s.rxDropped.Add(1)
	if vsi < vsis {
		s.vsi.rxNoDescriptor[vsi].Add(1)
	}
}

// pause counts a received frame of link flow control (IEEE 802.3, annex 31B).
func (s *statistics) pause(f []byte) {
	const opPause = 1
	if f[14] != 0 || f[15] != opPause {
		return
	}
	if f[16]|f[17] == 0 {
		s.rxPauseOn.Add(1)
	} else {
		s.rxPauseOff.Add(1)
	}
}

// wide makes the rows of an array of 40-bit counters: the low dword at an
// 8-byte stride and the high byte behind it. Drivers read both at once, but
// counters move without the control lock: the high byte that follows a low
// dword is of the same moment. A nil value reads 0: nothing of the kind is ever
// counted.
func wide(name string, off uint32, n int, source string, value func(i int) uint64) []reg.Row {
	if value == nil {
		value = func(int) uint64 { return 0 }
	}
	const held = 1 << 31
	high := make([]uint32, n) // with held: that of the low dword read last
	return []reg.Row{
		{Name: name + "L", Offset: off, N: n, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: source,
			Read: func(i int) uint32 {
				v := value(i)
				high[i] = held | uint32(v>>32&0xff)
				return uint32(v)
			}},
		{Name: name + "H", Offset: off + 4, N: n, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: source,
			Read: func(i int) uint32 {
				h := high[i]
				if high[i] = 0; h == 0 {
					h = uint32(value(i) >> 32)
				}
				return h & 0xff
			}},
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
	for _, side := range []struct {
		p            *portSide
		octets       string
		octetsAt     uint32
		packets      [3]string
		packetsAt    [3]uint32
		sizes        string
		sizesAt      [len(sizeBins)]uint32
		v            *vsiSide
		vsiOctets    string
		vsiOctetsAt  uint32
		vsiPackets   [3]string
		vsiPacketsAt [3]uint32
	}{
		{&s.port.rx, "GLPRT_GORC", 0x00380000, [3]string{"GLPRT_UPRC", "GLPRT_MPRC", "GLPRT_BPRC"}, [3]uint32{0x00381300, 0x00381340, 0x00381380},
			"GLPRT_PRC", [...]uint32{0x00380900, 0x00380940, 0x00380980, 0x003809C0, 0x00380A00, 0x00380A40, 0x00380A80},
			&s.vsi.rx, "GLV_GORC", 0x003B0000, [3]string{"GLV_UPRC", "GLV_MPRC", "GLV_BPRC"}, [3]uint32{0x003B2000, 0x003B4000, 0x003B6000}},
		{&s.port.tx, "GLPRT_GOTC", 0x00380B40, [3]string{"GLPRT_UPTC", "GLPRT_MPTC", "GLPRT_BPTC"}, [3]uint32{0x003811C0, 0x00381200, 0x00381240},
			"GLPRT_PTC", [...]uint32{0x00380B80, 0x00380BC0, 0x00380C00, 0x00380C40, 0x00380C80, 0x00380CC0, 0x00380D00},
			&s.vsi.tx, "GLV_GOTC", 0x00300000, [3]string{"GLV_UPTC", "GLV_MPTC", "GLV_BPTC"}, [3]uint32{0x0030A000, 0x0030C000, 0x0030E000}},
	} {
		rows = append(rows, wide(side.octets, side.octetsAt, ports, portSrc, port(&side.p.octets))...)
		rows = append(rows, wide(side.vsiOctets, side.vsiOctetsAt, vsis, vsiSrc, vsi(&side.v.octets))...)
		for c := range side.packets {
			rows = append(rows, wide(side.packets[c], side.packetsAt[c], ports, portSrc, port(&side.p.packets[c]))...)
			rows = append(rows, wide(side.vsiPackets[c], side.vsiPacketsAt[c], vsis, vsiSrc, vsi(&side.v.packets[c]))...)
		}
		for b, limit := range sizeBins {
			rows = append(rows, wide(fmt.Sprintf("%s%d", side.sizes, limit), side.sizesAt[b], ports, portSrc, port(&side.p.sizes[b]))...)
		}
	}
	rows = append(rows, wide("GLSTAT_FD_CNT0", 0x003A0000, 256, portSrc, nil)...)
	// 32-bit port counters. Frames come without FCS, so those with a wrong one
	// are never counted; the port sends no pause frames.
	for _, r := range []struct {
		name  string
		off   uint32
		value *atomic.Uint64
	}{
		{"GLPRT_TDOLD", 0x00381280, &s.linkDown}, {"GLPRT_CRCERRS", 0x00380100, nil}, {"GLPRT_ILLERRC", 0x003801C0, nil}, {"GLPRT_MLFC", 0x00380040, nil},
		{"GLPRT_MRFC", 0x00380080, nil}, {"GLPRT_RUC", 0x00380200, &s.rxUndersize}, {"GLPRT_RFC", 0x00380AC0, nil}, {"GLPRT_ROC", 0x00380240, &s.rxOversize},
		{"GLPRT_RJC", 0x00380B00, nil}, {"GLPRT_RLEC", 0x00380140, nil}, {"GLPRT_LXONRXC", 0x00380280, &s.rxPauseOn}, {"GLPRT_LXOFFRXC", 0x003802C0, &s.rxPauseOff},
		{"GLPRT_LXONTXC", 0x00381140, nil}, {"GLPRT_LXOFFTXC", 0x00381180, nil},
	} {
		row := reg.Row{Name: r.name, Offset: r.off, N: ports, Stride: 8, Access: reg.RO, Domain: reg.CORER, Source: portSrc}
		if r.value != nil {
			value := port(r.value)
			row.Read = func(i int) uint32 { return uint32(value(i)) }
		}
		rows = append(rows, row)
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
		reg.Row{Name: "PRTRPB_RDPC", Offset: 0x000AC260, Access: reg.RO, Domain: reg.CORER, Source: portSrc,
			Read: func(int) uint32 { return uint32(s.rxDropped.Load()) }},
		reg.Row{Name: "GLV_RDPC", Offset: 0x00294C04, N: vsis, Stride: 4, Access: reg.RO, Domain: reg.CORER, Source: vsiSrc,
			Read: func(i int) uint32 { return uint32(s.vsi.rxNoDescriptor[i].Load()) }},
		reg.Row{Name: "GLV_TEPC", Offset: 0x00312000, N: vsis, Stride: 4, Access: reg.RO, Domain: reg.CORER, Source: vsiSrc,
			Read: func(i int) uint32 { return uint32(s.vsi.txErrors[i].Load()) }},
	)
}
