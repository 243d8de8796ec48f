// SPDX-License-Identifier: Apache-2.0

package images

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultKernel is the name of the newest kernel.
const DefaultKernel = "debian-backports"

// Kernel is a kernel with its modules.
type Kernel struct {
	// Name is what it was asked for by.
	Name string
	// Release is what uname -r will say.
	Release string
	// Image is the path of the bzImage.
	Image string
	// Modules are those of Release that guests need.
	Modules ModuleSource

	entry *entry
}

// ModuleSource is a set of modules, closed under dependencies, uncompressed,
// with the indexes that modprobe reads.
type ModuleSource struct {
	// Dir is the host's copy of /lib/modules/RELEASE. Its content is immutable.
	Dir string
}

// debianKernel is where a kernel of the distribution comes from.
type debianKernel struct {
	name    string
	release release
	suite   string
}

var debianKernels = []debianKernel{
	{"debian-12", bookworm, ""},
	{"debian-13", trixie, ""},
	{"debian-backports", trixie, "trixie-backports"},
}

// KernelNames are the names of the distribution's kernels, oldest first.
func KernelNames() []string {
	var names []string
	for _, k := range debianKernels {
		names = append(names, k.name)
	}
	return names
}

func findDebianKernel(name string) (debianKernel, bool) {
	for _, k := range debianKernels {
		if k.name == name {
			return k, true
		}
	}
	return debianKernel{}, false
}

func (k debianKernel) recipe() fetchRecipe {
	return fetchRecipe{
		Format: kernelFormat, Release: k.release.name, Suite: k.suite,
		Packages: []string{"linux-image-amd64"},
		// Image and modules are one package or several, depending on the release.
		Only: []string{"linux-image-", "linux-binary-", "linux-modules-", "linux-base-"},
	}
}

// kernelFormat changes with what stageModules makes.
const kernelFormat = 1

// kernelRecipe is what an entry of a kernel must have been made by.
func kernelRecipe(from any) string { return hashOf([]any{from, guestModules}) }

// Kernel returns a kernel by name (KernelNames), the running one ("host"), or
// that of a path: a bzImage or a kernel build tree. The modules of a bzImage are
// looked for in the build tree it lies in, in lib/modules beside or above it,
// and in the host's /lib/modules.
func (c *Cache) Kernel(ctx context.Context, name string) (*Kernel, error) {
	if name == "" {
		name = DefaultKernel
	}
	var k *Kernel
	var err error
	if d, ok := findDebianKernel(name); ok {
		k, err = c.debianKernel(ctx, d)
	} else {
		k, err = c.localKernel(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("get kernel %s: %w", name, err)
	}
	return k, nil
}

func kernelOf(e *entry, name string) *Kernel {
	return &Kernel{
		Name: name, Release: e.Release, Image: e.path("vmlinuz"),
		Modules: ModuleSource{Dir: e.path("lib/modules", e.Release)}, entry: e,
	}
}

func (c *Cache) debianKernel(ctx context.Context, d debianKernel) (*Kernel, error) {
	if e := c.current(d.name, kernelRecipe(d.recipe())); e != nil {
		return kernelOf(e, d.name), nil
	}
	var k *Kernel
	err := c.locked(ctx, func() error {
		e, err := c.debianKernelLocked(ctx, d, false)
		if err == nil {
			k = kernelOf(e, d.name)
		}
		return err
	})
	return k, err
}

func (c *Cache) debianKernelLocked(ctx context.Context, d debianKernel, refresh bool) (*entry, error) {
	recipe := kernelRecipe(d.recipe())
	have := c.current(d.name, recipe)
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(d.name)
	if err != nil {
		return nil, err
	}
	unpacked := filepath.Join(dir, "unpacked")
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, d.name, d.release, d.recipe(), have, unpacked, func(p string) bool {
		return strings.HasPrefix(p, "boot/vmlinuz") || strings.Contains(p, "lib/modules/")
	})
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, err
	}
	src, err := installedKernel(unpacked)
	if err != nil {
		return nil, err
	}
	if err := c.stageKernelLocked(ctx, src, filepath.Join(dir, "root")); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(unpacked); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: d.name, Key: keyOf(recipe, packages), Recipe: recipe,
		Version: versionOf(packages, "linux-image-amd64"), Release: src.release, Packages: withoutFiles(packages),
	})
}

