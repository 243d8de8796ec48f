// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
)

// pieces is a reader that returns at most n bytes a call.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

// FuzzDecodeStream holds the decoder against one that has all bytes at once.
func FuzzDecodeStream(f *testing.F) {
	record := appendRecord(nil, frame(mac(1), mac(0), 60, 1))
	f.Add(record, uint16(1))
	f.Add(slices.Concat(record, record, record[:30]), uint16(7))
	f.Add(slices.Concat(record, []byte{0, 0, 0, 0}, []byte{0, 0, 0, 1, 9}, record), uint16(64))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(2))
	f.Add(binary.BigEndian.AppendUint32(slices.Clone(record), MaxFrame+1), uint16(100))
	f.Add(appendRecord(slices.Clone(record), make([]byte, MaxFrame)), uint16(40000))
	f.Fuzz(func(t *testing.T, stream []byte, n uint16) {
		var want [][]byte
		var wantErr error
		for rest := stream; len(rest) > 0; {
			if len(rest) < 4 {
				wantErr = io.ErrUnexpectedEOF
				break
			}
			length := binary.BigEndian.Uint32(rest)
			if length > MaxFrame {
				wantErr = ErrFrameTooLong
				break
			}
			if uint32(len(rest)-4) < length {
				wantErr = io.ErrUnexpectedEOF
				break
			}
			want = append(want, rest[4:4+length])
			rest = rest[4+length:]
		}
		i := 0
		err := decodeStream(pieces{bytes.NewReader(stream), max(int(n), 1)}, func(frame []byte) {
			if i >= len(want) || !bytes.Equal(frame, want[i]) {
				t.Fatalf("frame %d is %s", i, short(frame))
			}
			i++
		})
		if i != len(want) || !errors.Is(err, wantErr) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%d frames and %v, want %d and %v", i, err, len(want), wantErr)
		}
	})
}

// FuzzParseUplink: what is accepted is said again in the same words.
func FuzzParseUplink(f *testing.F) {
	for _, s := range []string{"dgram:/a,/b", "stream:/a,server", "stream:a", "udp:[::1]:1,h:2", "tcp::1,server", "tap:tap0", "udp:,", ":", "tcp:[::1%]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseUplink(text)
		if err != nil {
			if u != (UplinkSpec{}) {
				t.Fatalf("%+v beside an error", u)
			}
			return
		}
		if u.String() != text {
			t.Fatalf("%q is said again as %q", text, u)
		}
	})
}

// FuzzParseImpair: what is accepted is bounded and means the same when it is
// said again.
func FuzzParseImpair(f *testing.F) {
	for _, s := range []string{"loss=1%", "delay=2ms,jitter=1ms", "rate=2.5gbit,queue=512k,seed=18446744073709551615", "reorder=0.1%,duplicate=3%,corrupt=1e-3%", "port=nic0,dir=both", "dir=rx", "loss=+1%", "rate=1e3kbit", "=,=", "delay=1h0m0.5s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		r, err := ParseImpair(spec)
		if err != nil {
			if r != (Impairment{}) {
				t.Fatalf("%+v beside an error", r)
			}
			return
		}
		for _, p := range []float64{r.Loss, r.Duplicate, r.Corrupt, r.Reorder} {
			if !(p >= 0 && p <= 1) {
				t.Fatalf("%q: probability %v", spec, p)
			}
		}
		if r.Delay < 0 || r.Jitter < 0 || r.Jitter > r.Delay || r.Delay > maxDelay || r.Queue < 0 {
			t.Fatalf("%q: %+v", spec, r)
		}
		again, err := ParseImpair(r.String())
		r.Dir = r.direction()
		close := func(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 }
		if !close(again.Loss, r.Loss) || !close(again.Duplicate, r.Duplicate) || !close(again.Corrupt, r.Corrupt) || !close(again.Reorder, r.Reorder) {
			t.Fatalf("%q: %v is read as %+v", spec, r, again)
		}
		again.Loss, again.Duplicate, again.Corrupt, again.Reorder = r.Loss, r.Duplicate, r.Corrupt, r.Reorder
		if err != nil || again != r {
			t.Fatalf("%q: %v is read as %+v, %v", spec, r, again, err)
		}
	})
}
