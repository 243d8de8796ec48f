// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"io"
	"sync"
)

// meter shows on a terminal how far one step has come.
type meter struct {
	mu    sync.Mutex
	w     io.Writer
	what  string
	total int64 // bytes; 0 if unknown
	shown string
	ended bool
}

// meter returns nil, which no step shows anything on, unless there is a terminal.
func (c *Cache) meter(what string, total int64) *meter {
	if c.progress == nil {
		return nil
	}
	return &meter{w: c.progress, what: what, total: total}
}

func (m *meter) show(percent float64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	line := fmt.Sprintf("%s: %3.0f%%", m.what, percent)
	if m.total > 0 {
		line += fmt.Sprintf(" of %.1f MB", float64(m.total)/1e6)
	}
	if line != m.shown {
		m.shown = line
		fmt.Fprintf(m.w, "\r\x1b[K%s", line)
	}
}

// done ends the line. Nothing is shown after it.
func (m *meter) done(ok bool) {
	if m == nil {
		return
	}
	if ok {
		m.show(100)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended && m.shown != "" {
		fmt.Fprintln(m.w)
	}
	m.ended = true
}
