// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/reg"
)

var (
	portMAC   = [6]byte{0x52, 0x54, 0, 1, 2, 3}
	broadcast = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = [6]byte{0x33, 0x33, 0, 0, 0, 1}
	anyMcast  = [6]byte{0x03}
)

// steerTo is a rule's forward to VSIs.
func steerTo(lb, toLAN bool, vsis ...uint16) lan.Forward {
	return lan.Forward{VSIs: vsis, LB: lb, LAN: toLAN}
}

// pruneList is ice_vsi_add_vlan for the first member of a VLAN: a list and the
// rule that prunes by it.
func (b *bench) pruneList(tpid, vid uint16, vsis ...uint16) (list, rule uint16) {
	b.t.Helper()
	_, id := b.alloc(0x84, 1)
	b.must(0x02A0, u16(1), vsiListRule(5, id[0], vsis...))
	act := uint32(actPrune|actLAN|actList) | uint32(id[0])<<4
	return id[0], b.addRule(lookup(1, 4, vsis[0], act, 0, frameHeader(dummyDA, tpid, vid)))
}

// updateVSI sends sections of a context, edited, as the driver does: all else
// is zero.
func (b *bench) updateVSI(n, sections uint16, edit func(c []byte)) {
	b.t.Helper()
	u := make([]byte, 128)
	copy(u, u16(sections))
	edit(u)
	b.must(0x0211, named(n), u)
}

// opened is a port as after ice_open of 7.x in single VLAN mode.
func opened(t *testing.T) (*bench, uint16) {
	b := newBench(t)
	n := b.addVSI()
	for _, etherType := range []uint16{0x8808, 0x88CC} {
		b.addRule(lookup(1, 0, n, actDrop|actValid, 0, frameHeader(dummyDA, etherType, 0)))
	}
	b.addRule(macRule(n, portMAC))
	b.addRule(lookup(1, 1, n, toVSI(n)|actLAN, 0, frameHeader(broadcast, 0x8100, 0)))
	b.addRule(lookup(0, 0, 0, toVSI(n)&^actLB, 0, frameHeader(dummyDA, 0x88CC, 0)))
	b.addRule(lookup(1, 1, n, toVSI(n)|actLAN, 0, frameHeader(allNodes, 0x8100, 0)))
	b.updateVSI(n, 1<<2, func(c []byte) { c[12] = 3 })                           // strip, insert
	b.updateVSI(n, 1<<0, func(c []byte) { c[2], c[3], c[4] = swid, 0xA0, 0x11 }) // RX_VLAN_PRUNE_ENA
	b.pruneList(0, 0, n)
	return b, n
}

