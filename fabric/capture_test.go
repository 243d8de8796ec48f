// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// captured is a frame as a capture has it.
type captured struct {
	Port  string
	Tx    bool
	At    time.Time
	Frame []byte
}

// readBack reads n frames, or all with n < 0, with gopacket.
func readBack(t *testing.T, r io.Reader, n int) (frames []captured) {
	t.Helper()
	ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for n < 0 || len(frames) < n {
		data, ci, opts, err := ng.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) && n < 0 {
			return frames
		} else if err != nil {
			t.Fatal(err)
		}
		port, err := ng.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "time resolution", port.TimestampResolution, 9)
		check(t, "link type", port.LinkType, 1)
		check(t, "length", ci.Length, len(data))
		if opts.Flags == nil || opts.Flags.Direction != inbound && opts.Flags.Direction != outbound {
			t.Fatalf("frame %d has no direction", len(frames))
		}
		frames = append(frames, captured{port.Name, opts.Flags.Direction == outbound, ci.Timestamp.UTC(), data})
	}
	return frames
}

func TestCapture(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file)
	epoch := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.SetEpoch(epoch)
	clock := &engine.ManualClock{}
	drop := Impairment{Loss: 1, Port: "lossy", Dir: Both}
	s := NewSwitch(Options{Clock: clock, Capture: c, Impair: []Impairment{drop}})
	defer s.Close()
	a, b := s.Attach("a", newSink()), s.Attach("b", newSink())
	lossy := s.Attach("lossy", newSink())

	var want []captured
	odd := frame(mac(1), mac(0), 61, 1)
	clock.Advance(1234567891 * time.Nanosecond)
	a.Send(odd)
	at := epoch.Add(1234567891)
	want = append(want, captured{"a", true, at, odd}, captured{"b", false, at, odd})

	short := frame(mac(0), mac(1), 40, 2)
	clock.Advance(1)
	b.Send(short[:40])
	padded := append(short[:40:40], make([]byte, 20)...)
	want = append(want, captured{"b", true, at.Add(1), padded}, captured{"a", false, at.Add(1), padded})

	lost := frame(mac(1), mac(2), 60, 3) // is seen where it was sent
	lossy.Send(lost)
	want = append(want, captured{"lossy", true, at.Add(1), lost})

	late := s.Attach("late", newSink()) // its interface block comes in between
	big := frame(mac(1), mac(3), MaxFrame, 4)
	late.Send(big)
	want = append(want, captured{"late", true, at.Add(1), big}, captured{"b", false, at.Add(1), big})

	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Send(odd) // after the end
	got := readBack(t, &file, -1)
	check(t, "frames read back", len(got), len(want))
	for i := range min(len(got), len(want)) {
		same(t, "frame", got[i].Frame, want[i].Frame)
		got[i].Frame, want[i].Frame = nil, nil
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	check(t, "frames", c.Frames(), uint64(len(want)))
}

