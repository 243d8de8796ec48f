// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
	"github.com/vrnic/vrnic/devmodel/reg"
)

var (
	count = flag.Int("sequences", 3000, "how many random sequences")
	seed  = flag.Uint64("seed", 1, "of the random sequences")
)

const (
	longest  = 16  // operations of a sequence
	perLife  = 400 // sequences, before all ends
	segments = 4
)

// profile has few objects of each type, so that sequences meet each other's, in
// one segment, and PBLEs in three more.
func profile() hmc.Profile {
	p := hmc.Profile{MaxSDs: segments, MaxCEQs: 8, HTMultiplier: 1, TimerBucket: 1, PBLESD: 1}
	p.Limits = [hmc.NumObjects]hmc.Limit{
		hmc.QP: {Max: 24, Log2: 9}, hmc.CQ: {Max: 24, Log2: 6}, hmc.MR: {Max: 32, Log2: 6}, hmc.ARP: {Max: 16, Log2: 6},
		hmc.HTE: {Max: 8, Log2: 6}, hmc.FSIMC: {Max: 8, Log2: 6}, hmc.FSIAV: {Max: 16, Log2: 6}, hmc.PBLE: {Max: 600_000},
		hmc.XF: {Log2: 4}, hmc.XFFL: {Block: 4}, hmc.Q1: {Max: 1024, Log2: 2}, hmc.Q1FL: {Block: 4}, hmc.RRFFL: {Block: 4},
		hmc.OOISCFFL: {Block: 4},
	}
	return p
}

// device is an engine with the driver's own objects up.
type device struct {
	*rdmatest.Guest
	world  World
	events []any
	ceq    uint64
	aeq    uint64
}

func newDevice(t testing.TB) *device {
	d := &device{}
	d.Guest = rdmatest.New(t, profile(), func(c *rdma.Config) {
		c.Emit = func(e any) { d.events = append(d.events, e) }
	})
	return d
}

const eventEntries = 256

// boot brings the driver's own objects up.
func (d *device) boot() {
	const ringEnc, direct, pages = 6, 0x803, 1 << 12
	d.CreateCQP(ringEnc)
	query, commit := d.Alloc(pages), d.Alloc(pages)
	d.Must(WQE{3: opQueryFPM << 32, 4: query})
	own := profile()
	w := World{MaxSDs: own.MaxSDs, MaxCEQs: own.MaxCEQs, MAC: 0x52540012_3456, AEQ: true,
		QPs: Range{1, 23}, CQs: Range{1, 23}, MRs: Range{0, 32}, AHs: Range{1, 15}, Groups: Range{1, 7}, ARPs: Range{1, 15},
		Nodes: Range{0, 12}, CEQs: Range{1, 5}, SDs: Range{0, segments}, PBLEs: Range{0, own.Limits[hmc.PBLE].Max}, Nowhere: 0x10_0000_0000}
	for o, limit := range own.Limits {
		if word, ok := commitWord(hmc.Object(o)); ok && limit.Max > 0 {
			d.Store(commit+8*uint64(word), uint64(limit.Max))
		}
	}
	d.Must(WQE{3: opCommitFPM<<32 | 208, 4: commit})
	for o := range own.Limits {
		if word, ok := commitWord(hmc.Object(o)); ok {
			v := d.Load(commit + 8*uint64(word))
			w.Objects[o] = Extent{Base: v >> 32 * 512, Count: uint32(v), Size: 1 << own.Log2Size(hmc.Object(o))}
		}
	}
	w.Fill, w.Zero, w.Scratch = d.Alloc(FillSize), d.Alloc(ZeroSize), d.Alloc(ScratchSize)
	d.world = w
	d.setSD(0, true)
	d.Must(WQE{3: opPages << 32})
	d.CreateCCQ()
	d.ceq, d.aeq = d.Alloc(8*eventEntries), d.Alloc(16*eventEntries)
	d.Must(WQE{2: eventEntries, 3: opCreateCEQ << 32, 4: d.ceq})
	d.Must(WQE{2: eventEntries, 3: opCreateAEQ << 32, 4: d.aeq})
}

// setSD programs a direct segment, or clears one.
func (d *device) setSD(sd uint64, valid bool) {
	const write, entry = 0x8000_8000, 512<<2 | 2
	w := WQE{0: write + sd, 1: entry, 3: opUpdateSDs << 32}
	if valid {
		w[1] |= d.world.Zero | 1
	}
	d.Must(w)
}

// run does operations with one doorbell.
func (d *device) run(ops []Op) []rdmatest.Completion {
	wqes := make([]WQE, len(ops))
	for i, o := range ops {
		if o.Addr != 0 {
			d.Store(o.Addr, o.Memory...)
		}
		wqes[i] = o.WQE
	}
	return d.RunAll(wqes)
}

