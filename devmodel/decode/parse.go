// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Run are words that follow each other. At is the byte offset of the first, or
// -1 if nothing tells it.
type Run struct {
	At    int
	Words []uint64
}

// dumpLine is a line of the kernel's print_hex_dump, whatever is before the
// offset or, of 16 digits, address; of xxd, of gdb's x and of crash's rd, too.
var dumpLine = regexp.MustCompile(`([0-9a-fA-F]{16}|[0-9a-fA-F]{8}|^\s*[0-9a-fA-F]{4,7}):\s+(\S.*)$`)

// canonical is a line of hexdump -C.
var canonical = regexp.MustCompile(`^\s*([0-9a-fA-F]{8})  (.*)$`)

// maxInput bounds what is read.
const maxInput = 1 << 20

// Parse reads words as people have them: hexadecimal numbers of up to 64 bits,
// with 0x or without, separated by blanks, commas or colons, also as a list of
// JSON's strings; or lines of a dump with the offset of each, in groups of 8 bytes or 4, which are numbers,
// or of single bytes. Bytes are little endian. Lines of a dump that follow
// each other make one run; offset 0 begins a new one.
func Parse(text string) ([]Run, error) {
	if len(text) > maxInput {
		return nil, fmt.Errorf("more than %d bytes of text", maxInput)
	}
	var runs []Run
	base := uint64(0) // address of the first line, where lines have addresses
	for _, line := range strings.Split(text, "\n") {
		at, tokens, dump := split(line, &base)
		if len(tokens) == 0 {
			continue
		}
		words, err := numbers(tokens, dump)
		if err != nil {
			return nil, err
		}
		last := len(runs) - 1
		switch {
		case last >= 0 && at > 0 && runs[last].At >= 0 && runs[last].At+8*len(runs[last].Words) == at:
			runs[last].Words = append(runs[last].Words, words...)
		case last >= 0 && at < 0 && runs[last].At < 0:
			runs[last].Words = append(runs[last].Words, words...)
		default:
			runs = append(runs, Run{at, words})
		}
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("no words")
	}
	return runs, nil
}

// split separates a line's tokens from the offset before them. Addresses count
// from base, the first of them.
func split(line string, base *uint64) (at int, tokens []string, dump bool) {
	at = -1
	m := dumpLine.FindStringSubmatch(line)
	if m == nil {
		if m = canonical.FindStringSubmatch(line); m != nil && !hexBytes(strings.Fields(cutText(m[2]))) {
			m = nil
		}
	}
	if m != nil {
		digits := strings.TrimSpace(m[1])
		n, err := strconv.ParseUint(digits, 16, 64)
		const address = 16 // digits
		if len(digits) == address {
			if *base == 0 || n < *base {
				*base = n
			}
			n -= *base
		}
		if err == nil && n < maxInput {
			at, line, dump = int(n), cutText(m[2]), true
		}
	}
	between := " \t\r,:;"
	if !dump {
		between += `[]"'` // JSON, as of events
	}
	return at, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(between, r) }), dump
}

// cutText removes the characters that a dump shows behind the bytes.
func cutText(s string) string {
	s, _, _ = strings.Cut(s, "|")
	if i := strings.Index(s, "  "); i > 0 { // xxd
		if tail := strings.Fields(s[i:]); len(tail) > 0 && !hexNumbers(tail) {
			s = s[:i]
		}
	}
	return s
}

func hexNumbers(tokens []string) bool {
	for _, t := range tokens {
		if _, err := strconv.ParseUint(strings.TrimPrefix(t, "0x"), 16, 64); err != nil {
			return false
		}
	}
	return true
}

func hexBytes(tokens []string) bool {
	for _, t := range tokens {
		if len(t) != 2 || strings.Trim(strings.ToLower(t), "0123456789abcdef") != "" {
			return false
		}
	}
	return len(tokens) > 0
}

// numbers makes words of a line's tokens.
func numbers(tokens []string, dump bool) ([]uint64, error) {
	if hexBytes(tokens) && (dump || len(tokens) >= 8) {
		raw, err := hex.DecodeString(strings.Join(tokens, ""))
		if err != nil {
			return nil, err
		}
		if len(raw)%8 != 0 {
			return nil, fmt.Errorf("%d bytes: want a multiple of 8", len(raw))
		}
		var words []uint64
		for ; len(raw) > 0; raw = raw[8:] {
			words = append(words, binary.LittleEndian.Uint64(raw))
		}
		return words, nil
	}
	halves := dump
	var words []uint64
	for _, t := range tokens {
		digits := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(t, "0x"), "0X"), "_", "")
		v, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no hexadecimal number of at most 64 bits", t)
		}
		if dump && len(digits) != 8 && len(digits) != 16 {
			return nil, fmt.Errorf("%q in a dump: want groups of 16, 8 or 2 digits", t)
		}
		halves = halves && len(digits) == 8
		words = append(words, v)
	}
	if !halves {
		return words, nil
	}
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("%d groups of 8 digits: want an even number", len(words))
	}
	for i := 0; i < len(words); i += 2 {
		words[i/2] = words[i] | words[i+1]<<32
	}
	return words[:len(words)/2], nil
}
