// SPDX-License-Identifier: Apache-2.0

package minidriver

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	devicehmc "github.com/vrnic/vrnic/devmodel/hmc"
	"github.com/vrnic/vrnic/serve"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
)

// testTime bounds a test; nothing waits that long unless it is broken.
const testTime = 2 * time.Minute

// guestMiB is enough for both drivers with paged and direct PBLE segments.
const guestMiB = 64

// findings collects what the device complains about.
type findings struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (f *findings) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.buf.Write(p)
}

// take returns the lines so far and forgets them.
func (f *findings) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.TrimSpace(f.buf.String())
	f.buf.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// cards serves n devices and returns their sockets.
func cards(t *testing.T, n int) (context.Context, []string, *findings) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	t.Cleanup(cancel)
	if *shuffleSeed != 0 {
		return shuffledCards(t, ctx, n, *shuffleSeed)
	}
	sockets, complaints := serveCards(t, ctx, n)
	return ctx, sockets, complaints
}

// fuzzPatience is for machines that do a lot else: it is no crash of the device
// if they stand still for a while.
const fuzzPatience = time.Minute

// serveForFuzz serves n devices for as long as fuzzing goes on. What they say of
// their guests is of no interest, and would fill memory.
func serveForFuzz(f *testing.F, n int) (context.Context, []string) {
	ctx, cancel := context.WithCancel(context.Background())
	f.Cleanup(cancel)
	return ctx, serveTo(f, ctx, n, io.Discard)
}

// attachForFuzz is Attach with much patience.
func attachForFuzz(ctx context.Context, socket string, g *Guest) (*Function, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c, err := vfiouser.NewClient(conn.(*net.UnixConn), vfiouser.ClientOptions{Timeout: fuzzPatience})
	if err != nil {
		return nil, err
	}
	f, err := AttachClient(ctx, c, g)
	if err != nil {
		return nil, err
	}
	f.Patience = fuzzPatience
	return f, nil
}

func serveCards(t testing.TB, ctx context.Context, n int) ([]string, *findings) {
	t.Helper()
	complaints := new(findings)
	return serveTo(t, ctx, n, complaints), complaints
}

// serveTo serves n devices, whose complaints go to a writer.
func serveTo(t testing.TB, ctx context.Context, n int, complaints io.Writer) []string {
	t.Helper()
	return servePersonality(t, ctx, n, complaints, devicehmc.Personality{})
}

func servePersonality(t testing.TB, ctx context.Context, n int, complaints io.Writer, p devicehmc.Personality) []string {
	t.Helper()
	var sockets []string
	dir := t.TempDir()
	for k := range n {
		sockets = append(sockets, filepath.Join(dir, string('a'+rune(k))))
	}
	host, err := serve.Start(ctx, serve.Options{Sockets: sockets, Control: filepath.Join(dir, "ctl"), Personality: p,
		Logger: hclog.New(&hclog.LoggerOptions{Output: complaints, Level: hclog.Warn, DisableTime: true})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		host.Close()
		select {
		case err := <-host.Errors():
			t.Error(err)
		default:
		}
	})
	return sockets
}

// ctl does to the n-th card what a person can do with its control socket.
func ctl(t *testing.T, ctx context.Context, sockets []string, n int, what, arg string) {
	t.Helper()
	if r := rackOf(ctx); r != nil {
		r.cards[sockets[n]].ctl(t, what, arg)
		return
	}
	_, err := serve.Ask(ctx, filepath.Join(filepath.Dir(sockets[0]), "ctl"), serve.Request{Device: n, What: what, Name: arg})
	must(t, err)
}

func newGuest(t *testing.T) *Guest {
	t.Helper()
	return newGuestOf(t, guestMiB)
}

func newGuestOf(t *testing.T, size int) *Guest {
	t.Helper()
	g, err := NewGuest(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Check(); err != nil {
			t.Error(err)
		}
		g.Close()
	})
	return g
}

// plug attaches a new guest to the device at socket.
func plug(t *testing.T, ctx context.Context, socket string) *Function {
	t.Helper()
	return attach(t, ctx, socket, newGuest(t))
}

func attach(t *testing.T, ctx context.Context, socket string, g *Guest) *Function {
	t.Helper()
	f, err := Attach(ctx, socket, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Detach)
	if r := rackOf(ctx); r != nil {
		f.Pace = r.cards[socket].pace
	}
	return f
}

// quiet fails the test if the device had complaints about a correct driver.
func quiet(t *testing.T, complaints *findings) {
	t.Helper()
	for _, line := range complaints.take() {
		t.Errorf("complaint about a correct driver: %s", line)
	}
}

// forKernels runs a test once per kernel.
func forKernels(t *testing.T, test func(t *testing.T, k Kernel)) {
	for _, k := range Kernels() {
		t.Run(k.Name, func(t *testing.T) { test(t, k) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
