// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// machine is both drivers on a function.
type machine struct {
	f *Function
	i *ICE
	r *IRDMA
}

func bringUp(f *Function, k Kernel, o Options) (*machine, error) {
	m := &machine{f: f}
	var err error
	if m.i, err = Probe(f, k, o); err != nil {
		return m, err
	}
	if m.r, err = ProbeRDMA(m.i, o); err != nil {
		return m, err
	}
	return m, m.i.Open()
}

func (m *machine) takeDown() error {
	if err := m.r.Remove(); err != nil {
		return err
	}
	if err := m.i.Remove(); err != nil {
		return err
	}
	if n := m.f.Guest.InUse(); n != 0 {
		return fmt.Errorf("%d pages still in use after both drivers are gone", n)
	}
	return m.f.Guest.Check()
}

// abandon forgets both drivers, as after a reset or the device's end.
func (m *machine) abandon() {
	if m.r != nil {
		m.r.Abandon()
	}
	m.i.Abandon()
}

// start serves one card and brings both drivers up on it.
func start(t *testing.T, k Kernel, o Options) (*machine, *findings) {
	t.Helper()
	return startIn(t, newGuest(t), k, o)
}

// startIn is start in a given guest.
func startIn(t *testing.T, g *Guest, k Kernel, o Options) (*machine, *findings) {
	t.Helper()
	ctx, sockets, complaints := cards(t, 1)
	m, err := bringUp(attach(t, ctx, sockets[0], g), k, o)
	must(t, err)
	return m, complaints
}

// check brings a machine up and takes it down: the device is in good order.
func check(t *testing.T, f *Function, k Kernel) {
	t.Helper()
	m, err := bringUp(f, k, Options{})
	must(t, err)
	must(t, m.takeDown())
}

func TestLife(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		m, complaints := start(t, k, Options{})
		i := m.i
		if !i.Link.Up || i.Link.Speed != ICE_AQ_LINK_SPEED_100GB {
			t.Errorf("link is %+v, want 100 Gb/s up", i.Link)
		}
		if i.NVM.FlashSize < mib || i.NVM.FlashSize > nvmMaxOffset+1 || i.NVM.EETrack == 0 || !i.NVM.Netlist {
			t.Errorf("NVM is %+v", i.NVM)
		}
		if i.Pkg != ourPackage() {
			t.Errorf("active package is %+v, want %+v", i.Pkg, ourPackage())
		}
		if sn := m.f.SerialNumber(); sn == 0 {
			t.Error("the function has no serial number")
		}
		for n := range m.r.Objects() {
			if o := m.r.Objects()[n]; n == IRDMA_HMC_IW_PBLE && o.Count < 1<<20 {
				t.Errorf("%d PBLEs", o.Count)
			}
		}
		must(t, m.takeDown())
		quiet(t, complaints)
	})
}

// One driver after the other on one connection, as with rmmod and modprobe.
func TestLifeFiveTimes(t *testing.T) {
	forKernels(t, func(t *testing.T, k Kernel) {
		ctx, sockets, complaints := cards(t, 1)
		f := plug(t, ctx, sockets[0])
		for range 5 {
			check(t, f, k)
		}
		quiet(t, complaints)
	})
}

// Different kernels on the same card, and more CPUs than usual.
func TestLifeOfManyKernels(t *testing.T) {
	ctx, sockets, complaints := cards(t, 1)
	f := plug(t, ctx, sockets[0])
	for _, cpus := range []int{1, 8} {
		for _, k := range Kernels() {
			m, err := bringUp(f, k, Options{CPUs: cpus})
			must(t, err)
			must(t, m.takeDown())
		}
	}
	quiet(t, complaints)
}

func TestTwoDevices(t *testing.T) {
	ctx, sockets, complaints := cards(t, 2)
	functions := []*Function{plug(t, ctx, sockets[0]), plug(t, ctx, sockets[1])}
	machines := make([]*machine, 2)
	errs := make([]error, 2)
	both := func(do func(n int) error) {
		var wg sync.WaitGroup
		for n := range functions {
			wg.Go(func() { errs[n] = errors.Join(errs[n], do(n)) })
		}
		wg.Wait()
		must(t, errors.Join(errs...))
	}
	both(func(n int) (err error) {
		machines[n], err = bringUp(functions[n], Kernels()[1+n], Options{})
		return err
	})
	if machines[0].i.MAC == machines[1].i.MAC {
		t.Errorf("both have MAC address % x", machines[0].i.MAC)
	}
	if functions[0].SerialNumber() == functions[1].SerialNumber() {
		t.Errorf("both have serial number %#x", functions[0].SerialNumber())
	}
	both(func(n int) error {
		for range 200 {
			if _, err := machines[n].r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
				return err
			}
		}
		return machines[n].takeDown()
	})
	quiet(t, complaints)
}

