// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	. "github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Sizes of the test function: its PBLEs fill part of one segment.
const (
	regions = 64
	pbles   = 200 * 512
)

// bench is a table over a real HMC with its PBLEs in guest memory.
type bench struct {
	t      testing.TB
	mem    *guestmem.Memory
	hmc    *hmc.Cache
	table  *Table
	space  *reg.Space
	events []any
	oicr   uint32

	pages  []uint64 // paged: guest address of each page of PBLEs
	direct uint64   // direct: of the first PBLE
	pdPage uint64
	sd     uint32 // segment of the PBLEs
	next   uint32 // first free PBLE
	limit  uint32 // how many there are
}

const (
	sdAt   = rdmatest.Base         // 2 MiB of the static objects
	pbleAt = rdmatest.Base + 2<<20 // 2 MiB of PBLEs
	spare  = rdmatest.Base + 4<<20 // a page to move PBLEs to
	pdAt   = rdmatest.Base + 4<<20 + 4096
	pdinv  = 0x520300 // PFHMC_PDINV
)

func newBench(t testing.TB, paged bool) *bench {
	t.Helper()
	b := &bench{t: t, mem: rdmatest.Memory(t, 5<<20), limit: pbles}
	p := hmc.SmallGuest()
	if paged {
		p.PBLEPage = 1
	}
	emit := func(e any) { b.events = append(b.events, e) }
	b.hmc = hmc.New(hmc.Config{Mem: b.mem, Emit: emit, OICR: func(v uint32) { b.oicr |= v }, Profile: p})
	b.space = reg.NewSpace(8<<20, nil, b.hmc.Registers())
	b.table = New(Config{HMC: b.hmc, Emit: emit})
	var buf [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(buf[48:], regions)
	binary.LittleEndian.PutUint64(buf[112:], pbles)
	if err := b.hmc.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	base := binary.LittleEndian.Uint64(buf[112:]) >> 32 * 512
	b.sd = uint32(base >> 21)
	sds := []hmc.SDEntry{{Cmd: 0x80008000, Data: sdAt | 0x803}}
	if !paged {
		b.direct = sdAt + base // all in segment 0, which reaches into pbleAt's
	} else {
		b.pdPage = pdAt
		order := rand.New(rand.NewPCG(3, 4)).Perm(512)
		for i := range uint64(pbles / 512) {
			at := pbleAt + 4096*uint64(order[i])
			b.pages = append(b.pages, at)
			pd := base>>12&511 + i
			b.store(b.pdPage+8*pd, at|1)
			b.space.Write32(pdinv, b.sd|1<<15|uint32(pd)<<16)
		}
		sds = append(sds, hmc.SDEntry{Cmd: 0x80008000 | uint64(b.sd), Data: b.pdPage | 0x801})
	}
	if err := b.hmc.UpdateSDs(sds); err != nil {
		t.Fatal(err)
	}
	if err := b.hmc.PagesAllocated(); err != nil {
		t.Fatal(err)
	}
	return b
}

// newBigBench has n PBLEs, paged, in as much memory as they take.
func newBigBench(t testing.TB, n uint32) *bench {
	t.Helper()
	pages := uint64(n+511) / 512
	b := &bench{t: t, mem: rdmatest.Memory(t, 6<<20+pages<<12), limit: n}
	p := hmc.SmallGuest()
	p.PBLEPage = 1
	emit := func(e any) { b.events = append(b.events, e) }
	b.hmc = hmc.New(hmc.Config{Mem: b.mem, Emit: emit, Profile: p})
	b.space = reg.NewSpace(8<<20, nil, b.hmc.Registers())
	b.table = New(Config{HMC: b.hmc, Emit: emit})
	var buf [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(buf[48:], regions)
	binary.LittleEndian.PutUint64(buf[112:], uint64(n))
	if err := b.hmc.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	base := binary.LittleEndian.Uint64(buf[112:]) >> 32 * 512
	sds := []hmc.SDEntry{{Cmd: 0x80008000, Data: sdAt | 0x803}}
	at := uint64(pbleAt)
	for sd := base >> 21; sd <= (base+8*uint64(n)-1)>>21; sd++ {
		pd := at
		at += 4096
		for i := range uint64(512) {
			fpm := sd<<21 + i<<12
			if fpm < base || fpm >= base+8*uint64(n) {
				continue
			}
			b.pages = append(b.pages, at)
			b.store(pd+8*i, at|1)
			b.space.Write32(0x520300, uint32(sd|1<<15|i<<16)) // PFHMC_PDINV
			at += 4096
		}
		sds = append(sds, hmc.SDEntry{Cmd: 0x80008000 | sd, Data: pd | 0x801})
	}
	for chunk := range slices.Chunk(sds, 3) {
		if err := b.hmc.UpdateSDs(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.hmc.PagesAllocated(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) store(at, v uint64) {
	if err := b.mem.Store64(at, v); err != nil {
		b.t.Fatal(err)
	}
}

// at is where PBLE i is, computed without the walk.
func (b *bench) at(i uint32) uint64 {
	if b.pages == nil {
		return b.direct + 8*uint64(i)
	}
	return b.pages[i/512] + 8*uint64(i%512)
}

// list writes words to fresh PBLEs as a driver's CPU does.
func (b *bench) list(words []uint64) (first uint32) {
	first = b.next
	for i, w := range words {
		b.store(b.at(first+uint32(i)), w)
	}
	b.next += uint32(len(words)+7) &^ 7
	if b.next > b.limit {
		b.t.Fatal("out of PBLEs")
	}
	return first
}

// name puts a page list into r at r.Level (pble.c:get_lvl2_pble).
func (b *bench) name(r *Region, pages []uint64) {
	switch r.Level {
	case Contiguous:
		r.Base = pages[0]
	case Flat:
		r.First = b.list(pages)
	case TwoLevel:
		var leaves []uint64
		for leaf := range slices.Chunk(pages, 512) {
			leaves = append(leaves, uint64(b.list(leaf)))
		}
		r.First = b.list(leaves)
	}
}

func (b *bench) register(r Region) {
	b.t.Helper()
	if err := b.table.Register(r, by); err != nil {
		b.t.Fatal(err)
	}
}

// flat is the independent translation: page by page, byte by byte.
func flat(r *Region, pages []uint64, to uint64, i uint64) uint64 {
	rel := to + i
	if r.VABased {
		rel -= r.Start
	}
	size := uint64(1) << r.PageShift
	o := r.Start%size + rel
	return pages[o/size] + o%size
}

func checkFlat(t testing.TB, segs []Segment, r *Region, pages []uint64, to, n uint64) {
	t.Helper()
	var i uint64
	for _, s := range segs {
		for k := range uint64(s.Len) {
			if want := flat(r, pages, to, i); s.IOVA+k != want {
				t.Fatalf("level %d, page shift %d, VA-based %t, start %#x: byte %d of %#x+%#x is %#x, want %#x",
					r.Level, r.PageShift, r.VABased, r.Start, i, to, n, s.IOVA+k, want)
			}
			i++
		}
	}
	if i != n {
		t.Fatalf("%d bytes translated, want %d", i, n)
	}
}

// by is who changes tables in these tests.
var by = Origin{Op: "IRDMA_CQP_OP_REG_MR", WQE: 17}

var owner = Subject{PD: 0x2ABCD, QP: 7}

// Every translation equals a flat page map that knows nothing of levels.
func TestResolveEqualsFlatMap(t *testing.T) {
	for _, paged := range []bool{false, true} {
		random := rand.New(rand.NewPCG(11, 17))
		b := newBench(t, paged)
		for i := range 150 {
			b.next = 0
			r := Region{
				Index: uint32(1+random.IntN(regions-1)) | random.Uint32N(1<<10)<<14, Key: uint8(random.Uint32()), PD: owner.PD,
				VABased: random.IntN(2) == 0, Level: []Level{Contiguous, Flat, TwoLevel}[i%3],
				PageShift: []uint8{12, 21, 30}[i/3%3], Rights: LocalRead,
			}
			size := uint64(1) << r.PageShift
			count := uint64(1 + random.IntN(1+min(random.IntN(3000), int((1<<45)/size))))
			pages := make([]uint64, count)
			for k := range pages {
				pages[k] = random.Uint64N(1<<44) &^ (size - 1)
				if k > 0 && (r.Level == Contiguous || random.IntN(4) == 0) {
					pages[k] = pages[k-1] + size
				}
			}
			first := random.Uint64N(size)
			r.Start = first
			if r.VABased {
				r.Start += random.Uint64N(1<<47) &^ (size - 1)
			}
			low, high := uint64(1), count*size-first // the last byte lies in the last page
			if count > 1 {
				low = (count-1)*size - first + 1
			}
			r.Length = low + random.Uint64N(high-low+1)
			b.name(&r, pages)
			b.register(r)
			base := uint64(0)
			if r.VABased {
				base = r.Start
			}
			var segs []Segment
			for range 40 {
				n := min(1+random.Uint64N(MaxResolve), r.Length)
				if random.IntN(2) == 0 {
					n = 1 + random.Uint64N(min(n, 300))
				}
				off := random.Uint64N(r.Length - n + 1)
				if random.IntN(4) == 0 {
					off = r.Length - n // up to the last byte
				}
				var f *Fault
				segs, f = b.table.Resolve(segs[:0], owner, r.STag(), base+off, uint32(n), LocalRead, false)
				if f != nil {
					t.Fatal(f)
				}
				checkFlat(t, segs, &r, pages, base+off, n)
				w, err := b.table.Explain(r.STag(), base+off, uint32(n))
				if err != nil || !slices.Equal(w.Segments, segs) {
					t.Fatalf("Explain: %v, %v, want %v", err, w.Segments, segs)
				}
			}
			if _, f := b.table.Resolve(nil, owner, r.STag(), base+r.Length-1, 2, LocalRead, false); f == nil || f.Code != Bounds {
				t.Fatalf("one byte past the end: %v", f)
			}
			if err := b.table.Deallocate(r.Index, r.PD, true, by); err != nil {
				t.Fatal(err)
			}
			b.events = b.events[:0]
		}
		if b.oicr != 0 {
			t.Errorf("OICR %#x", b.oicr)
		}
	}
}

// The driver moves a page of PBLEs: with PFHMC_PDINV the new one is used,
// without the old one.
func TestPagedPBLEsMove(t *testing.T) {
	b := newBench(t, true)
	pages := []uint64{0x1000, 0x5000, 0x3000}
	r := Region{Index: 5, PD: owner.PD, Length: 0x3000, VABased: true, Start: 0x7000_0000, Level: Flat, PageShift: 12, Rights: LocalRead}
	b.name(&r, pages)
	b.register(r)
	resolve := func() []Segment {
		t.Helper()
		segs, f := b.table.Resolve(nil, owner, r.STag(), r.Start, 0x3000, LocalRead, false)
		if f != nil {
			t.Fatal(f)
		}
		return segs
	}
	checkFlat(t, resolve(), &r, pages, r.Start, 0x3000)
	moved := []uint64{0x9000, 0xb000, 0xd000}
	for i, p := range moved {
		b.store(spare+8*uint64(i), p)
	}
	b.store(pdAt+8*1, spare|1) // PBLEs begin at page descriptor 1
	checkFlat(t, resolve(), &r, pages, r.Start, 0x3000)
	if !slices.ContainsFunc(b.events, func(e any) bool { _, ok := e.(hmc.StalePD); return ok }) {
		t.Errorf("no StalePD among %v", b.events)
	}
	w, err := b.table.Explain(r.STag(), r.Start, 1)
	if err != nil || !w.Reads[0].HMC.Stale || w.Reads[0].HMC.PDNow != spare|1 {
		t.Errorf("Explain: %v, %+v", err, w.Reads)
	}
	b.events = nil
	b.space.Write32(0x520300, b.sd|1<<15|1<<16)
	checkFlat(t, resolve(), &r, moved, r.Start, 0x3000)
	if len(b.events) != 0 {
		t.Errorf("events %v", b.events)
	}
}

func TestTable(t *testing.T) {
	b := newBench(t, false)
	good := Region{Index: 5 | 0x2AA<<14, Key: 0x42, PD: 3, Length: 4096, PageShift: 12}
	for name, change := range map[string]func(*Region){
		"index 0":                func(r *Region) { r.Index = 0x2AA << 14 },
		"index beyond":           func(r *Region) { r.Index = regions },
		"LPBLSIZE 2":             func(r *Region) { r.Level = 2 },
		"list beyond":            func(r *Region) { r.Level, r.First = Flat, pbles },
		"list ends beyond":       func(r *Region) { r.Level, r.First, r.Length = Flat, pbles-1, 4097 },
		"offset makes it longer": func(r *Region) { r.Level, r.First, r.Start = Flat, pbles-1, 1 },
		"longest list":           func(r *Region) { r.Level, r.Length = Flat, 1<<46-1 },
		"root ends beyond":       func(r *Region) { r.Level, r.First, r.Length = TwoLevel, pbles-1, 512*4096+1 },
		"list of everything":     func(r *Region) { r.Level, r.Length = Flat, 0 },
		"wraps":                  func(r *Region) { r.VABased, r.Start = true, ^uint64(4094) },
	} {
		r := good
		change(&r)
		if err := b.table.Register(r, by); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*Region){
		"list ends at the end": func(r *Region) { r.Level, r.First = Flat, pbles-1 },
		"root ends at the end": func(r *Region) { r.Level, r.First, r.Length = TwoLevel, pbles-1, 512*4096 },
		"ends at the top":      func(r *Region) { r.VABased, r.Start = true, ^uint64(4095) },
		"contiguous, longest":  func(r *Region) { r.Length = 1<<46 - 1 },
	} {
		r := good
		change(&r)
		if err := b.table.Register(r, by); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.table.Deallocate(r.Index, 3, true, by); err != nil {
			t.Error(err)
		}
	}
	b.register(good)
	if err := b.table.Register(good, by); !errors.Is(err, ErrState) {
		t.Errorf("second registration: %v", err)
	}
	if err := b.table.Allocate(good, Memory, by); !errors.Is(err, ErrState) {
		t.Errorf("allocation over it: %v", err)
	}
	if err := b.table.Deallocate(5|0x2AB<<14, 3, true, by); !errors.Is(err, ErrState) {
		t.Errorf("other driver bits: %v", err)
	}
	if err := b.table.Deallocate(good.Index, 4, true, by); !errors.Is(err, ErrState) {
		t.Errorf("other PD: %v", err)
	}
	if e := b.table.Entries(); len(e) != 1 || e[0].Region != good || e[0].State != Valid || b.table.Len() != 1 {
		t.Errorf("entries %+v", e)
	}
	if err := b.table.Deallocate(good.Index, 3, true, by); err != nil {
		t.Error(err)
	}
	if err := b.table.Deallocate(good.Index, 3, true, by); !errors.Is(err, ErrState) || b.table.Len() != 0 {
		t.Errorf("second deallocation: %v", err)
	}
	b.register(good)
	last := good
	last.Index = regions - 1
	b.register(last)
	b.table.Reset(reg.PFR)
	if len(b.table.Entries()) != 0 || b.table.Len() != 0 {
		t.Error("entries after a reset")
	}
}

// Every refusal has its code and its event; the near miss beside it has none.
func TestRefusals(t *testing.T) {
	b := newBench(t, false)
	const stag = (5|0x155<<14)<<8 | 0x42
	b.register(Region{Index: stag >> 8, Key: stag & 0xFF, PD: 9, Length: 0x2000, VABased: true, Start: 0x10_0800, Level: Contiguous,
		PageShift: 12, Base: 0x4000_0000, Rights: LocalRead | RemoteRead, Remote: true})
	b.register(Region{Index: 6, PD: 9, Length: 0, VABased: true, PageShift: 12, Rights: LocalRead | LocalWrite})
	b.register(Region{Index: 8, PD: 9, Length: 0x100, Start: 0x80, PageShift: 12, Base: 0x5000_0000, Rights: LocalRead | RemoteRead})
	if err := b.table.Allocate(Region{Index: 7, PD: 9, Length: 4096, PageShift: 12}, Memory, by); err != nil {
		t.Fatal(err)
	}
	user, kernel := Subject{PD: 9, QP: 1}, Subject{PD: 9, QP: 1, Privileged: true}
	top := ^uint64(0)
	type seg = []Segment
	for _, c := range []struct {
		name   string
		who    Subject
		stag   uint32
		to     uint64
		n      uint32
		need   Access
		remote bool
		code   Code
		event  any
		want   seg
	}{
		{"local read", user, stag, 0x10_0800, 0x2000, LocalRead, false, 0, nil, seg{{IOVA: 0x4000_0800, Len: 0x2000}}},
		{"remote read", user, stag, 0x10_27ff, 1, RemoteRead, true, 0, nil, seg{{IOVA: 0x4000_27ff, Len: 1}}},
		{"nothing of nothing", user, 0xFFFF_FFFF, top, 0, RemoteWrite, true, 0, nil, nil},
		{"free", user, 9 << 8, 0, 1, LocalRead, false, UnallocatedSTag, STagFree{}, nil},
		{"beyond the count", user, regions << 8, 0, 1, LocalRead, false, BadIndex, STagFree{}, nil},
		{"index 0", user, 0x42, 0, 1, LocalRead, false, BadIndex, STagFree{}, nil},
		{"allocated", user, 7 << 8, 0, 1, LocalRead, false, InvalidSTag, STagInvalid{}, nil},
		{"key", user, stag ^ 1, 0x10_0800, 1, LocalRead, false, BadKey, STagKey{}, nil},
		{"driver bits", user, stag ^ 1<<31, 0x10_0800, 1, LocalRead, false, BadIndex, STagKey{}, nil},
		{"PD", Subject{PD: 10}, stag, 0x10_0800, 1, LocalRead, false, BadPD, STagPD{}, nil},
		{"PD, privileged", Subject{PD: 10, Privileged: true}, stag, 0x10_0800, 1, LocalRead, false, BadPD, STagPD{}, nil},
		{"right", user, stag, 0x10_0800, 1, LocalWrite, false, Rights, STagRight{}, nil},
		{"remote right", user, stag, 0x10_0800, 1, RemoteWrite, true, Rights, STagRight{}, nil},
		{"not remote at all", user, 8 << 8, 0, 1, RemoteRead, true, Rights, STagRight{}, nil},
		{"below", user, stag, 0x10_07ff, 1, LocalRead, false, Bounds, STagBounds{}, nil},
		{"above", user, stag, 0x10_0800, 0x2001, LocalRead, false, Bounds, STagBounds{}, nil},
		{"behind", user, stag, 0x10_2800, 1, LocalRead, false, Bounds, STagBounds{}, nil},
		{"wraps", user, stag, top, 2, LocalRead, false, Wrap, STagBounds{}, nil},
		{"zero-based", user, 8 << 8, 0xff, 1, LocalRead, false, 0, nil, seg{{IOVA: 0x5000_017f, Len: 1}}},
		{"zero-based, its VA", user, 8 << 8, 0x80, 0x81, LocalRead, false, Bounds, STagBounds{}, nil},
		{"all of memory", user, 6 << 8, top - 7, 8, LocalWrite, false, 0, nil, seg{{IOVA: top - 7, Len: 8}}},
		{"all of memory wraps", user, 6 << 8, top - 6, 8, LocalWrite, false, Wrap, STagBounds{}, nil},
		{"STag 0", kernel, 0, 0x1234, 8, LocalWrite, false, 0, nil, seg{{IOVA: 0x1234, Len: 8}}},
		{"STag 0 wraps", kernel, 0, top, 2, LocalWrite, false, Wrap, STagBounds{}, nil},
		{"STag 0 of a user", user, 0, 0x1234, 8, LocalWrite, false, ZeroSTag, STagZero{}, nil},
		{"STag 0 of a peer", kernel, 0, 0x1234, 8, RemoteWrite, true, ZeroSTag, STagZero{}, nil},
		{"more than a step", user, 6 << 8, 0, MaxResolve + 1, LocalRead, false, Bounds, nil, nil},
	} {
		b.events = nil
		before := []Segment{{IOVA: 1, Len: 2}}
		segs, f := b.table.Resolve(before, c.who, c.stag, c.to, c.n, c.need, c.remote)
		if !slices.Equal(segs, append(before, c.want...)) {
			t.Errorf("%s: segments %v", c.name, segs)
		}
		code := Code(0)
		if f != nil {
			code = f.Code
			if f.Class != Protection || f.STag != c.stag {
				t.Errorf("%s: fault %+v", c.name, f)
			}
		}
		if code != c.code {
			t.Errorf("%s: code %#04x, want %#04x", c.name, code, c.code)
		}
		if got := kind(b.events); got != kind([]any{c.event}) {
			t.Errorf("%s: events %v", c.name, b.events)
		}
		if c.n > MaxResolve {
			continue
		}
		if f := b.table.Check(c.who, c.stag, c.to, uint64(c.n), c.need, c.remote); (f == nil) != (code == 0) || f != nil && f.Code != code {
			t.Errorf("%s: Check: %v", c.name, f)
		}
	}
	if f := b.table.Check(user, 6<<8, 1, top, LocalRead, false); f != nil {
		t.Errorf("Check of all of memory: %v", f)
	}
	if f := b.table.Check(user, 8<<8, 1, top-1, LocalRead, false); f == nil || f.Code != Bounds {
		t.Errorf("Check of a huge range: %v", f)
	}
}

// kind names the events' types.
func kind(events []any) string {
	out := ""
	for _, e := range events {
		switch e.(type) {
		case nil:
		case STagFree:
			out += "free "
		case STagInvalid:
			out += "invalid "
		case STagEnded:
			out += "ended "
		case STagKey:
			out += "key "
		case STagPD:
			out += "PD "
		case STagRight:
			out += "right "
		case STagBounds:
			out += "bounds "
		case STagZero:
			out += "zero "
		case PBLERange:
			out += "range "
		case PBLEUnmapped:
			out += "unmapped "
		case PBLEMisaligned:
			out += "misaligned "
		case PBLEZero:
			out += "zero-page "
		case PBLENotAddress:
			out += "index "
		case hmc.AccessFailed:
			out += "HMC "
		default:
			out += "other "
		}
	}
	return out
}

// Page lists a driver (or an attacker) spoiled after registration.
func TestHostilePageLists(t *testing.T) {
	const clear, unmap, store = 1, 2, 3
	for _, c := range []struct {
		name   string
		level  Level
		what   int
		word   uint64 // of the first PBLE or root entry
		class  Class
		events string
		oicr   uint32
	}{
		{"good flat", Flat, store, 0x7000, 0, "", 0},
		{"misaligned", Flat, store, 0x40_7008, 0, "misaligned ", 0},
		{"no page", Flat, store, 0, 0, "zero-page ", 0},
		{"an index", Flat, store, 0x7008, 0, "index ", 0},
		{"segment cleared", Flat, clear, 0, Translation, "HMC unmapped ", hmc.OICRHMCErr},
		{"PBLEs unmapped", Flat, unmap, 0, Translation, "unmapped ", 0},
		{"good root, empty leaf", TwoLevel, store, 0, 0, "zero-page ", 0},
		{"empty leaf at the last PBLE", TwoLevel, store, pbles - 1, 0, "zero-page ", 0},
		{"leaf behind", TwoLevel, store, pbles, Translation, "HMC range ", hmc.OICRHMCErr},
		{"leaf of 32 bits", TwoLevel, store, 1<<32 - 1, Translation, "HMC range ", hmc.OICRHMCErr},
		{"leaf with high bits", TwoLevel, store, 1 << 32, Translation, "range ", 0},
		{"leaf is -1", TwoLevel, store, ^uint64(0), Translation, "range ", 0},
		{"root cleared", TwoLevel, clear, 0, Translation, "HMC unmapped ", hmc.OICRHMCErr},
	} {
		b := newBench(t, true)
		b.next = 512
		r := Region{Index: 3, PD: owner.PD, Length: 513 * 4096, Level: c.level, PageShift: 12, Rights: LocalRead}
		b.name(&r, make([]uint64, 513))
		b.register(r)
		switch c.what {
		case clear:
			if err := b.hmc.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000 | uint64(b.sd), Data: 0x800}}); err != nil {
				t.Fatal(err)
			}
		case unmap: // the page descriptor stays kept
			if _, f := b.table.Resolve(nil, owner, r.STag(), 0, 4096, LocalRead, false); f != nil {
				t.Fatal(f)
			}
			b.mem.UnmapAll()
		case store:
			b.store(b.at(r.First), c.word)
		}
		b.events, b.oicr = nil, 0
		segs, f := b.table.Resolve(nil, owner, r.STag(), 0x10, 8, LocalRead, false)
		if c.class == Translation {
			if f == nil || f.Class != Translation || f.Code != Catastrophic || len(segs) != 0 {
				t.Errorf("%s: %v, %v", c.name, segs, f)
			}
		} else if f != nil || len(segs) != 1 || c.level == Flat && segs[0].IOVA != c.word&^0xFFF+0x10 {
			t.Errorf("%s: %v, %v", c.name, segs, f)
		}
		if got := kind(b.events); got != c.events || b.oicr != c.oicr {
			t.Errorf("%s: events %s(%v), OICR %#x", c.name, got, b.events, b.oicr)
		}
		b.events, b.oicr = nil, 0
		w, err := b.table.Explain(r.STag(), 0x10, 8)
		if (err == nil) != (c.class == Protection) || len(w.Reads) == 0 || w.Entry == nil {
			t.Errorf("%s: Explain: %v, %+v", c.name, err, w)
		}
		if len(b.events) != 0 || b.oicr != 0 {
			t.Errorf("%s: Explain reports %v, OICR %#x", c.name, b.events, b.oicr)
		}
	}
}

// A table made smaller under a registration, as only a broken driver can.
func TestListBehindSmallerPool(t *testing.T) {
	b := newBench(t, false)
	b.next = 600
	r := Region{Index: 3, PD: owner.PD, Length: 2 * 4096, Level: Flat, PageShift: 12, Rights: LocalRead}
	b.name(&r, []uint64{0x1000, 0x9000})
	b.register(r)
	var buf [hmc.FPMSize]byte
	binary.LittleEndian.PutUint64(buf[48:], regions)
	binary.LittleEndian.PutUint64(buf[112:], 601)
	if err := b.hmc.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: 0x802}}); err != nil {
		t.Fatal(err)
	}
	if err := b.hmc.Commit(&buf); err != nil {
		t.Fatal(err)
	}
	if err := b.hmc.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000, Data: sdAt | 0x803}}); err != nil {
		t.Fatal(err)
	}
	if _, f := b.table.Resolve(nil, owner, r.STag(), 0, 4096, LocalRead, false); f != nil {
		t.Error(f)
	}
	if _, f := b.table.Resolve(nil, owner, r.STag(), 0, 4097, LocalRead, false); f == nil || f.Class != Translation {
		t.Errorf("list behind the pool: %v", f)
	}
}

