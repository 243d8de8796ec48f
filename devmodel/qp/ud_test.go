// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

const (
	ownAH, farAH, v6AH, groupAH, foreignAH, lostAH, otherMACAH = 7, 8, 9, 0x1FFFF, 11, 12, 13

	qkey     = 0x11111111
	grhBytes = 40
)

var (
	farMAC   = [6]byte{0x52, 0x54, 0, 0xAA, 0xBB, 0xCC}
	groupMAC = [6]byte{1, 0, 0x5E, 1, 2, 3}
	groupIP  = [16]byte{12: 239, 13: 1, 14: 2, 15: 3}
	ownIP    = [16]byte{12: 192, 13: 0, 14: 2, 15: 1}
	farIP    = [16]byte{12: 192, 13: 0, 14: 2, 15: 9}
	ownIP6   = [16]byte{0: 0xFD, 15: 1}
)

// port keeps what is sent through it.
type port struct {
	frames  [][]byte
	quiet   bool
	crowded bool // with frames to farMAC
}

func (p *port) Crowded(dst [6]byte) bool { return p.crowded && dst == farMAC }

func (p *port) Send(f []byte) bool {
	if !p.quiet {
		p.frames = append(p.frames, bytes.Clone(f))
	}
	return true
}

// datagrams is a bench with UD QPs of the given numbers in RTS, which have
// address handles for everything. Their receive queues have room for 32.
func datagrams(t testing.TB, change func(*side), ids ...uint32) (*bench, *port, []*side) {
	out := &port{}
	b := newBench(t, func(c *qp.Config) { c.Wire = out })
	b.regions[lkey] = region{data, dataSize, pd, mr.LocalRead | mr.LocalWrite}
	var sides []*side
	for _, id := range ids {
		s := b.newSide(id, 0)
		put(&s.ctx, 64, qkey<<32)
		put(&s.ctx, 56, 0x1234<<48|0xFFFF<<32)
		put(&s.ctx, 48, 1024<<16)
		if change != nil {
			change(s)
		}
		b.ok(b.table.Create(qp.CreateArgs{ID: s.id, Type: qp.RoCEUD, State: qp.Idle, Shadow: s.base + shadowAt}, s.ctx))
		for _, state := range []qp.State{qp.Idle, qp.RTR, qp.RTS} {
			s.modify(state)
		}
		sides = append(sides, s)
	}
	own := wire.Path{DestMAC: ownMAC, SourceMAC: ownMAC, IPv4: true, Source: ownIP, Dest: ownIP, HopLimit: 64, TrafficClass: 0x28}
	far, v6, group, other := own, own, own, own
	other.DestMAC, other.SourceMAC = [6]byte{2, 1, 1, 1, 1, 1}, [6]byte{2, 1, 1, 1, 1, 1}
	far.DestMAC, far.Dest, far.Tagged, far.TCI = farMAC, farIP, true, 3<<13|100
	v6.IPv4, v6.Source, v6.Dest, v6.FlowLabel = false, ownIP6, ownIP6, 0x12345
	group.DestMAC, group.Dest = groupMAC, groupIP
	for i, h := range map[uint32]qp.Handle{
		ownAH:     {PD: pd, Path: own, Loopback: true, Reachable: true},
		farAH:     {PD: pd, Path: far, Reachable: true},
		v6AH:      {PD: pd, Path: v6, Reachable: true}, // the MAC alone tells that it is the own
		groupAH:   {PD: pd, Path: group, Loopback: true, Reachable: true},
		foreignAH: {PD: pd + 1, Path: own, Loopback: true, Reachable: true},
		lostAH:    {PD: pd, Path: own, Loopback: true},
		// The system has given the port another address.
		otherMACAH: {PD: pd, Path: other, Reachable: true},
	} {
		if !b.table.SetHandle(i, h) {
			t.Fatalf("AH %#x cannot be", i)
		}
	}
	b.drain()
	return b, out, sides
}

// to makes w a datagram.
func (w wr) to(ah, dest, qkey uint32) wr {
	w.key, w.raddr = ah, uint64(dest)<<32|uint64(qkey)
	return w
}

// got is the completion of receive WQE i.
func (s *side) got(i, from, n uint32) event.Entry {
	return event.Entry{Context: compCtx + uint64(s.id), QP: s.id, WQE: uint16(i), Op: 0x3E, Length: n + grhBytes, Value: from, STag: true}
}

