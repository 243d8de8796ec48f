// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// named are the counters of a buffer of GATHER_STATS that are not 0.
func named(buf [StatsSize]byte) map[string]uint64 {
	m := map[string]uint64{}
	for _, p := range layout {
		if v := binary.LittleEndian.Uint64(buf[p.offset:]) >> p.shift & (1<<p.width - 1); v != 0 {
			m[p.name] = v
		}
	}
	return m
}

// Every counter has a name and bits of its own, and one that has come to its
// end begins again without a trace in its neighbour.
func TestCountersKeepTheirBits(t *testing.T) {
	names, taken := map[string]bool{}, map[int]uint64{}
	for i, p := range layout {
		if p.name == "" || names[p.name] {
			t.Errorf("counter %d is called %q", i, p.name)
		}
		names[p.name] = true
		mask := uint64(1)<<p.width - 1
		if taken[p.offset]&(mask<<p.shift) != 0 || p.offset%8 != 0 || p.shift+p.width > 64 {
			t.Errorf("%s stands on others' bits", p.name)
		}
		taken[p.offset] |= mask << p.shift
		c := new(counters)
		c.add(counter(i), mask)
		if d := cmp.Diff(map[string]uint64{p.name: mask}, named(c.buffer())); d != "" {
			t.Errorf("%s: %s", p.name, d)
		}
		c.add(counter(i), 1)
		if b := c.buffer(); b != [StatsSize]byte{} {
			t.Errorf("%s at its end: %v", p.name, named(b))
		}
	}
}

var (
	path4 = wire.Path{IPv4: true, Source: [16]byte{12: 10, 15: 1}, Dest: [16]byte{12: 10, 15: 2}}
	path6 = wire.Path{Source: [16]byte{0: 0xFE, 15: 1}, Dest: [16]byte{0: 0xFD, 15: 2}}
)

func toGroup(p wire.Path) wire.Path {
	p.Dest[0], p.Dest[12] = 0xFF, 0xEF
	return p
}

// datagram is a frame with 100 bytes of payload, and what Parse makes of it.
func datagramOn(t *testing.T, path wire.Path) ([]byte, *wire.Packet) {
	p := wire.Packet{Opcode: wire.UDSendOnly}
	f := p.Encode(make([]byte, wire.MaxHeader+100+wire.Trailer), &path, 100)
	i := frame.Parse(f)
	if v := p.Parse(f, &i); v != wire.OK {
		t.Fatal(v)
	}
	return f, &p
}

func TestPacketsAreCountedByIPVersion(t *testing.T) {
	for _, c := range []struct {
		path    wire.Path
		in, out map[string]uint64
	}{
		{path4, map[string]uint64{"ip4InPkts": 1, "ip4InOctets": 152, "RxUDP": 1}, map[string]uint64{"ip4OutPkts": 1, "ip4OutOctets": 152, "TxUDP": 1}},
		{path6, map[string]uint64{"ip6InPkts": 1, "ip6InOctets": 172, "RxUDP": 1}, map[string]uint64{"ip6OutPkts": 1, "ip6OutOctets": 172, "TxUDP": 1}},
		{toGroup(path4), map[string]uint64{"ip4InPkts": 1, "ip4InOctets": 152, "ip4InMcastPkts": 1, "ip4InMcastOctets": 152, "RxUDP": 1},
			map[string]uint64{"ip4OutPkts": 1, "ip4OutOctets": 152, "ip4OutMcastPkts": 1, "ip4OutMcastOctets": 152, "TxUDP": 1}},
		{toGroup(path6), map[string]uint64{"ip6InPkts": 1, "ip6InOctets": 172, "ip6InMcastPkts": 1, "ip6InMcastOctets": 172, "RxUDP": 1},
			map[string]uint64{"ip6OutPkts": 1, "ip6OutOctets": 172, "ip6OutMcastPkts": 1, "ip6OutMcastOctets": 172, "TxUDP": 1}},
	} {
		for _, tagged := range []bool{false, true} {
			path := c.path
			path.Tagged = tagged
			f, p := datagramOn(t, path)
			in, out := new(counters), new(counters)
			in.received(p)
			out.sent(f, &path)
			if d := cmp.Diff(c.in, named(in.buffer())); d != "" {
				t.Errorf("in: %s", d)
			}
			if d := cmp.Diff(c.out, named(out.buffer())); d != "" {
				t.Errorf("out: %s", d)
			}
		}
	}
}

