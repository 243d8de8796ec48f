// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/serve"
)

func init() {
	for _, kernel := range []string{"debian-12", "debian-13", "debian-backports"} {
		for _, place := range []struct{ name, flags string }{
			{"", ""}, {"-paged-pbles", "--personality paged-pbles"}, {"-iommu", "--iommu"},
		} {
			table = append(table, check{6, "regions-" + kernel + place.name, false,
				"vrnic run -k " + kernel + " --image pyverbs " + place.flags + " -- python3 regions.py", regionsOn(kernel, place.flags)})
		}
	}
	table = append(table,
		check{6, "regions-sample", true, "python3 regions.py, its small groups, debian-13", someRegions},
		check{6, "objects-explain", false, "rdma resource show mr -dd = vrnic explain mr, every kind of region", explainedRegions},
		check{6, "level-2-chain", false, "vrnic explain mr STAG ADDR LEN --bytes N, 1 GiB of 4 KiB pages on paged SDs", levelTwoChain},
	)
}

// programs starts a session whose guest has our programs, python for them, and
// huge pages.
func programs(t *testing.T, e *env, memory string, flags ...string) *session {
	t.Helper()
	flags = append([]string{"--image", "pyverbs", "--copy", "guest", "--memory", memory, "--boot-timeout", "10m"}, flags...)
	s := startSession(t, e, flags...)
	s.do("cd /root/guest")
	return s
}

// gigantic has the kernel set a 1 GiB page aside, as long as memory is in one
// piece, and 2 MiB pages.
var gigantic = []string{"--append", "hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=24"}

// quiet checks, after the end of a session, that the card found nothing to
// warn of, and the kernel nothing wrong.
func (s *session) quiet() {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.e.outDir, "findings.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var reports []sanitizer.Report
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) != 1 {
		s.t.Fatalf("findings.json: %d reports, %v", len(reports), err)
	}
	for _, f := range reports[0].Findings {
		if f.Grade > sanitizer.Note {
			s.t.Errorf("finding: %v, %d times", f, f.Count)
		}
	}
	wantCleanLog(s.t, s.e.kernelLog())
}

// runRegions runs groups of cases of regions.py, and returns the lines of cases.
// Nothing may be left of them, neither in the kernel nor in the card.
func (s *session) runRegions(groups ...string) []string {
	s.t.Helper()
	before, resources := s.device(), s.do("rdma resource show")
	out := s.do("python3 regions.py " + strings.Join(groups, " ") + " 2>&1; echo status $?")
	if err := os.WriteFile(filepath.Join(s.e.outDir, "regions.txt"), []byte(out), 0o644); err != nil {
		s.t.Error(err)
	}
	var cases []string
	for line := range strings.Lines(out) {
		if c, ok := strings.CutPrefix(strings.TrimSpace(line), "case "); ok {
			cases = append(cases, c)
		}
	}
	if want := fmt.Sprintf("cases %d\nstatus 0\n", len(cases)); !strings.HasSuffix(out, want) {
		s.t.Fatalf("regions.py %v does not end with %q:\n%s", groups, want, tail(out, 30))
	}
	if after := s.device(); !after.equal(before) {
		s.t.Errorf("regions.py left %v of %v in the card", after, before)
	}
	if after := s.do("rdma resource show"); after != resources {
		s.t.Errorf("regions.py left %q of %q in the kernel", after, resources)
	}
	return cases
}

// wantCases checks that of every pattern so many cases ran.
func wantCases(t *testing.T, cases []string, want map[string]int) {
	t.Helper()
	for pattern, n := range want {
		got := 0
		for _, c := range cases {
			if regexp.MustCompile("^(" + pattern + ")").MatchString(c) {
				got++
			}
		}
		if got != n {
			t.Errorf("%d cases like %q, want %d", got, pattern, n)
		}
	}
}