func TestDatagram(t *testing.T) {
	b, out, s := datagrams(t, nil, 2, 5)
	x, y := s[0], s[1]
	p := b.fill(data, 1024, 1)
	imm := uint32(0xA0B0C0D)
	for i := range uint64(4) {
		y.receive(sge{data + 0x20000 + 0x1000*i, 60}, sge{}, sge{data + 0x30000 + 0x1000*i, 1004})
	}
	b.fill(data+0x20000, 0x14000, 0xA5)
	want := []event.Entry{
		x.sent(x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 24}, {}, {data + 24, 1000}}}.to(ownAH, 5, qkey)), 3),
		x.sent(x.post(wr{op: opSendSol, flags: signalled, inline: p[:45], imm: &imm}.to(ownAH, 5, qkey)), 5),
	}
	x.post(wr{op: opSend, sges: []sge{{data, 3}}}.to(v6AH, 5, qkey))
	x.post(wr{op: opSend}.to(otherMACAH, 5, qkey))
	x.ring()
	b.drain()
	b.wantCQ(2, want...)
	second, third := y.got(2, 2, 45), y.got(4, 2, 3)
	second.Solicited, second.Ext = true, event.Extension{HasImmediate: true, Immediate: imm}
	third.STag = false
	b.wantCQ(6, y.got(0, 2, 1024), second, third, y.got(6, 2, 0))
	b.same(p[:20], data+0x20000+40)
	b.same(p[20:], data+0x30000)
	b.same(p[:20], data+0x21000+40)
	b.same(p[20:45], data+0x31000)
	b.same(p[:3], data+0x22000+40)
	grh := b.read(data+0x20000, 40)
	if !bytes.Equal(grh[:20], make([]byte, 20)) || grh[20] != 0x45 || grh[21] != 0x28 || frame.Checksum(grh[20:], 0) != 0 ||
		binary.BigEndian.Uint16(grh[22:]) != 20+8+12+8+1024+4 || !bytes.Equal(grh[32:], append(ownIP[12:], ownIP[12:]...)) {
		t.Errorf("GRH area of IPv4 % x", grh)
	}
	if grh = b.read(data+0x22000, 40); binary.BigEndian.Uint32(grh) != 0x62812345 || binary.BigEndian.Uint16(grh[4:]) != 8+12+8+4+4 ||
		grh[6] != 17 || grh[7] != 64 || !bytes.Equal(grh[8:], append(ownIP6[:], ownIP6[:]...)) {
		t.Errorf("GRH area of IPv6 % x", grh)
	}
	if len(out.frames)+len(b.aes)+len(b.events) > 0 {
		t.Errorf("%d frames, %v %v", len(out.frames), b.aes, b.events)
	}
	if v, _ := b.mem.Load64(x.base + shadowAt); uint32(v) != x.sqNext {
		t.Errorf("HW_SQ_TAIL %d, want %d", v, x.sqNext)
	}
}

