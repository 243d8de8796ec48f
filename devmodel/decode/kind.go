// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"fmt"
	"strings"
)

// Kind says how a field's value reads.
type Kind struct {
	Name string
	show func(v uint64) string
}

func (k Kind) text(v uint64) string { return k.show(v) }

// Kinds of plain numbers.
var (
	decimal = Kind{"number", func(v uint64) string { return fmt.Sprint(v) }}
	hexa    = Kind{"hexadecimal", func(v uint64) string { return fmt.Sprintf("%#x", v) }}
	flag    = Kind{"flag", func(v uint64) string { return fmt.Sprint(v) }}
	address = Kind{"address", func(v uint64) string { return fmt.Sprintf("%#x", v) }}
	quad    = Kind{"four bytes", func(v uint64) string {
		return fmt.Sprintf("0x%08x (%d.%d.%d.%d)", v, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}}
	mac = Kind{"MAC address", macText}
	// unused is a field that this generation's driver leaves 0.
	unused = Kind{"other generations'", func(v uint64) string {
		if v == 0 {
			return "0"
		}
		return fmt.Sprintf("%#x (not of this generation)", v)
	}}
)

func macText(v uint64) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// enum are values with names; the index is the value, "" one without.
func enum(names ...string) Kind {
	return Kind{"one of " + strings.Join(names, ", "), func(v uint64) string {
		if v < uint64(len(names)) && names[v] != "" {
			return fmt.Sprintf("%d %s", v, names[v])
		}
		return fmt.Sprintf("%d (has no name)", v)
	}}
}

// set are bits with names, from bit 0 on.
func set(names ...string) Kind {
	return Kind{"any of " + strings.Join(names, ", "), func(v uint64) string {
		var out []string
		for i, n := range names {
			if v>>i&1 != 0 {
				out = append(out, n)
			}
		}
		return strings.TrimSpace(fmt.Sprintf("%#x %s", v, strings.Join(out, " ")))
	}}
}

// scaled is a number that stands for another.
func scaled(what string, of func(v uint64) string) Kind {
	return Kind{what, func(v uint64) string { return fmt.Sprintf("%d (%s)", v, of(v)) }}
}

// shifted is the upper part of an address.
func shifted(n uint8) Kind {
	return Kind{"address", func(v uint64) string { return fmt.Sprintf("%#x", v<<n) }}
}
