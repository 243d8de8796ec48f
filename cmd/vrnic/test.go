// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/guest/launch"
	"github.com/vrnic/vrnic/guest/suite"
	"github.com/vrnic/vrnic/serve"
)

// statusTestFailed is the status of vrnic test where a case failed.
const statusTestFailed = 1

// runnerCommand is the hidden command that is the suite's half in a guest.
const runnerCommand = "guest-suite"

// testFlags are the flags of vrnic test.
type testFlags struct {
	runFlags
	junit string
	list  bool
	cases []*suite.Case
}

func newTest(g *global) *cobra.Command {
	t := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test [flags] [PATTERN…]",
		Short: "Boot a guest and test its drivers with the card",
		Long: `Boots a guest once and goes through a suite of cases in it, each of which shows
something of ice, irdma, rdma-core and the card with the stock programs. --list names
them. A PATTERN selects those whose names it matches, as a shell does ('verbs/*',
'*/ud*'); one without a slash is a group. Some need Python, for which guests get
--image pyverbs.

With --guests 2 what needs somebody to talk to talks to the second guest, else to
another program in the same. Cases that need what is not there are skipped.

stdout is KTAP (and so TAP), a line as soon as it is known: a group is a test, its cases
are the tests nested in it. A case fails when its program does, when that takes too long
or prints something else than it should, and when the guest's kernel warns. Before the
result of a case that failed come its output and the kernel's log, as lines with #;
before that of any case what the cards found while it ran. With --check strict there is
one test more, "findings", that fails if a driver made errors. With --artifacts DIR
what every case printed is in DIR/cases.

Exit status: 0 if nothing failed; 1 if a case did; 3 if with --check strict a driver made
errors and nothing else failed; 124 when --timeout ended the suite; 125 when a guest or
the machinery failed; 128+n when signal n ended vrnic; 2 for options that make no sense.

` + checkHelp,
		Example: `  vrnic test
  vrnic test --list
  vrnic test -k ~/linux -m ~/irdma --check strict --junit report.xml
  vrnic test --guests 2 --mtu 9000 verbs '*/ud*'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if t.cases, err = suite.Select(args...); err != nil {
				return err
			}
			if t.list {
				return list(cmd.OutOrStdout(), t.cases)
			}
			if t.verbose && g.logLevel == "" {
				g.logLevel = "debug"
			}
			logger, err := g.logger()
			if err != nil {
				return err
			}
			if t.extra == "" && slices.ContainsFunc(t.cases, func(c *suite.Case) bool { return c.Needs.Pyverbs }) {
				t.extra = "pyverbs"
			}
			c, err := t.config([]string{runnerCommand})
			if err != nil {
				return err
			}
			c.Logger = logger
			if t.junit != "" { // not after minutes
				if err := mayWrite(t.junit); err != nil {
					return fmt.Errorf("--junit: %w", err)
				}
			}
			if t.network.pcap == stdout || t.watching.events == stdout {
				return errors.New("--pcap - and --events -: stdout is for results; name a file or a FIFO")
			}
			var o serve.Options
			if o.Network, err = t.network.parse(t.guests); err != nil {
				return err
			}
			if err := t.watching.parse(&o); err != nil {
				return err
			}
			status, err := t.run(cmd.Context(), g, logger, c, o, t.suite(logger))
			if err != nil || status != 0 {
				return exitStatus{status, err}
			}
			return nil
		},
	}
	t.flags(cmd, g)
	cmd.ValidArgsFunction = completeCases
	f := cmd.Flags()
	f.StringVar(&t.junit, "junit", "", "write a JUnit report to this file, too")
	f.BoolVar(&t.list, "list", false, "say what there is, or what the patterns select, and boot nothing")
	f.Lookup("timeout").Usage = "how long the suite may run once guests have booted (0: for ever)"
	f.Lookup("env").Usage = "K=V: a variable in the cases' environment"
	return cmd
}

// completeCases is for shells.
func completeCases(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, _ := suite.Select() // without patterns nothing is wrong with them
	var out []cobra.Completion
	for _, c := range all {
		if group := c.Group(); !slices.Contains(out, group) {
			out = append(out, group)
		}
		out = append(out, cobra.CompletionWithDesc(c.Name, c.Shows))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// list prints names and what they are about.
func list(w io.Writer, cases []*suite.Case) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range cases {
		fmt.Fprintf(t, "%s\t%s\n", c.Name, c.Shows)
	}
	return t.Flush()
}

// suite returns what boots the guests and runs the cases in them.
func (t *testFlags) suite(logger hclog.Logger) runner {
	return func(ctx context.Context, c launch.Config, host *serve.Host, sockets []string) (launch.Result, error) {
		outcomes, err := t.inGuests(ctx, c, host, sockets)
		if t.junit != "" {
			why := "not run"
			if err != nil {
				why = err.Error()
			}
			if e := t.report(outcomes, why); e != nil {
				err = errors.Join(err, e)
			}
		}
		if err != nil {
			return launch.Result{}, err
		}
		failed := 0
		for _, o := range outcomes {
			if !o.OK {
				failed++
				logger.Error("failed", "case", o.Case.Name, "why", o.Why)
			}
		}
		if failed > 0 {
			return launch.Result{Status: statusTestFailed}, nil
		}
		return launch.Result{}, nil
	}
}

func (t *testFlags) report(outcomes []suite.Outcome, why string) error {
	f, err := os.Create(t.junit)
	if err != nil {
		return fmt.Errorf("JUnit report: %w", err)
	}
	return errors.Join(suite.WriteJUnit(f, t.cases, outcomes, why), f.Close())
}

// inGuests boots the guests, runs the cases and powers the guests off.
func (t *testFlags) inGuests(ctx context.Context, c launch.Config, host *serve.Host, sockets []string) ([]suite.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	machines, end, err := t.boot(ctx, c, host, sockets)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, m := range machines {
		defer m.Kill()
	}
	o := suite.Options{Cases: t.cases, MTU: max(t.mtu, defaultMTU), Out: c.Stdout, Strict: t.watching.check == checkStrict}
	var runners []*launch.Process
	for i, m := range machines {
		conn, p, err := t.startRunner(m)
		if err != nil {
			return nil, err
		}
		if len(machines) > 1 {
			conn.Name = fmt.Sprintf("guest%d", i)
		}
		runners = append(runners, p)
		o.Guests = append(o.Guests, conn)
		o.Env = append(o.Env, append(slices.Clone(t.env), t.peers(i)...))
	}
	if t.watching.check != checkOff {
		o.Findings = newFindings(host).fresh
	}
	if c.Artifacts != "" {
		o.Log = keepOutput(filepath.Join(c.Artifacts, "cases"))
	}
	if t.timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("%w after %v", launch.ErrTimeout, t.timeout))
		defer stop()
	}
	outcomes, err := suite.Run(ctx, o)
	if err != nil {
		return outcomes, because(ctx, runners, err)
	}
	for _, in := range o.Guests {
		_ = in.In.(io.Closer).Close() // which ends the runner
	}
	var wg sync.WaitGroup
	for _, m := range machines {
		wg.Go(func() {
			if err := m.Close(); err != nil {
				c.Logger.Warn("power off", "error", err)
			}
		})
	}
	wg.Wait()
	return outcomes, nil
}

// because replaces an error of a runner by why its guest has gone, if it has.
func because(ctx context.Context, runners []*launch.Process, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, p := range runners {
		short, cancel := context.WithTimeoutCause(ctx, endOfGuest, errRuns)
		_, why := p.Wait(short, 0)
		cancel()
		if why != nil && !errors.Is(why, errRuns) {
			return why
		}
	}
	return err
}

// endOfGuest is how long a guest that goes may take until it is known why.
const endOfGuest = 10 * time.Second

var errRuns = errors.New("the guest runs")

const defaultMTU = 1500 // of Ethernet, and of ice's netdevs

// boot boots one guest or two; end is for what is left of their output.
func (t *testFlags) boot(ctx context.Context, c launch.Config, host *serve.Host, sockets []string) ([]*launch.Machine, func(), error) {
	first := t.guest(c, 0, sockets)
	first.Booted = describe(host, 0)
	if t.guests == 1 {
		m, err := launch.Boot(ctx, first)
		return []*launch.Machine{m}, func() {}, err
	}
	second, end := t.second(c, host, sockets)
	a, b, err := launch.BootPair(ctx, first, second)
	if err != nil {
		end()
	}
	return []*launch.Machine{a, b}, end, err
}

// startRunner starts the suite's half in a guest.
func (t *testFlags) startRunner(m *launch.Machine) (*suite.Conn, *launch.Process, error) {
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	p, err := m.Start(launch.Command{Argv: []string{"/init", runnerCommand}, Stdin: stdin, Stdout: stdout, Stderr: os.Stderr})
	if err != nil {
		return nil, nil, err
	}
	go func() {
		select {
		case <-p.Exited():
		case <-m.Done():
		}
		in.Close()
		stdout.Close()
	}()
	return &suite.Conn{In: in, Out: out}, p, nil
}

// peers are the variables that name a guest's addresses and those of the one it talks
// to.
func (t *testFlags) peers(i int) (env []string) {
	// Servers are in the last guest.
	for name, guest := range map[string]int{"ME": i, "PEER": t.guests - 1} {
		for _, a := range t.addresses[guest] {
			if a.Addr().Is4() {
				env = append(env, name+"="+a.Addr().String())
			} else {
				env = append(env, name+"6="+a.Addr().String())
			}
		}
	}
	slices.Sort(env)
	return env
}

// findings tells what cards found from time to time.
type findings struct {
	host *serve.Host
	seen map[string]uint64 // how often, by device, rule and object
}

func newFindings(h *serve.Host) *findings { return &findings{h, map[string]uint64{}} }

// fresh is what was found since it was called last.
func (f *findings) fresh() (string, int) {
	var b strings.Builder
	var errors int
	for _, r := range f.host.Reports() {
		var fresh []check.Finding
		for _, x := range r.Findings {
			key := r.Device + "\x00" + x.Rule + "\x00" + x.Object
			if x.Count > f.seen[key] {
				f.seen[key] = x.Count
				fresh = append(fresh, x)
				if x.Grade == check.Error {
					errors++
				}
			}
		}
		r.Findings, r.Lost = fresh, 0
		_ = r.Write(&b, check.Warning) // to memory
	}
	return b.String(), errors
}

// keepOutput returns what writes a case's output into a file of its own.
func keepOutput(dir string) func(c *suite.Case, text string) error {
	return func(c *suite.Case, text string) error {
		file := filepath.Join(dir, strings.ReplaceAll(c.Name, "/", "-")+".txt")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("artifacts: %w", err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			return fmt.Errorf("artifacts: %w", err)
		}
		return nil
	}
}

// newGuestSuite is the command that runs in a guest, on request of vrnic test.
func newGuestSuite() *cobra.Command {
	return &cobra.Command{
		Use:    runnerCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return suite.Serve(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
