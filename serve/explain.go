// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/decode"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/mr"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// explainers answer "what" about a device: a person's text, in lines of at
// most 80 columns, and its data.
var explainers = map[string]func(d *devmodel.Device, r Request) (string, any, error){
	"regs":  explainRegs,
	"hmc":   explainHMC,
	"qp":    explainQP,
	"cq":    explainCQ,
	"mr":    explainMR,
	"cqp":   explainCQP,
	"eq":    explainEQ,
	"ah":    explainAH,
	"arp":   explainARP,
	"mcast": explainMulticast,
	"ws":    explainNodes,
	"stats": explainStats,

	"tables": explainTables,
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

// chosen are the objects that a request names, all of them without a name.
func chosen[T any](r Request, what string, all []T, id func(T) uint32) (list []T, one bool, err error) {
	n, one, err := index(r.Name)
	if err != nil {
		return nil, false, err
	}
	list = []T{}
	for _, o := range all {
		if !one || id(o) == n {
			list = append(list, o)
		}
	}
	if one && len(list) == 0 {
		return nil, false, fmt.Errorf("no %s %d", what, n)
	}
	return list, one, nil
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
	rows := [][]string{}
	data := make([]Register, 0, len(vals))
	for _, v := range vals {
		rows = append(rows, []string{v.Name, fmt.Sprintf("0x%06x", v.Offset), fmt.Sprintf("0x%08x", v.Value), fields(v)})
		data = append(data, Register{v.Name, v.Offset, v.Value, v.Reads, v.Writes})
	}
	text := table([]string{"REGISTER", "OFFSET", "VALUE", "FIELDS"}, rows)
	if len(vals) == 0 {
		text += "(all elements are at their reset value)\n"
	}
	return text, data, nil
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

// place tells where a queue's memory is.
func place(b hmc.Buffer) string {
	if b.Virtual {
		return fmt.Sprintf("pages in PBLEs from %d on", b.First)
	}
	return fmt.Sprintf("at %#x", b.Base)
}

// locate is the guest address of the byte at an offset of a queue's memory,
// found without a trace in the device.
func locate(d *devmodel.Device, b hmc.Buffer, off uint64) (uint64, error) {
	if !b.Virtual {
		return b.Base + off, nil
	}
	w, err := d.ExplainObject(hmc.PBLE, b.First+uint32(off>>12))
	if err != nil {
		return 0, err
	}
	page, err := readWords(d, w.Address, 1)
	if err != nil {
		return 0, err
	}
	return page[0]&^0xFFF + off&0xFFF, nil
}

// readWords reads words of guest memory as they are now.
func readWords(d *devmodel.Device, at uint64, n int) ([]uint64, error) {
	b := make([]byte, 8*n)
	if _, err := d.ReadGuest([]mr.Segment{{IOVA: at, Len: uint32(len(b))}}, b); err != nil {
		return nil, err
	}
	words := make([]uint64, n)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words, nil
}

// decoded names words by a format's name.
func decoded(format string, words []uint64) []decode.Result {
	f, ok := decode.Lookup(format)
	if !ok {
		return nil
	}
	r, err := f.Decode([]decode.Run{{At: 0, Words: words}})
	if err != nil {
		return nil
	}
	return r
}

// spans abbreviates numbers in ascending order: "1-3 7".
func spans(n []uint32) string {
	if len(n) == 0 {
		return "none"
	}
	n = slices.Clone(n)
	slices.Sort(n)
	var out []string
	for i := 0; i < len(n); {
		k := i
		for k+1 < len(n) && n[k+1] == n[k]+1 {
			k++
		}
		if k == i {
			out = append(out, fmt.Sprint(n[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[k]))
		}
		i = k + 1
	}
	return strings.Join(out, " ")
}

// macText and ipText are addresses as people write them.
func macText(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}
