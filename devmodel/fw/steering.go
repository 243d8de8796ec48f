// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"encoding/binary"
	"slices"

	"github.com/vrnic/vrnic/devmodel/lan"
)

// staleness is how much of the steering in effect has to be made anew: each
// value includes those before it.
type staleness uint8

const (
	fresh      staleness = iota
	stalePort            // link, loopback, largest frame, ports of tunnels
	staleVSIs            // contexts, RSS keys and tables
	staleRules           // rules, lists, which VSIs there are
)

// touch says that the steering in effect is out of date.
func (s *vswitch) touch(what staleness) { s.stale = max(s.stale, what) }

// steer brings what the LAN unit steers frames by up to date. It is called
// after every command and every change of the port, before the driver is told,
// and does nothing if nothing has changed.
func (f *Firmware) steer() {
	s := f.sw
	if s.stale == fresh {
		return
	}
	var t lan.Steering
	if s.stale >= staleRules {
		t, s.members = s.compileRules()
	} else {
		t = *f.steering // what is in it is immutable and may be shared
	}
	if s.stale >= staleVSIs {
		t.VSIs = s.compileVSIs()
	}
	t.Link, t.Loopback = f.link.up(), f.link.loopback
	t.MaxFrame = int(f.link.maxFrame) - fcsSize
	t.UDPTunnels = f.ddp.udpTunnels()
	s.stale, f.steering = fresh, &t
	if f.cfg.LAN != nil {
		f.cfg.LAN.Steer(&t)
	}
}

// fcsSize is the part of a frame that 0x0603 counts and a lan.Steering does not.
const fcsSize = 4

// vsiRules is what rules say of one VSI.
type vsiRules struct {
	own    map[[6]byte]bool
	vlans  map[lan.Tag]bool
	dropTx []uint16
}

// ruleCompiler puts rules into a lan.Steering.
type ruleCompiler struct {
	*vswitch
	out     lan.Steering
	members map[uint16]*vsiRules
	// resolved are the VSIs that actions mean, by the bits that say so.
	resolved map[Action][]uint16
}

// compileRules makes all of a lan.Steering that rules decide, and what they say
// of each VSI.
func (s *vswitch) compileRules() (lan.Steering, map[uint16]*vsiRules) {
	c := ruleCompiler{
		vswitch: s,
		out: lan.Steering{
			Addresses:        make(map[[6]byte]lan.Forward, len(s.rules)),
			AddressVLANs:     make(map[lan.AddressVLAN]lan.Forward),
			PromiscuousVLANs: make(map[lan.ClassVLAN]lan.Forward),
			EtherTypes:       make(map[uint16]lan.Forward),
		},
		members:  make(map[uint16]*vsiRules),
		resolved: make(map[Action][]uint16),
	}
	for _, r := range s.rules {
		c.add(r)
	}
	for _, m := range c.members {
		slices.Sort(m.dropTx) // rules come in no order
	}
	return c.out, c.members
}

// add adds one rule. One whose VSIs are all gone matches nothing.
func (c *ruleCompiler) add(r *rule) {
	vsis := c.means(r.action)
	if len(vsis) == 0 && !r.action.Drop() {
		return
	}
	h := &r.header
	da, etherType, tci := [6]byte(h[:6]), binary.BigEndian.Uint16(h[12:]), binary.BigEndian.Uint16(h[14:])
	vid := tci & vidMask
	switch r.recipe {
	case RecipeEthertype:
		switch {
		case !r.tx:
			c.out.EtherTypes[etherType] = join(c.out.EtherTypes[etherType], r.action, vsis)
		case r.action.Drop():
			m := c.of(r.source)
			m.dropTx = append(m.dropTx, etherType)
		}
	case RecipeMAC:
		// Of type lookup Tx, and yet not directional.
		c.out.Addresses[da] = join(c.out.Addresses[da], r.action, vsis)
		c.owned(da, vsis)
	case RecipeMACVLAN:
		k := lan.AddressVLAN{Address: da, VID: vid}
		c.out.AddressVLANs[k] = join(c.out.AddressVLANs[k], r.action, vsis)
		c.owned(da, vsis)
	case RecipePromisc:
		side := &c.out.Promiscuous
		if r.tx {
			side = &c.out.PromiscuousTx
		}
		side[class(da)] = join(side[class(da)], r.action, vsis)
	case RecipePromiscVLAN:
		if k := (lan.ClassVLAN{Class: class(da), VID: vid}); !r.tx {
			c.out.PromiscuousVLANs[k] = join(c.out.PromiscuousVLANs[k], r.action, vsis)
		}
	case RecipeVLAN:
		for _, n := range vsis {
			m := c.of(n)
			if m.vlans == nil {
				m.vlans = make(map[lan.Tag]bool)
			}
			m.vlans[lan.Tag{TPID: etherType, VID: vid}] = true
		}
	case RecipeDefault:
		side := &c.out.Default
		if r.tx {
			side = &c.out.DefaultTx
		}
		*side = union(*side, vsis)
	}
}

