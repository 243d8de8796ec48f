// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// blockingFile gives write deadlines to a file that has none, as stdout: it is
// not made non-blocking, since who else has it open (stderr by 2>&1, the rest of
// a shell's pipeline) would see that. It is for one goroutine.
type blockingFile struct {
	file     *os.File
	deadline time.Time
}

// withDeadlines returns a writer to f that has write deadlines, where writing to f
// may wait for somebody.
func withDeadlines(f *os.File) io.Writer {
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() || f.SetWriteDeadline(time.Time{}) == nil {
		return f
	}
	return &blockingFile{file: f}
}

// SetWriteDeadline is os.File's.
func (f *blockingFile) SetWriteDeadline(t time.Time) error {
	f.deadline = t
	return nil
}

// Write waits until there is room. A pipe or socket that has some takes 4096
// bytes (PIPE_BUF) without waiting further; longer writes may block.
func (f *blockingFile) Write(b []byte) (int, error) {
	if err := f.waitForRoom(); err != nil {
		return 0, err
	}
	return f.file.Write(b)
}

func (f *blockingFile) waitForRoom() error {
	poll := []unix.PollFd{{Fd: int32(f.file.Fd()), Events: unix.POLLOUT}}
	for {
		timeout := -1
		if !f.deadline.IsZero() {
			timeout = int(max(0, time.Until(f.deadline)+time.Millisecond-1) / time.Millisecond)
		}
		switch n, err := unix.Poll(poll, timeout); {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return os.ErrDeadlineExceeded
		default: // room, or an error that the write tells
			return nil
		}
	}
}
