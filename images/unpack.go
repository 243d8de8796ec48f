// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// unpackDeb unpacks the files of a package for which keep is true below root,
// and returns their paths, relative to root and without directories.
//
// dpkg-deb yields a tar stream rather than files so that what nobody needs
// (most of a kernel package's size is not, nor is documentation) never lands
// on the disk.
func unpackDeb(ctx context.Context, deb, root string, keep func(path string) bool) ([]string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	files, err := unpackTar(out, root, keep)
	if err != nil {
		// Let dpkg-deb end, whatever it still has to say.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	_, _ = io.Copy(io.Discard, out) // padding after the archive's end
	if err := cmd.Wait(); err != nil {
		return nil, commandError("dpkg-deb --fsys-tarfile "+filepath.Base(deb), err, stderr.String())
	}
	return files, nil
}

// unpackTar unpacks one tar stream. Directories of the tree are made as needed
// and belong to us, with our permissions; a path that leaves the tree, also
// through a symlink made earlier, is an error (os.Root sees to it).
func unpackTar(r io.Reader, dir string, keep func(path string) bool) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var files []string
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || h.Typeflag == tar.TypeDir || !keep(name) {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
		if err := root.RemoveAll(name); err != nil {
			return nil, err
		}
		switch h.Typeflag {
		case tar.TypeReg:
			// Set-uid bits mean nothing to us; the owner must be able to read.
			f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm()|0o400)
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(f, t)
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case tar.TypeSymlink:
			if err := root.Symlink(h.Linkname, name); err != nil {
				return nil, err
			}
		case tar.TypeLink:
			if err := root.Link(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"), name); err != nil {
				return nil, err
			}
		default:
			continue // packages of ours have no device nodes
		}
		files = append(files, name)
	}
}

// fetchRecipe says how packages become a tree.
type fetchRecipe struct {
	Format   int // raised when the code that makes the tree changes its output
	Release  string
	Suite    string
	Packages []string
	Only     []string // prefixes of the names of packages to take; empty: all
}

// notNeeded are parts of packages that no guest and no QEMU reads.
var notNeeded = []string{
	"usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/",
	"usr/share/bug/", "usr/share/bash-completion/", "usr/share/zsh/", "usr/share/common-licenses/",
	"usr/share/icons/", "usr/share/applications/", "usr/share/metainfo/", "usr/include/", "usr/lib/udev/",
	"usr/lib/systemd/", "etc/init.d/", "etc/systemd/", "usr/share/apport/", "usr/share/perl5/", "usr/share/polkit-1/",
	"usr/share/dbus-1/", "usr/lib/sysusers.d/", "usr/lib/tmpfiles.d/", "usr/share/initramfs-tools/", "usr/share/gcc/",
}

func needed(path string) bool {
	for _, p := range notNeeded {
		if strings.HasPrefix(path, p) {
			return false
		}
	}
	return true
}

// errUnchanged says that an entry already is what fetchLocked would make.
var errUnchanged = errors.New("the entry is up to date")

// fetchLocked resolves, downloads and unpacks what a recipe names into root.
// It returns errUnchanged if have, which may be nil, was made of the same.
func (c *Cache) fetchLocked(ctx context.Context, what string, r release, recipe fetchRecipe, have *entry, root string,
	keep func(string) bool) ([]Package, error) {
	a, err := c.aptLocked(ctx, r)
	if err != nil {
		return nil, err
	}
	all, err := a.resolve(ctx, recipe.Suite, recipe.Packages...)
	if err != nil {
		return nil, err
	}
	var list []candidate
	for _, p := range all {
		if len(recipe.Only) == 0 || hasPrefix(p.name, recipe.Only) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("none of the packages that %s depends on is named like %s", strings.Join(recipe.Packages, ", "), strings.Join(recipe.Only, "*, "))
	}
	if have != nil && have.madeOf(list) {
		return nil, errUnchanged
	}
	debs, err := c.tempLocked(what + "-debs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(debs)
	files, err := a.download(ctx, what, debs, list)
	if err != nil {
		return nil, err
	}
	c.log.Info("unpacking", "image", what, "packages", len(files))
	m := c.meter("unpacking "+what, 0)
	defer func() { m.done(err == nil) }()
	var packages []Package
	for i, f := range files {
		p := Package{Name: list[i].name, Version: list[i].version, Arch: list[i].arch}
		if p.SHA256, err = hashFile(f); err != nil {
			return nil, err
		}
		if p.Files, err = unpackDeb(ctx, f, root, keep); err != nil {
			return nil, err
		}
		_ = os.Remove(f) // early: kernels are large
		packages = append(packages, p)
		m.show(float64(i+1) * 100 / float64(len(files)))
	}
	return packages, nil
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// madeOf tells whether these packages are those the entry was made of.
func (e *entry) madeOf(list []candidate) bool {
	return slices.EqualFunc(e.Packages, list, func(p Package, c candidate) bool {
		return p.Name == c.name && p.Version == c.version && p.Arch == c.arch
	})
}

// keyOf is the key of an entry made of packages.
func keyOf(recipe string, packages []Package) string {
	parts := []string{recipe}
	for _, p := range packages {
		parts = append(parts, p.Name+"_"+p.Version+"_"+p.SHA256)
	}
	return hashOf(parts)
}

// versionOf returns the version of one of the packages, or "".
func versionOf(packages []Package, name string) string {
	for _, p := range packages {
		if p.Name == name {
			return p.Version
		}
	}
	return ""
}

// withoutFiles drops the lists of files, which only the userland needs.
func withoutFiles(packages []Package) []Package {
	out := make([]Package, len(packages))
	for i, p := range packages {
		p.Files = nil
		out[i] = p
	}
	return out
}

// mergedDirs are the directories of / that are links to those of /usr.
var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}

// mergeUsr adds the links of a merged /usr that packages rely on.
func mergeUsr(root string) error {
	for _, d := range mergedDirs {
		if err := os.MkdirAll(filepath.Join(root, "usr", d), 0o755); err != nil {
			return err
		}
		err := os.Symlink("usr/"+d, filepath.Join(root, d))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}
