// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"bytes"
	"net"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// card is a LAN unit on an engine that only Drain moves, with its wire.
type card struct {
	fixture
	engine *engine.Engine
	wire   [][]byte
	events []any
	rxDone []int
	mdd    int
}

// Addresses of the tests.
var (
	ownMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 5}
	peerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}
)

func newCard(t testing.TB) *card {
	c := &card{engine: engine.New(engine.Config{Manual: true})}
	t.Cleanup(c.engine.Close)
	c.LAN = New(Config{Mem: &c.mem, Emit: func(e any) { c.events = append(c.events, e) }, Engine: c.engine,
		RxDone: func(q int) { c.rxDone = append(c.rxDone, q) }, Malicious: func() { c.mdd++ },
		Wire: func(f []byte) { c.wire = append(c.wire, bytes.Clone(f)) }})
	c.Space = reg.NewSpace(32<<20, nil, c.Registers())
	c.Steer(testSteering())
	if err := c.EnableTxQueue(1, testContext(ring, ringN)); err != nil {
		t.Fatal(err)
	}
	return c
}

// testSteering has theVSI with ownMAC, broadcasts and queues 2 to 5.
func testSteering() *Steering {
	return &Steering{Link: true,
		VSIs: map[uint16]*VSI{theVSI: {Number: theVSI, Queues: []uint16{2, 3, 4, 5}, TCs: [8]TC{{0, 2}}, AllowLB: true, SrcPrune: true, LAN: true, DestOverride: true}},
		Addresses: map[[6]byte]Forward{
			[6]byte(ownMAC):                      {VSIs: []uint16{theVSI}, LB: true},
			{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}: {VSIs: []uint16{theVSI}, LB: true, LAN: true},
		}}
}

// Where receive queue q has its ring and its buffers.
const (
	rxRingN  = 16
	rxBuffer = 4096
)

func rxRing(q int) uint64              { return 0x40000 + uint64(q)*0x1000 }
func rxPacket(q, i int) uint64         { return 0x80000 + uint64(q)*0x10000 + uint64(i)*rxBuffer }
func rxHeaders(q, i int) uint64        { return 0x70000 + uint64(q)*0x1000 + uint64(i)*256 }
func rxWord(q, i, w int) uint64        { return rxRing(q) + uint64(i)*32 + uint64(w)*8 }
func (c *card) status(q, i int) uint64 { return c.mem.word(rxWord(q, i, 1)) & 0xffff }

// receiver enables receive queue q with n descriptors posted.
func (c *card) receiver(q, n int, x rxConfig) {
	x.base, x.n = rxRing(q), rxRingN
	if x.dbuf == 0 {
		x.dbuf = 2048
	}
	if x.max == 0 {
		x.max = 9728
	}
	c.rxContext(q, x)
	c.repost(q)
	c.Write32(uint32(0x290000+4*q), uint32(n))
	c.Write32(uint32(0x120000+4*q), qenaReq)
}

// repost gives all descriptors of queue q their buffers.
func (c *card) repost(q int) {
	for i := range rxRingN {
		_ = c.mem.Store64(rxWord(q, i, 0), rxPacket(q, i))
		_ = c.mem.Store64(rxWord(q, i, 1), rxHeaders(q, i))
	}
}

// bytes is guest memory.
func (c *card) bytes(at uint64, n int) []byte {
	b := make([]byte, n)
	_ = c.mem.Read(at, b)
	return b
}

// Layers of test frames.
func ethernet(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: peerMAC, DstMAC: ownMAC, EthernetType: t}
}

func ip4(p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 7, Protocol: p, SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
}

func ip6(p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
}

func payload(n int) gopacket.Payload {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

// outbound is the header of a frame that the card sends to a peer.
func outbound(t layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: ownMAC, DstMAC: peerMAC, EthernetType: t}
}
