// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"math/rand/v2"
	"slices"
	"time"
)

// wire is a network as packets find it: each is by itself, with a copy of its
// payload and no more than its headers tell, and on its way for a while. Some
// are lost, come twice, or late.
type wire struct {
	rng *rand.Rand
	fate
	whole  bool // runs instead of packets
	busy   bool // what ends is in use for a while, now and then
	rewire func(to *node, p *Run)
	noisy  bool // an RNR NAK is followed by a sequence NAK
	drop   func(to *node, p *Run) bool

	// A peer that is stricter than ours, told of all that its requester would
	// send and get, and what it objects to.
	strict map[*node]*completer
	wrong  []string

	queue []letter // by due
	fifo  map[*node]time.Duration
	count int
}

// fate is what happens to packets, in promille.
type fate struct {
	loss, dup, late int
	tail            int           // loss of a message's last packet
	delay           time.Duration // of all
	// No packet comes through from down to up.
	down, up time.Duration
}

// letter is a packet on its way.
type letter struct {
	to  *node
	run Run
	due time.Duration
}

// payload is a packet's own.
type payload struct{ bytes []byte }

// coming is a receive WQE that is posted at a time.
type coming struct {
	at   time.Duration
	recv Recv
}

func newWire(seed uint64, f fate) *wire {
	return &wire{rng: rand.New(rand.NewPCG(seed, 77)), fate: f, fifo: map[*node]time.Duration{}, strict: map[*node]*completer{}}
}

func (w *wire) send(n *network, to *node, r *Run) bool {
	if w.whole {
		w.post(n, to, *r)
		return true
	}
	if r.Op == SourceFault {
		return true // no packet
	}
	for k := range r.N {
		p := packetOf(r, k)
		if p.Bytes > 0 {
			data, code := to.peer.read(&r.SGL, r.Off+k*r.Size, p.Bytes)
			if code != 0 {
				// The sender finds out by itself, a little later.
				w.insert(letter{to.peer, Run{Op: SourceFault, Response: r.Op == ReadResponse, PSN: p.PSN, N: 1, Code: code}, n.now})
				return true
			}
			p.SGL.Owner = &payload{data}
			p.SGL.Add(0, 0, p.Bytes)
		}
		w.post(n, to, p)
	}
	return true
}

// packetOf is packet k of a run with what its headers have.
func packetOf(r *Run, k uint32) Run {
	p := Run{Op: r.Op, First: r.First && k == 0, Last: r.Last && k+1 == r.N, PSN: psn(r.PSN + k), N: 1, Size: r.Size,
		Bytes: r.PacketBytes(k)}
	p.AckReq = r.AckReq && k+1 == r.N
	p.Solicited = r.Solicited && p.Last
	if r.Op == ReadRequest || r.Op == Write && p.First {
		p.VA, p.Key, p.DMALen = r.VA, r.Key, r.DMALen
	}
	if r.Op == Acknowledge || r.Op == ReadResponse && (p.First || p.Last) {
		p.Syndrome, p.MSN = r.Syndrome, r.MSN
	}
	if p.HasImm = r.HasImm && p.Last; p.HasImm {
		p.Imm = r.Imm
	}
	if p.HasInv = r.HasInv && p.Last && r.Op == Send; p.HasInv {
		p.Inv = r.Inv
	}
	return p
}

// read copies payload of the node's own.
func (n *node) read(l *SGL, off, size uint32) ([]byte, Code) {
	data := make([]byte, size)
	if l.Inline {
		l.InlineBytes(data, off)
		return data, 0
	}
	pieces, code := n.span(l, off, size)
	if code != 0 {
		return nil, code
	}
	at := data
	for _, p := range pieces {
		at = at[copy(at, p):]
	}
	return data, 0
}

func (w *wire) chance(promille int) bool { return w.rng.IntN(1000) < promille }

func (w *wire) post(n *network, to *node, p Run) {
	w.count++
	if w.rewire != nil {
		w.rewire(to, &p)
	}
	if w.noisy && p.Op == Acknowledge && p.Syndrome>>5 == 1 {
		nak := p
		nak.Syndrome = synSequence
		defer w.post(n, to, nak)
	}
	now := n.now
	if c := w.strict[to.peer]; c != nil && !p.IsResponse() {
		c.sent(&p)
	}
	if p.Op != SourceFault {
		request := p.Op == Send || p.Op == Write
		if w.drop != nil && w.drop(to, &p) || w.chance(w.loss) || p.Last && request && w.chance(w.tail) || now >= w.down && now < w.up {
			return
		}
	}
	due := max(now+w.delay, w.fifo[to])
	w.fifo[to] = due
	if w.chance(w.dup) {
		w.insert(letter{to, p, due + time.Duration(w.rng.IntN(int(20*w.delay)))})
	}
	if w.chance(w.late) {
		due += time.Duration(w.rng.IntN(int(20 * w.delay)))
	}
	w.insert(letter{to, p, due})
}

func (w *wire) insert(l letter) {
	i := len(w.queue)
	for i > 0 && w.queue[i-1].due > l.due {
		i--
	}
	w.queue = slices.Insert(w.queue, i, l)
}

// drive goes on until nothing is under way any more, at most to the time
// limit.
func (p *pair) drive(limit time.Duration) {
	p.Helper()
	w := p.net.wire
	both := []*node{p.a, p.b}
	for range 5_000_000 {
		next := time.Duration(-1)
		sooner := func(t time.Duration) {
			if next < 0 || t < next {
				next = t
			}
		}
		for _, n := range both {
			for len(n.coming) > 0 && n.coming[0].at <= p.net.now {
				n.rq, n.coming = append(n.rq, n.coming[0].recv), n.coming[1:]
			}
			n.progress()
			if len(n.coming) > 0 {
				sooner(n.coming[0].at)
			}
			if d := n.ep.Deadline(); d != 0 {
				sooner(d)
			}
			if n.settled > p.net.now {
				sooner(n.settled)
			}
		}
		i := slices.IndexFunc(w.queue, func(l letter) bool { return !l.to.ep.Holding() })
		if i >= 0 {
			sooner(w.queue[i].due)
		}
		if next < 0 {
			if len(w.queue) > 0 {
				p.Fatalf("%d packets wait for ever", len(w.queue))
			}
			return
		}
		if next > limit {
			p.Fatalf("it takes longer than %v", limit)
		}
		p.net.now = max(p.net.now, next)
		if i >= 0 && w.queue[i].due <= p.net.now {
			l := w.queue[i]
			w.queue = slices.Delete(w.queue, i, i+1)
			if c := w.strict[l.to]; c != nil && l.run.IsResponse() && !c.got(&l.run) {
				w.wrong = append(w.wrong, c.why)
			}
			l.to.ep.Handle(&l.run)
		}
	}
	p.Fatal("the connection does not come to rest")
}
