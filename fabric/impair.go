// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"container/heap"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// wireOverhead is what a frame takes on a wire beside its bytes: preamble,
// FCS and the gap between frames (IEEE 802.3).
const wireOverhead = 8 + 4 + 12

// reorderHold is the least time by which a reordered frame is late.
const reorderHold = time.Millisecond

// ImpairStats are the counters of one impaired direction. Every frame that
// came is Passed, Lost, in Overflow, in Flushed or still Held; duplicates come
// on top of these.
type ImpairStats struct {
	Frames     uint64 // that came
	Passed     uint64 // that left, duplicates not counted
	Lost       uint64 // by chance
	Duplicated uint64
	Corrupted  uint64
	Reordered  uint64
	Overflow   uint64 // dropped because the queue was full
	Flushed    uint64 // held when the link went down
	Held       int    // now
	HeldBytes  int    // now, buffers counted whole
}

// stage is one direction of a port's cable with its impairment.
type stage struct {
	rule    Impairment
	clock   engine.Clock
	out     func(frame []byte)
	timer   engine.Timer
	buffers *buffers

	mu      sync.Mutex
	random  *rand.Rand
	queue   heldFrames
	order   uint64        // of frames held
	free    time.Duration // when the wire can take the next frame
	last    time.Duration // when the frame before leaves
	running bool          // one goroutine lets frames go
	retired bool          // no longer in force: nothing enters
	stats   ImpairStats

	overdue atomic.Int64 // since when the first of many frames is due; never: there are few
	lagging atomic.Int64 // since when that has been so for too long, without a break
}

// lagAllowed is by how much frames may be late of themselves before senders that
// can wait send no more. Were they not to, nothing would hold them back where
// frames are let go more slowly than they are made, unlike on a perfect cable,
// whose sender delivers them itself: each is answered so late that it is sent
// again, and most of what is let go is not needed any more.
const lagAllowed = time.Millisecond

const never = time.Duration(math.MaxInt64)

// crowded tells, from any goroutine, whether much waits that should have gone. On
// nil, no rule, nothing does. Nobody waits for longer than crowdPatience: where
// somebody else fills the queue, all have their share of what is lost.
func (s *stage) crowded() bool {
	if s == nil {
		return false
	}
	now := s.clock.Now()
	return now-time.Duration(s.overdue.Load()) > lagAllowed && now-time.Duration(s.lagging.Load()) < crowdPatience
}

// account tells when the first frame is due if many wait. The caller holds mu.
func (s *stage) account() {
	at, lagging := never, never
	if s.stats.HeldBytes > crowdedAt {
		at = s.queue[0].at
		if now := s.clock.Now(); now-at > lagAllowed {
			lagging = min(time.Duration(s.lagging.Load()), now)
		}
	}
	s.overdue.Store(int64(at))
	s.lagging.Store(int64(lagging))
}

// impair puts the rules into force.
func (p *Port) impair(rules []Impairment) {
	p.txRule.Swap(p.stage(rules, Tx, p.arrive)).retire()
	p.rxRule.Swap(p.stage(rules, Rx, p.deliver)).retire()
}

func (p *Port) stage(rules []Impairment, d Direction, out func([]byte)) *stage {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].applies(p.name, d) {
			return newStage(rules[i], p.name, d, p.sw.clock, &p.sw.buffers, out)
		}
	}
	return nil
}

func newStage(r Impairment, port string, d Direction, c engine.Clock, buffers *buffers, out func([]byte)) *stage {
	if r.Queue <= 0 {
		if r.Queue = unratedQueue; r.Rate > 0 {
			r.Queue = ratedQueue
		}
	}
	h := fnv.New64a()
	h.Write([]byte(d.String() + " " + port))
	s := &stage{rule: r, clock: c, buffers: buffers, out: out, random: rand.New(rand.NewPCG(r.Seed, h.Sum64()))}
	s.timer = c.NewTimer(s.fire)
	s.overdue.Store(int64(never))
	s.lagging.Store(int64(never))
	return s
}

// fate is what chance has in store for a frame. All of it is drawn for every
// frame, so that one rule's outcome does not shift another's.
type fate struct {
	lost, duplicate, corrupt, reorder bool
	bit                               int // turned over if corrupt
	jitter                            time.Duration
}

func (s *stage) draw(length int) (f fate) {
	r := &s.rule
	f.lost = s.random.Float64() < r.Loss
	f.duplicate = s.random.Float64() < r.Duplicate
	f.corrupt = s.random.Float64() < r.Corrupt
	f.reorder = s.random.Float64() < r.Reorder
	where, jitter := s.random.Float64(), s.random.Float64()
	f.bit = headerLen*8 + int(where*float64((length-headerLen)*8))
	f.jitter = time.Duration((jitter*2 - 1) * float64(r.Jitter))
	return f
}

