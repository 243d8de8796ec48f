// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// step is a Runner made of a function.
type step func(*Shard) bool

func (f step) Step(s *Shard) bool { return f(s) }

func manual(t *testing.T) (*Engine, *ManualClock) {
	c := &ManualClock{}
	e := New(Config{Manual: true, Clock: c})
	t.Cleanup(e.Close)
	return e, c
}

func TestOrderAndAgain(t *testing.T) {
	e, _ := manual(t)
	var order []string
	var a, b Task
	left := 3
	a.Init(e, step(func(s *Shard) bool {
		order = append(order, "a")
		if left == 3 {
			b.ScheduleOn(s)
		}
		left--
		return left > 0
	}), 0)
	b.Init(e, step(func(*Shard) bool { order = append(order, "b"); return false }), 1)
	a.Schedule()
	a.Schedule() // is queued already
	if n := e.Drain(100); n != 4 || !slices.Equal(order, []string{"a", "b", "a", "a"}) {
		t.Errorf("%d steps: %v", n, order)
	}
}

// A task scheduled while it runs runs once more.
func TestScheduledWhileRunning(t *testing.T) {
	e, _ := manual(t)
	var a Task
	n := 0
	a.Init(e, step(func(*Shard) bool {
		if n++; n == 1 {
			a.Schedule()
			a.Schedule()
		}
		return false
	}), 0)
	a.Schedule()
	if e.Drain(100); n != 2 {
		t.Errorf("%d steps, want 2", n)
	}
}

func TestDeadlines(t *testing.T) {
	e, c := manual(t)
	ran := map[string]time.Duration{}
	var a, b, z Task
	note := func(name string) step {
		return func(*Shard) bool { ran[name] = c.Now(); return false }
	}
	a.Init(e, note("a"), 0)
	b.Init(e, note("b"), 0)
	z.Init(e, note("z"), 0)
	a.SetDeadline(50)
	b.SetDeadline(20)
	b.SetDeadline(70) // later
	z.SetDeadline(90)
	z.SetDeadline(60) // earlier
	for range 100 {
		c.Advance(1)
		e.Drain(10)
		// A look at the old time is allowed, to do anything there is not asked.
		if c.Now() == 20 {
			delete(ran, "b")
		}
	}
	if ran["a"] != 50 || ran["b"] != 70 || ran["z"] != 60 {
		t.Errorf("ran at %v", ran)
	}
}

func TestDeadlineTakenBack(t *testing.T) {
	e, c := manual(t)
	var a Task
	steps := 0
	a.Init(e, step(func(*Shard) bool { steps++; return false }), 0)
	for range 1000 {
		a.SetDeadline(c.Now() + 100)
		a.SetDeadline(0)
		c.Advance(10)
		e.Drain(10)
	}
	if steps > 100 {
		t.Errorf("%d steps for deadlines that all were taken back", steps)
	}
	if n := testing.AllocsPerRun(100, func() {
		a.SetDeadline(c.Now() + 100)
		c.Advance(50)
	}); n > 1 { // the clock's own list
		t.Errorf("%v allocations", n)
	}
}

// Every schedule is followed by a step that sees what was done before it, and
// no task takes two steps at once.
func TestNothingIsLost(t *testing.T) {
	e := New(Config{Shards: 3})
	defer e.Close()
	const tasks, posts = 16, 5000
	type state struct {
		Task
		posted atomic.Int64
		busy   atomic.Bool
		done   chan struct{}
	}
	all := make([]state, tasks)
	for i := range all {
		x, next := &all[i], &all[(i+1)%tasks]
		x.done = make(chan struct{})
		finished := false
		x.Init(e, step(func(s *Shard) bool {
			if !x.busy.CompareAndSwap(false, true) {
				t.Error("two steps of a task at once")
			}
			defer x.busy.Store(false)
			n := x.posted.Load()
			if n == posts && !finished {
				finished = true
				close(x.done)
			}
			if n%7 == 3 {
				next.ScheduleOn(s)
			}
			return n%5 == 1 && n < posts
		}), uint32(i))
	}
	for i := range all {
		go func() {
			for range posts {
				all[i].posted.Add(1)
				all[i].Schedule()
			}
		}()
	}
	for i := range all {
		<-all[i].done
	}
}

