// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sanitizer "github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/guest/suite/ktap"
)

func init() {
	green := func(name string, flags ...string) {
		table = append(table, check{issue: 7, name: "suite-" + name, command: "vrnic test --check strict " + strings.Join(flags, " "),
			run: func(t *testing.T, e *env) { suiteGreen(t, e, flags) }})
	}
	for _, k := range worldKernels {
		green(k, "-k", k)
		green("two-"+k, "-k", k, "--guests", "2", "--mtu", "9000")
	}
	green("captured", "--guests", "2", "--pcap", os.DevNull) // all of it in frames
	green("iommu", "--iommu")
	green("paged-pbles", "--personality", "paged-pbles")
	green("high-fpm", "--personality", "high-fpm")
	table = append(table,
		check{7, "suite-fails", false, "vrnic test self", suiteFails},
		check{7, "suite-loss", false, "vrnic test --guests 2 --impair loss=100% verbs/rc", suiteLoses},
		check{7, "suite-timeout", false, "vrnic test --timeout 1s objects/turnover verbs/rc", suiteTimeout},
		check{7, "suite-panic", false, "vrnic test objects/device panic", suitePanics},
		check{7, "suite-ci", true, "vrnic test with seven cases, of which one fails", suiteSample},
	)
}

// suiteRun is what came of vrnic test.
type suiteRun struct {
	run
	groups []ktap.Test
	cases  map[string]ktap.Test // by full name
	err    error                // of the strict parser
}

