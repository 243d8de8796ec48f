// SPDX-License-Identifier: Apache-2.0

package images

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The guest gets the files of the packages it is to have, what their links lead
// to, and busybox for the rest.
func TestAddUserland(t *testing.T) {
	dir := t.TempDir()
	e := &entry{dir: dir}
	for name, text := range map[string]string{
		"usr/bin/kmod":                              "program",
		"usr/bin/helper":                            "#!/bin/sh\n",
		"usr/bin/perlish":                           "#!/usr/bin/perl\n",
		"usr/bin/env-python":                        "#!/usr/bin/env python3\n",
		"usr/bin/busybox":                           "busybox",
		"usr/bin/other":                             "of a dependency",
		"etc/tool.conf":                             "x",
		"etc/skipped/x":                             "x",
		"usr/lib/x86_64-linux-gnu/liba.so.1.2":      "library",
		"usr/lib/firmware/other/blob":               "x",
		"usr/lib/firmware/intel/ice/ddp/ice-1.pkg":  "ddp",
		"usr/lib/x86_64-linux-gnu/unrelated.so.1.2": "library",
	} {
		mustWrite(t, e.path(name), text)
	}
	for link, to := range map[string]string{
		"usr/sbin/modprobe":                      "../bin/kmod",
		"usr/lib/x86_64-linux-gnu/liba.so.1":     "/lib/x86_64-linux-gnu/liba.so.1.2",
		"usr/lib/firmware/intel/ice/ddp/ice.pkg": "ice-1.pkg",
		"usr/bin/dangling":                       "absent",
		"lib":                                    "usr/lib",
	} {
		if err := os.MkdirAll(filepath.Dir(e.path(link)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, e.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	loader := e.path("lib64/ld-linux-x86-64.so.2") // stands in for busybox --list
	mustWrite(t, loader, "#!/bin/sh\nprintf 'modprobe\\nsh\\nkmod\\n'\n")
	if err := os.Chmod(loader, 0o755); err != nil {
		t.Fatal(err)
	}
	e.Packages = []Package{
		{Name: "tools", Files: []string{
			"usr/sbin/modprobe", "usr/bin/helper", "usr/bin/perlish", "usr/bin/env-python", "usr/bin/dangling", "usr/bin/busybox",
			"etc/tool.conf", "etc/skipped/x", "usr/lib/firmware/other/blob", "usr/lib/firmware/intel/ice/ddp/ice.pkg",
		}},
		{Name: "dependency", Files: []string{"usr/bin/other"}},
	}
	b := newArchive()
	v := variant{packages: []string{"tools"}, libs: []string{"liba.so.1"}, drop: []string{"etc/skipped/", "usr/lib/firmware/"}}
	if err := addUserland(t.Context(), b, e, v); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, f := range b.files {
		if hasPrefix(name, []string{"usr/", "etc/tool", "etc/skip", "lib", "bin"}) && f.mode&0o170000 != 0o040000 {
			got[name] = string(f.data)
			if f.host != "" && f.host != e.path(name) {
				t.Errorf("%s comes from %s", name, f.host)
			}
		}
	}
	want := map[string]string{
		"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64",
		"etc/tool.conf": "", "usr/bin/busybox": "", "usr/bin/helper": "", "usr/bin/kmod": "",
		"usr/sbin/modprobe": "../bin/kmod", "usr/bin/sh": "busybox",
		"usr/lib/firmware/intel/ice/ddp/ice.pkg":   "ice-1.pkg",
		"usr/lib/firmware/intel/ice/ddp/ice-1.pkg": "",
		"usr/lib/x86_64-linux-gnu/liba.so.1":       "/lib/x86_64-linux-gnu/liba.so.1.2",
		"usr/lib/x86_64-linux-gnu/liba.so.1.2":     "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files of the guest (-want +got):\n%s", d)
	}
	v.libs = []string{"libabsent.so.1"}
	if err := addUserland(t.Context(), newArchive(), e, v); err == nil {
		t.Error("a missing library is no error")
	}
}

func TestInitramfsIsCached(t *testing.T) {
	c := openTest(t, t.TempDir())
	if _, err := c.Initramfs(t.Context(), &Kernel{Name: "x"}); err == nil {
		t.Error("a kernel from elsewhere was taken")
	}
	fakeTools(t, c)
	u := c.current(baseVariant.name, hashOf(baseVariant.recipe()))
	k := &entry{Manifest: Manifest{Name: "debian-13", Key: "1", Release: "6"}}
	want := publish(t, c, initramfsName("debian-13"), initramfsKey(u, k, baseVariant), initramfsFile, "cpio").path(initramfsFile)
	got, err := c.Initramfs(t.Context(), &Kernel{entry: k})
	if err != nil || got != want {
		t.Errorf("Initramfs = %q, %v, want %q", got, err, want)
	}
	k.Key = "2" // a newer kernel must not get the old one's modules
	if got, err := c.Initramfs(t.Context(), &Kernel{entry: k}); err == nil {
		t.Errorf("another kernel got %q", got)
	}
}