// On the wire a datagram has what its AH, its WQE and the QP say.
func TestDatagramFrame(t *testing.T) {
	b, out, s := datagrams(t, func(s *side) { put(&s.ctx, 56, 0x1234<<48|0x8001<<32); put(&s.ctx, 80, 0xFFFFFF) }, 2)
	x := s[0]
	p := b.fill(data, 301, 1)
	imm := uint32(77)
	x.post(wr{op: opSend, sges: []sge{{data, 301}}}.to(farAH, 0x123456, 0x5555))
	x.post(wr{op: opSendSol, sges: []sge{{data, 8}}, imm: &imm}.to(farAH, 1, 0x80000000)) // the QP's own QKEY
	x.ring()
	b.drain()
	if len(out.frames) != 2 {
		t.Fatalf("%d frames", len(out.frames))
	}
	want := []wire.Packet{
		{Opcode: 0x64, PKey: 0x8001, DestQP: 0x123456, PSN: 0xFFFFFF, QKey: 0x5555, SourceQP: 2, Payload: p},
		{Opcode: 0x65, Solicited: true, PKey: 0x8001, DestQP: 1, PSN: 0, QKey: qkey, SourceQP: 2, Imm: imm, Payload: p[:8]},
	}
	for i, f := range out.frames {
		info := frame.Parse(f)
		var got wire.Packet
		if v := got.Parse(f, &info); v != wire.OK || !got.CheckICRC(f) {
			t.Errorf("frame %d: %v", i, v)
		}
		if got.DestMAC != farMAC || got.SourceMAC != ownMAC || !got.Tagged || got.TCI != 3<<13|100 || got.Source != ownIP || got.Dest != farIP ||
			got.SourcePort != 0xC123 || got.TrafficClass != 0x28 || got.HopLimit != 64 {
			t.Errorf("frame %d goes %+v", i, got.Path)
		}
		w := &want[i]
		if got.Opcode != w.Opcode || got.Solicited != w.Solicited || got.AckReq || got.PKey != w.PKey || got.DestQP != w.DestQP || got.PSN != w.PSN ||
			got.QKey != w.QKey || got.SourceQP != w.SourceQP || got.Imm != w.Imm || !bytes.Equal(got.Payload, w.Payload) {
			t.Errorf("frame %d: %+v", i, got)
		}
	}
	c, err := b.table.Upload(2, false)
	b.ok(err)
	if i := b.table.QPs()[0]; c.SendPSN() != 1 || i.SendPSN != 1 {
		t.Errorf("next PSN %#x in the context, %#x in the list", c.SendPSN(), i.SendPSN)
	}
	if len(b.events)+len(b.aes) > 0 || b.posted > 0 {
		t.Errorf("%v %v, %d completions", b.events, b.aes, b.posted)
	}
}

// receive plays a frame from the wire.
func (b *bench) arrive(path wire.Path, p wire.Packet, payload []byte, damage ...int) {
	f := make([]byte, 2000)
	copy(f[wire.HeaderLen(&path, p.Opcode):], payload)
	f = p.Encode(f, &path, len(payload))
	for _, at := range damage {
		f[len(f)+at] ^= 1
	}
	i := frame.Parse(f)
	b.table.Receive(f, &i)
	b.drain()
}

var fromFar = wire.Path{DestMAC: ownMAC, SourceMAC: farMAC, Tagged: true, TCI: 5<<13 | 100, IPv4: true, Source: farIP, Dest: ownIP, HopLimit: 3, SourcePort: 0xC000}

// Kernel QPs learn where a datagram came from, programs do not.
func TestDatagramFromAfar(t *testing.T) {
	for _, kernel := range []bool{false, true} {
		b, _, s := datagrams(t, func(s *side) {
			if kernel {
				put(&s.ctx, 160, 1<<25|1<<24|1<<19)
			}
		}, 2)
		x := s[0]
		payload := b.fill(data+0x50000, 256, 9)
		untagged := fromFar
		untagged.Tagged, untagged.TCI = false, 0
		imm := wire.Packet{Opcode: 0x65, PKey: 0x7FFF, DestQP: 2, QKey: qkey, SourceQP: 0xABCDEF, Imm: 99, Solicited: true}
		plain := imm
		plain.Opcode, plain.Solicited = 0x64, false
		x.receive(sge{data, 296})
		x.receive(sge{data + 0x1000, 296})
		b.arrive(fromFar, imm, payload)
		b.arrive(untagged, plain, payload[:255])
		first, second := x.got(0, 0xABCDEF, 256), x.got(2, 0xABCDEF, 255)
		first.Solicited, first.Ext = true, event.Extension{HasImmediate: true, Immediate: 99}
		if kernel {
			first.Ext.HasSourceMAC, first.Ext.SourceMAC, first.Ext.HasVLAN, first.Ext.VLAN = true, farMAC, true, 5<<13|100
			second.Ext.HasSourceMAC, second.Ext.SourceMAC = true, farMAC
		}
		b.wantCQ(3, first, second)
		b.same(payload, data+40)
		b.same(payload[:255], data+0x1000+40)
	}
}

