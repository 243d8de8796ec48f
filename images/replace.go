// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ReplaceModules returns the overlay that puts modules of a developer in the
// place of a kernel's own: the modules themselves and the indexes of modprobe.
// A path is a module file or a directory that is searched for some. A module
// that the kernel does not have is added.
//
// A module that is built for another release is an error, since the guest's
// kernel would refuse it.
func (c *Cache) ReplaceModules(ctx context.Context, k *Kernel, paths []string) ([]OverlayFile, error) {
	files, err := c.replaceModules(ctx, k, paths)
	if err != nil {
		return nil, fmt.Errorf("replace modules of kernel %s: %w", k.Release, err)
	}
	return files, nil
}

func (c *Cache) replaceModules(ctx context.Context, k *Kernel, paths []string) ([]OverlayFile, error) {
	own := &kernelSource{release: k.Release}
	if err := own.addInstalled(k.Modules.Dir); err != nil {
		return nil, err
	}
	// Where modules go, relative to /lib/modules/RELEASE.
	images := map[string][]byte{}
	var given []string
	for _, p := range paths {
		m, err := findModules(p)
		if err != nil {
			return nil, err
		}
		given = append(given, m...)
	}
	needs := map[string]string{} // module → one that needs it
	for _, file := range given {
		image, err := readModule(file)
		if err != nil {
			return nil, err
		}
		info, err := readModInfo(image)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if info.vermagic != k.Release {
			return nil, fmt.Errorf("%s is built for kernel %q", file, info.vermagic)
		}
		name := moduleName(file)
		to := filepath.Join("updates", name+".ko")
		if have, ok := own.modules[name]; ok {
			to = own.installedName(have)
		}
		images[to] = image
		own.modules[name] = file
		for _, d := range info.needs {
			needs[d] = name
		}
	}
	for d, name := range needs {
		if _, ok := own.modules[d]; !ok {
			c.log.Warn("a module depends on one that the guest will not have, unless it is built in", "module", name, "needs", d)
		}
	}
	return c.indexReplaced(ctx, k, images)
}

// findModules returns the module files at or below a path.
func findModules(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		if !isModule(path) {
			return nil, fmt.Errorf("%s is not named like a module", path)
		}
		return []string{path}, nil
	}
	var found []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && isModule(p) {
			found = append(found, p)
		}
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s holds no modules", path)
	}
	return found, err
}

// indexReplaced runs depmod over a kernel's modules with some replaced.
func (c *Cache) indexReplaced(ctx context.Context, k *Kernel, images map[string][]byte) ([]OverlayFile, error) {
	tools, err := c.userland(ctx)
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "vrnic-modules-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	dir := filepath.Join(root, "lib", "modules", k.Release)
	err = filepath.WalkDir(k.Modules.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(k.Modules.Dir, p)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		if _, replaced := images[rel]; replaced || isIndex(rel) {
			return nil
		}
		return os.Symlink(p, to)
	})
	if err != nil {
		return nil, err
	}
	for rel, image := range images {
		if err := writeFile(filepath.Join(dir, rel), image); err != nil {
			return nil, err
		}
	}
	if err := depmod(ctx, tools, root, k.Release); err != nil {
		return nil, err
	}
	guest := "/lib/modules/" + k.Release + "/"
	var overlay []OverlayFile
	for rel, image := range images {
		overlay = append(overlay, OverlayFile{Path: guest + rel, Data: image})
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if !isIndex(n.Name()) {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		overlay = append(overlay, OverlayFile{Path: guest + n.Name(), Data: b})
	}
	return overlay, nil
}

// isIndex tells depmod's output from its input.
func isIndex(name string) bool {
	if !strings.HasPrefix(name, "modules.") {
		return false
	}
	switch name {
	case "modules.order", "modules.builtin", "modules.builtin.modinfo":
		return false
	}
	return true
}
