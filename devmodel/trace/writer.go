// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Line is one line of an events file.
type Line struct {
	Time   time.Time `json:"time"`
	Device string    `json:"device"`
	// Type is the event's, as "hmc.StalePD"; "lost" for events that there was
	// no room for: Fields then has their number, Count.
	Type   string          `json:"type"`
	Fields json.RawMessage `json:"fields"`
	Text   string          `json:"text"` // in kernel names, for people
}

const (
	writerRoom     = 1 << 14         // events that wait; some 200 bytes each
	writerPatience = 3 * time.Second // for the reader, at the end
)

// Writer writes events as JSON, one object a line (see Line). A sink never waits
// for it: events that the reader is too slow for are lost and counted. Encoding
// is the writer's own goroutine's.
type Writer struct {
	w      io.Writer
	failed func(error)
	events chan entry
	lost   atomic.Uint64
	end    chan struct{} // closed by Close
	done   chan struct{} // closed when nothing is written any more
	close  func()
}

type entry struct {
	at     time.Time
	device string
	event  any
}

// NewWriter makes a writer that keeps what comes until Start.
func NewWriter() *Writer {
	t := &Writer{events: make(chan entry, writerRoom), end: make(chan struct{}), done: make(chan struct{})}
	t.close = sync.OnceFunc(func() { close(t.end) })
	return t
}

// Start begins to write to w; it is called once at most. failed is called once,
// from a goroutine of the writer, when w takes no more; later events are dropped.
// w remains the caller's to close.
func (t *Writer) Start(w io.Writer, failed func(error)) {
	t.w, t.failed = w, failed
	go t.run()
}

// Sink takes the events of one device.
func (t *Writer) Sink(device string) func(event any) {
	return func(event any) {
		select {
		case t.events <- entry{time.Now(), device, event}:
		default:
			t.lost.Add(1)
		}
	}
}

func (t *Writer) run() {
	defer close(t.done)
	out := bufio.NewWriterSize(&patient{w: t.w, end: t.end}, 1<<16)
	if err := t.writeAll(out); err != nil {
		t.failed(fmt.Errorf("events: %w", err))
		for { // nobody waits for these
			select {
			case <-t.events:
			case <-t.end:
				return
			}
		}
	}
}

// writeAll writes until Close, and flushes whenever nothing waits.
func (t *Writer) writeAll(out *bufio.Writer) error {
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	for {
		select {
		case e := <-t.events:
			if err := t.write(encode, e); err != nil {
				return err
			}
			continue
		default:
		}
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case e := <-t.events:
			if err := t.write(encode, e); err != nil {
				return err
			}
		case <-t.end:
			if len(t.events) == 0 {
				return nil
			}
		}
	}
}

func (t *Writer) write(encode *json.Encoder, e entry) error {
	line := Line{e.at, e.device, Type(e.event), Fields(e.event), fmt.Sprint(e.event)}
	if err := encode.Encode(line); err != nil {
		return err
	}
	n := t.lost.Swap(0)
	if n == 0 {
		return nil
	}
	return encode.Encode(Line{Time: time.Now(), Type: "lost", Fields: fmt.Appendf(nil, `{"Count":%d}`, n),
		Text: fmt.Sprintf("%d events lost: the reader is too slow", n)})
}

// Close writes what waits, and gives a reader that has stopped a few seconds for
// it. Events that come later are dropped. Start does not run beside it.
func (t *Writer) Close() error {
	if t.w == nil {
		return nil
	}
	t.close()
	timer := time.NewTimer(2 * writerPatience)
	defer timer.Stop()
	select {
	case <-t.done:
		return nil
	case <-timer.C: // a writer without deadlines
		return errors.New("events: the reader takes no more")
	}
}

// patient writes to w for as long as it takes, but once end is closed no longer
// than writerPatience without progress. It is for one goroutine, as deadlines of
// w may be.
type patient struct {
	w   io.Writer
	end <-chan struct{}
}

// piece is what a pipe with room takes without waiting further (PIPE_BUF).
const piece = 4096

func (p *patient) Write(b []byte) (written int, err error) {
	d, ok := p.w.(interface{ SetWriteDeadline(time.Time) error })
	for written < len(b) {
		next := b[written:]
		if ok && d.SetWriteDeadline(time.Now().Add(writerPatience)) == nil {
			next = next[:min(len(next), piece)]
		}
		n, err := p.w.Write(next)
		written += n
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return written, err
		case n == 0 && p.ending():
			return written, fmt.Errorf("the reader takes no more: %w", err)
		}
	}
	return written, nil
}

func (p *patient) ending() bool {
	select {
	case <-p.end:
		return true
	default:
		return false
	}
}
