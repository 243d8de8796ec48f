// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/reg"
)

// frameHeader is the header of a rule: the driver's dummy with a destination
// (ice_switch.c:dummy_eth_header).
func frameHeader(da [6]byte, etherType, tci uint16) []byte {
	h := slices.Concat(da[:], []byte{2, 0, 0, 0, 0, 0})
	h = binary.BigEndian.AppendUint16(h, etherType)
	return binary.BigEndian.AppendUint16(h, tci)
}

var dummyDA = [6]byte{2}

func lookup(kind, recipe, src uint16, act uint32, index uint16, header []byte) []byte {
	return slices.Concat(u16(kind, 0xFFFF, recipe, src), u32(act), u16(index, uint16(len(header))), header)
}

func vsiListRule(kind, list uint16, vsis ...uint16) []byte {
	return slices.Concat(u16(kind, 0, list, uint16(len(vsis))), u16(vsis...))
}

const (
	actValid = 1 << 17
	actDrop  = 1 << 18
	actList  = 1 << 14
	actLB    = 1 << 2
	actLAN   = 1 << 3
	actPrune = 2 | 1<<15 | 1<<16
)

func toVSI(n uint16) uint32 { return uint32(n)<<4 | actValid | actLB }

// addRule adds one rule and returns its index.
func (b *bench) addRule(rule []byte) uint16 {
	b.t.Helper()
	_, out := b.must(0x02A0, u16(1), rule)
	if len(out) != len(rule) || get16(out, 2) != 0 {
		b.t.Fatalf("response % x", out)
	}
	return get16(out, 12)
}

func macRule(vsi uint16, da [6]byte) []byte {
	return lookup(1, 1, vsi, toVSI(vsi), 0, frameHeader(da, 0x8100, 0))
}

// What the drivers install from probe to promiscuous mode.
func TestSwitchRulesOfDriver(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	mac := [6]byte{0x52, 0x54, 0, 1, 2, 3}
	pause := b.addRule(lookup(1, 0, n, actDrop|actValid, 0, frameHeader(dummyDA, 0x8808, 0)))
	lldp := b.addRule(lookup(1, 0, n, actDrop|actValid, 0, frameHeader(dummyDA, 0x88CC, 0)))
	own := b.addRule(macRule(n, mac))
	rxLLDP := b.addRule(lookup(0, 0, 0, toVSI(n)&^actLB, 0, frameHeader(dummyDA, 0x88CC, 0)))
	dflt := b.addRule(lookup(0, 5, 0, toVSI(n)&^actLB, 0, frameHeader(dummyDA, 0x8100, 0)))
	_, list := b.alloc(0x84, 1)
	b.must(0x02A0, u16(1), vsiListRule(5, list[0], n))
	act := uint32(actPrune|actLAN|actList) | uint32(list[0])<<4
	vlan := b.addRule(lookup(1, 4, n, act, 0, frameHeader(dummyDA, 0, 0)))

	got := b.f.Rules()
	want := []struct {
		index  uint16
		tx     bool
		recipe Recipe
		vsis   []uint16
	}{
		{pause, true, RecipeEthertype, nil}, {lldp, true, RecipeEthertype, nil}, {own, true, RecipeMAC, []uint16{n}},
		{rxLLDP, false, RecipeEthertype, []uint16{n}}, {dflt, false, RecipeDefault, []uint16{n}},
		{vlan, true, RecipeVLAN, []uint16{n}},
	}
	if len(got) != len(want) {
		t.Fatalf("%d rules, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Index != w.index || g.Tx != w.tx || g.Recipe != w.recipe || !slices.Equal(g.VSIs, w.vsis) {
			t.Errorf("rule %d: %+v, want %+v", i, g, w)
		}
	}
	if h := got[2].Header; [6]byte(h[:6]) != mac || !got[2].Action.Loopback() || got[2].Action.LAN() {
		t.Errorf("MAC rule: %+v", got[2])
	}
	if !got[0].Action.Drop() || got[5].Action.Kind() != ActPrune || !got[5].Action.List() {
		t.Errorf("actions: %+v, %+v", got[0], got[5])
	}

	// Down: the list is cleared and freed before the rule that names it.
	b.must(0x02A1, u16(1), vsiListRule(6, list[0], n))
	b.must(0x0209, u16(1), resBuf(0x04, 1, list[0]))
	if r := b.f.Rules()[5]; len(r.VSIs) != 0 {
		t.Errorf("rule of a freed list means %v", r.VSIs)
	}
	remove := lookup(0, 0, 0, 0, vlan, nil)
	if len(remove) != 16 {
		t.Fatal("a remove is 16 bytes long")
	}
	b.must(0x02A2, u16(1), remove)
	b.want(rcENOENT, 0x02A2, u16(1), remove)
	for i := range want[:5] {
		b.must(0x02A2, u16(1), lookup(0, 0, 0, 0, want[i].index, nil))
	}
	if len(b.f.Rules()) != 0 {
		t.Errorf("left: %+v", b.f.Rules())
	}
}

