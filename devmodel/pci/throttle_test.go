// SPDX-License-Identifier: Apache-2.0

package pci

import (
	"sync"
	"testing"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// enabledUnit has vector 3 enabled for receive queue 7 with ITR 0, transmit
// queue 7 with ITR 1 and receive queue 8 with none.
func enabledUnit() *unit {
	u := newUnit()
	u.clock.Advance(time.Second)
	u.Write32(rqCtl+4*7, causeEna|3)
	u.Write32(0x140000+4*7, causeEna|1<<11|3)
	u.Write32(rqCtl+4*8, causeEna|3<<11|3)
	u.Write32(itr0+4*3, 25)         // 50 µs
	u.Write32(itr0+0x2000+4*3, 100) // 200 µs
	u.Write32(dynCtl+4*3, enableVec)
	return u
}

func (u *unit) expect(t *testing.T, what string, n int) {
	t.Helper()
	if len(u.sent) != n {
		t.Errorf("%s: %d messages, want %d", what, len(u.sent), n)
	}
}

func TestThrottle(t *testing.T) {
	const us = time.Microsecond
	again := func(u *unit) { u.Write32(dynCtl+4*3, enableVec) }
	t.Run("interval", func(t *testing.T) {
		u := enabledUnit()
		u.RxQueue(7)
		u.expect(t, "the first comes at once", 1)
		again(u)
		u.RxQueue(7)
		u.expect(t, "the next waits", 1)
		u.clock.Advance(29 * us)
		u.expect(t, "before its time", 1)
		u.RxQueue(7)
		u.expect(t, "the next before its time", 1)
		u.clock.Advance(21 * us)
		u.expect(t, "at its time, two events are one", 2)
		again(u)
		u.clock.Advance(time.Millisecond)
		u.expect(t, "and no more", 2)
		u.RxQueue(7)
		u.expect(t, "late enough, it comes at once", 3)
	})
	t.Run("the shorter cause decides", func(t *testing.T) {
		u := enabledUnit()
		u.TxQueue(7)
		again(u)
		u.TxQueue(7)
		u.clock.Advance(50 * us)
		u.expect(t, "transmit waits longer", 1)
		u.RxQueue(7)
		u.expect(t, "receive need not", 2)
	})
	t.Run("none", func(t *testing.T) {
		u := enabledUnit()
		for range 5 {
			u.RxQueue(8)
			again(u)
		}
		u.expect(t, "ITR_INDX 3", 5)
	})
	t.Run("disabled while waiting", func(t *testing.T) {
		u := enabledUnit()
		u.RxQueue(7)
		again(u)
		u.RxQueue(7)
		u.Write32(dynCtl+4*3, 0)
		u.clock.Advance(time.Millisecond)
		u.expect(t, "disabled", 1)
		again(u)
		u.expect(t, "nothing is lost", 2)
	})
	t.Run("rate", func(t *testing.T) {
		u := enabledUnit()
		u.Write32(0x15A000+4*3, 1<<6|25) // 100 µs
		u.RxQueue(8)
		again(u)
		u.RxQueue(8)
		u.clock.Advance(70 * us)
		u.expect(t, "limited", 1)
		u.clock.Advance(30 * us)
		u.expect(t, "at its time", 2)
		u.Write32(0x15A000+4*3, 25)
		again(u)
		u.RxQueue(8)
		u.expect(t, "without INTRL_ENA", 3)
	})
	t.Run("software", func(t *testing.T) {
		u := enabledUnit()
		u.RxQueue(7)
		u.Write32(dynCtl+4*3, 3<<3|dynSWInt|1)
		u.expect(t, "SWINT_TRIG alone", 2)
		// Leaving busy polling (ice_txrx.c:ice_enable_interrupt).
		u.Write32(dynCtl+4*3, 1|2<<3|25<<5|dynSWInt|1<<24|2<<25)
		u.expect(t, "by SW_ITR_INDX 2", 2)
		u.clock.Advance(50 * us)
		u.expect(t, "at its time", 3)
	})
	t.Run("reset", func(t *testing.T) {
		u := enabledUnit()
		u.RxQueue(7)
		again(u)
		u.RxQueue(7)
		u.Reset(reg.PFR)
		u.clock.Advance(time.Second)
		u.expect(t, "silent", 1)
	})
	// The reset that an interrupt announces may come before a late timer.
	t.Run("global reset", func(t *testing.T) {
		for _, dom := range []reg.Domain{reg.CORER, reg.GLOBR, reg.EMPR} {
			u := enabledUnit()
			u.RxQueue(7)
			again(u)
			u.RxQueue(7)
			u.Reset(dom)
			u.expect(t, "nothing is lost", 2)
			u.clock.Advance(time.Second)
			u.expect(t, "silent", 2)

			u = enabledUnit()
			u.RxQueue(7)
			again(u)
			u.RxQueue(7)
			u.Write32(dynCtl+4*3, 0)
			u.Reset(dom)
			u.expect(t, "a vector that is disabled", 1)
		}
	})
}

// On the real clock waits take their time, and end.
func TestThrottleInRealTime(t *testing.T) {
	sent := make(chan int, 1)
	n := NewInterrupts(engine.RealClock(), func(v int) { sent <- v })
	s := reg.NewSpace(RegisterSize, nil, n.Registers())
	s.Write32(rqCtl, causeEna|1)
	s.Write32(itr0+4, 100) // 200 µs
	start := time.Now()
	for range 20 {
		s.Write32(dynCtl+4, enableVec)
		n.RxQueue(0)
		<-sent
	}
	if d := time.Since(start); d < 19*190*time.Microsecond {
		t.Errorf("20 messages in %v", d)
	}
	n.Release()
}

// No event is lost between senders, a driver that enables again and the timer.
func TestThrottleLosesNothing(t *testing.T) {
	sent := make(chan int, 1000)
	n := NewInterrupts(engine.RealClock(), func(v int) { sent <- v })
	defer n.Release()
	s := reg.NewSpace(RegisterSize, nil, n.Registers())
	s.Write32(rqCtl, causeEna|1)
	s.Write32(itr0+4, 10)
	s.Write32(dynCtl+4, enableVec)
	var mu sync.Mutex
	posted := 0
	const events = 2000
	go func() {
		for range events {
			mu.Lock()
			posted++
			mu.Unlock()
			n.RxQueue(0)
		}
	}()
	for seen := 0; seen < events; {
		<-sent
		mu.Lock()
		seen = posted
		mu.Unlock()
		s.Write32(dynCtl+4, enableVec)
	}
}
