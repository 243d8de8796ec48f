// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var full = flag.Bool("full", false, "run tests with random work at full length")

const (
	fullTraffic  = 100_000
	shortTraffic = 6_000
	window       = 192 << 10 // bytes of a region that one round uses
	roundOps     = 48
)

// flat is a registered region and what it should hold.
type flat struct {
	*Region
	mr   *MR
	want []byte
	lo   int // of the window
	next int // first byte of it that no operation of the round has
}

// regionKind is a way to lay out and register memory.
type regionKind struct {
	name   string
	size   int
	va     uint64
	page   int // 0: one run of 4 KiB pages
	zero   bool
	level  int
	broken bool // the pool of PBLEs is fragmented before
}

func regionKinds() []regionKind {
	return []regionKind{
		{"run", window + 5000, 0x7f00_0000_1003, 0, false, 0, false},
		{"scattered", window + 9000, 0x5555_5555_0ff8, Page4K, false, 1, false},
		{"scattered, zero-based", window + 777, 0x7f12_3456_7123, Page4K, true, 1, false},
		{"one 2M page", window + 1, 0x7f80_0012_3455, Page2M, false, 0, false},
		{"2M pages, zero-based", window + 4096, 0x7fbf_fffe_e001, Page2M, true, 1, false},
		{"two levels", 530*Page4K + 99, 0xfff0_0000_0801, Page4K, false, 2, true},
	}
}

func newFlat(r *IRDMA, rnd *rand.Rand, k regionKind, pd uint32, access Access) (*flat, error) {
	var m *Region
	var err error
	if k.page == 0 {
		m, err = r.F.Guest.NewRun(k.va, k.size)
	} else {
		m, err = r.F.Guest.NewRegion(rnd, k.va, k.size, k.page)
	}
	if err != nil {
		return nil, err
	}
	if k.broken {
		r.fragmentPBLEs()
	}
	f := &flat{Region: m, want: make([]byte, k.size)}
	fillRandom(rnd, f.want)
	m.Write(0, f.want)
	if f.mr, err = r.RegMR(pd, m, access, MROptions{ZeroBased: k.zero, Rand: rnd}); err != nil {
		return nil, err
	}
	if f.mr.Level != k.level {
		return nil, fmt.Errorf("region %q is of level %d", k.name, f.mr.Level)
	}
	return f, nil
}

// fragmentPBLEs leaves no run of more than a page in the pool.
func (r *IRDMA) fragmentPBLEs() {
	const units = pblesInPage / pbleUnit
	for _, c := range r.pble.chunks {
		for u := 0; u < len(c.units); u += units + 1 {
			c.units[u] = true
		}
	}
}

func fillRandom(rnd *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		le.PutUint64(b, rnd.Uint64())
	}
	for n := range b {
		b[n] = byte(rnd.Uint32())
	}
}

// restart moves the window.
func (f *flat) restart(rnd *rand.Rand) {
	f.lo = rnd.IntN(f.Size - window + 1)
	f.next = f.lo
}

// claim takes n bytes of the window for one operation; -1 if there are not that
// many.
func (f *flat) claim(rnd *rand.Rand, n int) int {
	at := f.next + rnd.IntN(9)
	if at+n > f.lo+window {
		return -1
	}
	f.next = at + n
	return at
}

func (f *flat) check(what string, off, n int) error {
	if at := f.Differs(off, f.want[off:off+n]); at >= 0 {
		var b [1]byte
		f.Read(at, b[:])
		return fmt.Errorf("%s: byte %d is %#x, want %#x", what, at, b[0], f.want[at])
	}
	return nil
}

// piece is where bytes must be when a work request completes.
type piece struct {
	f      *flat
	off, n int
}

// expected is a completion to come.
type expected struct {
	id        uint64
	op        uint8
	len       uint32
	imm       uint32
	hasImm    bool
	solicited bool
	there     []piece
}

// end is one QP of a connected pair with its memory. Its source changes between
// rounds only.
type end struct {
	name         string
	qp           *QP
	peer         *end
	src, dst     *flat
	sends, recvs []expected // completions to come, in order
	wrs          []SendWR   // of the round, not posted yet
	buffers      []RecvWR
	nextID       uint64
}

