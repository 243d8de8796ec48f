// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"maps"
	"slices"
)

// VSI numbers are 10 bits wide and index driver arrays of ICE_MAX_VSI. Number 0
// is kept back so that an action naming no VSI stands out.
const (
	firstVSI = 1
	maxVSIs  = NumVSIs - firstVSI

	vsiNumMask   = 0x3FF   // ICE_AQ_VSI_NUM_M
	vsiNumValid  = 1 << 15 // ICE_AQ_VSI_IS_VALID
	vsiKeepAlloc = 1 << 0  // ICE_AQ_VSI_KEEP_ALLOC
	vsiTypeMask  = 0x3     // ICE_AQ_VSI_TYPE_M
)

// Kinds of VSI this function can have (ICE_AQ_VSI_TYPE_*); it has no VFs.
const (
	vsiTypeVMDq2 = 1
	vsiTypePF    = 2
)

// vsi is a virtual station interface: what a port of the switch is to software.
type vsi struct {
	kind uint8
	ctx  VSIContext
	key  [rssKeySize]byte
	lut  []byte // of rssVSILUTSize; replaced, never changed
}

// vsiNumber is the number a command names; false if it names none.
func vsiNumber(p []byte) (uint16, bool) {
	v := le.Uint16(p)
	return v & vsiNumMask, v&vsiNumValid != 0
}

// vsiNamed finds the VSI that a command names in its first parameter.
func (s *vswitch) vsiNamed(p []byte) (*vsi, errno) {
	n, valid := vsiNumber(p)
	if !valid {
		return nil, rcEINVAL
	}
	v := s.vsis[n]
	if v == nil {
		return nil, rcENOENT
	}
	return v, rcOK
}

// answerVSI fills ice_aqc_add_update_free_vsi_resp.
func (s *vswitch) answerVSI(p []byte, n uint16) {
	le.PutUint16(p, n)
	le.PutUint16(p[2:], 0)
	le.PutUint16(p[4:], uint16(s.vsiNumbers.used))
	le.PutUint16(p[6:], uint16(s.vsiNumbers.free()))
}

// addVSI takes the whole context: drivers flag few of its sections valid here
// and mean all of them (ice_lib.c:ice_vsi_init).
func addVSI(f *Firmware, r *request) errno {
	s, p := f.sw, r.p()
	kind := uint8(le.Uint16(p[6:]) & vsiTypeMask)
	if kind != vsiTypePF && kind != vsiTypeVMDq2 {
		return rcEINVAL
	}
	v := &vsi{kind: kind, ctx: VSIContext(r.buf[:len(VSIContext{})]), lut: make([]byte, rssVSILUTSize)}
	if v.ctx.SwitchID() != swid {
		return rcEINVAL
	}
	n, fixed := vsiNumber(p)
	if fixed {
		if s.vsis[n] != nil {
			return rcEEXIST
		}
		// A number kept by Free VSI is still handed out.
		if !s.vsiNumbers.has(int(n)) && !s.vsiNumbers.take(int(n)) {
			return rcEINVAL
		}
	} else {
		id, ok := s.vsiNumbers.lowest()
		if !ok {
			return rcENOSPC
		}
		n = uint16(id)
	}
	s.vsis[n] = v
	s.touch(staleRules)
	s.answerVSI(p, n)
	return rcOK
}

func updateVSI(f *Firmware, r *request) errno {
	v, rc := f.sw.vsiNamed(r.p())
	if rc != rcOK {
		return rc
	}
	u := VSIContext(r.buf[:len(VSIContext{})])
	spoof := v.ctx.MACAntiSpoof()
	v.ctx.apply(&u)
	f.sw.touch(staleVSIs)
	if v.ctx.MACAntiSpoof() != spoof {
		f.sw.touch(staleRules) // they tell whose addresses are whose
	}
	n, _ := vsiNumber(r.p())
	f.sw.answerVSI(r.p(), n)
	return rcOK
}

// freeVSI ends a VSI. Rules and lists that name it stay, as they are objects
// of their own, and match nothing.
func freeVSI(f *Firmware, r *request) errno {
	s, p := f.sw, r.p()
	n, valid := vsiNumber(p)
	if !valid {
		return rcEINVAL
	}
	if !s.vsiNumbers.has(int(n)) {
		return rcENOENT
	}
	delete(s.vsis, n)
	s.touch(staleRules)
	if le.Uint16(p[2:])&vsiKeepAlloc == 0 {
		s.vsiNumbers.put(int(n))
	}
	s.answerVSI(p, n)
	return rcOK
}

// VSI is a snapshot of one VSI.
type VSI struct {
	Number  uint16
	Type    uint8 // ICE_AQ_VSI_TYPE_*: 1 VMDq2, 2 PF
	Context VSIContext
	RSSKey  [rssKeySize]byte    // 40 bytes standard key, 12 extended
	RSSLUT  [rssVSILUTSize]byte // used if Context.RSSTable() is 0
}

// VSI returns VSI number n.
func (f *Firmware) VSI(n uint16) (VSI, bool) {
	v := f.sw.vsis[n]
	if v == nil {
		return VSI{}, false
	}
	return VSI{n, v.kind, v.ctx, v.key, [rssVSILUTSize]byte(v.lut)}, true
}

// VSIs returns all VSIs in the order of their numbers.
func (f *Firmware) VSIs() []VSI {
	all := make([]VSI, 0, len(f.sw.vsis))
	for _, n := range slices.Sorted(maps.Keys(f.sw.vsis)) {
		v, _ := f.VSI(n)
		all = append(all, v)
	}
	return all
}

var vsiCommands = []command{
	{op: 0x0210, name: "add_vsi", rd: true, minBuf: len(VSIContext{}), run: addVSI, source: "ice_switch.c:ice_aq_add_vsi"},
	{op: 0x0211, name: "update_vsi", rd: true, minBuf: len(VSIContext{}), run: updateVSI, source: "ice_switch.c:ice_aq_update_vsi"},
	{op: 0x0213, name: "free_vsi", run: freeVSI, source: "ice_switch.c:ice_aq_free_vsi"},
}
