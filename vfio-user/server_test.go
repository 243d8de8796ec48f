// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// patience is how long something that must happen may take.
const patience = 20 * time.Second

// serve serves the reference device until the test ends.
func serve(t testing.TB, opts vfiouser.Options) (path string, dev *conformance.Reference) {
	t.Helper()
	dev = conformance.NewReference()
	path, _ = serveDevice(t, dev, opts)
	return path, dev
}

// serveDevice serves dev until the test ends or stop is called; stop returns what
// Serve did.
func serveDevice(t testing.TB, dev vfiouser.Device, opts vfiouser.Options) (path string, stop func() error) {
	t.Helper()
	return serveLayout(t, dev, conformance.ReferenceLayout(), opts)
}

func serveLayout(t testing.TB, dev vfiouser.Device, layout vfiouser.Layout, opts vfiouser.Options) (path string, stop func() error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- vfiouser.NewServer(dev, layout, opts).Serve(ctx, l.UnixListener)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		defer l.Close()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("Serve did not return")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return path, stop
}

func dial(t testing.TB, path string) *vfiouser.Client {
	t.Helper()
	c, err := vfiouser.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// descriptors counts what this process has open, without what the runtime has.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		name, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(name, "eventpoll") && !strings.HasPrefix(name, "/proc/") {
			n++
		}
	}
	return n
}

// settles waits until get returns want.
func settles(t testing.TB, what string, want int, get func() int) {
	t.Helper()
	end := time.Now().Add(patience)
	for got := get(); got != want; got = get() {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%s: %d, want %d\n%s", what, got, want, buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

// spy records the life of a device.
type spy struct {
	*conformance.Reference
	mu     sync.Mutex
	events []string
	signal func(index, vector int)
}

func (s *spy) note(e string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *spy) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, " ")
}

func (s *spy) Attach(signal func(index, vector int)) {
	s.note("attach")
	s.signal = signal
	s.Reference.Attach(signal)
}

func (s *spy) Detach() {
	s.note("detach")
	s.Reference.Detach()
}

func (s *spy) Reset() {
	s.note("reset")
	s.Reference.Reset()
}

func TestAttachDetach(t *testing.T) {
	dev := &spy{Reference: conformance.NewReference()}
	path, stop := serveDevice(t, dev, vfiouser.Options{})
	// A connection without VERSION is nobody to the device.
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := dial(t, path)
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	c = dial(t, path) // has waited until the first was detached
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if got, want := dev.log(), "attach reset detach attach detach"; got != want {
		t.Errorf("device saw %q, want %q", got, want)
	}
	if _, err := c.Read32(0, 0); err == nil {
		t.Error("client was served after Serve returned")
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("silent connection: %v, want EOF", err)
	}
	dev.signal(vfiouser.IRQMSIX, 0) // must not harm
}

func TestSecondClientIsRefused(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{BusyWait: -1})
	first := dial(t, path)
	if c, err := vfiouser.Dial(t.Context(), path); !errors.Is(err, unix.EBUSY) {
		t.Errorf("second client: %v, %v, want EBUSY", c, err)
	}
	if err := first.Write32(0, 0, 1); err != nil {
		t.Errorf("first client: %v", err)
	}
}

func TestSecondClientWaits(t *testing.T) {
	var asked atomic.Int32
	path, dev := serve(t, vfiouser.Options{BusyWait: patience, Observer: func(m vfiouser.Message) {
		if m.Command == vfiouser.CmdVersion && !m.Sent {
			asked.Add(1)
		}
	}})
	first := dial(t, path)
	if err := first.Write32(0, 0, 0x1234); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		second, err := vfiouser.Dial(context.Background(), path)
		if err == nil {
			defer second.Close()
			var v uint32
			if v, err = second.Read32(0, 0); err == nil && v != 0 {
				err = fmt.Errorf("second client finds the first one's %#x", v)
			}
		}
		result <- err
	}()
	settles(t, "VERSION requests", 2, func() int { return int(asked.Load()) })
	if v, err := first.Read32(0, 0); err != nil || v != 0x1234 {
		t.Errorf("first client, with a second one waiting: %#x, %v", v, err)
	}
	first.Close()
	if err := <-result; err != nil {
		t.Error(err)
	}
	_ = dev
}