// traffic is a set of pairs with random work on them.
type traffic struct {
	rs    []*IRDMA // one, or those of two machines
	rnd   *rand.Rand
	ends  []*end
	by    map[*QP]*end
	cqs   []*CQ
	armed map[*CQ]int // events at the time
	ops   int
	kinds [64]int // completions by opcode
}

// newTraffic makes pairs of connected QPs, each with another layout of rings,
// CQs and memory.
func newTraffic(r *IRDMA, rnd *rand.Rand, pairs int) (*traffic, error) {
	return newTrafficBetween(r, r, rnd, pairs)
}

// newTrafficBetween has one end of each pair on one machine, the other on another.
func newTrafficBetween(a, b *IRDMA, rnd *rand.Rand, pairs int) (*traffic, error) {
	tr := &traffic{rs: []*IRDMA{a}, rnd: rnd, by: make(map[*QP]*end), armed: make(map[*CQ]int)}
	if a != b {
		tr.rs = append(tr.rs, b)
	}
	kinds := regionKinds()
	for p := range pairs {
		var ends [2]*end
		size := 2*roundOps*3 + 7 + p
		var cq *CQ
		var err error
		for k, r := range []*IRDMA{a, b} {
			if cq == nil || cq.r != r { // ends on one machine share it
				if cq, err = r.CreateCQ(size, 0, p%2 == 1); err != nil {
					return nil, err
				}
				tr.cqs = append(tr.cqs, cq)
			}
			recv := cq
			if p%3 == 0 { // a CQ for each receive queue
				if recv, err = r.CreateCQ(size+k, 0, k == 1); err != nil {
					return nil, err
				}
				tr.cqs = append(tr.cqs, recv)
			}
			e := &end{name: fmt.Sprintf("pair %d end %d", p, k)}
			pd := uint32(10 + p)
			if e.qp, err = r.NewQP(QPConfig{Send: cq, Recv: recv, PD: pd, SendWRs: roundOps, RecvWRs: roundOps,
				SendSGEs: maxSGEs, RecvSGEs: maxSGEs, Inline: maxInline, User: (p+k)%2 == 1}); err != nil {
				return nil, err
			}
			if e.src, err = newFlat(r, rnd, kinds[(2*p+k)%len(kinds)], pd, LocalRead|RemoteRead); err != nil {
				return nil, err
			}
			if e.dst, err = newFlat(r, rnd, kinds[(2*p+k+3)%len(kinds)], pd, LocalRead|LocalWrite|RemoteWrite); err != nil {
				return nil, err
			}
			at := &e.qp.Attr
			at.MTU = []int{256, 512, 1024, 2048, 4096}[rnd.IntN(5)]
			at.SendPSN = rnd.Uint32N(1 << 24)
			if p%2 == 1 {
				at.SendPSN = 1<<24 - 1 - rnd.Uint32N(1000) // it wraps
				at.IPv6 = true
				at.LocalIP = r.Address(true)
				at.DestIP = at.LocalIP
			}
			at.ORD, at.RNRTries, at.Retries = uint8(1+rnd.IntN(16)), 7, 7
			at.IRD = 16
			ends[k] = e
			tr.by[e.qp] = e
		}
		ends[0].qp.Attr.MTU = ends[1].qp.Attr.MTU
		ends[0].peer, ends[1].peer = ends[1], ends[0]
		if err := ConnectPair(ends[0].qp, ends[1].qp); err != nil {
			return nil, err
		}
		tr.ends = append(tr.ends, ends[:]...)
	}
	return tr, nil
}

// close destroys everything.
func (tr *traffic) close() error {
	for _, e := range tr.ends {
		if err := e.qp.Destroy(); err != nil {
			return err
		}
		for _, f := range []*flat{e.src, e.dst} {
			if err := f.mr.Dereg(); err != nil {
				return err
			}
			f.Free()
		}
	}
	for _, q := range tr.cqs {
		if err := q.Destroy(); err != nil {
			return err
		}
	}
	return nil
}

func (tr *traffic) size() int {
	n := tr.rnd.IntN(100)
	switch {
	case n < 20:
		return tr.rnd.IntN(9)
	case n < 50:
		return tr.rnd.IntN(200)
	case n < 85:
		return tr.rnd.IntN(4100)
	case n < 98:
		return tr.rnd.IntN(20_000)
	}
	return tr.rnd.IntN(120_000)
}

