// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LogWriter is where the diagnostics of devices go on their way to w: a device
// says things with its lock held and a guest waiting, so a reader that stalls,
// such as a pager or a stopped terminal, must not stall the device, let alone
// all the others that write to the same place. What there is no room for is lost
// and counted.
type LogWriter struct {
	lines chan []byte
	lost  atomic.Uint64
	end   chan struct{} // closed by Close
	done  chan struct{} // closed when nothing is written any more
	close func()
}

const (
	logLines = 4096        // that wait; findings are as many, for each client
	logFlush = time.Second // for the last ones, at the end
)

// NewLogWriter begins to write to w, one call for each Write. After lines that
// were lost report is called with their number, between two calls to w.
func NewLogWriter(w io.Writer, report func(lost uint64)) *LogWriter {
	l := &LogWriter{lines: make(chan []byte, logLines), end: make(chan struct{}), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.end) })
	go l.run(w, report)
	return l
}

// Write never blocks and never fails.
func (l *LogWriter) Write(p []byte) (int, error) {
	select {
	case l.lines <- slices.Clone(p):
	default:
		l.lost.Add(1)
	}
	return len(p), nil
}

func (l *LogWriter) run(w io.Writer, report func(lost uint64)) {
	defer close(l.done)
	write := func(line []byte) {
		_, _ = w.Write(line) // nobody is left to be told
		if n := l.lost.Swap(0); n > 0 {
			report(n)
		}
	}
	for {
		select {
		case line := <-l.lines:
			write(line)
			continue
		case <-l.end:
		}
		select {
		case line := <-l.lines:
			write(line)
		default:
			return
		}
	}
}

// Close writes what waits, for a moment at most. Later writes are lost.
func (l *LogWriter) Close() {
	l.close()
	select {
	case <-l.done:
	case <-time.After(logFlush):
	}
}
