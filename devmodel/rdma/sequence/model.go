// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"fmt"
	"strings"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Verdict is what a device has to make of an operation.
type Verdict uint8

// Verdicts.
const (
	Refused Verdict = iota
	Done
	Either // it depends on what only the device knows
)

func (v Verdict) String() string { return [...]string{"refused", "done", "either"}[v] }

func verdict(ok bool) Verdict {
	if ok {
		return Done
	}
	return Refused
}

// States of a QP (type.h:IRDMA_QP_STATE_*).
const (
	stateIdle  = 1
	stateRTS   = 2
	stateSQD   = 3
	stateRTR   = 4
	stateError = 6
)

// QP types (type.h).
const (
	typeRC = 3
	typeUD = 4
)

type qpModel struct {
	kind           uint8
	state          uint8
	suspended      bool
	virtual        bool
	sendCQ, recvCQ uint32
}

// stagModel is an STag that is not free.
type stagModel struct {
	index  uint32 // 24 bits
	pd     uint32
	window bool
	valid  bool
	length uint64
	first  uint64
	start  uint64
	shift  uint8
	level  uint8
}

// listed is how many PBLEs in a row the STag names.
func (s *stagModel) listed() uint64 {
	pages := (s.start&(1<<s.shift-1) + s.length + 1<<s.shift - 1) >> s.shift
	switch s.level {
	case 1:
		return pages
	case 3:
		return (pages + 511) / 512
	}
	return 0
}

type nodeModel struct {
	parent  uint16
	leaf    bool
	handle  uint32
	enabled bool
}

type quadKey [6]uint64

// Model is what a device must have.
type Model struct {
	w World

	qps    map[uint32]*qpModel
	cqs    map[uint32]uint32 // entries
	stags  map[uint32]*stagModel
	ahs    map[uint32]bool
	groups map[uint32][]uint32 // members
	arps   map[uint32]uint64   // addresses
	nodes  map[uint16]nodeModel
	ceqs   map[uint32]bool
	aeq    bool
	sds    map[uint32]bool // valid; true: direct
	macs   map[uint32]bool
	stats  map[uint32]bool
	ports  map[uint16]bool
	pushes map[uint32]bool
	quads  map[quadKey]uint32 // QP
	backed bool

	// Findings that the operation before must have caused.
	dangling []string
}

// NewModel is a model of a device whose driver has it all up: static segments
// are there, the CCQ with CEQ 0, and the AEQ.
func NewModel(w World, sds map[uint32]bool) *Model {
	m := &Model{w: w, qps: map[uint32]*qpModel{}, cqs: map[uint32]uint32{}, stags: map[uint32]*stagModel{}, ahs: map[uint32]bool{},
		groups: map[uint32][]uint32{}, arps: map[uint32]uint64{}, nodes: map[uint16]nodeModel{}, ceqs: map[uint32]bool{0: true}, aeq: true,
		sds: map[uint32]bool{}, macs: map[uint32]bool{}, stats: map[uint32]bool{}, ports: map[uint16]bool{}, pushes: map[uint32]bool{},
		quads: map[quadKey]uint32{}, backed: true}
	for sd, direct := range sds {
		m.sds[sd] = direct
	}
	if w.Leaf != 0 {
		m.nodes[w.Leaf] = nodeModel{}
	}
	return m
}

// object tells whether object id of a type can be made: there are so many, and
// its private memory is backed: there is none behind the page descriptors of the
// sequences' segments, which are all zero.
func (m *Model) object(o hmc.Object, id uint32) bool {
	e := m.w.Objects[o]
	if !m.backed || id >= e.Count {
		return false
	}
	return m.sds[uint32((e.Base+uint64(id)*e.Size)>>21)]
}

// mapped tells whether the device reaches memory.
func (m *Model) mapped(addr uint64) bool { return addr>>20 != m.w.Nowhere>>20 && addr>>12 != 0 }

// pbles tells whether so many PBLEs are there from first on.
func (m *Model) pbles(first, n uint64) bool {
	count := uint64(m.w.Objects[hmc.PBLE].Count)
	return first < count && n <= count-first
}

// Apply says what has to become of an operation, and notes it if it is to be
// done.
func (m *Model) Apply(o *Op) Verdict {
	m.dangling = m.dangling[:0]
	if f := operations[o.opcode()]; f != nil {
		return f(m, o)
	}
	return Refused
}

// Note takes the value that a device answered an operation with that it did:
// what it gives away must be free.
func (m *Model) Note(o *Op, value uint32) error {
	give := func(what string, taken map[uint32]bool, limit uint32) error {
		if value >= limit || taken[value] {
			return fmt.Errorf("%s %d is given away: there are %d, and it is taken: %v", what, value, limit, taken[value])
		}
		taken[value] = true
		return nil
	}
	switch op := o.opcode(); {
	case op == opAllocMAC:
		return give("MAC table entry", m.macs, 64)
	case op == opManageStats && o.flag(3, 62):
		return give("statistics instance", m.stats, 128)
	case op == opPushPages && !o.flag(3, 62):
		const pages = 256
		if value >= pages {
			return nil // there is none
		}
		return give("push page", m.pushes, pages)
	case op == opNode && o.bits(3, 55, 52) == 0 && o.flag(3, 61):
		id := uint16(o.bits(3, 13, 0))
		for other, n := range m.nodes {
			if n.leaf && n.handle == value && other != id {
				return fmt.Errorf("QS handle %d of node %d is node %d's", value, id, other)
			}
		}
		if value == 0 || value >= 1024 {
			return fmt.Errorf("QS handle %d", value)
		}
		n := m.nodes[id]
		n.handle = value
		m.nodes[id] = n
	case value != 0 && op != opNode:
		return fmt.Errorf("op_ret_val %#x", value)
	}
	return nil
}

// Live lists what is there of each type, for people.
func (m *Model) Live() string {
	var b strings.Builder
	say := func(what string, n int) {
		if n > 0 {
			fmt.Fprintf(&b, " %d %s", n, what)
		}
	}
	say("QPs", len(m.qps))
	say("CQs", len(m.cqs))
	say("STags", len(m.stags))
	say("AHs", len(m.ahs))
	say("groups", len(m.groups))
	say("ARP entries", len(m.arps))
	say("hash entries", len(m.quads))
	say("ports", len(m.ports))
	say("push pages", len(m.pushes))
	say("MAC table entries", len(m.macs))
	say("statistics instances", len(m.stats))
	for id := range m.nodes {
		if m.w.Nodes.Has(uint32(id)) {
			fmt.Fprintf(&b, " node %d", id)
		}
	}
	return b.String()
}
