// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/vrnic/vrnic/guest/suite/ktap"
)

// Options say what Run does.
type Options struct {
	Cases  []*Case
	Guests []*Conn    // one or two
	Env    [][]string // of each guest: ME, ME6, PEER, PEER6
	MTU    int        // of the netdevs
	Out    io.Writer  // gets KTAP

	// Findings returns what the cards found since it was called last, as text, and
	// how many errors of drivers are among it. nil: nobody looks.
	Findings func() (text string, errors int)
	// Strict makes errors of drivers a test of their own, the last.
	Strict bool
	// Log, if set, gets everything that a case's scripts wrote.
	Log func(c *Case, text string) error

	grace time.Duration // of servers; 0: defaultGrace
}

// Outcome is how one case ended.
type Outcome struct {
	Case *Case
	ktap.Result
	Why      string // not ok: in a line
	Details  string // not ok: output and kernel log
	Findings string // of the cards, while it ran
	Took     time.Duration
}

// findingsTest is the name of the test that Options.Strict adds.
const findingsTest = "findings"

// Run runs cases in their order and writes how each ended as soon as it has. It
// returns those that were run; an error means that a guest or the output failed,
// and that the rest was not.
func Run(ctx context.Context, o Options) ([]Outcome, error) {
	if o.grace == 0 {
		o.grace = defaultGrace
	}
	used := map[string]int{}
	var order []string
	for _, c := range o.Cases {
		if g := c.Group(); used[g] == 0 {
			order = append(order, g)
		}
		used[c.Group()]++
	}
	tests := len(order)
	if o.Strict {
		tests++
	}
	top := ktap.NewWriter(o.Out, tests)
	r := &run{o: o}
	err := r.groups(ctx, top, order, used)
	if err != nil {
		top.BailOut(strings.SplitN(err.Error(), "\n", 2)[0])
		return r.outcomes, err
	}
	if o.Strict {
		text, errors := r.findings()
		top.Diagnostic(text)
		errors += r.errors
		result := ktap.Result{OK: errors == 0, Name: findingsTest}
		if errors > 0 {
			result.Text = fmt.Sprintf("errors of drivers: %d", errors)
		}
		top.Result(result)
	}
	return r.outcomes, top.Err()
}

type run struct {
	o        Options
	outcomes []Outcome
	errors   int // of drivers
}

func (r *run) groups(ctx context.Context, top *ktap.Writer, order []string, used map[string]int) error {
	for _, g := range r.o.Guests {
		if err := g.open(ctx); err != nil {
			return err
		}
	}
	for _, group := range order {
		w := top.Nested(used[group])
		ok, all := true, true
		for _, c := range r.o.Cases {
			if c.Group() != group {
				continue
			}
			out, err := r.one(ctx, c)
			if err != nil {
				w.Diagnostic(fmt.Sprintf("%s: %v", c.Name, err))
				return err
			}
			r.outcomes = append(r.outcomes, out)
			tell(w, out)
			if err := w.Err(); err != nil {
				return err
			}
			ok, all = ok && out.OK, all && out.Directive == ktap.Skip
		}
		result := ktap.Result{OK: ok, Name: group}
		if all {
			result.Directive, result.Text = ktap.Skip, "all of it"
		}
		top.Result(result)
	}
	return nil
}

// tell writes one case.
func tell(w *ktap.Writer, out Outcome) {
	w.Diagnostic(out.Findings)
	if !out.OK {
		w.Diagnostic(out.Why)
		w.Diagnostic(out.Details)
	}
	w.Result(out.Result)
}

