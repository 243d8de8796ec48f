// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// A station is near as long as nothing is to be seen or to happen on the way.
func TestNear(t *testing.T) {
	sw, _, _, ports := segment(t, 3, Options{})
	near := func(dst int) *Port { return ports[0].Near([6]byte(mac(dst))) }
	check(t, "an unknown station", near(1), (*Port)(nil))
	ports[1].Send(frame(mac(0), mac(1), 60, 0))
	ports[0].Send(frame(mac(1), mac(0), 60, 0))
	check(t, "a known one", near(1), ports[1])
	check(t, "itself", near(0), (*Port)(nil))
	check(t, "a group", ports[0].Near([6]byte(broadcast)), (*Port)(nil))
	check(t, "who is there", ports[1].Station() == Receiver(ports[1].receiver), true)

	for what, f := range map[string]func(on bool){
		"own link":          func(on bool) { ports[0].SetLink(!on) },
		"link there":        func(on bool) { ports[1].SetLink(!on) },
		"impairment":        func(on bool) { impairedBy(sw, on, "loss=50%,port=nic0,dir=tx") },
		"impairment there":  func(on bool) { impairedBy(sw, on, "loss=50%,port=nic1,dir=rx") },
		"it moved":          func(on bool) { ports[map[bool]int{true: 0, false: 1}[on]].Send(frame(mac(2), mac(1), 60, 0)) },
		"address forgotten": func(on bool) { ports[1].SetLink(false); ports[1].SetLink(true) },
	} {
		if f(true); near(1) != nil {
			t.Errorf("%s: still near", what)
		}
		f(false)
		ports[1].Send(frame(mac(2), mac(1), 60, 0))
		if near(1) != ports[1] {
			t.Errorf("%s: not near when it is over", what)
		}
	}
	impairedBy(sw, true, "loss=50%,port=nic2")
	check(t, "with another cable impaired", near(1), ports[1])
}

func impairedBy(s *Switch, on bool, rule string) {
	r, err := ParseImpair(rule)
	if err != nil {
		panic(err)
	}
	s.Impair()
	if on {
		s.Impair(r)
	}
}

func TestNearCaptured(t *testing.T) {
	capture := NewCapture(io.Discard)
	defer capture.Close(t.Context())
	_, _, _, ports := segment(t, 2, Options{Capture: capture})
	ports[1].Send(frame(mac(0), mac(1), 60, 0))
	check(t, "in a capture", ports[0].Near([6]byte(mac(1))), (*Port)(nil))
}

// What passes counts as frames do, and keeps the sender known.
func TestPassed(t *testing.T) {
	_, _, _, ports := segment(t, 2, Options{})
	ports[0].Passed(ports[1], [6]byte(mac(7)), 10, 1000)
	a, b := ports[0].Stats(), ports[1].Stats()
	check(t, "frames", [4]uint64{a.TxFrames, a.TxBytes, b.RxFrames, b.RxBytes}, [4]uint64{10, 1000, 10, 1000})
	check(t, "the way back", ports[1].Near([6]byte(mac(7))), ports[0])
}

// An uplink is crowded while its peer does not take what it has.
func TestCrowded(t *testing.T) {
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "l"), filepath.Join(dir, "r")
	peer, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	clock := &engine.ManualClock{}
	sw := NewSwitch(Options{Clock: clock})
	defer sw.Close()
	spec, err := ParseUplink("dgram:" + local + "," + remote)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.OpenUplink("up", spec); err != nil {
		t.Fatal(err)
	}
	card := sw.Attach("card", newSink())
	dst := [6]byte(mac(9))
	check(t, "an unknown station", card.Crowded(dst), false)
	sw.Port("up").Send(frame(mac(0), mac(9), 60, 0))
	check(t, "nothing waits", card.Crowded(dst), false)
	sent := 0
	for ; !card.Crowded(dst); sent++ {
		if sent > 10_000 {
			t.Fatal("never crowded")
		}
		card.Send(frame(mac(9), mac(0), 1500, 0))
	}
	clock.Advance(crowdPatience)
	check(t, "a peer that takes nothing", card.Crowded(dst), false)
	buf := make([]byte, 2000)
	for got := 0; got < sent; got++ { // all of it
		if _, err := peer.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	for card.Crowded(dst) {
		runtime.Gosched() // until the sender has seen it
	}
}
