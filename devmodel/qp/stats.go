// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/vrnic/vrnic/devmodel/roce"
)

// StatsSize is the length in bytes of the buffer of GATHER_STATS.
const StatsSize = 1024

// counters of one function, by their offset in the buffer of GATHER_STATS.
// The driver adds up differences, so they never go back.
type counters struct {
	words [StatsSize / 8]atomic.Uint64
}

// Offsets in the buffer (icrdma_hw.c:icrdma_hw_stat_map). Those with a shift
// share a word.
const (
	statIP4InOctets    = 8
	statIP4InPkts      = 16
	statIP4InTruncated = 24 // discards in 63:32
	statIP6InOctets    = 56
	statIP6InPkts      = 64
	statIP6InTruncated = 72 // discards in 63:32
	statIP4OutOctets   = 104
	statIP4OutPkts     = 112
	statIP6OutOctets   = 144
	statIP6OutPkts     = 152
	statNoRoutes       = 184 // IPv6 in 23:0, IPv4 in 55:32
	statRetrans        = 216 // 63:32
	statRxUDP          = 224
	statTxUDP          = 232
	statInWrites       = 240
	statInReads        = 248
	statInSends        = 256
	statOutWrites      = 264
	statOutReads       = 272
	statOutSends       = 280
	statBinds          = 288
	statInvalidates    = 296
	statCNPHandled     = 312 // ignored in 55:32
)

func (c *counters) add(off int, n uint64) {
	if n != 0 {
		c.words[off/8].Add(n)
	}
}

func (c *counters) noRoute(ipv4 bool) {
	if ipv4 {
		c.add(statNoRoutes, 1<<32)
	} else {
		c.add(statNoRoutes, 1)
	}
}

func (c *counters) reset() {
	for i := range c.words {
		c.words[i].Store(0)
	}
}

// StatsInstances is how many statistics instances a function has
// (icrdma_hw.c: max_stat_inst).
const StatsInstances = 128

// AllocateInstance takes the lowest free statistics instance, with counters at
// 0. QPs whose contexts name it count there, and for the function.
func (t *Table) AllocateInstance() (i uint8, ok bool) {
	for i := range t.instances {
		if t.instances[i].CompareAndSwap(nil, new(counters)) {
			return uint8(i), true
		}
	}
	return 0, false
}

// FreeInstance gives an instance back. It returns false if there is none.
func (t *Table) FreeInstance(i uint8) bool {
	return int(i) < len(t.instances) && t.instances[i].Swap(nil) != nil
}

// Instances lists the statistics instances that are taken.
func (t *Table) Instances() []uint8 {
	out := []uint8{}
	for i := range t.instances {
		if t.instances[i].Load() != nil {
			out = append(out, uint8(i))
		}
	}
	return out
}

// count adds what the QP did since the last time. The caller holds mu.
func (q *QP) count() {
	if q.ep == nil || q.ep.Stats == q.counts {
		return
	}
	n, o := q.ep.Stats, q.counts
	q.counts = n
	q.table.counters.addQP(&n, &o, q.ctx.IPv4())
	if i, ok := q.ctx.StatsInstance(); ok {
		if c := q.table.instances[i].Load(); c != nil {
			c.addQP(&n, &o, q.ctx.IPv4())
		}
	}
}

// addQP adds what happened to a QP between two moments.
func (c *counters) addQP(n, o *roce.Stats, ipv4 bool) {
	inOctets, inPkts, outOctets, outPkts := statIP4InOctets, statIP4InPkts, statIP4OutOctets, statIP4OutPkts
	if !ipv4 {
		inOctets, inPkts, outOctets, outPkts = statIP6InOctets, statIP6InPkts, statIP6OutOctets, statIP6OutPkts
	}
	c.add(inOctets, n.RxOctets-o.RxOctets)
	c.add(inPkts, n.RxPackets-o.RxPackets)
	c.add(outOctets, n.TxOctets-o.TxOctets)
	c.add(outPkts, n.TxPackets-o.TxPackets)
	c.add(statRxUDP, n.RxPackets-o.RxPackets)
	c.add(statTxUDP, n.TxPackets-o.TxPackets)
	c.add(statRetrans, (n.Retransmitted-o.Retransmitted)<<32)
	c.add(statInWrites, n.InWrites-o.InWrites)
	c.add(statInReads, n.InReads-o.InReads)
	c.add(statInSends, n.InSends-o.InSends)
	c.add(statOutWrites, n.OutWrites-o.OutWrites)
	c.add(statOutReads, n.OutReads-o.OutReads)
	c.add(statOutSends, n.OutSends-o.OutSends)
	c.add(statBinds, n.Binds-o.Binds)
	c.add(statInvalidates, n.Invalidations-o.Invalidations)
}

// Stats fills the buffer of GATHER_STATS with the function's counters.
func (t *Table) Stats() [StatsSize]byte { return t.counters.buffer() }

// InstanceStats fills it with those of an instance, if that is taken.
func (t *Table) InstanceStats(i uint8) (buf [StatsSize]byte, ok bool) {
	if int(i) >= len(t.instances) {
		return buf, false
	}
	c := t.instances[i].Load()
	if c == nil {
		return buf, false
	}
	return c.buffer(), true
}

// buffer is the counters in the form of GATHER_STATS. All but the shared ones
// are 48 bits wide.
func (c *counters) buffer() (buf [StatsSize]byte) {
	for i := range c.words {
		v := c.words[i].Load()
		switch 8 * i {
		case statNoRoutes:
			v &= 1<<24 - 1 | (1<<24-1)<<32
		case statRetrans, statIP4InTruncated, statIP6InTruncated, statCNPHandled:
		default:
			v &= 1<<48 - 1
		}
		binary.LittleEndian.PutUint64(buf[8*i:], v)
	}
	return buf
}

var _ roce.Host = (*QP)(nil)
