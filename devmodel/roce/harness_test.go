// SPDX-License-Identifier: Apache-2.0

package roce

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// node is a host with memory of its own, its endpoint and what it reported.
type node struct {
	name string
	net  *network
	ep   *Endpoint
	peer *node

	mem    []byte
	stags  map[uint32]Code // what use of an STag gives; absent: success
	refuse map[uint32]bool // remote use

	sq    []WQE
	rq    []Recv
	badRQ Code
	rnrs  int
	got   []string
	fails []string
	local []uint32 // indices of local work done

	busy        bool   // what ends is in use for the time being
	full        bool   // its CQ takes nothing
	late        bool   // answers when nothing is on its way to it
	limit       uint64 // of its memory, unless 0
	refuseLocal Code
	gen         uint32

	// With a wire: receive WQEs to come, and when what has ended is free.
	coming  []coming
	settled time.Duration
}

func (n *node) Now() time.Duration { return n.net.now }

func (n *node) Fetch(w *WQE) bool {
	if len(n.sq) == 0 {
		return false
	}
	*w, n.sq = n.sq[0], n.sq[1:]
	return true
}

func (n *node) Local(w *WQE, again bool) (bool, Code) {
	if !again {
		n.local = append(n.local, w.Index)
	}
	return n.free(again), n.refuseLocal
}

func (n *node) Completed(w *WQE) bool {
	if n.full {
		return false
	}
	n.got = append(n.got, fmt.Sprintf("sq %d op %d", w.Index, w.Op))
	return true
}

func (n *node) Receive(r *Recv) (Got, Code) {
	if n.badRQ != 0 {
		return Bad, n.badRQ
	}
	if len(n.rq) == 0 {
		return Empty, 0
	}
	*r, n.rq = n.rq[0], n.rq[1:]
	return Taken, 0
}

func (n *node) Received(r *Recv, c *Received) bool {
	if n.full {
		return false
	}
	n.got = append(n.got, fmt.Sprintf("rq %d %+v", r.Index, *c))
	return true
}

func (n *node) Remote(key uint32, va uint64, size uint32, write bool) Fault {
	if n.refuse[key] || va+uint64(size) > uint64(len(n.mem)) {
		return Fault{Code: 0x0109}
	}
	return Fault{}
}

func (n *node) Invalidate(stag uint32, again bool) (bool, Code) {
	if !again {
		n.got = append(n.got, fmt.Sprintf("invalidate %d", stag))
	}
	return n.free(again), n.stags[stag]
}

// free tells whether nobody uses what the node has ended.
func (n *node) free(again bool) bool {
	if w := n.net.wire; w != nil && w.busy && !again && w.rng.IntN(2) == 0 {
		n.settled = n.net.now + time.Duration(w.rng.IntN(500))*time.Microsecond
	}
	return !n.busy && n.net.now >= n.settled
}

func (n *node) List(l *SGL) {
	l.Reset()
	l.Owner, l.Generation = n, n.gen
}

// span finds byte ranges of a list, or the code of the first bad STag in it.
func (n *node) span(l *SGL, off, size uint32) (out [][]byte, code Code) {
	for size > 0 {
		stag, addr, have, ok := l.Piece(off)
		if !ok {
			panic("list too short")
		}
		if c := n.stags[stag]; c != 0 {
			return nil, c
		}
		c := min(size, have)
		if n.limit > 0 && addr+uint64(c) > n.limit {
			return nil, 0x0108
		}
		out = append(out, n.mem[addr:addr+uint64(c)])
		off, size = off+c, size-c
	}
	return out, 0
}

func (n *node) Copy(dst *SGL, dstOff uint32, src *SGL, srcOff uint32, size uint32) Fault {
	to, code := n.span(dst, dstOff, size)
	if code != 0 {
		return Fault{Code: code}
	}
	buf := make([]byte, 0, size)
	if src.Inline {
		buf = buf[:size]
		src.InlineBytes(buf, srcOff)
	} else if p, ok := src.Owner.(*payload); ok {
		buf = append(buf, p.bytes[srcOff:srcOff+size]...)
	} else {
		from := src.Owner.(*node)
		if from.gen != src.Generation {
			return Fault{Gone: true}
		}
		pieces, code := from.span(src, srcOff, size)
		if code != 0 {
			return Fault{Code: code, Source: true}
		}
		for _, p := range pieces {
			buf = append(buf, p...)
		}
	}
	for _, p := range to {
		buf = buf[copy(p, buf):]
	}
	return Fault{}
}

func (n *node) Transmit(r *Run) bool { return n.net.send(n.peer, r) }

func (n *node) Fail(code Code, source Source, index uint32) {
	n.fails = append(n.fails, fmt.Sprintf("AE %#04x source %d WQE %d", code, source, index))
}

// flight is a run on its way.
type flight struct {
	to  *node
	run Run
	at  int // deliver when the network has made this many deliveries
}

// network carries runs between two nodes.
type network struct {
	now     time.Duration
	flights []flight
	count   int
	single  bool // cut runs into packets
	eager   bool // answer after every run
	bound   int  // refuse runs beyond

	// lossy, if not nil, decides the fate of runs.
	lossy *rand.Rand
	drop  func(to *node, r *Run) bool

	sent []Run // if record
	rec  bool

	wire *wire // instead of all that but now
}

func (n *network) send(to *node, r *Run) bool {
	if n.wire != nil {
		return n.wire.send(n, to, r)
	}
	if n.bound > 0 && len(n.flights) >= n.bound {
		return false
	}
	if !n.single || r.N == 1 {
		n.put(to, *r)
		return true
	}
	for i := range r.N {
		p := *r
		p.PSN, p.N = psn(r.PSN+i), 1
		p.First, p.Last = r.First && i == 0, r.Last && i == r.N-1
		p.AckReq = r.AckReq && i == r.N-1
		p.Off = r.Off + i*r.Size
		p.Bytes = min(r.Size, r.Bytes-i*r.Size)
		n.put(to, p)
	}
	return true
}

