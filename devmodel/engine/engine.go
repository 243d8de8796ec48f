// SPDX-License-Identifier: Apache-2.0

// Package engine runs the data path: a few shards, about one per processor,
// on which tasks (queue pairs) take steps.
//
// Contract and traps:
//   - A task is on at most one shard at a time, and a step is short: it copies
//     at most 64 KiB and asks to be called again. Control operations wait for
//     the step that runs, never for a queue of them.
//   - A task scheduled by another task's step goes to the same shard: a
//     message from one QP to the next costs no wake-up of a processor. Others
//     go to their home shard.
//   - Who rings (Task.Ring) takes the steps itself, if its shard sleeps: to wake
//     a processor for a few of them costs more than they do. Who rings must call
//     Engine.Serve soon, without a lock, wherever else it goes from there.
//   - Scheduling is never lost: a task scheduled while it runs runs again.
//   - Every step is inside the grace domain: see package grace.
//   - Timers are those of the Clock; with a ManualClock and without
//     goroutines (Config.Manual) everything is deterministic. Config.Shuffle
//     then tries other orders, each of them again by its seed.
package engine

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/grace"
)

// Runner is what a task does.
type Runner interface {
	// Step does a bounded piece of work and tells whether there is more. It
	// runs on shard s, never twice at once.
	Step(s *Shard) (again bool)
}

// Config of an Engine.
type Config struct {
	Shards int   // 0: one per processor
	Clock  Clock // nil: RealClock
	// Manual: one shard without a goroutine, run by Engine.Drain.
	Manual bool
	// Waits: steps may wait for somebody, as for the reader of a capture. Then only
	// the engine's own goroutines take them, and Task.Ring is Schedule.
	Waits bool
	// Shuffle, if not 0, is the seed of a random schedule on one shard: any of
	// the queued tasks is the next, and steps do a random part of what they
	// could (Shard.Part). For tests: what the hardware may do in another order
	// has to come out the same.
	Shuffle uint64
}

// Engine is a set of shards.
type Engine struct {
	clock  Clock
	grace  *grace.Domain
	shards []*Shard
	timers timers
	manual bool
	waits  bool
	rung   atomic.Uint64 // by shard: Serve is to be called
	done   sync.WaitGroup
	closed chan struct{}
}

// New starts an engine. Close ends it.
func New(c Config) *Engine {
	if c.Clock == nil {
		c.Clock = RealClock()
	}
	if c.Shards <= 0 {
		c.Shards = runtime.GOMAXPROCS(0)
	}
	if c.Manual || c.Shuffle != 0 {
		c.Shards = 1
	}
	e := &Engine{clock: c.Clock, grace: grace.New(c.Shards), manual: c.Manual, waits: c.Waits, closed: make(chan struct{})}
	e.timers.init(c.Clock)
	for i := range c.Shards {
		s := &Shard{engine: e, index: i, wake: make(chan struct{}, 1)}
		if c.Shuffle != 0 {
			s.shuffle = rand.New(rand.NewPCG(c.Shuffle, 0))
		}
		e.shards = append(e.shards, s)
	}
	if !c.Manual {
		for _, s := range e.shards {
			e.done.Add(1)
			go s.loop()
		}
	}
	return e
}

// Close ends the shards after the steps that run. Tasks still queued do not
// run any more.
func (e *Engine) Close() {
	e.timers.stop()
	for _, s := range e.shards {
		s.close()
	}
	e.done.Wait()
	close(e.closed)
}

// Manual tells that nobody takes steps but Drain: they are not to be waited for.
func (e *Engine) Manual() bool { return e.manual }

// Pass returns when every task queued at the call has taken a step since, or the
// engine is closed or manual. One that is running then may not have been called
// again. It is not to be called in a step.
func (e *Engine) Pass() {
	if e.manual {
		return
	}
	left := make(mark, len(e.shards))
	for _, s := range e.shards {
		s.push(&Task{engine: e, runner: left}, true)
	}
	for range e.shards {
		select {
		case <-left:
		case <-e.closed:
			return
		}
	}
}

// mark is a task that tells that a queue has come to it.
type mark chan struct{}

func (m mark) Step(*Shard) bool {
	m <- struct{}{}
	return false
}

