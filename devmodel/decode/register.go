// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// registerKinds tell values of registers' fields that have names.
var registerKinds = map[string]Kind{
	"PFHMC_ERRORINFO.HMC_OBJECT_TYPE": {"object type", func(v uint64) string { return fmt.Sprintf("%d %v", v, hmc.Object(v)) }},
	"PFHMC_ERRORINFO.HMC_ERROR_TYPE":  {"step of a walk", func(v uint64) string { return walkStep(v) }},
	"GLGEN_RSTAT.DEVSTATE":            enum("active", "a reset was announced", "in reset"),
	"GLGEN_RSTAT.RESET_TYPE":          enum("power-on", "CORER", "GLOBR", "EMPR"),
	"GLINT_CEQCTL.ITR_INDX":           enum("ITR 0", "ITR 1", "ITR 2", "no throttling"),
	"PFINT_AEQCTL.ITR_INDX":           enum("ITR 0", "ITR 1", "ITR 2", "no throttling"),
	"GLPCI_LBARCTRL.PE_DB_SIZE":       enum("", "4 MiB", "8 MiB"),
}

// walkStep names the step at which a walk failed, in this model's own numbers.
func walkStep(v uint64) string {
	if v > uint64(hmc.FaultRead) {
		return fmt.Sprintf("%d (has no name)", v)
	}
	return fmt.Sprintf("%d %v", v, hmc.Fault(v))
}

// causes is what drivers do about bits of PFINT_OICR
// (ice_main.c:ice_misc_intr; icrdma_if.c:icrdma_iidc_event_handler).
var causes = [...]struct {
	bit  uint8
	does string
}{
	{11, "TSYN_TX: a time stamp of a sent packet is there"},
	{12, "TSYN_EVNT: an event of the clock"},
	{16, "ECC_ERR: ice resets the function"},
	{19, "MAL_DETECT: ice looks for the queue in GL_MDET_*"},
	{20, "GRST: a reset of the whole card begins; ice takes everything down and rebuilds it"},
	{21, "PCI_EXCEPTION: ice resets the function"},
	{26, "HMC_ERR: irdma logs PFHMC_ERRORINFO and PFHMC_ERRORDATA; up to 6.12 it resets the function"},
	{27, "PE_PUSH: irdma resets the function"},
	{28, "PE_CRITERR: irdma resets the function unless GLPE_CRITERR is 0x1024d"},
	{29, "VFLR: a virtual function was reset"},
	{31, "SWINT: software asked for the interrupt"},
}

// Register decodes a value of the register of a table's row, called name, with
// its index if it has one.
func Register(row *reg.Row, name string, v uint32) Result {
	l := Layout{Name: fmt.Sprintf("%s (offset %#x, %v)", name, row.Offset, row.Access), Source: row.Source}
	for _, f := range row.Fields {
		kind, ok := registerKinds[row.Name+"."+f.Name]
		if !ok {
			kind = hexa
			if f.Hi == f.Lo {
				kind = flag
			}
		}
		l.Fields = append(l.Fields, Field{f.Name, 0, f.Hi, f.Lo, kind})
	}
	w := Words{V: []uint64{uint64(v)}, Known: 1}
	r := l.decode(&w)
	r.Format, r.bits = "reg", 32
	if len(row.Fields) == 0 {
		r.Words[0].Reserved = 0 // whole values: nothing is said of bits
	}
	if strings.HasPrefix(row.Name, "PFINT_OICR") && row.Name != "PFINT_OICR_CTL" {
		for _, c := range causes {
			if v>>c.bit&1 != 0 {
				r.Notes = append(r.Notes, c.does)
			}
		}
	}
	if row.Inferred {
		r.Notes = append(r.Notes, "the layout or meaning is inferred: no driver states it")
	}
	return r
}
