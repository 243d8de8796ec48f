// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// server is the flag of "go test ./vfio-user/... -server PATH", which reaches
// this package too: the conformance table then runs against that server alone.
var server = flag.String("server", "", "not this package's: see package conformance")

const patience = 20 * time.Second

// Guest memory of the tests: some RAM with a descriptor, some without, some ROM.
const (
	shared, private, rom = 0x100000, 0x200000, 0x300000
	size                 = 0x40000
)

type guest struct {
	t     *testing.T
	c     *vfiouser.Client
	ram   *os.File // shared, private and rom, one after the other
	event int
}

func start(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := vfiouser.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	dev := newCopier(hclog.NewNullLogger())
	go func() { done <- vfiouser.NewServer(dev, layout(), vfiouser.Options{}).Serve(ctx, l.UnixListener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.Close()
	})
	return path
}

func attach(t *testing.T, path string) *guest {
	t.Helper()
	c, err := vfiouser.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, c: c, ram: os.NewFile(uintptr(fd), "ram")}
	t.Cleanup(func() { g.ram.Close() })
	if g.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(g.event) })
	both := vfiouser.DMARead | vfiouser.DMAWrite
	g.must(g.ram.Truncate(3 * size))
	g.must(c.MapDMAs([]vfiouser.DMARange{
		{IOVA: shared, Size: size, File: g.ram, Flags: both},
		{IOVA: private, Size: size, Guest: g.ram, Offset: size, Flags: both},
		{IOVA: rom, Size: size, File: g.ram, Offset: 2 * size, Flags: vfiouser.DMARead},
	}))
	g.must(c.SetIRQ(vfiouser.IRQMSIX, 0, []int{g.event}))
	g.command(commandMemory | commandMaster)
	return g
}

func (g *guest) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) command(v uint16) {
	g.t.Helper()
	g.must(g.c.WriteRegion(vfiouser.RegionConfig, cfgCommand, binary.LittleEndian.AppendUint16(nil, v)))
}

func (g *guest) start(source, target uint64, n int) {
	g.t.Helper()
	g.must(g.c.Write64(barRegs, regSource, source))
	g.must(g.c.Write64(barRegs, regTarget, target))
	g.must(g.c.Write32(barRegs, regLength, uint32(n)))
	g.must(g.c.Post32(barRegs, regControl, 1))
}

