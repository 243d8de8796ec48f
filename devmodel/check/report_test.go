// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/devmodel/hmc"
)

func sample() Report {
	c := New(nil)
	c.Event(fw.DriverVersion{Text: "6.1.0-27-amd64"})
	c.Event(cqp.Op{Name: "IRDMA_CQP_OP_UPDATE_PE_SDS", Index: 117})
	for range 3 {
		c.Event(hmc.StalePD{SD: 2, PD: 103, At: 0x12300338, Kept: 0x12345001, Memory: 0x12346001, Object: hmc.PBLE, Index: 512})
	}
	c.Event(hmc.SDNotValid{SD: 7})
	c.Event(event.SpuriousAck{CQ: 1})
	r := c.Report()
	r.Device, r.Modules = "card0", []Module{{"irdma", "0123456789ABCDEF0123456", ""}, {Name: "ice", BuildID: "ab12"}}
	return r
}

func TestReportAsText(t *testing.T) {
	var b strings.Builder
	if err := sample().Write(&b, Error); err != nil {
		t.Fatal(err)
	}
	const want = `device:  card0 (vrnic, a model of Intel E810)
kernel:  6.1.0-27-amd64
module:  irdma, srcversion 0123456789ABCDEF0123456
module:  ice, build id ab12

error[pd-stale] SD 2 PD 103, 3 times
  a page descriptor was changed without PFHMC_PDINV and then used
  seen:    PBLE 512: PD 103 of SD 2 at 0x12300338 is 0x12346001, no
           PFHMC_PDINV: 0x12345001 in use
  after:   IRDMA_CQP_OP_UPDATE_PE_SDS, WQE 117
  device:  went on using its own copy
  E810:    goes on using the page descriptor in its cache: it reads and
           writes memory that the driver has freed
  look at: drivers/infiniband/hw/irdma/hmc.c:irdma_invalidate_pf_hmc_pd
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReportCounts(t *testing.T) {
	r := sample()
	if r.Errors != 1 || r.Warnings != 1 || r.Notes != 1 {
		t.Errorf("%+v", r)
	}
	if got := Summary(r, r); got != "2 errors, 2 warnings" {
		t.Errorf("summary %q", got)
	}
	if got := Summary(Report{}); got != "" {
		t.Errorf("summary of nothing %q", got)
	}
	if got := Summary(Report{Warnings: 1}); got != "1 warning" {
		t.Errorf("summary of a warning %q", got)
	}
}

func TestReportAsJSON(t *testing.T) {
	b, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	f := r.Findings[0]
	if f.Rule != "pd-stale" || f.Grade != Error || f.Count != 3 || f.Event != "hmc.StalePD" || f.Command != "IRDMA_CQP_OP_UPDATE_PE_SDS, WQE 117" {
		t.Errorf("%+v", f)
	}
	var fields map[string]any
	if err := json.Unmarshal(f.Fields, &fields); err != nil || fields["Memory"] != "0x12346001" {
		t.Errorf("%s: %v", f.Fields, err)
	}
}

// No line is wider than a mail allows, whatever it tells.
func TestReportsFitAMail(t *testing.T) {
	r := Report{Device: strings.Repeat("card", 60), Errors: 1}
	for _, rule := range Rules() {
		r.Findings = append(r.Findings, Finding{Rule: rule.ID, Grade: rule.Grade, Object: strings.Repeat("ä", 200), Count: 1 << 60,
			Detail: "a word " + strings.Repeat("x", 300) + " and more", Walk: []string{strings.Repeat("y ", 80), "z"}, Command: strings.Repeat("OP", 40)})
	}
	var b strings.Builder
	if err := r.Write(&b, Note); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if columns(line) > Width || strings.HasSuffix(line, " ") {
			t.Errorf("%d columns: %q", columns(line), line)
		}
	}
	if n := strings.Count(b.String(), "x"); n < 300*len(r.Findings) {
		t.Errorf("a long word lost letters: %d", n)
	}
}

// A failed walk tells how far it went.
func TestWalkInReport(t *testing.T) {
	b := &bench{T: t, checker: New(nil)}
	newPaged(b).program(pagedSD, pdPage).use(hmc.PBLE, 0)
	f := b.checker.Findings(Error)
	want := []string{"PBLE 0 is at FPM 0x201000: SD 1", "SD 1 is paged, its page descriptors are at 0x100000", "PD 1 at 0x100008 is 0x0"}
	if len(f) != 1 || f[0].Rule != "hmc-pd-invalid" {
		t.Fatalf("%v", f)
	}
	if diff := cmp.Diff(want, f[0].Walk); diff != "" {
		t.Error(diff)
	}
	var text strings.Builder
	if err := (Report{Findings: f}).Write(&text, Error); err != nil || !strings.Contains(text.String(), `
  walk:    PBLE 0 is at FPM 0x201000: SD 1
           SD 1 is paged, its page descriptors are at 0x100000
           PD 1 at 0x100008 is 0x0
`) {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// What a guest says of itself is read on somebody's terminal.
func TestReportOfAGuestThatColours(t *testing.T) {
	r := sample()
	r.Kernel = "6.1\x1b]0;title\a\x1b[2J\u009b1m"
	r.Modules = []Module{{Name: "ice", SrcVersion: "\x1b[31m"}}
	var b strings.Builder
	if err := r.Write(&b, Note); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "kernel:  6.1?]0;title??[2J?1m\n") || strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Errorf("%q", b.String())
	}
}
