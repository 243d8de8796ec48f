// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"io"
	"strings"
)

// Write writes a row of the catalogue as text of at most Width columns.
func (r Rule) Write(w io.Writer) error {
	var b strings.Builder
	wrap(&b, fmt.Sprintf("%s (%s)", r.ID, r.kind()), "", "  ")
	const in = "  "
	item(&b, in, "driver", r.Meaning)
	item(&b, in, "device", r.Device)
	item(&b, in, "E810", r.Hardware)
	if r.Driver != "-" {
		item(&b, in, "look at", SourcePath(r.Driver))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// kind is the grade, or that the device is to blame.
func (r Rule) kind() string {
	if r.Gap {
		return "note: the device lacks it"
	}
	return r.Grade.String()
}

// Catalogue writes all rows as a page in Markdown.
func Catalogue(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`<!-- Generated from devmodel/check by "go test ./devmodel/check -update"; do not edit. -->

# What the cards watch their drivers for

Each row is a rule of ` + "`devmodel/check`" + `. A finding names its rule, the object it is about
and what was seen; further ones of the same rule and object are only counted. An
*error* is what no correct driver can do, and rests on nothing that is only inferred
about hardware. A *warning* is suspicious, or rests on an inference. A *note* is worth
knowing: what an application or a peer got wrong, what a race in a correct driver can
do, or what the device lacks.

"Driver" is what the driver did, "device" what this one did about it, "E810" what the
hardware does, as far as drivers tell; "inferred" where they do not. "Look at" is the
kernel function that does it right: of ` + "`drivers/net/ethernet/intel/ice`" + ` where
the file is called ` + "`ice_*`" + `, else of ` + "`drivers/infiniband/hw/irdma`" + `. Names are those of
Linux 6.12; a few are others, or elsewhere, before and after.

Rules whose name ends in ` + "`-app`" + ` are for what user programs and peers do; the same by a
kernel's own QP is an error.
`)
	for _, u := range units {
		fmt.Fprintf(&b, "\n## %s\n\n| rule | grade | driver | device | E810 | look at |\n|---|---|---|---|---|---|\n", u.title)
		for _, r := range u.rules {
			driver := "-"
			if r.Driver != "-" {
				driver = "`" + r.Driver + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.ID, r.kind(), cell(r.Meaning), cell(r.Device), cell(r.Hardware), driver)
		}
	}
	writeUnwatched(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is text in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
