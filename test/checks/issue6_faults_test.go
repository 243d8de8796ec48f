// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/images"
	"github.com/vrnic/vrnic/test/kbuild"
)

func init() {
	for _, f := range faults {
		table = append(table, check{6, f.name, false,
			fmt.Sprintf("vrnic run -k debian-12 -m irdma.ko %s --check strict -- python3 lists.py: irdma with fault %q", f.flags, f.fault), f.run})
	}
	table = append(table, check{6, "stock-build", false,
		"vrnic run -k debian-12 -m irdma.ko --personality paged-pbles --check strict -- python3 lists.py: irdma built the same way, without a fault", stockBuild})
	for _, kernel := range images.KernelNames() {
		for _, personality := range []string{"paged-pbles", "high-fpm"} {
			flags := "-k " + kernel + " --personality " + personality
			table = append(table, check{6, "stock-" + personality + "-" + kernel, false,
				"vrnic run " + flags + " --check strict -- python3 lists.py; the kernel's own irdma",
				func(t *testing.T, e *env) { stockLists(t, e, strings.Fields(flags)...) }})
		}
	}
}

// fault is a driver with a mistake, and what must be found: the errors that name
// it, and none but those that follow from it.
type fault struct {
	name, fault, flags string
	want               []wanted
	follow             []string // rules
	lists              string   // regular expression for what lists.py prints
}

// wanted is a finding by its rule; object and detail are regular expressions.
type wanted struct{ rule, object, detail string }

var faults = []fault{{
	name: "fault-pdinv", fault: "pdinv", flags: "--personality paged-pbles",
	want: []wanted{{"pd-no-pdinv", `^SD \d+$`,
		`^PBLE \d+: PD \d+ of SD \d+ at 0x[0-9a-f]+ is 0x[0-9a-f]+001, no PFHMC_PDINV since$`}},
	lists: allRight,
}, {
	name: "fault-sd-index", fault: "sd-index", flags: "--personality high-fpm",
	want: []wanted{
		{"hmc-sd-invalid", `^PBLE SD 2064$`, `^HMC_ERR: PBLE \d+ at FPM 0x102[0-9a-f]{6}: SD 2064 is not valid$`},
		{"sd-outside-fpm", `^SD 16$`, `^UPDATE_PE_SDS programs SD 16 with 0x[0-9a-f]+: no object is there`},
	},
	// The driver resets the card, with everything as it is.
	follow: []string{"pble-unmapped", "cqp-leak"},
	lists:  `^$`,
}, {
	name: "fault-dereg", fault: "dereg",
	want: []wanted{{"stag-leak", stagObject, `^CQP destroyed with 6 STags alive; STags \[(0x[0-9a-f]+ ?){6}\]$`}},
	// What backed its entry and its list goes, and is used again.
	follow: []string{"sd-in-use", "pble-shared"},
	lists:  allRight,
}, {
	name: "fault-dereg-iommu", fault: "dereg", flags: "--iommu",
	want: []wanted{{"unmap-live-mr", stagObject,
		`^STag 0x[0-9a-f]+ \(REG_MR, CQP WQE \d+\) is live, its memory 0x[0-9a-f]+000\+0x[0-9a-f]+000 is unmapped$`}},
	follow: []string{"stag-leak", "sd-in-use", "pble-shared"},
	lists:  allRight,
}, {
	name: "fault-level", fault: "level", flags: "--personality paged-pbles",
	want: []wanted{{"pble-not-address", stagObject,
		`^STag 0x[0-9a-f]+ \(REG_MR, CQP WQE \d+\), page 0: PBLE \d+ at 0x[0-9a-f]+ is 0x[0-9a-f]{1,4}, .*the root of two levels, announced as one level of 601 pages`}},
	// As one list it reaches over entries of others, and over some that are unused.
	follow: []string{"pble-shared", "pble-zero"},
	lists:  `^list: 440 pages, 0 wrong, 0 failed\ntwo levels: 601 pages, [1-9]\d* wrong, 0 failed\nanother chunk: 601 pages, 0 wrong, 0 failed\n`,
}, {
	name: "fault-late", fault: "late",
	want: []wanted{{"pble-zero", stagObject,
		`^STag 0x[0-9a-f]+ \(REG_MR, CQP WQE \d+\), page 0: PBLE \d+ at 0x[0-9a-f]+ is 0x0; 1 of (440|601) are$`}},
	lists: `^list: 440 pages, 440 wrong, 0 failed\ntwo levels: 601 pages, 601 wrong, 0 failed\nanother chunk: 601 pages, 601 wrong, 0 failed\n`,
}}

