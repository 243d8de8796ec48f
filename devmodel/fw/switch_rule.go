// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"fmt"
	"maps"
	"slices"
)

// Recipe says which fields of a frame a rule looks at
// (ice_type.h, ice_switch.h:enum ice_sw_lkup_type).
type Recipe uint16

// The recipes the firmware comes with.
const (
	RecipeEthertype   Recipe = 0 // ICE_SW_LKUP_ETHERTYPE
	RecipeMAC         Recipe = 1 // ICE_SW_LKUP_MAC
	RecipeMACVLAN     Recipe = 2 // ICE_SW_LKUP_MAC_VLAN
	RecipePromisc     Recipe = 3 // ICE_SW_LKUP_PROMISC
	RecipeVLAN        Recipe = 4 // ICE_SW_LKUP_VLAN
	RecipeDefault     Recipe = 5 // ICE_SW_LKUP_DFLT
	RecipePromiscVLAN Recipe = 9 // ICE_SW_LKUP_PROMISC_VLAN
)

// Firmware has an eighth, ICE_SW_LKUP_ETHERTYPE_MAC, of which drivers make no
// rule; nor does this one offer it.

var recipeNames = map[Recipe]string{
	RecipeEthertype: "ETHERTYPE", RecipeMAC: "MAC", RecipeMACVLAN: "MAC_VLAN",
	RecipePromisc: "PROMISC", RecipeVLAN: "VLAN", RecipeDefault: "DFLT",
	RecipePromiscVLAN: "PROMISC_VLAN",
}

func (r Recipe) String() string {
	if n, ok := recipeNames[r]; ok {
		return n
	}
	return fmt.Sprintf("recipe %d", uint16(r))
}

// Action is what a rule does (ice_adminq_cmd.h:ICE_SINGLE_ACT_*).
type Action uint32

// Kinds of action. Of the others, to a queue, mirroring and counting, drivers
// make no rule of the predefined recipes; they are refused.
const (
	ActForward = 0 // to a VSI or VSI list, or drop
	ActPrune   = 2 // what is not of the VLAN
)

func (a Action) has(bit uint) bool { return a&(1<<bit) != 0 }

// Kind is one of the Act constants.
func (a Action) Kind() int { return int(a & 3) }

// Loopback lets the frame go to a local VSI (LB_ENABLE).
func (a Action) Loopback() bool { return a.has(2) }

// LAN lets the frame go to the wire (LAN_ENABLE).
func (a Action) LAN() bool { return a.has(3) }

// Target is the VSI number or, if List, the VSI list id.
func (a Action) Target() uint16 { return uint16(a >> 4 & 0x3FF) }

// List tells that Target is a VSI list.
func (a Action) List() bool { return a.has(14) }

// Drop discards the frame.
func (a Action) Drop() bool { return a.Kind() == ActForward && a.has(18) }

// Valid tells that the action means anything (VALID_BIT). A prune has no such
// bit.
func (a Action) Valid() bool { return a.Kind() == ActPrune || a.has(17) }

// actionTarget are the bits that say which VSIs an action means: the kind, the
// number or list, whether it is a list, and drop.
const actionTarget Action = 3 | 0x3FF<<4 | 1<<14 | 1<<18

// pointer tells that an ActPrune is a pointer to a large action instead.
func (a Action) pointer() bool { return a.has(18) }

// bothWays tells that an ActPrune prunes what is received and what is sent
// (EGRESS, INGRESS), in the usual sense (not PRUNET). Drivers make no other.
func (a Action) bothWays() bool { return a.has(15) && a.has(16) && !a.has(17) }

// ruleHeader is the length of the Ethernet header that rules of the
// predefined recipes carry (ice_switch.c:DUMMY_ETH_HDR_LEN).
const ruleHeader = 16

// ruleKey is what makes a rule: a second one with the same key is refused.
type ruleKey struct {
	tx     bool
	recipe Recipe
	source uint16
	header [ruleHeader]byte
}

// rule is a lookup rule.
type rule struct {
	ruleKey
	action Action
}

// checkAction refuses an action that names something absent, or that rules of
// the key's recipe do not have.
func (s *vswitch) checkAction(k ruleKey, a Action) errno {
	switch {
	case a.Kind() == ActPrune && a.pointer():
		return rcENOENT // there are no large actions
	case a.Kind() != ActForward && a.Kind() != ActPrune,
		(k.recipe == RecipeVLAN) != (a.Kind() == ActPrune),
		a.Kind() == ActPrune && !a.bothWays(),
		a.Drop() && k.recipe == RecipeDefault,
		!a.Drop() && k.tx && k.recipe == RecipeEthertype:
		return rcEINVAL
	case a.Drop():
		return rcOK
	case !a.List():
		if s.vsis[a.Target()] == nil {
			return rcENOENT
		}
		return rcOK
	}
	l := s.lists[a.Target()]
	switch {
	case l == nil:
		return rcENOENT
	case l.prune != (a.Kind() == ActPrune):
		return rcEINVAL
	case s.listed()+len(l.members) > maxListed:
		return rcENOSPC
	}
	return rcOK
}

