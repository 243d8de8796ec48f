// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sender writes whole messages to a socket, for several goroutines.
type sender struct {
	sock *net.UnixConn
	// timeout is how long a client may leave the socket full. A write has at least
	// half of it: the deadline is not renewed for every message.
	timeout time.Duration

	ended atomic.Bool

	mu       sync.Mutex
	deadline time.Time
}

// end makes all reads and writes return, for good. The socket stays open: bytes
// already there can still be read, so a reader looks at ended too.
func (s *sender) end() {
	s.ended.Store(true)
	_ = s.sock.CloseRead() // these fail only for a socket that has ended
	_ = s.sock.CloseWrite()
}

// send writes the message b with one write, and the descriptor of f, if there is
// a file, with its first byte. After an error nobody knows how much the client
// got, so the socket is ended.
func (s *sender) send(b []byte, f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.extend()
	if err == nil {
		err = s.write(b, f)
	}
	if err != nil {
		s.end()
	}
	return err
}

func (s *sender) extend() error {
	now := time.Now()
	if s.deadline.Sub(now) >= s.timeout/2 {
		return nil
	}
	s.deadline = now.Add(s.timeout)
	return s.sock.SetWriteDeadline(s.deadline)
}

func (s *sender) write(b []byte, f *os.File) error {
	if f == nil {
		_, err := s.sock.Write(b)
		return err
	}
	return withFD(f, func(fds []int) error {
		n, _, err := s.sock.WriteMsgUnix(b, unix.UnixRights(fds...), nil)
		if err == nil && n < len(b) {
			_, err = s.sock.Write(b[n:]) // the descriptor went with the first bytes
		}
		return err
	})
}

// withFD calls do with the descriptor of f, which f keeps open meanwhile, and
// leaves the mode of f alone, which File.Fd would not.
func withFD(f *os.File, do func(fds []int) error) error {
	if f == nil {
		return do(nil)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = do([]int{int(fd)}) }); e != nil {
		return e
	}
	return err
}
