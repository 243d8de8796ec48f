// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"maps"
	"net"
	"testing"
)

// Rules by which ice changes what a netdev listens to (ice_switch.c).
const (
	recipePromisc     = 3
	recipeDefault     = 5
	recipePromiscVLAN = 9
)

// toMain is the action of a rule for frames from the wire.
func (i *ICE) toMain() uint32 { return uint32(i.main.num)<<4 | actValid }

// allGroups adds rules for all multicast (ice_switch.c:ice_set_vsi_promisc);
// vlan < 0: those of no VLAN.
func (i *ICE) allGroups(vlan int) error {
	rx := rule{kind: ruleRx, recipe: recipePromisc, act: i.toMain(), header: dummyHeader}
	rx.header[0] |= 1
	if vlan >= 0 {
		rx.recipe = recipePromiscVLAN
		be.PutUint16(rx.header[14:], uint16(vlan))
	}
	tx := rx
	tx.kind, tx.src, tx.act = ruleTx, i.main.num, rx.act|actLoopback|actLAN
	if err := i.addRule(rx); err != nil {
		return err
	}
	return i.addRule(tx)
}

// filterVLANs is ice_vsi_vlan_lib.c:ice_cfg_vlan_pruning.
func (i *ICE) filterVLANs(on bool) error {
	return i.updateVSI(i.main, propSwitch, func(b []byte) {
		b[2] = byte(i.swID)
		b[3] = swFlagSourcePrune | swFlagAllowLoopback
		b[4] = swFlag2LANEnable
		if on {
			b[4] |= swFlag2VLANPrune
		}
	})
}

// What a driver listens to reaches it, and nothing else does.
func TestSteeringOfTheWire(t *testing.T) {
	i, w, complaints := wired(t, Linux612(), Options{})
	own := net.HardwareAddr(i.MAC[:])
	other, everybody := net.HardwareAddr{2, 0, 0, 0, 0, 0x99}, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	group, another := net.HardwareAddr{1, 0, 0x5e, 1, 2, 3}, net.HardwareAddr{1, 0, 0x5e, 1, 2, 4}
	frames := map[string][]byte{}
	for name, to := range map[string]net.HardwareAddr{"own": own, "other": other, "everybody": everybody, "group": group, "another": another} {
		frames[name] = append(append(bytes.Clone(to), worldMAC...), 0x88, 0xb5)
		for tag, id := range map[string]byte{"+0": 0, "+100": 100, "+200": 200} {
			frames[name+tag] = append(append(bytes.Clone(to), worldMAC...), 0x81, 0, 0x60, id, 0x88, 0xb5)
		}
	}
	for name, f := range frames {
		frames[name] = append(f, make([]byte, 60-len(f))...)
		frames[name][59] = byte(len(name))
	}
	listens := func(when string, want ...string) {
		t.Helper()
		got := map[string]bool{}
		for name, f := range frames {
			w.inject(f, mark(own, worldMAC))
			// No hash is computed of these: they share a queue.
			must(t, i.F.poll("the mark", func() bool {
				for {
					r, ok, err := i.Receive(i.queues[0])
					must(t, err)
					if !ok || bytes.Contains(r.Data, []byte("mark")) {
						return ok
					}
					got[name] = true
				}
			}))
		}
		wanted := map[string]bool{}
		for _, name := range want {
			wanted[name] = true
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("%s: received %v, want %v", when, got, wanted)
		}
	}
	// since removes what was added.
	since := func(n int) {
		t.Helper()
		for len(i.rules) > n {
			must(t, i.removeRule(i.rules[len(i.rules)-1].index))
		}
	}
	basic := []string{"own", "own+0", "everybody", "everybody+0"}
	with := func(more ...string) []string { return append(append([]string(nil), basic...), more...) }
	first := len(i.rules)
	listens("as it was opened", basic...)

	must(t, i.addRule(i.macRule([6]byte(group))))
	listens("a group", with("group", "group+0")...)
	since(first)
	listens("no group", basic...)

	groups := []string{"group", "group+0", "another", "another+0"}
	must(t, i.allGroups(-1))
	listens("all groups", with(groups...)...)
	since(first)
	listens("not all groups", basic...)

	d := rule{kind: ruleRx, recipe: recipeDefault, act: i.toMain(), header: dummyHeader}
	must(t, i.addRule(d))
	must(t, i.filterVLANs(false))
	var all []string
	for name := range frames {
		all = append(all, name)
	}
	listens("promiscuous", all...)
	must(t, i.filterVLANs(true))
	since(first)
	listens("not promiscuous", basic...)

	must(t, i.AddVLAN(100))
	joined := len(i.rules)
	member := with("own+100", "everybody+100")
	listens("in a VLAN", member...)
	must(t, i.allGroups(0))
	must(t, i.allGroups(100))
	listens("all groups of a VLAN", append(append(member, groups...), "group+100", "another+100")...)
	since(joined)
	must(t, i.filterVLANs(false))
	listens("without a filter", with("own+100", "own+200", "everybody+100", "everybody+200")...)
	must(t, i.filterVLANs(true))
	listens("with one", member...)
	must(t, i.Remove())
	quiet(t, complaints)
}
