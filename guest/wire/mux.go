// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Mux carries messages and streams over one pipe. Its methods may be called
// from any goroutine; [Mux.Run] must be running for streams to make progress.
type Mux struct {
	rw io.ReadWriteCloser

	writeMu sync.Mutex
	out     []byte // scratch for one frame, guarded by writeMu

	mu      sync.Mutex
	readers map[streamKey]*Reader
	writers map[streamKey]*Writer
	err     error // why the pipe ended, once it has
}

type streamKey struct {
	command uint16
	stream  uint8
}

// NewMux returns a Mux over rw, which it owns from then on.
func NewMux(rw io.ReadWriteCloser) *Mux {
	return &Mux{
		rw:      rw,
		out:     make([]byte, 0, headerSize+MaxPayload),
		readers: make(map[streamKey]*Reader),
		writers: make(map[streamKey]*Writer),
	}
}

// Run reads frames until the pipe ends and hands those that are not part of a
// stream to handle, which must neither block nor keep the payload. It returns
// nil at a clean end of the pipe. When it returns, every stream has failed
// with the same error.
func (m *Mux) Run(handle func(Frame) error) error {
	err := m.run(handle)
	m.fail(err)
	return err
}

func (m *Mux) run(handle func(Frame) error) error {
	frames := frameReader{r: bufio.NewReaderSize(m.rw, 64<<10)}
	for {
		f, err := frames.next()
		if err == io.EOF {
			return nil
		}
		if errors.Is(err, ErrProtocol) {
			return err
		}
		if err != nil {
			return fmt.Errorf("guest channel: read: %w", err)
		}
		switch f.Type {
		case TypeData, TypeEOF, TypeCredit, TypeBroken:
			err = m.stream(f)
		default:
			err = handle(f)
		}
		if err != nil {
			return err
		}
	}
}

// stream delivers a frame to its stream. Frames for streams that are not (or
// no longer) open are ignored.
func (m *Mux) stream(f Frame) error {
	key := streamKey{f.Command, f.Stream}
	m.mu.Lock()
	r, w := m.readers[key], m.writers[key]
	m.mu.Unlock()
	switch f.Type {
	case TypeData:
		if r != nil {
			return r.deliver(f.Payload)
		}
	case TypeEOF:
		if r != nil {
			r.end(io.EOF)
		}
	case TypeCredit:
		if len(f.Payload) != 4 {
			return fmt.Errorf("%w: credit of %d bytes", ErrProtocol, len(f.Payload))
		}
		if w != nil {
			return w.grant(binary.LittleEndian.Uint32(f.Payload))
		}
	case TypeBroken:
		if w != nil {
			w.fail(ErrBroken)
		}
	}
	return nil
}

// fail ends every stream; err nil stands for a clean end of the pipe.
func (m *Mux) fail(err error) {
	if err == nil {
		err = fmt.Errorf("guest channel: %w", io.ErrUnexpectedEOF)
	}
	m.mu.Lock()
	m.err = err
	readers, writers := m.readers, m.writers
	m.readers, m.writers = nil, nil
	m.mu.Unlock()
	for _, r := range readers {
		r.end(err)
	}
	for _, w := range writers {
		w.fail(err)
	}
}

// Close closes the pipe, which ends Run.
func (m *Mux) Close() error { return m.rw.Close() }

// Send sends one message; v is its payload, nil for none.
func (m *Mux) Send(t Type, command uint16, v any) error {
	var payload []byte
	if v != nil {
		var err error
		if payload, err = json.Marshal(v); err != nil {
			return fmt.Errorf("guest channel: message type %d: %w", t, err)
		}
		if len(payload) > MaxMessage {
			return fmt.Errorf("guest channel: message type %d: %d bytes are too long (at most %d)", t, len(payload), MaxMessage)
		}
	}
	return m.write(Frame{Type: t, Command: command, Payload: payload})
}

func (m *Mux) write(f Frame) error {
	m.writeMu.Lock()
	defer m.writeMu.Unlock()
	m.out = appendFrame(m.out[:0], f)
	if _, err := m.rw.Write(m.out); err != nil {
		return fmt.Errorf("guest channel: write: %w", err)
	}
	return nil
}

// OpenReader opens the receiving end of a stream. It must happen before the
// other side can send: data for a stream that is not open is dropped.
func (m *Mux) OpenReader(command uint16, stream uint8) *Reader {
	r := newReader(m, streamKey{command, stream})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readers == nil {
		r.err = m.err
		return r
	}
	m.readers[r.key] = r
	return r
}

// OpenWriter opens the sending end of a stream, with a full window of credit.
func (m *Mux) OpenWriter(command uint16, stream uint8) *Writer {
	w := newWriter(m, streamKey{command, stream})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writers == nil {
		w.err = m.err
		return w
	}
	m.writers[w.key] = w
	return w
}

func (m *Mux) forgetReader(r *Reader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readers[r.key] == r {
		delete(m.readers, r.key)
	}
}

func (m *Mux) forgetWriter(w *Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writers[w.key] == w {
		delete(m.writers, w.key)
	}
}