const vidMask = 0xFFF

// class is the class of destination addresses that a rule of recipe PROMISC
// stands for (ice_switch.c:ice_set_vsi_promisc).
func class(da [6]byte) int {
	switch {
	case da == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}:
		return lan.Broadcast
	case da[0]&1 != 0:
		return lan.Multicast
	}
	return lan.Unicast
}

// of is what rules say of VSI n.
func (c *ruleCompiler) of(n uint16) *vsiRules {
	m := c.members[n]
	if m == nil {
		m = new(vsiRules)
		c.members[n] = m
	}
	return m
}

// owned notes an address for those VSIs that may send from no other.
func (c *ruleCompiler) owned(da [6]byte, vsis []uint16) {
	if da[0]&1 != 0 {
		return
	}
	for _, n := range vsis {
		if !c.vsis[n].ctx.MACAntiSpoof() {
			continue
		}
		m := c.of(n)
		if m.own == nil {
			m.own = make(map[[6]byte]bool)
		}
		m.own[da] = true
	}
}

// means resolves an action to VSIs, once for all rules that have the same.
func (c *ruleCompiler) means(a Action) []uint16 {
	if !a.Valid() {
		return nil
	}
	k := a & actionTarget
	vsis, ok := c.resolved[k]
	if !ok {
		vsis = c.targets(a)
		c.resolved[k] = vsis
	}
	return vsis
}

// join adds what a rule says to what others said of the same frames. The
// result shares no memory that changes.
func join(f lan.Forward, a Action, vsis []uint16) lan.Forward {
	f.Drop = f.Drop || a.Drop()
	f.LB = f.LB || a.Loopback()
	f.LAN = f.LAN || a.LAN()
	f.VSIs = union(f.VSIs, vsis)
	return f
}

// union merges two sorted sets; it changes neither.
func union(a, b []uint16) []uint16 {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0:
		return b
	}
	u := make([]uint16, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			u, a = append(u, a[0]), a[1:]
		case a[0] > b[0]:
			u, b = append(u, b[0]), b[1:]
		default:
			u, a, b = append(u, a[0]), a[1:], b[1:]
		}
	}
	return append(append(u, a...), b...)
}

// compileVSIs makes all VSIs anew.
func (s *vswitch) compileVSIs() map[uint16]*lan.VSI {
	all := make(map[uint16]*lan.VSI, len(s.vsis))
	for n, v := range s.vsis {
		c := v.compile(n, s.pfLUT)
		if m := s.members[n]; m != nil {
			c.Own, c.VLANs, c.DropTx = m.own, m.vlans, m.dropTx
		}
		all[n] = c
	}
	return all
}

// compile turns a VSI into what the data path needs of it. The port is in
// single VLAN mode, where the outer tag and what the context says of it do not
// exist.
func (v *vsi) compile(n uint16, pfLUT []byte) *lan.VSI {
	c := &v.ctx
	out := &lan.VSI{
		Number:       n,
		Queues:       c.queues(),
		AllowLB:      c.AllowLoopback(),
		LocalLB:      c.LocalLoopback(),
		SrcPrune:     c.SourcePrune(),
		LAN:          c.LANEnable(),
		DestOverride: c.AllowDestOverride(),
		AntiSpoof:    c.MACAntiSpoof(),
		PruneRx:      c.RxVLANPrune(),
		PruneTx:      c.TxVLANPrune(),
		HashScheme:   c.RSSHash(),
		Key:          v.key,
		PE:           c.RDMAFilter(),
	}
	for tc := range out.TCs {
		out.TCs[tc].Offset, out.TCs[tc].Log2 = c.TCQueues(tc)
	}
	if c.InnerVLANStripMode() != vlanLeave {
		out.Strip = lan.StripInner
	}
	switch c.RSSTable() {
	case rssTableVSI:
		out.LUT = v.lut
	case rssTablePF:
		out.LUT = pfLUT
	}
	return out
}
