// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma"
)

// MR is an STag in data form: a memory region or a window.
type MR struct {
	STag     uint32 `json:"stag"`
	Index    uint32 `json:"index"` // in the table
	Kind     string `json:"kind"`
	State    string `json:"state"`
	By       string `json:"by"` // the operation that made it so
	PD       uint32 `json:"pd"`
	Start    uint64 `json:"start"`  // virtual address, or offset in the first page
	Length   uint64 `json:"length"` // 0: all of memory
	VABased  bool   `json:"va_based"`
	Level    string `json:"level"`
	PageSize uint64 `json:"page_size"`
	Pages    uint64 `json:"pages"`
	Base     uint64 `json:"base"` // contiguous: guest address of the first page
	First    uint32 `json:"first_pble"`
	PBLEs    uint64 `json:"pbles"` // from First on; of two levels: of the root
	Rights   string `json:"rights"`
	Remote   bool   `json:"remote"`
	Shared   bool   `json:"shared"`
	Limit    uint64 `json:"limit,omitempty"`  // bytes that a fast registration may name
	Parent   uint32 `json:"parent,omitempty"` // of a bound window: its region
	QP       uint32 `json:"qp,omitempty"`     // of a bound window of type 2: who may use it

	// Bound are the windows that are bound to the region.
	Bound []uint32 `json:"bound,omitempty"`
	// Memory is what an STag asked for alone stands for, in order of address,
	// as far as maxShown bytes go; MemoryError says why that is not all.
	Memory      []Piece `json:"memory,omitempty"`
	MemoryError string  `json:"memory_error,omitempty"`
}

// PBLE is a page buffer list entry that a walk read.
type PBLE struct {
	Role   string `json:"role"` // "root" or "page"
	Index  uint32 `json:"index"`
	FPM    uint64 `json:"fpm"`
	SD     uint32 `json:"sd"`
	SDAddr uint64 `json:"sd_address"` // of its 2 MiB, or of its page descriptors
	Paged  bool   `json:"paged"`
	PD     uint32 `json:"pd,omitempty"`        // paged, as what follows
	PDAt   uint64 `json:"pd_at,omitempty"`     // guest address of the page descriptor
	PDVal  uint64 `json:"pd_value,omitempty"`  // as the device uses it
	PDNow  uint64 `json:"pd_memory,omitempty"` // as memory has it
	Kept   bool   `json:"kept,omitempty"`      // the device uses a copy it had
	Stale  bool   `json:"stale,omitempty"`     // which differs from memory
	At     uint64 `json:"at"`                  // guest address of the entry; 0: not reached
	Value  uint64 `json:"value"`
}

// Piece is a piece of guest memory.
type Piece struct {
	Address uint64 `json:"address"`
	Length  uint64 `json:"length"`
}

// Walk is the way from an STag to guest memory in data form.
type Walk struct {
	MR     *MR     `json:"mr,omitempty"`
	Parent *MR     `json:"parent,omitempty"` // the region of a window
	TO     uint64  `json:"to"`
	Length uint32  `json:"length"`
	PBLEs  []PBLE  `json:"pbles"`
	Pieces []Piece `json:"pieces"`
	Bytes  string  `json:"bytes,omitempty"` // hexadecimal
}

func newMR(e *mr.Entry, slot uint32) MR {
	m := MR{STag: e.STag(), Index: e.Index & slot, Kind: e.Kind.String(), State: e.State.String(), By: e.By.String(), PD: e.PD,
		Start: e.Start, Length: e.Length, VABased: e.VABased, Level: e.Level.String(), PageSize: 1 << e.PageShift, Pages: pages(e),
		Base: e.Base, First: e.First, PBLEs: listed(e), Rights: e.Rights.String(), Remote: e.Remote, Shared: e.Shared, Limit: e.Limit,
		Parent: e.Parent, QP: e.QP}
	return m
}

// pages is the number of pages under a region; 0 for all of memory.
func pages(e *mr.Entry) uint64 {
	if e.Length == 0 {
		return 0
	}
	size := uint64(1) << e.PageShift
	return (e.Start&(size-1) + e.Length + size - 1) >> e.PageShift
}

// listed is the number of PBLEs that a region's first one begins.
func listed(e *mr.Entry) uint64 {
	switch e.Level {
	case mr.Flat:
		return pages(e)
	case mr.TwoLevel:
		return (pages(e) + 511) / 512
	}
	return 0
}

// region tells whether the entry has memory of its own.
func (m *MR) region() bool { return m.Kind == mr.Memory.String() }

