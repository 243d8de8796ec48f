// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"
	"math"

	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

// MaxResolve is the longest access Resolve translates at once.
const MaxResolve = 64 << 10

// Subject is who asks for an access.
type Subject struct {
	PD         uint32
	QP         uint32
	Privileged bool // PRIVEN: may use the reserved STag 0
}

// Segment is a piece of guest memory.
type Segment = guestmem.Segment

// Code is an asynchronous event code (user.h:IRDMA_AE_*).
type Code uint16

// Codes of refused accesses and changes.
const (
	UnallocatedSTag      Code = 0x0102
	InvalidSTag          Code = 0x0103
	BadQP                Code = 0x0104 // of a window that belongs to another one
	BadPD                Code = 0x0105
	BadKey               Code = 0x0106
	BadIndex             Code = 0x0107
	Bounds               Code = 0x0108
	Rights               Code = 0x0109
	Wrap                 Code = 0x010A
	FastRegisterValid    Code = 0x010C
	FastRegisterWindow   Code = 0x010D
	FastRegisterRights   Code = 0x010E
	FastRegisterLength   Code = 0x0110
	InvalidateShared     Code = 0x0111
	InvalidateRights     Code = 0x0112
	InvalidateBound      Code = 0x0113
	BindValid            Code = 0x0114
	BindRegion           Code = 0x0115
	BindZeroBased        Code = 0x0116
	BindToWindow         Code = 0x0117
	BindRights           Code = 0x0118
	BindBounds           Code = 0x0119
	BindParent           Code = 0x011A
	BindDisabled         Code = 0x011B
	Denied               Code = 0x011C
	InvalidateWindow1    Code = 0x011D
	BindZeroBased1       Code = 0x011E
	FastRegisterPages    Code = 0x011F
	BindType             Code = 0x0120
	FastRegisterMismatch Code = 0x0121
	ZeroSTag             Code = 0x0206
	Catastrophic         Code = 0x0700 // the page list cannot be read
)

var codeNames = map[Code]string{
	UnallocatedSTag: "AMP_UNALLOCATED_STAG", InvalidSTag: "AMP_INVALID_STAG", BadQP: "AMP_BAD_QP", BadPD: "AMP_BAD_PD",
	BadKey: "AMP_BAD_STAG_KEY", BadIndex: "AMP_BAD_STAG_INDEX", Bounds: "AMP_BOUNDS_VIOLATION", Rights: "AMP_RIGHTS_VIOLATION",
	Wrap: "AMP_TO_WRAP", FastRegisterValid: "AMP_FASTREG_VALID_STAG", FastRegisterWindow: "AMP_FASTREG_MW_STAG",
	FastRegisterRights: "AMP_FASTREG_INVALID_RIGHTS", FastRegisterLength: "AMP_FASTREG_INVALID_LENGTH",
	InvalidateShared: "AMP_INVALIDATE_SHARED", InvalidateRights: "AMP_INVALIDATE_NO_REMOTE_ACCESS_RIGHTS",
	InvalidateBound: "AMP_INVALIDATE_MR_WITH_BOUND_WINDOWS", BindValid: "AMP_MWBIND_VALID_STAG", BindRegion: "AMP_MWBIND_OF_MR_STAG",
	BindZeroBased: "AMP_MWBIND_TO_ZERO_BASED_STAG", BindToWindow: "AMP_MWBIND_TO_MW_STAG", BindRights: "AMP_MWBIND_INVALID_RIGHTS",
	BindBounds: "AMP_MWBIND_INVALID_BOUNDS", BindParent: "AMP_MWBIND_TO_INVALID_PARENT", BindDisabled: "AMP_MWBIND_BIND_DISABLED",
	Denied: "PRIV_OPERATION_DENIED", InvalidateWindow1: "AMP_INVALIDATE_TYPE1_MW", BindZeroBased1: "AMP_MWBIND_ZERO_BASED_TYPE1_MW",
	FastRegisterPages: "AMP_FASTREG_INVALID_PBL_HPS_CFG", BindType: "AMP_MWBIND_WRONG_TYPE",
	FastRegisterMismatch: "AMP_FASTREG_PBLE_MISMATCH", ZeroSTag: "STAG_ZERO_INVALID", Catastrophic: "LCE_QP_CATASTROPHIC",
}

func (c Code) String() string { return codeNames[c] }

// Class tells what kind of failure a Fault is.
type Class uint8

const (
	// Protection: STag, rights or range are wrong. A responder answers a
	// remote access error.
	Protection Class = iota
	// Translation: the access is allowed, but the device cannot reach the
	// page list. A responder answers a remote operational error.
	Translation
)

// Fault is a refused access.
type Fault struct {
	Code  Code
	Class Class
	STag  uint32
	TO    uint64
	Len   uint64
	Why   string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("STag %#08x, %#x+%#x: %v: %s", f.STag, f.TO, f.Len, f.Code, f.Why)
}

