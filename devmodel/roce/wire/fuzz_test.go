// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/roce"
)

// Whatever comes is refused, or written again it is the same.
func FuzzParse(f *testing.F) {
	f.Add(unhex(f, cnpOfHardware))
	f.Add(unhex(f, ucOfHardware))
	for _, op := range []uint8{SendMiddle, WriteOnlyImm, ReadRequest, ReadRespOnly, SendOnlyInv, Flush, FetchAdd, UDSendOnlyImm} {
		for _, path := range paths() {
			p := sample(op)
			f.Add(encode(&p, &path, 5))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		i := frame.Parse(b)
		var p Packet
		v := p.Parse(b, &i)
		p.CheckICRC(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the frame was changed")
		}
		if v != OK {
			return
		}
		var r roce.Run
		p.Run(&r, mtu)
		n := len(p.Payload)
		out := make([]byte, HeaderLen(&p.Path, p.Opcode)+n+Trailer)
		copy(out[HeaderLen(&p.Path, p.Opcode):], p.Payload)
		out = p.Encode(out, &p.Path, n)
		again, v := parse(out)
		if v != OK || !again.CheckICRC(out) {
			t.Fatalf("written again it is refused: %v", v)
		}
		again.end, again.L3 = p.end, p.L3 // pads may be longer than they need be
		if d := cmp.Diff(p, again, cmp.AllowUnexported(Packet{})); d != "" {
			t.Error(d)
		}
	})
}