// What is not for the QP, or finds no room, is dropped, and changes nothing.
func TestDatagramDropped(t *testing.T) {
	good := wire.Packet{Opcode: 0x64, PKey: 0xFFFF, DestQP: 2, QKey: qkey, SourceQP: 3}
	for name, c := range map[string]struct {
		change func(*wire.Packet)
		n      int
		damage []int
		state  qp.State
		empty  bool
		want   wire.Verdict
	}{
		"good":                {n: 24, want: wire.OK},
		"wrong QKEY":          {change: func(p *wire.Packet) { p.QKey++ }, n: 24, want: wire.BadQKey},
		"wrong PKEY":          {change: func(p *wire.Packet) { p.PKey = 0xFFFE }, n: 24, want: wire.BadPKey},
		"too long":            {n: 25, want: wire.NoReceive},
		"no receive WQE":      {n: 24, empty: true, want: wire.NoReceive},
		"wrong ICRC":          {n: 24, damage: []int{-1}, want: wire.BadICRC},
		"wrong payload":       {n: 24, damage: []int{-5}, want: wire.BadICRC},
		"of another service":  {change: func(p *wire.Packet) { p.Opcode = 4 }, n: 24, want: wire.WrongService},
		"for a QP that isn't": {change: func(p *wire.Packet) { p.DestQP = 9 }, n: 24, want: wire.NoQP},
		"for a group":         {change: func(p *wire.Packet) { p.DestQP = 0xFFFFFF }, n: 24, want: wire.NoGroup},
		"in ERROR":            {n: 24, state: qp.Error, want: wire.WrongState},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, s := datagrams(t, nil, 2)
			x := s[0]
			if !c.empty {
				x.receive(sge{data, 64})
			}
			if c.state != 0 {
				x.modify(c.state)
			}
			p := good
			if c.change != nil {
				c.change(&p)
			}
			before := b.fill(data, 64, 5)
			b.arrive(fromFar, p, b.read(data+0x1000, c.n), c.damage...)
			if c.want == wire.OK {
				b.wantCQ(3, x.got(0, 3, 24))
				return
			}
			b.wantCQ(3)
			b.same(before, data)
			if len(b.aes) > 0 {
				t.Errorf("%v", b.aes)
			}
			if len(b.events) != 1 {
				t.Fatalf("events %v", b.events)
			}
			if e, ok := b.events[0].(qp.PacketDropped); !ok || e.Verdict != c.want {
				t.Errorf("%v, want %v", b.events[0], c.want)
			}
			if c.state == 0 { // the receive WQE is there for the next
				if c.empty {
					x.receive(sge{data, 64})
				}
				b.arrive(fromFar, good, b.read(data+0x1000, 24))
				b.wantCQ(3, x.got(0, 3, 24))
			}
		})
	}
}

// Work requests that cannot be sent stop the QP, behind what was before them.
func TestDatagramErrors(t *testing.T) {
	for name, c := range map[string]struct {
		w     wr
		code  uint16
		event any
	}{
		"no such AH":      {wr{op: opSend}.to(3, 5, qkey), 0x0406, qp.HandleAbsent{QP: 2, Program: true, AH: 3, Index: 1}},
		"AH beyond all":   {wr{op: opSend}.to(1<<25-1, 5, qkey), 0x0406, qp.HandleAbsent{QP: 2, Program: true, AH: 1<<25 - 1, Index: 1}},
		"AH of other PD":  {wr{op: opSend}.to(foreignAH, 5, qkey), 0x0133, qp.HandleForeign{QP: 2, Program: true, AH: foreignAH, Index: 1, PD: pd + 1, Own: pd}},
		"too long":        {wr{op: opSend, sges: []sge{{data, 1025}}}.to(ownAH, 5, qkey), 0x0132, qp.DatagramTooLong{QP: 2, Program: true, Index: 1, Bytes: 1025, MTU: 1024}},
		"wrong STag":      {wr{op: opSend, stag: 0x999, sges: []sge{{data, 5}}}.to(ownAH, 5, qkey), 0x0102, nil},
		"out of bounds":   {wr{op: opSend, sges: []sge{{data + dataSize - 2, 5}}}.to(ownAH, 5, qkey), 0x0108, nil},
		"no UD operation": {wr{op: opWrite, sges: []sge{{data, 5}}}.to(ownAH, 5, qkey), 0x020A, qp.SendNotExecuted{QP: 2, Program: true, Opcode: 0, Name: "RDMA_WRITE", Index: 1}},
		"local inv":       {wr{op: 0x0A}, 0x020A, qp.SendNotExecuted{QP: 2, Program: true, Opcode: 0x0A, Name: "INV_STAG", Index: 1}},
		"no operation":    {wr{op: 0x3C}.to(ownAH, 5, qkey), 0x020A, qp.SendNotExecuted{QP: 2, Program: true, Opcode: 0x3C, Index: 1}},
	} {
		stops := func(t *testing.T, behind bool) {
			b, _, s := datagrams(t, nil, 2, 5)
			x, y := s[0], s[1]
			y.receive(sge{data, 64})
			y.receive(sge{data, 64})
			x.post(wr{op: opSend, flags: signalled}.to(ownAH, 5, qkey))
			c.w.flags |= signalled
			at := x.post(c.w)
			if behind {
				x.post(wr{op: opSend, flags: signalled}.to(ownAH, 5, qkey))
			}
			x.ring()
			b.drain()
			b.wantCQ(2, x.sent(0, 3))
			b.wantCQ(6, y.got(0, 2, 0))
			want := []event.AE{{Code: c.code, Source: 5, Context: compCtx + 2, ID: 2, WQE: uint16(at), State: 6}}
			if diff := cmp.Diff(want, b.aes); diff != "" {
				t.Error(diff)
			}
			var events []any
			if c.event != nil {
				events = []any{c.event}
			}
			if diff := cmp.Diff(events, b.events); diff != "" {
				t.Error(diff)
			}
			x.modify(qp.Error)
			if sq, _, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true}); !sq || err != nil {
				t.Errorf("flushed %v %v", sq, err)
			}
			b.wantCQ(2, event.Entry{Context: compCtx + 2, QP: 2, WQE: uint16(at), Op: uint8(c.w.op), Major: 1, Minor: 1, SQ: true, Error: true})
			if sq, _, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true}); sq || err != nil {
				t.Errorf("flushed again: %v %v", sq, err)
			}
		}
		t.Run(name, func(t *testing.T) { stops(t, true) })
		t.Run(name+", nothing behind", func(t *testing.T) { stops(t, false) })
	}
}

