// SPDX-License-Identifier: Apache-2.0

package reg

import (
	"bytes"
	"testing"
)

func TestAccessKinds(t *testing.T) {
	var cells Cells
	var wrote []uint32
	s := NewSpace(0x2000, nil, []Row{
		{Name: "RW", Offset: 0x10, Reset: 5},
		{Name: "MASKED", Offset: 0x14, Reset: 0xf0, Mask: 0x0f},
		{Name: "RO", Offset: 0x18, Reset: 7, Access: RO, Write: func(_ int, v uint32) { wrote = append(wrote, v) }},
		{Name: "RCW1S", Offset: 0x1c, Access: RCW1S, Cells: &cells},
		{Name: "W1C", Offset: 0x20, Access: W1C, Reset: 0xff},
	})
	for _, c := range []struct {
		name           string
		off, wr, rd    uint32
		readAgainWants uint32
	}{
		{"RW", 0x10, 0xdeadbeef, 0xdeadbeef, 0xdeadbeef},
		{"MASKED", 0x14, 0xffffffff, 0xff, 0xff},
		{"RO", 0x18, 0x123, 7, 7},
		{"RCW1S", 0x1c, 0x30, 0x30, 0},
		{"W1C", 0x20, 0x0f, 0xf0, 0xf0},
		{"unnamed", 0x24, 0x77, 0x77, 0x77},
	} {
		s.Write32(c.off, c.wr)
		if got := s.Read32(c.off); got != c.rd {
			t.Errorf("%s: read %#x after writing %#x, want %#x", c.name, got, c.wr, c.rd)
		}
		if got := s.Read32(c.off); got != c.readAgainWants {
			t.Errorf("%s: second read %#x, want %#x", c.name, got, c.readAgainWants)
		}
	}
	if len(wrote) != 1 || wrote[0] != 0x123 {
		t.Errorf("the handler of RO saw %#x, want the raw value", wrote)
	}
	s.Write32(0x1c, 1)
	s.Write32(0x1c, 2)
	if cells.Get(0) != 3 {
		t.Errorf("RC/W1S holds %#x after setting bits 0 and 1", cells.Get(0))
	}
}

func TestArraysAndWidths(t *testing.T) {
	s := NewSpace(0x10000, nil, []Row{
		{Name: "STATL", Offset: 0x1000, N: 8, Stride: 8, Read: func(i int) uint32 { return uint32(0x10 + i) }},
		{Name: "STATH", Offset: 0x1004, N: 8, Stride: 8, Read: func(i int) uint32 { return uint32(0x20 + i) }},
		{Name: "TWO", Offset: 0x4000, N: 3, Stride: 0x2000, M: 16, Stride2: 4},
	})
	p := make([]byte, 8)
	s.Read(0x1008, p)
	if want := []byte{0x11, 0, 0, 0, 0x21, 0, 0, 0}; !bytes.Equal(p, want) {
		t.Errorf("eight-byte read % x, want % x", p, want)
	}
	s.Write(0x4000+2*0x2000+4*5, []byte{1, 2, 3, 4})
	vals, ok := s.Lookup("TWO")
	if !ok || len(vals) != 1 || vals[0].Name != "TWO(2,5)" || vals[0].Value != 0x04030201 || vals[0].Offset != 0x8014 {
		t.Errorf("lookup of TWO: %+v, %v", vals, ok)
	}
	if _, ok := s.Lookup("NONE"); ok {
		t.Error("an unknown name was found")
	}
}

func TestOddAccesses(t *testing.T) {
	var events []any
	s := NewSpace(0x1000, func(e any) { events = append(events, e) }, []Row{{Name: "R", Offset: 0x10, Reset: 0x44332211}})
	p := make([]byte, 2)
	s.Read(0x11, p)
	if !bytes.Equal(p, []byte{0x22, 0x33}) {
		t.Errorf("two-byte read % x", p)
	}
	s.Write(0x10, []byte{0xff})
	if s.Read32(0x10) != 0x44332211 {
		t.Error("a one-byte write changed a register")
	}
	s.Write32(0x20, 9)
	want := []any{BadAccess{0x11, 2, false}, BadAccess{0x10, 1, true}, Unknown{0x20, 9, true}}
	if len(events) != len(want) {
		t.Fatalf("events %v, want %v", events, want)
	}
	for i := range want {
		if events[i] != want[i] {
			t.Errorf("event %v, want %v", events[i], want[i])
		}
	}
}

func TestResetDomains(t *testing.T) {
	for _, d := range []Domain{PFR, FLR, CORER, GLOBR, EMPR, POR} {
		s := NewSpace(0x1000, nil, []Row{
			{Name: "A", Offset: 0, Domain: PFR}, {Name: "B", Offset: 4, Domain: FLR}, {Name: "C", Offset: 8, Domain: CORER},
			{Name: "D", Offset: 12, Domain: GLOBR}, {Name: "E", Offset: 16, Domain: EMPR}, {Name: "F", Offset: 20, Domain: POR},
		})
		for off := uint32(0); off < 28; off += 4 {
			s.Write32(off, 1)
		}
		s.Reset(d)
		for i := uint32(0); i < 6; i++ {
			want := uint32(1)
			if Domain(i) <= d {
				want = 0
			}
			if got := s.Read32(4 * i); got != want {
				t.Errorf("%v: register of domain %v reads %d, want %d", d, Domain(i), got, want)
			}
		}
		if got := s.Read32(24); (got == 0) != (d >= CORER) {
			t.Errorf("%v: unnamed register reads %d", d, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	if err := NewSpace(0x1000, nil, []Row{{Name: "A", Offset: 0, N: 4, Stride: 8}, {Name: "B", Offset: 4, N: 4, Stride: 8}}).Overlaps(); err != nil {
		t.Errorf("interleaved rows: %v", err)
	}
	if NewSpace(0x1000, nil, []Row{{Name: "A", Offset: 0, N: 4, Stride: 4}, {Name: "B", Offset: 12}}).Overlaps() == nil {
		t.Error("overlapping rows were not seen")
	}
}
