// SPDX-License-Identifier: Apache-2.0

// Package checks holds what each issue promised to show, one named check per
// promise, as a table. Its tests run the table against the built binary, in
// real guests:
//
//	go test ./test/checks -checks ci              the fixed sample of CI
//	go test ./test/checks -checks all -issue 2    everything an issue promised
//
// A run ends with a table: check, command, result. Checks that passed for the
// same commit are not run again in "all" mode, so a run that was interrupted
// goes on where it stopped; -fresh forgets that.
package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// check is one promise of an issue.
type check struct {
	issue   int
	name    string
	ci      bool   // part of the fixed sample that CI runs
	command string // what is run, for the table
	run     func(t *testing.T, e *env)
}

// env is where checks run.
type env struct {
	root   string // of the checkout
	vrnic  string // the built binary
	outDir string // artifacts of this check
	parts  []result
}

// part adds a line of its own to the table, below the check's.
func (e *env) part(t *testing.T, name, command, measured string, took time.Duration) {
	r := result{Name: name, Command: command, Result: "passed", Took: took}
	if t.Failed() {
		r.Result = "FAILED"
	}
	if measured != "" {
		r.Result += ": " + measured
	}
	e.parts = append(e.parts, r)
}

// result is one row of the closing table.
type result struct {
	Name    string        `json:"name"`
	Command string        `json:"command"`
	Result  string        `json:"result"`
	Took    time.Duration `json:"took"`
	Parts   []result      `json:"parts,omitempty"`
}

// run is one finished command.
type run struct {
	args           []string
	stdout, stderr string
	status         int
	took           time.Duration
}

func (r run) String() string {
	return fmt.Sprintf("%s: status %d after %v\n--- stdout\n%s\n--- stderr\n%s", strings.Join(r.args, " "), r.status, r.took.Round(time.Millisecond), r.stdout, tail(r.stderr, 60))
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// limit bounds every command of a check: a hang is a failure, not a wait. The
// longest fuzz for ten minutes, after a build that a busy machine takes its time for.
const limit = 20 * time.Minute

// start prepares a command in the checkout.
func (e *env) start(ctx context.Context, stdin string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = e.root
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	return cmd, &out, &errs
}

// exec runs a command and returns what it did; it fails the test only if the
// command could not be run at all.
func (e *env) exec(t *testing.T, stdin string, args ...string) run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd, out, errs := e.start(ctx, stdin, args...)
	begin := time.Now()
	err := cmd.Run()
	r := run{args: args, stdout: out.String(), stderr: errs.String(), status: cmd.ProcessState.ExitCode(), took: time.Since(begin)}
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatalf("%v\n%v", err, r)
	}
	return r
}

// guest runs "vrnic run ARGS" with artifacts kept below the check's folder.
func (e *env) guest(t *testing.T, stdin string, args ...string) run {
	t.Helper()
	return e.exec(t, stdin, append([]string{e.vrnic, "run", "--artifacts", e.outDir}, args...)...)
}

func (r run) want(t *testing.T, status int) run {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d\n%v", r.status, status, r)
	}
	return r
}

func (r run) wantStdout(t *testing.T, parts ...string) run {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(r.stdout, p) {
			t.Fatalf("no %q on stdout\n%v", p, r)
		}
	}
	return r
}

// record keeps the results of one commit.
type record struct {
	path    string
	Passed  map[string]result `json:"passed"`
	results []result
}

func openRecord(root, dir string, fresh bool) (*record, error) {
	head, err := exec.Command("git", "-C", root, "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return nil, fmt.Errorf("commit of the checkout: %w", err)
	}
	state := strings.TrimSpace(string(head))
	if dirty, err := exec.Command("git", "-C", root, "status", "--porcelain").Output(); err != nil || len(dirty) > 0 {
		fresh, state = true, state+"-dirty"
	}
	r := &record{path: filepath.Join(dir, "passed-"+state+".json"), Passed: map[string]result{}}
	if b, err := os.ReadFile(r.path); err == nil && !fresh {
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", r.path, err)
		}
	}
	return r, nil
}

func (r *record) add(res result, passed bool) error {
	r.results = append(r.results, res)
	if passed {
		r.Passed[res.Name] = res
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path, b, 0o644)
}

// table renders the results in order.
func (r *record) table() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| check | command | result | seconds |\n| --- | --- | --- | --- |")
	for _, x := range r.results {
		for _, x := range append([]result{x}, x.Parts...) {
			fmt.Fprintf(&b, "| %s | `%s` | %s | %.1f |\n", x.Name, x.Command, x.Result, x.Took.Seconds())
		}
	}
	return b.String()
}
