// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"time"

	"github.com/vrnic/vrnic/devmodel/ring"
)

const (
	// maxEntries bounds the WQEs in work: what a QP remembers at most.
	maxEntries = 128
	// ackEvery is how many packets a requester sends without asking for an
	// acknowledgement.
	ackEvery = 64
	// maxOutstanding keeps PSNs comparable.
	maxOutstanding = 1 << 23
	minWindow      = 2 * ackEvery
)

// RequesterConfig is what a connection's sending side is made from.
type RequesterConfig struct {
	PSN     uint32 // first
	MTU     uint32 // of the path
	Retries uint8
	// RNRRetries: 7 means for ever.
	RNRRetries uint8
	ORD        uint32 // reads outstanding
	Window     uint32 // packets outstanding
	Timeout    time.Duration
}

// entry is a WQE in work.
type entry struct {
	w        WQE
	first, n uint32 // PSNs; local work has none
	sent     uint32 // packets given to the link; a read's request: 0 or n
	acked    uint32 // packets acknowledged, or responses placed
	started  bool
	done     bool
	ending   bool // of a read that HasInv: the host ends its STags
}

func (e *entry) read() bool { return e.w.Kind == KindRead }

// requester is the sending side.
type requester struct {
	host  Host
	lent  *lent
	stats *Stats
	end   func(Code, Source, uint32)
	cfg   RequesterConfig

	live    bool
	entries ring.Ring[entry] // oldest first
	cur     int              // the first entry not sent completely
	next    uint32           // PSN of the next new entry
	una     uint32           // oldest PSN not acknowledged
	high    uint32           // behind the newest PSN sent
	flight  uint32           // packets outstanding; a read counts as one
	reads   uint32           // reads begun and not done

	retries, rnrs uint8
	gap           bool          // gone back since the last progress, on the peer's word
	denied        bool          // the peer cannot read what it was asked for, and has been told
	bereft        bool          // the peer's end took responses with it that it had sent
	resting       bool          // after an RNR NAK
	deadline      time.Duration // of the rest or of the retransmission; 0: none

	// Of the last packets of a burst nothing tells but time. Where packets are known
	// to be lost, what is late is asked for once soon, which is not counted, and
	// only then in earnest. Where none is, nothing is ever sent again too early.
	lossy   bool
	probed  bool          // since the last progress
	since   time.Duration // when the wait for progress began
	slowest time.Duration // progress of late

	// News of a source fault waits for room on the link.
	untold bool
	news   struct {
		psn  uint32
		code Code
	}
}

func (r *requester) start(cfg RequesterConfig) {
	r.live, r.cfg = true, cfg
	r.next, r.una, r.high = psn(cfg.PSN), psn(cfg.PSN), psn(cfg.PSN)
	r.update(cfg)
}

// update takes over what may change in a live connection.
func (r *requester) update(cfg RequesterConfig) {
	r.cfg.Retries, r.cfg.RNRRetries, r.cfg.ORD = cfg.Retries, cfg.RNRRetries, cfg.ORD
	r.cfg.Window, r.cfg.Timeout = max(cfg.Window, minWindow), cfg.Timeout
}

// oldest is the WQE that a flush or an error is about.
func (r *requester) oldest() *WQE {
	if r.entries.Len() == 0 {
		return nil
	}
	return &r.entries.At(0).w
}

// transmit sends what may be sent, as long as the budget of runs and WQEs
// lasts. It tells whether it ended with the budget.
func (r *requester) transmit(budget *int) (more bool) {
	r.retire() // what has only waited for the host
	r.tell()
	for r.live && !r.resting {
		if *budget == 0 {
			more = true
			break
		}
		*budget--
		if r.cur == r.entries.Len() {
			if !r.fetch() {
				break
			}
		}
		e := r.entries.At(r.cur)
		if e.done {
			r.cur++
			continue
		}
		if !e.started && !r.mayStart(e) {
			break
		}
		if e.w.Fault != 0 {
			if r.cur == 0 {
				r.fail(e.w.Fault)
			}
			break
		}
		if !r.advance(e) {
			break
		}
	}
	r.watch()
	return more
}

