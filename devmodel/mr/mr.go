// SPDX-License-Identifier: Apache-2.0

// Package mr is the table of STags: memory regions and windows with their
// rights, and the translation from (STag, address, length) to guest memory.
//
// Contract and traps:
//   - An entry is immutable and hangs on an atomic pointer: translations run
//     on any goroutine beside changes of the table. Whoever ends what an entry
//     allows (Deallocate, Invalidate, Bind of a bound window) must wait until
//     translations that still hold it are over (grace) before the driver is
//     told.
//   - Changes come from the control QP and, in steps, from send queues and
//     peers. They take a lock of the table's own, a leaf.
//   - The 24-bit index a driver sends carries random bits of its own on top
//     of the table index. They belong to the STag: all 32 bits must match.
//   - A length of 0 in a registration means all of memory. A length of 0 in
//     an access validates nothing, not even the STag.
//   - Page buffer list entries (PBLEs) are read from the guest at every
//     translation: they have no valid bit and no invalidation.
//   - A bound window holds its region: that can be neither invalidated nor
//     deallocated before. So a window's access goes through the region's page
//     list as it was at the bind.
//   - Explain is the data path's own walk with a recorder.
package mr

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// Access is a set of rights, in the bits of the ARIGHTS field
// (user.h:IRDMA_ACCESS_FLAGS_*).
type Access uint8

// Rights.
const (
	LocalRead Access = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	BindWindow
)

func (a Access) String() string {
	s := ""
	for i, name := range [...]string{"LOCAL_READ", "LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE", "BIND_WINDOW"} {
		if a>>i&1 != 0 {
			if s != "" {
				s += "|"
			}
			s += name
		}
	}
	if s == "" {
		return "none"
	}
	return s
}

// State of an entry.
type State uint8

// States. A free entry is an absent one.
const (
	Free      State = iota
	Allocated       // no memory: to be registered by a send queue, or to be bound
	Valid           // a window's is called bound
)

func (s State) String() string { return [...]string{"FREE", "ALLOCATED", "VALID"}[s] }

// Level is how an entry names its memory, in the bits of LPBLSIZE.
type Level uint8

// Levels. 2 is not used by any driver.
const (
	Contiguous Level = 0 // one address
	Flat       Level = 1 // a list of PBLEs
	TwoLevel   Level = 3 // a list of indices of lists of 512 PBLEs
)

func (l Level) String() string {
	switch l {
	case Contiguous:
		return "contiguous"
	case Flat:
		return "flat"
	case TwoLevel:
		return "two-level"
	}
	return fmt.Sprintf("LPBLSIZE %d", uint8(l))
}

// leafEntries is the number of PBLEs in every leaf of a two-level list but
// the last (pble.c:get_lvl2_pble).
const leafEntries = 512

// pageShifts are the page sizes of HPAGESIZE.
var pageShifts = [...]uint8{12, 21, 30}

// PageShift is the log2 of the page size of a HPAGESIZE code; ok is false
// for a code without one.
func PageShift(code uint8) (shift uint8, ok bool) {
	if int(code) >= len(pageShifts) {
		return 0, false
	}
	return pageShifts[code], true
}

// Region is what a driver registers.
type Region struct {
	Index     uint32 // 24 bits, the driver's own bits included
	Key       uint8
	PD        uint32
	Length    uint64 // bytes; 0: all of memory
	Start     uint64 // virtual address of the first byte, or its offset in the first page
	VABased   bool   // accesses name virtual addresses; otherwise offsets from the first byte
	Level     Level
	PageShift uint8
	Rights    Access
	Remote    bool   // REMACCENABLED
	Base      uint64 // Contiguous: guest address of the first page
	First     uint32 // otherwise: index of the first PBLE
}

// STag is the 32-bit name of the region.
func (r *Region) STag() uint32 { return r.Index<<8 | uint32(r.Key) }

// offset of the region's first byte in its first page.
func (r *Region) offset() uint64 { return r.Start & (1<<r.PageShift - 1) }

// pages is the number of PBLEs the region needs (Flat and TwoLevel).
func (r *Region) pages() uint64 {
	return (r.offset() + r.Length + 1<<r.PageShift - 1) >> r.PageShift
}

// listed is the number of consecutive PBLEs that First starts.
func (r *Region) listed() uint64 {
	switch r.Level {
	case Flat:
		return r.pages()
	case TwoLevel:
		return (r.pages() + leafEntries - 1) / leafEntries
	}
	return 0
}

// Kind is what an STag stands for.
type Kind uint8

// Kinds. Type 1 windows belong to a protection domain and may be bound again
// and again; type 2 ones belong to the QP that bound them, until they are
// invalidated.
const (
	Memory Kind = iota
	Window1
	Window2
)

func (k Kind) String() string { return [...]string{"MR", "MW type 1", "MW type 2"}[k] }

// Window tells whether it is one of the memory windows.
func (k Kind) Window() bool { return k != Memory }

// Origin is the command or work request that made an STag what it is.
type Origin struct {
	Op  string // kernel name of the operation
	QP  uint32 // whose send queue it was on; 0: the control QP's
	WQE uint32 // its index there
}

func (o Origin) String() string {
	op := strings.TrimPrefix(o.Op, "IRDMA_CQP_OP_")
	switch {
	case op == "":
		return "unknown"
	case o.QP == 0:
		return fmt.Sprintf("%s, CQP WQE %d", op, o.WQE)
	}
	return fmt.Sprintf("%s, WQE %d of QP %d", op, o.WQE, o.QP)
}

