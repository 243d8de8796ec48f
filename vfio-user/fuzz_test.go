// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// FuzzServerMessage sends anything to a server, behind a VERSION and with some
// eventfds. What comes back must be well-formed replies to commands that wanted
// one, and the server must be there for the next client.
func FuzzServerMessage(f *testing.F) {
	for _, c := range conformance.Cases() {
		for _, s := range c.Steps {
			if len(s.Send) < 512 {
				f.Add(s.Send, byte(len(s.FDs)))
			}
		}
	}
	path, _ := serve(f, vfiouser.Options{BusyWait: patience})
	version := conformance.Message(0, vfiouser.CmdVersion, 0, conformance.U32(0), []byte(vfiouser.QEMUCapabilities), []byte{0})
	event := eventFD(f)
	defer unix.Close(event)
	f.Fuzz(func(t *testing.T, data []byte, fds byte) {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn := nc.(*net.UnixConn)
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, conn, version, make([]byte, 512))
		var writer sync.WaitGroup
		defer writer.Wait()
		writer.Go(func() {
			defer conn.CloseWrite()
			if len(data) == 0 {
				return
			}
			oob := unix.UnixRights(slices.Repeat([]int{event}, int(fds%16))...)
			if n, _, err := conn.WriteMsgUnix(data, oob, nil); err == nil {
				conn.Write(data[n:]) // the server may have closed: that is what the replies tell
			}
		})
		for {
			var head [16]byte
			_, err := io.ReadFull(conn, head[:])
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			h := vfiouser.ParseHeader(head[:])
			failed := h.Flags == vfiouser.FlagReply|vfiouser.FlagError && h.Size == 16 && h.Errno != 0
			done := h.Flags == vfiouser.FlagReply && h.Size >= 16 && h.Size <= conformance.Largest && h.Errno == 0
			if !failed && !done {
				t.Fatalf("malformed reply %+v", h)
			}
			if _, err := io.CopyN(io.Discard, conn, int64(h.Size)-16); err != nil {
				t.Fatal(err)
			}
		}
	})
}