// What is wrong with a receive WQE stops the QP that posted it.
func TestDatagramReceiveErrors(t *testing.T) {
	b, _, s := datagrams(t, nil, 2, 5)
	x, y := s[0], s[1]
	delete(b.regions, lkey)
	y.receive(sge{data, 64})
	x.post(wr{op: opSend, inline: []byte("hello")}.to(ownAH, 5, qkey))
	x.ring()
	b.drain()
	if diff := cmp.Diff([]event.AE{{Code: 0x0102, Source: 1, Context: compCtx + 5, ID: 5, State: 6}}, b.aes); diff != "" {
		t.Error(diff)
	}
	y.modify(qp.Error)
	if _, rq, err := flush(b.table, qp.FlushArgs{ID: 5, RQ: true}); !rq || err != nil {
		t.Errorf("flushed %v %v", rq, err)
	}
	b.wantCQ(6, event.Entry{Context: compCtx + 5, QP: 5, Major: 1, Minor: 1, Error: true})
}

func TestUnreachableHandle(t *testing.T) {
	b, out, s := datagrams(t, nil, 2)
	i := s[0].post(wr{op: opSend, flags: signalled}.to(lostAH, 5, qkey))
	s[0].ring()
	b.drain()
	b.wantCQ(2, s[0].sent(i, 3))
	stats := b.table.Stats()
	if n := binary.LittleEndian.Uint64(stats[184:]) >> 32; n != 1 || len(out.frames) > 0 {
		t.Errorf("%d packets without route, %d sent", n, len(out.frames))
	}
}

