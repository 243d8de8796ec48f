// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

const (
	tailLines  = 25
	maxLineLen = 1 << 10 // of a line kept for the tail; a guest may print no newline ever
)

// console takes what the guest prints on its serial line: keeps the last lines,
// passes everything on, and watches for life and for a panic.
type console struct {
	sinks []io.Writer // a sink that fails is dropped

	activity chan struct{} // one pending value: something was printed
	panicked chan struct{} // closed at the first line of a panic

	last tail

	mu        sync.Mutex
	panicLine string
}

func newConsole(sinks ...io.Writer) *console {
	c := &console{
		sinks:    sinks,
		activity: make(chan struct{}, 1),
		panicked: make(chan struct{}),
	}
	c.last.ended = c.lookForPanic
	return c
}

// copyFrom takes everything from r until it ends.
func (c *console) copyFrom(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			c.take(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (c *console) take(p []byte) {
	select {
	case c.activity <- struct{}{}:
	default:
	}
	working := c.sinks[:0]
	for _, s := range c.sinks {
		if _, err := s.Write(p); err == nil {
			working = append(working, s)
		}
	}
	c.sinks = working

	_, _ = c.last.Write(p)
}

// panicMark is how every panic begins (kernel/panic.c:panic).
const panicMark = "Kernel panic - not syncing"

func (c *console) lookForPanic(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := strings.Index(line, panicMark); i >= 0 && c.panicLine == "" {
		c.panicLine = line[i:]
		close(c.panicked)
	}
}

// panicText is the first line of a panic, "" if there was none.
func (c *console) panicText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panicLine
}

// tail keeps the last lines of what is written to it.
type tail struct {
	ended func(line string) // is told each line; may be nil

	mu      sync.Mutex
	lines   []string
	partial []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(p); ; {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := maxLineLen - len(t.partial); len(line) > room {
			line = line[:room]
		}
		t.partial = append(t.partial, line...)
		if !ended {
			return n, nil
		}
		t.end()
		p = rest
	}
}

func (t *tail) end() {
	line := printable(t.partial)
	t.partial = t.partial[:0]
	if len(t.lines) == tailLines {
		copy(t.lines, t.lines[1:])
		t.lines = t.lines[:tailLines-1]
	}
	t.lines = append(t.lines, line)
	if t.ended != nil {
		t.ended(line)
	}
}

// get returns the last lines, including one that has not ended.
func (t *tail) get() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := append([]string(nil), t.lines...)
	if len(t.partial) > 0 {
		lines = append(lines, printable(t.partial))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// printable drops what could disturb a terminal (the firmware clears the screen).
func printable(line []byte) string {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case ch == 0x1b && i+1 < len(line) && line[i+1] == '[': // escape sequence
			for i += 2; i < len(line) && (line[i] < 0x40 || line[i] > 0x7e); i++ {
			}
		case ch == 0x1b: // a shorter one
			i++
		case ch == '\t' || ch >= 0x20 && ch != 0x7f:
			b.WriteByte(ch)
		}
	}
	return strings.ToValidUTF8(b.String(), "?")
}
