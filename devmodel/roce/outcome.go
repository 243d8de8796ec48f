// SPDX-License-Identifier: Apache-2.0

package roce

import "fmt"

// Before is an Endpoint and a run before Handle, for Outcome. Who comments on
// packets takes it; nothing else is done with it.
type Before struct {
	op       Op
	psn      uint32
	syndrome uint8

	epsn, msn            uint32
	nak, failing, takes  bool
	holding              bool
	replays              uint32
	una                  uint32
	sends, resting, lost bool
	retries              uint8
}

// Before notes what Outcome needs to tell what Handle has done with run.
func (e *Endpoint) Before(run *Run) Before {
	p, q := &e.rsp, &e.req
	return Before{op: run.Op, psn: run.PSN, syndrome: run.Syndrome,
		epsn: p.epsn, msn: p.msn, nak: p.nak, failing: p.failing, takes: p.live, holding: p.holding, replays: p.replays,
		una: q.una, sends: q.live, resting: q.resting, lost: q.gap, retries: q.retries}
}

const ended = "dropped: the connection has ended"

// Outcome says what Handle did with a run of one packet.
func (e *Endpoint) Outcome(b *Before) string {
	switch b.op {
	case Acknowledge, ReadResponse:
		return e.req.outcome(b)
	}
	return e.rsp.outcome(b)
}

func (r *responder) outcome(b *Before) string {
	d := diff(b.psn, b.epsn)
	switch {
	case !b.takes || b.failing:
		return ended
	case d > 0 && r.nak && !b.nak:
		return fmt.Sprintf("ahead: NAK sequence, expected PSN %d", b.epsn)
	case d > 0:
		return fmt.Sprintf("ahead: dropped, expected PSN %d", b.epsn)
	case d < 0 && b.op == ReadRequest && r.replays > b.replays:
		return "duplicate: answered again"
	case d < 0 && (b.op == ReadRequest || b.op == Unsupported):
		return "duplicate: dropped"
	case d < 0:
		return "duplicate: acknowledged again"
	case r.failing:
		a := r.answers.At(r.answers.Len() - 1)
		return fmt.Sprintf("refused: NAK %s, AE %#04x", syndromeName(a.syndrome), uint16(a.code))
	case r.nak && r.epsn == b.epsn:
		return "no receive WQE: RNR NAK"
	case r.epsn == b.epsn:
		return "dropped"
	case b.op == ReadRequest:
		return fmt.Sprintf("in order, responses: %d", distance(b.epsn, r.epsn))
	case r.holding && !b.holding:
		return fmt.Sprintf("in order, placed, message ends when STag %#08x does", r.held.Inv)
	case r.msn != b.msn:
		return fmt.Sprintf("in order, placed, message complete, MSN %d", r.msn)
	}
	return "in order, placed"
}

func (r *requester) outcome(b *Before) string {
	forward := r.una != b.una
	switch {
	case !b.sends:
		return ended
	case !r.live:
		return "ends the connection"
	case b.op == ReadResponse && forward:
		return "in order, placed"
	case b.op == ReadResponse && r.gap && !b.lost:
		return fmt.Sprintf("ahead: missing responses are asked for again, expected PSN %d", r.una)
	case b.op == ReadResponse:
		return fmt.Sprintf("not expected: dropped, expected PSN %d", r.una)
	case r.resting && !b.resting:
		return fmt.Sprintf("RNR NAK: rests, then goes on from PSN %d", r.una)
	case r.retries > b.retries || r.gap && !b.lost:
		return fmt.Sprintf("NAK %s: goes back to PSN %d", syndromeName(b.syndrome), r.una)
	case forward:
		return fmt.Sprintf("acknowledges all up to PSN %d", psn(r.una-1))
	}
	return "nothing new"
}

// syndromeName names what an AETH says.
func syndromeName(s uint8) string {
	switch {
	case s>>5 == 0:
		return "ACK"
	case s>>5 == 1:
		return fmt.Sprintf("RNR, timer %v", rnrTime(s))
	case s == synSequence:
		return "sequence"
	case s == synInvalid:
		return "invalid request"
	case s == synAccess:
		return "remote access"
	case s == synOperation:
		return "remote operation"
	}
	return fmt.Sprintf("%#02x", s)
}

// Sending says what the run is that Host.Transmit has been given and has not
// returned from; k is the number of a packet in it.
func (e *Endpoint) Sending(run *Run, k uint32) string {
	switch run.Op {
	case Send, Write, ReadRequest:
		return e.req.sending(run, k)
	case ReadResponse:
		a := e.rsp.answers.At(0)
		s := fmt.Sprintf("packet %d/%d of the read at PSN %d, MSN %d", a.sent+k+1, a.n, a.psn, run.MSN)
		if a.replay {
			s += ", again"
		}
		return s
	case Acknowledge:
		if run.Syndrome == synACK {
			return fmt.Sprintf("all up to PSN %d, MSN %d", run.PSN, run.MSN)
		}
		return fmt.Sprintf("NAK %s, expected PSN %d, MSN %d", syndromeName(run.Syndrome), run.PSN, run.MSN)
	}
	return run.Op.String()
}

func (r *requester) sending(run *Run, k uint32) string {
	e := r.entries.At(r.cur)
	at, of := e.sent+k+1, e.n
	if run.Op == ReadRequest {
		at, of = 1, 1
	}
	s := fmt.Sprintf("message %d packet %d/%d, WQE %d", r.message(), at, of, e.w.Index)
	if run.Op == ReadRequest && e.acked > 0 {
		s += fmt.Sprintf(", from response %d/%d on", e.acked+1, e.n)
	}
	if distance(r.una, psn(run.PSN+k)) < distance(r.una, r.high) {
		s += ", again"
	}
	return s
}

// message is the number of the message at cur among all that were begun, from 1
// on.
func (r *requester) message() uint64 {
	n := r.stats.OutSends + r.stats.OutWrites + r.stats.OutReads
	if !r.entries.At(r.cur).started {
		n++
	}
	for i := r.cur + 1; i < r.entries.Len(); i++ {
		if e := r.entries.At(i); e.started && e.n > 0 {
			n--
		}
	}
	return n
}
