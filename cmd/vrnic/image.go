// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/images"
)

func newImage(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Fetch and list QEMU, kernels and userland",
		Long: `The images that guests are made of come from the packages of the Debian
distribution, fetched once into a cache; afterwards vrnic works offline. No root
is needed and nothing on this machine is changed.`,
		RunE: needsSubcommand,
	}
	build := &cobra.Command{
		Use:   "build [NAME…]",
		Short: "Fetch or refresh images; all that guests need without NAME",
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := g.images()
			if err != nil {
				return err
			}
			if err := c.Build(cmd.Context(), names...); err != nil {
				return exitStatus{1, err}
			}
			return nil
		},
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the images in the cache",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.images()
			if err != nil {
				return err
			}
			entries, err := c.List(cmd.Context())
			if err != nil {
				return exitStatus{1, err}
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tVERSION\tSIZE\tPATH")
			for _, e := range entries {
				fmt.Fprintf(w, "%s\t%s\t%.1f MiB\t%s\n", e.Name, e.Version, float64(e.Size)/(1<<20), e.Path)
			}
			return w.Flush()
		},
	}
	path := &cobra.Command{
		Use:   "path NAME",
		Short: "Print the path of an image in the cache",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.images()
			if err != nil {
				return err
			}
			p, err := c.Path(args[0])
			if err != nil {
				return exitStatus{1, err}
			}
			fmt.Fprintln(cmd.OutOrStdout(), p)
			return nil
		},
	}
	for _, c := range []*cobra.Command{build, list, path} {
		g.cacheFlags(c)
		cmd.AddCommand(c)
	}
	return cmd
}

// images opens the cache with the tool's own logger.
func (g *global) images() (*images.Cache, error) {
	logger, err := g.logger()
	if err != nil {
		return nil, err
	}
	c, err := g.openCache(logger)
	if err != nil {
		return nil, exitStatus{1, err}
	}
	return c, nil
}
