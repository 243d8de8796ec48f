// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"maps"
	"slices"
)

// List ids are 10 bits wide in an action; 0 is kept back so that an action
// naming no list stands out. How many rules fit is inferred.
const (
	firstVSIList = 1
	maxVSILists  = 1023
	firstRule    = 1
	maxRules     = 4096
)

// vswitch is the embedded switch of the function with all that hangs on it:
// VSIs, VSI lists, rules, RSS tables and the countable resources.
type vswitch struct {
	vsis        map[uint16]*vsi
	vsiNumbers  *pool
	lists       map[uint16]*vsiList
	listNumbers *pool
	rules       map[uint16]*rule
	ruleNumbers *pool
	byKey       map[ruleKey]uint16
	resources   map[uint16]*resource
	pfLUT       []byte // of rssPFLUTSize; replaced, never changed

	members map[uint16]*vsiRules // what rules say of each VSI, as compiled
	stale   staleness
}

func newSwitch() *vswitch {
	s := new(vswitch)
	s.reset()
	return s
}

// reset forgets everything, as PFR and Clear PF Configuration do.
func (s *vswitch) reset() {
	*s = vswitch{
		vsis:        make(map[uint16]*vsi),
		vsiNumbers:  newPool(firstVSI, maxVSIs),
		lists:       make(map[uint16]*vsiList),
		listNumbers: newPool(firstVSIList, maxVSILists),
		rules:       make(map[uint16]*rule),
		ruleNumbers: newPool(firstRule, maxRules),
		byKey:       make(map[ruleKey]uint16),
		resources:   newResources(),
		pfLUT:       make([]byte, rssPFLUTSize),
		stale:       staleRules,
	}
}

// vsiList is a set of VSIs that rules forward to (VSI_LIST_REP) or that are
// members of a VLAN (VSI_LIST_PRUNE).
type vsiList struct {
	prune   bool
	members map[uint16]bool
}

func (s *vswitch) addLists(q resourceRequest) errno {
	if q.count > s.listNumbers.free() {
		return rcENOSPC
	}
	for i := range q.count {
		id, _ := s.listNumbers.lowest()
		s.lists[uint16(id)] = &vsiList{prune: q.kind == resVSIListPrune, members: make(map[uint16]bool)}
		q.elems.set(i, uint16(id))
	}
	return rcOK
}

// freeLists frees lists whether or not a rule still names them: drivers free
// the list before they remove the rule
// (ice_switch.c:ice_rem_update_vsi_list, ice_remove_rule_internal).
func (s *vswitch) freeLists(q resourceRequest) errno {
	for i := range q.count {
		id := q.elems.get(i)
		l := s.lists[id]
		if l == nil || l.prune != (q.kind == resVSIListPrune) {
			return rcENOENT
		}
		delete(s.lists, id)
		s.touch(staleRules)
		s.listNumbers.put(int(id))
	}
	return rcOK
}

// Elements of the switch rule commands (ice_adminq_cmd.h:ICE_AQC_SW_RULES_T_*).
const (
	ruleLookupRx       = 0
	ruleLookupTx       = 1
	ruleVSIListSet     = 3
	ruleVSIListClear   = 4
	rulePruneListSet   = 5
	rulePruneListClear = 6

	ruleElemHeader = 4  // type, status
	lookupHeader   = 16 // struct ice_sw_rule_lkup_rx_tx without hdr_data
	listHeader     = 8  // struct ice_sw_rule_vsi_list without vsi
)

// ruleElement is one element of a rule buffer: its bytes, up to its end.
type ruleElement []byte

func (e ruleElement) kind() uint16 { return le.Uint16(e) }

// nextRule cuts the first element off b; false if b ends before it does. An
// update says hdr_len 0 though a header follows (ice_switch.c:
// ice_fill_sw_rule), which hides it here and does no harm as drivers send one
// element. Large actions, which no driver adds, are no known element.
func nextRule(b []byte) (e ruleElement, rest []byte, ok bool) {
	if len(b) < listHeader {
		return nil, nil, false
	}
	var size int
	switch le.Uint16(b) {
	case ruleLookupRx, ruleLookupTx:
		if len(b) < lookupHeader {
			return nil, nil, false
		}
		size = lookupHeader + int(le.Uint16(b[14:]))
	case ruleVSIListSet, ruleVSIListClear, rulePruneListSet, rulePruneListClear:
		size = listHeader + 2*int(le.Uint16(b[6:]))
	default:
		return nil, nil, false
	}
	if size > len(b) {
		return nil, nil, false
	}
	return ruleElement(b[:size]), b[size:], true
}

