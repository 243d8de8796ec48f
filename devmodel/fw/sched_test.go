// SPDX-License-Identifier: Apache-2.0

package fw

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/reg"
)

// oneBuffer is guest memory that holds one command buffer, wherever.
type oneBuffer struct{ b []byte }

func (m *oneBuffer) Read(_ uint64, p []byte) error  { copy(p, m.b); return nil }
func (m *oneBuffer) Write(_ uint64, p []byte) error { copy(m.b, p); return nil }
func (m *oneBuffer) Load64(uint64) (uint64, error)  { return 0, nil }
func (m *oneBuffer) Store64(uint64, uint64) error   { return nil }

// fakeLAN records what the firmware asks of the queues.
type fakeLAN struct {
	on     map[uint16][22]byte
	refuse map[uint16]error

	steering *lan.Steering
	steers   int
}

func (l *fakeLAN) EnableTxQueue(id uint16, ctx [22]byte) error {
	if err := l.refuse[id]; err != nil {
		return err
	}
	l.on[id] = ctx
	return nil
}
func (l *fakeLAN) DisableTxQueue(id uint16) { delete(l.on, id) }
func (l *fakeLAN) ResetQueues()             { clear(l.on) }
func (l *fakeLAN) Steer(s *lan.Steering)    { l.steering, l.steers = s, l.steers+1 }

// bench is a firmware with commands sent straight to its table.
type bench struct {
	t    *testing.T
	f    *Firmware
	regs *reg.Space
	mem  oneBuffer
	lan  fakeLAN
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, lan: fakeLAN{on: map[uint16][22]byte{}, refuse: map[uint16]error{}}}
	b.f = New(Config{Mem: &b.mem, LAN: &b.lan})
	b.regs = reg.NewSpace(8<<20, nil, b.f.Registers())
	return b
}

// do sends a command and returns its return code, parameters and response.
func (b *bench) do(op uint16, params []byte, buf []byte) (errno, []byte, []byte) {
	b.t.Helper()
	var r request
	flags := uint16(0)
	if buf != nil {
		flags = flagBUF | flagRD | flagLB
	}
	binary.LittleEndian.PutUint16(r.desc[0:], flags)
	binary.LittleEndian.PutUint16(r.desc[2:], op)
	binary.LittleEndian.PutUint16(r.desc[4:], uint16(len(buf)))
	copy(r.p(), params)
	b.mem.b = slices.Clone(buf)
	rc := b.f.execute(&b.f.atq, 0, 0, &r)
	return rc, slices.Clone(r.p()), b.mem.b[:min(r.n, len(b.mem.b))]
}

// must sends a command that succeeds.
func (b *bench) must(op uint16, params []byte, buf []byte) ([]byte, []byte) {
	b.t.Helper()
	rc, p, out := b.do(op, params, buf)
	if rc != rcOK {
		b.t.Fatalf("opcode %#04x: %v", op, rc)
	}
	return p, out
}

// want sends a command that ends with the given code.
func (b *bench) want(rc errno, op uint16, params []byte, buf []byte) {
	b.t.Helper()
	if got, _, _ := b.do(op, params, buf); got != rc {
		b.t.Errorf("opcode %#04x params % x: %v, want %v", op, params, got, rc)
	}
}

// Little endian pieces of a buffer.
func u16(v ...uint16) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint16(b, x)
	}
	return b
}