var errStop = errors.New("stop here")

// stepNames lists the steps of a whole bring-up.
func stepNames(t *testing.T, f *Function, k Kernel) []string {
	t.Helper()
	var names []string
	m, err := bringUp(f, k, Options{Step: func(name string) error {
		names = append(names, name)
		return nil
	}})
	must(t, err)
	must(t, m.takeDown())
	return names
}

// bringUpTo stops before step n.
func bringUpTo(t *testing.T, f *Function, k Kernel, n int) *machine {
	t.Helper()
	at := 0
	m, err := bringUp(f, k, Options{Step: func(name string) error {
		if at++; at > n {
			return errStop
		}
		return nil
	}})
	if !errors.Is(err, errStop) {
		t.Fatalf("bring-up to step %d: %v", n, err)
	}
	return m
}

// A PF reset before any step of the bring-up. That the device is in order shows
// in the next attempt, which gets one step further, and in the last, which is
// whole.
func TestPFRAnywhere(t *testing.T) {
	k := Linux73()
	ctx, sockets, _ := cards(t, 1)
	f := plug(t, ctx, sockets[0])
	for n := range stepNames(t, f, k) {
		m := bringUpTo(t, f, k, n)
		must(t, m.i.Reset())
		m.abandon()
		must(t, f.Guest.Check())
	}
	check(t, f, k)
}

// The same with a client that dies. The next one has the same memory, where the
// rings of the dead one still are while it connects.
func TestClientKilledAnywhere(t *testing.T) {
	k := Linux612()
	ctx, sockets, _ := cards(t, 1)
	f := plug(t, ctx, sockets[0])
	for n := range stepNames(t, f, k) {
		m := bringUpTo(t, f, k, n)
		f.Detach()
		f = attach(t, ctx, sockets[0], f.Guest)
		m.abandon()
		silent(t, f)
	}
	check(t, f, k)
}

// silent rings all doorbells of a device that was reset. The memory of the
// queues is poison by now: late DMA shows.
func silent(t *testing.T, f *Function) {
	t.Helper()
	for _, reg := range []uint32{PFPE_CCQPSTATUS, PFPE_CQPTAIL, GLINT_DYN_CTL(5), QRX_CTRL(0)} {
		if v := f.Read32(reg); v != 0 {
			t.Errorf("register %#x reads %#x after the reset", reg, v)
		}
	}
	f.Write32(PF_FW_ATQT, 5)
	f.Write32(PF_MBX_ATQT, 5)
	f.Write32(PFPE_CQPDB, 1)
	f.Write32(PFPE_CQARM, 0)
	f.Write32(PFPE_WQEALLOC, 1)
	f.Write32(QTX_COMM_DBELL(0), 7)
	f.flush()
	must(t, f.Guest.Check())
}

func TestResets(t *testing.T) {
	for _, test := range []struct {
		name  string
		do    func(m *machine) error
		keeps bool // the package
	}{
		{"PFR", func(m *machine) error { return m.i.Reset() }, true},
		{"FLR", func(m *machine) error { return m.f.FLR() }, true},
		{"device reset", func(m *machine) error { return m.f.Client.Reset() }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, _ := start(t, Linux73(), Options{})
			f := m.f
			must(t, test.do(m))
			m.abandon()
			silent(t, f)
			must(t, f.master())

			// Objects are gone before 0x02A4 clears them.
			i, err := Probe(f, Linux73(), Options{Step: func(name string) error {
				if name == "clear configuration" {
					return errStop
				}
				return nil
			}})
			if !errors.Is(err, errStop) {
				t.Fatal(err)
			}
			i.main = m.i.main
			if err := i.RDMAFilter(true); aqCode(err) == AQOK {
				t.Errorf("update of VSI %d, which the reset should have ended: %v", i.main.num, err)
			}
			must(t, i.Reset())
			i.Abandon()

			again, err := bringUp(f, Linux73(), Options{})
			must(t, err)
			if survived := !slices.Contains(again.i.Trace(), ice_aqc_opc_download_pkg); survived != test.keeps {
				t.Errorf("the package survived: %v, want %v", survived, test.keeps)
			}
			must(t, again.takeDown())
		})
	}
}

func TestContextEndsWaits(t *testing.T) {
	ctx, sockets, _ := cards(t, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := plug(t, ctx, sockets[0])
	m, err := bringUp(f, Linux73(), Options{})
	must(t, err)
	cancel()
	// A WQE without doorbell is never completed.
	req, err := m.r.post(IRDMA_CQP_OP_NOP, WQE{})
	must(t, err)
	if _, err := m.r.wait(req); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting says %v, want the context's end", err)
	}
	m.abandon()
}
