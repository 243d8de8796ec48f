// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// personality is the value of --personality. Its help is printed before
// anything else is looked at or done.
type personality struct {
	hmc.Personality
	help bool
	of   string // the one to print, instead of a list
}

// personalityHelp is what to say for it.
const personalityHelp = "help"

func personalityFlag(cmd *cobra.Command) *personality {
	p := &personality{Personality: hmc.Personalities()[0]}
	cmd.Flags().Var(p, "personality", `objects that cards offer and where they lie: NAME, or FILE in JSON;
help lists the names, help:NAME prints one as a file to start from`)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !p.help {
			return nil
		}
		if err := p.print(cmd.OutOrStdout()); err != nil {
			return err
		}
		return exitStatus{}
	}
	return p
}

// Set implements pflag.Value.
func (p *personality) Set(s string) error {
	s, of, one := strings.Cut(s, personalityHelp+":")
	if one && s == "" {
		s = of
	} else if p.help = s == personalityHelp; p.help {
		return nil
	}
	loaded, err := hmc.LoadPersonality(s)
	if err != nil {
		return err
	}
	if p.Personality = loaded; one {
		p.help, p.of = true, s
	}
	return nil
}

func (p *personality) String() string { return p.Name }

// Type implements pflag.Value.
func (p *personality) Type() string { return "NAME|FILE" }

func (p *personality) print(w io.Writer) error {
	if p.of != "" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p.Personality)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range hmc.Personalities() {
		fmt.Fprintf(t, "%s\t%s\n", k.Name, k.About)
	}
	return t.Flush()
}
