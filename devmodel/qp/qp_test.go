// SPDX-License-Identifier: Apache-2.0

package qp_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

const (
	sq     = rdmatest.Base
	rq     = rdmatest.Base + 0x10000
	shadow = rdmatest.Base + 0x20000
)

// bench is a QP table with its completions recorded instead of written, and
// an engine that runs when told to.
type bench struct {
	testing.TB
	mem    *guestmem.Memory
	engine *engine.Engine
	clock  engine.ManualClock
	table  *qp.Table
	space  *reg.Space
	events []any
	cqes   map[uint32][]event.Entry
	aes    []event.AE
	full   bool // CQs take no entry
	quiet  bool // count completions, do not record them
	posted int
	cable  *cableOf // where frames go, if connections leave the port

	regions   map[uint32]region
	onStore   func(at uint64) // before a word is stored for the device
	onResolve func(stag uint32)
	hook      func() // called in steps that complete something
}

// memory is the guest's as QPs see it.
type memory struct {
	*guestmem.Memory
	b *bench
}

func (m memory) Store64(at, v uint64) error {
	if m.b.onStore != nil {
		m.b.onStore(at)
	}
	return m.Memory.Store64(at, v)
}

// region is registered memory whose addresses are guest addresses.
type region struct {
	at, size uint64
	pd       uint32
	rights   mr.Access
}

type recorder struct {
	b  *bench
	id uint32
}

func (r recorder) Post(e event.Entry) bool {
	if r.b.hook != nil {
		r.b.hook()
	}
	if r.b.full {
		return false
	}
	if r.b.posted++; r.b.quiet {
		return true
	}
	r.b.cqes[r.id] = append(r.b.cqes[r.id], e)
	return true
}

func (b *bench) CQ(id uint32) qp.CQ {
	if id < 10 {
		return recorder{b, id}
	}
	return nil
}

func (b *bench) AE(e event.AE) { b.aes = append(b.aes, e) }

func (b *bench) Check(s mr.Subject, stag uint32, to, n uint64, need mr.Access, remote bool) *mr.Fault {
	r, ok := b.regions[stag]
	switch {
	case !ok:
		return &mr.Fault{Code: mr.UnallocatedSTag}
	case r.pd != s.PD:
		return &mr.Fault{Code: mr.BadPD}
	case to < r.at || to+n > r.at+r.size:
		return &mr.Fault{Code: mr.Bounds}
	case need&^r.rights != 0:
		return &mr.Fault{Code: mr.Rights}
	}
	return nil
}

func (b *bench) Resolve(segs []mr.Segment, s mr.Subject, stag uint32, to uint64, n uint32, need mr.Access, remote bool) ([]mr.Segment, *mr.Fault) {
	if b.onResolve != nil {
		b.onResolve(stag)
	}
	if f := b.Check(s, stag, to, uint64(n), need, remote); f != nil {
		return segs, f
	}
	return append(segs, mr.Segment{IOVA: to, Len: n}), nil
}

func (b *bench) FastRegister(s mr.Subject, r mr.Region, by mr.Origin) mr.Code {
	b.regions[r.STag()] = region{r.Start, r.Length, s.PD, r.Rights}
	return 0
}

func (b *bench) Invalidate(s mr.Subject, stag uint32, remote bool, by mr.Origin) mr.Code {
	r, ok := b.regions[stag]
	switch {
	case !ok:
		return mr.UnallocatedSTag
	case remote && r.rights&(mr.RemoteRead|mr.RemoteWrite) == 0:
		return mr.InvalidateRights
	}
	delete(b.regions, stag)
	return 0
}

func (b *bench) Bind(s mr.Subject, w mr.Binding, by mr.Origin) (bool, mr.Code) {
	_, ended := b.regions[w.Window]
	b.regions[w.Window] = region{w.Start, w.Length, s.PD, w.Rights}
	return ended, 0
}

var ownMAC = [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}

func newBench(t testing.TB, change ...func(*qp.Config)) *bench {
	b := &bench{TB: t, mem: rdmatest.Memory(t, 4<<20), cqes: map[uint32][]event.Entry{}, regions: map[uint32]region{}}
	b.engine = engine.New(engine.Config{Manual: true, Clock: &b.clock})
	c := qp.Config{Mem: memory{b.mem, b}, Payload: b.mem, Buffers: hmc.New(hmc.Config{Mem: b.mem}), Regions: b, Queues: b,
		Engine: b.engine, MAC: func() [6]byte { return ownMAC }, Emit: func(e any) { b.events = append(b.events, e) }}
	for _, f := range change {
		f(&c)
	}
	b.table = qp.New(c)
	b.space = reg.NewSpace(8<<20, nil, b.table.Registers())
	return b
}