// fault is what a device did wrong.
type fault struct {
	at  int // the operation, of all in this life
	err error
}

func (f *fault) String() string {
	if f == nil {
		return "not by themselves"
	}
	return f.err.Error()
}

// life is a device from the driver's coming to its going.
type life struct {
	d    *device
	m    *Model
	done []Op
	// What became of them.
	verdicts []Verdict
}

func newLife(d *device) *life {
	d.boot()
	return &life{d: d, m: NewModel(d.world, map[uint32]bool{0: true})}
}

// try does operations that make no use of each other's answers, and compares.
func (l *life) try(ops []Op, verdicts []Verdict) *fault {
	first := len(l.done)
	l.done, l.verdicts = append(l.done, ops...), append(l.verdicts, verdicts...)
	l.d.events = l.d.events[:0]
	for i, c := range l.d.run(ops) {
		o := &ops[i]
		bad := func(format string, args ...any) *fault {
			return &fault{first + i, fmt.Errorf("%v\n\t%s", o, fmt.Sprintf(format, args...))}
		}
		switch v := verdicts[i]; {
		case v == Done && c.Error, v == Refused && !c.Error:
			return bad("completion %+v, want it %v; %v", c, v, last(l.d.events))
		case c.Error && (c.Major != 0xffff || c.Minor != 0x8001 && c.Minor != 0x8002):
			return bad("codes %#x, %#x of a refusal", c.Major, c.Minor)
		case !c.Error:
			if err := l.m.Note(o, c.Value); err != nil {
				return bad("%v", err)
			}
		}
	}
	return nil
}

func last(events []any) any {
	if len(events) == 0 {
		return nil
	}
	return events[len(events)-1]
}

// sequence does one and looks at all that the device has.
func (l *life) sequence(next func() (Op, bool)) *fault {
	var ops []Op
	var verdicts []Verdict
	flush := func() *fault {
		f := l.try(ops, verdicts)
		ops, verdicts = ops[:0], verdicts[:0]
		return f
	}
	for {
		o, ok := next()
		if !ok {
			break
		}
		ops, verdicts = append(ops, o), append(verdicts, l.m.Apply(&o))
		if !o.Answers() && !l.m.Dangling() {
			continue
		}
		if f := flush(); f != nil {
			return f
		}
		if verdicts := l.m.Complained(l.d.events); verdicts != nil {
			return &fault{len(l.done) - 1, fmt.Errorf("%v\n\t%w", &o, verdicts)}
		}
	}
	if f := flush(); f != nil {
		return f
	}
	if err := l.m.Check(l.d.Snapshot()); err != nil {
		return &fault{len(l.done) - 1, fmt.Errorf("after a sequence: %w", err)}
	}
	return nil
}

// end ends all properly, and sees that nothing is left.
func (l *life) end() error {
	d := l.d
	if !l.m.sds[0] { // what is to be ended must be backed
		d.setSD(0, true)
		l.m.sds[0] = true
	}
	d.Must(WQE{3: opPages << 32})
	l.m.backed = true
	ends := l.m.Ends()
	for _, verdict := range []Verdict{Done, Refused} { // nothing ends twice
		for list := ends; len(list) > 0; {
			n := min(longest, len(list))
			var verdicts []Verdict
			for i := range list[:n] {
				v := l.m.Apply(&list[i])
				if v != verdict {
					return fmt.Errorf("the model has it %v: %v", v, &list[i])
				}
				verdicts = append(verdicts, v)
			}
			if f := l.try(list[:n], verdicts); f != nil {
				return f.err
			}
			list = list[n:]
		}
	}
	if err := l.m.Check(d.Snapshot()); err != nil {
		return fmt.Errorf("all has ended: %w", err)
	}
	if left := l.m.Live(); left != "" {
		return fmt.Errorf("all has ended but%s", left)
	}
	if l.m.aeq {
		d.Must(WQE{3: opDestroyAEQ << 32})
	}
	d.Must(WQE{3: opDestroyCEQ << 32})
	ccq := d.CCQ
	d.CCQ = nil
	d.Must(WQE{0: uint64(ccq.Size), 3: opDestroyCQ << 32, 5: ccq.Shadow})
	for sd := range l.m.sds {
		d.setSD(uint64(sd), false)
	}
	d.events = d.events[:0]
	d.DestroyCQP()
	for _, e := range d.events {
		if leaked, ok := e.(cqp.Leaked); ok {
			return fmt.Errorf("all has ended, but %v", leaked)
		}
	}
	return empty(d)
}

