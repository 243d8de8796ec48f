// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/vrnic/vrnic/guest/suite/ktap"
)

// The elements of a JUnit report that every reader of such reports knows.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Name    string       `xml:"name,attr"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"` // seconds
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitMessage `xml:"skipped"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes what became of the cases as a JUnit report. Cases without an
// outcome, which were not reached, are errors; why says for what reason.
func WriteJUnit(w io.Writer, cases []*Case, outcomes []Outcome, why string) error {
	done := map[*Case]Outcome{}
	for _, o := range outcomes {
		done[o.Case] = o
	}
	all := junitSuites{Name: "vrnic"}
	var took time.Duration
	for _, c := range cases {
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != c.Group() {
			all.Suites, took = append(all.Suites, junitSuite{Name: c.Group()}), 0
		}
		s := &all.Suites[len(all.Suites)-1]
		out, ok := done[c]
		x := junitCase{Class: "vrnic." + c.Group(), Name: c.Short(), Time: seconds(out.Took), Output: clean(out.Findings)}
		switch {
		case !ok:
			s.Errors++
			x.Error = &junitMessage{Message: clean(why)}
		case out.Directive == ktap.Skip:
			s.Skipped++
			x.Skipped = &junitMessage{Message: clean(out.Text)}
		case !out.OK:
			s.Failures++
			x.Failure = &junitMessage{Message: clean(out.Why), Text: clean(out.Details)}
		}
		took += out.Took
		s.Tests, s.Time, s.Cases = s.Tests+1, seconds(took), append(s.Cases, x)
	}
	b, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("JUnit report: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s%s\n", xml.Header, b); err != nil {
		return fmt.Errorf("JUnit report: %w", err)
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// clean leaves out what XML has no way to say.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == utf8.RuneError || r == 0xfffe || r == 0xffff {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
