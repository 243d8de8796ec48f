// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Width is how many columns a report has at most: it survives being quoted in a
// mail.
const Width = 75

// Module is a kernel module of the guest, and what tells its builds apart: the
// hash of its source, which not every kernel keeps, and the linker's build id.
type Module struct {
	Name       string `json:"name"`
	SrcVersion string `json:"srcversion,omitempty"`
	BuildID    string `json:"build_id,omitempty"`
}

func (m Module) String() string {
	s := m.Name
	if m.SrcVersion != "" {
		s += ", srcversion " + m.SrcVersion
	}
	if m.BuildID != "" {
		s += ", build id " + m.BuildID
	}
	return s
}

// Report is what was found about one device's driver, with what a reader
// elsewhere has to know of the guest.
type Report struct {
	Device string `json:"device"`
	// Personality of the device; empty for the default one.
	Personality string    `json:"personality,omitempty"`
	Kernel      string    `json:"kernel,omitempty"` // release
	Modules     []Module  `json:"modules,omitempty"`
	Errors      int       `json:"errors"`
	Warnings    int       `json:"warnings"`
	Notes       int       `json:"notes"`
	Lost        uint64    `json:"lost,omitempty"` // beyond what is kept
	Findings    []Finding `json:"findings"`       // the worst first
}

// Report is what there is to say now. The caller names the device, and adds what
// it knows of the guest.
func (c *Checker) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{Kernel: c.kernel, Lost: c.lost, Findings: c.list(Note)}
	for _, f := range r.Findings {
		switch f.Grade {
		case Error:
			r.Errors++
		case Warning:
			r.Warnings++
		case Note:
			r.Notes++
		}
	}
	return r
}

// Summary counts errors and warnings, as "2 errors, 1 warning"; empty for none.
func Summary(reports ...Report) string {
	var errors, warnings int
	for _, r := range reports {
		errors, warnings = errors+r.Errors, warnings+r.Warnings
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{errors, "error"}, {warnings, "warning"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.what)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Write writes the findings of grade min and above as text of at most Width
// columns; nothing if there are none.
func (r Report) Write(w io.Writer, min Grade) error {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Grade < min {
			continue
		}
		if b.Len() == 0 {
			r.heading(&b)
		}
		f.write(&b)
	}
	if r.Lost > 0 && b.Len() > 0 {
		fmt.Fprintf(&b, "\n%d more were not kept.\n", r.Lost)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) heading(b *strings.Builder) {
	model := "a model of Intel E810"
	if r.Personality != "" {
		model += ", personality " + r.Personality
	}
	item(b, "", "device", fmt.Sprintf("%s (vrnic, %s)", r.Device, model))
	if r.Kernel != "" {
		item(b, "", "kernel", r.Kernel)
	}
	for _, m := range r.Modules {
		item(b, "", "module", m.String())
	}
}

func (f Finding) write(b *strings.Builder) {
	b.WriteByte('\n')
	title := fmt.Sprintf("%v[%s] %s", f.Grade, f.Rule, f.Object)
	if f.Count > 1 {
		title += fmt.Sprintf(", %d times", f.Count)
	}
	wrap(b, title, "", "  ")
	rule, ok := Find(f.Rule)
	if ok {
		wrap(b, rule.Meaning, "  ", "  ")
	}
	const in = "  "
	item(b, in, "seen", f.Detail)
	for i, step := range f.Walk {
		name := "walk"
		if i > 0 {
			name = ""
		}
		item(b, in, name, step)
	}
	if f.Command != "" {
		item(b, in, "after", f.Command)
	}
	if !ok {
		return
	}
	item(b, in, "device", rule.Device)
	item(b, in, "E810", rule.Hardware)
	if rule.Driver != "-" {
		item(b, in, "look at", SourcePath(rule.Driver))
	}
}

// SourcePath puts the kernel's folder before a rule's Driver.
func SourcePath(driver string) string {
	if strings.HasPrefix(driver, "ice_") {
		return "drivers/net/ethernet/intel/ice/" + driver
	}
	return "drivers/infiniband/hw/irdma/" + driver
}

// item writes a named line, continued below its text.
func item(b *strings.Builder, indent, name, text string) {
	if name != "" {
		name += ":"
	}
	first := fmt.Sprintf("%s%-9s", indent, name)
	wrap(b, text, first, strings.Repeat(" ", len(first)))
}

// wrap writes text in lines of at most Width columns, the first after first,
// the others after rest. A word that is longer than a line is cut. Some text is
// a guest's own; a terminal is not to obey it.
func wrap(b *strings.Builder, text, first, rest string) {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return '?'
		}
		return r
	}, text)
	line, empty := first, true
	flush := func() {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
		line, empty = rest, true
	}
	for _, word := range strings.Fields(text) {
		for {
			space := 1
			if empty {
				space = 0
			}
			room := Width - columns(line) - space
			if columns(word) <= room {
				line += strings.Repeat(" ", space) + word
				empty = false
				break
			}
			if !empty {
				flush()
				continue
			}
			cut := 0
			for range room {
				_, n := utf8.DecodeRuneInString(word[cut:])
				cut += n
			}
			line, word, empty = line+word[:cut], word[cut:], false
			flush()
		}
	}
	flush()
}

func columns(s string) int { return utf8.RuneCountInString(s) }