// Entry is one STag. It never changes once in the table.
type Entry struct {
	Region // of a bound window: Start is where it begins, in the region's addresses
	State  State
	Kind   Kind
	By     Origin // what made it so
	Limit  uint64 // bytes that a fast registration may name
	Shared bool   // another region is on the same pages (REG_SMR)
	Parent uint32 // of a bound window: STag of its region
	QP     uint32 // of a bound window of type 2: the one that may use it

	// Windows is how many are bound to a region. Entries tells it; in the
	// table it is 0.
	Windows uint32

	parent   *Entry // Parent's; it stays as it is while the window is bound
	parentAt uint32 // its slot
	audit    *audit // of a VALID region, if somebody listens
}

// Errors of table operations. The first two are the driver's parameters,
// ErrState is an object in the wrong state.
var (
	ErrParameter = errors.New("parameter out of range")
	ErrState     = errors.New("STag in wrong state")
)

// Config of a Table.
type Config struct {
	HMC  *hmc.Cache
	Emit func(any) // may be nil
}

// slot is the place of one STag.
type slot struct {
	entry   atomic.Pointer[Entry]
	windows uint32 // bound to it; guarded by the table's lock
}

// Table holds the STags of one function.
type Table struct {
	hmc     *hmc.Cache
	emit    func(any)
	listens bool // somebody hears what emit is told

	// drvBits is the number of the driver's own bits on top of an index.
	drvBits atomic.Uint32
	slots   []slot
	count   atomic.Int64
	owned   atomic.Int64 // windows that belong to a QP
	looked  atomic.Uint64

	mu      sync.Mutex // guards changes
	history history
	claims  claims
	watch   watch
}

// New makes an empty table.
func New(c Config) *Table {
	t := &Table{hmc: c.HMC, emit: c.Emit, listens: c.Emit != nil, slots: make([]slot, c.HMC.Max(hmc.MR))}
	if c.Emit == nil {
		t.emit = func(any) {}
	}
	t.drvBits.Store(driverBits(0))
	return t
}

// driverBits is the number of random bits a driver with count regions puts
// on top of the table index in a 24-bit STag index
// (hw.c:irdma_initialize_hw_rsrc).
func driverBits(count uint32) uint32 {
	order := 14
	if count > 1 {
		order = max(order, bits.Len32(count-1))
	}
	return uint32(max(24-order, 0))
}

// slot is the table index in a 24-bit STag index.
func (t *Table) slot(index uint32) uint32 {
	return index & (1<<(24-t.drvBits.Load()) - 1)
}

// load is what a 24-bit STag index names, nil if nothing.
func (t *Table) load(index uint32) (i uint32, e *Entry) {
	if i = t.slot(index); i == 0 || i >= uint32(len(t.slots)) {
		return i, nil
	}
	return i, t.slots[i].entry.Load()
}

// put changes slot i. The caller holds mu.
func (t *Table) put(i uint32, e *Entry) {
	old := t.slots[i].entry.Swap(e)
	for _, x := range []struct {
		e *Entry
		n int64
	}{{old, -1}, {e, 1}} {
		if x.e == nil {
			continue
		}
		t.count.Add(x.n)
		if x.e.parent != nil {
			t.slots[x.e.parentAt].windows += uint32(x.n)
		}
		if x.e.QP != 0 {
			t.owned.Add(x.n)
		}
	}
}

// Reset frees every STag. Running translations may still hold one: the caller
// waits for grace.
func (t *Table) Reset(reg.Domain) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.history, t.claims = history{}, claims{}
	t.owned.Store(0)
	t.watch.forget()
	for i := range t.slots {
		if t.count.Load() == 0 {
			return // a driver may reset again and again
		}
		if t.slots[i].entry.Load() != nil { // few are: a load is far cheaper
			t.slots[i].entry.Store(nil)
			t.slots[i].windows = 0
			t.count.Add(-1)
		}
	}
}

// Len is the number of STags that are not free.
func (t *Table) Len() int { return int(t.count.Load()) }

// First lists the STags of up to n entries, those with the lowest table index.
func (t *Table) First(n int) []uint32 {
	var out []uint32
	for i := range t.slots {
		if len(out) == n || t.count.Load() == 0 {
			break
		}
		if e := t.slots[i].entry.Load(); e != nil {
			out = append(out, e.STag())
		}
	}
	return out
}

// Entries lists the STags that are not free in order of table index.
func (t *Table) Entries() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Entry, 0, t.count.Load())
	for i := range t.slots {
		if e := t.slots[i].entry.Load(); e != nil {
			c := *e
			c.Windows = t.slots[i].windows
			out = append(out, c)
		}
	}
	return out
}

// Using returns an STag whose table entry, or whose page list (of two levels:
// the upper one), lies in segment sd of the HMC: clearing it breaks the STag.
func (t *Table) Using(sd uint32) (stag uint32, ok bool) {
	firstMR, endMR := t.hmc.Within(hmc.MR, sd)
	firstPBLE, endPBLE := t.hmc.Within(hmc.PBLE, sd)
	if firstMR == endMR && firstPBLE == endPBLE {
		return 0, false
	}
	left := t.count.Load() // a driver that goes clears many segments
	for i := range t.slots {
		if left == 0 {
			break
		}
		e := t.slots[i].entry.Load()
		if e == nil {
			continue
		}
		left--
		first := uint64(e.First)
		if uint32(i) >= firstMR && uint32(i) < endMR || first < uint64(endPBLE) && first+e.listed() > uint64(firstPBLE) && e.listed() > 0 {
			return e.STag(), true
		}
	}
	return 0, false
}
