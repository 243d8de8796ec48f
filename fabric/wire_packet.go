// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// packetConn is what Go's sockets and files of a TAP interface have in common.
type packetConn interface {
	io.ReadCloser
	syscall.Conn
	SetWriteDeadline(time.Time) error
}

// packetWire sends and gets one frame a packet, as it is.
type packetWire struct {
	conn packetConn
	raw  syscall.RawConn

	frame  []byte
	err    error
	once   func(fd uintptr) bool // send frame, or find that it would block
	until  func(fd uintptr) bool // the same, but wait
	failed atomic.Uint64         // frames the kernel refused

	refused func(error)   // hears why, but not twice in a row
	told    syscall.Errno // the reason told last
}

// newPacketWire makes a wire of a descriptor in non-blocking mode; send is the
// system call, refused hears why it does not take frames.
func newPacketWire(c packetConn, send func(fd int, frame []byte) error, refused func(error)) (*packetWire, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	w := &packetWire{conn: c, raw: raw, refused: refused}
	try := func(fd uintptr) {
		for {
			if w.err = send(int(fd), w.frame); w.err != unix.EINTR {
				return
			}
		}
	}
	w.once = func(fd uintptr) bool {
		try(fd)
		return true
	}
	w.until = func(fd uintptr) bool {
		try(fd)
		return w.err != unix.EAGAIN
	}
	return w, nil
}

// refuse counts a frame that was not sent. That the descriptor is closed is no
// errno, and not told.
func (w *packetWire) refuse(err error) {
	w.failed.Add(1)
	if errno, ok := err.(syscall.Errno); ok && errno != w.told {
		w.told = errno
		w.refused(errno)
	}
}

// record splits the first frame off.
func record(records []byte) (frame, rest []byte) {
	n := lengthLen + binary.BigEndian.Uint32(records)
	return records[lengthLen:n], records[n:]
}

func (w *packetWire) trySend(records []byte) int {
	rest := records
	for len(rest) > 0 {
		var next []byte
		w.frame, next = record(rest)
		if err := w.raw.Write(w.once); err != nil {
			w.err = err
		}
		if w.err == unix.EAGAIN {
			break
		}
		if w.err != nil {
			w.refuse(w.err)
		}
		rest = next
	}
	return len(records) - len(rest)
}

// writablePoll is how often a full peer is tried again without being told: the
// kernel tells that an unconnected unix socket is writable when one of its own
// datagrams was read, but the peer's queue may be full of others'
// (net/unix/af_unix.c:unix_dgram_sendmsg).
const writablePoll = 5 * time.Millisecond

func (w *packetWire) send(records []byte, took func(n int)) {
	for len(records) > 0 {
		w.frame, records = record(records)
		for {
			w.err = nil
			err := w.raw.Write(w.once)
			if err == nil && w.err == unix.EAGAIN {
				if w.conn.SetWriteDeadline(time.Now().Add(writablePoll)) != nil {
					break
				}
				err = w.raw.Write(w.until)
				w.conn.SetWriteDeadline(time.Time{})
				if isTimeout(err) {
					continue
				}
			}
			if err == nil {
				err = w.err
			}
			if err != nil {
				w.refuse(err)
			}
			break
		}
		took(lengthLen + len(w.frame))
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// receive hands frames to deliver until the descriptor is closed or gone.
func (w *packetWire) receive(deliver func(frame []byte)) error {
	buf := make([]byte, MaxFrame+1) // what is longer is seen to be
	for {
		n, err := w.conn.Read(buf)
		switch {
		case err == nil:
			deliver(buf[:n])
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EINTR):
		default:
			return err
		}
	}
}

func (w *packetWire) Close() error { return w.conn.Close() }
