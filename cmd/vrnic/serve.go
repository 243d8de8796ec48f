// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/serve"
)

func newServe(g *global) *cobra.Command {
	var o serve.Options
	var n network
	var w watching
	var mac string
	var personality *personality
	cmd := &cobra.Command{
		Use:   "serve --socket PATH [--socket PATH2 …]",
		Short: "Serve cards to a QEMU of your own",
		Long: `Serves one card per socket, all of them on one Ethernet switch. The QEMU
arguments that attach each are printed on stderr; once every socket listens, the
line "ready" on stdout (on stderr with --pcap - or --events -). A QEMU that goes away
leaves its card in power-on state, ready for the next. SIGINT or SIGTERM removes the
sockets and ends with status 0, or with --check strict 3 if a driver made errors.

The ports of the switch are called card0, card1, … in the order of --socket, and
uplink0, uplink1, … in that of --uplink.

` + checkHelp,
		Example: `  vrnic serve --socket /tmp/card0 --control /tmp/control
  vrnic serve --socket /tmp/a --socket /tmp/b --pcap - | tshark -r -
  vrnic serve --socket /tmp/card0 --uplink tap:vrnic0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := g.logger()
			if err != nil {
				return err
			}
			o.Logger, o.Personality = logger, personality.Personality
			if o.Network, err = n.parse(len(o.Sockets)); err != nil {
				return err
			}
			if err := w.parse(&o); err != nil {
				return err
			}
			if n.pcap == stdout && w.events == stdout {
				return errors.New("--pcap - and --events -: stdout can be only one of them")
			}
			if cmd.Flags().Changed("mac") {
				if o.MACs, err = countMACs(mac, len(o.Sockets)); err != nil {
					return err
				}
			}
			h, err := startCards(cmd.Context(), o)
			if err != nil {
				return exitStatus{1, err}
			}
			defer h.Close()
			for _, s := range o.Sockets {
				if abs, err := filepath.Abs(s); err == nil {
					s = abs // QEMU may be started elsewhere
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "attach %s with:\n  %s\n", s, shellArgs(launch.AttachArgs([]string{s}, "1G")))
			}
			ready := cmd.OutOrStdout()
			if n.pcap == stdout || w.events == stdout {
				ready = cmd.ErrOrStderr()
			}
			fmt.Fprintln(ready, "ready")
			select {
			case <-cmd.Context().Done():
				h.Close()
				if err := w.tell(g, logger, h, ""); err != nil {
					return exitStatus{1, err}
				}
				if status := w.status(0, h.DriverErrors()); status != 0 {
					return exitStatus{status: status}
				}
				return nil
			case err := <-h.Errors():
				return exitStatus{1, err}
			}
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.Sockets, "socket", nil, "path of a vfio-user socket to listen on; one card each")
	f.StringVar(&o.Control, "control", "", "path of a socket that answers vrnic explain and vrnic ctl")
	f.StringVar(&mac, "mac", "", "MAC address of the first card; further ones count up (default: made from the sockets' paths)")
	n.flags(cmd)
	w.flags(cmd)
	personality = personalityFlag(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("socket"))
	return cmd
}

// startCards serves cards with half of the CPUs that the process may use, as the
// guests need them more: on two of them, iperf3 between two guests is faster by a
// tenth without a second thread that looks for work, and pingpong no slower.
func startCards(ctx context.Context, o serve.Options) (*serve.Host, error) {
	runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	return serve.Start(ctx, o)
}

// shellArgs joins arguments so that a shell takes them apart again.
func shellArgs(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n'\"{}[]*?$&|;<>()`~#!\\") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}
