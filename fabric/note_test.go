// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/vrnic/vrnic/devmodel/engine"
	roce "github.com/vrnic/vrnic/devmodel/roce/wire"
)

// annotator is a station that comments: what it says of the frames it gets is
// the test's business.
type annotator struct {
	notes   *Notes
	receive func(f []byte, n *Note)
}

func (a *annotator) Receive(f []byte) { a.receive(f, a.notes.Incoming(f)) }

// noted is a switch with a capture, a station that sends and one that comments.
type noted struct {
	*testing.T
	file    bytes.Buffer
	capture *Capture
	clock   engine.ManualClock
	sender  *Port
	say     *Notes // of the sender
	station annotator
}

func newNoted(t *testing.T) *noted {
	n := &noted{T: t}
	n.capture = NewCapture(&n.file)
	s := NewSwitch(Options{Clock: &n.clock, Capture: n.capture})
	t.Cleanup(s.Close)
	n.sender = s.Attach("a", newSink())
	p := s.Attach("b", &n.station)
	n.say, n.station.notes = n.sender.Notes(), p.Notes()
	return n
}

// roceFrame is a RoCE frame of 58 bytes: the switch has to pad it.
func roceFrame(psn uint32) []byte { return longFrame(psn, 0) }

// longFrame is one with n bytes of payload.
func longFrame(psn uint32, n int) []byte {
	path := roce.Path{DestMAC: [6]byte{2, 0, 0, 0, 0, 1}, SourceMAC: [6]byte{2}, IPv4: true}
	p := roce.Packet{Opcode: roce.SendOnly, PSN: psn}
	return p.Encode(make([]byte, n+100), &path, n)
}

// line is a frame of the file, by port and direction, and its comments.
type line struct {
	Port     string
	Tx       bool
	PSN      byte
	Comments []string
}

func (n *noted) lines() (all []line) {
	n.Helper()
	if err := n.capture.Close(n.Context()); err != nil {
		n.Fatal(err)
	}
	ng, err := pcapgo.NewNgReader(&n.file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		n.Fatal(err)
	}
	for {
		data, ci, o, err := ng.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			n.Fatal(err)
		}
		port, err := ng.Interface(ci.InterfaceIndex)
		if err != nil {
			n.Fatal(err)
		}
		l := line{port.Name, o.Flags.Direction == outbound, 0, o.Comments}
		if len(data) >= 54 {
			l.PSN = data[53]
		}
		all = append(all, l)
	}
}

func (n *noted) want(want ...line) {
	n.Helper()
	if d := cmp.Diff(want, n.lines()); d != "" {
		n.Error(d)
	}
}

func TestNotesOfSenders(t *testing.T) {
	n := newNoted(t)
	n.station.receive = func([]byte, *Note) {}
	f := roceFrame(1)
	n.say.Outgoing(f, "first")
	n.sender.Send(f)
	n.say.Outgoing(f, "")
	n.sender.Send(f)
	g := roceFrame(2)
	n.say.Outgoing(g, "other memory")
	n.sender.Send(f)
	n.want(line{"a", true, 1, []string{"first"}}, line{"b", false, 1, nil},
		line{"a", true, 1, nil}, line{"b", false, 1, nil}, line{"a", true, 1, nil}, line{"b", false, 1, nil})
}

// What a station says during Receive stands with the frame; only RoCE is asked
// for.
func TestNotesDuringReceive(t *testing.T) {
	n := newNoted(t)
	n.station.receive = func(f []byte, note *Note) {
		if note == nil {
			if len(f) == 60 && f[12] == 8 {
				t.Error("no note")
			}
			return
		}
		note.Say("one")
		note.Say("two")
	}
	n.sender.Send(roceFrame(1))
	n.sender.Send(frame(mac(1), mac(0), 61, 1)[:50])
	got := n.lines()
	if d := cmp.Diff([]string{"one; two"}, got[1].Comments); d != "" || got[3].Comments != nil {
		t.Errorf("%+v", got)
	}
}

// Verdicts that come later keep the order of the frames.
func TestNotesLater(t *testing.T) {
	n := newNoted(t)
	var kept []*Note
	n.station.receive = func(_ []byte, note *Note) {
		if note != nil {
			note.Hold()
			kept = append(kept, note)
		}
	}
	for psn := range uint32(3) {
		n.sender.Send(roceFrame(psn))
	}
	if got := n.capture.Frames(); got != 6 {
		t.Errorf("%d frames", got)
	}
	kept[2].Say("third")
	kept[2].Done()
	kept[0].Say("first")
	kept[0].Done()
	kept[1].Done() // has nothing to say
	n.want(line{"a", true, 0, nil}, line{"b", false, 0, []string{"first"}}, line{"a", true, 1, nil}, line{"b", false, 1, nil},
		line{"a", true, 2, nil}, line{"b", false, 2, []string{"third"}})
}

// A capture does not wait for ever, nor with all memory.
func TestNotesTooLate(t *testing.T) {
	n := newNoted(t)
	var kept []*Note
	n.station.receive = func(_ []byte, note *Note) {
		note.Hold()
		kept = append(kept, note)
	}
	const many = 2000 // beyond noteBytes
	f := longFrame(1, 4096)
	for range many {
		n.sender.Send(f)
	}
	n.capture.mu.Lock()
	if n.capture.heldBytes > noteBytes || len(n.capture.held) == 0 {
		t.Errorf("%d bytes wait", n.capture.heldBytes)
	}
	n.capture.mu.Unlock()
	n.clock.Advance(notePatience)
	n.capture.mu.Lock()
	if len(n.capture.held) != 0 {
		t.Errorf("%d frames wait", len(n.capture.held))
	}
	n.capture.mu.Unlock()
	for _, k := range kept {
		k.Say("too late")
		k.Done()
	}
	n.sender.Send(roceFrame(2)) // held until Close
	got := n.lines()
	if len(got) != 2*many+2 {
		t.Fatalf("%d frames", len(got))
	}
	for i, l := range got {
		if c := cmp.Diff([]string{unsaid}, l.Comments); !l.Tx && c != "" {
			t.Fatalf("frame %d: %s", i, c)
		}
	}
}

func TestNoNotesWithoutCapture(t *testing.T) {
	s := NewSwitch(Options{})
	defer s.Close()
	if n := s.Attach("a", newSink()).Notes(); n != nil {
		t.Error("notes for nobody")
	}
}
