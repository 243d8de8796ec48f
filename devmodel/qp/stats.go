// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// StatsSize is the length in bytes of the buffer of GATHER_STATS.
const StatsSize = 1024

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

// each goes through the counters that the QP counts in. The caller holds mu.
func (q *QP) each(yield func(*counters) bool) {
	if !yield(&q.table.counters) {
		return
	}
	if i, ok := q.ctx.StatsInstance(); ok {
		if c := q.table.instances[i].Load(); c != nil {
			yield(c)
		}
	}
}

// count adds what a connected QP did since the last time. The caller holds mu.
func (q *QP) count() {
	if q.ep == nil {
		return
	}
	n, o := q.ep.Stats, q.counts
	n.TxPackets -= q.uncounted.packets
	n.TxOctets -= q.uncounted.octets
	if n == o {
		return
	}
	q.counts = n
	for c := range q.each {
		c.connection(&n, &o, q.ctx.IPv4())
	}
}

// traffic is packets and their length as IP counts it.
type traffic struct{ packets, octets uint64 }

// lost is the packets of a run from number k on.
func lost(a *address, r *roce.Run, k uint32) (t traffic) {
	var p wire.Packet
	for ; k < r.N; k++ {
		p.FromRun(r, k)
		t.packets++
		t.octets += uint64(wire.Octets(&a.path, p.Opcode, int(r.PacketBytes(k))))
	}
	return t
}

// notSent takes back packets that the Endpoint counts as sent. The caller holds
// mu.
func (q *QP) notSent(a *address, r *roce.Run, k uint32) {
	t := lost(a, r, k)
	q.uncounted.packets += t.packets
	q.uncounted.octets += t.octets
}

// noRoute counts a run that has no valid entry of the ARP table. The caller
// holds mu.
func (q *QP) noRoute(a *address, r *roce.Run) {
	if r.Op == roce.SourceFault {
		return
	}
	q.notSent(a, r, 0)
	for c := range q.each {
		c.noRoute(a.path.IPv4, r.N)
	}
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

var _ roce.Host = (*QP)(nil)
