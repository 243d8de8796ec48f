// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// QEMU is a way to start qemu-system-x86_64.
type QEMU struct {
	// Argv is the program and its first arguments; append yours.
	Argv []string
	// Version is what the program says of itself, e.g. "11.1.3".
	Version string
	// Host is true if it is the host's own QEMU rather than the cache's.
	Host bool
}

const (
	qemuProgram = "qemu-system-x86_64"
	qemuName    = "qemu"
	// qemuDevice is the client of a vfio-user server.
	qemuDevice = "vfio-user-pci"
)

// minQEMU is the first release whose vfio-user-pci works with us: the device
// came with 10.1.0.
var minQEMU = [3]int{10, 1, 1}

func qemuRecipe() fetchRecipe {
	return fetchRecipe{Format: 1, Release: trixie.name, Suite: "trixie-backports", Packages: []string{"qemu-system-x86"}}
}

// QEMU returns how to start a QEMU that has vfio-user-pci: the host's if it is
// recent enough, else that of trixie-backports, fetched if need be.
func (c *Cache) QEMU(ctx context.Context) (*QEMU, error) {
	q, err := hostQEMU(ctx)
	if err == nil {
		return q, nil
	}
	c.log.Debug("not using a QEMU of the host", "reason", err)
	if e := c.current(qemuName, hashOf(qemuRecipe())); e != nil {
		return cachedQEMU(e), nil
	}
	err = c.locked(ctx, func() error {
		e, err := c.qemuLocked(ctx, false)
		if err == nil {
			q = cachedQEMU(e)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get QEMU: %w", err)
	}
	return q, nil
}

// qemuLocked returns the cache's QEMU, a fresh one if asked to.
func (c *Cache) qemuLocked(ctx context.Context, refresh bool) (*entry, error) {
	recipe := qemuRecipe()
	have := c.current(qemuName, hashOf(recipe))
	if have != nil && !refresh {
		return have, nil
	}
	dir, err := c.tempLocked(qemuName)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	if err := mergeUsr(root); err != nil {
		return nil, err
	}
	packages, err := c.fetchLocked(ctx, qemuName, trixie, recipe, have, root, needed)
	if errors.Is(err, errUnchanged) {
		return have, nil
	} else if err != nil {
		return nil, err
	}
	q := cachedQEMU(&entry{dir: dir})
	if q.Version, err = checkQEMU(ctx, q.Argv); err != nil {
		return nil, err
	}
	return c.publishLocked(dir, Manifest{
		Name: qemuName, Key: keyOf(hashOf(recipe), packages), Recipe: hashOf(recipe),
		Version: q.Version, Packages: withoutFiles(packages),
	})
}

// cachedQEMU tells how a QEMU runs from an unpacked tree: through the tree's
// own dynamic loader, with its own libraries.
func cachedQEMU(e *entry) *QEMU {
	argv := append(treeProgram(e, "usr/bin/"+qemuProgram),
		"-L", e.path("usr/share/qemu"),
		"-L", e.path("usr/share/seabios"),
		"-L", e.path("usr/lib/ipxe/qemu"),
	)
	return &QEMU{Argv: argv, Version: e.Version}
}

// treeProgram is how to run a program of an unpacked tree on a host whose own
// libraries may be older.
func treeProgram(e *entry, program string) []string {
	return []string{
		e.path("lib64/ld-linux-x86-64.so.2"),
		"--library-path", e.path("usr/lib/x86_64-linux-gnu"),
		e.path(program),
	}
}

func hostQEMU(ctx context.Context) (*QEMU, error) {
	path, err := exec.LookPath(qemuProgram)
	if err != nil {
		return nil, err
	}
	v, err := checkQEMU(ctx, []string{path})
	if err != nil {
		return nil, err
	}
	return &QEMU{Argv: []string{path}, Version: v, Host: true}, nil
}

// checkQEMU returns the version of a QEMU, or why it will not do.
func checkQEMU(ctx context.Context, argv []string) (string, error) {
	out, err := output(ctx, argv, "-version")
	if err != nil {
		return "", err
	}
	v, err := parseQEMUVersion(out)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
	if older(v, minQEMU) {
		return "", fmt.Errorf("%s is QEMU %s, need %d.%d.%d or newer", argv[len(argv)-1], text, minQEMU[0], minQEMU[1], minQEMU[2])
	}
	out, err = output(ctx, argv, "-device", "help")
	if err != nil {
		return "", err
	}
	if !strings.Contains(out, `"`+qemuDevice+`"`) {
		return "", fmt.Errorf("QEMU %s at %s has no device %s", text, argv[0], qemuDevice)
	}
	return text, nil
}

// parseQEMUVersion reads "QEMU emulator version 10.0.3 (Debian …)".
func parseQEMUVersion(out string) (v [3]int, err error) {
	_, rest, ok := strings.Cut(out, "version ")
	if !ok {
		return v, fmt.Errorf("not a version of QEMU: %.80q", out)
	}
	word, _, _ := strings.Cut(strings.Fields(rest + " ?")[0], "-")
	word, _, _ = strings.Cut(word, "+")
	parts := strings.Split(word, ".")
	if len(parts) < 2 {
		return v, fmt.Errorf("not a version of QEMU: %.80q", out)
	}
	for i := 0; i < len(parts) && i < len(v); i++ {
		if v[i], err = strconv.Atoi(parts[i]); err != nil {
			return v, fmt.Errorf("not a version of QEMU: %.80q", out)
		}
	}
	return v, nil
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// output runs a command and returns its stdout.
func output(ctx context.Context, argv []string, args ...string) (string, error) {
	argv = append(argv[:len(argv):len(argv)], args...)
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return "", commandError(strings.Join(argv, " "), err, stderr.String())
	}
	return string(out), nil
}
