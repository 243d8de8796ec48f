// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// telling makes an engine of one shard, and a task that tells of its steps.
func telling(t *testing.T, c Config) (e *Engine, a *Task, ran chan struct{}) {
	c.Shards = 1
	e, a, ran = New(c), new(Task), make(chan struct{}, 1)
	t.Cleanup(e.Close)
	a.Init(e, step(func(*Shard) bool { ran <- struct{}{}; return false }), 0)
	return e, a, ran
}

// Whoever schedules a task that was rung does not wait for who has rung it: that
// may be busy with something else for a while.
func TestRungIsScheduled(t *testing.T) {
	e, a, ran := telling(t, Config{})
	for range 100 {
		a.Ring()
		a.Schedule()
		<-ran
	}
	e.Serve()
}

// Where steps may wait for somebody, who rings takes none.
func TestRingWhereStepsWait(t *testing.T) {
	_, a, ran := telling(t, Config{Waits: true})
	for range 100 {
		a.Ring()
		<-ran
	}
}

// Many ring, serve, schedule and pass at once, and the engine closes amid that.
// Before, every ring and schedule is followed by a step that sees what was done
// before it; at no time does a task take two steps at once, or a shard.
func TestRingsAreNotLost(t *testing.T) {
	const shards, tasks, rounds = 3, 12, 50
	for _, closed := range []bool{false, true} {
		e := New(Config{Shards: shards})
		type state struct {
			Task
			posted, seen atomic.Int64
			busy         atomic.Bool
		}
		all := make([]state, tasks)
		var busy [shards]atomic.Bool
		for i := range all {
			x, next := &all[i], &all[(i+1)%tasks]
			x.Init(e, step(func(s *Shard) bool {
				if !x.busy.CompareAndSwap(false, true) || !busy[s.Index()].CompareAndSwap(false, true) {
					t.Error("two steps at once")
				}
				n := x.posted.Load()
				x.seen.Store(n)
				if n%7 == 3 {
					next.ScheduleOn(s)
				}
				busy[s.Index()].Store(false)
				x.busy.Store(false)
				return n%5 == 1 && n%2 == 0
			}), uint32(i))
		}
		var clients sync.WaitGroup
		var after atomic.Int64
		for c := range 8 {
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 0))
				for range rounds {
					x := &all[r.IntN(tasks)]
					want := x.posted.Add(1)
					wait := true
					switch r.IntN(16) {
					case 0:
						x.Schedule()
					case 1:
						e.Pass()
						wait = false
					case 2, 3, 4: // several before one Serve
						x.Ring()
						all[r.IntN(tasks)].Ring()
						fallthrough
					default:
						x.Ring()
						e.Serve()
					}
					if closed && after.Load() > rounds {
						continue
					}
					for wait && !closed && x.seen.Load() < want {
						runtime.Gosched()
					}
					if closed && after.Add(1) == rounds {
						go e.Close()
					}
				}
			})
		}
		clients.Wait()
		if !closed {
			e.Close()
		}
		<-e.closed
	}
}
