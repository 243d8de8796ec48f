// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// variant is a set of programs that guests can have.
type variant struct {
	name     string
	packages []string // whose files the guest gets, as far as keepInGuest says
	libs     []string // shared libraries that are opened at run time only
	drop     []string // prefixes of paths that the guest does not get
	python   string   // the interpreter, if the guest gets one: its scripts are kept
	programs string   // where the packages have programs among their documentation
}

// busybox-static will not do: its shell runs its own ip, ping and modprobe even
// if real ones are there (FEATURE_PREFER_APPLETS).
var baseVariant = variant{
	name: "userland",
	packages: []string{
		"base-files", "busybox", "kmod", "iproute2", "iputils-ping", "ethtool", "iperf3", "pciutils", "pci.ids",
		"nvme-cli", "e2fsprogs", "rdma-core", "ibverbs-utils", "ibverbs-providers", "perftest", "rdmacm-utils",
		"tcpdump", "strace", "firmware-intel-misc",
	},
	libs: []string{
		"libgcc_s.so.1",                             // pthread_cancel
		"liblzma.so.5", "libzstd.so.1", "libz.so.1", // libkmod
	},
	drop: []string{
		"usr/lib/firmware/", "etc/update-motd.d/", "etc/cron.d/", "usr/share/base-files/", "etc/logcheck/",
		"etc/apparmor.d/", "etc/rdma/", "etc/modprobe.d/", "usr/share/strace", "usr/share/iproute2-doc",
		"usr/share/perftest", "var/", "usr/lib/truescale-serdes.cmds",
	},
}

// firmwarePrefix holds the DDP package that ice asks for
// (ice_type.h:ICE_DDP_PKG_PATH; the kernel looks in /lib/firmware).
const firmwarePrefix = "usr/lib/firmware/intel/ice/ddp/"

func (v variant) recipe() fetchRecipe {
	return fetchRecipe{Format: 1, Release: trixie.name, Packages: v.packages}
}

// userland returns the unpacked userland, fetched if need be.
func (c *Cache) userland(ctx context.Context) (*entry, error) {
	if e := c.current(baseVariant.name, hashOf(baseVariant.recipe())); e != nil {
		return e, nil
	}
	var e *entry
	err := c.locked(ctx, func() (err error) {
		e, err = c.userlandLocked(ctx, false)
		return err
	})
	return e, err
}

// userlandLocked returns the unpacked userland, a fresh one if asked to.
func (c *Cache) userlandLocked(ctx context.Context, refresh bool) (*entry, error) {
	return c.variantLocked(ctx, baseVariant, refresh)
}

func (c *Cache) variantLocked(ctx context.Context, v variant, refresh bool) (*entry, error) {
	recipe := hashOf(v.recipe())
	have := c.current(v.name, recipe)
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(v.name)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := mergeUsr(root); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, v.name, trixie, v.recipe(), have, root, func(p string) bool {
		return needed(p) && !slices.Contains(mergedDirs, p) &&
			(!strings.HasPrefix(p, "usr/lib/firmware/") || strings.HasPrefix(p, firmwarePrefix))
	})
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: v.name, Key: keyOf(recipe, packages), Recipe: recipe,
		Version: versionOf(packages, "base-files"), Packages: packages,
	})
}

// addUserland adds to an archive the programs of a variant, and the shared
// libraries and interpreters they need, but nothing else of their packages'
// dependencies (that would be systemd, perl, …).
func addUserland(ctx context.Context, b *archiveBuilder, e *entry, v variant) error {
	u := &userland{b: b, e: e, v: v}
	for _, d := range mergedDirs {
		b.dir("usr/"+d, 0o755)
		b.symlink(d, "usr/"+d)
	}
	if err := u.addPackages(); err != nil {
		return err
	}
	if err := u.addApplets(ctx); err != nil {
		return err
	}
	addBaseFiles(b)
	return nil
}

// userland selects files of an unpacked tree.
type userland struct {
	b *archiveBuilder
	e *entry
	v variant
}