// TestCaptureCounts: under concurrent senders the file has what the counters
// of the ports say, and times do not go back.
func TestCaptureCounts(t *testing.T) {
	var file bytes.Buffer
	c := NewCapture(&file)
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	var all sync.WaitGroup
	for i := range 3 {
		p := s.Attach(fmt.Sprint("nic", i), newSink())
		all.Go(func() {
			for j := range 1000 {
				p.Send(frame(mac(j%3), mac(i), 60+j, uint32(j)))
			}
		})
	}
	all.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	type counts struct{ TxFrames, TxBytes, RxFrames, RxBytes uint64 }
	got, want := map[string]counts{}, map[string]counts{}
	var last time.Time
	for _, f := range readBack(t, &file, -1) {
		n := got[f.Port]
		if f.Tx {
			n.TxFrames++
			n.TxBytes += uint64(len(f.Frame))
		} else {
			n.RxFrames++
			n.RxBytes += uint64(len(f.Frame))
		}
		got[f.Port] = n
		if f.At.Before(last) {
			t.Fatalf("%v comes after %v", f.At, last)
		}
		last = f.At
		if err := gopacket.NewPacket(f.Frame, gopacket.DecodePayload, gopacket.Default).ErrorLayer(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range s.Ports() {
		n := p.Stats()
		want[p.Name()] = counts{n.TxFrames, n.TxBytes, n.RxFrames, n.RxBytes}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCaptureLive: a frame reaches the reader without anything after it, and
// a reader that comes late has missed nothing.
func TestCaptureLive(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	c := NewCapture(w)
	defer c.Close(t.Context())
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	p := s.Attach("a", newSink())
	p.Send(frame(mac(1), mac(0), 60, 77))
	// Interface and frame, read one block at a time.
	if got := readBack(t, r, 1); number(got[0].Frame) != 77 {
		t.Errorf("got frame %d", number(got[0].Frame))
	}

	const n = 3000 // above what pipe and buffer hold
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			p.Send(frame(mac(1), mac(0), 1514, uint32(i)))
		}
	}()
	block := make([]byte, 32+1516+12)
	for i := range n {
		if _, err := io.ReadFull(r, block); err != nil {
			t.Fatal(err)
		}
		if m := number(block[28:]); m != uint32(i) {
			t.Fatalf("frame %d is %d", i, m)
		}
	}
	<-sent
}

// TestCaptureStalled: Close wakes the senders that wait for a reader who never
// comes, and gives up in its own time.
func TestCaptureStalled(t *testing.T) {
	r, w := io.Pipe()
	c := NewCapture(w)
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	p := s.Attach("a", newSink())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range 3000 {
			p.Send(frame(mac(1), mac(0), 1514, uint32(i)))
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	<-sent
	r.Close()
}

// TestCaptureLate: what comes before the writer is not lost; without one,
// Close has nothing to wait for and wakes who waits.
func TestCaptureLate(t *testing.T) {
	c := NewLateCapture()
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	p := s.Attach("a", newSink())
	early := frame(mac(1), mac(0), 60, 1)
	p.Send(early)
	var file bytes.Buffer
	c.Start(&file)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, "frame", readBack(t, &file, -1)[0].Frame, early)

	never := NewLateCapture()
	full := NewSwitch(Options{Capture: never})
	defer full.Close()
	q := full.Attach("a", newSink())
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range 3000 {
			q.Send(frame(mac(1), mac(0), 1514, uint32(i)))
		}
	})
	for range 2 {
		if err := never.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	sender.Wait()
}

// TestCaptureReaderStops: a reader that is there but does not read ends the
// capture; senders go on.
func TestCaptureReaderStops(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	e := newEvents()
	c := newCapture(w, 10*time.Millisecond)
	s := NewSwitch(Options{Capture: c, Emit: e.emit})
	defer s.Close()
	defer c.Close(t.Context()) // wakes the sender of a test that failed
	k := newSink()
	p := s.Attach("a", newSink())
	s.Attach("b", k)
	const n = 3000 // above what pipe and buffer hold
	go func() {
		for i := range n {
			p.Send(frame(broadcast, mac(0), 1514, uint32(i)))
		}
	}()
	end := want[CaptureEnded](t, e)
	check(t, "event", end.String(), "capture ended: its reader has not read for 0.01 s")
	if !errors.Is(end.Err, os.ErrDeadlineExceeded) {
		t.Errorf("ended with %v", end.Err)
	}
	k.wait(t, n)
	check(t, "events after the end", len(e.c), 0)
}

// hesitant is a pipe whose reader takes a little of each piece, late.
type hesitant struct {
	bytes.Buffer
	deadlines int
}

func (h *hesitant) SetWriteDeadline(time.Time) error {
	h.deadlines++
	return nil
}

func (h *hesitant) Write(b []byte) (int, error) {
	if len(b) == 1 {
		return h.Buffer.Write(b)
	}
	n, _ := h.Buffer.Write(b[:len(b)/2])
	return n, os.ErrDeadlineExceeded
}

// TestCaptureReaderSlow: a reader that takes something in time gets
// everything, and has its time anew for each piece.
func TestCaptureReaderSlow(t *testing.T) {
	h := &hesitant{}
	c := NewCapture(h)
	s := NewSwitch(Options{Capture: c})
	defer s.Close()
	p := s.Attach("a", newSink())
	big := frame(mac(1), mac(0), MaxFrame, 4)
	p.Send(big)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pieces := MaxFrame / pipePiece; h.deadlines < pieces {
		t.Errorf("%d deadlines for %d pieces", h.deadlines, pieces)
	}
	same(t, "frame", readBack(t, h, 1)[0].Frame, big)
}

func TestCaptureDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	e := newEvents()
	c := NewCapture(full)
	s := NewSwitch(Options{Capture: c, Emit: e.emit})
	defer s.Close()
	k := newSink()
	p := s.Attach("a", newSink())
	s.Attach("b", k)
	if end := want[CaptureEnded](t, e); !errors.Is(end.Err, unix.ENOSPC) {
		t.Errorf("ended with %v", end)
	}
	const n = 2000
	for i := range n {
		p.Send(frame(broadcast, mac(0), 1514, uint32(i)))
	}
	s.Attach("c", newSink())
	check(t, "frames that passed", len(k.take()), n)
	check(t, "events after the end", len(e.c), 0)
	if err := c.Close(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("close: %v", err)
	}
}
