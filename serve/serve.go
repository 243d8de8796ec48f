// SPDX-License-Identifier: Apache-2.0

// Package serve runs devices in this process: each a card of the model behind
// a vfio-user socket, all of them on one Ethernet switch and behind one control
// socket.
//
// A client that leaves finds its device in power-on state when it comes back.
package serve

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/vrnic/vrnic/devmodel"
	"github.com/vrnic/vrnic/devmodel/check"
	"github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/devmodel/trace"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// Options say what to serve.
type Options struct {
	// Sockets are the paths to listen on, one device each.
	Sockets []string
	// MACs are the devices' addresses; missing ones come from DefaultMAC.
	MACs [][6]byte
	// Control is the path of the control socket; empty for none.
	Control string
	Network Network
	// Personality of all devices; the zero value is the default one.
	Personality hmc.Personality
	// Unchecked: drivers' mistakes are not looked for.
	Unchecked bool
	// Events opens what gets every event of every device as JSON lines (see
	// trace.Writer), without ever holding a device up. It is called when
	// everything else is there. nil for none.
	Events func(context.Context) (io.Writer, error)
	Logger hclog.Logger
}

// Host is a set of devices being served.
type Host struct {
	segment *segment
	cards   []*card
	wg      sync.WaitGroup
	events  *trace.Writer // nil for none
	// personality of the devices by name, unless it is the default one
	personality string
	logger      hclog.Logger
	cancel      context.CancelFunc
	errs        chan error
	done        chan struct{} // closed when nothing is left
}

// DefaultMAC is the address of a device that was given none: locally
// administered, and the same whenever the same socket is served.
func DefaultMAC(socket string) [6]byte {
	if abs, err := filepath.Abs(socket); err == nil {
		socket = abs
	}
	h := fnv.New32a()
	h.Write([]byte(socket))
	s := h.Sum32()
	return [6]byte{0x02, 0xe8, 0x10, byte(s >> 16), byte(s >> 8), byte(s)}
}

// Start listens on all sockets and serves them in the background until ctx
// ends or Close. When it returns without error, every socket accepts.
func Start(ctx context.Context, o Options) (*Host, error) {
	if len(o.Sockets) == 0 {
		return nil, errors.New("serve: no socket given")
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	var events *trace.Writer
	sink := func(string) func(any) { return func(any) {} }
	if o.Events != nil {
		events = trace.NewWriter()
		sink = events.Sink
	}
	segment, err := newSegment(o.Network, len(o.Sockets), o.Logger, sink("network"))
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &Host{segment: segment, events: events, logger: o.Logger, cancel: cancel, errs: make(chan error, len(o.Sockets)+1), done: make(chan struct{})}
	if o.Personality != hmc.Personalities()[0] {
		h.personality = o.Personality.Name
	}
	fail := func(err error) (*Host, error) {
		go h.end(ctx)
		h.Close()
		return nil, err
	}
	begin := make(chan struct{}) // closed when nothing can fail any more
	start := func(serve func()) {
		h.wg.Go(func() {
			select {
			case <-begin:
			case <-ctx.Done(): // serve ends at once
			}
			serve()
		})
	}
	for i, path := range o.Sockets {
		logger := o.Logger
		if len(o.Sockets) > 1 {
			logger = logger.Named(filepath.Base(path))
		}
		l, err := vfiouser.Listen(path)
		if err != nil {
			return fail(fmt.Errorf("serve %s: %w", path, err))
		}
		mac := DefaultMAC(path)
		if i < len(o.MACs) {
			mac = o.MACs[i]
		}
		watchers := []func(any){trace.Log(logger)}
		var checker *check.Checker
		if !o.Unchecked {
			checker = check.New(logger)
			watchers = append(watchers, blameless(checker.Event))
		}
		if events != nil {
			watchers = append(watchers, events.Sink(cardName(i)))
		}
		card := segment.plug(cardName(i), devmodel.Config{MAC: mac, Profile: o.Personality.Profile, Emit: trace.Fan(watchers...),
			Unwatched: o.Unchecked && events == nil && !logger.IsTrace()})
		card.checker = checker
		h.cards = append(h.cards, card)
		srv := vfiouser.NewServer(card.dev, layout(), vfiouser.Options{Logger: logger})
		start(func() {
			defer card.close()
			defer l.Close()
			if err := srv.Serve(ctx, l.UnixListener); err != nil {
				h.errs <- fmt.Errorf("serve %s: %w", path, err)
			}
		})
	}
	if o.Control != "" {
		l, err := vfiouser.Listen(o.Control)
		if err != nil {
			return fail(fmt.Errorf("control socket %s: %w", o.Control, err))
		}
		start(func() { h.serveControl(ctx, l, o.Logger) })
	}
	if o.Network.Capture != nil {
		w, err := o.Network.Capture(ctx)
		if err != nil {
			return fail(err)
		}
		segment.capture.Start(w)
	}
	if o.Events != nil {
		w, err := o.Events(ctx)
		if err != nil {
			return fail(err)
		}
		events.Start(w, func(err error) { o.Logger.Error(err.Error()) })
	}
	close(begin)
	go h.end(ctx)
	return h, nil
}

// end releases everything in order when ctx ends.
func (h *Host) end(ctx context.Context) {
	<-ctx.Done()
	h.segment.endCapture()
	h.wg.Wait()
	h.segment.close()
	if h.events != nil {
		if err := h.events.Close(); err != nil {
			h.logger.Error(err.Error())
		}
	}
	close(h.done)
}

// blameless keeps from a checker what follows from memory that the card cannot
// share: until the client is another one, nothing that goes wrong is its
// driver's fault, and the one line that says what to do stands alone.
func blameless(checker func(event any)) func(event any) {
	var unreachable atomic.Bool
	return func(event any) {
		switch event.(type) {
		case devmodel.Attached:
			unreachable.Store(false)
		case devmodel.Unreachable:
			unreachable.Store(true)
		}
		if !unreachable.Load() {
			checker(event)
		}
	}
}

// layout describes the card to the vfio-user server.
func layout() vfiouser.Layout {
	l := vfiouser.Layout{IRQs: devmodel.IRQCounts(), Resettable: true}
	for i, size := range devmodel.RegionSizes() {
		if size > 0 {
			l.Regions[i] = vfiouser.Region{Size: size, Flags: vfiouser.RegionRead | vfiouser.RegionWrite}
		}
	}
	return l
}

// Errors delivers a server's failure; a Host that was closed delivers none.
func (h *Host) Errors() <-chan error { return h.errs }

// Close stops serving, removes the sockets and releases the devices. The end of a
// capture has been written then, if its writer took it.
func (h *Host) Close() {
	h.cancel()
	<-h.done
}
