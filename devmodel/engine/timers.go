// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/heap"
	"sync"
	"time"
)

// timers hold the tasks that want to run at some time. One timer of the clock
// serves all of them, and a deadline that moves on, as that of a connection
// making progress does with every packet, costs one atomic store: the heap
// keeps the old time and looks again when it comes.
type timers struct {
	clock Clock
	timer Timer

	mu     sync.Mutex
	byTime taskHeap
	armed  time.Duration // when timer fires; 0: it does not
}

func (w *timers) init(c Clock) {
	w.clock = c
	w.timer = c.NewTimer(w.fire)
}

// add puts t into the heap, or moves it up there, for its deadline at.
func (w *timers) add(t *Task, at time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.due.Store(int64(at))
	if t.inHeap {
		heap.Fix(&w.byTime, t.heapIndex)
	} else {
		heap.Push(&w.byTime, t)
	}
	w.arm()
}

// arm sets the clock's timer to the first task in the heap.
func (w *timers) arm() {
	if len(w.byTime) == 0 {
		return
	}
	first := time.Duration(w.byTime[0].due.Load())
	if w.armed != 0 && w.armed <= first {
		return
	}
	w.armed = first
	w.timer.Reset(max(first-w.clock.Now(), 0))
}

func (w *timers) fire() {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = 0
	for len(w.byTime) > 0 && time.Duration(w.byTime[0].due.Load()) <= now {
		t := w.byTime[0]
		at := time.Duration(t.deadline.Load())
		if at > now {
			t.file(at)
			heap.Fix(&w.byTime, 0)
			continue
		}
		heap.Pop(&w.byTime)
		t.due.Store(0)
		// The deadline may have been set between the two loads and have seen
		// the task still in the heap; running it once too often mends that.
		t.Schedule()
	}
	w.arm()
}

// file sets the time under which the heap has the task. An earlier deadline
// set meanwhile saw the old time and left the heap alone: look until what is
// filed is what is wanted.
func (t *Task) file(at time.Duration) {
	for {
		t.due.Store(int64(at))
		next := time.Duration(t.deadline.Load())
		if next == 0 || next >= at {
			return
		}
		at = next
	}
}

func (w *timers) stop() { w.timer.Stop() }

// taskHeap orders tasks by due.
type taskHeap []*Task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].due.Load() < h[j].due.Load() }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

func (h *taskHeap) Push(x any) {
	t := x.(*Task)
	t.heapIndex, t.inHeap = len(*h), true
	*h = append(*h, t)
}

func (h *taskHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.inHeap = false
	return t
}
