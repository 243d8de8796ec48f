// SPDX-License-Identifier: Apache-2.0

package qp

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/roce"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
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

	Route   *Route // of a connected QP; nil: it has named no peer
	Stats   roce.Stats
	Trying  roce.Trying // its deadline is counted from now
	Waiting int         // runs and frames that have come and are not looked at
}

// Way is what a connected QP's packets go by.
type Way uint8

// Ways.
const (
	Nowhere    Way = iota // the ARP entry did not exist when it was named
	ByLoopback            // to the card's own QPs
	ByBurst               // to those of a card in this process, without frames
	ByWire                // in frames
)

func (w Way) String() string {
	return [...]string{Nowhere: "nowhere", ByLoopback: "loopback", ByBurst: "near", ByWire: "wire"}[w]
}

// Route is where a connected QP's packets go now.
type Route struct {
	Path wire.Path // the address is the ARP entry's as it was when it was named
	Way  Way
	Peer wire.Verdict // but by ByWire: whether the peer takes them
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
	if q.ud != nil && q.ud.begun {
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
		i.Stats, i.Trying = q.ep.Stats, q.ep.Trying()
		if i.Trying.Deadline != 0 {
			i.Trying.Deadline = max(i.Trying.Deadline-q.Now(), 1)
		}
	}
	i.Waiting = int(q.inbox.count.Load())
	if a := q.address.Load(); a != nil && q.typ == RoCERC {
		i.Route = q.routeNow(a)
	}
	return i
}

// routeNow finds out which way packets would go at this moment.
func (q *QP) routeNow(a *address) *Route {
	r := &Route{Path: a.path, Way: ByWire}
	peers := q.table
	switch {
	case a.loopback:
		r.Way = ByLoopback
	case !a.reachable:
		r.Way = Nowhere
		return r
	default:
		if q.table.cfg.Near == nil {
			return r
		}
		const shortest = 60
		t, _ := q.table.cfg.Near.Find(&a.path, &Burst{Frames: 1, Last: shortest})
		if t == nil || t.cfg.Engine != q.table.cfg.Engine {
			return r
		}
		r.Way, peers = ByBurst, t
	}
	switch p := peers.lookup(a.peer); {
	case p == nil:
		r.Peer = wire.NoQP
	case p.typ != RoCERC:
		r.Peer = wire.WrongService
	default:
		r.Peer = p.address.Load().accepts(a)
	}
	return r
}

// Counter is one of the function's counters.
type Counter struct {
	Name  string // verbs.c:irdma_hw_stat_descs
	Value uint64
}

// Counters lists the function's counters in the order of their places in the
// buffer of GATHER_STATS.
func (t *Table) Counters() []Counter {
	out := make([]Counter, 0, len(layout))
	order := make([]counter, 0, len(layout))
	for c := range layout {
		order = append(order, counter(c))
	}
	slices.SortFunc(order, func(a, b counter) int {
		return cmp.Or(cmp.Compare(layout[a].offset, layout[b].offset), cmp.Compare(layout[a].shift, layout[b].shift))
	})
	for _, c := range order {
		out = append(out, Counter{layout[c].name, t.counters[c].Load() & (1<<layout[c].width - 1)})
	}
	return out
}

// Handle is an address handle as datagrams use it; false: there is none.
func (t *Table) Handle(i uint32) (Handle, bool) {
	h := t.handle(i)
	if h == nil {
		return Handle{}, false
	}
	return *h, true
}
