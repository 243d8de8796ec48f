// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var (
	mode    = flag.String("checks", "", "which checks to run: ci (the fixed sample) or all")
	issue   = flag.Int("issue", 0, "only the checks of this issue")
	fresh   = flag.Bool("fresh", false, "run checks again that passed for this commit")
	times   = flag.Int("times", 0, "how often resets and the like are repeated (default: 3 in CI's sample, else as often as promised)")
	outFlag = flag.String("out", "", "directory for artifacts and results (default: artifacts/checks in the checkout)")
)

// TestChecks runs the table. Without -checks there is nothing to do: these
// tests boot guests and belong to make test and make test-all.
func TestChecks(t *testing.T) {
	switch *mode {
	case "":
		t.Skip("no -checks given: these boot guests, for minutes to hours; make test and make test-all pass it")
	case "ci", "all":
	default:
		t.Fatalf("-checks %q: want ci or all", *mode)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := *outFlag
	if out == "" {
		out = filepath.Join(root, "artifacts", "checks")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	rec, err := openRecord(root, out, *fresh || *mode == "ci")
	if err != nil {
		t.Fatal(err)
	}
	e := env{root: root, vrnic: filepath.Join(root, "bin", "vrnic")}
	if _, err := os.Stat(e.vrnic); err != nil {
		t.Fatalf("%v (make build makes it)", err)
	}
	for _, c := range table {
		if *issue != 0 && c.issue != *issue || *mode == "ci" && !c.ci {
			continue
		}
		name := fmt.Sprintf("%d/%s", c.issue, c.name)
		if old, ok := rec.Passed[name]; ok {
			old.Result = "passed before"
			rec.results = append(rec.results, old)
			continue
		}
		begin, ran := time.Now(), false
		ce := e
		ok := t.Run(name, func(t *testing.T) {
			ran = true
			ce.outDir = filepath.Join(out, fmt.Sprintf("%d-%s", c.issue, c.name))
			if err := os.RemoveAll(ce.outDir); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(ce.outDir, 0o755); err != nil {
				t.Fatal(err)
			}
			c.run(t, &ce)
		})
		if !ran {
			continue // -run chose others
		}
		res := result{Name: name, Command: c.command, Result: "passed", Took: time.Since(begin), Parts: ce.parts}
		if !ok {
			res.Result = "FAILED"
		}
		if err := rec.add(res, ok); err != nil {
			t.Error(err)
		}
	}
	fmt.Println(rec.table())
}

// repeat is how often a check repeats what was promised for n times.
func repeat(n int) int {
	switch {
	case *times > 0:
		return *times
	case *mode == "ci":
		return min(n, 3)
	}
	return n
}