// Shards is the number of shards.
func (e *Engine) Shards() int { return len(e.shards) }

// Clock is the engine's clock.
func (e *Engine) Clock() Clock { return e.clock }

// Grace is the domain in which the engine's steps run.
func (e *Engine) Grace() *grace.Domain { return e.grace }

// Drain runs a manual engine until no task is queued. It returns the number
// of steps taken, at most limit. One goroutine at a time may call it; tasks may
// be scheduled by others meanwhile.
func (e *Engine) Drain(limit int) (steps int) {
	s := e.shards[0]
	for steps < limit {
		t := s.pop()
		if t == nil {
			return steps
		}
		s.run(t)
		steps++
	}
	return steps
}

// serveSteps is how many steps Serve takes on a shard before it calls for the
// shard's own goroutine: a message to a QP nearby, and what comes back.
const serveSteps = 8

// Serve takes a few of the steps that tasks were rung for, and calls the shards'
// own goroutines for the rest. It may be called at any time outside of steps, by
// who holds no lock that steps take.
func (e *Engine) Serve() {
	for rung := e.rung.Load(); rung != 0; rung &= rung - 1 {
		i := bits.TrailingZeros64(rung)
		e.rung.And(^uint64(1 << i))
		e.shards[i].serve()
	}
}

// States of a task.
const (
	idle int32 = iota
	rung       // queued, and the shard need not wake up for it
	queued
	running
	rerun // running, and scheduled meanwhile
)

// Task is something that runs on the shards. It is initialized once and not
// copied.
type Task struct {
	engine *Engine
	runner Runner
	home   *Shard
	state  atomic.Int32
	next   *Task // in a shard's queue

	deadline atomic.Int64 // when the task wants to run; 0: not
	due      atomic.Int64 // under which time it is in the heap; 0: it is not
	// Guarded by the timers' lock.
	heapIndex int
	inHeap    bool
}

// Init makes t a task of e. Tasks with the same number share a home shard.
func (t *Task) Init(e *Engine, r Runner, number uint32) {
	t.engine, t.runner = e, r
	t.home = e.shards[number%uint32(len(e.shards))]
}

// Idle tells whether the task is neither queued nor in a step.
func (t *Task) Idle() bool { return t.state.Load() == idle }

// Schedule makes the task run soon, on its home shard.
func (t *Task) Schedule() { t.ScheduleOn(nil) }

// ScheduleOn makes the task run soon, on s, which must be the shard whose
// step is calling; nil means none.
func (t *Task) ScheduleOn(s *Shard) { t.schedule(s, true) }

// Ring is Schedule by somebody who calls Engine.Serve soon, whatever happens
// until then, and does not wait for the task before that.
func (t *Task) Ring() { t.schedule(nil, t.engine.waits) }

func (t *Task) schedule(s *Shard, wake bool) {
	for {
		switch t.state.Load() {
		case idle:
			how := queued
			if !wake {
				how = rung
			}
			if !t.state.CompareAndSwap(idle, how) {
				continue
			}
			if s == nil {
				s = t.home
			}
			if s.push(t, wake || s.index >= 64); !wake {
				t.engine.rung.Or(1 << s.index)
			}
			return
		case rung:
			// Who has rung it may be held up before it serves.
			if wake {
				if !t.state.CompareAndSwap(rung, queued) {
					continue
				}
				t.home.call()
			}
			return
		case running:
			if !t.state.CompareAndSwap(running, rerun) {
				continue
			}
			return
		default:
			return
		}
	}
}

// SetDeadline makes the task run at time at, as Engine.Clock tells it, or
// soon after; 0 means not. Only the last one set counts. It is to be called
// by one goroutine at a time.
func (t *Task) SetDeadline(at time.Duration) {
	t.deadline.Store(int64(at))
	if at == 0 {
		return
	}
	if due := t.due.Load(); due == 0 || int64(at) < due {
		t.engine.timers.add(t, at)
	}
}

// Shard is one lane of the engine.
type Shard struct {
	engine *Engine
	index  int
	wake   chan struct{}

	shuffle *rand.Rand // nil: in order; used by who takes the steps

	mu         sync.Mutex
	head, tail *Task
	queued     int
	asleep     bool // the goroutine
	served     bool // somebody else takes steps, while it is asleep
	closed     bool
}