// drain runs the engine until nothing is left to do.
func (b *bench) drain() {
	b.Helper()
	if n := b.engine.Drain(100000); n == 100000 {
		b.Fatal("the engine does not come to rest")
	}
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func put(c *qp.Context, off int, v uint64) { binary.LittleEndian.PutUint64(c[off:], v) }

// context has an SQ of 16 quanta and an RQ of 8 WQEs of 64 bytes.
func context() (c qp.Context) {
	put(&c, 0, 1<<8|1<<20|1<<3)
	put(&c, 8, sq)
	put(&c, 16, rq)
	put(&c, 24, 4791<<48|0xC123<<32|0x2E<<24|2<<12|2<<8|64)
	put(&c, 32, 0xC0000201)
	put(&c, 48, 7<<48|0x2064<<32|4096<<16)
	put(&c, 56, 0x1234<<48|0xFFFF<<32|0xABCDE)
	put(&c, 64, 0x11111111<<32|0x56)
	put(&c, 80, 0xFFFF<<32|0x100)
	put(&c, 88, 0x200)
	put(&c, 96, 0x100<<32|0x100)
	put(&c, 128, 5<<57|6<<54|7<<48)
	put(&c, 136, 4<<32|3)
	put(&c, 152, 0x525400123456<<16)
	put(&c, 160, 3<<16|16|1<<24|1<<25)
	put(&c, 168, 0xFFFF888100001000)
	put(&c, 176, 5<<16)
	put(&c, 184, 0xC0000202)
	return c
}

func (b *bench) create(id uint32, typ qp.Type) {
	b.Helper()
	b.ok(b.table.Create(qp.CreateArgs{ID: id, Type: typ, State: qp.Idle, Shadow: shadow}, context()))
}

func (b *bench) modify(id uint32, s qp.State, c qp.Context) error {
	return b.table.Modify(qp.ModifyArgs{ID: id, State: s, CQNumbers: true}, func() (qp.Context, error) { return c, nil })
}

func TestContextFields(t *testing.T) {
	c := context()
	got := []any{c.PD(), c.SQQuanta(), c.RQQuanta(), c.RQWQESize(), c.TTL(), c.TOS(), c.SourcePort(), c.DestPort(),
		c.PathMTU(), c.VLANTag(), c.ARPIndex(), c.FlowLabel(), c.PKey(), c.DestQP(), c.QKey(), c.SendPSN(), c.ExpectedPSN(),
		c.RetryCount(), c.RNRRetryCount(), c.SendCQ(), c.RecvCQ(), c.ORD(), c.IRDEncoded(), c.QSHandle(), c.IPv4(),
		c.Privileged(), c.FastRegister(), c.Bind(), c.InsertVLAN()}
	want := []any{uint32(0x11234), uint32(16), uint32(16), uint32(64), uint8(64), uint8(0x2E), uint16(0xC123), uint16(4791),
		uint32(4096), uint16(0x2064), uint16(7), uint32(0xABCDE), uint16(0xFFFF), uint32(0x56), uint32(0x11111111), uint32(0x100), uint32(0x200),
		uint8(7), uint8(6), uint32(3), uint32(4), uint8(16), uint8(3), uint16(5), true,
		true, true, false, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ip := c.DestIP(); ip != [16]byte{12: 192, 13: 0, 14: 2, 15: 1} {
		t.Errorf("destination %v", ip)
	}
	if ip := c.LocalIP(); ip != [16]byte{12: 192, 13: 0, 14: 2, 15: 2} {
		t.Errorf("source %v", ip)
	}
	if m := c.MAC(); m != [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56} {
		t.Errorf("MAC %x", m)
	}
}

func TestTransitions(t *testing.T) {
	paths := map[qp.State][]qp.State{
		qp.Idle:  {},
		qp.RTR:   {qp.RTR},
		qp.RTS:   {qp.RTR, qp.RTS},
		qp.SQD:   {qp.RTR, qp.RTS, qp.SQD},
		qp.Error: {qp.Error},
	}
	legal := map[[2]qp.State]bool{
		{qp.Idle, qp.Idle}: true, {qp.Idle, qp.RTR}: true, {qp.RTR, qp.RTS}: true,
		{qp.RTS, qp.RTS}: true, {qp.RTS, qp.SQD}: true, {qp.SQD, qp.RTS}: true,
	}
	for from, path := range paths {
		for to := qp.Invalid; to <= qp.Error+1; to++ {
			b := newBench(t)
			b.create(3, qp.RoCERC)
			for _, s := range path {
				b.ok(b.modify(3, s, context()))
			}
			b.events = nil
			err := b.modify(3, to, context())
			if want := to == qp.Error || legal[[2]qp.State{from, to}]; (err == nil) != want {
				t.Errorf("%v -> %v: %v", from, to, err)
			}
			state, event := to, []any(nil)
			if err != nil {
				state, event = from, []any{qp.IllegalTransition{QP: 3, From: from, To: to}}
			}
			if got := b.table.QPs()[0].State; got != state.String() {
				t.Errorf("%v -> %v: state is %s", from, to, got)
			}
			if diff := cmp.Diff(event, b.events); diff != "" {
				t.Errorf("%v -> %v:\n%s", from, to, diff)
			}
		}
	}
}

// The context in memory always has the initial PSNs: they count only once. Nor
// does a connection change its peer or MTU.
func TestPSNsAreTakenOnce(t *testing.T) {
	b := newBench(t)
	b.create(3, qp.RoCERC)
	c := context()
	step := func(s qp.State, send, recv uint64, mtu uint64) qp.Info {
		put(&c, 80, send)
		put(&c, 88, recv)
		put(&c, 48, mtu<<16)
		put(&c, 64, mtu)
		b.ok(b.modify(3, s, c))
		return b.table.QPs()[0]
	}
	if i := step(qp.RTR, 1, 2, 256); i.RecvPSN != 2 || i.PathMTU != 256 {
		t.Errorf("RTR: %+v", i)
	}
	if i := step(qp.RTS, 3, 4, 512); i.SendPSN != 3 || i.RecvPSN != 2 || i.PathMTU != 256 || i.DestQP != 256 {
		t.Errorf("RTR -> RTS: %+v", i)
	}
	if i := step(qp.RTS, 5, 6, 1024); i.SendPSN != 3 || i.RecvPSN != 2 || i.PathMTU != 256 || i.DestQP != 256 {
		t.Errorf("RTS -> RTS: %+v", i)
	}
	step(qp.SQD, 7, 8, 2048)
	if i := step(qp.RTS, 9, 10, 4096); i.SendPSN != 3 || i.RecvPSN != 2 || i.PathMTU != 256 || i.DestQP != 256 {
		t.Errorf("SQD -> RTS: %+v", i)
	}
	if len(b.events) != 3 || b.events[1] != (qp.PeerChanged{QP: 3, From: 256, To: 1024, FromMTU: 256, ToMTU: 1024}) {
		t.Errorf("events %v", b.events)
	}
}

func TestDrainAndSuspend(t *testing.T) {
	b := newBench(t)
	b.create(3, qp.RoCERC)
	for _, s := range []qp.State{qp.RTR, qp.RTS, qp.SQD} {
		b.ok(b.modify(3, s, context()))
	}
	b.ok(b.table.Suspend(3))
	done := event.AE{Code: 0x900, Context: 0xFFFF888100001000, ID: 3, State: 2}
	if diff := cmp.Diff([]event.AE{done, done}, b.aes); diff != "" {
		t.Error(diff)
	}
	b.ok(b.table.Resume(3, 9))
	if i := b.table.QPs()[0]; i.QSHandle != 9 || i.Suspended {
		t.Errorf("after RESUME_QP: %+v", i)
	}
	if err := b.table.Resume(3, 9); !errors.Is(err, qp.ErrState) {
		t.Errorf("second RESUME_QP: %v", err)
	}
}

func TestCreateRefused(t *testing.T) {
	good := qp.CreateArgs{ID: 4, Type: qp.RoCERC, State: qp.Idle, Shadow: shadow}
	tests := map[string]struct {
		want   error
		change func(*qp.CreateArgs, *qp.Context)
	}{
		"exists":         {qp.ErrState, func(a *qp.CreateArgs, _ *qp.Context) { a.ID = 3 }},
		"number 0":       {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.ID = 0 }},
		"GSI not UD":     {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.ID = 1 }},
		"iWARP":          {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.Type = qp.IWARP }},
		"state":          {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.State = qp.RTS }},
		"shadow":         {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.Shadow++ }},
		"no such CQ":     {qp.ErrState, func(_ *qp.CreateArgs, c *qp.Context) { put(c, 136, 10<<32|3) }},
		"CCQ":            {qp.ErrState, func(_ *qp.CreateArgs, c *qp.Context) { put(c, 136, 3<<32) }},
		"SQ misaligned":  {qp.ErrParameter, func(_ *qp.CreateArgs, c *qp.Context) { put(c, 8, sq+8) }},
		"RQ wraps":       {qp.ErrParameter, func(_ *qp.CreateArgs, c *qp.Context) { put(c, 16, 1<<64-32) }},
		"RQ too small":   {qp.ErrParameter, func(_ *qp.CreateArgs, c *qp.Context) { put(c, 0, 3<<8); put(c, 24, 2<<12) }},
		"no such PBLE":   {qp.ErrParameter, func(a *qp.CreateArgs, c *qp.Context) { a.Virtual = true; put(c, 8, 5); put(c, 16, 6) }},
		"PBLE too large": {qp.ErrParameter, func(a *qp.CreateArgs, _ *qp.Context) { a.Virtual = true }},
	}
	for name, tt := range tests {
		b := newBench(t)
		b.create(3, qp.RoCERC)
		a, c := good, context()
		tt.change(&a, &c)
		if err := b.table.Create(a, c); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if b.table.Len() != 1 {
			t.Errorf("%s: %d QPs", name, b.table.Len())
		}
	}
}

