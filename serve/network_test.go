// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"net"
	"path/filepath"
	"testing"

	"github.com/vrnic/vrnic/fabric"
)

// Rules that come later are in force for the frames after them, and what they do
// is told.
func TestImpairWhileServing(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	o := Options{Sockets: []string{at("card")}, Control: at("control"), Network: Network{
		Uplinks: []fabric.UplinkSpec{uplink(t, "dgram:"+at("l0")+","+at("r0")), uplink(t, "dgram:"+at("l1")+","+at("r1"))},
	}}
	h, err := Start(t.Context(), o)
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
	pass := func(from, to int, kind byte) {
		t.Helper()
		frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, byte(from), 0x88, 0xb5, kind}, make([]byte, 45)...)
		if _, err := peers[from].WriteTo(frame, &net.UnixAddr{Name: at("l" + string(rune('0'+from))), Net: "unixgram"}); err != nil {
			t.Fatal(err)
		}
		if to < 0 {
			return
		}
		got := make([]byte, 2000)
		if n, err := peers[to].Read(got); err != nil || n != len(frame) || got[14] != kind {
			t.Fatalf("% x, %v; want kind %d", got[:n], err, kind)
		}
	}
	change := func(rules string) {
		t.Helper()
		if _, err := Ask(t.Context(), o.Control, Request{What: "impair", Name: rules}); err != nil {
			t.Fatal(err)
		}
	}
	ports := func() (list []Port) {
		t.Helper()
		r, err := Ask(t.Context(), o.Control, Request{What: "ports"})
		if err == nil {
			err = json.Unmarshal(r.Data, &list)
		}
		if err != nil || len(list) != 3 {
			t.Fatalf("%d ports, %v", len(list), err)
		}
		return list
	}
	pass(0, 1, 1)
	change("loss=100%,port=uplink0 duplicate=100%,port=uplink1")
	pass(0, -1, 2)
	pass(1, 0, 3) // twice; that the one before is lost is known below
	for end := false; !end; {
		for _, p := range ports() {
			end = end || p.Name == "uplink0" && p.TxImpair.Frames == 1
		}
	}
	for _, p := range ports() {
		switch p.Name {
		case "card0":
			if p.TxImpair != nil || p.TxFrames != 0 {
				t.Errorf("card0: %+v", p)
			}
		case "uplink0":
			if p.TxFrames != 2 || *p.TxImpair != (fabric.ImpairStats{Frames: 1, Lost: 1}) || p.RxImpair != nil {
				t.Errorf("uplink0: %+v, %+v", p, p.TxImpair)
			}
		case "uplink1":
			if p.TxFrames != 1 || *p.TxImpair != (fabric.ImpairStats{Frames: 1, Passed: 1, Duplicated: 1}) {
				t.Errorf("uplink1: %+v, %+v", p, p.TxImpair)
			}
		}
	}
	change("")
	pass(0, 1, 4) // not 2
	for _, p := range ports() {
		if p.TxImpair != nil {
			t.Errorf("%s is impaired: %+v", p.Name, p.TxImpair)
		}
	}
	for _, bad := range []string{"loss=1%,port=card1", "loss=x", "loss=1% port"} {
		if _, err := Ask(t.Context(), o.Control, Request{What: "impair", Name: bad}); err == nil {
			t.Errorf("impair %q: no error", bad)
		}
	}
}
