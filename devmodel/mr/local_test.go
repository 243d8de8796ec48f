// SPDX-License-Identifier: Apache-2.0

package mr_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	. "github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/reg"
)

var (
	kernel = Subject{PD: owner.PD, QP: 7, Privileged: true}
	other  = Subject{PD: owner.PD, QP: 8}
	post   = Origin{Op: "INV_STAG", QP: 7, WQE: 3}
)

const everyRight = LocalRead | LocalWrite | RemoteRead | RemoteWrite | BindWindow

// allocated is an STag for fast registrations of up to 4 pages.
func (b *bench) allocated(index uint32) Region {
	b.t.Helper()
	if err := b.table.Allocate(Region{Index: index, PD: owner.PD, Length: 4 << 12, PageShift: 12, Remote: true}, Memory, by); err != nil {
		b.t.Fatal(err)
	}
	r := Region{Index: index, Key: 0x5A, Length: 2 << 12, VABased: true, Start: 0x7000_0800, Level: Flat, PageShift: 12, Rights: everyRight &^ BindWindow}
	b.name(&r, []uint64{0x10_0000, 0x30_0000, 0x20_0000})
	return r
}

func (b *bench) code(what string, got, want Code) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %#04x %v, want %#04x %v", what, uint16(got), got, uint16(want), want)
	}
}

// use tells what an access gives.
func (b *bench) use(s Subject, stag uint32, to uint64, n uint32, need Access, remote bool) ([]Segment, Code) {
	segs, f := b.table.Resolve(nil, s, stag, to, n, need, remote)
	if f != nil {
		return segs, f.Code
	}
	return segs, 0
}

func TestFastRegister(t *testing.T) {
	b := newBench(t, true)
	r := b.allocated(5)
	b.code("good", b.table.FastRegister(kernel, r, post), 0)
	segs, code := b.use(owner, r.STag(), r.Start, 0x2000, LocalWrite, false)
	if code != 0 || !slices.Equal(segs, []Segment{{IOVA: 0x10_0800, Len: 0x800}, {IOVA: 0x30_0000, Len: 0x1000}, {IOVA: 0x20_0000, Len: 0x800}}) {
		t.Errorf("%v, %v", segs, code)
	}
	_, code = b.use(owner, r.STag(), r.Start, 1, RemoteRead, true)
	b.code("remote", code, 0)
	e := b.table.Entries()[0]
	if e.State != Valid || e.By != post || e.Limit != 4<<12 || e.PD != owner.PD || !e.Remote {
		t.Errorf("%+v", e)
	}
	b.code("again", b.table.FastRegister(kernel, r, post), FastRegisterValid)
	b.code("invalidate", b.table.Invalidate(kernel, r.STag(), false, post), 0)
	_, code = b.use(owner, r.STag(), r.Start, 1, LocalRead, false)
	b.code("after", code, InvalidSTag)
	r.Key++
	b.code("next key", b.table.FastRegister(kernel, r, post), 0)
	_, code = b.use(owner, r.STag()-1, r.Start, 1, LocalRead, false)
	b.code("the old key", code, BadKey)
	if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
		t.Error(err)
	}
	b.code("deallocated", b.table.FastRegister(kernel, r, post), UnallocatedSTag)
}

func TestFastRegisterRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Region)
		who    Subject
		code   Code
	}{
		"index":             {func(r *Region) { r.Index = regions }, kernel, BadIndex},
		"index 0":           {func(r *Region) { r.Index = 0 }, kernel, BadIndex},
		"driver bits":       {func(r *Region) { r.Index |= 1 << 20 }, kernel, BadIndex},
		"free":              {func(r *Region) { r.Index = 9 }, kernel, UnallocatedSTag},
		"a window":          {func(r *Region) { r.Index = 6 }, kernel, FastRegisterWindow},
		"PD":                {func(*Region) {}, Subject{PD: 1, QP: 7}, BadPD},
		"a region":          {func(r *Region) { r.Index = 7 }, kernel, FastRegisterValid},
		"length 0":          {func(r *Region) { r.Length = 0 }, kernel, FastRegisterLength},
		"too long":          {func(r *Region) { r.Length = 4<<12 + 1 }, kernel, FastRegisterLength},
		"as long as it may": {func(r *Region) { r.Start, r.Length, r.Level = 0, 4<<12, Contiguous }, kernel, 0},
		"too many pages":    {func(r *Region) { r.Length = 4 << 12 }, kernel, FastRegisterMismatch},
		"two large pages":   {func(r *Region) { r.PageShift, r.Start = 21, 1<<21-1 }, kernel, 0},
		"list beyond":       {func(r *Region) { r.First = pbles - 1 }, kernel, FastRegisterMismatch},
		"LPBLSIZE 2":        {func(r *Region) { r.Level = 2 }, kernel, FastRegisterPages},
		"HPAGESIZE 3":       {func(r *Region) { r.PageShift = 0 }, kernel, FastRegisterPages},
		"wraps":             {func(r *Region) { r.Start = ^uint64(0) }, kernel, Wrap},
		"write remotely":    {func(r *Region) { r.Rights = LocalRead | RemoteWrite }, kernel, FastRegisterRights},
		"remote of a local": {func(r *Region) { r.Index = 8 }, kernel, FastRegisterRights},
		"local of a local":  {func(r *Region) { r.Index, r.Rights = 8, LocalRead }, kernel, 0},
	} {
		b := newBench(t, false)
		r := b.allocated(5)
		for _, err := range []error{
			b.table.Allocate(Region{Index: 6, PD: owner.PD, PageShift: 12}, Window1, by),
			b.table.Register(Region{Index: 7, PD: owner.PD, Length: 1, PageShift: 12}, by),
			b.table.Allocate(Region{Index: 8, PD: owner.PD, Length: 4 << 12, PageShift: 12}, Memory, by),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		b.events = nil
		c.change(&r)
		b.code(name, b.table.FastRegister(c.who, r, post), c.code)
		told := slices.ContainsFunc(b.events, func(e any) bool { x, ok := e.(Refused); return ok && x.Code == c.code && x.By == post })
		if told != (c.code != 0) {
			t.Errorf("%s: events %v", name, b.events)
		}
	}
}

func TestInvalidateRefused(t *testing.T) {
	region := func(index uint32, rights Access, remote bool) Region {
		return Region{Index: index, Key: 1, PD: owner.PD, Length: 4096, PageShift: 12, VABased: true, Start: 0x1000, Rights: rights, Remote: remote}
	}
	b := newBench(t, false)
	b.register(region(1, everyRight, true))
	b.register(region(2, LocalRead, false))
	b.register(region(3, everyRight, true)) // with a window
	b.register(region(4, everyRight, true)) // shared
	if err := b.table.Share(region(5, LocalRead, false), 4, by); err != nil {
		t.Fatal(err)
	}
	for i, k := range []Kind{Window1, Window2} {
		if err := b.table.Allocate(Region{Index: uint32(6 + i), PD: owner.PD, PageShift: 12}, k, by); err != nil {
			t.Fatal(err)
		}
		if _, code := b.table.Bind(kernel, Binding{Window: uint32(6+i)<<8 | 1, Parent: 3<<8 | 1, Start: 0x1000, Length: 16, VABased: true, Rights: RemoteRead,
			Type1: k == Window1}, post); code != 0 {
			t.Fatal(code)
		}
	}
	for _, c := range []struct {
		name   string
		who    Subject
		stag   uint32
		remote bool
		code   Code
	}{
		{"STag 0", kernel, 0, false, ZeroSTag},
		{"index", kernel, regions << 8, false, BadIndex},
		{"free", kernel, 9 << 8, false, UnallocatedSTag},
		{"key", kernel, 1<<8 | 2, false, BadKey},
		{"PD", Subject{PD: 1}, 1<<8 | 1, false, BadPD},
		{"no remote rights", kernel, 2<<8 | 1, true, InvalidateRights},
		{"windows", kernel, 3<<8 | 1, false, InvalidateBound},
		{"parent of a shared one", kernel, 4<<8 | 1, false, InvalidateShared},
		{"shared", kernel, 5<<8 | 1, false, InvalidateShared},
		{"type 1 window", kernel, 6<<8 | 1, true, InvalidateWindow1},
		{"another QP's window", other, 7<<8 | 1, false, BadQP},
		{"its window", kernel, 7<<8 | 1, true, 0},
		{"twice", kernel, 7<<8 | 1, false, InvalidSTag},
		{"local", kernel, 2<<8 | 1, false, 0},
		{"remote", other, 1<<8 | 1, true, 0},
	} {
		b.code(c.name, b.table.Invalidate(c.who, c.stag, c.remote, post), c.code)
	}
}