func TestUsing(t *testing.T) {
	b := newBench(t, true)
	b.register(Region{Index: 3, PD: 1, Length: 4096, Level: Contiguous, PageShift: 12})
	if s, ok := b.table.Using(0); !ok || s != 3<<8 {
		t.Errorf("segment of the MR objects: %#x, %t", s, ok)
	}
	if s, ok := b.table.Using(b.sd); ok {
		t.Errorf("segment of the PBLEs: STag %#x, which has none", s)
	}
	b.register(Region{Index: 4, PD: 1, Length: 3 * 4096, Level: Flat, First: 9, PageShift: 12})
	if s, ok := b.table.Using(b.sd); !ok || s != 4<<8 {
		t.Errorf("segment of the PBLEs: %#x, %t", s, ok)
	}
	if s, ok := b.table.Using(b.sd + 1); ok {
		t.Errorf("segment behind: STag %#x", s)
	}
}

func TestExplainNamesEveryWord(t *testing.T) {
	b := newBench(t, true)
	pages := make([]uint64, 600)
	for i := range pages {
		pages[i] = uint64(i+1) << 16
	}
	r := Region{Index: 4 | 1<<20, Key: 9, PD: 77, Length: 600*4096 - 0x123, Start: 0x55_5000_0123, VABased: true, Level: TwoLevel, PageShift: 12}
	b.name(&r, pages)
	b.register(r)
	w, err := b.table.Explain(r.STag(), 0x55_5000_0000+511*4096+8, 4096)
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(i uint32) uint32 { return i * 512 }
	want := []struct {
		role  string
		index uint32
		value uint64
	}{{"root", r.First, 0}, {"page", 511, 512 << 16}, {"root", r.First + 1, uint64(leaf(1))}, {"page", 512, 513 << 16}}
	if len(w.Reads) != len(want) {
		t.Fatalf("reads %+v", w.Reads)
	}
	for i, x := range want {
		got := w.Reads[i]
		if got.Role != x.role || got.HMC.Index != x.index || got.Value != x.value || got.HMC.Address != b.at(x.index) || got.HMC.Direct {
			t.Errorf("read %d: %+v, want %+v at %#x", i, got, x, b.at(x.index))
		}
	}
	if !slices.Equal(w.Segments, []Segment{{IOVA: 512<<16 + 8, Len: 4088}, {IOVA: 513 << 16, Len: 8}}) || w.Entry.Region != r {
		t.Errorf("walk %+v", w)
	}
	if _, err := b.table.Explain(r.STag(), r.Start, MaxExplain+1); !errors.Is(err, ErrParameter) {
		t.Errorf("too long: %v", err)
	}
	var f *Fault
	if w, err := b.table.Explain(r.STag()^1, r.Start, 1); !errors.As(err, &f) || f.Code != BadKey || w.Entry == nil {
		t.Errorf("wrong key: %v", err)
	}
}

