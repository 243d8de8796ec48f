// SPDX-License-Identifier: Apache-2.0

package images

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// extras are programs for guests that ask for them: an archive each, unpacked
// over the initramfs of any kernel. One that brings libraries of the userland,
// too, brings them all, so that they are of one build.
var extras = []variant{{
	name:     "pyverbs",
	packages: []string{"python3-pyverbs", "python3-minimal", "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib", "ibverbs-providers"},
	python:   "python3.13",
	programs: verbsTests,
	drop: []string{
		"etc/", "var/", "usr/share/python3/", "usr/share/binfmts/", "usr/lib/valgrind/",
		"usr/bin/py3", "usr/bin/pdb", "usr/bin/pygettext", "usr/bin/pydoc",
		verbsTests + "test_mlx5_", verbsTests + "test_efa", verbsTests + "test_cuda", // of other makers' cards
		"usr/lib/python3.13/ensurepip/", "usr/lib/python3.13/pydoc_data/", "usr/lib/python3.13/sqlite3/",
		"usr/lib/python3.13/_pyrepl/", "usr/lib/python3.13/curses/", "usr/lib/python3.13/dbm/", "usr/lib/python3.13/wsgiref/",
		"usr/lib/python3.13/xmlrpc/", "usr/lib/python3.13/email/", "usr/lib/python3.13/venv/", "usr/lib/python3.13/zoneinfo/",
		"usr/lib/python3.13/asyncio/", "usr/lib/python3.13/html/", "usr/lib/python3.13/http/",
		"usr/lib/python3.13/concurrent/", "usr/lib/python3.13/xml/",
		"usr/lib/python3.13/idlelib/", "usr/lib/python3.13/turtle", "usr/lib/python3.13/sitecustomize.py", "usr/lib/python3.13/test/",
		"usr/lib/python3.13/lib-dynload/_codecs_", "usr/lib/python3.13/lib-dynload/_curses", "usr/lib/python3.13/lib-dynload/_hashlib",
		"usr/lib/python3.13/lib-dynload/_dbm", "usr/lib/python3.13/lib-dynload/_sqlite3", "usr/lib/python3.13/lib-dynload/_ssl",
		"usr/lib/python3.13/lib-dynload/readline", "usr/lib/python3.13/lib-dynload/_test", "usr/lib/python3.13/lib-dynload/xxlimited",
	},
}}

// verbsTests is where rdma-core's own tests are, with which the maintainers try
// cards, as documentation of pyverbs; run_tests.py is there, too. Those that all
// cards share need the modules for some makers' cards.
const verbsTests = "usr/share/doc/rdma-core/tests/"

// extraFormat changes with what extraLocked makes of the same packages.
const extraFormat = 2

// ExtraNames are the names that Extra takes.
func ExtraNames() []string {
	var names []string
	for _, v := range extras {
		names = append(names, v.name)
	}
	return names
}

func findExtra(name string) (variant, bool) {
	i := slices.IndexFunc(extras, func(v variant) bool { return v.name == name })
	if i < 0 {
		return variant{}, false
	}
	return extras[i], true
}

// extraRecipe is what an entry of an extra must have been made by: the files
// are chosen when it is made, unlike those of the userland.
func (v variant) extraRecipe() string {
	return hashOf([]any{extraFormat, v.recipe(), v.libs, v.drop, v.python, v.programs})
}

