// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/devmodel/check"
)

func newRules() *cobra.Command {
	return &cobra.Command{
		Use:   "rules [ID]",
		Short: "List what cards watch their drivers for, or say what one rule means",
		Long: `Lists the rules by which cards watch their drivers, one a line with its grade, or says
what the one called ID means: what the driver did, what the card did about it, what
the hardware would do, and which kernel function does it right. It is what
docs/rules.md has, which also says what no rule watches.

An error is what no correct driver can do. A warning is suspicious, or rests on
something that is only inferred about hardware. A note is what a program or a peer got
wrong, what a race can do, or what the card lacks.`,
		Example: `  vrnic rules | grep ' error '
  vrnic rules pd-stale`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if len(args) == 0 {
				for _, r := range check.Rules() {
					fmt.Fprintf(out, "%-22s %-8v %s\n", r.ID, r.Grade, r.Meaning)
				}
				return nil
			}
			r, ok := check.Find(args[0])
			if !ok {
				return fmt.Errorf("no rule %q: vrnic rules lists them", args[0])
			}
			return r.Write(out)
		},
	}
}
