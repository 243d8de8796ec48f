// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"
	"time"
)

// Reset pushes the machine's reset button (QMP system_reset) and returns when
// the guest, booted again, takes commands. Commands that ran end with
// [ErrReset]. [Config.BootTimeout] applies as it did at first; a guest that does
// not come up again is left as it is, for the caller to kill.
//
// The artifacts go on: kernel.log has the logs of all boots, one after another.
func (m *Machine) Reset(ctx context.Context) error {
	if err := m.pushReset(ctx); err != nil {
		// The monitor ends a moment before QEMU does.
		waitFor(m.process.done, m.config.limits.settle)
		if isClosed(m.process.done) {
			<-m.dead
			return m.err
		}
		return err
	}
	var expired <-chan time.Time
	if !m.config.GDB {
		timer := time.NewTimer(m.config.BootTimeout)
		defer timer.Stop()
		expired = timer.C
	}
	if err := m.await(ctx, expired); errors.Is(err, errNoLife) {
		return m.failure("no sign of life after a reset")
	} else if err != nil {
		return err
	}
	return m.onReset("shutdown")
}

// pushReset resets the machine and gives it a new channel for its next agent.
// In the old one both directions may be cut off within a frame, and what we sent
// last would reach the next agent.
func (m *Machine) pushReset(ctx context.Context) (err error) {
	m.resetMu.Lock()
	defer m.resetMu.Unlock()
	conn, end, err := socketPair("agent")
	if err != nil {
		return err
	}
	defer end.Close()
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	select {
	case <-m.monitor.reset: // the one of QEMU's start
	default:
	}
	// A reset of the guest's own making ends the machine. Not until it is up
	// again, though: the firmware, started in the middle of its life, begins
	// with a reset of its own.
	if err := m.onReset("reset"); err != nil {
		return err
	}
	if err := m.monitor.execute("system_reset", nil, nil); err != nil {
		return err
	}
	select {
	case <-m.monitor.reset:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.process.done:
		return m.failure("QEMU ended in a reset")
	}
	// The guest has its firmware and a kernel to start before it speaks: that is
	// time enough. While it is stopped QEMU does not change a port's channel.
	return m.changeChannel(conn, end)
}

func (m *Machine) onReset(action string) error {
	return m.monitor.execute("set-action", map[string]string{"reboot": action}, nil)
}

// changeChannel makes conn, whose other end is end, the channel to the agent.
func (m *Machine) changeChannel(conn, end *os.File) error {
	type object = map[string]any
	const name = "agent-after-reset"
	if err := m.monitor.execute("getfd", object{"fdname": name}, end); err != nil {
		return err
	}
	// Ours first: the end of the old one is not the machine's then.
	m.mu.Lock()
	old := m.session
	m.session = newSession(conn, m.kernelSink, m.logger)
	m.mu.Unlock()
	defer func() {
		_ = old.mux.Close()
		waitFor(old.kernelDone, m.config.limits.settle)
	}()
	return m.monitor.execute("chardev-change", object{"id": "agent", "backend": object{
		"type": "socket",
		"data": object{"addr": object{"type": "fd", "data": object{"str": name}}, "server": false},
	}}, nil)
}