func someRegions(t *testing.T, e *env) {
	s := programs(t, e, "1G", "-k", "debian-13", "--append", "hugepagesz=2M hugepages=12")
	cases := s.runRegions("small-sizes", "huge-2M", "some-access", "odp", "rereg", "dmabuf", "windows", "invalidate")
	wantCases(t, cases, map[string]int{
		"pages": 11, "huge-2M": 6, "access 0x[0-7] ": 8, "odp": 2, "rereg-": 3, "dmabuf length": 3, "window-1": 4,
		"local-invalidate": 1, "send-with-invalidate": 1,
	})
	s.end()
	s.quiet()
}

func regionsOn(kernel, flags string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		args := append([]string{"-k", kernel}, gigantic...)
		s := programs(t, e, "4G", append(args, strings.Fields(flags)...)...)
		groups := []string{"huge", "sizes", "access", "odp", "rereg", "dmabuf", "windows", "invalidate"}
		want := map[string]int{
			"pages": 11, "big length=": 5, "big length=10737": 2, "two-level": 1, "huge-2M": 6, "huge-1G length=1073741824": 1,
			"access ": 128, "access .* refused": 128 * 3 / 8, "odp": 2, "local-invalidate": 1, "send-with-invalidate": 1,
		}
		// What each kernel has: verbs.c's tables of operations.
		if kernel == "debian-12" {
			want["rereg refused"], want["dmabuf no udmabuf"] = 1, 1
		} else {
			want["rereg-"], want["dmabuf length"] = 3, 3
		}
		if kernel == "debian-backports" {
			want["window refused"] = 1 // only GEN_3 has them
		} else {
			want["window-"] = 6
		}
		// As many as queue pairs leave of the entries.
		if strings.Contains(flags, "paged-pbles") {
			groups = append(groups, "few-pbles")
			want["big length=10737.*no-entries"] = 2
		}
		// QEMU takes 65535 maps, and so long for tens of thousands that the
		// guest's kernel complains.
		if flags == "--iommu" {
			groups = append(groups, "few-maps")
			want["big length="], want["big length=10737"], want["two-level"] = 3, 0, 0
		}
		// First: the pool of entries grows with 1 GiB, and then has one piece
		// for what needs lists of two levels before.
		s.explainHeld(kernel, flags == "--iommu")
		cases := s.runRegions(groups...)
		wantCases(t, cases, want)
		s.end()
		s.quiet()
	}
}

// heldRegion is a region of hold.py.
type heldRegion struct {
	Name       string
	LKey, RKey uint32
	IOVA       uint64 // what accesses name
	Address    uint64 // where the program has it
	Length     uint64
}

// hold starts hold.py in the guest, as the program $s.
func (s *session) hold(args string) map[string]heldRegion {
	s.t.Helper()
	out := s.do(`python3 hold.py ` + args + ` > /tmp/held 2>&1 & s=$!
while ! grep -q regions /tmp/held && kill -0 $s; do sleep 0.1; done
cat /tmp/held`)
	var held struct{ Regions []heldRegion }
	if err := json.Unmarshal([]byte(out), &held); err != nil {
		s.t.Fatalf("hold.py: %v\n%s", err, out)
	}
	regions := map[string]heldRegion{}
	for _, r := range held.Regions {
		regions[r.Name] = r
	}
	return regions
}

// letGo ends hold.py without its doing: the kernel takes everything back.
func (s *session) letGo() { s.do("kill $s; wait $s 2>/dev/null") }

// kernelMRs is what the kernel says of regions with a key: length by key. It
// keeps no length of a dmabuf (UVERBS_METHOD_REG_DMABUF_MR does not set any).
func (s *session) kernelMRs() map[uint32]uint64 {
	s.t.Helper()
	out := s.do("rdma resource show mr -dd -j")
	var rows []struct {
		LKey, RKey string
		MRLen      uint64
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		s.t.Fatalf("rdma resource show mr -dd -j: %v\n%s", err, out)
	}
	mrs := map[uint32]uint64{}
	for _, r := range rows {
		key, err := strconv.ParseUint(r.LKey, 16, 32)
		if err != nil {
			s.t.Fatal(err)
		}
		if r.LKey != r.RKey {
			s.t.Errorf("the kernel shows lkey %s, rkey %s", r.LKey, r.RKey)
		}
		if key != 0 { // of a program's queues
			mrs[uint32(key)] = r.MRLen
		}
	}
	return mrs
}

