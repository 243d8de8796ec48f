// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/guest/minidriver"
)

// regions is the part of the protocol engine that looks pages up, on memory of
// its own: a host memory cache with all its segments, and a table of STags.
type regions struct {
	mem    *guestmem.Memory
	hmc    *hmc.Cache
	mrs    *mr.Table
	commit [hmc.FPMSize]byte
	paged  bool
	free   uint64 // first address not given away
}

const (
	manyRegions = 100_000
	gigabyte    = 1 << 30
	page        = 4 << 10
	segmentSize = 2 << 20
	regionPD    = 7
)

// manyMRs is a profile with room for as many regions.
func manyMRs() hmc.Profile {
	p := hmc.SmallGuest()
	p.Limits[hmc.MR].Max = 2 * manyRegions
	return p
}

// newRegions commits the layout that p offers and backs it, with paged segments
// if asked for.
func newRegions(t testing.TB, p hmc.Profile, paged bool) *regions {
	t.Helper()
	const size, base = 512 << 20, 1 << 32
	fd, err := unix.MemfdCreate("regions", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "regions")
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	r := &regions{mem: new(guestmem.Memory), paged: paged, free: base}
	if err := r.mem.Map(base, size, f, 0, true, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.mem.UnmapAll)
	r.hmc = hmc.New(hmc.Config{Mem: r.mem, Profile: p, Emit: func(e any) { t.Errorf("%v", e) }})
	r.mrs = mr.New(mr.Config{HMC: r.hmc, Emit: func(e any) { t.Errorf("%v", e) }})
	// As many STags and PBLEs as are offered, whose words are at the same place
	// in question and answer (ctrl.c:irdma_sc_parse_fpm_query_buf,
	// irdma_sc_cfg_iw_fpm), and nothing else.
	query := r.hmc.Query()
	const mrs = 48
	copy(r.commit[mrs:mrs+4], query[mrs:])
	copy(r.commit[pbleWord:pbleWord+4], query[pbleWord:])
	if err := r.hmc.Commit(&r.commit); err != nil {
		t.Fatal(err)
	}
	var list []hmc.SDEntry
	for sd := range r.segments() {
		list = append(list, r.back(t, sd))
	}
	if err := r.hmc.UpdateSDs(list); err != nil {
		t.Fatal(err)
	}
	if err := r.hmc.PagesAllocated(); err != nil {
		t.Fatal(err)
	}
	return r
}

// pbleWord is where the commit buffer has number and base of the PBLEs.
const pbleWord = 112

// pbles are base and number of the PBLEs.
func (r *regions) pbles() (base, count uint64) {
	v := binary.LittleEndian.Uint64(r.commit[pbleWord:])
	return v >> 32 * 512, v & 0xffff_ffff
}

func (r *regions) segments() uint64 {
	base, count := r.pbles()
	return (base + 8*count + segmentSize - 1) / segmentSize
}

func (r *regions) take(n uint64) uint64 {
	at := r.free
	r.free += n
	return at
}

// invalidate tells of a page descriptor as a driver does.
func (r *regions) invalidate(sd, pd uint64) {
	for _, row := range r.hmc.Registers() {
		if row.Name == "PFHMC_PDINV" {
			const partition = 1 << 15
			row.Write(0, uint32(sd|partition|pd<<16))
		}
	}
}

// back makes memory for a segment and its entry.
func (r *regions) back(t testing.TB, sd uint64) hmc.SDEntry {
	t.Helper()
	const write, pe, valid, direct, pages, count = 1 << 31, 1 << 15, 1, 2, segmentSize / page, segmentSize / page << 2
	cmd := write | pe | sd
	if !r.paged {
		return hmc.SDEntry{Cmd: cmd, Data: r.take(segmentSize) | count | direct | valid}
	}
	list := r.take(page)
	for n := range uint64(pages) {
		// The order of the pages is another one than that of their numbers.
		if err := r.mem.Store64(list+8*(n*5%pages), r.take(page)|valid); err != nil {
			t.Fatal(err)
		}
		r.invalidate(sd, n)
	}
	return hmc.SDEntry{Cmd: cmd, Data: list | count | valid}
}

// pageAddress is where page n of a region lies: neighbours are none.
func pageAddress(n uint64) uint64 { return 1<<40 + n*3*page }

