// SPDX-License-Identifier: Apache-2.0

// Package decode names the raw words of a driver's log, of guest memory or of
// a register, field by field, by the kernel's names.
//
// Contract and traps:
//   - Formats and fields are data: a table row each. Where a unit of the model
//     has the table already (opcodes, registers) it is taken from there; bit
//     positions that units have in code are here once more, and the tests hold
//     both against what a driver writes.
//   - Words are 64 bits, numbered from 0, as drivers count them: word 3 of a
//     WQE is its header. Of most formats one word alone will do.
//   - Fields are those of the E810 (GEN_2) in the width of the newest kernel:
//     the bits above a narrower field are zero in older ones. A bit that is set
//     and belongs to no field is pointed out.
//   - What the driver does with a code is that of the newest kernel, in RoCE
//     mode.
package decode

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

// Field names bits Hi..Lo of a word.
type Field struct {
	// Name is the kernel's macro; in lower case where the kernel has none.
	Name   string
	Word   int
	Hi, Lo uint8
	Kind   Kind
}

// value is the field's bits in a word.
func (f *Field) value(w uint64) uint64 { return w >> f.Lo & mask(f.Hi-f.Lo) }

func (f *Field) mask() uint64 { return mask(f.Hi-f.Lo) << f.Lo }

// mask is n+1 ones.
func mask(n uint8) uint64 { return ^uint64(0) >> (63 - n) }

// Layout is one structure.
type Layout struct {
	Name   string // kernel name
	Source string // of the layout: kernel file:symbol
	Fields []Field
	// Notes says in a person's words what several fields mean together. May be
	// nil.
	Notes func(w *Words) []string
}

// Words are those of one structure that are known.
type Words struct {
	V     []uint64
	Known uint32 // bit per word
}

// Has tells whether all of the words are known.
func (w *Words) Has(index ...int) bool {
	for _, i := range index {
		if i >= len(w.V) || w.Known>>i&1 == 0 {
			return false
		}
	}
	return true
}

// Bits are bits hi..lo of word i; 0 if it is not known.
func (w *Words) Bits(i int, hi, lo uint8) uint64 {
	if !w.Has(i) {
		return 0
	}
	return w.V[i] >> lo & mask(hi-lo)
}

// Flag is a single bit.
func (w *Words) Flag(i int, bit uint8) bool { return w.Bits(i, bit, bit) != 0 }

// Format is a kind of raw data.
type Format struct {
	Name  string // as a person asks for it
	About string
	Words int // of one structure; at most 32
	// Header is the word that a single one is; -1: a single one needs to be
	// said which it is.
	Header int
	// Short tells that leading words alone will do as well.
	Short bool
	// Choose picks the layout.
	Choose func(w *Words) (*Layout, error)
	// Length, if not nil, is how many words the structure at the start of w
	// takes, at least 1 and at most Words.
	Length func(w []uint64) int
}

// Hex is a number that JSON has as a hexadecimal string: readers of JSON lose
// bits of large numbers.
type Hex uint64

// MarshalText gives the number in hexadecimal.
func (h Hex) MarshalText() ([]byte, error) { return []byte(fmt.Sprintf("%#x", uint64(h))), nil }

// UnmarshalText reads what MarshalText gives.
func (h *Hex) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 0, 64)
	*h = Hex(v)
	return err
}

// Result is one structure, decoded.
type Result struct {
	Format string   `json:"format"`
	Name   string   `json:"name"`
	Source string   `json:"source,omitempty"`
	Words  []Word   `json:"words"`
	Notes  []string `json:"notes,omitempty"`
	bits   int      // of a word
}

// Word is one word of a structure.
type Word struct {
	Index  int     `json:"index"`
	Value  Hex     `json:"value"`
	Fields []Value `json:"fields"`
	// Reserved are the bits that are set and belong to no field.
	Reserved Hex `json:"reserved"`
}

// Value is the value of a field.
type Value struct {
	Name  string `json:"name"`
	Hi    uint8  `json:"hi"`
	Lo    uint8  `json:"lo"`
	Value Hex    `json:"value"`
	Text  string `json:"text"` // as a person reads it
}

