// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/serve"
)

func newExplain() *cobra.Command {
	var (
		card   card
		asJSON bool
		bytesN uint32
	)
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what the driver set up in a running card",
		RunE:  needsSubcommand,
	}
	card.flags(cmd)
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print data instead of a table")
	for _, e := range []struct {
		use, short string
		args       int
	}{
		{"hmc [INDEX]", "committed objects, segment and page descriptors; INDEX shows one segment", 1},
		{"regs [NAME]", "registers by their kernel names; without NAME those that differ from their reset value", 1},
		{"qp [N]", "queue pairs", 1},
		{"cq [N]", "completion queues", 1},
		{"mr [STAG [ADDRESS [LENGTH]]]", "memory regions; with ADDRESS the walk to guest memory, every word it reads", 3},
		{"findings", "what the driver did wrong so far", 0},
	} {
		sub := &cobra.Command{
			Use:   e.use,
			Short: e.short,
			Args:  cobra.MaximumNArgs(e.args),
			RunE: func(cmd *cobra.Command, args []string) error {
				r := serve.Request{Device: card.device, What: cmd.Name(), Bytes: bytesN}
				for i, field := range []*string{&r.Name, &r.Address, &r.Length}[:len(args)] {
					*field = args[i]
				}
				// A walk that fails comes with what it found.
				resp, err := serve.Ask(cmd.Context(), card.control, r)
				if err := show(cmd.OutOrStdout(), resp, asJSON); err != nil {
					return exitStatus{1, err}
				}
				if err != nil {
					return exitStatus{1, err}
				}
				return nil
			},
		}
		if e.args == 3 {
			sub.Flags().Uint32Var(&bytesN, "bytes", 0, "also print this many bytes of guest memory from ADDRESS on")
		}
		cmd.AddCommand(sub)
	}
	return cmd
}

func show(w io.Writer, r serve.Response, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprint(w, r.Text)
		return err
	}
	if r.Data == nil {
		return nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, r.Data, "", "  "); err != nil {
		return fmt.Errorf("answer of the control socket: %w", err)
	}
	_, err := fmt.Fprintln(w, out.String())
	return err
}
