// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// form is an operation with what it can have.
type form struct {
	op                       uint8
	imm, inline, solicited   bool
	receives, reads          bool
	invalidates, invalidated bool // an STag of the peer, one of its own
}

func (f form) String() string {
	s := fmt.Sprintf("opcode %#02x", f.op)
	if f.imm {
		s += " with immediate"
	}
	if f.inline {
		s += " inline"
	}
	return s
}

// forms are all operations that move data.
func forms() (list []form) {
	for _, imm := range []bool{false, true} {
		for _, inline := range []bool{false, true} {
			list = append(list,
				form{op: IRDMA_OP_TYPE_SEND, imm: imm, inline: inline, receives: true},
				form{op: IRDMA_OP_TYPE_SEND_SOL, imm: imm, inline: inline, receives: true, solicited: true},
				form{op: IRDMA_OP_TYPE_RDMA_WRITE, imm: imm, inline: inline, receives: imm},
				form{op: IRDMA_OP_TYPE_RDMA_WRITE_SOL, imm: imm, inline: inline, receives: imm, solicited: true})
		}
	}
	return append(list,
		form{op: IRDMA_OP_TYPE_SEND_INV, receives: true, invalidates: true},
		form{op: IRDMA_OP_TYPE_SEND_SOL_INV, receives: true, invalidates: true, solicited: true},
		form{op: IRDMA_OP_TYPE_RDMA_READ, reads: true},
		form{op: IRDMA_OP_TYPE_RDMA_READ_INV, reads: true, invalidated: true})
}

// Every operation with every size that makes packets differ, at every path MTU:
// all the bytes, no more, and the completions of both ends.
func TestSizesAroundMTU(t *testing.T) {
	forWays(t, duoOptions{}, func(t *testing.T, d *duo) {
		rnd := rand.New(rand.NewPCG(16, 1))
		for n, mtu := range []int{256, 512, 1024, 2048, 4096} {
			a, b := newPair(t, d.a.r, rnd, pairOptions{size: 65*mtu + 100, peer: d.b.r, attr: func(q *QPAttr) {
				q.MTU, q.SendPSN = mtu, 1<<24-100-uint32(rnd.IntN(1000))
				q.IPv6 = n%2 == 1
				q.TrafficClass = uint8(0x68 * n)
			}})
			var sizes []int
			for _, k := range []int{0, 1, 2, 3, 63, 64} {
				for _, around := range []int{-1, 0, 1, 2, 3} {
					if size := k*mtu + around; size >= 0 && (k < 3 || around%2 == 0) {
						sizes = append(sizes, size)
					}
				}
			}
			for _, size := range append(sizes, 8, 39, 70, 101) {
				for _, f := range forms() {
					if !f.inline || size <= maxInline {
						f.run(t, a, b, size, mtu)
					}
				}
				if t.Failed() {
					t.Fatalf("at MTU %d, with %d bytes", mtu, size)
				}
			}
			endSides(t, a, b)
		}
		d.end(t)
	})
}

// run does the operation with n bytes and looks at everything.
func (f form) run(t *testing.T, a, b *side, n, mtu int) {
	t.Helper()
	rnd, r := a.rnd, a.qp.r
	from, to := rnd.IntN(32), rnd.IntN(32)
	fillRandom(rnd, a.mem.want[from:from+n])
	a.mem.Write(from, a.mem.want[from:from+n])
	w := SendWR{ID: rnd.Uint64(), Op: f.op, Signalled: true, SGEs: []SGE{a.sge(from, n)}, RemoteAddr: b.mem.mr.Addr(to), RKey: b.mem.mr.STag}
	src, dst := a, b
	if f.reads {
		src, dst = b, a
		fillRandom(rnd, b.mem.want[from:from+n])
		b.mem.Write(from, b.mem.want[from:from+n])
		w.SGEs, w.RemoteAddr = []SGE{a.sge(to, n)}, b.mem.mr.Addr(from)
	}
	if n > 10 && !f.inline && rnd.IntN(2) == 0 { // in two pieces
		s, cut := w.SGEs[0], uint32(rnd.IntN(n))
		w.SGEs = []SGE{{s.Addr, cut, s.LKey}, {s.Addr + uint64(cut), s.Len - cut, s.LKey}}
	}
	if f.inline {
		w.Inline, w.SGEs = append([]byte{}, a.mem.want[from:from+n]...), nil
	}
	recv := WC{ID: rnd.Uint64(), Len: uint32(n), Solicited: f.solicited}
	if f.imm {
		w.HasImm, w.Imm = true, rnd.Uint32()
		recv.HasImm, recv.Imm = true, w.Imm
	}
	var mr *MR
	if f.invalidates {
		mr = b.register(t, pairPD, Everything)
		w.RKey, w.RemoteAddr = mr.STag, 0
		recv.HasSTag, recv.STag = true, mr.STag
	}
	if f.invalidated {
		mr = a.register(t, pairPD, Everything)
		for k := range w.SGEs {
			w.SGEs[k].LKey = mr.STag
		}
	}
	if f.receives {
		list := []SGE{b.sge(to, n)}
		if f.op == IRDMA_OP_TYPE_RDMA_WRITE || f.op == IRDMA_OP_TYPE_RDMA_WRITE_SOL {
			list = nil
		}
		must(t, b.qp.PostRecv(RecvWR{ID: recv.ID, SGEs: list}))
	}
	must(t, a.qp.PostSend(w))
	if f.receives {
		wc := b.wait(t, 1)[0]
		if writes := wc.Op == cqeWriteLastImm || wc.Op == cqeWriteOnlyImm; writes {
			if want := uint8(cqeWriteLastImm); n > mtu && wc.Op != want || n <= mtu && wc.Op == want {
				t.Errorf("%v: received as opcode %#x", f, wc.Op)
			}
		}
		wc.QP, wc.Op, wc.Send = nil, 0, false
		if wc != recv {
			t.Errorf("%v: received %+v, want %+v", f, wc, recv)
		}
	}
	if wc := a.wait(t, 1)[0]; wc.ID != w.ID || wc.Status != Success || wc.Len != uint32(n) || wc.Op != f.op {
		t.Errorf("%v: completion %+v, want %d with %d bytes; events %+v", f, wc, w.ID, n, r.AEs)
	}
	a.nothing(t)
	b.nothing(t)
	copy(dst.mem.want[to:], src.mem.want[from:from+n])
	if err := dst.mem.check(f.String(), 0, min(to+n+64, dst.mem.Size)); err != nil {
		t.Error(err)
	}
	if mr != nil {
		must(t, mr.Dereg())
	}
}
