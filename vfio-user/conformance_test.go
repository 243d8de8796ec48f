// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// Any server can be held against the table:
//
//	vrnic serve --socket /tmp/card &
//	go test ./vfio-user -v -run '^TestConformance$' -server /tmp/card
//
// Without -v, go test shows what a package printed only in the form without a
// package's name: cd vfio-user && go test -server /tmp/card.
var (
	server    = flag.String("server", "", "run the conformance table against the server at this `socket`")
	reference = flag.Bool("reference", false, "the server of -server serves a conformance.Reference")
)

// tally counts the cases of TestConformance for TestMain to print.
var tally struct{ run, passed, skipped atomic.Int64 }

func TestMain(m *testing.M) {
	status := m.Run()
	if n := tally.run.Load(); n > 0 {
		skipped := ""
		if s := tally.skipped.Load(); s > 0 {
			skipped = fmt.Sprintf(", %d skipped that need what this server has not", s)
		}
		fmt.Printf("conformance: %d of %d cases passed%s\n", tally.passed.Load(), n, skipped)
	}
	os.Exit(status)
}

// serveReference serves a reference device with everything it has.
func serveReference(t testing.TB) (path string) {
	t.Helper()
	dev := conformance.NewReference()
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	layout, err := dev.Layout()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- vfiouser.NewServer(dev, layout, vfiouser.Options{BusyWait: patience}).Serve(ctx, l.UnixListener)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		l.Close()
	})
	return path
}

func TestConformance(t *testing.T) {
	path, isReference := *server, *reference
	if path == "" {
		path, isReference = serveReference(t), true
	}
	have, err := conformance.Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if isReference {
		have |= conformance.NeedReference
	}
	before := descriptors(t)
	names := make(map[string]bool)
	for _, c := range conformance.Cases() {
		if names[c.Name] {
			t.Errorf("two cases %q", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			if lacks := c.Lacks(have); lacks != "" {
				tally.skipped.Add(1)
				t.Skip(lacks)
			}
			tally.run.Add(1)
			if err := c.Run(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			tally.passed.Add(1)
		})
	}
	settles(t, "descriptors left", 0, func() int { return max(0, descriptors(t)-before) })
}

// TestConformanceNotices runs cases with a wrong expectation: a runner that
// passes everything would pass the others too.
func TestConformanceNotices(t *testing.T) {
	path := serveReference(t)
	info := conformance.Message(7, vfiouser.CmdDeviceGetInfo, 0, conformance.U32(16, 0, 0, 0))
	reply := conformance.Want{ID: 7, Command: vfiouser.CmdDeviceGetInfo}
	wrong := map[string]conformance.Step{
		"reply not expected": {Send: info},
		"wrong id":           {Send: info, Want: []conformance.Want{{ID: 8, Command: vfiouser.CmdDeviceGetInfo}}},
		"wrong errno":        {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Errno: unix.EINVAL}}},
		"wrong payload":      {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Payload: []byte{1}}}},
		"not closed":         {Send: append(info, info...), Want: []conformance.Want{reply}, Closed: true},
		"wrong count": {Send: info, Want: []conformance.Want{reply}, FDs: []conformance.FD{{Name: "e", Value: 3}},
			Checks: []conformance.Check{{Name: "e", Count: 4}}},
	}
	for name, step := range wrong {
		if err := (conformance.Case{Name: name, Steps: []conformance.Step{step}}).Run(t.Context(), path); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
