// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Entries that are in a queue when it is resized are found in the old memory,
// later ones in the new; the old memory is the driver's when the operation is
// done.
func TestResizeCQ(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	a, b := newPair(t, m.r, rand.New(rand.NewPCG(9, 1)), pairOptions{})
	next := uint64(0)
	post := func(n int) {
		for range n {
			next++
			must(t, a.qp.PostSend(a.write(next, b, 0, 3000)))
		}
	}
	due := uint64(0)
	take := func(wc WC) error {
		if due++; wc.ID != due || wc.Status != Success {
			t.Errorf("completion %+v, want %d", wc, due)
		}
		return nil
	}
	for _, size := range []int{64, 1000, 8, 701, 300} {
		post(5)
		must(t, a.qp.fetched())
		must(t, a.cq.Resize(size, take))
		must(t, m.f.Guest.Check())
		for range 60 {
			post(3)
			must(t, a.cq.PollFor(int(next-due), take))
		}
	}
	if due != next {
		t.Errorf("%d completions of %d", due, next)
	}
	endSides(t, a, b)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// What was posted and rung for before a resize completes to the old memory, whether
// the data path has come to it or not: the new one may have no room for it.
func TestResizeBehindDoorbells(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	a := newDatagramSide(t, m.r, rand.New(rand.NewPCG(9, 3)), false)
	h := newHandle(t, m.r, m.r.AddressOf(m.r, pairPD, false))
	rounds := 300
	if raced {
		rounds = 30
	}
	for n := range rounds {
		const posted = 20
		for id := range uint64(posted) {
			must(t, a.qp.PostSend(h.Request(a.send(id, 0, 10), a.qp.ID, OwnQKey)))
		}
		due := uint64(0)
		take := func(wc WC) error {
			if wc.ID != due || wc.Status != Success {
				t.Errorf("completion %+v, want %d", wc, due)
			}
			due++
			return nil
		}
		size := []int{8, 701}[n%2]
		must(t, a.cq.Resize(size, take))
		if due != posted {
			t.Fatalf("%d of %d completions before the queue had %d entries", due, posted, size)
		}
		must(t, a.cq.Resize(701, take))
	}
	must(t, h.Destroy())
	endSides(t, a)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// An STag that waits for a fast registration opens nothing.
func TestAllocSTag(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r := m.r
	a, b := newPair(t, r, rand.New(rand.NewPCG(9, 2)), pairOptions{})
	mr, err := r.AllocSTag(pairPD, 16)
	must(t, err)
	w := a.write(1, b, 0, 100)
	w.RKey = mr.STag
	must(t, a.qp.PostSend(w))
	must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.eventsOf(b.qp)) > 0 }))
	if ae := r.eventsOf(b.qp)[0]; ae.Code != IRDMA_AE_AMP_INVALID_STAG && ae.Code != IRDMA_AE_AMP_BAD_STAG_KEY {
		t.Errorf("write to an STag without memory: event %+v", ae)
	}
	must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.eventsOf(a.qp)) > 0 }))
	must(t, r.Work())
	a.waitFor(t, sent(1, RemAccessErr))
	must(t, mr.Dereg())
	if err := mr.Dereg(); err == nil {
		t.Error("DEALLOC_STAG twice succeeds")
	}
	endSides(t, a, b)
	must(t, m.takeDown())
}

// A suspended QP does nothing, and then all of it.
func TestSuspendQP(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	r := m.r
	a, b := newPair(t, r, rand.New(rand.NewPCG(9, 3)), pairOptions{})
	must(t, a.qp.Suspend())
	must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.eventsOf(a.qp)) > 0 }))
	if ae := r.eventsOf(a.qp)[0]; ae.Code != IRDMA_AE_QP_SUSPEND_COMPLETE {
		t.Errorf("event %+v, want IRDMA_AE_QP_SUSPEND_COMPLETE", ae)
	}
	must(t, a.qp.PostSend(a.write(1, b, 0, 5000), a.write(2, b, 5000, 5000)))
	for range 50 {
		_, err := r.Exec(IRDMA_CQP_OP_NOP, WQE{})
		must(t, err)
	}
	a.nothing(t)
	must(t, a.qp.Resume())
	a.waitFor(t, sent(1, Success), sent(2, Success))
	copy(b.mem.want, a.mem.want[:10_000])
	must(t, b.mem.check("behind the pause", 0, 10_000))
	if err := a.qp.Resume(); err == nil {
		t.Error("RESUME_QP of a QP that runs succeeds")
	}
	endSides(t, a, b)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// Objects that only datagrams use, and tables: each can be made, told apart,
