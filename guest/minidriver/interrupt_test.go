// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"testing"
)

// Ten thousand operations whose completions come by interrupt alone: through
// the wrap of the CQP's ring (2048) and of the CCQ (2050), with the arming and
// the re-enabling of the driver. A lost interrupt fails the test.
func TestCQPInterrupts(t *testing.T) {
	const operations = 10_000
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := start(t, k, Options{})
		r := m.r
		before := r.ccq.Events
		for n := range operations {
			if _, err := r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
				t.Fatalf("operation %d: %v", n, err)
			}
		}
		if events := r.ccq.Events - before; events < operations {
			t.Errorf("%d events for %d operations one after the other", events, operations)
		}
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}

// Many operations at once, up to a full ring.
func TestCQPBatches(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r := m.r
	for total := 0; total < 10_000; {
		for _, batch := range []int{1, 2, 63, 511, cqpSize - 1} {
			var last *request
			for n := range batch {
				var err error
				last, err = r.post(IRDMA_CQP_OP_MANAGE_ARP, WQE{2: macWord(m.i.MAC), 3: 1<<42 | 1<<43 | uint64(2+n%8)})
				must(t, err)
			}
			r.cqp.doorbell()
			_, err := r.wait(last)
			must(t, err)
			if used := r.cqp.used(); used != 0 {
				t.Fatalf("%d of %d operations are not completed", used, batch)
			}
			total += batch
		}
	}
	for n := range uint16(8) {
		must(t, r.DropARP(2+n))
	}
	must(t, m.takeDown())
	quiet(t, complaints)
}

// A driver that waits in irdma_wait_event looks at the CCQ itself, too: the
// event comes to an empty queue, which is then not armed again by it.
func TestCQPPolledAndInterrupted(t *testing.T) {
	m, complaints := start(t, Linux612(), Options{})
	r := m.r
	for range 500 {
		req, err := r.post(IRDMA_CQP_OP_NOP, WQE{})
		must(t, err)
		r.cqp.doorbell()
		must(t, m.f.poll("completion", func() bool {
			if err := r.ccqHandler(); err != nil {
				t.Fatal(err)
			}
			return req.done
		}))
		_, err = r.Exec(IRDMA_CQP_OP_NOP, WQE{})
		must(t, err)
	}
	must(t, m.takeDown())
	quiet(t, complaints)
}

// A cause that comes while the vector is disabled is kept until it is enabled,
// and comes once.
func TestInterruptKeptWhileDisabled(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r := m.r
	v := r.ccq.ceq.Vector
	drainVector(t, m, v)
	m.f.Write32(GLINT_DYN_CTL(v.Index), 0)
	req, err := r.post(IRDMA_CQP_OP_NOP, WQE{})
	must(t, err)
	r.cqp.doorbell()
	must(t, m.f.poll("CCQ entry", func() bool { must(t, r.ccqHandler()); return req.done }))
	m.f.flush()
	if n := v.Take(); n != 0 {
		t.Fatalf("%d messages of a disabled vector", n)
	}
	r.rearm(v) // with CLEARPBA
	if n, err := m.f.wait(v); err != nil || n != 1 {
		t.Fatalf("after enabling: %d messages, %v; want the one that was kept", n, err)
	}
	if ctl := m.f.Read32(GLINT_DYN_CTL(v.Index)); ctl&dynCtlINTENA != 0 {
		t.Errorf("GLINT_DYN_CTL is %#x after the message, INTENA must clear itself", ctl)
	}
	must(t, r.Service(v))
	must(t, m.takeDown())
}

// drainVector takes what the vector has and leaves it enabled.
func drainVector(t *testing.T, m *machine, v *Vector) {
	t.Helper()
	if _, err := m.r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
		t.Fatal(err)
	}
	m.f.flush()
	for v.Take() > 0 {
		must(t, m.r.Service(v))
		m.f.flush()
	}
}

// The misc vector's software interrupt, as of `ethtool -t` (ice_ethtool.c:ice_intr_test).
func TestSoftwareInterrupt(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	m.f.Write32(GLINT_DYN_CTL(0), dynCtlSWITRNone|dynCtlINTENAMask|dynCtlSWINTTRIG)
	oicr, _, err := m.i.WaitMisc()
	must(t, err)
	if oicr>>31 == 0 {
		t.Errorf("PFINT_OICR is %#x, want SWINT", oicr)
	}
	if oicr := m.f.Read32(PFINT_OICR); oicr != 0 {
		t.Errorf("PFINT_OICR reads %#x the second time", oicr)
	}
	must(t, m.takeDown())
}

