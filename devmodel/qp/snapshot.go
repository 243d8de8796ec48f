// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
)

// Info is a QP as a person reads it.
type Info struct {
	ID     uint32
	Type   string
	State  string
	PD     uint32
	SendCQ uint32
	RecvCQ uint32

	PathMTU  uint32
	DestQP   uint32
	QKey     uint32
	PKey     uint16
	ARPIndex uint16
	QSHandle uint16
	SendPSN  uint32
	RecvPSN  uint32

	Privileged bool
	Suspended  bool
	Draining   bool // AE 0x0900 is due when nothing is in work
	SQ, RQ     Ring

	Shadow  uint64  // guest address of the shadow area
	SQTail  uint32  // HW_SQ_TAIL as last stored there
	Context Context // as latched at the last changes of state

	Connected bool   // there is a requester, which the next four are of
	Unacked   uint32 // oldest PSN sent and not acknowledged
	Sent      uint32 // behind the newest PSN sent
	Working   bool   // send WQEs are in work
	Oldest    uint32 // of them: its index in quanta

	Receiving bool   // a receive WQE is taken and not completed
	Receive   uint32 // its index in quanta
}

// Ring is a QP's queue as a person reads it.
type Ring struct {
	Buf      hmc.Buffer
	Quanta   uint32
	WQE      uint32 // bytes from one possible WQE to the next
	Next     uint32 // slot of the next WQE the device will look at
	Polarity uint64 // its valid bit when posted
}

func (r *queue) info() Ring {
	return Ring{r.buf, r.slots * r.stride / quantum, r.stride, r.next, r.polarity}
}

// QPs lists the queue pairs in order of number.
func (t *Table) QPs() []Info { return t.List()() }

// List takes note of the queue pairs there are, and returns a function that
// looks at each, in order of number. That one waits for the step of a QP that
// takes one just then, and so is for callers without the control lock.
func (t *Table) List() (look func() []Info) {
	qps := slices.SortedFunc(maps.Values(t.qps), func(a, b *QP) int { return cmp.Compare(a.id, b.id) })
	return func() []Info {
		out := []Info{}
		for _, q := range qps {
			out = append(out, q.info())
		}
		return out
	}
}

func (q *QP) info() Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.ctx
	i := Info{
		ID: q.id, Type: q.typ.String(), State: q.state.String(), PD: c.PD(), SendCQ: c.SendCQ(), RecvCQ: c.RecvCQ(),
		PathMTU: c.PathMTU(), DestQP: c.DestQP(), QKey: c.QKey(), PKey: c.PKey(), ARPIndex: c.ARPIndex(),
		QSHandle: c.QSHandle(), SendPSN: c.SendPSN(), RecvPSN: c.ExpectedPSN(),
		Privileged: c.Privileged(), Suspended: q.paused, Draining: q.drain, SQ: q.sq.info(), RQ: q.rq.info(),
		Shadow: q.shadow, SQTail: q.tail, Context: *c, Receiving: q.receiving, Receive: q.receive,
	}
	if q.ud != nil {
		i.SendPSN = q.ud.psn
	}
	if q.ep != nil {
		i.Unacked, i.Sent, i.Connected = q.ep.Outstanding()
		if w := q.ep.Oldest(); w != nil {
			i.Working, i.Oldest = true, w.Index
		}
		send, expected := q.ep.PSNs()
		if i.RecvPSN = expected; q.state != RTR {
			i.SendPSN = send
		}
	}
	return i
}
