// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// RunPair boots two guests at once and runs a command in each: peer's first, and
// c's as soon as peer's listens (see [Process.Listening]) or has ended, or after
// 10 s. When c's has ended, peer's may go on for 3 s, then it gets SIGTERM, and 2 s
// later SIGKILL. A peer without a command just sits there.
//
// The result is that of c's command; if its status is 0 and peer's command failed
// before it was told to end, that of peer's. Errors are those of [Run], for either
// guest: one that fails ends the other. c.Timeout is for c's command alone;
// peer.Timeout, peer.Stdin and peer.TTY are not used.
func RunPair(ctx context.Context, c, peer Config) (Result, error) {
	if len(c.Command) == 0 {
		return Result{}, errors.New("launch: no command given")
	}
	m, other, err := BootPair(ctx, c, peer)
	if err != nil {
		return Result{}, err
	}
	defer killAll(m, other)

	both, cancel := context.WithCancelCause(ctx) // until either guest fails
	defer cancel(nil)
	go func() {
		select {
		case <-other.Done():
			cancel(other.err)
		case <-both.Done():
		}
	}()
	var second *peerCommand
	if len(peer.Command) > 0 {
		if second, err = other.startPeer(both); err != nil {
			return Result{}, err
		}
		if err := second.await(both); err != nil {
			return Result{}, err
		}
	}
	result, err := m.runCommand(both)
	if err != nil {
		killAll(other)
		second.settle()
		return result, err
	}
	if result, err = second.end(ctx, result); err != nil {
		return result, err
	}
	var wg sync.WaitGroup
	for _, m := range []*Machine{m, other} {
		wg.Go(func() {
			if err := m.Close(); err != nil {
				m.logger.Warn("power off", "error", err)
			}
		})
	}
	wg.Wait()
	return result, nil
}

// BootPair boots two guests at the same time; both or none.
func BootPair(ctx context.Context, a, b Config) (*Machine, *Machine, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg sync.WaitGroup
		m  [2]*Machine
	)
	for i, c := range []Config{a, b} {
		wg.Go(func() {
			var err error
			if m[i], err = Boot(ctx, c); err != nil {
				cancel(err) // which the other one returns as its own
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		killAll(m[:]...)
		return nil, nil, err
	}
	return m[0], m[1], nil
}

// killAll ends machines at once; nil stands for none.
func killAll(machines ...*Machine) {
	var wg sync.WaitGroup
	for _, m := range machines {
		if m != nil {
			wg.Go(m.Kill)
		}
	}
	wg.Wait()
}

// peerCommand is the command of the second guest. nil is one without.
type peerCommand struct {
	machine *Machine
	process *Process
	done    chan struct{} // closed when it has ended; then result and err are set
	result  Result
	err     error
}

func (m *Machine) startPeer(ctx context.Context) (*peerCommand, error) {
	c := m.config
	p, err := m.Start(Command{Argv: c.Command, Env: c.Env, Stdout: c.Stdout, Stderr: c.Stderr, AwaitListen: c.limits.listen})
	if err != nil {
		return nil, err
	}
	k := &peerCommand{machine: m, process: p, done: make(chan struct{})}
	go func() {
		k.result, k.err = p.Wait(ctx, 0)
		close(k.done)
	}()
	return k, nil
}

// await waits until whoever wants to talk to the command may try.
func (k *peerCommand) await(ctx context.Context) error {
	select {
	case <-k.process.Started():
	case <-k.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	limit := k.machine.config.limits.listen
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-k.process.Listening():
	case <-k.done:
	case <-timer.C:
		k.machine.logger.Info("the peer's command does not listen so far, it is not waited for any longer", "after", limit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// end sees to the command's end after the first guest's had its own, and returns
// what the two come to.
func (k *peerCommand) end(ctx context.Context, first Result) (Result, error) {
	if k == nil {
		return first, nil
	}
	limits := k.machine.config.limits
	told := false
	for _, next := range []struct {
		after  time.Duration
		signal syscall.Signal
	}{{limits.peerGrace, syscall.SIGTERM}, {limits.peerTerm, syscall.SIGKILL}, {limits.settle, 0}} {
		waitFor(k.done, next.after)
		if isClosed(k.done) {
			break
		}
		if told = true; next.signal != 0 {
			_ = k.process.Signal(next.signal) // or its guest is gone, which is seen below
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return Result{}, cause
	}
	switch {
	case !isClosed(k.done): // it cannot be killed; the power-off tells more
		k.machine.logger.Warn("the peer's command does not end")
	case k.err != nil && first.Status == 0:
		return Result{}, k.err
	case k.err != nil:
		k.machine.logger.Error("the peer failed, too", "error", fmt.Sprintf("%+v", k.err))
	case told || k.result.Status == 0:
	default:
		k.machine.logger.Warn("the peer's command failed", "status", k.result.Status)
		if first.Status == 0 {
			return k.result, nil
		}
	}
	return first, nil
}

// settle waits a moment until the command's last output is written, after its
// guest has been killed.
func (k *peerCommand) settle() {
	if k != nil {
		k.process.settle(k.machine.config.limits.settle)
	}
}