// Index is the shard's number, from 0 to Engine.Shards without that: what only a
// step needs there may be one of for each.
func (s *Shard) Index() int { return s.index }

// Part is how much of n a step should do: n, or anything from 1 to n where
// schedules are shuffled.
func (s *Shard) Part(n int) int {
	if s.shuffle == nil || n <= 1 {
		return n
	}
	return 1 + s.shuffle.IntN(n)
}

// Alone tells, in a step of the shard, that no step is under way on another
// one: what the step has unlinked before is not in use.
func (s *Shard) Alone() bool { return s.engine.grace.QuietBut(s.index) }

// push queues t. Unless wake, or somebody has scheduled it meanwhile, the
// goroutine sleeps on.
func (s *Shard) push(t *Task, wake bool) {
	s.mu.Lock()
	t.next = nil
	if s.head == nil {
		s.head = t
	} else {
		s.tail.next = t
	}
	s.tail = t
	s.queued++
	s.unlock(wake || t.state.Load() == queued)
}

// call wakes the goroutine for what is queued.
func (s *Shard) call() {
	s.mu.Lock()
	s.unlock(s.head != nil)
}

// unlock releases mu, and wakes the goroutine if that is wanted and nobody does
// its work.
func (s *Shard) unlock(wake bool) {
	wake = wake && s.asleep && !s.served
	if wake {
		s.asleep = false
	}
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{}
	}
}

// serve takes steps in place of the goroutine, if that is asleep: until one is not
// enough for its task, or it has been enough of them.
func (s *Shard) serve() {
	s.mu.Lock()
	if !s.asleep || s.served {
		s.mu.Unlock() // somebody is at it, and will see what has come
		return
	}
	s.served = true
	for left, more := serveSteps, false; left > 0 && !more && s.head != nil && !s.closed; left-- {
		t := s.take()
		s.mu.Unlock()
		more = s.run(t)
		s.mu.Lock()
	}
	s.served = false
	s.unlock(s.head != nil || s.closed)
}

func (s *Shard) pop() *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take()
}

// take removes the next task from the queue. The caller holds mu.
func (s *Shard) take() *Task {
	t := s.head
	if t == nil {
		return nil
	}
	var before *Task
	if s.shuffle != nil {
		for range s.shuffle.IntN(s.queued) {
			before, t = t, t.next
		}
	}
	if before == nil {
		s.head = t.next
	} else {
		before.next = t.next
	}
	if s.tail == t {
		s.tail = before
	}
	t.next = nil
	s.queued--
	return t
}

// nextTask waits for a task; nil means the engine closes.
func (s *Shard) nextTask() *Task {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil
		}
		if t := s.take(); t != nil {
			s.mu.Unlock()
			return t
		}
		s.asleep = true
		s.mu.Unlock()
		<-s.wake
	}
}

func (s *Shard) close() {
	s.mu.Lock()
	s.closed = true
	s.unlock(true)
}

func (s *Shard) loop() {
	defer s.engine.done.Done()
	steps := 0
	for t := s.nextTask(); t != nil; t = s.nextTask() {
		s.run(t)
		if steps++; steps%BreathEvery == 0 {
			Breathe()
		}
	}
}

// BreathEvery is how many steps, or frames, come to one Breathe.
const BreathEvery = 64

// Breathe lets Go's monitor thread know that somebody is at work. It sleeps when
// all processors of the scheduler are idle, until a system call begins or a timer
// that it has seen is due, and only while it is awake others get a processor, and
// sockets are looked at, although goroutines work without a pause. Whose work goes
// on for long without a system call that the scheduler sees has to do this now and
// then.
func Breathe() { _, _, _ = unix.Syscall(unix.SYS_GETPID, 0, 0, 0) }

// run lets t take a step and tells whether it wants more.
func (s *Shard) run(t *Task) (again bool) {
	t.state.Store(running)
	s.engine.grace.Enter(s.index)
	again = t.runner.Step(s)
	s.engine.grace.Leave(s.index)
	if again || !t.state.CompareAndSwap(running, idle) {
		t.state.Store(queued)
		s.push(t, true)
	}
	return again
}
