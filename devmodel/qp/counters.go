// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// counter is one of a function's or an instance's counters.
type counter uint8

// Counters that there are for each version of IP: those of IPv4 as they are,
// those of IPv6 perIP further on.
const (
	inOctets counter = iota
	inPkts
	inTruncated
	inDiscards
	inFragments
	inMcastOctets
	inMcastPkts
	outOctets
	outPkts
	outMcastOctets
	outMcastPkts
	outNoRoutes
	perIP
)

// Counters of both versions together.
const (
	rxVLANErrors = 2*perIP + iota
	retransmitted
	rxUDP
	txUDP
	inWrites
	inReads
	inSends
	outWrites
	outReads
	outSends
	binds
	invalidations
	rxECNMarked
	cnpIgnored
	cnpHandled
	cnpSent
	allCounters
)

// of is a counter of one version of IP.
func (c counter) of(ipv4 bool) counter {
	if ipv4 {
		return c
	}
	return c + perIP
}

// place is where a counter stands in the buffer of GATHER_STATS.
type place struct {
	name         string // verbs.c:irdma_hw_stat_descs
	offset       int    // of the word
	shift, width uint8  // in it, in bits
}

// layout is the buffer (icrdma_hw.c:icrdma_hw_stat_map). What is not here is of
// iWARP, or of fragments sent, and stays 0.
var layout = [allCounters]place{
	inOctets:       {"ip4InOctets", 8, 0, 48},
	inPkts:         {"ip4InPkts", 16, 0, 48},
	inTruncated:    {"ip4InTruncatedPkts", 24, 0, 32},
	inDiscards:     {"ip4InDiscards", 24, 32, 32},
	inFragments:    {"ip4InReasmRqd", 32, 0, 48},
	inMcastOctets:  {"ip4InMcastOctets", 40, 0, 48},
	inMcastPkts:    {"ip4InMcastPkts", 48, 0, 48},
	outOctets:      {"ip4OutOctets", 104, 0, 48},
	outPkts:        {"ip4OutPkts", 112, 0, 48},
	outMcastOctets: {"ip4OutMcastOctets", 128, 0, 48},
	outMcastPkts:   {"ip4OutMcastPkts", 136, 0, 48},
	outNoRoutes:    {"ip4OutNoRoutes", 184, 32, 24},

	inOctets + perIP:       {"ip6InOctets", 56, 0, 48},
	inPkts + perIP:         {"ip6InPkts", 64, 0, 48},
	inTruncated + perIP:    {"ip6InTruncatedPkts", 72, 0, 32},
	inDiscards + perIP:     {"ip6InDiscards", 72, 32, 32},
	inFragments + perIP:    {"ip6InReasmRqd", 80, 0, 48},
	inMcastOctets + perIP:  {"ip6InMcastOctets", 88, 0, 48},
	inMcastPkts + perIP:    {"ip6InMcastPkts", 96, 0, 48},
	outOctets + perIP:      {"ip6OutOctets", 144, 0, 48},
	outPkts + perIP:        {"ip6OutPkts", 152, 0, 48},
	outMcastOctets + perIP: {"ip6OutMcastOctets", 168, 0, 48},
	outMcastPkts + perIP:   {"ip6OutMcastPkts", 176, 0, 48},
	outNoRoutes + perIP:    {"ip6OutNoRoutes", 184, 0, 24},

	rxVLANErrors:  {"rxVlanErrors", 0, 32, 24},
	retransmitted: {"RetransSegs", 216, 32, 32}, // that it counts packets of RoCE is inferred
	rxUDP:         {"RxUDP", 224, 0, 48},
	txUDP:         {"TxUDP", 232, 0, 48},
	inWrites:      {"InRdmaWrites", 240, 0, 48},
	inReads:       {"InRdmaReads", 248, 0, 48},
	inSends:       {"InRdmaSends", 256, 0, 48},
	outWrites:     {"OutRdmaWrites", 264, 0, 48},
	outReads:      {"OutRdmaReads", 272, 0, 48},
	outSends:      {"OutRdmaSends", 280, 0, 48},
	binds:         {"RdmaBnd", 288, 0, 48},
	invalidations: {"RdmaInv", 296, 0, 48},
	rxECNMarked:   {"RxECNMrkd", 304, 0, 56},
	cnpIgnored:    {"cnpIgnored", 312, 32, 24},
	cnpHandled:    {"cnpHandled", 312, 0, 32},
	cnpSent:       {"cnpSent", 320, 0, 32},
}