// maxListed bounds how many VSIs all rules may name through lists, and with it
// what the tables made of them take. That silicon has room for as many is
// inferred.
const maxListed = 1 << 16

// listed is how many VSIs rules name through lists.
func (s *vswitch) listed() int {
	n := 0
	for _, r := range s.rules {
		if r.action.List() {
			if l := s.lists[r.action.Target()]; l != nil {
				n += len(l.members)
			}
		}
	}
	return n
}

// namers is how many rules name the list.
func (s *vswitch) namers(id uint16) int {
	n := 0
	for _, r := range s.rules {
		if r.action.List() && r.action.Target() == id {
			n++
		}
	}
	return n
}

// addRule adds a lookup rule and fills in its index.
func (s *vswitch) addRule(e ruleElement) errno {
	if len(e) != lookupHeader+ruleHeader {
		return rcEINVAL
	}
	key := ruleKey{
		tx:     e.kind() == ruleLookupTx,
		recipe: Recipe(le.Uint16(e[4:])),
		source: le.Uint16(e[6:]),
		header: [ruleHeader]byte(e[lookupHeader:]),
	}
	if _, ok := recipeNames[key.recipe]; !ok {
		return rcENOENT
	}
	// The source is a VSI for Tx and a logical port for Rx rules.
	if key.tx && s.vsis[key.source] == nil || !key.tx && key.source != lport {
		return rcENOENT
	}
	action := Action(le.Uint32(e[8:]))
	if rc := s.checkAction(key, action); rc != rcOK {
		return rc
	}
	if _, ok := s.byKey[key]; ok {
		return rcEEXIST
	}
	id, ok := s.ruleNumbers.lowest()
	if !ok {
		return rcENOSPC
	}
	s.rules[uint16(id)] = &rule{key, action}
	s.byKey[key] = uint16(id)
	s.touch(staleRules)
	le.PutUint16(e[12:], uint16(id))
	return rcOK
}

// updateRule replaces the action of a rule. What it looks for is part of its
// identity and stays.
func (s *vswitch) updateRule(e ruleElement) errno {
	r := s.rules[le.Uint16(e[12:])]
	if r == nil {
		return rcENOENT
	}
	if r.tx != (e.kind() == ruleLookupTx) || r.recipe != Recipe(le.Uint16(e[4:])) {
		return rcEINVAL
	}
	action := Action(le.Uint32(e[8:]))
	if rc := s.checkAction(r.ruleKey, action); rc != rcOK {
		return rc
	}
	r.action = action
	s.touch(staleRules)
	return rcOK
}

func (s *vswitch) removeRule(index uint16) errno {
	r := s.rules[index]
	if r == nil {
		return rcENOENT
	}
	s.touch(staleRules)
	delete(s.byKey, r.ruleKey)
	delete(s.rules, index)
	s.ruleNumbers.put(int(index))
	return rcOK
}

// Rule is a snapshot of a lookup rule. Rules of recipe MAC, MAC_VLAN and VLAN
// are said to be Tx and yet match frames from the wire too: the driver
// installs no others.
type Rule struct {
	Index  uint16
	Tx     bool // ICE_AQC_SW_RULES_T_LKUP_TX
	Recipe Recipe
	Source uint16 // VSI number for Tx, logical port for Rx
	Action Action
	// Header is the Ethernet header to match: DA at 0, SA at 6, ethertype or
	// TPID at 12, VLAN TCI at 14, big endian; which of them depends on Recipe.
	Header [ruleHeader]byte
	// VSIs are the existing VSIs that the action means, sorted. It is empty
	// for drops and for a rule whose VSI or list is gone.
	VSIs []uint16
}

// Rules returns all lookup rules in the order of their indices.
func (f *Firmware) Rules() []Rule {
	s := f.sw
	all := make([]Rule, 0, len(s.rules))
	for _, i := range slices.Sorted(maps.Keys(s.rules)) {
		r := s.rules[i]
		all = append(all, Rule{i, r.tx, r.recipe, r.source, r.action, r.header, s.targets(r.action)})
	}
	return all
}

// targets resolves an action to the VSIs it means.
func (s *vswitch) targets(a Action) []uint16 {
	if a.Drop() {
		return nil
	}
	named := []uint16{a.Target()}
	if a.List() {
		named = nil
		if l := s.lists[a.Target()]; l != nil && l.prune == (a.Kind() == ActPrune) {
			named = slices.Sorted(maps.Keys(l.members))
		}
	}
	return slices.DeleteFunc(named, func(n uint16) bool { return s.vsis[n] == nil })
}
