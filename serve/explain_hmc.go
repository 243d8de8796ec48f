// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/rdma"
)

// HMC is the host memory cache in data form.
type HMC struct {
	Objects []hmc.Extent `json:"objects"` // with one segment asked for: what of them lies in it
	SDs     []hmc.SD     `json:"sds"`
	// Of one segment:
	Lying []Lying `json:"lying,omitempty"`
	Users *Users  `json:"users,omitempty"`
}

// Lying is what of an object type lies in a segment.
type Lying struct {
	Object string `json:"object"`
	First  uint32 `json:"first"`
	Last   uint32 `json:"last"`
	FPM    uint64 `json:"fpm"` // of the first
}

// Users are the live objects that a segment is needed for.
type Users struct {
	QPs   []uint32 `json:"qps"`
	CQs   []uint32 `json:"cqs"`
	AHs   []uint32 `json:"ahs"`
	STags []uint32 `json:"stags"` // their entries, or their page lists
}

const segmentSize = 2 << 20

func explainHMC(d *devmodel.Device, r Request) (string, any, error) {
	n, one, err := index(r.Name)
	if err != nil {
		return "", nil, err
	}
	e := d.RDMA()
	h := HMC{Objects: e.Extents, SDs: e.SDs}
	if !one {
		return objectTable(h.Objects) + "\n" + sdTable(h.SDs), h, nil
	}
	h.SDs = nil
	for _, s := range e.SDs {
		if s.Index == n {
			h.SDs = append(h.SDs, s)
		}
	}
	h.Objects, h.Lying = lying(e.Extents, n)
	if len(h.SDs) == 0 {
		why := fmt.Errorf("segment descriptor %d is not valid", n)
		if len(h.Lying) == 0 {
			return "", nil, why
		}
		return lyingTable(h.Lying), h, why
	}
	u := users(&e, h.Lying)
	h.Users = &u
	return segmentText(&h.SDs[0], h.Lying, &u), h, nil
}

func objectTable(objects []hmc.Extent) string {
	rows := [][]string{}
	for _, o := range objects {
		first, last := o.Base/segmentSize, (o.Base+uint64(o.Count)*uint64(o.Size)-1)/segmentSize
		sds := fmt.Sprintf("%d-%d", first, last)
		if first == last {
			sds = fmt.Sprint(first)
		}
		rows = append(rows, []string{o.Object, fmt.Sprint(o.Count), fmt.Sprint(o.Size), fmt.Sprintf("%#x", o.Base), sds})
	}
	return table([]string{"OBJECT", "COUNT", "SIZE", "FPM BASE", "SEGMENTS"}, rows)
}

func sdTable(sds []hmc.SD) string {
	rows := [][]string{}
	for _, s := range sds {
		rows = append(rows, []string{fmt.Sprint(s.Index), "-", s.Type, fmt.Sprint(s.Valid), fmt.Sprintf("%#x", s.Address), ""})
		for _, p := range pdRuns(s.PDs) {
			rows = append(rows, append([]string{fmt.Sprint(s.Index)}, p...))
		}
	}
	return table([]string{"SD", "PD", "TYPE", "VALID", "ADDRESS", "DEVICE USES"}, rows)
}

// pdRuns are the rows of page descriptors; what is alike in neighbours is one
// row.
func pdRuns(pds []hmc.PD) (rows [][]string) {
	alike := func(a, b hmc.PD) bool {
		return b.Index == a.Index+1 && a.Valid == b.Valid && a.Kept == b.Kept && !a.Stale && !b.Stale
	}
	for i := 0; i < len(pds); {
		k := i
		for k+1 < len(pds) && alike(pds[k], pds[k+1]) {
			k++
		}
		p, last := pds[i], pds[k]
		name, typ, address := fmt.Sprint(p.Index), "page", fmt.Sprintf("%#x", p.Address)
		use := ""
		if p.Kept {
			use = fmt.Sprintf("%#x", p.InUse)
		}
		if p.Stale {
			use += " stale"
		}
		if k > i {
			name, typ = fmt.Sprintf("%d-%d", p.Index, last.Index), fmt.Sprintf("%d pages", k-i+1)
			if address += fmt.Sprintf(" .. %#x", last.Address); p.Kept {
				use = "the same"
			}
		}
		rows = append(rows, []string{name, typ, fmt.Sprint(p.Valid), address, use})
		i = k + 1
	}
	return rows
}

