// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KernelTree is what modules for a kernel of the distribution are built with, and
// the source of those that guests test. Its content is immutable: modules are built
// in a directory of their own (make -C Build M=DIR).
type KernelTree struct {
	// Release is the kernel's, and so that of modules built here.
	Release string
	// Version is that of the packages, for instance 6.1.192-3.
	Version string
	// Build is the directory of the kernel's headers, configuration and symbol
	// versions, with the programs of kbuild.
	Build string
	// Source holds parts of the kernel's source, as the distribution patched it:
	// drivers/infiniband/hw/irdma and the headers of drivers/net/ethernet/intel/ice.
	Source string
	// Key identifies the content.
	Key string
}

// kernelTreeName is the name of the entry of a kernel's tree.
func kernelTreeName(kernel string) string { return "kbuild-" + kernel }

// kernelTreeFormat changes with what kernelTreeLocked makes of the packages.
const kernelTreeFormat = 2

// kernelTreeRecipe asks for the packages of exactly this kernel.
func kernelTreeRecipe(d debianKernel, k *Kernel) (fetchRecipe, error) {
	version := ""
	for _, p := range k.entry.Packages {
		// Image and modules are one package or several, depending on the release.
		if strings.HasSuffix(p.Name, "-"+k.Release) {
			version = p.Version
		}
	}
	series := strings.SplitN(k.Release, ".", 3)
	if version == "" || len(series) < 3 {
		return fetchRecipe{}, fmt.Errorf("its image does not say what packages release %s is of", k.Release)
	}
	return fetchRecipe{
		Format: kernelTreeFormat, Release: d.release.name, Suite: d.suite,
		Packages: []string{
			"linux-headers-" + k.Release + "=" + version,
			"linux-source-" + series[0] + "." + series[1] + "=" + version,
		},
		// The compiler is the host's. What kbuild runs is run with its own libraries.
		Only: []string{
			"linux-headers-", "linux-kbuild-", "linux-source-",
			"xz-utils", "liblzma5", "libc6", "libelf1", "zlib1g", "libzstd1",
		},
	}, nil
}

// KernelTree returns the tree that fits a kernel of the distribution exactly,
// fetched if need be (some 160 MB). No guest needs it, so Build makes it only when
// it is named.
func (c *Cache) KernelTree(ctx context.Context, k *Kernel) (*KernelTree, error) {
	var t *KernelTree
	d, ok := findDebianKernel(k.Name)
	if !ok {
		return nil, fmt.Errorf("get the build tree of kernel %s: %w: only the distribution's kernels have one here", k.Name, ErrUnknownName)
	}
	recipe, err := kernelTreeRecipe(d, k)
	if err == nil {
		if e := c.current(kernelTreeName(d.name), hashOf(recipe)); e != nil {
			return kernelTreeOf(e)
		}
		err = c.locked(ctx, func() error {
			e, err := c.kernelTreeLocked(ctx, d, k, false)
			if err == nil {
				t, err = kernelTreeOf(e)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("get the build tree of kernel %s: %w", k.Name, err)
	}
	return t, nil
}

func kernelTreeOf(e *entry) (*KernelTree, error) {
	source, err := filepath.Glob(e.path("source", "*", "drivers"))
	if err == nil && len(source) != 1 {
		err = fmt.Errorf("%s holds no kernel source", e.dir)
	}
	if err != nil {
		return nil, err
	}
	return &KernelTree{
		Release: e.Release, Version: e.Version, Key: e.Key,
		Build: e.path("usr/src/linux-headers-" + e.Release), Source: filepath.Dir(source[0]),
	}, nil
}

func (c *Cache) kernelTreeLocked(ctx context.Context, d debianKernel, k *Kernel, refresh bool) (*entry, error) {
	recipe, err := kernelTreeRecipe(d, k)
	if err != nil {
		return nil, err
	}
	name := kernelTreeName(d.name)
	have := c.current(name, hashOf(recipe))
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(name)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := mergeUsr(root); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, name, d.release, recipe, have, root, neededToBuild)
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, fmt.Errorf("%w (the mirror may have a newer kernel only: vrnic image build %s)", err, d.name)
	}
	e := &entry{dir: dir}
	if err := unpackSource(ctx, e); err != nil {
		return nil, err
	}
	if err := movableHeaders(root); err != nil {
		return nil, err
	}
	if err := ownLoader(root); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: name, Key: keyOf(hashOf(recipe), packages), Recipe: hashOf(recipe),
		Version: versionOf(packages, "linux-headers-"+k.Release), Release: k.Release, Packages: withoutFiles(packages),
	})
}

