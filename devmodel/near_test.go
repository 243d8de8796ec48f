// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"testing"

	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// An empty send over IPv4 makes a frame of 58 bytes. On the wire it has 60, and
// nothing of what lay behind it, as frames and as a burst.
func TestShortFrames(t *testing.T) {
	var path wire.Path
	path.IPv4 = true
	p := wire.Packet{Opcode: wire.SendOnly}
	room := make([]byte, 100)
	for i := range room {
		room[i] = 0xEE
	}
	f := p.Encode(room, &path, 0)
	if len(f) != 58 {
		t.Fatalf("%d bytes", len(f))
	}
	var got []byte
	e := engine.New(engine.Config{Manual: true})
	defer e.Close()
	l := lan.New(lan.Config{Engine: e, Wire: func(f []byte) { got = append(got, f...) }})
	newPort(l, nil).Send(f)
	if len(got) != 60 || got[58] != 0 || got[59] != 0 {
		t.Errorf("sent % x", got)
	}
	if x := toLAN(&path, &qp.Burst{Frames: 1, Last: 58}); x.Last != 60 || x.First != 0 {
		t.Errorf("burst %+v", x)
	}
}
