// SPDX-License-Identifier: Apache-2.0

// Package reg is the register table engine: a device's MMIO space described
// as rows of data, one per kernel register name, and dispatched from them.
//
// A unit of the device contributes rows (Row) whose handlers close over the
// unit. The engine stores values, applies access kinds and write masks, calls
// handlers, resets by domain, decodes for people, and counts coverage.
//
// Contract and traps:
//   - The engine does no locking: the device's control lock is held by the
//     caller around every method.
//   - On a write the engine stores the (masked) value first and then calls
//     Row.Write with the raw value written, so a handler sees both.
//   - On a read Row.Read, where present, overrides the stored value.
//   - Registers are 32 bits wide. Eight-byte accesses are two dwords, low
//     first, which is atomic because of the caller's lock; that is how the
//     driver reads 40-bit statistics.
//   - Offsets that no row names behave as plain storage, which the stock
//     drivers tolerate everywhere, and are reported as Unknown events. Their
//     storage is bounded by the size of the space.
package reg

import (
	"fmt"
	"sort"
	"strings"
	"sync/atomic"
)

// Access says what reads and writes do before any handler is asked.
type Access uint8

// Access kinds.
const (
	RW    Access = iota // plain storage
	RO                  // writes change nothing (handlers are still called)
	RCW1S               // reading clears, writing ones sets those bits
	W1C                 // writing ones clears those bits
)

func (a Access) String() string { return [...]string{"RW", "RO", "RC/W1S", "W1C"}[a] }

// Domain orders the resets of the device from the weakest to the strongest.
// A row names the weakest reset that puts it back to its reset value; every
// stronger one does too.
type Domain uint8

// Reset domains, weakest first.
const (
	PFR   Domain = iota // PFGEN_CTRL.PFSWR
	FLR                 // PCI function level reset
	CORER               // GLGEN_RTRIG.CORER
	GLOBR               // GLGEN_RTRIG.GLOBR
	EMPR                // embedded processor (firmware) reset
	POR                 // power-on; also the bus's device reset and a new client
)

func (d Domain) String() string {
	return [...]string{"PFR", "FLR", "CORER", "GLOBR", "EMPR", "POR"}[d]
}

// Field names bits Hi..Lo of a register, for decoding.
type Field struct {
	Name   string
	Hi, Lo uint8
}

// Row describes one register, or an array of registers of one kernel name.
type Row struct {
	Name   string // kernel name without its index, e.g. "GLINT_DYN_CTL"
	Offset uint32 // BAR offset of element 0; a multiple of 4
	// N elements Stride bytes apart; N <= 1 is a single register. With M > 1
	// each of the N is again an array of M elements, Stride2 bytes apart, and
	// the index handlers see is n*M + m.
	N       int
	Stride  uint32
	M       int
	Stride2 uint32

	Reset    uint32
	Domain   Domain
	Access   Access
	Mask     uint32 // writable bits; 0 means all of them
	Fields   []Field
	Source   string // where the fact comes from: kernel file:symbol
	Inferred bool   // the behaviour is not stated by any driver source

	// Cells, if set, is given the storage of this row when it is added.
	Cells *Cells
	// Read, if set, computes the value of element i (not of a RCW1S row).
	Read func(i int) uint32
	// Write, if set, is called after storing, with the raw value written.
	Write func(i int, v uint32)
}

func (r *Row) count() int { return max(r.N, 1) * max(r.M, 1) }

// label is the kernel's name of element i.
func (r *Row) label(i int) string {
	switch {
	case r.M > 1:
		return fmt.Sprintf("%s(%d,%d)", r.Name, i/r.M, i%r.M)
	case r.N > 1:
		return fmt.Sprintf("%s(%d)", r.Name, i)
	}
	return r.Name
}

// Cells is a unit's handle on the stored values of one row. Its methods are
// atomic, so a unit may use them without the control lock.
type Cells struct{ v []uint32 }

// Get returns the stored value of element i.
func (c *Cells) Get(i int) uint32 { return atomic.LoadUint32(&c.v[i]) }

// Set stores the value of element i; no handler runs.
func (c *Cells) Set(i int, v uint32) { atomic.StoreUint32(&c.v[i], v) }

// Or sets bits of element i; no handler runs.
func (c *Cells) Or(i int, bits uint32) { atomic.OrUint32(&c.v[i], bits) }

// take returns element i and clears it.
func (c *Cells) take(i int) uint32 { return atomic.SwapUint32(&c.v[i], 0) }

// update replaces bits under mask in element i.
func (c *Cells) update(i int, mask, v uint32) {
	for {
		old := c.Get(i)
		if atomic.CompareAndSwapUint32(&c.v[i], old, old&^mask|v&mask) {
			return
		}
	}
}

// Len is the number of elements.
func (c *Cells) Len() int { return len(c.v) }

// Unknown is the event of an access to an offset that no row names.
type Unknown struct {
	Offset uint32
	Value  uint32
	Write  bool
}

func (u Unknown) String() string {
	if u.Write {
		return fmt.Sprintf("write of %#08x to unknown register %#06x", u.Value, u.Offset)
	}
	return fmt.Sprintf("read of unknown register %#06x", u.Offset)
}

