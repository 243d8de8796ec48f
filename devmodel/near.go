// SPDX-License-Identifier: Apache-2.0

package devmodel

import (
	"github.com/vrnic/vrnic/devmodel/frame"
	"github.com/vrnic/vrnic/devmodel/lan"
	"github.com/vrnic/vrnic/devmodel/qp"
	"github.com/vrnic/vrnic/devmodel/roce/wire"
)

// port is where the protocol engine's frames leave the card.
type port struct {
	lan     *lan.LAN
	crowded func(dst [6]byte) bool
}

func newPort(l *lan.LAN, wire any) port {
	p := port{l, func([6]byte) bool { return false }}
	if w, ok := wire.(interface{ Crowded([6]byte) bool }); ok {
		p.crowded = w.Crowded
	}
	return p
}

// minFrame is the length that shorter frames have on the wire, without FCS. Of
// RoCE only an empty send over IPv4 is shorter.
const minFrame = 60

// Send implements qp.Wire.
func (p port) Send(f []byte) bool {
	if n := len(f); n < minFrame && cap(f) >= minFrame {
		f = f[:minFrame]
		clear(f[n:])
	}
	return p.lan.Transmit(f)
}

// Crowded implements qp.Pacer.
func (p port) Crowded(dst [6]byte) bool { return p.crowded(dst) }

// Near is a card's place on a segment as the one who made the segment knows it.
// Protocol engines use it to hand over what needs no frames, as nobody sees them.
// Its methods are called in steps and do not block.
type Near interface {
	// Find is the station that alone would get a frame from here to dst, as soon
	// as it is sent and seen by nobody. nil: there is none.
	Find(dst [6]byte) Station
	// Passed tells of frames from src, of so many bytes together, that went to a
	// station that Find has found.
	Passed(to Station, src [6]byte, frames, bytes uint64)
}

// Station is where the cable of a card ends.
type Station interface {
	Card() *Device // nil: it is not there yet
}

// neighbours is Near as the protocol engine sees it.
type neighbours struct {
	card *Device
	near Near
}

func (d *Device) near(n Near) qp.Near {
	if n == nil {
		return nil
	}
	return neighbours{d, n}
}

// Find implements qp.Near.
func (n neighbours) Find(path *wire.Path, b *qp.Burst) (*qp.Table, any) {
	if !n.card.lan.Open() {
		return nil, nil
	}
	station := n.near.Find(path.DestMAC)
	if station == nil {
		return nil, nil
	}
	to := station.Card()
	if to == nil || to.engine != n.card.engine {
		return nil, nil
	}
	if x := toLAN(path, b); !to.lan.Takes(&x) {
		return nil, nil
	}
	return to.rdma.QPs(), station
}

// Passed implements qp.Near.
func (n neighbours) Passed(way any, path *wire.Path, b *qp.Burst, times uint64) {
	to, x := way.(Station), toLAN(path, b)
	n.card.lan.Sent(&x, times)
	to.Card().lan.Received(&x, times)
	padded := qp.Burst{Frames: x.Frames, First: x.First, Middle: x.Middle, Last: x.Last}
	n.near.Passed(to, path.SourceMAC, times*b.Frames, times*padded.Bytes())
}

func toLAN(path *wire.Path, b *qp.Burst) lan.Burst {
	x := lan.Burst{Dest: path.DestMAC, Tagged: path.Tagged, TCI: path.TCI, Type: frame.TypeIPv6,
		Frames: b.Frames, First: b.First, Middle: b.Middle, Last: max(b.Last, minFrame)} // messages of several packets have none so short
	if path.IPv4 {
		x.Type = frame.TypeIPv4
	}
	return x
}
