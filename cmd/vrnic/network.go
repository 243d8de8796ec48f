// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/serve"
)

// network is the Ethernet segment as flags describe it.
type network struct {
	uplinks, impair []string
	pcap            string
}

func (n *network) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&n.uplinks, "uplink", nil, `one more port of the switch: dgram:LOCAL,REMOTE, stream:PATH[,server],
udp:LOCAL:PORT,REMOTE:PORT, tcp:HOST:PORT[,server] (as QEMU's -netdev
dgram and stream), or tap:NAME`)
	f.StringArrayVar(&n.impair, "impair", nil, `what a cable does to frames: loss=1%,delay=2ms,jitter=1ms,reorder=1%,
duplicate=1%,corrupt=1%,rate=100mbit,queue=1m,seed=1 and where: port=card0 or
uplink0 (default all), dir=tx, rx or both (default tx: from the station);
of several for one direction of a port the last counts`)
	f.StringVar(&n.pcap, "pcap", "", `capture every port to a pcapng file, a FIFO once it has a reader, or - for stdout;
who reads sets the pace, and ends the capture by not reading for 3 s`)
}

// stdout is the file name that stands for standard output.
const stdout = "-"

// parse checks the flags, for a segment with so many cards.
func (n *network) parse(cards int) (out serve.Network, err error) {
	for _, s := range n.uplinks {
		u, err := fabric.ParseUplink(s)
		if err != nil {
			return out, fmt.Errorf("--uplink: %w", err)
		}
		out.Uplinks = append(out.Uplinks, u)
	}
	for _, s := range n.impair {
		r, err := fabric.ParseImpair(s)
		if err != nil {
			return out, fmt.Errorf("--impair: %w", err)
		}
		out.Impair = append(out.Impair, r)
	}
	if err := out.CheckPorts(cards); err != nil {
		return out, fmt.Errorf("--impair: %w", err)
	}
	out.Capture, err = output("--pcap", n.pcap)
	return out, err
}

// output checks the name of a file to write, given with a flag, and returns what
// opens it: nil for no name. What is in the file is taken away only then.
func output(flag, name string) (func(context.Context) (io.Writer, error), error) {
	switch name {
	case "":
		return nil, nil
	case stdout:
		return func(context.Context) (io.Writer, error) {
			// A reader that has had enough ends the output, not the network.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			return withDeadlines(os.Stdout), nil
		}, nil
	}
	if err := mayWrite(name); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return func(ctx context.Context) (io.Writer, error) {
		f, err := create(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		return f, nil // open until the process ends
	}, nil
}

// mayWrite tells early what would keep create from opening a file, without
// making it or taking away what is in it.
func mayWrite(name string) error {
	what, mode := name, uint32(unix.W_OK)
	switch info, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		what, mode = filepath.Dir(name), unix.W_OK|unix.X_OK
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "open", Path: name, Err: unix.EISDIR}
	}
	if err := unix.Access(what, mode); err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return nil
}

// create opens a file for writing only: a FIFO that is open for reading here as
// well would never tell that its reader is gone. It waits for a FIFO's reader
// until ctx ends.
func create(ctx context.Context, name string) (*os.File, error) {
	var f *os.File
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}()
	select {
	case <-opened:
		return f, err
	case <-ctx.Done(): // the process ends, and the open with it
		return nil, context.Cause(ctx)
	}
}
