// SPDX-License-Identifier: Apache-2.0

package check

import (
	"github.com/vrnic/vrnic/devmodel/event"
	"github.com/vrnic/vrnic/devmodel/guestmem"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/rdma/rdmatest"
)

// queues are completion and event queues alone. CQ 5 has four entries at rdmatest.Base
// and CEQ 2, its shadow area is at cqShadow.
type queues struct {
	*bench
	*event.Queues
	mem *guestmem.Memory
}

const (
	cqShadow = rdmatest.Base + 0x1000
	ceqRing  = rdmatest.Base + 0x2000
	aeqRing  = rdmatest.Base + 0x3000
	theCQ    = 5
)

func newQueues(b *bench) *queues {
	q := &queues{bench: b, mem: rdmatest.Memory(b, 1<<20)}
	q.Queues = event.New(event.Config{Mem: q.mem, Buffers: hmc.New(hmc.Config{Mem: q.mem}), Emit: b.emit})
	return q
}

func (q *queues) must(err error) *queues {
	q.Helper()
	if err != nil {
		q.Fatal(err)
	}
	return q
}

// withCQ makes the CQ with its rings where they are told to be.
func (q *queues) withCQ(ring, shadow uint64) *queues {
	q.must(q.CreateCEQ(2, hmc.Buffer{Base: ceqRing}, 4))
	return q.must(q.CreateCQ(event.CQConfig{ID: theCQ, Size: 4, Buf: hmc.Buffer{Base: ring}, Shadow: shadow, CEQ: 2, CEQValid: true, CheckOverflow: true}))
}

// withCCQ makes the control QP's CQ like it.
func (q *queues) withCCQ() *queues {
	return q.must(q.CreateCQ(event.CQConfig{ID: event.CCQ, Size: 4, Buf: hmc.Buffer{Base: rdmatest.Base}, Shadow: cqShadow, CheckOverflow: true}))
}

// post writes n completions.
func (q *queues) post(n int) *queues { return q.postTo(theCQ, n) }

func (q *queues) postTo(id uint32, n int) *queues {
	for range n {
		q.CQ(id).Post(event.Entry{})
	}
	return q
}

// consume moves the shadow head.
func (q *queues) consume(head uint64) *queues { return q.must(q.mem.Store64(cqShadow, head)) }

// ring writes a doorbell.
func (q *queues) ring(name string, v uint32) *queues {
	for _, r := range q.Registers() {
		if r.Name == name {
			r.Write(0, v)
			return q
		}
	}
	q.Fatalf("no register %s", name)
	return nil
}

// withAEQ makes an AEQ of two entries.
func (q *queues) withAEQ() *queues { return q.must(q.CreateAEQ(hmc.Buffer{Base: aeqRing}, 2)) }

var eventScenarios = map[string]scenario{
	"cq-doorbell": {
		trigger: func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).ring("PFPE_CQARM", theCQ+1) },
		near:    func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).ring("PFPE_CQARM", theCQ) },
	},
	"cq-doorbell-app": {
		trigger: func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).ring(event.UserArm, theCQ+1) },
		near:    func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).ring(event.UserArm, theCQ) },
	},
	"cq-ack-unknown": {
		trigger: func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).ring("PFPE_CQACK", theCQ+1) },
		near:    func(b *bench) { armed(b).post(1).ring("PFPE_CQACK", theCQ) },
	},
	"cq-ack": {
		trigger: func(b *bench) { armed(b).ring("PFPE_CQACK", theCQ) }, // before any completion
		near:    func(b *bench) { armed(b).post(1).ring("PFPE_CQACK", theCQ) },
	},
	"cq-overflow": {
		trigger: func(b *bench) { newQueues(b).withAEQ().withCQ(rdmatest.Base, cqShadow).post(5) },
		near:    func(b *bench) { newQueues(b).withAEQ().withCQ(rdmatest.Base, cqShadow).post(4).consume(1).post(1) },
	},
	"cq-shadow": {
		trigger: func(b *bench) { newQueues(b).withCCQ().postTo(event.CCQ, 2).consume(3).postTo(event.CCQ, 1) },
		near:    func(b *bench) { newQueues(b).withCCQ().postTo(event.CCQ, 2).consume(2).postTo(event.CCQ, 1) },
	},
	"cq-shadow-app": {
		trigger: func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).post(2).consume(3).post(1) },
		near:    func(b *bench) { newQueues(b).withCQ(rdmatest.Base, cqShadow).post(2).consume(2).post(1) },
	},
	"cq-shadow-memory": {
		trigger: func(b *bench) { newQueues(b).withCQ(rdmatest.Base, unmapped).post(3) },
		near:    func(b *bench) { newQueues(b).withCQ(rdmatest.Base, unmapped).post(2) }, // not needed yet
	},
	"queue-memory": {
		trigger: func(b *bench) { newQueues(b).withAEQ().withCQ(unmapped, cqShadow).post(1) },
		near:    func(b *bench) { newQueues(b).withAEQ().withCQ(unmapped, cqShadow) },
	},
	"ceq-in-use": {
		trigger: func(b *bench) { q := newQueues(b).withCQ(rdmatest.Base, cqShadow); q.must(q.DestroyCEQ(2)) },
		near: func(b *bench) {
			q := newQueues(b).withCQ(rdmatest.Base, cqShadow)
			q.must(q.DestroyCQ(theCQ)).must(q.DestroyCEQ(2))
		},
	},
	"aeq-credit": {
		trigger: func(b *bench) {
			q := newQueues(b).withAEQ()
			q.AE(event.AE{})
			q.ring("PFPE_AEQALLOC", 2)
		},
		near: func(b *bench) {
			q := newQueues(b).withAEQ()
			q.AE(event.AE{})
			q.ring("PFPE_AEQALLOC", 1)
		},
	},
	"ae-lost": {
		trigger: func(b *bench) { newQueues(b).AE(event.AE{}) },
		near: func(b *bench) {
			q := newQueues(b).withAEQ()
			for range 3 { // one more than the queue has entries: it waits
				q.AE(event.AE{})
			}
		},
	},
}

// armed is CQ 5 waiting for a completion.
func armed(b *bench) *queues {
	q := newQueues(b).withCQ(rdmatest.Base, cqShadow)
	return q.must(q.mem.Store64(cqShadow+32, 1<<14)).ring("PFPE_CQARM", theCQ)
}