// watch keeps the retransmission timer.
func (r *requester) watch() {
	switch {
	case r.resting:
	case !r.live || r.flight == 0:
		r.deadline = 0
	case r.deadline == 0:
		now := r.host.Now()
		if !r.probed {
			r.since = now
		}
		r.deadline = now + r.patience()
	}
}

// leastPatience is more than the clock's grain and what a busy host may add.
const leastPatience = 20 * time.Millisecond

// patience is how long progress is waited for.
func (r *requester) patience() time.Duration {
	if r.lossy && !r.probed {
		return min(max(leastPatience, 2*r.slowest), r.cfg.Timeout)
	}
	return r.cfg.Timeout
}

// fetch takes the next WQE from the host.
func (r *requester) fetch() bool {
	if r.entries.Len() == maxEntries {
		return false
	}
	if n := r.entries.Len(); n > 0 && r.entries.At(n-1).w.Fault != 0 {
		return false // nothing behind it is executed
	}
	w := &r.lent.scratch.wqe // mostly there is none, which is not to cost an entry
	if !r.host.Fetch(w) {
		return false
	}
	e := r.entries.Push(&r.lent.store.entries)
	*e = entry{w: *w, first: r.next}
	if e.w.Fault == 0 && e.w.Kind != KindLocal {
		e.n = packets(e.w.Len, r.cfg.MTU)
		r.next = psn(r.next + e.n)
	}
	return true
}

// mayStart tells whether everything that an entry waits for has come.
func (r *requester) mayStart(e *entry) bool {
	// A message that ends an STag of the peer does so before payload that the
	// peer has sent for a read is copied: it waits for reads, fence or not.
	ends := e.w.Kind == KindSend && e.w.HasInv
	if e.w.LocalFence && r.cur > 0 || (e.w.ReadFence || ends) && r.reads > 0 {
		return false
	}
	if e.read() && e.w.Fault == 0 {
		if r.cfg.ORD == 0 {
			e.w.Fault = ReadWhileORDZero
			return true
		}
		if r.reads >= r.cfg.ORD {
			return false
		}
	}
	return e.n == 0 || distance(r.una, e.first)+e.n <= maxOutstanding
}

// advance does the next piece of the entry at cur. It returns false if that
// has to wait.
func (r *requester) advance(e *entry) bool {
	if e.w.Kind == KindLocal {
		var done bool
		if done, e.w.Fault = r.host.Local(&e.w, e.started); e.w.Fault != 0 {
			return true
		}
		if e.started = true; !done {
			return false
		}
		e.done = true
		r.cur++
		r.retire()
		return true
	}
	if r.flight >= r.cfg.Window {
		return false
	}
	if e.read() {
		return r.sendRead(e)
	}
	k := min(e.n-e.sent, r.cfg.Window-r.flight, MaxRunBytes/r.cfg.MTU, ackEvery-e.sent%ackEvery)
	off := e.sent * r.cfg.MTU
	o := &r.lent.scratch.out
	o.Op, o.First, o.Last = Send, e.sent == 0, e.sent+k == e.n
	if e.w.Kind == KindWrite {
		o.Op = Write
	}
	o.AckReq = o.Last || (e.sent+k)%ackEvery == 0
	o.Solicited, o.HasImm, o.HasInv = e.w.Solicited, e.w.HasImm, e.w.HasInv
	o.PSN, o.N, o.Size, o.Off = psn(e.first+e.sent), k, r.cfg.MTU, off
	o.Bytes = uint32(min(uint64(k)*uint64(r.cfg.MTU), uint64(e.w.Len-off)))
	o.VA, o.Key, o.DMALen, o.Imm, o.Inv = e.w.Addr, e.w.Key, e.w.Len, e.w.Imm, e.w.Inv
	o.SGL = e.w.SGL
	if !r.host.Transmit(o) {
		return false
	}
	r.begun(e)
	r.stats.sent(o, r.again(o.PSN, k))
	e.sent += k
	r.flight += k
	if e.sent == e.n {
		r.cur++
	}
	return true
}