// cut divides n into at most maxSGEs numbers, some of them 0.
func (tr *traffic) cut(n int) []int {
	count := tr.rnd.IntN(maxSGEs + 1)
	if tr.rnd.IntN(2) == 0 {
		count = min(count, 2)
	}
	if n == 0 {
		return make([]int, min(count, 3))
	}
	cuts := []int{0, n}
	for range max(count, 1) - 1 {
		cuts = append(cuts, tr.rnd.IntN(n+1))
	}
	slices.Sort(cuts)
	var parts []int
	for k := range cuts[1:] {
		parts = append(parts, cuts[k+1]-cuts[k])
	}
	return parts
}

// sge is the SGE of n bytes at off of f. Nobody looks at an empty one's key; a
// privileged QP needs none for what lies in one page.
func (tr *traffic) sge(e *end, f *flat, off, n int) SGE {
	if n == 0 {
		return SGE{tr.rnd.Uint64(), 0, tr.rnd.Uint32()}
	}
	p := f.first + off
	if !e.qp.Cfg.User && p/f.PageSize == (p+n-1)/f.PageSize && tr.rnd.IntN(8) == 0 {
		return SGE{f.pages[p/f.PageSize].IOVA + uint64(p%f.PageSize), uint32(n), 0}
	}
	return SGE{f.mr.Addr(off), uint32(n), f.mr.STag}
}

// gather makes SGEs of n random bytes of e's source, and returns the bytes.
func (tr *traffic) gather(e *end, n int) (list []SGE, data []byte) {
	for _, part := range tr.cut(n) {
		off := tr.rnd.IntN(e.src.Size - part + 1)
		list = append(list, tr.sge(e, e.src, off, part))
		data = append(data, e.src.want[off:off+part]...)
	}
	return list, data
}

// scatter makes SGEs of room for n bytes in e's destination and says what will
// be there. False: the window is full.
func (tr *traffic) scatter(e *end, room int, data []byte) (list []SGE, there []piece, ok bool) {
	for _, part := range tr.cut(room) {
		off := e.dst.claim(tr.rnd, part)
		if off < 0 {
			return nil, nil, false
		}
		list = append(list, tr.sge(e, e.dst, off, part))
		there = append(there, piece{e.dst, off, part})
	}
	for _, p := range there { // the rest of the room stays as it is
		copy(p.f.want[p.off:p.off+min(p.n, len(data))], data)
		data = data[min(p.n, len(data)):]
	}
	return list, there, true
}

// plan adds a random operation of e to the round; false if there is no room.
func (tr *traffic) plan(e *end) bool {
	rnd, p := tr.rnd, e.peer
	e.nextID++
	n := tr.size()
	w := SendWR{ID: e.nextID, Signalled: rnd.IntN(3) > 0, ReadFence: rnd.IntN(10) == 0, LocalFence: rnd.IntN(20) == 0}
	x := expected{id: w.ID, len: uint32(n)}
	solicited := rnd.IntN(4) == 0
	recv := expected{len: x.len}
	var data []byte
	load := func() { // payload from e's source
		if n <= maxInline && rnd.IntN(2) == 0 {
			off := rnd.IntN(e.src.Size - n + 1)
			data = e.src.want[off : off+n]
			w.Inline = append([]byte{}, data...)
			return
		}
		w.SGEs, data = tr.gather(e, n)
	}
	immediate := func() {
		if rnd.IntN(2) == 0 {
			w.HasImm, w.Imm = true, rnd.Uint32()
			recv.hasImm, recv.imm = true, w.Imm
		}
	}
	switch kind := rnd.IntN(3); kind {
	case 0: // read
		off := rnd.IntN(p.src.Size - n + 1)
		var ok bool
		if w.SGEs, x.there, ok = tr.scatter(e, n, p.src.want[off:off+n]); !ok {
			return false
		}
		w.Op = IRDMA_OP_TYPE_RDMA_READ
		w.RemoteAddr, w.RKey = p.src.mr.Addr(off), p.src.mr.STag
	case 1: // write
		off := p.dst.claim(rnd, n)
		if off < 0 {
			return false
		}
		load()
		copy(p.dst.want[off:], data)
		x.there = []piece{{p.dst, off, n}}
		w.Op = IRDMA_OP_TYPE_RDMA_WRITE
		w.RemoteAddr, w.RKey = p.dst.mr.Addr(off), p.dst.mr.STag
		if immediate(); w.HasImm {
			recv.there, recv.op = x.there, cqeWriteLastImm
			if n <= e.qp.Attr.MTU {
				recv.op = cqeWriteOnlyImm
			}
			recv.solicited = solicited
			if solicited {
				w.Op = IRDMA_OP_TYPE_RDMA_WRITE_SOL
			}
			tr.buffer(p, recv, nil)
		}
	case 2: // send
		load()
		list, there, ok := tr.scatter(p, n+rnd.IntN(2)*rnd.IntN(100), data)
		if !ok {
			return false
		}
		immediate()
		w.Op = IRDMA_OP_TYPE_SEND
		if solicited {
			w.Op, recv.solicited = IRDMA_OP_TYPE_SEND_SOL, true
		}
		recv.there, x.there = there, there
		tr.buffer(p, recv, list)
	}
	x.op = w.Op
	e.wrs = append(e.wrs, w)
	if w.Signalled {
		e.sends = append(e.sends, x)
	}
	return true
}

