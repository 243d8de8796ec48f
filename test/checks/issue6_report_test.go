// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/devmodel/trace"
)

func init() {
	for _, kernel := range []string{"debian-12", "debian-13", "debian-backports"} {
		table = append(table, check{6, "report-" + kernel, kernel == "debian-backports",
			"run --check strict: a doorbell for a CQ that nobody made; status 3, findings.txt, findings.json, --events; " + kernel,
			func(t *testing.T, e *env) { reported(t, e, kernel) }})
	}
}

// mistake takes the drivers off the card and then does what they never do.
const mistake = `set -e
dev=$(basename $(ls -d /sys/bus/pci/drivers/ice/0000:* | head -n 1))
echo $dev > /sys/bus/pci/drivers/ice/unbind
setpci -s $dev COMMAND=6
bar=$(head -n 1 /sys/bus/pci/devices/$dev/resource | cut -d' ' -f1)
busybox devmem $((bar + 0x502C00)) 32 77 # PFPE_CQARM
busybox devmem $((bar + 0x502C00)) 32 77
`

// reported wants that a mistake is told with all that a reader elsewhere needs,
// and that nothing else is.
func reported(t *testing.T, e *env, kernel string) {
	events := filepath.Join(e.outDir, "events.jsonl")
	r := e.guest(t, "", "-k", kernel, "--timeout", "2m", "--check", "strict", "--events", events, "--", "sh", "-c", mistake).want(t, 3)
	b, err := os.ReadFile(filepath.Join(e.outDir, "findings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var reports []sanitizer.Report
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	got := reports[0]
	if got.Errors != 1 || got.Warnings != 0 {
		t.Errorf("%d errors, %d warnings, want the one error", got.Errors, got.Warnings)
	}
	if f := got.Findings[0]; f.Rule != "cq-doorbell" || f.Object != "CQ 77" || f.Count != 2 || !strings.HasPrefix(f.Command, "IRDMA_CQP_OP_") {
		t.Errorf("%+v", f)
	}
	if got.Kernel == "" || len(got.Modules) != 2 || got.Modules[0].SrcVersion+got.Modules[0].BuildID == "" {
		t.Errorf("kernel %q, modules %+v", got.Kernel, got.Modules)
	}
	text, err := os.ReadFile(filepath.Join(e.outDir, "findings.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kernel:  " + got.Kernel + "\n", "module:  irdma, ", "error[cq-doorbell] CQ 77, 2 times\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(string(text)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > sanitizer.Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{"error[cq-doorbell] CQ 77, 2 times", "the cards found 1 error: see "} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("no %q on stderr\n%v", want, r)
		}
	}
	wantEvents(t, events, "devmodel.Attached", "fw.DriverVersion", "cqp.Op", "event.UnknownCQ")
}

// wantEvents wants lines of these types in a file of events, none lost.
func wantEvents(t *testing.T, path string, types ...string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l trace.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil || l.Time.IsZero() || l.Text == "" {
			t.Fatalf("%s: %v", in.Bytes(), err)
		}
		seen[l.Type]++
	}
	if in.Err() != nil || seen["lost"] > 0 {
		t.Errorf("%v, %d lost", in.Err(), seen["lost"])
	}
	for _, want := range types {
		if seen[want] == 0 {
			t.Errorf("no %s among the events: %v", want, seen)
		}
	}
}
