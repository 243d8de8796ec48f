// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/vrnic/vrnic/guest/wire"
)

// session is the host's side of the conversation with the agent.
type session struct {
	mux    *wire.Mux
	logger hclog.Logger

	hello chan struct{} // closed when the agent has spoken
	ready chan struct{} // closed when it takes commands
	done  chan struct{} // closed when the channel has ended; then err is set
	err   error         // nil: the other side closed it

	kernelDone chan struct{} // closed when the kernel log has ended

	mu        sync.Mutex
	helloMsg  wire.Hello
	readyMsg  wire.Ready
	processes map[uint16]*Process
	last      uint16 // command number used last
}

// newSession talks over rw, which it owns, and writes the kernel log to kernel.
func newSession(rw io.ReadWriteCloser, kernel io.Writer, logger hclog.Logger) *session {
	s := &session{
		mux:        wire.NewMux(rw),
		logger:     logger,
		hello:      make(chan struct{}),
		ready:      make(chan struct{}),
		done:       make(chan struct{}),
		kernelDone: make(chan struct{}),
		processes:  make(map[uint16]*Process),
	}
	log := s.mux.OpenReader(0, wire.StreamKernel)
	go func() {
		defer close(s.kernelDone)
		_, _ = io.Copy(kernel, log)
		// Ended, or it cannot be written any more; the guest must not block on it.
		_, _ = io.Copy(io.Discard, log)
	}()
	go func() {
		s.err = s.mux.Run(s.handle)
		close(s.done)
	}()
	return s
}

// handle takes one message from the agent. It runs on the read loop: it must not
// block.
func (s *session) handle(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Type {
	case wire.TypeHello:
		if isClosed(s.hello) {
			return fmt.Errorf("%w: a second hello", wire.ErrProtocol)
		}
		if err := wire.Decode(f, &s.helloMsg); err != nil {
			return err
		}
		if s.helloMsg.Version != wire.Version {
			return fmt.Errorf("%w: the agent speaks version %d, not %d", wire.ErrProtocol, s.helloMsg.Version, wire.Version)
		}
		close(s.hello)
	case wire.TypeReady:
		if !isClosed(s.hello) || isClosed(s.ready) {
			return fmt.Errorf("%w: ready at the wrong time", wire.ErrProtocol)
		}
		if err := wire.Decode(f, &s.readyMsg); err != nil {
			return err
		}
		close(s.ready)
	case wire.TypeStarted:
		if p := s.processes[f.Command]; p != nil && !isClosed(p.started) {
			close(p.started)
		}
	case wire.TypeListening:
		if p := s.processes[f.Command]; p != nil && !isClosed(p.listens) {
			close(p.listens)
		}
	case wire.TypeExit:
		p := s.processes[f.Command]
		if p == nil {
			return fmt.Errorf("%w: end of a command %d that does not run", wire.ErrProtocol, f.Command)
		}
		if err := wire.Decode(f, &p.exit); err != nil {
			return err
		}
		delete(s.processes, f.Command)
		close(p.exited)
	case wire.TypeLog:
		var l wire.Log
		if err := wire.Decode(f, &l); err != nil {
			return err
		}
		level := hclog.LevelFromString(l.Level)
		if level == hclog.NoLevel {
			level = hclog.Info
		}
		s.logger.Log(level, printable([]byte(l.Text)))
	default:
		return fmt.Errorf("%w: message type %d from the guest", wire.ErrProtocol, f.Type)
	}
	return nil
}

// isClosed is for channels that are only ever closed, under s.mu.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start asks the agent to run a command and begins to forward its streams.
func (s *session) start(c Command) (*Process, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("launch: no command given")
	}
	p := &Process{
		session: s,
		started: make(chan struct{}),
		listens: make(chan struct{}),
		exited:  make(chan struct{}),
		stop:    make(chan struct{}),
	}
	msg := wire.Start{Argv: wire.Bytes(c.Argv), Env: wire.Bytes(c.Env), Stdin: c.Stdin != nil, AwaitListen: c.AwaitListen}
	if c.TTY {
		size := c.size
		if size.Rows == 0 {
			size = defaultSize
		}
		msg.TTY = &size
	}

	s.mu.Lock()
	for {
		if s.last++; s.last != 0 && s.processes[s.last] == nil {
			break
		}
	}
	p.id = s.last
	s.processes[p.id] = p
	s.mu.Unlock()

	p.forwardOutput(c.Stdout, wire.StreamStdout)
	if !c.TTY {
		p.forwardOutput(c.Stderr, wire.StreamStderr)
	}
	var input *wire.Writer
	if c.Stdin != nil || c.TTY {
		input = s.mux.OpenWriter(p.id, wire.StreamStdin)
	}
	if err := s.mux.Send(wire.TypeStart, p.id, msg); err != nil {
		// The streams end with the channel.
		s.mu.Lock()
		delete(s.processes, p.id)
		s.mu.Unlock()
		_ = s.mux.Close()
		return nil, err
	}
	switch {
	case c.Stdin != nil:
		go func() {
			if err := forwardInput(c.Stdin, input, p.stop); err != nil {
				s.logger.Warn("standard input", "error", err)
			}
		}()
	case input != nil:
		go input.Close()
	}
	return p, nil
}
