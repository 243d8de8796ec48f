// SPDX-License-Identifier: Apache-2.0

package kbuild

import (
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vrnic/vrnic/images"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// builder has a tree whose kbuild concatenates sources.
func builder(t *testing.T) *Builder {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("modules are built with make, which this host lacks")
	}
	dir := t.TempDir()
	tree := &images.KernelTree{Release: "6.1.0-1-amd64", Key: "k", Build: filepath.Join(dir, "build"), Source: filepath.Join(dir, "source")}
	write(t, filepath.Join(tree.Build, "Makefile"), "modules:\n\t@echo x >> $(M)/ran\n"+
		"\t@for o in $$(sed -n 's/obj-.* := //p' $(M)/Makefile); do cat $(M)/*.c > $(M)/$${o%.o}.ko; done\n")
	write(t, filepath.Join(tree.Source, irdmaDir, "Makefile"), "obj-$(CONFIG_INFINIBAND_IRDMA) := irdma.o\n")
	write(t, filepath.Join(tree.Source, irdmaDir, "a.c"), "one two three\n")
	write(t, filepath.Join(tree.Source, irdmaDir, "b.c"), "two two\n")
	write(t, filepath.Join(tree.Source, iceDir, "ice.h"), "")
	b, err := New(tree, filepath.Join(dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEdits(t *testing.T) {
	t.Setenv("MAKEFLAGS", "--no-such-flag")
	b := builder(t)
	to := filepath.Join(t.TempDir(), "irdma.ko")
	for _, step := range []struct {
		what  string
		edits []Edit
		want  string // of the module; "" if the edits do not fit
	}{
		{"stock", nil, "one two three\ntwo two\n"},
		{"edited", []Edit{{"a.c", "two", "2"}}, "one 2 three\ntwo two\n"},
		{"twice", []Edit{{"a.c", "one", "1"}, {"a.c", "three", "3"}}, "1 two 3\ntwo two\n"},
		{"ambiguous", []Edit{{"b.c", "two", "2"}}, ""},
		{"gone", []Edit{{"a.c", "four", "4"}}, ""},
		{"no such file", []Edit{{"c.c", "one", "1"}}, ""},
		{"stock again", nil, "one two three\ntwo two\n"},
	} {
		err := b.Irdma(t.Context(), to, step.edits...)
		if step.want == "" {
			if !errors.Is(err, ErrSourceChanged) {
				t.Errorf("%s: %v, want ErrSourceChanged", step.what, err)
			}
			continue
		}
		got, rerr := os.ReadFile(to)
		if err != nil || rerr != nil || string(got) != step.want {
			t.Errorf("%s: %v, %v, module of %q, want %q", step.what, err, rerr, got, step.want)
		}
	}
}

func TestModule(t *testing.T) {
	b := builder(t)
	source, to := filepath.Join(t.TempDir(), "own.c"), filepath.Join(t.TempDir(), "own.ko")
	write(t, source, "mine\n")
	if err := b.Module(t.Context(), source, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != "mine\n" {
		t.Errorf("module of %q, %v", got, err)
	}
}

// A build keeps the time of a file that does not change, or make would compile all.
func TestUnchangedFilesKeepTheirTime(t *testing.T) {
	b := builder(t)
	to := filepath.Join(t.TempDir(), "irdma.ko")
	file := func(name string) os.FileInfo {
		st, err := os.Stat(filepath.Join(b.dir, irdmaDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if err := b.Irdma(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	before := map[string]os.FileInfo{"a.c": file("a.c"), "b.c": file("b.c")}
	if err := b.Irdma(t.Context(), to, Edit{"a.c", "one", "1"}); err != nil {
		t.Fatal(err)
	}
	if !file("b.c").ModTime().Equal(before["b.c"].ModTime()) {
		t.Error("an unchanged file was written again")
	}
	if file("a.c").Size() == before["a.c"].Size() {
		t.Error("a changed file was not written")
	}
}

var online = flag.Bool("kbuild.online", false, "build all modules, fetching what is missing into the user's image cache")

// TestStock builds the driver of debian-12's kernel as it is, and with each fault.
func TestStock(t *testing.T) {
	if !*online {
		t.Skip("downloads about 160 MB and compiles for a minute: run with -kbuild.online")
	}
	dir, err := images.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := images.Open(images.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	k, err := cache.Kernel(t.Context(), "debian-12")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := cache.KernelTree(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(tree, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stock := filepath.Join(t.TempDir(), "irdma.ko")
	if err := b.Irdma(t.Context(), stock); err != nil {
		t.Fatal(err)
	}
	// What the kernel checks when it loads the module must be as in its own: the
	// release and the version of every symbol it uses.
	own := imports(t, filepath.Join(k.Modules.Dir, "kernel", irdmaDir, "irdma.ko"))
	built := imports(t, stock)
	if len(own) < 100 || len(own) != len(built) {
		t.Errorf("the stock module uses %d symbols, ours %d", len(own), len(built))
	}
	for name, crc := range own {
		if built[name] != crc {
			t.Errorf("symbol %s has version %q, in the stock module %q", name, built[name], crc)
		}
	}
	image, err := os.ReadFile(stock)
	if err != nil || !bytes.Contains(image, []byte("vermagic="+k.Release+" SMP preempt mod_unload modversions")) {
		t.Errorf("the module is for another kernel: %v", err)
	}
	for _, f := range Faults() {
		to := filepath.Join(t.TempDir(), f.Name+".ko")
		if err := b.Irdma(t.Context(), to, f.Edits...); err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if other, err := os.ReadFile(to); err != nil || bytes.Equal(other, image) {
			t.Errorf("%s: the fault made no difference, %v", f.Name, err)
		}
	}
}

// imports are the symbols that a module uses with their versions, from its section
// __versions: entries of 64 bytes, a CRC in 8 bytes and a name (module.h:modversion_info).
func imports(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section("__versions")
	if s == nil {
		t.Fatalf("%s has no symbol versions", path)
	}
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for ; len(b) >= 64; b = b[64:] {
		found[strings.TrimRight(string(b[8:64]), "\x00")] = string(b[:8])
	}
	return found
}
