// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

func wantLen(p []byte, n int) error {
	if len(p) != n {
		return fmt.Errorf("payload of %d bytes, want %d", len(p), n)
	}
	return nil
}

func version(major, minor uint16, text string) []byte {
	b := binary.LittleEndian.AppendUint16(nil, major)
	b = binary.LittleEndian.AppendUint16(b, minor)
	return Message(0, cmdVersion, 0, b, []byte(text))
}

// agreed looks at the answer to VERSION. request is how long the request was,
// header included; 0 if the client has no JSON to measure by.
func agreed(request int, want map[string]any) func([]byte) error {
	return func(p []byte) error {
		if request != 0 && len(p)+16 > request {
			return fmt.Errorf("reply of %d bytes to a request of %d", len(p)+16, request)
		}
		if len(p) < 5 || binary.LittleEndian.Uint32(p) != 0 {
			return fmt.Errorf("version % x", p)
		}
		text, ok := bytes.CutSuffix(p[4:], []byte{0})
		if !ok {
			return fmt.Errorf("JSON text %q has no NUL", p[4:])
		}
		var got map[string]map[string]any
		if err := json.Unmarshal(text, &got); err != nil {
			return err
		}
		if len(got) != 1 {
			return fmt.Errorf("members besides capabilities: %s", text)
		}
		for name, value := range want {
			if got["capabilities"][name] != value {
				return fmt.Errorf("%s is %v, want %v", name, got["capabilities"][name], value)
			}
		}
		return nil
	}
}

