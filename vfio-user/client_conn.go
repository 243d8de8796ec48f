// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// call is a command that waits for its reply.
type call struct {
	cmd   Command
	limit int // longest payload that the reply may have
	id    uint16
	keep  bool // the descriptor of the reply is wanted
	reply []byte
	file  *os.File // the descriptor, if it was wanted and came
	err   error
	done  chan struct{} // closed when reply, file and err are valid
}

func newCall(cmd Command, limit int) *call {
	return &call{cmd: cmd, limit: limit, done: make(chan struct{})}
}

// negotiate exchanges VERSION. The reply has to fit into a buffer of the
// request's length, as in QEMU; clients of another make may do things by which
// it could not.
func (c *Client) negotiate() error {
	req := binary.LittleEndian.AppendUint16(nil, versionMajor)
	req = binary.LittleEndian.AppendUint16(req, c.opts.Minor)
	if !c.opts.NoJSON {
		req = append(req, c.opts.Capabilities...)
		req = append(req, 0)
	}
	own, _ := parseOffer(req) // what makes no sense is the server's to refuse
	k := newCall(CmdVersion, len(req))
	if k.keep = own.twinSocket; k.keep || c.opts.NoJSON {
		k.limit = pageSize
	}
	if err := c.do(k, req, nil); err != nil {
		return err
	}
	err := c.parseAnswer(k.reply, own.twinSocket)
	if err == nil && c.server.twinSocket != (k.file != nil) {
		err = fmt.Errorf("twin socket %v, descriptor %v", c.server.twinSocket, k.file != nil)
	}
	if err == nil && k.file != nil {
		err = c.startTwin(k.file)
	}
	if err != nil {
		return fmt.Errorf("%v: %w: %w", CmdVersion, ErrProtocol, err)
	}
	return nil
}

// parseAnswer does QEMU's checks of the reply to VERSION, and takes what QEMU
// warns of for an error. twin: the client offered a twin socket.
func (c *Client) parseAnswer(p []byte, twin bool) error {
	c.server = defaultLimits()
	c.server.msgFDs = defaultMsgFDs
	if len(p) < 4 {
		return fmt.Errorf("payload of %d bytes", len(p))
	}
	major, minor := binary.LittleEndian.Uint16(p), binary.LittleEndian.Uint16(p[2:])
	if major != versionMajor || minor > c.opts.Minor {
		return fmt.Errorf("server has version %d.%d", major, minor)
	}
	text := p[4:]
	if len(text) == 0 {
		return nil
	}
	if bytes.IndexByte(text, 0) != len(text)-1 {
		return fmt.Errorf("JSON text %q does not end with its only NUL", text)
	}
	var top members
	if err := json.Unmarshal(text[:len(text)-1], &top); err != nil {
		return fmt.Errorf("JSON text %q: %v", text, err)
	}
	caps, err := top.object("capabilities")
	if err != nil {
		return err
	}
	delete(top, "capabilities")
	if len(top) > 0 {
		return fmt.Errorf("JSON text %q has more than capabilities", text)
	}
	for name := range caps {
		known := slices.Contains([]string{"max_msg_fds", "max_data_xfer_size", "max_dma_maps", "pgsizes", "write_multiple", "migration"}, name)
		if !known && (name != "twin_socket" || !twin) {
			return fmt.Errorf("JSON text %q has the capability %q", text, name)
		}
	}
	if err := c.server.parse(caps); err != nil {
		return err
	}
	if c.server.msgFDs > 16 { // QEMU's own limit
		return fmt.Errorf("max_msg_fds %d", c.server.msgFDs)
	}
	c.server.msgFDs = max(c.server.msgFDs, 1)
	// QEMU reads config space in one piece and has a limit of its own.
	if n := c.server.dataTransfer; n < pageSize || n > 64<<20 {
		return fmt.Errorf("max_data_xfer_size %d", n)
	}
	if n := c.server.dmaMaps; n > maxDMAMaps {
		return fmt.Errorf("max_dma_maps %d", n)
	}
	return nil
}

// call sends a command and waits for the payload of its reply, of limit bytes at
// most.
func (c *Client) call(cmd Command, payload []byte, fds []int, limit int) ([]byte, error) {
	k := newCall(cmd, limit)
	err := c.do(k, payload, fds)
	return k.reply, err
}

// do sends the command of k and waits for its reply.
func (c *Client) do(k *call, payload []byte, fds []int) error {
	c.bigLock.RLock()
	defer c.bigLock.RUnlock()
	if err := c.start(k, payload, fds); err != nil {
		return err
	}
	_, err := c.wait(k)
	return err
}

// start sends the command of k.
func (c *Client) start(k *call, payload []byte, fds []int) error {
	c.send.Lock()
	defer c.send.Unlock()
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return fmt.Errorf("%v: %w", k.cmd, c.err)
	}
	for {
		c.lastID++
		if _, used := c.pending[c.lastID]; !used {
			break
		}
	}
	k.id = c.lastID
	c.pending[k.id] = k
	c.mu.Unlock()
	err := c.transmit(c.conn, Header{ID: k.id, Command: k.cmd}, payload, fds)
	if err != nil && !c.forget(k) {
		<-k.done // the receiver knows why the connection ended
		return k.err
	}
	return err
}

// post sends a command that gets no reply.
func (c *Client) post(cmd Command, payload []byte) error {
	c.send.Lock()
	defer c.send.Unlock()
	if err := c.Err(); err != nil {
		return fmt.Errorf("%v: %w", cmd, err)
	}
	c.lastID++
	return c.transmit(c.conn, Header{ID: c.lastID, Command: cmd, Flags: FlagNoReply}, payload, nil)
}

