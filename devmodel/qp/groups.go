// SPDX-License-Identifier: Apache-2.0

package qp

import "sync"

// Group is a multicast group with its members. It does not change once it is
// set.
type Group struct {
	MAC  [6]byte
	IP   [16]byte // IPv4 in the last four bytes
	IPv4 bool
	VLAN int // -1: any
	QPs  []uint32
}

// groupKey is what a datagram says of its group.
type groupKey struct {
	ip   [16]byte
	ipv4 bool
}

func (g *Group) key() groupKey { return groupKey{g.IP, g.IPv4} }

// groups are the multicast groups of one function. Nobody holds the lock for
// long, or takes another one under it.
type groups struct {
	mu    sync.RWMutex
	index map[uint16]*Group
	byIP  map[groupKey][]*Group // lists are replaced, not changed
	macs  map[[6]byte]int       // how many groups have it
}

// SetGroup makes multicast group i be g.
func (t *Table) SetGroup(i uint16, g Group) {
	s := &t.groups
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(i)
	if s.index == nil {
		s.index, s.byIP, s.macs = map[uint16]*Group{}, map[groupKey][]*Group{}, map[[6]byte]int{}
	}
	s.index[i] = &g
	k := g.key()
	old := s.byIP[k]
	s.byIP[k] = append(old[:len(old):len(old)], &g)
	s.macs[g.MAC]++
}

// DropGroup ends multicast group i, if there is one.
func (t *Table) DropGroup(i uint16) {
	t.groups.mu.Lock()
	defer t.groups.mu.Unlock()
	t.groups.drop(i)
}

// drop removes a group. The caller holds mu.
func (s *groups) drop(i uint16) {
	g := s.index[i]
	if g == nil {
		return
	}
	delete(s.index, i)
	k := g.key()
	var rest []*Group
	for _, o := range s.byIP[k] {
		if o != g {
			rest = append(rest, o)
		}
	}
	if len(rest) == 0 {
		delete(s.byIP, k)
	} else {
		s.byIP[k] = rest
	}
	if s.macs[g.MAC]--; s.macs[g.MAC] == 0 {
		delete(s.macs, g.MAC)
	}
}

// DropGroups ends all multicast groups.
func (t *Table) DropGroups() {
	s := &t.groups
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index, s.byIP, s.macs = nil, nil, nil
}

// JoinedMAC tells, on any goroutine, whether a multicast group has this
// address.
func (t *Table) JoinedMAC(mac [6]byte) bool {
	t.groups.mu.RLock()
	defer t.groups.mu.RUnlock()
	return t.groups.macs[mac] > 0
}

// of lists the groups of an address. A group without VLAN is in all of
// them: drivers cannot find the one a group address belongs to
// (verbs.c:irdma_attach_mcast looks for it among the port's own addresses).
func (s *groups) of(ip [16]byte, ipv4 bool) []*Group {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byIP[groupKey{ip, ipv4}]
}

// takes tells whether a datagram with this destination and VLAN is the
// group's; priority tags are none of a VLAN's.
func (g *Group) takes(mac [6]byte, tagged bool, tci uint16) bool {
	vlan := 0
	if tagged {
		vlan = int(tci & (1<<12 - 1))
	}
	return g.MAC == mac && (g.VLAN < 0 || g.VLAN == vlan)
}