// Who is dropped is counted once, by why.
func TestDropsAreCountedByReason(t *testing.T) {
	for v, want := range map[wire.Verdict]string{wire.BadLength: "InTruncatedPkts", wire.Fragment: "InReasmRqd", wire.BadVLAN: "rxVlanErrors",
		wire.BadICRC: "InDiscards", wire.NoQP: "InDiscards", wire.NoBuffer: "InDiscards"} {
		for version, ipv4 := range map[string]bool{"ip4": true, "ip6": false} {
			if v == wire.BadVLAN {
				version = ""
			}
			c := new(counters)
			c.drop(v, ipv4, 3)
			if d := cmp.Diff(map[string]uint64{version + want: 3}, named(c.buffer())); d != "" {
				t.Errorf("%v: %s", v, d)
			}
		}
	}
}

// watching is a table whose events are kept.
func watching() (*Table, *[]any) {
	var events []any
	return New(Config{Emit: func(e any) { events = append(events, e) }}), &events
}

func TestArrivals(t *testing.T) {
	_, p := datagramOn(t, path4)
	p.CE, p.DestQP, p.PSN = true, 9, 77
	basic := map[string]uint64{"ip4InPkts": 1, "ip4InOctets": 152, "RxUDP": 1, "RxECNMrkd": 1}
	table, events := watching()
	table.arrived(p, wire.OK)
	if d := cmp.Diff(basic, named(table.Stats())); d != "" || len(*events) != 0 {
		t.Errorf("%v %s", *events, d)
	}
	table, events = watching()
	table.arrived(p, wire.BadQKey)
	want := maps.Clone(basic)
	want["ip4InDiscards"] = 1
	if d := cmp.Diff(want, named(table.Stats())); d != "" {
		t.Error(d)
	}
	dropped := PacketDropped{QP: 9, From: "10.0.0.1", Opcode: wire.UDSendOnly, PSN: 77, Packets: 1, Verdict: wire.BadQKey}
	if d := cmp.Diff([]any{dropped}, *events); d != "" {
		t.Error(d)
	}
	if got, want := dropped.String(), "UD_SEND_ONLY for QP 9, PSN 77, from 10.0.0.1, dropped: wrong Q_Key"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// A connection counts what it handles itself.
	table, _ = watching()
	p.Opcode, p.CE = wire.SendOnly, false
	table.arrived(p, wire.OK)
	if d := cmp.Diff(map[string]uint64{}, named(table.Stats())); d != "" {
		t.Error(d)
	}
}

// A run that no connection takes is as many packets, of the octets that they
// would have as frames.
func TestRefusedRuns(t *testing.T) {
	for version, path := range map[string]wire.Path{"ip4": path4, "ip6": path6} {
		s := &address{path: path, peer: 9}
		r := roce.Run{Op: roce.Write, First: true, Last: true, HasImm: true, PSN: 5, N: 3, Size: 1024, Bytes: 2*1024 + 5, DMALen: 2*1024 + 5}
		octets := uint64(0)
		for k := range r.N {
			var p wire.Packet
			p.FromRun(&r, k)
			f := p.Encode(make([]byte, wire.MaxHeader+1024+wire.Trailer), &path, int(r.PacketBytes(k)))
			i := frame.Parse(f)
			octets += uint64(i.End - i.L3)
		}
		table, events := watching()
		table.refused(s, &r, wire.NoQP)
		want := map[string]uint64{version + "InPkts": 3, version + "InOctets": octets, "RxUDP": 3, version + "InDiscards": 3}
		if d := cmp.Diff(want, named(table.Stats())); d != "" {
			t.Error(d)
		}
		if got := (*events)[0].(PacketDropped); got.Packets != 3 || got.QP != 9 || got.Opcode != wire.WriteFirst {
			t.Errorf("%+v", got)
		}
		table.refused(s, &roce.Run{Op: roce.SourceFault}, wire.NoQP)
		if len(*events) != 1 {
			t.Errorf("news that is no packet counts: %v", *events)
		}
	}
}