// Translations beside deallocation and registration of the same index, PDINV
// and segment updates: each is of one registration or the other, or refused.
func TestResolveBesideChanges(t *testing.T) {
	b := newBench(t, true)
	b.table = New(Config{HMC: b.hmc}) // the bench's event list is for one goroutine
	one := Region{Index: 5, Key: 1, PD: owner.PD, Length: 3 * 4096, Level: Flat, PageShift: 12, Rights: LocalRead}
	two := one
	b.name(&one, []uint64{0x1000, 0x2000, 0x3000})
	b.name(&two, []uint64{0x11000, 0x12000, 0x13000})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var segs []Segment
			for {
				select {
				case <-done:
					return
				default:
				}
				var f *Fault
				segs, f = b.table.Resolve(segs[:0], owner, one.STag(), 0, 0x3000, LocalRead, false)
				if f != nil {
					if f.Code != UnallocatedSTag {
						t.Error(f)
						return
					}
				} else if len(segs) != 1 || segs[0].Len != 0x3000 || segs[0].IOVA != 0x1000 && segs[0].IOVA != 0x11000 {
					t.Errorf("segments %v", segs)
					return
				}
			}
		})
	}
	for i := range 3000 {
		r := one
		if i%2 == 1 {
			r = two
		}
		b.register(r)
		if i%7 == 0 {
			b.space.Write32(0x520300, b.sd|1<<15|1<<16)
		}
		if i%50 == 0 {
			if err := b.hmc.UpdateSDs([]hmc.SDEntry{{Cmd: 0x80008000 | uint64(b.sd), Data: b.pdPage | 0x801}}); err != nil {
				t.Error(err)
			}
		}
		if err := b.table.Deallocate(r.Index, r.PD, true, by); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	wg.Wait()
}

