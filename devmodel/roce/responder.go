// SPDX-License-Identifier: Apache-2.0

package roce

import "github.com/vrnic/vrnic/devmodel/ring"

// ResponderConfig is what a connection's receiving side is made from.
type ResponderConfig struct {
	PSN uint32 // expected first
	MTU uint32 // of the path
	// Reads is how many reads of the peer may wait for their responses.
	Reads uint32
	// RNRTimer is the code sent in RNR NAKs.
	RNRTimer uint8
}

// message is the kind of message whose packets are coming.
type message uint8

const (
	noMessage message = iota
	sendMessage
	writeMessage
)

// answerKind is what waits to be sent back.
type answerKind uint8

const (
	ackAnswer answerKind = iota
	nakAnswer
	readAnswer
	sourceFaultAnswer
)

// answer is one thing to send back, in PSN order.
type answer struct {
	kind     answerKind
	syndrome uint8
	psn      uint32
	code     Code // of a source fault, or of the failure behind a NAK
	source   Source
	index    uint32

	n, sent uint32 // packets of a read
	replay  bool
	va      uint64
	key     uint32
	len     uint32
}

// readRecord is a read that may be asked for again.
type readRecord struct{ psn, n, key uint32 }

// responder is the receiving side.
type responder struct {
	host  Host
	lent  *lent
	stats *Stats
	end   func(Code, Source, uint32)
	cfg   ResponderConfig

	live    bool
	failing bool   // a NAK that ends the connection waits to be sent
	epsn    uint32 // expected
	msn     uint32
	nak     bool   // a sequence or RNR NAK is out for epsn
	quiet   uint32 // packets executed since the last answer

	msg  message
	recv Recv   // of a send
	off  uint32 // bytes of the message so far
	va   uint64 // of a write
	key  uint32
	len  uint32

	discard bool // the receive WQE is flushed: nothing more is placed

	holding bool // the end of a message waits for the host to end an STag
	held    *Run // that message's last run; what it was once made of stays
	asked   bool // the host has begun

	answers ring.Ring[answer]
	waiting uint32 // reads among the answers that came for the first time
	replays uint32 // and again
	records []readRecord
	oldest  int // in records, once it is full
}

// push appends an answer.
func (r *responder) push() *answer { return r.answers.Push(&r.lent.store.answers) }

func (r *responder) start(cfg ResponderConfig) {
	r.live, r.cfg = true, cfg
	r.epsn = psn(cfg.PSN)
}

// lastDone is the PSN of the last packet executed.
func (r *responder) lastDone() uint32 { return psn(r.epsn - 1) }

// maxAnswers bounds what waits to be sent. It is more than reads and what may
// lie between them.
const maxAnswers = 2048

// request takes request packets.
func (r *responder) request(run *Run) {
	if !r.live || r.failing || r.answers.Len() >= maxAnswers {
		return
	}
	switch d := diff(run.PSN, r.epsn); {
	case d > 0:
		if !r.nak {
			r.nak = true
			*r.push() = answer{kind: nakAnswer, syndrome: synSequence, psn: r.epsn}
		}
		return
	case d < 0:
		switch run.Op {
		case ReadRequest:
			r.replay(run)
			return
		case Unsupported:
			return
		}
		r.ackAgain(run)
		if uint32(-d) >= run.N {
			return
		}
		run.skip(uint32(-d))
	}
	r.nak = false
	switch run.Op {
	case ReadRequest:
		r.read(run)
	case Send:
		r.send(run)
	case Write:
		r.write(run)
	case Unsupported:
		r.invalid()
	}
	// A peer that asks for no acknowledgement gets one all the same, now and
	// then.
	if r.quiet >= ackEvery && !r.failing && !r.holding {
		r.ack()
	}
}

// ack answers that everything before epsn is executed.
func (r *responder) ack() { r.ackTo(r.lastDone()) }

func (r *responder) ackTo(p uint32) {
	r.quiet = 0
	if n := r.answers.Len(); n > 0 {
		if last := r.answers.At(n - 1); last.kind == ackAnswer {
			if diff(p, last.psn) > 0 {
				last.psn = p
			}
			return
		}
	}
	*r.push() = answer{kind: ackAnswer, syndrome: synACK, psn: p}
}

