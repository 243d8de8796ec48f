// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ErrBroken is what a stream's writer gets after its reader has gone.
var ErrBroken = errors.New("guest channel: the reader of the stream has gone")

// creditStep is how many consumed bytes a reader collects before it returns
// their credit: a frame per Read would double the traffic.
const creditStep = Window / 4

// Reader is the receiving end of a stream.
type Reader struct {
	mux *Mux
	key streamKey

	mu     sync.Mutex
	cond   *sync.Cond
	ring   []byte // grows to Window at most
	start  int    // first unread byte
	length int    // unread bytes
	owed   uint32 // consumed, not yet returned as credit
	err    error  // how the stream ended: io.EOF, or why not; nil while open
	closed bool
}

func newReader(m *Mux, key streamKey) *Reader {
	r := &Reader{mux: m, key: key}
	r.cond = sync.NewCond(&r.mu)
	return r
}

// deliver takes bytes from the pipe. It never blocks: the window bounds them.
func (r *Reader) deliver(p []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.err != nil {
		return nil
	}
	if r.length+int(r.owed)+len(p) > Window {
		return fmt.Errorf("%w: stream %d of command %d overran its window", ErrProtocol, r.key.stream, r.key.command)
	}
	r.grow(r.length + len(p))
	end := (r.start + r.length) % len(r.ring)
	n := copy(r.ring[end:], p)
	copy(r.ring, p[n:])
	r.length += len(p)
	r.cond.Broadcast()
	return nil
}

// grow makes room for need bytes. Small streams stay small.
func (r *Reader) grow(need int) {
	if need <= len(r.ring) && len(r.ring) > 0 {
		return
	}
	size := max(len(r.ring), 4<<10)
	for size < need {
		size *= 2
	}
	ring := make([]byte, size)
	n := copy(ring, r.ring[r.start:min(r.start+r.length, len(r.ring))])
	copy(ring[n:], r.ring[:r.length-n])
	r.ring, r.start = ring, 0
}

// end closes the stream from the writer's side; bytes already here stay readable.
func (r *Reader) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.cond.Broadcast()
}

// Read blocks until bytes arrive or the stream ends. io.EOF means that the
// writer closed it; any other error, that bytes may be missing.
func (r *Reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	for r.length == 0 && r.err == nil && !r.closed {
		r.cond.Wait()
	}
	if r.closed {
		r.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	if r.length == 0 {
		err := r.err
		r.mu.Unlock()
		return 0, err
	}
	contiguous := r.ring[r.start:min(r.start+r.length, len(r.ring))]
	n := copy(p, contiguous)
	r.start = (r.start + n) % len(r.ring)
	r.length -= n
	r.owed += uint32(n)
	var credit uint32
	if r.owed >= creditStep && r.err == nil {
		credit, r.owed = r.owed, 0
	}
	r.mu.Unlock()
	if credit > 0 {
		// A dead pipe shows up at the next Read.
		_ = r.mux.write(Frame{
			Type: TypeCredit, Stream: r.key.stream, Command: r.key.command,
			Payload: binary.LittleEndian.AppendUint32(nil, credit),
		})
	}
	return n, nil
}

// Close tells the writer that nobody reads any more.
func (r *Reader) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	ended := r.err != nil
	r.ring, r.length = nil, 0
	r.cond.Broadcast()
	r.mu.Unlock()
	r.mux.forgetReader(r)
	if ended {
		return nil
	}
	return r.mux.write(Frame{Type: TypeBroken, Stream: r.key.stream, Command: r.key.command})
}

// Writer is the sending end of a stream.
type Writer struct {
	mux *Mux
	key streamKey

	mu     sync.Mutex
	cond   *sync.Cond
	credit uint32
	err    error
}

func newWriter(m *Mux, key streamKey) *Writer {
	w := &Writer{mux: m, key: key, credit: Window}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *Writer) grant(n uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > Window || w.credit+n > Window {
		return fmt.Errorf("%w: credit %d for stream %d of command %d", ErrProtocol, n, w.key.stream, w.key.command)
	}
	w.credit += n
	w.cond.Broadcast()
	return nil
}

func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.cond.Broadcast()
}

// take waits for credit and returns how many of want bytes may be sent.
func (w *Writer) take(want int) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.credit == 0 && w.err == nil {
		w.cond.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	n := min(want, int(w.credit), MaxPayload)
	w.credit -= uint32(n)
	return n, nil
}

// Wait blocks until at least one byte may be written, so that a caller can
// leave bytes where they are until there is room for them.
func (w *Writer) Wait() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.credit == 0 && w.err == nil {
		w.cond.Wait()
	}
	return w.err
}

// Write sends p, waiting for credit as needed.
func (w *Writer) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := w.take(len(p) - sent)
		if err != nil {
			return sent, err
		}
		f := Frame{Type: TypeData, Stream: w.key.stream, Command: w.key.command, Payload: p[sent : sent+n]}
		if err := w.mux.write(f); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// Close tells the reader that nothing more will come. Writes fail afterwards.
func (w *Writer) Close() error {
	w.mu.Lock()
	ended := w.err != nil
	if !ended {
		w.err = io.ErrClosedPipe
		w.cond.Broadcast()
	}
	w.mu.Unlock()
	w.mux.forgetWriter(w)
	if ended {
		return nil
	}
	return w.mux.write(Frame{Type: TypeEOF, Stream: w.key.stream, Command: w.key.command})
}