// sendRead asks for what has not come of a read yet.
func (r *requester) sendRead(e *entry) bool {
	done := e.acked * r.cfg.MTU
	o := &r.lent.scratch.out
	*o = Run{Op: ReadRequest, First: true, Last: true, AckReq: true, PSN: psn(e.first + e.acked), N: 1,
		Size: r.cfg.MTU, VA: e.w.Addr + uint64(done), Key: e.w.Key, DMALen: e.w.Len - done}
	if !r.host.Transmit(o) {
		return false
	}
	r.begun(e)
	r.stats.sent(o, r.again(o.PSN, e.n-e.acked))
	e.sent = e.n
	r.flight++
	r.cur++
	return true
}

// again notes n PSNs from p on as sent and tells how many of them were before.
func (r *requester) again(p, n uint32) uint32 {
	old := distance(r.una, r.high)
	from := distance(r.una, p)
	if from+n > old {
		r.high = psn(p + n)
	}
	if from >= old {
		return 0
	}
	return min(n, old-from)
}

func (r *requester) begun(e *entry) {
	if e.started {
		return
	}
	e.started = true
	switch e.w.Kind {
	case KindSend:
		r.stats.OutSends++
	case KindWrite:
		r.stats.OutWrites++
	case KindRead:
		r.stats.OutReads++
		r.reads++
	}
}

// acknowledge takes an ACK or NAK.
func (r *requester) acknowledge(run *Run) {
	if !r.live {
		return
	}
	p := run.PSN
	switch run.Syndrome >> 5 {
	case 0:
		if r.outstanding(p) && r.cover(p) {
			r.lost()
		}
	case 1:
		if r.outstanding(p) && !r.resting {
			r.notReady(run)
		}
	case 3:
		if r.outstanding(p) {
			r.refused(p, run.Syndrome)
		}
	}
}

// refused takes a NAK: what comes before p is executed.
func (r *requester) refused(p uint32, syndrome uint8) {
	missing := r.cover(p - 1)
	switch {
	case !r.live:
	case syndrome == synSequence:
		r.lost()
	case missing && !r.holds(0, p) && r.denied:
		r.fail(RemoteAccess) // the NAK for that read was overtaken by a later one
	case missing && !r.holds(0, p) && !r.bereft:
		// The peer executes no more, but an earlier read's data has not come:
		// that it is who fails, when it is asked for in vain.
		r.lost()
	case syndrome == synInvalid:
		r.fail(InvalidRequest)
	case syndrome == synAccess:
		r.fail(RemoteAccess)
	default:
		r.fail(RemoteOperation)
	}
}

// holds tells whether p is one of the PSNs of entry i.
func (r *requester) holds(i int, p uint32) bool {
	e := r.entries.At(i)
	return distance(e.first, p) < e.n
}

// outstanding tells whether p was sent and is not acknowledged.
func (r *requester) outstanding(p uint32) bool {
	return distance(r.una, p) < distance(r.una, r.high)
}

// cover takes everything up to p as received. It tells whether responses to a
// read are missing before p: an acknowledgement does not overtake them.
func (r *requester) cover(p uint32) (missing bool) {
	p = psn(p)
	if !r.outstanding(p) {
		return false
	}
	progress := false
	// Measured from the oldest, without a sign: an entry may take half of all
	// PSNs, and the acknowledgement may be for one behind it.
	acked := distance(r.una, p) + 1
	for i := range r.entries.Len() {
		e := r.entries.At(i)
		if e.n == 0 || e.done {
			continue
		}
		before := distance(r.una, psn(e.first+e.acked))
		if before >= acked {
			break
		}
		if e.read() {
			missing = true
			break
		}
		n := e.acked + min(acked-before, e.n-e.acked)
		sent := max(e.sent, n)
		r.flight -= e.sent - e.acked
		r.flight += sent - n
		e.sent, e.acked = sent, n
		e.done = n == e.n
		progress = true
	}
	r.settle(progress)
	return missing && r.live
}

