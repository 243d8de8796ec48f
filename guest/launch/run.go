// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"
	"time"
)

// errNoLife says that a guest printed nothing and its agent did not speak.
var errNoLife = errors.New("no sign of life")

// Boot starts a guest and returns when it can run commands.
func Boot(ctx context.Context, c Config) (_ *Machine, err error) {
	c, err = c.withDefaults()
	if err != nil {
		return nil, err
	}
	initrd, err := c.buildInitrd()
	if err != nil {
		return nil, err
	}
	defer initrd.Close()
	logs, err := openArtifacts(c.Artifacts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		// As it is, if it can be: %+v of a joined error is its first lines only.
		if closing := logs.close(); closing != nil {
			err = errors.Join(err, closing)
		}
	}()
	var expired <-chan time.Time
	if !c.GDB {
		timer := time.NewTimer(c.BootTimeout)
		defer timer.Stop()
		expired = timer.C
	}
	level := consoleQuiet
	for restarts := 0; ; restarts++ {
		m, err := startMachine(c, initrd, logs, level)
		if err != nil {
			return nil, err
		}
		err = m.await(ctx, expired)
		switch {
		case err == nil:
			m.adopt(logs)
			if c.Booted != nil {
				c.Booted(m.Kernel(), m.Ready())
			}
			return m, nil
		case errors.Is(err, errNoLife) && restarts < maxRestarts:
			m.Kill()
			c.Logger.Warn("the guest shows no sign of life and is started again", "restart", restarts+1)
			level = consoleVerbose
		case errors.Is(err, errNoLife):
			err = m.failure("no sign of life while booting, %d times", restarts+1)
			m.Kill()
			return nil, err
		default:
			m.Kill()
			return nil, err
		}
	}
}

// adopt makes the logs the machine's to close.
func (m *Machine) adopt(logs *artifacts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished {
		_ = logs.close()
		return
	}
	m.artifacts = logs
}

// await waits until the guest can run commands.
func (m *Machine) await(ctx context.Context, expired <-chan time.Time) error {
	session := m.current()
	hello := session.hello
	life := lifeSigns{process: m.process}
	life.seen() // of a reset machine the boots before do not count
	silent := time.NewTimer(m.config.limits.silence)
	defer silent.Stop()
	silence := silent.C
	if m.config.GDB {
		silence = nil
	}
	for {
		select {
		case <-hello:
			hello, silence = nil, nil // from here on nothing is retried
			m.logger.Debug("the guest's agent runs", "kernel", m.Kernel())
		case <-session.ready:
			for _, missing := range m.Ready().Missing {
				m.logger.Warn("not ready in the guest", "device", missing)
			}
			return nil
		case <-m.console.activity:
			life.seen()
			silent.Reset(m.config.limits.silence)
		case <-silence:
			if life.hangs() {
				return errNoLife
			}
			silent.Reset(m.config.limits.silence)
		case <-expired:
			if hello == nil {
				return m.failure("not ready for commands within %v (--boot-timeout)", m.config.BootTimeout)
			}
			return m.failure("the agent did not speak within %v (--boot-timeout)", m.config.BootTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.dead:
			return m.err
		}
	}
}

// lifeSigns tells a silent guest that hangs from one that gets no CPU time.
type lifeSigns struct {
	process    *process
	start, now time.Duration // CPU time at the last output, and at the last look
}

func (l *lifeSigns) seen() {
	if t, err := l.process.cpuTime(); err == nil {
		l.start, l.now = t, t
	}
}

func (l *lifeSigns) hangs() bool {
	t, err := l.process.cpuTime()
	if err != nil {
		return false // its end is seen elsewhere
	}
	last := l.now
	l.now = t
	return t-l.start > hangBusy || t-last < hangIdle
}

// Run boots a guest, runs the command in it, and powers it off. If ctx ends the
// guest is killed and the context's cause returned.
func Run(ctx context.Context, c Config) (Result, error) {
	if len(c.Command) == 0 {
		return Result{}, errors.New("launch: no command given")
	}
	m, err := Boot(ctx, c)
	if err != nil {
		return Result{}, err
	}
	defer m.Kill()
	result, err := m.runCommand(ctx)
	if err != nil {
		return result, err
	}
	if err := m.Close(); err != nil {
		m.logger.Warn("power off", "error", err)
	}
	return result, nil
}

// runCommand runs the configuration's command, on the user's terminal if asked.
func (m *Machine) runCommand(ctx context.Context) (Result, error) {
	c := m.config
	command := Command{Argv: c.Command, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, TTY: c.TTY}
	var term *terminal
	if c.TTY {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		if term = openTerminal(c.Stdin); term != nil {
			defer term.restore()
			command.Stdin = &escapeReader{file: c.Stdin.(*os.File), hit: func() { cancel(m.failure("ended from the keyboard")) }}
		}
		command.size = term.size()
	}
	p, err := m.Start(command)
	if err != nil {
		return Result{}, err
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-term.resized():
				p.resize(term.size())
			case <-stop:
				return
			}
		}
	}()
	result, err := p.Wait(ctx, c.Timeout)
	if err != nil {
		m.Kill()
		p.settle(c.limits.settle)
	}
	return result, err
}
