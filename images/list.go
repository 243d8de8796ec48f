// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is an image in use, for listings.
type Entry struct {
	// Name is what Build and Path take.
	Name string
	// Version is a package version or a kernel release.
	Version string
	// Path is its main file (a program, a kernel image, an archive), or
	// the root of its tree.
	Path string
	// Manifest is the path of the file that lists what it was made of.
	Manifest string
	// Size is what its files take, in bytes.
	Size int64
}

// List returns the images in use, sorted by name. It does not touch the network.
func (c *Cache) List(ctx context.Context) ([]Entry, error) {
	links, err := os.ReadDir(filepath.Join(c.dir, "current"))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var list []Entry
	for _, l := range links {
		e := c.current(l.Name(), "")
		if e == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list images: %w", err)
		}
		list = append(list, Entry{
			Name: e.Name, Version: e.Version, Path: mainFile(e),
			Manifest: filepath.Join(e.dir, manifestFile), Size: treeSize(e.dir),
		})
	}
	return list, nil
}

// Path returns the main file of an image that is in the cache. That of QEMU and
// of tshark is a script: the program itself needs the loader and libraries of
// its tree.
func (c *Cache) Path(name string) (string, error) {
	e := c.current(name, "")
	if e == nil {
		if !slices.Contains(buildNames(), name) {
			return "", fmt.Errorf("%w: %s (known: %s)", ErrUnknownName, name, strings.Join(buildNames(), ", "))
		}
		return "", fmt.Errorf("image %s is not there: \"vrnic image build %[1]s\" fetches it", name)
	}
	switch name {
	case qemuName:
		return c.script(qemuProgram, cachedQEMU(e).Argv)
	case tsharkName:
		return c.script(tsharkName, tsharkArgv(e))
	}
	return mainFile(e), nil
}

// script writes the script that starts a program with its first arguments.
func (c *Cache) script(program string, argv []string) (string, error) {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nexec")
	for _, a := range argv {
		b.WriteString(" '" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	b.WriteString(" \"$@\"\n")
	path := filepath.Join(c.dir, "bin", program)
	if have, err := os.ReadFile(path); err == nil && string(have) == b.String() {
		return path, nil
	}
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("write the script that starts %s: %w", program, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fail(err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), program+"-")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(b.String())
	if err = errors.Join(err, tmp.Chmod(0o755), tmp.Close()); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fail(err)
	}
	return path, nil
}

func mainFile(e *entry) string {
	for _, f := range []string{initramfsFile, "vmlinuz", "usr/bin/" + qemuProgram, "usr/bin/" + tsharkName} {
		if _, err := os.Stat(e.path(f)); err == nil {
			return e.path(f)
		}
	}
	return e.path()
}

func treeSize(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if i, err := d.Info(); err == nil {
				size += i.Size()
			}
		}
		return nil
	})
	return size
}

// buildNames are the names that Build takes.
func buildNames() []string {
	names := append([]string{qemuName, baseVariant.name, tsharkName}, ExtraNames()...)
	for _, k := range KernelNames() {
		names = append(names, k, initramfsName(k), kernelTreeName(k))
	}
	return names
}

// Build asks the mirror for the newest packages of the named images, all that
// guests need if none are named, and makes those anew that differ. The name of a kernel
// includes its initramfs.
func (c *Cache) Build(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		names = append([]string{qemuName, baseVariant.name}, KernelNames()...)
	}
	for _, n := range names {
		if !slices.Contains(buildNames(), n) {
			return fmt.Errorf("build images: %w: %s (known: %s)", ErrUnknownName, n, strings.Join(buildNames(), ", "))
		}
	}
	return c.locked(ctx, func() error {
		c.updated = map[string]bool{} // newest means: as of now
		for _, n := range names {
			if err := c.buildLocked(ctx, n); err != nil {
				return fmt.Errorf("build image %s: %w", n, err)
			}
		}
		return nil
	})
}

func (c *Cache) buildLocked(ctx context.Context, name string) error {
	switch name {
	case qemuName:
		_, err := c.qemuLocked(ctx, true)
		return err
	case baseVariant.name:
		_, err := c.userlandLocked(ctx, true)
		return err
	case tsharkName:
		_, err := c.tsharkLocked(ctx, true)
		return err
	}
	if x, ok := findExtra(name); ok {
		_, err := c.extraLocked(ctx, x, true)
		return err
	}
	if d, ok := findDebianKernel(strings.TrimPrefix(name, kernelTreeName(""))); ok && d.name != name {
		k, err := c.debianKernelLocked(ctx, d, false)
		if err != nil {
			return err
		}
		_, err = c.kernelTreeLocked(ctx, d, kernelOf(k, d.name), true)
		return err
	}
	d, ok := findDebianKernel(strings.TrimPrefix(name, initramfsName("")))
	if !ok {
		return fmt.Errorf("%w: %s", ErrUnknownName, name)
	}
	k, err := c.debianKernelLocked(ctx, d, true)
	if err != nil {
		return err
	}
	_, err = c.initramfsLocked(ctx, k, baseVariant)
	return err
}
