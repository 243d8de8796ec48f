// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// notebook keeps every comment.
type notebook struct {
	lines []string
	open  int
}

func (n *notebook) Outgoing(_ []byte, text string) {
	if text != "" {
		n.lines = append(n.lines, text)
	}
}
func (n *notebook) Incoming([]byte) qp.Note { return n }
func (n *notebook) Say(text string)         { n.lines = append(n.lines, text) }
func (n *notebook) Hold()                   { n.open++ }
func (n *notebook) Done()                   { n.open-- }

// want are the comments since the last time.
func (n *notebook) want(t *testing.T, lines ...string) {
	t.Helper()
	if d := cmp.Diff(lines, n.lines); d != "" {
		t.Error(d)
	}
	if n.open != 0 {
		t.Errorf("%d frames are being waited for", n.open)
	}
	n.lines = nil
}

// noted are QPs 2 and 5, whose frames go over a cable and are commented on.
func noted(t *testing.T) (*bench, *side, *side, *cableOf, *notebook) {
	n := &notebook{}
	c := &cableOf{t: t, far: [6]byte{0x52, 0x54, 0, 9, 9, 9}}
	b := newBench(t, func(q *qp.Config) { q.Wire, q.Notes = c, n })
	b.cable, c.b = c, b
	_, x, y := b.connect()
	return b, x, y, c, n
}

func TestNotes(t *testing.T) {
	b, x, y, c, n := noted(t)
	write := func(bytes uint32) {
		x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, bytes}}, raddr: data + 0x40000, key: rkey})
		x.ring()
		b.drain()
	}
	write(1025)
	n.want(t,
		"QP 2 -> 5: RDMA_WRITE_FIRST, message 1 packet 1/2, WQE 0",
		"QP 2 -> 5: RDMA_WRITE_LAST, message 1 packet 2/2, WQE 0",
		"QP 5: in order, placed",
		"QP 5: in order, placed, message complete, MSN 1",
		"QP 5 -> 2: ACKNOWLEDGE, all up to PSN 16777203, MSN 1",
		"QP 2: acknowledges all up to PSN 16777203")

	c.again()
	b.drain()
	n.want(t,
		"QP 5: duplicate: acknowledged again",
		"QP 5: duplicate: acknowledged again",
		"QP 5 -> 2: ACKNOWLEDGE, all up to PSN 16777203, MSN 1",
		"QP 2: nothing new",
		"QP 2: nothing new")

	lose := 1
	c.fate = func(*wire.Packet) int {
		if lose--; lose == 0 {
			return 0
		}
		return 1
	}
	write(2049)
	n.want(t,
		"QP 2 -> 5: RDMA_WRITE_FIRST, message 2 packet 1/3, WQE 1",
		"QP 2 -> 5: RDMA_WRITE_MIDDLE, message 2 packet 2/3, WQE 1",
		"QP 2 -> 5: RDMA_WRITE_LAST, message 2 packet 3/3, WQE 1",
		"QP 5: ahead: NAK sequence, expected PSN 16777204",
		"QP 5: ahead: dropped, expected PSN 16777204",
		"QP 5 -> 2: ACKNOWLEDGE, NAK sequence, expected PSN 16777204, MSN 1",
		"QP 2: NAK sequence: goes back to PSN 16777204",
		"QP 2 -> 5: RDMA_WRITE_FIRST, message 2 packet 1/3, WQE 1, again",
		"QP 2 -> 5: RDMA_WRITE_MIDDLE, message 2 packet 2/3, WQE 1, again",
		"QP 2 -> 5: RDMA_WRITE_LAST, message 2 packet 3/3, WQE 1, again",
		"QP 5: in order, placed",
		"QP 5: in order, placed",
		"QP 5: in order, placed, message complete, MSN 2",
		"QP 5 -> 2: ACKNOWLEDGE, all up to PSN 16777206, MSN 2",
		"QP 2: acknowledges all up to PSN 16777206")

	x.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x50000, 1025}}, raddr: data + 0x90000, key: rkey})
	x.ring()
	b.drain()
	n.want(t,
		"QP 2 -> 5: RDMA_READ_REQUEST, message 3 packet 1/1, WQE 2",
		"QP 5: in order, responses: 2",
		"QP 5 -> 2: RDMA_READ_RESPONSE_FIRST, packet 1/2 of the read at PSN 16777207, MSN 3",
		"QP 5 -> 2: RDMA_READ_RESPONSE_LAST, packet 2/2 of the read at PSN 16777207, MSN 3",
		"QP 2: in order, placed",
		"QP 2: in order, placed")

	x.post(wr{op: opSend, flags: signalled, sges: []sge{{data, 10}}})
	x.ring()
	b.drain()
	n.want(t,
		"QP 2 -> 5: SEND_ONLY, message 4 packet 1/1, WQE 3",
		"QP 5: no receive WQE: RNR NAK",
		"QP 5 -> 2: ACKNOWLEDGE, NAK RNR, timer 640µs, expected PSN 16777209, MSN 3",
		"QP 2: RNR NAK: rests, then goes on from PSN 16777209")

	y.receive(sge{data + 0x20000, 100})
	b.clock.Advance(1e9)
	b.drain()
	n.lines = nil
	x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 10}}, raddr: data + dataSize, key: rkey})
	x.ring()
	b.drain()
	n.want(t,
		"QP 2 -> 5: RDMA_WRITE_ONLY, message 5 packet 1/1, WQE 4",
		"QP 5: refused: NAK remote access, AE 0x0108",
		"QP 5 -> 2: ACKNOWLEDGE, NAK remote access, expected PSN 16777210, MSN 4",
		"QP 2: ends the connection")
}