// lying tells what of the layout lies in a segment.
func lying(extents []hmc.Extent, sd uint32) (objects []hmc.Extent, out []Lying) {
	from, to := uint64(sd)*segmentSize, uint64(sd+1)*segmentSize
	for _, e := range extents {
		size := uint64(e.Size)
		end := e.Base + uint64(e.Count)*size
		if e.Base >= to || end <= from {
			continue
		}
		l := Lying{Object: e.Object, FPM: e.Base, Last: e.Count - 1}
		if from > e.Base {
			l.First = uint32((from - e.Base) / size)
			l.FPM = e.Base + uint64(l.First)*size
		}
		if to < end {
			l.Last = uint32((to - e.Base - 1) / size)
		}
		objects, out = append(objects, e), append(out, l)
	}
	return objects, out
}

func lyingTable(l []Lying) string {
	rows := [][]string{}
	for _, o := range l {
		rows = append(rows, []string{o.Object, fmt.Sprint(o.First), fmt.Sprint(o.Last), fmt.Sprintf("%#x", o.FPM)})
	}
	return table([]string{"OBJECT", "FIRST", "LAST", "FPM"}, rows)
}

// users finds the live objects that lie in a segment, or whose page lists do.
func users(e *rdma.Snapshot, l []Lying) (u Users) {
	u = Users{QPs: []uint32{}, CQs: []uint32{}, AHs: []uint32{}, STags: []uint32{}}
	in := map[string]Lying{}
	for _, o := range l {
		in[o.Object] = o
	}
	has := func(object string, first, n uint64) bool {
		o, ok := in[object]
		return ok && n > 0 && first <= uint64(o.Last) && first+n > uint64(o.First)
	}
	for _, q := range e.QPs {
		if has("QP", uint64(q.ID), 1) || pagesIn(has, q.SQ.Buf, uint64(q.SQ.Quanta)*32) || pagesIn(has, q.RQ.Buf, uint64(q.RQ.Quanta)*32) {
			u.QPs = append(u.QPs, q.ID)
		}
	}
	for _, c := range e.CQs {
		if has("CQ", uint64(c.ID), 1) || pagesIn(has, c.Buf, uint64(c.Size)*32) {
			u.CQs = append(u.CQs, c.ID)
		}
	}
	for _, a := range e.AHs {
		if has("FSIAV", uint64(a.Index), 1) {
			u.AHs = append(u.AHs, a.Index)
		}
	}
	slot := slotMask(e.Extents)
	for i := range e.MRs {
		m := &e.MRs[i]
		if has("MR", uint64(m.Index&slot), 1) || m.Level != mr.Contiguous && has("PBLE", uint64(m.First), listed(m)) {
			u.STags = append(u.STags, m.STag())
		}
	}
	return u
}

func pagesIn(has func(string, uint64, uint64) bool, b hmc.Buffer, size uint64) bool {
	return b.Virtual && has("PBLE", uint64(b.First), (size+4095)/4096)
}

// slotMask covers the table index in the 24 bits that an STag has for it
// (hw.c:irdma_initialize_hw_rsrc).
func slotMask(extents []hmc.Extent) uint32 {
	order := 14
	for _, e := range extents {
		if e.Object == "MR" && e.Count > 1 {
			order = max(order, bits.Len32(e.Count-1))
		}
	}
	return 1<<min(order, 24) - 1
}

func segmentText(s *hmc.SD, l []Lying, u *Users) string {
	var b strings.Builder
	what := "2 MiB"
	if s.Type == "paged" {
		what = "page of page descriptors"
	}
	d := &details{}
	d.add("segment", "%d, valid", s.Index)
	d.add("type", "%s", s.Type)
	d.add("address", "%#x, %s", s.Address, what)
	d.add("covers", "FPM %#x to %#x", uint64(s.Index)*segmentSize, uint64(s.Index+1)*segmentSize-1)
	d.add("needed by", "%s", u)
	b.WriteString(d.String() + "\n" + lyingTable(l))
	if s.Type == "paged" {
		kept, stale := 0, 0
		for _, p := range s.PDs {
			if p.Kept {
				kept++
			}
			if p.Stale {
				stale++
			}
		}
		fmt.Fprintf(&b, "\n%d page descriptors, %d kept by the device, %d of them stale\n", len(s.PDs), kept, stale)
		b.WriteString(table([]string{"PD", "TYPE", "VALID", "ADDRESS", "DEVICE USES"}, pdRuns(s.PDs)))
	}
	return b.String()
}

func (u *Users) String() string {
	var out []string
	for _, k := range []struct {
		name string
		ids  []uint32
	}{{"QP", u.QPs}, {"CQ", u.CQs}, {"AH", u.AHs}} {
		if len(k.ids) > 0 {
			out = append(out, k.name+" "+spans(k.ids))
		}
	}
	const most = 6
	if n := len(u.STags); n > 0 {
		s := "STag"
		for _, t := range u.STags[:min(n, most)] {
			s += fmt.Sprintf(" 0x%08x", t)
		}
		if n > most {
			s += fmt.Sprintf(" and %d more", n-most)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return "no live object"
	}
	return strings.Join(out, ", ")
}