// addPackages adds what the variant takes of its packages.
func (u *userland) addPackages() error {
	v := u.v
	for _, p := range u.e.Packages {
		if !slices.Contains(v.packages, p.Name) {
			continue
		}
		for _, f := range p.Files {
			if strings.HasPrefix(f, firmwarePrefix) || !hasPrefix(f, v.drop) {
				if err := u.add(f); err != nil {
					return err
				}
			}
		}
	}
	for _, l := range v.libs {
		if err := u.addLibrary(l, nil); err != nil {
			return err
		}
	}
	return nil
}

// resolve follows a path of the tree through its symlinks, with targets taken
// as the guest would take them. It returns the links' paths, then the file's.
func (u *userland) resolve(name string) ([]string, error) {
	var chain []string
	for range 16 {
		name = cleanName(name)
		chain = append(chain, name)
		target, err := os.Readlink(u.e.path(name))
		if err != nil {
			if _, err := os.Lstat(u.e.path(name)); err != nil {
				return nil, err
			}
			return chain, nil
		}
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(name), target)
		}
		name = target
	}
	return nil, fmt.Errorf("%s: too many levels of symbolic links", name)
}

// add adds a file or symlink with all it needs to work.
func (u *userland) add(name string) error {
	chain, err := u.resolve(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a link into a part that was left out
	} else if err != nil {
		return fmt.Errorf("add %s to the userland: %w", name, err)
	}
	file := chain[len(chain)-1]
	st, err := os.Lstat(u.e.path(file))
	if err != nil {
		return fmt.Errorf("add %s to the userland: %w", name, err)
	}
	if !st.Mode().IsRegular() || !u.runnable(file) {
		return nil
	}
	for _, n := range chain {
		if u.b.has(n) {
			continue
		}
		if err := u.b.fromHost(n, u.e.path(n)); err != nil {
			return fmt.Errorf("add %s to the userland: %w", n, err)
		}
		if n == file {
			if err := u.addNeeded(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// runnable is false for scripts whose interpreter the guest does not have.
func (u *userland) runnable(name string) bool {
	f, err := os.Open(u.e.path(name))
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, _ := f.Read(head)
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	interpreter, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return true
	}
	words := strings.Fields(interpreter)
	return len(words) > 0 && (strings.HasSuffix(words[0], "/sh") || u.v.python != "" && strings.Contains(interpreter, "python3"))
}

// addNeeded adds the interpreter and the libraries of an ELF file.
func (u *userland) addNeeded(name string) error {
	f, err := elf.Open(u.e.path(name))
	if err != nil {
		return nil // not an ELF file
	}
	defer f.Close()
	if f.Type != elf.ET_DYN && f.Type != elf.ET_EXEC {
		return nil
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, min(p.Filesz, 256))
			if _, err := p.ReadAt(text, 0); err != nil {
				return fmt.Errorf("read the interpreter of %s: %w", name, err)
			}
			if err := u.add(strings.TrimRight(string(text), "\x00")); err != nil {
				return err
			}
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return nil // static
	}
	var runpath []string
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		dirs, _ := f.DynString(tag)
		for _, d := range dirs {
			for _, p := range strings.Split(d, ":") {
				runpath = append(runpath, strings.ReplaceAll(p, "$ORIGIN", "/"+path.Dir(name)))
			}
		}
	}
	for _, l := range libs {
		if err := u.addLibrary(l, runpath); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// addLibrary adds a shared library from where the guest's loader will look.
func (u *userland) addLibrary(lib string, runpath []string) error {
	for _, d := range append(runpath, "usr/lib/x86_64-linux-gnu", "usr/lib") {
		name := cleanName(path.Join(d, lib))
		if _, err := u.resolve(name); err == nil {
			return u.add(name)
		}
	}
	return fmt.Errorf("the packages have no library %s", lib)
}

// addApplets links busybox to the names of all its programs that are not there
// from elsewhere.
func (u *userland) addApplets(ctx context.Context) error {
	const busybox = "usr/bin/busybox"
	out, err := output(ctx, treeProgram(u.e, busybox), "--list")
	if err != nil {
		return fmt.Errorf("list the programs of busybox: %w", err)
	}
	for _, a := range strings.Fields(out) {
		if !u.b.has("usr/bin/"+a) && !u.b.has("usr/sbin/"+a) {
			u.b.symlink("usr/bin/"+a, "busybox")
		}
	}
	return nil
}
