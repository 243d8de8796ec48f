// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// Case is one conversation.
type Case struct {
	Name string
	// Raw: the connection is as it was opened. Otherwise VERSION has been agreed
	// on with QEMU's text before the first step.
	Raw bool
	// Reference: the server must serve a Reference.
	Reference bool
	Steps     []Step
}

// Step is something sent and what must come of it.
type Step struct {
	Send  []byte // one message or several, or a part of one
	Split int    // bytes per write; 0 means all in one
	FDs   []FD   // sent with the first byte
	Want  []Want // the replies, in this order; none means that none may come
	// Checks are made after the replies.
	Checks []Check
	// Signal adds 1 to the eventfd of this name, before Send.
	Signal string
	// Closed: the server ends the connection after that.
	Closed bool
	// Reconnect drops the connection before Send and takes a new one, with
	// VERSION agreed on.
	Reconnect bool
}

// Want is a reply.
type Want struct {
	ID      uint16
	Command vfiouser.Command
	Errno   syscall.Errno // 0: success
	// Payload is compared if it is not nil; Check has a look of its own.
	Payload []byte
	Check   func(payload []byte) error
}

// FD is a descriptor to send. Several may have the same name: the last one is
// meant then.
type FD struct {
	Name string
	Kind FDKind
	// Value is what an eventfd starts with, and the first 8 bytes of a file.
	Value uint64
}

// FDKind says what to send.
type FDKind int

// The kinds of descriptors.
const (
	EventFD FDKind = iota // an eventfd
	Pipe                  // the write end of a pipe; Check.Hangup tells when it is closed
	File                  // a memfd of 64 KiB
)

// Check looks at something other than replies.
type Check struct {
	Name string // of a descriptor sent before
	// Count is what the eventfd has counted; it is read, and so set to 0.
	Count uint64
	// Hangup: the server has closed the pipe.
	Hangup bool
}

// patience is how long a reply or an event may take before the case has failed.
const patience = 10 * time.Second

// Run has the conversation with the server at path.
func (c Case) Run(ctx context.Context, path string) error {
	r := &runner{path: path, fds: make(map[string]int)}
	defer r.close()
	if err := r.connect(ctx, !c.Raw); err != nil {
		return fmt.Errorf("%s: connect: %w", c.Name, err)
	}
	closed := false
	for i, s := range c.Steps {
		if err := r.step(ctx, s); err != nil {
			return fmt.Errorf("%s: step %d: %w", c.Name, i, err)
		}
		closed = s.Closed
	}
	if closed {
		return nil
	}
	if err := r.alive(); err != nil {
		return fmt.Errorf("%s: afterwards: %w", c.Name, err)
	}
	return nil
}

type runner struct {
	path string
	conn *net.UnixConn
	fds  map[string]int
}