// testSuite runs vrnic test. What it printed stays in the folder.
func (e *env) testSuite(t *testing.T, args ...string) suiteRun {
	t.Helper()
	args = append([]string{e.vrnic, "test", "--artifacts", e.outDir, "--junit", filepath.Join(e.outDir, "junit.xml")}, args...)
	s := suiteRun{run: e.exec(t, "", args...), cases: map[string]ktap.Test{}}
	for name, text := range map[string]string{"ktap.txt": s.stdout, "stderr.txt": s.stderr} {
		if err := os.WriteFile(filepath.Join(e.outDir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s.groups, s.err = ktap.Parse(strings.NewReader(s.stdout))
	for _, g := range s.groups {
		for _, c := range g.Tests {
			s.cases[g.Name+"/"+c.Name] = c
		}
	}
	return s
}

// wantParsed wants both parsers to accept the output, and perl's to see as many
// tests at the top.
func (s suiteRun) wantParsed(t *testing.T) {
	t.Helper()
	if s.err != nil {
		t.Fatalf("KTAP: %v\n%v", s.err, s.run)
	}
	if exec.Command("perl", "-MTAP::Parser", "-e1").Run() != nil {
		t.Log("no perl with TAP::Parser here (Debian's perl-modules has it): one parser less has seen this")
		return
	}
	bad := 0
	for _, g := range s.groups {
		if !g.OK {
			bad++
		}
	}
	cmd := exec.Command("perl", "-MTAP::Parser", "-e", `local $/; my $p = TAP::Parser->new({tap => <STDIN>}); $p->run;
		printf "planned %d run %d failed %d errors %d", $p->tests_planned, $p->tests_run, scalar $p->failed, scalar $p->parse_errors`)
	cmd.Stdin = strings.NewReader(s.stdout)
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("planned %[1]d run %[1]d failed %[2]d errors 0", len(s.groups), bad); err != nil || string(out) != want {
		t.Errorf("perl's TAP::Parser says %q (%v), want %q", out, err, want)
	}
}

// suiteReport is a JUnit report as its readers know it.
type suiteReport struct {
	Suites []struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func (e *env) junit(t *testing.T) (r suiteReport) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.outDir, "junit.xml"))
	if err == nil {
		err = xml.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatalf("JUnit report: %v", err)
	}
	return r
}

// suiteSkips are the cases that may be skipped, and the flag without which they are.
var suiteSkips = map[string]string{
	"verbs/rc-mtu-2048": "--mtu 9000", "verbs/rc-mtu-4096": "--mtu 9000", "tools/write-bw-mtu": "--mtu 9000",
	"verbs/rc-vlan": "--guests 2",
}

// suiteGreen wants every case to be ok, and nothing found by the card.
func suiteGreen(t *testing.T, e *env, flags []string) {
	s := e.testSuite(t, append([]string{"--check", "strict"}, flags...)...)
	s.wantParsed(t)
	given := strings.Join(flags, " ")
	for name, c := range s.cases {
		if !c.OK {
			t.Errorf("%s: %s", name, strings.Join(c.Diagnostics, "\n"))
		}
		flag, ok := suiteSkips[name]
		if skip := ok && !strings.Contains(given, flag); (c.Directive == ktap.Skip) != skip {
			t.Errorf("%s: directive %q %s, to be skipped: %v", name, c.Directive, c.Text, skip)
		}
	}
	if len(s.cases) < 80 {
		t.Errorf("%d cases", len(s.cases))
	}
	tests := 0
	for _, g := range e.junit(t).Suites {
		tests += g.Tests
		if g.Failures+g.Errors != 0 {
			t.Errorf("JUnit report: %+v", g)
		}
	}
	if tests != len(s.cases) {
		t.Errorf("JUnit report: %d cases of %d", tests, len(s.cases))
	}
	b, err := os.ReadFile(filepath.Join(e.outDir, "findings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found []sanitizer.Report
	if err := json.Unmarshal(b, &found); err != nil {
		t.Fatal(err)
	}
	driverBugs := 0
	for _, r := range found {
		for _, f := range r.Findings {
			line := fmt.Sprintf("%v[%s] %s: %s", f.Grade, f.Rule, f.Object, f.Detail)
			switch {
			case f.Grade == sanitizer.Note:
			case allowed(t, line):
				driverBugs++
			default:
				t.Errorf("%s found: %s", r.Device, line)
			}
		}
	}
	if s.status != 0 && (s.status != 3 || driverBugs == 0) {
		t.Errorf("status %d\n%v", s.status, s.run)
	}
	e.part(t, "cases", "", fmt.Sprintf("%d in %v", len(s.cases), s.took.Round(1e9)), s.took)
}

// allowed tells whether a finding is one that the stock drivers give reason for.
func allowed(t *testing.T, line string) bool {
	t.Helper()
	b, err := os.ReadFile("allowed-findings.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []allowedFinding
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatalf("allowed-findings.json: %v", err)
	}
	return slices.ContainsFunc(list, func(a allowedFinding) bool { return regexp.MustCompile(a.Finding).MatchString(line) })
}

// suiteFails goes through every way in which a case can end.
func suiteFails(t *testing.T, e *env) {
	s := e.testSuite(t, "self")
	s.wantParsed(t)
	s.want(t, 1)
	for name, want := range map[string]struct {
		ok        bool
		directive ktap.Directive
		says      string
	}{
		"self/pass":          {ok: true},
		"self/fail":          {says: "  not ok 1 what a program prints"},
		"self/mismatch":      {says: `the output does not match "^that$"`},
		"self/skip":          {ok: true, directive: ktap.Skip, says: "because of no.1"},
		"self/slow":          {directive: ktap.Timeout, says: "it did not end within 1s"},
		"self/server-stays":  {says: "the server did not end"},
		"self/server-fails":  {says: "the server ended with status 3"},
		"self/kernel-warns":  {says: "the kernel complained: "},
		"self/nothing-stays": {ok: true},
	} {
		c := s.cases[name]
		if says := c.Text + "\n" + strings.Join(c.Diagnostics, "\n"); c.OK != want.ok || c.Directive != want.directive || !strings.Contains(says, want.says) {
			t.Errorf("%s: ok %v %s %q, want %+v", name, c.OK, c.Directive, says, want)
		}
	}
	r := e.junit(t)
	if len(r.Suites) != 1 || r.Suites[0].Failures != 6 || r.Suites[0].Skipped != 1 || r.Suites[0].Errors != 0 {
		t.Errorf("JUnit report: %+v", r)
	}
}

// suiteLoses has a network that carries nothing.
func suiteLoses(t *testing.T, e *env) {
	s := e.testSuite(t, "--guests", "2", "--impair", "loss=100%", "verbs/rc", "objects/device")
	s.wantParsed(t)
	s.want(t, 1)
	if s.cases["verbs/rc"].OK || !s.cases["objects/device"].OK {
		t.Errorf("%v", s.run)
	}
}

// suiteTimeout has a suite that does not end in time.
func suiteTimeout(t *testing.T, e *env) {
	s := e.testSuite(t, "--timeout", "1s", "objects/turnover", "verbs/rc")
	s.want(t, 124).wantStdout(t, "Bail out! ")
	if !errors.Is(s.err, ktap.ErrBailOut) {
		t.Errorf("KTAP: %v", s.err)
	}
	r := e.junit(t)
	if len(r.Suites) != 2 || r.Suites[0].Errors+r.Suites[1].Errors != 2 {
		t.Errorf("JUnit report: %+v", r)
	}
}

// suitePanics has a guest whose kernel ends.
func suitePanics(t *testing.T, e *env) {
	s := e.testSuite(t, "objects/device", "panic")
	s.want(t, 125).wantStdout(t, "  ok 1 device\n", "Bail out! ")
	if !errors.Is(s.err, ktap.ErrBailOut) || !strings.Contains(s.stderr, "sysrq triggered crash") {
		t.Errorf("KTAP: %v\n%v", s.err, s.run)
	}
	r := e.junit(t)
	if len(r.Suites) != 2 || r.Suites[0].Errors != 0 || r.Suites[1].Errors != 1 {
		t.Errorf("JUnit report: %+v", r)
	}
}

// suiteSample is what every change has to pass: a green case of each group, and a
// red one.
func suiteSample(t *testing.T, e *env) {
	green := []string{"objects/device", "regions/list", "verbs/rc", "errors/remote-key", "cm/rping", "tools/write-bw"}
	s := e.testSuite(t, append(green, "self/fail")...)
	s.wantParsed(t)
	s.want(t, 1)
	for _, name := range green {
		if c := s.cases[name]; !c.OK || c.Directive == ktap.Skip {
			t.Errorf("%s: ok %v %s\n%s", name, c.OK, c.Directive, strings.Join(c.Diagnostics, "\n"))
		}
	}
	if c, ok := s.cases["self/fail"]; !ok || c.OK || !strings.Contains(strings.Join(c.Diagnostics, "\n"), "not ok 1 what a program prints") {
		t.Errorf("self/fail: %+v", c)
	}
	failed := 0
	for _, g := range e.junit(t).Suites {
		failed += g.Failures
	}
	if failed != 1 {
		t.Errorf("JUnit report: %d failures", failed)
	}
}
