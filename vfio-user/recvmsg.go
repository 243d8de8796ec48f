// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// recvmsg receives as net.UnixConn.ReadMsgUnix does, but without telling the
// scheduler of Go that a system call has begun: that wakes its monitor thread,
// which then looks every 20 µs whether the call takes long. It does not, and with
// a client that sends one small message after the other the monitor would take as
// much of a CPU as the device. Some calls it has to see: it sleeps until one when
// nothing is to do, and only while it is awake goroutines that work without a pause
// make room for others.
type recvmsg struct {
	hdr   unix.Msghdr
	iov   unix.Iovec
	n     int
	errno unix.Errno
	calls uint
	try   func(fd uintptr) (done bool)
}

// do waits for bytes, or for the deadline of the connection. At its end the error is
// io.EOF.
func (r *recvmsg) do(conn syscall.RawConn, p, oob []byte) (n, oobn, flags int, err error) {
	if r.try == nil {
		r.try = r.once
	}
	r.iov.Base = &p[0]
	r.iov.SetLen(len(p))
	r.hdr = unix.Msghdr{Iov: &r.iov, Control: &oob[0]}
	r.hdr.SetIovlen(1)
	r.hdr.SetControllen(len(oob))
	err = conn.Read(r.try)
	switch {
	case err != nil:
	case r.errno != 0:
		err = os.NewSyscallError("recvmsg", r.errno)
	case r.n == 0:
		err = io.EOF
	}
	if err != nil {
		return 0, 0, 0, err
	}
	return r.n, int(r.hdr.Controllen), int(r.hdr.Flags), nil
}

// seenEvery is how many calls come to one that the monitor sees.
const seenEvery = 64

// once does not block: sockets of package net never do.
func (r *recvmsg) once(fd uintptr) (done bool) {
	for {
		const flags = unix.MSG_CMSG_CLOEXEC | unix.MSG_DONTWAIT
		var n uintptr
		var errno unix.Errno
		if r.calls++; r.calls%seenEvery == 0 {
			n, _, errno = unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.hdr)), flags)
		} else {
			n, _, errno = unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.hdr)), flags)
		}
		if errno == unix.EINTR {
			continue
		}
		r.n, r.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}
