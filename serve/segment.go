// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/devmodel/engine"
	"github.com/vrnic/vrnic/fabric"
)

// Network says what the cards' Ethernet segment is like. The ports of the switch
// are called card0, card1 and so on in the order of the sockets, and uplink0,
// uplink1 and so on in that of the uplinks.
type Network struct {
	Uplinks []fabric.UplinkSpec
	Impair  []fabric.Impairment
	// Capture opens what gets every frame of every port as pcapng, without loss:
	// a writer that is slow slows the network down (see fabric.NewCapture). It is
	// called when everything else is there, so that a start that fails leaves an
	// older capture alone. nil for none.
	Capture func(context.Context) (io.Writer, error)
}

// segment is the switch with what runs it: the engine and the grace domain that
// all cards share, so that a sender's step may fill the receiver's memory.
type segment struct {
	engine  *engine.Engine
	sw      *fabric.Switch
	uplinks int
	capture *fabric.Capture // nil for none
	logger  hclog.Logger
	emit    func(any) // takes what happens to the segment, too
}

// captureEnd is how long the writer of a capture may take for its end.
const captureEnd = 2 * time.Second

// CheckPorts says whether a segment with so many cards has the ports that the
// impairments name.
func (n Network) CheckPorts(cards int) error {
	var names []string
	for i := range cards {
		names = append(names, cardName(i))
	}
	for i := range n.Uplinks {
		names = append(names, uplinkName(i))
	}
	for _, r := range n.Impair {
		if r.Port != "" && !slices.Contains(names, r.Port) {
			return fmt.Errorf("no port %q: there are %s", r.Port, strings.Join(names, ", "))
		}
	}
	return nil
}

func newSegment(n Network, cards int, logger hclog.Logger, emit func(any)) (*segment, error) {
	if err := n.CheckPorts(cards); err != nil {
		return nil, fmt.Errorf("impairment: %w", err)
	}
	g := &segment{engine: engine.New(engine.Config{Waits: n.Capture != nil}), uplinks: len(n.Uplinks), logger: logger, emit: emit}
	o := fabric.Options{Clock: g.engine.Clock(), Emit: g.event, Impair: n.Impair}
	if n.Capture != nil {
		g.capture = fabric.NewLateCapture()
		o.Capture = g.capture
	}
	g.sw = fabric.NewSwitch(o)
	for i, spec := range n.Uplinks {
		if _, err := g.sw.OpenUplink(uplinkName(i), spec); err != nil {
			g.endCapture()
			g.close()
			return nil, err
		}
	}
	return g, nil
}

func cardName(i int) string   { return fmt.Sprintf("card%d", i) }
func uplinkName(i int) string { return fmt.Sprintf("uplink%d", i) }

// event logs what happens to the segment.
func (g *segment) event(e any) {
	g.emit(e)
	switch e := e.(type) {
	case fabric.UplinkUp:
		g.logger.Info(e.String())
	case fabric.UplinkRefused: // a peer that is not there yet, as a rule
		g.logger.Info(e.String())
	case fabric.UplinkDown:
		g.logger.Warn(e.String())
	case fabric.CaptureEnded:
		g.logger.Error(e.String())
	}
}

// endCapture comes first of all: whoever sends may be waiting for the writer of
// the capture, and everything else for whoever sends.
func (g *segment) endCapture() {
	if g.capture == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), captureEnd)
	defer cancel()
	// What ended it earlier has been told then.
	if err := g.capture.Close(ctx); errors.Is(err, context.DeadlineExceeded) {
		g.logger.Error("capture", "error", err)
	}
}

// close ends the rest, after the cards.
func (g *segment) close() {
	g.sw.Close()
	g.engine.Close()
}

// card is a device and its place on the segment.
type card struct {
	dev     *devmodel.Device
	port    *fabric.Port
	link    sync.Mutex     // held while both of them are told
	checker *check.Checker // nil: none
	guest   atomic.Pointer[guestInfo]
}

// plug makes a card with a cable to the switch.
func (g *segment) plug(name string, c devmodel.Config) *card {
	s := &socket{}
	s.port = g.sw.Attach(name, s)
	c.Shared, c.Wire, c.Near, c.Notes = g.engine, s.port, s, notesOf(s.port)
	dev := devmodel.New(c)
	s.card.Store(dev)
	return &card{dev: dev, port: s.port}
}

// close takes the card out.
func (c *card) close() {
	c.port.Close()
	c.dev.Close()
}

// socket is where the cable of a card ends: there before the card is.
type socket struct {
	port *fabric.Port // there before the card
	card atomic.Pointer[devmodel.Device]
}

func (s *socket) Receive(frame []byte) {
	if d := s.card.Load(); d != nil {
		d.Receive(frame)
	}
}

// Card implements devmodel.Station.
func (s *socket) Card() *devmodel.Device { return s.card.Load() }

// Find implements devmodel.Near: cards find each other without frames where no
// capture or impairment asks for them.
func (s *socket) Find(dst [6]byte) devmodel.Station {
	to := s.port.Near(dst)
	if to == nil {
		return nil
	}
	if other, ok := to.Station().(*socket); ok {
		return other
	}
	return nil
}

// Passed implements devmodel.Near.
func (s *socket) Passed(to devmodel.Station, src [6]byte, frames, bytes uint64) {
	s.port.Passed(to.(*socket).port, src, frames, bytes)
}
