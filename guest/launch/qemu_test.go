// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
	"github.com/vrnic/vrnic/guest/wire"
)

func TestAttachArgs(t *testing.T) {
	want := []string{
		"-machine", "q35,memory-backend=mem0",
		"-object", "memory-backend-memfd,id=mem0,size=2G,share=on",
		"-m", "2G",
		"-device", "pcie-root-port,id=rp0,chassis=1,slot=1",
		"-device", `{"bus":"rp0","driver":"vfio-user-pci","id":"vrnic0","socket":{"path":"/run/a \"b\",c","type":"unix"}}`,
		"-device", "pcie-root-port,id=rp1,chassis=2,slot=2",
		"-device", `{"bus":"rp1","driver":"vfio-user-pci","id":"vrnic1","socket":{"path":"/run/d","type":"unix"}}`,
	}
	if diff := cmp.Diff(want, AttachArgs([]string{`/run/a "b",c`, "/run/d"}, "2G")); diff != "" {
		t.Error(diff)
	}
}

func TestKernelCommandLine(t *testing.T) {
	for _, tc := range []struct {
		c    Config
		kvm  bool
		want string
	}{
		{Config{}, true, "console=ttyS0 loglevel=4 panic=-1 oops=panic"},
		{Config{}, false, "console=ttyS0 loglevel=4 panic=-1 oops=panic no_timer_check"},
		{Config{GDB: true, Append: "loglevel=8 foo"}, true, "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr loglevel=8 foo"},
		{Config{IOMMU: true}, true, "console=ttyS0 loglevel=4 panic=-1 oops=panic intel_iommu=on iommu=nopt iommu.strict=1"},
	} {
		if got := tc.c.kernelCommandLine(consoleQuiet, tc.kvm); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.c, got, tc.want)
		}
	}
}

func TestArguments(t *testing.T) {
	args, err := Config{
		Kernel: "/k", CPUs: 3, MemoryMiB: 512, Accel: "tcg", GDB: true,
		Sockets: []string{"/s"}, QEMUArgs: []string{"-device", "edu"},
	}.qemuArgs(consoleVerbose)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"-smp", "3"}, {"-m", "512M"}, {"-kernel", "/k"}, {"-gdb", "tcp:127.0.0.1:1234"}, {"-accel", "tcg,thread=multi"},
	} {
		i := slices.Index(args, want[0])
		if i < 0 || args[i+1] != want[1] {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if !slices.Equal(args[len(args)-2:], []string{"-device", "edu"}) {
		t.Errorf("the user's arguments are not the last: %q", args)
	}
	// The card is behind the IOMMU only if it comes after it.
	args, err = Config{Accel: "tcg", IOMMU: true, Sockets: []string{"/s"}}.qemuArgs(consoleQuiet)
	if err != nil {
		t.Fatal(err)
	}
	iommu := slices.Index(args, "intel-iommu,caching-mode=on")
	if card := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "vfio-user-pci") }); iommu < 0 || card < iommu {
		t.Errorf("IOMMU at %d, card at %d in %q", iommu, card, args)
	}
	for _, accel := range []string{"hvf", "KVM"} {
		if _, err := useKVM(accel); err == nil {
			t.Errorf("accelerator %q accepted", accel)
		}
	}
}

func TestConfigRejects(t *testing.T) {
	good := Config{QEMU: []string{"q"}, Kernel: "k"}
	if c, err := good.withDefaults(); err != nil || c.CPUs != DefaultCPUs || c.MemoryMiB != DefaultMemoryMiB || len(c.Guest.Modules) == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for name, spoil := range map[string]func(*Config){
		"no QEMU":       func(c *Config) { c.QEMU = nil },
		"no kernel":     func(c *Config) { c.Kernel = "" },
		"CPUs":          func(c *Config) { c.CPUs = -1 },
		"little memory": func(c *Config) { c.MemoryMiB = 64 },
	} {
		c := good
		spoil(&c)
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestInitrd: archives one after the other, then the overlay with init, its
// configuration and the user's tree.
func TestInitrd(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("tree/sub/prog", "prog", 0o755)
	if err := os.Symlink("prog", filepath.Join(dir, "tree/sub/link")); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Init:   fakeInit(t),
		Initrd: []string{write("one", "070701", 0o644), write("two", strings.Repeat("x", 512), 0o644)},
		Copies: []Copy{{Host: filepath.Join(dir, "tree"), Guest: "/opt/"}},
		Guest:  wire.Config{Hostname: "h"},
	}
	f, err := c.buildInitrd()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 1024)
	if _, err := f.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	want := append(append([]byte("070701"), make([]byte, 506)...), bytes.Repeat([]byte("x"), 512)...)
	if !bytes.Equal(head, want) {
		t.Error("the archives are not one after the other, each at a multiple of 512")
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(io.NewSectionReader(f, 1024, 1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{}
	for _, r := range records {
		if r.ReaderAt == nil {
			continue
		}
		b, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		if err != nil {
			t.Fatal(err)
		}
		text[r.Name] = string(b)
	}
	if text[".vrnic/0/tree/sub/prog"] != "prog" || text[".vrnic/0/tree/sub/link"] != "prog" {
		t.Errorf("the tree: %q", text)
	}
	config, err := wire.DecodeConfig([]byte(text[strings.TrimPrefix(wire.ConfigPath, "/")]))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]wire.Copy{{From: "/.vrnic/0/tree", To: "/opt/"}}, config.Copies); diff != "" {
		t.Error(diff)
	}
	if len(text["init"]) != 64 {
		t.Errorf("init has %d bytes", len(text["init"]))
	}
}

func TestInitMustBeStatic(t *testing.T) {
	if err := checkStatic("/bin/sh"); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("a dynamic executable: %v", err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(script); err == nil {
		t.Error("a script is accepted")
	}
}

func TestConsole(t *testing.T) {
	var sink bytes.Buffer
	c := newConsole(&sink)
	in := "\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS\r\n" + strings.Repeat("y", 3*maxLineLen) + "\nunfinished \xff"
	for i := range len(in) {
		c.take([]byte(in[i : i+1]))
	}
	if diff := cmp.Diff([]string{"SeaBIOS", strings.Repeat("y", maxLineLen), "unfinished ?"}, c.last.get()); diff != "" {
		t.Error(diff)
	}
	if sink.String() != in {
		t.Error("the copy is not exact")
	}
	if c.panicText() != "" || isClosed(c.panicked) {
		t.Error("a panic without a panic")
	}
	c.take([]byte("\n[ 1.0] Kernel panic - not syncing: first\n[ 1.1] ---[ end Kernel panic - not syncing: first ]---\n"))
	if got := c.panicText(); got != "Kernel panic - not syncing: first" || !isClosed(c.panicked) {
		t.Errorf("panic text %q", got)
	}
}

func TestKernelLogBelowConsole(t *testing.T) {
	var out bytes.Buffer
	b := &belowConsole{w: &out, level: consoleQuiet}
	in := "<6>[ 0.1] info\n<3>[ 0.2] error\n<4>[ 0.3] warning\nnot a record\n<30>[ 0.4] daemon\n<6>[ 0.5] rest"
	for i := range len(in) {
		if _, err := b.Write([]byte(in[i : i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if want := "<6>[ 0.1] info\n<4>[ 0.3] warning\n<30>[ 0.4] daemon\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
