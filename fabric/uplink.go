// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/devmodel/engine"
)

// Uplink joins a switch to a peer outside the process. It is the station of a
// port; the link of that port is up while there is a peer, as far as the kind
// of uplink can tell.
//
// A peer may be hostile. What it sends is bounded by one buffer and handled at
// the pace of the switch; what it does not take is bounded by a queue, and
// further frames are dropped and counted.
type Uplink struct {
	name string
	spec UplinkSpec
	port *Port
	emit func(any)
	addr net.Addr

	clock engine.Clock
	pause func(context.Context, time.Duration)

	out      outbox
	failed   func() uint64
	connects atomic.Uint64

	cancel  context.CancelFunc
	running sync.WaitGroup
	open    []io.Closer // what Close closes, in this order
	once    sync.Once
	told    string // the reason told last
}

// UplinkStats are the counters of an uplink beside those of its port.
type UplinkStats struct {
	Dropped  uint64 // frames for which a slow peer had no room
	NoPeer   uint64 // frames sent while nobody was connected
	Failed   uint64 // datagrams the kernel refused, mostly as nobody is there
	Connects uint64 // connections of a stream
}

const (
	dialTimeout  = 5 * time.Second
	redialFirst  = 50 * time.Millisecond
	redialMost   = time.Second
	socketBuffer = 1 << 20
)

// OpenUplink attaches an uplink under the name, or that of spec. What is wrong
// at once (an address in use, an interface that may not be opened) is an
// error; a client without a server is not, it tries until Close.
func (s *Switch) OpenUplink(name string, spec UplinkSpec) (*Uplink, error) {
	if name == "" {
		name = spec.String()
	}
	u := &Uplink{name: name, spec: spec, emit: s.emit, clock: s.clock, pause: pause, failed: func() uint64 { return 0 }}
	u.out.changed.L, u.out.clock = &u.out.mu, s.clock
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	run, err := u.prepare(ctx)
	if err != nil {
		cancel()
		u.closeAll()
		return nil, fmt.Errorf("uplink %s: %w", spec, err)
	}
	u.port = s.attach(name, u, u.out.wire != nil)
	s.mu.Lock()
	s.uplinks = append(s.uplinks, u)
	s.mu.Unlock()
	u.running.Go(u.out.run)
	u.running.Go(func() { run(ctx) })
	return u, nil
}

// prepare opens what can be opened at once and returns what receives.
func (u *Uplink) prepare(ctx context.Context) (run func(context.Context), err error) {
	switch u.spec.Kind {
	case KindDgram:
		return u.prepareDgram(ctx)
	case KindUDP:
		return u.prepareUDP(ctx)
	case KindTAP:
		f, err := openTAP(u.spec.Local)
		if err != nil {
			return nil, err
		}
		return u.packets(f, func(fd int, frame []byte) error {
			_, err := unix.Write(fd, frame)
			return err
		})
	case KindStream, KindTCP:
		if u.spec.Server {
			return u.prepareServer(ctx)
		}
		return u.dial, nil
	}
	return nil, u.spec.check()
}

func (u *Uplink) prepareDgram(ctx context.Context) (func(context.Context), error) {
	file, err := ownSocketFile(u.spec.Local)
	if err != nil {
		return nil, err
	}
	u.open = append(u.open, file)
	cfg := net.ListenConfig{Control: private}
	c, err := cfg.ListenPacket(ctx, "unixgram", u.spec.Local)
	if err != nil {
		return nil, err
	}
	to := &unix.SockaddrUnix{Name: u.spec.Remote}
	return u.socket(c.(*net.UnixConn), to)
}

func (u *Uplink) prepareUDP(ctx context.Context) (func(context.Context), error) {
	remote, err := net.ResolveUDPAddr("udp", u.spec.Remote)
	if err != nil {
		return nil, err
	}
	if remote.IP.IsMulticast() {
		return nil, fmt.Errorf("%s is a multicast address", remote.IP)
	}
	network, to := "udp6", unix.Sockaddr(nil)
	if ip := remote.IP.To4(); ip != nil {
		network, to = "udp4", &unix.SockaddrInet4{Port: remote.Port, Addr: [4]byte(ip)}
	} else {
		sa := &unix.SockaddrInet6{Port: remote.Port, Addr: [16]byte(remote.IP)}
		if remote.Zone != "" {
			ifi, err := net.InterfaceByName(remote.Zone)
			if err != nil {
				return nil, fmt.Errorf("zone of %s: %w", remote, err)
			}
			sa.ZoneId = uint32(ifi.Index)
		}
		to = sa
	}
	var cfg net.ListenConfig
	c, err := cfg.ListenPacket(ctx, network, u.spec.Local)
	if err != nil {
		return nil, err
	}
	return u.socket(c.(*net.UDPConn), to)
}

// datagramConn is a socket of either family.
type datagramConn interface {
	packetConn
	LocalAddr() net.Addr
	SetReadBuffer(int) error
	SetWriteBuffer(int) error
}