// Resolve appends to segs the guest memory behind [to, to+n) of stag, in
// rising order, neighbours among them merged; it does not allocate while the capacity of
// segs suffices. n is at most MaxResolve. On a fault the first result is segs
// as it was.
func (t *Table) Resolve(segs []Segment, s Subject, stag uint32, to uint64, n uint32, need Access, remote bool) ([]Segment, *Fault) {
	q := query{s, stag, to, uint64(n), need, remote, nil}
	out, f := t.resolve(segs, &q)
	if f != nil {
		return segs, f
	}
	return out, nil
}

// Check tells whether [to, to+n) of stag may be accessed, without a walk
// through its page list.
func (t *Table) Check(s Subject, stag uint32, to, n uint64, need Access, remote bool) *Fault {
	if n == 0 {
		return nil
	}
	q := query{s, stag, to, n, need, remote, nil}
	_, f := t.lookup(&q)
	return f
}

// query is one access.
type query struct {
	subject Subject
	stag    uint32
	to, n   uint64
	need    Access
	remote  bool
	rec     *recorder // a person asks: as the owner, and nothing is reported
}

// report sends the event of a broken rule.
func (t *Table) report(q *query, event any) {
	if q.rec == nil {
		t.emit(event)
	}
}

func (q *query) use() Use {
	return Use{STag: q.stag, QP: q.subject.QP, PD: q.subject.PD, TO: q.to, Len: q.n, Need: q.need, Remote: q.remote, Kernel: q.subject.Privileged}
}

func (q *query) fault(c Code, why string) *Fault {
	return &Fault{Code: c, STag: q.stag, TO: q.to, Len: q.n, Why: why}
}

// everything is what STag 0 stands for: bus addresses, no bounds.
var everything = Entry{State: Valid, Region: Region{VABased: true, PageShift: 12, Rights: LocalRead | LocalWrite}}

// lookup finds the entry and checks all that can be checked without its page
// list, in the order hardware's codes suggest.
func (t *Table) lookup(q *query) (*Entry, *Fault) {
	if q.stag == 0 {
		if q.remote || !q.subject.Privileged {
			t.report(q, STagZero{q.use()})
			return nil, q.fault(ZeroSTag, "reserved STag 0")
		}
		if q.to+(q.n-1) < q.to {
			t.report(q, STagBounds{Use: q.use()})
			return nil, q.fault(Wrap, "the range wraps")
		}
		q.rec.entry(&everything)
		return &everything, nil
	}
	index := q.stag >> 8
	i, e := t.load(index)
	if e == nil || e.Index != index {
		return nil, t.unknown(q, i, e)
	}
	q.rec.entry(e)
	if e.State != Valid {
		t.report(q, STagInvalid{Use: q.use(), Kind: e.Kind, By: e.By})
		return nil, q.fault(InvalidSTag, "no memory is registered")
	}
	if e.Key != uint8(q.stag) {
		t.report(q, STagKey{Use: q.use(), Valid: e.STag()})
		return nil, q.fault(BadKey, "the key differs")
	}
	if e.QP != 0 && e.QP != q.subject.QP && q.rec == nil {
		t.report(q, STagQP{Use: q.use(), Owner: e.QP})
		return nil, q.fault(BadQP, "the window belongs to another QP")
	}
	if e.PD != q.subject.PD && q.rec == nil {
		t.report(q, STagPD{Use: q.use(), Owner: e.PD})
		return nil, q.fault(BadPD, "protection domains differ")
	}
	if q.remote && !e.Remote || q.need&^e.Rights != 0 {
		t.report(q, STagRight{Use: q.use(), Rights: e.Rights, RemoteEnabled: e.Remote})
		return nil, q.fault(Rights, "right missing")
	}
	if c := e.bounds(q.to, q.n); c != 0 {
		t.report(q, STagBounds{Use: q.use(), Start: e.base(), Length: e.Length})
		return nil, q.fault(c, "outside the region")
	}
	return e, nil
}

// unknown is the fault of an STag that is not there: in its place, slot i, is
// e, or nothing.
func (t *Table) unknown(q *query, i uint32, e *Entry) *Fault {
	last, was := Ended{}, false
	if q.rec == nil {
		last, was = t.ended(q.stag >> 8)
	}
	if was {
		t.report(q, STagEnded{Use: q.use(), Last: last})
	}
	switch {
	case e != nil:
		q.rec.entry(e)
		if !was {
			t.report(q, STagKey{Use: q.use(), Valid: e.STag()})
		}
		return q.fault(BadIndex, "driver bits of the index differ")
	case !was:
		t.report(q, STagFree{Use: q.use(), Index: i})
	}
	if i == 0 || i >= t.hmc.Count(hmc.MR) {
		return q.fault(BadIndex, "no such index")
	}
	return q.fault(UnallocatedSTag, "the STag is free")
}