// Lookup finds a format by name.
func Lookup(name string) (*Format, bool) {
	for i := range formats {
		if formats[i].Name == name {
			return &formats[i], true
		}
	}
	return nil, false
}

// Formats lists what can be decoded.
func Formats() []Format { return append([]Format(nil), formats...) }

// Decode decodes every structure in the runs of words.
func (f *Format) Decode(runs []Run) ([]Result, error) {
	var out []Result
	for _, r := range runs {
		res, err := f.run(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		out = append(out, res...)
	}
	return out, nil
}

func (f *Format) run(r Run) ([]Result, error) {
	if len(r.Words) == 0 {
		return nil, fmt.Errorf("no words")
	}
	at := 0
	switch {
	case r.At > 0:
		if r.At%8 != 0 {
			return nil, fmt.Errorf("offset %#x is not that of a word", r.At)
		}
		at = r.At / 8 % f.Words
	case r.At < 0 && len(r.Words) == 1 && f.Words > 1:
		if f.Header < 0 {
			return nil, fmt.Errorf("one word of %d: say which, by its byte offset (--at)", f.Words)
		}
		at = f.Header
	}
	var out []Result
	for left := r.Words; len(left) > 0; {
		n := f.Words
		if f.Length != nil && at == 0 {
			n = f.Length(left)
		}
		partial := r.At >= 0 || at > 0 || f.Short
		take := min(n-at, len(left))
		if take < n-at && !partial {
			return nil, fmt.Errorf("%d words: want %s", len(r.Words), f.wanted())
		}
		w := Words{V: make([]uint64, max(n, at+take))}
		copy(w.V[at:], left[:take])
		w.Known = uint32(mask(uint8(take-1))) << at
		res, err := f.one(&w)
		if err != nil {
			return nil, err
		}
		out = append(out, res)
		left, at = left[take:], 0
	}
	return out, nil
}

func (f *Format) wanted() string {
	s := strconv.Itoa(f.Words) + ", or a multiple"
	if f.Length != nil {
		s = "all, in units of 4"
	}
	if f.Header >= 0 {
		s = "1 (word " + strconv.Itoa(f.Header) + ") or " + s
	}
	return s
}

func (f *Format) one(w *Words) (Result, error) {
	l, err := f.Choose(w)
	if err != nil {
		return Result{}, err
	}
	r := l.decode(w)
	r.Format = f.Name
	return r, nil
}

// decode names the fields of the known words, high bits first.
func (l *Layout) decode(w *Words) Result {
	r := Result{Name: l.Name, Source: l.Source, bits: 64}
	fields := slices.Clone(l.Fields)
	slices.SortStableFunc(fields, func(a, b Field) int { return cmp.Compare(b.Hi, a.Hi) })
	for i, v := range w.V {
		if !w.Has(i) {
			continue
		}
		word := Word{Index: i, Value: Hex(v), Fields: []Value{}}
		rest := v
		for _, f := range fields {
			if f.Word != i {
				continue
			}
			x := f.value(v)
			word.Fields = append(word.Fields, Value{f.Name, f.Hi, f.Lo, Hex(x), f.Kind.text(x)})
			rest &^= f.mask()
		}
		word.Reserved = Hex(rest)
		r.Words = append(r.Words, word)
	}
	if l.Notes != nil {
		r.Notes = l.Notes(w)
	}
	return r
}

// ranges names runs of bits that are set: "63:60 45".
func ranges(v uint64) string {
	s := ""
	for v != 0 {
		hi := 63 - bits.LeadingZeros64(v)
		lo := hi
		for lo > 0 && v>>(lo-1)&1 != 0 {
			lo--
		}
		if s != "" {
			s += " "
		}
		s += span(uint8(hi), uint8(lo))
		v &^= mask(uint8(hi-lo)) << lo
	}
	return s
}

func span(hi, lo uint8) string {
	if hi == lo {
		return strconv.Itoa(int(hi))
	}
	return fmt.Sprintf("%d:%d", hi, lo)
}