// bound is a region of three pages, STag 5<<8|1, and a window of each type.
func (b *bench) bound() (r Region) {
	b.t.Helper()
	r = Region{Index: 5, Key: 1, PD: owner.PD, Length: 3<<12 - 0x800, VABased: true, Start: 0x7000_0800, Level: Flat, PageShift: 12, Rights: everyRight, Remote: true}
	b.name(&r, []uint64{0x10_0000, 0x30_0000, 0x20_0000})
	b.register(r)
	for i, k := range []Kind{Window1, Window2} {
		if err := b.table.Allocate(Region{Index: uint32(6 + i), PD: owner.PD, PageShift: 12}, k, by); err != nil {
			b.t.Fatal(err)
		}
	}
	return r
}

func TestWindowAccess(t *testing.T) {
	for _, type1 := range []bool{true, false} {
		b := newBench(t, true)
		r := b.bound()
		w := Binding{Window: 7<<8 | 0x33, Parent: r.STag(), Start: r.Start + 0x700, Length: 0x1000, VABased: true, Rights: RemoteRead, Type1: type1}
		if type1 {
			w.Window = 6<<8 | 0x33
		}
		if ended, code := b.table.Bind(kernel, w, post); ended || code != 0 {
			t.Fatal(ended, code)
		}
		whole := []Segment{{IOVA: 0x10_0F00, Len: 0x100}, {IOVA: 0x30_0000, Len: 0xF00}}
		type use struct {
			name   string
			who    Subject
			stag   uint32
			to     uint64
			n      uint32
			need   Access
			remote bool
			code   Code
			want   []Segment
		}
		uses := []use{
			{"all", kernel, w.Window, w.Start, 0x1000, RemoteRead, true, 0, whole},
			{"last byte", kernel, w.Window, w.Start + 0xFFF, 1, RemoteRead, true, 0, []Segment{{IOVA: 0x30_0EFF, Len: 1}}},
			{"behind", kernel, w.Window, w.Start + 0x1000, 1, RemoteRead, true, Bounds, nil},
			{"before", kernel, w.Window, w.Start - 1, 1, RemoteRead, true, Bounds, nil},
			{"right", kernel, w.Window, w.Start, 1, RemoteWrite, true, Rights, nil},
			{"locally", kernel, w.Window, w.Start, 1, LocalRead, false, Rights, nil},
			{"key", kernel, w.Window ^ 1, w.Start, 1, RemoteRead, true, BadKey, nil},
			{"PD", Subject{PD: 1, QP: 7}, w.Window, w.Start, 1, RemoteRead, true, BadPD, nil},
		}
		if type1 {
			uses = append(uses, use{"another QP", other, w.Window, w.Start, 0x1000, RemoteRead, true, 0, whole})
		} else {
			uses = append(uses, use{"another QP", other, w.Window, w.Start, 1, RemoteRead, true, BadQP, nil})
		}
		for _, u := range uses {
			segs, code := b.use(u.who, u.stag, u.to, u.n, u.need, u.remote)
			b.code(u.name, code, u.code)
			if !slices.Equal(segs, u.want) {
				t.Errorf("%s: %v, want %v", u.name, segs, u.want)
			}
		}
		walk, err := b.table.Explain(w.Window, w.Start, 0x1000)
		if err != nil || walk.Entry.Kind == Memory || walk.Parent == nil || walk.Parent.Region != r || !slices.Equal(walk.Segments, whole) || len(walk.Reads) != 2 {
			t.Errorf("%v, %+v", err, walk)
		}
		// The region stays as long as the window is bound to it.
		if err := b.table.Deallocate(5, owner.PD, true, by); !errors.Is(err, ErrState) {
			t.Errorf("deallocation of the region: %v", err)
		}
		b.code("invalidation of the region", b.table.Invalidate(kernel, r.STag(), false, post), InvalidateBound)
		for i, e := range b.table.Entries() {
			if want := uint32(0); i == 0 && e.Windows != 1 || i > 0 && e.Windows != want {
				t.Errorf("%+v", e)
			}
		}
		if err := b.table.Deallocate(w.Window>>8, owner.PD, true, by); !errors.Is(err, ErrState) {
			t.Errorf("deallocation as a region: %v", err)
		}
		if err := b.table.Deallocate(w.Window>>8, owner.PD, false, by); err != nil {
			t.Error(err)
		}
		if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
			t.Error(err)
		}
	}
}

