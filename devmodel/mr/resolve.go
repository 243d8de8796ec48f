// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"

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
type Segment struct {
	IOVA uint64
	Len  uint32
}

// Code is an asynchronous event code (user.h:IRDMA_AE_*).
type Code uint16

// Codes of refused accesses. BadQP belongs to memory windows.
const (
	UnallocatedSTag Code = 0x0102 // AMP_UNALLOCATED_STAG
	InvalidSTag     Code = 0x0103 // AMP_INVALID_STAG
	BadPD           Code = 0x0105 // AMP_BAD_PD
	BadKey          Code = 0x0106 // AMP_BAD_STAG_KEY
	BadIndex        Code = 0x0107 // AMP_BAD_STAG_INDEX
	Bounds          Code = 0x0108 // AMP_BOUNDS_VIOLATION
	Rights          Code = 0x0109 // AMP_RIGHTS_VIOLATION
	Wrap            Code = 0x010A // AMP_TO_WRAP
	ZeroSTag        Code = 0x0206 // STAG_ZERO_INVALID
	Catastrophic    Code = 0x0700 // LCE_QP_CATASTROPHIC: the page list cannot be read
)

var codeNames = map[Code]string{
	UnallocatedSTag: "AMP_UNALLOCATED_STAG", InvalidSTag: "AMP_INVALID_STAG", BadPD: "AMP_BAD_PD", BadKey: "AMP_BAD_STAG_KEY",
	BadIndex: "AMP_BAD_STAG_INDEX", Bounds: "AMP_BOUNDS_VIOLATION", Rights: "AMP_RIGHTS_VIOLATION", Wrap: "AMP_TO_WRAP",
	ZeroSTag: "STAG_ZERO_INVALID", Catastrophic: "LCE_QP_CATASTROPHIC",
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
// rising order, neighbours merged; it does not allocate while the capacity of
// segs suffices. n is at most MaxResolve. On a fault the first result is segs
// as it was.
func (t *Table) Resolve(segs []Segment, s Subject, stag uint32, to uint64, n uint32, need Access, remote bool) ([]Segment, *Fault) {
	q := query{s, stag, to, uint64(n), need, remote}
	out, f := t.resolve(segs, &q, nil)
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
	q := query{s, stag, to, n, need, remote}
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
			t.emit(STagZero{q.use()})
			return nil, q.fault(ZeroSTag, "reserved STag 0")
		}
		if q.to+(q.n-1) < q.to {
			t.emit(STagBounds{Use: q.use()})
			return nil, q.fault(Wrap, "the range wraps")
		}
		return &everything, nil
	}
	index := q.stag >> 8
	i := t.slot(index)
	if i == 0 || i >= uint32(len(t.entries)) {
		t.emit(STagFree{Use: q.use(), Index: i})
		return nil, q.fault(BadIndex, "no such index")
	}
	e := t.entries[i].Load()
	if e == nil {
		t.emit(STagFree{Use: q.use(), Index: i})
		if i >= t.hmc.Count(hmc.MR) {
			return nil, q.fault(BadIndex, "no such index")
		}
		return nil, q.fault(UnallocatedSTag, "the STag is free")
	}
	if e.Index != index {
		t.emit(STagKey{Use: q.use(), Valid: e.STag()})
		return nil, q.fault(BadIndex, "driver bits of the index differ")
	}
	if e.State != Valid {
		t.emit(STagFree{Use: q.use(), Index: i, State: e.State})
		return nil, q.fault(InvalidSTag, "no memory is registered")
	}
	if e.Key != uint8(q.stag) {
		t.emit(STagKey{Use: q.use(), Valid: e.STag()})
		return nil, q.fault(BadKey, "the key differs")
	}
	if e.PD != q.subject.PD {
		t.emit(STagPD{Use: q.use(), Owner: e.PD})
		return nil, q.fault(BadPD, "protection domains differ")
	}
	if q.remote && !e.Remote || q.need&^e.Rights != 0 {
		t.emit(STagRight{Use: q.use(), Rights: e.Rights, RemoteEnabled: e.Remote})
		return nil, q.fault(Rights, "right missing")
	}
	if c := e.bounds(q.to, q.n); c != 0 {
		t.emit(STagBounds{Use: q.use(), Start: e.base(), Length: e.Length})
		return nil, q.fault(c, "outside the region")
	}
	return e, nil
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

