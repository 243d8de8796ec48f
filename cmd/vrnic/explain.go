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

const explainLong = `Shows what the driver set up in a card of a running process (vrnic serve or
vrnic run, with --control), as the card holds it: nothing is changed in it. What
is said of guest memory is as it is now. Text keeps to 80 columns and abbreviates
what is alike; --json has everything.

Numbers may be decimal or, with 0x, hexadecimal. ADDRESS is as work requests name
it: a virtual address, or an offset if the region is zero based; LENGTH is 1 to
1048576 bytes, without it 1.
`

const explainExamples = `  vrnic explain --control /tmp/control qp 3
  vrnic explain --control /tmp/control mr 0x15400933 0x7f1234567f00 64 --bytes 64
  vrnic explain --control /tmp/control hmc 2
  vrnic explain --control /tmp/control regs 'GLINT_DYN_CTL(3)'
  vrnic explain --control /tmp/control --device 1 --json cq`

func newExplain() *cobra.Command {
	var (
		card   card
		asJSON bool
		bytesN uint32
	)
	cmd := &cobra.Command{
		Use:     "explain",
		Short:   "Show what the driver set up in a running card",
		Long:    explainLong,
		Example: explainExamples,
		RunE:    needsSubcommand,
	}
	card.flags(cmd)
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print data, all of it, instead of text")
	for _, e := range []struct {
		use, short string
		args       int
	}{
		{"hmc [INDEX]", "committed objects, segment and page descriptors; INDEX: one segment, what lies in it and who needs it", 1},
		{"regs [NAME]", "registers by their kernel names or offsets; without NAME those that differ from their reset value", 1},
		{"qp [N]", "queue pairs; N: one, with its context and the WQEs that are not completed", 1},
		{"cq [N]", "completion queues; N: one, with its arming, its users and the entries that are not read", 1},
		{"mr [STAG [ADDRESS [LENGTH]]]", "memory regions and windows; STAG: one, and where it lies; ADDRESS: the walk to guest memory, every word it reads", 3},
		{"cqp", "the control QP and the commands it executed last", 0},
		{"eq", "event queues: CEQs and the AEQ", 0},
		{"ah [INDEX]", "address handles", 1},
		{"arp [INDEX]", "the ARP table, and who sends by its entries", 1},
		{"stats [NAME]", "the counters that rdma statistic shows, by their kernel names", 1},
		{"mcast [INDEX]", "multicast groups and their members", 1},
		{"ws [NODE]", "the work scheduler's nodes, and the queue pairs on its leaves", 1},
		{"tables", "the small ones: accepted ports, quad hashes, push pages, statistics instances, user priorities", 0},
		{"ports [NAME]", "the switch that all cards share: what passed its ports, and what impairments did", 1},
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
				if r.What == "regs" && r.Name != "" {
					_, name, err := findRegister(registerTable(), r.Name)
					if err != nil {
						return exitStatus{1, err}
					}
					r.Name = name
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
		if sub.Name() == "regs" {
			sub.ValidArgsFunction = registerNames
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
