// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"golang.org/x/sys/unix"
)

// patience is how long a reply or an event may take before the case has failed.
// QEMU gives up after 5 s (hw/vfio-user/pci.c, x-msg-timeout); a busy host has
// some more.
const patience = 10 * time.Second

// message is one that came, its descriptors still open.
type message struct {
	vfiouser.Header
	payload []byte
	fds     []int
}

func (m *message) close() {
	for _, fd := range m.fds {
		unix.Close(fd)
	}
	m.fds = nil
}

// wire is one end of a stream socket. It is a plain descriptor, because how many
// bytes and descriptors one receive gets is what is looked at here.
type wire int

func dial(path string) (wire, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// A server that does not read must not hold the sender for ever.
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		unix.Close(fd)
		return -1, err
	}
	for {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err == nil {
			return wire(fd), nil
		}
		if err != unix.EINTR {
			unix.Close(fd)
			return -1, err
		}
	}
}

// send writes b in pieces of size bytes, fds with the first.
func (w wire) send(b []byte, size int, fds []int) error {
	if size == 0 {
		size = len(b)
	}
	for first := true; len(b) > 0; first = false {
		var oob []byte
		if first && len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		n, err := unix.SendmsgN(int(w), b[:min(size, len(b))], oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		b = b[n:]
	}
	return nil
}

var errSplit = errors.New("header in pieces")

// receive takes one message as QEMU does: the header with one receive, the rest
// after it. io.EOF is the end of the connection.
func (w wire) receive(ctx context.Context) (*message, error) {
	m := &message{}
	var head [16]byte
	n, err := w.read(ctx, head[:], m)
	if err != nil {
		return nil, err
	}
	if n < len(head) {
		m.close()
		return nil, fmt.Errorf("%w, the first of %d bytes", errSplit, n)
	}
	m.Header = vfiouser.ParseHeader(head[:])
	if m.Size < 16 || m.Size > 2<<20 {
		m.close()
		return nil, fmt.Errorf("%v of %d bytes", m.Command, m.Size)
	}
	m.payload = make([]byte, m.Size-16)
	with := len(m.fds)
	for got := 0; got < len(m.payload); got += n {
		if n, err = w.read(ctx, m.payload[got:], m); err != nil {
			m.close()
			return nil, fmt.Errorf("payload of %v: %w", m.Command, err)
		}
	}
	if len(m.fds) != with {
		m.close()
		return nil, errors.New("descriptors behind the header of their message")
	}
	return m, nil
}

func (w wire) read(ctx context.Context, p []byte, m *message) (int, error) {
	if ok, err := poll(ctx, int(w)); err != nil || !ok {
		return 0, errors.Join(err, errors.New("nothing came in time"))
	}
	oob := make([]byte, unix.CmsgSpace(4*64))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(int(w), p, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		fds, err := rights(oob[:oobn])
		m.fds = append(m.fds, fds...)
		if err != nil {
			return 0, err
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return 0, errors.New("more descriptors than a message can have")
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		got, e := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, got...), errors.Join(err, e)
	}
	return fds, err
}

// empty tells whether nothing waits to be received.
func (w wire) empty() bool {
	p := []unix.PollFd{{Fd: int32(w), Events: unix.POLLIN}}
	n, _ := unix.Poll(p, 0)
	return n <= 0 || p[0].Revents&unix.POLLIN == 0
}

// poll waits until one of the descriptors can be read or is at its end.
func poll(ctx context.Context, fds ...int) (bool, error) {
	p := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		p[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	for end := time.Now().Add(patience); ; {
		n, err := unix.Poll(p, 100) // short, for ctx
		switch {
		case n > 0:
			return true, nil
		case err != nil && err != unix.EINTR:
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case time.Now().After(end):
			return false, nil
		}
	}
}
