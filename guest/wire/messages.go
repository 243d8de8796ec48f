// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"time"
)

// Version is the version of this protocol. Both sides are the same binary in
// normal use; it guards against an old initramfs.
const Version = 2

// Hello is the agent's first message.
type Hello struct {
	Version int    `json:"version"`
	Release string `json:"release"` // uname -r
}

// Ready says that the guest is prepared for commands.
type Ready struct {
	Devices []Device `json:"devices,omitempty"`
	// Missing names, one line each, what the agent waited for in vain.
	Missing []string `json:"missing,omitempty"`
	// Modules are the builds of the devices' drivers that were loaded then.
	Modules []Module `json:"modules,omitempty"`
}

// Module is a loaded kernel module.
type Module struct {
	Name       string `json:"name"`
	SrcVersion string `json:"srcversion,omitempty"` // /sys/module/NAME/srcversion; not every kernel has it
	BuildID    string `json:"build_id,omitempty"`   // the linker's, as "file" shows it
}

// Device is one NIC of ours as the guest sees it.
type Device struct {
	PCI    string `json:"pci"`              // 0000:01:00.0
	Netdev string `json:"netdev,omitempty"` // enp1s0
	IBDev  string `json:"ibdev,omitempty"`  // irdma0
}

// Start asks the agent to run a command. The frame's command number names it
// from then on and must not be in use.
type Start struct {
	Argv  [][]byte `json:"argv"`          // bytes: arguments need not be UTF-8
	Env   [][]byte `json:"env,omitempty"` // K=V, on top of the agent's own
	Stdin bool     `json:"stdin"`         // false: /dev/null
	TTY   *Resize  `json:"tty,omitempty"` // a terminal of this size for all three
	// AwaitListen is for how long to look for a socket (TCP, UDP, RDMA-CM) of
	// the guest that began to listen after the command was started. The first
	// one is told by TypeListening.
	AwaitListen time.Duration `json:"await_listen,omitempty"`
}

// Exit tells how a command ended.
type Exit struct {
	// Status is the exit status, or 128+n for a command that died of signal n.
	Status int `json:"status"`
	// Error says why the command could not be started at all (Status is then
	// 126 or 127, as a shell has it).
	Error string `json:"error,omitempty"`
}

// Signal asks the agent to signal the command's process group.
type Signal struct {
	Number int `json:"number"`
}

// Resize is a terminal's size in characters.
type Resize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Log is a line for the launcher's log.
type Log struct {
	Level string `json:"level"` // debug, info, warn, error
	Text  string `json:"text"`
}

// Bytes returns the bytes of each string.
func Bytes(in []string) [][]byte {
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}

// Strings is the inverse of [Bytes].
func Strings(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

// Decode reads a message's payload into out.
func Decode(f Frame, out any) error {
	if err := json.Unmarshal(f.Payload, out); err != nil {
		return fmt.Errorf("%w: message type %d: %w", ErrProtocol, f.Type, err)
	}
	return nil
}
