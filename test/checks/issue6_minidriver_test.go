// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func init() {
	table = append(table,
		check{6, "stale-pd", false, "go test -race ./guest/minidriver -run 'TestStalePDOfRegion|TestNoPDINV|TestPDCache'", stalePDs},
		check{6, "minidriver-faults", false, "go test -race ./guest/minidriver -run 'TestFaults|TestLargeFastRegister|TestForgottenRegion'", faultyDrivers},
		check{6, "chains", false, "go test ./guest/minidriver -run 'TestChains|TestMillionPages' -long", chainsOfAllShapes},
		check{6, "windows", false, "go test -race ./guest/minidriver -run 'TestFastRegister.*|TestRemoteInvalidate|TestWindow.*|TestSharedMR'", windows},
		check{6, "poison", false, "go test -race ./guest/minidriver -run 'TestPoison.*|TestEndUnderLoad' -long", poisonStays},
		check{6, "random-cqp", false, "go test -race ./devmodel/rdma/sequence -sequences 50000, 20 times", randomCQP},
		check{6, "random-cqp-socket", false, "go test -race ./guest/minidriver -run TestSequences -long", randomCQPOverSocket},
		check{6, "fuzz-cqp", false, "go test -fuzz, 2 targets, 5 minutes each", fuzzCQP},
		check{6, "bench", false, "go test ./test/bench -measure -run TestRegions", measuredRegions},
	)
}

// suite runs tests of a package, all of which must be there, and keeps what they
// say.
func (e *env) suite(t *testing.T, name, pkg string, tests []string, args ...string) run {
	t.Helper()
	begin := time.Now()
	argv := append([]string{"go", "test", "-count=1", "-v", "-timeout", "19m", "-run", "^(" + strings.Join(tests, "|") + ")$"}, pkg)
	r := e.exec(t, "", append(argv, args...)...)
	if err := os.WriteFile(filepath.Join(e.outDir, name+".txt"), []byte(r.stdout+r.stderr), 0o644); err != nil {
		t.Error(err)
	}
	r.want(t, 0)
	for _, test := range tests {
		r.wantStdout(t, "\n--- PASS: "+test+" (")
	}
	e.part(t, name, "go test "+pkg+" "+strings.Join(args, " "), strings.Join(tests, ", "), time.Since(begin))
	return r
}

const miniDriverPackage = "./guest/minidriver"

func stalePDs(t *testing.T, e *env) {
	e.suite(t, "stale-pd", miniDriverPackage, []string{"TestPDCache", "TestStalePDOfRegion", "TestNoPDINV"}, "-race")
}

// faultyDrivers are those of the table that the mini-driver can play.
func faultyDrivers(t *testing.T, e *env) {
	e.suite(t, "minidriver-faults", miniDriverPackage, []string{"TestFaults", "TestLargeFastRegister", "TestForgottenRegion"}, "-race")
}

// chainsOfAllShapes takes several seeds: every one is other shapes.
func chainsOfAllShapes(t *testing.T, e *env) {
	for seed := range 4 {
		e.suite(t, fmt.Sprintf("chains, seed %d", seed+1), miniDriverPackage, []string{"TestChains"}, "-long", "-seed", fmt.Sprint(seed+1))
	}
	e.suite(t, "million-pages", miniDriverPackage, []string{"TestMillionPages"}, "-long")
}

func windows(t *testing.T, e *env) {
	e.suite(t, "windows", miniDriverPackage, []string{"TestFastRegister", "TestFastRegisterErrors", "TestRemoteInvalidate", "TestWindows",
		"TestWindowErrors", "TestSharedMR"}, "-race")
}

func poisonStays(t *testing.T, e *env) {
	e.suite(t, "poison", miniDriverPackage, []string{"TestPoisonOnInvalidation", "TestPoisonOfPageLists", "TestEndUnderLoad", "TestPoisonOnCompletion"}, "-race", "-long")
}

// randomCQP is a million sequences, in pieces that each end in time.
func randomCQP(t *testing.T, e *env) {
	const pieces, each = 20, 50_000
	for piece := range pieces {
		e.suite(t, fmt.Sprintf("random-cqp, %d to %d", piece*each, (piece+1)*each-1), "./devmodel/rdma/sequence", []string{"TestSequences"},
			"-race", "-sequences", fmt.Sprint(each), "-seed", fmt.Sprint(1000+piece))
	}
}

func randomCQPOverSocket(t *testing.T, e *env) {
	e.suite(t, "random-cqp-socket", miniDriverPackage, []string{"TestSequences"}, "-race", "-long")
}

// fuzzCQP is short beside issue 4's: it is for what has been added since.
func fuzzCQP(t *testing.T, e *env) {
	const each = 5 * time.Minute
	for _, name := range []string{"FuzzControl", "FuzzWQEs"} {
		begin := time.Now()
		e.exec(t, "", "go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", each.String(), "-fuzzminimizetime", "1x", "-parallel", "1", miniDriverPackage).want(t, 0)
		e.part(t, "fuzz-cqp "+name, "go test -fuzz "+name+" "+miniDriverPackage, "", time.Since(begin))
	}
}

// measuredRegions holds look-ups of pages and registrations against their bounds,
// and takes the figures into the table.
func measuredRegions(t *testing.T, e *env) {
	r := e.bench(t, "TestRegions")
	if err := os.WriteFile(filepath.Join(e.outDir, "bench.txt"), []byte(r.stdout), 0o644); err != nil {
		t.Error(err)
	}
	r.wantStdout(t, "| page look-ups, level 1, 64 KiB at a time ", "| page look-ups, level 2, paged, 64 KiB at a time ", "| registrations with their ends, pages: 1 ")
	for line := range strings.Lines(r.stdout) {
		cells := strings.Split(line, "|")
		if len(cells) > 6 && !strings.Contains(cells[1], "---") && !strings.Contains(cells[1], "figure") {
			e.part(t, "bench: "+strings.TrimSpace(cells[1]), "in turns", strings.TrimSpace(cells[2])+", bound "+strings.TrimSpace(cells[5]), 0)
		}
	}
}
