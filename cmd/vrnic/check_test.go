// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/serve"
)

func TestStrictStatus(t *testing.T) {
	for _, c := range []struct {
		check  string
		cmd    int
		errors uint64
		want   int
	}{
		{checkStrict, 0, 1, 3},
		{checkStrict, 0, 0, 0},
		{checkStrict, 7, 1, 7},
		{checkWarn, 0, 1, 0},
		{checkOff, 0, 1, 0},
	} {
		w := watching{check: c.check}
		if got := w.status(c.cmd, c.errors); got != c.want {
			t.Errorf("%+v: status %d", c, got)
		}
	}
}

// The status of serve is 3 also though a signal ended it.
func TestStrictServe(t *testing.T) {
	dir := t.TempDir()
	socket, control := filepath.Join(dir, "s"), filepath.Join(dir, "c")
	status := make(chan int)
	go func() {
		status <- run([]string{"serve", "--socket", socket, "--control", control, "--check", "strict"})
	}()
	for range 3000 { // the socket announces itself no other way
		if ringWithoutCQP(socket) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := <-status; got != statusFindings {
		t.Errorf("status %d", got)
	}
}

// Artifacts have all there is, and say also that there is nothing.
func TestFindingsAsArtifacts(t *testing.T) {
	for _, mistakes := range []bool{true, false} {
		dir := t.TempDir()
		socket, artifacts := filepath.Join(dir, "s"), filepath.Join(dir, "new", "artifacts")
		h, err := serve.Start(t.Context(), serve.Options{Sockets: []string{socket}})
		if err != nil {
			t.Fatal(err)
		}
		if mistakes {
			if err := ringWithoutCQP(socket); err != nil {
				t.Fatal(err)
			}
		}
		h.Close()
		w, g := watching{check: checkWarn}, &global{logFormat: "text"}
		said := filepath.Join(dir, "stderr")
		f, err := os.Create(said)
		if err != nil {
			t.Fatal(err)
		}
		g.diagnostics = serve.NewLogWriter(f, func(uint64) {})
		if err := w.tell(g, hclog.NewNullLogger(), h, artifacts); err != nil {
			t.Fatal(err)
		}
		g.flush()
		text, err := os.ReadFile(filepath.Join(artifacts, "findings.txt"))
		if err != nil || strings.Contains(string(text), "error[cqp-dead] CQP\n") != mistakes || strings.Contains(string(text), "nothing found") == mistakes {
			t.Errorf("%s: %v", text, err)
		}
		data, err := os.ReadFile(filepath.Join(artifacts, "findings.json"))
		var reports []check.Report
		if err != nil || json.Unmarshal(data, &reports) != nil || len(reports) != 1 || (reports[0].Errors == 1) != mistakes {
			t.Errorf("%s: %v", data, err)
		}
		out, err := os.ReadFile(said)
		want := "vrnic: the cards found 1 error: see " + filepath.Join(artifacts, "findings.txt") + "\n"
		if err != nil || strings.HasSuffix(string(out), want) != mistakes || (len(out) == 0) == mistakes {
			t.Errorf("stderr %q: %v", out, err)
		}
	}
}
