// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A thousand QPs (some hundreds without -full) with work at the same moment, both ways: more than any queue
// on the way holds. Everything arrives, once.
func TestThousandQPs(t *testing.T) {
	const (
		pd    = 9
		piece = 12_000 // of memory of each QP, on both sides
		each  = 4      // requests that complete
	)
	forWays(t, duoOptions{guest: 256}, func(t *testing.T, d *duo) {
		count := 100
		switch {
		case *full && d.a == d.b:
			count = 500 // both ends of a pair are of this card, which has 1024
		case *full:
			count = 1000
		case d.way == wired2:
			count = 400
		}
		rnd := rand.New(rand.NewPCG(17, 1))
		var ends [2]struct {
			cq  *CQ
			mem *flat
			qps []*QP
		}
		for k, m := range []*machine{d.a, d.b} {
			e := &ends[k]
			var err error
			e.cq, err = m.r.CreateCQ(count*2*(each+1), 0, false)
			must(t, err)
			kind := regionKind{size: 2 * count * piece, va: 0x7f11_2233_4455, page: Page4K, level: 1}
			e.mem, err = newFlat(m.r, rnd, kind, pd, Everything)
			must(t, err)
		}
		index := make(map[*QP]int)
		for n := range count {
			var pair [2]*QP
			for k := range ends {
				q, err := []*machine{d.a, d.b}[k].r.NewQP(QPConfig{Send: ends[k].cq, Recv: ends[k].cq, PD: pd, SendWRs: 8, RecvWRs: 4, SendSGEs: 1, RecvSGEs: 1})
				must(t, err)
				q.Attr.Retries, q.Attr.RNRTries = 7, 7
				q.Attr.MTU = []int{256, 1024, 4096}[n%3]
				if n%2 == 1 {
					q.Attr.IPv6, q.Attr.LocalIP = true, q.r.Address(true)
					q.Attr.DestIP = q.Attr.LocalIP
				}
				pair[k] = q
				index[q] = n
				ends[k].qps = append(ends[k].qps, q)
			}
			must(t, ConnectPair(pair[0], pair[1]))
		}
		// Of its piece a QP sends the first half; the second half is for what
		// comes: 3000 bytes of a write, 2000 of a send, 1000 of a read.
		sge := func(k, n, off, size int) SGE {
			m := ends[k].mem
			return SGE{m.mr.Addr(n*piece + off), uint32(size), m.mr.STag}
		}
		for n := range count {
			for k := range ends {
				q, peer := ends[k].qps[n], ends[1-k].mem
				far := func(off int) uint64 { return peer.mr.Addr(n*piece + off) }
				must(t, q.PostRecv(RecvWR{ID: 9, SGEs: []SGE{sge(k, n, 9000, 2000)}}))
				must(t, q.PostSend(
					SendWR{ID: 1, Op: IRDMA_OP_TYPE_RDMA_WRITE, Signalled: true, SGEs: []SGE{sge(k, n, 0, 3000)}, RemoteAddr: far(6000), RKey: peer.mr.STag},
					SendWR{ID: 2, Op: IRDMA_OP_TYPE_SEND, Signalled: true, SGEs: []SGE{sge(k, n, 3000, 2000)}},
					SendWR{ID: 3, Op: IRDMA_OP_TYPE_RDMA_READ, Signalled: true, SGEs: []SGE{sge(k, n, 11_000, 1000)}, RemoteAddr: far(5000), RKey: peer.mr.STag},
					SendWR{ID: 4, Op: IRDMA_OP_TYPE_NOP, Signalled: true}))
				copy(peer.want[n*piece+6000:][:3000], ends[k].mem.want[n*piece:])
				copy(peer.want[n*piece+9000:][:2000], ends[k].mem.want[n*piece+3000:])
				copy(ends[k].mem.want[n*piece+11_000:][:1000], peer.want[n*piece+5000:])
			}
		}
		for k := range ends {
			next := make([]uint64, count)
			err := ends[k].cq.PollFor(count*(each+1), func(wc WC) error {
				n := index[wc.QP]
				if wc.Status != Success {
					return fmt.Errorf("QP %d: %+v; events %+v", wc.QP.ID, wc, wc.QP.r.AEs)
				}
				if wc.Send {
					if next[n]++; wc.ID != next[n] {
						return fmt.Errorf("QP %d: completion %d, want %d", wc.QP.ID, wc.ID, next[n])
					}
				}
				return nil
			})
			must(t, err)
		}
		for k := range ends {
			must(t, ends[k].mem.check("memory of all QPs", 0, ends[k].mem.Size))
			for _, q := range ends[k].qps {
				must(t, q.Destroy())
			}
			must(t, ends[k].mem.mr.Dereg())
			ends[k].mem.Free()
			must(t, ends[k].cq.Destroy())
		}
		d.balanced(t, false)
		d.end(t)
	})
}
