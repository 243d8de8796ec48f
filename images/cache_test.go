// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func openTest(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := Open(Options{Dir: dir, Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// publish makes an entry with one file.
func publish(t *testing.T, c *Cache, name, key, file, text string) *entry {
	t.Helper()
	return publishBy(t, c, "r", name, key, file, text)
}

// publishBy is publish with a recipe.
func publishBy(t *testing.T, c *Cache, recipe, name, key, file, text string) *entry {
	t.Helper()
	var e *entry
	err := c.locked(t.Context(), func() error {
		dir, err := c.tempLocked(name)
		if err != nil {
			return err
		}
		mustWrite(t, filepath.Join(dir, "root", file), text)
		e, err = c.publishLocked(dir, Manifest{Name: name, Key: key, Recipe: recipe, Version: key})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestPublish(t *testing.T) {
	c := openTest(t, t.TempDir())
	if e := c.current("qemu", ""); e != nil {
		t.Fatalf("an empty cache has %s", e.id())
	}
	var paths []string
	for _, key := range []string{"1", "2", "3"} {
		e := publish(t, c, "qemu", key, "f", key)
		paths = append(paths, e.path("f"))
		got := c.current("qemu", "r")
		if got == nil || got.Key != key {
			t.Fatalf("after publishing %s the current entry is %+v", key, got)
		}
		if b, err := os.ReadFile(got.path("f")); err != nil || string(b) != key {
			t.Errorf("content %q, %v, want %q", b, err, key)
		}
	}
	if c.current("qemu", "another recipe") != nil {
		t.Error("an entry of another recipe was taken")
	}
	if _, err := os.Stat(paths[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the last but two generation is still there (%v)", err)
	}
	if _, err := os.Stat(paths[1]); err != nil {
		t.Errorf("the last generation, perhaps in use, is gone: %v", err)
	}
	left, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range left {
		names = append(names, l.Name())
	}
	if d := cmp.Diff([]string{"current", "entries", "lock"}, names); d != "" {
		t.Errorf("files of the cache (-want +got):\n%s", d)
	}
}

// Two versions of vrnic, with recipes of their own, that work with one cache by
// turns each find what they made.
func TestTwoRecipes(t *testing.T) {
	c := openTest(t, t.TempDir())
	publishBy(t, c, "old", "debian-12", "1", "f", "")
	publishBy(t, c, "new", "debian-12", "2", "f", "")
	publishBy(t, c, "old", "debian-12-x", "3", "f", "") // a name that begins alike
	for recipe, key := range map[string]string{"old": "1", "new": "2", "": "2"} {
		if e := c.current("debian-12", recipe); e == nil || e.Key != key {
			t.Errorf("by recipe %q the entry is %+v, want %s", recipe, e, key)
		}
	}
	if e := c.current("debian-12", "newer"); e != nil {
		t.Errorf("an entry of another recipe was taken: %s", e.id())
	}
}

// A process that was killed leaves unfinished work, which must not be taken for
// an entry and must go.
func TestKilledHalfway(t *testing.T) {
	c := openTest(t, t.TempDir())
	mustWrite(t, filepath.Join(c.dir, "tmp", "qemu-1", "root", "f"), "half")
	mustWrite(t, filepath.Join(c.dir, "tmp", "qemu-1", manifestFile), `{"name":"qemu","key":"1"}`)
	if e := c.byKey("qemu", "1"); e != nil {
		t.Error("unfinished work was taken for an entry")
	}
	// An entry directory that something else damaged is replaced.
	mustWrite(t, filepath.Join(c.dir, "entries", "qemu-1", manifestFile), `{"na`)
	if e := c.byKey("qemu", "1"); e != nil {
		t.Error("a damaged entry was taken")
	}
	e := publish(t, c, "qemu", "1", "f", "whole")
	if b, _ := os.ReadFile(e.path("f")); string(b) != "whole" {
		t.Errorf("content %q", b)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("unfinished work is still there (%v)", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	err := a.locked(t.Context(), func() error {
		for name, other := range map[string]*Cache{"another cache": b, "the same cache": a} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := other.locked(ctx, func() error { t.Errorf("%s got the lock, too", name); return nil })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v, want context.Canceled", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := b.locked(t.Context(), func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("a released lock was not given: %v", err)
	}
	// Two at once: each sees the other's work complete or not at all.
	done := make(chan int)
	var inside, count atomic.Int32 // the race detector knows nothing of the lock
	for _, c := range []*Cache{a, b} {
		go func() {
			for range 20 {
				_ = c.locked(t.Context(), func() error {
					if inside.Add(1) != 1 {
						t.Error("two have the lock")
					}
					defer inside.Add(-1)
					count.Add(1)
					_, err := c.tempLocked("x")
					return err
				})
			}
			done <- 1
		}()
	}
	<-done
	<-done
	if n := count.Load(); n != 40 {
		t.Errorf("%d critical sections ran, want 40", n)
	}
}

func TestListAndPath(t *testing.T) {
	c := openTest(t, t.TempDir())
	q := publish(t, c, "qemu", "9", "usr/bin/qemu-system-x86_64", "elf")
	k := publish(t, c, "debian-13", "8", "vmlinuz", "image")
	list, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if list[i].Size == 0 {
			t.Errorf("%s has no size", list[i].Name)
		}
		list[i].Size = 0
	}
	want := []Entry{
		{Name: "debian-13", Version: "8", Path: k.path("vmlinuz"), Manifest: filepath.Join(k.dir, manifestFile)},
		{Name: "qemu", Version: "9", Path: q.path("usr/bin/qemu-system-x86_64"), Manifest: filepath.Join(q.dir, manifestFile)},
	}
	if d := cmp.Diff(want, list); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	if p, err := c.Path("debian-13"); err != nil || p != k.path("vmlinuz") {
		t.Errorf("Path = %q, %v", p, err)
	}
	script, err := c.Path("qemu")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(script)
	if i, serr := os.Stat(script); err != nil || serr != nil || i.Mode().Perm() != 0o755 ||
		!strings.Contains(string(b), "--library-path") || !strings.Contains(string(b), q.path("usr/bin/qemu-system-x86_64")) {
		t.Errorf("Path of QEMU is no script that starts it: %v, %v\n%s", err, serr, b)
	}
	if _, err := c.Path("debian-12"); err == nil || errors.Is(err, ErrUnknownName) {
		t.Errorf("Path of an image not built: error %v", err)
	}
	for _, name := range []string{"debian-1", "../x", ""} {
		if _, err := c.Path(name); !errors.Is(err, ErrUnknownName) {
			t.Errorf("Path(%q): error %v", name, err)
		}
		if err := c.Build(t.Context(), name); !errors.Is(err, ErrUnknownName) {
			t.Errorf("Build(%q): error %v", name, err)
		}
	}
}

func TestOffline(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no QEMU of the host
	c := openTest(t, t.TempDir())
	if _, err := c.QEMU(t.Context()); !errors.Is(err, ErrOffline) {
		t.Errorf("QEMU: error %v", err)
	}
	if _, err := c.Kernel(t.Context(), "debian-12"); !errors.Is(err, ErrOffline) {
		t.Errorf("Kernel: error %v", err)
	}
	if err := c.Build(t.Context()); !errors.Is(err, ErrOffline) {
		t.Errorf("Build: error %v", err)
	}
}