// stageKernelLocked puts a kernel's image and its modules into root.
func (c *Cache) stageKernelLocked(ctx context.Context, src *kernelSource, root string) error {
	tools, err := c.userlandLocked(ctx, false)
	if err != nil {
		return fmt.Errorf("get depmod: %w", err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := copyFile(src.image, filepath.Join(root, "vmlinuz")); err != nil {
		return err
	}
	return c.stageModules(ctx, tools, src, root)
}

// localKernel makes a kernel of the host, or of its developer.
func (c *Cache) localKernel(ctx context.Context, name string) (*Kernel, error) {
	src, err := findLocalKernel(name)
	if err != nil {
		return nil, err
	}
	recipe := kernelRecipe(kernelFormat)
	key, err := src.key(recipe)
	if err != nil {
		return nil, err
	}
	entryName := "local-" + hashOf(src.image)[:8]
	if e := c.byKey(entryName, key); e != nil {
		return kernelOf(e, name), nil
	}
	var k *Kernel
	err = c.locked(ctx, func() error {
		if e := c.byKey(entryName, key); e != nil {
			k = kernelOf(e, name)
			return nil
		}
		dir, err := c.tempLocked(entryName)
		if err != nil {
			return err
		}
		if err := c.stageKernelLocked(ctx, src, filepath.Join(dir, "root")); err != nil {
			return err
		}
		e, err := c.publishLocked(dir, Manifest{
			Name: entryName, Key: key, Recipe: recipe, Version: src.release, Release: src.release, Source: src.image,
		})
		if err == nil {
			k = kernelOf(e, name)
		}
		return err
	})
	return k, err
}

// kernelSource is a kernel as it is found on a disk.
type kernelSource struct {
	release string
	image   string
	// modules maps the name of each module to its file. Names have
	// underscores, as in modinfo.
	modules map[string]string
	// dir is what the files are named relative to in /lib/modules/RELEASE.
	dir string
	// builtin is the file modules.builtin, builtinInfo modules.builtin.modinfo;
	// either may be absent.
	builtin, builtinInfo string
}

// key changes whenever a file of the kernel does.
func (s *kernelSource) key(recipe string) (string, error) {
	parts := []string{recipe}
	stamp := func(path string) error {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		parts = append(parts, fmt.Sprintf("%s %d %d", path, st.Size(), st.ModTime().UnixNano()))
		return nil
	}
	if err := stamp(s.image); err != nil {
		return "", err
	}
	for _, name := range sortedKeys(s.modules) {
		if err := stamp(s.modules[name]); err != nil {
			return "", err
		}
	}
	return hashOf(parts), nil
}

// installedKernel finds the one kernel below a root directory.
func installedKernel(root string) (*kernelSource, error) {
	for _, lib := range []string{"usr/lib/modules", "lib/modules"} {
		dirs, _ := filepath.Glob(filepath.Join(root, lib, "*", "kernel"))
		if len(dirs) == 1 {
			return installedRelease(root, filepath.Dir(dirs[0]))
		}
	}
	return nil, errors.New("the packages hold no kernel, or several")
}

// installedRelease describes the kernel whose modules are in dir, a
// …/lib/modules/RELEASE.
func installedRelease(root, dir string) (*kernelSource, error) {
	rel := filepath.Base(dir)
	var err error
	for _, image := range []string{filepath.Join(root, "boot", "vmlinuz-"+rel), filepath.Join(dir, "vmlinuz")} {
		var f *os.File
		if f, err = os.Open(image); err == nil {
			f.Close()
			s := &kernelSource{release: rel, image: image}
			return s, s.addInstalled(dir)
		} else if !errors.Is(err, os.ErrNotExist) {
			break // there, but not for us
		}
	}
	return nil, fmt.Errorf("open the image of kernel %s: %w", rel, err)
}

// findLocalKernel resolves "host" and paths.
func findLocalKernel(name string) (*kernelSource, error) {
	if name == "host" {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return nil, err
		}
		rel := unix.ByteSliceToString(u.Release[:])
		return installedRelease("/", filepath.Join("/lib/modules", rel))
	}
	st, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsRune(name, '/') {
		return nil, fmt.Errorf("%w: not host, %s, or a path", ErrUnknownName, strings.Join(KernelNames(), ", "))
	}
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return buildTree(path, filepath.Join(path, "arch", "x86", "boot", "bzImage"))
	}
	rel, err := imageRelease(path)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if tree, ok := strings.CutSuffix(dir, "/arch/x86/boot"); ok {
		if _, err := os.Stat(filepath.Join(tree, "modules.order")); err == nil {
			return buildTree(tree, path)
		}
	}
	s := &kernelSource{release: rel, image: path}
	for _, root := range []string{dir, filepath.Dir(dir), "/"} {
		m := filepath.Join(root, "lib", "modules", rel)
		if _, err := os.Stat(m); err == nil {
			return s, s.addInstalled(m)
		}
	}
	if filepath.Base(dir) == rel { // …/lib/modules/RELEASE/vmlinuz
		return s, s.addInstalled(dir)
	}
	return s, nil // everything may be built in
}

// buildTree describes the kernel of a build tree. Nothing need be installed.
func buildTree(tree, image string) (*kernelSource, error) {
	rel, err := os.ReadFile(filepath.Join(tree, "include", "config", "kernel.release"))
	if err != nil {
		return nil, fmt.Errorf("%s is not a kernel build tree: %w", tree, err)
	}
	if _, err := os.Stat(image); err != nil {
		return nil, fmt.Errorf("%s is not built: %w", tree, err)
	}
	s := &kernelSource{release: strings.TrimSpace(string(rel)), image: image}
	return s, s.addBuilt(tree)
}

// imageRelease reads the release from a bzImage's setup header
// (Documentation/arch/x86/boot.rst: header at 0x202, kernel_version at 0x20e).
func imageRelease(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	setup := make([]byte, 64<<10)
	n, _ := f.ReadAt(setup, 0)
	setup = setup[:n]
	if n < 0x210 || string(setup[0x202:0x206]) != "HdrS" {
		return "", fmt.Errorf("%s is not a bzImage", path)
	}
	at := int(binary.LittleEndian.Uint16(setup[0x20e:])) + 0x200
	if at >= n {
		return "", fmt.Errorf("%s names no kernel release", path)
	}
	text, _, _ := bytes.Cut(setup[at:min(at+256, n)], []byte{0})
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return "", fmt.Errorf("%s names no kernel release", path)
	}
	return fields[0], nil
}