// memory says where a region's pages are named.
func (m *MR) memory() string {
	switch {
	case !m.region() && m.Parent == 0:
		return "not bound"
	case !m.region():
		return fmt.Sprintf("in 0x%08x", m.Parent)
	case m.State != mr.Valid.String():
		return "-"
	case m.Level == mr.Contiguous.String():
		return fmt.Sprintf("at %#x", m.Base)
	}
	return fmt.Sprintf("PBLE %d", m.First)
}

// shortRights are the rights as a column has them.
func (m *MR) shortRights() string {
	s := strings.NewReplacer("LOCAL_READ", "LR", "LOCAL_WRITE", "LW", "REMOTE_READ", "RR", "REMOTE_WRITE", "RW", "BIND_WINDOW", "B").Replace(m.Rights)
	if m.Remote {
		s += ", remote"
	}
	return s
}

func mrTable(regions []MR) string {
	rows := [][]string{}
	for _, m := range regions {
		length, based := fmt.Sprintf("%#x", m.Length), "zero"
		if m.Length == 0 {
			length = "all"
		}
		if m.VABased {
			based = "VA"
		}
		level, size := m.Level, sizeText(m.PageSize)
		if !m.region() {
			level, size = "-", "-"
		}
		rows = append(rows, []string{fmt.Sprintf("0x%08x", m.STag), m.Kind, m.State, fmt.Sprint(m.PD), fmt.Sprintf("%#x", m.Start), length, based,
			level, size, m.memory(), m.shortRights()})
	}
	return table([]string{"STAG", "KIND", "STATE", "PD", "START", "LENGTH", "BASED", "LIST", "PAGES", "MEMORY", "RIGHTS"}, rows)
}

func sizeText(n uint64) string {
	switch n {
	case 1 << 12:
		return "4K"
	case 1 << 21:
		return "2M"
	case 1 << 30:
		return "1G"
	}
	return fmt.Sprintf("%#x", n)
}

func explainMR(d *devmodel.Device, r Request) (string, any, error) {
	stag, one, err := index(r.Name)
	if err != nil {
		return "", nil, err
	}
	if r.Address != "" {
		return explainWalk(d, stag, r)
	}
	if r.Bytes > 0 {
		return "", nil, fmt.Errorf("bytes need an STag and an address")
	}
	e := d.RDMA()
	regions := newMRs(&e)
	if !one {
		return mrTable(regions), regions, nil
	}
	// Without memory yet an STag has no key of its own.
	i := slices.IndexFunc(regions, func(m MR) bool {
		return m.STag == stag || m.State == mr.Allocated.String() && m.STag>>8 == stag>>8
	})
	if i < 0 {
		return "", nil, fmt.Errorf("no STag 0x%08x", stag)
	}
	m := &regions[i]
	m.showMemory(d)
	return m.text(), []MR{*m}, nil
}

func newMRs(e *rdma.Snapshot) []MR {
	slot := slotMask(e.Extents)
	regions := make([]MR, len(e.MRs))
	at := map[uint32]int{}
	for i := range e.MRs {
		regions[i] = newMR(&e.MRs[i], slot)
		at[regions[i].STag] = i
	}
	for _, m := range regions {
		if p, ok := at[m.Parent]; ok && !m.region() && m.Parent != 0 {
			regions[p].Bound = append(regions[p].Bound, m.STag)
		}
	}
	return regions
}

// maxShown is how many bytes of a region are walked to show where it lies.
const maxShown = 64 * mr.MaxExplain

// showMemory walks a region, or as much of it.
func (m *MR) showMemory(d *devmodel.Device) {
	if m.State != mr.Valid.String() || m.Length == 0 {
		return
	}
	to := uint64(0)
	if m.VABased {
		to = m.Start
	}
	for done := uint64(0); done < min(m.Length, maxShown); {
		n := min(m.Length-done, mr.MaxExplain)
		w, err := d.ExplainMR(m.STag, to+done, uint32(n))
		for _, s := range w.Segments {
			m.Memory = addPiece(m.Memory, s.IOVA, uint64(s.Len))
		}
		if err != nil {
			m.MemoryError = err.Error()
			return
		}
		done += n
	}
	if m.Length > maxShown {
		m.MemoryError = fmt.Sprintf("only the first %d MiB are shown", maxShown>>20)
	}
}

// addPiece appends a piece, or makes the last one longer.
func addPiece(p []Piece, at, n uint64) []Piece {
	if k := len(p) - 1; k >= 0 && p[k].Address+p[k].Length == at {
		p[k].Length += n
		return p
	}
	return append(p, Piece{at, n})
}