// BadAccess is the event of an access whose width or alignment the device
// does not take: it is dropped (writes) or answered from the dword (reads).
type BadAccess struct {
	Offset uint64
	Size   int
	Write  bool
}

func (b BadAccess) String() string {
	verb := "read"
	if b.Write {
		verb = "write"
	}
	return fmt.Sprintf("%s of %d bytes at register offset %#x: not a whole dword", verb, b.Size, b.Offset)
}

// block is one row with its storage and use counts.
type block struct {
	Row
	cells         Cells
	reads, writes uint64
}

// segment is a run of equally spaced elements of one block.
type segment struct {
	start, end uint32 // [start, end) in bytes
	stride     uint32
	first      int // flat index of the element at start
	b          *block
}

const (
	pageShift = 12
	pageWords = 1 << (pageShift - 2)
)

// Space is one register BAR.
type Space struct {
	size   uint64
	blocks []*block
	byName map[string]*block
	// pages lists, per 4 KiB, the segments that touch it.
	pages   [][]segment
	unnamed []*[pageWords]uint32
	emit    func(any)
}

// NewSpace makes a space of size bytes (a multiple of 4 KiB) from rows. It
// panics on a table that contradicts itself: that is a programming error.
// emit receives Unknown and BadAccess events; nil drops them.
func NewSpace(size uint64, emit func(any), rows ...[]Row) *Space {
	if emit == nil {
		emit = func(any) {}
	}
	s := &Space{
		size:    size,
		byName:  map[string]*block{},
		pages:   make([][]segment, size>>pageShift),
		unnamed: make([]*[pageWords]uint32, size>>pageShift),
		emit:    emit,
	}
	for _, set := range rows {
		for _, r := range set {
			s.add(r)
		}
	}
	for _, segs := range s.pages {
		sort.Slice(segs, func(i, j int) bool { return segs[i].start < segs[j].start })
	}
	return s
}

func (s *Space) add(r Row) {
	if s.byName[r.Name] != nil {
		panic("reg: two rows named " + r.Name)
	}
	b := &block{Row: r}
	b.cells.v = make([]uint32, r.count())
	for i := range b.cells.v {
		b.cells.v[i] = r.Reset
	}
	if r.Cells != nil {
		*r.Cells = b.cells
	}
	s.blocks = append(s.blocks, b)
	s.byName[r.Name] = b
	if r.M > 1 {
		for n := 0; n < max(r.N, 1); n++ {
			s.addSegment(b, r.Offset+uint32(n)*r.Stride, r.M, r.Stride2, n*r.M)
		}
		return
	}
	s.addSegment(b, r.Offset, max(r.N, 1), r.Stride, 0)
}

func (s *Space) addSegment(b *block, start uint32, n int, stride uint32, first int) {
	if n == 1 {
		stride = 4
	}
	end := start + uint32(n-1)*stride + 4
	if start%4 != 0 || stride%4 != 0 || stride == 0 || uint64(end) > s.size {
		panic(fmt.Sprintf("reg: row %s does not fit: %#x..%#x stride %d", b.Name, start, end, stride))
	}
	seg := segment{start: start, end: end, stride: stride, first: first, b: b}
	for p := start >> pageShift; p <= (end-1)>>pageShift; p++ {
		s.pages[p] = append(s.pages[p], seg)
	}
}

// Overlaps returns an error if a dword belongs to two rows. It looks at every
// element, which takes milliseconds: a check for tests of a whole table.
func (s *Space) Overlaps() error {
	owner := map[uint32]string{}
	for _, b := range s.blocks {
		for i := range b.cells.v {
			off := b.offset(i)
			if o, dup := owner[off]; dup {
				return fmt.Errorf("registers %s and %s share offset %#x", o, b.label(i), off)
			}
			owner[off] = b.label(i)
		}
	}
	return nil
}

func (b *block) offset(i int) uint32 {
	if b.M > 1 {
		return b.Offset + uint32(i/b.M)*b.Stride + uint32(i%b.M)*b.Stride2
	}
	return b.Offset + uint32(i)*b.Stride
}

// find returns the block and flat index that own the dword at off.
func (s *Space) find(off uint32) (*block, int) {
	for _, g := range s.pages[off>>pageShift] {
		if off < g.start || off >= g.end {
			continue
		}
		if d := off - g.start; d%g.stride == 0 {
			return g.b, g.first + int(d/g.stride)
		}
	}
	return nil, 0
}

// Size of the space in bytes.
func (s *Space) Size() uint64 { return s.size }

