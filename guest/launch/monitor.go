// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
)

// monitor is QEMU's control socket. QEMU inherits the listening socket and we
// are connected before it starts, so the path is gone by then.
type monitor struct {
	qmp  *qmp.SocketMonitor
	log  io.Writer
	done chan struct{} // closed when the connection has ended

	mu       sync.Mutex
	ready    bool
	shutdown string // reason of the last SHUTDOWN event
}

// newMonitor returns the monitor and the listening socket for QEMU.
func newMonitor(log io.Writer) (*monitor, *os.File, error) {
	dir, err := os.MkdirTemp("", "vrnic-")
	if err != nil {
		return nil, nil, fmt.Errorf("monitor: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "qmp")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("monitor: %w", err)
	}
	defer l.Close()
	// Connecting succeeds as soon as somebody listens; QEMU accepts later.
	q, err := qmp.NewSocketMonitor("unix", path, time.Second)
	if err != nil {
		return nil, nil, fmt.Errorf("monitor: %w", err)
	}
	f, err := l.File()
	if err != nil {
		_ = q.Disconnect()
		return nil, nil, fmt.Errorf("monitor: %w", err)
	}
	return &monitor{qmp: q, log: &locked{w: log}, done: make(chan struct{})}, f, nil
}

// run talks to QEMU until the connection ends.
func (m *monitor) run() {
	defer close(m.done)
	if err := m.qmp.Connect(); err != nil {
		fmt.Fprintf(m.log, "connect: %v\n", err)
		return
	}
	events, err := m.qmp.Events(context.Background())
	if err != nil {
		fmt.Fprintf(m.log, "events: %v\n", err)
		return
	}
	m.mu.Lock()
	m.ready = true
	m.mu.Unlock()
	for e := range events {
		if b, err := json.Marshal(e); err == nil {
			fmt.Fprintf(m.log, "%s\n", b)
		}
		if reason, ok := e.Data["reason"].(string); ok && e.Event == "SHUTDOWN" {
			m.mu.Lock()
			m.shutdown = reason
			m.mu.Unlock()
		}
	}
}

// quit asks QEMU to exit; whether it does is seen by its end.
func (m *monitor) quit() {
	m.mu.Lock()
	ready := m.ready
	m.mu.Unlock()
	if !ready {
		return
	}
	out, err := m.qmp.Run([]byte(`{"execute":"quit"}`))
	fmt.Fprintf(m.log, "quit: %s %v\n", out, err)
}

// shutdownReason is why QEMU says it ended (qapi: ShutdownCause).
func (m *monitor) shutdownReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shutdown
}

func (m *monitor) close() { _ = m.qmp.Disconnect() }