// enter takes a frame, of at least MinFrame bytes, from the near end.
func (s *stage) enter(frame []byte) {
	s.mu.Lock()
	s.stats.Frames++
	f := s.draw(len(frame))
	switch {
	case s.retired:
		s.stats.Flushed++
	case f.lost:
		s.stats.Lost++
	}
	if s.retired || f.lost {
		s.mu.Unlock()
		return
	}
	now := s.clock.Now()
	at := max(now, s.free) + s.rule.Delay + f.jitter
	at = max(at, s.last) // jitter does not reorder
	if f.reorder {
		at += max(s.rule.Delay, reorderHold)
	}
	straight := at <= now && !s.running && (len(s.queue) == 0 || s.queue[0].at > now)

	copies := 1
	if f.duplicate {
		copies = 2
	}
	var b *buffer
	if !straight || f.corrupt {
		b = s.buffers.take(len(frame))
		if cost := copies * b.cost(); !straight && s.stats.HeldBytes+cost > s.rule.Queue {
			s.stats.Overflow++
			s.mu.Unlock()
			s.buffers.release(b)
			return
		}
		copy(b.bytes, frame)
		if f.corrupt {
			b.bytes[f.bit/8] ^= 1 << (f.bit % 8)
		}
	}

	if s.rule.Rate != 0 {
		bits := float64(copies * (len(frame) + wireOverhead) * 8)
		s.free = max(now, s.free) + time.Duration(bits*float64(time.Second)/float64(s.rule.Rate))
	}
	if !f.reorder {
		s.last = at
	}
	s.stats.count(f)

	if straight {
		s.stats.Passed++
		s.mu.Unlock()
		if b != nil {
			frame = b.bytes
		}
		for range copies {
			s.out(frame)
		}
		s.buffers.release(b)
		return
	}
	s.order++
	s.stats.Held++
	s.stats.HeldBytes += copies * b.cost()
	heap.Push(&s.queue, held{at, s.order, b, copies})
	s.account()
	s.arm()
	s.mu.Unlock()
}

func (t *ImpairStats) count(f fate) {
	if f.duplicate {
		t.Duplicated++
	}
	if f.corrupt {
		t.Corrupted++
	}
	if f.reorder {
		t.Reordered++
	}
}

// arm sets the timer for the first held frame. One goroutine that lets frames
// go does it when it is through.
func (s *stage) arm() {
	if len(s.queue) > 0 && !s.running {
		s.timer.Reset(max(s.queue[0].at-s.clock.Now(), 0))
	}
}

// fire lets the frames go that are due.
func (s *stage) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return
	}
	s.running = true
	n := 0
	for len(s.queue) > 0 && s.queue[0].at <= s.clock.Now() {
		h := heap.Pop(&s.queue).(held)
		s.stats.Held--
		s.stats.HeldBytes -= h.copies * h.b.cost()
		s.stats.Passed++
		s.account()
		s.mu.Unlock()
		for range h.copies {
			s.out(h.b.bytes)
		}
		s.buffers.release(h.b)
		if n++; n%engine.BreathEvery == 0 {
			engine.Breathe()
		}
		s.mu.Lock()
	}
	s.running = false
	s.arm()
}

// flush loses what is held. As retire and read it may be called on nil, which
// stands for a direction without a rule.
func (s *stage) flush() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose()
}

// retire takes the stage out of force.
func (s *stage) retire() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.lose()
}

func (s *stage) lose() {
	s.timer.Stop()
	for _, h := range s.queue {
		s.buffers.release(h.b)
	}
	s.stats.Flushed += uint64(len(s.queue))
	s.stats.Held, s.stats.HeldBytes = 0, 0
	s.queue = nil
	s.account()
	s.free, s.last = 0, 0
}

func (s *stage) read() *ImpairStats {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	return &stats
}

// held is a frame in the cable.
type held struct {
	at     time.Duration
	order  uint64
	b      *buffer
	copies int
}

type heldFrames []held

func (q heldFrames) Len() int { return len(q) }
func (q heldFrames) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q heldFrames) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *heldFrames) Push(x any)   { *q = append(*q, x.(held)) }
func (q *heldFrames) Pop() any {
	old := *q
	h := old[len(old)-1]
	old[len(old)-1] = held{}
	*q = old[:len(old)-1]
	return h
}
