// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"fmt"
	"slices"
	"time"

	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// Timing is what a driver of this generation cannot set: the verbs'
// attributes for it are dropped.
type Timing struct {
	// AckTimeout is how long a requester waits for an acknowledgement.
	AckTimeout time.Duration
	// RNRTimer is the code in RNR NAKs.
	RNRTimer uint8
}

// DefaultTiming lets a peer without receive buffers be asked again soon.
//
// Acknowledgements come from devices, not from their drivers: but a peer may be
// software in a guest that is emulated on a busy host, and out of time for
// hundreds of milliseconds. The timeout is longer than that. Loss is rarely
// found by it: what comes behind a lost packet tells of it. With seven retries,
// which is the most that verbs can ask for, a peer that has gone is given up
// after four seconds, before connection managers lose patience.
func DefaultTiming() Timing { return Timing{AckTimeout: 500 * time.Millisecond, RNRTimer: 12} }

// legal lists the state changes a MODIFY_QP may ask for; to ERROR it may
// always (verbs.c:irdma_modify_qp_roce).
var legal = map[State][]State{
	Idle: {Idle, RTR},
	RTR:  {RTS},
	RTS:  {RTS, SQD},
	SQD:  {RTS},
}

// ModifyArgs are the words of MODIFY_QP beside the context.
type ModifyArgs struct {
	ID        uint32
	State     State
	CQNumbers bool // CQNUMVALID
	// ARP finds the destination's address by the context's ARP index; nil
	// where the command does not say that the index is valid
	// (ARPTABIDXVALID).
	ARP func(index uint16) (mac [6]byte, ok bool)
}

// Modify changes a QP's state and takes over from the context what that
// change allows. What hardware reloads is not known; this is what works with
// contexts that always carry the initial PSNs.
//
// To ERROR, others may still read the QP's memory until grace.
func (t *Table) Modify(a ModifyArgs, read func() (Context, error)) error {
	q, err := t.find(a.ID)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.State == Error {
		q.state, q.asked, q.frozen = Error, Error, false
		q.flushed.sq, q.flushed.rq = false, false
		q.disown()
		q.stop()
		q.unsuspended()
		return nil
	}
	if !slices.Contains(legal[q.state], a.State) {
		t.emit(IllegalTransition{QP: q.id, From: q.state, To: a.State, Failed: q.asked != Error && q.state == Error})
		return fmt.Errorf("QP %d cannot go from %v to %v: %w", q.id, q.state, a.State, ErrState)
	}
	if a.State == SQD {
		q.state, q.asked, q.drain, q.frozen = SQD, SQD, true, false
		q.drained()
		return nil
	}
	ctx, err := read()
	if err != nil {
		return err
	}
	return q.take(a, ctx)
}

// take moves a QP to a working state with a new context.
func (q *QP) take(a ModifyArgs, ctx Context) error {
	if ctx.geometryDiffers(&q.ctx) {
		q.table.emit(GeometryChanged{QP: q.id})
		ctx.keepWords(&q.ctx, 8, 16, 168)
	}
	if a.State != Idle && q.typ == RoCERC && !ValidMTU(ctx.PathMTU()) {
		return fmt.Errorf("QP %d with SNDMSS %d: %w", q.id, ctx.PathMTU(), ErrParameter)
	}
	if !a.CQNumbers {
		ctx.keepWords(&q.ctx, 136)
	} else if err := q.latchCQs(&ctx); err != nil {
		return err
	}
	old := q.state
	if a.State == RTS && q.typ == RoCERC {
		q.keepConnection(&ctx)
	}
	switch {
	case a.State == RTS && old == RTR:
		ctx.keepWords(&q.ctx, 88) // packets may have come since RTR
	case a.State == RTS:
		ctx.keepWords(&q.ctx, 80, 88, 96)
	}
	q.ctx, q.state, q.asked, q.frozen = ctx, a.State, a.State, false
	if a.State == Idle {
		return nil
	}
	if q.typ == RoCEUD {
		q.startDatagrams(old)
		return nil
	}
	if a.State == RTR {
		q.owner.subject = mr.Subject{PD: ctx.PD(), QP: q.id, Privileged: ctx.Privileged()}
	}
	if ctx.NotifiesCongestion() {
		q.table.emit(CongestionControl{QP: q.id})
	}
	if m := ctx.MAC(); m[0]&1 != 0 || m == [6]byte{} {
		q.table.emit(BadSource{QP: q.id, MAC: m})
	}
	q.route(a)
	switch {
	case a.State == RTR:
		q.ep = roce.New(q, &q.table.store)
		q.counts, q.uncounted = roce.Stats{}, traffic{}
		q.ep.StartResponder(roce.ResponderConfig{PSN: ctx.ExpectedPSN(), MTU: ctx.PathMTU(),
			Reads: ctx.IRDEntries(), RNRTimer: q.table.cfg.Timing.RNRTimer}, !ctx.IPv4())
	case old == RTR:
		q.ep.StartRequester(q.requester())
	default:
		q.drain = false
		q.ep.UpdateRequester(q.requester())
	}
	q.wake()
	return nil
}

