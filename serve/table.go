// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strings"
)

// width is the number of columns that text for people keeps to.
const width = 80

const (
	gap    = 2  // blanks between columns
	indent = 4  // of further lines of a record
	least  = 20 // columns that are worth to fill with the start of a long cell
)

// table renders records under a head, in lines of at most width columns. What
// does not fit goes to further lines of each record, and of the head; a cell
// that is longer than a line is wrapped.
func table(head []string, rows [][]string) string {
	widths := make([]int, len(head))
	for _, r := range append([][]string{head}, rows...) {
		for i, c := range r {
			widths[i] = max(widths[i], len(c))
		}
	}
	lines := layOut(widths)
	var b strings.Builder
	for _, r := range append([][]string{head}, rows...) {
		for n, columns := range lines {
			writeLine(&b, r, columns, widths, n > 0)
		}
	}
	return b.String()
}

// layOut tells which columns are on which line of a record.
func layOut(widths []int) (lines [][]int) {
	at := 0
	for i, w := range widths {
		switch {
		case i == 0:
			lines, at = [][]int{nil}, 0
		case at+gap+w <= width, i == len(widths)-1 && at+gap+least <= width && w > width-indent:
			at += gap
		default:
			lines, at = append(lines, nil), indent
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], i)
		at += w
	}
	return lines
}

func writeLine(b *strings.Builder, row []string, columns, widths []int, further bool) {
	at := 0
	if further {
		at = indent
	}
	line := strings.Repeat(" ", at)
	for n, i := range columns {
		if n > 0 {
			line += strings.Repeat(" ", gap)
		}
		if n == len(columns)-1 {
			wrap(b, line, row[i])
			return
		}
		line += fmt.Sprintf("%-*s", widths[i], row[i])
	}
}

// wrap writes text behind a head, further lines below it, broken at blanks
// or bars where there are some.
func wrap(b *strings.Builder, head, text string) {
	under := strings.Repeat(" ", len(head))
	for {
		room := max(width-len(under), 1)
		if len(text) <= room {
			fmt.Fprintln(b, strings.TrimRight(head+text, " "))
			return
		}
		cut := strings.LastIndexAny(text[:room], " |")
		if text[room] == ' ' {
			cut = room - 1
		}
		if cut <= 0 {
			cut = room - 1
		}
		fmt.Fprintln(b, strings.TrimRight(head+text[:cut+1], " "))
		text = strings.TrimLeft(text[cut+1:], " ")
		head = under
	}
}

// details renders one object: what is called how.
type details struct{ rows [][2]string }

func (d *details) add(label, format string, args ...any) {
	d.rows = append(d.rows, [2]string{label, fmt.Sprintf(format, args...)})
}

func (d *details) String() string {
	w := 0
	for _, r := range d.rows {
		w = max(w, len(r[0]))
	}
	var b strings.Builder
	for _, r := range d.rows {
		wrap(&b, fmt.Sprintf("%-*s  ", w, r[0]), r[1])
	}
	return b.String()
}

// names lists those of the names whose condition holds.
func names(all ...any) string {
	var out []string
	for i := 0; i+1 < len(all); i += 2 {
		if all[i+1].(bool) {
			out = append(out, all[i].(string))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, " ")
}