// changed and removed, and is not there afterwards.
func TestControlObjects(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r := m.r
	fails := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s succeeds", what)
		}
	}
	mac := [6]byte{2, 3, 4, 5, 6, 7}
	one, err := r.AllocMAC(mac)
	must(t, err)
	two, err := r.AllocMAC(mac)
	must(t, err)
	if one == two {
		t.Errorf("MAC table entry %d is given twice", one)
	}
	must(t, r.FreeMAC(one))
	must(t, r.FreeMAC(two))
	fails("freeing a MAC table entry twice", r.FreeMAC(two))

	stats, err := r.AllocStats()
	must(t, err)
	must(t, r.FreeStats(stats))
	fails("freeing statistics twice", r.FreeStats(stats))

	const ah, dest = 5, 0x0a000002
	must(t, r.addressHandle(IRDMA_CQP_OP_CREATE_ADDR_HANDLE, ah, pairPD, LocalARP, dest))
	must(t, r.addressHandle(IRDMA_CQP_OP_DESTROY_ADDR_HANDLE, ah, pairPD, LocalARP, dest))
	fails("destroying an address handle twice", r.addressHandle(IRDMA_CQP_OP_DESTROY_ADDR_HANDLE, ah, pairPD, LocalARP, dest))

	const group, address = 3, 0xe0000105
	must(t, r.multicast(IRDMA_CQP_OP_CREATE_MCAST_GRP, group, address, r.gsi))
	must(t, r.multicast(IRDMA_CQP_OP_MODIFY_MCAST_GRP, group, address))
	must(t, r.multicast(IRDMA_CQP_OP_DESTROY_MCAST_GRP, group, address))
	fails("destroying a multicast group twice", r.multicast(IRDMA_CQP_OP_DESTROY_MCAST_GRP, group, address))

	const port = 4420
	must(t, r.acceptPort(port, true))
	must(t, r.acceptPort(port, false))
	fails("removing a port twice", r.acceptPort(port, false))

	q := quad{kind: quadTCPEstablished, qp: r.gsi, source: 0x0a000001, dest: dest, srcPort: 5000, dstPort: port}
	must(t, r.quadHash(quadAdd, q))
	fails("adding a hash entry twice", r.quadHash(quadAdd, q))
	other := q
	other.srcPort++
	fails("changing a hash entry that is not there", r.quadHash(quadModify, other))
	must(t, r.quadHash(quadAdd, other))
	must(t, r.quadHash(quadModify, q))
	must(t, r.quadHash(quadDelete, q))
	fails("removing a hash entry twice", r.quadHash(quadDelete, q))
	must(t, r.quadHash(quadDelete, other))

	if page, ok, err := r.allocPushPage(r.gsi.qsHandle); err != nil {
		t.Error(err)
	} else if ok {
		must(t, r.freePushPage(page, r.gsi.qsHandle))
		fails("freeing a push page twice", r.freePushPage(page, r.gsi.qsHandle))
	}
	must(t, r.mapPriorities([8]uint8{0, 1, 2, 3, 4, 5, 6, 7}))

	words, err := r.gsi.Upload()
	must(t, err)
	if got, want := words[168/8], r.gsi.compCtx; got != want {
		t.Errorf("uploaded context has completion context %#x, want %#x", got, want)
	}

	// An event that the driver asks for (verbs.c:irdma_modify_qp_roce does on a
	// QP that it takes to ERROR in 7.3).
	before := len(r.AEs)
	must(t, r.gsi.GenerateAE(IRDMA_AE_LLP_DOUBT_REACHABILITY, aeSourceSQ))
	must(t, r.F.poll("event", func() bool { must(t, r.Work()); return len(r.AEs) > before }))
	if ae := r.AEs[before]; ae.ID != r.gsi.ID || ae.Code != IRDMA_AE_LLP_DOUBT_REACHABILITY {
		t.Errorf("event %+v", ae)
	}
	must(t, m.takeDown())
}

