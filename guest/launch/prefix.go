// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxPrefixedLine bounds what waits for the end of its line.
const maxPrefixedLine = 64 << 10

// PrefixedLines writes whole lines, each with a prefix, each in one Write, so that
// the lines of several commands can share a terminal. Bytes are kept as they are;
// a line without an end is written when it is too long to wait for one, and by
// Close.
type PrefixedLines struct {
	w           io.Writer
	prefix, eol string

	mu   sync.Mutex
	line []byte // what is not written, behind its prefix
}

// NewPrefixedLines writes to w. eol ends every line: "\n", or "\r\n" for a
// terminal in raw mode.
func NewPrefixedLines(w io.Writer, prefix, eol string) *PrefixedLines {
	return &PrefixedLines{w: w, prefix: prefix, eol: eol, line: []byte(prefix)}
}

func (l *PrefixedLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(p); ; {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := max(maxPrefixedLine-len(l.line), 0); len(line) > room {
			line, rest, ended = p[:room], p[room:], true
		}
		l.line = append(l.line, line...)
		if !ended {
			return n, nil
		}
		if err := l.flush(); err != nil {
			return n - len(rest), err
		}
		p = rest
	}
}

func (l *PrefixedLines) flush() error {
	_, err := l.w.Write(append(l.line, l.eol...))
	l.line = append(l.line[:0], l.prefix...)
	return err
}

// Close writes what is left.
func (l *PrefixedLines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == len(l.prefix) {
		return nil
	}
	return l.flush()
}
