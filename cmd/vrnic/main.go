// SPDX-License-Identifier: Apache-2.0

// Command vrnic is a software RDMA network card: it serves devices to QEMU,
// runs guests with them, and explains what their drivers did.
//
// The same binary is the guest's init; see package guest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vrnic/vrnic/guest"
)

// Exit statuses of the tool itself, as timeout(1) and git bisect run know them.
const (
	statusUsage    = 2
	statusFindings = 3 // --check strict, and drivers made mistakes
	statusTimeout  = 124
	statusFailed   = 125 // the machinery failed, not the command
)

// exitStatus ends the program with a status and, unless nil, an error text.
type exitStatus struct {
	status int
	err    error
}

func (e exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e exitStatus) Unwrap() error { return e.err }

func main() {
	if guest.IsInit() {
		guest.Init()
	}
	os.Exit(run(os.Args[1:]))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return i.signal.String() }

// untilSignal returns a context that the signals which ask a program to end
// do end. A second one kills as usual: nothing may wait for a tidy end for
// ever.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		if s, ok := <-c; ok {
			signal.Stop(c)
			cancel(interrupted{s.(syscall.Signal)})
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(c)
		cancel(nil)
	}
}

func run(args []string) int {
	ctx, stop := untilSignal()
	defer stop()
	g := &global{}
	cmd := newRoot(g)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	g.flush()
	if err == nil {
		return 0
	}
	var exit exitStatus
	if !errors.As(err, &exit) {
		exit = exitStatus{statusUsage, err}
	}
	var by interrupted
	if errors.As(context.Cause(ctx), &by) && exit.status != statusFindings {
		return 128 + int(by.signal)
	}
	if exit.err != nil {
		fmt.Fprintf(os.Stderr, "vrnic: %v\n", exit.err)
	}
	return exit.status
}
