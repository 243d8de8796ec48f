// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/images"
)

func init() {
	for _, kernel := range images.KernelNames() {
		for _, personality := range []string{"default", "paged-pbles"} {
			table = append(table, check{6, "frmr-" + personality + "-" + kernel, false,
				"vrnic run -k " + kernel + " -m frmr.ko --personality " + personality + " -- modprobe frmr pages=N: IB_WR_REG_MR, RDMA READ and WRITE, IB_WR_LOCAL_INV",
				func(t *testing.T, e *env) { fastRegistered(t, e, kernel, personality) }})
		}
	}
}

// frmrScript loads the module with each line of options, and has what it says.
const frmrScript = `
frmr() {
	echo "frmr $*"
	modprobe frmr "$@"; echo "status $?"
	modprobe -r frmr
	dmesg -c | grep -o ' frmr: round.*'
}
`

// overTwoLevels are options for an MR that the driver has a list of two levels for,
// where there are few entries: a fast-register work request has no way to say that.
const overTwoLevels = "pages=601 wedge=1"

// fastRegistered registers by work requests: what fits a list of one level works, on
// every kernel. What does not is the driver's to get wrong, and the card says how.
func fastRegistered(t *testing.T, e *env, kernel, personality string) {
	module := filepath.Join(e.outDir, "frmr.ko")
	source := filepath.Join(e.root, "test", "checks", "module", "frmr.c")
	if err := builder(t, e, kernel).Module(t.Context(), source, module); err != nil {
		t.Fatal(err)
	}
	good := map[string]int{"pages=1": 1, "pages=300": 300, "pages=512": 512, "pages=511 max=600": 511, "pages=1024": 1024}
	script := frmrScript
	for options := range good {
		script += "frmr " + options + "\n"
	}
	few := personality == "paged-pbles"
	status := 0
	if few {
		// Before the card has more entries than the first chunk's.
		script = frmrScript + "frmr " + overTwoLevels + "\n" + strings.TrimPrefix(script, frmrScript)
		status = 3
	} else {
		good[overTwoLevels] = 601
		script += "frmr " + overTwoLevels + "\n"
	}
	r := e.guest(t, "", "-k", kernel, "-m", module, "--personality", personality, "--check", "strict", "--timeout", "4m",
		"--", "sh", "-c", script+"modprobe -r irdma").want(t, status)
	for options, pages := range good {
		want := fmt.Sprintf(`(?m)^frmr %s\nstatus 0\n`, options)
		for round := range 2 {
			want += fmt.Sprintf(` frmr: round %[1]d: registered %[2]d pages at 0x[0-9a-f]+, rkey 0x[0-9a-f]+: status 0\n`+
				` frmr: round %[1]d: read %[2]d pages, 0 wrong\n`+
				` frmr: round %[1]d: wrote %[2]d pages, 0 wrong\n`+
				` frmr: round %[1]d: invalidated: status 0\n`+
				` frmr: round %[1]d: read of what was invalidated: status [1-9]\d*\n`, round, pages)
		}
		if !regexp.MustCompile(want).MatchString(r.stdout) {
			t.Errorf("%s is not like\n%s\n%v", options, want, r)
		}
	}
	found := foundIn(t, e, sanitizer.Warning)
	if !few {
		for _, f := range found {
			t.Errorf("%v", f)
		}
		return
	}
	wantTwoLevelsSeen(t, r, found)
}

// wantTwoLevelsSeen wants the card to have seen what irdma_alloc_mr leads to: it
// takes two levels when it gets no single list, and irdma_post_send announces one.
// Moreover it gives the first entry of the root as the address of the first page, and
// irdma_sc_mr_fast_register puts that, unmasked, over the list's index: the index of
// the first leaf, some 0x1f0, becomes the upper 12 bits of the list's own.
func wantTwoLevelsSeen(t *testing.T, r run, found []sanitizer.Finding) {
	t.Helper()
	refused := fmt.Sprintf(`(?m)^frmr %s\nstatus 1\n frmr: round 0: registered 601 pages at 0x[0-9a-f]+, rkey (0x[0-9a-f]+): status [1-9]\d*\n`, overTwoLevels)
	m := regexp.MustCompile(refused).FindStringSubmatch(r.stdout)
	if m == nil {
		t.Fatalf("stdout is not like %q\n%v", refused, r)
	}
	var key uint32
	if _, err := fmt.Sscanf(m[1], "0x%x", &key); err != nil {
		t.Fatal(err)
	}
	stag := fmt.Sprintf("STag %#08x", key)
	want := map[string]string{
		"pble-range":   fmt.Sprintf(`^error\[pble-range\] %[1]s: %[1]s: 601 PBLEs from 0x[12][0-9a-f]{6} on, there are 262656$`, stag),
		"stag-refused": fmt.Sprintf(`^warning\[stag-refused\] %[1]s: FAST_REG_NSMR, WQE 0 of QP \d+: %[1]s: AMP_FASTREG_PBLE_MISMATCH$`, stag),
	}
	for _, f := range found {
		if w, ok := want[f.Rule]; !ok || !regexp.MustCompile(w).MatchString(f.String()) {
			t.Errorf("found, too: %v", f)
			continue
		}
		delete(want, f.Rule)
	}
	for rule := range want {
		t.Errorf("%s was not found\n%v", rule, r)
	}
}
