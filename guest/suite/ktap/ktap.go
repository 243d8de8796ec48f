// SPDX-License-Identifier: Apache-2.0

// Package ktap writes and reads the kernel's test format, KTAP version 1
// (Documentation/dev-tools/ktap.rst).
//
// The writer says each line as soon as it is known, so that a reader sees how far
// tests are. The parser is strict: it accepts what the writer may write and
// nothing else, in particular no "unknown lines", which the format would allow.
// Every KTAP is TAP, too, for whoever does not look into nested tests.
package ktap

import (
	"fmt"
	"io"
	"strings"
)

const (
	version = "KTAP version 1"
	indent  = "  " // of each level
)

// Directive qualifies a result.
type Directive string

// Directives that the writer and the parser know.
const (
	None    Directive = ""
	Skip    Directive = "SKIP"
	Timeout Directive = "TIMEOUT"
	Error   Directive = "ERROR"
)

// Result is how a test ended.
type Result struct {
	OK        bool
	Name      string // one line without #
	Directive Directive
	Text      string // why it was skipped, and the like; one line
}

// Writer writes one level of tests. Each line is one Write.
type Writer struct {
	out    *output
	indent string
	number int
}

// output keeps the first error, so that callers may look once, at the end.
type output struct {
	w   io.Writer
	err error
}

// NewWriter writes the beginning of so many tests.
func NewWriter(w io.Writer, tests int) *Writer {
	return begin(&output{w: w}, "", tests)
}

func begin(out *output, indent string, tests int) *Writer {
	w := &Writer{out: out, indent: indent}
	w.line(version)
	w.line(fmt.Sprintf("1..%d", tests))
	return w
}

// Nested begins the tests that the next result of w is made of.
func (w *Writer) Nested(tests int) *Writer { return begin(w.out, w.indent+indent, tests) }

// Diagnostic writes what is to be known about the next result. Nothing in the text
// can be taken for something else than a diagnostic.
func (w *Writer) Diagnostic(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		w.line(strings.TrimRight("# "+printable(line), " "))
	}
}

// Result writes how the next test ended.
func (w *Writer) Result(r Result) {
	w.number++
	verdict := "ok"
	if !r.OK {
		verdict = "not ok"
	}
	line := fmt.Sprintf("%s %d %s", verdict, w.number, oneLine(r.Name))
	if r.Directive != None || r.Text != "" {
		line += " #"
	}
	for _, part := range []string{string(r.Directive), oneLine(r.Text)} {
		if part != "" {
			line += " " + part
		}
	}
	w.line(line)
}

// BailOut says that nothing more comes, as TAP has it, and why.
func (w *Writer) BailOut(why string) { w.line("Bail out! " + oneLine(why)) }

// Err is the first error of writing.
func (w *Writer) Err() error { return w.out.err }

func (w *Writer) line(text string) {
	if w.out.err == nil {
		_, w.out.err = io.WriteString(w.out.w, w.indent+text+"\n")
	}
}

// oneLine keeps a text from being more than it says it is: a name or a reason.
func oneLine(s string) string {
	return printable(strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "#", "no."))
}

// printable replaces what a terminal obeys; text may be a guest's.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == '\n' || r == '\r':
			return -1
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return '?'
		}
		return r
	}, s)
}