// ackAgain answers a duplicate: everything is executed. It stops short of a
// later read, whose responses the requester may lack too and asks for next:
// an acknowledgement must not overtake them.
func (r *responder) ackAgain(run *Run) {
	p := r.lastDone()
	for _, x := range r.records {
		if before := psn(x.psn - 1); diff(before, run.PSN) >= 0 && diff(before, p) < 0 {
			p = before
		}
	}
	r.ackTo(p)
}

// notReady answers that there is no receive WQE. What follows the packet is
// dropped in silence: the requester begins again with it.
func (r *responder) notReady() {
	r.nak = true
	*r.push() = answer{kind: nakAnswer, syndrome: synRNR | r.cfg.RNRTimer&0x1F, psn: r.epsn}
}

// fail ends the connection with a NAK for the packet at epsn, behind all
// earlier answers.
func (r *responder) fail(syndrome uint8, code Code, source Source, index uint32) {
	r.failing = true
	*r.push() = answer{kind: nakAnswer, syndrome: syndrome, psn: r.epsn, code: code, source: source, index: index}
}

func (r *responder) invalid() { r.fail(synInvalid, InvalidRequest, SourceInbound, 0) }

// done counts executed packets of the message.
func (r *responder) done(packets, bytes uint32) {
	r.epsn = psn(r.epsn + packets)
	r.quiet += packets
	r.off += bytes
}

// begins tells whether the run may come at this point of a message.
func (r *responder) begins(run *Run, m message) bool {
	if run.First {
		return r.msg == noMessage
	}
	return r.msg == m
}

func (r *responder) send(run *Run) {
	if !r.begins(run, sendMessage) || !run.well(r.cfg.MTU) {
		r.invalid()
		return
	}
	if run.First {
		switch got, code := r.host.Receive(&r.recv); got {
		case Empty:
			r.notReady()
			return
		case Bad:
			r.fail(synOperation, code, SourceRQ, r.recv.Index)
			return
		}
		r.msg, r.off = sendMessage, 0
	}
	tooLong := run.Bytes > r.recv.Len-r.off
	if tooLong {
		run.cut(min((r.recv.Len-r.off)/run.Size, run.N-1))
	}
	if !r.place(&r.recv.SGL, r.off, run, SourceRQ, r.recv.Index) {
		return
	}
	if tooLong {
		r.fail(synInvalid, MessageTooLong, SourceRQ, r.recv.Index)
		return
	}
	if run.Last {
		r.stats.InSends++
		if run.HasInv {
			r.invalidate(run)
			return
		}
		r.finish(run, true)
	}
	if run.AckReq && !r.failing {
		r.ack()
	}
}

// invalidate ends the STag that a message names, and then the message: at once,
// or as soon as the responses of earlier reads are sent and the host is done.
func (r *responder) invalidate(run *Run) {
	if r.held == nil {
		r.held = new(Run)
	}
	*r.held, r.holding, r.asked = *run, true, false
	r.goOn()
}

// goOn ends the message that is held, if it may. It tells whether it did.
func (r *responder) goOn() bool {
	if !r.live || !r.holding || r.waiting > 0 {
		return false
	}
	run := r.held
	done, code := r.host.Invalidate(run.Inv, r.asked)
	if r.asked = true; code == 0 && !done {
		return false
	}
	if r.holding = false; code != 0 {
		r.epsn = r.lastDone()
		r.fail(synAccess, code, SourceInbound, 0)
		return true
	}
	r.stats.Invalidations++
	r.finish(run, true)
	if run.AckReq && !r.failing {
		r.ack()
	}
	return true
}

// place copies a run's payload and counts it. False: it faulted.
func (r *responder) place(dst *SGL, off uint32, run *Run, source Source, index uint32) bool {
	if run.N == 0 {
		return true
	}
	placed, f := run.N, Fault{}
	if !r.discard {
		placed, f = move(r.host, dst, off, run)
	}
	if placed == run.N {
		r.done(placed, run.Bytes)
		return true
	}
	r.done(placed, placed*run.Size)
	switch {
	case f.Gone:
	case f.Source:
		r.nak = true // drop what follows; the sender ends the connection
		*r.push() = answer{kind: sourceFaultAnswer, psn: r.epsn, code: f.Code}
	case source == SourceRQ || f.Operation:
		r.fail(synOperation, f.Code, source, index)
	default:
		r.fail(synAccess, f.Code, source, index)
	}
	return false
}

