// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// explainers answer "what" about a device: a person's text and its data.
var explainers = map[string]func(d *devmodel.Device, r Request) (string, any, error){
	"regs": explainRegs,
	"hmc":  explainHMC,
	"qp":   explainQP,
	"cq":   explainCQ,
	"mr":   explainMR,
}

// table renders rows of tab-separated cells.
func table(rows ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, r)
	}
	w.Flush()
	return b.String()
}

// Register is a register in data form.
type Register struct {
	Name   string `json:"name"`
	Offset uint32 `json:"offset"`
	Value  uint32 `json:"value"`
	Reads  uint64 `json:"reads"`  // of all elements of the name
	Writes uint64 `json:"writes"` // of all elements of the name
}

func explainRegs(d *devmodel.Device, r Request) (string, any, error) {
	vals, err := d.Registers(r.Name)
	if err != nil {
		return "", nil, err
	}
	rows := []string{"REGISTER\tOFFSET\tVALUE\tFIELDS"}
	data := make([]Register, 0, len(vals))
	for _, v := range vals {
		rows = append(rows, fmt.Sprintf("%s\t%#06x\t%#08x\t%s", v.Name, v.Offset, v.Value, fields(v)))
		data = append(data, Register{v.Name, v.Offset, v.Value, v.Reads, v.Writes})
	}
	if len(vals) == 0 {
		rows = append(rows, "(all elements are at their reset value)")
	}
	return table(rows...), data, nil
}

// fields names the non-zero fields of a register.
func fields(v reg.Value) string {
	var out []string
	for _, f := range v.Fields {
		if x := v.Value >> f.Lo & (1<<(f.Hi-f.Lo+1) - 1); x != 0 {
			out = append(out, fmt.Sprintf("%s=%#x", f.Name, x))
		}
	}
	return strings.Join(out, " ")
}

// index parses an optional object number.
func index(name string) (n uint32, given bool, err error) {
	if name == "" {
		return 0, false, nil
	}
	v, err := strconv.ParseUint(name, 0, 32)
	if err != nil {
		return 0, false, fmt.Errorf("%q is not a number", name)
	}
	return uint32(v), true, nil
}

// HMC is the host memory cache in data form.
type HMC struct {
	Objects []hmc.Extent `json:"objects"`
	SDs     []hmc.SD     `json:"sds"`
}

func explainHMC(d *devmodel.Device, r Request) (string, any, error) {
	n, one, err := index(r.Name)
	if err != nil {
		return "", nil, err
	}
	e := d.RDMA()
	h := HMC{Objects: e.Extents, SDs: e.SDs}
	if one {
		keep := h.SDs[:0]
		for _, s := range h.SDs {
			if s.Index == n {
				keep = append(keep, s)
			}
		}
		if len(keep) == 0 {
			return "", nil, fmt.Errorf("segment descriptor %d is not valid", n)
		}
		h.SDs = keep
	}
	rows := []string{}
	if !one {
		rows = append(rows, "OBJECT\tCOUNT\tSIZE\tFPM BASE")
		for _, e := range h.Objects {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%#x", e.Object, e.Count, e.Size, e.Base))
		}
		rows = append(rows, "")
	}
	rows = append(rows, "SD\tPD\tTYPE\tVALID\tADDRESS\tDEVICE USES")
	for _, s := range h.SDs {
		rows = append(rows, fmt.Sprintf("%d\t-\t%s\t%v\t%#x\t", s.Index, s.Type, s.Valid, s.Address))
		for _, p := range s.PDs {
			use := ""
			if p.Kept {
				use = fmt.Sprintf("%#x", p.InUse)
			}
			if p.Stale {
				use += " stale"
			}
			rows = append(rows, fmt.Sprintf("%d\t%d\tpage\t%v\t%#x\t%s", s.Index, p.Index, p.Valid, p.Address, use))
		}
	}
	return table(rows...), h, nil
}

func explainQP(d *devmodel.Device, r Request) (string, any, error) {
	n, one, err := index(r.Name)
	if err != nil {
		return "", nil, err
	}
	rows := []string{"QP\tTYPE\tSTATE\tPD\tSEND CQ\tRECV CQ\tMTU\tDEST QP"}
	qps := d.RDMA().QPs
	data := qps[:0]
	for _, q := range qps {
		if one && q.ID != n {
			continue
		}
		data = append(data, q)
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d", q.ID, q.Type, q.State, q.PD, q.SendCQ, q.RecvCQ, q.PathMTU, q.DestQP))
	}
	if one && len(data) == 0 {
		return "", nil, fmt.Errorf("no QP %d", n)
	}
	return table(rows...), data, nil
}

func explainCQ(d *devmodel.Device, r Request) (string, any, error) {
	n, one, err := index(r.Name)
	if err != nil {
		return "", nil, err
	}
	rows := []string{"CQ\tENTRIES\tNEXT\tPOLARITY\tARMED\tCEQ"}
	cqs := d.RDMA().CQs
	data := cqs[:0]
	for _, c := range cqs {
		if one && c.ID != n {
			continue
		}
		data = append(data, c)
		rows = append(rows, fmt.Sprintf("%d\t%d\t%d\t%d\t%s\t%d", c.ID, c.Size, c.Next, c.Polarity, c.Armed, c.CEQ))
	}
	if one && len(data) == 0 {
		return "", nil, fmt.Errorf("no CQ %d", n)
	}
	return table(rows...), data, nil
}
