// SPDX-License-Identifier: Apache-2.0

package lan

import (
	"encoding/binary"
	"testing"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// A counter that moves on while the driver reads it, in one access of eight
// bytes, was at some time what is read.
func TestCounterIsReadAtOnce(t *testing.T) {
	now := []uint64{7, 0xffffffff}
	moving := func(i int) uint64 {
		v := now[i]
		now[i]++
		return v
	}
	s := reg.NewSpace(1<<12, nil, wide("GLV_GORC", 0, 2, "", moving))
	read := func() uint64 {
		var b [8]byte
		s.Read(8, b[:])
		return binary.LittleEndian.Uint64(b[:])
	}
	if v := read(); v != 0xffffffff {
		t.Errorf("read %#x, want %#x", v, uint64(0xffffffff))
	}
	if v := read(); v != 1<<32 {
		t.Errorf("then %#x, want %#x", v, uint64(1<<32))
	}
	if h := s.Read32(12); h != 1 {
		t.Errorf("the high byte alone is %#x, want 1", h)
	}
}
