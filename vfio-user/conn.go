// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// conn is one connection. One goroutine reads it and calls the device; others
// send deferred replies and DMA messages.
type conn struct {
	srv  *Server
	log  hclog.Logger
	sock sender
	in   *stream
	out  []byte   // the reply in the making, header first
	fd   *os.File // goes with it

	heard    bool   // it has agreed on a version; belongs to the lobby
	client   limits // what it told in VERSION
	answered answer // what it was told
	irqs     *irqs
	events   *eventfds // signals them

	settler   Settler // nil if the device is always settled
	rester    Rester  // nil if the device does nothing by our goroutine
	unsettled bool    // the command at hand may have left something under way
	finisher  finisher
	messages  *messenger // nil if the device wants no DMA by message
	twin      *twin      // nil if that goes over sock

	watch sync.Mutex // one call of the observer at a time
}

// handler does one command. It leaves the payload of the reply in c.payload and
// returns its length. It takes the descriptors it has a use for; the others are
// closed.
type handler func(c *conn, m *request) (int, error)

// handlers are the commands of a client that has agreed on a version. What is
// not here is EINVAL, which clients take for "not supported": 11 and 12 go the
// other way, 14 is no more, and 16, 17 and 18 are about features of which this
// server has none, migration and dirty pages. A PROBE asks for one of them too.
var handlers = [...]handler{
	CmdDMAMap:           (*conn).dmaMap,
	CmdDMAUnmap:         (*conn).dmaUnmap,
	CmdDeviceGetInfo:    (*conn).deviceInfo,
	CmdGetRegionInfo:    (*conn).regionInfo,
	CmdGetRegionIOFDs:   (*conn).regionIOFDs,
	CmdGetIRQInfo:       (*conn).irqInfo,
	CmdSetIRQs:          (*conn).setIRQs,
	CmdRegionRead:       (*conn).regionRead,
	CmdRegionWrite:      (*conn).regionWrite,
	CmdDeviceReset:      (*conn).reset,
	CmdRegionWriteMulti: (*conn).regionWriteMulti,
}

var (
	errUnsupported = errors.New("command is not supported")
	errNoVersion   = errors.New("VERSION must come first")
	errUnasked     = errors.New("reply without a command")
	errUnreleased  = errors.New("too many descriptors of clients take long to close")
)

// run serves the connection from VERSION to its end, and returns why it ended.
func (c *conn) run(ctx context.Context) error {
	defer c.in.close()
	version, err := c.negotiate()
	if err != nil {
		return err
	}
	if !c.srv.lobby.agreed(c) {
		return net.ErrClosed
	}
	if err := c.srv.takeDevice(ctx); err != nil {
		return errors.Join(err, c.fail(version.Header, err))
	}
	defer c.srv.releaseDevice()

	if err := c.attach(); err != nil {
		return errors.Join(err, c.fail(version.Header, err))
	}
	defer c.detach()
	c.log.Info("client attached", "write_multiple", c.answered.writeMultiple)
	if err := c.greet(version.Header, version.answer); err != nil {
		return err
	}
	for {
		m, err := c.next()
		if err != nil {
			return err
		}
		if err := c.serve(m); err != nil {
			return err
		}
	}
}

// attach gives the device its client.
func (c *conn) attach() error {
	dev := c.srv.dev
	c.settler, _ = dev.(Settler)
	if memory, ok := dev.(MessageDMA); ok {
		send := func(h Header, b []byte) error { return c.transmit(h, b, nil) }
		if c.answered.twinSocket {
			var err error
			if c.twin, err = newTwin(c); err != nil {
				return fmt.Errorf("twin socket: %w", err)
			}
			send = c.twin.send
		}
		c.messages = newMessenger(c.client.dataTransfer, send)
		memory.AttachMemory(c.messages.read, c.messages.write)
	}
	masker, _ := dev.(IRQMasker)
	c.irqs = newIRQs(c.srv.layout.IRQs, masker, c.events)
	dev.Attach(c.irqs.raise)
	if c.rester, _ = dev.(Rester); c.rester != nil {
		c.rester.Rest()
	}
	return nil
}

// greet sends the reply to VERSION, of n bytes, and lets DMA messages go.
func (c *conn) greet(h Header, n int) error {
	if c.twin != nil {
		c.fd = c.twin.theirs
	}
	if err := c.reply(h, n); err != nil {
		return err
	}
	if c.twin != nil {
		c.twin.start()
	}
	if c.messages != nil {
		c.messages.open()
	}
	return nil
}

// detach ends everything that the connection has under way, and then the
// device's life with the client. No send can block any more when the sockets are
// ended, no DMA message can wait, and so the device's waits come to an end.
func (c *conn) detach() {
	c.sock.end()
	if c.messages != nil {
		c.messages.close()
	}
	if c.twin != nil {
		c.twin.close()
	}
	c.finisher.close()
	c.irqs.close()
	c.srv.dev.Detach()
}

// serve does one message.
func (c *conn) serve(m *request) error {
	if m.IsReply() && c.messages != nil && c.twin == nil && c.messages.answer(m) {
		return nil
	}
	n, err := c.dispatch(m)
	if c.unsettled {
		c.unsettled = false
		if wait := c.settler.Settle(); wait != nil {
			c.later(wait, m.Header, n, err)
			return nil
		}
	}
	if err != nil {
		return c.fail(m.Header, err)
	}
	return c.reply(m.Header, n)
}

// versionRequest is a VERSION request whose answer lies ready in c.payload.
type versionRequest struct {
	Header
	answer int // bytes
}