func (u *Uplink) socket(c datagramConn, to unix.Sockaddr) (func(context.Context), error) {
	u.addr = c.LocalAddr()
	// As much as the host allows; less works too.
	_ = c.SetReadBuffer(socketBuffer)
	_ = c.SetWriteBuffer(socketBuffer)
	return u.packets(c, func(fd int, frame []byte) error {
		return unix.Sendto(fd, frame, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, to)
	})
}

func (u *Uplink) packets(c packetConn, send func(fd int, frame []byte) error) (func(context.Context), error) {
	u.open = append([]io.Closer{c}, u.open...)
	w, err := newPacketWire(c, send, func(err error) { u.emit(UplinkRefused{u.name, err}) })
	if err != nil {
		return nil, err
	}
	u.failed = w.failed.Load
	u.out.connect(w)
	return func(ctx context.Context) {
		u.up()
		err := w.receive(u.port.Send)
		if ctx.Err() == nil {
			u.down(fmt.Errorf("receive: %w", err))
		}
	}, nil
}

func (u *Uplink) prepareServer(ctx context.Context) (func(context.Context), error) {
	var cfg net.ListenConfig
	network := "tcp"
	if u.spec.Kind == KindStream {
		network = "unix"
		file, err := ownSocketFile(u.spec.Local)
		if err != nil {
			return nil, err
		}
		u.open = append(u.open, file)
		cfg.Control = private
	}
	l, err := cfg.Listen(ctx, network, u.spec.Local)
	if err != nil {
		return nil, err
	}
	if l, ok := l.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false) // socketFile does, under its lock
	}
	u.addr = l.Addr()
	u.open = append([]io.Closer{l}, u.open...)
	return func(ctx context.Context) { u.accept(ctx, l) }, nil
}

// accept serves one client after the other; the next waits in the socket's
// backlog, as with QEMU.
func (u *Uplink) accept(ctx context.Context, l net.Listener) {
	for ctx.Err() == nil {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil {
				u.down(err)
				u.pause(ctx, redialFirst) // out of descriptors, or the like
			}
			continue
		}
		u.serve(ctx, c)
	}
}

// dial connects to a server whenever it is there. One that hangs up at once is
// as little hammered as one that is not there.
func (u *Uplink) dial(ctx context.Context) {
	d := net.Dialer{Timeout: dialTimeout}
	network := "tcp"
	if u.spec.Kind == KindStream {
		network = "unix"
	}
	wait := redialFirst
	for ctx.Err() == nil {
		c, err := d.DialContext(ctx, network, u.spec.Local)
		if err == nil && u.serve(ctx, c) {
			wait = redialFirst
		} else if err != nil && ctx.Err() == nil {
			u.down(err)
		}
		u.pause(ctx, wait)
		wait = min(2*wait, redialMost)
	}
}

// serve exchanges frames with one peer until it leaves, and tells whether that
// was of use: the peer sent a frame, or stayed longer than the longest pause
// between two attempts.
func (u *Uplink) serve(ctx context.Context, c net.Conn) (useful bool) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	w, err := newStreamWire(c)
	if err != nil {
		u.down(err)
		return false
	}
	began := u.clock.Now()
	u.connects.Add(1)
	u.out.connect(w)
	u.up()
	err = w.receive(func(frame []byte) {
		useful = true
		u.port.Send(frame)
	})
	u.out.connect(nil)
	if ctx.Err() == nil {
		u.down(err)
	}
	return useful || u.clock.Now()-began > redialMost
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// up and down run on the one goroutine that receives.
func (u *Uplink) up() {
	u.told = ""
	u.port.SetLink(true)
	u.emit(UplinkUp{u.name})
}

func (u *Uplink) down(err error) {
	u.port.SetLink(false)
	e := UplinkDown{u.name, err}
	if text := e.String(); text != u.told {
		u.told = text
		u.emit(e)
	}
}

// Receive sends a frame of the switch to the peer.
func (u *Uplink) Receive(frame []byte) { u.out.put(frame) }

// Port is the port of the switch behind which the peer is.
func (u *Uplink) Port() *Port { return u.port }

// Addr is the address a socket is bound to; nil for clients and interfaces.
func (u *Uplink) Addr() net.Addr { return u.addr }

// Stats reads the counters.
func (u *Uplink) Stats() UplinkStats {
	u.out.mu.Lock()
	defer u.out.mu.Unlock()
	return UplinkStats{Dropped: u.out.dropped, NoPeer: u.out.noPeer, Failed: u.failed(), Connects: u.connects.Load()}
}

// Close ends the uplink and removes its sockets.
func (u *Uplink) Close() error {
	var err error
	u.once.Do(func() {
		u.cancel()
		u.out.close()
		err = u.closeAll()
		u.running.Wait()
		u.port.Close()
	})
	return err
}

func (u *Uplink) closeAll() error {
	var errs []error
	for _, c := range u.open {
		if err := c.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
