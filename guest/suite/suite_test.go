// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/guest/suite/ktap"
)

func TestCases(t *testing.T) {
	all := cases()
	seen := map[string]bool{}
	last := 0
	for _, c := range all {
		if seen[c.Name] {
			t.Errorf("%s occurs twice", c.Name)
		}
		seen[c.Name] = true
		if !regexp.MustCompile(`^[a-z]+/[a-zA-Z0-9-]+$`).MatchString(c.Name) {
			t.Errorf("%q is no name", c.Name)
		}
		group := slices.Index(groups, c.Group())
		if slices.Contains(hidden, c.Group()) {
			group = len(groups)
		}
		if group < last {
			t.Errorf("%s: its group is not known, or not in its place", c.Name)
		}
		last = group
		if c.Shows == "" || strings.Contains(c.Shows, "\n") || len(c.Name)+len(c.Shows) > 150 {
			t.Errorf("%s: shows %q", c.Name, c.Shows)
		}
		for _, w := range slices.Concat(c.Want, c.WantServer) {
			if _, err := regexp.Compile(w); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
		for _, script := range []string{c.Script, c.Server, c.Ready} {
			out, err := exec.Command("sh", "-n", "-c", library+script).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", c.Name, err, out)
			}
		}
		if c.Script == "" {
			t.Errorf("%s: nothing to run", c.Name)
		}
		if py := regexp.MustCompile(`python3 \$LIB/(\S+)`).FindStringSubmatch(c.Script); py != nil {
			if _, err := python.ReadFile(path.Join("python", py[1])); err != nil || !c.Needs.Pyverbs {
				t.Errorf("%s: %v, needs pyverbs: %v", c.Name, err, c.Needs.Pyverbs)
			}
		}
	}
	for _, g := range groups {
		if !slices.ContainsFunc(all, func(c *Case) bool { return c.Group() == g }) {
			t.Errorf("group %s is empty", g)
		}
	}
}

func names(cases []*Case) string {
	var out []string
	for _, c := range cases {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestSelect(t *testing.T) {
	for _, c := range []struct{ patterns, want, err string }{
		{"objects/device", "objects/device", ""},
		{"verbs/rc verbs/rc objects/link", "objects/link verbs/rc", ""},
		{"verbs/ud*", "verbs/ud verbs/ud-ipv6 verbs/ud-events verbs/ud-1byte", ""},
		{"*/udaddy", "cm/udaddy", ""},
		{"self/fail", "self/fail", ""},
		{"*/fail", "", `pattern "*/fail": no case`},
		{"verbs/rc nothing", "", `pattern "nothing": no case`},
		{"verbs/[", "", "syntax error"},
	} {
		got, err := Select(strings.Fields(c.patterns)...)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.patterns, err, c.err)
			}
			continue
		}
		if err != nil || names(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.patterns, names(got), err, c.want)
		}
	}
	all, err := Select()
	if err != nil || len(all) != len(cases())-len(selfCases()) {
		t.Errorf("without patterns %d cases, %v", len(all), err)
	}
	group, err := Select("cm")
	if err != nil || names(group) != names(cmCases()) {
		t.Errorf("cm: %q, %v", names(group), err)
	}
}

func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		n    Needs
		want string
	}{
		{Needs{}, ""},
		{Needs{Guests: 1, MTU: 1500, Pyverbs: true}, ""},
		{Needs{Guests: 2}, "needs --guests 2"},
		{Needs{MTU: 1501}, "needs --mtu 1501"},
	} {
		if got := c.n.missing(1, 1500); got != c.want {
			t.Errorf("%+v: %q, want %q", c.n, got, c.want)
		}
	}
}

// stand is a runner of this machine, with cases of the test's own.
type stand struct {
	conn *Conn
	kmsg int // what is written here the kernel says
}

func newStand(t *testing.T, cases []*Case) stand {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	sys := t.TempDir()
	const card = "bus/pci/drivers/ice/0000:01:00.0"
	for name, text := range map[string]string{
		card + "/net/eth0/mtu":                   "1500\n",
		card + "/infiniband/irdma0/node_guid":    "\n",
		"class/infiniband/irdma0/ports/1/gids/0": "fe80:0000:0000:0000:00e8:10ff:fe00:0001\n",
		"class/infiniband/irdma0/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:c0a8:4d01\n",
		"class/infiniband/irdma0/ports/1/gids/2": "fd77:0000:0000:0000:0000:0000:0000:0001\n",
		"class/infiniband/irdma0/ports/1/gids/3": "0000:0000:0000:0000:0000:0000:0000:0000\n",
	} {
		file := filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{dir: t.TempDir(), sys: sys, kernel: &kernelLog{fds[0]}, find: func(name string) (*Case, bool) {
		i := slices.IndexFunc(cases, func(c *Case) bool { return c.Name == name })
		if i < 0 {
			return nil, false
		}
		return cases[i], true
	}}
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := r.serve(stdin, stdout)
		if err != nil {
			t.Error(err)
		}
		stdout.Close()
		stdin.Close()
	}()
	t.Cleanup(func() {
		in.Close()
		<-done
	})
	return stand{&Conn{In: in, Out: out}, fds[1]}
}

