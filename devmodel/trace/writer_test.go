// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/devmodel/cqp"
)

func TestEventsAreLines(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter()
	w.Sink("card0")(cqp.NotLive{Doorbell: 4})
	w.Start(&out, func(err error) { t.Error(err) })
	w.Sink("card1")(cqp.Destroyed{})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%q", out.String())
	}
	var l Line
	if err := json.Unmarshal([]byte(lines[0]), &l); err != nil {
		t.Fatal(err)
	}
	if l.Time.IsZero() || l.Device != "card0" || l.Type != "cqp.NotLive" || string(l.Fields) != `{"Doorbell":4}` || l.Text != "PFPE_CQPDB 4 without a CQP" {
		t.Errorf("%+v", l)
	}
	if !strings.Contains(lines[1], `"device":"card1"`) {
		t.Errorf("%s", lines[1])
	}
}

// A reader that stands still stops nobody, and is told what it missed.
func TestSlowReaderLosesEvents(t *testing.T) {
	r, pipe := io.Pipe()
	w := NewWriter()
	w.Start(pipe, func(err error) { t.Error(err) })
	sink := w.Sink("card0")
	const sent = 10 * writerRoom
	for i := range uint32(sent) {
		sink(cqp.NotLive{Doorbell: i}) // more than the writer's own buffer holds, too
	}
	got, lost := 0, 0
	read := make(chan struct{})
	go func() {
		defer close(read)
		in := bufio.NewScanner(r)
		for got+lost < sent && in.Scan() {
			var l Line
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				t.Error(err)
				return
			}
			if l.Type != "lost" {
				got++
				continue
			}
			var f struct{ Count int }
			if err := json.Unmarshal(l.Fields, &f); err != nil || f.Count == 0 {
				t.Errorf("%s: %v", in.Bytes(), err)
			}
			lost += f.Count
		}
	}()
	<-read
	if got+lost != sent || lost == 0 {
		t.Errorf("%d events and %d lost, of %d", got, lost, sent)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// A writer that fails is told of once, and later events go nowhere.
func TestFailedWriter(t *testing.T) {
	told := make(chan error, 2)
	w := NewWriter()
	w.Start(broken{}, func(err error) { told <- err })
	sink := w.Sink("card0")
	sink("one")
	if err := <-told; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
	for range 2 * writerRoom {
		sink("more")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if len(told) != 0 {
		t.Errorf("told twice: %v", <-told)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A reader that stands still at the end is given up, by a writer with deadlines.
func TestReaderStopsForGood(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer pipe.Close()
	told := make(chan error, 1)
	w := NewWriter()
	w.Start(pipe, func(err error) { told <- err })
	sink := w.Sink("card0")
	for i := range uint32(writerRoom) { // more than a pipe holds
		sink(cqp.NotLive{Doorbell: i})
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-told; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
