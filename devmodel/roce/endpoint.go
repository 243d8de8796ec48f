// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"time"

	"github.com/vrnic/vrnic/devmodel/ring"
)

// Endpoint is both sides of one queue pair's connection.
type Endpoint struct {
	Stats Stats

	req  requester
	rsp  responder
	lent lent
}

// Store is memory for what Endpoints remember of work that is under way: they
// share it, and have of it what they need. The zero value is ready. Any
// goroutine may use it.
type Store struct {
	entries ring.Pool[entry]
	answers ring.Pool[answer]
}

// Scratch is what an Endpoint needs only during a call.
type Scratch struct {
	out Run
	dst SGL
	wqe WQE
}

// lent is memory of others.
type lent struct {
	store   *Store
	scratch *Scratch
}

// New makes an Endpoint that neither sends nor receives yet.
func New(h Host, s *Store) *Endpoint {
	e := &Endpoint{lent: lent{store: s}}
	e.req.lent, e.rsp.lent = &e.lent, &e.lent
	end := func(code Code, source Source, index uint32) {
		e.Stop()
		h.Fail(code, source, index)
	}
	e.req.host, e.req.stats, e.req.end = h, &e.Stats, end
	e.rsp.host, e.rsp.stats, e.rsp.end = h, &e.Stats, end
	return e
}

// StartResponder begins to take requests (RTR). ipv6 is for the counters.
func (e *Endpoint) StartResponder(c ResponderConfig, ipv6 bool) {
	e.Stats.ipv6 = ipv6
	e.rsp.start(c)
}

// StartRequester begins to send (RTS).
func (e *Endpoint) StartRequester(c RequesterConfig) { e.req.start(c) }

// UpdateRequester takes over counts and limits; PSN and MTU stay.
func (e *Endpoint) UpdateRequester(c RequesterConfig) { e.req.update(c) }

// Lend gives the Endpoint s for the calls of Handle and Progress that follow;
// without there must be none.
func (e *Endpoint) Lend(s *Scratch) { e.lent.scratch = s }

// Stop ends both sides: nothing is sent or reported any more.
func (e *Endpoint) Stop() { e.req.live, e.rsp.live = false, false }

// Holding tells that no run can be handled before a later Progress: a peer
// wants to end an STag.
func (e *Endpoint) Holding() bool { return e.rsp.live && e.rsp.holding }

// Handle takes a run from the link. It may change the run.
func (e *Endpoint) Handle(run *Run) {
	switch run.Op {
	case SourceFault:
		if run.Response {
			e.rsp.responseFault(run.PSN, run.Code)
		} else {
			e.req.sourceFault(run)
		}
		return
	case Acknowledge, ReadResponse:
		e.Stats.received(run)
		if run.Op == Acknowledge {
			e.req.acknowledge(run)
		} else {
			e.req.response(run)
		}
	default:
		e.Stats.received(run)
		e.rsp.request(run)
	}
}

// progressLimit bounds one call of Progress: runs sent, and WQEs looked at.
const progressLimit = 256

// Progress acts on passed deadlines and sends what can be sent: answers
// first, they free the peer. It does a bounded piece of that and tells whether
// to call it again.
func (e *Endpoint) Progress() (again bool) {
	e.req.expire()
	budget := progressLimit
	answers := e.rsp.answerAll(&budget)
	if e.rsp.goOn() {
		answers = true
	}
	requests := e.req.transmit(&budget)
	e.req.entries.Rest(&e.lent.store.entries)
	e.rsp.answers.Rest(&e.lent.store.answers)
	return answers || requests
}

// Delay begins the time for acknowledgements anew: what is to bring them about
// waits on the way.
func (e *Endpoint) Delay() {
	if r := &e.req; r.live && !r.resting && r.deadline != 0 {
		r.since = r.host.Now()
		r.deadline = r.since + r.patience()
	}
}

// Deadline is when Progress must be called again at the latest; 0: never.
func (e *Endpoint) Deadline() time.Duration {
	if !e.req.live {
		return 0
	}
	return e.req.deadline
}

// Idle tells whether no WQE is in work.
func (e *Endpoint) Idle() bool { return e.req.entries.Len() == 0 }

// Oldest is the oldest WQE in work, nil if none.
func (e *Endpoint) Oldest() *WQE { return e.req.oldest() }

// Drop forgets the WQEs in work, as a flush does.
func (e *Endpoint) Drop() {
	r := &e.req
	r.entries.Clear()
	r.entries.Rest(&e.lent.store.entries)
	r.cur, r.flight, r.reads = 0, 0, 0
	r.retries, r.rnrs, r.gap, r.denied, r.bereft, r.probed, r.untold, r.resting, r.deadline = 0, 0, false, false, false, false, false, false, 0
	// PSNs of what was never sent are the next ones'.
	r.una, r.next = r.high, r.high
}

// DropReceive forgets the receive WQE that a message is coming to, as a flush
// does: what still comes of the message is acknowledged and not placed.
func (e *Endpoint) DropReceive() { e.rsp.discard = e.rsp.msg == sendMessage }

// PSNs are the next one to be sent new and the next one expected.
func (e *Endpoint) PSNs() (send, expected uint32) { return e.req.next, e.rsp.epsn }

// Outstanding is the oldest PSN not acknowledged and the one behind the newest
// sent; started is false if the requester never was.
func (e *Endpoint) Outstanding() (oldest, newest uint32, started bool) {
	return e.req.una, e.req.high, e.req.cfg.MTU != 0
}

// Trying is what a requester waits for, as a person reads it.
type Trying struct {
	Packets uint32 // outstanding; a read counts as one
	Reads   uint32 // outstanding
	// Since the last progress: how often packets were sent again, and how often
	// because the peer had no receive WQE.
	Retries, RNRs uint8
	Resting       bool          // after an RNR NAK
	Deadline      time.Duration // of the next attempt; 0: none is due
}

// Trying tells what the requester waits for.
func (e *Endpoint) Trying() Trying {
	r := &e.req
	return Trying{Packets: r.flight, Reads: r.reads, Retries: r.retries, RNRs: r.rnrs, Resting: r.resting, Deadline: e.Deadline()}
}
