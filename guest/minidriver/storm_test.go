// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/reg"
	"github.com/vrnic/vrnic/serve"
)

var (
	stormTime = flag.Duration("storm", 0, "how long the storm lasts; 0: a few seconds")
	stormSeed = flag.Uint64("storm-seed", 0, "seed of the storm; 0: a fresh one")
)

// The cards of the storm, as their sockets are called.
const (
	stormed = "stormed"
	working = "working"
	quietly = "quiet"
)

// A function that does everything wrong, for as long as the flag says, beside
// one with verified traffic and one that does nothing. Both are untouched, the
// process keeps its size, and the first card is as good as new after a reset.
func TestStorm(t *testing.T) {
	duration, seed := *stormTime, *stormSeed
	if duration == 0 {
		duration = 3 * time.Second
		if testing.Short() {
			duration = time.Second
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("storm of %v with -storm-seed %d", duration, seed)
	ctx, cancel := context.WithTimeout(t.Context(), testTime+4*duration)
	defer cancel()
	dir := t.TempDir()
	socket := func(name string) string { return filepath.Join(dir, name) }
	complaints := &except{findings: new(findings), name: stormed}
	host, err := serve.Start(ctx, serve.Options{Sockets: []string{socket(stormed), socket(working), socket(quietly)},
		Control: socket("ctl"),
		Logger:  hclog.New(&hclog.LoggerOptions{Output: complaints, Level: hclog.Warn, DisableTime: true})})
	must(t, err)
	defer host.Close()

	asleep, err := bringUp(plug(t, ctx, socket(quietly)), Linux612(), Options{})
	must(t, err)
	before := bytes.Clone(asleep.f.Guest.ram)

	w := startWorker(t, ctx, socket(working))
	s := &storm{rnd: rand.New(rand.NewPCG(seed, 1)), table: registerTable(), reset: func(what string) {
		ctl(t, ctx, []string{socket(stormed)}, 0, "reset", what)
	}}
	if s.actions = 100; duration > 10*time.Second {
		s.actions = 600
	}
	must(t, s.life(ctx, socket(stormed))) // which warms everything up
	size := processSize()
	lives := 1
	for end := time.Now().Add(duration); time.Now().Before(end) && ctx.Err() == nil; lives++ {
		if err := s.life(ctx, socket(stormed)); err != nil {
			t.Fatalf("life %d of the storm: %v", lives, err)
		}
	}
	if err := size.grown(); err != nil {
		t.Errorf("after %d lives: %v", lives, err)
	}

	rounds, err := w.stop()
	if err != nil {
		t.Errorf("the card beside it, round %d: %v", rounds, err)
	}
	t.Logf("%d lives of the storm, %d rounds of work beside it", lives, rounds)
	if least := max(2, int(duration/(2*time.Second))); rounds < least {
		t.Errorf("%d rounds of work beside the storm, want %d: it starves", rounds, least)
	}
	for n, v := range asleep.f.vectors {
		if got := v.Take(); got > 0 {
			t.Errorf("vector %d of the quiet card had %d messages", n, got)
		}
	}
	if !bytes.Equal(before, asleep.f.Guest.ram) {
		t.Error("the memory of the quiet card's guest changed")
	}
	must(t, asleep.takeDown())
	quiet(t, complaints.findings)

	// After the storm.
	f := attach(t, ctx, socket(stormed), newGuestOf(t, 256))
	must(t, f.Client.Reset())
	must(t, f.master())
	worksStill(t, f, Linux73())
	if t.Failed() {
		t.Logf("again with: go test ./guest/minidriver -run TestStorm -storm %v -storm-seed %d", duration, seed)
	}
}

// registerTable is that of any card.
func registerTable() (table []reg.Row) {
	d := devmodel.New(devmodel.Config{})
	defer d.Close()
	return d.RegisterTable()
}

// except collects what is said about all devices but one.
type except struct {
	*findings
	name string
}

func (e *except) Write(p []byte) (int, error) {
	if strings.Contains(string(p), " "+e.name+": ") {
		return len(p), nil
	}
	return e.findings.Write(p)
}

// life is one client of the card, from its connection to its end.
func (s *storm) life(ctx context.Context, socket string) error {
	g, err := NewGuest(guestMiB)
	if err != nil {
		return err
	}
	defer g.Close()
	s.g, s.m, s.a, s.b, s.dead = g, nil, nil, nil, false
	if s.soup, err = newSoup(s.rnd, g); err != nil {
		return err
	}
	defer s.soup.file.Close()
	if s.f, err = Attach(ctx, socket, g); err != nil {
		return err
	}
	defer s.f.Detach()
	// The client before may have left right before a reset of the whole card.
	if err := s.f.poll("the card", func() bool { return s.f.Read32(GLGEN_RSTAT)&3 == 0 }); err != nil {
		return err
	}
	if err := s.f.Client.MapDMA(soupIOVA, soupPages*pageSize, s.soup.file, pageSize, s.soup.maps().Flags); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return fmt.Errorf("before it: %w", err)
	}
	var last string
	for range 20 + s.rnd.IntN(s.actions) {
		last = s.act()
		if s.f.Err() != nil {
			break
		}
	}
	if s.rnd.IntN(4) > 0 { // or leave in the middle of it all
		s.f.flush()
		if err := s.f.Err(); err != nil {
			return fmt.Errorf("after %q: %w", last, err)
		}
	}
	s.f.Detach()
	return errors.Join(g.checkEdges(), s.soup.check())
}

// prepare brings the drivers up, or not, or to some step.
func (s *storm) prepare() error {
	if s.rnd.IntN(4) == 0 {
		return nil
	}
	steps := 1000
	if s.rnd.IntN(4) == 0 {
		steps = s.rnd.IntN(30)
	}
	at := 0
	var err error
	kernels := Kernels()
	s.m, err = bringUp(s.f, kernels[s.rnd.IntN(len(kernels))], Options{Step: func(string) error {
		if at++; at > steps {
			return errStop
		}
		return nil
	}})
	if errors.Is(err, errStop) {
		return nil
	}
	if err != nil || s.rnd.IntN(4) == 0 {
		return err
	}
	s.a, s.b, err = tryPair(s.m.r, s.rnd, pairOptions{user: s.rnd.IntN(2) == 0, attr: func(a *QPAttr) { a.Retries, a.RNRTries = 1, 1 }})
	return err
}

// worker is a card with traffic on it, whose every byte and completion is
// looked at.
type worker struct {
	end    chan struct{}
	done   chan struct{}
	rounds int
	err    error
}

func startWorker(t *testing.T, ctx context.Context, socket string) *worker {
	t.Helper()
	m, tr := loaded(t, attach(t, ctx, socket, newGuestOf(t, 256)), Linux73(), 7)
	w := &worker{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = w.work(m, tr)
	}()
	return w
}

func (w *worker) stop() (rounds int, err error) {
	close(w.end)
	<-w.done
	return w.rounds, w.err
}

// work does rounds of traffic with control operations between them.
func (w *worker) work(m *machine, tr *traffic) error {
	if err := errors.Join(tr.post(), tr.drain(false)); err != nil {
		return err
	}
	for {
		select {
		case <-w.end:
			if len(m.r.AEs) > 0 {
				return fmt.Errorf("events %+v", m.r.AEs)
			}
			if err := tr.close(); err != nil {
				return err
			}
			return m.takeDown()
		default:
		}
		if err := tr.round(w.rounds%2 == 0); err != nil {
			return err
		}
		for range 20 {
			if _, err := m.r.Exec(IRDMA_CQP_OP_NOP, WQE{}); err != nil {
				return err
			}
		}
		if err := m.i.updateLink(lseEnable); err != nil {
			return err
		}
		if w.rounds++; w.rounds%16 == 0 {
			if err := m.f.Guest.Check(); err != nil {
				return err
			}
		}
	}
}

// size is what a process holds.
type size struct {
	goroutines, files, maps int
	heap                    uint64
}

// processSize is that of this process, in which the devices are.
func processSize() size {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	files, _ := os.ReadDir("/proc/self/fd")
	maps, _ := os.ReadFile("/proc/self/maps")
	return size{runtime.NumGoroutine(), len(files), bytes.Count(maps, []byte("memfd:")), mem.HeapAlloc + mem.StackInuse}
}

// grown says what is more than it was, once all that is on its way out had time
// to leave.
func (s size) grown() error {
	const most = 16 << 20
	var now size
	for end := time.Now().Add(Patience); ; {
		now = processSize()
		if now.goroutines <= s.goroutines && now.files <= s.files && now.maps <= s.maps && now.heap <= s.heap+most {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the process grew: %+v, was %+v", now, s)
		}
		runtime.Gosched()
	}
}
