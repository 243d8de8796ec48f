// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module makes an ELF file that has nothing but a .modinfo.
func module(info ...string) []byte {
	text := []byte(strings.Join(info, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const header, section = 64, 64
	le := binary.LittleEndian
	b := make([]byte, header)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)  // ET_REL
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], uint64(header+len(text)+len(names)))
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], section)
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	b = append(append(b, text...), names...)
	b = append(b, make([]byte, section)...)
	for _, s := range []struct{ name, kind, offset, size int }{
		{1, 1, header, len(text)}, {10, 3, header + len(text), len(names)},
	} {
		h := make([]byte, section)
		le.PutUint32(h[0:], uint32(s.name))
		le.PutUint32(h[4:], uint32(s.kind))
		le.PutUint64(h[24:], uint64(s.offset))
		le.PutUint64(h[32:], uint64(s.size))
		b = append(b, h...)
	}
	return b
}

func TestReadModInfo(t *testing.T) {
	got, err := readModInfo(module("name=irdma", "vermagic=6.1.0-50-amd64 SMP preempt mod_unload", "depends=ib_core,i40e,ib-uverbs",
		"softdep=pre: crc32c post: other", "license=GPL", "depends="))
	if err != nil {
		t.Fatal(err)
	}
	want := modInfo{name: "irdma", vermagic: "6.1.0-50-amd64", needs: []string{"ib_core", "i40e", "ib_uverbs", "crc32c", "other"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(modInfo{})); d != "" {
		t.Errorf("modinfo (-want +got):\n%s", d)
	}
	if _, err := readModInfo([]byte("no ELF file")); err == nil {
		t.Error("text was taken for a module")
	}
}

// fakeBzImage is a file with the setup header of a kernel.
func fakeBzImage(release string) string {
	b := make([]byte, 0x400)
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(b[0x20e:], 0x100)
	copy(b[0x300:], release+" (builder@host) #1 SMP\x00")
	return string(b)
}

// fakeTools publishes a userland whose loader only stands in for depmod.
func fakeTools(t *testing.T, c *Cache) {
	t.Helper()
	v := baseVariant
	err := c.locked(t.Context(), func() error {
		dir, err := c.tempLocked(v.name)
		if err != nil {
			return err
		}
		// Called as: ld.so --library-path DIR DEPMOD -b ROOT RELEASE
		loader := filepath.Join(dir, "root", "lib64/ld-linux-x86-64.so.2")
		mustWrite(t, loader, "#!/bin/sh\ncd $5/lib/modules/$6 && find -L kernel updates -name '*.ko' 2>/dev/null | sort >modules.dep\n")
		if err := os.Chmod(loader, 0o755); err != nil {
			return err
		}
		_, err = c.publishLocked(dir, Manifest{Name: v.name, Key: "k", Recipe: hashOf(v.recipe())})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func gzipped(t *testing.T, b []byte) string {
	t.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(b)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return z.String()
}

func TestBuildTreeKernel(t *testing.T) {
	const release = "6.99.0-mine"
	c := openTest(t, t.TempDir())
	fakeTools(t, c)
	tree := t.TempDir()
	image := filepath.Join(tree, "arch/x86/boot/bzImage")
	mustWrite(t, image, fakeBzImage(release))
	mustWrite(t, filepath.Join(tree, "include/config/kernel.release"), release+"\n")
	mustWrite(t, filepath.Join(tree, "modules.order"),
		"drivers/net/ice/ice.o\nkernel/drivers/infiniband/irdma.ko\ncore/ib_core.o\nsound/snd.o\nfs/gone.o\n")
	mustWrite(t, filepath.Join(tree, "drivers/net/ice/ice.ko"), string(module("name=ice")))
	mustWrite(t, filepath.Join(tree, "drivers/infiniband/irdma.ko"), string(module("name=irdma", "depends=ib_core,ice,builtin_one")))
	mustWrite(t, filepath.Join(tree, "core/ib_core.ko"), string(module("name=ib_core", "depends=ib_core")))
	mustWrite(t, filepath.Join(tree, "sound/snd.ko"), string(module("name=snd")))

	k, err := c.Kernel(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != release || k.Name != tree {
		t.Errorf("got %+v", k)
	}
	const modules = "kernel/core/ib_core.ko\nkernel/drivers/infiniband/irdma.ko\nkernel/drivers/net/ice/ice.ko\n"
	dep := filepath.Join(k.Modules.Dir, "modules.dep")
	if b, err := os.ReadFile(dep); err != nil || string(b) != modules {
		t.Errorf("modules %q, %v, want %q", b, err, modules)
	}
	if b, err := os.ReadFile(k.Image); err != nil || string(b) != fakeBzImage(release) {
		t.Errorf("the image is another file (%v)", err)
	}
	again, err := c.Kernel(t.Context(), image)
	if err != nil || again.Image != k.Image {
		t.Errorf("by the image: %+v, %v, want the same entry", again, err)
	}
	mustWrite(t, filepath.Join(tree, "drivers/net/ice/ice.ko"), string(module("name=ice", "version=2")))
	newer, err := c.Kernel(t.Context(), tree)
	if err != nil {
		t.Fatal(err)
	}
	if newer.Image == k.Image {
		t.Error("a rebuilt module did not make a new entry")
	}
	if _, err := os.Stat(dep); err != nil {
		t.Errorf("the former entry, perhaps in use, is gone: %v", err)
	}
}

func TestInstalledKernel(t *testing.T) {
	const release = "6.1.0-1-amd64"
	root := t.TempDir()
	dir := filepath.Join(root, "lib/modules", release)
	mustWrite(t, filepath.Join(root, "boot/vmlinuz-"+release), "image")
	mustWrite(t, filepath.Join(dir, "kernel/net/ice.ko.gz"), gzipped(t, module("name=ice")))
	mustWrite(t, filepath.Join(dir, "kernel/net/8021q.ko"), string(module("name=8021q")))
	mustWrite(t, filepath.Join(dir, "updates/dkms/ice.ko"), string(module("name=ice", "version=dkms")))
	src, err := installedKernel(root)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"8021q": filepath.Join(dir, "kernel/net/8021q.ko"), "ice": filepath.Join(dir, "updates/dkms/ice.ko")}
	if d := cmp.Diff(want, src.modules); d != "" || src.release != release || src.image != filepath.Join(root, "boot/vmlinuz-"+release) {
		t.Errorf("got %+v, modules (-want +got):\n%s", src, d)
	}
	b, err := readModule(filepath.Join(dir, "kernel/net/ice.ko.gz"))
	if err != nil || !bytes.Equal(b, module("name=ice")) {
		t.Errorf("a compressed module was not read back: %v", err)
	}
	if got := src.installedName(filepath.Join(dir, "kernel/net/ice.ko.gz")); got != "kernel/net/ice.ko" {
		t.Errorf("installed as %s", got)
	}
	if _, err := installedKernel(t.TempDir()); err == nil {
		t.Error("a kernel was found in an empty directory")
	}
}

func TestLocalKernelErrors(t *testing.T) {
	c := openTest(t, t.TempDir())
	if _, err := c.Kernel(t.Context(), "debian-99"); !errors.Is(err, ErrUnknownName) {
		t.Errorf("unknown name: error %v", err)
	}
	if _, err := c.Kernel(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a kernel build tree") {
		t.Errorf("empty directory: error %v", err)
	}
	short := filepath.Join(t.TempDir(), "short")
	mustWrite(t, short, "MZ")
	if _, err := c.Kernel(t.Context(), short); err == nil || !strings.Contains(err.Error(), "not a bzImage") {
		t.Errorf("short file: error %v", err)
	}
	// kernel_version points behind the end.
	wild := []byte(fakeBzImage("x"))[:0x240]
	binary.LittleEndian.PutUint16(wild[0x20e:], 0xffff)
	mustWrite(t, short, string(wild))
	if _, err := c.Kernel(t.Context(), short); err == nil {
		t.Error("an image without a release was taken")
	}
}

func TestReplaceModules(t *testing.T) {
	const release = "6.99.0-mine"
	c := openTest(t, t.TempDir())
	fakeTools(t, c)
	root := t.TempDir()
	dir := filepath.Join(root, "lib/modules", release)
	mustWrite(t, filepath.Join(dir, "vmlinuz"), fakeBzImage(release))
	mustWrite(t, filepath.Join(dir, "kernel/net/ice.ko"), string(module("name=ice")))
	mustWrite(t, filepath.Join(dir, "kernel/rdma/irdma.ko"), string(module("name=irdma")))
	k, err := c.Kernel(t.Context(), filepath.Join(dir, "vmlinuz"))
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	ice := string(module("name=ice", "vermagic="+release+" SMP", "version=mine"))
	extra := string(module("name=extra", "vermagic="+release+" SMP", "depends=absent"))
	mustWrite(t, filepath.Join(own, "sub/ice.ko"), ice)
	mustWrite(t, filepath.Join(own, "extra.ko.gz"), gzipped(t, []byte(extra)))
	mustWrite(t, filepath.Join(own, "notes.txt"), "no module")
	files, err := c.ReplaceModules(t.Context(), k, []string{own})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		got[f.Path] = string(f.Data)
	}
	want := map[string]string{
		"/lib/modules/" + release + "/kernel/net/ice.ko": ice,
		"/lib/modules/" + release + "/updates/extra.ko":  extra,
		"/lib/modules/" + release + "/modules.dep":       "kernel/net/ice.ko\nkernel/rdma/irdma.ko\nupdates/extra.ko\n",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("overlay (-want +got):\n%s", d)
	}

	foreign := filepath.Join(t.TempDir(), "ice.ko")
	mustWrite(t, foreign, string(module("name=ice", "vermagic=5.0 SMP")))
	for name, paths := range map[string][]string{
		"another release": {foreign}, "not a module": {filepath.Join(own, "notes.txt")}, "empty": {t.TempDir()}, "absent": {filepath.Join(own, "no.ko")},
	} {
		if _, err := c.ReplaceModules(t.Context(), k, paths); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestGuestModulesAreUnique(t *testing.T) {
	s := slices.Sorted(slices.Values(guestModules))
	if u := slices.Compact(slices.Clone(s)); len(u) != len(s) {
		t.Errorf("%d modules are listed twice", len(s)-len(u))
	}
	for _, m := range guestModules {
		if strings.Contains(m, "-") {
			t.Errorf("%s must be written with underscores", m)
		}
	}
}