// settle follows up on changed entries.
func (r *requester) settle(progress bool) {
	if progress {
		r.lossy = r.lossy || r.retries > 0
		if r.deadline != 0 && !r.resting && r.retries == 0 {
			r.slowest = max(r.host.Now()-r.since, r.slowest-r.slowest/8)
		}
		r.retries, r.rnrs, r.gap, r.denied, r.bereft, r.probed = 0, 0, false, false, false, false
		if !r.resting {
			r.deadline = 0 // and set anew while something is outstanding
		}
	}
	for r.cur < r.entries.Len() && r.entries.At(r.cur).done {
		r.cur++
	}
	r.una = r.next
	for i := range r.entries.Len() {
		if e := r.entries.At(i); e.n > 0 && !e.done {
			r.una = psn(e.first + e.acked)
			break
		}
	}
	r.retire()
}

// retire completes what is done at the head of the queue. A read that ends
// STags counts as outstanding until they have ended.
func (r *requester) retire() {
	for r.live && r.entries.Len() > 0 {
		e := r.entries.At(0)
		if !e.done {
			return
		}
		if e.read() && e.w.HasInv {
			done, code := r.host.Local(&e.w, e.ending)
			if code != 0 {
				r.fail(code)
				return
			}
			if e.ending = true; !done {
				return
			}
			r.reads--
		}
		if e.w.Signaled && !r.host.Completed(&e.w) {
			r.fail(Catastrophic)
			return
		}
		r.entries.Pop()
		r.cur--
	}
}

// lost begins again with the oldest packet not acknowledged, because of the
// peer: it misses a request, or a response is missing. What it says of the same
// loss again changes nothing, and after a rest everything begins there anyway.
func (r *requester) lost() {
	if r.gap || r.resting {
		return
	}
	r.gap = true
	r.retry()
}

// retry goes back to the oldest PSN not acknowledged.
func (r *requester) retry() {
	if r.retries++; r.retries > r.cfg.Retries {
		r.fail(TooManyRetries)
		return
	}
	r.goBack()
}

func (r *requester) goBack() {
	r.flight, r.deadline = 0, 0
	first := true
	for i := range r.entries.Len() {
		e := r.entries.At(i)
		if e.done {
			continue
		}
		if first {
			r.cur, first = i, false
		}
		if e.sent = e.acked; e.read() {
			e.sent = 0
		}
	}
}

// notReady takes an RNR NAK: rest, then go on from its PSN.
func (r *requester) notReady(run *Run) {
	if r.cover(run.PSN - 1); !r.live {
		return
	}
	if r.rnrs < 7 {
		r.rnrs++
	}
	if r.cfg.RNRRetries < 7 && r.rnrs > r.cfg.RNRRetries {
		r.fail(TooManyRNRs)
		return
	}
	r.goBack()
	r.resting = true
	r.deadline = r.host.Now() + rnrTime(run.Syndrome)
}

// expire acts on a deadline that has passed.
func (r *requester) expire() {
	if !r.live || r.deadline == 0 || r.host.Now() < r.deadline {
		return
	}
	r.deadline = 0
	if r.resting {
		r.resting = false
		return
	}
	r.gap = false
	if r.lossy && !r.probed {
		r.probed = true
		r.goBack()
		return
	}
	r.retry()
}

