// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// conn is one connection, served by one goroutine.
type conn struct {
	srv  *Server
	log  hclog.Logger
	sock *net.UnixConn
	in   *stream
	out  []byte     // the reply in the making, header first
	send sync.Mutex // one message at a time on the socket

	writeMultiple bool // agreed on in VERSION
	irqs          *irqs
}

// handler does one command. It leaves the payload of the reply in c.payload and
// returns its length. It takes the descriptors it has a use for; the others are
// closed.
type handler func(c *conn, m *request) (int, error)

// handlers are the commands of a client that has agreed on a version. What is
// not here is EINVAL: nothing stands behind 6, 16, 17 and 18 in this server, and
// 11 and 12 go the other way.
var handlers = [...]handler{
	CmdDMAMap:           (*conn).dmaMap,
	CmdDMAUnmap:         (*conn).dmaUnmap,
	CmdDeviceGetInfo:    (*conn).deviceInfo,
	CmdGetRegionInfo:    (*conn).regionInfo,
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
)

// run serves the connection from VERSION to its end, and returns why it ended.
func (c *conn) run(ctx context.Context) error {
	defer c.in.close()
	version, err := c.negotiate()
	if err != nil {
		return err
	}
	if err := c.srv.takeDevice(ctx); err != nil {
		return errors.Join(err, c.fail(version.Header, err))
	}
	defer c.srv.releaseDevice()

	masker, _ := c.srv.dev.(IRQMasker)
	c.irqs = newIRQs(c.srv.layout.IRQs, masker)
	c.srv.dev.Attach(c.irqs.raise)
	defer func() {
		c.irqs.close()
		c.srv.dev.Detach()
	}()
	c.log.Info("client attached", "write_multiple", c.writeMultiple)
	if err := c.reply(version.Header, version.answer); err != nil {
		return err
	}
	for {
		m, err := c.next()
		if err != nil {
			return err
		}
		n, err := c.dispatch(m)
		if err != nil {
			err = c.fail(m.Header, err)
		} else {
			err = c.reply(m.Header, n)
		}
		if err != nil {
			return err
		}
	}
}

// versionRequest is a VERSION request whose answer lies ready in c.payload.
type versionRequest struct {
	Header
	answer int // bytes
}

// negotiate waits for an acceptable VERSION. A client that says nothing is given
// up after some time.
func (c *conn) negotiate() (versionRequest, error) {
	if err := c.sock.SetReadDeadline(time.Now().Add(versionTimeout)); err != nil {
		return versionRequest{}, err
	}
	for {
		m, err := c.next()
		if err != nil {
			return versionRequest{}, err
		}
		n, err := c.version(m)
		if err == nil {
			return versionRequest{m.Header, n}, c.sock.SetReadDeadline(time.Time{})
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
	var answer []byte
	answer, c.writeMultiple = o.appendAnswer(nil, len(m.payload))
	return copy(c.payload(len(answer)), answer), nil
}

// checkMessage does the checks that are the same for every command.
func checkMessage(m *request) error {
	switch {
	case m.IsReply():
		// The server sends no commands, so every reply is unasked for.
		return errUnasked
	case m.Flags&FlagTypeMask != FlagCommand:
		return fmt.Errorf("message type %d", m.Flags&FlagTypeMask)
	case len(m.fds) > maxMsgFDs:
		return fmt.Errorf("%d descriptors, at most %d were agreed on", len(m.fds), maxMsgFDs)
	case m.fdsLost:
		return fmt.Errorf("descriptors were lost: %w", unix.EMFILE)
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
	return 0, nil
}

// next takes the next message. If the framing is lost the sender is told, and
// the connection cannot go on.
func (c *conn) next() (*request, error) {
	m, err := c.in.next()
	if err != nil {
		return nil, c.lost(err)
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

// reply answers a command with the first n bytes of c.payload.
func (c *conn) reply(h Header, n int) error {
	h.Size, h.Flags, h.Errno = uint32(headerSize+n), h.Flags&FlagNoReply|FlagReply, 0
	return c.transmit(h)
}

// fail answers a command with the errno in err. The error it returns is the
// connection's.
func (c *conn) fail(h Header, err error) error {
	if c.log.IsDebug() {
		c.log.Debug("refused", "command", h.Command, "id", h.ID, "error", err)
	}
	h.Size, h.Flags, h.Errno = headerSize, h.Flags&FlagNoReply|FlagReply|FlagError, uint32(toErrno(err))
	return c.transmit(h)
}

// transmit sends header and payload with one write, or nothing if the command
// wanted no reply.
func (c *conn) transmit(h Header) error {
	if h.Flags&FlagNoReply != 0 {
		return nil
	}
	c.payload(int(h.Size) - headerSize)
	h.Put(c.out)
	c.observe(Message{Header: h, Sent: true, Payload: c.out[headerSize:h.Size]})
	c.send.Lock()
	defer c.send.Unlock()
	_, err := c.sock.Write(c.out[:h.Size])
	return err
}

func (c *conn) observe(m Message) {
	if c.srv.opts.Observer != nil {
		c.srv.opts.Observer(m)
	}
}
