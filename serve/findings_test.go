// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/trace"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// mistaken serves a card whose client then rings the control QP's doorbell before
// there is one.
func mistaken(t *testing.T, o Options) (*Host, Options) {
	t.Helper()
	dir := t.TempDir()
	o.Sockets, o.Control = []string{filepath.Join(dir, "s")}, filepath.Join(dir, "control")
	h, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	mistake(t, o.Sockets[0])
	return h, o
}

const pfpeCQPDB = 0x500800

func mistake(t *testing.T, socket string) {
	t.Helper()
	c, err := vfiouser.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := c.Write32(0, pfpeCQPDB, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Read32(0, pfpeCQPDB); err != nil { // the writes are done
		t.Fatal(err)
	}
}

func TestReportOfACard(t *testing.T) {
	h, o := mistaken(t, Options{Personality: hmc.Personalities()[1]})
	h.Describe(0, "6.1.0", []check.Module{{Name: "irdma", SrcVersion: "ABC"}})
	r, err := Ask(t.Context(), o.Control, Request{What: "findings"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"error[cqp-dead] CQP, 2 times\n", "kernel:  6.1.0\n", "module:  irdma, srcversion ABC\n", "device:  card0 (vrnic, a model of Intel E810, personality paged-pbles)\n"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in\n%s", want, r.Text)
		}
	}
	var report check.Report
	if err := json.Unmarshal(r.Data, &report); err != nil || report.Errors != 1 || report.Findings[0].Count != 2 {
		t.Errorf("%s: %v", r.Data, err)
	}
	h.Close()
	if r := h.Reports(); len(r) != 1 || r[0].Errors != 1 {
		t.Errorf("after the end: %+v", r)
	}
}

// The next client begins anew, but what was wrong with the one before counts.
func TestErrorsOfAllClientsCount(t *testing.T) {
	h, o := mistaken(t, Options{})
	c, err := vfiouser.Dial(t.Context(), o.Sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read32(0, pfpeCQPDB); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r := h.Reports(); r[0].Errors != 0 {
		t.Errorf("another client's findings: %+v", r)
	}
	if n := h.DriverErrors(); n != 1 {
		t.Errorf("%d errors, want that of the first client", n)
	}
}

func TestUnchecked(t *testing.T) {
	h, o := mistaken(t, Options{Unchecked: true})
	if r := h.Reports(); len(r) != 0 || h.DriverErrors() != 0 {
		t.Errorf("findings: %+v", r)
	}
	if _, err := Ask(t.Context(), o.Control, Request{What: "findings"}); err == nil || !strings.Contains(err.Error(), "not checked") {
		t.Errorf("error %v", err)
	}
}

// Whether somebody watches makes no difference to the card.
func TestUnwatched(t *testing.T) {
	_, o := mistaken(t, Options{Unchecked: true})
	r, err := Ask(t.Context(), o.Control, Request{What: "regs", Name: "PFPE_CQPDB"})
	if err != nil || !strings.Contains(r.Text, "PFPE_CQPDB") {
		t.Errorf("%q, %v", r.Text, err)
	}
}

// Everything that happened until the end is in the events, with and without
// checks.
func TestEventsAreWritten(t *testing.T) {
	var out bytes.Buffer
	h, _ := mistaken(t, Options{Unchecked: true, Events: func(context.Context) (io.Writer, error) { return &out, nil }})
	h.Close()
	types := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var l trace.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Device != "card0" {
			t.Fatalf("%q: %v", line, err)
		}
		types[l.Type]++
	}
	if types["devmodel.Attached"] != 1 || types["cqp.NotLive"] != 2 {
		t.Errorf("events %v", types)
	}
}