// What of the Tx scheduler and the port a user's tools change.
func TestRareAdminCommands(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	i := m.i
	teid, layer := i.main.node.teid, i.main.node.layer

	id, err := i.addRateProfile(layer)
	must(t, err)
	elem, err := i.schedElem(teid)
	must(t, err)
	const eirValid, eirProfile, weight = 1 << 2, 16, 18
	elem[9] |= eirValid
	le.PutUint16(elem[eirProfile:], id)
	le.PutUint16(elem[weight:], 9)
	must(t, i.configureElem(elem))
	got, err := i.schedElem(teid)
	must(t, err)
	if !bytes.Equal(got[eirProfile:weight+2], elem[eirProfile:weight+2]) {
		t.Errorf("element has % x, want % x", got[eirProfile:weight+2], elem[eirProfile:weight+2])
	}
	if err := i.removeRateProfile(layer, id); aqCode(err) != AQEBUSY {
		t.Errorf("removing a rate profile in use: %v, want EBUSY", err)
	}
	le.PutUint16(elem[eirProfile:], 0) // ICE_SCHED_DFLT_RL_PROF_ID
	must(t, i.configureElem(elem))
	must(t, i.removeRateProfile(layer, id))
	if err := i.removeRateProfile(layer, id); aqCode(err) != AQENOENT {
		t.Errorf("removing a rate profile twice: %v, want ENOENT", err)
	}
	must(t, i.pauseElem(teid, true))
	must(t, i.pauseElem(teid, false))

	c, err := i.direct(ice_aqc_opc_query_pfc_mode)
	must(t, err)
	if c.P[0] != 1 { // what initDCB set
		t.Errorf("0x0302 says mode %d, want 1", c.P[0])
	}
	must(t, i.setMAC([6]byte{2, 9, 9, 9, 9, 9}))
	if err := i.setMAC([6]byte{1, 9, 9, 9, 9, 9}); aqCode(err) != AQEINVAL {
		t.Errorf("a group's address as ours: %v, want EINVAL", err)
	}
	vlan := &Command{Op: ice_aqc_opc_set_vlan_mode, RD: true, Buf: make([]byte, 100)}
	const rdmaPacket, doubleVLAN, singleVLAN = 66, 0x1a, 0x10
	vlan.Buf[rdmaPacket] = doubleVLAN
	if err := i.Do(vlan); aqCode(err) == AQOK {
		t.Errorf("double VLAN mode, which the package does not have: %v", err)
	}
	// Nobody is at the other end of the mailbox.
	if err := i.mbx.do(&Command{Op: ice_mbx_opc_send_msg_to_vf}); aqCode(err) == AQOK {
		t.Errorf("a message to a VF that is not there: %v", err)
	}
	must(t, m.takeDown())
}

// The reset that activates new firmware (devlink.c:ice_devlink_reload_empr_start).
func TestEMPRByCommand(t *testing.T) {
	m, complaints := start(t, Linux73(), Options{})
	_, err := m.i.direct(ice_aqc_opc_nvm_update_empr)
	must(t, err)
	kind, err := m.i.WaitReset()
	must(t, err)
	if kind != EMPR {
		t.Errorf("reset of type %v, want EMPR", kind)
	}
	must(t, m.r.RemoveInReset())
	must(t, m.i.PrepareForReset(true))
	must(t, m.i.CheckReset())
	m.r.Abandon()
	m.i.ResetDone()
	must(t, m.f.Guest.Check())
	must(t, m.i.Rebuild(kind))
	m.r, err = ProbeRDMA(m.i, Options{})
	must(t, err)
	must(t, m.takeDown())
	quiet(t, complaints)
}

// A region has a second STag, of other rights; neither goes with the other.
func TestSharedMR(t *testing.T) {
	m, _ := start(t, Linux73(), Options{})
	r, rnd := m.r, rand.New(rand.NewPCG(9, 4))
	a, b := newPair(t, r, rnd, pairOptions{})
	second, err := r.SharedMR(pairPD, b.mem.mr, b.mem.VA+1<<40, LocalRead|RemoteRead, rnd)
	must(t, err)
	w := a.read(1, b, 0, 9000)
	w.RemoteAddr, w.RKey = second.Addr(0), second.STag
	must(t, a.qp.PostSend(w))
	a.waitFor(t, sent(1, Success))
	moved(t, b, a, 0, 9000)
	must(t, b.mem.mr.Dereg())
	w.RemoteAddr, w.RKey = second.Addr(9000), second.STag
	must(t, a.qp.PostSend(w))
	a.waitFor(t, sent(1, Success))
	must(t, second.Dereg())
	b.mem.mr, err = r.RegMR(pairPD, b.mem.Region, Everything, MROptions{Rand: rnd})
	must(t, err)
	endSides(t, a, b)
	must(t, m.takeDown())
}
