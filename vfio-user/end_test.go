// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// held is a device whose writes wait.
type held struct {
	*counter
	entered, leave chan struct{} // an entry per write; closed to let all go
	writes         atomic.Int32
}

func newHeld() *held {
	return &held{counter: newCounter(), entered: make(chan struct{}, 1), leave: make(chan struct{})}
}

func (d *held) WriteRegion(int, uint64, []byte) error {
	d.writes.Add(1)
	select {
	case d.entered <- struct{}{}:
	default:
	}
	<-d.leave
	return nil
}

// endDuring lets the server end while the device does the first write of what
// was sent, and gives the number of writes that the device saw.
func endDuring(t *testing.T, send func(net.Conn)) int {
	t.Helper()
	dev := newHeld()
	path, stop := serveDevice(t, dev, vfiouser.Options{})
	conn := rawClient(t, path)
	send(conn)
	<-dev.entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// The client sees the end when the server has seen it.
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes at the end", n)
	}
	close(dev.leave)
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
	return int(dev.writes.Load())
}

// TestEndAmidWrites: neither a long message nor many messages that have arrived
// hold up the end of the connection.
func TestEndAmidWrites(t *testing.T) {
	entry := append(conformance.U64(0), conformance.U32(0, 4, 1, 0)...)
	multi := conformance.Message(1, vfiouser.CmdRegionWriteMulti, vfiouser.FlagNoReply, conformance.U64(100), bytes.Repeat(entry, 100))
	single := conformance.Message(1, vfiouser.CmdRegionWrite, vfiouser.FlagNoReply, conformance.U64(0), conformance.U32(0, 4, 1))
	for name, b := range map[string][]byte{"one message": multi, "messages": bytes.Repeat(single, 100)} {
		n := endDuring(t, func(conn net.Conn) {
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
		})
		if n != 1 {
			t.Errorf("%s: %d writes, want 1", name, n)
		}
	}
}

// slowToClose is a TCP socket whose last close waits for data to leave, for a
// minute and in vain.
func slowToClose(t *testing.T) int {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	for err == nil { // until there is no room
		_, err = unix.SendmsgN(fd, make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
	}
	return fd
}

// sendWith sends b with a descriptor that it has no use for any more.
func sendWith(t *testing.T, conn net.Conn, b []byte, fd int) {
	t.Helper()
	_, _, err := conn.(*net.UnixConn).WriteMsgUnix(b, unix.UnixRights(fd), nil)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

// TestSlowToClose: a descriptor whose close waits holds up neither its message
// nor, unread in the socket, the end of the server.
func TestSlowToClose(t *testing.T) {
	info := conformance.Message(1, vfiouser.CmdDeviceGetInfo, 0, conformance.U32(16, 0, 0, 0))
	path, _ := serveDevice(t, newCounter(), vfiouser.Options{})
	conn := rawClient(t, path)
	sendWith(t, conn, info, slowToClose(t))
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, conn, info, make([]byte, 64))

	write := conformance.Message(1, vfiouser.CmdRegionWrite, vfiouser.FlagNoReply, conformance.U64(0), conformance.U32(0, 4, 1))
	endDuring(t, func(conn net.Conn) {
		if _, err := conn.Write(write); err != nil {
			t.Fatal(err)
		}
		// A read ends behind the first descriptor, so this one stays unread.
		sendWith(t, conn, write, eventFD(t))
		sendWith(t, conn, write, slowToClose(t))
	})
}

// TestOwnEnd: a client that has sent its end of the connection and is gone has
// left the device.
func TestOwnEnd(t *testing.T) {
	path, _ := serveDevice(t, newCounter(), vfiouser.Options{BusyWait: patience})
	conn := rawClient(t, path)
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	own := -1
	if e := raw.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	sendWith(t, conn, make([]byte, 8), own)
	conn.Close()
	dial(t, path)
}