func (r *runner) close() {
	if r.conn != nil {
		r.conn.Close()
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
}

func (r *runner) connect(ctx context.Context, negotiate bool) error {
	if r.conn != nil {
		r.conn.Close()
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", r.path)
	if err != nil {
		return err
	}
	r.conn = conn.(*net.UnixConn)
	if !negotiate {
		return nil
	}
	return r.step(ctx, Step{Send: version(0, 0, vfiouser.QEMUCapabilities+"\x00"), Want: []Want{{Command: vfiouser.CmdVersion}}})
}

// alive sends one more command; its reply must be what comes next.
func (r *runner) alive() error {
	const id = 0xfffe
	w := Want{ID: id, Command: vfiouser.CmdDeviceGetInfo}
	send := Message(id, vfiouser.CmdDeviceGetInfo, 0, U32(16, 0, 0, 0))
	if _, err := r.conn.Write(send); err != nil {
		return err
	}
	h, _, err := r.reply()
	if err != nil {
		return err
	}
	if h.ID != w.ID || h.Command != w.Command {
		return fmt.Errorf("a reply that nobody waits for: %+v", h)
	}
	return nil
}

func (r *runner) step(ctx context.Context, s Step) error {
	if s.Reconnect {
		if err := r.connect(ctx, true); err != nil {
			return fmt.Errorf("reconnect: %w", err)
		}
	}
	if s.Signal != "" {
		if _, err := unix.Write(r.fds[s.Signal], binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
			return fmt.Errorf("signal %s: %w", s.Signal, err)
		}
	}
	if err := r.send(s); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	for _, w := range s.Want {
		h, payload, err := r.reply()
		if err != nil {
			return fmt.Errorf("reply to %v: %w", w.Command, err)
		}
		if err := w.match(h, payload); err != nil {
			return fmt.Errorf("reply to %v: %w", w.Command, err)
		}
	}
	for _, check := range s.Checks {
		if err := r.check(check); err != nil {
			return fmt.Errorf("%s: %w", check.Name, err)
		}
	}
	if s.Closed {
		if h, _, err := r.reply(); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("connection goes on: %+v, %v", h, err)
		}
	}
	return nil
}

func (r *runner) send(s Step) error {
	var fds, mine []int
	defer func() {
		for _, fd := range mine {
			unix.Close(fd)
		}
	}()
	for _, f := range s.FDs {
		send, keep, err := f.open()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		fds = append(fds, send)
		if send != keep {
			mine = append(mine, send)
		}
		if old, ok := r.fds[f.Name]; ok {
			unix.Close(old)
		}
		r.fds[f.Name] = keep
	}
	rest, size := s.Send, s.Split
	if size == 0 {
		size = len(rest)
	}
	for first := true; len(rest) > 0; first = false {
		n := min(size, len(rest))
		var oob []byte
		if first && len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		n, _, err := r.conn.WriteMsgUnix(rest[:n], oob, nil)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// open makes the descriptor to send and the one to keep.
func (f FD) open() (send, keep int, err error) {
	switch f.Kind {
	case Pipe:
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return 0, 0, err
		}
		return p[1], p[0], nil
	case File:
		fd, err := unix.MemfdCreate(f.Name, unix.MFD_CLOEXEC)
		if err != nil {
			return 0, 0, err
		}
		content := make([]byte, 64<<10)
		binary.LittleEndian.PutUint64(content, f.Value)
		if _, err := unix.Pwrite(fd, content, 0); err != nil {
			unix.Close(fd)
			return 0, 0, err
		}
		return fd, fd, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil && f.Value != 0 {
		_, err = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, f.Value))
	}
	return fd, fd, err
}

// reply reads a message, as QEMU does: the header with one read.
func (r *runner) reply() (vfiouser.Header, []byte, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return vfiouser.Header{}, nil, err
	}
	var head [16]byte
	oob := make([]byte, 128)
	n, oobn, _, _, err := r.conn.ReadMsgUnix(head[:], oob)
	if err != nil {
		return vfiouser.Header{}, nil, err
	}
	if n < len(head) {
		return vfiouser.Header{}, nil, fmt.Errorf("header in pieces, the first of %d bytes", n)
	}
	if oobn != 0 {
		return vfiouser.Header{}, nil, fmt.Errorf("descriptors in a reply")
	}
	h := vfiouser.ParseHeader(head[:])
	if h.Size < 16 || h.Size > 2<<20 {
		return h, nil, fmt.Errorf("size %d", h.Size)
	}
	payload := make([]byte, h.Size-16)
	_, err = io.ReadFull(r.conn, payload)
	return h, payload, err
}

func (w Want) match(h vfiouser.Header, payload []byte) error {
	flags := vfiouser.FlagReply
	if w.Errno != 0 {
		flags |= vfiouser.FlagError
	}
	if h.ID != w.ID || h.Command != w.Command || h.Flags != flags || h.Errno != uint32(w.Errno) {
		return fmt.Errorf("got %+v, want id %d, flags %#x, errno %d", h, w.ID, flags, w.Errno)
	}
	if w.Errno != 0 && len(payload) != 0 {
		return fmt.Errorf("error with a payload of %d bytes", len(payload))
	}
	if w.Payload != nil && !bytes.Equal(payload, w.Payload) {
		return fmt.Errorf("payload % x, want % x", payload, w.Payload)
	}
	if w.Check != nil {
		return w.Check(payload)
	}
	return nil
}

func (r *runner) check(c Check) error {
	fd, ok := r.fds[c.Name]
	if !ok {
		return fmt.Errorf("no such descriptor")
	}
	if c.Hangup {
		p := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := poll(p, patience); err != nil || n == 0 {
			return fmt.Errorf("server keeps the descriptor open (%v)", err)
		}
		return nil
	}
	if c.Count != 0 {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := poll(p, patience); err != nil || n == 0 {
			return fmt.Errorf("eventfd is not signalled (%v)", err)
		}
	}
	b := make([]byte, 8)
	_, err := unix.Read(fd, b)
	if err != nil && err != unix.EAGAIN {
		return err
	}
	if got := binary.NativeEndian.Uint64(b); got != c.Count {
		return fmt.Errorf("eventfd counted %d, want %d", got, c.Count)
	}
	return nil
}

func poll(p []unix.PollFd, d time.Duration) (int, error) {
	for end := time.Now().Add(d); ; {
		n, err := unix.Poll(p, int(time.Until(end).Milliseconds())+1)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Message builds a message.
func Message(id uint16, cmd vfiouser.Command, flags uint32, payload ...[]byte) []byte {
	body := slices.Concat(payload...)
	b := make([]byte, 16, 16+len(body))
	vfiouser.Header{ID: id, Command: cmd, Size: uint32(16 + len(body)), Flags: flags}.Put(b)
	return append(b, body...)
}

// U32 puts numbers behind each other.
func U32(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// U64 puts numbers behind each other.
func U64(v ...uint64) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}
