// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"sync"

	"github.com/vrnic/vrnic/devmodel/grace"
)

// settle begins the wait for steps on other shards that may be using an STag
// the QP has just ended. It never blocks: the QP is scheduled when the wait is
// over, which settled tells. Only its own step calls it.
func (q *QP) settle() (ticket uint64) {
	if q.shard.Alone() {
		return 0
	}
	q.waits++
	q.table.waiter.add(q, q.waits)
	return q.waits
}

// settled tells whether the wait is over.
func (q *QP) settled(ticket uint64) bool { return q.waited.Load() >= ticket }

// waiter waits for steps that are under way, for QPs, on a goroutine that is
// there only while one of them waits.
type waiter struct {
	grace *grace.Domain

	mu      sync.Mutex
	queue   []ticket
	running bool
	done    sync.WaitGroup
}

type ticket struct {
	qp *QP
	n  uint64
}

func (w *waiter) add(q *QP, n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, ticket{q, n})
	if !w.running {
		w.running = true
		w.done.Go(w.run)
	}
}

func (w *waiter) run() {
	var batch []ticket
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		batch, w.queue = w.queue, batch[:0]
		w.mu.Unlock()
		w.grace.Wait()
		for i, t := range batch {
			t.qp.waited.Store(t.n)
			t.qp.task.Schedule()
			batch[i] = ticket{}
		}
	}
}

// Close returns when no goroutine of the table runs any more. Steps may go on.
func (t *Table) Close() { t.waiter.done.Wait() }
