// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// Bounds of one step.
const (
	stepBytes = roce.MaxRunBytes // copied
	stepRuns  = 64
)

// scratch is what QPs need in their steps only: one for each shard.
type scratch struct {
	in       roce.Run
	ep       roce.Scratch
	wqe      words
	dst, src []mr.Segment
	inline   [roce.MaxInline]byte
	burst    Burst
	passage  passage
}

// owner is a QP as the one whose memory a payload is in. The generation moves
// on when the driver ends the QP: payload of an older one is not there any
// more. A QP that fails by itself has sent what it has sent.
type owner struct {
	table      *Table
	subject    mr.Subject // as it was at RTR
	generation atomic.Uint32
}

// Step moves the QP's data: it takes runs from the inbox, copies their
// payload, answers, and sends what is posted.
func (q *QP) Step(s *engine.Shard) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held.Load() && !q.dead.Load() {
		return false // Release schedules the next one
	}
	if q.frozen && !q.dead.Load() {
		return false // and so does what thaws it
	}
	if q.ud != nil && !q.dead.Load() {
		return q.stepDatagrams(s)
	}
	if q.dead.Load() || q.ep == nil {
		q.rest(s)
		return false
	}
	q.borrow(s)
	q.ep.Lend(&q.work.ep)
	q.toSend, q.unsent, q.crowded = stepBytes, false, false
	q.tell()
	left := uint32(stepBytes)
	for range s.Part(stepRuns) {
		if q.ep.Holding() || !q.handleNext(&left) {
			break
		}
	}
	if q.state.receives() {
		again = q.ep.Progress()
		q.drained()
	}
	q.giveBack()
	if q.dead.Load() {
		return true // ended meanwhile: rest
	}
	if q.crowded {
		q.ep.Delay()
	}
	q.task.SetDeadline(q.deadline())
	q.count()
	return again || q.unsent || q.unread.due || !q.ep.Holding() && !q.inbox.empty()
}

// borrow makes ready for a step on shard s.
func (q *QP) borrow(s *engine.Shard) {
	q.shard, q.work = s, q.table.scratch[s.Index()]
	q.sq.forget()
	q.rq.forget()
}

// giveBack is the end of a step. What it borrowed is others'.
func (q *QP) giveBack() {
	q.passed()
	q.work.passage = passage{}
	q.shard, q.work = nil, nil
	if q.ep != nil {
		q.ep.Lend(nil)
	}
}

// deadline is when the QP wants to take a step at the latest; 0: never.
func (q *QP) deadline() time.Duration {
	at := q.ep.Deadline()
	if !q.crowded {
		return at
	}
	if look := q.Now() + crowdRest; at == 0 || look < at {
		return look
	}
	return at
}

// handleNext takes what has waited longest, if it is at most left bytes.
func (q *QP) handleNext(left *uint32) bool {
	in := &q.work.in
	frame, ok := q.inbox.take(in, *left, q)
	if !ok {
		return false
	}
	if frame != nil {
		defer frame.release()
		if !frame.run(in, q.ctx.PathMTU()) {
			return true
		}
		if frame.packet.CE {
			q.marked()
		}
	} else if in.N == 1 {
		in.Size = q.ctx.PathMTU() // a packet does not tell the sender's
	}
	*left -= min(*left, in.Bytes)
	if in.IsResponse() && q.state.sends() || !in.IsResponse() && q.state.receives() {
		q.handle(in, frame)
	} else {
		q.ignored(in, frame)
	}
	return true
}

// rest is the step of a QP that has not begun, or has ended.
func (q *QP) rest(s *engine.Shard) {
	if q.dead.Load() {
		q.stop()
		q.inbox.close(s)
	}
}

// Now is the engine's time.
func (q *QP) Now() time.Duration { return q.table.cfg.Engine.Clock().Now() }

// List makes l a list of the QP's own, empty.
func (q *QP) List(l *roce.SGL) {
	l.Reset()
	l.Owner, l.Generation = &q.owner, q.owner.generation.Load()
}

