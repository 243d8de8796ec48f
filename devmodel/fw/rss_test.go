// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"bytes"
	"slices"
	"testing"
)

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*3 + seed
	}
	return b
}

func TestRSSKey(t *testing.T) {
	b := newBench(t)
	n, m := b.addVSI(), b.addVSI()
	key := pattern(52, 7)
	b.must(0x0B02, named(n), key)
	if _, out := b.must(0x0B04, named(n), make([]byte, 52)); !bytes.Equal(out, key) {
		t.Errorf("key % x", out)
	}
	if _, out := b.must(0x0B04, named(m), make([]byte, 52)); !bytes.Equal(out, make([]byte, 52)) {
		t.Errorf("key of the other VSI % x", out)
	}
	if v, _ := b.f.VSI(n); !bytes.Equal(v.RSSKey[:], key) {
		t.Errorf("snapshot % x", v.RSSKey)
	}
	for _, op := range []uint16{0x0B02, 0x0B04} {
		b.want(rcENOENT, op, named(m+1), key)
		b.want(rcEINVAL, op, u16(n), key)
		b.want(rcEINVAL, op, named(n), key[:51])
	}
}

func TestRSSLUT(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	lut := func(flags uint16) []byte { return slices.Concat(named(n), u16(flags)) }
	pf, own := pattern(2048, 1), pattern(64, 2)
	b.must(0x0B03, lut(1|2<<2), pf)
	b.must(0x0B03, lut(0), own)
	if got := b.f.RSSTable(); !bytes.Equal(got[:], pf) {
		t.Error("PF table differs")
	}
	// 6.1 asks for the PF table without its size code.
	for _, flags := range []uint16{1 | 2<<2, 1} {
		if _, out := b.must(0x0B05, lut(flags), make([]byte, 2048)); !bytes.Equal(out, pf) {
			t.Errorf("PF table read with flags %#x differs", flags)
		}
	}
	if _, out := b.must(0x0B05, lut(0), make([]byte, 64)); !bytes.Equal(out, own) {
		t.Errorf("VSI table % x", out)
	}
	b.want(rcEINVAL, 0x0B03, lut(1|2<<2), pf[:512])
	b.want(rcEINVAL, 0x0B03, lut(1|1<<2), pf)
	b.want(rcEINVAL, 0x0B03, lut(0), pf)
	b.want(rcENOENT, 0x0B03, lut(2|1<<2), pf[:512]) // no global table
	b.want(rcENOENT, 0x0B03, lut(3), own)
	b.want(rcEINVAL, 0x0B05, lut(1), make([]byte, 64))
	b.want(rcENOENT, 0x0B03, slices.Concat(named(n+1), u16(0)), own)
	b.must(0x0213, named(n), nil)
	b.want(rcENOENT, 0x0B05, lut(0), make([]byte, 64))
	b.must(0x02A4, nil, nil)
	if got := b.f.RSSTable(); !bytes.Equal(got[:], make([]byte, 2048)) {
		t.Error("PF table outlived Clear PF Configuration")
	}
}
