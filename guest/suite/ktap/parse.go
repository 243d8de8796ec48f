// SPDX-License-Identifier: Apache-2.0

package ktap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Test is a result that was read, with what was said before it.
type Test struct {
	Result
	Diagnostics []string // without "# "
	Tests       []Test   // nested
}

// ErrBailOut is the error of tests that were given up.
var ErrBailOut = errors.New("bail out")

// Parse reads a whole output. It refuses: a missing version or plan, numbers that
// do not count up from one to the plan's, names that are missing or occur twice at
// a level, a test that is ok although a nested one is not, a SKIP or ERROR that
// contradicts its verdict, wrong indentation, and any line of no known kind.
func Parse(r io.Reader) ([]Test, error) {
	p := &parser{lines: bufio.NewScanner(r)}
	p.lines.Buffer(nil, 1<<20)
	p.next()
	tests, err := p.level("")
	if err == nil && !p.ended {
		err = p.wrong("the plan of %d is fulfilled", len(tests))
	}
	return tests, err
}

// maxDepth bounds what nests in each other.
const maxDepth = 8

type parser struct {
	lines  *bufio.Scanner
	number int
	line   string
	ended  bool
}

func (p *parser) next() {
	p.number++
	if p.ended = !p.lines.Scan(); !p.ended {
		p.line = p.lines.Text()
	}
}

func (p *parser) wrong(format string, args ...any) error {
	if p.ended {
		if err := p.lines.Err(); err != nil {
			return fmt.Errorf("line %d: %w", p.number, err)
		}
		return fmt.Errorf("line %d: end of the output: %s", p.number, fmt.Sprintf(format, args...))
	}
	return fmt.Errorf("line %d: %q: %s", p.number, p.line, fmt.Sprintf(format, args...))
}

var (
	plan   = regexp.MustCompile(`^1\.\.(0|[1-9][0-9]{0,8})$`)
	result = regexp.MustCompile(`^(ok|not ok) ([1-9][0-9]{0,8}) ([^# ](?:[^#]*[^# ])?)(?: #(?: (SKIP|TIMEOUT|ERROR))?(?: ([^# ](?:.*[^ ])?))?)?$`)
)

// level reads the tests of one level, and what is nested in them.
func (p *parser) level(in string) ([]Test, error) {
	if p.ended || p.line != in+version {
		return nil, p.wrong("want %q", in+version)
	}
	p.next()
	m := plan.FindStringSubmatch(strings.TrimPrefix(p.line, in))
	if p.ended || !strings.HasPrefix(p.line, in) || m == nil {
		return nil, p.wrong("want a plan")
	}
	planned, _ := strconv.Atoi(m[1])
	p.next()
	var tests []Test
	seen := map[string]bool{}
	for len(tests) < planned {
		t, err := p.test(in, len(tests)+1)
		if err != nil {
			return tests, err
		}
		if seen[t.Name] {
			return tests, fmt.Errorf("line %d: a second test %q", p.number-1, t.Name)
		}
		seen[t.Name] = true
		tests = append(tests, t)
	}
	return tests, nil
}

// test reads one result with all that belongs to it.
func (p *parser) test(in string, number int) (t Test, err error) {
	for {
		if why, ok := strings.CutPrefix(p.line, "Bail out!"); ok && !p.ended {
			return t, fmt.Errorf("%w:%s", ErrBailOut, why) // of all levels
		}
		rest, ok := strings.CutPrefix(p.line, in)
		switch {
		case p.ended || !ok:
			return t, p.wrong("want result %d", number)
		case rest == "#" || strings.HasPrefix(rest, "# "):
			t.Diagnostics = append(t.Diagnostics, strings.TrimPrefix(strings.TrimPrefix(rest, "#"), " "))
			p.next()
			continue
		case strings.HasPrefix(rest, indent):
			if t.Tests != nil || len(in) >= maxDepth*len(indent) {
				return t, p.wrong("nested tests without a result before")
			}
			if t.Tests, err = p.level(in + indent); err != nil {
				return t, err
			}
			continue
		}
		m := result.FindStringSubmatch(rest)
		if m == nil {
			return t, p.wrong("of no known kind")
		}
		if m[2] != strconv.Itoa(number) {
			return t, p.wrong("want result %d", number)
		}
		t.Result = Result{OK: m[1] == "ok", Name: m[3], Directive: Directive(m[4]), Text: m[5]}
		if err := p.consistent(t); err != nil {
			return t, err
		}
		p.next()
		return t, nil
	}
}

func (p *parser) consistent(t Test) error {
	switch {
	case t.Directive == Skip && !t.OK, (t.Directive == Timeout || t.Directive == Error) && t.OK:
		return p.wrong("%s contradicts the verdict", t.Directive)
	case !t.OK:
		return nil
	}
	for _, n := range t.Tests {
		if !n.OK {
			return p.wrong("ok, although %q is not", n.Name)
		}
	}
	return nil
}
