// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventfds adds 1 to the eventfds of clients, from any goroutine.
//
// A write will not do: the client has the same file open. It can take away
// O_NONBLOCK and fill the counter at any moment, also between a poll and the
// write, which then sleeps for as long as the client likes. So the kernel signals:
// it does that at the end of an asynchronous read of nothing, by a function that
// cannot sleep, and leaves a full counter full. The reads are over when io_submit
// returns; all that remains of them are entries in a ring, to be taken out now and
// then.
//
// Where the kernel has no such reads for us there is the write, and a rescue from
// it.
type eventfds struct {
	aio  uintptr // aio_context_t; 0: none
	zero int     // /dev/zero, read by 0 bytes

	mu   sync.Mutex
	done [aioReads]ioEvent // what is taken out of the ring
}

const (
	// aioReads is how many reads the kernel must have room for.
	aioReads = 256
	// aioTries bounds the attempts to find room. Each finds the ring full only if
	// others have filled it since the last.
	aioTries = 100
	// stuckAfter is how long a write to an eventfd may take.
	stuckAfter = 100 * time.Millisecond
)

// iocb and ioEvent are the kernel's (include/uapi/linux/aio_abi.h).
type iocb struct {
	_               uint64    // aio_data
	_               [2]uint32 // aio_key, aio_rw_flags
	opcode          uint16
	_               int16 // aio_reqprio
	fd              uint32
	_               [2]uint64 // aio_buf, aio_nbytes
	_               int64     // aio_offset
	_               uint64    // aio_reserved2
	flags, signalFD uint32
}

type ioEvent [4]uint64 // data, obj, res, res2

const (
	iocbCmdPread  = 0
	iocbFlagResFD = 1
)

// newEventFDs also works without asynchronous reads: the error says why it has
// to.
func newEventFDs() (*eventfds, error) {
	e := &eventfds{zero: -1}
	zero, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return e, fmt.Errorf("open /dev/zero: %w", err)
	}
	var aio uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, aioReads, uintptr(unsafe.Pointer(&aio)), 0); errno != 0 {
		unix.Close(zero)
		return e, fmt.Errorf("io_setup: %w", errno)
	}
	e.aio, e.zero = aio, zero
	return e, nil
}

// close gives back what newEventFDs took. Nobody may signal any more.
func (e *eventfds) close() {
	if e.aio != 0 {
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, e.aio, 0, 0) // nothing is under way
		unix.Close(e.zero)
		e.aio = 0
	}
}

// signal adds 1, and leaves a full eventfd full. It fails if the client had to be
// kept from blocking it: who signals the same eventfd again may be delayed again.
func (e *eventfds) signal(fd int) error {
	if e.aio != 0 {
		for range aioTries {
			if e.submit(fd) != unix.EAGAIN {
				return nil // done, or no eventfd
			}
			e.reap()
		}
	}
	return pollAndWrite(fd)
}

func (e *eventfds) submit(fd int) unix.Errno {
	read := iocb{opcode: iocbCmdPread, fd: uint32(e.zero), flags: iocbFlagResFD, signalFD: uint32(fd)}
	list := [1]*iocb{&read}
	// It does not wait, and so is nothing for Go's scheduler to know of: see recvmsg.
	_, _, errno := unix.RawSyscall(unix.SYS_IO_SUBMIT, e.aio, 1, uintptr(unsafe.Pointer(&list)))
	return errno
}

// reap empties the ring, without waiting.
func (e *eventfds) reap() {
	e.mu.Lock()
	defer e.mu.Unlock()
	var now unix.Timespec
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, e.aio, 0, aioReads, uintptr(unsafe.Pointer(&e.done)), uintptr(unsafe.Pointer(&now)), 0)
		if errno != 0 || n < aioReads {
			return
		}
	}
}

// pollAndWrite does without asynchronous reads.
func pollAndWrite(fd int) error {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(p[:], 0); err != nil || n == 0 {
		return nil // full
	}
	return writeOne(fd)
}

var errStuck = errors.New("client blocks its eventfd")

// writeOne adds 1 with a write, which a full eventfd may block. The rescue is to
// empty that.
func writeOne(fd int) error {
	var mu sync.Mutex
	written, stuck := false, false
	var rescue *time.Timer
	mu.Lock()
	rescue = time.AfterFunc(stuckAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if written {
			return // and fd may be another file by now
		}
		stuck = true
		drain(fd)
		rescue.Reset(stuckAfter) // the client may have been quicker
	})
	mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, err := unix.Write(fd, one[:])
	for err == unix.EINTR {
		_, err = unix.Write(fd, one[:])
	}
	mu.Lock()
	defer mu.Unlock()
	written = true
	rescue.Stop()
	if stuck {
		return errStuck
	}
	return nil
}

// drain reads an eventfd, without waiting, whatever its mode is.
func drain(fd int) {
	var count [8]byte
	_, _ = unix.Preadv2(fd, [][]byte{count[:]}, -1, unix.RWF_NOWAIT)
}
