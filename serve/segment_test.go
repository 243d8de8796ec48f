// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/fw"
	"github.com/vrnic/vrnic/fabric"
)

func uplink(t *testing.T, text string) fabric.UplinkSpec {
	t.Helper()
	u, err := fabric.ParseUplink(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func impairment(t *testing.T, text string) fabric.Impairment {
	t.Helper()
	r, err := fabric.ParseImpair(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func captureTo(w io.Writer) func(context.Context) (io.Writer, error) {
	return func(context.Context) (io.Writer, error) { return w, nil }
}

// A frame from one uplink reaches the other, and the capture has it once at
// every port that it passed, the cards' included.
func TestSegment(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	var captured bytes.Buffer
	h, err := Start(t.Context(), Options{Sockets: []string{at("a"), at("b")}, Network: Network{
		Uplinks: []fabric.UplinkSpec{uplink(t, "dgram:"+at("l0")+","+at("r0")), uplink(t, "dgram:"+at("l1")+","+at("r1"))},
		Capture: captureTo(&captured),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var peers []*net.UnixConn
	for _, name := range []string{"r0", "r1"} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at(name), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		peers = append(peers, c)
	}
	frame := append(bytes.Repeat([]byte{0xff}, 6), 2, 0, 0, 0, 0, 9, 0x88, 0xb5)
	frame = append(frame, "sent by the world"...)
	// When another has come through, the first has passed every port.
	for _, f := range [][]byte{frame, append(frame[:14:14], "another"...)} {
		if _, err := peers[0].WriteTo(f, &net.UnixAddr{Name: at("l0"), Net: "unixgram"}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 2000)
		n, err := peers[1].Read(got)
		if err != nil || !bytes.HasPrefix(got[:n], f) {
			t.Fatalf("% x, %v", got[:n], err)
		}
	}
	h.Close()
	r, err := pcapgo.NewNgReader(&captured, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("sent by the world")) {
			i, err := r.Interface(info.InterfaceIndex)
			if err != nil {
				t.Fatal(err)
			}
			seen[i.Name]++
		}
	}
	for _, name := range []string{"uplink0", "uplink1", "card0", "card1"} {
		if seen[name] != 1 {
			t.Errorf("the capture has the frame %d times at %s, want once", seen[name], name)
		}
	}
}

// Pulling the cable cuts the port of the card, and of no other.
func TestLinkCutsPort(t *testing.T) {
	h, o := start(t, 2)
	for _, name := range []string{"down", "up"} {
		if _, err := Ask(t.Context(), o.Control, Request{Device: 1, What: "link", Name: name}); err != nil {
			t.Fatal(err)
		}
		if got := h.cards[1].port.Link(); got != (name == "up") {
			t.Errorf("link %s: port is up: %v", name, got)
		}
		if !h.cards[0].port.Link() {
			t.Errorf("link %s of card 1: card 0 lost its link", name)
		}
	}
}

// What cannot be made is an error, and leaves nothing behind.
func TestNetworkErrors(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	for _, tc := range []struct {
		network Network
		want    string
	}{
		{Network{Impair: []fabric.Impairment{impairment(t, "loss=1%,port=card1")}}, `no port "card1": there are card0`},
		{Network{Uplinks: []fabric.UplinkSpec{uplink(t, "dgram:"+dir+"/no/l,"+dir+"/no/r")}}, "uplink dgram:"},
		{Network{Uplinks: []fabric.UplinkSpec{uplink(t, "tcp:256.0.0.1:1,server")}}, "uplink tcp:"},
	} {
		tc.network.Capture = func(context.Context) (io.Writer, error) {
			t.Error("the capture was opened")
			return io.Discard, nil
		}
		h, err := Start(t.Context(), Options{Sockets: []string{socket}, Network: tc.network})
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want %q", err, tc.want)
		}
		if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", socket, err)
		}
	}
}

// A capture that cannot be opened is an error, and leaves nothing behind, either.
func TestCaptureNotOpened(t *testing.T) {
	dir := t.TempDir()
	o := Options{Sockets: []string{filepath.Join(dir, "s")}, Control: filepath.Join(dir, "c")}
	full := errors.New("no more captures")
	o.Network.Capture = func(context.Context) (io.Writer, error) { return nil, full }
	if _, err := Start(t.Context(), o); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// stuck is a capture whose reader never reads.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) { <-s; return len(p), nil }

// A capture that nobody takes does not keep the process from ending.
func TestCaptureNobodyTakes(t *testing.T) {
	dir := t.TempDir()
	reader := make(stuck)
	defer close(reader)
	local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
	h, err := Start(t.Context(), Options{Sockets: []string{filepath.Join(dir, "s")}, Network: Network{
		Uplinks: []fabric.UplinkSpec{uplink(t, "dgram:"+local+","+remote)}, Capture: captureTo(reader)}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 60_000)
	frame[0], frame[6] = 0xff, 2
	for range 64 { // until the uplink waits for the capture, and its socket is full
		if _, err := c.WriteTo(frame, &net.UnixAddr{Name: local, Net: "unixgram"}); err != nil {
			break
		}
	}
	h.Close()
}

// Whoever pulls a cable and plugs it in at the same time: card and switch agree on
// what came last.
func TestLinkConcurrent(t *testing.T) {
	g, err := newSegment(Network{}, 1, hclog.NewNullLogger(), func(any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	var carrier atomic.Bool // as the driver hears of it
	carrier.Store(true)
	c := g.plug("card0", devmodel.Config{Emit: func(e any) {
		if l, ok := e.(fw.LinkChange); ok {
			carrier.Store(l.Up)
		}
	}})
	defer c.close()
	for range 2000 {
		var both sync.WaitGroup
		for _, arg := range []string{"up", "down"} {
			both.Go(func() {
				if err := setLink(c, arg); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if c.port.Link() != carrier.Load() {
			t.Fatalf("the switch's port is up: %v, the card's link: %v", c.port.Link(), carrier.Load())
		}
	}
}

// With a capture a step may wait for its reader, and a client whose doorbell
// brought the step about does not wait with it: QEMU would give the card up.
func TestCaptureHoldsUpNoClient(t *testing.T) {
	reader := make(stuck)
	g, err := newSegment(Network{Capture: captureTo(reader)}, 0, hclog.NewNullLogger(), func(any) {})
	if err != nil {
		t.Fatal(err)
	}
	g.capture.Start(reader)
	var task engine.Task
	taken := make(chan struct{})
	task.Init(g.engine, sender{g.sw.Attach("sender", &socket{}), taken}, 0)
	task.Ring()
	served := make(chan struct{})
	go func() {
		g.engine.Serve()
		close(served)
	}()
	select {
	case <-served:
	case <-taken:
		t.Error("nothing held the step up")
	case <-time.After(10 * time.Second):
		t.Error("the client waits for the reader")
	}
	close(reader)
	<-taken
	<-served
	g.endCapture()
	g.close()
}

// sender is a task that sends more than a capture keeps.
type sender struct {
	port  *fabric.Port
	taken chan struct{}
}

func (s sender) Step(*engine.Shard) bool {
	for range 64 {
		s.port.Send(make([]byte, 60_000))
	}
	close(s.taken)
	return false
}
