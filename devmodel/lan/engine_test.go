// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/frame/frametest"
)

var groupMAC = net.HardwareAddr{1, 0, 0x5e, 1, 2, 3}

// engineCard is a card with a protocol engine, which is in the group of groupMAC.
func engineCard(t *testing.T) (c *card, taken *int) {
	c, taken = newCard(t), new(int)
	c.cfg.RDMA = func(f []byte, i frame.Info) {
		if !i.RoCE(f) {
			t.Errorf("the engine got % x", f)
		}
		*taken++
	}
	c.cfg.Group = func(a [6]byte) bool { return a == [6]byte(groupMAC) }
	for q := 2; q < 6; q++ {
		c.receiver(q, rxRingN-1, rxConfig{})
	}
	return c, taken
}

// steer makes the test's steering with the filter of the engine on or off.
func (c *card) steerEngine(pe bool, change ...func(*Steering)) {
	s := testSteering()
	s.VSIs[theVSI].PE = pe
	for _, f := range change {
		f(s)
	}
	c.Steer(s)
}

// roce is a RoCE frame, or of another UDP port, to a station.
func roce(t testing.TB, to net.HardwareAddr, port layers.UDPPort) []byte {
	e := ethernet(layers.EthernetTypeIPv4)
	e.DstMAC = to
	return frametest.Build(t, e, ip4(layers.IPProtocolUDP), &layers.UDP{SrcPort: 0xC000, DstPort: port}, payload(64))
}

// The engine gets RoCE frames to the address of a VSI that has its filter on,
// instead of that, and those to its groups, besides.
func TestFramesForTheEngine(t *testing.T) {
	broadcast := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for _, tc := range []struct {
		name           string
		f              []byte
		pe             bool
		change         func(*Steering)
		engine, driver int
	}{
		{name: "RoCE", f: roce(t, ownMAC, 4791), pe: true, engine: 1},
		{name: "filter off", f: roce(t, ownMAC, 4791), driver: 1},
		{name: "another port", f: roce(t, ownMAC, 4790), pe: true, driver: 1},
		{name: "another station", f: roce(t, peerMAC, 4791), pe: true},
		{name: "promiscuous", f: roce(t, peerMAC, 4791), pe: true, engine: 1,
			change: func(s *Steering) { s.Promiscuous[Unicast] = Forward{VSIs: []uint16{theVSI}} }},
		{name: "group without a rule", f: roce(t, groupMAC, 4791), pe: true, engine: 1},
		{name: "group with a rule", f: roce(t, groupMAC, 4791), pe: true, engine: 1, driver: 1,
			change: func(s *Steering) { s.Addresses[[6]byte(groupMAC)] = Forward{VSIs: []uint16{theVSI}} }},
		{name: "group, filter off", f: roce(t, groupMAC, 4791)},
		{name: "group, another port", f: roce(t, groupMAC, 4790), pe: true},
		{name: "broadcast", f: roce(t, broadcast, 4791), pe: true, driver: 1},
		{name: "no link", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) { s.Link = false }},
	} {
		c, taken := engineCard(t)
		if tc.change == nil {
			tc.change = func(*Steering) {}
		}
		c.steerEngine(tc.pe, tc.change)
		c.Receive(tc.f)
		if *taken != tc.engine || len(c.rxDone) != tc.driver {
			t.Errorf("%s: the engine got it %d times, the driver %d times, want %d and %d", tc.name, *taken, len(c.rxDone), tc.engine, tc.driver)
		}
	}
}