// copy copies and returns the errno.
func (g *guest) copy(source, target uint64, n int) unix.Errno {
	g.t.Helper()
	g.start(source, target, n)
	p := []unix.PollFd{{Fd: int32(g.event), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, int(patience.Milliseconds())); n != 1 {
		g.t.Fatalf("no interrupt: %v", err)
	}
	var b [8]byte
	if _, err := unix.Read(g.event, b[:]); err != nil || b != [8]byte{1} {
		g.t.Errorf("interrupts: %v, %v, want one", b, err)
	}
	errno, err := g.c.Read32(barRegs, regErrno)
	g.must(err)
	status, err := g.c.Read32(barRegs, regControl)
	g.must(err)
	if (status == statusError) != (errno != 0) || status&statusBusy != 0 {
		g.t.Errorf("status %#x, errno %d", status, errno)
	}
	return unix.Errno(errno)
}

// place is where an address is in ram.
func place(iova uint64) int64 {
	return int64(iova>>20-1)*size + int64(iova&(1<<20-1))
}

// The conformance table is for any device: this is how it is run against one's own.
func TestConforms(t *testing.T) {
	if *server != "" {
		t.Skip("-server is about another device")
	}
	path := start(t)
	have, err := conformance.Probe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conformance.Cases() {
		if c.Lacks(have) != "" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if err := c.Run(t.Context(), path); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCopy(t *testing.T) {
	g := attach(t, start(t))
	if v, err := g.c.Read32(barRegs, regID); err != nil || v != 0x59504f43 {
		t.Errorf("id %#x, %v", v, err)
	}
	data := make([]byte, 150_001)
	for i := range data {
		data[i] = byte(i*3 + i>>9)
	}
	for _, tt := range []struct {
		name           string
		source, target uint64
		n              int
		want           unix.Errno
	}{
		{"shared", shared + 3, shared + 0x2a000, 70_000, 0},
		{"out of shared", shared + 1, private + 0x1001, len(data), 0},
		{"into shared", private + 1, shared + 0x11, len(data), 0},
		{"private", private, private + 0x2a000, 80_000, 0},
		{"from ROM", rom + 9, private + 0x3fffe, 2, 0},
		{"nothing", shared, shared, 0, 0},
		{"to ROM", shared, rom, 1, unix.EFAULT},
		{"from nowhere", shared + size, shared, 1, unix.EFAULT},
		{"over the end", private + size - 1, shared, 2, unix.EFAULT},
	} {
		if tt.want == 0 {
			if _, err := g.ram.WriteAt(data[:tt.n], place(tt.source)); err != nil {
				t.Fatal(err)
			}
		}
		if errno := g.copy(tt.source, tt.target, tt.n); errno != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, errno, tt.want)
		}
		got := make([]byte, tt.n)
		if _, err := g.ram.ReadAt(got, place(tt.target)); tt.want == 0 && (err != nil || !bytes.Equal(got, data[:tt.n])) {
			t.Errorf("%s: the copy differs, %v", tt.name, err)
		}
	}
}

// TestStops: what ends a copy ends it, whatever it waits for, and the next one
// works.
func TestStops(t *testing.T) {
	path := start(t)
	for name, stop := range map[string]func(g *guest){
		"reset":      func(g *guest) { g.must(g.c.Reset()) },
		"bus master": func(g *guest) { g.command(commandMemory) },
		"unmap":      func(g *guest) { g.must(g.c.UnmapDMA(0, 1<<40)) },
		"unmap all":  func(g *guest) { g.must(g.c.UnmapAllDMA()) },
		"leave":      func(g *guest) {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []uint64{shared, private} {
				g := attach(t, path)
				g.start(source, source, size)
				stop(g)
				if name == "leave" {
					g.c.Close()
					continue
				}
				poison := bytes.Repeat([]byte{0xaa}, size)
				if source == shared { // a message under way is the client's business
					if _, err := g.ram.WriteAt(poison, 0); err != nil {
						t.Fatal(err)
					}
					status := uint32(statusBusy)
					for status&statusBusy != 0 {
						var err error
						status, err = g.c.Read32(barRegs, regControl)
						g.must(err)
					}
					got := make([]byte, size)
					if _, err := g.ram.ReadAt(got, 0); err != nil || !bytes.Equal(got, poison) {
						t.Errorf("memory was written after the reply, %v", err)
					}
				}
				g.c.Close()
			}
			g := attach(t, path)
			if errno := g.copy(shared, private, size); errno != 0 {
				t.Errorf("next copy: %v", errno)
			}
			g.c.Close()
		})
	}
}

func TestConfig(t *testing.T) {
	g := attach(t, start(t))
	var before, after config
	g.must(g.c.ReadRegion(vfiouser.RegionConfig, 0, before[:]))
	if v := binary.LittleEndian.Uint32(before[:]); v != 0xc0b11234 {
		t.Errorf("vendor and device %#x", v)
	}
	g.must(g.c.WriteRegion(vfiouser.RegionConfig, 0, bytes.Repeat([]byte{0xff}, configSize)))
	g.must(g.c.ReadRegion(vfiouser.RegionConfig, 0, after[:]))
	mask := writable()
	for i := range after {
		if want := before[i]&^mask[i] | mask[i]; after[i] != want {
			t.Errorf("byte %#x is %#x, want %#x", i, after[i], want)
		}
	}
	g.must(g.c.Reset())
	g.must(g.c.ReadRegion(vfiouser.RegionConfig, 0, after[:]))
	if after != powerOnConfig() {
		t.Error("a reset leaves something in config space")
	}
	for _, size := range []int{1, 2, 8} {
		if err := g.c.ReadRegion(barRegs, regControl, make([]byte, size)); err == nil {
			t.Errorf("register read of %d bytes", size)
		}
	}
	if err := g.c.Write32(barRegs, regID, 1); err == nil {
		t.Error("the id can be written")
	}
}
