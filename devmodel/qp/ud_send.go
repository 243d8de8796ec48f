// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// Asynchronous events of datagrams (user.h:IRDMA_AE_*).
const (
	datagramTooLong roce.Code = 0x0132 // UDA_XMIT_DGRAM_TOO_LONG
	handleOfOtherPD roce.Code = 0x0133 // UDA_XMIT_BAD_PD
	noSuchHandle    roce.Code = 0x0406 // INVALID_AH_ENTRY
)

const (
	handleMask = 1<<25 - 1 // AHID in a WQE's header
	qkeyOwn    = 1 << 31   // in a WQE's QKEY: send the QP's own (IBTA 10.2.5)
	psnMask    = 1<<24 - 1
)

// datagrams is what a UD QP has instead of a connection.
type datagrams struct {
	psn   uint32 // of the next packet sent
	begun bool   // it was in RTS: psn counts
	send  roce.WQE
	recv  roce.Recv
	// The send WQE that stopped the QP: it is not in the ring any more and not
	// completed, so a flush reports it.
	failed oldest
	grh    [grhSize]byte
	last   [6]byte // where a frame went last
}

// keys are what packets for a UD QP have to match. Any goroutine reads them.
type keys struct {
	pkey uint16
	qkey uint32
}

// startDatagrams takes over what a change to a working state says of a UD QP. The
// caller holds mu.
func (q *QP) startDatagrams(old State) {
	c := &q.ctx
	switch {
	case q.state == RTR:
		q.owner.subject = mr.Subject{PD: c.PD(), QP: q.id, Privileged: c.Privileged()}
		q.ud = new(datagrams)
	case old == RTR:
		q.ud.psn, q.ud.begun = c.SendPSN(), true
	}
	q.keys.Store(&keys{c.PKey(), c.QKey()})
	if q.state == RTS {
		q.drain = false
		q.wake()
	}
}

// stepDatagrams is the step of a UD QP: it places what has come and sends what
// is posted.
func (q *QP) stepDatagrams(s *engine.Shard) (again bool) {
	q.borrow(s)
	left := uint32(stepBytes)
	for range s.Part(stepRuns) {
		b, ok := q.inbox.take(&q.work.in, left, q)
		if !ok {
			break
		}
		if b == nil {
			continue // a run: it was for a connection that had this number
		}
		left -= min(left, uint32(len(b.packet.Payload)))
		q.received(b, q.place(b))
		b.release()
	}
	q.crowded = false
	again = q.sendDatagrams(s.Part(stepRuns))
	q.giveBack()
	if q.dead.Load() {
		return true // ended meanwhile: rest
	}
	if q.crowded {
		q.task.SetDeadline(q.Now() + crowdRest)
	}
	return again || !q.inbox.empty()
}

// sendDatagrams sends what is posted, up to n WQEs. It tells whether there may
// be more.
func (q *QP) sendDatagrams(n int) (more bool) {
	w := &q.ud.send
	for left := stepBytes; n > 0 && left > 0; n-- {
		if q.mustWait(q.ud.last) {
			return false
		}
		if !q.Fetch(w) {
			return false
		}
		code, copies := w.Fault, 1
		if code == 0 && w.Kind != roce.KindLocal {
			code, copies = q.sendDatagram(w)
		}
		if code == 0 && w.Signaled && !q.Completed(w) {
			code = roce.Catastrophic
		}
		if code != 0 {
			q.ud.failed = oldest{true, w.Index, w.Op}
			q.Fail(code, roce.SourceSQ, w.Index)
			return false
		}
		left -= copies * int(max(w.Len, frameCost))
	}
	return true
}

// groupCopies is for how many copies a datagram to a group counts in what a step
// may copy: it may come to 64 QPs of this card, and to as many of each other one
// of the process.
const groupCopies = 16

// sendDatagram makes one packet of a WQE and sends it. What becomes of it then
// nobody knows, so that is all there is to do. It tells for how many copies that
// counts.
func (q *QP) sendDatagram(w *roce.WQE) (code roce.Code, copies int) {
	t, c := q.table, &q.ctx
	id := w.Key & handleMask
	h := t.handle(id)
	switch {
	case h == nil:
		t.emit(HandleAbsent{QP: q.id, Program: q.program(), AH: id, Index: w.Index})
		return noSuchHandle, 0
	case h.PD != c.PD():
		t.emit(HandleForeign{QP: q.id, Program: q.program(), AH: id, Index: w.Index, PD: h.PD, Own: c.PD()})
		return handleOfOtherPD, 0
	case w.Len > min(c.PathMTU(), maxDatagram):
		t.emit(DatagramTooLong{QP: q.id, Program: q.program(), Index: w.Index, Bytes: w.Len, MTU: c.PathMTU()})
		return datagramTooLong, 0
	}
	p := wire.Packet{Opcode: wire.UDSendOnly, Solicited: w.Solicited, PKey: c.PKey(), DestQP: uint32(bits(w.Addr, 55, 32)),
		PSN: q.ud.psn, QKey: uint32(w.Addr), SourceQP: q.id, Imm: w.Imm}
	if w.HasImm {
		p.Opcode = wire.UDSendOnlyImm
	}
	if p.QKey&qkeyOwn != 0 {
		p.QKey = c.QKey()
	}
	path := h.Path
	path.SourcePort = c.SourcePort()
	at, n := wire.HeaderLen(&path, p.Opcode), int(w.Len)
	b := t.buffers.scratch(at + n + wire.Trailer)
	if b == nil {
		return roce.Catastrophic, 0 // no frame is as long as this one cannot be
	}
	defer b.release()
	if f := q.read(b.bytes[at:at+n], &w.SGL, 0); f.failed {
		return f.code, 0
	}
	q.ud.psn = (q.ud.psn + 1) & psnMask
	if !h.Reachable {
		for c := range q.each {
			c.noRoute(path.IPv4, 1)
		}
		return 0, 1
	}
	f := p.Encode(b.bytes, &path, n)
	for c := range q.each {
		c.sent(f, &path)
		c.add(outSends, 1)
	}
	own := path.DestMAC == t.cfg.MAC() || path.DestMAC == path.SourceMAC
	group := path.DestMAC[0]&1 != 0
	if group || !own && !h.Loopback {
		q.ud.last = path.DestMAC
		q.transmitDatagram(f, &p, w)
	}
	if own || h.Loopback {
		i := frame.Parse(f)
		t.Receive(f, &i)
	}
	if group {
		return 0, groupCopies
	}
	return 0, 1
}

// maxDatagram is the longest path MTU.
const maxDatagram = 4096