func (n *network) put(to *node, r Run) {
	if n.rec {
		n.sent = append(n.sent, r)
	}
	if n.drop != nil && n.drop(to, &r) {
		return
	}
	f := flight{to, r, 0}
	if n.lossy != nil {
		switch x := n.lossy.IntN(100); {
		case x < 4 && r.Op != SourceFault:
			return
		case x < 8:
			n.flights = append(n.flights, f)
		case x < 12:
			f.at = n.count + 1 + n.lossy.IntN(30)
		}
	}
	n.flights = append(n.flights, f)
}

// bringsTo tells whether something is on its way to a node.
func (n *network) bringsTo(to *node) bool {
	return slices.ContainsFunc(n.flights, func(f flight) bool { return f.to == to }) ||
		n.wire != nil && slices.ContainsFunc(n.wire.queue, func(l letter) bool { return l.to == to })
}

// deliver hands over one run; false: none is on its way.
func (n *network) deliver() bool {
	if len(n.flights) == 0 {
		return false
	}
	n.count++
	for i := range n.flights {
		f := n.flights[i]
		if f.to.ep.Holding() {
			continue
		}
		if f.at <= n.count || i == len(n.flights)-1 {
			n.flights = append(n.flights[:i], n.flights[i+1:]...)
			f.to.ep.Handle(&f.run)
			if n.eager {
				f.to.progress()
			}
			return true
		}
	}
	return false
}

// pair is two connected nodes.
type pair struct {
	*testing.T
	net  *network
	a, b *node
}

// settings of a pair; the zero value is sensible.
type settings struct {
	mtu, psnA, psnB, ord uint32
	retries, rnr         uint8
	reads                uint32
	memory               int
	mtuB                 uint32
}

const timeout = 100 * time.Millisecond

func newPair(t *testing.T, s settings) *pair {
	if s.mtu == 0 {
		s.mtu = 1024
	}
	if s.mtuB == 0 {
		s.mtuB = s.mtu
	}
	if s.ord == 0 {
		s.ord = 16
	}
	if s.memory == 0 {
		s.memory = 1 << 20
	}
	if s.reads == 0 {
		s.reads = 32
	}
	p := &pair{T: t, net: &network{}}
	store, scratch := new(Store), new(Scratch)
	mk := func(name string) *node {
		n := &node{name: name, net: p.net, mem: make([]byte, s.memory), stags: map[uint32]Code{}, refuse: map[uint32]bool{}}
		n.ep = New(n, store)
		n.ep.Lend(scratch)
		return n
	}
	p.a, p.b = mk("a"), mk("b")
	p.a.peer, p.b.peer = p.b, p.a
	start := func(n *node, send, expect, mtu uint32) {
		n.ep.StartResponder(ResponderConfig{PSN: expect, MTU: mtu, Reads: s.reads, RNRTimer: 12}, false)
		n.ep.StartRequester(RequesterConfig{PSN: send, MTU: mtu, Retries: s.retries, RNRRetries: s.rnr, ORD: s.ord,
			Window: 1024, Timeout: timeout})
	}
	start(p.a, s.psnA, s.psnB, s.mtu)
	start(p.b, s.psnB, s.psnA, s.mtuB)
	return p
}

// run goes on until nothing moves and no timer runs, or limit rounds.
func (p *pair) run() {
	p.Helper()
	for range 100000 {
		p.a.progress()
		p.b.progress()
		if p.net.deliver() {
			continue
		}
		next := time.Duration(0)
		for _, n := range []*node{p.a, p.b} {
			if d := n.ep.Deadline(); d != 0 && (next == 0 || d < next) {
				next = d
			}
		}
		if next == 0 {
			return
		}
		p.net.now = max(p.net.now, next)
	}
	p.Fatal("the connection does not come to rest")
}

// list makes a scatter/gather list over pieces of a node's memory, with STag
// 1.
func (n *node) list(pieces ...[2]uint32) (l SGL) {
	n.List(&l)
	for _, x := range pieces {
		l.Add(1, uint64(x[0]), x[1])
	}
	return l
}

func (n *node) post(w WQE) {
	if w.SGL.Owner == nil && !w.SGL.Inline {
		n.List(&w.SGL)
	}
	n.sq = append(n.sq, w)
}

func sendOf(n *node, index, from, size uint32) WQE {
	return WQE{Kind: KindSend, Op: 3, Index: index, Signaled: true, Len: size, SGL: n.list([2]uint32{from, size})}
}

func writeOf(n *node, index, from, to, size uint32) WQE {
	return WQE{Kind: KindWrite, Op: 0, Index: index, Signaled: true, Len: size, Addr: uint64(to), Key: 7, SGL: n.list([2]uint32{from, size})}
}

func readOf(n *node, index, into, from, size uint32) WQE {
	return WQE{Kind: KindRead, Op: 1, Index: index, Signaled: true, Len: size, Addr: uint64(from), Key: 7, SGL: n.list([2]uint32{into, size})}
}

func (n *node) receive(index, at, size uint32) {
	n.rq = append(n.rq, Recv{Index: index, Len: size, SGL: n.list([2]uint32{at, size})})
}

// fill puts a pattern into memory.
func (n *node) fill(at, size uint32, seed byte) {
	for i := range size {
		n.mem[at+i] = byte(i*7) + seed + byte(i>>8)
	}
}

// progress does what there is to do at a node.
func (n *node) progress() {
	if n.late && n.net.bringsTo(n) {
		return
	}
	for n.ep.Progress() {
	}
}