// base is the target offset of the first byte.
func (e *Entry) base() uint64 {
	if e.VABased {
		return e.Start
	}
	return 0
}

// bounds checks [to, to+n), n > 0; 0 means inside.
func (e *Entry) bounds(to, n uint64) Code {
	if to+(n-1) < to {
		return Wrap
	}
	base := e.base()
	if to < base {
		return Bounds
	}
	if rel := to - base; e.Length != 0 && (rel > e.Length || n > e.Length-rel) {
		return Bounds
	}
	return 0
}

func (t *Table) resolve(segs []Segment, q *query) ([]Segment, *Fault) {
	if q.n == 0 {
		return segs, nil
	}
	if q.n > MaxResolve {
		return segs, q.fault(Bounds, "more than one step")
	}
	e, f := t.lookup(q)
	if f != nil {
		return segs, f
	}
	p := q.to - e.base()
	if e.parent != nil {
		p += e.Start - e.parent.base()
		e = e.parent
		q.rec.parent(e)
	}
	p += e.offset()
	if e.Level == Contiguous {
		return append(segs, Segment{IOVA: e.Base + p, Len: uint32(q.n)}), nil
	}
	var pbles [MaxResolve>>12 + 1]uint64
	first, last := p>>e.PageShift, (p+q.n-1)>>e.PageShift
	pages := pbles[:last-first+1]
	if f := t.pages(e, q, first, pages); f != nil {
		return segs, f
	}
	size := uint64(1) << e.PageShift
	o, left, old := p&(size-1), q.n, len(segs)
	for i, a := range pages {
		if a == 0 || a&(size-1) != 0 {
			t.badPBLE(q, e, first+uint64(i), a)
			a &^= size - 1
		}
		n := min(left, size-o)
		if k := len(segs) - 1; k >= old && segs[k].IOVA+uint64(segs[k].Len) == a+o {
			segs[k].Len += uint32(n)
		} else {
			segs = append(segs, Segment{IOVA: a + o, Len: uint32(n)})
		}
		o, left = 0, left-n
	}
	return segs, nil
}

// pages reads the PBLEs of pages first… of e into dst.
func (t *Table) pages(e *Entry, q *query, first uint64, dst []uint64) *Fault {
	if e.Level == Flat {
		return t.read(q, "page", uint64(e.First)+first, dst)
	}
	for len(dst) > 0 {
		var leaf [1]uint64
		if f := t.read(q, "root", uint64(e.First)+first/leafEntries, leaf[:]); f != nil {
			return f
		}
		k := first % leafEntries
		n := min(uint64(len(dst)), leafEntries-k)
		if leaf[0] > math.MaxUint32 { // more bits than an index has
			return t.beyond(q, leaf[0], n)
		}
		if f := t.read(q, "page", leaf[0]+k, dst[:n]); f != nil {
			return f
		}
		first, dst = first+n, dst[n:]
	}
	return nil
}

// read reads len(dst) consecutive PBLEs.
func (t *Table) read(q *query, role string, index uint64, dst []uint64) *Fault {
	for len(dst) > 0 {
		if index > math.MaxUint32 {
			return t.beyond(q, index, uint64(len(dst)))
		}
		n, err := t.words(q.rec, role, uint32(index), dst)
		if err != nil {
			if index >= uint64(t.hmc.Count(hmc.PBLE)) {
				return t.beyond(q, index, uint64(len(dst)))
			}
			t.report(q, PBLEUnmapped{STag: q.stag, Index: uint32(index), Err: err})
			return q.translation(fmt.Sprintf("page list without memory: %v", err))
		}
		index, dst = index+uint64(n), dst[n:]
	}
	return nil
}

// words reads as many PBLEs as one walk reaches. It is the one place where
// the data path and Explain differ: the latter keeps nothing and records.
func (t *Table) words(rec *recorder, role string, index uint32, dst []uint64) (int, error) {
	if rec == nil {
		return t.hmc.PBLEs(index, dst)
	}
	n, w, err := t.hmc.ExplainPBLEs(index, dst)
	rec.read(role, w, dst[:n])
	return n, err
}

// beyond is the fault of a page list that leaves the committed PBLEs.
func (t *Table) beyond(q *query, index, needed uint64) *Fault {
	count := t.hmc.Count(hmc.PBLE)
	t.report(q, PBLERange{STag: q.stag, Index: index, Needed: needed, Count: count})
	return q.translation(fmt.Sprintf("page list names PBLE %#x, there are %d", index, count))
}

func (q *query) translation(why string) *Fault {
	f := q.fault(Catastrophic, why)
	f.Class = Translation
	return f
}