func explainedRegions(t *testing.T, e *env) {
	s := programs(t, e, "3G", "-k", "debian-13", "--append", "hugepagesz=2M hugepages=12")
	s.explainHeld("debian-13", false)
	s.end()
	s.quiet()
}

// explainHeld holds regions of every kind against what kernel and card say.
func (s *session) explainHeld(release string, iommu bool) {
	t := s.t
	t.Helper()
	before := s.device()
	kept := "two-level huge"
	if iommu {
		kept = "huge" // the other would need more maps than QEMU has
	}
	held := s.hold(kept)
	// What the driver makes of them: ib_umem_find_best_pgsz, irdma_check_mr_contiguous.
	const page, huge = 1 << 12, 1 << 21
	kinds := map[string]struct {
		level string
		size  uint64
	}{
		"one page": {"contiguous", page}, "one byte": {"contiguous", page},
		"list": {"flat", page}, "list, unaligned": {"flat", page},
		"wedge": {"flat", page}, "two levels": {"two-level", page},
		"2 MiB": {"contiguous", huge}, "2 MiB pages": {"flat", huge}, "dmabuf": {"flat", page},
	}
	if iommu {
		delete(kinds, "wedge")
		delete(kinds, "two levels")
	}
	if release == "debian-12" { // has no udmabuf
		delete(kinds, "dmabuf")
	}
	kernel := s.kernelMRs()
	var card []serve.MR
	s.explain(&card, "mr")
	if len(held) != len(kinds) || len(kernel) != len(held) || len(card) != len(held) {
		t.Errorf("hold.py has %d regions, want %d; kernel %d, card %d", len(held), len(kinds), len(kernel), len(card))
	}
	for _, m := range card {
		if _, ok := kernel[m.STag]; !ok {
			t.Errorf("STag %#x is unknown to the kernel", m.STag)
		}
	}
	for name, h := range held {
		i := slices.IndexFunc(card, func(m serve.MR) bool { return m.STag == h.LKey })
		if i < 0 || h.LKey != h.RKey {
			t.Errorf("%s: the card has no STag %#x, rkey %#x", name, h.LKey, h.RKey)
			continue
		}
		m := card[i]
		rights := "LOCAL_READ|LOCAL_WRITE|REMOTE_READ|REMOTE_WRITE"
		if name == "list" {
			rights = "LOCAL_READ"
		}
		if m.Length != h.Length || m.Start != h.IOVA || !m.VABased || m.State != "VALID" || m.Rights != rights {
			t.Errorf("%s: %+v is in the card as %+v", name, h, m)
		}
		if k := kernel[h.LKey]; k != h.Length && !(name == "dmabuf" && k == 0) {
			t.Errorf("%s: length %d, the kernel says %d", name, h.Length, k)
		}
		// An IOMMU makes one piece of pages that are anywhere.
		if k := kinds[name]; !iommu && (m.Level != k.level || m.PageSize != k.size) {
			t.Errorf("%s: %s of pages of %#x, want %s of %#x", name, m.Level, m.PageSize, k.level, k.size)
		}
		s.sameMemory(name, h, iommu, 0, h.Length/2, h.Length-1)
	}
	s.letGo()
	if after := s.device(); !after.equal(before) {
		t.Errorf("after exit the device has %v, want %v", after, before)
	}
}