// post writes the header of a WQE, or the last word of a further quantum.
func (b *bench) post(at uint64, header uint64) { b.ok(b.mem.Store64(at+24, header)) }

// flush is a flush from its beginning to its end.
func flush(t *qp.Table, a qp.FlushArgs) (sq, rq bool, err error) {
	f, err := t.Halt(a)
	if err != nil {
		return false, false, err
	}
	for done := false; !done; {
		if done, err = f.Run(); err != nil {
			return false, false, err
		}
	}
	sq, rq = f.Found()
	return sq, rq, nil
}

func TestFlush(t *testing.T) {
	b := newBench(t)
	b.create(3, qp.RoCERC)
	b.ok(b.modify(3, qp.Error, context()))
	all := func(a qp.FlushArgs) (sq, rq bool) {
		t.Helper()
		a.ID = 3
		sq, rq, err := flush(b.table, a)
		b.ok(err)
		return sq, rq
	}
	if s, r := all(qp.FlushArgs{SQ: true, RQ: true}); s || r || len(b.cqes) != 0 {
		t.Fatalf("empty queues: %t %t %v", s, r, b.cqes)
	}

	// SQ: a gap of two NOPs, a SEND of two quanta, a WRITE of one. RQ: three
	// WQEs whose second quanta hold garbage.
	const valid = 1 << 63
	for i, h := range []uint64{valid | opNOP<<32, valid | opNOP<<32, valid | 0x03<<32, valid, valid | 0<<32} {
		b.post(sq+32*uint64(i), h)
	}
	for i := range uint64(3) {
		b.post(rq+64*i, valid)
		b.post(rq+64*i+32, i<<63)
	}
	s, r := all(qp.FlushArgs{SQ: true, RQ: true, SQCodes: &qp.Codes{Major: 1, Minor: 8}})
	if !s || !r {
		t.Errorf("flushed %t %t, want both", s, r)
	}
	want := map[uint32][]event.Entry{
		3: {{Context: 0xFFFF888100001000, QP: 3, WQE: 2, Op: 3, Major: 1, Minor: 8, SQ: true, Error: true}},
		4: {{Context: 0xFFFF888100001000, QP: 3, Major: 1, Minor: 1, Error: true}},
	}
	if diff := cmp.Diff(want, b.cqes); diff != "" {
		t.Error(diff)
	}
	if v, _ := b.mem.Load64(shadow); v != 5 {
		t.Errorf("HW_SQ_TAIL %d, want 5", v)
	}

	// Up to the end of the receive ring and once around: the sense flips.
	b.cqes = map[uint32][]event.Entry{}
	for i := uint64(3); i < 8; i++ {
		b.post(rq+64*i, valid)
	}
	all(qp.FlushArgs{RQ: true})
	b.post(rq, 0)
	b.post(rq+64, 0)
	all(qp.FlushArgs{RQ: true})
	var index []uint16
	for _, e := range b.cqes[4] {
		index = append(index, e.WQE)
	}
	if diff := cmp.Diff([]uint16{6, 0}, index); diff != "" { // in quanta
		t.Errorf("WQE indices:\n%s", diff)
	}
	if i := b.table.QPs()[0].RQ; i.Next != 2 || i.Polarity != 0 {
		t.Errorf("receive ring: %+v", i)
	}
	if s, r := all(qp.FlushArgs{SQ: true, RQ: true}); s || r {
		t.Errorf("nothing new, but flushed %t %t", s, r)
	}
}