func TestBind(t *testing.T) {
	b := newBench(t, false)
	r := b.bound()
	one := Binding{Window: 6<<8 | 1, Parent: r.STag(), Start: r.Start, Length: 0x100, VABased: true, Rights: RemoteRead | RemoteWrite, Type1: true}
	two := one
	two.Window, two.Type1 = 7<<8|1, false
	zero := Region{Index: 8, Key: 1, PD: owner.PD, Length: 4096, PageShift: 12, Rights: everyRight}
	b.register(zero)
	poor := r
	poor.Index, poor.Rights = 9, LocalRead|RemoteRead|RemoteWrite|BindWindow
	b.register(poor)
	noBind := r
	noBind.Index, noBind.Rights = 10, everyRight&^BindWindow
	b.register(noBind)
	far := r
	far.Index, far.PD = 11, 1
	b.register(far)
	b.allocated(12)
	for name, c := range map[string]struct {
		base   Binding
		who    Subject
		change func(*Binding)
		code   Code
	}{
		"no such window":        {one, kernel, func(x *Binding) { x.Window = 20 << 8 }, UnallocatedSTag},
		"window's driver bits":  {one, kernel, func(x *Binding) { x.Window |= 1 << 31 }, BadIndex},
		"a region":              {one, kernel, func(x *Binding) { x.Window = 8<<8 | 1 }, BindRegion},
		"type 1 as 2":           {one, kernel, func(x *Binding) { x.Type1 = false }, BindType},
		"type 2 as 1":           {two, kernel, func(x *Binding) { x.Type1 = true }, BindType},
		"PD":                    {one, Subject{PD: 1}, func(*Binding) {}, BadPD},
		"zero-based type 1":     {one, kernel, func(x *Binding) { x.VABased = false }, BindZeroBased1},
		"no parent":             {one, kernel, func(x *Binding) { x.Parent = 0 }, BindParent},
		"parent free":           {one, kernel, func(x *Binding) { x.Parent = 20 << 8 }, BindParent},
		"parent's key":          {one, kernel, func(x *Binding) { x.Parent ^= 2 }, BindParent},
		"parent has no memory":  {one, kernel, func(x *Binding) { x.Parent = 12 << 8 }, BindParent},
		"parent a window":       {one, kernel, func(x *Binding) { x.Parent = 7<<8 | 1 }, BindToWindow},
		"parent's PD":           {one, kernel, func(x *Binding) { x.Parent = 11<<8 | 1 }, BadPD},
		"parent zero-based":     {one, kernel, func(x *Binding) { x.Parent = 8<<8 | 1 }, BindZeroBased},
		"parent without bind":   {one, kernel, func(x *Binding) { x.Parent = 10<<8 | 1 }, BindRights},
		"parent not writable":   {one, kernel, func(x *Binding) { x.Parent = 9<<8 | 1 }, BindRights},
		"read of the same":      {one, kernel, func(x *Binding) { x.Parent, x.Rights = 9<<8|1, RemoteRead }, 0},
		"local rights":          {one, kernel, func(x *Binding) { x.Rights = LocalRead }, BindRights},
		"begins before":         {one, kernel, func(x *Binding) { x.Start-- }, BindBounds},
		"ends behind":           {one, kernel, func(x *Binding) { x.Length = r.Length + 1 }, BindBounds},
		"all":                   {one, kernel, func(x *Binding) { x.Length = r.Length }, 0},
		"wraps":                 {one, kernel, func(x *Binding) { x.Length = ^uint64(0) }, BindBounds},
		"nothing, of no parent": {one, kernel, func(x *Binding) { x.Length, x.Parent = 0, 0 }, 0},
	} {
		x := c.base
		c.change(&x)
		_, code := b.table.Bind(c.who, x, post)
		b.code(name, code, c.code)
		if code == 0 && c.code == 0 { // unbind
			if _, code := b.table.Bind(kernel, Binding{Window: x.Window, Type1: x.Type1}, post); code != 0 {
				b.t.Errorf("%s: unbind: %v", name, code)
			}
		}
	}
	// A type 1 window may be bound again, which ends the first bind; one of
	// type 2 only after an invalidation.
	for i, ended := range []bool{false, true, true} {
		one.Window++
		if got, code := b.table.Bind(kernel, one, post); got != ended || code != 0 {
			t.Errorf("bind %d: %t, %v", i, got, code)
		}
	}
	_, code := b.use(kernel, one.Window-1, r.Start, 1, RemoteRead, true)
	b.code("the key before", code, BadKey)
	one.Length = 0
	if got, code := b.table.Bind(kernel, one, post); !got || code != 0 {
		t.Errorf("unbind: %t, %v", got, code)
	}
	_, code = b.use(kernel, one.Window, r.Start, 1, RemoteRead, true)
	b.code("unbound", code, InvalidSTag)
	if _, code = b.table.Bind(kernel, two, post); code != 0 {
		t.Error(code)
	}
	_, code = b.table.Bind(kernel, two, post)
	b.code("type 2 again", code, BindValid)
	b.code("invalidate", b.table.Invalidate(kernel, two.Window, false, post), 0)
	two.VABased = false // offsets from the window's first byte
	two.Start += 0x900
	if _, code = b.table.Bind(kernel, two, post); code != 0 {
		t.Error(code)
	}
	segs, code := b.use(kernel, two.Window, 0x10, 4, RemoteRead, true)
	if code != 0 || !slices.Equal(segs, []Segment{{IOVA: 0x30_0110, Len: 4}}) {
		t.Errorf("%v, %v", segs, code)
	}
	b.table.Reset(reg.PFR)
	b.register(r)
	if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
		t.Errorf("windows of before a reset: %v", err)
	}
}

