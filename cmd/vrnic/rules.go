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
		Args:  cobra.MaximumNArgs(1),
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