func TestNotesOfDrops(t *testing.T) {
	b, x, _, c, n := noted(t)
	x.post(wr{op: opWrite, flags: signalled, sges: []sge{{data, 100}}, raddr: data + 0x40000, key: rkey})
	x.ring()
	b.drain()
	n.lines = nil
	f := c.all[0]
	f[len(f)-1] ^= 1
	i := frame.Parse(f)
	b.table.Receive(f, &i)
	n.want(t, "QP 5: dropped: bad ICRC")
	p := wire.Packet{Opcode: wire.CNP, DestQP: 5, BECN: true}
	path := c.path
	f = p.Encode(make([]byte, wire.MaxHeader+wire.CNPPayload+wire.Trailer), &path, wire.CNPPayload)
	i = frame.Parse(f)
	b.table.Receive(f, &i)
	n.want(t, "QP 5: taken")
}

func TestNotesOfReads(t *testing.T) {
	b, x, _, c, n := noted(t)
	lost := false
	c.fate = func(p *wire.Packet) int {
		if p.Opcode == wire.ReadRespMiddle && !lost {
			lost = true
			return 0
		}
		return 1
	}
	x.post(wr{op: opRead, flags: signalled, sges: []sge{{data + 0x50000, 3000}}, raddr: data + 0x90000, key: rkey})
	x.ring()
	b.drain()
	n.want(t,
		"QP 2 -> 5: RDMA_READ_REQUEST, message 1 packet 1/1, WQE 0",
		"QP 5: in order, responses: 3",
		"QP 5 -> 2: RDMA_READ_RESPONSE_FIRST, packet 1/3 of the read at PSN 16777202, MSN 1",
		"QP 5 -> 2: RDMA_READ_RESPONSE_MIDDLE, packet 2/3 of the read at PSN 16777202, MSN 1",
		"QP 5 -> 2: RDMA_READ_RESPONSE_LAST, packet 3/3 of the read at PSN 16777202, MSN 1",
		"QP 2: in order, placed",
		"QP 2: ahead: missing responses are asked for again, expected PSN 16777203",
		"QP 2 -> 5: RDMA_READ_REQUEST, message 1 packet 1/1, WQE 0, from response 2/3 on, again",
		"QP 5: duplicate: answered again",
		"QP 5 -> 2: RDMA_READ_RESPONSE_FIRST, packet 1/2 of the read at PSN 16777203, MSN 1, again",
		"QP 5 -> 2: RDMA_READ_RESPONSE_LAST, packet 2/2 of the read at PSN 16777203, MSN 1, again",
		"QP 2: in order, placed",
		"QP 2: in order, placed")
	f := c.all[len(c.all)-1]
	i := frame.Parse(f)
	b.table.Receive(f, &i)
	b.drain()
	n.want(t, "QP 2: not expected: dropped, expected PSN 16777205")
}