func TestResolveDoesNotAllocate(t *testing.T) {
	for _, paged := range []bool{false, true} {
		b := newBench(t, paged)
		segs := make([]Segment, 0, 32)
		for i, level := range []Level{Contiguous, Flat, TwoLevel} {
			r := Region{Index: uint32(i + 1), PD: owner.PD, Length: 600 * 4096, Level: level, PageShift: 12, Rights: LocalRead}
			pages := make([]uint64, 600)
			for k := range pages {
				pages[k] = uint64(k) << 13
			}
			b.name(&r, pages)
			b.register(r)
			for _, n := range []uint32{64, MaxResolve} {
				if a := testing.AllocsPerRun(200, func() {
					_, f := b.table.Resolve(segs, owner, r.STag(), 505*4096+17, n, LocalRead, false)
					if f != nil || b.table.Check(owner, r.STag(), 0, 600*4096, LocalRead, false) != nil {
						t.Error(f)
					}
				}); a != 0 {
					t.Errorf("level %d, %d bytes: %v allocations", level, n, a)
				}
			}
		}
	}
}

func BenchmarkResolve(bb *testing.B) {
	b := newBench(bb, false)
	segs := make([]Segment, 0, 32)
	for i, c := range []struct {
		name  string
		level Level
		n     uint32
	}{{"contiguous/64", Contiguous, 64}, {"flat/64", Flat, 64}, {"flat/64K", Flat, MaxResolve}, {"two-level/64K", TwoLevel, MaxResolve}} {
		r := Region{Index: uint32(i + 1), PD: owner.PD, Length: 600 * 4096, Level: c.level, PageShift: 12, Rights: LocalRead}
		pages := make([]uint64, 600)
		for k := range pages {
			pages[k] = uint64(k+1) << 13
		}
		b.name(&r, pages)
		b.register(r)
		bb.Run(c.name, func(bb *testing.B) {
			bb.ReportAllocs()
			for bb.Loop() {
				if _, f := b.table.Resolve(segs, owner, r.STag(), 17, c.n, LocalRead, false); f != nil {
					bb.Fatal(f)
				}
			}
		})
	}
}
