// SPDX-License-Identifier: Apache-2.0

package mr

import "github.com/vrnic/vrnic/devmodel/hmc"

// Read is one PBLE that took part in a translation.
type Read struct {
	Role  string   // "root" or "page"
	HMC   hmc.Walk // how the device found it; Address is where it was read
	Value uint64
}

// Walk is one translation with everything that took part in it.
type Walk struct {
	STag     uint32
	TO       uint64
	Len      uint32
	Entry    *Entry
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

// Explain translates [to, to+n) of stag as the data path does and tells every
// step. It asks as the owner: protection domain and rights are not checked.
// It changes nothing in the device. With an error, the walk is what was done
// until then.
func (t *Table) Explain(stag uint32, to uint64, n uint32) (Walk, error) {
	w := Walk{STag: stag, TO: to, Len: n}
	rec := &recorder{&w}
	q := query{Subject{Privileged: true}, stag, to, uint64(n), 0, false}
	segs, f := t.resolve(nil, &q, rec)
	if f != nil {
		return w, f
	}
	w.Segments = segs
	return w, nil
}