// details of an STag.
func (m *MR) details() *details {
	d := &details{}
	d.add("STag", "0x%08x: index %d, key 0x%02x", m.STag, m.Index, m.STag&0xFF)
	d.add("is", "%s, %s, by %s", m.Kind, m.State, m.By)
	d.add("protection domain", "%d", m.PD)
	if m.QP != 0 {
		d.add("usable by", "QP %d", m.QP)
	}
	if m.State == mr.Valid.String() {
		base := uint64(0)
		if m.VABased {
			base = m.Start
		}
		if m.Length == 0 {
			d.add("accesses", "all of memory, by bus address")
		} else {
			d.add("accesses", "%#x to %#x, %#x bytes, %s", base, base+m.Length-1, m.Length, map[bool]string{true: "VA based", false: "zero based"}[m.VABased])
		}
	}
	if m.Limit > 0 && m.State != mr.Valid.String() {
		d.add("room", "%#x bytes for fast registrations", m.Limit)
	}
	switch {
	case !m.region() && m.Parent != 0:
		d.add("bound to", "region 0x%08x", m.Parent)
	case !m.region() || m.State != mr.Valid.String() || m.Length == 0:
	default:
		d.add("pages", "%d of %s, the first byte is %#x of the first", m.Pages, sizeText(m.PageSize), m.Start&(m.PageSize-1))
		last := uint64(m.First) + m.PBLEs - 1
		switch m.Level {
		case mr.Flat.String():
			d.add("level", "1, their addresses are PBLEs %d to %d", m.First, last)
		case mr.TwoLevel.String():
			d.add("level", "2, PBLEs %d to %d are the root, of %d leaves of 512 PBLEs", m.First, last, m.PBLEs)
		default:
			d.add("level", "0, contiguous at %#x", m.Base)
		}
	}
	d.add("rights", "%s", m.Rights+map[bool]string{true: ", remote access enabled", false: ""}[m.Remote])
	if m.Shared {
		d.add("shared", "another region is on the same pages")
	}
	if len(m.Bound) > 0 {
		d.add("windows", "%s", hexList(m.Bound))
	}
	return d
}

func hexList(n []uint32) string {
	out := make([]string, len(n))
	for i, v := range n {
		out[i] = fmt.Sprintf("0x%08x", v)
	}
	return strings.Join(out, " ")
}

func (m *MR) text() string {
	var b strings.Builder
	b.WriteString(m.details().String())
	base := uint64(0)
	if m.VABased {
		base = m.Start
	}
	if len(m.Memory) > 0 {
		b.WriteString("\n" + pieceTable(base, m.Memory))
	}
	if m.MemoryError != "" {
		wrap(&b, "", m.MemoryError)
	}
	return b.String()
}

// maxPieces is how many pieces of memory are shown to a person.
const maxPieces = 16

func pieceTable(at uint64, pieces []Piece) string {
	rows := [][]string{}
	for i, p := range pieces {
		if i < maxPieces || i == len(pieces)-1 {
			rows = append(rows, []string{fmt.Sprintf("%#x", at), fmt.Sprintf("%#x", p.Address), fmt.Sprintf("%#x", p.Length)})
		} else if i == maxPieces {
			rows = append(rows, []string{fmt.Sprintf("(%d more)", len(pieces)-maxPieces-1), "", ""})
		}
		at += p.Length
	}
	return table([]string{"ADDRESS", "GUEST PHYSICAL", "LENGTH"}, rows)
}

// explainWalk also answers a walk that failed, with what it found.
func explainWalk(d *devmodel.Device, stag uint32, r Request) (string, any, error) {
	to, err := strconv.ParseUint(r.Address, 0, 64)
	if err != nil {
		return "", nil, fmt.Errorf("address %q is not a number", r.Address)
	}
	n := max(r.Bytes, 1)
	if r.Length != "" {
		v, err := strconv.ParseUint(r.Length, 0, 32)
		if err != nil {
			return "", nil, fmt.Errorf("length %q is not a number", r.Length)
		}
		n = max(uint32(v), r.Bytes)
	}
	found, failed := d.ExplainMR(stag, to, n)
	e := d.RDMA()
	w := newWalk(&found, slotMask(e.Extents))
	var bytes []byte
	if failed == nil && r.Bytes > 0 {
		bytes = make([]byte, r.Bytes)
		var got int
		if got, err = d.ReadGuest(found.Segments, bytes); err != nil {
			failed = fmt.Errorf("byte %d: %w", got, err)
		}
		bytes = bytes[:got]
		w.Bytes = hex.EncodeToString(bytes)
	}
	return w.text() + dump(to, bytes), w, failed
}

func newWalk(f *mr.Walk, slot uint32) Walk {
	w := Walk{TO: f.TO, Length: f.Len, PBLEs: []PBLE{}, Pieces: []Piece{}}
	if f.Entry != nil {
		m := newMR(f.Entry, slot)
		w.MR = &m
	}
	if f.Parent != nil {
		m := newMR(f.Parent, slot)
		w.Parent = &m
	}
	for _, r := range f.Reads {
		w.PBLEs = append(w.PBLEs, newPBLE(r.Role, &r.HMC, r.Value))
	}
	for _, s := range f.Segments {
		w.Pieces = addPiece(w.Pieces, s.IOVA, uint64(s.Len))
	}
	return w
}