// finish ends a message.
func (r *responder) finish(run *Run, receives bool) {
	only := r.off <= run.Size && run.N == 1
	r.msn = psn(r.msn + 1)
	if receives {
		c := Received{Len: r.off, Write: r.msg == writeMessage, Only: only, Solicited: run.Solicited,
			HasImm: run.HasImm, HasInv: run.HasInv, Imm: run.Imm, Inv: run.Inv}
		if !r.host.Received(&r.recv, &c) {
			r.epsn = r.lastDone()
			r.fail(synOperation, Catastrophic, SourceRQ, r.recv.Index)
		}
	}
	r.msg, r.discard = noMessage, false
}

func (r *responder) write(run *Run) {
	if !r.begins(run, writeMessage) || !run.well(r.cfg.MTU) {
		r.invalid()
		return
	}
	if run.First {
		if run.DMALen > MaxMessage {
			r.invalid()
			return
		}
		if run.DMALen > 0 && !r.remote(run, true) {
			return
		}
		r.msg, r.off = writeMessage, 0
		r.va, r.key, r.len = run.VA, run.Key, run.DMALen
	}
	if left := r.len - r.off; run.Bytes > left || run.Last && run.Bytes != left {
		r.badWriteLength(run, left)
		return
	}
	// The packet with the immediate needs a receive WQE, those before do not.
	receives := run.Last && run.HasImm
	got, code := Taken, Code(0)
	if receives {
		if got, code = r.host.Receive(&r.recv); got != Taken {
			run.cut(run.N - 1)
		}
	}
	if !r.placeWrite(run) {
		return
	}
	switch got {
	case Empty:
		if run.N == 0 && run.First {
			r.msg = noMessage // the packet comes again, and as the first
		}
		r.notReady()
		return
	case Bad:
		r.fail(synOperation, code, SourceRQ, r.recv.Index)
		return
	}
	if run.Last {
		r.stats.InWrites++
		r.finish(run, receives)
	}
	if run.AckReq && !r.failing {
		r.ack()
	}
}

func (r *responder) placeWrite(run *Run) bool {
	dst := &r.lent.scratch.dst
	if run.Bytes > 0 {
		r.host.List(dst)
		dst.Remote = true
		dst.Add(r.key, r.va+uint64(r.off), run.Bytes)
	}
	return r.place(dst, 0, run, SourceInbound, 0)
}

// badWriteLength executes the packets that are still within the message's
// length and refuses the next one.
func (r *responder) badWriteLength(run *Run, left uint32) {
	if good := min(left/run.Size, run.N-1); good > 0 {
		run.cut(good)
		if !r.placeWrite(run) {
			return
		}
	}
	r.invalid()
}

// remote checks the peer's right to a whole range.
func (r *responder) remote(run *Run, write bool) bool {
	f := r.host.Remote(run.Key, run.VA, run.DMALen, write)
	if !f.failed() {
		return true
	}
	syndrome := uint8(synAccess)
	if f.Operation {
		syndrome = synOperation
	}
	r.fail(syndrome, f.Code, SourceInbound, 0)
	return false
}

func (r *responder) read(run *Run) {
	if r.msg != noMessage || run.DMALen > MaxMessage {
		r.invalid()
		return
	}
	if r.waiting >= r.cfg.Reads {
		r.fail(synInvalid, TooManyReads, SourceInbound, 0)
		return
	}
	if run.DMALen > 0 && !r.remote(run, false) {
		return
	}
	n := packets(run.DMALen, r.cfg.MTU)
	r.waiting++
	r.quiet = 0
	r.pushRead(run, n, false)
	r.remember(readRecord{run.PSN, n, run.Key})
	r.stats.InReads++
	r.msn = psn(r.msn + 1)
	r.epsn = psn(r.epsn + n)
}

func (r *responder) pushRead(run *Run, n uint32, replay bool) {
	*r.push() = answer{kind: readAnswer, psn: run.PSN, n: n, va: run.VA, key: run.Key, len: run.DMALen, replay: replay}
}

