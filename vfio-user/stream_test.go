// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// streamPair gives a stream and the socket that feeds it. Everything is written
// before anything is read, so that what one recvmsg returns is the kernel's
// choice alone.
func streamPair(t *testing.T) (*stream, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	s := newStream(ends[0], new(releaser))
	t.Cleanup(s.close)
	return s, ends[1]
}

func feed(t *testing.T, conn *net.UnixConn, b []byte, fds int) {
	t.Helper()
	var oob []byte
	if fds > 0 {
		oob = unix.UnixRights(slices.Repeat([]int{0}, fds)...)
	}
	if n, _, err := conn.WriteMsgUnix(b, oob, nil); err != nil || n != len(b) {
		t.Fatalf("wrote %d of %d: %v", n, len(b), err)
	}
}

func testMessage(id uint16, size int) []byte {
	b := make([]byte, size)
	Header{ID: id, Command: CmdRegionWrite, Size: uint32(size)}.Put(b)
	for i := headerSize; i < size; i++ {
		b[i] = byte(i * int(id))
	}
	return b
}

func expect(t *testing.T, s *stream, want []byte, fds int, lost error) {
	t.Helper()
	m, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	if m.Header != ParseHeader(want) || !slices.Equal(m.payload, want[headerSize:]) {
		t.Errorf("message %+v with %d bytes, want %+v", m.Header, len(m.payload), ParseHeader(want))
	}
	if len(m.fds) != fds || m.fdsLost != lost {
		t.Errorf("message %d has %d descriptors, lost: %v; want %d, %v", m.ID, len(m.fds), m.fdsLost, fds, lost)
	}
}

// TestStreamDescriptors: descriptors stay with their message, also when it moves
// to the front of the buffer or to a larger one.
func TestStreamDescriptors(t *testing.T) {
	s, conn := streamPair(t)
	sizes := []int{16, 40000, 60000, 17, 30000}
	fds := []int{1, 0, 2, 3, 1}
	for i, size := range sizes {
		feed(t, conn, testMessage(uint16(i+1), size), fds[i])
	}
	for i, size := range sizes {
		expect(t, s, testMessage(uint16(i+1), size), fds[i], nil)
	}
	feed(t, conn, testMessage(1, 20000), 0)
	feed(t, conn, testMessage(2, 100000), 2)
	expect(t, s, testMessage(1, 20000), 0, nil)
	expect(t, s, testMessage(2, 100000), 2, nil)
}

// TestStreamLosesDescriptors: a message whose descriptors found no room says so,
// and no other does.
func TestStreamLosesDescriptors(t *testing.T) {
	s, conn := streamPair(t)
	a, b, c := testMessage(1, 100), testMessage(2, 100), testMessage(3, 100)
	feed(t, conn, a[:50], maxHeldFDs)
	feed(t, conn, a[50:], 0)
	feed(t, conn, b, 1)
	feed(t, conn, c, 1)
	expect(t, s, a, maxHeldFDs, nil)
	expect(t, s, b, 0, errNoRoomForFD)
	expect(t, s, c, 1, nil)

	feed(t, conn, a[:50], maxHeldFDs+1)
	feed(t, conn, a[50:99], 5)
	feed(t, conn, a[99:], 5)
	feed(t, conn, b, 0)
	expect(t, s, a, maxHeldFDs, errNoRoomForFD)
	expect(t, s, b, 0, nil)
}

func TestLostDescriptorsAreAnError(t *testing.T) {
	if err := checkMessage(&request{fdsLost: errNoRoomForFD}); !errors.Is(err, unix.EMFILE) {
		t.Errorf("checkMessage: %v, want EMFILE", err)
	}
}

// TestStreamTakesNoSocket: the first loss counts for its message only.
func TestStreamTakesNoSocket(t *testing.T) {
	s, conn := streamPair(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := testMessage(1, 100), testMessage(2, 100)
	if _, _, err := conn.WriteMsgUnix(a, unix.UnixRights(pair[0], 0), nil); err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[0])
	feed(t, conn, b, 1)
	expect(t, s, a, 1, errSocketFD)
	// It is closed, also before its message is complete.
	if n, err := unix.Read(pair[1], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("other end reads %d, %v", n, err)
	}
	unix.Close(pair[1])
	expect(t, s, b, 1, nil)
}

// TestStreamPatience: descriptors are not held for a message that never ends, and
// whoever sends without them may take his time.
func TestStreamPatience(t *testing.T) {
	s, conn := streamPair(t)
	s.patience = time.Hour
	a := testMessage(1, 100)
	feed(t, conn, a[:50], 1)
	feed(t, conn, a[50:], 0)
	expect(t, s, a, 1, nil)
	if s.hurried {
		t.Error("deadline stays when the message is complete")
	}
	s.patience = time.Millisecond
	feed(t, conn, a[:8], 1)
	if _, err := s.next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("incomplete message: %v, want a deadline", err)
	}
}
