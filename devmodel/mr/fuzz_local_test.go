// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/mr"
)

// FuzzChanges plays commands and work requests of the fuzzer's choice, 8 bytes
// each, on a few STags: what is being done, to which, by whom, and fields.
//
// The table never loses count of windows, no access goes through an STag that
// does not allow it, and in the end all of it can be deallocated.
func FuzzChanges(f *testing.F) {
	f.Add([]byte{0x00, 1, 0, 0, 0, 0, 0, 0, 0x03, 1, 0, 1, 0, 0, 0, 0, 0x05, 1, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x02, 1, 0, 0x1F, 2, 0, 1, 1, 0x01, 2, 1, 0, 0, 0, 0, 0, 0x04, 2, 0, 0x0C, 1, 1, 0, 1, 0x06, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBench(t, true)
		b.name(&Region{Level: Flat}, pagesOf(64))
		by := Origin{Op: "FUZZ", QP: 1}
		for ; len(in) >= 8; in = in[8:] {
			op, n := in[0], binary.LittleEndian.Uint64(in)
			index := uint32(in[1]%8) | uint32(in[1]>>7)<<20
			s := Subject{PD: uint32(in[2] & 1), QP: 7 + uint32(in[2]>>1&1), Privileged: in[2]&4 != 0}
			r := Region{Index: index, Key: in[7] & 3, PD: s.PD, Length: uint64(in[4]) << (in[5] & 15), Start: uint64(in[6]) << 9, VABased: in[2]&8 != 0,
				Level: Level(in[2] >> 4 & 3), PageShift: 12 + 9*(in[2]>>6&1), Rights: Access(in[3] & 31), Remote: in[3]&32 != 0, First: uint32(in[5]), Base: 0x10_0000}
			stag := index<<8 | uint32(in[7]&3)
			switch op % 9 {
			case 0:
				_ = b.table.Allocate(r, Memory, by)
			case 1:
				_ = b.table.Allocate(Region{Index: index, PD: s.PD, PageShift: 12}, Kind(1+in[3]&1), by)
			case 2:
				_ = b.table.Register(r, Origin{Op: "FUZZ"})
			case 3:
				b.table.FastRegister(s, r, by)
			case 4:
				b.table.Bind(s, Binding{Window: stag, Parent: uint32(in[4]%8)<<8 | uint32(in[5]&3), Start: r.Start, Length: uint64(in[5]) << 4, VABased: r.VABased,
					Rights: r.Rights, Type1: in[3]&32 != 0}, by)
			case 5:
				b.table.Invalidate(s, stag, in[3]&1 != 0, by)
			case 6:
				_ = b.table.Deallocate(index, s.PD, in[3]&1 != 0, by)
			case 7:
				_ = b.table.Share(r, uint32(in[4]%8), by)
			case 8:
				need := Access(1 << (in[3] & 3))
				segs, fault := b.table.Resolve(nil, s, stag, n>>40&0x1FFFF, uint32(in[4])+1, need, in[3]&128 != 0)
				allowed(b, s, stag, need, in[3]&128 != 0, fault == nil, segs)
			}
		}
		windows := map[uint32]uint32{}
		for _, e := range b.table.Entries() {
			if e.Kind.Window() && e.State == Valid {
				windows[e.Parent]++
			}
		}
		entries := b.table.Entries()
		for _, e := range entries {
			if e.Kind == Memory && e.Windows != windows[e.STag()] || e.Windows > 0 && e.State != Valid {
				t.Fatalf("%+v has %d windows", e, windows[e.STag()])
			}
		}
		for _, last := range []bool{false, true} { // windows first
			for _, e := range entries {
				if (e.Kind == Memory) != last {
					continue
				}
				if err := b.table.Deallocate(e.Index, e.PD, last, by); err != nil {
					t.Fatal(err)
				}
			}
		}
		if b.table.Len() != 0 {
			t.Fatalf("%d STags left", b.table.Len())
		}
	})
}

// allowed checks an access that was made against the entry.
func allowed(b *bench, s Subject, stag uint32, need Access, remote, ok bool, segs []Segment) {
	if !ok || stag == 0 {
		return
	}
	for _, e := range b.table.Entries() {
		if e.STag() != stag {
			continue
		}
		if e.State != Valid || e.PD != s.PD || need&^e.Rights != 0 || remote && !e.Remote || e.Kind == Window2 && e.QP != s.QP || len(segs) == 0 {
			b.t.Fatalf("%+v allows %v of %+v", e, need, s)
		}
		return
	}
	b.t.Fatalf("STag %#x does not exist and allows an access", stag)
}

// The errors of commands are of the two kinds that have codes.
func TestErrorsHaveCodes(t *testing.T) {
	b := newBench(t, false)
	for _, err := range []error{
		b.table.Allocate(Region{Index: 0}, Memory, by),
		b.table.Register(Region{Index: 3, Level: 2, Length: 1}, by),
		b.table.Share(Region{Index: 3}, 4, by),
		b.table.Deallocate(3, 0, true, by),
		b.table.Query(3),
	} {
		if !errors.Is(err, ErrParameter) && !errors.Is(err, ErrState) && !errors.Is(err, hmc.ErrAccess) {
			t.Errorf("%v", err)
		}
	}
}
