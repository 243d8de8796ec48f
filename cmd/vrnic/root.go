// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/images"
	"github.com/vrnic/vrnic/serve"
)

// global are the flags that every subcommand has.
type global struct {
	logLevel, logFormat string
	cache               string
	mirror, keyring     string

	diagnostics *serve.LogWriter // to stderr; made with the first logger
}

func newRoot(g *global) *cobra.Command {
	root := &cobra.Command{
		Use:   "vrnic",
		Short: "A software RDMA network card for stock drivers in QEMU",
		Long: `vrnic models an Intel E810 network card behind vfio-user, so faithfully that
the stock Linux ice and irdma drivers and rdma-core run on it inside QEMU.

  vrnic run -- ibv_devinfo     boot a guest with a card and run a command in it
  vrnic serve --socket S       serve a card to a QEMU of your own`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&g.logLevel, "log-level", "", "least severe diagnostics to print: trace, debug, info, warn, error, off (default info; for the cards of vrnic run warn)")
	f.StringVar(&g.logFormat, "log-format", "text", "format of diagnostics: text or json")
	root.AddCommand(newServe(g), newRun(g), newImage(g), newExplain(), newDecode(), newCtl(), newRules(), newTest(g), newGuestSuite())
	return root
}

// version names the build: the module's version, or the commit it was made of.
func version() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := b.Main.Version
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	return v + " " + b.GoVersion
}

// logger makes the diagnostics logger, on stderr.
func (g *global) logger() (hclog.Logger, error) { return g.loggerAt("info") }

// loggerAt is logger with another level where the user names none.
func (g *global) loggerAt(byDefault string) (hclog.Logger, error) {
	if g.logLevel != "" {
		byDefault = g.logLevel
	}
	level := hclog.LevelFromString(byDefault)
	if level == hclog.NoLevel {
		return nil, fmt.Errorf("--log-level %q: want trace, debug, info, warn, error or off", g.logLevel)
	}
	if g.logFormat != "text" && g.logFormat != "json" {
		return nil, fmt.Errorf("--log-format %q: want text or json", g.logFormat)
	}
	o := &hclog.LoggerOptions{Name: "vrnic", Level: level, Output: os.Stderr, JSONFormat: g.logFormat == "json",
		DisableTime: g.logFormat == "text"}
	if g.diagnostics == nil {
		direct := hclog.New(o)
		g.diagnostics = serve.NewLogWriter(os.Stderr, func(lost uint64) {
			direct.Warn("diagnostics lost, nobody took them in time", "lines", lost)
		})
	}
	behind := *o
	behind.Output = g.diagnostics
	return hclog.New(&behind), nil
}

// flush writes the diagnostics that are still on their way.
func (g *global) flush() {
	if g.diagnostics != nil {
		g.diagnostics.Close()
	}
}

// cacheFlags adds the flags that say where images come from.
func (g *global) cacheFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.cache, "cache", "", "image cache directory (default $XDG_CACHE_HOME/vrnic)")
	f.StringVar(&g.mirror, "mirror", "", "Debian archive to fetch from (default: the one this machine's apt uses)")
	f.StringVar(&g.keyring, "keyring", "", "keyring that verifies the archive (default: this machine's)")
}

func (g *global) openCache(logger hclog.Logger) (*images.Cache, error) {
	o := images.Options{Dir: g.cache, Mirror: g.mirror, Keyring: g.keyring, Logger: logger}
	if o.Dir == "" {
		var err error
		if o.Dir, err = images.DefaultDir(); err != nil {
			return nil, err
		}
	}
	if isatty.IsTerminal(os.Stderr.Fd()) {
		o.Progress = os.Stderr
	}
	return images.Open(o)
}

// needsSubcommand is what a command does that only groups others.
func needsSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	known := strings.Join(names, ", ")
	if len(args) > 0 {
		return fmt.Errorf("%s: unknown command %q (known: %s)", cmd.CommandPath(), args[0], known)
	}
	return fmt.Errorf("%s needs a command: %s", cmd.CommandPath(), known)
}
