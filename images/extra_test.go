// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExtra(t *testing.T) {
	c := openTest(t, t.TempDir())
	if _, err := c.Extra(t.Context(), "pyverb"); !errors.Is(err, ErrUnknownName) {
		t.Errorf("a name that there is not: %v", err)
	}
	if p, err := c.Extra(t.Context(), "pyverbs"); !errors.Is(err, ErrOffline) {
		t.Errorf("of an empty cache: %q, %v", p, err)
	}
	v, ok := findExtra("pyverbs")
	if !ok {
		t.Fatal("no such extra")
	}
	e := publishBy(t, c, v.extraRecipe(), v.name, "1", initramfsFile, "cpio")
	for _, get := range []func() (string, error){
		func() (string, error) { return c.Extra(t.Context(), v.name) },
		func() (string, error) { return c.Path(v.name) },
	} {
		if p, err := get(); err != nil || p != e.path(initramfsFile) {
			t.Errorf("got %q, %v; want %q", p, err, e.path(initramfsFile))
		}
	}
	// Other files of the same packages make another entry.
	v.drop = append([]string{"usr/bin/"}, v.drop...)
	if c.current(v.name, v.extraRecipe()) != nil {
		t.Error("an entry of another recipe was taken")
	}
}

// Python's scripts need a guest with python, and get their byte code with them.
func TestPythonUserland(t *testing.T) {
	const programs = "usr/share/doc/p/t/"
	tree := &entry{dir: t.TempDir()}
	files := map[string]string{
		"usr/lib/python3.13/base64.py": "#! /usr/bin/python3.13\n",
		"usr/bin/tool":                 "#!/usr/bin/env python3\n",
		"usr/bin/perlish":              "#!/usr/bin/perl\n",
		"usr/share/doc/p/t/test_a.py":  "import test_b\n",
	}
	for name, text := range files {
		mustWrite(t, tree.path(name), text)
		tree.Packages = append(tree.Packages, Package{Name: "p", Files: []string{name}})
	}
	// Stands in for python3.13 -m compileall.
	loader := tree.path("lib64/ld-linux-x86-64.so.2")
	mustWrite(t, loader, "#!/bin/sh\nshift 3\n[ \"$*\" = '-I -S -m compileall -q --invalidation-mode unchecked-hash -s "+tree.path()+
		" -p / "+tree.path("usr/lib/python3.13")+" "+tree.path("usr/lib/python3")+" "+tree.path(programs)+"' ] || exit 1\n"+
		"compiled() { mkdir -p $1 && echo code > $1/$2.cpython-313.pyc; }\n"+
		"compiled "+tree.path("usr/lib/python3.13/__pycache__")+" base64\ncompiled "+tree.path(programs, "__pycache__")+" test_a\n")
	if err := os.Chmod(loader, 0o755); err != nil {
		t.Fatal(err)
	}
	for python, want := range map[string][]string{
		"": {"usr/share/doc/p/t/test_a.py"},
		"python3.13": {"usr/bin/tool", "usr/lib/python3.13/__pycache__/base64.cpython-313.pyc",
			"usr/lib/python3.13/base64.py", "usr/share/doc/p/t/__pycache__/test_a.cpython-313.pyc", "usr/share/doc/p/t/test_a.py"},
	} {
		u := &userland{b: newArchive(), e: tree, v: variant{packages: []string{"p"}, python: python, programs: programs}}
		if err := u.addPackages(); err != nil {
			t.Fatal(err)
		}
		if err := u.compilePython(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range slices.Sorted(maps.Keys(u.b.files)) {
			if u.b.files[name].host != "" {
				got = append(got, name)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("python %q (-want +got):\n%s", python, d)
		}
	}
}

// A package compresses long files of its documentation.
func TestExpand(t *testing.T) {
	zipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	tree := &entry{dir: t.TempDir()}
	v := variant{programs: "usr/share/doc/p/t/"}
	for name, text := range map[string]string{"a.py": "print()\n", "b.py.gz": zipped("import a\n"), "../c.gz": zipped("no program")} {
		mustWrite(t, tree.path(v.programs, name), text)
	}
	files := []string{v.programs + "a.py", v.programs + "b.py.gz", "usr/share/doc/p/c.gz"}
	if err := v.expand(tree, files); err != nil {
		t.Fatal(err)
	}
	want := []string{v.programs + "a.py", v.programs + "b.py", "usr/share/doc/p/c.gz"}
	if d := cmp.Diff(want, files); d != "" {
		t.Error(d)
	}
	if b, err := os.ReadFile(tree.path(files[1])); err != nil || string(b) != "import a\n" {
		t.Errorf("b.py is %q, %v", b, err)
	}

	mustWrite(t, tree.path(v.programs, "d.gz"), zipped(string(make([]byte, maxProgram+1))))
	if err := v.expand(tree, []string{v.programs + "d.gz"}); err == nil {
		t.Error("a file that grows without a bound was unpacked")
	}
	mustWrite(t, tree.path(v.programs, "e.gz"), "not compressed")
	if err := v.expand(tree, []string{v.programs + "e.gz"}); err == nil {
		t.Error("what is not compressed was taken")
	}
}