// Extra returns the path of an archive with programs that not every guest has,
// fetched if need be; it goes behind that of [Cache.Initramfs]. "pyverbs" is
// python3 with rdma-core's pyverbs and its tests.
func (c *Cache) Extra(ctx context.Context, name string) (string, error) {
	v, ok := findExtra(name)
	if !ok {
		return "", fmt.Errorf("%w: %s (known: %s)", ErrUnknownName, name, strings.Join(ExtraNames(), ", "))
	}
	if e := c.current(v.name, v.extraRecipe()); e != nil {
		return e.path(initramfsFile), nil
	}
	var path string
	err := c.locked(ctx, func() error {
		e, err := c.extraLocked(ctx, v, false)
		if err == nil {
			path = e.path(initramfsFile)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("get image %s: %w", name, err)
	}
	return path, nil
}

// extraLocked returns an extra, a fresh one if asked to.
func (c *Cache) extraLocked(ctx context.Context, v variant, refresh bool) (*entry, error) {
	recipe := v.extraRecipe()
	have := c.current(v.name, recipe)
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(v.name)
	if err != nil {
		return nil, err
	}
	tree := &entry{dir: filepath.Join(dir, "unpacked")}
	if err := mergeUsr(tree.path()); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, v.name, trixie, v.recipe(), have, tree.path(), func(p string) bool {
		return (needed(p) || v.isProgram(p)) && !slices.Contains(mergedDirs, p)
	})
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, err
	}
	for i := range packages {
		if err := v.expand(tree, packages[i].Files); err != nil {
			return nil, fmt.Errorf("unpack the programs of %s: %w", packages[i].Name, err)
		}
	}
	tree.Packages = packages
	u := &userland{b: newArchive(), e: tree, v: v}
	if err := u.addPackages(); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "root", initramfsFile)
	if err := os.Mkdir(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	if err := u.compilePython(ctx); err != nil {
		return nil, err
	}
	if err := u.b.writeFile(out); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(tree.dir); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: v.name, Key: keyOf(recipe, packages), Recipe: recipe,
		Version: versionOf(packages, v.packages[0]), Packages: withoutFiles(packages),
	})
}

// isProgram tells whether a path is of programs that a package has among its
// documentation.
func (v variant) isProgram(path string) bool {
	return v.programs != "" && strings.HasPrefix(path, v.programs)
}

// expand undoes what a package does to long files of its documentation, of
// programs among them, and corrects the list of files.
func (v variant) expand(tree *entry, files []string) error {
	for i, name := range files {
		plain, ok := strings.CutSuffix(name, ".gz")
		if !ok || !v.isProgram(name) {
			continue
		}
		if err := gunzip(tree.path(name), tree.path(plain)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[i] = plain
	}
	return nil
}

// maxProgram bounds what a compressed program grows to.
const maxProgram = 16 << 20

func gunzip(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxProgram+1))
	if err != nil {
		return err
	}
	if len(text) > maxProgram {
		return fmt.Errorf("more than %d bytes", maxProgram)
	}
	return os.WriteFile(to, text, 0o644)
}

// compilePython adds the byte code of all modules: an emulated CPU takes
// seconds to compile what a program imports, and does so again in every guest.
func (u *userland) compilePython(ctx context.Context) error {
	if u.v.python == "" {
		return nil
	}
	// Times are lost in an archive, so byte code must not be checked against them.
	args := []string{"-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", u.e.path(), "-p", "/",
		u.e.path("usr/lib", u.v.python), u.e.path("usr/lib/python3")}
	if u.v.programs != "" {
		args = append(args, u.e.path(u.v.programs))
	}
	if _, err := output(ctx, append(treeProgram(u.e, "usr/bin/"+u.v.python), "-I", "-S"), args...); err != nil {
		return fmt.Errorf("compile the modules of %s: %w", u.v.python, err)
	}
	tag := ".c" + strings.ReplaceAll(u.v.python, "python3.", "python-3") + ".pyc"
	for name := range maps.Clone(u.b.files) {
		module, ok := strings.CutSuffix(name, ".py")
		if !ok || !strings.HasPrefix(name, "usr/lib/") && !u.v.isProgram(name) {
			continue
		}
		code := filepath.Join(filepath.Dir(name), "__pycache__", filepath.Base(module)+tag)
		if err := u.b.fromHost(code, u.e.path(code)); err != nil {
			return fmt.Errorf("add the byte code of %s: %w", name, err)
		}
	}
	return nil
}
