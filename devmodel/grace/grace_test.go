// SPDX-License-Identifier: Apache-2.0

package grace_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vrnic/vrnic/devmodel/grace"
)

// object is what steps use; freed is written without synchronisation after
// the wait, so that the race detector too sees a step that still runs.
type object struct{ freed bool }

// Steps take whatever object is linked and look at it for a while; others
// unlink objects, wait, and end them.
func TestNoStepOutlivesTheWait(t *testing.T) {
	const shards, enders, rounds = 3, 2, 2000
	d := grace.New(shards)
	var link atomic.Pointer[object]
	link.Store(&object{})
	var stop atomic.Bool
	var steps, ends sync.WaitGroup
	for i := range shards {
		steps.Go(func() {
			for n := 0; !stop.Load(); n++ {
				d.Enter(i)
				o := link.Load()
				for range n % 64 {
					if o.freed {
						t.Error("object ended during a step")
						stop.Store(true)
					}
				}
				d.Leave(i)
			}
		})
	}
	for range enders {
		ends.Go(func() {
			for range rounds {
				old := link.Swap(&object{})
				if !d.Quiet() {
					d.Wait()
				}
				old.freed = true
			}
		})
	}
	ends.Wait()
	stop.Store(true)
	steps.Wait()
	if !d.Quiet() {
		t.Error("not quiet without a step")
	}
}

// Wait waits for the step that runs, not for the next one on the same shard.
func TestWaitEndsWithTheStep(t *testing.T) {
	d := grace.New(2)
	d.Enter(1)
	if d.Quiet() {
		t.Fatal("quiet inside a step")
	}
	var over atomic.Bool
	done := make(chan bool)
	go func() {
		d.Wait()
		done <- over.Load()
	}()
	for !d.Waiting() {
		runtime.Gosched()
	}
	d.Enter(0) // other shards come and go
	d.Leave(0)
	select {
	case <-done:
		t.Fatal("Wait returned inside the step")
	default:
	}
	over.Store(true)
	d.Leave(1)
	d.Enter(1) // may be in before the waiter wakes
	if !<-done {
		t.Error("Wait returned before the end of the step")
	}
	d.Leave(1)
}

func TestEmptyDomainIsQuiet(t *testing.T) {
	var d grace.Domain
	d.Wait()
	if !d.Quiet() {
		t.Error("not quiet")
	}
}

func TestNoAllocation(t *testing.T) {
	d := grace.New(4)
	if n := testing.AllocsPerRun(100, func() { d.Enter(2); d.Quiet(); d.Leave(2); d.Wait() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(*grace.Domain){
		"nested":        func(d *grace.Domain) { d.Enter(0); d.Enter(0) },
		"without Enter": func(d *grace.Domain) { d.Leave(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(grace.New(1))
		}()
	}
}

func BenchmarkStep(b *testing.B) {
	d := grace.New(2)
	for b.Loop() {
		d.Enter(1)
		d.Leave(1)
	}
}
