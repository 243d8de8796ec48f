// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// FuzzPBLEWalk translates through page lists, page descriptors and segments of
// the fuzzer's choice: lists that run out of the pool, point at themselves, at
// nothing, or around the end of the address space.
//
// The input is a byte (bit 0 paged segment, bits 2:1 level, 4:3 page size, bit 5
// VA-based, bit 6 all segments reprogrammed), then words: STag index, first
// PBLE, start, length, target offset, bytes, a segment's words, and further
// pairs (where, word) to write into the PBLEs (below 2^32), or to the page of
// page descriptors.
//
// The data path's translation and Explain's agree, pieces add up to what was
// asked for, and every read of a piece either gets memory of the guest or
// faults.
func FuzzPBLEWalk(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		kind := in[0]
		in = in[1:]
		word := func() (v uint64) {
			var b [8]byte
			in = in[copy(b[:], in):]
			return binary.LittleEndian.Uint64(b[:])
		}
		b := newBench(t, kind&1 != 0)
		shift, _ := PageShift(kind >> 3 & 3)
		if shift == 0 {
			shift = 12
		}
		r := Region{Index: uint32(word()) & 0xFFFFFF, Key: 7, PD: 5, Level: Level(kind >> 1 & 3), PageShift: shift, VABased: kind&32 != 0,
			Rights: LocalRead | LocalWrite, First: uint32(word()) & (1<<28 - 1), Start: word(), Length: word() & (1<<46 - 1)}
		to, n := word(), uint32(word())
		sd := word()
		if r.Level == Contiguous {
			r.Base = sd
		}
		registered := b.table.Register(r, by) == nil
		for i := 0; i < 64 && len(in) > 0; i++ {
			at, v := word(), word()
			if at>>63 != 0 && b.pages != nil {
				b.store(b.pdPage+8*(at%512), v)
				continue
			}
			b.store(b.at(uint32(at%pbles)), v)
		}
		if kind&64 != 0 {
			_ = b.hmc.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000 | uint64(b.sd), Data: sd}})
		}
		owner := Subject{PD: r.PD, Privileged: true}
		n %= MaxResolve + 2
		segs, fault := b.table.Resolve(nil, owner, r.STag(), to, n, LocalRead, false)
		if n == 0 {
			if fault != nil || segs != nil {
				t.Errorf("nothing: %v %v", segs, fault)
			}
			return
		}
		if !registered && fault == nil {
			t.Fatal("an STag that was refused works")
		}
		if n <= MaxResolve {
			walk, err := b.table.Explain(r.STag(), to, n)
			if (err == nil) != (fault == nil) {
				t.Fatalf("Explain: %v, Resolve: %v", err, fault)
			}
			if diff := cmp.Diff(segs, walk.Segments); fault == nil && diff != "" {
				t.Fatalf("Explain differs:\n%s", diff)
			}
		}
		if fault != nil {
			if segs != nil {
				t.Errorf("segments beside a fault: %v", segs)
			}
			return
		}
		total := uint64(0)
		for _, s := range segs {
			total += uint64(s.Len)
			p := make([]byte, s.Len)
			inside := s.IOVA >= rdmatest.Base && s.IOVA+uint64(s.Len) > s.IOVA && s.IOVA+uint64(s.Len) <= rdmatest.Base+5<<20
			if err := b.mem.Read(s.IOVA, p); (err == nil) != inside {
				t.Errorf("read of %#x+%#x: %v", s.IOVA, s.Len, err)
			}
		}
		if total != uint64(n) {
			t.Errorf("%d bytes in %d pieces, want %d", total, len(segs), n)
		}
	})
}