func newPBLE(role string, h *hmc.Walk, v uint64) PBLE {
	return PBLE{Role: role, Index: h.Index, FPM: h.FPM, SD: h.SD, SDAddr: h.SDAddr, Paged: h.PDAt != 0, PD: h.PD, PDAt: h.PDAt,
		PDVal: h.PDEntry, PDNow: h.PDNow, Kept: h.Kept, Stale: h.Stale, At: h.Address, Value: v}
}

func (w *Walk) text() string {
	var b strings.Builder
	if w.MR != nil {
		b.WriteString(w.MR.details().String())
	}
	if w.Parent != nil {
		b.WriteString("\nthe window's region:\n" + w.Parent.details().String())
	}
	if len(w.PBLEs) > 0 {
		b.WriteString("\n" + table([]string{"WORD", "INDEX", "FPM", "READ AT", "VALUE"}, chain(w.PBLEs, w.MR)))
	}
	if len(w.Pieces) > 0 {
		b.WriteString("\n" + pieceTable(w.TO, w.Pieces))
	}
	return b.String()
}

// chain are the words that a walk read, in order: of a run of PBLEs in one page
// one row, of the descriptors that lead to several one, too.
func chain(list []PBLE, m *MR) (rows [][]string) {
	var sd, pd *PBLE // that were shown last
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && follows(&list[k], &list[k+1]) {
			k++
		}
		p := &list[i]
		if sd == nil || sd.SD != p.SD {
			rows, sd, pd = append(rows, sdRow(p)), p, nil
		}
		if p.Paged && (pd == nil || pd.PD != p.PD || pd.PDVal != p.PDVal) {
			rows, pd = append(rows, pdRow(p)), p
		}
		name, at := fmt.Sprint(p.Index), fmt.Sprintf("%#x", p.At)
		if k > i {
			name = fmt.Sprintf("%d-%d", p.Index, list[k].Index)
		}
		if p.At == 0 {
			at = "not reached"
		}
		rows = append(rows, []string{p.Role + " PBLE", name, fmt.Sprintf("%#x", p.FPM), at, values(list[i:k+1], m)})
		i = k + 1
	}
	return rows
}

// follows tells whether b lies behind a in one page of PBLEs.
func follows(a, b *PBLE) bool {
	return a.Role == b.Role && a.At != 0 && b.Index == a.Index+1 && b.At == a.At+8 && a.SD == b.SD && a.PD == b.PD && a.PDVal == b.PDVal
}

func sdRow(p *PBLE) []string {
	if p.SDAddr == 0 {
		return []string{"SD", fmt.Sprint(p.SD), "", "in the device", "not valid"}
	}
	value := fmt.Sprintf("%#x direct", p.SDAddr)
	if p.Paged {
		value = fmt.Sprintf("%#x paged", p.SDAddr)
	}
	return []string{"SD", fmt.Sprint(p.SD), "", "in the device", value}
}

func pdRow(p *PBLE) []string {
	value := fmt.Sprintf("%#x", p.PDVal)
	switch {
	case p.Stale:
		value += fmt.Sprintf(" kept, stale: memory has %#x", p.PDNow)
	case p.Kept:
		value += " kept"
	}
	return []string{"PD", fmt.Sprint(p.PD), "", fmt.Sprintf("%#x", p.PDAt), value}
}

// values abbreviates what PBLEs have: all of a few, the ends of many.
func values(list []PBLE, m *MR) string {
	const few = 4
	if list[0].At == 0 {
		return "-"
	}
	step := uint64(0)
	if m != nil && list[0].Role == "page" {
		step = m.PageSize
	}
	regular := true
	for i := range list[1:] {
		regular = regular && list[i+1].Value == list[i].Value+step
	}
	if n := len(list); n > 2 && step > 0 && regular {
		return fmt.Sprintf("%#x .. %#x, %s apart", list[0].Value, list[n-1].Value, sizeText(step))
	}
	var out []string
	for i := range list {
		if i < few || i == len(list)-1 {
			out = append(out, fmt.Sprintf("%#x", list[i].Value))
		} else if i == few {
			out = append(out, "..")
		}
	}
	return strings.Join(out, " ")
}

// dump shows bytes in lines of 16 behind their addresses.
func dump(at uint64, p []byte) string {
	if len(p) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n")
	for i := 0; i < len(p); i += 16 {
		fmt.Fprintf(&b, "%016x  % x\n", at+uint64(i), p[i:min(i+16, len(p))])
	}
	return b.String()
}