func u32(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func get32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func get16(b []byte, at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }

// element as the driver fills it (ice_sched.c:ice_sched_add_elems).
func elemBytes(kind byte) []byte {
	return slices.Concat([]byte{kind, 7, 0, 0}, u16(0, 4, 0, 4, 0, 0))
}

func addBuf(parent uint32, n int) []byte {
	b := slices.Concat(u32(parent), u16(uint16(n), 0))
	for range n {
		b = slices.Concat(b, u32(parent, 0), elemBytes(3))
	}
	return b
}

// add adds n elements and returns their identifiers.
func (b *bench) add(parent uint32, n int) []uint32 {
	b.t.Helper()
	_, out := b.must(0x0401, u16(1), addBuf(parent, n))
	var ids []uint32
	for i := range n {
		ids = append(ids, get32(out, 8+24*i+4))
	}
	return ids
}

// chain adds one element below the other down to the given layer.
func (b *bench) chain(parent uint32, from, to int) (ids []uint32) {
	b.t.Helper()
	for range to - from + 1 {
		parent = b.add(parent, 1)[0]
		ids = append(ids, parent)
	}
	return ids
}

func (b *bench) query(teid uint32) (parent uint32, elem []byte) {
	b.t.Helper()
	p, out := b.must(0x0404, u16(1), slices.Concat(u32(0, teid), make([]byte, 16)))
	if get16(p, 2) != 1 || get32(out, 4) != teid || len(out) != 24 {
		b.t.Fatalf("query of %d: %d done, % x", teid, get16(p, 2), out)
	}
	return get32(out, 0), out[8:]
}

func deleteBuf(parent uint32, ids ...uint32) []byte {
	return slices.Concat(u32(parent), u16(uint16(len(ids)), 0), u32(ids...))
}

func moveBuf(from, to uint32, ids ...uint32) []byte {
	return slices.Concat(u32(from, to), u16(uint16(len(ids)), 0), u32(ids...))
}

func TestSchedDefaultBranch(t *testing.T) {
	b := newBench(t)
	p, out := b.must(0x0400, nil, make([]byte, 4096))
	if p[1] != 1 || len(out) != 224 || get32(out, 0) != 0xFFFFFFFF || get16(out, 4) != 3 {
		t.Fatalf("branches %d, % x", p[1], out[:8])
	}
	for i, want := range [][3]uint32{{0xFFFFFFFF, 1, 1}, {1, 2, 2}, {2, 3, 4}} {
		rec := out[8+24*i:]
		if got := [3]uint32{get32(rec, 0), get32(rec, 4), uint32(rec[8])}; got != want {
			t.Errorf("element %d: parent, TEID, type %v, want %v", i, got, want)
		}
	}
	b.want(rcENOENT, 0x0400, []byte{1}, make([]byte, 4096))
	b.want(rcEINVAL, 0x0400, nil, make([]byte, 223))
}

func TestSchedQueryResources(t *testing.T) {
	b := newBench(t)
	_, out := b.must(0x0412, nil, make([]byte, 320))
	if len(out) != 320 || get16(out, 0) != 9 || get16(out, 2) != 9 || out[5] != 8 || out[6] != 8 {
		t.Fatalf("% x", out[:32])
	}
	for layer := range 9 {
		l := out[32+32*layer:]
		if int(l[0]) != layer || get16(l, 10) != 8 || get16(l, 2) == 0 || get16(l, 4) == 0 || get16(l, 16) == 0 {
			t.Errorf("layer %d: % x", layer, l[:32])
		}
	}
}

// The life of the tree from probe to RDMA as ice_sched.c makes it, then every
// reset brings the default branch back.
func TestSchedDriverSequence(t *testing.T) {
	b := newBench(t)
	p, _ := b.must(0x040F, u16(1), deleteBuf(2, 3)) // ice_sched_rm_dflt_nodes
	if get16(p, 2) != 1 {
		t.Errorf("%d groups deleted, want 1", get16(p, 2))
	}
	vsi := b.chain(2, 2, 5) // layers 2..5
	qparent := b.add(vsi[3], 1)[0]
	qgrps := b.add(qparent, 2)
	agg := b.chain(vsi[0], 3, 4)
	p, _ = b.must(0x0408, u16(1), moveBuf(vsi[2], agg[1], vsi[3]))
	if get16(p, 2) != 1 {
		t.Errorf("%d groups moved, want 1", get16(p, 2))
	}
	if parent, e := b.query(vsi[3]); parent != agg[1] || e[0] != 3 || e[1] != 7 || get16(e, 6) != 4 {
		t.Errorf("VSI node: parent %d element % x", parent, e)
	}
	if parent, _ := b.query(qgrps[1]); parent != qparent {
		t.Errorf("queue group: parent %d, want %d", parent, qparent)
	}
	b.must(0x040F, u16(1), deleteBuf(vsi[1], vsi[2]))
	b.must(0x040F, u16(1), deleteBuf(vsi[0], vsi[1]))

	want := []SchedNode{
		{TEID: 1, Parent: 0xFFFFFFFF, Layer: 0, Type: 1},
		{TEID: 2, Parent: 1, Layer: 1, Type: 2},
		{TEID: 3, Parent: 2, Layer: 2, Type: 4},
	}
	for name, reset := range map[string]func(){
		"PFR":                    func() { b.f.Reset(reg.PFR) },
		"FLR":                    func() { b.f.Reset(reg.FLR) },
		"CORER":                  func() { b.f.Reset(reg.CORER) },
		"Clear PF Configuration": func() { b.must(0x02A4, nil, nil) },
	} {
		b.add(2, 1)
		reset()
		if d := cmp.Diff(want, b.f.SchedNodes()); d != "" {
			t.Errorf("after %s (-want +got):\n%s", name, d)
		}
	}
}

func TestSchedAddRefused(t *testing.T) {
	b := newBench(t)
	chain := b.chain(2, 2, 7)
	edit := func(buf []byte, f func([]byte)) []byte { f(buf); return buf }
	for _, c := range []struct {
		name string
		rc   errno
		p    []byte
		buf  []byte
	}{
		{"no groups", rcEINVAL, u16(0), addBuf(2, 1)},
		{"no elements", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[4] = 0 })},
		{"count past the buffer", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[4] = 2 })},
		{"largest count", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[4], b[5] = 0xFF, 0xFF })},
		{"groups past the buffer", rcEINVAL, u16(0xFFFF), addBuf(2, 1)},
		{"short buffer", rcEINVAL, u16(1), addBuf(2, 1)[:31]},
		{"unknown parent", rcENOENT, u16(1), addBuf(99, 1)},
		{"invalid parent", rcENOENT, u16(1), addBuf(0xFFFFFFFF, 1)},
		{"below the root", rcEINVAL, u16(1), addBuf(1, 1)},
		{"at the leaves' layer", rcEINVAL, u16(1), addBuf(chain[5], 1)},
		{"leaf", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[16] = 5 })},
		{"traffic class", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[16] = 2 })},
		{"no generic section", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[17] = 6 })},
		{"EIR and shared", rcEINVAL, u16(1), edit(addBuf(2, 1), func(b []byte) { b[17] = 0xF })},
		{"unknown profile", rcENOENT, u16(1), edit(addBuf(2, 1), func(b []byte) { b[20] = 9 })},
		{"nine children", rcENOSPC, u16(1), addBuf(chain[0], 9)},
		{"seven and one is eight, one more", rcENOSPC, u16(1), addBuf(chain[0], 8)},
	} {
		before := len(b.f.SchedNodes())
		rc, p, _ := b.do(0x0401, c.p, c.buf)
		if rc != c.rc {
			t.Errorf("%s: %v, want %v", c.name, rc, c.rc)
		}
		// A group that was good before the bad one stays.
		added := b.f.SchedNodes()[before:]
		if len(added) != int(get16(p, 2)) {
			t.Errorf("%s: %d nodes more, %d groups done", c.name, len(added), get16(p, 2))
		}
		for _, n := range added {
			b.must(0x040F, u16(1), deleteBuf(n.Parent, n.TEID))
		}
	}
}