// buffer adds a receive buffer to the round.
func (tr *traffic) buffer(e *end, x expected, list []SGE) {
	e.nextID++
	x.id = e.nextID
	e.recvs = append(e.recvs, x)
	e.buffers = append(e.buffers, RecvWR{x.id, list})
}

// round plans, posts and checks a round of work on all pairs.
func (tr *traffic) round(interrupts bool) error {
	tr.prepare()
	if err := tr.post(); err != nil {
		return err
	}
	return tr.finish(interrupts)
}

// finish waits for a round that is posted, and checks what it was to change.
func (tr *traffic) finish(interrupts bool) error {
	if err := tr.drain(interrupts); err != nil {
		return err
	}
	for _, e := range tr.ends {
		for _, f := range []*flat{e.src, e.dst} {
			if err := f.check(e.name+": round", f.lo, window); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare plans a round.
func (tr *traffic) prepare() {
	rnd := tr.rnd
	for _, e := range tr.ends {
		e.src.restart(rnd)
		e.dst.restart(rnd)
		fillRandom(rnd, e.src.want[e.src.lo:e.src.lo+window])
		e.src.Write(e.src.lo, e.src.want[e.src.lo:e.src.lo+window])
	}
	for p := 0; p < len(tr.ends); p += 2 {
		for range rnd.IntN(roundOps) + 1 {
			if !tr.plan(tr.ends[p+rnd.IntN(2)]) {
				break
			}
			tr.ops++
		}
	}
	for _, e := range tr.ends {
		// The last one tells that all are done.
		if n := len(e.wrs) - 1; n >= 0 && !e.wrs[n].Signalled {
			w := &e.wrs[n]
			w.Signalled = true
			e.sends = append(e.sends, expected{id: w.ID, op: w.Op, len: w.Len()})
		}
	}
}

// post posts the round in random portions; receive buffers now and then too
// late.
func (tr *traffic) post() error {
	late := tr.rnd.IntN(20) == 0
	buffers := func() error {
		for _, e := range tr.ends {
			if err := e.qp.PostRecv(e.buffers...); err != nil {
				return err
			}
			e.buffers = e.buffers[:0]
		}
		return nil
	}
	if !late {
		if err := buffers(); err != nil {
			return err
		}
	}
	for busy := true; busy; {
		busy = false
		for _, e := range tr.ends {
			if len(e.wrs) == 0 {
				continue
			}
			busy = true
			n := 1 + tr.rnd.IntN(min(len(e.wrs), 8))
			if err := e.qp.PostSend(e.wrs[:n]...); err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			e.wrs = e.wrs[n:]
		}
	}
	if late {
		return buffers()
	}
	return nil
}

func (tr *traffic) pending() int {
	n := 0
	for _, e := range tr.ends {
		n += len(e.sends) + len(e.recvs)
	}
	return n
}

// take polls all CQs until they are empty and returns the number of entries.
func (tr *traffic) take() (int, error) {
	n := 0
	for _, q := range tr.cqs {
		for {
			wc, ok, err := q.Poll()
			if err != nil {
				return n, err
			}
			if !ok {
				break
			}
			n++
			if err := tr.done(wc); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// done compares a completion with the one that is due.
func (tr *traffic) done(wc WC) error {
	e := tr.by[wc.QP]
	tr.kinds[wc.Op]++
	list, what := &e.recvs, "receive"
	if wc.Send {
		list, what = &e.sends, "send"
	}
	what = fmt.Sprintf("%s: %s completion %+v", e.name, what, struct {
		ID     uint64
		Status Status
		Op     uint8
		Len    uint32
	}{wc.ID, wc.Status, wc.Op, wc.Len})
	if len(*list) == 0 {
		return fmt.Errorf("%s: none is due", what)
	}
	x := (*list)[0]
	*list = (*list)[1:]
	if wc.ID != x.id || wc.Status != Success || wc.Len != x.len || wc.HasSTag {
		return fmt.Errorf("%s: want id %d and %d bytes; events %+v", what, x.id, x.len, tr.events())
	}
	if wc.Send && wc.Op != x.op || x.hasImm && x.op != 0 && wc.Op != x.op ||
		!wc.Send && x.op == 0 && (wc.Op == cqeWriteLastImm || wc.Op == cqeWriteOnlyImm) {
		return fmt.Errorf("%s: opcode, want %#x", what, x.op)
	}
	if wc.HasImm != x.hasImm || wc.Imm != x.imm || wc.Solicited != x.solicited {
		return fmt.Errorf("%s: immediate %v %#x, solicited %v; want %v %#x, %v", what, wc.HasImm, wc.Imm, wc.Solicited, x.hasImm, x.imm, x.solicited)
	}
	for _, p := range x.there {
		if err := p.f.check(what, p.off, p.n); err != nil {
			return err
		}
	}
	return nil
}

// drain takes all completions that are due: by polling, or by events alone.
func (tr *traffic) drain(interrupts bool) error {
	var failure error
	err := tr.rs[0].F.poll("completions of a round", func() bool {
		n, err := tr.take()
		if failure = err; err != nil || tr.pending() == 0 {
			return true
		}
		if n > 0 {
			return false
		}
		if interrupts {
			failure = tr.sleep()
		} else {
			failure = tr.work()
		}
		return failure != nil
	})
	return errors.Join(failure, err)
}

// sleep arms all CQs that are not, and waits if they are still empty.
func (tr *traffic) sleep() error {
	for _, q := range tr.cqs {
		if at, ok := tr.armed[q]; !ok || at != q.Events {
			tr.armed[q] = q.Events
			q.Arm(false)
		}
	}
	if n, err := tr.take(); n > 0 || err != nil {
		return err
	}
	if len(tr.rs) == 1 {
		return tr.rs[0].WaitService(tr.cqs[0].ceq.Vector)
	}
	var failure error
	err := tr.rs[0].F.poll("an event of a completion queue", func() bool {
		failure = tr.work()
		return failure != nil || slices.ContainsFunc(tr.cqs, func(q *CQ) bool { return tr.armed[q] != q.Events })
	})
	return errors.Join(failure, err)
}

// work is what the drivers do when an interrupt comes.
func (tr *traffic) work() (err error) {
	for _, r := range tr.rs {
		err = errors.Join(err, r.Work())
	}
	return err
}

// events are the asynchronous ones so far.
func (tr *traffic) events() (list []AE) {
	for _, r := range tr.rs {
		list = append(list, r.AEs...)
	}
	return list
}

// count is how many operations a test of a kernel does.
func trafficCount() int {
	if *full {
		return fullTraffic
	}
	return shortTraffic
}

// Random work on several QPs at once, with every byte looked at.
func TestTraffic(t *testing.T) {
	kernels := Kernels()
	for n, k := range kernels {
		t.Run(k.Name, func(t *testing.T) {
			m, complaints := startIn(t, newGuestOf(t, 256), k, Options{NoLargePages: n == 1})
			rnd := rand.New(rand.NewPCG(uint64(n), 3))
			const pairs = 4
			tr, err := newTraffic(m.r, rnd, pairs)
			must(t, err)
			for round := 0; tr.ops < trafficCount()/len(kernels); round++ {
				if err := tr.round(round%4 == 0); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
			for _, e := range tr.ends {
				must(t, e.src.check(e.name+": source", 0, e.src.Size))
				must(t, e.dst.check(e.name+": destination", 0, e.dst.Size))
			}
			if len(m.r.AEs) > 0 {
				t.Errorf("events %+v", m.r.AEs)
			}
			must(t, tr.close())
			must(t, m.takeDown())
			quiet(t, complaints)
		})
	}
}
