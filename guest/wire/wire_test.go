// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// pair returns two muxes that talk to each other, both running.
func pair(t *testing.T) (a, b *Mux) {
	t.Helper()
	ca, cb := net.Pipe()
	a, b = NewMux(ca), NewMux(cb)
	var wg sync.WaitGroup
	for _, m := range []*Mux{a, b} {
		wg.Go(func() { _ = m.Run(func(Frame) error { return nil }) })
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
		wg.Wait()
	})
	return a, b
}

func TestFrameRoundTrip(t *testing.T) {
	var wire []byte
	frames := []Frame{
		{Type: TypeHello, Payload: []byte(`{"version":1}`)},
		{Type: TypeData, Stream: StreamStdout, Command: 0xfffe, Payload: bytes.Repeat([]byte{0xa5}, MaxPayload)},
		{Type: TypeStart, Command: 3, Payload: bytes.Repeat([]byte{'x'}, MaxMessage)},
		{Type: TypeEOF, Stream: StreamStdin, Command: 1, Payload: []byte{}},
	}
	for _, f := range frames {
		wire = appendFrame(wire, f)
	}
	fr := frameReader{r: bytes.NewReader(wire)}
	for i, want := range frames {
		got, err := fr.next()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		// cmp.Diff takes half a minute for a megabyte under -race.
		if !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("frame %d: payload of %d bytes differs from that of %d", i, len(got.Payload), len(want.Payload))
		}
		got.Payload, want.Payload = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("frame %d: %s", i, diff)
		}
	}
	if _, err := fr.next(); err != io.EOF {
		t.Fatalf("after the last frame: %v, want io.EOF", err)
	}
}

func TestFrameRejects(t *testing.T) {
	header := func(typ byte, length uint32) []byte {
		return binary.LittleEndian.AppendUint32([]byte{typ, 0, 0, 0}, length)
	}
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"type zero", header(0, 0), ErrProtocol},
		{"type unknown", header(byte(typeEnd), 0), ErrProtocol},
		{"data too long", header(byte(TypeData), MaxPayload+1), ErrProtocol},
		{"message too long", header(byte(TypeLog), MaxMessage+1), ErrProtocol},
		{"length wraps", header(byte(TypeLog), 0xffffffff), ErrProtocol},
		{"cut in the header", header(byte(TypeLog), 4)[:5], io.ErrUnexpectedEOF},
		{"cut before the payload", header(byte(TypeLog), 4), io.ErrUnexpectedEOF},
		{"cut in the payload", append(header(byte(TypeLog), 4), 1, 2), io.ErrUnexpectedEOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fr := frameReader{r: bytes.NewReader(tc.in)}
			if _, err := fr.next(); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestStreamBytes sends much more than a window both ways with odd sizes.
func TestStreamBytes(t *testing.T) {
	a, b := pair(t)
	data := make([]byte, 3<<20+17)
	rand.New(rand.NewSource(1)).Read(data)
	var wg sync.WaitGroup
	for _, dir := range []struct {
		w *Writer
		r *Reader
	}{
		{a.OpenWriter(1, StreamStdin), b.OpenReader(1, StreamStdin)},
		{b.OpenWriter(1, StreamStdout), a.OpenReader(1, StreamStdout)},
	} {
		wg.Go(func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)%50021)
				if _, err := dir.w.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			if err := dir.w.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			got, err := io.ReadAll(dir.r)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d bytes of %d, error %v, equal %v", len(got), len(data), err, bytes.Equal(got, data))
			}
		})
	}
	wg.Wait()
}

// TestSlowReaderBlocksOnlyItsWriter: a stream nobody reads takes one window and
// no more, while another stream of the same command flows.
func TestSlowReaderBlocksOnlyItsWriter(t *testing.T) {
	a, b := pair(t)
	stuck, idle := a.OpenWriter(1, StreamStdout), b.OpenReader(1, StreamStdout)
	other, reader := a.OpenWriter(1, StreamStderr), b.OpenReader(1, StreamStderr)

	if _, err := stuck.Write(make([]byte, Window)); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := stuck.Write([]byte("!"))
		wrote <- err
	}()
	go func() {
		_, _ = other.Write(bytes.Repeat([]byte("e"), 4*Window))
		_ = other.Close()
	}()
	if got, err := io.ReadAll(reader); err != nil || len(got) != 4*Window {
		t.Fatalf("the other stream: %d bytes, %v", len(got), err)
	}
	select {
	case err := <-wrote:
		t.Fatalf("a write beyond the window returned: %v", err)
	default:
	}
	if _, err := io.CopyN(io.Discard, idle, Window); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func TestReaderGone(t *testing.T) {
	a, b := pair(t)
	w, r := a.OpenWriter(7, StreamStdout), b.OpenReader(7, StreamStdout)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 3 * Window / 1024 { // Broken arrives at latest when credit ends
		if _, err = w.Write(make([]byte, 1024)); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrBroken) {
		t.Fatalf("got %v, want ErrBroken", err)
	}
}

