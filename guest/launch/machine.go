// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// Machine is a guest that runs.
type Machine struct {
	config  Config
	logger  hclog.Logger
	process *process
	stderr  *lastLine // of QEMU
	console *console
	monitor *monitor

	kernelSink io.Writer  // of every session in turn
	kernelTail tail       // its end
	resetMu    sync.Mutex // one reset at a time

	mu        sync.Mutex
	session   *session   // replaced by a reset; see current
	artifacts *artifacts // nil: somebody else closes them
	finished  bool       // nobody will close artifacts that come from now on

	killOnce sync.Once
	killed   chan struct{} // closed to end the machine at once
	dead     chan struct{} // closed when it has ended; then err is set
	err      *MachineError
}

// startMachine starts QEMU with the given initramfs and printk level.
func startMachine(c Config, initrd *os.File, logs *artifacts, level int) (_ *Machine, err error) {
	args, err := c.qemuArgs(level)
	if err != nil {
		return nil, err
	}
	var ours, theirs []io.Closer
	defer func() {
		closeAll(theirs)
		if err != nil {
			closeAll(ours)
		}
	}()
	consoleConn, consoleEnd, err := socketPair("console")
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, consoleConn), append(theirs, consoleEnd)
	agentConn, agentEnd, err := socketPair("agent")
	if err != nil {
		return nil, err
	}
	ours, theirs = append(ours, agentConn), append(theirs, agentEnd)
	mon, monitorEnd, err := newMonitor(logs.monitor)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, monitorEnd)

	m := &Machine{
		config:  c,
		logger:  c.Logger,
		stderr:  &lastLine{},
		monitor: mon,
		killed:  make(chan struct{}),
		dead:    make(chan struct{}),
	}
	consoleSinks, kernelSink := []io.Writer{logs.console}, logs.kernel
	if c.Console != nil {
		shared := &locked{w: c.Console}
		consoleSinks = append(consoleSinks, shared)
		kernelSink = io.MultiWriter(logs.kernel, &belowConsole{w: shared, level: level})
	}
	argv := append(append([]string(nil), c.QEMU...), args...)
	fmt.Fprintf(logs.qemu, "%q\n", argv)
	files := []*os.File{consoleEnd, monitorEnd, agentEnd, initrd} // fdConsole and on
	m.process, err = startProcess(argv, files, io.MultiWriter(logs.qemu, m.stderr))
	if err != nil {
		mon.close()
		return nil, err
	}
	go mon.run()
	m.console = newConsole(consoleSinks...)
	consoleDone := make(chan struct{})
	go func() {
		m.console.copyFrom(consoleConn)
		close(consoleDone)
	}()
	m.kernelSink = &locked{w: io.MultiWriter(&m.kernelTail, kernelSink)}
	m.session = newSession(agentConn, m.kernelSink, c.Logger)
	go m.supervise(consoleConn, consoleDone)
	return m, nil
}

func closeAll(list []io.Closer) {
	for _, c := range list {
		_ = c.Close()
	}
}

// socketPair returns our end, for Go's poller, and the one for QEMU.
func socketPair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: socketpair: %w", name, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// supervise waits for the machine's end, whatever brings it, and says why.
func (m *Machine) supervise(consoleConn *os.File, consoleDone <-chan struct{}) {
	for alive := true; alive; {
		alive = false
		s := m.current()
		select {
		case <-m.process.done:
		case <-m.killed:
		case <-m.console.panicked:
			waitFor(m.process.done, m.config.limits.panic)
		case <-s.done:
			if alive = m.current() != s; !alive && s.err == nil {
				// The channel ends because QEMU does.
				waitFor(m.process.done, m.config.limits.settle)
			}
		}
	}
	m.process.kill()
	<-m.process.done
	m.resetMu.Lock() // no session comes from now on
	defer m.resetMu.Unlock()
	session := m.current()
	waitFor(consoleDone, m.config.limits.settle)
	waitFor(m.monitor.done, m.config.limits.settle)
	waitFor(session.done, m.config.limits.settle)
	waitFor(session.kernelDone, m.config.limits.settle)
	m.monitor.close()
	_ = consoleConn.Close()
	_ = session.mux.Close()
	m.err = m.diagnose()
	m.mu.Lock()
	logs := m.artifacts
	m.artifacts, m.finished = nil, true
	m.mu.Unlock()
	if logs != nil {
		if err := logs.close(); err != nil {
			m.logger.Warn("artifacts", "error", err)
		}
	}
	close(m.dead)
}

