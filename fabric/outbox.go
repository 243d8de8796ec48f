// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// outboxLimit bounds the bytes that wait for a peer; as much again may be on
// its way into the socket. Protocol engines wait where there is a crowd, for a
// while (Port.Crowded); other stations do not, and what they send at once to a
// peer that is only slow is to get there.
const outboxLimit = 64 << 20

// outboxKept is the memory that a queue keeps when it is empty.
const outboxKept = 1 << 20

// crowdedAt is how many bytes that wait are a reason to send no more for a while,
// for senders that can wait.
const crowdedAt = 256 << 10

// crowdPatience is how long nobody waits for a peer that takes nothing at all:
// what is sent to it is lost.
const crowdPatience = time.Second

// wire is the way to a peer. One call of either send method runs at a time.
type wire interface {
	// trySend sends some of the records without waiting and returns how many
	// bytes are dealt with. An error of a wire that cannot go on closes it.
	trySend(records []byte) int
	// send sends all records, waiting for the peer, and tells how many bytes are
	// dealt with as it goes. It returns when that is done, or cannot be done any
	// more.
	send(records []byte, took func(n int))
	Close() error
}

// outbox holds the frames for which the peer has no room at the moment. A
// frame that finds it empty goes straight to the socket on the sender's
// goroutine, since to wake another costs more than to send. When it is full
// frames are dropped.
type outbox struct {
	mu            sync.Mutex
	changed       sync.Cond
	wire          wire // nil: no peer
	clock         engine.Clock
	limit         int // of pending, in bytes; 0: outboxLimit
	pending, work []byte
	frames        uint64 // in pending, the last of which may be a rest
	busy          bool   // run is at work
	taken         int    // bytes of work that are
	closed        bool
	dropped       uint64
	noPeer        uint64

	waiting atomic.Int64 // bytes in pending and work
	moved   atomic.Int64 // when the peer last took any, or had taken all before
}

// put takes a frame. It does not block.
func (o *outbox) put(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.wire == nil:
		o.noPeer++
		return
	case len(o.pending)+lengthLen+len(frame) > cmp.Or(o.limit, outboxLimit):
		o.dropped++
		return
	}
	idle := len(o.pending) == 0 && !o.busy
	o.pending = appendRecord(o.pending, frame)
	if idle {
		o.moved.Store(int64(o.clock.Now()))
		n := o.wire.trySend(o.pending)
		o.pending = o.pending[:copy(o.pending, o.pending[n:])]
	}
	if len(o.pending) > 0 {
		o.frames++
		o.changed.Signal()
	}
	o.account()
}

// account tells what waits. The caller holds mu.
func (o *outbox) account() {
	n := len(o.pending)
	if o.busy {
		n += len(o.work) - o.taken
	}
	o.waiting.Store(int64(n))
}

// took notes that n bytes of work wait no more.
func (o *outbox) took(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken += n
	o.moved.Store(int64(o.clock.Now()))
	o.account()
}

// crowded tells, from any goroutine, whether much waits already for a peer that
// takes it.
func (o *outbox) crowded() bool {
	return o.waiting.Load() > crowdedAt && o.clock.Now()-time.Duration(o.moved.Load()) < crowdPatience
}

// connect changes the peer. Records that wait for the one before are lost.
func (o *outbox) connect(w wire) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wire = w
	o.dropped += o.frames
	o.pending, o.frames = o.pending[:0], 0
	o.account()
}

// run sends what could not be sent at once, until close.
func (o *outbox) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.pending) == 0 && !o.closed {
			o.changed.Wait()
		}
		if o.closed {
			return
		}
		o.pending, o.work, o.frames = o.work[:0], o.pending, 0
		w := o.wire
		o.busy, o.taken = true, 0
		o.mu.Unlock()
		w.send(o.work, o.took)
		o.mu.Lock()
		o.busy = false
		if cap(o.work) > outboxKept {
			o.work = nil
		}
		o.account()
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.wire = true, nil
	o.pending = nil
	o.account()
	o.changed.Broadcast()
}
