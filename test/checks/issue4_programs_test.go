// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

var conformanceCount = regexp.MustCompile(`conformance: (\d+) of (\d+) cases passed(?:, (\d+) skipped)?`)

// conformant runs the conformance table against the package's own reference
// device and against a card.
func conformant(t *testing.T, e *env) {
	const atLeast = 150
	count := func(args ...string) (passed, skipped int) {
		t.Helper()
		r := e.exec(t, "", append([]string{"go", "test", "-count=1", "-v", "-run", "^TestConformance$", "./vfio-user"}, args...)...).want(t, 0)
		m := conformanceCount.FindStringSubmatch(r.stdout)
		if m == nil || m[1] != m[2] {
			t.Fatalf("want the count of cases, all of them passed\n%v", r)
		}
		passed, _ = strconv.Atoi(m[1])
		skipped, _ = strconv.Atoi(m[3])
		return passed, skipped
	}
	begin := time.Now()
	own, skipped := count()
	if own < atLeast || skipped > 0 {
		t.Errorf("%d cases passed, %d were skipped; want at least %d and none", own, skipped, atLeast)
	}
	e.part(t, "conformance-reference", "go test ./vfio-user -run TestConformance", fmt.Sprintf("%d cases", own), time.Since(begin))

	begin = time.Now()
	s := startServer(t, e, 1)
	card, skipped := count("-server", s.sockets[0])
	if card+skipped != own {
		t.Errorf("%d cases passed against a card and %d were skipped, %d in all", card, skipped, own)
	}
	if err := s.stop(); err != nil {
		t.Errorf("vrnic serve: %v", err)
	}
	e.part(t, "conformance-card", "go test ./vfio-user -run TestConformance -server CARD", fmt.Sprintf("%d cases, %d need what a card has not", card, skipped), time.Since(begin))
}

// fuzzTarget is one of the parsers that a guest can reach.
type fuzzTarget struct{ what, pkg, name string }

var fuzzTargets = []fuzzTarget{
	{"vfio-user message", "./vfio-user", "FuzzServerMessage"},
	{"admin descriptor", "./devmodel/fw", "FuzzAdminDescriptor"},
	{"DDP package", "./devmodel/fw", "FuzzPackage"},
	{"CQP WQE", "./devmodel/cqp", "FuzzCQPWQE"},
	{"SQ WQE", "./devmodel/qp", "FuzzSend"},
	{"PBLE walk", "./devmodel/mr", "FuzzPBLEWalk"},
}

// fuzz runs every target for ten minutes, two at a time.
func fuzz(t *testing.T, e *env) { fuzzOver(t, e, fuzzTargets) }

func fuzzOver(t *testing.T, e *env, targets []fuzzTarget) {
	const each = 10 * time.Minute
	running := make(chan struct{}, max(1, runtime.NumCPU()))
	t.Run("targets", func(t *testing.T) {
		for _, f := range targets {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				corpus := filepath.Join(strings.TrimPrefix(f.pkg, "./"), "testdata", "fuzz", f.name)
				r := e.exec(t, "", "git", "ls-files", corpus).want(t, 0)
				if r.stdout == "" {
					t.Errorf("%s: no corpus is checked in", corpus)
				}
				running <- struct{}{}
				defer func() { <-running }()
				begin := time.Now()
				r = e.exec(t, "", "go", "test", "-run", "^$", "-fuzz", "^"+f.name+"$", "-fuzztime", each.String(), "-fuzzminimizetime", "1x", "-parallel", "1", f.pkg)
				if r.status != 0 {
					t.Error(r)
				}
				last := ""
				for _, m := range regexp.MustCompile(`execs: \d+`).FindAllString(r.stdout, -1) {
					last = m
				}
				e.part(t, f.what, strings.Join(r.args, " "), last, time.Since(begin))
			})
		}
	})
}

// stormOver is the storm of the mini-driver, as long as was promised.
func stormOver(t *testing.T, e *env) {
	e.exec(t, "", "go", "test", "-count=1", "-race", "-timeout", "10m", "-run", "^TestStorm$", "./guest/minidriver", "-storm", "60s").want(t, 0)
}

// measured holds the figures of register accesses against their bounds.
func measured(t *testing.T, e *env) { e.bench(t, "TestMeasure") }

// bench runs a measurement, which fails by itself where a bound is missed.
func (e *env) bench(t *testing.T, test string) run {
	t.Helper()
	return e.measure(t, test).want(t, 0)
}

// measure is bench, without an opinion of how it ends.
func (e *env) measure(t *testing.T, test string, flags ...string) run {
	t.Helper()
	r := e.exec(t, "", append([]string{"go", "test", "-count=1", "-v", "-timeout", "30m", "./test/bench", "-measure", "-run", "^" + test + "$"}, flags...)...)
	t.Log(r.stdout)
	return r
}