// negotiate waits for an acceptable VERSION. A client that says nothing is given
// up after some time.
func (c *conn) negotiate() (versionRequest, error) {
	sock := c.sock.sock
	if err := sock.SetReadDeadline(time.Now().Add(versionTimeout)); err != nil {
		return versionRequest{}, err
	}
	for {
		m, err := c.next()
		if err != nil {
			return versionRequest{}, err
		}
		n, err := c.version(m)
		if err == nil {
			c.in.patience = messageTimeout // until now there is a deadline anyway
			return versionRequest{m.Header, n}, sock.SetReadDeadline(time.Time{})
		}
		if err := c.fail(m.Header, err); err != nil {
			return versionRequest{}, err
		}
	}
}

func (c *conn) version(m *request) (int, error) {
	if err := checkMessage(m); err != nil {
		return 0, err
	}
	if m.Command != CmdVersion {
		return 0, errNoVersion
	}
	o, err := parseOffer(m.payload)
	if err != nil {
		return 0, err
	}
	if _, ok := c.srv.dev.(MessageDMA); !ok {
		o.twinSocket = false // nobody would use it
	}
	c.client, c.answered = o.limits, o.answer(len(m.payload))
	return copy(c.payload(len(c.answered.payload)), c.answered.payload), nil
}

// checkMessage does the checks that are the same for every command.
func checkMessage(m *request) error {
	switch {
	case m.IsReply():
		return errUnasked // what was asked for has been taken
	case m.Flags&FlagTypeMask != FlagCommand:
		return fmt.Errorf("message type %d", m.Flags&FlagTypeMask)
	case len(m.fds) > maxMsgFDs:
		return fmt.Errorf("%d descriptors, at most %d were agreed on", len(m.fds), maxMsgFDs)
	case m.fdsLost != nil:
		return m.fdsLost
	}
	return nil
}

func (c *conn) dispatch(m *request) (int, error) {
	if err := checkMessage(m); err != nil {
		return 0, err
	}
	if int(m.Command) >= len(handlers) || handlers[m.Command] == nil {
		return 0, errUnsupported
	}
	return handlers[m.Command](c, m)
}

func (c *conn) setIRQs(m *request) (int, error) { return 0, c.irqs.set(m) }

func (c *conn) reset(m *request) (int, error) {
	if !c.srv.layout.Resettable {
		return 0, errUnsupported
	}
	if len(m.payload) != 0 {
		return 0, fmt.Errorf("payload of %d bytes", len(m.payload))
	}
	c.srv.dev.Reset()
	c.irqs.reset()
	c.unsettle()
	return 0, nil
}

// next takes the next message. If the framing is lost the sender is told, and
// the connection cannot go on.
func (c *conn) next() (*request, error) {
	if c.rester != nil && !c.in.whole() {
		c.rester.Rest()
	}
	m, err := c.in.next()
	if err != nil {
		return nil, c.lost(err)
	}
	if c.sock.ended.Load() {
		return nil, net.ErrClosed
	}
	if len(m.fds) > 0 && !c.srv.release.room() {
		return nil, errUnreleased
	}
	c.observe(Message{Header: m.Header, Payload: m.payload, FDs: len(m.fds)})
	return m, nil
}

func (c *conn) lost(err error) error {
	var framing *framingError
	if !errors.As(err, &framing) {
		return err
	}
	c.observe(Message{Header: framing.Header})
	return errors.Join(err, c.fail(framing.Header, err))
}

// payload is room for a reply's payload of n bytes, with rubbish in it.
func (c *conn) payload(n int) []byte {
	if need := headerSize + n; need > len(c.out) {
		c.out = make([]byte, need)
	}
	return c.out[headerSize:][:n]
}

// unsettle notes that the command may have ended DMA of which a part is still
// under way.
func (c *conn) unsettle() { c.unsettled = c.settler != nil }

// reply answers a command with the first n bytes of c.payload.
func (c *conn) reply(h Header, n int) error {
	return c.transmitOut(c.replyHeader(h, n))
}

// fail answers a command with the errno in err. The error it returns is the
// connection's.
func (c *conn) fail(h Header, err error) error {
	return c.transmitOut(c.failHeader(h, err))
}

func (c *conn) replyHeader(h Header, n int) Header {
	h.Size, h.Flags, h.Errno = uint32(headerSize+n), h.Flags&FlagNoReply|FlagReply, 0
	return h
}

func (c *conn) failHeader(h Header, err error) Header {
	if c.log.IsDebug() {
		c.log.Debug("refused", "command", h.Command, "id", h.ID, "error", err)
	}
	h.Size, h.Flags, h.Errno = headerSize, h.Flags&FlagNoReply|FlagReply|FlagError, uint32(toErrno(err))
	return h
}

// transmitOut sends what the reader has made in c.out and c.fd.
func (c *conn) transmitOut(h Header) error {
	fd := c.fd
	c.fd = nil
	if h.Flags&FlagError != 0 {
		fd = nil
	}
	c.payload(int(h.Size) - headerSize)
	return c.transmit(h, c.out[:h.Size], fd)
}

// transmit sends one message with one write, its header put to the front of b; or
// nothing, if it is the reply to a command that wanted none.
func (c *conn) transmit(h Header, b []byte, fd *os.File) error {
	if h.Flags&FlagNoReply != 0 {
		return nil
	}
	h.Put(b)
	c.observe(sent(h, b, fd))
	return c.sock.send(b, fd)
}

// sent is what an observer sees of a message to the client.
func sent(h Header, b []byte, fd *os.File) Message {
	m := Message{Header: h, Sent: true, Payload: b[headerSize:]}
	if fd != nil {
		m.FDs = 1
	}
	return m
}

func (c *conn) observe(m Message) {
	if c.srv.opts.Observer != nil {
		c.watch.Lock()
		defer c.watch.Unlock()
		c.srv.opts.Observer(m)
	}
}
