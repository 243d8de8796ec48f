// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// lingering is a device whose DMA ends only when the test says so.
type lingering struct {
	*counter
	mu       sync.Mutex
	wait     func() // what Settle returns next; nil most of the time
	settled  int    // calls of Settle
	unmapErr error
	detached chan struct{} // one entry per Detach
}

func newLingering() *lingering {
	return &lingering{counter: newCounter(), detached: make(chan struct{}, 10)}
}

func (d *lingering) Settle() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled++
	return d.wait
}

func (d *lingering) set(wait func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wait = wait
}

func (d *lingering) calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

func (d *lingering) UnmapDMA(uint64, uint64) error { return d.unmapErr }

func (d *lingering) Detach() { d.detached <- struct{}{} }

// smallLayout has config space and one BAR.
func smallLayout() vfiouser.Layout {
	const rw = vfiouser.RegionRead | vfiouser.RegionWrite
	l := vfiouser.Layout{Resettable: true}
	l.Regions[0] = vfiouser.Region{Size: 4096, Flags: rw}
	l.Regions[vfiouser.RegionConfig] = vfiouser.Region{Size: 4096, Flags: rw}
	return l
}

func unmapMessage(id uint16, flags uint32) []byte {
	return conformance.Message(id, vfiouser.CmdDMAUnmap, flags, conformance.U32(24, 0), conformance.U64(0x1000, 0x1000))
}

func readMessage(id uint16) []byte {
	return conformance.Message(id, vfiouser.CmdRegionRead, 0, conformance.U64(0), conformance.U32(0, 4))
}

func configWrite(id uint16, flags uint32) []byte {
	return conformance.Message(id, vfiouser.CmdRegionWrite, flags, conformance.U64(4), conformance.U32(vfiouser.RegionConfig, 2), []byte{7, 0})
}

// next takes one message.
func next(t testing.TB, conn net.Conn) (vfiouser.Header, []byte) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var head [16]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		t.Fatal(err)
	}
	h := vfiouser.ParseHeader(head[:])
	p := make([]byte, h.Size-16)
	if _, err := io.ReadFull(conn, p); err != nil {
		t.Fatal(err)
	}
	return h, p
}

func send(t testing.TB, conn net.Conn, messages ...[]byte) {
	t.Helper()
	if _, err := conn.Write(slices.Concat(messages...)); err != nil {
		t.Fatal(err)
	}
}

// expectIDs takes replies and compares their ids and errnos.
func expectIDs(t testing.TB, conn net.Conn, errno unix.Errno, ids ...uint16) {
	t.Helper()
	for _, id := range ids {
		h, _ := next(t, conn)
		if h.ID != id || unix.Errno(h.Errno) != errno || !h.IsReply() {
			t.Errorf("reply %+v, want id %d, errno %d", h, id, errno)
		}
	}
}

// TestDeferredReply: the reply waits, later commands do not.
func TestDeferredReply(t *testing.T) {
	reset := conformance.Message(3, vfiouser.CmdDeviceReset, 0)
	unmapAll := conformance.Message(3, vfiouser.CmdDMAUnmap, 0, conformance.U32(24, 2), conformance.U64(0, 0))
	multi := conformance.Message(3, vfiouser.CmdRegionWriteMulti, 0, conformance.U64(1), conformance.U64(4), conformance.U32(vfiouser.RegionConfig, 2, 7, 0))
	for name, m := range map[string][]byte{
		"unmap": unmapMessage(3, 0), "unmap all": unmapAll, "reset": reset, "config write": configWrite(3, 0), "multiple write": multi} {
		t.Run(name, func(t *testing.T) {
			dev := newLingering()
			path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
			conn := rawClient(t, path)
			release := make(chan struct{})
			dev.set(func() { <-release })
			send(t, conn, m)
			settles(t, "calls of Settle", 1, dev.calls)
			dev.set(nil)
			send(t, conn, readMessage(4), configWrite(5, 0))
			expectIDs(t, conn, 0, 4, 5)
			close(release)
			h, p := next(t, conn)
			if h.ID != 3 || h.Flags != vfiouser.FlagReply {
				t.Errorf("reply %+v, want the deferred one", h)
			}
			want := m[16:]
			if h.Command == vfiouser.CmdRegionWrite || h.Command == vfiouser.CmdRegionWriteMulti {
				want = m[16 : 16+len(p)]
			}
			if !slices.Equal(p, want) || len(p) == 0 && len(m) > 16 {
				t.Errorf("payload % x, want % x", p, want)
			}
		})
	}
}

func TestSettleIsCalledWhenItShould(t *testing.T) {
	dev := newLingering()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	c := dial(t, path)
	for i, step := range []struct {
		name string
		do   func() error
		want int
	}{
		{"read", func() error { return c.ReadRegion(7, 0, make([]byte, 256)) }, 0},
		{"BAR write", func() error { return c.Write32(0, 0, 1) }, 0},
		{"map", func() error { return c.MapDMA(0, 4096, nil, 0, vfiouser.DMARead) }, 0},
		{"unmap", func() error { return c.UnmapDMA(0, 4096) }, 1},
		{"unmap all", c.UnmapAllDMA, 2},
		{"reset", c.Reset, 3},
		{"config write", func() error { return c.Write32(7, 4, 0) }, 4},
		{"two config writes in one message", func() error {
			w := vfiouser.RegionWriteOp{Region: 7, Offset: 4, Data: []byte{1}}
			return errors.Join(c.PostRegions([]vfiouser.RegionWriteOp{w, w}), c.ReadRegion(7, 0, make([]byte, 1)))
		}, 5},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := dev.calls(); got != step.want {
			t.Errorf("%d calls of Settle after step %d, %s; want %d", got, i, step.name, step.want)
		}
	}
}