// Members of a group get a copy each, the sender too if it is one, and the wire
// gets one; who has another QKEY, or is none, gets nothing.
func TestMulticast(t *testing.T) {
	b, out, s := datagrams(t, func(s *side) {
		if s.id == 4 {
			put(&s.ctx, 64, 0x777<<32)
		}
	}, 2, 4, 5, 6)
	group := qp.Group{MAC: groupMAC, IP: groupIP, IPv4: true, VLAN: -1, QPs: []uint32{2, 4, 5, 9}}
	b.table.SetGroup(3, group)
	send := func() {
		for _, m := range s {
			m.receive(sge{data + uint64(m.id)*0x1000, 100})
		}
		s[0].post(wr{op: opSend, inline: []byte("to all")}.to(groupAH, 0xFFFFFF, qkey))
		s[0].ring()
		b.drain()
	}
	got := func() (ids []uint32) {
		for _, m := range s {
			if n := len(b.cqes[m.id+1]); n > 0 {
				ids = append(ids, m.id)
				b.same([]byte("to all"), data+uint64(m.id)*0x1000+40)
			}
		}
		clear(b.cqes)
		return ids
	}
	send()
	if ids := got(); !slices.Equal(ids, []uint32{2, 5}) || len(out.frames) != 1 {
		t.Errorf("received by %v, %d frames", ids, len(out.frames))
	}
	group.QPs = []uint32{6}
	b.table.SetGroup(3, group)
	send()
	if ids := got(); !slices.Equal(ids, []uint32{6}) || len(out.frames) != 2 {
		t.Errorf("received by %v, %d frames", ids, len(out.frames))
	}
	if !b.table.JoinedMAC(groupMAC) || b.table.JoinedMAC(farMAC) {
		t.Error("addresses of groups")
	}
	group.VLAN = 100
	b.table.SetGroup(3, group)
	send()
	if ids := got(); ids != nil {
		t.Errorf("received without VLAN by %v", ids)
	}
	tagged := fromFar
	tagged.DestMAC, tagged.Dest = groupMAC, groupIP
	b.arrive(tagged, wire.Packet{Opcode: 0x64, PKey: 0xFFFF, DestQP: 0xFFFFFF, QKey: qkey}, []byte("to all"))
	if ids := got(); !slices.Equal(ids, []uint32{6}) {
		t.Errorf("received in VLAN by %v", ids)
	}
	b.arrive(tagged, wire.Packet{Opcode: 0x64, PKey: 0xFFFF, DestQP: 0xFFFFFF, QKey: qkey}, []byte("to all"), -1)
	if ids := got(); ids != nil {
		t.Errorf("received damaged by %v", ids)
	}
	b.table.DropGroup(3)
	send()
	if ids := got(); ids != nil || b.table.JoinedMAC(groupMAC) {
		t.Errorf("received by %v of a group that is gone", ids)
	}
}

// Datagrams to groups have many copies made of them: a step sends few of them, and
// goes on with the next.
func TestMulticastStep(t *testing.T) {
	b, out, s := datagrams(t, nil, 2)
	const posted = 20
	b.fill(data, 1000, 5)
	for range posted {
		s[0].post(wr{op: opSend, sges: []sge{{data, 1000}}}.to(groupAH, 0xFFFFFF, qkey))
	}
	s[0].ring()
	last := 0
	for range posted {
		b.engine.Drain(1)
		if n := len(out.frames) - last; n > 5 {
			t.Errorf("%d datagrams in a step", n)
		}
		last = len(out.frames)
	}
	if last != posted {
		t.Errorf("%d datagrams, want %d", last, posted)
	}
}

// SQD, SUSPEND_QP and ERROR end what is sent, at once, and the first two let it
// go on.
func TestDatagramsStop(t *testing.T) {
	b, out, s := datagrams(t, nil, 2)
	x := s[0]
	send := func(n int) {
		for range n {
			x.post(wr{op: opSend, inline: []byte("x")}.to(farAH, 5, qkey))
		}
		x.ring()
		b.drain()
	}
	want := func(frames, events int) {
		t.Helper()
		if len(out.frames) != frames || len(b.aes) != events {
			t.Errorf("%d frames and %v, want %d and %d events", len(out.frames), b.aes, frames, events)
		}
	}
	x.modify(qp.SQD)
	send(3)
	want(0, 1)
	x.modify(qp.RTS)
	b.drain()
	want(3, 1)
	b.ok(b.table.Suspend(2))
	send(2)
	want(3, 2)
	b.ok(b.table.Resume(2, 5))
	b.drain()
	want(5, 2)
	x.modify(qp.Error)
	send(100)
	want(5, 2)
	if sq, _, err := flush(b.table, qp.FlushArgs{ID: 2, SQ: true}); !sq || err != nil {
		t.Errorf("flushed %v %v", sq, err)
	}
	b.drain()
	want(5, 2)
}

