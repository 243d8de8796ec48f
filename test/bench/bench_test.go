// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

func TestFigures(t *testing.T) {
	a, b := samples{20, 10, 90, 30, 40}, samples{10, 10, 30, 10, 10}
	if m := a.median(); m != 30 {
		t.Errorf("median %v, want 30", m)
	}
	if m := a[:4].median(); m != 25 {
		t.Errorf("median of four %v, want 25", m)
	}
	if diff := cmp.Diff(samples{2, 1, 3, 3, 4}, a.over(b)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(samples{1e8, 5e8}, samples{10, 2}.rates()); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		bound  bound
		missed bool
	}{
		{bound{}, false},
		{bound{atMost: 30}, false},
		{bound{atMost: 29.9}, true},
		{bound{atLeast: 30}, false},
		{bound{atLeast: 30.1}, true},
	} {
		if f := (figure{samples: a, bound: c.bound}); f.missed() != c.missed {
			t.Errorf("bound %v of a median of 30: missed %v", c.bound, f.missed())
		}
	}
	if !(figure{}).missed() {
		t.Error("a figure that was never measured counts as kept")
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := writeTable(&b, []figure{
		{name: "read", unit: "ratio", samples: samples{1.5, 1, 1.25}, bound: bound{atMost: 1.15}},
		{name: "doorbells", unit: "1/s", samples: samples{2.5e6}, bound: bound{atLeast: 1e6}},
	}); err != nil {
		t.Fatal(err)
	}
	const want = `| figure    | median       | min – max                   | unit  | bound          | result |
| ---       | ---          | ---                         | ---   | ---            | ---    |
| read      | 1.25         | 1.00 – 1.50                 | ratio | ≤ 1.15         | MISSED |
| doorbells | 2.50 million | 2.50 million – 2.50 million | 1/s   | ≥ 1.00 million | passed |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestEcho: the server that ours is held against does what it is asked, or the
// comparison is worth nothing.
func TestEcho(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "echo")
	startServer(t, buildProgram(t, "echo"), "-socket", socket)
	c, err := vfiouser.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := func(region int, off uint64, want uint32) {
		t.Helper()
		if v, err := c.Read32(region, off); err != nil || v != want {
			t.Errorf("region %d at %#x: %#x, %v; want %#x", region, off, v, err, want)
		}
	}
	want(vfiouser.RegionConfig, 0, 0xec401234)
	if err := c.Write32(vfiouser.RegionBAR0, 8, 0x11223344); err != nil {
		t.Fatal(err)
	}
	want(vfiouser.RegionBAR0, 8, 0x11223344)
	if err := c.Post32(vfiouser.RegionBAR0, 12, 5); err != nil {
		t.Fatal(err)
	}
	want(vfiouser.RegionBAR0, 12, 5)
	if err := c.PostRegions([]vfiouser.RegionWriteOp{
		{Region: vfiouser.RegionBAR0, Offset: 16, Data: []byte{1, 2, 3, 4}},
		{Region: vfiouser.RegionBAR0, Offset: 20, Data: []byte{5, 6, 7, 8}},
	}); err != nil {
		t.Fatal(err)
	}
	want(vfiouser.RegionBAR0, 16, 0x04030201)
	want(vfiouser.RegionBAR0, 20, 0x08070605)
}