// counters are those of a function or of an instance. The driver adds up
// differences, so they never go back, but to begin again at their width.
//
// A packet sent is one given to the port, whether that has a link or not. A
// packet received is a RoCE packet that came for the protocol engine, also one
// that is dropped; of those each is counted once more, by why (see drop).
// Messages count once, whatever was sent again. That all this is as hardware
// counts is inferred.
type counters [allCounters]atomic.Uint64

func (c *counters) add(i counter, n uint64) {
	if n != 0 {
		c[i].Add(n)
	}
}

func (c *counters) reset() {
	for i := range c {
		c[i].Store(0)
	}
}

// buffer is the counters in the form of GATHER_STATS.
func (c *counters) buffer() (buf [StatsSize]byte) {
	for i, p := range layout {
		v := c[i].Load() & (1<<p.width - 1) << p.shift
		w := buf[p.offset:]
		binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|v)
	}
	return buf
}

// noRoute counts packets that found no valid entry of the ARP table.
func (c *counters) noRoute(ipv4 bool, n uint32) { c.add(outNoRoutes.of(ipv4), uint64(n)) }

// sent counts a frame of a datagram.
func (c *counters) sent(f []byte, path *wire.Path) {
	n := uint64(len(f) - wire.L3(path))
	c.add(outPkts.of(path.IPv4), 1)
	c.add(outOctets.of(path.IPv4), n)
	c.add(txUDP, 1)
	if path.Multicast() {
		c.add(outMcastPkts.of(path.IPv4), 1)
		c.add(outMcastOctets.of(path.IPv4), n)
	}
}

// received counts a packet that no connection counts: the Endpoint of one counts
// what it handles.
func (c *counters) received(p *wire.Packet) {
	n := uint64(p.Octets())
	c.in(p.IPv4, 1, n)
	if p.Multicast() {
		c.add(inMcastPkts.of(p.IPv4), 1)
		c.add(inMcastOctets.of(p.IPv4), n)
	}
}

func (c *counters) in(ipv4 bool, packets, octets uint64) {
	c.add(inPkts.of(ipv4), packets)
	c.add(inOctets.of(ipv4), octets)
	c.add(rxUDP, packets)
}

// drop counts packets that went no further, by why.
func (c *counters) drop(v wire.Verdict, ipv4 bool, n uint32) {
	i := inDiscards.of(ipv4)
	switch v {
	case wire.BadLength:
		i = inTruncated.of(ipv4)
	case wire.Fragment:
		i = inFragments.of(ipv4)
	case wire.BadVLAN:
		i = rxVLANErrors
	}
	c.add(i, uint64(n))
}

// connection adds what happened to a connected QP between two moments.
func (c *counters) connection(n, o *roce.Stats, ipv4 bool) {
	c.in(ipv4, n.RxPackets-o.RxPackets, n.RxOctets-o.RxOctets)
	c.add(outOctets.of(ipv4), n.TxOctets-o.TxOctets)
	c.add(outPkts.of(ipv4), n.TxPackets-o.TxPackets)
	c.add(txUDP, n.TxPackets-o.TxPackets)
	c.add(retransmitted, n.Retransmitted-o.Retransmitted)
	c.add(inWrites, n.InWrites-o.InWrites)
	c.add(inReads, n.InReads-o.InReads)
	c.add(inSends, n.InSends-o.InSends)
	c.add(outWrites, n.OutWrites-o.OutWrites)
	c.add(outReads, n.OutReads-o.OutReads)
	c.add(outSends, n.OutSends-o.OutSends)
	c.add(binds, n.Binds-o.Binds)
	c.add(invalidations, n.Invalidations-o.Invalidations)
}
