// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vrnic/vrnic/guest/wire"
	"golang.org/x/sys/unix"
)

func TestIsInit(t *testing.T) {
	if IsInit() {
		t.Error("a test is no guest")
	}
}

func TestKernelLogRecords(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "6,339,5140900,-;NET: Registered protocol family 10\n", "<6>[    5.140900] NET: Registered protocol family 10\n"},
		{"with dictionary", "30,340,5690716,-;udevd[80]: starting version 181\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n", "<30>[    5.690716] udevd[80]: starting version 181\n"},
		{"semicolon in text", "4,1,0,c;a;b\n", "<4>[    0.000000] a;b\n"},
		{"newline in text", "3,1,12000000,-;one\\x0atwo\n", "<3>[   12.000000] one\n<3>[   12.000000] two\n"},
		{"large time", "3,1,123456789012,-,caller=T1;x\n", "<3>[123456.789012] x\n"},
		{"malformed", "not a record\n", "not a record\n"},
		{"malformed level", "x,1,2,-;text\n", "x,1,2,-;text\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(appendRecord(nil, tc.in)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	write := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(first, "data"), 0o644)
	write(filepath.Join(first, "only"), 0o644)
	write(filepath.Join(second, "data"), 0o755)
	env := []string{"PATH=/nowhere", "PATH=" + first + ":" + second, "OTHERPATH=x"}
	for _, tc := range []struct {
		name, want string
		err        error
	}{
		{"data", filepath.Join(second, "data"), nil},
		{"only", "", errNotExecutable},
		{"absent", "", errNotFound},
		{filepath.Join(second, "data"), filepath.Join(second, "data"), nil},
		{filepath.Join(first, "data"), "", errNotExecutable},
		{filepath.Join(first, "data", "below"), "", errNotFound},
		{dir + "/", "", errNotExecutable},
	} {
		got, err := lookPath(tc.name, env)
		if !errors.Is(err, tc.err) || err == nil && got != tc.want {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// sysfs is a copy of the shape of /sys as far as the agent looks at it.
type sysfs struct {
	t    *testing.T
	root string
}

func newSysfs(t *testing.T) sysfs { return sysfs{t, t.TempDir()} }

func (s sysfs) file(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s sysfs) link(path, target string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		s.t.Fatal(err)
	}
}

func (s sysfs) netdev(name, driver string, index int, mac string) {
	s.t.Helper()
	s.file("class/net/"+name+"/ifindex", fmt.Sprint(index))
	s.file("class/net/"+name+"/address", mac)
	if driver != "" {
		s.link("class/net/"+name+"/device/driver", "../../../bus/pci/drivers/"+driver)
	}
	if driver == "ice" {
		s.file("class/net/"+name+"/device/ice.roce.0/uevent", "")
	}
}

// TestAdopt: every ice netdev gets its settings once; a new one after a rebind
// gets them again, and nobody else's is touched.
func TestAdopt(t *testing.T) {
	const mac1, mac2, mac3 = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
	s := newSysfs(t)
	s.netdev("lo", "", 1, "00:00:00:00:00:00")
	s.netdev("eth0", "virtio_net", 2, mac1)
	s.netdev("eth1", "ice", 3, mac1)
	s.netdev("eth2", "ice", 4, mac2)

	var calls []string
	busy := map[int]bool{4: true}
	n := newNetwork([]wire.Net{
		{MTU: 1400},
		{MAC: "02:00:00:00:00:01", MTU: 9000, Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("fd77::1/64")}},
	}, func(string, string, ...any) {})
	n.sys = s.root
	n.setLink = func(index, mtu int) error {
		if busy[index] {
			return unix.EBUSY
		}
		calls = append(calls, fmt.Sprintf("up %d mtu %d", index, mtu))
		return nil
	}
	n.addAddress = func(index int, p netip.Prefix) error {
		calls = append(calls, fmt.Sprintf("address %d %s", index, p))
		return nil
	}
	now := time.Unix(1000, 0)
	n.now = func() time.Time { return now }
	step := func(again bool, want ...string) {
		t.Helper()
		calls = nil
		if got := n.adopt(); got > 0 != again {
			t.Errorf("try again: %v, want %v", got, again)
		}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Error(diff)
		}
	}
	step(true, "up 3 mtu 9000", "address 3 192.168.77.1/24", "address 3 fd77::1/64")
	step(true)
	busy[4] = false
	step(false, "up 4 mtu 1400") // the settings for all others
	step(false)

	if err := os.RemoveAll(filepath.Join(s.root, "class/net/eth1")); err != nil {
		t.Fatal(err)
	}
	s.netdev("eth1", "ice", 7, mac1)
	step(false, "up 7 mtu 9000", "address 7 192.168.77.1/24", "address 7 fd77::1/64")

	s.netdev("eth9", "ice", 9, mac3)
	busy[9] = true
	for range maxAttempts {
		step(true)
	}
	busy[9] = false
	step(false) // given up

	// One whose driver is at work on it, still or for ever.
	s.netdev("eth10", "ice", 10, mac3)
	s.netdev("eth11", "ice", 11, mac3)
	for _, name := range []string{"eth10", "eth11"} {
		if err := os.RemoveAll(filepath.Join(s.root, "class/net", name, "device/ice.roce.0")); err != nil {
			t.Fatal(err)
		}
	}
	step(true)
	s.file("class/net/eth10/device/ice.roce.0/uevent", "")
	step(true, "up 10 mtu 1400")
	now = now.Add(probePatience)
	step(false, "up 11 mtu 1400")
}

