// SPDX-License-Identifier: Apache-2.0

package images

import (
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
	tree := &entry{dir: t.TempDir()}
	files := map[string]string{
		"usr/lib/python3.13/base64.py": "#! /usr/bin/python3.13\n",
		"usr/bin/tool":                 "#!/usr/bin/env python3\n",
		"usr/bin/perlish":              "#!/usr/bin/perl\n",
	}
	for name, text := range files {
		mustWrite(t, tree.path(name), text)
		tree.Packages = append(tree.Packages, Package{Name: "p", Files: []string{name}})
	}
	// Stands in for python3.13 -m compileall.
	loader := tree.path("lib64/ld-linux-x86-64.so.2")
	mustWrite(t, loader, "#!/bin/sh\nshift 3\n[ \"$*\" = '-I -S -m compileall -q --invalidation-mode unchecked-hash -s "+tree.path()+
		" -p / "+tree.path("usr/lib/python3.13")+" "+tree.path("usr/lib/python3")+"' ] || exit 1\nmkdir -p "+tree.path("usr/lib/python3.13/__pycache__")+
		"\necho code > "+tree.path("usr/lib/python3.13/__pycache__/base64.cpython-313.pyc")+"\n")
	if err := os.Chmod(loader, 0o755); err != nil {
		t.Fatal(err)
	}
	for python, want := range map[string][]string{
		"": nil,
		"python3.13": {"usr/bin/tool", "usr/lib/python3.13/__pycache__/base64.cpython-313.pyc",
			"usr/lib/python3.13/base64.py"},
	} {
		u := &userland{b: newArchive(), e: tree, v: variant{packages: []string{"p"}, python: python}}
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