// A QP that ends gives back the frames that wait for it.
func TestDestroyWithDatagrams(t *testing.T) {
	for _, end := range []string{"destroy", "reset", "error"} {
		b, _, s := datagrams(t, nil, 2)
		x := s[0]
		for range 10 {
			x.receive(sge{data, 100})
		}
		b.table.Hold(2)
		for range 10 {
			b.arrive(fromFar, wire.Packet{Opcode: 0x64, PKey: 0xFFFF, DestQP: 2, QKey: qkey}, []byte("late"))
		}
		if b.table.Waiting() == 0 {
			t.Fatal("no frame waits")
		}
		before := b.fill(data, 100, 3)
		switch end {
		case "destroy":
			b.ok(b.table.Destroy(2))
		case "reset":
			b.table.Reset(0)
		case "error":
			x.modify(qp.Error)
			b.table.Release(2)
		}
		b.drain()
		b.wantCQ(3)
		b.same(before, data)
		if n := b.table.Waiting(); n != 0 {
			t.Errorf("%s: %d bytes of frames are left", end, n)
		}
	}
}

// Many datagrams, posted faster or slower than received: what is received is
// what was sent, in order.
func TestManyDatagrams(t *testing.T) {
	for seed := range uint64(4) {
		b, _, s := datagrams(t, func(s *side) { s.elide = seed&1 != 0 }, 2, 5)
		x, y := s[0], s[1]
		r := rand.New(rand.NewPCG(seed, 2))
		sent, posted, last, got := uint32(0), 0, uint32(0), 0
		for range 3000 {
			if posted-got < 32 && r.IntN(2) == 0 {
				y.receive(sge{data + 0x20000 + uint64(posted%32)*0x1000, 44})
				posted++
			}
			var p [4]byte
			sent++
			binary.LittleEndian.PutUint32(p[:], sent)
			x.post(wr{op: opSend, inline: p[:]}.to(ownAH, 5, qkey))
			if r.IntN(3) == 0 {
				x.ring()
				b.engine.Drain(r.IntN(10))
			}
			if sent%100 == 0 {
				x.ring()
				b.drain()
			}
			for range b.cqes[6] {
				v := binary.LittleEndian.Uint32(b.read(data+0x20000+uint64(got%32)*0x1000+40, 4))
				if v <= last || v > sent {
					t.Fatalf("datagram %d after %d", v, last)
				}
				last = v
				got++
			}
			delete(b.cqes, 6)
		}
		x.ring()
		b.drain()
		if v, _ := b.mem.Load64(x.base + shadowAt); uint32(v) != x.sqNext || got < 500 || b.table.Waiting() != 0 {
			t.Errorf("tail %d of %d, %d received", v, x.sqNext, got)
		}
	}
}

// Nothing is allocated for a datagram, on the way out, in, and to a group.
func TestDatagramAllocations(t *testing.T) {
	b, out, s := datagrams(t, nil, 2, 5)
	x, y := s[0], s[1]
	b.quiet, out.quiet = true, true
	b.table.SetGroup(3, qp.Group{MAC: groupMAC, IP: groupIP, IPv4: true, VLAN: -1, QPs: []uint32{5}})
	round := func() {
		for _, ah := range []uint32{ownAH, v6AH, groupAH, farAH} {
			dest := uint32(5)
			if ah == groupAH {
				dest = 0xFFFFFF
			}
			if ah != farAH {
				y.receive(sge{data + 0x20000, 1064})
			}
			x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 1024}}}.to(ah, dest, qkey))
		}
	}
	run := func() {
		x.ring()
		b.drain()
	}
	round()
	run()
	before := b.posted
	// Posting allocates, in the test: only the rest is counted. Pools of buffers
	// lose some now and then, with the race detector at random.
	least := uint64(1 << 63)
	var m runtime.MemStats
	for range 100 {
		round()
		runtime.ReadMemStats(&m)
		n := m.Mallocs
		run()
		runtime.ReadMemStats(&m)
		least = min(least, m.Mallocs-n)
	}
	if least > 0 {
		t.Errorf("%d allocations for 4 datagrams", least)
	}
	if b.posted-before != 100*7 {
		t.Errorf("%d completions", b.posted-before)
	}
}

// BenchmarkDatagram is datagrams of 1 KiB from a card to itself.
func BenchmarkDatagram(bm *testing.B) {
	b, _, s := datagrams(bm, nil, 2, 5)
	b.quiet = true
	const batch = 16
	bm.SetBytes(batch * 1024)
	for bm.Loop() {
		for range batch {
			s[1].receive(sge{data + 0x20000, 1064})
			s[0].post(wr{op: opSend, flags: signalled, sges: []sge{{data, 1024}}}.to(ownAH, 5, qkey))
		}
		s[0].ring()
		b.drain()
	}
}
