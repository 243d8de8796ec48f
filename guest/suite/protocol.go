// SPDX-License-Identifier: Apache-2.0

package suite

import "time"

// What the host asks a runner for.
const (
	doStart  = "start"  // a script of a case; answered by ready (a server) and ended
	doStop   = "stop"   // what was started: it gets SIGTERM, then SIGKILL
	doKernel = "kernel" // the kernel's log since the last time; answered by kernel
)

// What a runner says.
const (
	sayHello  = "hello"
	sayReady  = "ready"
	sayEnded  = "ended"
	sayKernel = "kernel"
)

// request is a line of the host.
type request struct {
	ID     int      `json:"id"` // of what is started; stop names it again
	Do     string   `json:"do"`
	Case   string   `json:"case,omitempty"`
	Server bool     `json:"server,omitempty"` // its Server, not its Script
	Env    []string `json:"env,omitempty"`
}

// reply is a line of a runner.
type reply struct {
	ID  int    `json:"id"`
	Say string `json:"say"`

	// ended
	Status   int           `json:"status,omitempty"` // 128+n for a signal
	Error    string        `json:"error,omitempty"`  // why it could not be started
	Expired  bool          `json:"expired,omitempty"`
	Stopped  bool          `json:"stopped,omitempty"` // by doStop
	Output   string        `json:"output,omitempty"`
	Took     time.Duration `json:"took,omitempty"`
	NotReady bool          `json:"not_ready,omitempty"` // ready: it ended or did not become ready in time

	Log []string `json:"log,omitempty"` // kernel: lines
	Bad []string `json:"bad,omitempty"` // kernel: those that a kernel in order does not write
}
