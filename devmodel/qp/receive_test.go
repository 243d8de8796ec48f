// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// fromPeer makes a frame of a packet to a QP of a cabled bench.
func fromPeer(p wire.Packet, n int) []byte {
	local := [16]byte{12: 192, 13: 0, 14: 2, 15: 1} // both have one address
	path := wire.Path{DestMAC: ownMAC, SourceMAC: otherMAC, IPv4: true, Source: local, Dest: local, HopLimit: 64, SourcePort: 0xC000}
	f := make([]byte, wire.MaxHeader+n+wire.Trailer)
	if p.PKey == 0 {
		p.PKey = 0xFFFF
	}
	return p.Encode(f, &path, n)
}

// otherMAC is the cable's far end.
var otherMAC = [6]byte{0x52, 0x54, 0, 9, 9, 9}

func (b *bench) arrives(f []byte) {
	i := frame.Parse(f)
	b.table.Receive(f, &i)
}

// discards is how many packets were dropped.
func (b *bench) discards() uint32 {
	stats := b.table.Stats()
	return binary.LittleEndian.Uint32(stats[28:]) + binary.LittleEndian.Uint32(stats[76:])
}

// What comes for QPs that do not get to it is bounded: for each QP by number, for
// the card by memory. What is beyond is dropped, and counted.
func TestFlood(t *testing.T) {
	const qps, each = 1000, 30
	b, x, _, _ := cabled(t)
	for id := uint32(10); id < 10+qps; id++ {
		s := *x // none of them ever takes a step before it ends
		s.id = id
		s.create()
		s.modify(qp.RTR)
	}
	frame := fromPeer(wire.Packet{Opcode: wire.WriteOnly, PSN: 0x100000, VA: data, Key: rkey, DMALen: 1024}, 1024)
	f := make([]byte, len(frame))
	for range each {
		for id := uint32(10); id < 10+qps; id++ {
			copy(f, frame)
			binary.BigEndian.PutUint32(f[14+20+8+4:], id)
			binary.LittleEndian.PutUint32(f[len(f)-4:], wire.ICRC(f[14:len(f)-4], true))
			if b.arrives(f); b.table.Waiting() > 32<<20 {
				t.Fatalf("%d bytes wait", b.table.Waiting())
			}
		}
	}
	held := b.table.Waiting()
	if held < 31<<20 {
		t.Errorf("only %d bytes wait", held)
	}
	if n := b.discards(); n == 0 || n >= qps*each {
		t.Errorf("%d of %d packets were dropped", n, qps*each)
	}
	for id := uint32(10); id < 10+qps; id++ {
		b.ok(b.table.Destroy(id))
	}
	if n := b.table.Waiting(); n != 0 {
		t.Errorf("%d bytes wait for nobody", n)
	}

	before := b.discards()
	small := fromPeer(wire.Packet{Opcode: wire.SendOnly, DestQP: 2, PSN: 0x100000}, 4)
	for range 3000 {
		b.arrives(small)
	}
	if n := b.discards() - before; n != 3000-2048 {
		t.Errorf("%d packets for one QP were dropped", n)
	}
	b.drain()
	if n := b.table.Waiting(); n != 0 {
		t.Errorf("%d bytes wait for nobody", n)
	}
}

// FuzzReceive has any frames come for a QP with work under way. The first byte of
// each tells whether its ICRC is put right, and how long it is.
func FuzzReceive(f *testing.F) {
	packets := []wire.Packet{
		{Opcode: wire.SendFirst}, {Opcode: wire.SendMiddle}, {Opcode: wire.SendLast, AckReq: true}, {Opcode: wire.SendOnlyImm, AckReq: true},
		{Opcode: wire.SendOnlyInv, Inv: rkey}, {Opcode: wire.WriteOnly, VA: data, Key: rkey, DMALen: 100}, {Opcode: wire.WriteFirst, VA: data, Key: rkey, DMALen: 2000},
		{Opcode: wire.WriteLast}, {Opcode: wire.WriteOnlyImm, VA: data, Key: rkey, DMALen: 100}, {Opcode: wire.ReadRequest, VA: data, Key: rkey, DMALen: 5000},
		{Opcode: wire.ReadRespFirst}, {Opcode: wire.ReadRespMiddle}, {Opcode: wire.ReadRespLast}, {Opcode: wire.ReadRespOnly},
		{Opcode: wire.Acknowledge, Syndrome: 0x1F}, {Opcode: wire.Acknowledge, Syndrome: 0x2C}, {Opcode: wire.Acknowledge, Syndrome: 0x60},
		{Opcode: wire.CNP}, {Opcode: wire.UDSendOnly}, {Opcode: wire.CompareSwap}, {Opcode: wire.FetchAdd},
	}
	for _, first := range packets {
		var in []byte
		for k, p := range []wire.Packet{first, {Opcode: wire.SendLast, AckReq: true}} {
			p.DestQP, p.PSN = 2, (0xFFFFF5+uint32(k))&0xFFFFFF
			if wire.IsResponse(p.Opcode) {
				p.PSN = 0xFFFFF2
			}
			x := fromPeer(p, 100)
			in = append(append(in, 1, byte(len(x)), byte(len(x)>>8)), x...)
		}
		f.Add(in)
	}
	f.Fuzz(fuzzReceive)
}

func fuzzReceive(t *testing.T, in []byte) {
	b, x, y, cable := cabled(t)
	cable.fate = func(*wire.Packet) int { return 0 }
	outside := b.read(data+0x10000, 0x1000)
	b.regions[lkey], b.regions[rkey] = region{data, 0x10000, pd, all}, region{data, 0x10000, pd, all}
	for _, s := range []*side{x, y} {
		s.receive(sge{data, 3000})
		s.receive(sge{data, 3000})
		s.post(wr{op: opRead, sges: []sge{{data, 3000}}, raddr: data, key: rkey})
		s.post(wr{op: opSend, sges: []sge{{data, 3000}}})
		s.ring()
	}
	b.drain()
	for len(in) > 3 {
		n := min(int(in[1])|int(in[2])<<8, len(in)-3)
		x := append([]byte(nil), in[3:3+n]...)
		if i := frame.Parse(x); in[0]&1 != 0 && i.RoCE(x) && i.End-i.L4 >= 24 {
			binary.LittleEndian.PutUint32(x[i.End-4:], wire.ICRC(x[i.L3:i.End-4], i.Network == frame.IPv4))
		}
		b.arrives(x)
		if in[0]&2 != 0 {
			b.drain()
		}
		in = in[3+n:]
	}
	b.drain()
	if b.table.Waiting() != 0 {
		t.Errorf("%d bytes wait", b.table.Waiting())
	}
	b.same(outside, data+0x10000)
}