func TestShare(t *testing.T) {
	b := newBench(t, false)
	r := b.bound()
	child := Region{Index: 20, Key: 9, PD: owner.PD + 1, Length: r.Length, VABased: true, Start: 0x9_9000_0800, Rights: LocalRead}
	for name, change := range map[string]func(*Region){
		"length": func(r *Region) { r.Length-- },
		"offset": func(r *Region) { r.Start++ },
	} {
		x := child
		change(&x)
		if err := b.table.Share(x, 5, by); !errors.Is(err, ErrParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, parent := range []uint32{0, 6, 21, 5 | 1<<20} {
		if err := b.table.Share(child, parent, by); !errors.Is(err, ErrState) {
			t.Errorf("parent %#x: %v", parent, err)
		}
	}
	busy := child
	busy.Index = 6
	if err := b.table.Share(busy, 5, by); !errors.Is(err, ErrState) {
		t.Errorf("a child where a window is: %v", err)
	}
	for _, e := range b.table.Entries() {
		if e.Shared {
			t.Errorf("%#x is shared with nobody", e.STag())
		}
	}
	if err := b.table.Share(child, 5, by); err != nil {
		t.Fatal(err)
	}
	mine, code := b.use(owner, r.STag(), r.Start+5, 0x1000, LocalRead, false)
	shared, code2 := b.use(Subject{PD: owner.PD + 1}, child.STag(), child.Start+5, 0x1000, LocalRead, false)
	if code != 0 || code2 != 0 || !slices.Equal(mine, shared) {
		t.Errorf("%v %v, %v %v", code, mine, code2, shared)
	}
	if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
		t.Error(err)
	}
	if err := b.table.Query(20); err != nil {
		t.Error(err)
	}
}

func TestQuery(t *testing.T) {
	b := newBench(t, false)
	b.bound()
	for index, valid := range map[uint32]bool{5: true, 6: false, 9: false, 0: false, 5 | 1<<20: false} {
		if err := b.table.Query(index); (err == nil) != valid || err != nil && !errors.Is(err, ErrState) {
			t.Errorf("%#x: %v", index, err)
		}
	}
}

// Registrations and ends of the same STags, of regions and windows, on many
// goroutines: counts come out, nothing that is bound loses its region, and a
// translation is of one life or refused.
func TestChangesBesideEachOther(t *testing.T) {
	b := newBench(t, false)
	b.table = New(Config{HMC: b.hmc})
	r := b.bound()
	f := b.allocated(9)
	f.Level, f.Base = Contiguous, 0x50_0000
	var wg sync.WaitGroup
	for g := range uint32(4) {
		s := Subject{PD: owner.PD, QP: 7 + g%2}
		wg.Go(func() {
			var segs []Segment
			for i := range uint32(4000) {
				key := i % 7
				switch g {
				case 0:
					f := f
					f.Key = uint8(key)
					b.table.FastRegister(s, f, post)
				case 1:
					b.table.Invalidate(s, f.Index<<8|key, false, post)
				default:
					w := Binding{Window: g<<8 + 4<<8 | key, Parent: r.STag(), Start: r.Start, Length: uint64(i%3) << 4, VABased: true, Rights: RemoteRead, Type1: g == 2}
					b.table.Bind(s, w, post)
					b.table.Invalidate(s, w.Window, false, post)
				}
				var fault *Fault
				segs, fault = b.table.Resolve(segs[:0], s, f.Index<<8|key, f.Start+1, 1, LocalRead, false)
				if fault == nil && (len(segs) != 1 || segs[0].IOVA != 0x50_0801) {
					t.Errorf("%v", segs)
				}
			}
		})
	}
	wg.Wait()
	for i := range uint32(2) {
		if err := b.table.Deallocate(6+i, owner.PD, false, by); err != nil {
			t.Error(err)
		}
	}
	if err := b.table.Deallocate(5, owner.PD, true, by); err != nil {
		t.Error(err)
	}
	if err := b.table.Deallocate(9, owner.PD, true, by); err != nil || b.table.Len() != 0 {
		t.Errorf("%v, %d left", err, b.table.Len())
	}
}

func TestWindowsDoNotAllocate(t *testing.T) {
	b := newBench(t, true)
	r := b.bound()
	w := Binding{Window: 6<<8 | 1, Parent: r.STag(), Start: r.Start, Length: r.Length, VABased: true, Rights: RemoteRead, Type1: true}
	if _, code := b.table.Bind(kernel, w, post); code != 0 {
		t.Fatal(code)
	}
	segs := make([]Segment, 0, 8)
	if a := testing.AllocsPerRun(200, func() {
		if _, f := b.table.Resolve(segs, kernel, w.Window, w.Start+3, 0x2000, RemoteRead, true); f != nil {
			t.Error(f)
		}
	}); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

// A QP that leaves many windows makes no long event: it can do so again and
// again.
func TestWindowsLeft(t *testing.T) {
	b := newBench(t, true)
	b.register(Region{Index: 1, PD: owner.PD, Length: 0x1000, VABased: true, Start: 0x7000, Base: 0x10_0000, PageShift: 12, Rights: everyRight})
	const windows = 12
	for i := range uint32(windows) {
		if err := b.table.Allocate(Region{Index: 2 + i, PD: owner.PD, PageShift: 12}, Window2, by); err != nil {
			t.Fatal(err)
		}
		_, code := b.table.Bind(kernel, Binding{Window: (2 + i) << 8, Parent: 1 << 8, Start: 0x7000, Length: 16, VABased: true, Rights: RemoteRead}, post)
		b.code("bind", code, 0)
	}
	b.table.QPEnds(other.QP, by)
	b.table.QPEnds(kernel.QP, by)
	got := of[WindowsLeft](b.events)
	if len(got) != 1 || got[0].QP != kernel.QP || got[0].Windows != windows || len(got[0].First) != 8 || got[0].First[0] != 2<<8 {
		t.Errorf("%+v", got)
	}
}
