// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// Any server can be held against the table; package conformance tells how.
var (
	server    = flag.String("server", "", "run the conformance table against the server at this `socket`")
	reference = flag.Bool("reference", false, "the server of -server serves a conformance.Reference")
)

// tally counts the cases of TestConformance for TestMain to print.
var tally struct{ run, passed, skipped atomic.Int64 }

func TestMain(m *testing.M) {
	status := m.Run()
	if n := tally.run.Load(); n > 0 {
		skipped := ""
		if s := tally.skipped.Load(); s > 0 {
			skipped = fmt.Sprintf(", %d skipped that need what this server has not", s)
		}
		fmt.Printf("conformance: %d of %d cases passed%s\n", tally.passed.Load(), n, skipped)
	}
	os.Exit(status)
}

// serveReference serves a reference device with everything it has.
func serveReference(t testing.TB) (path string) {
	t.Helper()
	dev := conformance.NewReference()
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	layout, err := dev.Layout()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- vfiouser.NewServer(dev, layout, vfiouser.Options{BusyWait: patience}).Serve(ctx, l.UnixListener)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		l.Close()
	})
	return path
}

func TestConformance(t *testing.T) {
	path, isReference := *server, *reference
	if path == "" {
		path, isReference = serveReference(t), true
	}
	have, err := conformance.Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if isReference {
		have |= conformance.NeedReference
	}
	before := descriptors(t)
	names := make(map[string]bool)
	for _, c := range conformance.Cases() {
		if names[c.Name] {
			t.Errorf("two cases %q", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			if lacks := c.Lacks(have); lacks != "" {
				tally.skipped.Add(1)
				t.Skip(lacks)
			}
			tally.run.Add(1)
			if err := c.Run(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			tally.passed.Add(1)
		})
	}
	settles(t, "descriptors left", 0, func() int { return max(0, descriptors(t)-before) })
}

// TestConformanceNotices runs cases with a wrong expectation: a runner that
// passes everything would pass the others too.
func TestConformanceNotices(t *testing.T) {
	path := serveReference(t)
	info := conformance.Message(7, vfiouser.CmdDeviceGetInfo, 0, conformance.U32(16, 0, 0, 0))
	reply := conformance.Want{ID: 7, Command: vfiouser.CmdDeviceGetInfo}
	wrong := map[string]conformance.Step{
		"reply not expected": {Send: info},
		"wrong id":           {Send: info, Want: []conformance.Want{{ID: 8, Command: vfiouser.CmdDeviceGetInfo}}},
		"wrong errno":        {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Errno: unix.EINVAL}}},
		"wrong payload":      {Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Payload: []byte{1}}}},
		"not closed":         {Send: append(info, info...), Want: []conformance.Want{reply}, Closed: true},
		"wrong count": {Send: info, Want: []conformance.Want{reply}, FDs: []conformance.FD{{Name: "e", Value: 3}},
			Checks: []conformance.Check{{Name: "e", Count: 4}}},
	}
	for name, step := range wrong {
		if err := (conformance.Case{Name: name, Steps: []conformance.Step{step}}).Run(t.Context(), path); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// TestConformanceIsStrict runs a good case against servers that do what makes QEMU
// drop a connection, or what it does not notice and should.
func TestConformanceIsStrict(t *testing.T) {
	var (
		answer = conformance.U32(16, 3, 9, 5)
		head   = func(h vfiouser.Header, size, flags uint32) []byte {
			b := make([]byte, 16)
			vfiouser.Header{ID: h.ID, Command: h.Command, Size: size, Flags: flags}.Put(b)
			return b
		}
		good  = func(h vfiouser.Header) []byte { return append(head(h, 32, 1), answer...) }
		plain = func(do func(h vfiouser.Header) []byte) func(*net.UnixConn, vfiouser.Header) {
			return func(c *net.UnixConn, h vfiouser.Header) { c.Write(do(h)) }
		}
	)
	bad := map[string]func(c *net.UnixConn, h vfiouser.Header){
		"longer than the client has room for": plain(func(h vfiouser.Header) []byte {
			return append(append(head(h, 36, 1), answer...), 0, 0, 0, 0)
		}),
		"header in pieces": plain(func(h vfiouser.Header) []byte { return good(h)[:8] }), // the rest never
		"a descriptor": func(c *net.UnixConn, h vfiouser.Header) {
			c.WriteMsgUnix(good(h), unix.UnixRights(0), nil)
		},
		"two replies":              plain(func(h vfiouser.Header) []byte { return append(good(h), good(h)...) }),
		"flags of a command":       plain(func(h vfiouser.Header) []byte { return append(head(h, 32, 0), answer...) }),
		"error flag without reply": plain(func(h vfiouser.Header) []byte { return head(h, 16, 0x20) }),
		"No_reply flag in a reply": plain(func(h vfiouser.Header) []byte { return append(head(h, 32, 0x11), answer...) }),
		"size below the header":    plain(func(h vfiouser.Header) []byte { return head(h, 15, 1) }),
		"no payload":               plain(func(h vfiouser.Header) []byte { return head(h, 16, 1) }),
		"another id": plain(func(h vfiouser.Header) []byte {
			h.ID++
			return good(h)
		}),
		"DMA that nobody expects": plain(func(h vfiouser.Header) []byte {
			return append(conformance.Message(1, vfiouser.CmdDMARead, 0, conformance.U64(0, 8)), good(h)...)
		}),
		"closed": func(c *net.UnixConn, _ vfiouser.Header) { c.Close() },
	}
	info := conformance.Message(7, vfiouser.CmdDeviceGetInfo, 0, conformance.U32(16, 0, 0, 0))
	asked := conformance.Case{Steps: []conformance.Step{{Send: info, Want: []conformance.Want{{ID: 7, Command: vfiouser.CmdDeviceGetInfo, Payload: answer}}}}}
	posted := conformance.Case{Steps: []conformance.Step{{Send: conformance.Message(7, vfiouser.CmdDeviceReset, vfiouser.FlagNoReply)}}}
	if err := asked.Run(t.Context(), fake(t, plain(good))); err != nil {
		t.Errorf("a good server: %v", err)
	}
	if err := posted.Run(t.Context(), fake(t, plain(good))); err == nil {
		t.Error("a reply to a posted command: not noticed")
	}
	for name, do := range bad {
		if err := asked.Run(t.Context(), fake(t, do)); err == nil {
			t.Errorf("%s: not noticed", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// fake is a server for one client: it agrees on a version and leaves the rest to
// do.
func fake(t *testing.T, do func(c *net.UnixConn, h vfiouser.Header)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		for {
			var head [16]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				return
			}
			h := vfiouser.ParseHeader(head[:])
			if _, err := io.CopyN(io.Discard, c, int64(h.Size)-16); err != nil {
				return
			}
			if h.Command == vfiouser.CmdVersion {
				c.Write(conformance.Message(h.ID, h.Command, vfiouser.FlagReply, conformance.U32(0)))
			} else {
				do(c, h)
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}