// eachRule runs one on every element of the buffer until one fails, and
// leaves its verdict in the element's status.
func eachRule(r *request, one func(ruleElement) errno) errno {
	count := int(le.Uint16(r.p()))
	if count == 0 {
		return rcEINVAL
	}
	rest := r.buf
	for range count {
		e, after, ok := nextRule(rest)
		if !ok {
			return rcEINVAL
		}
		rc := one(e)
		le.PutUint16(e[2:], uint16(rc))
		if rc != rcOK {
			return rc
		}
		rest = after
	}
	return rcOK
}

// setList makes VSIs members of a list, or ends their membership.
func (s *vswitch) setList(e ruleElement) errno {
	l := s.lists[le.Uint16(e[4:])]
	if l == nil {
		return rcENOENT
	}
	kind := e.kind()
	if prune := kind == rulePruneListSet || kind == rulePruneListClear; prune != l.prune {
		return rcEINVAL
	}
	set := kind == ruleVSIListSet || kind == rulePruneListSet
	ids := elements16(e[listHeader:])
	if ids.count() == 0 {
		return rcEINVAL
	}
	for i := range ids.count() {
		id := ids.get(i)
		if known := l.members[id]; set && s.vsis[id] == nil || !set && !known {
			return rcENOENT
		}
	}
	if set && s.listed()+s.namers(le.Uint16(e[4:]))*ids.count() > maxListed {
		return rcENOSPC
	}
	s.touch(staleRules)
	for i := range ids.count() {
		if id := ids.get(i); set {
			l.members[id] = true
		} else {
			delete(l.members, id)
		}
	}
	return rcOK
}

func addSwitchRules(f *Firmware, r *request) errno {
	return eachRule(r, func(e ruleElement) errno {
		if e.kind() > ruleLookupTx {
			return f.sw.setList(e)
		}
		return f.sw.addRule(e)
	})
}

func updateSwitchRules(f *Firmware, r *request) errno {
	return eachRule(r, func(e ruleElement) errno {
		if e.kind() > ruleLookupTx {
			return f.sw.setList(e)
		}
		return f.sw.updateRule(e)
	})
}

func removeSwitchRules(f *Firmware, r *request) errno {
	return eachRule(r, func(e ruleElement) errno {
		if e.kind() > ruleLookupTx {
			return rcEINVAL
		}
		return f.sw.removeRule(le.Uint16(e[12:]))
	})
}

var ruleCommands = []command{
	{op: 0x02A0, name: "add_sw_rules", rd: true, minBuf: listHeader, run: addSwitchRules, source: "ice_switch.c:ice_aq_sw_rules"},
	{op: 0x02A1, name: "update_sw_rules", rd: true, minBuf: listHeader, run: updateSwitchRules, source: "ice_switch.c:ice_aq_sw_rules"},
	{op: 0x02A2, name: "remove_sw_rules", rd: true, minBuf: lookupHeader, run: removeSwitchRules, source: "ice_switch.c:ice_aq_sw_rules"},
}

// recipeCommands fail: there are no recipes but the predefined ones, and no
// profiles to associate them with. Drivers ask for them only in double VLAN
// mode, for LAG and for flower filters.
var recipeCommands = []command{
	{op: 0x0290, name: "add_recipe"},
	{op: 0x0291, name: "recipe_to_profile"},
	{op: 0x0292, name: "get_recipe"},
	{op: 0x0293, name: "get_recipe_to_profile"},
}

// switchCommands are those of the switch and all that hangs on it.
var switchCommands = slices.Concat(resourceCommands, vsiCommands, recipeCommands, ruleCommands, rssCommands)

// VSIList is a snapshot of a VSI list.
type VSIList struct {
	ID      uint16
	Prune   bool     // VSI_LIST_PRUNE: the members of a VLAN
	Members []uint16 // VSI numbers, sorted
}

// VSILists returns all VSI lists in the order of their ids.
func (f *Firmware) VSILists() []VSIList {
	all := make([]VSIList, 0, len(f.sw.lists))
	for _, id := range slices.Sorted(maps.Keys(f.sw.lists)) {
		l := f.sw.lists[id]
		all = append(all, VSIList{id, l.prune, slices.Sorted(maps.Keys(l.members))})
	}
	return all
}