func TestSteeringOfAnOpenPort(t *testing.T) {
	b, n := opened(t)
	got := b.lan.steering
	want := &lan.Steering{
		Link: true, MaxFrame: 9724,
		VSIs: map[uint16]*lan.VSI{n: {
			Number: n, Queues: []uint16{0, 1, 2, 3}, TCs: [8]lan.TC{{Log2: 2}},
			AllowLB: true, SrcPrune: true, LAN: true, DestOverride: true,
			PruneRx: true, VLANs: map[lan.Tag]bool{{}: true}, DropTx: []uint16{0x8808, 0x88CC},
			Strip: lan.StripInner, LUT: make([]byte, 2048),
		}},
		Addresses: map[[6]byte]lan.Forward{
			portMAC: steerTo(true, false, n), broadcast: steerTo(true, true, n), allNodes: steerTo(true, true, n),
		},
		AddressVLANs:     map[lan.AddressVLAN]lan.Forward{},
		PromiscuousVLANs: map[lan.ClassVLAN]lan.Forward{},
		EtherTypes:       map[uint16]lan.Forward{0x88CC: steerTo(false, false, n)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Each change of a driver, and what it comes to.
func TestSteeringFollows(t *testing.T) {
	promisc := func(kind, src uint16, act uint32, da [6]byte) []byte {
		return lookup(kind, 3, src, act, 0, frameHeader(da, 0x8100, 0))
	}
	for _, c := range []struct {
		name string
		do   func(b *bench, n uint16)
		see  func(s *lan.Steering, n uint16) any
		want func(n uint16) any
	}{
		{"VLAN 100",
			func(b *bench, n uint16) { b.pruneList(0x8100, 100, n) },
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].VLANs },
			func(n uint16) any { return map[lan.Tag]bool{{}: true, {TPID: 0x8100, VID: 100}: true} }},
		{"VLAN 100 is left",
			func(b *bench, n uint16) {
				list, rule := b.pruneList(0x8100, 100, n)
				b.must(0x02A1, u16(1), vsiListRule(6, list, n))
				b.must(0x0209, u16(1), resBuf(0x04, 1, list))
				if got := b.lan.steering.VSIs[n].VLANs; len(got) != 1 {
					b.t.Errorf("VLANs %v before the rule is removed", got)
				}
				b.must(0x02A2, u16(1), lookup(0, 0, 0, 0, rule, nil))
			},
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].VLANs },
			func(n uint16) any { return map[lan.Tag]bool{{}: true} }},
		{"promiscuous mode", // ice_main.c:ice_vsi_sync_fltr
			func(b *bench, n uint16) {
				b.addRule(lookup(0, 5, 0, toVSI(n)&^actLB, 0, frameHeader(dummyDA, 0x8100, 0)))
				b.updateVSI(n, 1<<0, func(c []byte) { c[2], c[3], c[4] = swid, 0xA0, 0x10 })
			},
			func(s *lan.Steering, n uint16) any { return []any{s.Default, s.DefaultTx, s.VSIs[n].PruneRx} },
			func(n uint16) any { return []any{[]uint16{n}, []uint16(nil), false} }},
		{"default of what is sent",
			func(b *bench, n uint16) {
				b.addRule(lookup(1, 5, n, toVSI(n), 0, frameHeader(dummyDA, 0x8100, 0)))
			},
			func(s *lan.Steering, n uint16) any { return []any{s.Default, s.DefaultTx} },
			func(n uint16) any { return []any{[]uint16(nil), []uint16{n}} }},
		{"all multicast",
			func(b *bench, n uint16) {
				b.addRule(promisc(0, 0, toVSI(n)&^actLB, anyMcast))
				b.addRule(promisc(1, n, toVSI(n)|actLAN, anyMcast))
			},
			func(s *lan.Steering, n uint16) any { return [][3]lan.Forward{s.Promiscuous, s.PromiscuousTx} },
			func(n uint16) any {
				return [][3]lan.Forward{{lan.Multicast: steerTo(false, false, n)}, {lan.Multicast: steerTo(true, true, n)}}
			}},
		{"all unicast and broadcast",
			func(b *bench, n uint16) {
				b.addRule(promisc(0, 0, toVSI(n)&^actLB, dummyDA))
				b.addRule(promisc(0, 0, toVSI(n)&^actLB, broadcast))
			},
			func(s *lan.Steering, n uint16) any { return s.Promiscuous },
			func(n uint16) any {
				return [3]lan.Forward{lan.Unicast: steerTo(false, false, n), lan.Broadcast: steerTo(false, false, n)}
			}},
		{"all multicast of a VLAN",
			func(b *bench, n uint16) {
				b.addRule(lookup(0, 9, 0, toVSI(n)&^actLB, 0, frameHeader(anyMcast, 0x8100, 100)))
				b.addRule(lookup(1, 9, n, toVSI(n)|actLAN, 0, frameHeader(anyMcast, 0x8100, 100)))
			},
			func(s *lan.Steering, n uint16) any { return s.PromiscuousVLANs },
			func(n uint16) any {
				return map[lan.ClassVLAN]lan.Forward{{Class: lan.Multicast, VID: 100}: steerTo(false, false, n)}
			}},
		{"address in a VLAN",
			func(b *bench, n uint16) {
				b.addRule(lookup(1, 2, n, toVSI(n), 0, frameHeader([6]byte{2, 1}, 0x8100, 0xF064)))
			},
			func(s *lan.Steering, n uint16) any { return s.AddressVLANs },
			func(n uint16) any {
				return map[lan.AddressVLAN]lan.Forward{{Address: [6]byte{2, 1}, VID: 100}: steerTo(true, false, n)}
			}},
		{"address of two VSIs",
			func(b *bench, n uint16) {
				m := b.addVSI()
				_, list := b.alloc(0x03, 1)
				b.must(0x02A0, u16(1), vsiListRule(3, list[0], m, n))
				r := lookup(1, 1, n, uint32(list[0])<<4|actList|actValid|actLB, 3, frameHeader(portMAC, 0x8100, 0))
				copy(r[14:], u16(0)) // as the driver's update has it
				b.must(0x02A1, u16(1), r)
			},
			func(s *lan.Steering, n uint16) any { return s.Addresses[portMAC] },
			func(n uint16) any { return steerTo(true, false, n, n+1) }},
		{"two rules of one address",
			func(b *bench, n uint16) {
				m := b.addVSI()
				b.addRule(lookup(1, 1, m, toVSI(m)|actLAN, 0, frameHeader(portMAC, 0x8100, 0)))
			},
			func(s *lan.Steering, n uint16) any { return s.Addresses[portMAC] },
			func(n uint16) any { return steerTo(true, true, n, n+1) }},
		{"a dropped address",
			func(b *bench, n uint16) {
				b.addRule(lookup(1, 1, n, actDrop|actValid, 0, frameHeader([6]byte{2, 1}, 0x8100, 0)))
			},
			func(s *lan.Steering, n uint16) any { return s.Addresses[[6]byte{2, 1}] },
			func(n uint16) any { return lan.Forward{Drop: true} }},
		{"an action that is not valid",
			func(b *bench, n uint16) {
				b.addRule(lookup(1, 1, n, toVSI(n)&^actValid, 0, frameHeader([6]byte{2, 1}, 0x8100, 0)))
			},
			func(s *lan.Steering, n uint16) any { return len(s.Addresses) },
			func(n uint16) any { return 3 }},
		{"stripping off",
			func(b *bench, n uint16) { b.updateVSI(n, 1<<2, func(c []byte) { c[12] = 3 | 3<<3 }) },
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].Strip },
			func(n uint16) any { return lan.StripNone }},
		{"outer tags do not exist",
			func(b *bench, n uint16) { b.updateVSI(n, 1<<3, func(c []byte) { c[26] = 2<<2 | 3<<5 }) },
			func(s *lan.Steering, n uint16) any { return []any{s.VSIs[n].Strip, s.VSIs[n].InsertTPID} },
			func(n uint16) any { return []any{lan.StripInner, uint16(0)} }},
		{"RDMA filter", // ice_switch.c:ice_cfg_rdma_fltr
			func(b *bench, n uint16) { b.updateVSI(n, 1<<7, func(c []byte) { c[78], c[80] = 2, 1 }) },
			func(s *lan.Steering, n uint16) any {
				return []any{s.VSIs[n].PE, s.VSIs[n].Queues, s.VSIs[n].TCs[0], s.VSIs[n].PruneRx}
			},
			func(n uint16) any { return []any{true, []uint16{0, 1, 2, 3}, lan.TC{Log2: 2}, true} }},
		{"other queues", // ethtool -L
			func(b *bench, n uint16) {
				b.updateVSI(n, 1<<6, func(c []byte) { copy(c[30:], u16(5, 3)); copy(c[62:], u16(2<<11)) })
			},
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].Queues },
			func(n uint16) any { return []uint16{5, 6, 7} }},
		{"scattered queues",
			func(b *bench, n uint16) {
				b.updateVSI(n, 1<<6, func(c []byte) { c[28] = 1; copy(c[30:], u16(9, 4, 63, 64, 1)) })
			},
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].Queues },
			func(n uint16) any { return []uint16{9, 4, 63} }},
		{"queues that the function does not have",
			func(b *bench, n uint16) {
				b.updateVSI(n, 1<<6, func(c []byte) { copy(c[30:], u16(62, 0xFFFF)) })
			},
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].Queues },
			func(n uint16) any { return []uint16{62, 63} }},
		{"RSS by the function's table",
			func(b *bench, n uint16) {
				b.must(0x0B02, named(n), pattern(52, 7))
				b.must(0x0B03, slices.Concat(named(n), u16(1|2<<2)), pattern(2048, 1))
			},
			func(s *lan.Steering, n uint16) any { return []any{s.VSIs[n].Key[:], s.VSIs[n].LUT} },
			func(n uint16) any { return []any{pattern(52, 7), pattern(2048, 1)} }},
		{"RSS by the VSI's table, symmetric",
			func(b *bench, n uint16) {
				b.must(0x0B03, slices.Concat(named(n), u16(0)), pattern(64, 2))
				b.updateVSI(n, 1<<7, func(c []byte) { c[78] = 1 << 6 })
			},
			func(s *lan.Steering, n uint16) any { return []any{s.VSIs[n].LUT, s.VSIs[n].HashScheme} },
			func(n uint16) any { return []any{pattern(64, 2), uint8(1)} }},
		{"RSS by a table that does not exist",
			func(b *bench, n uint16) { b.updateVSI(n, 1<<7, func(c []byte) { c[78] = 3 }) },
			func(s *lan.Steering, n uint16) any { return s.VSIs[n].LUT },
			func(n uint16) any { return []byte(nil) }},
		{"anti-spoofing and VLAN pruning of what is sent",
			func(b *bench, n uint16) { b.updateVSI(n, 1<<1, func(c []byte) { c[6] = 1<<2 | 1<<4 }) },
			func(s *lan.Steering, n uint16) any {
				v := s.VSIs[n]
				return []any{v.AntiSpoof, v.PruneTx, v.DestOverride, v.Own}
			},
			func(n uint16) any { return []any{true, true, false, map[[6]byte]bool{portMAC: true}} }},
		{"VEPA", // ice_main.c:ice_bridge_setlink
			func(b *bench, n uint16) {
				b.updateVSI(n, 1<<0, func(c []byte) { c[2], c[3], c[4] = swid, 1<<6, 0x10 })
				r := lookup(1, 1, n, toVSI(n)|actLAN, 3, frameHeader(portMAC, 0x8100, 0))
				b.must(0x02A1, u16(1), r)
			},
			func(s *lan.Steering, n uint16) any {
				v := s.VSIs[n]
				return []any{v.AllowLB, v.LocalLB, v.SrcPrune, v.LAN, s.Addresses[portMAC]}
			},
			func(n uint16) any { return []any{false, true, false, true, steerTo(true, true, n)} }},
		{"the VSI is freed before its rules",
			func(b *bench, n uint16) { b.must(0x0213, named(n), nil) },
			func(s *lan.Steering, n uint16) any { return []int{len(s.VSIs), len(s.Addresses), len(s.EtherTypes)} },
			func(n uint16) any { return []int{0, 0, 0} }},
		{"largest frame",
			func(b *bench, n uint16) { b.must(0x0603, u16(1522), nil) },
			func(s *lan.Steering, n uint16) any { return s.MaxFrame },
			func(n uint16) any { return 1518 }},
		{"no carrier",
			func(b *bench, n uint16) { b.f.SetLink(false) },
			func(s *lan.Steering, n uint16) any { return s.Link },
			func(n uint16) any { return false }},
		{"the driver's link off",
			func(b *bench, n uint16) { b.must(0x0605, []byte{0, 0, 2}, nil) },
			func(s *lan.Steering, n uint16) any { return s.Link },
			func(n uint16) any { return false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, n := opened(t)
			before := b.lan.steering
			kept := *before
			c.do(b, n)
			if d := cmp.Diff(c.want(n), c.see(b.lan.steering, n)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if b.lan.steering == before {
				t.Error("the steering was changed in place")
			}
			if d := cmp.Diff(&kept, before); d != "" {
				t.Errorf("what was handed over has changed:\n%s", d)
			}
			opened, _ := opened(t)
			if d := cmp.Diff(opened.lan.steering, before); d != "" {
				t.Errorf("what was handed over has changed:\n%s", d)
			}
		})
	}
}

