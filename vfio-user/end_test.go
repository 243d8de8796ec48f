// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
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
