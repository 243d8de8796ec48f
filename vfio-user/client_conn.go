// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// call is a command that waits for its reply.
type call struct {
	cmd   Command
	limit int // longest payload that the reply may have
	id    uint16
	reply []byte
	err   error
	done  chan struct{} // closed when reply and err are valid
}

func newCall(cmd Command, limit int) *call {
	return &call{cmd: cmd, limit: limit, done: make(chan struct{})}
}

// negotiate exchanges VERSION. The reply has to fit into a buffer of the
// request's length, as in QEMU.
func (c *Client) negotiate(capabilities string) error {
	req := binary.LittleEndian.AppendUint16(nil, versionMajor)
	req = binary.LittleEndian.AppendUint16(req, versionMinor)
	req = append(req, capabilities...)
	req = append(req, 0)
	reply, err := c.call(CmdVersion, req, nil, len(req))
	if err != nil {
		return err
	}
	c.server, err = parseAnswer(reply)
	if err != nil {
		return fmt.Errorf("%v: %w: %w", CmdVersion, ErrProtocol, err)
	}
	return nil
}

func parseAnswer(p []byte) (serverLimits, error) {
	limits := serverLimits{msgFDs: defaultMsgFDs}
	if len(p) < 4 {
		return limits, fmt.Errorf("payload of %d bytes", len(p))
	}
	major, minor := binary.LittleEndian.Uint16(p), binary.LittleEndian.Uint16(p[2:])
	if major != versionMajor || minor != versionMinor {
		return limits, fmt.Errorf("server has version %d.%d", major, minor)
	}
	text := p[4:]
	if len(text) == 0 {
		return limits, nil
	}
	if bytes.IndexByte(text, 0) != len(text)-1 {
		return limits, fmt.Errorf("JSON text %q does not end with its only NUL", text)
	}
	var answer struct {
		Capabilities struct {
			MaxMsgFDs     *uint64         `json:"max_msg_fds"`
			DataTransfer  *uint64         `json:"max_data_xfer_size"`
			MaxDMAMaps    *uint64         `json:"max_dma_maps"`
			PageSizes     *uint64         `json:"pgsizes"`
			WriteMultiple bool            `json:"write_multiple"`
			Migration     json.RawMessage `json:"migration"`
		} `json:"capabilities"`
	}
	dec := json.NewDecoder(bytes.NewReader(text[:len(text)-1]))
	dec.DisallowUnknownFields() // QEMU warns of spurious capabilities
	if err := dec.Decode(&answer); err != nil {
		return limits, fmt.Errorf("JSON text %q: %v", text, err)
	}
	caps := &answer.Capabilities
	if n := caps.MaxMsgFDs; n != nil {
		if *n > 16 { // QEMU's own limit
			return limits, fmt.Errorf("max_msg_fds %d", *n)
		}
		limits.msgFDs = max(int(*n), 1)
	}
	// QEMU reads config space in one piece and has a limit of its own.
	if n := caps.DataTransfer; n != nil && (*n < pageSize || *n > 64<<20) {
		return limits, fmt.Errorf("max_data_xfer_size %d", *n)
	}
	if n := caps.PageSizes; n != nil && !isPages(*n) {
		return limits, fmt.Errorf("pgsizes %#x", *n)
	}
	limits.writeMultiple = caps.WriteMultiple
	return limits, nil
}

// call sends a command and waits for the payload of its reply, of limit bytes at
// most.
func (c *Client) call(cmd Command, payload []byte, fds []int, limit int) ([]byte, error) {
	k := newCall(cmd, limit)
	if err := c.start(k, payload, fds); err != nil {
		return nil, err
	}
	return c.wait(k)
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
	err := c.transmit(Header{ID: k.id, Command: k.cmd}, payload, fds)
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
	return c.transmit(Header{ID: c.lastID, Command: cmd, Flags: FlagNoReply}, payload, nil)
}

// transmit writes one message, with c.send held.
func (c *Client) transmit(h Header, payload []byte, fds []int) error {
	h.Size = uint32(headerSize + len(payload))
	c.out = append(c.out[:0], make([]byte, headerSize)...)
	h.Put(c.out)
	c.out = append(c.out, payload...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.conn.WriteMsgUnix(c.out, oob, nil)
	if err == nil && n < len(c.out) {
		_, err = c.conn.Write(c.out[n:]) // the descriptors went with the first bytes
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
	oob := make([]byte, unix.CmsgSpace(4*scmMaxFD))
	for {
		if err := c.receiveOne(oob); err != nil {
			c.end(err)
			return
		}
	}
}

func (c *Client) receiveOne(oob []byte) error {
	var head [headerSize]byte
	n, oobn, _, _, err := c.conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return err
	}
	fds := closeRights(oob[:oobn])
	if n < headerSize {
		return fmt.Errorf("%w: header in pieces, the first of %d bytes", ErrProtocol, n)
	}
	h := ParseHeader(head[:])
	if h.Size < headerSize || h.Size > maxMessage {
		return fmt.Errorf("%w: %v of %d bytes", ErrProtocol, h.Command, h.Size)
	}
	switch h.Flags & FlagTypeMask {
	case FlagReply:
		return c.receiveReply(h, fds)
	case FlagCommand:
		return c.refuse(h)
	}
	return fmt.Errorf("%w: %v with flags %#x", ErrProtocol, h.Command, h.Flags)
}

func (c *Client) receiveReply(h Header, fds int) error {
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
	case fds > 1 || fds == 1 && h.Command != CmdGetRegionInfo:
		return fmt.Errorf("%w: reply to %v with %d descriptors", ErrProtocol, h.Command, fds)
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
	}
	close(k.done)
	return nil
}

// refuse answers a command of the server. Like QEMU it knows none but DMA by
// message, which this client does not do.
func (c *Client) refuse(h Header) error {
	if _, err := io.CopyN(io.Discard, c.conn, int64(h.Size)-headerSize); err != nil {
		return err
	}
	if h.Flags&FlagNoReply != 0 {
		return nil
	}
	c.send.Lock()
	defer c.send.Unlock()
	return c.transmit(Header{ID: h.ID, Command: h.Command, Flags: FlagReply | FlagError, Errno: uint32(unix.ENOSYS)}, nil, nil)
}

// closeRights closes received descriptors and tells how many there were: the
// client has no use for any.
func closeRights(oob []byte) int {
	n := 0
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			closeAll(fds)
			n += len(fds)
		}
	}
	return n
}
