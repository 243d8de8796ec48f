// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// txqEntry is one queue of 0x0C30 whose frames come from the given VSI.
func txqEntry(id, vsi uint16) []byte {
	e := make([]byte, 48)
	copy(e, u16(id))
	copy(e[8+10:], u16(vsi|1<<10)) // src_vsi, tsyn_ena above it
	e[8] = byte(id)                // base
	copy(e[32:], elemBytes(0))
	return e
}

func txqGroup(parent uint32, entries ...[]byte) []byte {
	return slices.Concat(u32(parent), []byte{byte(len(entries)), 0, 0, 0}, slices.Concat(entries...))
}

func qsetGroup(parent uint32, ids ...uint16) []byte {
	b := slices.Concat(u32(parent), u16(uint16(len(ids)), 0))
	for _, id := range ids {
		b = slices.Concat(b, u16(id, 0), u32(0), elemBytes(0))
	}
	return b
}

func (b *bench) addQset(parent uint32, id uint16) uint32 {
	b.t.Helper()
	_, out := b.must(0x0C33, []byte{1}, qsetGroup(parent, id))
	return get32(out, 8+4)
}

func (b *bench) addTxq(parent uint32, id, vsi uint16) uint32 {
	b.t.Helper()
	_, out := b.must(0x0C30, []byte{1}, txqGroup(parent, txqEntry(id, vsi)))
	return get32(out, 8+4)
}

func disBuf(parent uint32, ids ...uint16) []byte {
	b := slices.Concat(u32(parent), []byte{byte(len(ids)), 0}, u16(ids...))
	if len(b)%4 != 0 {
		b = append(b, 0, 0)
	}
	return b
}

func TestTxQueueLife(t *testing.T) {
	b := newBench(t)
	vsi := b.addVSI()
	qgrp := b.chain(2, 2, 7)[5]
	q := b.addTxq(qgrp, 3, vsi)
	if parent, e := b.query(q); parent != qgrp || e[0] != 5 {
		t.Errorf("leaf: parent %d type %d, want %d, 5", parent, e[0], qgrp)
	}
	if ctx := b.lan.on[3]; ctx[0] != 3 || get16(ctx[:], 10)&0x3FF != vsi {
		t.Errorf("context handed on: % x", ctx)
	}
	// A queue set may have a queue's number: they are different things.
	set := b.addQset(qgrp, 3)
	if parent, e := b.query(set); parent != qgrp || e[0] != 5 || set == q {
		t.Errorf("queue set %d: parent %d type %d", set, parent, e[0])
	}
	b.want(rcEEXIST, 0x0C30, []byte{1}, txqGroup(qgrp, txqEntry(3, vsi)))
	b.want(rcEEXIST, 0x0C33, []byte{1}, qsetGroup(qgrp, 3))
	b.want(rcEBUSY, 0x040F, u16(1), deleteBuf(b.parentOf(qgrp), qgrp))

	b.must(0x0C31, []byte{8, 1}, disBuf(qgrp, 3|1<<15))
	b.want(rcENOENT, 0x0404, u16(1), slices.Concat(u32(0, set), make([]byte, 16)))
	b.query(q)
	if len(b.lan.on) != 1 {
		t.Errorf("queues on: %v, want 3", b.lan.on)
	}
	p, _ := b.must(0x0C31, []byte{8, 1, 0, 20, 0xFF, 0xFF, 0xFF, 0xFF}, disBuf(qgrp, 3))
	if get32(p, 4) != 0 || len(b.lan.on) != 0 {
		t.Errorf("blocked CGDs %#x, queues on %v", get32(p, 4), b.lan.on)
	}
	b.want(rcENOENT, 0x0C31, []byte{8, 1}, disBuf(qgrp, 3))
	b.must(0x040F, u16(1), deleteBuf(b.parentOf(qgrp), qgrp))
}

func (b *bench) parentOf(teid uint32) uint32 {
	b.t.Helper()
	parent, _ := b.query(teid)
	return parent
}

// Several groups of several queues: padding after even counts.
func TestTxQueueGroups(t *testing.T) {
	b := newBench(t)
	vsi := b.addVSI()
	qgrps := b.add(b.chain(2, 2, 6)[4], 2)
	b.must(0x0C30, []byte{2}, slices.Concat(
		txqGroup(qgrps[0], txqEntry(0, vsi), txqEntry(1, vsi)), txqGroup(qgrps[1], txqEntry(2, vsi))))
	b.must(0x0C33, []byte{2}, slices.Concat(qsetGroup(qgrps[0], 7), qsetGroup(qgrps[1], 8, 9)))
	b.must(0x0C31, []byte{8, 2}, slices.Concat(disBuf(qgrps[0], 0, 7|1<<15), disBuf(qgrps[1], 2, 8|1<<15, 9|1<<15)))
	if len(b.lan.on) != 1 || b.f.sched.leaves[queueID{id: 1}] == nil || len(b.f.sched.leaves) != 1 {
		t.Errorf("left: %v, want queue 1", b.f.sched.leaves)
	}
}

