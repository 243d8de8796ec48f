// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/guest/minidriver"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// cutter stands between a client and the server, descriptors included, and cuts
// the connection after a number of bytes of the client's, wherever that is: a
// QEMU that is killed.
type cutter struct {
	t      *testing.T
	path   string
	server string
	sent   atomic.Int64 // bytes that reached the server
}

// once lets one client through to the server, for limit bytes. The channel is
// closed when both connections are.
func (c *cutter) once(limit int64) <-chan struct{} {
	c.sent.Store(0)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, err := l.AcceptUnix()
		l.Close()
		if err != nil {
			return
		}
		server, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.server, Net: "unix"})
		if err != nil {
			c.t.Error(err)
			client.Close()
			return
		}
		cut := sync.OnceFunc(func() { client.Close(); server.Close() })
		var wg sync.WaitGroup
		wg.Go(func() { defer cut(); c.forward(server, client, limit) })
		wg.Go(func() { defer cut(); c.forward(client, server, -1) })
		wg.Wait()
	}()
	return done
}

func (c *cutter) forward(to, from *net.UnixConn, limit int64) {
	p, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(16*4))
	for left := limit; left != 0; {
		n, oobn, _, _, err := from.ReadMsgUnix(p, oob)
		if err != nil || n == 0 {
			return
		}
		if left > 0 {
			n = int(min(int64(n), left))
			left -= int64(n)
		}
		_, _, err = to.WriteMsgUnix(p[:n], oob[:oobn], nil)
		closeRights(oob[:oobn])
		if err != nil {
			return
		}
		if limit >= 0 {
			c.sent.Add(int64(n))
		}
	}
}

func closeRights(oob []byte) {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

// drive does what both drivers do from probe to removal, until the connection is
// cut.
func drive(ctx context.Context, socket string) (err error) {
	g, err := minidriver.NewGuest(64)
	if err != nil {
		return err
	}
	defer g.Close()
	f, err := minidriver.Attach(ctx, socket, g)
	if err != nil {
		return err
	}
	defer f.Detach()
	ice, err := minidriver.Probe(f, minidriver.Linux73(), minidriver.Options{})
	if err != nil {
		return err
	}
	defer func() {
		ice.Abandon() // says a little, too
		if err == nil {
			err = f.Err()
		}
	}()
	rdma, err := minidriver.ProbeRDMA(ice, minidriver.Options{})
	if err != nil {
		return err
	}
	defer rdma.Abandon()
	return f.FLR()
}

// resources are what a process has of what it could leak.
type resources struct{ goroutines, descriptors int }

func measure(t *testing.T, control string) resources {
	t.Helper()
	if _, err := Ask(t.Context(), control, Request{What: "process"}); err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return resources{runtime.NumGoroutine(), len(fds)}
}

// A client may end at any byte of what it has to say: the next one finds a card
// as at power-on, and nothing is left of the one before.
func TestClientsThatAreCutOff(t *testing.T) {
	_, o := start(t, 1)
	c := &cutter{t: t, path: filepath.Join(t.TempDir(), "cut"), server: o.Sockets[0]}
	whole := c.once(1 << 62)
	if err := drive(t.Context(), c.path); err != nil {
		t.Fatal(err)
	}
	<-whole
	total := c.sent.Load()
	before := measure(t, o.Control)

	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range 16 {
		at := rnd.Int64N(total)
		cut := c.once(at)
		// A driver that polls one time less is done before its turn comes.
		if err := drive(t.Context(), c.path); err == nil && c.sent.Load() == at {
			t.Errorf("seed %d, client %d, cut off after %d of %d bytes, has not noticed", seed, i, at, total)
		}
		<-cut
	}
	if err := drive(t.Context(), o.Sockets[0]); err != nil {
		t.Errorf("seed %d, the last client: %v", seed, err)
	}
	wantPowerOn(t, o.Sockets[0])
	// What the process tells of itself includes the test, and what goes takes a
	// moment to be gone.
	var after resources
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if after = measure(t, o.Control); after == before {
			return
		}
	}
	buf := make([]byte, 1<<20)
	t.Errorf("seed %d: %+v before, %+v after\n%s", seed, before, after, buf[:runtime.Stack(buf, true)])
}

// wantPowerOn looks whether a few registers that every driver writes are at
// their reset values.
func wantPowerOn(t *testing.T, socket string) {
	t.Helper()
	c, err := vfiouser.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, r := range []struct {
		name   string
		offset uint64
	}{
		{"PF_FW_ATQLEN", 0x00080200},
		{"PF_FW_ATQBAL", 0x00080000},
		{"PFINT_OICR_ENA", 0x0016C900},
		{"PFPE_CQPTAIL", 0x00500880},
	} {
		if v, err := c.Read32(0, r.offset); err != nil || v != 0 {
			t.Errorf("%s = %#x, %v; want 0 as at power-on", r.name, v, err)
		}
	}
	var command [2]byte
	if err := c.ReadRegion(vfiouser.RegionConfig, 4, command[:]); err != nil || command != [2]byte{} {
		t.Errorf("COMMAND = % x, %v; want 0", command, err)
	}
}