// Fail ends the connection: nothing is sent or completed any more, and the
// driver is told, who then flushes.
func (q *QP) Fail(code roce.Code, source roce.Source, index uint32) {
	q.state = Error
	q.stop()
	q.raise(uint16(code), uint8(source), index)
	q.unsuspended()
}

// Copy moves payload of the peer into the QP's memory.
func (q *QP) Copy(dst *roce.SGL, dstOff uint32, src *roce.SGL, srcOff uint32, n uint32) roce.Fault {
	t := q.table
	if !t.cfg.MayDMA() {
		return roce.Fault{Code: roce.Catastrophic, Operation: true}
	}
	need := mr.LocalWrite
	if dst.Remote {
		need = mr.RemoteWrite
	}
	var f *mr.Fault
	if q.work.dst, f = q.owner.resolve(q.work.dst[:0], dst, dstOff, n, need); f != nil {
		return fault(f)
	}
	if src.Inline {
		return q.copyInline(dst, dstOff, src, srcOff, n)
	}
	if from, ok := src.Owner.(*buffer); ok {
		return q.copyFrame(dst, dstOff, from, src, srcOff, n)
	}
	from, ok := src.Owner.(*owner)
	if !ok || from.generation.Load() != src.Generation || !from.table.cfg.MayDMA() {
		return roce.Fault{Gone: true}
	}
	need = mr.LocalRead
	if src.Remote {
		need = mr.RemoteRead
	}
	if q.work.src, f = from.resolve(q.work.src[:0], src, srcOff, n, need); f != nil {
		x := fault(f)
		x.Source = true
		return x
	}
	err := guestmem.CopySegments(t.cfg.Payload, q.work.dst, from.table.cfg.Payload, q.work.src)
	if err == nil {
		return roce.Fault{}
	}
	x := memoryFault(err)
	if x.Source {
		from.noMemory(src, srcOff, q.work.src, false, err)
	} else {
		q.owner.noMemory(dst, dstOff, q.work.dst, true, err)
	}
	return x
}

// noMemory reports payload of the QP outside guest memory. Once the function may
// not touch memory any more that is no surprise.
func (o *owner) noMemory(l *roce.SGL, off uint32, segs []mr.Segment, write bool, err error) {
	if !o.table.cfg.MayDMA() {
		return
	}
	e := PayloadFault{QP: o.subject.QP, Write: write, Remote: l.Remote, Err: err}
	var f *guestmem.Fault
	if errors.As(err, &f) {
		e.At = f.IOVA
		for _, s := range segs {
			if f.IOVA >= s.IOVA && f.IOVA-s.IOVA < uint64(s.Len) {
				off += uint32(f.IOVA - s.IOVA)
				break
			}
			off += s.Len
		}
	}
	if stag, _, _, ok := l.Piece(off); ok {
		e.STag = stag
	}
	o.table.emit(e)
}

// memoryFault is the fault of addresses that lead outside guest memory.
func memoryFault(err error) roce.Fault {
	var f *guestmem.Fault
	return roce.Fault{Code: roce.Catastrophic, Operation: true, Source: errors.As(err, &f) && f.Op == "read"}
}

func (q *QP) copyInline(dst *roce.SGL, dstOff uint32, src *roce.SGL, off, n uint32) roce.Fault {
	data := q.work.inline[:n]
	src.InlineBytes(data, off)
	return q.scatter(dst, dstOff, data)
}

// resolve translates n bytes of a list from off on. Any goroutine may call
// it.
func (o *owner) resolve(segs []mr.Segment, l *roce.SGL, off, n uint32, need mr.Access) ([]mr.Segment, *mr.Fault) {
	for n > 0 {
		stag, addr, have, ok := l.Piece(off)
		if !ok {
			return segs, &mr.Fault{Code: mr.Bounds, Why: "the list is too short"}
		}
		c := min(n, have)
		var f *mr.Fault
		if segs, f = o.table.cfg.Regions.Resolve(segs, o.subject, stag, addr, c, need, l.Remote); f != nil {
			return segs, f
		}
		off, n = off+c, n-c
	}
	return segs, nil
}