var addresses = []string{"ME=192.168.77.1", "ME6=fd77::1", "PEER=192.168.77.1", "PEER6=fd77::1"}

func TestRun(t *testing.T) {
	const ready = "[ -e $LIB/ready ]"
	cases := []*Case{
		{Name: "one/environment", Script: `echo "$DEV $NET $PCI $GID $GID6 $GIDLL $ME $PEER6"`,
			Want: []string{`^irdma0 eth0 0000:01:00.0 1 2 0 192.168.77.1 fd77::1$`}},
		{Name: "one/fails", Script: `echo "not ok 1 x"; fail "a reason"`},
		{Name: "one/other", Script: "echo this", Want: []string{"^that$"}},
		{Name: "one/skips", Script: `echo some; skip "no #1"`},
		{Name: "one/slow", Script: "sleep 1000 & sleep 1000", Limit: 100 * time.Millisecond},
		{Name: "one/alone", Script: "true", Needs: Needs{Guests: 2}},
		{Name: "one/signal", Script: "kill -9 $$"},
		{Name: "two/pair", Server: "touch $LIB/ready; until [ -e $LIB/go ]; do sleep 0.01; done; echo served", Ready: ready,
			Script: "touch $LIB/go; echo asked", Want: []string{"asked"}, WantServer: []string{"served"}},
		{Name: "two/server-fails-late", Server: "touch $LIB/ready; sleep 0.3; exit 4", Ready: ready, Script: "true"},
		{Name: "two/server-fails-early", Server: "exit 3", Ready: "false", Script: "true"},
		{Name: "two/server-other", Server: "rm -f $LIB/ready; echo this; touch $LIB/ready; sleep 0.3", Ready: ready, Script: "true", WantServer: []string{"that"}},
		{Name: "two/server-stays", Server: "trap '' TERM; while true; do sleep 1; done", Ready: "true", Script: "true", Limit: time.Minute},
		{Name: "two/never-ready", Server: "sleep 1000", Ready: "false", Script: "true", Limit: 300 * time.Millisecond},
		{Name: "two/server-may-stay", Server: "while true; do sleep 1; done", Ready: "true", ServerStays: true, Script: "true"},
		{Name: "three/kernel", Script: "true"},
		{Name: "three/found", Script: "true"},
	}
	s := newStand(t, cases)
	var out bytes.Buffer
	logged, found := map[string]string{}, false
	o := Options{Cases: cases, Guests: []*Conn{s.conn}, Env: [][]string{addresses}, MTU: 1500, Out: &out, Strict: true, grace: 500 * time.Millisecond,
		Log: func(c *Case, text string) error {
			logged[c.Name] = text
			if c.Name == "two/server-may-stay" { // the next one's kernel log
				for _, line := range []string{"6,1,2000001,-;fine", "4,2,3000002,-;WARNING: CPU: 0 PID: 1 at here\n SUBSYSTEM=x"} {
					if _, err := unix.Write(s.kmsg, []byte(line)); err != nil {
						t.Error(err)
					}
				}
			}
			return nil
		},
		Findings: func() (string, int) {
			if len(logged) == len(cases)-1 && !found {
				found = true
				return "error[pd-stale] SD 2\n", 1
			}
			return "", 0
		}}
	outcomes, err := Run(t.Context(), o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	got, err := ktap.Parse(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	flat := map[string]ktap.Test{}
	for _, g := range got {
		flat[g.Name] = g
		for _, c := range g.Tests {
			flat[g.Name+"/"+c.Name] = c
		}
	}
	for name, want := range map[string]struct {
		ok        bool
		directive ktap.Directive
		says      string // in its line or the diagnostics
	}{
		"one":                    {},
		"one/environment":        {ok: true},
		"one/fails":              {says: "FAILED: a reason"},
		"one/other":              {says: `the output does not match "^that$"`},
		"one/skips":              {ok: true, directive: ktap.Skip, says: "no no.1"},
		"one/slow":               {directive: ktap.Timeout, says: "it did not end within 100ms"},
		"one/alone":              {ok: true, directive: ktap.Skip, says: "needs --guests 2"},
		"one/signal":             {says: "status 137"},
		"two":                    {},
		"two/pair":               {ok: true},
		"two/server-fails-late":  {says: "the server ended with status 4"},
		"two/server-fails-early": {says: "the server ended with status 3 before anybody could talk to it"},
		"two/server-other":       {says: `the server's output does not match "that"`},
		"two/server-stays":       {says: "the server did not end within 500ms after its client"},
		"two/never-ready":        {directive: ktap.Timeout, says: "the server was not ready within 300ms"},
		"two/server-may-stay":    {ok: true},
		"three":                  {},
		"three/kernel":           {says: "the kernel complained: [    3.000002] WARNING: CPU: 0 PID: 1 at here"},
		"three/found":            {ok: true, says: "error[pd-stale] SD 2"},
		"findings":               {says: "errors of drivers: 1"},
	} {
		x, ok := flat[name]
		if !ok {
			t.Errorf("no result of %s", name)
			continue
		}
		says := x.Text + "\n" + strings.Join(x.Diagnostics, "\n")
		if x.OK != want.ok || x.Directive != want.directive || !strings.Contains(says, want.says) {
			t.Errorf("%s: ok %v %s, %q; want %+v", name, x.OK, x.Directive, says, want)
		}
	}
	if len(outcomes) != len(cases) || !strings.Contains(logged["two/pair"], "  served\n") {
		t.Errorf("%d outcomes, output of a server %q", len(outcomes), logged["two/pair"])
	}
	if t.Failed() {
		t.Log(out.String())
	}

	var report bytes.Buffer
	if err := WriteJUnit(&report, append(cases, &Case{Name: "three/never"}), outcomes, "gone"); err != nil {
		t.Fatal(err)
	}
	var x junitSuites
	if err := xml.Unmarshal(report.Bytes(), &x); err != nil {
		t.Fatalf("%v\n%s", err, report.String())
	}
	counts := func(s junitSuite) [4]int { return [4]int{s.Tests, s.Failures, s.Errors, s.Skipped} }
	if len(x.Suites) != 3 || counts(x.Suites[0]) != [4]int{7, 4, 0, 2} || counts(x.Suites[1]) != [4]int{7, 5, 0, 0} || counts(x.Suites[2]) != [4]int{3, 1, 1, 0} {
		t.Errorf("report:\n%s", report.String())
	}
}

func TestRunWithoutGuest(t *testing.T) {
	cases := []*Case{{Name: "one/first", Script: "true"}, {Name: "one/dies", Script: "true"}}
	s := newStand(t, cases)
	var out bytes.Buffer
	o := Options{Cases: cases, Guests: []*Conn{s.conn}, Env: [][]string{addresses}, Out: &out}
	broken := errors.New("broken")
	o.Findings = func() (string, int) {
		s.conn.In.(*io.PipeWriter).CloseWithError(io.EOF) // the guest goes
		return "", 0
	}
	outcomes, err := Run(t.Context(), o)
	if err == nil || len(outcomes) != 1 || outcomes[0].Case != cases[0] {
		t.Errorf("%d outcomes, error %v", len(outcomes), err)
	}
	if !strings.Contains(out.String(), "\nBail out! the suite's runner: ") {
		t.Errorf("output:\n%s", out.String())
	}
	if _, err := ktap.Parse(&out); err == nil {
		t.Error("output without an end is accepted")
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	s = newStand(t, cases)
	o.Guests = []*Conn{s.conn}
	if _, err := Run(ctx, o); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestBadKernelLines(t *testing.T) {
	for text, want := range map[string]bool{
		"WARNING: CPU: 1 PID: 77 at net/core/dev.c:1 x+0x1/0x2": true,
		"BUG: kernel NULL pointer dereference, address: 0":      true,
		"Oops: 0000 [#1] PREEMPT SMP":                           true,
		"DMAR: [DMA Write NO_PASID] Request device [01:00.0]":   true,
		"WARNING: possible circular locking dependency":         true,
		"ice 0000:01:00.0: The DDP package was loaded":          false,
		"DMAR: IOMMU enabled":                                   false,
		"rcu: INFO: rcu_preempt self-detected stall on CPU":     false,
	} {
		if got := bad.MatchString(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestKernelLogIsBounded(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	k := &kernelLog{fds[0]}
	for range 5 {
		if _, err := unix.Write(fds[1], []byte("6,1,1,-;"+strings.Repeat("\x00", 8000))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.Write(fds[1], []byte("no record")); err != nil {
		t.Fatal(err)
	}
	log, wrong := k.read()
	if len(log) != 6 || len(log[0]) != maxLine || !strings.HasPrefix(log[0], "[    0.000001] \x00") || log[5] != "no record" || len(wrong) != 0 {
		t.Errorf("%d lines, %d bad: %q", len(log), len(wrong), log)
	}
}

func TestCapture(t *testing.T) {
	var c capture
	for range 100 {
		c.Write(bytes.Repeat([]byte("x"), 5000))
	}
	c.Write([]byte("end"))
	s := c.String()
	if len(s) > maxOutput+100 || !strings.HasPrefix(s, "xxx") || !strings.HasSuffix(s, "xend") || !strings.Contains(s, "(434467 bytes are left out here)") {
		t.Errorf("%d bytes kept: …%q", len(s), s[len(s)-60:])
	}
}