// one runs one case.
func (r *run) one(ctx context.Context, c *Case) (Outcome, error) {
	out := Outcome{Case: c, Result: ktap.Result{Name: c.Short()}}
	if why := c.Needs.missing(len(r.o.Guests), r.o.MTU); why != "" {
		out.Result = ktap.Result{OK: true, Name: c.Short(), Directive: ktap.Skip, Text: why}
		return out, nil
	}
	begin := time.Now()
	script, server, err := scripts(ctx, c, r.o.Guests, r.o.Env, r.o.grace)
	if err != nil {
		return out, err
	}
	out.Took = time.Since(begin)
	judge(&out, script, server, r.o.grace)

	details := []section{{"output", script.Output}}
	if server != nil {
		details = append(details, section{"server's output", server.Output})
	}
	for _, g := range r.o.Guests {
		log, wrong, err := g.kernel(ctx)
		if err != nil {
			return out, err
		}
		if len(wrong) > 0 {
			out.OK, out.Directive = false, ktap.None
			out.Why = strings.TrimPrefix(out.Why+"; ", "; ") + "the kernel complained: " + wrong[0]
		}
		details = append(details, section{"kernel log " + g.Name, strings.Join(log, "\n")})
	}
	if r.o.Log != nil {
		if err := r.o.Log(c, text(details, 0)); err != nil {
			return out, err
		}
	}
	if !out.OK {
		out.Details = text(details, shownLines)
	}
	found, errors := r.findings()
	out.Findings = found
	r.errors += errors
	return out, nil
}

func (r *run) findings() (string, int) {
	if r.o.Findings == nil {
		return "", 0
	}
	return r.o.Findings()
}

// judge says what the ends of a case's scripts mean.
func judge(out *Outcome, script reply, server *reply, grace time.Duration) {
	c := out.Case
	fail := func(format string, args ...any) { out.Why = fmt.Sprintf(format, args...) }
	switch {
	case server != nil && server.Error != "":
		fail("the server could not be started: %s", server.Error)
	case server != nil && server.NotReady && server.Status == skipped:
		skip(out, server.Output)
	case server != nil && server.NotReady && server.Expired:
		out.Directive, out.Text = ktap.Timeout, c.limit().String()
		fail("the server was not ready within %v", c.limit())
	case server != nil && server.NotReady:
		fail("the server ended with status %d before anybody could talk to it", server.Status)
	case script.Error != "":
		fail("it could not be started: %s", script.Error)
	case script.Expired:
		out.Directive, out.Text = ktap.Timeout, c.limit().String()
		fail("it did not end within %v", c.limit())
	case script.Status == skipped:
		skip(out, script.Output)
	case script.Status != 0:
		fail("status %d", script.Status)
	case server != nil && server.Expired:
		out.Directive, out.Text = ktap.Timeout, c.limit().String()
		fail("the server did not end within %v", c.limit())
	case server != nil && server.Stopped && !c.ServerStays:
		fail("the server did not end within %v after its client", grace)
	case server != nil && server.Status != 0 && !c.ServerStays:
		fail("the server ended with status %d", server.Status)
	default:
		missing := lacks(script.Output, c.Want)
		who := "the output"
		if missing == "" && server != nil {
			missing, who = lacks(server.Output, c.WantServer), "the server's output"
		}
		if missing != "" {
			fail("%s does not match %q", who, missing)
			return
		}
		out.OK = true
	}
}

func skip(out *Outcome, output string) {
	out.OK, out.Directive = true, ktap.Skip
	for line := range strings.Lines(output) {
		if why, ok := strings.CutPrefix(line, skipMark); ok {
			out.Text = why
		}
	}
}

// lacks returns the first of the expressions that a text does not match.
func lacks(text string, want []string) string {
	for _, w := range want {
		if !regexp.MustCompile("(?m)" + w).MatchString(text) {
			return w
		}
	}
	return ""
}

type section struct{ title, text string }

// shownLines is how many lines of an output a diagnostic has at most.
const shownLines = 60

// text joins sections, the ends of long ones only if there is a limit.
func text(sections []section, limit int) string {
	var b strings.Builder
	for _, s := range sections {
		lines := strings.Split(strings.TrimRight(s.text, "\n"), "\n")
		if lines[0] == "" && len(lines) == 1 {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", strings.TrimRight(s.title, " "))
		if over := len(lines) - limit; limit > 0 && over > 0 {
			fmt.Fprintf(&b, "  (%d lines before)\n", over)
			lines = lines[over:]
		}
		for _, l := range lines {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	return b.String()
}
