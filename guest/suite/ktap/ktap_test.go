// SPDX-License-Identifier: Apache-2.0

package ktap

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample writes one of everything.
func sample(w io.Writer) error {
	top := NewWriter(w, 3)
	n := top.Nested(2)
	n.Result(Result{OK: true, Name: "one"})
	n.Diagnostic("seen: ok 1\n\nnot ok 2 \x1b[1m#\ttoo\r\n")
	n.Result(Result{Name: "two", Directive: Timeout, Text: "after 3 s"})
	top.Result(Result{Name: "first group"})
	n = top.Nested(1)
	n.Result(Result{OK: true, Name: "three #1", Directive: Skip, Text: "needs two\nguests"})
	top.Result(Result{OK: true, Name: "second", Text: "rcode=0"})
	top.Diagnostic("at the end")
	top.Result(Result{OK: true, Name: "third"})
	return top.Err()
}

const sampleText = `KTAP version 1
1..3
  KTAP version 1
  1..2
  ok 1 one
  # seen: ok 1
  #
  # not ok 2 ?[1m# too
  not ok 2 two # TIMEOUT after 3 s
not ok 1 first group
  KTAP version 1
  1..1
  ok 1 three no.1 # SKIP needs two guests
ok 2 second # rcode=0
# at the end
ok 3 third
`

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	if err := sample(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sampleText, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestParse(t *testing.T) {
	got, err := Parse(strings.NewReader(sampleText))
	if err != nil {
		t.Fatal(err)
	}
	want := []Test{
		{Result: Result{Name: "first group"}, Tests: []Test{
			{Result: Result{OK: true, Name: "one"}},
			{Result: Result{Name: "two", Directive: Timeout, Text: "after 3 s"}, Diagnostics: []string{"seen: ok 1", "", "not ok 2 ?[1m# too"}},
		}},
		{Result: Result{OK: true, Name: "second", Text: "rcode=0"}, Tests: []Test{
			{Result: Result{OK: true, Name: "three no.1", Directive: Skip, Text: "needs two guests"}},
		}},
		{Result: Result{OK: true, Name: "third"}, Diagnostics: []string{"at the end"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, err string }{
		"empty":             {"", "want \"KTAP version 1\""},
		"other version":     {"TAP version 13\n1..0\n", "want \"KTAP version 1\""},
		"no plan":           {"KTAP version 1\nok 1 a\n", "want a plan"},
		"plan from two":     {"KTAP version 1\n2..3\n", "want a plan"},
		"too few":           {"KTAP version 1\n1..2\nok 1 a\n", "want result 2"},
		"too many":          {"KTAP version 1\n1..1\nok 1 a\nok 2 b\n", "the plan of 1 is fulfilled"},
		"wrong number":      {"KTAP version 1\n1..2\nok 1 a\nok 3 b\n", "want result 2"},
		"no number":         {"KTAP version 1\n1..1\nok a\n", "of no known kind"},
		"no name":           {"KTAP version 1\n1..1\nok 1\n", "of no known kind"},
		"twice":             {"KTAP version 1\n1..2\nok 1 a\nok 2 a\n", `a second test "a"`},
		"unknown line":      {"KTAP version 1\n1..1\nhello\nok 1 a\n", "of no known kind"},
		"unknown directive": {"KTAP version 1\n1..1\nok 1 a #SKIP x\n", "of no known kind"},
		"one space":         {"KTAP version 1\n1..1\n KTAP version 1\n", "of no known kind"},
		"nested no version": {"KTAP version 1\n1..1\n  ok 1 b\nok 1 a\n", "want \"  KTAP version 1\""},
		"nested too few":    {"KTAP version 1\n1..1\n  KTAP version 1\n  1..1\nok 1 a\n", "want result 1"},
		"nested twice":      {"KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n  ok 1 b\n  KTAP version 1\n  1..0\nok 1 a\n", "without a result"},
		"nested failed":     {"KTAP version 1\n1..1\n  KTAP version 1\n  1..1\n  not ok 1 b\nok 1 a\n", `ok, although "b" is not`},
		"skip not ok":       {"KTAP version 1\n1..1\nnot ok 1 a # SKIP b\n", "contradicts"},
		"timeout ok":        {"KTAP version 1\n1..1\nok 1 a # TIMEOUT\n", "contradicts"},
		"end":               {"KTAP version 1\n1..1\n# a\n", "end of the output"},
		"bail out":          {"KTAP version 1\n1..1\nBail out! gone\n", "bail out: gone"},
		"bail out of two":   {"KTAP version 1\n1..1\n  KTAP version 1\n  1..1\nBail out! gone\n", "bail out: gone"},
		"deep":              {strings.Repeat("KTAP version 1\n1..1\n", 1) + nest(20), "nested tests"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
			if strings.HasPrefix(name, "bail out") != errors.Is(err, ErrBailOut) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// nest is the beginning of tests in tests.
func nest(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		in := strings.Repeat(indent, i)
		b.WriteString(in + "KTAP version 1\n" + in + "1..1\n")
	}
	return b.String()
}

type failing struct{ writes int }

func (f *failing) Write(p []byte) (int, error) {
	f.writes++
	return 0, io.ErrClosedPipe
}

func TestWriterKeepsTheFirstError(t *testing.T) {
	var f failing
	if err := sample(&f); !errors.Is(err, io.ErrClosedPipe) || f.writes != 1 {
		t.Errorf("error %v after %d writes", err, f.writes)
	}
}

// TestPerl holds the writer's output, each level of it, against perl's TAP parser.
func TestPerl(t *testing.T) {
	if exec.Command("perl", "-MTAP::Parser", "-e1").Run() != nil {
		t.Skip("no perl with TAP::Parser here: it belongs to perl-modules of every Debian, but not to perl-base")
	}
	var b bytes.Buffer
	if err := sample(&b); err != nil {
		t.Fatal(err)
	}
	inner := regexp.MustCompile(`(?m)^  (.*\n)`)
	var first strings.Builder
	for _, m := range inner.FindAllStringSubmatch(b.String(), -1)[:7] {
		first.WriteString(m[1])
	}
	for _, c := range []struct{ text, want string }{
		{b.String(), "planned 3 run 3 passed 2 failed 1 skipped 0 errors 0"},
		{first.String(), "planned 2 run 2 passed 1 failed 1 skipped 0 errors 0"},
		{"KTAP version 1\n1..1\nok 1 three # SKIP x\n", "planned 1 run 1 passed 1 failed 0 skipped 1 errors 0"},
		{"KTAP version 1\n1..2\nok 1 three\n", "planned 2 run 1 passed 1 failed 0 skipped 0 errors 1"},
	} {
		cmd := exec.Command("perl", "-MTAP::Parser", "-e", `local $/; my $p = TAP::Parser->new({tap => <STDIN>}); $p->run;
			printf "planned %d run %d passed %d failed %d skipped %d errors %d", $p->tests_planned, $p->tests_run,
				scalar $p->passed, scalar $p->failed, scalar $p->skipped, scalar $p->parse_errors`)
		cmd.Stdin = strings.NewReader(c.text)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("perl says %q (%v), want %q, of\n%s", out, err, c.want, c.text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sampleText)
	f.Add("KTAP version 1\n1..1\nnot ok 1 a # ERROR b\n")
	f.Fuzz(func(t *testing.T, in string) {
		tests, err := Parse(strings.NewReader(in))
		if err != nil {
			return
		}
		// What was accepted survives being written.
		var b bytes.Buffer
		rewrite(NewWriter(&b, len(tests)), tests)
		again, err := Parse(&b)
		if err != nil {
			t.Fatalf("%v\n%q", err, b.String())
		}
		if len(again) != len(tests) {
			t.Errorf("%d tests, then %d", len(tests), len(again))
		}
	})
}

func rewrite(w *Writer, tests []Test) {
	for i, x := range tests {
		if x.Tests != nil {
			rewrite(w.Nested(len(x.Tests)), x.Tests)
		}
		for _, d := range x.Diagnostics {
			w.Diagnostic(d)
		}
		x.Name = "t" + strings.Repeat("i", i)
		w.Result(x.Result)
	}
}
