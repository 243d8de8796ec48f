// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// wayToReset is a reset as the driver goes through it: until it is over.
type wayToReset struct {
	name string
	do   func(t *testing.T, m *machine, outside func(what string)) (ResetType, error)
}

// excused are findings that the driver gives reason for: it took bus mastering
// away from a device at work.
func (w wayToReset) excused(line string) bool {
	return strings.Contains(line, "bus mastering is off") && strings.HasPrefix(w.name, "bus master")
}

// byDriver is ice_main.c:ice_do_reset.
func byDriver(want ResetType) func(*testing.T, *machine, func(string)) (ResetType, error) {
	return func(t *testing.T, m *machine, _ func(string)) (ResetType, error) {
		must(t, m.r.RemoveInReset())
		must(t, m.i.PrepareForReset(false))
		if want == PFR {
			return PFR, m.i.pfReset()
		}
		m.i.TriggerReset(want)
		return announced(t, m, want)
	}
}

// announced waits for the interrupt of a reset of the card and for its end.
func announced(t *testing.T, m *machine, want ResetType) (ResetType, error) {
	t.Helper()
	got, err := m.i.WaitReset()
	must(t, err)
	if got != want {
		t.Errorf("reset of type %v, want %v", got, want)
	}
	m.i.aq.inReset = true
	if err := m.i.CheckReset(); err != nil {
		return got, err
	}
	// ice_main.c:ice_pci_err_slot_reset wants that; the type stays.
	if v := m.f.Read32(GLGEN_RTRIG); v != 0 {
		t.Errorf("GLGEN_RTRIG reads %#x behind the reset", v)
	}
	if kind := ResetType(m.f.Read32(GLGEN_RSTAT) >> 2 & 3); kind != want {
		t.Errorf("GLGEN_RSTAT.RESET_TYPE is %v behind the reset, want %v", kind, want)
	}
	return got, nil
}

// fromOutside is a reset that another function of the card asked for: the first
// that the driver knows of it is the interrupt.
func fromOutside(want ResetType) func(*testing.T, *machine, func(string)) (ResetType, error) {
	return func(t *testing.T, m *machine, outside func(string)) (ResetType, error) {
		outside(strings.ToLower(want.String()))
		got, err := m.i.WaitReset()
		must(t, err)
		if got != want {
			t.Errorf("reset of type %v, want %v", got, want)
		}
		must(t, m.r.RemoveInReset())
		must(t, m.i.PrepareForReset(true))
		return got, m.i.CheckReset()
	}
}

func waysToReset() []wayToReset {
	list := []wayToReset{
		{"PFR", byDriver(PFR)},
		{"PFR without preparation", func(t *testing.T, m *machine, _ func(string)) (ResetType, error) {
			return PFR, m.i.pfReset()
		}},
		{"FLR", func(t *testing.T, m *machine, _ func(string)) (ResetType, error) {
			must(t, m.r.RemoveInReset())
			must(t, m.i.PrepareForReset(false))
			must(t, m.f.FLR())
			return PFR, m.i.pfReset() // ice_main.c:ice_pci_err_reset_done
		}},
		{"bus master off and on", func(t *testing.T, m *machine, _ func(string)) (ResetType, error) {
			m.f.setConfig16(pciCommand, m.f.config16(pciCommand)&^uint16(pciCommandMaster))
			must(t, m.f.Err())
			return PFR, nil
		}},
		{"device reset", func(t *testing.T, m *machine, _ func(string)) (ResetType, error) {
			return GLOBR, m.f.Client.Reset()
		}},
	}
	for _, kind := range []ResetType{CORER, GLOBR, EMPR} {
		list = append(list,
			wayToReset{kind.String() + " by the driver", byDriver(kind)},
			wayToReset{kind.String() + " from outside", fromOutside(kind)})
	}
	return list
}

// Every reset with traffic under way. The moment it is over all memory that the
// device had is poisoned; then the driver rebuilds, and traffic flows again.
func TestRebuild(t *testing.T) {
	kernels := Kernels()
	for n, way := range waysToReset() {
		t.Run(way.name, func(t *testing.T) {
			k := kernels[n%len(kernels)]
			ctx, sockets, complaints := cards(t, 1)
			f := attach(t, ctx, sockets[0], newGuestOf(t, 256))
			m, tr := loaded(t, f, k, uint64(n))
			times := 1
			if *full {
				times = 6
			}
			for range times {
				resetAndRebuild(t, ctx, sockets, complaints, m, tr, way)
				var err error
				tr, err = newTraffic(m.r, tr.rnd, 2)
				must(t, err)
				must(t, tr.round(true))
				tr.prepare()
			}
			must(t, tr.post())
			must(t, tr.drain(true))
			must(t, tr.close())
			must(t, m.takeDown())
			quiet(t, complaints)
		})
	}
}

// resetAndRebuild resets the card under m while the round that tr has prepared
// is under way, and leaves m rebuilt.
func resetAndRebuild(t *testing.T, ctx context.Context, sockets []string, complaints *findings, m *machine, tr *traffic, way wayToReset) {
	t.Helper()
	must(t, tr.post())
	resetUnder(t, ctx, sockets, complaints, m, way, tr.drop)
}

// resetUnder resets the card under m, drops what else of the driver's memory
// was in use, and leaves m rebuilt.
func resetUnder(t *testing.T, ctx context.Context, sockets []string, complaints *findings, m *machine, way wayToReset, drop ...func()) {
	t.Helper()
	f := m.f
	kind, err := way.do(t, m, func(what string) { ctl(t, ctx, sockets, 0, "reset", what) })
	must(t, err)
	for _, d := range drop {
		d()
	}
	m.r.Abandon()
	m.i.ResetDone()
	must(t, f.Guest.Check())
	for _, line := range complaints.take() {
		if !way.excused(line) {
			t.Errorf("complaint about a correct driver in a reset: %s", line)
		}
	}
	if f.config16(pciCommand)&pciCommandMaster == 0 {
		// What was under way must not come back with the right to do DMA.
		must(t, f.master())
		f.flush()
		must(t, f.Guest.Check())
		if kind == PFR {
			must(t, m.i.pfReset())
		} else {
			f.enableMSIX()
		}
	}
	silent(t, f)
	complaints.take() // about the doorbells of things that are no more
	before := len(m.i.Trace())
	m.i.wasOpen = true
	must(t, m.i.Rebuild(kind))
	if sent := slices.Contains(m.i.Trace()[before:], ice_aqc_opc_download_pkg); sent != (kind != PFR) {
		t.Errorf("package downloaded again: %v", sent)
	}
	m.r, err = ProbeRDMA(m.i, Options{})
	must(t, err)
}
