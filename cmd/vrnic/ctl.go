// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/fabric"
	"github.com/vrnic/vrnic/serve"
)

// card names a card of a running process.
type card struct {
	control string
	device  int
}

func (c *card) flags(cmd *cobra.Command) {
	p := cmd.PersistentFlags()
	p.StringVar(&c.control, "control", "", "control socket of the serving process")
	p.IntVar(&c.device, "device", 0, "which of its cards, counted from 0")
	cobra.CheckErr(cmd.MarkPersistentFlagRequired("control"))
}

func newCtl() *cobra.Command {
	var card card
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "Do something to a running card from outside",
		RunE:  needsSubcommand,
	}
	card.flags(cmd)
	for _, c := range []struct {
		use, short, long string
		args             []string
	}{
		{"link up|down", "Plug the cable in, or pull it", "", []string{"up", "down"}},
		{"reset corer|globr|empr", "Reset the whole card, as another function of it can",
			`Resets the whole card, as another of its functions or its management firmware
can: core, global, or embedded-processor reset. The driver is told by the GRST
interrupt and has to rebuild. The command returns once the reset has begun.`, []string{"corer", "globr", "empr"}},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:       c.use,
			Short:     c.short,
			Long:      c.long,
			ValidArgs: c.args,
			Args: func(cmd *cobra.Command, args []string) error {
				if len(args) != 1 || !slices.Contains(c.args, args[0]) {
					return fmt.Errorf("%s: want one of %s", strings.Join(append([]string{cmd.Name()}, args...), " "), strings.Join(c.args, ", "))
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				r := serve.Request{Device: card.device, What: cmd.Name(), Name: args[0]}
				if _, err := serve.Ask(cmd.Context(), card.control, r); err != nil {
					return exitStatus{1, err}
				}
				return nil
			},
		})
	}
	cmd.AddCommand(newImpair(&card))
	return cmd
}

// newImpair changes what all cables do.
func newImpair(c *card) *cobra.Command {
	return &cobra.Command{
		Use:   "impair [SPEC]...",
		Short: "Change what the cables do to frames",
		Long: `Replaces the rules of --impair, for all ports of the switch, by those given; without
one the cables are perfect. What was held back is lost, counters begin at 0: they are
what explain ports shows.`,
		Example: `  vrnic ctl --control /tmp/control impair loss=1%,reorder=1% delay=2ms,port=card1
  vrnic ctl --control /tmp/control impair`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, spec := range args {
				if _, err := fabric.ParseImpair(spec); err != nil {
					return exitStatus{1, err}
				}
			}
			r := serve.Request{What: cmd.Name(), Name: strings.Join(args, " ")}
			if _, err := serve.Ask(cmd.Context(), c.control, r); err != nil {
				return exitStatus{1, err}
			}
			return nil
		},
	}
}
