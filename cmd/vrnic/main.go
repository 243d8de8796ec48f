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
	statusUsage   = 2
	statusTimeout = 124
	statusFailed  = 125 // the machinery failed, not the command
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

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := newRoot()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var exit exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(os.Stderr, "vrnic: %v\n", exit.err)
		}
		return exit.status
	}
	fmt.Fprintf(os.Stderr, "vrnic: %v\n", err)
	return statusUsage
}