// waitFor waits for c, but not for ever.
func waitFor(c <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}

// diagnose tells why the machine ended, from what is known when it has.
func (m *Machine) diagnose() *MachineError {
	e := &MachineError{Guest: m.config.Name, ConsoleTail: m.console.last.get(), KernelTail: m.kernelTail.get()}
	session := m.current()
	reason := m.monitor.shutdownReason()
	switch text := m.console.panicText(); {
	case text != "":
		e.Why = text
	case isClosed(session.done) && session.err != nil && errors.Is(session.err, wire.ErrProtocol):
		e.Why = session.err.Error()
	case reason == "guest-reset":
		e.Why = "the guest reset (reboot or triple fault)"
	case reason == "guest-shutdown":
		e.Why = "the guest powered off"
	case m.process.err != nil:
		e.Why = "QEMU ended: " + m.process.err.Error()
		if line := m.stderr.text(); line != "" {
			e.Why += ": " + line
		}
	default:
		e.Why = "QEMU ended"
		if reason != "" {
			e.Why += ": " + reason
		}
	}
	return e
}

// failure returns a MachineError for a guest that still runs but will not do.
func (m *Machine) failure(format string, args ...any) *MachineError {
	return &MachineError{Guest: m.config.Name, Why: fmt.Sprintf(format, args...), ConsoleTail: m.console.last.get(), KernelTail: m.kernelTail.get()}
}

// current is the conversation with the agent of the guest as it runs now.
func (m *Machine) current() *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

// Kernel is the guest's kernel release.
func (m *Machine) Kernel() string {
	s := m.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.helloMsg.Release
}

// Ready is what the agent found before the first command: the devices, and what
// it waited for in vain.
func (m *Machine) Ready() wire.Ready {
	s := m.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyMsg
}

// Start runs a command. Several may run at once.
func (m *Machine) Start(c Command) (*Process, error) {
	s := m.current()
	p, err := s.start(c)
	if err != nil {
		return nil, m.because(s, err)
	}
	p.machine = m
	return p, nil
}

// Exec runs a command to its end; see [Process.Wait].
func (m *Machine) Exec(ctx context.Context, c Command, limit time.Duration) (Result, error) {
	p, err := m.Start(c)
	if err != nil {
		return Result{}, err
	}
	return p.Wait(ctx, limit)
}

// because replaces an error of the channel by the reason for the end of the
// conversation s.
func (m *Machine) because(s *session, err error) error {
	if !isClosed(s.done) {
		return err
	}
	if m.current() != s {
		return ErrReset
	}
	<-m.dead
	return m.err
}

// Done is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.dead }

// Kill ends the machine at once and returns when it is gone.
func (m *Machine) Kill() {
	m.killOnce.Do(func() { close(m.killed) })
	<-m.dead
}

// Close powers the guest off and returns when it is gone. An error tells that it
// did not go by itself, as when a driver hangs or panics while it is shut down.
func (m *Machine) Close() error {
	if isClosed(m.dead) {
		return nil
	}
	if err := m.current().mux.Send(wire.TypePowerOff, 0, nil); err != nil && !errors.Is(err, syscall.EPIPE) {
		m.logger.Debug("power off", "error", err)
	}
	limit := m.config.limits.powerOff
	waitFor(m.process.done, limit)
	if !isClosed(m.process.done) {
		err := m.failure("did not power off within %v", limit)
		go m.monitor.quit()
		waitFor(m.process.done, m.config.limits.settle)
		m.Kill()
		return err
	}
	<-m.dead
	if m.monitor.shutdownReason() != "guest-shutdown" {
		return m.err
	}
	return nil
}
