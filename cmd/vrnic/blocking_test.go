// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe as a shell makes it, which blocks, is left that way and has a deadline.
func TestBlockingPipeDeadline(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	reader, writer := os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fds[1]), "writer")
	defer reader.Close()
	defer writer.Close()
	f, ok := withDeadlines(writer).(*blockingFile)
	if !ok {
		t.Fatal("the pipe was not given deadlines")
	}
	piece := make([]byte, 4096)
	written := 0
	for {
		if err := f.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := f.Write(piece)
		written += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if size, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETPIPE_SZ, 0); err != nil || written != size {
		t.Errorf("%d bytes before the deadline, the pipe has %d, %v", written, size, err)
	}
	if _, err := reader.Read(piece); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write(piece); err != nil || n != len(piece) { // room is room, even late
		t.Errorf("after the reader went on: %d, %v", n, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[1]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	reader.Close()
	if _, err := f.Write(piece); !errors.Is(err, unix.EPIPE) {
		t.Errorf("the reader is gone: %v", err)
	}
}
