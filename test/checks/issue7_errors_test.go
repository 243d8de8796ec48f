// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
)

func init() {
	for _, k := range worldKernels {
		table = append(table, check{7, "errors-" + k, false,
			"python3 errors.py: every error, both sides in one guest and in two, IPv4 and IPv6, " + k, errorsOn(k)})
	}
	table = append(table, check{7, "errors-ci", true, "python3 errors.py, one guest", func(t *testing.T, e *env) {
		e.provoke(t, "debian-backports", "one guest", "--", "python3", "/root/guest/errors.py")
	}})
}

// sideSeen is what one side sees of a case of errors.py: statuses of its WRs in
// order, what event the driver raised, and the state of the queue pair.
type sideSeen struct {
	Send, Recv   []string
	Event, State string
}

// errorCase is a case of errors.json, or, without "does", what came of it.
type errorCase struct {
	Case, Does           string
	Requester, Responder sideSeen
	But                  *struct { // another requester's in these kernels
		Kernels   []string
		Why       string
		Requester sideSeen
	} `json:",omitempty"`
}

func errorsOn(kernel string) func(*testing.T, *env) {
	return func(t *testing.T, e *env) {
		const program = "/root/guest/errors.py"
		e.in(t, "one").provoke(t, kernel, "one guest", "--", "python3", program)
		for _, v := range []string{"", " --ip6"} {
			args := append([]string{"--guests", "2", "--peer", "python3 " + program + v + " --listen", "--", "python3", program}, strings.Fields(v)...)
			e.in(t, "two"+strings.TrimSpace(v)).provoke(t, kernel, "two guests"+v, append(args, "--peer", "peer")...)
		}
	}
}

// provoke makes every error, and wants that both sides see what they should.
func (e *env) provoke(t *testing.T, kernel, where string, args ...string) {
	t.Helper()
	text, err := os.ReadFile("guest/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []errorCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatalf("errors.json: %v", err)
	}
	begin := time.Now()
	r := e.guest(t, "", append([]string{"-k", kernel, "--image", "pyverbs", "--copy", filepath.Join(e.root, "test", "checks", "guest"), "--boot-timeout", "5m", "--timeout", "4m"}, args...)...)
	got := map[string]errorCase{}
	for line := range strings.Lines(r.stdout) {
		var c errorCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got[c.Case] = c
	}
	for _, c := range cases {
		want := errorCase{Case: c.Case, Requester: c.Requester, Responder: c.Responder}
		if c.But != nil && slices.Contains(c.But.Kernels, kernel) {
			if c.But.Why == "" {
				t.Errorf("%s: another result has no reason", c.Case)
			}
			want.Requester = c.But.Requester
		}
		if d := cmp.Diff(want, got[c.Case]); d != "" {
			t.Errorf("%s, %s: %s (-want +got):\n%s", where, c.Case, c.Does, d)
		}
	}
	if t.Failed() {
		t.Log(r)
	}
	r.want(t, 0)
	e.quietRun(t)
	e.part(t, where, strings.Join(args, " "), fmt.Sprintf("%d cases", len(got)), time.Since(begin))
}

// quietRun checks, after a run, that no card found anything to warn of, and no
// guest's kernel anything wrong but what is expected.
func (e *env) quietRun(t *testing.T, but ...allowedLine) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.outDir, "findings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var reports []sanitizer.Report
	if err := json.Unmarshal(b, &reports); err != nil || len(reports) == 0 {
		t.Fatalf("findings.json: %d reports, %v", len(reports), err)
	}
	listed := allowedFindings(t)
	for _, r := range reports {
		for _, f := range r.Findings {
			if f.Grade > sanitizer.Note && !listed(f.String()) {
				t.Errorf("finding: %v, %d times", f, f.Count)
			}
		}
	}
	if len(reports) == 1 {
		wantCleanLog(t, e.kernelLog(), but...)
		return
	}
	for i := range reports {
		wantCleanLog(t, filepath.Join(e.outDir, fmt.Sprintf("guest%d", i), "kernel.log"), but...)
	}
}
