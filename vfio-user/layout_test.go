// SPDX-License-Identifier: Apache-2.0

package vfiouser_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	vfiouser "github.com/vrnic/vrnic/vfio-user"
	"github.com/vrnic/vrnic/vfio-user/conformance"
	"golang.org/x/sys/unix"
)

// mappedLayout has a BAR 2 of 32 KiB at 0x8000 of a file of 64 KiB, MSI-X in BAR 0
// and config space.
func mappedLayout(file *os.File, areas ...vfiouser.Area) vfiouser.Layout {
	l := smallLayout()
	l.IRQs[vfiouser.IRQMSIX] = 65
	l.MSIX = &vfiouser.MSIXPlace{TableBAR: 0, PBABAR: 0, PBAOffset: 0x800}
	l.Regions[2] = vfiouser.Region{Size: 0x8000, Flags: 3, File: file, Offset: 0x8000, Areas: areas}
	return l
}

func TestLayoutCheck(t *testing.T) {
	file := memory(t, 0x10000)
	defer file.Close()
	type layout = vfiouser.Layout
	area := func(offset, size uint64) func(*layout) {
		return func(l *layout) { l.Regions[2].Areas = []vfiouser.Area{{Offset: offset, Size: size}} }
	}
	for _, tt := range []struct {
		name   string
		change func(l *layout)
		want   string // part of the error; "" is none
	}{
		{"whole", func(*layout) {}, ""},
		{"an area", area(0x7000, 0x1000), ""},
		{"areas side by side", func(l *layout) {
			l.Regions[2].Areas = []vfiouser.Area{{Offset: 0x2000, Size: 0x1000}, {Offset: 0, Size: 0x2000}}
		}, ""},
		{"no region", func(l *layout) { l.Regions[2] = vfiouser.Region{Flags: 3} }, ""},
		{"BAR size", func(l *layout) { l.Regions[0].Size = 0x3000 }, "power of two"},
		{"config size", func(l *layout) { l.Regions[7].Size = 512 }, "config space"},
		{"config of 256", func(l *layout) { l.Regions[7].Size = 256 }, ""},
		{"flags", func(l *layout) { l.Regions[0].Flags = 7 }, "flags 0x7"},
		{"INTx", func(l *layout) { l.IRQs[vfiouser.IRQIntx] = 2 }, "2 vectors"},
		{"MSI-X vectors", func(l *layout) { l.IRQs[vfiouser.IRQMSIX] = 2049 }, "2049 vectors"},
		{"areas without a file", func(l *layout) { l.Regions[2].File = nil; area(0, 0x1000)(l) }, "without a file"},
		{"config space", func(l *layout) { l.Regions[7].File = file }, "only a BAR"},
		{"read-only", func(l *layout) { l.Regions[2].Flags = vfiouser.RegionRead }, "mappable, but"},
		{"file of an absent region", func(l *layout) { l.Regions[2].Size = 0 }, "mappable, but"},
		{"short file", func(l *layout) { l.Regions[2].Offset = 0x9000 }, "ends behind the file"},
		{"short file, area in it", func(l *layout) { l.Regions[2].Offset = 0x9000; area(0x6000, 0x1000)(l) }, ""},
		{"short file, area not in it", func(l *layout) { l.Regions[2].Offset = 0x9000; area(0x7000, 0x1000)(l) }, "ends behind the file"},
		{"far file offset", func(l *layout) { l.Regions[2].Offset = 1<<64 - 0x1000 }, "ends behind the file"},
		{"crooked file offset", func(l *layout) { l.Regions[2].Offset = 0x800 }, "not made of pages"},
		{"crooked area", area(0x800, 0x1000), "not made of pages"},
		{"crooked size", area(0x1000, 0x800), "not made of pages"},
		{"empty area", area(0x1000, 0), "not made of pages"},
		{"area outside", area(0x8000, 0x1000), "outside"},
		{"area far outside", area(1<<64-0x1000, 0x2000), "outside"},
		{"overlap", func(l *layout) {
			l.Regions[2].Areas = []vfiouser.Area{{Offset: 0x2000, Size: 0x2000}, {Offset: 0, Size: 0x1000}, {Offset: 0x3000, Size: 0x1000}}
		}, "overlaps"},
		{"too many areas", func(l *layout) { l.Regions[2].Areas = make([]vfiouser.Area, 129) }, "129 areas"},
		{"small BAR", func(l *layout) { l.Regions[2].Size = 1024 }, "not made of pages"},
		{"MSI-X nowhere", func(l *layout) { l.MSIX = nil }, "nobody says"},
		{"no MSI-X", func(l *layout) { l.MSIX = nil; l.IRQs[vfiouser.IRQMSIX] = 0 }, ""},
		{"table", func(l *layout) { l.MSIX.TableBAR = 2; l.MSIX.TableOffset = 0x7800; area(0x7000, 0x1000)(l) }, "MSI-X table"},
		{"table reaches in", func(l *layout) { l.MSIX.TableBAR = 2; l.MSIX.TableOffset = 0x1c00; area(0x2000, 0x1000)(l) }, "MSI-X table"}, // 65 * 16 bytes
		{"table ends before", func(l *layout) { l.MSIX.TableBAR = 2; l.MSIX.TableOffset = 0x1be0; area(0x2000, 0x1000)(l) }, ""},
		{"table behind", func(l *layout) { l.MSIX.TableBAR = 2; l.MSIX.TableOffset = 0x3000; area(0x2000, 0x1000)(l) }, ""},
		{"pending bits", func(l *layout) { l.MSIX.PBABAR = 2; l.MSIX.PBAOffset = 0x1ff8; area(0x2000, 0x1000)(l) }, "pending bits"}, // 16 bytes
		{"pending bits before", func(l *layout) { l.MSIX.PBABAR = 2; l.MSIX.PBAOffset = 0x1ff0; area(0x2000, 0x1000)(l) }, ""},
	} {
		l := mappedLayout(file)
		tt.change(&l)
		err := l.Check()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestServeRefusesALayout(t *testing.T) {
	l, err := vfiouser.Listen(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	bad := smallLayout()
	bad.Regions[0].Size = 3
	err = vfiouser.NewServer(newCounter(), bad, vfiouser.Options{}).Serve(t.Context(), l.UnixListener)
	if err == nil || !strings.Contains(err.Error(), "region 0") {
		t.Errorf("Serve: %v", err)
	}
}

// TestRegionInfoDialogue holds the answers about mappable regions against the bytes
// that QEMU wants.
func TestRegionInfoDialogue(t *testing.T) {
	file := memory(t, 0x10000)
	defer file.Close()
	u32, u64 := conformance.U32, conformance.U64
	areas := []vfiouser.Area{{Offset: 0x2000, Size: 0x1000}, {Offset: 0x4000, Size: 0x2000}}
	place := u64(0x8000, 0x8000) // size, offset
	short := bytes.Join([][]byte{u32(80, 7, 2, 0), place}, nil)
	full := bytes.Join([][]byte{u32(80, 15, 2, 32), place, u32(1|1<<16, 0, 2, 0), u64(0x2000, 0x1000, 0x4000, 0x2000)}, nil)
	whole := bytes.Join([][]byte{u32(32, 7, 2, 0), place}, nil)
	for _, tt := range []struct {
		name  string
		areas []vfiouser.Area
		argsz uint32
		want  []byte
		fds   int
	}{
		{"areas, no room", areas, 32, short, 0},
		{"areas, almost room", areas, 79, short, 0},
		{"areas, room", areas, 80, full, 1},
		{"areas, more room", areas, 1 << 31, full, 1},
		{"whole", nil, 32, whole, 1},
		{"whole, more room", nil, 4096, whole, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, _ := serveLayout(t, newCounter(), mappedLayout(file, tt.areas...), vfiouser.Options{})
			conn := rawClient(t, path).(*net.UnixConn)
			send(t, conn, conformance.Message(5, vfiouser.CmdGetRegionInfo, 0, u32(tt.argsz, 0, 2, 0), u64(0, 0)))
			buf, oob := make([]byte, 512), make([]byte, 512)
			n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buf[16:n], tt.want) {
				t.Errorf("payload % x, want % x", buf[16:n], tt.want)
			}
			fds := 0
			if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) > 0 {
				got, _ := unix.ParseUnixRights(&msgs[0])
				fds = len(got)
				for _, fd := range got {
					unix.Close(fd)
				}
			}
			if fds != tt.fds {
				t.Errorf("%d descriptors, want %d", fds, tt.fds)
			}
		})
	}
	t.Run("a client that takes no descriptors", func(t *testing.T) {
		path, _ := serveLayout(t, newCounter(), mappedLayout(file), vfiouser.Options{})
		c := dialWith(t, path, vfiouser.ClientOptions{Capabilities: `{"capabilities": {"max_msg_fds": 0, "max_data_xfer_size": 1048576}}`})
		m, err := c.MapInfo(2)
		if err != nil || m.Flags != 3 || m.File != nil {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// TestMapRegion maps what the server offers and sees the device's memory.
func TestMapRegion(t *testing.T) {
	file := memory(t, 0x10000)
	defer file.Close()
	for name, areas := range map[string][]vfiouser.Area{
		"whole": nil, "areas": {{Offset: 0x2000, Size: 0x1000}, {Offset: 0x4000, Size: 0x2000}}} {
		path, _ := serveLayout(t, newCounter(), mappedLayout(file, areas...), vfiouser.Options{})
		c := dial(t, path)
		before := descriptors(t)
		m, err := c.MapInfo(2)
		if err != nil {
			t.Fatal(err)
		}
		if want := []vfiouser.Area{{Offset: 0, Size: 0x8000}}; areas == nil && !slices.Equal(m.Areas, want) || areas != nil && !slices.Equal(m.Areas, areas) {
			t.Errorf("%s: areas %+v", name, m.Areas)
		}
		a := m.Areas[len(m.Areas)-1]
		conn, err := m.File.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var mapped []byte
		conn.Control(func(fd uintptr) {
			mapped, err = unix.Mmap(int(fd), int64(m.Offset+a.Offset), int(a.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		})
		if err != nil {
			t.Fatal(err)
		}
		copy(mapped[8:], name)
		got := make([]byte, len(name))
		if _, err := file.ReadAt(got, int64(0x8000+a.Offset+8)); err != nil || string(got) != name {
			t.Errorf("device finds %q, %v", got, err)
		}
		unix.Munmap(mapped)
		m.File.Close()
		if left := descriptors(t) - before; left != 0 {
			t.Errorf("%s: %d descriptors left", name, left)
		}
		if r, err := c.MapInfo(0); err != nil || r.Flags != 3 || r.Size != 4096 || r.File != nil || r.Areas != nil {
			t.Errorf("region without a file: %+v, %v", r, err)
		}
	}
}

func TestRegionIOFDs(t *testing.T) {
	path, _ := serveLayout(t, newCounter(), smallLayout(), vfiouser.Options{})
	c := dial(t, path)
	u32 := conformance.U32
	for _, tt := range []struct {
		name string
		req  []byte
		ok   bool
	}{
		{"none", u32(16, 0, 0, 0), true},
		{"more room", u32(512, 0, 7, 0), true},
		{"most room", u32(1<<20, 0, 7, 0), true},
		{"too much room", u32(1<<20+1, 0, 0, 0), false},
		{"no room", u32(15, 0, 0, 0), false},
		{"short", u32(16, 0, 0), false},
		{"flags", u32(16, 1, 0, 0), false},
		{"count", u32(16, 0, 0, 1), false},
		{"absent region", u32(16, 0, 1, 0), false},
		{"no region", u32(16, 0, 9, 0), false},
	} {
		got, err := c.Do(vfiouser.CmdGetRegionIOFDs, tt.req, 512)
		if tt.ok {
			if want := append(u32(16, 0), append(slices.Clone(tt.req[8:12]), 0, 0, 0, 0)...); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: % x, %v, want % x", tt.name, got, err, want)
			}
		} else if err == nil {
			t.Errorf("%s: % x", tt.name, got)
		}
	}
}

// TestNoFeatures: there is no migration, no dirty page logging, and a PROBE of them
// finds none.
func TestNoFeatures(t *testing.T) {
	path, _ := serveLayout(t, newCounter(), smallLayout(), vfiouser.Options{})
	c := dial(t, path)
	const get, set, probe = 1 << 16, 1 << 17, 1 << 18
	for _, flags := range []uint32{1 | get, 1 | probe | get, 1 | probe | set, 1 | probe, 2 | get, 2 | set, 6 | set, 7 | set, 8 | get, 0, 0xffffffff} {
		if p, err := c.Do(vfiouser.CmdDeviceFeature, conformance.U32(16, flags, 0, 0), 64); !isErrno(err, unix.EINVAL) {
			t.Errorf("DEVICE_FEATURE %#x: % x, %v, want EINVAL", flags, p, err)
		}
	}
	for _, cmd := range []vfiouser.Command{vfiouser.CmdMigDataRead, vfiouser.CmdMigDataWrite, vfiouser.CmdDMARead, vfiouser.CmdDMAWrite, vfiouser.CmdVersion, 0, 14, 19, 999} {
		if p, err := c.Do(cmd, make([]byte, 24), 64); !isErrno(err, unix.EINVAL) {
			t.Errorf("%v: % x, %v, want EINVAL", cmd, p, err)
		}
	}
}

func isErrno(err error, want unix.Errno) bool { return errors.Is(err, want) }
