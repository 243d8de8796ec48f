// SPDX-License-Identifier: Apache-2.0

package mr

import "github.com/vrnic/vrnic/devmodel/hmc"

// FastRegister makes an allocated STag a VALID region, on the wish of a send
// work request (FAST_REG_NSMR) of s: r's key, range, rights and page list.
// Whether a peer may use it ALLOC_STAG said. 0 is success.
//
// Which of several codes hardware prefers is not known.
func (t *Table) FastRegister(s Subject, r Region, by Origin) Code {
	i, e, code := t.target(r.Index)
	if code == 0 {
		code = t.fastRegister(i, e, s, &r, by)
	}
	if code != 0 {
		t.emit(Refused{By: by, STag: r.STag(), Code: code, Kernel: s.Privileged})
		return code
	}
	return 0
}

// listShift is the page size for which an allocated STag has a list, whatever
// the pages of a registration (verbs.c:irdma_alloc_mr).
const listShift = 12

func (t *Table) fastRegister(i uint32, e *Entry, s Subject, r *Region, by Origin) Code {
	const remote = RemoteRead | RemoteWrite
	switch {
	case e.Kind.Window():
		return FastRegisterWindow
	case e.PD != s.PD:
		return BadPD
	case e.State == Valid:
		return FastRegisterValid
	case r.Rights&remote != 0 && !e.Remote, r.Rights&RemoteWrite != 0 && r.Rights&LocalWrite == 0, r.Rights&RemoteRead != 0 && r.Rights&LocalRead == 0:
		return FastRegisterRights
	case r.Length == 0 || r.Length > e.Limit:
		return FastRegisterLength
	case r.PageShift == 0 || r.Level != Contiguous && r.Level != Flat && r.Level != TwoLevel:
		return FastRegisterPages
	case r.VABased && r.Start+(r.Length-1) < r.Start:
		return Wrap
	case r.pages() > (e.Limit+1<<listShift-1)>>listShift:
		return FastRegisterMismatch
	}
	if t.checkRegion(r, by) != nil {
		return FastRegisterMismatch
	}
	n := &Entry{Region: *r, State: Valid, By: by, Limit: e.Limit}
	n.PD, n.Remote = e.PD, e.Remote
	t.mu.Lock()
	same := t.slots[i].entry.Load() == e
	if same {
		t.put(i, n)
	}
	t.mu.Unlock()
	if !same {
		return FastRegisterValid // somebody else was faster
	}
	t.examine(i, n, maxFastAudit)
	return 0
}

// target finds what a work request is about.
func (t *Table) target(index uint32) (uint32, *Entry, Code) {
	i, e := t.load(index)
	switch {
	case e != nil && e.Index == index:
		return i, e, 0
	case e == nil && i != 0 && i < t.hmc.Count(hmc.MR):
		return i, nil, UnallocatedSTag
	}
	return i, nil, BadIndex
}

// Invalidate ends what an STag allows, on the wish of a work request of s
// (INV_STAG, RDMA_READ_INV_STAG) or of its peer (SEND_INV): a region waits for
// another fast registration, a window for another bind. 0 is success; the
// caller then waits for grace before it tells anybody.
func (t *Table) Invalidate(s Subject, stag uint32, remote bool, by Origin) Code {
	code := t.invalidate(s, stag, remote, by)
	if code != 0 {
		t.emit(Refused{By: by, STag: stag, Code: code, Kernel: s.Privileged, Remote: remote})
	}
	return code
}

func (t *Table) invalidate(s Subject, stag uint32, remote bool, by Origin) Code {
	if stag == 0 {
		return ZeroSTag
	}
	i, e, code := t.target(stag >> 8)
	switch {
	case code != 0:
		return code
	case e.State != Valid:
		return InvalidSTag
	case e.Key != uint8(stag):
		return BadKey
	case e.Kind == Window2 && e.QP != s.QP:
		return BadQP
	case e.PD != s.PD:
		return BadPD
	case e.Kind == Window1:
		return InvalidateWindow1
	case e.Shared:
		return InvalidateShared
	case remote && (!e.Remote || e.Rights&(RemoteRead|RemoteWrite) == 0):
		return InvalidateRights
	}
	n := &Entry{State: Allocated, Kind: e.Kind, By: by, Limit: e.Limit,
		Region: Region{Index: e.Index, Key: e.Key, PD: e.PD, Length: e.Limit, PageShift: e.PageShift, Remote: e.Remote}}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.slots[i].entry.Load() != e:
		return InvalidSTag // somebody else was faster
	case t.slots[i].windows > 0:
		return InvalidateBound
	}
	t.put(i, n)
	t.watch.remove(i, e)
	return 0
}

