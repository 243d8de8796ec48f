// SPDX-License-Identifier: Apache-2.0

// Package kbuild builds kernel modules for the kernels of the image cache: the
// irdma driver of exactly such a kernel, as it is or with a fault of ours put in,
// and modules of our own. It is there for tests; a developer builds in a tree of
// his own and hands the result to "vrnic run -m", as the tests do.
//
// Headers, symbol versions and source come from the distribution's packages of the
// kernel's own version ([images.Cache.KernelTree]), so that what is built from
// unchanged source is the stock module again, but for debug information and
// signature. The compiler is the host's.
//
// # Traps
//
//   - A fault is text for text ([Edit]): if the distribution changes the source
//     there, building fails and names the edit. Nothing is patched approximately.
//   - The workspace is kept, so that a second fault costs the compiler one file.
package kbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vrnic/vrnic/images"
)

// ErrSourceChanged is wrapped by errors about edits that do not fit the source.
var ErrSourceChanged = errors.New("the driver's source is not what the edit was written for")

// Edit changes one place of a driver.
type Edit struct {
	// File is the name of a file of the driver, such as hmc.c.
	File string
	// Old is text that occurs exactly once in the file, New what takes its place.
	Old, New string
}

// apply returns the text of a file with the edit made.
func (e Edit) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(e.Old)); n != 1 {
		return nil, fmt.Errorf("edit %s: %w: %d times %q", e.File, ErrSourceChanged, n, e.Old)
	}
	return bytes.Replace(text, []byte(e.Old), []byte(e.New), 1), nil
}

// Builder builds modules for one kernel. Builders, in any number of processes, may
// share a workspace: they take turns.
type Builder struct {
	tree *images.KernelTree
	dir  string
	cc   string
}

// New returns a builder whose workspace is a directory below dir.
func New(tree *images.KernelTree, dir string) (*Builder, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("build modules: %w", err)
	}
	b := &Builder{tree: tree, dir: filepath.Join(dir, tree.Release+"-"+tree.Key), cc: "gcc"}
	if _, err := exec.LookPath(b.cc); err != nil {
		return nil, fmt.Errorf("build modules: %w", err)
	}
	return b, os.MkdirAll(b.dir, 0o755)
}

// Where irdma lies in the kernel's source. It includes headers of ice by a path
// relative to itself, so the workspace has the same shape.
const (
	irdmaDir = "drivers/infiniband/hw/irdma"
	iceDir   = "drivers/net/ethernet/intel/ice"
)

// Irdma builds the driver, with edits made to its source, as the file to.
func (b *Builder) Irdma(ctx context.Context, to string, edits ...Edit) error {
	err := b.locked(ctx, func() error {
		if err := b.place(iceDir, nil); err != nil {
			return err
		}
		if err := b.place(irdmaDir, edits); err != nil {
			return err
		}
		return b.make(ctx, filepath.Join(b.dir, irdmaDir), "irdma.ko", to, "CONFIG_INFINIBAND_IRDMA=m")
	})
	if err != nil {
		return fmt.Errorf("build irdma for %s: %w", b.tree.Release, err)
	}
	return nil
}

// Module builds a module of one C file, as the file to. Its name is that of the
// C file.
func (b *Builder) Module(ctx context.Context, source, to string) error {
	name := strings.TrimSuffix(filepath.Base(source), ".c")
	err := b.locked(ctx, func() error {
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		dir := filepath.Join(b.dir, "module", name)
		if err := update(filepath.Join(dir, name+".c"), text); err != nil {
			return err
		}
		if err := update(filepath.Join(dir, "Makefile"), []byte("obj-m := "+name+".o\n")); err != nil {
			return err
		}
		return b.make(ctx, dir, name+".ko", to)
	})
	if err != nil {
		return fmt.Errorf("build %s for %s: %w", name, b.tree.Release, err)
	}
	return nil
}

// place brings a directory of the workspace to what the source has, but for edits.
// Files that are right already keep their time, so that make has little to do.
func (b *Builder) place(dir string, edits []Edit) error {
	made := 0
	from := filepath.Join(b.tree.Source, dir)
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, e := range edits {
			if e.File != name {
				continue
			}
			if text, err = e.apply(text); err != nil {
				return err
			}
			made++
		}
		return update(filepath.Join(b.dir, dir, name), text)
	})
	if err == nil && made != len(edits) {
		err = fmt.Errorf("%w: it lacks a file of %d edits", ErrSourceChanged, len(edits)-made)
	}
	return err
}

// update writes a file unless it has this text already.
func update(path string, text []byte) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// make has kbuild build the modules of dir and copies one of them.
func (b *Builder) make(ctx context.Context, dir, module, to string, args ...string) error {
	args = append([]string{
		"-C", b.tree.Build, "M=" + dir, "CC=" + b.cc, fmt.Sprintf("-j%d", runtime.NumCPU()), "modules",
		// Debug information is most of what the compiler writes, and of no use here.
		"KCFLAGS=-g0", "CONFIG_DEBUG_INFO_BTF_MODULES=",
		// Of an option that a host's compiler may be too old for, to align functions.
		"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=",
	}, args...)
	cmd := exec.CommandContext(ctx, "make", args...)
	cmd.Env = environment(os.Environ())
	cmd.WaitDelay = 5 * time.Second
	said, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(said)), "\n")
		return fmt.Errorf("make: %w\n%s", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	image, err := os.ReadFile(filepath.Join(dir, module))
	if err != nil {
		return err
	}
	return os.WriteFile(to, image, 0o644)
}

// environment leaves out what a make that runs us tells its children.
func environment(all []string) []string {
	var env []string
	for _, e := range all {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARCH", "CROSS_COMPILE":
		default:
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C")
}

// lockPoll is how often a builder asks for the workspace: flock itself cannot be
// cancelled.
const lockPoll = 100 * time.Millisecond

// locked runs f while no other builder uses the workspace.
func (b *Builder) locked(ctx context.Context, f func() error) error {
	l, err := os.OpenFile(filepath.Join(b.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer l.Close() // releases the lock
	for {
		err := unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock the workspace: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the workspace: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}