func TestPipeEndFailsStreams(t *testing.T) {
	ca, cb := net.Pipe()
	a := NewMux(ca)
	r := a.OpenReader(1, StreamStdout)
	w := a.OpenWriter(1, StreamStdin)
	w.credit = 0
	cb.Close()
	if err := a.Run(func(Frame) error { return nil }); err != nil {
		t.Fatalf("Run: %v, want nil at a clean end", err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read: %v, want unexpected EOF: the writer had not closed", err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("write: %v, want unexpected EOF", err)
	}
	if _, err := a.OpenReader(2, StreamStdout).Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read of a stream opened later: %v, want unexpected EOF", err)
	}
}

// TestHostilePeer: what breaks the rules ends the channel, whatever the stream's state.
func TestHostilePeer(t *testing.T) {
	data := func(n int) []byte {
		return appendFrame(nil, Frame{Type: TypeData, Stream: StreamStdout, Command: 1, Payload: make([]byte, n)})
	}
	credit := func(b ...byte) []byte {
		return appendFrame(nil, Frame{Type: TypeCredit, Stream: StreamStdin, Command: 1, Payload: b})
	}
	for _, tc := range []struct {
		name string
		in   []byte
		want error
	}{
		{"overrun", bytes.Repeat(data(MaxPayload), 9), ErrProtocol},
		{"short credit", credit(1), ErrProtocol},
		{"credit beyond the window", credit(1, 0, 0, 0), ErrProtocol},
		{"credit that wraps", credit(0, 0, 0xff, 0xff), ErrProtocol},
		{"unknown stream", appendFrame(nil, Frame{Type: TypeData, Stream: 99, Command: 1, Payload: make([]byte, 10)}), nil},
		{"unknown command", appendFrame(nil, Frame{Type: TypeBroken, Stream: StreamStdin, Command: 2}), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := NewMux(rwc{strings.NewReader(string(tc.in))})
			m.OpenReader(1, StreamStdout)
			m.OpenWriter(1, StreamStdin)
			if err := m.Run(func(Frame) error { return nil }); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

type rwc struct{ io.Reader }

func (rwc) Write(p []byte) (int, error) { return len(p), nil }
func (rwc) Close() error                { return nil }

func TestConfig(t *testing.T) {
	want := Config{
		Hostname:        "guest",
		Hosts:           []Host{{netip.MustParseAddr("192.168.77.2"), "peer"}},
		Modules:         []string{"ice", "irdma"},
		ModprobeOptions: []string{"irdma resource_profile=1"},
		Nets: []Net{{
			MAC:       "02:00:00:00:00:01",
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("fd77::1/64")},
			MTU:       9000,
		}},
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeConfig(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		`{`,
		`{"nets":[{"mac":"zz"}]}`,
		`{"nets":[{"mac":"02:00:00:00:00:00:00:01"}]}`,
		`{"nets":[{"mtu":70000}]}`,
		`{"nets":[{"addresses":[""]}]}`,
		`{"copies":[{"from":"/a"}]}`,
	} {
		if _, err := DecodeConfig([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, Frame{Type: TypeData, Stream: StreamStdout, Command: 1, Payload: []byte("hello")}))
	f.Add(appendFrame(nil, Frame{Type: TypeCredit, Stream: StreamStdin, Command: 1, Payload: []byte{0, 0, 1, 0}}))
	f.Add([]byte{byte(TypeData), 2, 1, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		m := NewMux(rwc{bytes.NewReader(in)})
		r := m.OpenReader(1, StreamStdout)
		m.OpenWriter(1, StreamStdin)
		_ = m.Run(func(f Frame) error { return nil })
		if r.length > Window || len(r.ring) > Window {
			t.Errorf("%d bytes buffered in %d", r.length, len(r.ring))
		}
	})
}
