// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"fmt"
	"strings"
)

// Width is the number of columns that text keeps to.
const Width = 80

// Text is the result for a person, in lines of at most Width columns.
func (r *Result) Text() string {
	var b strings.Builder
	name := 0
	for _, w := range r.Words {
		for _, f := range w.Fields {
			name = max(name, len(f.Name))
		}
	}
	fmt.Fprintln(&b, r.Name)
	if r.Source != "" {
		wrap(&b, "  ", r.Source)
	}
	for _, w := range r.Words {
		if r.bits == 32 {
			fmt.Fprintf(&b, "0x%08x\n", uint64(w.Value))
		} else {
			fmt.Fprintf(&b, "word %d (@%d) = 0x%016x\n", w.Index, 8*w.Index, uint64(w.Value))
		}
		for _, f := range w.Fields {
			wrap(&b, fmt.Sprintf("  %-5s  %-*s  ", span(f.Hi, f.Lo), name, f.Name), f.Text)
		}
		if w.Reserved != 0 {
			what := "bits %s are set and belong to no field"
			if w.Reserved&(w.Reserved-1) == 0 {
				what = "bit %s is set and belongs to no field"
			}
			wrap(&b, "  ! ", fmt.Sprintf(what, ranges(uint64(w.Reserved))))
		}
	}
	for _, n := range r.Notes {
		wrap(&b, "= ", n)
	}
	return b.String()
}

// wrap writes text behind a head, further lines below the text. What has no
// blank is cut where the line ends.
func wrap(b *strings.Builder, head, text string) {
	const least = 20 // columns for the text
	indent := len(head)
	if indent > Width-least {
		fmt.Fprintln(b, strings.TrimRight(head, " "))
		indent = 8
		head = strings.Repeat(" ", indent)
	}
	for {
		room := Width - indent
		if len(text) <= room {
			fmt.Fprintln(b, strings.TrimRight(head+text, " "))
			return
		}
		cut := strings.LastIndexByte(text[:room+1], ' ')
		if cut <= 0 {
			cut = room
		}
		fmt.Fprintln(b, strings.TrimRight(head+text[:cut], " "))
		text = strings.TrimLeft(text[cut:], " ")
		head = strings.Repeat(" ", indent)
	}
}
