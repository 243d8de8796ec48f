// SPDX-License-Identifier: Apache-2.0

package fabric

import "sync/atomic"

// Port is one side of the switch, with the cable to its station.
type Port struct {
	sw       *Switch
	id       uint16
	name     string
	receiver Receiver
	tap      int // interface of the capture

	up       atomic.Bool
	noted    atomic.Bool           // the capture asks the station for comments
	closed   bool                  // under the table's lock
	txRule   atomic.Pointer[stage] // impairment of what the station sends
	rxRule   atomic.Pointer[stage] // and of what it gets
	tx, rx   traffic
	short    atomic.Uint64
	long     atomic.Uint64
	linkDown atomic.Uint64
	filtered atomic.Uint64
	crowded  atomic.Uint64
}

type traffic struct{ frames, bytes atomic.Uint64 }

func (t *traffic) count(n int) { t.add(1, uint64(n)) }

func (t *traffic) add(frames, bytes uint64) {
	t.frames.Add(frames)
	t.bytes.Add(bytes)
}

// PortStats are the counters of a port since it was attached. Bytes are those
// of padded frames without FCS.
type PortStats struct {
	TxFrames, TxBytes uint64 // from the station
	RxFrames, RxBytes uint64 // to the station

	// Frames dropped from the station:
	Short uint64 // without a whole header
	Long  uint64 // above MaxFrame
	// LinkDown counts frames from or to the station while the link was down.
	LinkDown uint64
	// Filtered counts frames for a station on the side they came from.
	Filtered uint64
	// Unlearned counts frames whose source found no room in the address table.
	Unlearned uint64

	// What impairment did to either direction; nil without a rule.
	TxImpair, RxImpair *ImpairStats
}

// Name is the name given to Attach.
func (p *Port) Name() string { return p.name }

// Stats reads the counters.
func (p *Port) Stats() PortStats {
	return PortStats{
		TxFrames: p.tx.frames.Load(), TxBytes: p.tx.bytes.Load(),
		RxFrames: p.rx.frames.Load(), RxBytes: p.rx.bytes.Load(),
		Short: p.short.Load(), Long: p.long.Load(), LinkDown: p.linkDown.Load(),
		Filtered: p.filtered.Load(), Unlearned: p.crowded.Load(),
		TxImpair: p.txRule.Load().read(), RxImpair: p.rxRule.Load().read(),
	}
}

// Send puts a frame from the station into the switch. It returns when the
// receivers in this process have had it.
func (p *Port) Send(frame []byte) {
	switch n := len(frame); {
	case n < headerLen:
		p.short.Add(1)
	case n > MaxFrame:
		p.long.Add(1)
	case n < MinFrame:
		b := p.sw.buffers.take(MinFrame)
		clear(b.bytes[copy(b.bytes, frame):])
		p.send(b.bytes, &frame[0])
		p.sw.buffers.release(b)
	default:
		p.send(frame, &frame[0])
	}
}

// send is Send for a frame of a good length; key is where the station has it.
func (p *Port) send(frame []byte, key *byte) {
	if !p.up.Load() {
		p.linkDown.Add(1)
		return
	}
	p.tx.count(len(frame))
	if c := p.sw.capture; c != nil {
		c.outgoing(p.tap, key, frame)
	}
	if s := p.txRule.Load(); s != nil {
		s.enter(frame)
		return
	}
	p.sw.forward(p, frame)
}

// arrive ends the cable from the station, behind its impairment.
func (p *Port) arrive(frame []byte) { p.sw.forward(p, frame) }

// accept begins the cable to the station.
func (p *Port) accept(frame []byte) {
	if s := p.rxRule.Load(); s != nil && p.up.Load() {
		s.enter(frame)
		return
	}
	p.deliver(frame)
}

func (p *Port) deliver(frame []byte) {
	if !p.up.Load() {
		p.linkDown.Add(1)
		return
	}
	p.rx.count(len(frame))
	p.receive(frame)
}

// Crowded tells whether frames to dst would wait behind many others for a slow
// peer outside the process, or for an impairment that does not keep up, and be
// dropped if more came. Who can wait should.
func (p *Port) Crowded(dst [6]byte) bool {
	if p.txRule.Load().crowded() {
		return true
	}
	ports := *p.sw.ports.Load()
	id, ok := p.sw.table.find(address(dst[:]))
	if !ok || int(id) >= len(ports) || ports[id] == nil {
		return false
	}
	if ports[id].rxRule.Load().crowded() {
		return true
	}
	u, ok := ports[id].receiver.(*Uplink)
	return ok && u.out.crowded()
}

// Near is the port to which the switch would hand a frame from the station to
// dst, and nobody would look at it, hold it up or lose it on the way: no capture,
// no impairment, and links that are up. nil: there is none. What goes there by
// another way than Send is to be told by Passed.
func (p *Port) Near(dst [6]byte) *Port {
	a := address(dst[:])
	if p.sw.capture != nil || group(a) || !p.up.Load() || p.txRule.Load() != nil {
		return nil
	}
	ports := *p.sw.ports.Load() // before the look-up, as in forward
	id, ok := p.sw.table.find(a)
	if !ok || int(id) >= len(ports) {
		return nil
	}
	to := ports[id]
	if to == nil || to == p || !to.up.Load() || to.rxRule.Load() != nil {
		return nil
	}
	return to
}

// Passed counts frames of so many bytes together, padding included, that the
// station at src has given to that of a port that is Near.
func (p *Port) Passed(to *Port, src [6]byte, frames, bytes uint64) {
	p.tx.add(frames, bytes)
	to.rx.add(frames, bytes)
	p.sw.table.learn(p, address(src[:]))
}

// Station is what was given to Attach.
func (p *Port) Station() Receiver { return p.receiver }

// SetLink connects or cuts the cable. Without link nothing passes, what is in
// the cable is lost, and the switch forgets the addresses behind it.
func (p *Port) SetLink(up bool) {
	p.sw.table.setLink(p, up)
	if !up {
		p.txRule.Load().flush()
		p.rxRule.Load().flush()
	}
}

// Link tells whether the link is up.
func (p *Port) Link() bool { return p.up.Load() }

// Close takes the port out of the switch.
func (p *Port) Close() {
	s := p.sw
	s.table.remove(p)
	p.txRule.Swap(nil).retire()
	p.rxRule.Swap(nil).retire()
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := append([]*Port(nil), *s.ports.Load()...)
	if ports[p.id] == p {
		ports[p.id] = nil
		s.ports.Store(&ports)
	}
}
