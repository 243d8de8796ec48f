// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKernelTreeFits(t *testing.T) {
	c := openTest(t, t.TempDir())
	d, _ := findDebianKernel("debian-12")
	k := &Kernel{Name: "debian-12", Release: "6.1.0-57-amd64", entry: &entry{Manifest: Manifest{Packages: []Package{
		{Name: "linux-image-6.1.0-57-amd64", Version: "6.1.192-3"}, {Name: "linux-image-amd64", Version: "6.1.192-4"},
	}}}}
	recipe, err := kernelTreeRecipe(d, k)
	want := []string{"linux-headers-6.1.0-57-amd64=6.1.192-3", "linux-source-6.1=6.1.192-3"}
	if diff := cmp.Diff(want, recipe.Packages); err != nil || diff != "" {
		t.Errorf("%v; packages (-want +got):\n%s", err, diff)
	}
	if _, err := c.KernelTree(t.Context(), k); !errors.Is(err, ErrOffline) {
		t.Errorf("of an empty cache: %v, want ErrOffline", err)
	}
	if _, err := c.KernelTree(t.Context(), &Kernel{Name: "host"}); !errors.Is(err, ErrUnknownName) {
		t.Errorf("of the host's kernel: %v, want ErrUnknownName", err)
	}
	// One of another kernel must not be taken for this one's.
	other := *k
	other.Release, other.entry = "6.1.0-56-amd64", &entry{Manifest: Manifest{Packages: []Package{{Name: "linux-image-6.1.0-56-amd64", Version: "6.1.190-1"}}}}
	old, err := kernelTreeRecipe(d, &other)
	if err != nil {
		t.Fatal(err)
	}
	publishBy(t, c, hashOf(old), "kbuild-debian-12", "1", "source/linux-source-6.1/drivers/f", "")
	if _, err := c.KernelTree(t.Context(), k); !errors.Is(err, ErrOffline) {
		t.Errorf("with the tree of an older kernel: %v, want ErrOffline", err)
	}
	e := publishBy(t, c, hashOf(recipe), "kbuild-debian-12", "2", "source/linux-source-6.1/drivers/f", "")
	tree, err := c.KernelTree(t.Context(), k)
	if err != nil || tree.Source != e.path("source/linux-source-6.1") || tree.Key != "2" {
		t.Errorf("tree %+v, %v", tree, err)
	}
}

// A tree works wherever the cache is: its makefiles and programs find each other.
func TestKernelTreeMoves(t *testing.T) {
	root := t.TempDir()
	mustWrite(t, filepath.Join(root, "usr/src/linux-headers-1-amd64/Makefile"), "include /usr/src/linux-headers-1-common/Makefile\n")
	mustWrite(t, filepath.Join(root, "usr/src/linux-headers-1-common/Makefile"), "all:\n\t@echo built in $(CURDIR)\n")
	tool := filepath.Join(root, "usr/lib/linux-kbuild-1/scripts/basic/fixdep")
	mustWrite(t, tool, "\x7fELF program")
	mustWrite(t, filepath.Join(root, "usr/lib/linux-kbuild-1/scripts/object.o"), "\x7fELF object")
	mustWrite(t, filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), "#!/bin/sh\nshift 2\necho ran \"$2\" \"${3##*/}\" \"$4\"\n")
	for _, f := range []string{tool, filepath.Join(root, "lib64/ld-linux-x86-64.so.2")} {
		if err := os.Chmod(f, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../../lib/linux-kbuild-1/scripts", filepath.Join(root, "usr/src/linux-headers-1-amd64/scripts")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(movableHeaders(root), ownLoader(root)); err != nil {
		t.Fatal(err)
	}
	build := filepath.Join(root, "usr/src/linux-headers-1-amd64")
	for _, run := range []struct{ name, want string }{
		{"make", "built in " + build + "\n"},
		{"./scripts/basic/fixdep", "ran ./scripts/basic/fixdep fixdep.elf -x\n"},
	} {
		cmd := exec.Command(run.name, map[bool][]string{true: {"-s"}, false: {"-x"}}[run.name == "make"]...)
		cmd.Dir = build
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != run.want {
			t.Errorf("%s: %v, %q, want %q", run.name, err, out, run.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "usr/lib/linux-kbuild-1/scripts/object.o")); err != nil || string(b) != "\x7fELF object" {
		t.Errorf("an object was taken for a program: %q, %v", b, err)
	}
}
