// SPDX-License-Identifier: Apache-2.0

package guestmem

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// twoMaps has 4 pages at 0x10000 in two maps that touch, and a read-only page
// at 0x20000.
func twoMaps(t testing.TB) *Memory {
	t.Helper()
	f := memfd(t, 8*4096)
	t.Cleanup(func() { f.Close() })
	m := &Memory{}
	for _, r := range []struct {
		iova, size, off uint64
		writable        bool
	}{{0x10000, 0x1000, 0x2000, true}, {0x11000, 0x3000, 0x4000, true}, {0x20000, 0x1000, 0, false}} {
		if err := m.Map(r.iova, r.size, dup(t, f), r.off, true, r.writable); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(m.UnmapAll)
	return m
}

func contents(t *testing.T, m *Memory, iova uint64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	if err := m.Read(iova, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCopyMovesEveryByte(t *testing.T) {
	a, b := twoMaps(t), twoMaps(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, dst := range []*Memory{a, b} {
		for range 500 {
			n := uint32(random.IntN(0x1800))
			if random.IntN(4) == 0 {
				n = uint32(random.IntN(20))
			}
			from := 0x10000 + random.Uint64N(0x2000-uint64(n))
			to := 0x12000 + random.Uint64N(0x2000-uint64(n))
			before := contents(t, dst, 0x10000, 0x4000)
			want := contents(t, a, from, int(n))
			if err := Copy(dst, to, a, from, n); err != nil {
				t.Fatal(err)
			}
			copy(before[to-0x10000:], want)
			if got := contents(t, dst, 0x10000, 0x4000); !bytes.Equal(got, before) {
				t.Fatalf("copy of %d bytes %#x -> %#x is wrong", n, from, to)
			}
		}
	}
}

func TestCopySegments(t *testing.T) {
	a, b := twoMaps(t), twoMaps(t)
	src := []Segment{{0x20010, 3}, {0x10ffe, 5}, {0x10000, 0}, {0x12345, 700}}
	dst := []Segment{{0x13000, 1}, {0x10ffb, 300}, {0x12000, 600}} // longer than src
	var want []byte
	for _, s := range src {
		want = append(want, contents(t, a, s.IOVA, int(s.Len))...)
	}
	untouched := contents(t, b, 0x12000+708-301, 100)
	if err := CopySegments(b, dst, a, src); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, s := range dst {
		got = append(got, contents(t, b, s.IOVA, int(s.Len))...)
	}
	if !bytes.Equal(got[:708], want) {
		t.Error("wrong bytes")
	}
	if !bytes.Equal(contents(t, b, 0x12000+708-301, 100), untouched) {
		t.Error("bytes behind the shorter list changed")
	}
}

func TestCopyFaultsMoveNothing(t *testing.T) {
	a, b := twoMaps(t), twoMaps(t)
	for _, c := range []struct {
		name     string
		dst, src uint64
		n        uint32
		op       string
	}{
		{"source absent", 0x10000, 0x30000, 8, "read"},
		{"source ends in a hole", 0x10000, 0x13ff0, 17, "read"},
		{"target ends in a hole", 0x13ff0, 0x10000, 17, "write"},
		{"target read-only", 0x20000, 0x10000, 1, "write"},
		{"source wraps", 0x10000, ^uint64(0), 2, "read"},
		{"target wraps", ^uint64(7), 0x10000, 16, "write"},
	} {
		before := contents(t, b, 0x10000, 0x4000)
		err := Copy(b, c.dst, a, c.src, c.n)
		var f *Fault
		if !errors.As(err, &f) || f.Op != c.op {
			t.Errorf("%s: %v, want a %s fault", c.name, err, c.op)
		}
		if !bytes.Equal(contents(t, b, 0x10000, 0x4000), before) {
			t.Errorf("%s: something moved", c.name)
		}
	}
	if err := Copy(b, 0xdead0000, a, 0xdead0000, 0); err != nil {
		t.Errorf("copy of nothing: %v", err)
	}
}

// The address space ends at 2^64, with memory at both its ends, too.
func TestCopyDoesNotGoOnAtZero(t *testing.T) {
	f := memfd(t, 2*4096)
	defer f.Close()
	m := &Memory{}
	defer m.UnmapAll()
	for off, iova := range []uint64{^uint64(0) - 4095, 0} {
		if err := m.Map(iova, 4096, dup(t, f), uint64(off)*4096, true, true); err != nil {
			t.Fatal(err)
		}
	}
	before := contents(t, m, 0, 4096)
	end := ^uint64(0) - 7 // 8 bytes from the end
	for op, err := range map[string]error{
		"read":  Copy(m, 0x100, m, end, 9),
		"write": CopySegments(m, []Segment{{0x100, 8}, {end, 9}}, m, []Segment{{0x200, 17}}),
	} {
		var fault *Fault
		if !errors.As(err, &fault) || fault.Op != op {
			t.Errorf("%v, want a %s fault", err, op)
		}
	}
	if !bytes.Equal(contents(t, m, 0, 4096), before) {
		t.Error("something moved")
	}
	if err := Copy(m, 0x100, m, end, 8); err != nil {
		t.Errorf("up to the last byte: %v", err)
	}
}

func TestCopyFromAndToATruncatedFile(t *testing.T) {
	f := memfd(t, 4*4096)
	defer f.Close()
	short := &Memory{}
	if err := short.Map(0x10000, 4*4096, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	defer short.UnmapAll()
	whole := twoMaps(t)
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	var fault *Fault
	if err := Copy(whole, 0x10000, short, 0x11000, 4096); !errors.As(err, &fault) || fault.Op != "read" {
		t.Errorf("from it: %v", err)
	}
	if err := Copy(short, 0x11000, whole, 0x10000, 4096); !errors.As(err, &fault) || fault.Op != "write" {
		t.Errorf("to it: %v", err)
	}
	if err := whole.Write(0x10000, []byte{1}); err != nil {
		t.Errorf("access afterwards: %v", err)
	}
	if err := Copy(whole, 0x12000, short, 0x10000, 4096); err != nil {
		t.Errorf("the page that is left: %v", err)
	}
}

// Copies in both directions beside unmapping must not block each other.
func TestCopiesBothWaysWhileMapsChange(t *testing.T) {
	a, b := twoMaps(t), twoMaps(t)
	extra := memfd(t, 4096)
	defer extra.Close()
	var wg sync.WaitGroup
	for _, dir := range [][2]*Memory{{a, b}, {b, a}, {a, a}} {
		wg.Go(func() {
			for range 2000 {
				if err := Copy(dir[0], 0x12000, dir[1], 0x10000, 0x1800); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		for _, m := range []*Memory{a, b} {
			if err := m.Map(0x50000, 4096, dup(t, extra), 0, true, true); err != nil {
				t.Fatal(err)
			}
			if err := m.Unmap(0x50000, 4096); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
}

func TestCopyDoesNotAllocate(t *testing.T) {
	a, b := twoMaps(t), twoMaps(t)
	src, dst := []Segment{{0x10800, 0x1000}, {0x12000, 64}}, []Segment{{0x12010, 0x1040}}
	if n := testing.AllocsPerRun(1000, func() {
		if Copy(a, 0x12000, b, 0x10000, 64) != nil || CopySegments(a, dst, b, src) != nil {
			t.Error("copy fails")
		}
	}); n != 0 {
		t.Errorf("%v allocations per copy", n)
	}
}

func BenchmarkCopy(b *testing.B) {
	m := twoMaps(b)
	for _, n := range []uint32{64, 4096, 8192} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := Copy(m, 0x12000, m, 0x10000, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestGatherScatter(t *testing.T) {
	m := twoMaps(t)
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var list []Segment
		var want []byte
		for at := uint64(0x10000); at < 0x13000; at += 0x1000 {
			s := Segment{at + random.Uint64N(0x800), uint32(random.IntN(0x800*random.IntN(2) + 12))}
			list = append(list, s)
			want = append(want, contents(t, m, s.IOVA, int(s.Len))...)
		}
		n := random.IntN(len(want) + 50)
		p := make([]byte, n)
		if err := m.Gather(p, list); err != nil {
			t.Fatal(err)
		}
		n = min(n, len(want))
		if !bytes.Equal(p[:n], want[:n]) {
			t.Fatalf("gathered wrong bytes of %v", list)
		}
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		all := contents(t, m, 0x10000, 0x4000)
		rest := p[:n]
		for _, s := range list {
			rest = rest[copy(all[s.IOVA-0x10000:][:s.Len], rest):]
		}
		if err := m.Scatter(list, p); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contents(t, m, 0x10000, 0x4000), all) {
			t.Fatalf("scattered wrong bytes to %v", list)
		}
	}
	before := contents(t, m, 0x10000, 0x4000)
	for _, c := range []struct {
		name string
		err  error
		op   string
	}{
		{"source ends in a hole", m.Gather(make([]byte, 100), []Segment{{0x10000, 90}, {0x13ffd, 10}}), "read"},
		{"target ends in a hole", m.Scatter([]Segment{{0x10000, 90}, {0x13ffd, 10}}, make([]byte, 100)), "write"},
		{"target read-only", m.Scatter([]Segment{{0x10000, 90}, {0x20000, 10}}, make([]byte, 91)), "write"},
	} {
		var f *Fault
		if !errors.As(c.err, &f) || f.Op != c.op {
			t.Errorf("%s: %v, want a %s fault", c.name, c.err, c.op)
		}
	}
	if !bytes.Equal(contents(t, m, 0x10000, 0x4000), before) {
		t.Error("what failed moved something")
	}
	p, list := make([]byte, 600), []Segment{{0x10f00, 300}, {0x12000, 300}}
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Gather(p, list), m.Scatter(list, p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A file cut short under its map is a fault, and what it holds survives nothing.
func TestScatterTruncated(t *testing.T) {
	f := memfd(t, 2*4096)
	defer f.Close()
	m := &Memory{}
	if err := m.Map(0x10000, 0x2000, dup(t, f), 0, true, true); err != nil {
		t.Fatal(err)
	}
	defer m.UnmapAll()
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	p, list := make([]byte, 300), []Segment{{0x10000, 100}, {0x11000, 200}}
	for _, err := range []error{m.Gather(p, list), m.Scatter(list, p)} {
		var fault *Fault
		if !errors.As(err, &fault) || fault.IOVA != 0x11000 {
			t.Errorf("%v", err)
		}
	}
}
