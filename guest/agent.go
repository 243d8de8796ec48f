// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/vrnic/vrnic/guest/wire"
)

// maxJobs bounds how many commands run at once.
const maxJobs = 64

// agent serves the launcher's requests over the channel.
type agent struct {
	mux     *wire.Mux
	procs   *processes
	hello   wire.Hello
	prepare func() wire.Ready
	kernel  *kernelLog // nil: none
	sockets sockets

	off chan struct{} // closed when the host wants the machine to end

	mu   sync.Mutex
	jobs map[uint16]*job
}

func newAgent(rw io.ReadWriteCloser, procs *processes) *agent {
	return &agent{
		mux:     wire.NewMux(rw),
		procs:   procs,
		sockets: guestSockets(),
		prepare: func() wire.Ready { return wire.Ready{} },
		off:     make(chan struct{}),
		jobs:    make(map[uint16]*job),
	}
}

// Serve runs only the agent's command service over rw, in an ordinary process:
// what a launcher needs of a guest, without the guest. It is the double that
// tests of package launch talk to. It takes over the process's children. What
// listens is told by a directory of the shape of /proc/net.
func Serve(rw io.ReadWriteCloser, hello wire.Hello, ready wire.Ready, procNet string) error {
	procs := newProcesses()
	go procs.reap()
	a := newAgent(rw, procs)
	a.hello, a.sockets = hello, sockets{procNet: procNet}
	a.prepare = func() wire.Ready { return ready }
	return a.serve()
}

// serve returns nil when the host asked for the end of the machine.
func (a *agent) serve() error {
	ended := make(chan error, 1)
	go func() { ended <- a.mux.Run(a.handle) }()
	if err := a.mux.Send(wire.TypeHello, 0, a.hello); err != nil {
		return err
	}
	if a.kernel != nil {
		go a.kernel.follow()
	}
	go func() {
		if err := a.mux.Send(wire.TypeReady, 0, a.prepare()); err != nil {
			a.log("error", "%v", err)
		}
	}()
	select {
	case <-a.off:
		if a.kernel != nil {
			_ = a.kernel.flush()
		}
		return nil
	case err := <-ended:
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("the launcher has gone: %w", err)
	}
}

// handle takes one message from the host. It must not block.
func (a *agent) handle(f wire.Frame) error {
	switch f.Type {
	case wire.TypeStart:
		var s wire.Start
		if err := wire.Decode(f, &s); err != nil {
			return err
		}
		return a.start(f.Command, s)
	case wire.TypeSignal:
		var s wire.Signal
		if err := wire.Decode(f, &s); err != nil {
			return err
		}
		if j := a.job(f.Command); j != nil {
			j.signal(syscall.Signal(s.Number))
		}
	case wire.TypeResize:
		var r wire.Resize
		if err := wire.Decode(f, &r); err != nil {
			return err
		}
		if j := a.job(f.Command); j != nil {
			j.resize(r)
		}
	case wire.TypePowerOff:
		select {
		case <-a.off:
		default:
			close(a.off)
		}
	default:
		return fmt.Errorf("%w: message type %d from the host", wire.ErrProtocol, f.Type)
	}
	return nil
}

// start registers a command and its streams before the host's next frame is
// read, since that may already be its input, and runs it elsewhere.
func (a *agent) start(id uint16, s wire.Start) error {
	if len(s.Argv) == 0 {
		return fmt.Errorf("%w: command without a program", wire.ErrProtocol)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == 0 || a.jobs[id] != nil || len(a.jobs) >= maxJobs {
		return fmt.Errorf("%w: command number %d", wire.ErrProtocol, id)
	}
	j := newJob(a.mux, id, s)
	a.jobs[id] = j
	go func() {
		exit := j.run(a.procs, a.sockets)
		if a.kernel != nil {
			_ = a.kernel.flush()
		}
		a.mu.Lock()
		delete(a.jobs, id)
		a.mu.Unlock()
		_ = a.mux.Send(wire.TypeExit, id, exit)
	}()
	return nil
}

func (a *agent) job(id uint16) *job {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jobs[id]
}

// log sends one line to the launcher's log; the levels are hclog's.
func (a *agent) log(level, format string, args ...any) {
	_ = a.mux.Send(wire.TypeLog, 0, wire.Log{Level: level, Text: fmt.Sprintf(format, args...)})
}