// neededToBuild leaves out what no build for amd64 reads.
func neededToBuild(path string) bool {
	if _, arch, ok := strings.Cut(path, "-common/arch/"); ok && !strings.HasPrefix(arch, "x86/") && strings.Contains(arch, "/") {
		return false
	}
	return needed(path) && !strings.HasPrefix(path, "lib/modules/") && !strings.HasPrefix(path, "usr/lib/modules/")
}

// sourceWanted are the parts of the kernel's source that KernelTree promises.
// ice is there because irdma reads its headers.
func sourceWanted(path string) bool {
	_, path, _ = strings.Cut(path, "/") // linux-source-VERSION
	return strings.HasPrefix(path, "drivers/infiniband/hw/irdma/") ||
		strings.HasPrefix(path, "drivers/net/ethernet/intel/ice/") && strings.HasSuffix(path, ".h")
}

// unpackSource replaces the archive of the kernel's source by the parts wanted.
func unpackSource(ctx context.Context, e *entry) error {
	archives, err := filepath.Glob(e.path("usr/src/linux-source-*.tar.xz"))
	if err != nil {
		return err
	}
	if len(archives) != 1 {
		return fmt.Errorf("the packages hold %d archives of kernel source", len(archives))
	}
	if err := os.MkdirAll(e.path("source"), 0o755); err != nil {
		return err
	}
	argv := append(treeProgram(e, "usr/bin/xz"), "-dc", archives[0])
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(archives[0]), err)
	}
	files, err := unpackTar(out, e.path("source"), sourceWanted)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("unpack %s: %w", filepath.Base(archives[0]), err)
	}
	_, _ = io.Copy(io.Discard, out) // padding after the archive's end
	if err := cmd.Wait(); err != nil {
		return commandError("xz -dc "+filepath.Base(archives[0]), err, stderr.String())
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no irdma", filepath.Base(archives[0]))
	}
	return os.Remove(archives[0])
}

// movableHeaders has the headers' makefiles include each other where they are now,
// not where the packages would install them: make runs in their directory.
func movableHeaders(root string) error {
	const installed = "/usr/src/"
	makefiles, err := filepath.Glob(filepath.Join(root, "usr/src/linux-headers-*/Makefile"))
	if err != nil {
		return err
	}
	for _, m := range makefiles {
		b, err := os.ReadFile(m)
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte(installed)) {
			continue
		}
		if err := os.WriteFile(m, bytes.ReplaceAll(b, []byte(installed), []byte("../")), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ownLoader has the programs of kbuild run with the libraries that were fetched
// with them: those of the host may be older.
func ownLoader(root string) error {
	trees, err := filepath.Glob(filepath.Join(root, "usr/lib/linux-kbuild-*"))
	if err != nil {
		return err
	}
	for _, tree := range trees {
		err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !isProgram(path) {
				return err
			}
			up, err := filepath.Rel(filepath.Dir(path), root)
			if err != nil {
				return err
			}
			if err := os.Rename(path, path+".elf"); err != nil {
				return err
			}
			// modpost runs another program that is named like itself.
			script := "#!/bin/sh\nroot=${0%/*}/" + up + "\n" +
				`exec "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" --argv0 "$0" "$0.elf" "$@"` + "\n"
			return os.WriteFile(path, []byte(script), 0o755)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isProgram tells programs from scripts and objects.
func isProgram(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	magic := make([]byte, 4)
	if _, rerr := io.ReadFull(f, magic); err != nil || rerr != nil {
		return false
	}
	return string(magic) == "\x7fELF" && st.Mode()&0o111 != 0
}