// One steering for each command that changes something, none for others.
func TestSteeringOncePerCommand(t *testing.T) {
	b, n := opened(t)
	for _, c := range []struct {
		name   string
		op     uint16
		params []byte
		buf    []byte
		want   int
	}{
		{"get_ver", 0x0001, nil, nil, 0},
		{"two rules", 0x02A0, u16(2), slices.Concat(macRule(n, [6]byte{2, 1}), macRule(n, [6]byte{2, 2})), 1},
		{"one good rule and one that is there", 0x02A0, u16(2), slices.Concat(macRule(n, [6]byte{2, 3}), macRule(n, [6]byte{2, 3})), 1},
		{"a rule that is there", 0x02A0, u16(1), macRule(n, [6]byte{2, 3}), 0},
		{"get_rss_key", 0x0B04, named(n), make([]byte, 52), 0},
	} {
		was := b.lan.steers
		b.do(c.op, c.params, c.buf)
		if got := b.lan.steers - was; got != c.want {
			t.Errorf("%s: %d steerings, want %d", c.name, got, c.want)
		}
	}
	if got := len(b.lan.steering.Addresses); got != 3+3 {
		t.Errorf("%d addresses", got)
	}
}

// A reset leaves the port as it is and nothing else; so does Clear PF.
func TestSteeringAfterReset(t *testing.T) {
	for name, do := range map[string]func(b *bench){
		"PFR":      func(b *bench) { b.f.Reset(reg.PFR) },
		"CORER":    func(b *bench) { b.f.Reset(reg.CORER) },
		"clear PF": func(b *bench) { b.must(0x02A4, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := opened(t)
			b.must(0x0603, u16(1522), nil)
			do(b)
			want := &lan.Steering{
				Link: true, MaxFrame: 1518, VSIs: map[uint16]*lan.VSI{},
				Addresses: map[[6]byte]lan.Forward{}, AddressVLANs: map[lan.AddressVLAN]lan.Forward{},
				PromiscuousVLANs: map[lan.ClassVLAN]lan.Forward{}, EtherTypes: map[uint16]lan.Forward{},
			}
			if d := cmp.Diff(want, b.lan.steering); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	b, _ := opened(t)
	b.f.Reset(reg.GLOBR)
	if s := b.lan.steering; len(s.VSIs) != 0 || s.MaxFrame != 9724 {
		t.Errorf("after GLOBR: %+v", s)
	}
}

// A guest cannot have tables made that take more than a bound.
func TestSteeringBounded(t *testing.T) {
	b := newBench(t)
	var vsis []uint16
	for range 700 {
		vsis = append(vsis, b.addVSI())
	}
	_, list := b.alloc(0x84, 1)
	b.must(0x02A0, u16(1), vsiListRule(5, list[0], vsis...))
	act := uint32(actPrune|actLAN|actList) | uint32(list[0])<<4
	var rules []byte
	for i := range 100 {
		rules = append(rules, lookup(1, 4, vsis[0], act, 0, frameHeader(dummyDA, 0x8100, uint16(i)))...)
	}
	b.want(rcENOSPC, 0x02A0, u16(100), rules)
	n := len(b.f.Rules())
	if n != maxListed/700 {
		t.Errorf("%d rules", n)
	}
	if got := len(b.lan.steering.VSIs[vsis[9]].VLANs); got != n {
		t.Errorf("%d VLANs", got)
	}
	last := b.addVSI()
	b.must(0x02A0, u16(1), vsiListRule(5, list[0], last)) // 93 more
	b.want(rcENOSPC, 0x02A0, u16(1), vsiListRule(5, list[0], slices.Repeat([]uint16{last}, 30)...))
	b.must(0x02A1, u16(1), vsiListRule(6, list[0], vsis...))
	b.must(0x02A0, u16(1), rules[len(rules)-32:])
}