const opNOP = 0x0C

// A ring in which every valid bit fits is walked once, not for ever.
func TestFlushOfFullRing(t *testing.T) {
	b := newBench(t)
	b.create(3, qp.RoCERC)
	b.ok(b.modify(3, qp.Error, context()))
	for i := range uint64(8) {
		b.post(rq+64*i, 1<<63)
	}
	if _, r, err := flush(b.table, qp.FlushArgs{ID: 3, RQ: true}); err != nil || !r || len(b.cqes[4]) != 1 {
		t.Errorf("%t %v %v", r, err, b.cqes)
	}
}

// A flush of a large ring comes in turns, and reports the oldest WQE of all.
func TestFlushInTurns(t *testing.T) {
	b := newBench(t)
	c := context()
	// A receive queue of 32768 quanta, one to a WQE.
	put(&c, 16, 0x200000)
	put(&c, 0, 1<<20|1<<3)
	put(&c, 24, 4791<<48|0xC123<<32|0x2E<<24|2<<12|13<<8|64)
	if got := c.RQQuanta(); got != 1<<15 {
		t.Fatalf("%d quanta", got)
	}
	b.ok(b.table.Create(qp.CreateArgs{ID: 3, Type: qp.RoCERC, State: qp.Idle, Shadow: shadow}, c))
	b.ok(b.modify(3, qp.Error, c))
	slots := uint64(c.RQQuanta() * 32 / c.RQWQESize())
	for i := range slots {
		b.post(0x200000+uint64(c.RQWQESize())*i, 1<<63)
	}
	f, err := b.table.Halt(qp.FlushArgs{ID: 3, SQ: true, RQ: true})
	b.ok(err)
	turns := 1
	for ; ; turns++ {
		done, err := f.Run()
		if b.ok(err); done {
			break
		}
		if len(b.cqes[4]) != 0 {
			t.Fatal("a CQE before the end")
		}
	}
	if want := int(slots/qp.FlushLimit) + 1; turns < want-1 || turns > want+1 {
		t.Errorf("%d turns for %d slots", turns, slots)
	}
	if sq, rq := f.Found(); sq || !rq || len(b.cqes[4]) != 1 || b.cqes[4][0].WQE != 0 {
		t.Errorf("found %t %t, %v", sq, rq, b.cqes)
	}
}