func TestDevices(t *testing.T) {
	const pci = "bus/pci/devices/0000:01:00.0/"
	both := expectation{ice: true, irdma: true}
	card := func(s sysfs) {
		s.file("bus/pci/devices/0000:00:00.0/vendor", "0x8086")
		s.file("bus/pci/devices/0000:00:00.0/device", "0x29c0")
		s.file(pci+"vendor", "0x8086")
		s.file(pci+"device", "0x1592")
	}
	bound := func(s sysfs) {
		card(s)
		s.link(pci+"driver", "../../drivers/ice")
		s.file(pci+"net/eth0/carrier", "0")
	}
	active := func(s sysfs) {
		bound(s)
		s.file(pci+"net/eth0/carrier", "1")
		s.file(pci+"infiniband/irdma0/ports/1/state", "4: ACTIVE")
	}
	device := wire.Device{PCI: "0000:01:00.0"}
	withNetdev := wire.Device{PCI: "0000:01:00.0", Netdev: "eth0"}
	full := wire.Device{PCI: "0000:01:00.0", Netdev: "eth0", IBDev: "irdma0"}
	for _, tc := range []struct {
		name    string
		build   func(sysfs)
		want    expectation
		found   []wire.Device
		missing []string
		pending bool
	}{
		{name: "no card", build: func(sysfs) {}, want: both},
		{name: "nothing wanted", build: card, found: []wire.Device{device}},
		{name: "no driver", build: card, want: both, found: []wire.Device{device},
			missing: []string{"0000:01:00.0: no driver took the device"}},
		{name: "no carrier, no RDMA device", build: bound, want: both, found: []wire.Device{withNetdev}, pending: true,
			missing: []string{"0000:01:00.0: eth0 has no carrier", "0000:01:00.0: no RDMA device"}},
		{name: "port down", want: both, found: []wire.Device{full}, pending: true,
			build: func(s sysfs) {
				active(s)
				s.file(pci+"infiniband/irdma0/ports/1/state", "1: DOWN")
			},
			missing: []string{"0000:01:00.0: port 1 of irdma0 is not active"}},
		{name: "active", build: active, want: both, found: []wire.Device{full}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSysfs(t)
			tc.build(s)
			found, missing, pending := devices(s.root, tc.want)
			if diff := cmp.Diff(tc.found, found); diff != "" {
				t.Errorf("found: %s", diff)
			}
			if diff := cmp.Diff(tc.missing, missing); diff != "" {
				t.Errorf("missing: %s", diff)
			}
			if pending != tc.pending {
				t.Errorf("pending %v, want %v", pending, tc.pending)
			}
		})
	}
}

// A module that is part of the kernel has no build of its own, one that is not
// loaded no folder.
func TestModules(t *testing.T) {
	sys := t.TempDir()
	for name, content := range map[string]string{
		"irdma/srcversion":                "0123456789ABCDEF0123456\n",
		"ice/uevent":                      "",
		"rxe/notes/.note.gnu.build-id":    "\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00\xAB\x12\x00\x00",
		"broken/notes/.note.gnu.build-id": "\x04\x00",
	} {
		path := filepath.Join(sys, "module", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []wire.Module{{Name: "irdma", SrcVersion: "0123456789ABCDEF0123456"}, {Name: "rxe", BuildID: "ab12"}}
	if diff := cmp.Diff(want, modules(sys, "ice", "irdma", "rxe", "broken", "none")); diff != "" {
		t.Error(diff)
	}
}

func TestPlace(t *testing.T) {
	dir := t.TempDir()
	at := func(p string) string { return filepath.Join(dir, p) }
	for _, d := range []string{"from/tree/sub", "there/tree"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{"from/one": 0o755, "from/two": 0o600, "from/tree/sub/file": 0o640, "there/tree/old": 0o644} {
		if err := os.WriteFile(at(path), []byte(path), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/file", at("from/tree/link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []wire.Copy{
		{From: at("from/one"), To: at("new/name")},
		{From: at("from/two"), To: at("newdir") + "/"},
		{From: at("from/tree"), To: at("there")}, // merged into there/tree
	} {
		if err := place(c); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	for path, want := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"new/name":            {"from/one", 0o755},
		"newdir/two":          {"from/two", 0o600},
		"there/tree/sub/file": {"from/tree/sub/file", 0o640},
		"there/tree/link":     {"from/tree/sub/file", 0o640},
		"there/tree/old":      {"there/tree/old", 0o644},
	} {
		b, err := os.ReadFile(at(path))
		if err != nil {
			t.Error(err)
			continue
		}
		info, err := os.Stat(at(path))
		if err != nil || string(b) != want.text || info.Mode().Perm() != want.mode {
			t.Errorf("%s: %q, mode %v, %v; want %+v", path, b, info.Mode(), err, want)
		}
	}
	if left, _ := filepath.Glob(at("from/*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestModprobeConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modprobe.d", "vrnic.conf")
	if err := writeModprobeConfig(path, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file without options")
	}
	if err := writeModprobeConfig(path, []string{"irdma resource_profile=1", "ice debug=16"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if want := "options irdma resource_profile=1\noptions ice debug=16\n"; err != nil || string(b) != want {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}
