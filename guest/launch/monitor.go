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
	qmp   *qmp.SocketMonitor
	log   io.Writer
	ready chan struct{} // closed when it takes commands
	done  chan struct{} // closed when the connection has ended
	reset chan struct{} // one pending value: the machine has been reset

	mu       sync.Mutex
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
	return &monitor{
		qmp: q, log: &locked{w: log},
		ready: make(chan struct{}), done: make(chan struct{}), reset: make(chan struct{}, 1),
	}, f, nil
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
	close(m.ready)
	for e := range events {
		if b, err := json.Marshal(e); err == nil {
			fmt.Fprintf(m.log, "%s\n", b)
		}
		reason, _ := e.Data["reason"].(string)
		switch e.Event {
		case "SHUTDOWN":
			m.mu.Lock()
			m.shutdown = reason
			m.mu.Unlock()
		case "RESET":
			select {
			case m.reset <- struct{}{}:
			default:
			}
		}
	}
}

// execute carries out a command; file, if not nil, goes along. A QEMU that
// ends meanwhile is an error.
func (m *monitor) execute(name string, arguments any, file *os.File) error {
	select {
	case <-m.ready:
	case <-m.done:
		return fmt.Errorf("monitor: %s: QEMU is gone", name)
	}
	command, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil {
		return fmt.Errorf("monitor: %s: %w", name, err)
	}
	out, err := m.qmp.RunWithFile(command, file)
	fmt.Fprintf(m.log, "%s: %s %v\n", command, out, err)
	if err != nil {
		return fmt.Errorf("monitor: %s: %w", name, err)
	}
	return nil
}

// quit asks QEMU to exit; whether it does is seen by its end.
func (m *monitor) quit() {
	select {
	case <-m.ready:
		_ = m.execute("quit", nil, nil) // which is in the log
	default:
	}
}

// shutdownReason is why QEMU says it ended (qapi: ShutdownCause).
func (m *monitor) shutdownReason() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shutdown
}

func (m *monitor) close() { _ = m.qmp.Disconnect() }