// TestCancelLeavesNothing: goroutines and descriptors are gone once Serve has
// returned, whatever the clients were doing.
func TestCancelLeavesNothing(t *testing.T) {
	// One round first, for what the runtime keeps.
	for round := range 2 {
		goroutines, fds := runtime.NumGoroutine(), descriptors(t)
		path, stop := serveDevice(t, conformance.NewReference(), vfiouser.Options{BusyWait: patience})
		c := dial(t, path)
		event := eventFD(t)
		if err := c.SetIRQ(vfiouser.IRQMSIX, 0, []int{event, event, -1, event}); err != nil {
			t.Fatal(err)
		}
		if err := c.UnmaskIRQByEventFD(vfiouser.IRQIntx, 0, event); err != nil {
			t.Fatal(err)
		}
		f := memory(t, 1<<16)
		if err := c.MapDMA(0, 1<<16, f, 0, vfiouser.DMARead|vfiouser.DMAWrite); err != nil {
			t.Fatal(err)
		}
		silent, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := vfiouser.Dial(context.Background(), path)
			waiting <- err
		}()
		if _, err := c.Read32(0, 0); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatalf("Serve: %v", err)
		}
		if err := <-waiting; err == nil {
			t.Error("client that waited was served")
		}
		c.Close()
		silent.Close()
		f.Close()
		unix.Close(event)
		if round > 0 {
			settles(t, "descriptors left", 0, func() int { return max(0, descriptors(t)-fds) })
			settles(t, "goroutines left", 0, func() int { return max(0, runtime.NumGoroutine()-goroutines) })
		}
	}
}

func TestServeAgainOnOneListener(t *testing.T) {
	l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := vfiouser.NewServer(conformance.NewReference(), conformance.ReferenceLayout(), vfiouser.Options{})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l.UnixListener) }()
		c := dial(t, l.Path())
		if _, err := c.Read32(0, 0); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func TestServeTellsOfAClosedListener(t *testing.T) {
	l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s := vfiouser.NewServer(conformance.NewReference(), conformance.ReferenceLayout(), vfiouser.Options{})
	if err := s.Serve(t.Context(), l.UnixListener); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v, want ErrClosed", err)
	}
}

// TestSignalRace: interrupts come from any goroutine while the client changes
// eventfds and leaves.
func TestSignalRace(t *testing.T) {
	path, dev := serve(t, vfiouser.Options{})
	stop := make(chan struct{})
	var firing sync.WaitGroup
	for v := range 4 {
		firing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					dev.Signal(vfiouser.IRQMSIX, v%2)
				}
			}
		})
	}
	defer firing.Wait()
	defer close(stop)
	for range 5 {
		c := dial(t, path)
		for range 20 {
			a, b := eventFD(t), eventFD(t)
			if err := c.SetIRQ(vfiouser.IRQMSIX, 0, []int{a, b}); err != nil {
				t.Fatal(err)
			}
			if err := c.DisableIRQs(vfiouser.IRQMSIX); err != nil {
				t.Fatal(err)
			}
			unix.Close(a)
			unix.Close(b)
		}
		c.Close()
	}
}

// TestFullEventFD: an eventfd that is full and blocking does not hold a device
// up.
func TestFullEventFD(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	full := [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(fd, full[:]); err != nil {
		t.Fatal(err)
	}
	if err := c.SetIRQ(vfiouser.IRQMSIX, 0, []int{fd}); err != nil {
		t.Fatal(err)
	}
	if err := c.TriggerIRQ(vfiouser.IRQMSIX, 0, 1); err != nil {
		t.Error(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags of the client's eventfd are %#x, %v", flags, err)
	}
}

// TestOffClosesWatched: switching an index off lets go of the eventfds by which
// the client masks.
func TestOffClosesWatched(t *testing.T) {
	path, _ := serve(t, vfiouser.Options{})
	c := dial(t, path)
	event := eventFD(t)
	defer unix.Close(event)
	unmask := func() {
		t.Helper()
		if err := c.UnmaskIRQByEventFD(vfiouser.IRQIntx, 0, event); err != nil {
			t.Fatal(err)
		}
	}
	unmask()
	unmask() // replaces
	before := descriptors(t)
	if err := c.DisableIRQs(vfiouser.IRQIntx); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t); got != before-1 {
		t.Errorf("%d descriptors, want %d", got, before-1)
	}
	unmask()
	if got := descriptors(t); got != before {
		t.Errorf("%d descriptors after another, want %d", got, before)
	}
}

// slowDetach takes its time to let go.
type slowDetach struct {
	*counter
	detached atomic.Bool
}

func (d *slowDetach) Detach() {
	time.Sleep(50 * time.Millisecond) // gives a Serve that does not wait the chance to show it
	d.detached.Store(true)
}

func TestServeWaitsForDetach(t *testing.T) {
	dev := &slowDetach{counter: newCounter()}
	path, stop := serveDevice(t, dev, vfiouser.Options{})
	dial(t, path)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !dev.detached.Load() {
		t.Error("Serve returned before Detach did")
	}
}

// forgetful fills only its first read.
type forgetful struct {
	*counter
	done bool
}

func (d *forgetful) ReadRegion(_ int, _ uint64, p []byte) error {
	for i := range p {
		if !d.done {
			p[i] = 0xff
		}
	}
	d.done = true
	return nil
}

func TestReadTellsNothingOld(t *testing.T) {
	path, _ := serveDevice(t, &forgetful{counter: newCounter()}, vfiouser.Options{})
	c := dial(t, path)
	for i, want := range []uint64{^uint64(0), 0} {
		if v, err := c.Read64(0, 0); err != nil || v != want {
			t.Errorf("read %d: %#x, %v, want %#x", i, v, err, want)
		}
	}
}

func eventFD(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func memory(t testing.TB, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "guest")
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}
