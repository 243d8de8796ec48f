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

	mu        sync.Mutex
	lines     []string
	partial   []byte
	panicLine string
}

func newConsole(sinks ...io.Writer) *console {
	return &console{
		sinks:    sinks,
		activity: make(chan struct{}, 1),
		panicked: make(chan struct{}),
	}
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

	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if room := maxLineLen - len(c.partial); len(line) > room {
			line = line[:room]
		}
		c.partial = append(c.partial, line...)
		if ended {
			c.endLine()
		}
		p = rest
	}
}

// panicMark is how every panic begins (kernel/panic.c:panic).
const panicMark = "Kernel panic - not syncing"

func (c *console) endLine() {
	line := printable(c.partial)
	c.partial = c.partial[:0]
	if len(c.lines) == tailLines {
		copy(c.lines, c.lines[1:])
		c.lines = c.lines[:tailLines-1]
	}
	c.lines = append(c.lines, line)
	if i := strings.Index(line, panicMark); i >= 0 && c.panicLine == "" {
		c.panicLine = line[i:]
		close(c.panicked)
	}
}

// tail returns the last lines, including one that has not ended.
func (c *console) tail() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := append([]string(nil), c.lines...)
	if len(c.partial) > 0 {
		lines = append(lines, printable(c.partial))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// panicText is the first line of a panic, "" if there was none.
func (c *console) panicText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.panicLine
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
