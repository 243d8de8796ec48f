// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

func TestParseOffer(t *testing.T) {
	with := func(change func(l *limits)) *limits {
		l := defaultLimits()
		change(&l)
		return &l
	}
	plain := with(func(*limits) {})
	for _, tt := range []struct {
		caps string // members of capabilities
		want *limits
	}{
		{``, plain},
		{`"max_msg_fds":1024,"max_data_xfer_size":4096`, with(func(l *limits) { l.msgFDs, l.dataTransfer = 1024, 4096 })},
		{`"max_msg_fds":0`, with(func(l *limits) { l.msgFDs = 0 })},
		{`"max_msg_fds":1025`, nil},
		{`"max_msg_fds":-1`, nil},
		{`"max_msg_fds":"8"`, nil},
		{`"max_msg_fds":8.0`, nil},
		{`"max_msg_fds":null`, nil},
		{`"max_msg_fds":8,"max_msg_fds":9`, with(func(l *limits) { l.msgFDs = 9 })},
		{`"max_msg_fds":"bad","max_msg_fds":9`, with(func(l *limits) { l.msgFDs = 9 })},
		{`"Max_Msg_FDs":"other","max_msg_fds ":[],"future":{"a":[1,2]}`, plain},
		{`"max_data_xfer_size":18446744073709551615`, with(func(l *limits) { l.dataTransfer = 1<<64 - 1 })},
		{`"max_data_xfer_size":18446744073709551616`, nil},
		{`"max_dma_maps":7`, with(func(l *limits) { l.dmaMaps = 7 })},
		{`"max_dma_maps":true`, nil},
		{`"pgsizes":2101248`, with(func(l *limits) { l.pageSizes = 2101248 })},
		{`"pgsizes":4095`, nil},
		{`"pgsizes":0`, nil},
		{`"write_multiple":true`, with(func(l *limits) { l.writeMultiple = true })},
		{`"write_multiple":false`, plain},
		{`"write_multiple":1`, nil},
		{`"write_multiple":"true"`, nil},
		{`"twin_socket":{"supported":true}`, with(func(l *limits) { l.twinSocket = true })},
		{`"twin_socket":{}`, plain},
		{`"twin_socket":true`, nil},
		{`"twin_socket":{"supported":1}`, nil},
		{`"migration":{"pgsize":4096,"max_bitmap_size":268435456}`, plain},
		{`"migration":{"new":"x"}`, plain},
		{`"migration":"23"`, nil},
		{`"migration":null`, nil},
		{`"migration":{"pgsize":"foo"}`, nil},
		{`"migration":{"pgsize":4095}`, nil},
		{`"migration":{"max_bitmap_size":"foo"}`, nil},
	} {
		o, err := parseOffer([]byte("\x00\x00\x00\x00" + `{"capabilities":{` + tt.caps + "}}\x00"))
		if tt.want == nil && err == nil || tt.want != nil && (err != nil || o.limits != *tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.caps, o.limits, err, tt.want)
		}
	}
	for text, good := range map[string]bool{
		"": true, "{}\x00": true, "{}\x00rest\x00": true, `{"Capabilities":1}` + "\x00": true, `{"other":[]}` + "\x00": true,
		"{}": false, "\x00": false, "{\x00": false, "\"\x00": false, "null\x00": false, "[]\x00": false, "{} {}\x00": false,
		`{"capabilities":"23"}` + "\x00": false, `{"capabilities":null}` + "\x00": false,
		strings.Repeat("[", 100000) + "\x00": false,
	} {
		if _, err := parseOffer([]byte("\x00\x00\x00\x00" + text)); (err == nil) != good {
			t.Errorf("text %.40q: %v", text, err)
		}
	}
}

// TestAnswer: nothing is offered that the client did not, and QEMU's buffer is
// long enough.
func TestAnswer(t *testing.T) {
	const always = `"max_msg_fds":8,"max_data_xfer_size":1048576`
	for _, tt := range []struct {
		caps string
		room int
		want string
	}{
		{``, 1000, always},
		{``, 0, always},
		{QEMUCapabilities[len(`{"capabilities": {`) : len(QEMUCapabilities)-2], len(QEMUCapabilities) + 5,
			always + `,"write_multiple":true,"pgsizes":4096,"max_dma_maps":65535`},
		{`"max_dma_maps":7,"pgsizes":2097152`, 1000, always + `,"max_dma_maps":7`},
		{`"max_dma_maps":70000,"pgsizes":2101248`, 1000, always + `,"pgsizes":4096,"max_dma_maps":65535`},
		{`"twin_socket":{"supported":true},"write_multiple":true`, 90, always + `,"twin_socket":{"supported":true,"fd_index":0}`},
		{`"twin_socket":{"supported":true},"max_msg_fds":0`, 1000, always},
		{`"twin_socket":{"supported":false}`, 1000, always},
	} {
		o, err := parseOffer(fmt.Appendf(nil, "\x00\x00\x07\x00{\"capabilities\":{%s}}\x00", tt.caps))
		if err != nil {
			t.Fatal(err)
		}
		a := o.answer(tt.room)
		if got, want := string(a.payload[4:]), `{"capabilities":{`+tt.want+"}}\x00"; got != want {
			t.Errorf("%s: answer %s, want %s", tt.caps, got, want)
		}
		if v := binary.LittleEndian.Uint32(a.payload); v != 0 {
			t.Errorf("%s: version %#x", tt.caps, v)
		}
		if strings.Contains(tt.want, "write_multiple") != a.writeMultiple || strings.Contains(tt.want, "twin") != a.twinSocket {
			t.Errorf("%s: agreed on %+v", tt.caps, a)
		}
	}
	o, err := parseOffer([]byte("\x00\x00\x00\x00" + QEMUCapabilities + "\x00"))
	if a := o.answer(len(QEMUCapabilities) + 5); err != nil || len(a.payload) > len(QEMUCapabilities)+5 {
		t.Errorf("%d bytes for QEMU, which has room for %d; %v", len(a.payload), len(QEMUCapabilities)+5, err)
	}
}