func TestDoorbellOfNoQP(t *testing.T) {
	b := newBench(t)
	b.create(3, qp.RoCERC)
	ring := func() { b.space.Write32(0x504400, 3); b.drain() }
	ring() // IDLE: nothing to do
	b.ok(b.modify(3, qp.RTR, context()))
	b.ok(b.modify(3, qp.RTS, context()))
	ring()
	b.ok(b.modify(3, qp.Error, context()))
	ring()
	b.ok(b.table.Destroy(3))
	ring()
	b.space.Write32(0x7F0000, 4) // the user programs' alias
	want := []any{qp.UnknownQP{QP: 3}, qp.UnknownQP{QP: 4, User: true}}
	if diff := cmp.Diff(want, b.events); diff != "" {
		t.Error(diff)
	}
}

func TestAbsentQP(t *testing.T) {
	b := newBench(t)
	_, _, flushed := flush(b.table, qp.FlushArgs{ID: 3, SQ: true})
	for name, err := range map[string]error{
		"MODIFY_QP":  b.modify(3, qp.Error, context()),
		"DESTROY_QP": b.table.Destroy(3),
		"FLUSH_WQES": flushed,
		"SUSPEND_QP": b.table.Suspend(3),
		"RESUME_QP":  b.table.Resume(3, 0),
		"GEN_AE":     b.table.Raise(3, 1, 1),
	} {
		if !errors.Is(err, qp.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
