// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Port counters (ice_hw_autogen.h): the low dwords.
const (
	glprtGORC, glprtGOTC = 0x00380000, 0x00380B40
	glprtUPTC            = 0x003811C0
)

// glprtPRC and glprtPTC count frames by size (GLPRT_PRC64 to PRC9522, GLPRT_PTC64
// to PTC9522).
var (
	glprtPRC = [...]uint32{0x00380900, 0x00380940, 0x00380980, 0x003809C0, 0x00380A00, 0x00380A40, 0x00380A80}
	glprtPTC = [...]uint32{0x00380B80, 0x00380BC0, 0x00380C00, 0x00380C40, 0x00380C80, 0x00380CC0, 0x00380D00}
)

// side of a port: octets and frames, and those by size.
type portSide struct {
	Octets, Frames uint32
	Sizes          [7]uint32
}

func (m *machine) port() (rx, tx portSide) {
	read := func(octets, frames uint32, sizes [7]uint32) (s portSide) {
		s.Octets, s.Frames = m.f.Read32(octets), m.f.Read32(frames)
		for i, off := range sizes {
			s.Sizes[i] = m.f.Read32(off)
		}
		return s
	}
	return read(glprtGORC, GLPRT_UPRC, glprtPRC), read(glprtGOTC, glprtUPTC, glprtPTC)
}

// Ports count what RDMA moves, whether there were frames or none was needed: one
// frame with its Ethernet header and FCS for each packet, of the same lengths
// where it left and where it came.
func TestPortsCountRDMA(t *testing.T) {
	for _, w := range []way{near, wired2, uplink} {
		t.Run(w.String(), func(t *testing.T) {
			d := startDuo(t, duoOptions{way: w, guest: 256})
			d.random(t, rand.New(rand.NewPCG(8, 8)), 2, 200)
			a, b := d.counters(t)
			for k, x := range []struct {
				from, to *machine
				out, in  Counters
			}{{d.a, d.b, a, b}, {d.b, d.a, b, a}} {
				_, tx := x.from.port()
				rx, _ := x.to.port()
				if tx != rx {
					t.Errorf("card %d sent %+v, the other one got %+v", k, tx, rx)
				}
				sum := uint32(0)
				for _, n := range tx.Sizes {
					sum += n
				}
				got := fmt.Sprint(tx.Frames, sum, tx.Octets)
				packets := x.out[IP4OutPkts] + x.out[IP6OutPkts]
				tagged := tx.Octets - uint32(x.out[IP4OutOctets]+x.out[IP6OutOctets]+18*packets)
				if want := fmt.Sprint(packets, packets, tx.Octets); got != want || packets == 0 || tagged%4 != 0 || uint64(tagged) > 4*packets {
					t.Errorf("card %d: frames, by size, octets: %s, want %s; counters %v", k, got, want, x.out)
				}
			}
			d.end(t)
		})
	}
}