func TestTxQueueRefused(t *testing.T) {
	b := newBench(t)
	vsi := b.addVSI()
	chain := b.chain(2, 2, 7)
	qgrp := chain[5]
	b.addTxq(qgrp, 0, vsi)
	edit := func(buf []byte, at int, v byte) []byte { buf[at] = v; return buf }
	before := b.f.SchedNodes()
	b.lan.refuse[5] = errors.New("bad ring")
	for _, c := range []struct {
		name string
		rc   errno
		op   uint16
		n    byte
		buf  []byte
	}{
		{"no groups", rcEINVAL, 0x0C30, 0, txqGroup(qgrp, txqEntry(1, vsi))},
		{"no queues", rcEINVAL, 0x0C30, 1, edit(txqGroup(qgrp, txqEntry(1, vsi)), 4, 0)},
		{"count past the buffer", rcEINVAL, 0x0C30, 1, edit(txqGroup(qgrp, txqEntry(1, vsi)), 4, 255)},
		{"no room for the queues", rcEINVAL, 0x0C30, 1, txqGroup(qgrp, txqEntry(1, vsi), txqEntry(2, vsi))[:8+48+47]},
		{"number out of range", rcEINVAL, 0x0C30, 1, txqGroup(qgrp, txqEntry(NumQueues, vsi))},
		{"largest number", rcEINVAL, 0x0C30, 1, txqGroup(qgrp, txqEntry(0xFFFF, vsi))},
		{"unknown VSI", rcENOENT, 0x0C30, 1, txqGroup(qgrp, txqEntry(1, vsi+1))},
		{"unknown parent", rcENOENT, 0x0C30, 1, txqGroup(99, txqEntry(1, vsi))},
		{"not a queue group", rcEINVAL, 0x0C30, 1, txqGroup(chain[4], txqEntry(1, vsi))},
		{"the root", rcEINVAL, 0x0C30, 1, txqGroup(1, txqEntry(1, vsi))},
		{"no generic section", rcEINVAL, 0x0C30, 1, edit(txqGroup(qgrp, txqEntry(1, vsi)), 8+33, 6)},
		{"unknown profile", rcENOENT, 0x0C30, 1, edit(txqGroup(qgrp, txqEntry(1, vsi)), 8+36, 9)},
		{"twice in a group", rcEEXIST, 0x0C30, 1, txqGroup(qgrp, txqEntry(1, vsi), txqEntry(1, vsi))},
		{"refused by the queue", rcEINVAL, 0x0C30, 1, txqGroup(qgrp, txqEntry(4, vsi), txqEntry(5, vsi))},
		{"too many", rcENOSPC, 0x0C30, 1, txqGroup(qgrp, txqEntry(1, vsi), txqEntry(2, vsi), txqEntry(3, vsi), txqEntry(6, vsi),
			txqEntry(7, vsi), txqEntry(8, vsi), txqEntry(9, vsi), txqEntry(10, vsi))},
		{"no set groups", rcEINVAL, 0x0C33, 0, qsetGroup(qgrp, 1)},
		{"no sets", rcEINVAL, 0x0C33, 1, edit(qsetGroup(qgrp, 1), 4, 0)},
		{"set count past the buffer", rcEINVAL, 0x0C33, 1, edit(qsetGroup(qgrp, 1), 5, 255)},
		{"set number out of range", rcEINVAL, 0x0C33, 1, qsetGroup(qgrp, 1024)},
		{"set with unknown parent", rcENOENT, 0x0C33, 1, qsetGroup(0, 1)},
		{"set in a wrong layer", rcEINVAL, 0x0C33, 1, qsetGroup(2, 1)},
		{"no entries", rcEINVAL, 0x0C31, 0, disBuf(qgrp, 0)},
		{"disable none", rcEINVAL, 0x0C31, 1, append(disBuf(qgrp), 0, 0)},
		{"disable past the buffer", rcEINVAL, 0x0C31, 1, edit(disBuf(qgrp, 0), 4, 200)},
		{"disable a set that is a queue", rcENOENT, 0x0C31, 1, disBuf(qgrp, 0|1<<15)},
		{"disable an unknown queue", rcENOENT, 0x0C31, 1, disBuf(qgrp, 1)},
		{"disable below an unknown parent", rcENOENT, 0x0C31, 1, disBuf(99, 0)},
		{"disable below another parent", rcEINVAL, 0x0C31, 1, disBuf(chain[4], 0)},
	} {
		p := []byte{c.n}
		if c.op == 0x0C31 {
			p = []byte{8, c.n}
		}
		if rc, _, _ := b.do(c.op, p, c.buf); rc != c.rc {
			t.Errorf("%s: %v, want %v", c.name, rc, c.rc)
		}
		if d := cmp.Diff(before, b.f.SchedNodes()); d != "" {
			t.Fatalf("%s changed the tree:\n%s", c.name, d)
		}
		if len(b.lan.on) != 1 {
			t.Fatalf("%s: queues on %v", c.name, b.lan.on)
		}
	}
}

// Clear PF Configuration ends queues as well as leaves.
func TestTxQueueClear(t *testing.T) {
	b := newBench(t)
	vsi := b.addVSI()
	b.addTxq(b.chain(2, 2, 7)[5], 0, vsi)
	b.must(0x02A4, nil, nil)
	if len(b.lan.on) != 0 || len(b.f.sched.leaves) != 0 {
		t.Errorf("left: %v, %v", b.lan.on, b.f.sched.leaves)
	}
}
