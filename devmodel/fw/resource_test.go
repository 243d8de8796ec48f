// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func resBuf(kind, count uint16, elems ...uint16) []byte {
	return slices.Concat(u16(kind, count), u16(elems...))
}

// alloc allocates n of a resource, each with its element.
func (b *bench) alloc(kind uint16, n int) (errno, []uint16) {
	b.t.Helper()
	rc, _, out := b.do(0x0208, u16(1), resBuf(kind, uint16(n), make([]uint16, n)...))
	var ids []uint16
	for i := range n {
		if rc == rcOK {
			ids = append(ids, get16(out, 4+2*i))
		}
	}
	return rc, ids
}

// Each countable resource ends where drivers need it to, and what was freed
// is handed out again.
func TestResourcePools(t *testing.T) {
	for _, c := range []struct {
		kind, highest uint16
	}{
		{0x03, 1023}, {0x84, 1023}, {0x21, 15}, {0x58, 127}, {0x59, 511}, {0x60, 127}, {0x61, 511},
	} {
		b := newBench(t)
		seen, rc := map[uint16]bool{}, rcOK
		for range 3000 {
			var ids []uint16
			if rc, ids = b.alloc(c.kind, 1); rc != rcOK {
				break
			}
			if seen[ids[0]] || ids[0] > c.highest {
				t.Fatalf("type %#x: %d handed out", c.kind, ids[0])
			}
			seen[ids[0]] = true
		}
		if rc != rcENOSPC || !seen[c.highest] {
			t.Errorf("type %#x: %v after %d, want ENOSPC after %d", c.kind, rc, len(seen), c.highest)
		}
		free := c.kind &^ 0x80 // the driver frees without the shared flag
		b.must(0x0209, u16(1), resBuf(free, 1, 5))
		b.want(rcENOENT, 0x0209, u16(1), resBuf(free, 1, 5))
		if rc, _ := b.alloc(c.kind, 2); rc != rcENOSPC {
			t.Errorf("type %#x: two where one is left: %v", c.kind, rc)
		}
		if _, ids := b.alloc(c.kind, 1); !slices.Equal(ids, []uint16{5}) {
			t.Errorf("type %#x: %v, want the freed 5", c.kind, ids)
		}
		b.must(0x02A4, nil, nil)
		if rc, _ := b.alloc(c.kind, 1); rc != rcOK {
			t.Errorf("type %#x: %v after Clear PF Configuration", c.kind, rc)
		}
	}
}

func TestResourceOrder(t *testing.T) {
	b := newBench(t)
	_, low := b.alloc(0x61|1<<13, 3)
	_, high := b.alloc(0x61|1<<12|1<<13, 2) // SCAN_BOTTOM
	if d := cmp.Diff([][]uint16{{0, 1, 2}, {511, 510}}, [][]uint16{low, high}); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// 6.1 frees several and says so in the parameters
	// (ice_common.c:ice_free_hw_res).
	b.must(0x0209, u16(3), resBuf(0x61, 3, 0, 1, 2))
	if _, ids := b.alloc(0x61, 1); ids[0] != 0 {
		t.Errorf("%v, want 0", ids)
	}
}

// Flow director entries are a quantity: one element for as many as wanted.
func TestResourceQuantity(t *testing.T) {
	b := newBench(t)
	for _, kind := range []uint16{0x22, 0x23 | 1<<7} {
		_, out := b.must(0x0208, u16(1), resBuf(kind, 1000, 0xFFFF))
		if len(out) != 6 || get16(out, 2) != 1000 || get16(out, 4) != 0 {
			t.Errorf("type %#x: % x", kind, out)
		}
		b.want(rcENOSPC, 0x0208, u16(1), resBuf(kind, 25, 0))
		_, out = b.must(0x0208, u16(1), resBuf(kind, 24, 0))
		if get16(out, 4) != 1000 {
			t.Errorf("type %#x: first %d, want 1000", kind, get16(out, 4))
		}
		b.want(rcENOENT, 0x0209, u16(1), resBuf(kind, 65535, 0))
		b.want(rcENOENT, 0x0209, u16(1), resBuf(kind, 25, 1000))
		b.must(0x0209, u16(1), resBuf(kind, 1000, 0))
		b.want(rcENOENT, 0x0209, u16(1), resBuf(kind, 1000, 0))
		// The first 1000 are free again and so is nothing behind them.
		_, out = b.must(0x0208, u16(1), resBuf(kind, 500, 0))
		_, next := b.must(0x0208, u16(1), resBuf(kind, 250, 0))
		if get16(out, 4) != 0 || get16(next, 4) != 500 {
			t.Errorf("type %#x: first %d and %d, want 0 and 500", kind, get16(out, 4), get16(next, 4))
		}
		b.must(0x0209, u16(1), resBuf(kind, 500, 0))
		b.want(rcENOSPC, 0x0208, u16(1), resBuf(kind, 501, 0)) // 750 are free, not in a row
	}
}

func TestResourceRefused(t *testing.T) {
	b := newBench(t)
	for _, op := range []uint16{0x0208, 0x0209} {
		b.want(rcEINVAL, op, u16(1), resBuf(0x7F, 1, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x58, 0, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x58, 2, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x58, 0xFFFF, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x03, 2, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x22, 0, 0))
		b.want(rcEINVAL, op, u16(1), resBuf(0x58, 1))
	}
	b.want(rcENOSPC, 0x0208, u16(1), resBuf(0x05, 1, 0)) // recipes
	b.want(rcENOENT, 0x0209, u16(1), resBuf(0x60, 1, 0xFFFF))
	_, list := b.alloc(0x03, 1)
	b.want(rcENOENT, 0x0209, u16(1), resBuf(0x04, 1, list[0])) // of the other kind
	b.must(0x0209, u16(1), resBuf(0x03, 1, list[0]))
}