// TestDeferredOrder: deferred replies keep the order of their commands, however
// many there are.
func TestDeferredOrder(t *testing.T) {
	dev := newLingering()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	conn := rawClient(t, path)
	release := make(chan struct{})
	dev.set(func() { <-release })
	var ids []uint16
	var all []byte                // sent at once: the socket has no room for so many small writes
	for id := range uint16(500) { // many times what may wait
		all = append(all, unmapMessage(id, 0)...)
		ids = append(ids, id)
	}
	send(t, conn, all)
	settles(t, "calls of Settle at least 60", 1, func() int { return min(1, dev.calls()/60) })
	if n := dev.calls(); n > 100 {
		t.Errorf("%d replies wait: not bounded", n)
	}
	close(release)
	expectIDs(t, conn, 0, ids...)
}

func TestDeferredError(t *testing.T) {
	dev := newLingering()
	dev.unmapErr = unix.ENOENT
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	conn := rawClient(t, path)
	dev.set(func() {})
	send(t, conn, unmapMessage(9, 0))
	expectIDs(t, conn, unix.ENOENT, 9)
}

func TestDeferredNoReply(t *testing.T) {
	dev := newLingering()
	path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
	conn := rawClient(t, path)
	waited := make(chan struct{}, 10)
	dev.set(func() { waited <- struct{}{} })
	send(t, conn, configWrite(1, vfiouser.FlagNoReply), unmapMessage(2, vfiouser.FlagNoReply), unmapMessage(3, 0))
	expectIDs(t, conn, 0, 3)
	if len(waited) != 3 {
		t.Errorf("%d waits, want 3", len(waited))
	}
}

// TestGoneWhileDeferred: the device is detached when its waits are over, not
// before, whether the client leaves or the server is stopped.
func TestGoneWhileDeferred(t *testing.T) {
	for _, how := range []string{"client leaves", "server stops", "framing lost"} {
		t.Run(how, func(t *testing.T) {
			dev := newLingering()
			path, stop := serveLayout(t, dev, smallLayout(), vfiouser.Options{})
			conn := rawClient(t, path)
			release := make(chan struct{})
			dev.set(func() { <-release })
			send(t, conn, unmapMessage(1, 0), unmapMessage(2, 0))
			settles(t, "calls of Settle", 2, dev.calls)
			stopped := make(chan error, 1)
			switch how {
			case "client leaves":
				conn.Close()
				stopped <- nil
			case "framing lost":
				send(t, conn, make([]byte, 16))
				stopped <- nil
			default:
				go func() { stopped <- stop() }()
			}
			select {
			case <-dev.detached:
				t.Error("detached before the device was settled")
			case <-time.After(20 * time.Millisecond): // gives a server that is too early the chance to show it
			}
			dev.set(nil)
			close(release)
			<-dev.detached
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestClientNeverReads: a client that leaves its replies unread is given up, and
// does not hold up a server that stops.
func TestClientNeverReads(t *testing.T) {
	flood := func(t *testing.T, path string) net.Conn {
		conn := rawClient(t, path)
		read := conformance.Message(1, vfiouser.CmdRegionRead, 0, conformance.U64(0), conformance.U32(0, 4096))
		go func() {
			for {
				if _, err := conn.Write(read); err != nil {
					return
				}
			}
		}()
		return conn
	}
	t.Run("given up", func(t *testing.T) {
		dev := newLingering()
		path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{WriteTimeout: 50 * time.Millisecond})
		flood(t, path)
		select {
		case <-dev.detached:
		case <-time.After(patience):
			t.Error("never detached")
		}
	})
	t.Run("deferred", func(t *testing.T) {
		dev := newLingering()
		dev.set(func() {})
		path, _ := serveLayout(t, dev, smallLayout(), vfiouser.Options{WriteTimeout: 50 * time.Millisecond})
		conn := rawClient(t, path)
		go func() {
			for {
				if _, err := conn.Write(unmapMessage(1, 0)); err != nil {
					return
				}
			}
		}()
		select {
		case <-dev.detached:
		case <-time.After(patience):
			t.Error("never detached")
		}
	})
	t.Run("server stops", func(t *testing.T) {
		dev := newLingering()
		var replies sync.WaitGroup
		replies.Add(20)
		n := 0
		path, stop := serveLayout(t, dev, smallLayout(), vfiouser.Options{Observer: func(m vfiouser.Message) {
			if m.Sent && m.Command == vfiouser.CmdRegionRead {
				if n++; n <= 20 {
					replies.Done()
				}
			}
		}})
		flood(t, path)
		replies.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		<-dev.detached
	})
}

// TestDescriptorFlood: whatever descriptors come, they are closed.
func TestDescriptorFlood(t *testing.T) {
	path, _ := serveLayout(t, newLingering(), smallLayout(), vfiouser.Options{})
	conn := rawClient(t, path).(*net.UnixConn)
	before := descriptors(t)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	many := unix.UnixRights(slices.Repeat([]int{int(f.Fd())}, 253)...)
	for id := range uint16(40) {
		m := readMessage(id)
		for i := range m { // every byte has some of its own
			if _, _, err := conn.WriteMsgUnix(m[i:i+1], many, nil); err != nil {
				t.Fatal(err)
			}
		}
		expectIDs(t, conn, unix.EINVAL, id)
	}
	send(t, conn, readMessage(99))
	expectIDs(t, conn, 0, 99)
	settles(t, "descriptors left", 0, func() int { return max(0, descriptors(t)-before-1) })
}
