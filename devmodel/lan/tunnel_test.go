// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

// What of a tunnel the descriptor tells: ptype, which checksum is wrong, and
// that there is a tunnel.
func TestReceiveTunnels(t *testing.T) {
	const port = 7777
	tcp := &layers.TCP{SrcPort: 1, DstPort: 2, ACK: true}
	gre := frametest.Build(t, ethernet(0x800), ip4(47), &layers.GRE{Protocol: 0x86dd}, ip6(6), tcp, payload(100))
	ipip := frametest.Build(t, ethernet(0x86dd), ip6(4), ip4(6), tcp, payload(100))
	vxlan := frametest.Build(t, ethernet(0x800), ip4(17), &layers.UDP{SrcPort: 9, DstPort: port}, &layers.VXLAN{ValidIDFlag: true}, ethernet(0x800), ip4(6), tcp, payload(100))
	const innerIP = 14 + 20 + 8 + 8 + 14
	if i := frame.Parse(vxlan, port); i.Inner.L3 != innerIP {
		t.Fatalf("inner IP header at %d, want %d", i.Inner.L3, innerIP)
	}
	const ok = statusDD | statusEOF | statusL3L4P
	for _, c := range []struct {
		name   string
		f      []byte
		change int // a byte of f
		ptype  uint64
		status uint64
		nat    bool
	}{
		{"GRE", gre, 0, 55, ok, true},
		{"outer IPv4 header", gre, 22, 55, ok | statusEIPE, true},
		{"TCP in GRE", gre, len(gre) - 1, 55, ok | statusL4E, true},
		{"IP in IP", ipip, 0, 99, ok, false},
		{"inner IPv4 header", ipip, 62, 99, ok | statusIPE, false},
		{"VXLAN", vxlan, 0, 63, ok, true},
		{"outer UDP", vxlan, 34, 63, ok | statusEUDPE, true},
		{"all within UDP", vxlan, innerIP + 8, 63, ok | statusEUDPE | statusIPE, true},
		{"payload", vxlan, len(vxlan) - 1, 63, ok | statusEUDPE | statusL4E, true},
	} {
		f := bytes.Clone(c.f)
		if c.change != 0 {
			f[c.change] ^= 1
		}
		r, s := newCard(t), testSteering()
		s.UDPTunnels = []uint16{port}
		r.Steer(s)
		r.receiver(2, 8, rxConfig{})
		r.Receive(f)
		if got := r.mem.word(rxWord(2, 0, 0)) >> 16 & 0x3ff; got != c.ptype {
			t.Errorf("%s: ptype %d, want %d", c.name, got, c.ptype)
		}
		if got := r.status(2, 0); got != c.status {
			t.Errorf("%s: status_error0 %#x, want %#x", c.name, got, c.status)
		}
		if got := r.mem.word(rxWord(2, 0, 2)) & 0xffff; (got == status1NAT) != c.nat || got&^status1NAT != 0 {
			t.Errorf("%s: status_error1 %#x", c.name, got)
		}
	}
	// Without the port it is UDP like any other.
	r := newCard(t)
	r.receiver(2, 8, rxConfig{})
	r.Receive(vxlan)
	if got := r.mem.word(rxWord(2, 0, 0)) >> 16 & 0x3ff; got != 24 || r.status(2, 0) != ok {
		t.Errorf("no port named: ptype %d, status_error0 %#x", got, r.status(2, 0))
	}
}