// What the engine sends leaves by the port, which counts it; the rules of no VSI
// apply.
func TestTransmitOfTheEngine(t *testing.T) {
	f := roce(t, peerMAC, 4791)
	c, taken := engineCard(t)
	c.steerEngine(true, func(s *Steering) { s.VSIs[theVSI].LocalLB = true })
	if !c.Transmit(f) || len(c.wire) != 1 {
		t.Errorf("%d frames on the wire", len(c.wire))
	}
	c.steerEngine(true, func(s *Steering) { s.Link = false })
	if c.Transmit(f) || len(c.wire) != 1 || c.Read32(0x00381280) != 1 {
		t.Errorf("without a link: %d frames on the wire, GLPRT_TDOLD %d", len(c.wire), c.Read32(0x00381280))
	}
	c.steerEngine(true, func(s *Steering) { s.Loopback = true })
	if !c.Transmit(roce(t, ownMAC, 4791)) || len(c.wire) != 1 || *taken != 1 {
		t.Errorf("MAC loopback: %d frames on the wire, %d came back", len(c.wire), *taken)
	}
	if tx, rx := c.Read32(0x003811C0), c.Read32(0x00381300); tx != 2 || rx != 1 {
		t.Errorf("GLPRT_UPTC %d, GLPRT_UPRC %d", tx, rx)
	}
}

// A burst is taken where its frames would be, and counts as they do.
func TestBurst(t *testing.T) {
	tagged := func(f []byte) []byte {
		x := append([]byte(nil), f[:12]...)
		x = binary.BigEndian.AppendUint32(x, frame.TypeVLAN<<16|100)
		return append(x, f[12:]...)
	}
	in100 := func(s *Steering) {
		s.VSIs[theVSI].PruneRx, s.VSIs[theVSI].VLANs = true, map[Tag]bool{{frame.TypeVLAN, 100}: true}
	}
	other := func(s *Steering) { s.VSIs[theVSI+1] = &VSI{Number: theVSI + 1, Queues: []uint16{7}} }
	for _, tc := range []struct {
		name   string
		f      []byte
		pe     bool
		change func(*Steering)
		want   bool
	}{
		{name: "plain", f: roce(t, ownMAC, 4791), pe: true, want: true},
		{name: "filter off", f: roce(t, ownMAC, 4791)},
		{name: "another station", f: roce(t, peerMAC, 4791), pe: true},
		{name: "a group", f: roce(t, groupMAC, 4791), pe: true},
		{name: "no link", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) { s.Link = false }},
		{name: "MAC loopback", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) { s.Loopback = true }},
		{name: "too long", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) { s.MaxFrame = 100 }},
		{name: "as long as can be", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) { s.MaxFrame = 106 }, want: true},
		{name: "in its VLAN", f: tagged(roce(t, ownMAC, 4791)), pe: true, change: in100, want: true},
		{name: "out of its VLAN", f: roce(t, ownMAC, 4791), pe: true, change: in100},
		{name: "another VSI sees it", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) {
			other(s)
			s.Default = []uint16{theVSI + 1}
		}},
		{name: "dropped by its type", f: roce(t, ownMAC, 4791), pe: true, change: func(s *Steering) {
			s.EtherTypes = map[uint16]Forward{frame.TypeIPv4: {Drop: true}}
		}},
	} {
		c, taken := engineCard(t)
		if tc.change == nil {
			tc.change = func(*Steering) {}
		}
		c.steerEngine(tc.pe, tc.change)
		i := frame.Parse(tc.f)
		b := Burst{Dest: [6]byte(tc.f), Tagged: i.Tags == 1, TCI: i.TCI, Type: i.Type, Frames: 3, First: len(tc.f), Middle: len(tc.f), Last: 70}
		if got := c.Takes(&b); got != tc.want {
			t.Errorf("%s: taken: %v", tc.name, got)
		}
		if !tc.want {
			continue
		}
		if c.Receive(tc.f); *taken != 1 {
			t.Errorf("%s: the engine got the frame %d times", tc.name, *taken)
		}
		one := c.port()
		c.Received(&Burst{Frames: 2, First: len(tc.f), Last: len(tc.f)}, 1)
		if three := c.port(); three != [4]uint32{3 * one[0], 3 * one[1], 3 * one[2], 3 * one[3]} || one[0] == 0 {
			t.Errorf("%s: counters after one frame %v, after a burst of two more %v", tc.name, one, three)
		}
	}
}

// port is octets, unicast frames, and frames of 65 to 127 and of 128 to 255 bytes
// received.
func (c *card) port() (n [4]uint32) {
	for i, off := range []uint32{0x00380000, 0x00381300, 0x00380940, 0x00380980} {
		n[i] = c.Read32(off)
	}
	return n
}