func TestSwitchRuleIdentity(t *testing.T) {
	b := newBench(t)
	n, m := b.addVSI(), b.addVSI()
	da := [6]byte{0x52, 0x54, 0, 0, 0, 1}
	i := b.addRule(macRule(n, da))
	b.want(rcEEXIST, 0x02A0, u16(1), macRule(n, da))
	// Another action makes no other rule.
	b.want(rcEEXIST, 0x02A0, u16(1), lookup(1, 1, n, toVSI(m), 0, frameHeader(da, 0x8100, 0)))
	j := b.addRule(macRule(n, [6]byte{0x52, 0x54, 0, 0, 0, 2}))
	if i == j || i == 0 || j == 0 {
		t.Errorf("indices %d, %d", i, j)
	}
	b.must(0x02A2, u16(1), lookup(0, 0, 0, 0, i, nil))
	if k := b.addRule(macRule(n, da)); k != i {
		t.Errorf("index %d, want the freed %d", k, i)
	}
	b.f.Reset(reg.PFR)
	n = b.addVSI()
	b.addRule(macRule(n, da))
}

// A second VSI with the same address: the rule is turned to a list
// (ice_switch.c:ice_add_update_vsi_list), and back.
func TestSwitchRuleUpdate(t *testing.T) {
	b := newBench(t)
	n, m := b.addVSI(), b.addVSI()
	da := [6]byte{0x52, 0x54, 0, 0, 0, 1}
	i := b.addRule(macRule(n, da))
	_, list := b.alloc(0x03, 1)
	b.must(0x02A0, u16(1), vsiListRule(3, list[0], n, m))
	// The driver's update has the header in the buffer and hdr_len 0.
	update := func(index uint16, act uint32) []byte {
		r := lookup(1, 1, n, act, index, frameHeader(da, 0x8100, 0))
		copy(r[14:], u16(0))
		return r
	}
	listAct := uint32(list[0])<<4 | actList | actValid | actLB
	b.must(0x02A1, u16(1), update(i, listAct))
	if r := b.f.Rules()[0]; !slices.Equal(r.VSIs, []uint16{n, m}) || [6]byte(r.Header[:6]) != da || r.Index != i {
		t.Errorf("rule %+v, want VSIs %d and %d", r, n, m)
	}
	b.must(0x02A1, u16(1), vsiListRule(4, list[0], n))
	if d := cmp.Diff([]VSIList{{ID: list[0], Members: []uint16{m}}}, b.f.VSILists()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b.must(0x02A1, u16(1), update(i, toVSI(m)))
	if r := b.f.Rules()[0]; !slices.Equal(r.VSIs, []uint16{m}) {
		t.Errorf("rule means %v, want %d", r.VSIs, m)
	}
	b.want(rcENOENT, 0x02A1, u16(1), update(i+1, toVSI(m)))
	b.want(rcENOENT, 0x02A1, u16(1), update(i, toVSI(99)))
	b.want(rcEINVAL, 0x02A1, u16(1), lookup(0, 1, 0, toVSI(m), i, nil))
	b.want(rcEINVAL, 0x02A1, u16(1), lookup(1, 4, n, toVSI(m), i, nil))
	b.must(0x0213, named(m), nil)
	if r := b.f.Rules()[0]; len(r.VSIs) != 0 {
		t.Errorf("rule of a freed VSI means %v", r.VSIs)
	}
}

func TestSwitchRuleRefused(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	_, rep := b.alloc(0x03, 1)
	_, prune := b.alloc(0x84, 1)
	b.must(0x02A0, u16(1), vsiListRule(3, rep[0], n))
	h := frameHeader(dummyDA, 0x8100, 0)
	for _, c := range []struct {
		name string
		rc   errno
		op   uint16
		n    uint16
		buf  []byte
	}{
		{"no rules", rcEINVAL, 0x02A0, 0, macRule(n, dummyDA)},
		{"rules past the buffer", rcEINVAL, 0x02A0, 2, slices.Concat(vsiListRule(3, rep[0], n), u16(3, 0))},
		{"short lookup", rcEINVAL, 0x02A0, 1, macRule(n, dummyDA)[:15]},
		{"unknown VSI", rcENOENT, 0x02A0, 1, lookup(1, 1, n, toVSI(99), 0, h)},
		{"unknown source VSI", rcENOENT, 0x02A0, 1, lookup(1, 1, 99, toVSI(n), 0, h)},
		{"unknown port", rcENOENT, 0x02A0, 1, lookup(0, 5, 1, toVSI(n), 0, h)},
		{"unknown recipe", rcENOENT, 0x02A0, 1, lookup(1, 10, n, toVSI(n), 0, h)},
		{"unknown list", rcENOENT, 0x02A0, 1, lookup(1, 1, n, 99<<4|actList|actValid, 0, h)},
		{"forward to a prune list", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, uint32(prune[0])<<4|actList|actValid, 0, h)},
		{"prune by a forward list", rcEINVAL, 0x02A0, 1, lookup(1, 4, n, uint32(rep[0])<<4|actList|actPrune, 0, h)},
		{"large action", rcENOENT, 0x02A0, 1, lookup(1, 1, n, 2|1<<18, 0, h)},
		{"recipe nobody made", rcENOENT, 0x02A0, 1, lookup(1, 6, n, toVSI(n), 0, h)},
		{"to a queue", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, 1|3<<4, 0, h)},
		{"mirror", rcEINVAL, 0x02A0, 1, lookup(1, 2, n, 3|uint32(n)<<4, 0, h)},
		{"count", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, 3|3<<17, 0, h)},
		{"ethertype with an address", rcENOENT, 0x02A0, 1, lookup(1, 8, n, actDrop|actValid, 0, h)},
		{"prune by an address", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, uint32(n)<<4|actPrune, 0, h)},
		{"forward by a VLAN", rcEINVAL, 0x02A0, 1, lookup(1, 4, n, toVSI(n), 0, h)},
		{"prune one way", rcEINVAL, 0x02A0, 1, lookup(1, 4, n, (uint32(n)<<4|actPrune)&^(1<<16), 0, h)},
		{"prune what matches", rcEINVAL, 0x02A0, 1, lookup(1, 4, n, uint32(n)<<4|actPrune|1<<17, 0, h)},
		{"drop by default", rcEINVAL, 0x02A0, 1, lookup(0, 5, 0, actDrop|actValid, 0, h)},
		{"forward of a sent ethertype", rcEINVAL, 0x02A0, 1, lookup(1, 0, n, toVSI(n), 0, h)},
		{"no header", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, toVSI(n), 0, nil)},
		{"long header", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, toVSI(n), 0, make([]byte, 40))},
		{"header past the buffer", rcEINVAL, 0x02A0, 1, lookup(1, 1, n, toVSI(n), 0, h)[:31]},
		{"large action element", rcEINVAL, 0x02A0, 1, lookup(2, 1, n, toVSI(n), 0, h)},
		{"unknown element", rcEINVAL, 0x02A0, 1, lookup(7, 1, n, toVSI(n), 0, h)},
		{"set of an unknown list", rcENOENT, 0x02A0, 1, vsiListRule(3, 99, n)},
		{"set of an unknown VSI", rcENOENT, 0x02A0, 1, vsiListRule(3, rep[0], 99)},
		{"set of no VSI", rcEINVAL, 0x02A0, 1, vsiListRule(3, rep[0])},
		{"set of the other kind", rcEINVAL, 0x02A0, 1, vsiListRule(5, rep[0], n)},
		{"set past the buffer", rcEINVAL, 0x02A0, 1, slices.Concat(u16(3, 0, rep[0], 0xFFFF), u16(n))},
		{"clear of one not in it", rcENOENT, 0x02A1, 1, vsiListRule(6, prune[0], n)},
		{"remove of a list", rcEINVAL, 0x02A2, 1, slices.Concat(vsiListRule(3, rep[0], n), make([]byte, 6))},
		{"remove of nothing", rcENOENT, 0x02A2, 1, lookup(0, 0, 0, 0, 0xFFFF, nil)},
		{"short remove", rcEINVAL, 0x02A2, 1, lookup(0, 0, 0, 0, 1, nil)[:15]},
	} {
		if rc, _, _ := b.do(c.op, u16(c.n), c.buf); rc != c.rc {
			t.Errorf("%s: %v, want %v", c.name, rc, c.rc)
		}
	}
	if len(b.f.Rules()) != 0 || !slices.Equal(b.f.VSILists()[0].Members, []uint16{n}) {
		t.Errorf("left: %+v, %+v", b.f.Rules(), b.f.VSILists())
	}
	for op := uint16(0x0290); op <= 0x0293; op++ {
		b.want(rcESRCH, op, nil, make([]byte, 64))
	}
}

