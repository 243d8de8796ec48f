// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/devmodel/rdma/sequence"
	"github.com/vrnic/vrnic/devmodel/trace"
	"github.com/vrnic/vrnic/serve"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// openCard serves a card into which the test can look.
func openCard(t *testing.T, emit func(any)) (socket string, dev *devmodel.Device) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "card")
	l, err := vfiouser.Listen(socket)
	must(t, err)
	dev = devmodel.New(devmodel.Config{MAC: serve.DefaultMAC(socket), Emit: emit})
	srv := vfiouser.NewServer(dev, cardLayout(), vfiouser.Options{Logger: hclog.NewNullLogger()})
	serving, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(serving, l.UnixListener) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
		l.Close()
		dev.Close()
	})
	return socket, dev
}

// events collects what a device emits.
type events struct {
	mu   sync.Mutex
	list []any
}

func (e *events) add(v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, v)
}

func (e *events) take() []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	return list
}

// sequenceWorld is what sequences may use beside a driver: numbers that it does
// not, PBLEs that are in no chunk, and segments for them.
func sequenceWorld(t *testing.T, r *IRDMA) sequence.World {
	t.Helper()
	w := sequence.World{Function: r.fn(), FirstSD: uint32(r.hmc.firstSD), MaxSDs: uint32(r.hmc.maxSDs), MaxCEQs: uint32(r.hmc.maxCEQs),
		MAC: macWord(r.ICE.MAC), QPs: sequence.Range{First: 500, N: 20}, CQs: sequence.Range{First: 900, N: 20},
		MRs: sequence.Range{First: 9000, N: 24}, AHs: sequence.Range{First: 70, N: 12}, Groups: sequence.Range{First: 40, N: 6},
		ARPs: sequence.Range{First: 100, N: 12}, Nodes: sequence.Range{First: 30, N: 10}, CEQs: sequence.Range{First: 40, N: 5},
		Leaf: wsVSI, Running: true, Nowhere: 0x7777_0000_0000}
	for n, o := range r.hmc.objects {
		w.Objects[n] = sequence.Extent{Base: o.Base, Count: uint32(o.Count), Size: o.Size}
	}
	pble := r.hmc.objects[IRDMA_HMC_IW_PBLE]
	first := r.pble.next
	w.PBLEs = sequence.Range{First: uint32((first - pble.Base) / pbleSize)}
	w.PBLEs.N = uint32(pble.Count) - w.PBLEs.First
	w.SDs = sequence.Range{First: uint32(first / sdSize), N: 4}
	for _, area := range []struct {
		at   *uint64
		size int
	}{{&w.Fill, sequence.FillSize}, {&w.Zero, sequence.ZeroSize}, {&w.Scratch, sequence.ScratchSize}} {
		b, err := r.F.Guest.Alloc(area.size)
		must(t, err)
		t.Cleanup(b.Free)
		*area.at = b.IOVA
	}
	return w
}

// offset is where the guest's file has the memory at an address.
func (g *Guest) offset(iova uint64) uint64 {
	for n, base := range banks {
		if iova >= base && iova < base+g.mapped() {
			return uint64(n)*g.bank + iova - base + pageSize
		}
	}
	panic("no memory at that address")
}

// at finds guest memory by its address.
func (g *Guest) at(iova uint64, words int) *Buf {
	return &Buf{IOVA: iova, b: g.ram[g.offset(iova):][:8*words]}
}

// Sequences of control operations beside a driver, over the socket, with traffic
// on the engine's shards: what commands end has to wait for them.
func TestSequences(t *testing.T) {
	count := 150
	if *long {
		count = 30_000
	}
	var seen events
	complaints := new(findings)
	logger := hclog.New(&hclog.LoggerOptions{Output: complaints, Level: hclog.Warn, DisableTime: true})
	socket, dev := openCard(t, trace.Fan(seen.add, sanitizer.New(logger).Event))
	m, err := bringUp(attach(t, t.Context(), socket, newGuestOf(t, 256)), Linux73(), Options{})
	must(t, err)
	r, rnd := m.r, rand.New(rand.NewPCG(12, *seed))
	tr, err := newTraffic(r, rnd, 2)
	must(t, err)
	must(t, tr.round(false))

	w := sequenceWorld(t, r)
	sds := map[uint32]bool{}
	for n, s := range r.hmc.sds {
		sds[uint32(n)] = !s.paged
	}
	model := sequence.NewModel(w, sds)
	g := sequence.New(w, model, rnd)
	for n := range count {
		if n%8 == 0 {
			tr.prepare()
			must(t, tr.post())
		}
		for range 1 + rnd.IntN(12) {
			if err := predicted(r, &seen, model, g.Next()); err != nil {
				t.Fatalf("-seed %d, sequence %d: %v", *seed, n, err)
			}
		}
		if err := model.Check(dev.RDMA()); err != nil {
			t.Fatalf("-seed %d, after sequence %d: %v", *seed, n, err)
		}
		if n%8 == 7 {
			must(t, tr.drain(false))
		}
	}
	if tr.pending() > 0 {
		must(t, tr.drain(false))
	}
	for _, o := range model.Ends() {
		must(t, predicted(r, &seen, model, o))
	}
	must(t, model.Check(dev.RDMA()))
	if left := model.Live(); left != "" {
		t.Errorf("all has ended but%s", left)
	}
	for n := range w.SDs.N {
		sd := uint64(w.SDs.First + n)
		if _, ok := r.hmc.sds[sd]; !ok {
			_, _ = r.Exec(IRDMA_CQP_OP_UPDATE_PE_SDS, WQE{0: sdCmdWrite | sdCmdPE | sd, 1: sdPageCount, 2: r.fn()})
		}
	}
	must(t, tr.close())
	r.AEs = nil
	must(t, r.Remove())
	must(t, m.i.Remove())
	must(t, m.f.Guest.Check())
}

// predicted does an operation and holds the answer against the model's.
func predicted(r *IRDMA, seen *events, model *sequence.Model, o sequence.Op) error {
	if o.Addr != 0 {
		b := r.F.Guest.at(o.Addr, len(o.Memory))
		for k, v := range o.Memory {
			b.Store64(8*k, v)
		}
	}
	seen.take()
	verdict := model.Apply(&o)
	c, err := r.Exec(uint8(o.WQE[3]>>32&0x3f), WQE(o.WQE))
	if err != nil && cqpError(err) == nil {
		return err
	}
	if done := err == nil; verdict == sequence.Done && !done || verdict == sequence.Refused && done {
		return fmt.Errorf("%v\n\tcompletion %+v, want it %v", &o, c, verdict)
	}
	if err == nil {
		if err := model.Note(&o, c.RetVal); err != nil {
			return fmt.Errorf("%v\n\t%w", &o, err)
		}
	}
	if err := model.Complained(seen.take()); err != nil {
		return fmt.Errorf("%v\n\t%w", &o, err)
	}
	return r.Work()
}