func (t *Table) resolve(segs []Segment, q *query, rec *recorder) ([]Segment, *Fault) {
	if q.n == 0 {
		return segs, nil
	}
	if q.n > MaxResolve {
		return segs, q.fault(Bounds, "more than one step")
	}
	e, f := t.lookup(q)
	rec.entry(e)
	if f != nil {
		return segs, f
	}
	p := e.offset() + (q.to - e.base())
	if e.Level == Contiguous {
		return appendSegment(segs, e.Base+p, uint32(q.n)), nil
	}
	var pbles [MaxResolve>>12 + 1]uint64
	first, last := p>>e.PageShift, (p+q.n-1)>>e.PageShift
	pages := pbles[:last-first+1]
	if f := t.pages(e, q, first, pages, rec); f != nil {
		return segs, f
	}
	size := uint64(1) << e.PageShift
	o, left := p&(size-1), q.n
	for i, a := range pages {
		if a&(size-1) != 0 {
			if rec == nil {
				t.emit(PBLEMisaligned{STag: q.stag, Page: first + uint64(i), Value: a, PageSize: size})
			}
			a &^= size - 1
		}
		n := min(left, size-o)
		segs = appendSegment(segs, a+o, uint32(n))
		o, left = 0, left-n
	}
	return segs, nil
}

// appendSegment appends a piece, to the last one where they touch.
func appendSegment(segs []Segment, iova uint64, n uint32) []Segment {
	if k := len(segs) - 1; k >= 0 && segs[k].IOVA+uint64(segs[k].Len) == iova && segs[k].Len+n >= n {
		segs[k].Len += n
		return segs
	}
	return append(segs, Segment{iova, n})
}

// pages reads the PBLEs of pages first… of e into dst.
func (t *Table) pages(e *Entry, q *query, first uint64, dst []uint64, rec *recorder) *Fault {
	if e.Level == Flat {
		return t.read(q, uint64(e.First)+first, dst, rec)
	}
	for len(dst) > 0 {
		var leaf [1]uint64
		if f := t.read(q, uint64(e.First)+first/leafEntries, leaf[:], rec); f != nil {
			return f
		}
		k := first % leafEntries
		n := min(uint64(len(dst)), leafEntries-k)
		if leaf[0] >= 1<<32 {
			if rec == nil {
				t.emit(PBLERange{STag: q.stag, Index: leaf[0], Needed: leafEntries, Count: t.hmc.Count(hmc.PBLE)})
			}
			return q.translation("leaf index in a two-level list beyond the PBLEs")
		}
		if f := t.read(q, leaf[0]+k, dst[:n], rec); f != nil {
			return f
		}
		first, dst = first+n, dst[n:]
	}
	return nil
}

func (q *query) translation(why string) *Fault {
	f := q.fault(Catastrophic, why)
	f.Class = Translation
	return f
}

// read reads len(dst) consecutive PBLEs.
func (t *Table) read(q *query, index uint64, dst []uint64, rec *recorder) *Fault {
	if count := t.hmc.Count(hmc.PBLE); index >= uint64(count) || uint64(len(dst)) > uint64(count)-index {
		if rec == nil {
			t.emit(PBLERange{STag: q.stag, Index: index, Needed: uint64(len(dst)), Count: count})
		}
		return q.translation("page list reaches beyond the PBLEs")
	}
	for len(dst) > 0 {
		n, err := t.hmc.PBLEs(uint32(index), dst)
		if err != nil {
			t.emit(PBLEUnmapped{STag: q.stag, Index: uint32(index), Err: err})
			return q.translation("page list without memory")
		}
		index, dst = index+uint64(n), dst[n:]
	}
	return nil
}
