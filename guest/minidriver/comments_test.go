// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/vrnic/vrnic/devmodel/frame"
	rocewire "github.com/vrnic/vrnic/devmodel/roce/wire"
)

// In a capture every RoCE packet says what it is and what became of it, and none
// is there before it was sent.
func TestCommentsInCaptures(t *testing.T) {
	for name, impair := range map[string][]string{"clean": nil, "all": {"loss=1%,reorder=1%,duplicate=2%,corrupt=1%,delay=50us,seed=6"}} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			t.Run("traffic", func(t *testing.T) {
				d := startDuo(t, duoOptions{way: wired2, impair: impair, guest: 256, capture: &file})
				d.random(t, rand.New(rand.NewPCG(7, 7)), 4, 120)
				d.end(t)
			})
			verdicts := comments(t, &file)
			expected := []string{"in order, placed", "in order, responses", "acknowledges all"}
			if impair != nil {
				expected = append(expected, "ahead: NAK sequence", "duplicate", "dropped: bad ICRC")
			}
			for _, text := range expected {
				if !strings.Contains(verdicts, text) {
					t.Errorf("nothing is %q", text)
				}
			}
		})
	}
}

// comments checks those of a file and returns what receivers say.
func comments(t *testing.T, r io.Reader) string {
	ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sent := map[string]bool{}
	var verdicts strings.Builder
	packets := 0
	for n := 1; ; n++ {
		data, _, o, err := ng.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		i := frame.Parse(data)
		if !i.RoCE(data) {
			if len(o.Comments) > 0 {
				t.Errorf("frame %d, no RoCE: %q", n, o.Comments)
			}
			continue
		}
		packets++
		var p rocewire.Packet
		v := p.Parse(data, &i)
		whole := v == rocewire.OK && p.CheckICRC(data)
		if len(o.Comments) != 1 {
			t.Fatalf("frame %d, %s, %v: comments %q", n, rocewire.Name(p.Opcode), v, o.Comments)
		}
		comment := o.Comments[0]
		// Where the network may change bits, as chance does too, the ICRC stays.
		icrc := string(data[i.End-4 : i.End])
		switch {
		case o.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound:
			sent[icrc] = true
			if want := fmt.Sprintf(" -> %d: %s, ", p.DestQP, rocewire.Name(p.Opcode)); !whole || !strings.Contains(comment, want) {
				t.Errorf("frame %d, %v, ICRC %v: %q, want %q in it", n, v, whole, comment, want)
			}
		case whole && !sent[icrc]:
			t.Errorf("frame %d, %s, comes before it was sent", n, rocewire.Name(p.Opcode))
		default:
			fmt.Fprintln(&verdicts, comment)
		}
	}
	if packets == 0 {
		t.Error("no RoCE packet")
	}
	return verdicts.String()
}
