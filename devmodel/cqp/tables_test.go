// SPDX-License-Identifier: Apache-2.0

package cqp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vrnic/vrnic/devmodel/cqp"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma"
	. "github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

const (
	param = 0x8001
	state = 0x8002
)

func TestAcceptedPorts(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1)
	const add = 0x8000002300000000 | 1<<62
	g.Fails(WQE{2: 4791, 3: add}, state) // the bitmap has no memory yet
	g.HMC(208)
	for _, port := range []uint64{0, 4791, 65535, 4791} {
		g.Must(WQE{2: port, 3: add})
	}
	g.Must(WQE{2: 0, 3: 0x8000002300000000})
	g.Fails(WQE{2: 0, 3: 0x8000002300000000}, state)
	g.Fails(WQE{2: 4790, 3: 0x8000002300000000}, state)
	if diff := cmp.Diff([]uint16{4791, 65535}, g.Snapshot().Ports); diff != "" {
		t.Error(diff)
	}
}

func TestQuadHash(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	handle := uint64(d.QSHandle)
	const (
		header = 0x8000002500000000
		add    = 1 << 61
		modify = 2 << 61
		ipv4   = 1 << 60
		vlan   = 1 << 59
	)
	syn := func(op, qp uint64) WQE {
		return WQE{0: 0x525400123456, 1: qp<<32 | 5000, 2: 7<<32 | handle, 3: header | op | ipv4 | vlan | 2<<42, 6: 0xC0000201}
	}
	established := WQE{0: 0x525400123456, 1: GSIQP<<32 | 6000<<16 | 5000, 2: handle, 3: header | add | 1<<42,
		4: 2<<32 | 3, 5: 0<<32 | 1, 6: 12<<32 | 13, 7: 10<<32 | 11}
	g.Must(syn(add, GSIQP))
	g.Must(established)
	for name, s := range map[string]struct {
		wqe   WQE
		minor uint16
	}{
		"twice":         {syn(add, GSIQP), state},
		"no QP":         {syn(modify, 9), state},
		"absent":        {WQE{1: 5001, 3: header | modify | ipv4 | 2<<42}, state},
		"delete absent": {WQE{1: 5001, 3: header | ipv4 | 2<<42}, state},
		"type 0":        {WQE{1: GSIQP<<32 | 1, 3: header | add}, param},
		"type 7":        {WQE{1: GSIQP<<32 | 1, 3: header | add | 7<<42}, param},
		"operation 3":   {WQE{1: GSIQP<<32 | 1, 3: header | 3<<61 | 2<<42}, param},
	} {
		if c := g.Run(s.wqe); c != (Completion{Error: true, Major: 0xFFFF, Minor: s.minor}) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	quads := map[cqp.Quad]cqp.QuadHash{}
	for _, q := range g.Snapshot().QuadHash {
		quads[q.Quad] = q
	}
	a := cqp.Quad{Type: 2, IPv4: true, VLAN: 7, Dest: [16]byte{12: 192, 14: 2, 15: 1}, DestPort: 5000}
	c := cqp.Quad{Type: 1, VLAN: -1, Dest: [16]byte{3: 10, 7: 11, 11: 12, 15: 13}, Source: [16]byte{7: 1, 11: 2, 15: 3}, DestPort: 5000, SourcePort: 6000}
	mac := [6]byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	want := map[cqp.Quad]cqp.QuadHash{
		a: {Quad: a, MAC: mac, QP: GSIQP, QSHandle: uint16(handle)},
		c: {Quad: c, MAC: mac, QP: GSIQP, QSHandle: uint16(handle)},
	}
	if diff := cmp.Diff(want, quads); diff != "" {
		t.Error(diff)
	}
	g.Must(syn(0, 0)) // whatever QP a removal names
	if q := g.Snapshot().QuadHash; len(q) != 1 || q[0].Type != 1 {
		t.Errorf("after a removal: %+v", q)
	}
	g.Must(WQE{2: d.QPC, 3: 0xE004000100000000 + GSIQP, 5: d.QPShadow})
	g.Must(WQE{3: 0x8084000200000000 + GSIQP}) // with REMOVEHASHENTRY
	if q := g.Snapshot().QuadHash; len(q) != 0 {
		t.Errorf("entries of a QP that is gone: %+v", q)
	}
}

func TestPushPages(t *testing.T) {
	const alloc, free, none = 0x8000001100000000, 0x8000001100000000 | 1<<62, 0xFFFF_FFFF
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	if v := g.Must(WQE{2: uint64(d.QSHandle), 3: alloc}).Value; v != none {
		t.Errorf("page %d of a function without any", v)
	}
	g = New(t, hmc.Profile{}, func(c *rdma.Config) { c.PushPages = 3 })
	d = g.Boot(Kernel73, 1)
	handle := uint64(d.QSHandle)
	g.Fails(WQE{2: handle, 3: alloc | 1<<60}, param) // of another type
	for _, want := range []uint32{0, 1, 2, none, none} {
		if v := g.Must(WQE{2: handle, 3: alloc}).Value; v != want {
			t.Errorf("page %d, want %d", v, want)
		}
	}
	g.Must(WQE{3: free | 1})
	g.Fails(WQE{3: free | 1}, state)
	g.Fails(WQE{3: free | 3}, state)
	if diff := cmp.Diff([]uint32{0, 2}, g.Snapshot().PushPages); diff != "" {
		t.Error(diff)
	}
	if v := g.Must(WQE{2: handle, 3: alloc}).Value; v != 1 {
		t.Errorf("page %d, want the freed one", v)
	}
}

func TestPriorityMap(t *testing.T) {
	g := New(t, hmc.Profile{})
	g.CreateCQP(1)
	g.Must(WQE{0: 0x0706050403020100, 5: 5 << 32, 3: 0x8000002F00000000 | 3<<61})
	want := cqp.Priorities{Map: [8]uint8{0, 1, 2, 3, 4, 5, 6, 7}, VLAN: true, CNP: 5, CNPOverride: true}
	if diff := cmp.Diff(want, g.Snapshot().UPMap); diff != "" {
		t.Error(diff)
	}
	g.Fails(WQE{5: 1, 3: 0x8000002F00000000}, param) // another function's
}

func TestUploadContext(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	const upload = 0x8000001300000000 | 4<<48 | GSIQP
	buf := g.Alloc(256)
	same := func() {
		t.Helper()
		for off := uint64(0); off < 256; off += 8 {
			if got, want := g.Load(buf+off), g.Load(d.QPC+off); got != want {
				t.Errorf("word at %d: %#x, want %#x", off, got, want)
			}
		}
	}
	g.Must(WQE{2: buf, 3: upload})
	same()
	g.Must(WQE{2: buf, 3: upload | 1<<61 | 1<<62}) // raw, freeze
	same()
	g.Must(WQE{2: uint64(d.QSHandle), 3: 0x8000002A00000000 | GSIQP}) // RESUME_QP thaws it
	g.Fails(WQE{2: uint64(d.QSHandle), 3: 0x8000002A00000000 | GSIQP}, state)
	g.Fails(WQE{2: buf, 3: upload ^ 7<<48}, param) // of type 3
	g.Fails(WQE{2: buf, 3: upload + 1}, state)     // absent
	g.Fails(WQE{2: buf + 64, 3: upload}, param)    // misaligned
	g.Fails(WQE{2: 0x1000, 3: upload}, param)      // no memory
}

func TestStatisticsOfAnInstance(t *testing.T) {
	g := New(t, hmc.Profile{})
	d := g.Boot(Kernel73, 1)
	const gather, manage, useInstance, useFunction = 0x8000002E00000000, 0x8000002D00000000, 1 << 61, 1 << 60
	i := uint64(g.Must(WQE{3: manage | 1<<62}).Value)
	g.Must(WQE{3: gather | useInstance | useFunction | i, 4: d.Stats})
	g.Fails(WQE{3: gather | useInstance | i + 1, 4: d.Stats}, state)
	g.Fails(WQE{3: gather | useFunction, 4: d.Stats, 5: 3}, param)
	g.Fails(WQE{3: gather, 4: 0x1000}, param) // no memory
	if diff := cmp.Diff([]uint8{uint8(i)}, g.Snapshot().Instances); diff != "" {
		t.Error(diff)
	}
	g.Must(WQE{3: manage | i})
	g.Fails(WQE{3: manage | i}, state)
}

// The device looks at fields only; what else is set is told of, once per
// command.
func TestReservedBits(t *testing.T) {
	for _, o := range cqp.Opcodes() {
		g := New(t, hmc.Profile{})
		g.CreateCQP(1)
		w := WQE{3: uint64(o.Op) << 32}
		var want [8]uint64
		for i, known := range o.Known {
			want[i] = ^known
			w[i] |= ^known
		}
		g.Put(w)
		g.Ring()
		if e, ok := find[cqp.ReservedBits](g); !ok || e.Name != o.Name || e.Bits != want {
			t.Errorf("%s: %v, %t", o.Name, e, ok)
		}
	}
}
