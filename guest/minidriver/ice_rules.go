// SPDX-License-Identifier: Apache-2.0

package minidriver

// Switch rules (ice_switch.c, ice_adminq_cmd.h:ice_sw_rule_lkup_rx_tx).
const (
	ruleRx         = 0
	ruleTx         = 1
	rulePruneSet   = 5
	rulePruneClear = 6

	recipeEthertype = 0
	recipeMAC       = 1
	recipeVLAN      = 4

	actPrune    = 2
	actLoopback = 1 << 2
	actLAN      = 1 << 3
	actList     = 1 << 14
	actEgress   = 1 << 15
	actIngress  = 1 << 16
	actValid    = 1 << 17
	actDrop     = 1 << 18

	ruleFixed  = 16
	ruleHeader = 16
)

// dummyHeader is what every rule's header starts as.
var dummyHeader = [ruleHeader]byte{0x02, 6: 0x02, 12: 0x81}

// rule is a lookup rule at the device.
type rule struct {
	kind, recipe, src uint16
	act               uint32
	header            [ruleHeader]byte
	index             uint16
}

func ethertypeRule(kind, src, ethertype uint16, act uint32) rule {
	r := rule{kind: kind, recipe: recipeEthertype, src: src, act: act, header: dummyHeader}
	r.header[12], r.header[13] = byte(ethertype>>8), byte(ethertype)
	return r
}

func (i *ICE) macRule(mac [6]byte) rule {
	r := rule{kind: ruleTx, recipe: recipeMAC, src: i.main.num, header: dummyHeader,
		act: uint32(i.main.num)<<4 | actValid | actLoopback}
	if mac[0]&1 != 0 {
		r.act |= actLAN
	}
	copy(r.header[:], mac[:])
	return r
}

func (r rule) bytes(header bool) []byte {
	b := make([]byte, ruleFixed, ruleFixed+ruleHeader)
	le.PutUint16(b, r.kind)
	le.PutUint16(b[4:], r.recipe)
	le.PutUint16(b[6:], r.src)
	le.PutUint16(b[12:], r.index)
	if header {
		le.PutUint32(b[8:], r.act)
		le.PutUint16(b[14:], ruleHeader)
		b = append(b, r.header[:]...)
	}
	return b
}

func (i *ICE) switchRule(op uint16, buf []byte) (*Command, error) {
	c := &Command{Op: op, RD: true, Buf: buf}
	c.put16(0, 1)
	return c, i.aq.do(c)
}

func (i *ICE) addRule(r rule) error {
	c, err := i.switchRule(ice_aqc_opc_add_sw_rules, r.bytes(true))
	if err != nil {
		return err
	}
	r.index = le.Uint16(c.Buf[12:])
	for _, other := range i.rules {
		if other.index == r.index {
			return c.wrong("rule index %d is given twice", r.index)
		}
	}
	i.rules = append(i.rules, r)
	return nil
}

func (i *ICE) removeRule(index uint16) error {
	for n, r := range i.rules {
		if r.index == index {
			i.rules = append(i.rules[:n:n], i.rules[n+1:]...)
			_, err := i.switchRule(ice_aqc_opc_remove_sw_rules, r.bytes(false))
			return err
		}
	}
	return nil
}

// dropRules removes all rules, and the profiles of RSS before them.
func (i *ICE) dropRules() error {
	if err := i.dropProfiles(ICE_AQC_RES_TYPE_HASH_PROF_BLDR_PROFID, ICE_SID_XLT1_RSS); err != nil {
		return err
	}
	for len(i.rules) > 0 {
		if err := i.removeRule(i.rules[0].index); err != nil {
			return err
		}
	}
	return nil
}

// addMACRules is ice_lib.c:ice_init_mac_fltr.
func (i *ICE) addMACRules() error {
	for _, mac := range [][6]byte{i.MAC, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		if err := i.addRule(i.macRule(mac)); err != nil {
			return err
		}
	}
	return nil
}

// listRule is a VSI list rule with one member.
func listRule(kind, list, vsi uint16) []byte {
	b := make([]byte, 10)
	le.PutUint16(b, kind)
	le.PutUint16(b[4:], list)
	le.PutUint16(b[6:], 1)
	le.PutUint16(b[8:], vsi)
	return b
}

// vlan is a VLAN that the PF VSI is in.
type vlan struct {
	id   uint16
	list uint16 // of VSIs
	rule uint16
}

// addVLANZero is ice_lib.c:ice_vsi_add_vlan_zero: untagged frames pass pruning.
func (i *ICE) addVLANZero() error { return i.addVLAN(0, 0) }

// AddVLAN lets frames of a VLAN pass (ice_main.c:ice_vlan_rx_add_vid).
func (i *ICE) AddVLAN(id uint16) error { return i.addVLAN(0x8100, id) }

func (i *ICE) addVLAN(tpid, id uint16) error {
	const kind = ICE_AQC_RES_TYPE_VSI_LIST_PRUNE | ICE_AQC_RES_TYPE_FLAG_SHARED
	list, err := i.allocResource(kind, 1)
	if err != nil {
		return err
	}
	if _, err := i.switchRule(ice_aqc_opc_add_sw_rules, listRule(rulePruneSet, list, i.main.num)); err != nil {
		return err
	}
	r := rule{kind: ruleTx, recipe: recipeVLAN, src: i.main.num, header: dummyHeader,
		act: actPrune | actLAN | uint32(list)<<4 | actList | actEgress | actIngress}
	be.PutUint16(r.header[12:], tpid)
	be.PutUint16(r.header[14:], id)
	if err := i.addRule(r); err != nil {
		return err
	}
	i.vlans = append(i.vlans, vlan{id, list, i.rules[len(i.rules)-1].index})
	return nil
}

// removeVLANs removes all VLANs, each in the driver's order: the list goes while
// the rule still names it.
func (i *ICE) removeVLANs() error {
	const kind = ICE_AQC_RES_TYPE_VSI_LIST_PRUNE | ICE_AQC_RES_TYPE_FLAG_SHARED
	for _, v := range i.vlans {
		if _, err := i.switchRule(ice_aqc_opc_update_sw_rules, listRule(rulePruneClear, v.list, i.main.num)); err != nil {
			return err
		}
		if err := i.freeResource(kind, v.list); err != nil {
			return err
		}
		if err := i.removeRule(v.rule); err != nil {
			return err
		}
	}
	i.vlans = nil
	return nil
}
