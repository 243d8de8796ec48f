// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/mr"
)

// MR is a memory region in data form.
type MR struct {
	STag     uint32 `json:"stag"`
	State    string `json:"state"`
	PD       uint32 `json:"pd"`
	Start    uint64 `json:"start"`  // virtual address, or offset in the first page
	Length   uint64 `json:"length"` // 0: all of memory
	VABased  bool   `json:"va_based"`
	Level    string `json:"level"`
	PageSize uint64 `json:"page_size"`
	Base     uint64 `json:"base"` // contiguous: guest address of the first page
	First    uint32 `json:"first_pble"`
	Rights   string `json:"rights"`
	Remote   bool   `json:"remote"`
}

// PBLE is a page buffer list entry that a walk read.
type PBLE struct {
	Role  string `json:"role"` // "root" or "page"
	Index uint32 `json:"index"`
	FPM   uint64 `json:"fpm"`
	SD    uint32 `json:"sd"`
	Paged bool   `json:"paged"`
	PD    uint32 `json:"pd,omitempty"`       // paged, as the next two
	PDAt  uint64 `json:"pd_at,omitempty"`    // guest address of the page descriptor
	PDVal uint64 `json:"pd_value,omitempty"` // as the device uses it
	Stale bool   `json:"stale,omitempty"`    // memory has another page descriptor
	At    uint64 `json:"at"`                 // guest address of the entry
	Value uint64 `json:"value"`
}

// Piece is a piece of guest memory.
type Piece struct {
	Address uint64 `json:"address"`
	Length  uint32 `json:"length"`
}

// Walk is the way from an STag to guest memory in data form.
type Walk struct {
	MR     *MR     `json:"mr,omitempty"`
	TO     uint64  `json:"to"`
	Length uint32  `json:"length"`
	PBLEs  []PBLE  `json:"pbles"`
	Pieces []Piece `json:"pieces"`
	Bytes  string  `json:"bytes,omitempty"` // hexadecimal
}

func newMR(e *mr.Entry) MR {
	return MR{STag: e.STag(), State: e.State.String(), PD: e.PD, Start: e.Start, Length: e.Length, VABased: e.VABased, Level: e.Level.String(),
		PageSize: 1 << e.PageShift, Base: e.Base, First: e.First, Rights: e.Rights.String(), Remote: e.Remote}
}

// memory says where a region's pages are named.
func (m *MR) memory() string {
	if m.Level == mr.Contiguous.String() {
		return fmt.Sprintf("at %#x", m.Base)
	}
	return fmt.Sprintf("PBLE %d", m.First)
}

func mrTable(regions []MR) string {
	rows := []string{"STAG\tSTATE\tPD\tSTART\tLENGTH\tBASED\tLIST\tPAGES\tMEMORY\tRIGHTS"}
	for _, m := range regions {
		length, based := fmt.Sprintf("%#x", m.Length), "zero"
		if m.Length == 0 {
			length = "all"
		}
		if m.VABased {
			based = "VA"
		}
		rights := m.Rights
		if m.Remote {
			rights += ", remote"
		}
		rows = append(rows, fmt.Sprintf("0x%08x\t%s\t%d\t%#x\t%s\t%s\t%s\t%#x\t%s\t%s",
			m.STag, m.State, m.PD, m.Start, length, based, m.Level, m.PageSize, m.memory(), rights))
	}
	return table(rows...)
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
	regions := []MR{}
	for _, e := range d.RDMA().MRs {
		if m := newMR(&e); !one || m.STag == stag {
			regions = append(regions, m)
		}
	}
	if one && len(regions) == 0 {
		return "", nil, fmt.Errorf("no STag 0x%08x", stag)
	}
	return mrTable(regions), regions, nil
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
	w := newWalk(&found)
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

func newWalk(f *mr.Walk) Walk {
	w := Walk{TO: f.TO, Length: f.Len, PBLEs: []PBLE{}, Pieces: []Piece{}}
	if f.Entry != nil {
		m := newMR(f.Entry)
		w.MR = &m
	}
	for _, r := range f.Reads {
		h := &r.HMC
		w.PBLEs = append(w.PBLEs, PBLE{Role: r.Role, Index: h.Index, FPM: h.FPM, SD: h.SD, Paged: h.PDAt != 0, PD: h.PD, PDAt: h.PDAt,
			PDVal: h.PDEntry, Stale: h.Stale, At: h.Address, Value: r.Value})
	}
	for _, s := range f.Segments {
		w.Pieces = append(w.Pieces, Piece{s.IOVA, s.Len})
	}
	return w
}

func (w *Walk) text() string {
	var b strings.Builder
	if w.MR != nil {
		b.WriteString(mrTable([]MR{*w.MR}))
	}
	if len(w.PBLEs) > 0 {
		rows := []string{"LIST\tPBLE\tFPM\tSD\tPD\tREAD AT\tVALUE"}
		for _, p := range w.PBLEs {
			pd := "direct"
			if p.Paged {
				pd = fmt.Sprintf("%d, at %#x: %#x", p.PD, p.PDAt, p.PDVal)
			}
			if p.Stale {
				pd += " stale"
			}
			rows = append(rows, fmt.Sprintf("%s\t%d\t%#x\t%d\t%s\t%#x\t%#x", p.Role, p.Index, p.FPM, p.SD, pd, p.At, p.Value))
		}
		b.WriteString("\n" + table(rows...))
	}
	if len(w.Pieces) > 0 {
		rows := []string{"ADDRESS\tGUEST PHYSICAL\tLENGTH"}
		at := w.TO
		for _, p := range w.Pieces {
			rows = append(rows, fmt.Sprintf("%#x\t%#x\t%#x", at, p.Address, p.Length))
			at += uint64(p.Length)
		}
		b.WriteString("\n" + table(rows...))
	}
	return b.String()
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
