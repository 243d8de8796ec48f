// SPDX-License-Identifier: Apache-2.0

package mr

import (
	"fmt"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Allocate makes r.Index ALLOCATED (ALLOC_STAG): a region that waits for a
// fast registration of at most r.Length bytes, or a window that waits for a
// bind. Errors wrap ErrParameter, ErrState or hmc.ErrAccess.
func (t *Table) Allocate(r Region, k Kind, by Origin) error {
	if k == Memory && r.Length == 0 {
		t.emit(RegionFields{STag: r.STag(), Why: "STAGLEN 0: no fast registration is that short", By: by})
	}
	return t.insert(&Entry{Region: r, State: Allocated, Kind: k, By: by, Limit: r.Length})
}

// Register makes r a VALID region (REG_MR). Errors wrap ErrParameter,
// ErrState or hmc.ErrAccess.
func (t *Table) Register(r Region, by Origin) error {
	if r.Length == 0 && r.Level == Contiguous && (r.Base != 0 || r.Start != 0) {
		t.emit(RegionFields{STag: r.STag(), Why: "STAGLEN 0 means all of memory, which begins at 0", By: by})
	}
	if p := r.pages(); r.Level == TwoLevel && p <= leafEntries {
		t.emit(RegionFields{STag: r.STag(), Why: fmt.Sprintf("two levels for %d pages: one holds up to %d", p, leafEntries), By: by})
	}
	return t.insert(&Entry{Region: r, State: Valid, By: by, Limit: r.Length})
}

// Share makes r a VALID region on the pages of the one that the 24-bit index
// parent names (REG_SMR). Its length and its first byte's place in a page are
// the parent's; its page list, page size and address need not be in r. Errors
// wrap ErrParameter, ErrState or hmc.ErrAccess.
func (t *Table) Share(r Region, parent uint32, by Origin) error {
	i, p := t.load(parent)
	if p == nil || p.Index != parent || p.State != Valid || p.Kind != Memory {
		return fmt.Errorf("STag index %#x is no valid region: %w", parent, ErrState)
	}
	if r.Level, r.PageShift, r.Base, r.First = p.Level, p.PageShift, p.Base, p.First; r.Length != p.Length || r.offset() != p.offset() {
		return fmt.Errorf("%#x+%#x on the pages of %#x+%#x: %w", r.Start, r.Length, p.Start, p.Length, ErrParameter)
	}
	shared := *p
	shared.Shared = true
	if !t.replace(i, p, &shared) {
		return fmt.Errorf("STag index %#x changed meanwhile: %w", parent, ErrState)
	}
	err := t.insert(&Entry{Region: r, State: Valid, By: by, Limit: r.Length, Shared: true})
	if err != nil {
		t.replace(i, &shared, p) // or who ended it meanwhile is right
	}
	return err
}

// replace puts e into slot i if that holds old.
func (t *Table) replace(i uint32, old, e *Entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots[i].entry.CompareAndSwap(old, e)
}

// maxPDs is how many protection domains a QP context can name.
const maxPDs = 1 << 18

func (t *Table) insert(e *Entry) error {
	if !t.hmc.Backed() {
		return fmt.Errorf("STag before SHMC_PAGES_ALLOCATED: %w", ErrState)
	}
	if err := t.checkRegion(&e.Region, e.By); err != nil {
		return err
	}
	if e.PD >= maxPDs {
		t.emit(RegionFields{STag: e.STag(), Why: fmt.Sprintf("PD %#x has more than 18 bits", e.PD), By: e.By})
	}
	t.drvBits.Store(driverBits(t.hmc.Count(hmc.MR)))
	i := t.slot(e.Index)
	if count := t.hmc.Count(hmc.MR); i == 0 || i >= count || i >= uint32(len(t.slots)) {
		t.emit(STagIndex{Index: i, Count: count, By: e.By})
		return fmt.Errorf("STag index %d, the function has 1 to %d: %w", i, count-1, ErrParameter)
	}
	if _, err := t.hmc.Resolve(hmc.MR, i); err != nil {
		return err
	}
	// What is wrong with the list is told once the STag is known to be new.
	t.mu.Lock()
	old := t.slots[i].entry.Load()
	if old == nil {
		t.put(i, e)
	}
	t.mu.Unlock()
	if old != nil {
		t.emit(STagBusy{STag: e.STag(), Old: old.STag(), State: old.State, OldBy: old.By, By: e.By})
		return fmt.Errorf("STag index %d is not free: %w", i, ErrState)
	}
	if e.State == Valid {
		t.examine(i, e, maxAudit)
	}
	return nil
}

func (t *Table) checkRegion(r *Region, by Origin) error {
	if r.VABased && r.Length > 0 && r.Start+(r.Length-1) < r.Start {
		return fmt.Errorf("region %#x+%#x wraps: %w", r.Start, r.Length, ErrParameter)
	}
	switch r.Level {
	case Contiguous:
		return nil
	case Flat, TwoLevel:
	default:
		t.emit(RegionFields{STag: r.STag(), Why: fmt.Sprintf("LPBLSIZE %d", r.Level), By: by})
		return fmt.Errorf("LPBLSIZE %d: %w", r.Level, ErrParameter)
	}
	entries := r.listed()
	if r.Length == 0 {
		t.emit(RegionFields{STag: r.STag(), Why: "STAGLEN 0 with a page list", By: by})
		return fmt.Errorf("all of memory by a page list: %w", ErrParameter)
	}
	if n := uint64(t.hmc.Count(hmc.PBLE)); uint64(r.First) >= n || entries > n-uint64(r.First) {
		t.emit(PBLERange{STag: r.STag(), Index: uint64(r.First), Needed: entries, Count: uint32(n)})
		return fmt.Errorf("%d PBLEs from %d on, there are %d: %w", entries, r.First, n, ErrParameter)
	}
	return nil
}

// Deallocate frees an STag (DEALLOC_STAG): no later translation finds it.
// region says whether it is to be a region or a window. A region with windows
// bound stays. The caller waits for grace before it tells the driver. Errors
// wrap ErrState.
func (t *Table) Deallocate(index, pd uint32, region bool, by Origin) error {
	i, e := t.load(index)
	if e == nil {
		t.mu.Lock()
		last, _ := t.history.of(i)
		t.mu.Unlock()
		t.emit(DeallocFree{Index: index, PD: pd, Last: last, By: by})
		return fmt.Errorf("STag index %d is free: %w", i, ErrState)
	}
	wrong := ""
	switch {
	case e.Index != index:
		wrong = fmt.Sprintf("index %#x, allocated as %#x", index, e.Index)
	case e.PD != pd:
		wrong = fmt.Sprintf("of PD %d, not %d", e.PD, pd)
	case region == e.Kind.Window():
		wrong = fmt.Sprintf("is a %v", e.Kind)
	}
	if wrong != "" {
		t.emit(DeallocWrong{STag: e.STag(), Why: wrong, OldBy: e.By, By: by})
		return fmt.Errorf("STag index %d %s: %w", i, wrong, ErrState)
	}
	t.unchanged(e, by)
	t.mu.Lock()
	windows := t.slots[i].windows
	// A region may have been registered or invalidated since the look: that
	// is no reason to refuse.
	e = t.slots[i].entry.Load()
	if windows == 0 && e != nil {
		t.put(i, nil)
		t.claims.end(i)
		t.watch.remove(i, e)
		t.history.note(i, Ended{STag: e.STag(), PD: e.PD, By: by})
	}
	t.mu.Unlock()
	if windows > 0 {
		t.emit(WindowsBound{STag: e.STag(), Windows: windows, By: by})
		return fmt.Errorf("STag index %d has %d windows bound: %w", i, windows, ErrState)
	}
	return nil
}

// Query tells whether the 24-bit index names a valid STag (QUERY_STAG); if
// not, the error wraps ErrState.
func (t *Table) Query(index uint32) error {
	i, e := t.load(index)
	switch {
	case e == nil || e.Index != index:
		return fmt.Errorf("STag index %d is free: %w", i, ErrState)
	case e.State != Valid:
		return fmt.Errorf("STag index %d is %v: %w", i, e.State, ErrState)
	}
	return nil
}

// maxNamed bounds the list of windows that are left.
const maxNamed = 8

// QPEnds tells of a QP that is destroyed, other than with the windows that
// belong to it (IGNOREMWBOUND). They stay bound.
func (t *Table) QPEnds(id uint32, by Origin) {
	left := WindowsLeft{QP: id, By: by}
	for i := range t.slots {
		if t.owned.Load() == 0 {
			break
		}
		if e := t.slots[i].entry.Load(); e != nil && e.QP != 0 && e.QP == id {
			if left.Windows++; len(left.First) < maxNamed {
				left.First = append(left.First, e.STag())
			}
		}
	}
	if left.Windows > 0 {
		t.emit(left)
	}
}

// Ended is an STag that was, and who ended it.
type Ended struct {
	STag, PD uint32
	By       Origin
}

// historySize bounds what is remembered of STags that were: the last one of
// each index, of indices that are this apart only the latter.
const historySize = 4096

// history is guarded by the table's lock.
type history struct{ ends []Ended }

func (h *history) note(i uint32, e Ended) {
	if h.ends == nil {
		h.ends = make([]Ended, historySize)
	}
	h.ends[i%historySize] = e
}

// of is what was at table index i; only a look at its STag tells whether it
// was not at another one.
func (h *history) of(i uint32) (e Ended, ok bool) {
	if h.ends == nil {
		return Ended{}, false
	}
	e = h.ends[i%historySize]
	return e, e.By.Op != ""
}

// ended finds the end of the STag with this 24-bit index.
func (t *Table) ended(index uint32) (Ended, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.history.of(t.slot(index))
	if !ok || e.STag>>8 != index {
		return Ended{}, false
	}
	return e, true
}
