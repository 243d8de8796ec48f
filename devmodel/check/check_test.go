// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

func TestFindingsAreCountedByRuleAndObject(t *testing.T) {
	var out bytes.Buffer
	c := New(hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &out}))
	for range 3 {
		c.Event(hmc.StalePD{SD: 2, PD: 103, Kept: 0x1001, Memory: 0x2001})
	}
	c.Event(hmc.StalePD{SD: 2, PD: 104, Kept: 0x1001, Memory: 0x2001})
	c.Event(reg.Unknown{Offset: 0x1234})
	c.Event(fw.Command{}) // a completed command breaks nothing
	got := c.Findings(Error)
	if len(got) != 2 || got[0].Object != "SD 2 PD 103" || got[0].Count != 3 || got[1].Count != 1 || got[0].Rule != "pd-stale" {
		t.Errorf("findings %+v", got)
	}
	if n := len(c.Findings(Note)); n != 3 {
		t.Errorf("%d findings of all grades, want 3", n)
	}
	if n := strings.Count(out.String(), "pd-stale"); n != 2 {
		t.Errorf("reported %d times, want once for each object:\n%s", n, out.String())
	}
	c.Event(devmodel.Attached{})
	c.Event(hmc.StalePD{SD: 2, PD: 103, Kept: 0x1001, Memory: 0x2001})
	if n := strings.Count(out.String(), "pd-stale"); n != 3 {
		t.Errorf("the next client's finding is not reported:\n%s", out.String())
	}
}

func TestFindingsAreBounded(t *testing.T) {
	c := New(nil)
	for i := range uint32(2 * maxFindings) {
		c.Event(reg.Unknown{Offset: 4 * i})
	}
	if n := len(c.Findings(Note)); n != maxFindings {
		t.Errorf("%d findings kept, want %d", n, maxFindings)
	}
	// What others found many of hides nothing.
	c.Event(hmc.StalePD{SD: 2, PD: 103, Kept: 0x1001, Memory: 0x2001})
	if n := len(c.Findings(Error)); n != 1 || c.Report().Lost != maxFindings {
		t.Errorf("%d errors, %d lost", n, c.Report().Lost)
	}
	c.Event(devmodel.Attached{})
	c.Event(reg.Unknown{})
	if n := len(c.Findings(Note)); n != 1 || c.Report().Lost != 0 {
		t.Errorf("the next client: %d findings, %d lost", n, c.Report().Lost)
	}
}

func TestCatalogueIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if r.ID == "" || r.Meaning == "" || r.Device == "" || r.Hardware == "" || r.Driver == "" || r.match == nil {
			t.Errorf("rule %q has an empty column", r.ID)
		}
		if seen[r.ID] {
			t.Errorf("two rules %q", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestKnownAndUnknownCommandsDiffer(t *testing.T) {
	c := New(nil)
	c.Event(fw.UnknownCommand{Opcode: 0xff20, Name: "set_health_status_config"})
	c.Event(fw.UnknownCommand{Opcode: 0x7777})
	got := c.Findings(Note)
	if len(got) != 2 || got[0].Rule != "aq-unknown" || got[1].Rule != "aq-unsupported" {
		t.Errorf("findings %+v", got)
	}
}