const stagObject = `^STag 0x[0-9a-f]{8}$`

const allRight = `^list: 440 pages, 0 wrong, 0 failed\ntwo levels: 601 pages, 0 wrong, 0 failed\nanother chunk: 601 pages, 0 wrong, 0 failed\n`

// lists has the programs of a guest register and use memory, and unloads the
// driver: what it leaves behind is found then.
const lists = `cd /root/guest && python3 lists.py; modprobe -r irdma && echo unloaded`

// listsIn runs that in a guest.
func listsIn(t *testing.T, e *env, flags ...string) run {
	t.Helper()
	guest := filepath.Join(e.root, "test", "checks", "guest")
	args := append([]string{"--image", "pyverbs", "--copy", guest, "--check", "strict", "--timeout", "4m"}, flags...)
	return e.guest(t, "", append(args, "--", "sh", "-c", lists)...)
}

func (f fault) run(t *testing.T, e *env) {
	all := kbuild.Faults()
	i := slices.IndexFunc(all, func(k kbuild.Fault) bool { return k.Name == f.fault })
	if i < 0 {
		t.Fatalf("no fault %q", f.fault)
	}
	module := builtIrdma(t, e, all[i].Edits...)
	r := listsIn(t, e, append([]string{"-k", "debian-12", "-m", module}, strings.Fields(f.flags)...)...).want(t, 3)
	if !regexp.MustCompile(f.lists).MatchString(strings.TrimSuffix(r.stdout, "unloaded\n")) {
		t.Errorf("stdout is not like %q\n%v", f.lists, r)
	}
	seen := map[string]bool{}
	for _, x := range foundIn(t, e, sanitizer.Warning) {
		i := slices.IndexFunc(f.want, func(w wanted) bool { return w.rule == x.Rule })
		if i < 0 {
			if !slices.Contains(f.follow, x.Rule) {
				t.Errorf("found, too: %v", x)
			}
			continue
		}
		w := f.want[i]
		seen[w.rule] = true
		if x.Grade != sanitizer.Error || !regexp.MustCompile(w.object).MatchString(x.Object) || !regexp.MustCompile(w.detail).MatchString(x.Detail) {
			t.Errorf("%v\nwant an error for an object like %q, with a detail like %q", x, w.object, w.detail)
		}
		if !strings.HasPrefix(x.Command, "IRDMA_CQP_OP_") {
			t.Errorf("%v\nfollows command %q", x, x.Command)
		}
		if title := fmt.Sprintf("error[%s] %s", x.Rule, x.Object); !strings.Contains(r.stderr, title) {
			t.Errorf("no %q on stderr\n%v", title, r)
		}
	}
	for _, w := range f.want {
		if !seen[w.rule] {
			t.Errorf("%s was not found\n%v", w.rule, r)
		}
	}
}

// builtIrdma builds debian-12's irdma as a file of the check's artifacts.
func builtIrdma(t *testing.T, e *env, edits ...kbuild.Edit) string {
	t.Helper()
	to := filepath.Join(e.outDir, "irdma.ko")
	if err := builder(t, e, "debian-12").Irdma(t.Context(), to, edits...); err != nil {
		t.Fatal(err)
	}
	return to
}

// builder builds modules for a kernel of the image cache.
func builder(t *testing.T, e *env, kernel string) *kbuild.Builder {
	t.Helper()
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	k, err := cache.Kernel(t.Context(), kernel)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := cache.KernelTree(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	b, err := kbuild.New(tree, filepath.Join(e.root, "artifacts", "kbuild"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// foundIn is what the one card of the last run found at a grade or above.
func foundIn(t *testing.T, e *env, min sanitizer.Grade) (found []sanitizer.Finding) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.outDir, "findings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var reports []sanitizer.Report
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("findings.json: %d reports, %v", len(reports), err)
	}
	for _, f := range reports[0].Findings {
		if f.Grade >= min {
			found = append(found, f)
		}
	}
	return found
}

func stockBuild(t *testing.T, e *env) {
	stockLists(t, e, "-k", "debian-12", "--personality", "paged-pbles", "-m", builtIrdma(t, e))
}

// stockLists wants everything right, and nothing found.
func stockLists(t *testing.T, e *env, flags ...string) {
	r := listsIn(t, e, flags...).want(t, 0)
	if !regexp.MustCompile(allRight + `done\nunloaded\n$`).MatchString(r.stdout) {
		t.Errorf("stdout is not like %q\n%v", allRight, r)
	}
	for _, f := range foundIn(t, e, sanitizer.Warning) {
		t.Errorf("%v", f)
	}
}