// Read fills p from offset off, which together lie inside the space.
func (s *Space) Read(off uint64, p []byte) {
	if off%4 != 0 || len(p)%4 != 0 {
		s.emit(BadAccess{Offset: off, Size: len(p)})
		for i := range p {
			a := off + uint64(i)
			p[i] = byte(s.peek(uint32(a&^3)) >> (8 * (a & 3)))
		}
		return
	}
	for i := 0; i < len(p); i += 4 {
		v := s.Read32(uint32(off) + uint32(i))
		p[i], p[i+1], p[i+2], p[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
}

// Write takes p to offset off, which together lie inside the space.
func (s *Space) Write(off uint64, p []byte) {
	if off%4 != 0 || len(p)%4 != 0 {
		s.emit(BadAccess{Offset: off, Size: len(p), Write: true})
		return
	}
	for i := 0; i < len(p); i += 4 {
		v := uint32(p[i]) | uint32(p[i+1])<<8 | uint32(p[i+2])<<16 | uint32(p[i+3])<<24
		s.Write32(uint32(off)+uint32(i), v)
	}
}

// Read32 reads the dword at off with all its side effects.
func (s *Space) Read32(off uint32) uint32 {
	b, i := s.find(off)
	if b == nil {
		s.emit(Unknown{Offset: off})
		return s.plain(off)
	}
	b.reads++
	switch {
	case b.Access == RCW1S:
		return b.cells.take(i)
	case b.Row.Read != nil:
		return b.Row.Read(i)
	}
	return b.cells.Get(i)
}

// peek is Read32 without side effects.
func (s *Space) peek(off uint32) uint32 {
	b, i := s.find(off)
	if b == nil {
		return s.plain(off)
	}
	return b.value(i)
}

func (b *block) value(i int) uint32 {
	if b.Row.Read != nil && b.Access != RCW1S {
		return b.Row.Read(i)
	}
	return b.cells.Get(i)
}

// Write32 writes the dword at off with all its side effects.
func (s *Space) Write32(off, v uint32) {
	b, i := s.find(off)
	if b == nil {
		s.emit(Unknown{Offset: off, Value: v, Write: true})
		p := s.unnamed[off>>pageShift]
		if p == nil {
			if v == 0 {
				return
			}
			p = new([pageWords]uint32)
			s.unnamed[off>>pageShift] = p
		}
		p[off>>2&(pageWords-1)] = v
		return
	}
	b.writes++
	mask := b.Mask
	if mask == 0 {
		mask = ^uint32(0)
	}
	switch b.Access {
	case RW:
		b.cells.update(i, mask, v)
	case RCW1S:
		b.cells.Or(i, v&mask)
	case W1C:
		b.cells.update(i, v&mask, 0)
	}
	if b.Row.Write != nil {
		b.Row.Write(i, v)
	}
}

func (s *Space) plain(off uint32) uint32 {
	if p := s.unnamed[off>>pageShift]; p != nil {
		return p[off>>2&(pageWords-1)]
	}
	return 0
}

// Reset puts every register whose domain is d or weaker back to its reset
// value. No handler runs: units reset their own state beside it. Registers
// without a row are of the core reset's domain.
func (s *Space) Reset(d Domain) {
	for _, b := range s.blocks {
		if b.Domain <= d {
			for i := range b.cells.v {
				if b.cells.Get(i) != b.Row.Reset { // most are: a load is far cheaper
					b.cells.Set(i, b.Row.Reset)
				}
			}
		}
	}
	if d >= CORER {
		clear(s.unnamed)
	}
}

// Value is one register as a person reads it.
type Value struct {
	Name   string // kernel name with its index
	Offset uint32
	Value  uint32
	Fields []Field
	Reads  uint64 // of the whole row
	Writes uint64
}

// Lookup returns the register called name (as the kernel writes it, without
// an index), without side effects. Of an array only the elements that differ
// from their reset value are returned. An unknown name gives nil, false.
func (s *Space) Lookup(name string) ([]Value, bool) {
	b := s.byName[name]
	if b == nil {
		return nil, false
	}
	if len(b.cells.v) == 1 {
		return []Value{b.describe(0)}, true
	}
	return b.changed(), true
}

// Element returns one element by its label, "GLINT_DYN_CTL(3)".
func (s *Space) Element(label string) (Value, bool) {
	name, _, _ := strings.Cut(label, "(")
	b := s.byName[name]
	if b == nil {
		return Value{}, false
	}
	for i := range b.cells.v {
		if b.label(i) == label {
			return b.describe(i), true
		}
	}
	return Value{}, false
}

// Changed returns every register that differs from its reset value, in order
// of offset.
func (s *Space) Changed() []Value {
	vals := []Value{}
	for _, b := range s.blocks {
		vals = append(vals, b.changed()...)
	}
	sort.Slice(vals, func(i, j int) bool { return vals[i].Offset < vals[j].Offset })
	return vals
}

func (b *block) changed() []Value {
	vals := []Value{}
	for i := range b.cells.v {
		if b.value(i) != b.Row.Reset {
			vals = append(vals, b.describe(i))
		}
	}
	return vals
}

func (b *block) describe(i int) Value {
	return Value{b.label(i), b.offset(i), b.value(i), b.Fields, b.reads, b.writes}
}

// Rows returns the table, in order of offset, for documents and tests.
func (s *Space) Rows() []Row {
	rows := make([]Row, len(s.blocks))
	for i, b := range s.blocks {
		rows[i] = b.Row
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Offset < rows[j].Offset })
	return rows
}
