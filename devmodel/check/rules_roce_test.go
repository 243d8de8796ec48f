// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"

	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// arrive has a packet with an empty payload come for the worker, from its peer.
func (w *worker) arrive(p wire.Packet, damage ...int) {
	p.PKey = 0xFFFF
	path := wire.Path{IPv4: true, HopLimit: 1}
	f := p.Encode(make([]byte, wire.MaxHeader+wire.Trailer), &path, 0)
	for _, at := range damage {
		f[at] ^= 0x40
	}
	w.G.Engine.Receive(f, frame.Parse(f))
	w.engine.Drain(100)
}

// welcome is a packet that the worker's QP executes.
var welcome = wire.Packet{Opcode: wire.WriteOnly, DestQP: workerQP}

func welcomed(b *bench) {
	w := work(b, true)
	w.arrive(welcome)
	if s := w.G.Snapshot(); s.QPs[slices.IndexFunc(s.QPs, func(q qp.Info) bool { return q.ID == workerQP })].RecvPSN != 1 {
		b.Error("the packet was not executed")
	}
}

var roceScenarios = map[string]scenario{
	"roce-damaged": {
		trigger: func(b *bench) { work(b, true).arrive(welcome, 60) },
		near:    welcomed,
	},
	"roce-early": {
		trigger: func(b *bench) {
			w := work(b, true)
			w.modify(qp.Error)
			w.arrive(welcome)
		},
		near: welcomed,
	},
	"roce-crowded": {
		trigger: func(b *bench) {
			datagramWork(b, false).arrive(wire.Packet{Opcode: wire.UDSendOnly, DestQP: datagramQP, QKey: 0x80010000})
		},
		// The peer of a connection is told, and sends again.
		near: func(b *bench) { work(b, true).arrive(wire.Packet{Opcode: wire.SendOnly, DestQP: workerQP}) },
	},
	"roce-stray": {
		trigger: func(b *bench) { work(b, true).arrive(wire.Packet{Opcode: wire.WriteOnly, DestQP: workerQP + 100}) },
		near:    welcomed,
	},
	"roce-mac": {
		trigger: func(b *bench) { work(b, false, func(w *worker) { w.G.Store(w.qpc+152, 0x015400123456<<16) }) },
		near:    func(b *bench) { work(b, false, func(w *worker) { w.G.Store(w.qpc+152, 0x025400123456<<16) }) },
	},
	"roce-dcqcn": {
		trigger: func(b *bench) { work(b, false, func(w *worker) { w.G.Store(w.qpc+160, privileged|1<<22) }) },
		near:    func(b *bench) { work(b, false, func(w *worker) { w.G.Store(w.qpc+160, privileged|1<<23) }) },
	},
}

// Each reason to drop a packet is in the catalogue once.
func TestEveryDropIsANote(t *testing.T) {
	for v := wire.OK + 1; v <= wire.NoReceive; v++ {
		n := 0
		for _, r := range roceRules {
			if _, broken := r.match(qp.PacketDropped{Verdict: v}); broken {
				n++
				if r.Grade != Note || r.Gap {
					t.Errorf("%v is an error", v)
				}
			}
		}
		if n != 1 {
			t.Errorf("%v is in %d rules", v, n)
		}
	}
}
