// SPDX-License-Identifier: Apache-2.0

package guestmem

// chunkMax is how many regions a chunk has at most: a change copies one chunk
// and the list of chunks, so that neither 65535 maps make it slow nor a few
// make the search long.
const chunkMax = 256

// table is the maps of one moment. It is never changed; a change makes a new
// one that shares most of its parts. A nil table is an empty one.
type table struct {
	era    *era
	count  int
	chunks []chunk // none is empty, and all are sorted
}

// chunk is a run of regions, disjoint and sorted by start.
type chunk struct {
	starts  []uint64
	regions []*region
}

// place is where a region is, or belongs: chunk c, in front of its region i.
type place struct{ c, i int }

func (t *table) len() int {
	if t == nil {
		return 0
	}
	return t.count
}

func (t *table) all() (all []*region) {
	if t == nil {
		return nil
	}
	for _, c := range t.chunks {
		all = append(all, c.regions...)
	}
	return all
}

// behind returns the place behind the last region that starts at or below
// iova.
func (t *table) behind(iova uint64) place {
	lo, hi := 0, len(t.chunks)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); t.chunks[mid].starts[0] <= iova {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return place{}
	}
	c := lo - 1
	starts := t.chunks[c].starts
	lo, hi = 0, len(starts)
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); starts[mid] <= iova {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return place{c, lo}
}

// find returns the region that holds iova and the place behind it; nil if
// there is none.
func (t *table) find(iova uint64) (*region, place) {
	if t == nil {
		return nil, place{}
	}
	p := t.behind(iova)
	if p.i == 0 {
		return nil, p
	}
	r := t.chunks[p.c].regions[p.i-1]
	if iova > r.last() {
		return nil, p
	}
	return r, p
}

// next returns the region at p and the place behind it; nil at the end.
func (t *table) next(p place) (*region, place) {
	if p.c < len(t.chunks) && p.i == len(t.chunks[p.c].regions) {
		p = place{p.c + 1, 0}
	}
	if p.c >= len(t.chunks) {
		return nil, p
	}
	return t.chunks[p.c].regions[p.i], place{p.c, p.i + 1}
}

// place returns where a region of range rg belongs, and whether nothing
// overlaps it.
func (t *table) place(rg Range) (place, bool) {
	if t == nil {
		return place{}, true
	}
	before, p := t.find(rg.start)
	after, _ := t.next(p)
	return p, before == nil && (after == nil || !after.overlaps(rg))
}

// insert returns the table with r at its place.
func (t *table) insert(p place, r *region) *table {
	if t == nil {
		return &table{era: &era{}, count: 1, chunks: []chunk{{[]uint64{r.start}, []*region{r}}}}
	}
	old := t.chunks[p.c]
	grown := chunk{make([]uint64, 0, len(old.starts)+1), make([]*region, 0, len(old.starts)+1)}
	grown.starts = append(append(append(grown.starts, old.starts[:p.i]...), r.start), old.starts[p.i:]...)
	grown.regions = append(append(append(grown.regions, old.regions[:p.i]...), r), old.regions[p.i:]...)
	parts := []chunk{grown}
	if n := len(grown.starts); n > chunkMax {
		// Maps mostly come in rising order: leave the first part nearly full.
		cut := n / 2
		if p.i == n-1 {
			cut = n - n/8
		}
		parts = []chunk{{grown.starts[:cut:cut], grown.regions[:cut:cut]}, {grown.starts[cut:], grown.regions[cut:]}}
	}
	return &table{era: t.era, count: t.count + 1, chunks: splice(t.chunks, p.c, p.c+1, parts...)}
}

// remove returns the table, of a new era, without the regions inside rg, and
// these; or the region that rg cuts.
func (t *table) remove(rg Range) (next *table, dropped []*region, cut *region) {
	if t == nil || rg.size == 0 {
		return t, nil, nil
	}
	first, from := t.find(rg.start)
	switch {
	case first != nil && (first.start < rg.start || first.last() > rg.last()):
		return nil, nil, first
	case first != nil:
		from.i--
	}
	last, to := t.find(rg.last())
	if last != nil && last.last() > rg.last() {
		return nil, nil, last
	}
	for p := from; p.c <= to.c; p = (place{p.c + 1, 0}) {
		end := len(t.chunks[p.c].regions)
		if p.c == to.c {
			end = to.i
		}
		dropped = append(dropped, t.chunks[p.c].regions[p.i:max(p.i, end)]...)
	}
	if len(dropped) == 0 {
		return t, nil, nil
	}
	if len(dropped) == t.count {
		return nil, dropped, nil
	}
	head, tail := t.chunks[from.c], t.chunks[to.c]
	rest := chunk{
		append(append([]uint64(nil), head.starts[:from.i]...), tail.starts[to.i:]...),
		append(append([]*region(nil), head.regions[:from.i]...), tail.regions[to.i:]...),
	}
	var parts []chunk
	begin, end := from.c, to.c+1
	switch n := len(rest.starts); {
	case n == 0:
	case n > chunkMax:
		parts = []chunk{{rest.starts[: n/2 : n/2], rest.regions[: n/2 : n/2]}, {rest.starts[n/2:], rest.regions[n/2:]}}
	default:
		// Join small neighbours, or the list of chunks would only grow.
		if begin > 0 && len(t.chunks[begin-1].starts)+n <= chunkMax/2 {
			begin--
			b := t.chunks[begin]
			rest.starts = append(append([]uint64(nil), b.starts...), rest.starts...)
			rest.regions = append(append([]*region(nil), b.regions...), rest.regions...)
		}
		if end < len(t.chunks) && len(t.chunks[end].starts)+len(rest.starts) <= chunkMax/2 {
			rest.starts = append(rest.starts, t.chunks[end].starts...)
			rest.regions = append(rest.regions, t.chunks[end].regions...)
			end++
		}
		parts = []chunk{rest}
	}
	return &table{era: &era{}, count: t.count - len(dropped), chunks: splice(t.chunks, begin, end, parts...)}, dropped, nil
}

// splice returns a copy of list with parts in place of list[from:to].
func splice(list []chunk, from, to int, parts ...chunk) []chunk {
	out := make([]chunk, 0, len(list)-(to-from)+len(parts))
	return append(append(append(out, list[:from]...), parts...), list[to:]...)
}
