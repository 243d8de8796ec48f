// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/wire"
)

// launch boots the guests with a card each.
func (r *runFlags) launch(ctx context.Context, c launch.Config, sockets []string) (launch.Result, error) {
	first := r.guest(c, 0, sockets)
	if r.guests == 1 {
		return launch.Run(ctx, first)
	}
	second := r.guest(c, 1, sockets)
	second.Name = "peer"
	second.GDB, second.TTY, second.Stdin = false, false, nil
	second.Logger = c.Logger.Named(second.Name)
	eol := "\n"
	if c.TTY {
		eol = "\r\n" // it is in raw mode
	}
	prefixed := func() *launch.PrefixedLines { return launch.NewPrefixedLines(os.Stderr, second.Name+": ", eol) }
	stdout, stderr, console := prefixed(), prefixed(), prefixed()
	defer stdout.Close()
	defer stderr.Close()
	defer console.Close()
	second.Command, second.Stdout, second.Stderr = nil, stdout, stderr
	if r.peer != "" {
		second.Command = []string{"sh", "-c", r.peer}
	}
	if c.Console != nil {
		second.Console = console
	}
	return launch.RunPair(ctx, first, second)
}

// guest is the i-th of the guests: c with what is its own.
func (r *runFlags) guest(c launch.Config, i int, sockets []string) launch.Config {
	mac := cardMAC(i)
	c.Sockets = sockets[i : i+1]
	c.Guest.Nets = []wire.Net{{
		MAC:       fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]),
		MTU:       r.mtu,
		Addresses: guestAddresses(i),
	}}
	if r.guests == 1 {
		return c
	}
	name := fmt.Sprintf("guest%d", i)
	c.Guest.Hostname = name
	for _, a := range guestAddresses(1 - i) {
		c.Guest.Hosts = append(c.Guest.Hosts, wire.Host{Address: a.Addr(), Name: "peer"})
	}
	if c.Artifacts != "" {
		c.Artifacts = filepath.Join(c.Artifacts, name)
	}
	return c
}

func cardMAC(i int) [6]byte { return [6]byte{0x02, 0xe8, 0x10, 0, 0, byte(i + 1)} }

func guestAddresses(i int) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77, byte(i + 1)}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(i + 1)}), 64),
	}
}
