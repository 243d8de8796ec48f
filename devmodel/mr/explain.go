// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Read is a PBLE that took part in a translation.
type Read struct {
	Role  string   // "root": of a two-level list; "page"
	HMC   hmc.Walk // how the device found it; Address is where it was read
	Value uint64   // not meaningful if the walk failed
}

// Walk is one translation with everything that took part in it.
type Walk struct {
	STag     uint32
	TO       uint64
	Len      uint32
	Entry    *Entry // nil: there is none
	Parent   *Entry // the region that Entry, a bound window, is bound to
	Reads    []Read
	Segments []Segment
}

// recorder notes the steps of a walk; a nil one notes nothing.
type recorder struct{ walk *Walk }

func (r *recorder) entry(e *Entry) {
	if r != nil {
		r.walk.Entry = e
	}
}

func (r *recorder) parent(e *Entry) {
	if r != nil {
		r.walk.Parent = e
	}
}

// read notes the PBLEs that one walk found, or the walk that found none.
func (r *recorder) read(role string, w hmc.Walk, values []uint64) {
	if len(values) == 0 {
		r.walk.Reads = append(r.walk.Reads, Read{Role: role, HMC: w})
	}
	for _, v := range values {
		r.walk.Reads = append(r.walk.Reads, Read{role, w, v})
		w.Index, w.FPM, w.Address = w.Index+1, w.FPM+8, w.Address+8
	}
}

// MaxExplain is the longest range Explain walks.
const MaxExplain = 1 << 20

// Explain translates [to, to+n) of stag as the data path does and tells every
// step. It asks as the STag's owner: protection domain and rights are not
// checked. It changes nothing in the device and reports nothing. With an
// error, the walk is what was done until then.
func (t *Table) Explain(stag uint32, to uint64, n uint32) (Walk, error) {
	w := Walk{STag: stag, TO: to, Len: n}
	if n == 0 || n > MaxExplain {
		return w, fmt.Errorf("walk of %d bytes: between 1 and %d are possible: %w", n, MaxExplain, ErrParameter)
	}
	q := query{Subject{Privileged: true}, stag, to, uint64(n), 0, false, &recorder{&w}}
	if _, f := t.lookup(&q); f != nil {
		return w, f
	}
	for left := q.n; left > 0; {
		q.n = min(left, MaxResolve)
		var f *Fault
		if w.Segments, f = t.resolve(w.Segments, &q); f != nil {
			return w, f
		}
		q.to, left = q.to+q.n, left-q.n
	}
	return w, nil
}
