// SPDX-License-Identifier: Apache-2.0

package lan

import "github.com/vrnic/vrnic/devmodel/frame"

// Burst is consecutive frames of the protocol engine from one station to another,
// all alike but for
// their lengths. Engines of one process may hand over
// what they would carry without making them: the ports count as if they had.
type Burst struct {
	Dest   [6]byte
	Tagged bool // 802.1Q
	TCI    uint16
	Type   uint16 // Ethernet type behind the tag

	Frames uint64
	// Lengths in bytes without FCS. One alone has the length Last.
	First, Middle, Last int
}

// Open tells whether frames of the engine leave by the wire. Any goroutine may
// call it.
func (l *LAN) Open() bool {
	s := l.steering.Load()
	return s != nil && s.Link && !s.Loopback
}

// Takes tells whether frames of a burst that come from the wire are for the
// protocol engine, and for nobody else. Any goroutine may call it.
func (l *LAN) Takes(b *Burst) bool {
	s := l.steering.Load()
	if s == nil || !s.Link || s.Loopback || max(b.First, b.Middle, b.Last) > s.maxFrame() || b.Dest[0]&1 != 0 {
		return false
	}
	i := frame.Info{Type: b.Type}
	if b.Tagged {
		i.Tags, i.TPID, i.TCI = 1, frame.TypeVLAN, b.TCI
	}
	engine, others := 0, 0
	to := s.fromWire(b.Dest[:], &i)
	to.each(func(n uint16) {
		switch v := s.VSIs[n]; {
		case v == nil || !v.member(&i):
		case v.PE:
			engine++
		default:
			others++
		}
	})
	return engine == 1 && others == 0
}

// Sent counts bursts like b that have left.
func (l *LAN) Sent(b *Burst, times uint64) { l.stats.port.tx.burst(b, times) }

// Received counts bursts like b that have come.
func (l *LAN) Received(b *Burst, times uint64) { l.stats.port.rx.burst(b, times) }

func (p *portSide) burst(b *Burst, times uint64) {
	p.add(Unicast, times, b.Last+fcsLen)
	if b.Frames > 1 {
		p.add(Unicast, times, b.First+fcsLen)
	}
	if b.Frames > 2 {
		p.add(Unicast, times*(b.Frames-2), b.Middle+fcsLen)
	}
}