// keepConnection keeps what a connection is known by from RTR on: the rest of
// its path may change, its peer may not. The caller holds mu.
func (q *QP) keepConnection(ctx *Context) {
	if ctx.DestQP() == q.ctx.DestQP() && ctx.PathMTU() == q.ctx.PathMTU() {
		return
	}
	q.table.emit(PeerChanged{QP: q.id, From: q.ctx.DestQP(), To: ctx.DestQP(), FromMTU: q.ctx.PathMTU(), ToMTU: ctx.PathMTU()})
	ctx.setBits(64, 23, 0, uint64(q.ctx.DestQP()))
	ctx.setBits(48, 29, 16, uint64(q.ctx.PathMTU()))
}

// wake begins with what is posted already.
func (q *QP) wake() {
	q.sq.forget()
	if _, _, posted, err := q.table.header(&q.sq); posted || err != nil {
		q.task.Schedule()
	}
}

func (q *QP) requester() roce.RequesterConfig {
	c := &q.ctx
	window := c.Window()
	if a := q.address.Load(); !a.loopback {
		window = min(window, wireWindow)
	}
	return roce.RequesterConfig{PSN: c.SendPSN(), MTU: c.PathMTU(), Retries: c.RetryCount(), RNRRetries: c.RNRRetryCount(),
		ORD: uint32(c.ORD()), Window: window, Timeout: q.table.cfg.Timing.AckTimeout}
}

// ValidMTU tells whether m is a path MTU of InfiniBand.
func ValidMTU(m uint32) bool { return m >= 256 && m <= 4096 && m&(m-1) == 0 }

// drained reports, once, that a QP that stops sending has nothing in work, or
// never will have again. The caller holds mu.
func (q *QP) drained() {
	if !q.drain || q.ep != nil && q.state != Error && !q.ep.Idle() {
		return
	}
	q.drain = false
	// Of a QP that lives, any state but IDLE or RTS would stop the driver's kernel
	// users from posting (verbs.c:irdma_post_send).
	state := RTS
	if q.state == Error {
		state = Error
	}
	q.table.cfg.Queues.AE(event.AE{Code: event.AEQPSuspendComplete, Source: event.AESrcNone,
		Context: q.ctx.CompletionContext(), ID: q.id, State: uint8(state)})
}

// unsuspended ends the wait for a suspension: the driver waits for as many events
// as it has suspended QPs, whatever becomes of them (ctrl.c:
// irdma_sc_suspend_resume_qps). Who only wanted SQD learns of the error. The
// caller holds mu.
func (q *QP) unsuspended() {
	if q.paused {
		q.drained()
	}
	q.drain = false
}

// Suspend stops a QP's requester; an event tells when it is drained.
func (t *Table) Suspend(id uint32) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused, q.drain = true, true
	q.drained()
	return nil
}

// Resume lets a suspended QP go on, under another scheduler leaf.
func (t *Table) Resume(id uint32, qsHandle uint16) error {
	q, err := t.find(id)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.paused && !q.frozen {
		return fmt.Errorf("QP %d is not suspended: %w", id, ErrState)
	}
	q.paused, q.drain, q.frozen = false, false, false
	q.ctx.setQSHandle(qsHandle)
	q.wake()
	return nil
}