// The admin queue's ring wraps many times.
func TestAdminQueueWrap(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	for n := range 3*aqEntries + 1 {
		c := &Command{Op: ice_aqc_opc_list_dev_caps, Buf: make([]byte, aqBufSize)}
		if n%2 == 0 {
			c = &Command{Op: ice_aqc_opc_get_ver}
		}
		must(t, m.i.Do(c))
	}
	must(t, m.takeDown())
	quiet(t, complaints)
}

// Each CQ has at most one event that is not acknowledged; one that is due
// meanwhile comes after the acknowledgement.
func TestCQEventAndAcknowledgement(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := start(t, k, Options{})
		r := m.r
		cq, err := r.CreateCQ(64, len(r.ceqs)-1, false)
		must(t, err)
		v := cq.ceq.Vector
		cq.Arm(false)
		flushOne(t, r, cq)
		if _, err := m.f.wait(v); err != nil {
			t.Fatal(err)
		}
		if _, ok := cq.Next(); !ok {
			t.Fatal("an event but no entry")
		}
		// Not serviced, so not acknowledged: arming and polling again and again
		// as a user program does must not fill the CEQ.
		for range 4 {
			cq.Arm(false)
			flushOne(t, r, cq)
			if _, ok := cq.Next(); !ok {
				t.Fatal("no entry after a flush")
			}
		}
		if n := pendingEvents(cq.ceq); n != 1 {
			t.Errorf("%d entries in the CEQ, want one until it is acknowledged", n)
		}
		cq.Arm(false)
		flushOne(t, r, cq)
		must(t, r.Service(v)) // takes one, acknowledges; the next comes
		if cq.Events == 1 {
			must(t, r.WaitService(v))
		}
		if cq.Events != 2 {
			t.Errorf("%d events, want 2", cq.Events)
		}
		for {
			if _, ok := cq.Next(); !ok {
				break
			}
		}
		must(t, cq.Destroy())
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}

func pendingEvents(e *CEQ) int {
	n, polarity := 0, e.polarity
	for at := e.tail; e.mem.Load64(at*ceqeSize)&eqeValid == polarity; n++ {
		if at = (at + 1) % e.size; at == 0 {
			polarity ^= eqeValid
		}
	}
	return n
}

// flushOne produces one entry in the CQ: that of a flushed receive queue. It
// leaves no QP behind.
func flushOne(t *testing.T, r *IRDMA, cq *CQ) {
	t.Helper()
	c, err := tryFlush(t, r, cq)
	must(t, err)
	if c.Minor != 2 { // IRDMA_CQP_COMPL_RQ_WQE_FLUSHED
		t.Fatalf("flush of a receive queue completes with %#x, want 2", c.Minor)
	}
}

// tryFlush is flushOne into a CQ that may be broken.
func tryFlush(t *testing.T, r *IRDMA, cq *CQ) (Completion, error) {
	t.Helper()
	qp, err := r.CreateQP(cq, cq)
	must(t, err)
	must(t, qp.Connect(qp.ID))
	must(t, qp.PostRecv(RecvWR{}))
	c, err := qp.Modify(IRDMA_QP_STATE_ERROR)
	must(t, qp.Destroy())
	return c, err
}

// A link that goes and comes is told by a message of the firmware with an
// interrupt (ice_main.c:ice_handle_link_event).
func TestLinkEvent(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	for _, up := range []bool{false, true} {
		const restartAN, linkEnable = 1 << 1, 1 << 2
		c := &Command{Op: ice_aqc_opc_restart_an}
		c.P[2] = restartAN
		if up {
			c.P[2] |= linkEnable
		}
		must(t, m.i.Do(c))
		_, events, err := m.i.WaitMisc()
		must(t, err)
		if len(events) != 1 || events[0].Op != ice_aqc_opc_get_link_status {
			t.Fatalf("link up %v: events %+v", up, events)
		}
		if got := events[0].Data[2]&1 != 0; got != up {
			t.Errorf("event says link up %v, want %v", got, up)
		}
		if m.i.Link.Up != up {
			t.Errorf("link status says up %v, want %v", m.i.Link.Up, up)
		}
	}
	must(t, m.takeDown())
}