// list writes n PBLEs from index first on; of two levels it is with leaves in
// falling order, as from a fragmented pool.
func (r *regions) list(t testing.TB, first, n uint64, level mr.Level) {
	t.Helper()
	set := func(index, v uint64) {
		at, err := r.hmc.Explain(hmc.PBLE, uint32(index))
		if err == nil {
			err = r.mem.Store64(at.Address, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if level == mr.Flat {
		for k := range n {
			set(first+k, pageAddress(k))
		}
		return
	}
	const leaf = 512
	leaves := (n + leaf - 1) / leaf
	for k := range leaves {
		at := first + leaves + (leaves-1-k)*leaf
		set(first+k, at)
		for i := range min(leaf, n-k*leaf) {
			set(at+i, pageAddress(k*leaf+i))
		}
	}
}

func (r *regions) register(t testing.TB, index uint32, level mr.Level, length, first uint64) uint32 {
	t.Helper()
	reg := mr.Region{Index: index, Key: 3, PD: regionPD, Length: length, Start: 0x7f00_0000_0000, VABased: true, Level: level, PageShift: 12,
		Rights: mr.LocalRead | mr.LocalWrite, First: uint32(first)}
	if err := r.mrs.Register(reg, mr.Origin{}); err != nil {
		t.Fatal(err)
	}
	return reg.STag()
}

// lookups goes over a region once in steps of n bytes and returns the number of
// pages that it looked up per second of the processor's time.
func (r *regions) lookups(t testing.TB, stag uint32, length, n uint64) float64 {
	t.Helper()
	var segs [mr.MaxResolve/page + 1]mr.Segment
	s := mr.Subject{PD: regionPD, QP: 3}
	pages := 0
	began := threadTime()
	for at := uint64(0); at < length; at += n {
		out, fault := r.mrs.Resolve(segs[:0], s, stag, 0x7f00_0000_0000+at, uint32(n), mr.LocalRead, false)
		if fault != nil {
			t.Fatal(fault)
		}
		pages += len(out)
		if out[0].IOVA != pageAddress(at/page) {
			t.Fatalf("page %d is at %#x", at/page, out[0].IOVA)
		}
	}
	took := threadTime() - began
	if want := int(length / page); pages != want {
		t.Fatalf("%d pages of %d", pages, want)
	}
	return float64(pages) / took.Seconds()
}

// threadTime is the processor's time that this thread has had: what else runs
// on the machine does not count, as it does not for a core of one's own. Where
// getrusage counts ticks, this clock does not.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// TestRegions measures look-ups of pages and registrations.
func TestRegions(t *testing.T) {
	if !*measure {
		t.Skip("no -measure given: its figures are worth something on a quiet machine only; make bench passes it")
	}
	socket := filepath.Join(t.TempDir(), "card")
	server := startServer(t, vrnicBinary(t), "serve", "--socket", socket)
	var r report
	r.take(t, lookups)
	r.take(t, func(t *testing.T) []figure { return registrations(t, socket, server.cmd.Process.Pid) })
	r.close(t)
	if text := server.stop(); strings.Contains(text, "finding") {
		t.Errorf("what was measured broke a rule:\n%s", text)
	}
}

const (
	minPairs   = 50e3 // registrations with their ends per second
	minLookups = 20e6 // pages per second and core
	// maxOverOne is how much longer a look-up may take with many regions. What
	// it really adds is misses of the processor's caches, which are others'
	// too.
	maxOverOne = 1.3
)

// lookups is sequential look-ups in a hot region of 1 GiB.
func lookups(t *testing.T) []figure {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out []figure
	for _, c := range []struct {
		name  string
		level mr.Level
		paged bool
	}{{"level 1", mr.Flat, false}, {"level 2, paged", mr.TwoLevel, true}} {
		one, many := newRegions(t, manyMRs(), c.paged), newRegions(t, manyMRs(), c.paged)
		const index = 777
		var stag uint32
		for _, r := range []*regions{one, many} {
			base, _ := r.pbles()
			first := (segmentSize - base%segmentSize) / 8 // a driver's lists lie in one segment
			r.list(t, first, gigabyte/page, c.level)
			stag = r.register(t, index, c.level, gigabyte, first)
		}
		for k := range uint32(manyRegions) {
			if k+1 != index {
				many.register(t, k+1, mr.Contiguous, page, 0)
			}
		}
		var alone, crowd, single samples
		one.lookups(t, stag, gigabyte, mr.MaxResolve)
		many.lookups(t, stag, gigabyte, mr.MaxResolve)
		const times = 20
		for range rounds {
			var a, b samples
			for range times {
				a = append(a, one.lookups(t, stag, gigabyte, mr.MaxResolve))
				b = append(b, many.lookups(t, stag, gigabyte, mr.MaxResolve))
			}
			alone, crowd = append(alone, a.median()), append(crowd, b.median())
			single = append(single, one.lookups(t, stag, gigabyte, page))
		}
		// As many as the data path looks up at once, and, to compare, each alone.
		row := func(what string) string { return fmt.Sprintf("page look-ups, %s%s", c.name, what) }
		out = append(out,
			figure{name: row(", 64 KiB at a time"), unit: "1/s", samples: alone, bound: bound{atLeast: minLookups}},
			figure{name: row(", a page at a time"), unit: "1/s", samples: single},
			figure{name: row(", time with 100,000 regions / with one"), unit: "ratio", samples: alone.over(crowd), bound: bound{atMost: maxOverOne}})
	}
	return out
}

// registrations is REG_MR and DEALLOC_STAG of the mini-driver, as by so many
// threads of a program. Every operation rings for itself and completes by
// interrupt, as in a kernel.
func registrations(t *testing.T, socket string, server int) []figure {
	const threads, batches = 64, 300
	g, err := minidriver.NewGuest(64)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	f, err := minidriver.Attach(t.Context(), socket, g)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Detach()
	i, err := minidriver.Probe(f, minidriver.Linux73(), minidriver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := minidriver.ProbeRDMA(i, minidriver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(6, 1))
	var out []figure
	for _, pages := range []int{1, 16} {
		region, err := g.NewRegion(rnd, 0x7f00_0000_0000, pages*page, page)
		if err != nil {
			t.Fatal(err)
		}
		var rates, shares samples
		mrs := make([]*minidriver.MR, threads)
		for n := range rounds + 1 { // the first warms up
			began, ran, waited := time.Now(), time.Duration(0), time.Duration(0)
			for _, pid := range []int{os.Getpid(), server} {
				a, b := scheduled(t, pid)
				ran, waited = ran-a, waited-b
			}
			for range batches {
				if err := registerAll(r, region, mrs); err != nil {
					t.Fatal(err)
				}
			}
			took := time.Since(began)
			for _, pid := range []int{os.Getpid(), server} {
				a, b := scheduled(t, pid)
				ran, waited = ran+a, waited+b
			}
			if n > 0 {
				rates = append(rates, threads*batches/took.Seconds())
				shares = append(shares, float64(ran)/float64(ran+waited))
			}
		}
		region.Free()
		name := fmt.Sprintf("registrations with their ends, pages: %d", pages)
		f := figure{name: name, unit: "1/s", samples: rates}
		if pages == 1 {
			f.bound.atLeast = minPairs
		}
		out = append(out, f, figure{name: name + ", share of the CPUs wanted", unit: "ratio", samples: shares})
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	if err := i.Remove(); err != nil {
		t.Error(err)
	}
	return out
}

// registerAll registers a region as often as mrs has room and ends all of it.
func registerAll(r *minidriver.IRDMA, region *minidriver.Region, mrs []*minidriver.MR) (err error) {
	for k := range mrs {
		if mrs[k], err = r.StartRegMR(regionPD, region, minidriver.Everything, minidriver.MROptions{}); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.Wait(); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.StartDereg(); err != nil {
			return err
		}
	}
	for _, m := range mrs {
		if err := m.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// scheduled is how long the threads of a process have run, and how long they
// have waited for a CPU, be it that others had it or the other of the two. It
// tells how busy the machine was, and bounds nothing.
func scheduled(t *testing.T, pid int) (ran, waited time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range threads {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that has ended
		}
		var a, w int64
		if _, err := fmt.Sscan(string(b), &a, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		ran, waited = ran+time.Duration(a), waited+time.Duration(w)
	}
	return ran, waited
}