// pendingRead is the oldest read that lacks responses.
func (r *requester) pendingRead() *entry {
	for i := range r.entries.Len() {
		if e := r.entries.At(i); e.read() && !e.done && e.started {
			return e
		}
	}
	return nil
}

// response takes read response packets.
func (r *requester) response(run *Run) {
	e := r.pendingRead()
	if !r.live || e == nil {
		return
	}
	want := psn(e.first + e.acked)
	d := diff(run.PSN, want)
	if distance(r.una, run.PSN) >= distance(r.una, r.high) && d >= 0 {
		return // nobody asked for it
	}
	if d > 0 {
		r.lost()
		return
	}
	if d < 0 {
		if uint32(-d) >= run.N {
			return // seen
		}
		run.skip(uint32(-d))
	}
	// What comes before a read in the queue is done when its response is here.
	if want != r.una {
		if r.cover(want - 1); !r.live {
			return
		}
		if e = r.pendingRead(); e == nil {
			return
		}
	}
	left := e.n - e.acked
	if run.N > left || !run.well(r.cfg.MTU) && !r.shortFirst(run) || run.N == left != run.Last ||
		run.Last && run.Bytes != e.w.Len-e.acked*r.cfg.MTU {
		r.fail(ResponseLength)
		return
	}
	placed, f := move(r.host, &e.w.SGL, e.acked*r.cfg.MTU, run)
	if placed > 0 {
		e.acked += placed
		if e.done = e.acked == e.n; e.done {
			if !e.w.HasInv {
				r.reads--
			}
			if e.sent > 0 {
				r.flight--
			}
			e.sent = e.n
		}
		r.settle(true)
	}
	switch {
	case !r.live || !f.failed():
	case f.Gone:
		r.gap, r.bereft = true, true // nothing is to be had by asking again
	case f.Source:
		r.gap, r.denied = true, true
		r.news.psn, r.news.code, r.untold = psn(run.PSN+placed), f.Code, true
		r.tell()
	default:
		r.fail(f.Code)
	}
}

// tell gives the peer the news that its memory cannot be read.
func (r *requester) tell() {
	if !r.live || !r.untold {
		return
	}
	o := &r.lent.scratch.out
	*o = Run{Op: SourceFault, Response: true, PSN: r.news.psn, N: 1, Code: r.news.code}
	r.untold = !r.host.Transmit(o)
}

// sourceFault takes the news that a request's payload at a PSN cannot be read:
// the WQE that it belongs to fails when all before it are complete, as one that
// never could be executed does, and nothing behind it is executed. Of its own
// packets, none has to arrive.
func (r *requester) sourceFault(run *Run) {
	if !r.live || !r.outstanding(run.PSN) {
		return
	}
	i := 0
	for !r.holds(i, run.PSN) {
		i++
	}
	e := r.entries.At(i)
	if e.read() || e.done {
		return
	}
	e.w.Fault = run.Code
	r.high = run.PSN
	for j := i; j < r.entries.Len(); j++ {
		e := r.entries.At(j)
		if e.read() && e.sent > 0 && !e.done {
			r.flight--
		} else if !e.read() {
			r.flight -= e.sent - e.acked
		}
		if e.sent = e.acked; e.read() {
			e.sent = 0
		}
	}
	r.cur = min(r.cur, i)
}

// shortFirst allows the empty response to what is left of a read whose first
// packet came before.
func (r *requester) shortFirst(run *Run) bool { return run.Last && run.Bytes == 0 && run.N == 1 }

func (r *requester) fail(code Code) {
	if r.live {
		r.end(code, SourceSQ, r.oldest().Index)
	}
}

// rnrTime is the rest that an RNR syndrome asks for.
func rnrTime(syndrome uint8) time.Duration {
	// In units of 10 µs, by timer code (IBTA, table "Encoding for RNR NAK
	// Timer Field").
	units := [32]uint32{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
		2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}
	return time.Duration(units[syndrome&0x1F]) * 10 * time.Microsecond
}
