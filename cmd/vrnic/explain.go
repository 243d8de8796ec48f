// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/serve"
)

func newExplain(g *global) *cobra.Command {
	var (
		control string
		device  int
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what the driver set up in a running card",
		RunE:  needsSubcommand,
	}
	p := cmd.PersistentFlags()
	p.StringVar(&control, "control", "", "control socket of the serving process")
	p.IntVar(&device, "device", 0, "which of its cards, counted from 0")
	p.BoolVar(&asJSON, "json", false, "print data instead of a table")
	cobra.CheckErr(cmd.MarkPersistentFlagRequired("control"))
	for _, e := range []struct{ use, short string }{
		{"hmc [INDEX]", "committed objects, segment and page descriptors; INDEX shows one segment"},
		{"regs [NAME]", "registers by their kernel names; without NAME those that differ from their reset value"},
		{"qp [N]", "queue pairs"},
		{"cq [N]", "completion queues"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   e.use,
			Short: e.short,
			Args:  cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				r := serve.Request{Device: device, What: cmd.Name()}
				if len(args) > 0 {
					r.Name = args[0]
				}
				resp, err := serve.Ask(cmd.Context(), control, r)
				if err != nil {
					return exitStatus{1, err}
				}
				if !asJSON {
					fmt.Fprint(cmd.OutOrStdout(), resp.Text)
					return nil
				}
				var out bytes.Buffer
				if err := json.Indent(&out, resp.Data, "", "  "); err != nil {
					return exitStatus{1, fmt.Errorf("answer of the control socket: %w", err)}
				}
				fmt.Fprintln(cmd.OutOrStdout(), out.String())
				return nil
			},
		})
	}
	return cmd
}
