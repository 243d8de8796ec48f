// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/serve"
)

// launch boots the guests with a card each and runs the commands.
func (r *runFlags) launch(ctx context.Context, c launch.Config, host *serve.Host, sockets []string) (launch.Result, error) {
	first := r.guest(c, 0, sockets)
	first.Booted = describe(host, 0)
	if r.guests == 1 {
		return launch.Run(ctx, first)
	}
	second, end := r.second(c, host, sockets)
	defer end()
	if r.peer != "" {
		second.Command = []string{"sh", "-c", r.peer}
	}
	return launch.RunPair(ctx, first, second)
}

// second is the second guest, without a command; end writes what is left of its
// output.
func (r *runFlags) second(c launch.Config, host *serve.Host, sockets []string) (second launch.Config, end func()) {
	second = r.guest(c, 1, sockets)
	second.Booted = describe(host, 1)
	second.Name = "peer"
	second.GDB, second.TTY, second.Stdin = false, false, nil
	second.Logger = c.Logger.Named(second.Name)
	eol := "\n"
	if c.TTY {
		eol = "\r\n" // it is in raw mode
	}
	prefixed := func() *launch.PrefixedLines { return launch.NewPrefixedLines(os.Stderr, second.Name+": ", eol) }
	stdout, stderr, console := prefixed(), prefixed(), prefixed()
	second.Command, second.Stdout, second.Stderr = nil, stdout, stderr
	if c.Console != nil {
		second.Console = console
	}
	return second, func() {
		console.Close()
		stderr.Close()
		stdout.Close()
	}
}

// guest is the i-th of the guests: c with what is its own.
func (r *runFlags) guest(c launch.Config, i int, sockets []string) launch.Config {
	c.Sockets = sockets[i : i+1]
	c.Guest.Nets = []wire.Net{{
		MAC:       macText(r.macs[i]),
		MTU:       r.mtu,
		Addresses: r.addresses[i],
	}}
	if r.guests == 1 {
		return c
	}
	name := fmt.Sprintf("guest%d", i)
	c.Guest.Hostname = name
	for _, a := range r.addresses[1-i] {
		c.Guest.Hosts = append(c.Guest.Hosts, wire.Host{Address: a.Addr(), Name: "peer"})
	}
	if c.Artifacts != "" {
		c.Artifacts = filepath.Join(c.Artifacts, name)
	}
	return c
}