func versionCases() []Case {
	bad := func(name string, major uint16, text string) Case {
		return Case{Name: "version/" + name, Raw: true, Steps: []Step{{
			Send: version(major, 0, text), Want: []Want{{Command: cmdVersion, Errno: unix.EINVAL}},
		}}}
	}
	caps := func(members string) string { return `{"capabilities":{` + members + "}}\x00" }
	limits := map[string]any{"max_msg_fds": 8.0, "max_data_xfer_size": 1048576.0}
	good := func(name string, minor uint16, text string, measure bool, want map[string]any) Case {
		send := version(0, minor, text)
		n := 0
		if measure {
			n = len(send)
		}
		return Case{Name: "version/" + name, Raw: true, Steps: []Step{{
			Send: send, Want: []Want{{Command: cmdVersion, Check: agreed(n, want)}},
		}}}
	}
	qemu := vfiouser.QEMUCapabilities + "\x00"
	all := map[string]any{"max_msg_fds": 8.0, "max_data_xfer_size": 1048576.0, "write_multiple": true, "twin_socket": nil}
	plain := map[string]any{"max_msg_fds": 8.0, "max_data_xfer_size": 1048576.0, "write_multiple": nil, "twin_socket": nil}

	cases := []Case{
		{Name: "version/no payload", Raw: true, Steps: []Step{{
			Send: Message(0, cmdVersion, 0), Want: []Want{{Command: cmdVersion, Errno: unix.EINVAL}}}}},
		{Name: "version/short payload", Raw: true, Steps: []Step{{
			Send: Message(0, cmdVersion, 0, []byte{0, 0, 0}), Want: []Want{{Command: cmdVersion, Errno: unix.EINVAL}}}}},
		{Name: "version/unknown command first", Raw: true, Steps: []Step{ask(999, unix.EINVAL, nil)}},
		{Name: "version/other command first", Raw: true, Steps: []Step{ask(cmdInfo, unix.EINVAL, nil, U32(16, 0, 0, 0))}},
		{Name: "version/reset first", Raw: true, Steps: []Step{ask(cmdReset, unix.EINVAL, nil)}},
		{Name: "version/too large", Raw: true, Steps: []Step{{
			Send: slices.Concat(U32(1<<16, Largest+1, 0, 0)), Want: []Want{{Command: cmdVersion, Errno: unix.EINVAL}}, Closed: true}}},
		bad("major 999", 999, qemu),
		bad("no NUL", 0, "{}"),
		bad("only NUL", 0, "\x00"),
		bad("missing closing brace", 0, "{\x00"),
		bad("missing closing quote", 0, "\"\x00"),
		bad("an array", 0, "[]\x00"),
		bad("capabilities not an object", 0, `{"capabilities":"23"}`+"\x00"),
		bad("max_msg_fds a string", 0, caps(`"max_msg_fds":"foo"`)),
		bad("max_msg_fds negative", 0, caps(`"max_msg_fds":-1`)),
		bad("max_msg_fds too many", 0, caps(`"max_msg_fds":1025`)),
		bad("max_data_xfer_size negative", 0, caps(`"max_data_xfer_size":-1`)),
		bad("pgsizes not pages", 0, caps(`"pgsizes":4095`)),
		bad("pgsizes none", 0, caps(`"pgsizes":0`)),
		bad("write_multiple a number", 0, caps(`"write_multiple":1`)),
		bad("migration not an object", 0, caps(`"migration":"23"`)),
		bad("migration pgsize a string", 0, caps(`"migration":{"pgsize":"foo"}`)),
		bad("migration pgsize 4095", 0, caps(`"migration":{"pgsize":4095}`)),
		good("QEMU", 0, qemu, true, all),
		good("no JSON", 0, "", false, plain),
		good("empty JSON", 0, "{}\x00", false, limits),
		good("minor 1", 1, qemu, true, all),
		good("max_msg_fds 1024", 0, caps(`"max_msg_fds":1024,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}`), true, plain),
		good("twin_socket", 0, caps(`"twin_socket":{"supported":true},"max_msg_fds":8,"max_data_xfer_size":1048576`), true, plain),
		good("write_multiple false", 0, caps(`"write_multiple":false,"max_msg_fds":8,"max_data_xfer_size":1048576`), true, plain),
		good("unknown members", 0, `{"capabilities":{"colour":"red","max_msg_fds":8,"max_data_xfer_size":1048576},"x":[1]}`+"\x00", true, plain),
		good("deep JSON", 0, caps(`"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), true, plain),
	}
	again := bad("again after a failure", 3, qemu)
	again.Steps = append(again.Steps, good("", 0, qemu, true, all).Steps...)
	pipelined := Case{Name: "version/command behind it in one write", Raw: true, Steps: []Step{{
		Send: slices.Concat(version(0, 0, qemu), Message(9, cmdInfo, 0, U32(16, 0, 0, 0))),
		Want: []Want{{Command: cmdVersion}, {ID: 9, Command: cmdInfo}},
	}}}
	split := good("split at every byte", 0, qemu, true, all)
	split.Steps[0].Split = 1
	// No room for more than the limits, so nothing more is agreed on.
	short := good("no room for write_multiple", 0, caps(`"write_multiple":true,"pgsizes":4096`), false,
		map[string]any{"max_msg_fds": 8.0, "max_data_xfer_size": 1048576.0, "write_multiple": nil, "pgsizes": nil})
	short.Steps = append(short.Steps, ask(cmdMulti, unix.EINVAL, nil, U64(0)))
	return append(cases, again, pipelined, split, short)
}

func infoCases() []Case {
	region := func(argsz, index uint32) []byte { return slices.Concat(U32(argsz, 0, index, 0), U64(0, 0)) }
	cases := []Case{
		one("info/device short", cmdInfo, unix.EINVAL, nil, U32(16, 0)),
		one("info/device argsz 8", cmdInfo, unix.EINVAL, nil, U32(8, 0, 0, 0)),
		one("info/device argsz 32", cmdInfo, 0, U32(16, 3, 9, 5), U32(32, 0, 0, 0)),
		one("info/irq short", cmdIRQ, unix.EINVAL, nil, U32(16, 0)),
		one("info/irq argsz 8", cmdIRQ, unix.EINVAL, nil, U32(8, 0, 0, 0)),
		one("info/irq index 5", cmdIRQ, unix.EINVAL, nil, U32(16, 0, 5, 0)),
		one("info/irq index 2^32-1", cmdIRQ, unix.EINVAL, nil, U32(16, 0, 1<<32-1, 0)),
		one("info/region short", cmdRegion, unix.EINVAL, nil, U32(32, 0)),
		one("info/region argsz 8", cmdRegion, unix.EINVAL, nil, region(8, 0)),
		one("info/region index 9", cmdRegion, unix.EINVAL, nil, region(32, 9)),
	}
	return append(cases, reference([]Case{
		one("info/irq REQ, long argsz", cmdIRQ, 0, U32(16, 1, 4, 1), U32(32, 0, 4, 0)),
		one("info/irq ERR", cmdIRQ, 0, U32(16, 1, 3, 1), U32(16, 0, 3, 0)),
		one("info/irq MSI-X", cmdIRQ, 0, U32(16, 1, 2, refVectors), U32(16, 0, 2, 0)),
		one("info/irq MSI absent", cmdIRQ, 0, U32(16, 1, 1, 0), U32(16, 0, 1, 0)),
		one("info/irq INTx", cmdIRQ, 0, U32(16, 7, 0, 1), U32(16, 0, 0, 0)),
		one("info/region larger argsz", cmdRegion, 0, slices.Concat(U32(32, 3, 0, 0), U64(4096, 0)), region(40, 0)),
		one("info/region read-only", cmdRegion, 0, slices.Concat(U32(32, 1, 2, 0), U64(4096, 0)), region(32, 2)),
		one("info/region config", cmdRegion, 0, slices.Concat(U32(32, 3, 7, 0), U64(4096, 0)), region(32, 7)),
		one("info/region absent", cmdRegion, 0, slices.Concat(U32(32, 0, 1, 0), U64(0, 0)), region(32, 1)),
	})...)
}
