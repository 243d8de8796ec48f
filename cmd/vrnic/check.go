// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/guest/wire"
	"github.com/vrnic/vrnic/serve"
)

// Values of --check.
const (
	checkOff    = "off"
	checkWarn   = "warn"
	checkStrict = "strict"
)

// watching are the flags that say how cards look at their drivers.
type watching struct{ check, events string }

func (w *watching) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.check, "check", checkWarn, `what to do about drivers' mistakes: off, warn (say them on stderr) or strict
(and end with status 3 for an error)`)
	f.StringVar(&w.events, "events", "", `write every event of every card to a file, a FIFO once it has a reader, or - for
stdout: JSON, one object a line; a reader that is slow loses some`)
}

// checkHelp is about --check, for the help of commands that have it.
const checkHelp = `The cards watch what their drivers do wrong and tell each mistake once per object;
they go on as the hardware would, whatever --check says. Those that no correct driver
can make (grade error) are told as they happen, suspicious ones (grade warning) with
--log-level debug. At the end comes a report that can be pasted into a mail. "vrnic
rules" lists the rules, "vrnic rules ID" says what one means.`

// parse checks the flags and puts them into o.
func (w *watching) parse(o *serve.Options) (err error) {
	if !slices.Contains([]string{checkOff, checkWarn, checkStrict}, w.check) {
		return fmt.Errorf("--check %q: want %s, %s or %s", w.check, checkOff, checkWarn, checkStrict)
	}
	o.Unchecked = w.check == checkOff
	o.Events, err = output("--events", w.events)
	return err
}

// status is the exit status of a command that ends with cmd, where cards found so
// many errors.
func (w *watching) status(cmd int, errors uint64) int {
	if cmd == 0 && w.check == checkStrict && errors > 0 {
		return statusFindings
	}
	return cmd
}

// shown is how many findings of a card the end of a command shows on stderr.
const shown = 20

// tell reports what was found: to the folder, unless empty, all of it; to the
// diagnostics errors, with a verbose logger warnings, and how many there are.
func (w *watching) tell(g *global, logger hclog.Logger, h *serve.Host, folder string) error {
	if w.check == checkOff {
		return nil
	}
	reports := h.Reports()
	var file string
	if folder != "" {
		var err error
		if file, err = writeFindings(folder, reports); err != nil {
			return err
		}
	}
	summary := check.Summary(reports...)
	if summary == "" {
		return nil
	}
	if g.logFormat != "text" {
		logger.Warn("the cards found "+summary, "report", file)
		return nil
	}
	level := check.Error
	if logger.IsDebug() {
		level = check.Warning
	}
	var out bytes.Buffer
	for _, r := range reports {
		if len(r.Findings) > shown {
			r.Findings = r.Findings[:shown]
		}
		before := out.Len()
		if err := r.Write(&out, level); err != nil {
			return err
		}
		if out.Len() > before {
			out.WriteByte('\n')
		}
	}
	fmt.Fprintf(&out, "vrnic: the cards found %s", summary)
	if file != "" {
		fmt.Fprintf(&out, ": see %s", file)
	}
	out.WriteByte('\n')
	_, err := g.diagnostics.Write(out.Bytes()) // after what was logged before
	return err
}

// writeFindings writes findings.txt, whose path it returns, and findings.json,
// also if there are none.
func writeFindings(folder string, reports []check.Report) (string, error) {
	var text bytes.Buffer
	for _, r := range reports {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		if err := r.Write(&text, check.Note); err != nil {
			return "", err
		}
	}
	if text.Len() == 0 {
		text.WriteString("nothing found\n")
	}
	data, err := json.MarshalIndent(reports, "", "  ")
	if err != nil {
		return "", fmt.Errorf("findings: %w", err)
	}
	file := filepath.Join(folder, "findings.txt")
	err = errors.Join(os.MkdirAll(folder, 0o777), os.WriteFile(file, text.Bytes(), 0o666),
		os.WriteFile(filepath.Join(folder, "findings.json"), append(data, '\n'), 0o666))
	if err != nil {
		return "", fmt.Errorf("findings: %w", err)
	}
	return file, nil
}

// describe passes on what a guest says of itself.
func describe(h *serve.Host, device int) func(kernel string, ready wire.Ready) {
	return func(kernel string, ready wire.Ready) {
		var modules []check.Module
		for _, m := range ready.Modules {
			modules = append(modules, check.Module(m))
		}
		h.Describe(device, kernel, modules)
	}
}