// transmit writes one message, with c.send held.
func (c *Client) transmit(conn *net.UnixConn, h Header, payload []byte, fds []int) error {
	h.Size = uint32(headerSize + len(payload))
	c.out = append(c.out[:0], make([]byte, headerSize)...)
	h.Put(c.out)
	c.out = append(c.out, payload...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(c.out, oob, nil)
	if err == nil && n < len(c.out) {
		_, err = conn.Write(c.out[n:]) // the descriptors went with the first bytes
	}
	if err != nil {
		return fmt.Errorf("%v: %w", h.Command, err)
	}
	return nil
}

// wait waits for the reply to k. After a time-out the reply, should it still
// come, breaks the connection, as it does in QEMU.
func (c *Client) wait(k *call) ([]byte, error) {
	timeout := time.NewTimer(c.timeout)
	defer timeout.Stop()
	select {
	case <-k.done:
	case <-timeout.C:
		if c.forget(k) {
			return nil, fmt.Errorf("%v: no reply in %v: %w", k.cmd, c.timeout, os.ErrDeadlineExceeded)
		}
		<-k.done
	}
	return k.reply, k.err
}

// forget tells whether k was still waiting.
func (c *Client) forget(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[k.id] != k {
		return false
	}
	delete(c.pending, k.id)
	return true
}

// end closes the connection for the reason err, and fails all that wait.
func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.conn.Close()
	for id, k := range c.pending {
		k.err = fmt.Errorf("%v: %w", k.cmd, err)
		close(k.done)
		delete(c.pending, id)
	}
}

// receive takes messages from the server until the connection ends.
func (c *Client) receive() {
	defer close(c.done)
	defer close(c.commands)
	oob := make([]byte, unix.CmsgSpace(4*scmMaxFD))
	for {
		if err := c.receiveOne(oob); err != nil {
			c.end(err)
			return
		}
	}
}

func (c *Client) receiveOne(oob []byte) error {
	h, fds, err := receiveHeader(c.conn, oob)
	if err != nil {
		return err
	}
	defer func() { closeAll(fds) }()
	switch h.Flags & FlagTypeMask {
	case FlagReply:
		return c.receiveReply(h, fds)
	case FlagCommand:
		cmd := serverCommand{Header: h, payload: make([]byte, h.Size-headerSize), fds: len(fds)}
		if _, err := io.ReadFull(c.conn, cmd.payload); err != nil {
			return err
		}
		select {
		case c.commands <- cmd:
			return nil
		default:
			return fmt.Errorf("%w: more than %d commands at a time", ErrProtocol, maxQueued)
		}
	}
	return fmt.Errorf("%w: %v with flags %#x", ErrProtocol, h.Command, h.Flags)
}

// receiveHeader takes the 16 bytes with one read, as QEMU does, and what
// descriptors came with them.
func receiveHeader(conn *net.UnixConn, oob []byte) (Header, []int, error) {
	var head [headerSize]byte
	n, oobn, _, _, err := conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return Header{}, nil, err
	}
	fds := rights(oob[:oobn])
	if n < headerSize {
		closeAll(fds)
		return Header{}, nil, fmt.Errorf("%w: header in pieces, the first of %d bytes", ErrProtocol, n)
	}
	h := ParseHeader(head[:])
	if h.Size < headerSize || h.Size > maxMessage {
		closeAll(fds)
		return Header{}, nil, fmt.Errorf("%w: %v of %d bytes", ErrProtocol, h.Command, h.Size)
	}
	return h, fds, nil
}

func (c *Client) receiveReply(h Header, fds []int) error {
	c.mu.Lock()
	k := c.pending[h.ID]
	c.mu.Unlock()
	size := int(h.Size) - headerSize
	switch {
	case k == nil:
		return fmt.Errorf("%w: reply to %v with id %d, which does not wait for one", ErrProtocol, h.Command, h.ID)
	case k.cmd != h.Command:
		return fmt.Errorf("%w: reply to %v is one to %v", ErrProtocol, k.cmd, h.Command)
	case h.Flags&^FlagError != FlagReply:
		return fmt.Errorf("%w: reply to %v with flags %#x", ErrProtocol, h.Command, h.Flags)
	case h.Flags&FlagError != 0 && size != 0:
		return fmt.Errorf("%w: error reply to %v with a payload of %d bytes", ErrProtocol, h.Command, size)
	case size > k.limit:
		return fmt.Errorf("%w: reply to %v has %d bytes, its buffer %d", ErrProtocol, h.Command, size, k.limit)
	case len(fds) > 1 || len(fds) == 1 && h.Command != CmdGetRegionInfo && !k.keep:
		return fmt.Errorf("%w: reply to %v with %d descriptors", ErrProtocol, h.Command, len(fds))
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(c.conn, payload); err != nil {
		return err
	}
	if !c.forget(k) {
		return fmt.Errorf("%w: reply to %v came too late", ErrProtocol, h.Command)
	}
	if k.reply = payload; h.Flags&FlagError != 0 {
		k.err = remoteError(h)
	} else if k.keep && len(fds) == 1 {
		k.file = os.NewFile(uintptr(fds[0]), h.Command.String())
		fds[0] = -1
	}
	close(k.done)
	return nil
}

// rights are the descriptors in a control message.
func rights(oob []byte) []int {
	var all []int
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