// Binding is what a window is bound to.
type Binding struct {
	Window, Parent uint32 // STags; the window's key is its new one
	Start, Length  uint64 // in the region's addresses; length 0 unbinds
	VABased        bool   // accesses name those addresses, not offsets
	Rights         Access
	Type1          bool
}

// Bind binds a memory window on the wish of a work request of s (BIND_MW). It
// tells whether an earlier bind has ended by that: then the caller waits for
// grace before it tells anybody. 0 is success.
//
// What hardware compares a window's old key with is not known: ALLOC_STAG does
// not tell the device the key that the driver gives a window, so the key in
// the work request is taken as it is.
func (t *Table) Bind(s Subject, b Binding, by Origin) (ended bool, code Code) {
	ended, code = t.bind(s, &b, by)
	if code != 0 {
		t.emit(Refused{By: by, STag: b.Window, Parent: b.Parent, Code: code, Kernel: s.Privileged})
	}
	return ended, code
}

func (t *Table) bind(s Subject, b *Binding, by Origin) (bool, Code) {
	i, e, code := t.target(b.Window >> 8)
	switch {
	case code != 0:
		return false, code
	case !e.Kind.Window():
		return false, BindRegion
	case e.Kind == Window1 != b.Type1:
		return false, BindType
	case e.PD != s.PD:
		return false, BadPD
	case e.Kind == Window2 && e.State == Valid:
		return false, BindValid
	case e.Kind == Window1 && !b.VABased && b.Length > 0:
		return false, BindZeroBased1
	}
	n := &Entry{State: Allocated, Kind: e.Kind, By: by, Region: Region{Index: e.Index, Key: uint8(b.Window), PD: e.PD, PageShift: e.PageShift}}
	if b.Length > 0 {
		at, parent, code := t.parent(s, b)
		if code != 0 {
			return false, code
		}
		n.State, n.Parent, n.parent, n.parentAt = Valid, parent.STag(), parent, at
		n.Start, n.Length, n.VABased, n.Rights, n.Remote, n.PageShift = b.Start, b.Length, b.VABased, b.Rights, true, parent.PageShift
		if e.Kind == Window2 {
			n.QP = s.QP
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[i].entry.Load() != e {
		return false, BindValid // somebody else was faster
	}
	if p := n.parent; p != nil {
		if now := t.slots[n.parentAt].entry.Load(); now == nil || now.State != Valid || now.STag() != p.STag() {
			return false, BindParent
		}
	}
	t.put(i, n)
	return e.State == Valid, 0
}

// parent is the region that a window is to be bound to. The rights it has to
// have are those of a local access (IBTA, "Bind Memory Window").
func (t *Table) parent(s Subject, b *Binding) (at uint32, p *Entry, code Code) {
	at, p = t.load(b.Parent >> 8)
	switch {
	case p == nil || b.Parent == 0 || p.Index != b.Parent>>8:
		return at, nil, BindParent
	case p.Kind.Window():
		return at, nil, BindToWindow
	case p.State != Valid || p.Key != uint8(b.Parent):
		return at, nil, BindParent
	case p.PD != s.PD:
		return at, nil, BadPD
	case !p.VABased:
		return at, nil, BindZeroBased
	case p.Rights&BindWindow == 0, b.Rights&^(RemoteRead|RemoteWrite) != 0,
		b.Rights&RemoteRead != 0 && p.Rights&LocalRead == 0, b.Rights&RemoteWrite != 0 && p.Rights&LocalWrite == 0:
		return at, nil, BindRights
	case p.bounds(b.Start, b.Length) != 0:
		return at, nil, BindBounds
	}
	return at, p, 0
}