// A timer of the real clock wakes a sleeping engine, and Close leaves no
// goroutine.
func TestRealTimeAndClose(t *testing.T) {
	before := runtime.NumGoroutine()
	e := New(Config{Shards: 2})
	var a Task
	ran := make(chan struct{})
	var once sync.Once
	a.Init(e, step(func(*Shard) bool { once.Do(func() { close(ran) }); return false }), 0)
	a.SetDeadline(e.Clock().Now() + time.Millisecond)
	<-ran
	e.Close()
	for range 1_000_000 { // one that has ended may not be gone yet
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// Steps are inside the grace domain.
func TestGrace(t *testing.T) {
	e, _ := manual(t)
	var a Task
	inside := true
	a.Init(e, step(func(*Shard) bool { inside = !e.Grace().Quiet(); return false }), 0)
	a.Schedule()
	e.Drain(1)
	if !inside || !e.Grace().Quiet() {
		t.Errorf("inside %t, quiet after %t", inside, e.Grace().Quiet())
	}
}

// A deadline set between the timer's look at the old one and its filing finds
// the heap's old time good enough: filing has to see it.
func TestFilingSeesAnEarlierDeadline(t *testing.T) {
	for _, c := range []struct{ filed, wanted, due time.Duration }{
		{500, 500, 500}, {500, 3, 3}, {500, 0, 500}, {500, 900, 500},
	} {
		var task Task
		task.deadline.Store(int64(c.wanted))
		task.file(c.filed)
		if got := time.Duration(task.due.Load()); got != c.due {
			t.Errorf("filing for %d with a deadline at %d: due at %d, want %d", c.filed, c.wanted, got, c.due)
		}
	}
}

// Shuffled schedules lose nothing, differ by seed, and come again by seed.
func TestShuffle(t *testing.T) {
	run := func(seed uint64) (order []int) {
		e := New(Config{Manual: true, Clock: &ManualClock{}, Shuffle: seed})
		defer e.Close()
		tasks := make([]Task, 8)
		left := make([]int, len(tasks))
		for i := range tasks {
			left[i] = 10
			tasks[i].Init(e, step(func(s *Shard) bool {
				order = append(order, i)
				n := s.Part(4)
				if n < 1 || n > 4 {
					t.Errorf("part %d of 4", n)
				}
				left[i] -= n
				return left[i] > 0
			}), uint32(i))
			tasks[i].Schedule()
		}
		e.Drain(1000)
		for i, n := range left {
			if n > 0 {
				t.Errorf("seed %d: task %d has %d left", seed, i, n)
			}
		}
		return order
	}
	one := run(1)
	if !slices.Equal(one, run(1)) {
		t.Error("the same seed gave another schedule")
	}
	if slices.Equal(one, run(2)) || slices.IsSorted(one) {
		t.Error("not shuffled")
	}
}

// Short times, long times and none in any order; a stopped timer holds nothing,
// and can be set again.
func TestRealTimer(t *testing.T) {
	t.Run("timer", func(t *testing.T) { testTimer(t, RealClock().NewTimer) })
	t.Run("fine", func(t *testing.T) { testTimer(t, RealClock().NewFineTimer) })
	// There may be no descriptor left.
	t.Run("none", func(t *testing.T) { testTimer(t, without(func() (int, error) { return -1, unix.EMFILE })) })
	// Or one that cannot be waited for: then it may be early, once.
	t.Run("broken", func(t *testing.T) {
		fired := make(chan struct{}, 100)
		timer := without(func() (int, error) { return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) })(func() { fired <- struct{}{} })
		defer timer.Stop()
		for range 3 {
			timer.Reset(time.Millisecond)
			<-fired
		}
	})
}

// without makes fine timers where open is what the kernel does.
func without(open func() (int, error)) func(f func()) Timer {
	return func(f func()) Timer {
		timer := RealClock().NewFineTimer(f).(*fineTimer)
		timer.open = open
		return timer
	}
}

func testTimer(t *testing.T, newTimer func(f func()) Timer) {
	before := runtime.NumGoroutine()
	fired := make(chan struct{}, 100)
	timer := newTimer(func() { fired <- struct{}{} })
	timer.Stop()
	for _, d := range []time.Duration{50 * time.Microsecond, 0, 3 * time.Millisecond, time.Millisecond} {
		start := time.Now()
		timer.Reset(time.Hour)
		timer.Reset(d)
		<-fired
		if took := time.Since(start); took < d {
			t.Errorf("%v took %v", d, took)
		}
	}
	timer.Reset(time.Millisecond)
	timer.Stop()
	for range 1_000_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// Pass waits for what is queued, on every shard, and for nothing once the engine
// is closed.
func TestPass(t *testing.T) {
	e := New(Config{Shards: 3})
	var tasks [30]Task
	var ran [30]atomic.Bool
	for i := range tasks {
		tasks[i].Init(e, step(func(*Shard) bool { ran[i].Store(true); return false }), uint32(i))
	}
	for range 200 {
		for i := range tasks {
			ran[i].Store(false)
			tasks[i].Schedule()
		}
		e.Pass()
		for i := range tasks {
			if !ran[i].Load() {
				t.Fatalf("task %d has not run", i)
			}
		}
	}
	e.Close()
	e.Pass()
	m, _ := manual(t)
	tasks[0].Init(m, step(func(*Shard) bool { return false }), 0)
	tasks[0].Schedule()
	m.Pass()
	if tasks[0].Idle() {
		t.Error("a task that is queued is idle")
	}
	if m.Drain(9); !tasks[0].Idle() {
		t.Error("a task is not idle afterwards")
	}
}

// Who rings takes steps itself while the shard sleeps: no more than a few, and
// what is left wakes the shard.
func TestServe(t *testing.T) {
	e := New(Config{Shards: 2})
	defer e.Close()
	asleep := func(i int) bool {
		s := e.shards[i]
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.asleep
	}
	rest := func() {
		for !asleep(0) || !asleep(1) {
			runtime.Gosched()
		}
	}
	rest()
	var a, b Task
	var order []string
	a.Init(e, step(func(s *Shard) bool {
		order = append(order, "a")
		b.ScheduleOn(s)
		return false
	}), 0)
	b.Init(e, step(func(*Shard) bool { order = append(order, "b"); return false }), 1)
	a.Ring()
	if len(order) != 0 || !asleep(0) {
		t.Errorf("rung: %v", order)
	}
	e.Serve()
	if !slices.Equal(order, []string{"a", "b"}) || !asleep(0) || !asleep(1) {
		t.Errorf("served: %v", order)
	}

	// A task that wants more than a step is the shard's.
	var c Task
	done, steps := make(chan struct{}), 0
	c.Init(e, step(func(*Shard) bool {
		if steps++; steps == 100 {
			close(done)
		}
		return steps < 100
	}), 0)
	c.Ring()
	e.Serve()
	<-done
	rest()

	// Nor is what was rung forgotten, if something else wakes the shard first.
	a.Ring()
	c.Schedule()
	rest()
	if len(order) != 4 {
		t.Errorf("%d steps: %v", len(order), order)
	}
	e.Serve()
}