// remember keeps the last reads, as many as may be outstanding.
func (r *responder) remember(x readRecord) {
	if uint32(len(r.records)) < r.cfg.Reads {
		r.records = append(r.records, x)
		return
	}
	r.records[r.oldest] = x
	r.oldest = (r.oldest + 1) % len(r.records)
}

// replay executes a read again, or the rest of it. One that is being answered, or
// waits for it, is answered from there on, in its place: who asks again has what
// comes before, and takes nothing of what would come behind a gap. To end the
// answer first, and to give another one behind those to later reads, costs a
// multiple of what is lost.
func (r *responder) replay(run *Run) {
	n := packets(run.DMALen, r.cfg.MTU)
	if !r.executed(run, n) {
		return
	}
	for i := range r.answers.Len() {
		a := r.answers.At(i)
		if d := distance(a.psn, run.PSN); a.kind == readAnswer && d < a.n && n == a.n-d {
			a.psn, a.n, a.sent, a.va, a.len = run.PSN, n, 0, run.VA, run.DMALen
			return
		}
	}
	if r.replays >= r.cfg.Reads {
		return // the requester asks again
	}
	r.replays++
	r.pushRead(run, n, true)
}

// executed tells whether a read of n packets is one that was executed, or the rest
// of one.
func (r *responder) executed(run *Run, n uint32) bool {
	for _, x := range r.records {
		if d := distance(x.psn, run.PSN); d < x.n && n <= x.n-d && run.Key == x.key {
			return true
		}
	}
	return false
}

// answerAll sends what waits, as far as the link takes it and the budget of
// runs lasts. It tells whether it ended with the budget.
func (r *responder) answerAll(budget *int) (more bool) {
	out := &r.lent.scratch.out
	for r.live && r.answers.Len() > 0 {
		if *budget == 0 {
			return true
		}
		*budget--
		a := r.answers.At(0)
		switch a.kind {
		case readAnswer:
			if !r.sendResponse(a) {
				return false
			}
			if a.sent < a.n {
				continue
			}
			if a.replay {
				r.replays--
			} else {
				r.waiting--
			}
		case sourceFaultAnswer:
			*out = Run{Op: SourceFault, PSN: a.psn, N: 1, Code: a.code}
			if !r.host.Transmit(out) {
				return false
			}
		default:
			*out = Run{Op: Acknowledge, First: true, Last: true, PSN: a.psn, N: 1, Syndrome: a.syndrome, MSN: r.msn}
			if !r.host.Transmit(out) {
				return false
			}
			r.stats.sent(out, 0)
			if a.code != 0 {
				r.end(a.code, a.source, a.index)
				return false
			}
		}
		r.answers.Pop()
	}
	return false
}

// sendResponse sends the next run of a read's responses.
func (r *responder) sendResponse(a *answer) bool {
	k := min(a.n-a.sent, MaxRunBytes/r.cfg.MTU, MaxRunPackets)
	off := a.sent * r.cfg.MTU
	o := &r.lent.scratch.out
	o.Op, o.First, o.Last = ReadResponse, a.sent == 0, a.sent+k == a.n
	o.AckReq, o.Solicited, o.HasImm, o.HasInv = false, false, false, false
	o.PSN, o.N, o.Size, o.Off = psn(a.psn+a.sent), k, r.cfg.MTU, 0
	o.Bytes = uint32(min(uint64(k)*uint64(r.cfg.MTU), uint64(a.len-off)))
	o.Syndrome, o.MSN = synACK, r.msn
	r.host.List(&o.SGL)
	o.SGL.Remote = true
	o.SGL.Add(a.key, a.va+uint64(off), o.Bytes)
	if !r.host.Transmit(o) {
		return false
	}
	r.stats.sent(o, 0)
	a.sent += k
	return true
}

// responseFault takes the news that a response at p could not be read.
func (r *responder) responseFault(p uint32, code Code) {
	if !r.live {
		return
	}
	// A NAK that waits is for what came later, or the same again.
	if r.failing && diff(r.answers.At(r.answers.Len()-1).psn, p) <= 0 {
		return
	}
	r.answers.Clear()
	r.waiting, r.replays = 0, 0
	r.failing = true
	*r.push() = answer{kind: nakAnswer, syndrome: synAccess, psn: psn(p), code: code, source: SourceInbound}
}
