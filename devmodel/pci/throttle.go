// SPDX-License-Identifier: Apache-2.0

package pci

import "time"

// Units of GLINT_ITR and GLINT_RATE, as GL_PWR_MODE_CTL says
// (ice_common.c:ice_get_itr_intrl_gran).
const (
	itrUnit  = 2 * time.Microsecond
	rateUnit = 4 * time.Microsecond

	rateInterval = 0x3f
	rateEna      = 1 << 6 // INTRL_ENA

	// soon is a wait that is not worth a timer: waking up takes longer.
	soon = 20 * time.Microsecond

	longAgo = -time.Hour
)

// throttle is when messages were sent and may be sent.
type throttle struct {
	last [maxVectors]time.Duration // when the vector sent one
	due  [maxVectors]time.Duration // when the pending event may be sent

	// Vectors that wait for the timer, which is set for the first; 0: it is
	// not.
	waits         [maxVectors]bool
	waiting, took []int
	armed         time.Duration
}

func (t *throttle) reset() {
	for v := range t.last {
		t.last[v] = longAgo
	}
	t.waits, t.waiting, t.armed = [maxVectors]bool{}, t.waiting[:0], 0
}

// event is one enabled cause reaching vector v. Of several, the one that may be
// sent first decides.
func (n *Interrupts) event(v int, itr uint32) {
	if v >= maxVectors {
		return
	}
	t := &n.throttle
	due := t.last[v]
	if itr != itrNone {
		due += time.Duration(n.itr.Get(int(itr)*maxVectors+v)) * itrUnit
	}
	if !n.pending[v] || due < t.due[v] {
		t.due[v] = due
	}
	n.pending[v] = true
	n.deliver(v)
}

// deliver sends the message of a vector that is enabled and has an event, or
// has it wait for its time.
func (n *Interrupts) deliver(v int) {
	if !n.pending[v] || !n.enabled[v] {
		return
	}
	t, due := &n.throttle, n.throttle.due[v]
	if r := n.rate.Get(v); r&rateEna != 0 {
		due = max(due, t.last[v]+time.Duration(r&rateInterval)*rateUnit)
	}
	now := n.clock.Now()
	if due > now+soon {
		n.wait(v, now, due)
		return
	}
	n.send(v, now)
}

// send sends the message of a vector, which disables itself.
func (n *Interrupts) send(v int, now time.Duration) {
	n.pending[v], n.enabled[v] = false, false
	n.throttle.last[v] = now
	if v < Vectors {
		n.signal(v)
	}
}

func (n *Interrupts) wait(v int, now, due time.Duration) {
	t := &n.throttle
	if !t.waits[v] {
		t.waits[v] = true
		t.waiting = append(t.waiting, v)
	}
	if t.armed == 0 || due < t.armed {
		t.armed = due
		n.timer.Reset(due - now)
	}
}

// expired is the time of a vector that waits. Who finds it too early waits on.
func (n *Interrupts) expired() {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := &n.throttle
	t.armed = 0
	t.waiting, t.took = t.took[:0], t.waiting
	for _, v := range t.took {
		t.waits[v] = false
		n.deliver(v)
	}
}

// flush sends what waits for nothing but its time.
func (n *Interrupts) flush() {
	now := n.clock.Now()
	for _, v := range n.throttle.waiting {
		if n.pending[v] && n.enabled[v] {
			n.send(v, now)
		}
	}
}
