// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// busyWait is how long a second client waits for the first to go. A QEMU
	// that is started while its predecessor dies gets the device that way; one
	// that is simply one too many is told so before its own time-out of 5 s
	// (hw/vfio-user/pci.c, x-msg-timeout), after which it would say less.
	busyWait = 3 * time.Second
	// writeTimeout is far more than the time after which QEMU forgets a request. A
	// few replies fit the socket's buffer, so that a QEMU that a debugger has
	// stopped does not get here.
	writeTimeout = 30 * time.Second
	// versionTimeout is how long a connection may take to send VERSION.
	versionTimeout = 30 * time.Second
	// messageTimeout is how long a message that has brought descriptors may be
	// incomplete. QEMU sends a message in one go.
	messageTimeout = 30 * time.Second
	// maxConns bounds connections that are open at once, with and without the
	// device.
	maxConns = 32
	// acceptPause is the pause after a failed accept, for instance for want of
	// descriptors.
	acceptPause = 100 * time.Millisecond
)

// ErrBusy: another client has the device. The client sees EBUSY.
var ErrBusy = fmt.Errorf("another client has the device: %w", unix.EBUSY)

// Options of a Server. The zero value is good.
type Options struct {
	Logger hclog.Logger // nil logs nothing

	// Observer sees every message of every client. The calls of one connection
	// come one after the other; it must not block.
	Observer func(Message)

	// BusyWait is how long a client waits while another has the device, before
	// its VERSION is answered with EBUSY. 0 means 3 s, less than nothing means
	// not at all.
	BusyWait time.Duration

	// WriteTimeout is how long a client may read nothing while there are replies
	// for it, before it is given up. 0 means 30 s.
	WriteTimeout time.Duration
}

// Server serves one device to one client after the other.
type Server struct {
	dev    Device
	layout Layout
	opts   Options
	log    hclog.Logger
	bad    error         // what is wrong with layout
	owned  chan struct{} // holds a token while a client has the device

	release releaser
	lobby   lobby
}

// NewServer prepares to serve dev. Nothing happens before Serve, which is also
// what fails if [Layout.Check] does.
func NewServer(dev Device, layout Layout, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = hclog.NewNullLogger()
	}
	if opts.BusyWait == 0 {
		opts.BusyWait = busyWait
	}
	if opts.WriteTimeout == 0 {
		opts.WriteTimeout = writeTimeout
	}
	return &Server{dev: dev, layout: layout, opts: opts, log: opts.Logger, bad: layout.Check(), owned: make(chan struct{}, 1)}
}

// Serve accepts clients until ctx ends, and then returns nil once the device is
// detached and all connections have ended. It leaves the listener open: that is
// the caller's.
//
// The device belongs to one client at a time, from VERSION to the end of its
// connection. Others wait for it for a while (Options.BusyWait); whoever has not
// sent VERSION is in nobody's way.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	if s.bad != nil {
		return fmt.Errorf("serve: %w", s.bad)
	}
	if err := l.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	events, err := newEventFDs()
	if err != nil {
		s.log.Info("interrupts are signalled by writes", "reason", err)
	}
	defer events.close()
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer s.released()
	defer conns.Wait()
	defer cancel()
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.SetDeadline(time.Unix(1, 0)) // the only way to end an accept without a close
		close(woken)
	})
	defer func() {
		if !stop() {
			<-woken // or it would end the accept of a later Serve
		}
	}()

	for {
		sock, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				s.release.connection(sock)
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve: %w", err)
		case err != nil:
			s.log.Warn("accept failed", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		c := s.newConn(sock, events)
		ok, crowded := s.lobby.enter(c)
		if crowded {
			s.log.Warn("too many connections", "limit", maxConns)
		}
		if !ok {
			s.release.connection(sock)
			continue
		}
		conns.Go(func() {
			defer s.lobby.leave(c)
			s.serveConn(ctx, c)
		})
	}
}

func (s *Server) newConn(sock *net.UnixConn, events *eventfds) *conn {
	return &conn{
		srv:    s,
		log:    s.log,
		events: events,
		sock:   sender{sock: sock, timeout: s.opts.WriteTimeout},
		in:     newStream(sock, &s.release),
	}
}

func (s *Server) serveConn(ctx context.Context, c *conn) {
	defer s.release.connection(c.sock.sock)
	stop := context.AfterFunc(ctx, c.sock.end)
	defer stop()
	err := c.run(ctx)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		s.log.Info("client left")
	default:
		s.log.Warn("connection ended", "error", err)
	}
}

// takeDevice makes the calling connection the owner of the device, or fails with
// ErrBusy.
func (s *Server) takeDevice(ctx context.Context) error {
	select {
	case s.owned <- struct{}{}:
		return nil
	default:
	}
	s.log.Info("client waits for the device")
	timeout := time.NewTimer(s.opts.BusyWait)
	defer timeout.Stop()
	select {
	case s.owned <- struct{}{}:
		return nil
	case <-timeout.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// released waits for the end of what clients left behind.
func (s *Server) released() {
	if !s.release.wait() {
		s.log.Warn("a client's descriptor takes long to close")
	}
}

func (s *Server) releaseDevice() { <-s.owned }
