// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// samples are one figure per round.
type samples []float64

func (s samples) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// over divides round by round: what shook a round shook both sides.
func (s samples) over(t samples) samples {
	out := make(samples, min(len(s), len(t)))
	for i := range out {
		out[i] = s[i] / t[i]
	}
	return out
}

// rates turns nanoseconds per operation into operations per second.
func (s samples) rates() samples {
	out := make(samples, len(s))
	for i, v := range s {
		out[i] = 1e9 / v
	}
	return out
}

// figure is a row of the closing table.
type figure struct {
	name    string
	unit    string
	samples samples
	bound   bound
}

// bound is what the median must keep; the zero value asks for nothing.
type bound struct {
	atMost, atLeast float64
}

func (b bound) String() string {
	switch {
	case b.atMost != 0:
		return "≤ " + number(b.atMost)
	case b.atLeast != 0:
		return "≥ " + number(b.atLeast)
	}
	return "-"
}

func (f figure) missed() bool {
	m := f.samples.median()
	return len(f.samples) == 0 || f.bound.atMost != 0 && m > f.bound.atMost || f.bound.atLeast != 0 && m < f.bound.atLeast
}

func (f figure) result() string {
	switch {
	case f.missed():
		return "MISSED"
	case f.bound == bound{}:
		return "-"
	}
	return "passed"
}

// number shows three digits or more.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f million", v/1e6)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// writeTable writes the figures as a table that is readable as it is and as
// Markdown.
func writeTable(w io.Writer, figures []figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	row := func(cells ...string) { fmt.Fprintf(t, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	row("figure", "median", "min – max", "unit", "bound", "result")
	row("---", "---", "---", "---", "---", "---")
	for _, f := range figures {
		between := "-"
		if len(f.samples) > 0 {
			between = number(slices.Min(f.samples)) + " – " + number(slices.Max(f.samples))
		}
		row(f.name, number(f.samples.median()), between, f.unit, f.bound.String(), f.result())
	}
	return t.Flush()
}
