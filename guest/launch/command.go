// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/vrnic/vrnic/guest/wire"
)

// Command is a program to run in the guest, as root in /root.
type Command struct {
	Argv   []string // looked up in the guest's PATH
	Env    []string // K=V, on top of the guest's own
	Stdin  io.Reader
	Stdout io.Writer // nil: discarded
	Stderr io.Writer // nil: discarded; unused with TTY
	TTY    bool      // a terminal instead of pipes
	// AwaitListen is for how long to look whether something in the guest began
	// to listen since the command's start; see [Process.Listening].
	AwaitListen time.Duration

	size wire.Resize // of the terminal
}

// Result is how a command ended.
type Result struct {
	// Status is its exit status; 128+n if it died of signal n; 127 if there is
	// no such program, 126 if it cannot be run.
	Status int
	// Reason says why it could not be started; empty if it was.
	Reason string
}

// Process is a command that runs in the guest.
type Process struct {
	session *session
	machine *Machine // nil in tests of the session alone
	id      uint16
	started chan struct{} // closed when it runs
	listens chan struct{} // closed when something listens, see Command.AwaitListen
	exited  chan struct{} // closed when it has ended; then exit is set
	exit    wire.Exit
	stop    chan struct{} // closed by Wait: no more input
	outputs sync.WaitGroup

	mu        sync.Mutex
	outputErr error
}

// forwardOutput copies one of the command's outputs to dst. When dst does not
// take it any more, the guest is told and the command gets SIGPIPE.
func (p *Process) forwardOutput(dst io.Writer, stream uint8) {
	if dst == nil {
		dst = io.Discard
	}
	src := p.session.mux.OpenReader(p.id, stream)
	p.outputs.Go(func() {
		defer src.Close()
		buf := make([]byte, wire.MaxPayload)
		for {
			n, err := src.Read(buf)
			if n > 0 {
				if _, err := dst.Write(buf[:n]); err != nil {
					p.outputFailed(err)
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
}

func (p *Process) outputFailed(err error) {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return // the reader has seen enough
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outputErr = errors.Join(p.outputErr, fmt.Errorf("output of the command: %w", err))
}

// Started is closed when the command runs.
func (p *Process) Started() <-chan struct{} { return p.started }

// Listening is closed when a socket of the guest (TCP, UDP, RDMA-CM) listens
// that did not before the command was started. With [Command.AwaitListen] zero, or
// if none does within that time, it never is.
func (p *Process) Listening() <-chan struct{} { return p.listens }

// Exited is closed when the command has ended; its output may still be on its
// way, and it stays open when the guest goes: [Process.Wait] knows all.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal to the command's process group.
func (p *Process) Signal(s syscall.Signal) error {
	return p.session.mux.Send(wire.TypeSignal, p.id, wire.Signal{Number: int(s)})
}

func (p *Process) resize(size wire.Resize) {
	_ = p.session.mux.Send(wire.TypeResize, p.id, size)
}

// errChannel says that the channel to the guest ended before the command did;
// why is the machine's to say.
var errChannel = errors.New("the channel to the guest ended")

// Wait waits until the command has ended and its output is written. It may be
// called once. A limit above zero counts from the command's start to its end
// and leads to [ErrTimeout]; the command runs on then, as it does when ctx ends.
//
// Any other error means that the guest is gone or the output could not be
// written.
func (p *Process) Wait(ctx context.Context, limit time.Duration) (Result, error) {
	defer close(p.stop)
	finished := make(chan struct{})
	go func() {
		select {
		case <-p.exited:
		case <-p.session.done:
			if !isClosed(p.exited) {
				return
			}
		}
		p.outputs.Wait()
		close(finished)
	}()
	started, exited, lost := p.started, p.exited, p.session.done
	var expired <-chan time.Time
	for {
		select {
		case <-started:
			started = nil
			if limit > 0 {
				timer := time.NewTimer(limit)
				defer timer.Stop()
				expired = timer.C
			}
		case <-exited:
			exited = nil
			expired, started = nil, nil
		case <-finished:
			p.mu.Lock()
			defer p.mu.Unlock()
			return Result{Status: p.exit.Status, Reason: printable([]byte(p.exit.Error))}, p.outputErr
		case <-expired:
			return Result{}, fmt.Errorf("%w after %v", ErrTimeout, limit)
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case <-lost:
			if !isClosed(p.exited) {
				return Result{}, p.lost()
			}
			lost = nil // its output is all here
		}
	}
}

// lost is why the channel ended.
func (p *Process) lost() error {
	if p.machine == nil {
		return errors.Join(errChannel, p.session.err)
	}
	return p.machine.because(p.session, errChannel)
}

// settle waits a moment until nothing is written to the command's outputs any
// more, after the channel has ended. A writer that is stuck is left behind.
func (p *Process) settle(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		p.outputs.Wait()
		close(done)
	}()
	waitFor(done, limit)
}
