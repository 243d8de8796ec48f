// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"io"
	"syscall"

	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

// forwardInput copies src to the command until src ends, the command does not
// want more, or stop is closed. It reads only what the command's window has room
// for, and of a descriptor nothing after the command's end: what is left belongs
// to whoever reads it next.
//
// A Read of anything without a descriptor cannot be interrupted; its goroutine may stay in
// it until it returns.
func forwardInput(src io.Reader, dst *wire.Writer, stop <-chan struct{}) error {
	defer dst.Close()
	wait := func() (bool, error) { return true, nil }
	if c, ok := src.(syscall.Conn); ok {
		w, err := newReadWaiter(c, stop)
		if err != nil {
			return err
		}
		defer w.close()
		wait = w.wait
	}
	buf := make([]byte, wire.MaxPayload)
	for {
		if err := dst.Wait(); err != nil {
			return inputError(err)
		}
		if ok, err := wait(); !ok || err != nil {
			return err
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return inputError(err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// inputError hides the ways in which a command's end ends its input.
func inputError(err error) error {
	if errors.Is(err, wire.ErrBroken) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// readWaiter waits until a descriptor can be read, or stop is closed.
type readWaiter struct {
	src   syscall.Conn
	wake  int // eventfd
	close func()
}

func newReadWaiter(src syscall.Conn, stop <-chan struct{}) (*readWaiter, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	finished := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-stop:
			_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		case <-finished:
		}
	}()
	return &readWaiter{src: src, wake: wake, close: func() {
		close(finished)
		<-stopped
		unix.Close(wake)
	}}, nil
}

// wait returns true if a read will not block, false if stop was closed.
func (w *readWaiter) wait() (ok bool, err error) {
	conn, err := w.src.SyscallConn()
	if err != nil {
		return false, err
	}
	controlErr := conn.Control(func(fd uintptr) {
		for {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
			if _, err = unix.Poll(fds, -1); err == unix.EINTR {
				continue
			}
			ok = err == nil && fds[1].Revents == 0
			return
		}
	})
	return ok, errors.Join(controlErr, err)
}
