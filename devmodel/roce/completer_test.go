// SPDX-License-Identifier: Apache-2.0

package roce

import "fmt"

// completer is how Linux's software RoCE judges the responses that its
// requester gets (rxe_comp.c:check_psn, check_ack): what would end a queue pair
// of its is wrong to send, whatever a more lenient requester makes of it.
type completer struct {
	mtu  uint32
	next uint32 // expected
	work []rxeWork
	open bool // the last response was no message's last
	why  string
}

// rxeWork is a request that waits for its responses.
type rxeWork struct {
	read        bool
	first, last uint32
	whole       bool // all packets were sent
}

func newCompleter(n *node) *completer {
	return &completer{mtu: n.ep.req.cfg.MTU, next: n.ep.req.una}
}

// sent notes a request. One that is sent again begins anew where it does.
func (c *completer) sent(p *Run) {
	n := p.N
	if p.Op == ReadRequest {
		n = packets(p.DMALen, c.mtu)
	}
	last := psn(p.PSN + n - 1)
	for i := range c.work {
		if w := &c.work[i]; distance(w.first, p.PSN) <= distance(w.first, w.last) {
			if w.whole = w.whole || p.Last; w.read {
				w.first = p.PSN
			}
			return
		}
	}
	switch k := len(c.work); {
	case diff(p.PSN, c.next) < 0 || k > 0 && diff(p.PSN, c.work[k-1].last) <= 0:
	case k > 0 && !c.work[k-1].whole:
		c.work[k-1].last, c.work[k-1].whole = last, p.Last
	default:
		c.work = append(c.work, rxeWork{p.Op == ReadRequest, p.PSN, last, p.Last})
	}
}

// got judges a response. False: the queue pair would fail.
func (c *completer) got(p *Run) bool {
	ack := p.Op == Acknowledge
	for len(c.work) > 0 {
		w := &c.work[0]
		if diff(p.PSN, w.last) > 0 {
			if w.read {
				return true // it asks again
			}
			if diff(w.last, c.next) >= 0 {
				c.next, c.open = psn(w.last+1), false
			}
			c.work = c.work[1:]
			continue
		}
		switch d := diff(p.PSN, c.next); {
		case d < 0 && !(ack && c.open), d > 0 && w.read:
			return true // old, or in vain
		}
		return c.check(w, p, ack)
	}
	return true
}

func (c *completer) check(w *rxeWork, p *Run, ack bool) bool {
	bad := func(why string) bool {
		c.why = fmt.Sprintf("%v, PSN %#x, first %t last %t: %s", p.Op, p.PSN, p.First, p.Last, why)
		return false
	}
	if !c.open && !ack && !p.First {
		return bad("middle or last without first")
	}
	if c.open && !ack && p.First && p.PSN != w.first && !(p.Last && w.first == w.last) {
		return bad("first in the middle")
	}
	if !ack && !w.read {
		return bad("response to no read")
	}
	if ack && p.Syndrome != synACK {
		if p.Syndrome == synSequence && diff(p.PSN, c.next) > 0 {
			c.next = p.PSN
		}
		return true
	}
	if ack && w.read && p.PSN == w.last {
		return bad("a read is acknowledged")
	}
	c.open = !p.Last && !ack
	if diff(p.PSN, c.next) >= 0 {
		c.next = psn(p.PSN + 1)
	}
	if p.PSN == w.last && w.whole {
		c.work = c.work[1:]
		c.open = false
	}
	return true
}

// likeRxe changes what a responder sends to what software RoCE would have sent
// (rxe_resp.c:duplicate_request, read_reply, check_psn): a read that is asked
// for again in part is answered as if the first part had come, and packets
// behind one that found no receive buffer get a NAK of their own.
type likeRxe struct {
	mtu   uint32
	reads map[*node][][2]uint32 // of each requester: first PSN and packets
}

func (l *likeRxe) rewire(to *node, p *Run) {
	switch {
	case p.Op == ReadRequest:
		if from := to.peer; l.find(from, p.PSN) < 0 {
			l.reads[from] = append(l.reads[from], [2]uint32{p.PSN, packets(p.DMALen, l.mtu)})
		}
	case p.Op == ReadResponse && p.First:
		i := l.find(to, p.PSN)
		p.First = l.reads[to][i][0] == p.PSN
	}
}

func (l *likeRxe) find(n *node, p uint32) int {
	for i, r := range l.reads[n] {
		if distance(r[0], p) < r[1] {
			return i
		}
	}
	return -1
}