// A tree as large as it gets: siblings and layers have limits, and what is
// deleted makes room again.
func TestSchedFull(t *testing.T) {
	b := newBench(t)
	b.must(0x040F, u16(1), deleteBuf(2, 3))
	layer := []uint32{2}
	for range 3 { // layers 2, 3, 4: 8, 64, 512 nodes
		var next []uint32
		for _, parent := range layer {
			next = append(next, b.add(parent, 8)...)
		}
		layer = next
	}
	total, rc := 0, rcOK
	for _, parent := range layer {
		if rc, _, _ = b.do(0x0401, u16(1), addBuf(parent, 8)); rc != rcOK {
			break
		}
		total += 8
	}
	if rc != rcENOSPC || total != 2048 {
		t.Fatalf("layer 5: %d nodes, then %v; want 2048, ENOSPC", total, rc)
	}
	leaf := b.f.SchedNodes()[len(b.f.SchedNodes())-1]
	b.must(0x040F, u16(1), deleteBuf(leaf.Parent, leaf.TEID))
	if id := b.add(layer[511], 1)[0]; id == leaf.TEID {
		t.Errorf("TEID %d handed out twice in a row", id)
	}
	b.want(rcENOSPC, 0x0401, u16(1), addBuf(layer[511], 1))
}

func TestSchedTEIDWraps(t *testing.T) {
	b := newBench(t)
	b.f.sched.nextTEID = 0xFFFFFFFE
	if d := cmp.Diff([]uint32{0xFFFFFFFE, 4, 5}, b.add(2, 3)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b.f.sched.nextTEID = 0xFFFFFFFE
	if d := cmp.Diff([]uint32{6}, b.add(2, 1)); d != "" {
		t.Errorf("identifiers in use (-want +got):\n%s", d)
	}
}

func TestSchedMoveRefused(t *testing.T) {
	b := newBench(t)
	left, right := b.chain(2, 2, 6), b.chain(2, 2, 6)
	full := b.add(right[1], 7) // with right[2]: eight children
	for _, c := range []struct {
		name string
		rc   errno
		buf  []byte
	}{
		{"node under itself", rcEINVAL, moveBuf(left[0], left[1], left[1])},
		{"node under its child", rcEINVAL, moveBuf(left[0], left[2], left[1])},
		{"node under its grandchild", rcEINVAL, moveBuf(left[0], left[3], left[1])},
		{"to another layer", rcEINVAL, moveBuf(left[0], right[1], left[1])},
		{"wrong source", rcEINVAL, moveBuf(right[0], right[0], left[1])},
		{"unknown source", rcENOENT, moveBuf(999, right[0], left[1])},
		{"unknown destination", rcENOENT, moveBuf(left[0], 999, left[1])},
		{"unknown node", rcENOENT, moveBuf(left[0], right[0], 999)},
		{"traffic class", rcEINVAL, moveBuf(1, 1, 2)},
		{"the root", rcENOENT, moveBuf(0xFFFFFFFF, 2, 1)},
		{"full destination", rcENOSPC, moveBuf(left[1], right[1], left[2])},
		{"no nodes", rcEINVAL, slices.Concat(moveBuf(left[0], right[0]), u32(left[1]))},
		{"count past the buffer", rcEINVAL, slices.Concat(u32(left[0], right[0]), u16(2, 0), u32(left[1]))},
		{"another function's", rcEINVAL, slices.Concat(u32(left[0], right[0]), u16(1), []byte{1, 0}, u32(left[1]))},
	} {
		before := b.f.SchedNodes()
		if rc, p, _ := b.do(0x0408, u16(1), c.buf); rc != c.rc || get16(p, 2) != 0 {
			t.Errorf("%s: %v, %d groups; want %v", c.name, rc, get16(p, 2), c.rc)
		}
		if d := cmp.Diff(before, b.f.SchedNodes()); d != "" {
			t.Errorf("%s changed the tree:\n%s", c.name, d)
		}
	}
	b.must(0x0408, u16(1), moveBuf(right[1], right[1], full[0])) // to where it is
	b.must(0x0408, u16(1), moveBuf(right[1], left[1], full[0], full[1]))
	if parent, _ := b.query(full[1]); parent != left[1] {
		t.Errorf("parent %d after the move, want %d", parent, left[1])
	}
}

func TestSchedDeleteRefused(t *testing.T) {
	b := newBench(t)
	ids := b.chain(2, 2, 7)
	b.addQset(ids[5], 5)
	leaf := b.f.SchedNodes()[len(b.f.SchedNodes())-1].TEID
	for _, c := range []struct {
		name string
		rc   errno
		buf  []byte
	}{
		{"with children", rcEBUSY, deleteBuf(2, ids[0])},
		{"root", rcENOENT, deleteBuf(0xFFFFFFFF, 1)},
		{"traffic class", rcEPERM, deleteBuf(1, 2)},
		{"leaf", rcEPERM, deleteBuf(ids[5], leaf)},
		{"of another parent", rcEINVAL, deleteBuf(2, ids[1])},
		{"unknown", rcENOENT, deleteBuf(2, 77)},
		{"unknown parent", rcENOENT, deleteBuf(77, ids[0])},
		{"twice", rcENOENT, deleteBuf(2, 3, 3)},
		{"no nodes", rcEINVAL, slices.Concat(deleteBuf(2), u32(3))},
		{"count past the buffer", rcEINVAL, slices.Concat(u32(2), u16(0xFFFF, 0), u32(3))},
	} {
		if rc, _, _ := b.do(0x040F, u16(1), c.buf); rc != c.rc {
			t.Errorf("%s: %v, want %v", c.name, rc, c.rc)
		}
	}
	// Groups are done in order; the first to fail ends the command.
	more := b.add(2, 2)
	rc, p, _ := b.do(0x040F, u16(3), slices.Concat(deleteBuf(2, more[0]), deleteBuf(2, 77), deleteBuf(2, more[1])))
	if rc != rcENOENT || get16(p, 2) != 1 {
		t.Errorf("%v after %d groups, want ENOENT after 1", rc, get16(p, 2))
	}
	b.query(more[1])
	b.want(rcENOENT, 0x0404, u16(1), slices.Concat(u32(0, more[0]), make([]byte, 16)))
}

func TestSchedSuspendResume(t *testing.T) {
	b := newBench(t)
	suspended := addBuf(2, 1)
	suspended[8+8+3] = 1 // flags are reserved in an add
	_, out := b.must(0x0401, u16(1), suspended)
	if _, e := b.query(get32(out, 8+4)); e[3] != 0 {
		t.Errorf("flags %#x of a new element, want 0", e[3])
	}
	ids := b.add(2, 2)
	p, _ := b.must(0x0409, u16(2), u32(ids...))
	if get16(p, 2) != 2 {
		t.Errorf("%d suspended, want 2", get16(p, 2))
	}
	if _, e := b.query(ids[1]); e[3] != 1 {
		t.Errorf("flags %#x, want suspended", e[3])
	}
	b.must(0x040A, u16(1), u32(ids[1]))
	if _, e := b.query(ids[1]); e[3] != 0 {
		t.Errorf("flags %#x, want running", e[3])
	}
	if _, e := b.query(ids[0]); e[3] != 1 {
		t.Errorf("flags of the other %#x, want suspended", e[3])
	}
	b.want(rcENOENT, 0x0409, u16(1), u32(77))
	b.want(rcEINVAL, 0x0409, u16(1), u32(1))
	b.want(rcEINVAL, 0x040A, u16(2), u32(ids[0]))
}

func TestSchedQueryRefused(t *testing.T) {
	b := newBench(t)
	one := slices.Concat(u32(0, 2), make([]byte, 16))
	b.want(rcEINVAL, 0x0404, u16(0), one)
	b.want(rcEINVAL, 0x0404, u16(2), one)
	b.want(rcEINVAL, 0x0404, u16(1), one[:23])
	p, out := b.must(0x0404, u16(2), slices.Concat(one, u32(0, 3), make([]byte, 16)))
	if get16(p, 2) != 2 || out[8] != 2 || out[24+8] != 4 || get32(out, 24) != 2 {
		t.Errorf("%d records: % x", get16(p, 2), out)
	}
}

func TestSchedPortETS(t *testing.T) {
	b := newBench(t)
	_, out := b.must(0x040E, u32(1), slices.Repeat([]byte{0xAA}, 64))
	want := slices.Concat(
		[]byte{1, 0, 0, 0}, u32(0), []byte{100, 0, 0, 0, 0, 0, 0, 0}, u32(0, 0, 0, 0),
		u32(2), slices.Repeat([]byte{0xFF}, 28),
	)
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b.want(rcEINVAL, 0x040E, u32(2), make([]byte, 64))
	b.want(rcENOENT, 0x040E, u32(77), make([]byte, 64))
	b.want(rcEINVAL, 0x040E, u32(1), make([]byte, 63))
}

func rlProfileBuf(level, kind byte, id uint16) []byte {
	return slices.Concat([]byte{level, kind}, u16(id, 1, 2, 3, 4))
}

func configureBuf(teid uint32, valid byte, cir, eir, srl uint16) []byte {
	return slices.Concat(u32(0, teid), []byte{0, valid, 0, 0}, u16(cir, 11, eir, 12, srl, 0))
}

func TestSchedRateLimits(t *testing.T) {
	b := newBench(t)
	n := b.add(2, 1)[0] // layer 2, level 3
	p, out := b.must(0x0410, u16(2), slices.Concat(rlProfileBuf(3, rlCIR, 0), rlProfileBuf(3, rlCIR, 0)))
	if get16(p, 2) != 2 || get16(out, 2) != 1 || get16(out, 14) != 2 {
		t.Fatalf("%d profiles: % x", get16(p, 2), out)
	}
	b.must(0x0410, u16(1), rlProfileBuf(3, rlSRL, 0))

	p, _ = b.must(0x0403, u16(1), configureBuf(n, 2, 2, 99, 99))
	if get16(p, 2) != 1 {
		t.Errorf("%d configured, want 1", get16(p, 2))
	}
	if _, e := b.query(n); e[1] != 7 || get16(e, 4) != 2 || get16(e, 6) != 11 || get16(e, 8) != 0 || get16(e, 10) != 4 {
		t.Errorf("only CIR flagged: % x", e)
	}
	b.must(0x0403, u16(1), configureBuf(n, 8, 0, 0, 1))
	if _, e := b.query(n); e[1] != 0xB || get16(e, 12) != 1 {
		t.Errorf("shared limit: % x, want EIR gone", e)
	}
	b.want(rcEBUSY, 0x0415, u16(1), rlProfileBuf(3, rlSRL, 1))
	b.must(0x0403, u16(1), configureBuf(n, 4, 0, 0, 0))
	if _, e := b.query(n); e[1] != 7 {
		t.Errorf("EIR again: % x, want shared gone", e)
	}
	b.must(0x0415, u16(1), rlProfileBuf(3, rlSRL, 1))
	b.want(rcENOENT, 0x0415, u16(1), rlProfileBuf(3, rlSRL, 1))

	b.want(rcEINVAL, 0x0403, u16(1), configureBuf(n, 0xC, 0, 0, 0))
	b.want(rcENOENT, 0x0403, u16(1), configureBuf(n, 2, 3, 0, 0))
	b.want(rcENOENT, 0x0403, u16(1), configureBuf(n, 4, 0, 1, 0)) // a CIR profile
	b.want(rcENOENT, 0x0403, u16(1), configureBuf(2, 2, 1, 0, 0)) // of another layer
	b.want(rcENOENT, 0x0403, u16(1), configureBuf(77, 2, 0, 0, 0))
	b.want(rcEBUSY, 0x0415, u16(1), rlProfileBuf(3, rlCIR, 2))
	b.must(0x040F, u16(1), deleteBuf(2, n)) // which used it
	b.must(0x0415, u16(1), rlProfileBuf(3, rlCIR, 2))

	for _, bad := range [][]byte{rlProfileBuf(0, 0, 0), rlProfileBuf(10, 0, 0), rlProfileBuf(3, 3, 0)} {
		b.want(rcEINVAL, 0x0410, u16(1), bad)
		b.want(rcEINVAL, 0x0415, u16(1), bad)
	}
	b.want(rcEINVAL, 0x0410, u16(2), rlProfileBuf(3, 0, 0))
	rc, last := rcOK, uint16(0)
	for range 1000 {
		var out []byte
		if rc, _, out = b.do(0x0410, u16(1), rlProfileBuf(9, rlEIR, 0)); rc != rcOK {
			break
		}
		last = get16(out, 2)
	}
	if rc != rcENOSPC || last != 255 {
		t.Errorf("%v after profile %d, want ENOSPC after 255", rc, last)
	}
}