// sameMemory compares a region's memory at some offsets as card and program have
// it, and, without an IOMMU, where it lies as card and kernel have it. It returns
// the last walk.
func (s *session) sameMemory(name string, h heldRegion, iommu bool, offsets ...uint64) (w serve.Walk) {
	s.t.Helper()
	for _, off := range offsets {
		n := int(min(64, h.Length-off))
		w = serve.Walk{}
		s.explain(&w, "mr", fmt.Sprintf("%#x", h.LKey), fmt.Sprintf("%#x", h.IOVA+off), "--bytes", strconv.Itoa(n))
		if own := s.programBytes(h.Address+off, n); w.Bytes != own || len(own) != 2*n {
			s.t.Errorf("%s at %d: the card reads %s, the program %s", name, off, w.Bytes, own)
		}
		const inPage = 1<<12 - 1
		at := h.Address + off
		if want := s.physical(at) | at&inPage; !iommu && (len(w.Pieces) == 0 || w.Pieces[0].Address != want) {
			s.t.Errorf("%s at %d: the walk leads to %+v, the kernel says %#x", name, off, w.Pieces, want)
		}
	}
	return w
}

// levelTwoChain walks a list of two levels whose entries lie in paged segments.
func levelTwoChain(t *testing.T, e *env) {
	s := programs(t, e, "3G", "-k", "debian-13", "--personality", "paged-pbles")
	before := s.device()
	h := s.hold("1g")["1 GiB"]
	var card []serve.MR
	s.explain(&card, "mr", fmt.Sprintf("%#x", h.LKey))
	if len(card) != 1 || card[0].Level != "two-level" || card[0].PageSize != 4096 || card[0].Length != 1<<30 {
		t.Fatalf("1 GiB of 4 KiB pages is %+v", card)
	}
	const page, leaf = 4096, 512 * 4096
	sds := map[uint32]bool{}
	for _, p := range []uint64{0, 1, 511, 512, 513, 131072, 262143} {
		w := s.sameMemory("1 GiB", h, false, p*page)
		// The program numbered its pages.
		if want := fmt.Sprintf("%02x%02x%02x0000000000", byte(p+1), byte((p+1)>>8), byte((p+1)>>16)); !strings.HasPrefix(w.Bytes, want) {
			t.Errorf("page %d begins with %.16s, want %s", p, w.Bytes, want)
		}
		if len(w.PBLEs) != 2 || w.PBLEs[0].Role != "root" || w.PBLEs[1].Role != "page" {
			t.Errorf("page %d: the walk reads %+v, want a root and a page", p, w.PBLEs)
			continue
		}
		for i, entry := range w.PBLEs {
			sds[entry.SD] = true
			if !entry.Paged || entry.PDAt == 0 || entry.PDVal == 0 || entry.Stale || entry.FPM != w.PBLEs[0].FPM-8*uint64(w.PBLEs[0].Index)+8*uint64(entry.Index) {
				t.Errorf("page %d: entry %d is read as %+v", p, i, entry)
			}
		}
		root, last := w.PBLEs[0], w.PBLEs[1]
		if want := uint32(root.Value) + uint32(p%512); root.Index != card[0].First+uint32(p/512) || last.Index != want || last.Value != w.Pieces[0].Address {
			t.Errorf("page %d: the chain is %+v", p, w.PBLEs)
		}
	}
	if len(sds) != 2 {
		t.Errorf("the entries lie in segments %v, want two", sds)
	}
	// Over the border of two lists, in words.
	r := e.exec(t, "", e.vrnic, "explain", "--control", s.control, "mr", fmt.Sprintf("%#x", h.LKey),
		fmt.Sprintf("%#x", h.IOVA+leaf-32), "64", "--bytes", "64").want(t, 0)
	for _, word := range []string{"root", "page", "SD", "PD"} {
		if !strings.Contains(r.stdout, word) {
			t.Errorf("no %q in the chain\n%s", word, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if err := os.WriteFile(filepath.Join(e.outDir, "chain.txt"), []byte(r.stdout), 0o644); err != nil {
		t.Error(err)
	}
	s.letGo()
	if after := s.device(); !after.equal(before) {
		t.Errorf("after exit the device has %v, want %v", after, before)
	}
	s.end()
	s.quiet()
}
