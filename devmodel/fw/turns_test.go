// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"runtime"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// source is a data path that is in a step until it is told to end it.
type source struct{ over chan struct{} }

func (s source) Quiet() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s source) Wait() { <-s.over }

// lockedDriver is a driver of firmware that works on by itself.
func lockedDriver(t *testing.T, s source) (d *testDriver, mu *sync.Mutex) {
	mu = &sync.Mutex{}
	d = &testDriver{TB: t, mem: &testMemory{t, make([]byte, memSize)}}
	d.f = New(Config{Mem: d.mem, Grace: s, Lock: mu, Event: func() { d.interrupts++ }, EMPR: func() { d.f.Reset(reg.EMPR) }})
	t.Cleanup(d.f.Close)
	d.regs = reg.NewSpace(8<<20, nil, d.f.Registers())
	return d, mu
}

func quiet() source {
	s := source{make(chan struct{})}
	close(s.over)
	return s
}

// post writes a command without a buffer to slot i.
func (d *testDriver) post(i uint32, op uint16) []byte {
	desc := d.mem.b[atqRing+i*descSize:][:descSize]
	clear(desc)
	le.PutUint16(desc[2:], op)
	return desc
}

// A tail write for a whole ring does not keep the control lock to its end.
func TestALongQueueIsServedInTurns(t *testing.T) {
	d, mu := lockedDriver(t, quiet())
	const n = 1000
	for i := range uint32(n) {
		d.post(i, 0x0001)
	}
	mu.Lock()
	d.setUp(fwATQ, stepFW, memBase+atqRing, 1023)
	d.regs.Write32(fwATQ+4*stepFW, n)
	if head := d.regs.Read32(fwATQ + 3*stepFW); head == 0 || head > 2*serveLimit {
		t.Errorf("%d commands in the doorbell's own turn", head)
	}
	for d.regs.Read32(fwATQ+3*stepFW) != n {
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
	}
	mu.Unlock()
}

// Disabling a transmit queue is answered when the data path is done with it;
// a reset or a new queue before that drops the answer.
func TestDisableTxQueueWaits(t *testing.T) {
	for _, x := range []struct {
		name     string
		between  func(d *testDriver)
		answered bool
	}{
		{"undisturbed", func(*testDriver) {}, true},
		{"reset", func(d *testDriver) { d.f.Reset(reg.PFR); d.regs.Reset(reg.PFR) }, false},
		{"switched off", func(d *testDriver) { d.regs.Write32(fwATQ+2*stepFW, 0) }, false},
	} {
		s := source{make(chan struct{})}
		d, mu := lockedDriver(t, s)
		desc := d.post(0, 0x02A4) // clear_pf_cfg stops all queues
		d.post(1, 0x0001)
		mu.Lock()
		d.setUp(fwATQ, stepFW, memBase+atqRing, entries)
		d.regs.Write32(fwATQ+4*stepFW, 2)
		if le.Uint16(desc)&flagDD != 0 || d.regs.Read32(fwATQ+3*stepFW) != 0 {
			t.Errorf("%s: answered during a step", x.name)
		}
		x.between(d)
		mu.Unlock()
		close(s.over)
		if x.answered {
			for head := uint32(0); head != 2; runtime.Gosched() {
				mu.Lock()
				head = d.regs.Read32(fwATQ + 3*stepFW)
				mu.Unlock()
			}
		}
		d.f.Close() // nothing is under way any more
		if got := le.Uint16(desc)&flagDD != 0; got != x.answered {
			t.Errorf("%s: answered %t", x.name, got)
		}
	}
}

// The reset of the embedded processor follows the answer to the command.
func TestUpdateEMPR(t *testing.T) {
	d, mu := lockedDriver(t, quiet())
	desc := d.post(0, 0x0709)
	next := d.post(1, 0x0001)
	d.f.log.registered = true
	mu.Lock()
	defer mu.Unlock()
	d.setUp(fwATQ, stepFW, memBase+atqRing, entries)
	d.regs.Write32(fwATQ+4*stepFW, 2)
	if le.Uint16(desc)&(flagDD|flagERR) != flagDD || le.Uint16(desc[6:]) != 0 {
		t.Errorf("descriptor % x", desc[:8])
	}
	if d.f.log.registered {
		t.Error("no reset")
	}
	if le.Uint16(next)&flagDD != 0 {
		t.Error("a command was executed after the reset began")
	}
}
