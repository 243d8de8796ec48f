// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vrnic/vrnic/devmodel/engine"
)

const (
	headerLen = 14
	// MinFrame is the length frames are padded to: the 64 bytes of Ethernet
	// less the FCS.
	MinFrame = 60
	// MaxFrame is the longest frame the segment carries, NET_BUFSIZE of QEMU's
	// net.h. Receivers have limits of their own.
	MaxFrame = 4096 + 65536
)

const (
	defaultStations = 4096
	// defaultAging is IEEE 802.1Q's recommendation.
	defaultAging = 300 * time.Second
)

// Receiver takes the frames that leave the switch at a port: a card, an uplink.
// The frame is valid during the call; Receive must not block.
type Receiver interface{ Receive(frame []byte) }

// Options make a switch. The zero value is a plain one on the machine's clock.
type Options struct {
	Clock engine.Clock // nil: the machine's
	Emit  func(any)    // gets the events of this package from any goroutine; may be nil

	Stations int           // addresses the switch remembers; 0: 4096
	Aging    time.Duration // how long it remembers a silent one; 0: 300 s

	Impair  []Impairment // as Switch.Impair
	Capture *Capture     // gets every frame of every port; may be nil
}

// Switch is a learning Ethernet switch.
type Switch struct {
	clock   engine.Clock
	emit    func(any)
	capture *Capture
	table   macTable
	buffers buffers

	ports atomic.Pointer[[]*Port] // by Port.id; holes are nil

	mu      sync.Mutex // guards what follows and changes of ports
	rules   []Impairment
	uplinks []*Uplink
	closed  bool
}

// NewSwitch makes a switch without ports.
func NewSwitch(o Options) *Switch {
	if o.Clock == nil {
		o.Clock = engine.RealClock()
	}
	if o.Emit == nil {
		o.Emit = func(any) {}
	}
	if o.Stations <= 0 {
		o.Stations = defaultStations
	}
	if o.Aging <= 0 {
		o.Aging = defaultAging
	}
	s := &Switch{clock: o.Clock, emit: o.Emit, capture: o.Capture, rules: slices.Clone(o.Impair)}
	s.ports.Store(new([]*Port))
	s.table.init(o.Clock, o.Stations, o.Aging)
	if s.capture != nil {
		s.capture.begin(s.clock, s.emit, &s.buffers)
	}
	return s
}

// Attach adds a port with its link up. The name is what rules of impairment
// and captures call it. r gets frames before Attach returns.
func (s *Switch) Attach(name string, r Receiver) *Port { return s.attach(name, r, true) }

func (s *Switch) attach(name string, r Receiver, link bool) *Port {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := slices.Clone(*s.ports.Load())
	id := slices.Index(ports, nil)
	if id < 0 {
		id = len(ports)
		ports = append(ports, nil)
	}
	if id >= math.MaxUint16 {
		panic("fabric: more than 65535 ports")
	}
	p := &Port{sw: s, id: uint16(id), name: name, receiver: r}
	if s.capture != nil {
		p.tap = s.capture.addInterface(name)
	}
	p.impair(s.rules)
	p.up.Store(link && !s.closed)
	ports[id] = p
	s.ports.Store(&ports)
	return p
}

// Ports returns the ports there are.
func (s *Switch) Ports() []*Port {
	return slices.DeleteFunc(slices.Clone(*s.ports.Load()), func(p *Port) bool { return p == nil })
}

// Port returns the port of that name, or nil.
func (s *Switch) Port(name string) *Port {
	for _, p := range s.Ports() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// Impair replaces the rules of impairment, of ports there are and of ports to
// come. Of several rules for a port and direction the last one counts. What
// earlier rules hold back is lost.
func (s *Switch) Impair(rules ...Impairment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = slices.Clone(rules)
	for _, p := range s.Ports() {
		p.impair(s.rules)
	}
}

// Close closes uplinks and ports and stops all timers. The capture remains its
// owner's.
func (s *Switch) Close() {
	s.mu.Lock()
	s.closed = true
	uplinks := s.uplinks
	s.uplinks = nil
	s.mu.Unlock()
	for _, u := range uplinks {
		u.Close()
	}
	for _, p := range s.Ports() {
		p.Close()
	}
	s.table.stop()
}

// forward is the switch itself: it learns where the frame came from and hands
// it to the port where its destination was last seen, or to all others.
func (s *Switch) forward(from *Port, frame []byte) {
	ports := *s.ports.Load() // before the look-up: a port's id may be given anew
	s.table.learn(from, address(frame[6:]))
	if dst := address(frame); !group(dst) {
		if id, ok := s.table.find(dst); ok && int(id) < len(ports) && ports[id] != nil {
			if to := ports[id]; to != from {
				to.accept(frame)
			} else {
				from.filtered.Add(1)
			}
			return
		}
	}
	for _, to := range ports {
		if to != nil && to != from {
			to.accept(frame)
		}
	}
}

// address reads 6 bytes as a number, first byte on top.
func address(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint32(b))<<16 | uint64(binary.BigEndian.Uint16(b[4:]))
}

// group tells multicast and broadcast from unicast.
func group(a uint64) bool { return a>>40&1 != 0 }

// String names the switch's ports and their counters, one a line.
func (s *Switch) String() string {
	var text string
	for _, p := range s.Ports() {
		text += fmt.Sprintf("%s: %+v\n", p.name, p.Stats())
	}
	return text
}