// abandon ends the control QP, or resets the function, with all that is there.
func (l *life) abandon(reset bool) error {
	if reset {
		l.d.Lock.Lock()
		l.d.Engine.Reset(reg.PFR)
		l.d.Space.Reset(reg.PFR)
		l.d.Lock.Unlock()
	} else {
		l.d.CCQ = nil
		l.d.DestroyCQP()
	}
	return empty(l.d)
}

func empty(d *device) error {
	s := d.Snapshot()
	if n := len(s.QPs) + len(s.CQs) + len(s.CEQs) + len(s.MRs) + len(s.AHs) + len(s.ARPs) + len(s.Multicast) + len(s.WorkNodes) + len(s.SDs); n != 0 || s.AEQ != nil || s.CQP.Live {
		return fmt.Errorf("the device is not empty: %+v", s)
	}
	return nil
}

// replay does operations on a device that is new.
func replay(t testing.TB, ops []Op) *fault {
	d := newDevice(t)
	l := newLife(d)
	for at := 0; at < len(ops); at += longest {
		part := ops[at:min(at+longest, len(ops))]
		k := 0
		if f := l.sequence(func() (Op, bool) {
			if k == len(part) {
				return Op{}, false
			}
			k++
			return part[k-1], true
		}); f != nil {
			return f
		}
	}
	return nil
}

// shrink finds fewer operations that a device fails at.
func shrink(t testing.TB, ops []Op) []Op {
	for size := len(ops) / 2; size > 0; {
		smaller := false
		for at := 0; at+size <= len(ops); {
			rest := append(append([]Op(nil), ops[:at]...), ops[at+size:]...)
			if replay(t, rest) != nil {
				ops, smaller = rest, true
			} else {
				at += size
			}
		}
		if !smaller {
			size /= 2
		}
	}
	return ops
}

// Whatever a driver asks for, the device does what it must, refuses the rest,
// and has afterwards what the model has: nothing is lost, left over, or ended
// twice, and nothing is left without what it needs but with a complaint.
func TestSequences(t *testing.T) {
	n := runtime.GOMAXPROCS(0)
	var kinds tally
	t.Run("devices", func(t *testing.T) {
		for k := range n {
			t.Run(fmt.Sprint(k), func(t *testing.T) {
				t.Parallel()
				sequences(t, *count*(k+1)/n-*count*k/n, uint64(k), &kinds)
			})
		}
	})
	ops := 0
	for name, k := range kinds.kinds {
		t.Logf("%-22s %d refused, %d done", name, k[0], k[1])
		const many = 50_000
		if ops += k[0] + k[1]; *count >= many && (k[1] == 0 && name != "unknown" || k[0] == 0 && !always(name)) {
			t.Errorf("%s: never done, or never refused", name)
		}
	}
	t.Logf("-seed %d: %d operations in %d sequences", *seed, ops, *count)
}

// tally counts operations by name: those refused, those done.
type tally struct {
	mu    sync.Mutex
	kinds map[string][2]int
}

func (c *tally) add(l *life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string][2]int{}
	}
	for i, o := range l.done {
		k := c.kinds[o.Name]
		k[l.verdicts[i]&1]++
		c.kinds[o.Name] = k
	}
}

// sequences runs so many of them on the k-th device.
func sequences(t *testing.T, count int, k uint64, kinds *tally) {
	rnd := rand.New(rand.NewPCG(*seed, k))
	d := newDevice(t)
	for n := 0; n < count; {
		l := newLife(d)
		g := New(d.world, l.m, rnd)
		for end := n + perLife; n < end && n < count; n++ {
			left := 1 + rnd.IntN(longest)
			if f := l.sequence(func() (Op, bool) {
				if left == 0 {
					return Op{}, false
				}
				left--
				return g.Next(), true
			}); f != nil {
				short := shrink(t, l.done[:f.at+1])
				var b strings.Builder
				for i := range short {
					fmt.Fprintf(&b, "%v\n", &short[i])
				}
				t.Fatalf("-seed %d, sequence %d: %v\nfewer that fail (%v):\n%s", *seed, n, f.err, replay(t, short), &b)
			}
		}
		kinds.add(l)
		var err error
		switch rnd.IntN(4) {
		case 0:
			err = l.abandon(true)
		case 1:
			err = l.abandon(false)
		default:
			err = l.end()
		}
		if err != nil {
			t.Fatalf("-seed %d, before sequence %d: %v", *seed, n, err)
		}
		d.Rewind()
	}
}

// always tells operations that no device refuses.
func always(name string) bool { return name == "NOP" || name == "UP_MAP" || name == "ALLOC_LOC_MAC" }
