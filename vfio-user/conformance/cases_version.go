// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// agreed looks at the answer to VERSION: the minor version is at most the
// client's, and there is a limit on every member that want names; nil means that
// the member must not be there.
func agreed(minor uint16, want map[string]any) func([]byte) error {
	return func(p []byte) error {
		if len(p) < 5 || binary.LittleEndian.Uint16(p) != 0 || binary.LittleEndian.Uint16(p[2:]) > minor {
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

// sane: the limits of an answer are such that QEMU accepts them
// (hw/vfio-user/proxy.c, check_max_fds and its like).
func sane(p []byte) error {
	var got struct {
		Capabilities struct {
			FDs      *int64 `json:"max_msg_fds"`
			Transfer *int64 `json:"max_data_xfer_size"`
			Maps     *int64 `json:"max_dma_maps"`
			Pages    *int64 `json:"pgsizes"`
		} `json:"capabilities"`
	}
	if len(p) < 5 {
		return fmt.Errorf("no JSON text")
	}
	if err := json.Unmarshal(bytes.TrimRight(p[4:], "\x00"), &got); err != nil {
		return err
	}
	within := func(name string, v *int64, low, high int64) error {
		if v != nil && (*v < low || *v > high) {
			return fmt.Errorf("%s is %d, QEMU takes %d to %d", name, *v, low, high)
		}
		return nil
	}
	c := got.Capabilities
	return errors.Join(within("max_msg_fds", c.FDs, 0, 16), within("max_data_xfer_size", c.Transfer, configSize, 64<<20),
		within("max_dma_maps", c.Maps, 1, 65535), within("pgsizes", c.Pages, 4096, math.MaxInt64))
}

func versionCases() []Case {
	bad := func(name string, major uint16, text string) Case {
		return Case{Name: "version/" + name, Raw: true, Steps: []Step{{
			Send: version(major, 0, text), Want: []Want{{Command: cmdVersion, Errno: unix.EINVAL}},
		}}}
	}
	caps := func(members string) string { return `{"capabilities":{` + members + "}}\x00" }
	good := func(name string, minor uint16, text string, want map[string]any) Case {
		return Case{Name: "version/" + name, Raw: true, Steps: []Step{{
			Send: version(0, minor, text), Want: []Want{{Command: cmdVersion, Check: agreed(minor, want)}},
		}}}
	}
	long := func(c Case) Case {
		c.Steps[0].Want[0].Long = true
		return c
	}
	qemu := vfiouser.QEMUCapabilities + "\x00"
	all := map[string]any{"write_multiple": true, "twin_socket": nil}
	// What a client did not offer is not in the answer.
	unasked := map[string]any{"write_multiple": nil, "twin_socket": nil, "migration": nil, "pgsizes": nil, "max_dma_maps": nil}
	limits := map[string]any{"max_msg_fds": 8.0, "max_data_xfer_size": 1048576.0}
	padded := func(members string) string {
		return `{"capabilities":{` + members + "}" + strings.Repeat(" ", 150) + "}\x00"
	}
	twin := good("twin_socket", 0, padded(`"twin_socket":{"supported":true},"max_msg_fds":8`), map[string]any{"write_multiple": nil}).reference()
	twin.Steps[0].Want[0].File = "twin"

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
		bad("max_msg_fds a fraction", 0, caps(`"max_msg_fds":1.5`)),
		bad("max_dma_maps a string", 0, caps(`"max_dma_maps":"many"`)),
		bad("twin_socket not an object", 0, caps(`"twin_socket":true`)),
		bad("twin_socket supported a number", 0, caps(`"twin_socket":{"supported":1}`)),
		bad("text behind the object", 0, "{}x\x00"),
		good("QEMU", 0, qemu, all).needs(NeedMulti),
		good("limits", 0, qemu, limits).reference(),
		{Name: "version/limits that QEMU accepts", Raw: true, Steps: []Step{{Send: version(0, 0, qemu), Want: []Want{{Command: cmdVersion, Check: sane}}}}},
		long(good("no JSON", 0, "", unasked)),
		long(good("empty JSON", 0, "{}\x00", unasked)),
		long(good("empty capabilities", 0, "{\"capabilities\":{}}\x00", unasked)),
		good("minor 1", 1, qemu, all).needs(NeedMulti),
		good("minor 65535", 65535, qemu, nil),
		good("max_msg_fds 1024", 0, padded(`"max_msg_fds":1024,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}`), map[string]any{"write_multiple": nil, "twin_socket": nil}),
		twin,
		good("twin_socket not supported", 0, padded(`"twin_socket":{"supported":false},"max_msg_fds":8`), unasked),
		good("twin_socket for a client that takes no descriptor", 0, padded(`"twin_socket":{"supported":true},"max_msg_fds":0`), unasked),
		good("write_multiple false", 0, padded(`"write_multiple":false,"max_msg_fds":8`), unasked),
		good("unknown members", 0, `{"capabilities":{"colour":"red","max_msg_fds":8}`+strings.Repeat(" ", 150)+`,"x":[1]}`+"\x00", unasked),
		good("deep JSON", 0, caps(`"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), unasked),
		good("the longest text", 0, caps(`"x":"`+strings.Repeat("y", Largest-100)+`"`), unasked),
		// The migration feature is not there, so it is not offered.
		good("migration is not answered", 0, qemu, map[string]any{"migration": nil}).reference(),
		{Name: "version/no reply before VERSION", Raw: true, Steps: []Step{
			post(cmdInfo, U32(16, 0, 0, 0)), {Send: version(0, 0, qemu), Want: []Want{{Command: cmdVersion}}}}},
		{Name: "version/descriptors that nobody wants", Raw: true, Steps: []Step{
			Step{Send: version(0, 0, qemu), Want: []Want{{Command: cmdVersion}}}.fds(FD{Name: "p", Kind: Pipe}).check(Check{Name: "p", Hangup: true})}},
	}
	again := bad("again after a failure", 3, qemu).reference()
	again.Steps = append(again.Steps, good("", 0, qemu, all).Steps...)
	pipelined := Case{Name: "version/command behind it in one write", Raw: true, Steps: []Step{{
		Send: slices.Concat(version(0, 0, qemu), Message(9, cmdInfo, 0, U32(16, 0, 0, 0))),
		Want: []Want{{Command: cmdVersion}, {ID: 9, Command: cmdInfo}},
	}}}
	split := good("split at every byte", 0, qemu, nil)
	split.Steps[0].Split = 1
	// No room for more than the limits, so nothing more is agreed on.
	short := long(good("no room for write_multiple", 0, caps(`"write_multiple":true,"pgsizes":4096`), map[string]any{"write_multiple": nil, "pgsizes": nil})).reference()
	short.Steps = append(short.Steps, ask(cmdMulti, unix.EINVAL, nil, U64(0)))
	return append(cases, again, pipelined, split, short)
}