// Several rules in one buffer; the first that fails ends it.
func TestSwitchRuleBatch(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	one, two := macRule(n, [6]byte{2, 0, 0, 0, 0, 1}), macRule(n, [6]byte{2, 0, 0, 0, 0, 2})
	_, out := b.must(0x02A0, u16(2), slices.Concat(one, two))
	if i, j := get16(out, 12), get16(out, 32+12); i == j || len(b.f.Rules()) != 2 {
		t.Errorf("indices %d, %d, %d rules", i, j, len(b.f.Rules()))
	}
	three := macRule(n, [6]byte{2, 0, 0, 0, 0, 3})
	b.want(rcEEXIST, 0x02A0, u16(3), slices.Concat(three, one, macRule(n, [6]byte{2, 0, 0, 0, 0, 4})))
	if got := len(b.f.Rules()); got != 3 {
		t.Errorf("%d rules, want 3", got)
	}
}

func TestSwitchFull(t *testing.T) {
	b := newBench(t)
	n := b.addVSI()
	const batch = 64
	rc := rcOK
	for i := 0; i < 10000 && rc == rcOK; i += batch {
		var rules []byte
		for j := i; j < i+batch; j++ {
			rules = append(rules, macRule(n, [6]byte{2, 0, 0, 0, byte(j >> 8), byte(j)})...)
		}
		rc, _, _ = b.do(0x02A0, u16(batch), rules)
	}
	if got := len(b.f.Rules()); rc != rcENOSPC || got != 4096 || len(b.lan.steering.Addresses) != 4096 {
		t.Errorf("%v after %d rules, %d addresses, want ENOSPC after 4096", rc, got, len(b.lan.steering.Addresses))
	}
}
