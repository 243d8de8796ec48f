// SPDX-License-Identifier: Apache-2.0

package lan

import "github.com/vrnic/vrnic/devmodel/reg"

// The sources of malicious driver detection (ice_hw_autogen.h, GL_MDET_*,
// PF_MDET_*): the queue manager, which looks at tails; the transmit unit, which
// looks at descriptors; and the receive side.
const (
	mdetTxPQM = iota
	mdetTxTCLAN
	mdetRx
	mdets
)

// malType is GL_MDET_*.MAL_TYPE. What the numbers mean is not public; drivers
// print them (ice_main.c:ice_handle_mdd_event).
const malType = 1

// mdet is the registers of one source, GL_MDET_x and PF_MDET_x.
type mdet struct{ global, function reg.Cells }

const mdetValid = 1 << 31

// bad reports what the driver did wrong with queue q: to whoever watches, and
// in the registers of a source. A global register keeps the first event until
// the driver has written it.
func (l *LAN) bad(source, q int, event any) {
	l.cfg.Emit(event)
	if l.cfg.Overtaken() {
		return
	}
	m, shift := &l.mdet[source], 0
	if source == mdetTxPQM {
		shift = 12
	}
	if m.global.Get(0)&mdetValid == 0 {
		m.global.Set(0, mdetValid|malType<<26|uint32(q)<<shift)
	}
	m.function.Set(0, 1)
	l.cfg.Malicious()
}

func (l *LAN) mdetRegisters() (rows []reg.Row) {
	const src = "ice_hw_autogen.h; ice_main.c:ice_handle_mdd_event"
	for i, r := range [mdets]struct {
		name       string
		global, pf uint32
		fields     []reg.Field
	}{
		mdetTxPQM: {"TX_PQM", 0x002D2E00, 0x002D2C80, []reg.Field{{Name: "PF_NUM", Hi: 2, Lo: 0}, {Name: "VF_NUM", Hi: 11, Lo: 4}, {Name: "QNUM", Hi: 25, Lo: 12},
			{Name: "MAL_TYPE", Hi: 30, Lo: 26}, {Name: "VALID", Hi: 31, Lo: 31}}},
		mdetTxTCLAN: {"TX_TCLAN", 0x000FC068, 0x000FC000, mdetFields},
		mdetRx:      {"RX", 0x00294C00, 0x00294280, mdetFields},
	} {
		rows = append(rows,
			reg.Row{Name: "GL_MDET_" + r.name, Offset: r.global, Domain: reg.CORER, Access: reg.W1C, Cells: &l.mdet[i].global, Fields: r.fields, Source: src},
			reg.Row{Name: "PF_MDET_" + r.name, Offset: r.pf, Domain: reg.CORER, Access: reg.W1C, Cells: &l.mdet[i].function,
				Fields: []reg.Field{{Name: "VALID", Hi: 0, Lo: 0}}, Source: src})
	}
	return rows
}

var mdetFields = []reg.Field{{Name: "QNUM", Hi: 14, Lo: 0}, {Name: "VF_NUM", Hi: 22, Lo: 15}, {Name: "PF_NUM", Hi: 25, Lo: 23},
	{Name: "MAL_TYPE", Hi: 30, Lo: 26}, {Name: "VALID", Hi: 31, Lo: 31}}
