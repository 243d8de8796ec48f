// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// mac is the address of a station.
func mac(n int) []byte {
	return []byte{0x02, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

var (
	broadcast = bytes.Repeat([]byte{0xff}, 6)
	multicast = []byte{0x33, 0x33, 0, 0, 0, 1}
)

// frame makes one of size bytes with an experimental type and a number.
func frame(dst, src []byte, size int, number uint32) []byte {
	f := append(slices.Concat(dst, src), 0x88, 0xb5)
	f = binary.BigEndian.AppendUint32(f, number)
	for len(f) < size {
		f = append(f, byte(len(f)))
	}
	return f
}

// number reads what frame put in.
func number(f []byte) uint32 { return binary.BigEndian.Uint32(f[headerLen:]) }

// sink is a station that keeps what it gets.
type sink struct {
	mu     sync.Mutex
	grown  sync.Cond
	frames [][]byte
	clock  func() time.Duration
	at     []time.Duration
}

func newSink() *sink {
	s := &sink{}
	s.grown.L = &s.mu
	return s
}

func (s *sink) Receive(f []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames = append(s.frames, bytes.Clone(f))
	if s.clock != nil {
		s.at = append(s.at, s.clock())
	}
	s.grown.Broadcast()
}

// take returns what came since the last call.
func (s *sink) take() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frames
	s.frames, s.at = nil, nil
	return f
}

func (s *sink) numbers() (n []uint32) {
	for _, f := range s.take() {
		n = append(n, number(f))
	}
	return n
}

// wait returns n frames, once they are there.
func (s *sink) wait(t *testing.T, n int) [][]byte {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clock = nil
		s.grown.Broadcast()
	})
	defer late.Stop()
	deadline := time.Now().Add(20 * time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.frames) < n {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d frames have come", len(s.frames), n)
		}
		s.grown.Wait()
	}
	f := s.frames[:n:n]
	s.frames = s.frames[n:]
	return f
}

// events keeps what a switch emits.
type events struct{ c chan any }

func newEvents() *events { return &events{make(chan any, 1000)} }

func (e *events) emit(event any) { e.c <- event }

// next returns the next event.
func (e *events) next(t *testing.T) any {
	t.Helper()
	select {
	case event := <-e.c:
		return event
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		return nil
	}
}

// want waits for an event of type T, past others.
func want[T any](t *testing.T, e *events) T {
	t.Helper()
	for {
		if event, ok := e.next(t).(T); ok {
			return event
		}
	}
}

func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, short(got), short(want))
	}
}

func short(b []byte) string {
	if len(b) > 80 {
		return fmt.Sprintf("%x… (%d bytes)", b[:80], len(b))
	}
	return fmt.Sprintf("%x (%d bytes)", b, len(b))
}
